//! Loaders: more steps than fit in memory, loaded one tree after the other.
//!
//! While one tree is on its way to the store, the next one grows on a thread of its own: so neither waits for
//! the other.
//!
//! Invariant: steps become visible in their order; after one could not be loaded, no later one is.

use super::super::{Table, TableError};
use super::load::{Loading, STEPS_MAX};
use super::{PackOptions, TREE_TIMES, WholeStep};
use crate::protocol::{BlockId, EditError, RunId, Version};
use crate::room::{Keeping, keep};
use arrow_array::{Array, RecordBatch};
use futures::channel::oneshot;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

/// Takes the steps of a run in rising order, and packs and writes them as they come.
///
/// What was taken is there for sure only after [`Loader::finish`]; [`Loader::last`] says up to which step it
/// is before.
///
/// After an error, or a call that was dropped before it ended, it takes no more steps: a new loader goes on
/// behind [`Loader::last`]. It may also begin with steps that are there, which cost no more than a look as
/// long as none is new.
///
/// Dropping it leaves what is there, and never half a step. A tree that grows then, or after an error, on its
/// thread grows to its end, with its memory, and comes to nothing. Of the options, the share of a processor
/// and the bytes a second hold for what is written, not for that thread.
pub struct Loader {
    table: Table,
    run: RunId,
    attempt: u64,
    options: PackOptions,
    /// Bytes of rows that become one tree.
    tree_bytes: u64,
    /// Whether steps that are there are those of somebody else.
    is_only_new: bool,
    gathered: Vec<WholeStep>,
    bytes: u64,
    growing: Option<Growing>,
    version: Option<Version>,
    last: Option<u64>,
    /// The first step of those that could not be loaded.
    failed: Option<u64>,
    /// Each tree takes as much room as the one before.
    _keeping: Keeping,
}

/// A tree that grows, and its steps.
struct Growing {
    first: u64,
    last: u64,
    work: Work,
}

enum Work {
    /// All steps are there, in this version.
    None(Version),
    Done(Box<Result<Loading, TableError>>),
    /// On another thread.
    Elsewhere(oneshot::Receiver<thread::Result<Result<Loading, TableError>>>),
}

impl Table {
    /// Begins to load steps of a run: about so many bytes of rows become one tree, of 16,384 steps at most.
    /// It takes about thirteen times that in memory: few large trees are asked faster, small ones take less.
    ///
    /// # Errors
    /// [`TableError::PackOptions`], also for trees of no bytes.
    pub fn loader(
        &self,
        run: &str,
        attempt: u64,
        tree_bytes: u64,
        options: PackOptions,
    ) -> Result<Loader, TableError> {
        options.validate()?;
        if tree_bytes == 0 {
            return Err(TableError::PackOptions {
                problem: "a tree of a loader has one byte of rows at least",
            });
        }
        Ok(Loader {
            table: self.clone(),
            run: RunId::from(run),
            attempt,
            options,
            tree_bytes,
            is_only_new: false,
            gathered: Vec::new(),
            bytes: 0,
            growing: None,
            version: None,
            last: None,
            failed: None,
            _keeping: keep(usize::try_from(tree_bytes).unwrap_or(usize::MAX).saturating_mul(TREE_TIMES)),
        })
    }
}

impl Loader {
    /// The same for whoever has to know whether the rows are in, since nobody else is to write in the
    /// attempt: steps that are there already are those of somebody else, and an error
    /// ([`EditError::StepOrder`]) instead of a look.
    #[must_use]
    pub const fn only_new(mut self) -> Self {
        self.is_only_new = true;
        self
    }

    /// Takes a step; writes earlier ones, once enough are there.
    ///
    /// # Errors
    /// As [`Table::load`], of earlier steps as well; [`TableError::Behind`] after an error.
    pub async fn push(&mut self, step: WholeStep) -> Result<(), TableError> {
        self.check()?;
        self.bytes += bytes_of(&step.rows);
        self.gathered.push(step);
        let is_full = self.bytes >= self.tree_bytes || self.gathered.len() >= STEPS_MAX;
        if is_full { self.go_on().await } else { Ok(()) }
    }

    /// The last step that is there for sure, of those that were taken.
    #[must_use]
    pub const fn last(&self) -> Option<u64> {
        self.last
    }

    /// Writes all that was taken; the version that has it, or the current one if nothing was taken. It may
    /// take more steps after.
    ///
    /// # Errors
    /// As [`Loader::push`].
    pub async fn finish(&mut self) -> Result<Version, TableError> {
        self.check()?;
        if !self.gathered.is_empty() {
            self.go_on().await?;
        }
        let left = self.growing.take();
        self.write(left).await?;
        match self.version {
            Some(version) => Ok(version),
            None => self.table.version().await,
        }
    }

    fn check(&self) -> Result<(), TableError> {
        self.failed.map_or(Ok(()), |step| Err(TableError::Behind { id: self.id(step) }))
    }

    /// Lets the next tree grow, and writes the one before.
    async fn go_on(&mut self) -> Result<(), TableError> {
        self.bytes = 0;
        let steps = Arc::new(std::mem::take(&mut self.gathered));
        let first = steps.first().map(|step| step.step);
        // Whoever is dropped while this waits takes the steps along.
        self.failed = first;
        let next = self.begin(steps).await;
        self.failed = None;
        let before = self.growing.take();
        self.write(before).await?;
        match next {
            Ok(next) => {
                self.growing = Some(next);
                Ok(())
            }
            Err(error) => {
                self.failed = first;
                Err(error)
            }
        }
    }

    /// Lets a tree grow, unless its steps are there or may not come.
    async fn begin(&self, steps: Arc<Vec<WholeStep>>) -> Result<Growing, TableError> {
        let step = |step: Option<&WholeStep>| step.map_or(0, |step| step.step);
        let (first, last) = (step(steps.first()), step(steps.last()));
        if let Some(version) = self.table.has_loaded(&self.run, self.attempt, &steps).await? {
            if self.is_only_new {
                return Err(self.of_somebody_else(first, last));
            }
            return Ok(Growing { first, last, work: Work::None(version) });
        }
        self.table.notice_columns(steps.iter().map(|step| &step.rows)).await?;
        let (table, run, attempt) = (self.table.clone(), self.run.clone(), self.attempt);
        let options = self.options.clone();
        let work = Work::begin(move || table.loading(&run, attempt, &steps, &options));
        Ok(Growing { first, last, work })
    }

    async fn write(&mut self, growing: Option<Growing>) -> Result<(), TableError> {
        let Some(Growing { first, last, work }) = growing else { return Ok(()) };
        self.failed = Some(first);
        self.version = Some(match work {
            Work::None(version) => version,
            work => {
                let loading =
                    work.end().await.unwrap_or_else(|| Err(TableError::Behind { id: self.id(first) }))?;
                match self.table.write_loading(&loading, &self.options).await? {
                    Some(version) => version,
                    None if self.is_only_new => return Err(self.of_somebody_else(first, last)),
                    None => self.table.ledger.known_version(),
                }
            }
        });
        (self.last, self.failed) = (Some(last), None);
        Ok(())
    }

    /// Why steps that are all there are not taken.
    fn of_somebody_else(&self, first: u64, last: u64) -> TableError {
        TableError::Edit(EditError::StepOrder { id: self.id(first), last })
    }

    fn id(&self, step: u64) -> BlockId {
        BlockId { run: self.run.clone(), attempt: self.attempt, step, rank: 0 }
    }
}

impl Work {
    fn begin(work: impl FnOnce() -> Result<Loading, TableError> + Clone + Send + 'static) -> Self {
        let (tell, told) = oneshot::channel();
        let elsewhere = work.clone();
        let elsewhere = move || {
            let ended = catch_unwind(AssertUnwindSafe(elsewhere));
            // Whoever asked may be gone.
            drop(tell.send(ended));
        };
        match thread::Builder::new().name("atoll-load".to_owned()).spawn(elsewhere) {
            Ok(_) => Self::Elsewhere(told),
            // Where the system refuses a thread, this one does the work.
            Err(_) => Self::Done(Box::new(work())),
        }
    }

    /// What came of it; nothing where there was nothing to do, or a thread ended without a word. A panic
    /// there is one here.
    async fn end(self) -> Option<Result<Loading, TableError>> {
        match self {
            Self::None(_) => None,
            Self::Done(ended) => Some(*ended),
            Self::Elsewhere(told) => match told.await.ok()? {
                Ok(ended) => Some(ended),
                Err(panic) => resume_unwind(panic),
            },
        }
    }
}

/// Bytes of the rows themselves, whatever they are a part of.
fn bytes_of(rows: &RecordBatch) -> u64 {
    let of_column = |column: &dyn Array| {
        // What cannot be told is taken for what lies around it.
        column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()) as u64
    };
    rows.columns().iter().map(|column| of_column(column)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn a_panic_of_the_thread_is_one_of_whoever_waits_for_it() {
        let work = Work::begin(|| panic!("for this test"));
        let ended = AssertUnwindSafe(work.end()).catch_unwind().await;
        let panic = ended.err().expect("it ended well");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"for this test"));
    }
}

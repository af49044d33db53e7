//! Loaders: load more steps than fit in memory, one tree after another.
//!
//! While one tree is being stored, the next one grows on a thread of its own, so neither waits for the other.
//!
//! Invariant: steps become visible in order; once one could not be loaded, no later one is.

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

/// Takes the steps of a run in rising order, and packs and writes them along the way.
///
/// Only [`Loader::finish`] guarantees that all steps taken are in the table; before that, [`Loader::last`] is
/// the last step that is.
///
/// After an error, or after a call was dropped before it ended, the loader takes no more steps: continue with
/// a new loader after [`Loader::last`]. The new one may also begin with steps that are in the table already,
/// which cost only a check as long as none of them is new.
///
/// Dropping a loader leaves the steps written so far, and never part of a step. A tree that is growing at
/// that time, or after an error, grows to its end on its thread, keeping its memory, and is then discarded.
/// The options for the share of a processor and the bytes per second apply to writing, not to that thread.
pub struct Loader {
    table: Table,
    run: RunId,
    attempt: u64,
    options: PackOptions,
    /// Bytes of rows that become one tree.
    tree_bytes: u64,
    /// Whether steps that exist already are to be treated as those of another process.
    is_only_new: bool,
    gathered: Vec<WholeStep>,
    bytes: u64,
    growing: Option<GrowingTree>,
    version: Option<Version>,
    last: Option<u64>,
    /// The first step that could not be loaded.
    failed: Option<u64>,
    /// Each tree takes as much memory as the one before.
    _keeping: Keeping,
}

/// A growing tree and its range of steps.
struct GrowingTree {
    first: u64,
    last: u64,
    work: TreeWork,
}

enum TreeWork {
    /// The table has all steps already, in this version.
    None(Version),
    Done(Box<Result<Loading, TableError>>),
    /// On another thread.
    Elsewhere(oneshot::Receiver<thread::Result<Result<Loading, TableError>>>),
}

impl Table {
    /// Begins to load steps of a run. About `tree_bytes` bytes of rows become one tree, of at most 16,384
    /// steps. Takes about thirteen times that much memory: a few large trees make queries faster, small ones
    /// take less memory.
    ///
    /// # Errors
    /// [`TableError::PackOptions`], also if `tree_bytes` is 0.
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
                problem: "a tree of a loader needs at least one byte of rows",
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
    /// Makes it an error if the table already has the steps ([`EditError::StepOrder`]), for a caller that
    /// must know whether these very rows were added: no other process is expected to write in this attempt.
    #[must_use]
    pub const fn only_new(mut self) -> Self {
        self.is_only_new = true;
        self
    }

    /// Takes a step; writes earlier ones once there are enough.
    ///
    /// # Errors
    /// As [`Table::load`], also about earlier steps; [`TableError::Behind`] after an error.
    pub async fn push(&mut self, step: WholeStep) -> Result<(), TableError> {
        self.check()?;
        self.bytes += bytes_of(&step.rows);
        self.gathered.push(step);
        let is_full = self.bytes >= self.tree_bytes || self.gathered.len() >= STEPS_MAX;
        if is_full { self.grow_next().await } else { Ok(()) }
    }

    /// The last of the steps taken that is known to be in the table.
    #[must_use]
    pub const fn last(&self) -> Option<u64> {
        self.last
    }

    /// Writes all steps taken; returns the version that has them, or the current one if none were taken. More
    /// steps may follow.
    ///
    /// # Errors
    /// As [`Loader::push`].
    pub async fn finish(&mut self) -> Result<Version, TableError> {
        self.check()?;
        if !self.gathered.is_empty() {
            self.grow_next().await?;
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

    /// Starts to grow the next tree, and writes the previous one.
    async fn grow_next(&mut self) -> Result<(), TableError> {
        self.bytes = 0;
        let steps = Arc::new(std::mem::take(&mut self.gathered));
        let first = steps.first().map(|step| step.step);
        // If this call is dropped while it waits, the steps are lost.
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

    /// Starts to grow a tree, unless the table has its steps already or does not admit them.
    async fn begin(&self, steps: Arc<Vec<WholeStep>>) -> Result<GrowingTree, TableError> {
        let step = |step: Option<&WholeStep>| step.map_or(0, |step| step.step);
        let (first, last) = (step(steps.first()), step(steps.last()));
        if let Some(version) = self.table.has_loaded(&self.run, self.attempt, &steps).await? {
            if self.is_only_new {
                return Err(self.of_somebody_else(first, last));
            }
            return Ok(GrowingTree { first, last, work: TreeWork::None(version) });
        }
        self.table.notice_columns(steps.iter().map(|step| &step.rows)).await?;
        let (table, run, attempt) = (self.table.clone(), self.run.clone(), self.attempt);
        let options = self.options.clone();
        let work = TreeWork::begin(move || table.loading(&run, attempt, &steps, &options));
        Ok(GrowingTree { first, last, work })
    }

    async fn write(&mut self, growing: Option<GrowingTree>) -> Result<(), TableError> {
        let Some(GrowingTree { first, last, work }) = growing else { return Ok(()) };
        self.failed = Some(first);
        self.version = Some(match work {
            TreeWork::None(version) => version,
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

    /// The error for steps that another process has added.
    fn of_somebody_else(&self, first: u64, last: u64) -> TableError {
        TableError::Edit(EditError::StepOrder { id: self.id(first), last })
    }

    fn id(&self, step: u64) -> BlockId {
        BlockId { run: self.run.clone(), attempt: self.attempt, step, rank: 0 }
    }
}

impl TreeWork {
    fn begin(work: impl FnOnce() -> Result<Loading, TableError> + Clone + Send + 'static) -> Self {
        let (tell, told) = oneshot::channel();
        let elsewhere = work.clone();
        let elsewhere = move || {
            let ended = catch_unwind(AssertUnwindSafe(elsewhere));
            // The loader may have been dropped.
            drop(tell.send(ended));
        };
        match thread::Builder::new().name("atoll-load".to_owned()).spawn(elsewhere) {
            Ok(_) => Self::Elsewhere(told),
            // If the system refuses a thread, this one does the work.
            Err(_) => Self::Done(Box::new(work())),
        }
    }

    /// The result of the work; `None` if there was nothing to do, or if the thread ended without a result. A
    /// panic of the thread continues here.
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

/// Bytes of the rows themselves, not of larger buffers that they are slices of.
fn bytes_of(rows: &RecordBatch) -> u64 {
    let of_column = |column: &dyn Array| {
        // If the size of the slice is unknown, take that of its buffers.
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
        let work = TreeWork::begin(|| panic!("for this test"));
        let ended = AssertUnwindSafe(work.end()).catch_unwind().await;
        let panic = ended.err().expect("it ended well");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"for this test"));
    }
}

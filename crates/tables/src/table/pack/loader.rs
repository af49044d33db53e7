//! Loaders: more steps than fit in memory, loaded one tree after the other.
//!
//! While one tree is on its way to the store, the next one grows on a thread of its own: so neither waits for the other.
//!
//! Invariant: steps become visible in their order; after one could not be loaded, no later one is.

use super::super::{Table, TableError};
use super::load::{Loading, STEPS_MAX};
use super::{PackOptions, WholeStep};
use crate::protocol::{BlockId, RunId, Version};
use crate::room::{Keeping, keep};
use arrow_array::{Array, RecordBatch};
use futures::channel::oneshot;
use std::sync::Arc;

/// How many times as large as its rows is what a tree takes while it grows.
const TREE_TIMES: usize = 6;

/// Takes the steps of a run in rising order, and packs and writes them as they come.
///
/// What was taken is there for sure only after [`Loader::finish`]; [`Loader::last`] says up to which step it is before.
/// Dropping it leaves what is there, and never half a step. After an error a new loader goes on behind that step.
pub struct Loader {
    table: Table,
    run: RunId,
    attempt: u64,
    options: PackOptions,
    /// Bytes of rows that become one tree.
    tree_bytes: u64,
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
    grown: Grown,
}

enum Grown {
    Now(Box<Result<Loading, TableError>>),
    /// On another thread.
    Later(oneshot::Receiver<Result<Loading, TableError>>),
}

impl Table {
    /// Begins to load steps of a run: about so many bytes of rows become one tree. It takes about thirteen times that in
    /// memory: few large trees are asked faster, small ones take less.
    ///
    /// # Errors
    /// [`TableError::PackOptions`].
    pub fn loader(
        &self,
        run: &str,
        attempt: u64,
        tree_bytes: u64,
        options: PackOptions,
    ) -> Result<Loader, TableError> {
        options.validate()?;
        Ok(Loader {
            table: self.clone(),
            run: RunId::from(run),
            attempt,
            options,
            tree_bytes,
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

    /// Writes all that was taken; the version that has it, or the current one if nothing was taken.
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
        let noticed = self.table.notice_columns(steps.iter().map(|step| &step.rows)).await;
        let next = noticed.is_ok().then(|| self.grow(steps));
        let before = self.growing.take();
        self.write(before).await?;
        self.growing = next;
        if noticed.is_err() {
            self.failed = first;
        }
        noticed
    }

    fn grow(&self, steps: Arc<Vec<WholeStep>>) -> Growing {
        let step = |step: Option<&WholeStep>| step.map_or(0, |step| step.step);
        let (first, last) = (step(steps.first()), step(steps.last()));
        let (table, run, attempt) = (self.table.clone(), self.run.clone(), self.attempt);
        let options = self.options.clone();
        let work = move || table.loading(&run, attempt, &steps, &options);
        let (tell, grown) = oneshot::channel();
        // Whoever asked may be gone.
        let elsewhere = work.clone();
        let thread = std::thread::Builder::new().name("atoll-load".to_owned());
        let grown = match thread.spawn(move || drop(tell.send(elsewhere()))) {
            Ok(_) => Grown::Later(grown),
            // Where the system refuses a thread, this one does the work.
            Err(_) => Grown::Now(Box::new(work())),
        };
        Growing { first, last, grown }
    }

    async fn write(&mut self, growing: Option<Growing>) -> Result<(), TableError> {
        let Some(Growing { first, last, grown }) = growing else { return Ok(()) };
        self.failed = Some(first);
        let loading = match grown {
            Grown::Now(grown) => (*grown)?,
            // A thread that says nothing has told on standard error why.
            Grown::Later(grown) => grown.await.map_err(|_| TableError::Behind { id: self.id(first) })??,
        };
        self.version = Some(self.table.write_loading(&loading, &self.options).await?);
        (self.last, self.failed) = (Some(last), None);
        Ok(())
    }

    fn id(&self, step: u64) -> BlockId {
        BlockId { run: self.run.clone(), attempt: self.attempt, step, rank: 0 }
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

//! A table in a store: made, opened, appended to, and asked.
//!
//! Everything here goes through the store contract. What is true about a table is its manifest partition
//! ([`crate::protocol`]); rows lie in immutable objects, each in a partition of its own.
//!
//! Invariant: an object is created before the edit that names it, and never changed.
//! Invariant: a query reads one version, and of it only what that version names.

mod append;
mod attributes;
mod belongs;
mod codec;
mod copies;
mod entries;
mod error;
mod ledger;
mod line;
mod lineage;
mod names;
mod notes;
mod pack;
mod parts;
mod query;
mod registry;
mod run_filter;
mod runs;
mod session;
mod snapshots;
mod strike;
mod vacuum;

pub use attributes::{AttributeChanges, Attributes, AttributesOf};
pub use belongs::{Belonging, Belongs};
pub use copies::{CopyProgress, CopyReport};
pub use error::TableError;
pub use pack::{KeepPacked, Loader, PackOptions, PackReport, WholeStep};
pub use query::{
    Answer, Batches, Count, Explanation, OfObjects, OfRuns, Query, QuerySplit, Refined, Refinement, Scanned,
    Union, UnionRefinement, Within, Work,
};
pub(crate) use query::{BATCH_ROWS_MAX, Beginnings, again_if_gone, sum_of};
pub use registry::TableSummary;
pub(crate) use run_filter::runs_where;
pub use runs::{RunState, RunSummary, StepSummary, TableInfo};
pub use snapshots::SnapshotSummary;
pub use vacuum::VacuumReport;

use crate::TableSchema;
use crate::protocol::{SessionId, Version};
use crate::schema::nearest_column;
use arrow_schema::FieldRef;
use atoll_store::Store;
use ledger::Ledger;
use line::Line;
use lineage::Lineage;
use names::Names;
use parts::Parts;
use std::sync::Arc;

/// A table of a store, open. A clone shares this handle's session.
#[derive(Clone)]
pub struct Table {
    store: Arc<dyn Store>,
    name: String,
    /// The columns and roles of the version that this clone is about ([`Table::at`]); of a handle that is
    /// about none, those of the version in which it was opened.
    schema: Arc<TableSchema>,
    lineage: Arc<Lineage>,
    /// Columns that other tables of a union have and this one has not.
    also: Arc<[FieldRef]>,
    names: Names,
    ledger: Arc<Ledger>,
    line: Arc<Line>,
    number: u128,
    parts: Arc<Parts>,
}

/// What the registry says of a table.
#[derive(Clone, Debug)]
struct Entry {
    id: u128,
    schema: TableSchema,
    stage: Stage,
}

/// Where in its life a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It can be opened.
    There,
    /// It is on its way out.
    Dropped,
    /// It is to become a copy of the table with this identity, and can be opened once it is.
    Arriving { from: u128 },
}

impl Table {
    async fn of(store: Arc<dyn Store>, name: &str, entry: Entry) -> Result<Self, TableError> {
        let names = Names::of(entry.id);
        let ledger = Arc::new(Ledger::open(Arc::clone(&store), name, &names).await?);
        let lineage = Arc::new(Lineage::new(entry.schema));
        let (schema, line, parts) = (lineage.newest(), Arc::default(), Arc::default());
        let (name, number, also) = (name.to_owned(), names::random_id(), Arc::default());
        let table = Self { store, name, schema, lineage, also, names, ledger, line, number, parts };
        table.learn_columns()?;
        Ok(Self { schema: table.lineage.newest(), ..table })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its columns and their roles, in the newest version that this handle has seen; [`Table::schema_now`]
    /// looks.
    #[must_use]
    pub fn schema(&self) -> Arc<TableSchema> {
        let newest = self.lineage.newest();
        // What a union has checked can be added.
        self.with_others(&newest).unwrap_or(newest)
    }

    /// The refusal for a column that is not there.
    pub(crate) fn no_column(&self, column: &str) -> TableError {
        let nearest = nearest_column(self.schema().columns(), column);
        TableError::Column { table: self.name.clone(), column: column.to_owned(), nearest }
    }

    /// The version that is current now.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn version(&self) -> Result<Version, TableError> {
        let state = self.ledger.current().await?;
        self.learn_columns()?;
        Ok(state.head.version)
    }

    /// How many bytes the rows of one rank and step take at most in this store: they are one object. Columns
    /// of numbers take their width for each row, and a little comes to it.
    #[must_use]
    pub fn block_bytes_max(&self) -> u64 {
        self.store.capabilities().limits.value_bytes
    }

    /// A number of this handle and its clones, which no other has.
    #[must_use]
    pub fn handle_number(&self) -> u128 {
        self.number
    }

    /// This handle's session; none before its first write.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.ledger.own_session().as_ref().map(|session| session.id)
    }

    /// Waits until everything that was acknowledged by the table's store is on the disk.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn sync(&self) -> Result<(), TableError> {
        Ok(self.store.sync().await?)
    }

    /// Ends this handle's session, so that nothing of it is left. A handle that is merely dropped leaves a
    /// few bytes until a vacuum; one that is used again begins another session.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn close(&self) -> Result<(), TableError> {
        self.ledger.end_session().await
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Table").field("name", &self.name).finish_non_exhaustive()
    }
}

fn check_name(what: &'static str, name: &str) -> Result<(), TableError> {
    match crate::name::problem(name) {
        None => Ok(()),
        Some(problem) => Err(TableError::Name { what, name: name.to_owned(), problem }),
    }
}

#[cfg(test)]
mod tests;

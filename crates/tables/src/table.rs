//! Tables in a store: creating, opening, appending, querying.
//!
//! All access goes through the store contract. The state of a table is its manifest partition
//! ([`crate::protocol`]); rows are stored in immutable objects, each in a partition of its own.
//!
//! Invariant: an object is created before the edit that names it, and never changed.
//! Invariant: a query reads a single version, and only what that version names.

mod append;
mod append_queue;
mod attributes;
mod belongs;
mod codec;
mod copies;
mod dropped;
mod entries;
mod error;
mod ledger;
mod lineage;
mod names;
mod notes;
mod pack;
mod part_cache;
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
pub use pack::{KeepPacked, Loader, PackOptions, PackProgress, PackReport, WholeStep};
pub use query::{
    Answer, Batches, Count, Explanation, Extreme, OfObjects, OfRuns, Query, QuerySplit, Refined, Refinement,
    Scanned, Union, UnionRefinement, Within, Work,
};
pub(crate) use query::{
    BATCH_ROWS_MAX, ContainedRows, End, KnownCount, Restarts, Spread, restart_if_gone, sum_of,
};
pub use registry::TableSummary;
pub(crate) use run_filter::runs_where;
pub use runs::{RunState, RunSummary, StepSummary, TableInfo};
pub use snapshots::SnapshotSummary;
pub use vacuum::VacuumReport;

use crate::TableSchema;
use crate::protocol::{SessionId, Version};
use crate::schema::nearest_column;
use append_queue::AppendQueue;
use arrow_schema::FieldRef;
use atoll_store::Store;
use ledger::Ledger;
use lineage::Lineage;
use names::Names;
use part_cache::TableParts;
use std::sync::Arc;

/// An open table of a store. Clones share the session of the handle.
#[derive(Clone)]
pub struct Table {
    store: Arc<dyn Store>,
    name: String,
    /// The columns and roles of the version that this clone is pinned to ([`Table::at`]); of an unpinned
    /// handle, those of the version at which it was opened.
    schema: Arc<TableSchema>,
    lineage: Arc<Lineage>,
    /// Columns that other tables of a union have and this one does not.
    also: Arc<[FieldRef]>,
    names: Names,
    ledger: Arc<Ledger>,
    append_queue: Arc<AppendQueue>,
    number: u128,
    parts: Arc<TableParts>,
}

/// The entry of a table in the registry.
#[derive(Clone, Debug)]
struct Entry {
    id: u128,
    schema: TableSchema,
    stage: Stage,
}

/// The stage of a table's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The table can be opened.
    Live,
    /// The table is being dropped.
    Dropped,
    /// The table is to become a copy of the table with this id, and can be opened once the copy is complete.
    Arriving { from: u128 },
}

impl Table {
    async fn of(store: Arc<dyn Store>, name: &str, entry: Entry) -> Result<Self, TableError> {
        let names = Names::of(entry.id);
        let ledger = Arc::new(Ledger::open(Arc::clone(&store), name, &names).await?);
        let lineage = Arc::new(Lineage::new(entry.schema));
        let table = Self {
            store,
            name: name.to_owned(),
            schema: lineage.newest(),
            lineage,
            also: Arc::default(),
            names,
            ledger,
            append_queue: Arc::default(),
            number: names::random_id(),
            parts: Arc::default(),
        };
        table.learn_columns()?;
        Ok(Self { schema: table.lineage.newest(), ..table })
    }

    /// Name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number that identifies the table, wherever its store is and whatever it is called. It was drawn at
    /// random as the table was created, so a table that is dropped and created again has another one. A copy
    /// of the whole store keeps it; [`Table::copy_to`] creates another table.
    #[must_use]
    pub const fn identity(&self) -> u128 {
        self.names.id()
    }

    /// The columns and their roles in the newest version that this handle has seen. [`Table::schema_now`]
    /// looks for a newer one.
    #[must_use]
    pub fn schema(&self) -> Arc<TableSchema> {
        let newest = self.lineage.newest();
        // A union has checked that its columns can be added, so this does not fail.
        self.with_others(&newest).unwrap_or(newest)
    }

    /// The error for a column that does not exist.
    pub(crate) fn no_column(&self, column: &str) -> TableError {
        let nearest = nearest_column(self.schema().columns(), column);
        TableError::Column { table: self.name.clone(), column: column.to_owned(), nearest }
    }

    /// The current version.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn version(&self) -> Result<Version, TableError> {
        let state = self.ledger.current().await?;
        self.learn_columns()?;
        Ok(state.head.version)
    }

    /// Maximum number of bytes for the rows of one rank and step in this store, since they form one object. A
    /// numeric column takes its width per row, and there is a small overhead; [`Table::bytes_at_most`] counts
    /// both.
    #[must_use]
    pub fn block_bytes_max(&self) -> u64 {
        self.store.capabilities().limits.value_bytes
    }

    /// A number that identifies this handle and its clones.
    #[must_use]
    pub fn handle_number(&self) -> u128 {
        self.number
    }

    /// The session of this handle; `None` before its first write.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.ledger.own_session().as_ref().map(|session| session.id)
    }

    /// Waits until everything that the table's store has acknowledged is on disk.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn sync(&self) -> Result<(), TableError> {
        Ok(self.store.sync().await?)
    }

    /// Ends the session of this handle, so that nothing of it is left in the store. A handle that is merely
    /// dropped leaves a few bytes until the next vacuum. A handle that is used after closing begins another
    /// session.
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

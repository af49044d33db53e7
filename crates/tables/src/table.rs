//! A table in a store: made, opened, appended to, and asked.
//!
//! Everything here goes through the store contract. What is true about a table is its manifest partition
//! ([`crate::protocol`]); rows lie in immutable objects, each in a partition of its own.
//!
//! Invariant: an object is created before the edit that names it, and never changed.
//! Invariant: a query reads one version, and of it only what that version names.

mod append;
mod codec;
mod ledger;
mod names;
mod query;

pub use query::{Answer, Batches, Count, Explanation, Query, Refined, Refinement, Within, Work};

use crate::block::BlockError;
use crate::estimate::EstimateError;
use crate::expression::{EvaluateError, ExpressionError};
use crate::protocol::{EditError, SessionId, Version};
use crate::{SchemaError, TableSchema};
use atoll_errors::ErrorKind;
use atoll_store::{Cell, ReadOptions, Store, StoreError, WriteOptions};
use ledger::Ledger;
use names::{Names, REGISTRY};
use std::sync::Arc;

/// Why a table did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// There is no such table.
    #[error("there is no table \"{name}\"")]
    NotFound {
        /// The name asked for.
        name: String,
    },
    /// There is one already.
    #[error("there is a table \"{name}\" already, with another schema")]
    Exists {
        /// The name.
        name: String,
    },
    /// A table cannot have this name.
    #[error("a table cannot be called {name:?}: {problem}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A block.
    #[error("{object}: {source}")]
    Block {
        /// Which object; "new rows" for one that is not there yet.
        object: String,
        /// What is wrong with it.
        source: BlockError,
    },
    /// The version that is current does not admit the edit.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The session of this handle ended while it was away: what it wrote last is in no version.
    #[error("the session of this process at table \"{table}\" has ended; open the table again")]
    Fenced {
        /// The table.
        table: String,
    },
    /// Nobody knows whether the edit became true.
    #[error("whether the edit of table \"{table}\" became true cannot be told any more")]
    Forgotten {
        /// The table.
        table: String,
    },
    /// A version that is asked for can be read no longer.
    #[error("version {asked} of table \"{table}\" is gone; the oldest that can be read is {oldest}")]
    VersionGone {
        /// The table.
        table: String,
        /// The version asked for.
        asked: Version,
        /// The oldest that is left.
        oldest: Version,
    },
    /// A column that is asked for is not there.
    #[error("table \"{table}\" has no column \"{column}\"")]
    Column {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A step of one rank has more rows than one object holds.
    #[error("the rows of one rank and step take {bytes} bytes, and an object of this store holds {max}")]
    TooLarge {
        /// What they take.
        bytes: u64,
        /// What is possible.
        max: u64,
    },
    /// This release cannot read what another one wrote.
    #[error("this release cannot read {what}")]
    Unsupported {
        /// What it cannot read.
        what: &'static str,
    },
    /// What is stored about the table cannot be read.
    #[error("table \"{table}\" is damaged: {problem}")]
    Damaged {
        /// The table.
        table: String,
        /// What is wrong.
        problem: String,
    },
    /// The filter does not fit the table.
    #[error(transparent)]
    Filter(#[from] ExpressionError),
    /// The filter could not be asked of the rows.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// What cannot be estimated.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// A column has no numbers to estimate anything from.
    #[error("column {column} is {data_type}, and estimates are of numbers, times and truth values")]
    NoNumbers {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TableError {
    /// The kind of error, as all doors name it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } | Self::Column { .. } | Self::VersionGone { .. } => ErrorKind::NotFound,
            Self::Exists { .. } | Self::Fenced { .. } => ErrorKind::Conflict,
            Self::Name { .. } | Self::NoNumbers { .. } => ErrorKind::InvalidInput,
            Self::Estimate(error) => error.kind(),
            Self::Schema(error) => error.kind(),
            Self::Block { source, .. } => source.kind(),
            Self::Edit(error) => error.kind(),
            Self::Forgotten { .. } => ErrorKind::TimedOut,
            Self::TooLarge { .. } => ErrorKind::Limit,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::Filter(error) => error.kind(),
            Self::Evaluate(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }
}

/// A table of a store, open. A clone is the same stay at the table.
#[derive(Clone)]
pub struct Table {
    store: Arc<dyn Store>,
    name: String,
    schema: Arc<TableSchema>,
    names: Names,
    ledger: Arc<Ledger>,
}

/// What the registry says of a table.
struct Entry {
    id: u128,
    schema: TableSchema,
}

impl Table {
    /// Makes a table, or opens the one that is there if it has the same schema.
    ///
    /// # Errors
    /// [`TableError::Name`], [`TableError::Exists`] for another schema, errors of the store.
    pub async fn create(store: Arc<dyn Store>, name: &str, schema: TableSchema) -> Result<Self, TableError> {
        if let Some(problem) = crate::name::problem(name) {
            return Err(TableError::Name { name: name.to_owned(), problem });
        }
        let entry = Entry { id: names::random_id(), schema };
        // The manifest partition needs nothing to be empty, so the registry's cell is all there is to write.
        let text = codec::entry_to_json(&entry);
        let cell = Cell::new(REGISTRY, name);
        match store.compare_and_swap(cell, None, text.as_bytes(), WriteOptions::default()).await {
            Ok(_) | Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let table = Self::open(store, name).await?;
        if *table.schema == entry.schema {
            Ok(table)
        } else {
            Err(TableError::Exists { name: name.to_owned() })
        }
    }

    /// Opens a table.
    ///
    /// # Errors
    /// [`TableError::NotFound`], [`TableError::Damaged`], errors of the store.
    pub async fn open(store: Arc<dyn Store>, name: &str) -> Result<Self, TableError> {
        let found = store.get(Cell::new(REGISTRY, name), ReadOptions::default()).await?;
        let text = found.ok_or_else(|| TableError::NotFound { name: name.to_owned() })?;
        let Entry { id, schema } = codec::entry_from_json(name, &text)?;
        let names = Names::of(id);
        let ledger = Arc::new(Ledger::open(Arc::clone(&store), name, &names).await?);
        Ok(Self { store, name: name.to_owned(), schema: Arc::new(schema), names, ledger })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its columns and their roles.
    #[must_use]
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// The version that is current now.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn version(&self) -> Result<Version, TableError> {
        Ok(self.ledger.current().await?.head.version)
    }

    /// This process's stay at the table.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.ledger.session()
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Table").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! Rows of some runs: which runs are meant, and which parts can have rows of them.
//!
//! A block was written by one run, and so was a tree that was packed of one alone; there a run costs nothing. In a tree
//! of several the origins of rows are read beside their columns.

use super::super::strike::Strike;
use super::{Table, TableError};
use crate::protocol::{Extent, Manifest, RunId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The runs of whose rows alone a query is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfRuns {
    names: Arc<BTreeSet<RunId>>,
    /// Whether some may not be there: another of several tables has them.
    may_be_missing: bool,
}

impl OfRuns {
    /// The runs of these names, each of which has to be there.
    pub fn new<N: Into<RunId>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { names: Arc::new(names.into_iter().map(Into::into).collect()), may_be_missing: false }
    }

    /// The same, of a table that need not have all of them.
    pub(super) fn where_there(&self) -> Self {
        Self { names: Arc::clone(&self.names), may_be_missing: true }
    }

    /// The runs that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::new(self.names.intersection(&other.names).cloned())
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &RunId> {
        self.names.iter()
    }

    /// Refuses a run that a version does not have.
    pub(super) fn check(&self, table: &Table, manifest: &Manifest) -> Result<(), TableError> {
        let missing = self.names.iter().find(|name| manifest.runs.get(*name).is_none());
        match missing.filter(|_| !self.may_be_missing) {
            Some(name) => Err(table.no_run(&name.0, manifest.runs.keys())),
            None => Ok(()),
        }
    }

    /// What is left out of a part with such rows; none where the whole part is.
    pub(super) fn within(&self, extent: &Extent) -> Option<Option<Strike>> {
        match &extent.run {
            Some(run) if self.names.contains(run) => Some(None),
            Some(_) => None,
            None => Some(Some(Strike::all_but(Arc::clone(&self.names)))),
        }
    }
}

//! Rows of some runs: which runs are meant, and which parts can have rows of them.
//!
//! A block was written by one run, and so was a tree that was packed of one alone; there a run costs nothing.
//! In a tree of several the origins of rows are read beside their columns.

use super::super::strike::Strike;
use super::{Table, TableError};
use crate::protocol::{Extent, Manifest, RunId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The runs of whose rows alone a query is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfRuns {
    names: Names,
    /// Whether some may not be there: another of several tables has them.
    may_be_missing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    /// Of every table.
    All(Arc<BTreeSet<RunId>>),
    /// Of each of several tables, by their places, its own.
    Each(Arc<[BTreeSet<RunId>]>),
}

impl OfRuns {
    /// The runs of these names, each of which has to be there; of several tables in one of them.
    pub fn new<N: Into<RunId>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::of(Names::All(Arc::new(names.into_iter().map(Into::into).collect())))
    }

    /// Of each of several tables the runs of its own names: runs of one name in two tables are two.
    #[must_use]
    pub fn of_each(names: Vec<BTreeSet<RunId>>) -> Self {
        Self::of(Names::Each(names.into()))
    }

    fn of(names: Names) -> Self {
        Self { names, may_be_missing: false }
    }

    /// Those of the table at a place, which need not have all of them.
    pub(super) fn where_there(&self, place: usize) -> Self {
        Self { names: Names::All(self.of_table(place)), may_be_missing: true }
    }

    fn of_table(&self, place: usize) -> Arc<BTreeSet<RunId>> {
        match &self.names {
            Names::All(names) => Arc::clone(names),
            Names::Each(names) => Arc::new(names.get(place).cloned().unwrap_or_default()),
        }
    }

    /// Whether a run is meant, of a table that is asked by itself.
    fn has(&self, run: &RunId) -> bool {
        match &self.names {
            Names::All(names) => names.contains(run),
            Names::Each(names) => names.first().is_some_and(|names| names.contains(run)),
        }
    }

    /// The runs that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let both =
            |one: &BTreeSet<RunId>, other: &BTreeSet<RunId>| one.intersection(other).cloned().collect();
        match (&self.names, &other.names) {
            (Names::All(one), Names::All(other)) => Self::of(Names::All(Arc::new(both(one, other)))),
            (Names::Each(each), Names::All(all)) | (Names::All(all), Names::Each(each)) => {
                Self::of_each(each.iter().map(|names| both(names, all)).collect())
            }
            (Names::Each(one), Names::Each(other)) => {
                Self::of_each(one.iter().zip(&**other).map(|(one, other)| both(one, other)).collect())
            }
        }
    }

    /// Their names, in order; of several tables one table's after the other's.
    pub fn names(&self) -> impl Iterator<Item = &RunId> {
        let (all, each) = match &self.names {
            Names::All(names) => (Some(&**names), &[][..]),
            Names::Each(names) => (None, &**names),
        };
        all.into_iter().chain(each).flatten()
    }

    /// Refuses a run that a version does not have.
    pub(super) fn check(&self, table: &Table, manifest: &Manifest) -> Result<(), TableError> {
        let missing = self.names().find(|name| manifest.runs.get(*name).is_none());
        match missing.filter(|_| !self.may_be_missing) {
            Some(name) => Err(table.no_run(&name.0, manifest.runs.keys())),
            None => Ok(()),
        }
    }

    /// What is left out of a part with such rows; none where the whole part is.
    pub(super) fn within(&self, extent: &Extent) -> Option<Option<Strike>> {
        match &extent.run {
            Some(run) if self.has(run) => Some(None),
            Some(_) => None,
            None => Some(Some(Strike::all_but(self.of_table(0)))),
        }
    }
}

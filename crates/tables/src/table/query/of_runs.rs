//! Restricts a query to rows of some runs, and determines which parts can have such rows.
//!
//! A block was written by one run, and so was a tree packed from a single run; there, the restriction costs
//! nothing. In a tree of several runs, the origins of rows are read in addition.

use super::super::strike::Strike;
use super::{Table, TableError};
use crate::protocol::{Extent, Manifest, RunId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The runs that a query is restricted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfRuns {
    names: Names,
    /// Whether the table may lack some of the runs, because another table of a union has them.
    may_be_missing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    /// The same names for every table.
    All(Arc<BTreeSet<RunId>>),
    /// Names for each table of a union, by index.
    Each(Arc<[BTreeSet<RunId>]>),
}

impl OfRuns {
    /// The runs with these names. Each must exist, in a union in at least one of the tables.
    pub fn new<N: Into<RunId>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::of(Names::All(Arc::new(names.into_iter().map(Into::into).collect())))
    }

    /// Runs for each table of a union: runs of the same name in two tables are distinct.
    #[must_use]
    pub fn of_each(names: Vec<BTreeSet<RunId>>) -> Self {
        Self::of(Names::Each(names.into()))
    }

    fn of(names: Names) -> Self {
        Self { names, may_be_missing: false }
    }

    /// The runs for the table at an index, which need not have all of them.
    pub(super) fn where_there(&self, place: usize) -> Self {
        Self { names: Names::All(self.of_table(place)), may_be_missing: true }
    }

    fn of_table(&self, place: usize) -> Arc<BTreeSet<RunId>> {
        match &self.names {
            Names::All(names) => Arc::clone(names),
            Names::Each(names) => Arc::new(names.get(place).cloned().unwrap_or_default()),
        }
    }

    /// Whether a run is included; for a single table.
    pub(in crate::table) fn has(&self, run: &RunId) -> bool {
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

    /// The names in order; for a union, table by table.
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

    /// The strike that leaves out rows of other runs from a part: `None` if that is the whole part,
    /// `Some(None)` if nothing is left out.
    pub(super) fn within(&self, extent: &Extent) -> Option<Option<Strike>> {
        match &extent.run {
            Some(run) if self.has(run) => Some(None),
            Some(_) => None,
            None => Some(Some(Strike::all_but(self.of_table(0)))),
        }
    }
}

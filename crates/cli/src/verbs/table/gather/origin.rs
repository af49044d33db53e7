//! Which table a run was gathered from, so that two stores are not taken for each other, be they in folders
//! of one name or one made anew in place of the other.
//!
//! Invariant: what is recorded is a random number, never a path or a host: a store that moves stays the same,
//! and the table that holds the record may be copied elsewhere.

use crate::Failure;
use atoll_tables::Table;
use atoll_tables::protocol::Version;

/// What a run records of the table that it is gathered from.
pub(super) fn of(source: &Table) -> String {
    format!("{:032x}", source.identity())
}

/// The failure of gathering into a run that another store, or another table, was gathered into.
pub(super) fn differs(run: &str) -> Failure {
    Failure::Run {
        run: run.to_owned(),
        problem: "was gathered from another store, or from another table".to_owned(),
        hint: "gather this one as a run of another name, with --run".to_owned(),
    }
}

/// The failure of gathering from a store that is at an earlier version than what was gathered from it.
pub(super) fn is_behind(run: &str, gathered: Version, now: Version) -> Failure {
    Failure::Run {
        run: run.to_owned(),
        problem: format!(
            "is of version {gathered} of the store, which is at version {now}: an older state of the store has taken its \
             place, such as a restored backup"
        ),
        hint: "gather the store that is there now as a run of another name, with --run".to_owned(),
    }
}

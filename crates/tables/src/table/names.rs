//! Names of a table's partitions in a store, which cannot collide with a user's keys.

use crate::planted;
use crate::protocol::ObjectId;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The partition with the list of tables, one cell per table, keyed by name.
pub(super) const REGISTRY: &[u8] = b"\0atoll.tables";

/// The partition with the attributes of the store, in one cell.
pub(super) const STORE_ATTRIBUTES: &[u8] = b"\0atoll.attributes";

/// The partition with the records of tables that were dropped lately, one cell per table, keyed by its id.
pub(super) const DROPPED: &[u8] = b"\0atoll.dropped";

/// The partitions of one table.
#[derive(Clone, Debug)]
pub(super) struct Names {
    id: u128,
    prefix: Vec<u8>,
}

impl Names {
    /// Names for the table with this id. Tables are identified by number, so that one that is dropped and
    /// created again reuses no name.
    pub(super) fn of(id: u128) -> Self {
        Self { id, prefix: [b"\0atoll.table/".as_slice(), &id.to_be_bytes()].concat() }
    }

    /// The id of the table.
    pub(super) const fn id(&self) -> u128 {
        self.id
    }

    /// The partition of the manifest.
    pub(super) fn manifest(&self) -> Vec<u8> {
        [self.prefix.as_slice(), b"/m"].concat()
    }

    /// The partition of the attributes of the table, its runs and their steps.
    pub(super) fn attributes(&self) -> Vec<u8> {
        [self.prefix.as_slice(), b"/a"].concat()
    }

    /// The common prefix of the partitions of its objects.
    pub(super) fn objects(&self) -> Vec<u8> {
        [self.prefix.as_slice(), b"/o/"].concat()
    }

    /// The partition of an object, whose bytes are the cell with the empty sort key.
    pub(super) fn object(&self, object: ObjectId) -> Vec<u8> {
        let (session, sequence) = (object.session.0.to_be_bytes(), object.sequence.to_be_bytes());
        [self.objects().as_slice(), &session, &sequence].concat()
    }
}

/// A unique random number. The standard library seeds its hashers from the system's randomness.
pub(super) fn random_id() -> u128 {
    let word = || u128::from(RandomState::new().build_hasher().finish());
    planted::next_name().unwrap_or_else(|| word() << 64 | word())
}

//! Where a table lies in a store: names of partitions, which no user's key can be.

use crate::planted;
use crate::protocol::ObjectId;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The partition that lists the tables of a store: one cell for each, by name.
pub(super) const REGISTRY: &[u8] = b"\0atoll.tables";

/// The partitions of one table.
#[derive(Clone, Debug)]
pub(super) struct Names {
    id: u128,
    prefix: Vec<u8>,
}

impl Names {
    /// Of the table with this identity. Tables are named by number, so that one which is dropped and made
    /// again uses no name twice.
    pub(super) fn of(id: u128) -> Self {
        Self { id, prefix: [b"\0atoll.table/".as_slice(), &id.to_be_bytes()].concat() }
    }

    /// The identity.
    pub(super) const fn id(&self) -> u128 {
        self.id
    }

    /// The partition of its manifest.
    pub(super) fn manifest(&self) -> Vec<u8> {
        [self.prefix.as_slice(), b"/m"].concat()
    }

    /// The partition of the attributes of its runs, by name of the run.
    pub(super) fn attributes(&self) -> Vec<u8> {
        [self.prefix.as_slice(), b"/a"].concat()
    }

    /// How the partitions of its objects begin.
    pub(super) fn objects(&self) -> Vec<u8> {
        [self.prefix.as_slice(), b"/o/"].concat()
    }

    /// The partition of an object, whose bytes are the cell with the empty sort key.
    pub(super) fn object(&self, object: ObjectId) -> Vec<u8> {
        let (session, sequence) = (object.session.0.to_be_bytes(), object.sequence.to_be_bytes());
        [self.objects().as_slice(), &session, &sequence].concat()
    }
}

/// A number that nobody else draws. The standard library seeds its hashers from the system's randomness.
pub(super) fn random_id() -> u128 {
    let word = || u128::from(RandomState::new().build_hasher().finish());
    planted::next_name().unwrap_or_else(|| word() << 64 | word())
}

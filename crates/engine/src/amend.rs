//! Reading a record and changing it in one step.
//!
//! A caller that reads a record to decide how to change it finds the leaf once instead of twice. That is
//! possible where a write could be made [in place](crate::in_place). Elsewhere [`Amended`] says so, and the
//! caller reads and writes by itself.
//!
//! Invariant: between the read and the change that follows, nothing else changes the record.

use crate::batch::{Action, Given};
use crate::commit::Commit;
use crate::engine::Tree;
use crate::in_place::InPlaceCommit;
use crate::room::Need;
use crate::value::Front;
use crate::{Durability, EngineError};

/// A change to one record.
#[derive(Clone, Copy, Debug)]
pub enum Amendment<'c> {
    /// Sets its value.
    Put(&'c [u8]),
    /// Adds these bytes at the end of its value; an absent value counts as empty.
    Append(&'c [u8]),
    /// Removes it; an absent record is no error.
    Delete,
}

impl<'c> Amendment<'c> {
    pub(crate) fn of(self, key: &'c [u8]) -> Action<'c> {
        match self {
            Self::Put(value) => Action::Put(key, Given::Bytes(value)),
            Self::Append(bytes) => Action::Append(key, Given::Bytes(bytes)),
            Self::Delete => Action::Delete(key),
        }
    }
}

/// Outcome of [`Tree::amend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Amended {
    /// Nothing was shown: the record is not in memory, or a checkpoint has its leaf.
    Unseen,
    /// The record was shown and is unchanged: no change was wanted, or the change cannot be made where the
    /// record lies.
    Seen,
    /// The record was shown and changed.
    Committed(Commit),
}

/// As [`Amended`], while the locks are still held.
#[allow(clippy::large_enum_variant, reason = "it is returned once, to a caller that takes it apart at once")]
pub(crate) enum Amending {
    Unseen,
    Seen,
    Committed(InPlaceCommit),
}

impl Tree {
    /// Shows the beginning of the value of `key`, or that there is none, to `decide`, and makes the change
    /// that `decide` returns. Nothing else changes the record in between. `decide` must not call this store:
    /// locks are held while it runs.
    ///
    /// # Errors
    /// As [`Engine::write`](crate::Engine::write).
    pub fn amend<'c, const N: usize>(
        &self,
        key: &'c [u8],
        durability: Durability,
        decide: impl FnOnce(Option<Front<N>>) -> Option<Amendment<'c>>,
    ) -> Result<Amended, EngineError> {
        let shared = &*self.engine.shared;
        shared.wait_for_room(Need::of_nodes(1))?;
        let flush = crate::commit::is_flushed(durability);
        Ok(match shared.amend_in_place(self.id(), key, flush, decide)? {
            Amending::Unseen => Amended::Unseen,
            Amending::Seen => Amended::Seen,
            Amending::Committed(commit) => {
                Amended::Committed(shared.make_durable(&shared.after(commit), durability)?)
            }
        })
    }
}

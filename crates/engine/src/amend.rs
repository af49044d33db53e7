//! Looking at a record and changing it in one go.
//!
//! Whoever reads a record to decide what becomes of it looks it up once instead of twice. That is possible
//! where a write could be made [in place](crate::in_place); elsewhere the caller is told, and does both by
//! itself.
//!
//! Invariant: between what is shown and what is done, nobody changes the record.

use crate::batch::{Action, Given};
use crate::commit::Commit;
use crate::engine::Tree;
use crate::in_place::Done;
use crate::room::Need;
use crate::value::Front;
use crate::{Durability, EngineError};

/// What becomes of a record.
#[derive(Clone, Copy, Debug)]
pub enum Amendment<'c> {
    /// It has this value.
    Put(&'c [u8]),
    /// These bytes come at the end of its value; an absent one counts as empty.
    Append(&'c [u8]),
    /// It is removed; an absent one is no error.
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

/// What came of looking at a record and changing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Amended {
    /// Nothing was shown: the record is not in memory, or a checkpoint has its leaf.
    Unseen,
    /// It was shown, and is as it was: no change was wanted, or it is one that cannot be made where the
    /// record lies.
    Seen,
    /// It was shown and changed.
    Committed(Commit),
}

/// The same, before the locks are given back.
pub(crate) enum Amending {
    Unseen,
    Seen,
    Done(Done),
}

impl Tree {
    /// Shows what the value of `key` begins with, or that there is none, to `decide`, and makes the change
    /// that it wants. Nobody changes the record in between. `decide` must not call this store: locks are held
    /// meanwhile.
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
            Amending::Done(done) => Amended::Committed(shared.make_durable(&shared.after(done), durability)?),
        })
    }
}

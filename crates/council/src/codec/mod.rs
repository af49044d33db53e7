//! Encodings for the wire and the disk; no I/O.

mod asks;
mod bytes;
mod changes;
mod consensus;
mod state;
mod tables;

pub(crate) use asks::{Answer, Ask, RingId, SnapshotPiece, To};
pub(crate) use bytes::{Coded, Damaged, Reader};
pub(crate) use state::SavedState;
pub use tables::Update;

#[cfg(test)]
pub(crate) use changes::tests::changes as every_change;
#[cfg(test)]
pub(crate) use state::tests::state as saved_state;

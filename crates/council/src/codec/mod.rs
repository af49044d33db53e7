//! Encodings for the wire and the disk; no I/O.

mod asks;
mod bytes;
mod changes;
mod consensus;
mod tables;

pub(crate) use asks::{Answer, Ask, RingId, To};
pub(crate) use bytes::{Coded, Damaged, Reader};
pub use tables::Update;

#[cfg(test)]
pub(crate) use changes::tests::changes as every_change;

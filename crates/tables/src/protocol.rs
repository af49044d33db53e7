//! The version protocol: how a table advances from one version to the next, without any I/O.
//!
//! A [`Manifest`] is the content of one version: which range of which object holds which rows. An [`Edit`] is
//! a request to change it. [`Manifest::apply`] validates the edit against the version that is current when it
//! is to be committed, which may be newer than the one it was made for. [`Commit`] is the state machine that
//! a process follows, read by read and write by write, until its edit is in a version or never will be.
//! [`Cell`] and [`Proposal`] name the cells of the store that this takes.
//!
//! Invariant: an edit is committed by exactly one conditional write.
//! Invariant: the content of an object never changes, and its name is never reused.
//! Invariant: an object that no version names any more is never named by a later one.
//!
//! docs/internals/tables-versions.md has the diagrams; tests/protocol.rs explores small instances
//! exhaustively.

mod apply;
mod cells;
mod commit;
mod edit;
mod error;
mod ids;
mod load;
mod manifest;
mod marks;
mod pack;
mod piece;
mod run;
mod shared_map;
#[cfg(test)]
mod tests;
mod vacuum;

pub use cells::{Cell, Head, Proposal};
pub use commit::{Commit, Ended, Outcome, Step, View};
pub use edit::{AddedColumn, Block, BlockId, Edit, LastStep, LoadedStep, Removal};
pub use error::{EditError, Repeat, RepeatedAt};
pub use ids::{EditId, ObjectId, RunId, SessionId, StepTime, Version};
pub use manifest::{Life, Manifest, Tombstone};
pub use marks::AttemptId;
pub use piece::{Extent, Form, Piece, PieceKey, Placed, Scope, StepRange, Struck, TightBox, WeightRange};
pub use run::{Arrived, Published, Run};
pub use shared_map::SharedMap;
pub use vacuum::{Holders, Session};

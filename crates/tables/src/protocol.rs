//! The version protocol: how a table goes from one version to the next, without any I/O.
//!
//! A [`Manifest`] is the content of one version: which range of which object answers for which rows. An
//! [`Edit`] is a wish to change it; [`Manifest::apply`] judges the wish against the version that is current
//! when it is to become true, which may be newer than the one it was made for. [`Commit`] is what a process
//! does, read by read and write by write, until its edit is in a version or never will be; [`Cell`] and
//! [`Proposal`] say which cells of the store that takes.
//!
//! Invariant: an edit becomes true by one conditional write, and by none after that.
//! Invariant: what an object holds never changes, and its name is never used for anything else.
//! Invariant: an object that left the versions never comes back to a later one.
//!
//! docs/internals/tables-versions.md draws it all; tests/protocol.rs explores it exhaustively in small sizes.

mod apply;
mod cells;
mod commit;
mod edit;
mod error;
mod ids;
mod load;
mod manifest;
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
pub use error::{EditError, Repeat, There};
pub use ids::{EditId, ObjectId, RunId, SessionId, StepTime, Version};
pub use manifest::{Life, Manifest, Tombstone};
pub use piece::{Extent, Form, Piece, PieceKey, Placed, Scope, StepRange, Struck, TightBox, WeightRange};
pub use run::{Arrived, Published, Run};
pub use shared_map::SharedMap;
pub use vacuum::{Holders, Session};

//! The command line: what every verb shares, and the verbs, one file each.
//!
//! A verb is a struct of arguments with a `run` that takes a [`Session`]; `main` only lists them.
//!
//! Invariant: of all that the program is made of, only this crate reads options files, the terminal and the
//! environment; only the folders in which sockets may lie are looked up below.
//! Invariant: results go to standard output, everything else to standard error, and a reader of our output
//! that has seen enough ends us silently.
//! Invariant: exit codes are those of the error kinds; 2 is a wrong command line, 130 an interruption.

mod cells;
mod compressed;
mod events;
mod failure;
pub mod fuzz;
mod launch;
mod listing;
mod new_file;
mod options;
mod output;
mod progress;
mod row_format;
mod session;
mod table_hints;
mod text;
mod transfer;
pub mod verbs;

pub use failure::Failure;
pub use launch::{execute, parse};
pub use options::GlobalArguments;
pub use session::Session;

//! The command line: what all verbs share, and the verbs, one file each.
//!
//! A verb is a struct of arguments with a `run` method that takes a [`Session`]; `main` only lists them.
//!
//! Invariant: this is the only crate of the program that reads options files, the terminal or the
//! environment, with one exception: lower crates look up the folders in which sockets may lie.
//! Invariant: results go to standard output, everything else to standard error. When the reader of our output
//! closes it, we end silently.
//! Invariant: exit codes are those of the error kinds; 2 is a wrong command line, 130 an interruption.

mod attributes;
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
mod store_defaults;
mod table_hints;
mod text;
mod transfer;
pub mod verbs;

pub use failure::Failure;
pub use launch::{execute, parse};
pub use options::GlobalArguments;
pub use session::Session;

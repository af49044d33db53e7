//! `cargo xtask demo`: the main use case, with crashes. A simulation writes into a table while another
//! process reads; with `--ring` the store is a ring of nodes of which one is killed; with `--flights` a
//! plain map is filled, killed and compared row by row.

mod airway;
mod flights;

use crate::arguments::Arguments;
use crate::failure::Failure;
use std::path::PathBuf;

/// Rows that the simulation writes by default: about a minute on two cores.
const ROWS: u64 = 2_200_000;

/// Runs one of the demos from an empty folder.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let is_flights = arguments.flag("--flights");
    let json: Option<PathBuf> = arguments.option("--json")?;
    let rows = arguments.option("--rows")?;
    let nodes: Option<u16> = arguments.option("--ring")?;
    if is_flights && (json.is_some() || rows.is_some() || nodes.is_some()) {
        return Err(arguments.wrong("--flights takes no other flag"));
    }
    if is_flights {
        arguments.finish()?;
        return flights::run();
    }
    let rows = rows.unwrap_or(ROWS);
    if rows < airway::ROWS_MIN {
        return Err(arguments.wrong(format!("--rows is at least {}, not {rows}", airway::ROWS_MIN)));
    }
    let (least, most) = (airway::NODES_MIN, airway::NODES_MAX);
    if let Some(nodes) = nodes.filter(|nodes| !(least..=most).contains(nodes)) {
        return Err(arguments.wrong(format!("--ring is from {least} to {most} nodes, not {nodes}")));
    }
    arguments.finish()?;
    airway::run(&airway::DemoOptions { rows, nodes, json })
}

//! The plan of the bench: the order of steps, the bars, and the tables.

pub use bars::{APPEND_RATIO, CONTRACT_GET, CONTRACT_PUT, Row, rows};
pub use results::Measured;
pub use runner::{Part, Plan, Scale, clear};
pub use table::{print_losses, print_machine, print_phases, print_rows};

mod bars;
mod results;
mod runner;
mod second_half;
mod short_pairs;
mod table;

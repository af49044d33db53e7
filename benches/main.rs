//! Benchmarks of Atoll beside its rivals.
//!
//! `engine` prints one row for each bar of the engine, and beside it every engine's own figures, losses as
//! plainly as wins. Each phase of each engine runs in a child process of this program.

mod measure;
mod peers;
mod phases;
mod workloads;

fn main() {}

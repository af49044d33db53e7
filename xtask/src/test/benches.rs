//! The Rust tests of the benches of the engine and of tables, whose crate lies outside of the workspace: they
//! check the code that judges figures. They run without rivals, so that RocksDB is not compiled, and without
//! trials of whole benches.
//!
//! The bench of the ring is tested only by those who change it: compiled from scratch, its crates take longer
//! than a room may.

use super::{judge, limit};
use crate::console::Step;
use crate::failure::Failure;
use crate::rooms::BENCHES_BUDGET_MINUTES as BUDGET_MINUTES;
use crate::tests_output::Tally;
use crate::{cargo, run};

const MANIFEST: &str = "benches/Cargo.toml";

/// Builds and runs these tests.
pub fn visit() -> Result<Tally, Failure> {
    let mut command = cargo::building()?;
    command.args(["test", "--manifest-path", MANIFEST, "--bins"]).args(cargo::locked());
    command.args(["--", "--show-output"]);
    let mut step = Step::start(MANIFEST);
    let ran = run::limited(MANIFEST, &mut command, &mut step, limit(BUDGET_MINUTES))?;
    let tally = Tally::read("atoll-benches", &ran.everything, ran.succeeded());
    judge(step, &tally, &ran.everything);
    Ok(tally)
}

//! The Rust tests of the benches of the engine and of tables, whose crate lies outside of the workspace: what
//! judges figures is judged here. Without rivals, so that RocksDB is not compiled, and without trials of
//! whole benches.
//!
//! The bench of the ring is left to whoever changes it: from nothing, its crates take longer to compile than
//! a room may.

use super::{judge, limit};
use crate::console::Step;
use crate::failure::Failure;
use crate::rooms::BENCHES_BUDGET_MINUTES as BUDGET_MINUTES;
use crate::tests_output::Tally;
use crate::{cargo, run};

const MANIFEST: &str = "benches/Cargo.toml";

/// Builds and runs them.
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

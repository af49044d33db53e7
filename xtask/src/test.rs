//! `cargo xtask test`: builds everything once, then visits the rooms and times each.
//!
//! Programs read only its last line: `N passed, N failed, N skipped`.

mod benches;
mod commands;
mod guest;
mod lanes;
pub mod programs;
mod python;
mod sanitizer;
mod summary;

use crate::arguments::Arguments;
use crate::console::{Step, Verdict, heading};
use crate::failure::Failure;
use crate::rooms::{self, ROOMS, Room};
use crate::tests_output::Tally;
use crate::{cargo, run};
use guest::Guest;
use programs::{Built, Program};
use std::time::{Duration, Instant};
use summary::Summary;

/// The factor by which a test program may exceed its budget before it is killed: a hang must not look like
/// work.
const LIMIT_FACTOR: u64 = 4;

/// The longest that a test program of a room with this budget may run.
const fn limit(budget_minutes: u64) -> Duration {
    Duration::from_secs(budget_minutes * 60 * LIMIT_FACTOR)
}

/// Builds and runs the tests of one room or of all.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let room: Option<String> = arguments.option("--room")?;
    if let Some(room) = room.as_deref().filter(|room| !rooms::names().contains(room)) {
        let known = rooms::names().join(", ");
        return Err(arguments.wrong(format!("there is no room {room:?}; there is: {known}")));
    }
    arguments.finish()?;
    let is_alone = room.is_some();
    let wanted = |name: &str| room.as_deref().is_none_or(|room| room == name);
    heading("Building the tests");
    let mut summary = Summary::default();
    let started = Instant::now();
    let mut built = match programs::build(room.as_deref()) {
        Ok(built) => built,
        Err(failure) => return summary.end_without_a_build(failure),
    };
    summary.built(started.elapsed());
    heading("Running the tests");
    for room in ROOMS.iter().filter(|room| wanted(room.name)) {
        let alone = is_alone.then_some(room.name);
        summary.visit(room.name, room.budget_minutes, || visit(room, &mut built, alone));
    }
    if wanted("docs") {
        summary.visit("docs", rooms::DOCS_BUDGET_MINUTES, || documentation(&built));
    }
    if wanted("python") {
        summary.visit("python", rooms::PYTHON_BUDGET_MINUTES, || python::visit(&built));
    }
    if wanted("benches") {
        summary.visit("benches", rooms::BENCHES_BUDGET_MINUTES, benches::visit);
    }
    if wanted("sanitizer") {
        summary.visit("sanitizer", rooms::SANITIZER_BUDGET_MINUTES, sanitizer::visit);
    }
    summary.end()
}

fn visit(room: &Room, built: &mut Built, alone: Option<&str>) -> Result<Tally, Failure> {
    let limit = limit(room.budget_minutes);
    let mut tally = Tally::default();
    let guest = guest::of(room.name, &mut tally)?;
    for program in built.programs.iter().filter(|program| guest::is_in_room(program, room)) {
        tally.add(run_one(program, limit, &guest));
    }
    for featured in rooms::FEATURED.iter().filter(|featured| featured.room == room.name) {
        match built.featured(featured, alone)? {
            Some(program) => tally.add(run_one(program, limit, &guest)),
            None => tally.add(Tally { failed: vec![featured.name()], ..Tally::default() }),
        }
    }
    Ok(tally)
}

/// Runs one test program. One that cannot be run counts as failed, and the results of those before it in its
/// room are kept.
fn run_one(program: &Program, limit: Duration, guest: &Guest) -> Tally {
    tally_of(program, limit, guest).unwrap_or_else(|failure| summary::broken(&program.name, &failure))
}

fn tally_of(program: &Program, limit: Duration, guest: &Guest) -> Result<Tally, Failure> {
    let mut command = program.command()?;
    command.envs(guest.environment()?);
    let mut step = Step::start(&program.name);
    let ran = run::limited(&program.name, &mut command, &mut step, limit)?;
    let tally = Tally::read(&program.name, &ran.everything, ran.succeeded());
    judge(step, &tally, &ran.everything);
    Ok(tally)
}

/// Ends a step according to its tests; shows the whole output if one failed.
fn judge(step: Step, tally: &Tally, output: &[String]) {
    let skipped =
        if tally.skipped.is_empty() { String::new() } else { format!(", {} skipped", tally.skipped.len()) };
    if tally.failed.is_empty() {
        step.end(Verdict::Passed, &format!("{} passed{skipped}", tally.passed));
    } else {
        step.end(
            Verdict::Failed,
            &format!("{} failed, {} passed{skipped}", tally.failed.len(), tally.passed),
        );
        output.iter().for_each(|line| println!("    {line}"));
    }
    for skip in &tally.skipped {
        println!("       {skip}");
    }
    for notice in &tally.notices {
        println!("       {notice}");
    }
}

/// Runs the examples in the documentation of the code, then the commands in the pages.
fn documentation(built: &Built) -> Result<Tally, Failure> {
    let mut command = cargo::building()?;
    command.args(["test", "--workspace", "--doc"]).args(cargo::locked());
    let mut step = Step::start("examples in the documentation of the code");
    let ran = run::limited("cargo test --doc", &mut command, &mut step, limit(rooms::DOCS_BUDGET_MINUTES))?;
    let mut tally = Tally::read("doc", &ran.everything, ran.succeeded());
    judge(step, &tally, &ran.everything);
    tally.add(commands::check(built.atoll.as_deref())?);
    Ok(tally)
}

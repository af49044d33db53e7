//! Command line of the crash tests: ranges of seeds, a trace of one seed, and rounds of real kills.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a program, and its output is its point"
)]

use atoll_crash::counts::BEYOND_A_TOY;
use atoll_crash::fenced::write_until_fenced;
use atoll_crash::kill::{Program, Rounds, run_rounds, write_until_killed};
use atoll_crash::soak::{Tally, run_seeds};
use atoll_crash::{EngineBug, EngineSubject, Run, Subject, Toy, ToyBug};
use clap::{Args, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Crash tests of the engine: simulated disks and real kills.
#[derive(Parser)]
#[command(after_help = "Examples:\n  \
    atoll-crash sim --seeds 2000\n  \
    atoll-crash sim --seed-from 1000000 --minutes 10\n  \
    atoll-crash sim --seed 4711\n  \
    atoll-crash kill --rounds 100")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run simulated crashes; print one line of JSON for each chunk of seeds.
    Sim(Sim),
    /// Kill a writing process repeatedly, and look for what it lost.
    Kill(Kill),
    /// The process to be killed: writes the events of a seed and prints the number of each.
    #[command(hide = true)]
    Write { path: PathBuf, seed: u64, from: u64 },
    /// The process to be fenced: owns a store until another process takes it over, and prints the number of
    /// each synced write.
    #[command(hide = true)]
    WriteOwned { path: PathBuf, token: u64 },
    /// The process to be killed, with the toy store.
    #[command(hide = true)]
    WriteToy { path: PathBuf, seed: u64, from: u64 },
}

#[derive(Args)]
struct Kill {
    /// Number of kills.
    #[arg(long, default_value_t = 100, conflicts_with = "minutes")]
    rounds: u64,
    /// Kill for this many minutes instead.
    #[arg(long)]
    minutes: Option<u64>,
    /// Seed of the load and of the moments; each file uses up as many seeds as it has kills.
    #[arg(long, visible_alias = "seed", default_value_t = 1)]
    seed_from: u64,
    /// Folder for the file; a temporary one if not given.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Test the toy store of the harness instead of the engine.
    #[arg(long)]
    toy: bool,
}

#[derive(Args)]
struct Sim {
    /// Run this seed alone and print every step.
    #[arg(long, conflicts_with_all = ["seed_from", "seeds", "minutes"])]
    seed: Option<u64>,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    seed_from: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 2000, conflicts_with = "minutes")]
    seeds: u64,
    /// Run for this many minutes instead.
    #[arg(long)]
    minutes: Option<u64>,
    /// Test the toy store of the harness instead of the engine.
    #[arg(long)]
    toy: bool,
    /// Plant this bug.
    #[arg(long)]
    bug: Option<String>,
}

/// Seeds between two lines of output.
const CHUNK: u64 = 500;
/// Kills on one file.
const KILLS_PER_FILE: u64 = 20;
/// Kills between two lines of output.
const KILLS: u64 = 500;

fn main() -> ExitCode {
    match Cli::parse().verb {
        Verb::Kill(kill) if kill.toy => rounds::<Toy>(&kill, "write-toy"),
        Verb::Kill(kill) => rounds::<EngineSubject>(&kill, "write"),
        Verb::Write { path, seed, from } => write::<EngineSubject>(&path, seed, from),
        Verb::WriteToy { path, seed, from } => write::<Toy>(&path, seed, from),
        Verb::WriteOwned { path, token } => write_owned(&path, token),
        Verb::Sim(sim) if sim.toy => simulate::<Toy>(&sim, &ToyBug::ALL),
        Verb::Sim(sim) => simulate::<EngineSubject>(&sim, &EngineBug::ALL),
    }
}

/// Kills on one file after another, with a line of output for every few files.
#[allow(clippy::disallowed_methods, reason = "a soak ends by the real clock")]
fn rounds<S: Subject>(kill: &Kill, writer: &str) -> ExitCode {
    let end = kill.minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
    let (mut done, mut failures) = (0, 0);
    loop {
        let left = if end.is_some() { KILLS } else { kill.rounds - done };
        if left == 0 || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        let (seed, kills) = (kill.seed_from + done, left.min(KILLS));
        let (rounds, failed) = chunk_of_kills::<S>(kill, writer, seed, kills);
        println!("{}", rounds.to_json(seed, kills, failed));
        done += kills;
        failures += failed;
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the kills of one line of output; also returns on how many files a promise was broken.
fn chunk_of_kills<S: Subject>(kill: &Kill, writer: &str, seed_from: u64, kills: u64) -> (Rounds, u64) {
    let (mut total, mut failures, mut done) = (Rounds::default(), 0, 0);
    while done < kills {
        let (seed, on_file) = (seed_from + done, (kills - done).min(KILLS_PER_FILE));
        match try_rounds::<S>(kill, writer, seed, on_file) {
            Ok(rounds) => total.add(&rounds),
            Err(what) => {
                let again = format!("kill --seed-from {seed} --rounds {on_file}");
                eprintln!("BROKEN: {what}\n  again: cargo run --release -p atoll-crash -- {again}");
                failures += 1;
            }
        }
        done += on_file;
    }
    (total, failures)
}

fn try_rounds<S: Subject>(kill: &Kill, writer: &str, seed: u64, kills: u64) -> Result<Rounds, String> {
    let path = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = Program { path, arguments: vec![writer.to_owned()] };
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    let folder = match &kill.folder {
        Some(folder) => folder.join(seed.to_string()),
        None => temporary.path().to_owned(),
    };
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    run_rounds::<S>(&program, &folder, seed, kills)
}

fn write<S: Subject>(path: &Path, seed: u64, from: u64) -> ExitCode {
    match write_until_killed::<S>(path, seed, from) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn write_owned(path: &Path, token: u64) -> ExitCode {
    match write_until_fenced(path, token) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn find_bug<B: Copy + std::fmt::Debug>(all: &[B], name: Option<&str>) -> Result<Option<B>, String> {
    let Some(name) = name else { return Ok(None) };
    let found = all.iter().copied().find(|bug| format!("{bug:?}") == name);
    let names: Vec<String> = all.iter().map(|bug| format!("{bug:?}")).collect();
    found.map(Some).ok_or_else(|| names.join(" "))
}

fn simulate<S: Subject>(sim: &Sim, bugs: &[S::Bug]) -> ExitCode {
    let bug = match find_bug(bugs, sim.bug.as_deref()) {
        Ok(bug) => bug,
        Err(names) => {
            eprintln!("no such bug; the bugs are: {names}");
            return ExitCode::from(2);
        }
    };
    match sim.seed {
        Some(seed) => replay::<S>(seed, bug),
        None => run_chunks::<S>(sim, bug),
    }
}

fn replay<S: Subject>(seed: u64, bug: Option<S::Bug>) -> ExitCode {
    let mut run = Run::<S>::new(seed, bug);
    run.trace = Some(Vec::new());
    let outcome = run.run_in_place();
    run.trace.iter().flatten().for_each(|line| println!("{line}"));
    for (name, count) in run.counts.all() {
        println!("{name:40} {count}");
    }
    match outcome {
        Ok(()) => {
            println!("seed {seed} keeps every promise");
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("BROKEN: {violation}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a soak ends by the real clock")]
fn run_chunks<S: Subject>(sim: &Sim, bug: Option<S::Bug>) -> ExitCode {
    let end = sim.minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
    let mut total = Tally { seed_from: sim.seed_from, ..Tally::default() };
    loop {
        let left = if end.is_some() { CHUNK } else { sim.seeds - total.seeds };
        if left == 0 || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        let tally = run_seeds::<S>(sim.seed_from + total.seeds, left.min(CHUNK), bug, false);
        println!("{}", tally.to_json());
        for violation in &tally.violations {
            eprintln!("{violation}\n  replay: {}", replay_command(violation.seed, sim));
        }
        total.seeds += tally.seeds;
        total.violations.extend(tally.violations);
        total.counts.add(&tally.counts);
    }
    let never = total.counts.never(if sim.toy { &BEYOND_A_TOY } else { &[] });
    // A toy cleans nothing.
    let is_shallow = !sim.toy && total.is_shallow();
    eprintln!("{}{}", total.whole(), if is_shallow { ": too few" } else { "" });
    if !never.is_empty() {
        eprintln!("never occurred in {} seeds: {}", total.seeds, never.join(" "));
    }
    let is_well = total.violations.is_empty() && never.is_empty() && !is_shallow;
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay_command(seed: u64, sim: &Sim) -> String {
    let toy = if sim.toy { " --toy" } else { "" };
    let bug = sim.bug.as_ref().map(|bug| format!(" --bug {bug}")).unwrap_or_default();
    format!("cargo run --release -p atoll-crash -- sim --seed {seed}{toy}{bug}")
}

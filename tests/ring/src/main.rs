//! Command line of the ring's simulation: ranges of seeds, or a trace of one seed.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a program, and its output is its point"
)]

use atoll_ring_simulation::soak::{Tally, run_seeds};
use atoll_ring_simulation::{Case, Flaw, Reads, tell_seed};
use clap::{Parser, ValueEnum};
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The ring in a simulation: nodes, network, disks and clocks that fail from a seed.
#[derive(Parser)]
#[command(after_help = "Examples:\n  \
    atoll-ring-simulation --seeds 2000\n  \
    atoll-ring-simulation --seed-from 1000000 --minutes 10\n  \
    atoll-ring-simulation --seed 4711\n  \
    atoll-ring-simulation --seed 4711 --flaw WildClocks")]
struct Cli {
    /// Run this seed alone and print everything that happens.
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
    /// Print everything that happens in each seed.
    #[arg(long)]
    trace: bool,
    /// The mode of reads; if not given, each seed chooses.
    #[arg(long)]
    reads: Option<ReadsWord>,
    /// Nothing fails; nodes join and leave, and slots move.
    #[arg(long)]
    planned: bool,
    /// Plant this bug around the protocol.
    #[arg(long)]
    flaw: Option<String>,
    /// Plant this bug in the protocol; only in a build with the feature `planted`.
    #[arg(long)]
    bug: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum ReadsWord {
    Leases,
    Confirmed,
}

/// Seeds between two lines of output.
const CHUNK: u64 = 500;

fn main() -> ExitCode {
    // A failure is reported with its seed; the panic's text says which assertion of the protocol failed.
    let cli = Cli::parse();
    let case = match case_of(&cli) {
        Ok(case) => case,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    match cli.seed {
        Some(seed) => in_words(seed, &case),
        None if cli.trace => {
            let codes = (cli.seed_from..cli.seed_from + cli.seeds).map(|seed| in_words(seed, &case));
            codes.fold(ExitCode::SUCCESS, |all, one| if one == ExitCode::SUCCESS { all } else { one })
        }
        None => run_chunks(&cli, &case),
    }
}

fn case_of(cli: &Cli) -> Result<Case, String> {
    let flaw = cli.flaw.as_deref().map(|name| find(&Flaw::ALL, name)).transpose()?;
    let reads = cli.reads.map(|word| match word {
        ReadsWord::Leases => Reads::Leases,
        ReadsWord::Confirmed => Reads::Confirmed,
    });
    #[cfg(feature = "planted")]
    let bug = cli.bug.as_deref().map(|name| find(&atoll_ring_simulation::Bug::ALL, name)).transpose()?;
    #[cfg(not(feature = "planted"))]
    if cli.bug.is_some() {
        return Err("mistakes of the protocol are not in this build: --features planted".to_owned());
    }
    Ok(Case {
        flaw,
        reads,
        is_planned: cli.planned,
        #[cfg(feature = "planted")]
        bug,
    })
}

fn find<T: Copy + Debug>(all: &[T], name: &str) -> Result<T, String> {
    let names = || all.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(" ");
    let found = all.iter().copied().find(|one| format!("{one:?}") == name);
    found.ok_or_else(|| format!("no such mistake; they are: {}", names()))
}

fn in_words(seed: u64, case: &Case) -> ExitCode {
    let story = tell_seed(seed, case);
    story.lines.iter().for_each(|line| println!("{line}"));
    match story.outcome {
        Ok(outcome) => {
            for (name, count) in outcome.counts.all() {
                println!("{name:40} {count}");
            }
            let enough = if outcome.is_enough() { "" } else { "; too little to prove anything" };
            let (definite, operations) = (outcome.definite, outcome.operations);
            println!(
                "seed {seed} keeps every promise: {definite} of {operations} operations ended definitely{enough}"
            );
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("BROKEN: {violation}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a soak ends by the real clock")]
fn run_chunks(cli: &Cli, case: &Case) -> ExitCode {
    let end = cli.minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
    let mut total = Tally { seed_from: cli.seed_from, ..Tally::default() };
    loop {
        let left = if end.is_some() { CHUNK } else { cli.seeds - total.seeds };
        if left == 0 || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        let tally = run_seeds(cli.seed_from + total.seeds, left.min(CHUNK), case, false);
        println!("{}", tally.to_json());
        for violation in &tally.violations {
            eprintln!("{violation}\n  replay: {}", replay_command(violation.seed, cli));
        }
        total.add(tally);
    }
    let never = total.counts.never();
    if cli.planned {
        println!("{}", total.pauses_in_words());
    }
    let is_judged = total.seeds >= CHUNK && !cli.planned;
    if is_judged && !never.is_empty() {
        eprintln!("never occurred in {} seeds: {}", total.seeds, never.join(" "));
    }
    let is_well = total.violations.is_empty() && (never.is_empty() || !is_judged);
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay_command(seed: u64, cli: &Cli) -> String {
    let features = if cli.bug.is_some() { " --features planted" } else { "" };
    let named = |flag: &str, name: &Option<String>| {
        name.as_ref().map(|name| format!(" --{flag} {name}")).unwrap_or_default()
    };
    let reads = match cli.reads {
        None => "",
        Some(ReadsWord::Leases) => " --reads leases",
        Some(ReadsWord::Confirmed) => " --reads confirmed",
    };
    let (flaw, bug) = (named("flaw", &cli.flaw), named("bug", &cli.bug));
    let planned = if cli.planned { " --planned" } else { "" };
    format!(
        "cargo run --release -p atoll-ring-simulation{features} -- --seed {seed}{planned}{reads}{flaw}{bug}"
    )
}

//! Benchmarks of Atoll beside its rivals.
//!
//! `engine` prints one row for each bar of the engine, followed by every engine's own figures; losses are
//! shown as plainly as wins. Each phase of each engine runs in a child process of this program.
//!
//! The feature `tables` adds what serves the benches in Python (`halves.rs`).

#[cfg(feature = "tables")]
mod cassandra;
#[cfg(feature = "tables")]
mod counts;
#[cfg(feature = "tables")]
mod halves;
mod measure;
mod peers;
mod phases;
mod plan;
mod workloads;

use clap::{Args, Parser, Subcommand};
use measure::{Calm, MachineFacts, raise_priority, wait_for_calm};
use peers::{EngineError, EngineName};
use plan::{Measured, Part, Plan, Row, Scale};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Benchmarks of Atoll beside its rivals.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The engine: YCSB load, A and C, scans, bytes, recovery.
    Engine(EngineArguments),
    /// One phase of one engine, for the parent process.
    #[command(hide = true)]
    Child { spec: String },
    #[cfg(feature = "tables")]
    #[command(flatten)]
    Half(halves::Half),
}

#[derive(Args)]
struct EngineArguments {
    /// Also measure RocksDB, LMDB, redb, fjall and Bf-Tree; without them ratios are not measured.
    #[arg(long)]
    peers: bool,
    /// A tenth of the records, one round: a first look, not a figure to quote.
    #[arg(long)]
    quick: bool,
    /// Write the bars to this file, as a list of objects.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the machine and every single result to this file.
    #[arg(long, value_name = "FILE")]
    detail: Option<PathBuf>,
    /// Only these engines, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = engine_from_name)]
    engines: Vec<EngineName>,
    /// Only these parts, each with all phases that it needs.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    phases: Vec<Part>,
    /// So many rounds; figures are medians over them. Three unless said otherwise.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=9))]
    rounds: Option<u8>,
    /// So many records instead, one round: to try the bench itself.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    records: Option<u64>,
}

fn engine_from_name(name: &str) -> Result<EngineName, String> {
    EngineName::from_name(name).filter(|engine| engine.is_built()).ok_or_else(|| {
        let built = EngineName::ALL.into_iter().filter(|engine| engine.is_built());
        let names: Vec<&str> = built.map(EngineName::name).collect();
        format!("this build has {}; rivals need --features peers", names.join(", "))
    })
}

fn main() -> ExitCode {
    let ended = match Cli::parse().bench {
        Bench::Engine(arguments) => bench_engine(&arguments),
        Bench::Child { spec } => run_child(&spec),
        #[cfg(feature = "tables")]
        Bench::Half(half) => halves::run(&half).map(|()| true),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_child(spec: &str) -> Result<bool, EngineError> {
    // A child that outlived an interrupted bench would disturb the next one.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    phases::run_child(&serde_json::from_str(spec)?)?;
    Ok(true)
}

/// Runs the bench and prints its results; true if every phase ran and Atoll returned nothing wrong.
fn bench_engine(arguments: &EngineArguments) -> Result<bool, EngineError> {
    let scale = match (arguments.records, arguments.quick) {
        (Some(records), _) => Scale::shrunk_to(records),
        (None, true) => Scale::QUICK,
        (None, false) => Scale::FULL,
    };
    let scale = Scale { repeats: arguments.rounds.map_or(scale.repeats, usize::from), ..scale };
    let parts = arguments.phases.clone();
    let plan = Plan { scale, engines: engines(arguments)?, parts, work: work_folder()? };
    std::fs::create_dir_all(&plan.work)?;
    // Builds alongside need not wait for a trial of the bench itself.
    let is_trial = arguments.records.is_some();
    let facts = MachineFacts::gather(&plan.work, !is_trial && raise_priority());
    plan::print_machine(&facts);
    let calm = wait_for_calm(scale.records == Scale::FULL.records, |busy| {
        eprintln!("waiting for a calm machine: {:.0} % busy with other work", busy * 100.0);
    });
    if let Calm::Busy(share) = calm {
        eprintln!(
            "WARNING: {:.0} % of this machine is busy with other work; do not quote these figures",
            share * 100.0
        );
    }
    let told = |line: &str| eprintln!("{line}");
    let measured = plan.run(told, |rounds, measured| {
        let rows = plan::rows(measured, Scale::FULL.tail_bytes as f64 / scale.tail_bytes as f64);
        let scale = Scale { repeats: rounds, ..scale };
        print(&rows, measured, scale, calm);
        write_files(arguments, &facts, scale, &rows, measured)
    })?;
    plan::clear(&plan.work)?;
    Ok(measured.failures.is_empty() && measured.wrong(EngineName::Atoll).is_none())
}

fn engines(arguments: &EngineArguments) -> Result<Vec<EngineName>, EngineError> {
    if !arguments.engines.is_empty() {
        return Ok(arguments.engines.clone());
    }
    let wanted = EngineName::ALL.into_iter().filter(|engine| arguments.peers || !engine.is_peer());
    let (built, missing): (Vec<_>, Vec<_>) = wanted.partition(|engine| engine.is_built());
    if let Some(engine) = missing.iter().find(|engine| engine.is_peer()) {
        let name = engine.name();
        return Err(format!("this build has no {name}: build with --features peers, as `cargo xtask bench engine --peers` does").into());
    }
    Ok(built)
}

/// The folder for the stores: on a real disk, never in a memory file system by accident.
fn work_folder() -> Result<PathBuf, EngineError> {
    let chosen = std::env::var_os("ATOLL_BENCH_DIR").map(PathBuf::from);
    let folder = match chosen {
        Some(folder) => folder,
        // Next to the profile folder that holds this program.
        None => std::env::current_exe()?
            .ancestors()
            .nth(2)
            .map(Path::to_owned)
            .ok_or("this program lies in no folder")?,
    };
    Ok(folder.join("atoll-bench-stores"))
}

fn print(rows: &[Row], measured: &Measured, scale: Scale, calm: Calm) {
    plan::print_phases(measured);
    if scale.repeats < Scale::FULL.repeats {
        println!("Fewer rounds than the bars are about: {}.", scale.repeats);
    }
    if scale.records != Scale::FULL.records {
        println!(
            "Smaller than the bars are about ({} records); recovery is scaled up to 1 GB.",
            scale.records
        );
    }
    if calm != Calm::Calm {
        println!("The machine was busy with other work: do not quote these figures.");
    }
    plan::print_rows(rows);
    plan::print_losses(measured);
}

fn write_files(
    arguments: &EngineArguments,
    facts: &MachineFacts,
    scale: Scale,
    rows: &[Row],
    measured: &Measured,
) -> Result<(), EngineError> {
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(rows)? + "\n")?;
    }
    if let Some(file) = &arguments.detail {
        let detail = serde_json::json!({
            "machine": facts,
            "scale": scale,
            "bars": rows,
            "failures": measured.failures.iter().map(|failure| &failure.what).collect::<Vec<_>>(),
            "results": measured.to_json(),
        });
        std::fs::write(file, serde_json::to_string_pretty(&detail)? + "\n")?;
    }
    Ok(())
}

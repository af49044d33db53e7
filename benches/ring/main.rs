//! The bench of the ring: Atoll's nodes beside Redis and memcached, driven by one client that judges every
//! reply.
//!
//! `run` prints one row for each bar with every system's figures beside it, losses as plainly as wins.
//! Servers are held by children of this program that end with it.

mod cassandra;
mod client;
mod cut;
mod failover;
mod local;
mod machine;
mod moves;
mod outage;
mod phases;
mod report;
mod scale;
mod schedules;
mod servers;
mod waits;

use clap::{Args, Parser, Subcommand, ValueEnum};
use machine::{Calm, MachineFacts, raise_priority, wait_for_calm};
use phases::Scale;
use report::Row;
use servers::{BenchPaths, Kind};
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The variable that names the folder for servers' files.
const FOLDER_VARIABLE: &str = "ATOLL_BENCH_DIR";

/// The bench of the ring.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure.
    Run(RunArguments),
    /// Run random schedules, and print a line of JSON for each: `cargo xtask soak ring-schedules`.
    Soak(SoakArguments),
    /// Keeps a program running for as long as standard input is open.
    #[command(hide = true)]
    Keep {
        log: PathBuf,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Runs a program when standard input has ended.
    #[command(hide = true)]
    Afterwards {
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Cut and heal, run where namespaces may be made.
    #[command(hide = true)]
    Cut { folder: PathBuf, clusters: String, times: String, out: PathBuf },
    /// Random schedules, run where namespaces may be made.
    #[command(hide = true)]
    Schedules { folder: PathBuf, spec: String, out: PathBuf },
    /// A node with a large table, whose memory is measured.
    #[command(hide = true)]
    TableNode { out: PathBuf },
    /// A task on one host.
    #[command(hide = true)]
    Task { task: String, out: PathBuf },
}

#[derive(Args)]
struct RunArguments {
    /// Also measure Redis, memcached and Cassandra; without them ratios are not measured.
    #[arg(long)]
    peers: bool,
    /// Two rounds of half the time: a first look, not figures to quote.
    #[arg(long)]
    quick: bool,
    /// Write the bars to this file, as a list of objects.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the machine and every single result to this file.
    #[arg(long, value_name = "FILE")]
    detail: Option<PathBuf>,
    /// Only these phases.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    phases: Vec<Phase>,
    /// This many rounds; figures are medians over them.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: Option<u8>,
    /// Use this many keys, in one very short round: to try the bench itself.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    records: Option<u32>,
    /// This many random schedules instead of 20; 1 with `--schedule-seed`.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    schedules: Option<u64>,
    /// The seed of the first random schedule, to replay one.
    #[arg(long, value_name = "SEED")]
    schedule_seed: Option<u64>,
    /// A client of the random schedules reports some stale reads: the schedules must fail.
    #[arg(long, hide = true)]
    plant_stale_reads: bool,
    /// The program of Atoll.
    #[arg(long, value_name = "FILE")]
    atoll: Option<PathBuf>,
    /// The program that starts and stops nodes of Cassandra.
    #[arg(long, value_name = "FILE")]
    cassandra: Option<PathBuf>,
}

#[derive(Args)]
struct SoakArguments {
    /// The seed of the first schedule.
    #[arg(long, value_name = "SEED")]
    seed_from: u64,
    /// How many schedules.
    #[arg(long, value_name = "COUNT", required_unless_present = "minutes", conflicts_with = "minutes")]
    seeds: Option<u64>,
    /// Begin schedules for this many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// The program of Atoll.
    #[arg(long, value_name = "FILE")]
    atoll: PathBuf,
}

/// The phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Phase {
    /// One copy in memory.
    Throughput,
    /// Writes that are on the disk before they are acknowledged.
    Always,
    /// A host is cut off and healed.
    Cut,
    /// Cuts, kills and pauses at random.
    Schedules,
    /// Clients that wait for a field are told of a write.
    Waits,
    /// Two copies compared with one.
    Copies,
    /// Clients that can wait beside those that cannot.
    Classes,
    /// Three copies compared with Cassandra.
    Cassandra,
    /// A primary is killed, repeatedly.
    Failover,
    /// All nodes are killed under load.
    Outage,
    /// Nodes join and leave under load.
    Moves,
    /// Up to a million nodes, by a model of few.
    Scale,
}

impl Phase {
    const ALL: [Self; 12] = [
        Self::Throughput,
        Self::Always,
        Self::Copies,
        Self::Classes,
        Self::Cassandra,
        Self::Waits,
        Self::Cut,
        Self::Failover,
        Self::Outage,
        Self::Moves,
        Self::Scale,
        Self::Schedules,
    ];
}

fn main() -> ExitCode {
    let ended = match Cli::parse().verb {
        Verb::Run(arguments) => run(&arguments),
        Verb::Soak(arguments) => soak(&arguments),
        Verb::Keep { log, command } => {
            servers::keep(&log, &command).map(|status| status.success()).map_err(Into::into)
        }
        Verb::Afterwards { command } => {
            servers::afterwards(&command).map(|status| status.success()).map_err(Into::into)
        }
        Verb::Cut { folder, clusters, times, out } => {
            servers::end_with_parent();
            run_cut(&folder, &clusters, &times, &out)
        }
        Verb::Schedules { folder, spec, out } => {
            servers::end_with_parent();
            run_schedules(&folder, &spec, &out)
        }
        Verb::TableNode { out } => scale::hold(&out).map(|()| true).map_err(Into::into),
        Verb::Task { task, out } => {
            servers::end_with_parent();
            run_task(&task, &out)
        }
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

fn run_cut(folder: &Path, clusters: &str, times: &str, out: &Path) -> Result<bool, Box<dyn Error>> {
    let clusters: Vec<cut::ClusterKind> = serde_json::from_str(clusters)?;
    cut::inside(folder, &clusters, serde_json::from_str(times)?, out)?;
    Ok(true)
}

fn run_schedules(folder: &Path, spec: &str, out: &Path) -> Result<bool, Box<dyn Error>> {
    schedules::inside(folder, &serde_json::from_str(spec)?, out)?;
    Ok(true)
}

fn run_task(task: &str, out: &Path) -> Result<bool, Box<dyn Error>> {
    cut::perform(&serde_json::from_str(task)?, out)?;
    Ok(true)
}

/// The results of one phase.
struct Measured {
    phase: Phase,
    rows: Vec<Row>,
    /// Every single result.
    detail: serde_json::Value,
    /// Whether Atoll returned nothing wrong, and finished everything that was asked for.
    is_right: bool,
}

impl Measured {
    /// A line about a phase that could not run here: that is a success, but must not look as if the phase
    /// held.
    fn skipped(&self) -> Option<String> {
        let notes = self.rows.iter().filter_map(|row| row.note.as_deref());
        let mut whys = notes.map(|note| note.strip_prefix("atoll: ").unwrap_or(note));
        let why = whys.find(|why| !phases::is_failure(why))?;
        Some(format!("SKIPPED [{:?}]: {why}", self.phase))
    }
}

/// Runs and prints the phases; returns true if Atoll returned nothing wrong, and nothing failed that could
/// run.
fn run(arguments: &RunArguments) -> Result<bool, Box<dyn Error>> {
    let scale = scale(arguments);
    let work = WorkFolder::new()?;
    let place = BenchPaths { folder: work.0.clone(), atoll: arguments.atoll.clone() };
    let is_trial = arguments.records.is_some();
    let facts = MachineFacts::gather(&place.folder, !is_trial && raise_priority());
    report::print_machine(&facts);
    // Schedules are judged by correctness, and a busy machine makes them better.
    let is_measuring = arguments.phases.iter().any(|phase| *phase != Phase::Schedules);
    let is_measuring = is_measuring || arguments.phases.is_empty();
    let calm = if is_measuring { calm(scale) } else { Calm::Calm };
    let mut measured = Vec::new();
    for phase in Phase::ALL {
        if arguments.phases.is_empty() || arguments.phases.contains(&phase) {
            measured.push(match phase {
                Phase::Cut => run_cut_phase(arguments.peers, scale, &place)?,
                Phase::Waits => run_waits_phase(scale, &place)?,
                Phase::Copies => run_copies_phase(scale, &place)?,
                Phase::Classes => run_classes_phase(scale, &place)?,
                Phase::Cassandra => run_cassandra_phase(arguments, scale, &place)?,
                Phase::Schedules => run_schedules_phase(arguments, &place)?,
                Phase::Failover => run_failover_phase(arguments, &place)?,
                Phase::Outage => run_outage_phase(arguments, &place)?,
                Phase::Moves => run_moves_phase(arguments, &place)?,
                Phase::Scale => run_scale_phase(scale, &place)?,
                phase => run_phase(phase, arguments.peers, scale, &place)?,
            });
            // All phases together take hours: an interrupted run keeps the phases that it finished.
            write_files(arguments, &facts, scale, &measured)?;
        }
    }
    if scale != Scale::FULL {
        println!("Smaller than the bars are about: {}.", serde_json::to_string(&scale)?);
    }
    if calm != Calm::Calm {
        println!("The machine was busy with other work: do not quote these figures.");
    }
    report::print_rows(&rows_of(&measured));
    measured.iter().filter_map(Measured::skipped).for_each(|line| println!("{line}"));
    Ok(measured.iter().all(|phase| phase.is_right))
}

fn scale(arguments: &RunArguments) -> Scale {
    let scale = match (arguments.records, arguments.quick) {
        (Some(keys), _) => Scale::trial(keys),
        (None, true) => Scale::QUICK,
        (None, false) => Scale::FULL,
    };
    Scale { rounds: arguments.rounds.map_or(scale.rounds, usize::from), ..scale }
}

fn calm(scale: Scale) -> Calm {
    let is_patient = scale.measured_ms == Scale::FULL.measured_ms;
    let calm = wait_for_calm(is_patient, |busy| {
        eprintln!("waiting for a calm machine: {:.0} % busy with other work", busy * 100.0);
    });
    if let Calm::Busy(share) = calm {
        let share = share * 100.0;
        eprintln!(
            "WARNING: {share:.0} % of this machine is busy with other work; do not quote these figures"
        );
    }
    calm
}

/// Runs a phase on loopback.
fn run_phase(
    phase: Phase,
    peers: bool,
    scale: Scale,
    place: &BenchPaths,
) -> Result<Measured, Box<dyn Error>> {
    let kinds: &[Kind] = if peers { &[Kind::Atoll, Kind::Redis, Kind::Memcached] } else { &[Kind::Atoll] };
    let told = &mut |line: &str| eprintln!("{line}");
    let (findings, rows, title) = if phase == Phase::Always {
        let findings = phases::always(kinds, scale, place, told);
        let rows = phases::always_rows(&findings);
        (findings, rows, "On the disk before it is acknowledged, 50 clients, keys of 15 B, values of 132 B")
    } else {
        let findings = phases::throughput(kinds, scale, place, told);
        let rows = phases::throughput_rows(&findings);
        (findings, rows, "One copy in memory, 50 clients, keys of 15 B, values and appended pieces of 132 B")
    };
    report::print_findings(title, &findings);
    Ok(Measured { phase, rows, detail: serde_json::to_value(&findings)?, is_right: findings.is_right() })
}

/// Two copies compared with one.
fn run_copies_phase(scale: Scale, place: &BenchPaths) -> Result<Measured, Box<dyn Error>> {
    let findings = phases::copies(scale, place, &mut |line| eprintln!("{line}"));
    report::print_findings("Two copies in memory on the loopback against one, 50 clients", &findings);
    let (rows, is_right) = (phases::copies_rows(&findings), findings.is_right());
    Ok(Measured { phase: Phase::Copies, rows, detail: serde_json::to_value(&findings)?, is_right })
}

/// Clients that can wait beside those that cannot.
fn run_classes_phase(scale: Scale, place: &BenchPaths) -> Result<Measured, Box<dyn Error>> {
    let found = phases::classes(scale, place, &mut |line| eprintln!("{line}"));
    let title = "Three copies in memory, 300 calls that can wait for 500 ms beside 9 clients that cannot";
    report::print_findings(title, &found.patient);
    let (rows, is_right) = (phases::classes_rows(&found), found.is_right());
    Ok(Measured { phase: Phase::Classes, rows, detail: serde_json::to_value(&found)?, is_right })
}

/// Three copies compared with Cassandra.
fn run_cassandra_phase(
    arguments: &RunArguments,
    scale: Scale,
    place: &BenchPaths,
) -> Result<Measured, Box<dyn Error>> {
    let control = arguments.cassandra.as_deref();
    let findings = cassandra::run(scale, place, arguments.peers, control, &mut |line| eprintln!("{line}"));
    cassandra::print(&findings);
    let (rows, is_right) = (cassandra::rows(&findings), findings.both.is_right());
    Ok(Measured { phase: Phase::Cassandra, rows, detail: serde_json::to_value(&findings)?, is_right })
}

/// Clients that wait at one node.
fn run_waits_phase(scale: Scale, place: &BenchPaths) -> Result<Measured, Box<dyn Error>> {
    let findings = waits::run(scale, place, &mut |line| eprintln!("{line}"));
    waits::print(&findings);
    let (rows, detail) = (waits::rows(&findings), serde_json::to_value(&findings)?);
    Ok(Measured { phase: Phase::Waits, rows, detail, is_right: waits::is_right(&findings) })
}

/// Up to a million nodes.
fn run_scale_phase(scale: Scale, place: &BenchPaths) -> Result<Measured, Box<dyn Error>> {
    let findings = scale::run(scale, place, &mut |line| eprintln!("{line}"));
    scale::print(&findings);
    let (rows, detail) = (scale::rows(&findings), serde_json::to_value(&findings)?);
    Ok(Measured { phase: Phase::Scale, rows, detail, is_right: scale::is_right(&findings) })
}

/// A number of repetitions: the requested one, or the default at full length or for a first look.
fn count(arguments: &RunArguments, full: usize, quick: usize) -> usize {
    let is_quick = arguments.quick || arguments.records.is_some();
    arguments.rounds.map_or(if is_quick { quick } else { full }, usize::from)
}

/// Primaries that are killed.
fn run_failover_phase(arguments: &RunArguments, place: &BenchPaths) -> Result<Measured, Box<dyn Error>> {
    let rounds = count(arguments, failover::ROUNDS, failover::ROUNDS_QUICK);
    eprintln!("fail-over: about six seconds for each of {rounds} rounds");
    let findings = failover::run(rounds, place, &mut |line| eprintln!("{line}"));
    failover::print(&findings);
    let (rows, detail) = (failover::rows(&findings), serde_json::to_value(&findings)?);
    Ok(Measured { phase: Phase::Failover, rows, detail, is_right: failover::is_right(&findings) })
}

/// Rings that are killed as a whole.
fn run_outage_phase(arguments: &RunArguments, place: &BenchPaths) -> Result<Measured, Box<dyn Error>> {
    let rounds = count(arguments, outage::ROUNDS, outage::ROUNDS_QUICK);
    eprintln!("total outage: about five seconds for each of {rounds} rounds, twice");
    let findings = outage::run(rounds, place, &mut |line| eprintln!("{line}"));
    outage::print(&findings);
    let (rows, detail) = (outage::rows(&findings), serde_json::to_value(&findings)?);
    Ok(Measured { phase: Phase::Outage, rows, detail, is_right: outage::is_right(&findings) })
}

/// Nodes that join and leave.
fn run_moves_phase(arguments: &RunArguments, place: &BenchPaths) -> Result<Measured, Box<dyn Error>> {
    let cycles = count(arguments, moves::CYCLES, moves::CYCLES_QUICK);
    eprintln!("moves: about twenty seconds for each of {cycles} cycles");
    let findings = moves::run(cycles, place, &mut |line| eprintln!("{line}"));
    moves::print(&findings);
    let (rows, detail) = (moves::rows(&findings), serde_json::to_value(&findings)?);
    Ok(Measured { phase: Phase::Moves, rows, detail, is_right: moves::is_right(&findings) })
}

/// The phase on hosts that can be cut off; where they cannot be made it says so.
fn run_cut_phase(peers: bool, scale: Scale, place: &BenchPaths) -> Result<Measured, Box<dyn Error>> {
    eprintln!("cut and heal: about a minute for each cluster");
    let findings = cut::run(peers, scale.cut_times(), place).unwrap_or_else(|error| {
        let why = phases::with_sources(&error);
        let names: &[&str] = if peers { &["atoll", "redis"] } else { &["atoll"] };
        let missing = names.iter().map(|name| ((*name).to_owned(), why.clone())).collect();
        cut::Findings { measured: Vec::new(), missing }
    });
    cut::print(&findings);
    let is_right = cut::is_right(&findings);
    let (rows, detail) = (cut::rows(&findings), serde_json::to_value(&findings)?);
    Ok(Measured { phase: Phase::Cut, rows, detail, is_right })
}

/// Random schedules on such hosts.
fn run_schedules_phase(arguments: &RunArguments, place: &BenchPaths) -> Result<Measured, Box<dyn Error>> {
    let count = match (arguments.schedules, arguments.schedule_seed) {
        (Some(count), _) => count,
        (None, Some(_)) => 1,
        (None, None) if arguments.quick || arguments.records.is_some() => schedules::COUNT_QUICK,
        (None, None) => schedules::COUNT,
    };
    let seed = arguments.schedule_seed.unwrap_or(schedules::SEED);
    eprintln!("random schedules: about a quarter of a minute for each of {count}");
    let found = schedules::run(
        &schedules::ScheduleOptions {
            seed,
            count,
            minutes: None,
            prints_lines: false,
            is_planted: arguments.plant_stale_reads,
        },
        place,
    );
    let findings = found.unwrap_or_else(|error| schedules::Findings {
        missing: Some(phases::with_sources(&error)),
        ..schedules::Findings::default()
    });
    schedules::print(&findings);
    let (rows, detail) = (schedules::rows(&findings), serde_json::to_value(&findings)?);
    Ok(Measured { phase: Phase::Schedules, rows, detail, is_right: schedules::is_right(&findings) })
}

/// Random schedules with fresh seeds, with a line for the ledger for each; returns whether all held.
fn soak(arguments: &SoakArguments) -> Result<bool, Box<dyn Error>> {
    let work = WorkFolder::new()?;
    let place = BenchPaths { folder: work.0.clone(), atoll: Some(arguments.atoll.clone()) };
    let asked = schedules::ScheduleOptions {
        seed: arguments.seed_from,
        count: arguments.seeds.unwrap_or(u64::MAX),
        minutes: arguments.minutes,
        prints_lines: true,
        is_planted: false,
    };
    let findings = schedules::run(&asked, &place)?;
    schedules::print(&findings);
    Ok(schedules::is_right(&findings))
}

fn rows_of(measured: &[Measured]) -> Vec<Row> {
    measured.iter().flat_map(|phase| phase.rows.clone()).collect()
}

/// Writes the measurements so far.
fn write_files(
    arguments: &RunArguments,
    facts: &MachineFacts,
    scale: Scale,
    measured: &[Measured],
) -> Result<(), Box<dyn Error>> {
    let rows = rows_of(measured);
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&rows)? + "\n")?;
    }
    if let Some(file) = &arguments.detail {
        let results = measured.iter().map(|one| (format!("{:?}", one.phase).to_lowercase(), &one.detail));
        let results: std::collections::BTreeMap<String, _> = results.collect();
        let detail =
            serde_json::json!({ "machine": facts, "scale": scale, "bars": rows, "results": results });
        std::fs::write(file, serde_json::to_string_pretty(&detail)? + "\n")?;
    }
    Ok(())
}

/// A folder for servers' files: on a real disk, never a memory file system by accident; removed afterwards.
struct WorkFolder(PathBuf);

impl WorkFolder {
    const PREFIX: &str = "atoll-bench-ring-";

    fn new() -> Result<Self, Box<dyn Error>> {
        let parent = match std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) {
            Some(folder) => folder,
            // Next to the profile folder that contains this program.
            None => std::env::current_exe()?
                .ancestors()
                .nth(2)
                .map(Path::to_owned)
                .ok_or("this program lies in no folder")?,
        };
        std::fs::create_dir_all(&parent)?;
        Self::remove_left_over(&parent)?;
        let folder = parent.join(format!("{}{}", Self::PREFIX, std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Removes folders that killed benches left behind.
    fn remove_left_over(parent: &Path) -> std::io::Result<()> {
        for entry in std::fs::read_dir(parent)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = name.strip_prefix(Self::PREFIX).and_then(|number| number.parse::<u32>().ok());
            if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

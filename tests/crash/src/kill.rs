//! Real kills: a child process writes to a real file and prints what was acknowledged. The parent kills it
//! with signal 9 at a random moment, opens the file, and checks that nothing acknowledged is gone.
//!
//! Invariant: event `n` depends only on the seed and `n`, so that parent and child agree without
//! communicating.
//! Invariant: the child prints a number only after the call that wrote the event returned.
//! Invariant: a child that exits by itself does not count as a kill: its error output is a failure of the
//! round.

use crate::oracle::{Ending, Oracle};
use crate::read::read_state;
use crate::state::Event;
use crate::subject::{Durability, Failure, Settings, Subject};
use crate::workload::Workload;
use atoll_disk::{FileDisk, Mode};
use atoll_errors::ErrorKind;
use fastrand::Rng;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;

/// Events after which a child exits by itself if it was not killed.
const EVENTS_MAX: u64 = 100_000;
/// SIGKILL, which no process can handle.
const KILL: i32 = 9;
/// A child is killed after at most this many acknowledgements.
const ACKNOWLEDGED_MAX: u64 = 600;

/// Counts over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// Kills.
    pub kills: u64,
    /// Kills before the first acknowledgement of a child.
    pub kills_while_opening: u64,
    /// Events acknowledged over all rounds.
    pub acknowledged: u64,
    /// Events under way at the time of the kill that survived it.
    pub survived_unacknowledged: u64,
    /// Openings that replayed a log.
    pub replays: u64,
}

impl Rounds {
    /// Adds the rounds of another file.
    pub const fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.kills_while_opening += other.kills_while_opening;
        self.acknowledged += other.acknowledged;
        self.survived_unacknowledged += other.survived_unacknowledged;
        self.replays += other.replays;
    }

    /// One line of JSON, to be added up over runs; a kill counts as a seed.
    #[must_use]
    pub fn to_json(&self, seed_from: u64, kills: u64, failures: u64) -> String {
        serde_json::json!({
            "soak": "crash-kill",
            "format": 1,
            "seed_from": seed_from,
            "seeds": kills,
            "failures": failures,
            "kills_while_opening": self.kills_while_opening,
            "acknowledged": self.acknowledged,
            "survived_unacknowledged": self.survived_unacknowledged,
            "replays": self.replays,
        })
        .to_string()
    }
}

/// How to start a child: the program and its first arguments; file, seed and first event are added.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<String>,
}

/// The sequence of events of one seed.
struct Load {
    seed: u64,
    workload: Workload,
}

impl Load {
    fn new(seed: u64) -> Self {
        Self { seed, workload: Workload::new(&mut Rng::with_seed(seed)) }
    }

    fn event(&self, number: u64) -> (Event, Durability) {
        let mut rng = Rng::with_seed(self.seed.rotate_left(32) ^ number);
        let event = match number % 50 {
            25 => Event::CreateSnapshot(format!("snapshot {number}")),
            49 if number > 50 => Event::DeleteSnapshot(format!("snapshot {}", number - 24)),
            // Most ranges are joined again at once, some only after writes to the place where they were.
            30 => Event::Move(self.workload.split_off(&mut rng)),
            31 | 40 => Event::Move(self.workload.absorb(&mut rng)),
            _ => Event::Write(self.workload.changes(&mut rng)),
        };
        let durability = if rng.u8(..40) == 0 { Durability::Synced } else { Durability::Flushed };
        (event, durability)
    }
}

fn settings(seed: u64) -> Settings {
    Settings {
        checkpoint_bytes: 512 * 1024,
        log_segment_bytes: 256 * 1024,
        memory_bytes: 4 * 1024 * 1024,
        store_seed: seed,
        life: None,
    }
}

fn open<S: Subject>(path: &Path, mode: Mode, seed: u64) -> Result<(S, crate::subject::Recovery), Failure> {
    let disk = FileDisk::open(path, mode).map_err(|error| Failure::new(error.kind(), &error))?;
    S::open(Arc::new(disk), &settings(seed), None)
}

/// The child's side: applies events starting at `from` and prints the number of each acknowledged one.
///
/// # Errors
/// The first failed call.
pub fn write_until_killed<S: Subject>(path: &Path, seed: u64, from: u64) -> Result<(), Failure> {
    let load = Load::new(seed);
    let (store, _report) = open::<S>(path, Mode::Create, seed)?;
    let mut out = std::io::stdout().lock();
    for number in from..from + EVENTS_MAX {
        let (event, durability) = load.event(number);
        match &event {
            Event::Write(batch) => store.write(batch, durability).map(drop)?,
            Event::CreateSnapshot(name) => store.create_snapshot(name)?,
            Event::DeleteSnapshot(name) => store.delete_snapshot(name)?,
            Event::Move(range) => match store.move_range(range, durability) {
                Err(failure) if failure.kind == ErrorKind::Conflict => {}
                moved => moved?,
            },
        }
        if store.wants_checkpoint() {
            store.checkpoint()?;
        }
        // A closed pipe means that the parent has exited and the child is not needed any more.
        if writeln!(out, "{number}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    Ok(())
}

/// The parent's side: `rounds` kills on one file in `folder`.
///
/// # Errors
/// Describes what was lost, torn or wrong.
pub fn run_rounds<S: Subject>(
    program: &Program,
    folder: &Path,
    seed: u64,
    rounds: u64,
) -> Result<Rounds, String> {
    let path = folder.join("store");
    let load = Load::new(seed);
    let mut rng = Rng::with_seed(seed);
    let (mut oracle, mut next, mut report) = (Oracle::default(), 0, Rounds::default());
    for round in 0..rounds {
        let acknowledged = kill_one_child(program, &path, seed, next, &mut rng)
            .map_err(|what| format!("seed {seed}, round {round}, event {next}: {what}"))?;
        report.kills += 1;
        report.kills_while_opening += u64::from(acknowledged == 0);
        report.acknowledged += acknowledged;
        (next..next + acknowledged).for_each(|number| oracle.push(load.event(number).0));
        oracle.mark_flushed();
        // One more event may have been under way.
        oracle.push_doubtful(load.event(next + acknowledged).0);
        let replayed = judge::<S>(&path, seed, &mut oracle, &mut rng)
            .map_err(|what| format!("seed {seed}, round {round}, event {next}: {what}"))?;
        report.replays += u64::from(replayed.has_replayed);
        report.survived_unacknowledged += u64::from(replayed.lost == 0);
        next += acknowledged + u64::from(replayed.lost == 0);
        oracle.mark_synced();
    }
    Ok(report)
}

struct Judged {
    lost: usize,
    has_replayed: bool,
}

fn judge<S: Subject>(path: &Path, seed: u64, oracle: &mut Oracle, rng: &mut Rng) -> Result<Judged, String> {
    let (store, report) = open::<S>(path, Mode::Create, seed).map_err(|failure| failure.to_string())?;
    let found = read_state(&store).map_err(|failure| failure.to_string())?;
    let lost = oracle.recover(&found, Ending::ProcessDeath)?;
    // Half of the time the next child opens what this one left, otherwise a cleanly closed store.
    if rng.bool() {
        store.close().map_err(|failure| failure.to_string())?;
    }
    Ok(Judged { lost, has_replayed: report.groups_replayed > 0 })
}

/// Starts a child, kills it after a random number of acknowledgements, and counts all the numbers that it
/// printed.
fn kill_one_child(
    program: &Program,
    path: &Path,
    seed: u64,
    from: u64,
    rng: &mut Rng,
) -> Result<u64, String> {
    // Standard error goes to a file, which accepts any amount of output. An unread pipe would block the
    // child when it is full.
    let words = path.with_extension("words");
    let said = File::create(&words).map_err(|error| format!("cannot write {}: {error}", words.display()))?;
    let mut child = Command::new(&program.path)
        .args(&program.arguments)
        .arg(path)
        .args([seed.to_string(), from.to_string()])
        .stdout(Stdio::piped())
        .stderr(said)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.path.display()))?;
    let output = child.stdout.take().ok_or("the child has no output")?;
    let patience = if rng.u8(..10) == 0 { 0 } else { rng.u64(..ACKNOWLEDGED_MAX) };
    let mut lines = BufReader::new(output);
    let before = read_numbers(&mut lines, from, patience);
    child.kill().map_err(|error| format!("cannot kill the child: {error}"))?;
    // Numbers printed before the kill are still in the pipe.
    let numbers = before.and_then(|before| Ok(before + read_numbers(&mut lines, from + before, u64::MAX)?));
    let status = child.wait().map_err(|error| format!("cannot wait for the child: {error}"))?;
    let acknowledged = numbers?;
    if status.signal() == Some(KILL) || (status.success() && acknowledged == EVENTS_MAX) {
        return Ok(acknowledged);
    }
    let said = std::fs::read(&words).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    Err(format!("the child ended by itself ({status}) behind {acknowledged} events: {}", said.trim()))
}

/// Reads up to `limit` numbers, which must count up from `from`. An incomplete last line does not count.
fn read_numbers(lines: &mut BufReader<ChildStdout>, from: u64, limit: u64) -> Result<u64, String> {
    let mut count = 0;
    let mut line = String::new();
    while count < limit {
        line.clear();
        lines.read_line(&mut line).map_err(|error| format!("cannot read from the child: {error}"))?;
        if !line.ends_with('\n') {
            break;
        }
        if line.trim_end().parse() != Ok(from + count) {
            return Err(format!("the child said {line:?} where {} was due", from + count));
        }
        count += 1;
    }
    Ok(count)
}

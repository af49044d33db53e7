//! `atoll doctor`: whether a location suits a store, which features have a fallback there, and advice.
//!
//! Invariant: nothing is claimed that was not measured; each finding says how it was obtained.

mod file_systems;
mod probes;

use crate::{Failure, Session};
use atoll_options::Size;
use clap::Args;
use probes::{Folder, Scratch, SyncTimes};
use serde_json::{Value, json};
use std::path::PathBuf;

/// `atoll doctor`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll doctor /scratch/me
  atoll doctor . --json
  atoll doctor /scratch/me && sbatch job.sh
Writes a few small files into a temporary folder there, and removes them. Exits with 16 if there is a problem,
marked with !. A feature with a fallback, marked with ~, is not a problem.")]
pub struct Doctor {
    /// Folder to check; it need not exist yet
    path: PathBuf,
}

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    Good,
    /// A fallback is used in its place.
    FallsBack,
    Bad,
}

/// One finding, possibly with advice.
struct Finding {
    name: &'static str,
    grade: Grade,
    found: String,
    advice: Option<&'static str>,
}

impl Finding {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, grade: Grade::Good, found: found.into(), advice: None }
    }

    fn falls_back(name: &'static str, found: impl Into<String>, advice: &'static str) -> Self {
        Self { name, grade: Grade::FallsBack, found: found.into(), advice: Some(advice) }
    }

    fn bad(name: &'static str, found: impl Into<String>, advice: &'static str) -> Self {
        Self { name, grade: Grade::Bad, found: found.into(), advice: Some(advice) }
    }
}

impl Doctor {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why the location could not be examined, or what makes it unsuitable.
    pub fn run(self, session: &Session) -> Result<(), Failure> {
        let folder = Folder::nearest(&self.path)?;
        let mut findings = vec![kernel(), machine(), file_system(&folder), space(&folder)];
        match Scratch::make(&folder) {
            Ok(scratch) => findings.extend(measured(&scratch)),
            Err(error) => findings.push(Finding::bad(
                "writable",
                format!("no: {error}"),
                "a store can only be read here (mode=read); choose a folder that you may write to",
            )),
        }
        show(session, &folder, &findings)?;
        let bad = findings.iter().filter(|finding| finding.grade == Grade::Bad);
        let problems: Vec<String> =
            bad.map(|finding| format!("{}: {}", finding.name, finding.found)).collect();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Failure::Unfit { place: folder.name(), problems }),
        }
    }
}

fn kernel() -> Finding {
    let name = rustix::system::uname();
    Finding::good(
        "kernel",
        format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
    )
}

fn machine() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = probes::memory_bytes()
        .map_or("memory unknown".to_owned(), |bytes| format!("{} memory", rounded(bytes)));
    let limit = probes::memory_limit_bytes().map(|bytes| format!(", limited to {}", rounded(bytes)));
    Finding::good("machine", format!("{cores} cores, {memory}{}", limit.unwrap_or_default()))
}

fn file_system(folder: &Folder) -> Finding {
    match folder.file_system() {
        Ok(kind) if kind.is_volatile => Finding::falls_back(
            "file system",
            kind.name,
            "it is memory: nothing here survives a restart of the machine",
        ),
        Ok(kind) if kind.is_shared => Finding::falls_back(
            "file system",
            kind.name,
            "machines share it: a lock file with a heartbeat says who owns the store; a local disk is faster",
        ),
        Ok(kind) => Finding::good("file system", kind.name),
        Err(error) => {
            Finding::falls_back("file system", format!("unknown: {error}"), "measure before trusting it")
        }
    }
}

fn space(folder: &Folder) -> Finding {
    match folder.free_bytes() {
        Ok(bytes) if bytes < 2 << 30 => Finding::bad(
            "free space",
            rounded(bytes),
            "free some: the log alone grows to 1GiB between checkpoints",
        ),
        Ok(bytes) => Finding::good("free space", rounded(bytes)),
        Err(error) => Finding::falls_back("free space", format!("unknown: {error}"), "look at it with `df`"),
    }
}

fn measured(scratch: &Scratch) -> Vec<Finding> {
    let mut findings = vec![Finding::good("writable", "yes")];
    findings.push(match scratch.locks_exclude() {
        Ok(true) => Finding::good("locking", "flock keeps a second owner out"),
        Ok(false) => {
            Finding::bad("locking", "flock lets two owners in", "use another file system for stores")
        }
        Err(error) => {
            Finding::falls_back("locking", format!("no flock: {error}"), "a lock file is used in its place")
        }
    });
    findings.push(match scratch.links() {
        Ok(()) => Finding::good("links", "hard links and atomic renames"),
        Err(error) => {
            Finding::falls_back("links", format!("no hard links: {error}"), "renames are used in their place")
        }
    });
    findings.push(match scratch.socket() {
        Ok(()) => Finding::good("sockets", "other processes can attach through the folder"),
        Err(error) => Finding::falls_back(
            "sockets",
            format!("none here: {error}"),
            "the socket goes to the run-time folder (XDG_RUNTIME_DIR)",
        ),
    });
    findings.push(match scratch.direct() {
        Ok(()) => Finding::good("direct I/O", "O_DIRECT works"),
        Err(error) => {
            Finding::falls_back("direct I/O", format!("no: {error}"), "buffered I/O is used; nothing to do")
        }
    });
    findings.push(match scratch.sync_times() {
        Ok(times) => synced(&times),
        Err(error) => Finding::bad("fsync", format!("fails: {error}"), "nothing can be made durable here"),
    });
    findings
}

fn synced(times: &SyncTimes) -> Finding {
    let milliseconds = |duration: std::time::Duration| format!("{:.2} ms", duration.as_secs_f64() * 1e3);
    let found = format!(
        "median {}, worst {} of {} writes of 4KiB",
        milliseconds(times.median),
        milliseconds(times.worst),
        times.count
    );
    if times.median.as_millis() >= 20 {
        return Finding::falls_back(
            "fsync",
            found,
            "slow: keep the default class `flushed`, and sync many writes at once",
        );
    }
    if times.median.as_micros() < 20 {
        return Finding::falls_back(
            "fsync",
            found,
            "too fast for a disk: it may be memory, or a drive that answers from its cache",
        );
    }
    Finding::good("fsync", found)
}

/// A size for people, to the nearest tenth.
fn rounded(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => Size(bytes).to_string(),
    }
}

fn show(session: &Session, folder: &Folder, findings: &[Finding]) -> Result<(), Failure> {
    let grade = |grade| match grade {
        Grade::Good => "good",
        Grade::FallsBack => "falls-back",
        Grade::Bad => "bad",
    };
    if session.output.is_json() {
        let rows: Vec<Value> = findings
            .iter()
            .map(|finding| {
                json!({
                    "name": finding.name,
                    "grade": grade(finding.grade),
                    "found": finding.found,
                    "advice": finding.advice,
                })
            })
            .collect();
        return session.output.json(&json!({ "folder": folder.name(), "findings": rows }));
    }
    let missing = folder.asked().map(|place| format!(", the nearest folder to {place} that exists"));
    session.output.line(format!("looked at {}{}", folder.name(), missing.unwrap_or_default()))?;
    for finding in findings {
        let sign = match finding.grade {
            Grade::Good => "+",
            Grade::FallsBack => "~",
            Grade::Bad => "!",
        };
        session.output.line(format!("{sign} {:<13}{}", finding.name, finding.found))?;
        if let Some(advice) = finding.advice {
            session.output.line(format!("  {:<13}{advice}", ""))?;
        }
    }
    Ok(())
}

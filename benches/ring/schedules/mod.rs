//! Random schedules: cuts, kills and pauses at random while clients on every host write and read, followed
//! by a judgement.
//!
//! Each schedule has its own ring on three hosts. When its last fault has ended, every slot must serve
//! again, and every acknowledged write must be there; and no read may have found less than what was known
//! before it began. While a host is cut off and the others are well, they must serve.

mod asker;
mod book;
mod final_checks;
mod lane;
mod ledger;
mod plan;
mod report;
mod service;
mod shared;
mod stage;
#[cfg(test)]
mod tests;
mod trial;

pub use asker::{Answer, Asker, Request, cluster_info};
pub use book::{Book, Counts};
pub use final_checks::{look_up, write_every_slot};
pub use lane::Lane;
pub use plan::Keeping;
pub use report::{is_right, print, rows};
pub use trial::Outcome;

use crate::cut::{CutError, before, possible, read, spawn, text, wait_for};
use crate::phases::{NOT_OFFERED, with_sources};
use crate::servers::BenchPaths;
use plan::Plan;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many hosts there are, each with a node.
const HOSTS: usize = crate::cut::HOSTS;
/// How many schedules the bar is about.
pub const COUNT: u64 = 20;
/// How many schedules make a first look.
pub const COUNT_QUICK: u64 = 3;
/// The default seed of the first schedule: in the twenty from here on every kind of fault occurs, including
/// the death of all nodes at once, and already in the first three a cut by which the service of the majority
/// can be judged.
pub const SEED: u64 = 1_351;
/// The longest that one schedule may take, including the waiting at its end.
const TIME_MAX: Duration = Duration::from_secs(360);

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct ScheduleOptions {
    /// The first seed.
    pub seed: u64,
    /// How many schedules, at most.
    pub count: u64,
    /// After how many minutes no more schedules are begun.
    pub minutes: Option<u64>,
    /// Whether a line for the ledger of a soak is printed for each schedule.
    pub prints_lines: bool,
    /// Whether a client reports some stale reads, to test that they are detected.
    pub is_planted: bool,
}

/// Which schedules to run.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Spec {
    /// Atoll's program.
    pub program: PathBuf,
    /// The first seed.
    pub seed: u64,
    /// How many schedules, with consecutive seeds, at most.
    pub count: u64,
    /// After how many minutes no more schedules are begun.
    pub minutes: Option<u64>,
    /// Whether a line for the ledger of a soak is printed for each schedule.
    pub prints_lines: bool,
    /// Whether a client reports some stale reads.
    pub is_planted: bool,
    /// The folder for the files of failed schedules.
    pub kept: PathBuf,
}

/// The results of the phase.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Findings {
    /// By schedule.
    pub outcomes: Vec<Outcome>,
    /// Why schedules are missing, if any are.
    pub missing: Option<String>,
}

/// Runs schedules in a child that may make namespaces; each is printed as it ends.
pub fn run(asked: &ScheduleOptions, place: &BenchPaths) -> Result<Findings, CutError> {
    let Some(program) = place.atoll.clone() else {
        let missing = Some(format!("{NOT_OFFERED} yet: no program of Atoll was named"));
        return Ok(Findings { missing, ..Findings::default() });
    };
    possible()?;
    let kept = place.folder.parent().unwrap_or(&place.folder).to_owned();
    let ScheduleOptions { seed, count, minutes, prints_lines, is_planted } = asked.clone();
    let spec = Spec { program, seed, count, minutes, prints_lines, is_planted, kept };
    let out = place.folder.join("schedules.json");
    let words = ["schedules".into(), place.folder.clone().into(), text(&spec)?.into(), out.clone().into()];
    let child = spawn(before(), &words)?;
    let most = match minutes {
        Some(minutes) => Duration::from_secs(minutes.saturating_mul(60)).saturating_add(TIME_MAX),
        None => TIME_MAX.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)),
    };
    let ended = wait_for(child, "all schedules", most);
    // Results that were written before a premature end are reported as well.
    match (ended, read::<Findings>(&out)) {
        (Ok(()), found) => found,
        (Err(error), Ok(found)) => Ok(Findings { missing: Some(with_sources(&error)), ..found }),
        (Err(error), Err(_)) => Err(error),
    }
}

/// The phase itself, where namespaces may be made.
pub fn inside(folder: &Path, spec: &Spec, out: &Path) -> Result<(), CutError> {
    let (mut findings, started_at) = (Findings::default(), Instant::now());
    for seed in (0..spec.count).map(|number| spec.seed.wrapping_add(number)) {
        if spec.minutes.is_some_and(|minutes| started_at.elapsed().as_secs() >= minutes.saturating_mul(60)) {
            break;
        }
        let folder = folder.join(format!("schedule-{seed}"));
        std::fs::create_dir_all(&folder).map_err(CutError::io("make a folder for a schedule"))?;
        let begun_at = Instant::now();
        let mut outcome = trial::run(&Plan::of(seed), spec, &folder);
        if outcome.is_well() {
            std::fs::remove_dir_all(&folder).map_err(CutError::io("remove the folder of a schedule"))?;
        } else {
            outcome.kept = keep(&folder, &spec.kept.join(format!("schedule-{seed}-failed")), &outcome);
        }
        report::print_one(&outcome);
        if spec.prints_lines {
            println!("{}", ledger::line(&outcome, begun_at.elapsed().as_secs()));
        }
        findings.outcomes.push(outcome);
        std::fs::write(out, text(&findings)?).map_err(CutError::io("write what was found"))?;
    }
    Ok(())
}

/// Moves the files of a schedule to where the bench does not remove them; returns the place.
fn keep(folder: &Path, kept: &Path, outcome: &Outcome) -> Option<PathBuf> {
    if kept.exists() {
        std::fs::remove_dir_all(kept).ok()?;
    }
    std::fs::rename(folder, kept).ok()?;
    std::fs::write(kept.join("outcome.json"), serde_json::to_string_pretty(outcome).ok()?).ok()?;
    Some(kept.to_owned())
}

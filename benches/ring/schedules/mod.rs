//! Random schedules: cuts, kills and pauses at random, while clients on every host write and read, and then a
//! judge.
//!
//! Each schedule is a ring of its own on three hosts. When its last fault has ended, every slot must serve
//! again, and every acknowledged write must be there; meanwhile no read may have found less than what was
//! known before it began.

mod after;
mod asker;
mod book;
mod lane;
mod ledger;
mod plan;
mod report;
mod shared;
mod stage;
#[cfg(test)]
mod tests;
mod trial;

pub use after::{look_up, write_every_slot};
pub use asker::{Answer, Asker, Request, cluster_info};
pub use book::{Book, Counts};
pub use lane::Lane;
pub use ledger::next_seed;
pub use plan::Keeping;
pub use report::{is_right, print, rows};
pub use trial::Outcome;

use crate::cut::{CutError, before, possible, read, spawn, text, wait_for};
use crate::phases::{NOT_OFFERED, with_sources};
use crate::servers::Place;
use plan::Plan;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many hosts there are, each with a node.
const HOSTS: usize = crate::cut::HOSTS;
/// How many schedules the bar is about.
pub const COUNT: u64 = 20;
/// How many make a first look.
pub const COUNT_QUICK: u64 = 3;
/// The seed of the first, where none is named: in the twenty from here on everything occurs, nodes killed all
/// at once included.
pub const SEED: u64 = 271;
/// The longest that one schedule may take, with all the waiting at its end.
const TIME_MAX: Duration = Duration::from_secs(360);

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The first seed.
    pub seed: u64,
    /// How many.
    pub count: u64,
    /// Where a line is added for each.
    pub ledger: Option<PathBuf>,
    /// Whether a client tells some reads as they were before: to see that it is found.
    pub is_planted: bool,
}

/// Which schedules to run.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Spec {
    /// Atoll's program.
    pub program: PathBuf,
    /// The first seed.
    pub seed: u64,
    /// How many, each with the seed behind that of the last.
    pub count: u64,
    /// Where a line is added for each.
    pub ledger: Option<PathBuf>,
    /// Whether a client tells some reads as they were before.
    pub is_planted: bool,
    /// Where what a failed schedule left is put.
    pub kept: PathBuf,
}

/// What the phase found.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Findings {
    /// By schedule.
    pub outcomes: Vec<Outcome>,
    /// What the ledger adds up to, earlier runs with it.
    pub ledger: BTreeMap<String, u64>,
    /// Why there are none, or not all.
    pub missing: Option<String>,
}

/// Runs schedules in a child that may make namespaces; each is told as it ends.
pub fn run(asked: &Asked, place: &Place) -> Result<Findings, CutError> {
    let Some(program) = place.atoll.clone() else {
        let missing = Some(format!("{NOT_OFFERED} yet: no program of Atoll was named"));
        return Ok(Findings { missing, ..Findings::default() });
    };
    possible()?;
    let kept = place.folder.parent().unwrap_or(&place.folder).to_owned();
    let Asked { seed, count, ledger, is_planted } = asked.clone();
    let spec = Spec { program, seed, count, ledger, is_planted, kept };
    let out = place.folder.join("schedules.json");
    let words = ["schedules".into(), place.folder.clone().into(), text(&spec)?.into(), out.clone().into()];
    let child = spawn(before(), &words)?;
    let ended =
        wait_for(child, "all schedules", TIME_MAX.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)));
    // What was written before an end too early is told as well.
    match (ended, read::<Findings>(&out)) {
        (Ok(()), found) => found,
        (Err(error), Ok(found)) => Ok(Findings { missing: Some(with_sources(&error)), ..found }),
        (Err(error), Err(_)) => Err(error),
    }
}

/// The phase itself, where namespaces may be made.
pub fn inside(folder: &Path, spec: &Spec, out: &Path) -> Result<(), CutError> {
    let mut findings = Findings::default();
    for seed in (0..spec.count).map(|number| spec.seed.wrapping_add(number)) {
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
        if let Some(file) = &spec.ledger {
            ledger::add(file, &outcome, begun_at.elapsed().as_secs())
                .and_then(|()| ledger::sums(file))
                .map(|sums| findings.ledger = sums)
                .map_err(CutError::io("keep the ledger"))?;
        }
        findings.outcomes.push(outcome);
        std::fs::write(out, text(&findings)?).map_err(CutError::io("write what was found"))?;
    }
    Ok(())
}

/// Puts what a schedule left where the bench does not tidy up; where that is.
fn keep(folder: &Path, kept: &Path, outcome: &Outcome) -> Option<PathBuf> {
    if kept.exists() {
        std::fs::remove_dir_all(kept).ok()?;
    }
    std::fs::rename(folder, kept).ok()?;
    std::fs::write(kept.join("outcome.json"), serde_json::to_string_pretty(outcome).ok()?).ok()?;
    Some(kept.to_owned())
}

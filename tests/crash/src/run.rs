//! One run from one seed: several lives of a store on one simulated disk, each ended by a close, a kill or
//! a crash.
//!
//! Invariant: every fault of the disk comes from a plan that this file set. An error of the store without
//! such a fault in the same step is a violation, and so is any result that the oracle does not expect.

mod faults;
mod moves;
mod steps;

use crate::counts::{Counts, OPERATIONS_MIN};
use crate::damage::{self, Allowed, Damage};
use crate::oracle::{Ending, Oracle};
use crate::read::read_state;
use crate::state::{Content, State};
use crate::subject::{Failure, Recovery, Settings, Subject};
use crate::workload::{Workload, small_settings};
use atoll_disk::{Counters, Disk, FaultPlan, SimDisk};
use fastrand::Rng;
use faults::Fault;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const RECOVERY_ATTEMPTS_MAX: u32 = 5;
const FLIPS_PER_SEED: u32 = 6;
const FRONT_BYTES: u64 = 16 * 1024;

/// A broken promise.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {seed}, life {life}, operation {operation}: {what}")]
pub struct Violation {
    pub seed: u64,
    pub life: u32,
    pub operation: u64,
    pub what: String,
}

/// Whether a life goes on after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    EndOfLife,
}

/// Whether faults may strike while the store comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovering {
    MayFail,
    InPeace,
}

/// Outcome of a part of a run; an error describes the promise that was broken.
type Checked<T> = Result<T, String>;

/// A run in progress.
pub struct Run<S: Subject> {
    seed: u64,
    rng: Rng,
    workload: Workload,
    settings: Settings,
    bug: Option<S::Bug>,
    disk: SimDisk,
    oracle: Oracle,
    ending: Ending,
    held: Vec<(S::Snapshot, Content)>,
    fault: Fault,
    before_life: Counters,
    before_step: Counters,
    last_sequence: u64,
    life: u32,
    operations: u64,
    was_refused: bool,
    strike: Option<Strike>,
    /// How often each thing happened.
    pub counts: Counts,
    /// Every step as text, if a trace was asked for.
    pub trace: Option<Vec<String>>,
}

/// A misdirected write: the history's length at that time, and how many syncs have succeeded since.
#[derive(Clone, Copy, Debug)]
struct Strike {
    events_before: usize,
    syncs_since: u32,
}

/// Runs one seed.
///
/// # Errors
/// The first broken promise; a panic of the store is one.
pub fn run_seed<S: Subject>(seed: u64, bug: Option<S::Bug>) -> Result<Counts, Violation> {
    Run::<S>::new(seed, bug).run()
}

impl<S: Subject> Run<S> {
    /// Prepares the run of one seed.
    #[must_use]
    pub fn new(seed: u64, bug: Option<S::Bug>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let run = Self {
            seed,
            workload: Workload::new(&mut rng),
            settings: small_settings(&mut rng),
            bug,
            disk: SimDisk::seeded(rng.u64(..)),
            rng,
            oracle: Oracle::default(),
            ending: Ending::PowerLoss,
            held: Vec::new(),
            fault: Fault::None,
            before_life: Counters::default(),
            before_step: Counters::default(),
            last_sequence: 0,
            life: 0,
            operations: 0,
            was_refused: false,
            strike: None,
            counts: Counts::default(),
            trace: None,
        };
        if bug.is_none() && !run.has_misdirection() {
            run.disk.offer_windows();
        }
        run
    }

    /// Whether a write of the last life is misdirected.
    ///
    /// Such a seed has no windows, nor has one with a bug. The zeros that are written ahead of a window may
    /// otherwise go to the end of the log and end its last groups, which nothing records; and they hide what
    /// former groups behind the end can do to a store with a bug.
    const fn has_misdirection(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    /// Runs the seed to its end.
    ///
    /// # Errors
    /// The first broken promise.
    pub fn run(mut self) -> Result<Counts, Violation> {
        self.run_in_place().map(|()| self.counts)
    }

    /// Like [`Run::run`], and keeps the trace for the caller.
    ///
    /// # Errors
    /// The first broken promise.
    pub fn run_in_place(&mut self) -> Result<(), Violation> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.lives()))
            .unwrap_or_else(|panic| Err(format!("panicked: {}", panic_text(&*panic))));
        self.counts.add_disk(&self.disk.counters());
        if outcome.is_ok() && self.counts.is_whole() {
            self.counts.bump("whole_seeds");
        }
        outcome.map_err(|what| Violation {
            seed: self.seed,
            life: self.life,
            operation: self.operations,
            what,
        })
    }

    /// The bytes that the disk holds now.
    #[must_use]
    pub fn disk_bytes(&self) -> Vec<u8> {
        self.disk.to_bytes()
    }

    fn lives(&mut self) -> Checked<()> {
        while self.operations < OPERATIONS_MIN || self.counts.checkpoints() == 0 {
            let store = self.come_up(Recovering::MayFail)?;
            self.begin_faults();
            self.live(store)?;
        }
        let store = self.flips()?;
        if self.has_misdirection() {
            self.begin_misdirection();
            self.live(store)?;
            self.examine_misdirected()?;
        }
        Ok(())
    }

    /// One life from the first step to the end of the store.
    fn live(&mut self, store: S) -> Checked<()> {
        self.life += 1;
        let steps = self.rng.u64(100..900);
        for _ in 0..steps {
            self.operations += 1;
            if self.step(&store)? == Flow::EndOfLife {
                break;
            }
            self.change_faults();
        }
        store.inside().into_iter().for_each(|(name, count)| self.counts.add_to(name, count));
        let events_before = self.oracle.flushed_len();
        self.end_life(store)?;
        self.notice_strike(events_before);
        Ok(())
    }

    /// Records the history's length when a write goes astray.
    fn notice_strike(&mut self, events_before: usize) {
        let has_strayed = self.disk.counters().misdirected_writes > self.before_life.misdirected_writes;
        if self.strike.is_none() && has_strayed {
            let syncs_since = u32::from(self.oracle.synced_len() > events_before);
            self.strike = Some(Strike { events_before, syncs_since });
        }
    }

    /// Opens the store, through crashes during recovery, and compares everything in it with the oracle.
    fn come_up(&mut self, recovering: Recovering) -> Checked<S> {
        for attempt in 0..RECOVERY_ATTEMPTS_MAX {
            let has_faults = recovering == Recovering::MayFail && attempt < RECOVERY_ATTEMPTS_MAX - 2;
            self.plan_recovery_faults(has_faults);
            let settings = self.next_opening();
            let opened = S::open(Arc::new(self.disk.clone()), &settings, self.bug);
            let outcome = opened.and_then(|(store, report)| Ok((read_state(&store)?, store, report)));
            match outcome {
                Ok((found, store, report)) => {
                    self.note(|| format!("opened: {report:?}"));
                    self.judge_recovery(&found, &report)?;
                    self.check(&store)?;
                    return Ok(store);
                }
                Err(failure) => self.judge_failed_recovery(&failure)?,
            }
        }
        Err("the store did not come up without a fault planted".to_owned())
    }

    /// Settings for the next opening. No two openings are alike, not even of copies of one disk.
    fn next_opening(&mut self) -> Settings {
        self.settings.life = self.settings.life.map(|life| life + 1);
        self.settings
    }

    fn judge_recovery(&mut self, found: &State, report: &Recovery) -> Checked<()> {
        let lost = self.oracle.recover(found, self.ending)?;
        self.counts.bump("recoveries");
        self.counts.add_to("named_snapshots_after_restart", found.snapshots.len() as u64);
        let by_report = [
            (report.is_clean, "recoveries_clean"),
            (report.groups_replayed > 0, "recoveries_with_replay"),
            (report.cut.is_some(), "recoveries_with_cut"),
            (report.is_superblock_mended, "recoveries_with_mended_superblock"),
            (lost > 0, "recoveries_that_lost_commits"),
            (lost == 0, "recoveries_that_lost_nothing"),
        ];
        by_report.into_iter().filter(|(happened, _)| *happened).for_each(|(_, name)| self.counts.bump(name));
        self.last_sequence = 0;
        Ok(())
    }

    fn judge_failed_recovery(&mut self, failure: &Failure) -> Checked<()> {
        self.note(|| format!("recovery failed: {failure}"));
        if !self.is_excused(failure) {
            return Err(format!("recovery failed without a fault planted: {failure}"));
        }
        if self.is_off() {
            self.counts.bump("power_losses_in_recovery");
            self.disk = self.disk.crash();
            self.ending = Ending::PowerLoss;
        } else {
            self.disk = self.disk.kill();
        }
        Ok(())
    }

    fn check(&mut self, store: &S) -> Checked<()> {
        if self.rng.u8(..4) > 0 {
            return Ok(());
        }
        self.begin_step();
        match store.check() {
            Ok(0) => self.counts.bump("checks_clean"),
            Ok(damages) => return Err(format!("check finds {damages} damages in a sound store")),
            Err(failure) if self.is_excused(&failure) => {}
            Err(failure) => return Err(format!("check failed without a fault planted: {failure}")),
        }
        Ok(())
    }

    /// Ends the store by a close, a kill or a crash; open snapshots die with it.
    fn end_life(&mut self, store: S) -> Checked<()> {
        // Data that a failed sync dropped are still in the page cache. After a mere kill recovery reads
        // them, and must not assume that they are on the medium.
        let choice = if self.is_off() { 0 } else { self.rng.u8(..10) };
        match choice {
            0..=4 => self.crash(store),
            5..=6 => self.kill(store),
            _ => return self.close(store),
        }
        Ok(())
    }

    fn crash(&mut self, store: S) {
        self.note(|| "power loss".to_owned());
        self.counts.bump("power_losses");
        self.disk = self.disk.crash();
        self.ending = Ending::PowerLoss;
        self.held.clear();
        drop(store);
    }

    fn kill(&mut self, store: S) {
        self.note(|| "process death".to_owned());
        self.counts.bump("process_deaths");
        self.disk = self.disk.kill();
        self.ending = Ending::ProcessDeath;
        self.held.clear();
        drop(store);
    }

    fn close(&mut self, store: S) -> Checked<()> {
        self.note(|| "close".to_owned());
        self.held.clear();
        self.begin_step();
        match store.close() {
            Ok(()) => {
                self.mark_synced();
                self.counts.bump("clean_closes");
            }
            Err(failure) if self.is_excused(&failure) => {}
            Err(failure) => return Err(format!("close failed without a fault planted: {failure}")),
        }
        if self.rng.bool() {
            self.disk = self.disk.crash();
            self.ending = Ending::PowerLoss;
        } else {
            self.disk = self.disk.kill();
            self.ending = Ending::ProcessDeath;
        }
        Ok(())
    }

    fn mark_synced(&mut self) {
        if self.strike.is_some() && self.oracle.len() > self.oracle.synced_len() {
            self.strike.iter_mut().for_each(|strike| strike.syncs_since += 1);
        }
        self.oracle.mark_synced();
    }

    /// After a misdirected write anything may be damaged, but no read may be wrong.
    fn examine_misdirected(&mut self) -> Checked<()> {
        self.disk.set_plan(FaultPlan::default());
        let lowest = match (self.strike, self.ending) {
            // A later group records that the one before it had been synced, so its loss can be detected.
            // With fewer syncs the lost write was the last one, and nothing records it.
            (Some(strike), _) if strike.syncs_since < 2 => strike.events_before.min(self.oracle.synced_len()),
            _ => self.oracle.synced_len(),
        };
        let damage = Damage::Write;
        let settings = self.next_opening();
        let allowed = Allowed { oracle: &self.oracle, lowest, damage, keys: self.workload.keys() };
        let finding = damage::examine::<S>(&self.disk, &settings, self.bug, &allowed)
            .map_err(|what| format!("after a misdirected write: {what}"))?;
        self.note(|| format!("after a misdirected write: {finding:?}"));
        if self.strike.is_some() {
            self.counts.bump(finding.name_after_misdirection());
        }
        Ok(())
    }

    /// Flips single bits in copies of the last disk and judges what a reader gets.
    fn flips(&mut self) -> Checked<S> {
        self.disk.set_plan(FaultPlan::default());
        let copies: Vec<SimDisk> = (0..FLIPS_PER_SEED).map(|_| self.disk.fork()).collect();
        // A crash in this recovery would destroy what the copies still have.
        let store = self.come_up(Recovering::InPeace)?;
        for (number, copy) in copies.into_iter().enumerate() {
            // One flip anywhere, one at the front where the superblocks are, one near the end.
            let len = copy.len().map_err(|error| error.to_string())?;
            let place = [0..len, 0..FRONT_BYTES, len.saturating_sub(FRONT_BYTES)..len][number % 3].clone();
            let Some((offset, bit)) = copy.flip_some_bit(place) else { continue };
            let settings = self.next_opening();
            let (lowest, damage) = (self.oracle.len(), Damage::Bit);
            let allowed = Allowed { oracle: &self.oracle, lowest, damage, keys: self.workload.keys() };
            let finding = damage::examine::<S>(&copy, &settings, self.bug, &allowed)
                .map_err(|what| format!("after bit {bit} of byte {offset} was flipped: {what}"))?;
            self.note(|| format!("bit {bit} of byte {offset} flipped: {finding:?}"));
            self.counts.bump(finding.name_after_flip());
            self.counts.add_disk(&Counters { bit_flips: 1, ..Counters::default() });
        }
        Ok(store)
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let (life, operation) = (self.life, self.operations);
            trace.push(format!("life {life} operation {operation}: {}", text()));
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".to_owned())
}

/// The violation for a failure that no fault excuses.
fn unexcused<T>(what: &str, failure: &Failure) -> Checked<T> {
    Err(format!("{what} failed without a fault planted: {failure}"))
}

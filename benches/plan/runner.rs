//! Runs the steps: each phase of each engine in a child process of its own, with the engines taking turns.
//!
//! Invariant: no two children run at the same time, and before each one the disk has nothing left to store.
//! Nor is it still being told what was removed before, which the system does in the background, unless other
//! processes keep the machine busy for minutes.

use super::results::{Failure, Measured};
use crate::measure::{Calm, may_confine, remove_group_of, wait_for_calm};
use crate::peers::{EngineError, EngineName};
use crate::phases::{Phase, PhaseResult, Spec};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

/// The lengths of the small and of the large values.
pub const VALUE_BYTES: [usize; 2] = [100, 1000];
/// The length of the values of short pairs.
pub const PAIR_BYTES: usize = 16;
/// The fewest records of the phase with little memory, except when the bench itself is tried.
const BEYOND_RECORDS_MIN: u64 = 4_000_000;
const CHILD_TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// Determined once: the answer is the same for each step.
static MAY_CONFINE: LazyLock<bool> = LazyLock::new(may_confine);

/// The amount of work in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Scale {
    /// The number of records with small values.
    pub records: u64,
    /// The number of records with large values.
    pub large_records: u64,
    /// The number of scans.
    pub scans: u64,
    /// User bytes in the log tail of the recovery.
    pub tail_bytes: u64,
    /// The three counts of short pairs.
    pub pairs: [u64; 3],
    /// How often everything is run; figures are medians. The largest count of pairs is measured once.
    pub repeats: usize,
}

impl Scale {
    /// The scale that the bars refer to.
    pub const FULL: Self = Self {
        records: 5_000_000,
        large_records: 1_000_000,
        scans: 100_000,
        tail_bytes: 1_000_000_000,
        pairs: [1_000_000, 10_000_000, 100_000_000],
        repeats: 3,
    };
    /// A tenth of it, once: for a first look.
    pub const QUICK: Self = Self {
        records: 500_000,
        large_records: 100_000,
        scans: 20_000,
        tail_bytes: 100_000_000,
        pairs: [100_000, 1_000_000, 10_000_000],
        repeats: 1,
    };

    /// The same with this many records, and all else in proportion: for trials of the bench itself.
    pub fn shrunk_to(records: u64) -> Self {
        Self {
            records,
            large_records: records / 5,
            scans: records / 20,
            tail_bytes: records * 124,
            pairs: [records / 10, records / 2, records],
            repeats: 1,
        }
    }
}

/// What to run, and where.
pub struct Plan {
    /// The amount of work.
    pub scale: Scale,
    /// The engines to run.
    pub engines: Vec<EngineName>,
    /// The parts to run; all if empty.
    pub parts: Vec<Part>,
    /// A folder for the stores, which belongs entirely to this bench.
    pub work: PathBuf,
}

/// Phases that belong together, because the later ones need the store of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Values of 100 B: load, reads, scans, updates, overwrites.
    Small,
    /// Recovery of a log tail.
    Recovery,
    /// Appends, and the contract over the engine.
    Contract,
    /// Data four times the memory budget.
    Beyond,
    /// Values of 1,000 B.
    Large,
    /// A key range that moves.
    Ranges,
    /// Short pairs.
    Pairs,
}

/// One phase, for all engines that can run it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    phase: Phase,
    value_bytes: usize,
}

impl Plan {
    /// Runs everything. `told` receives a message before and after each step; `round_ended` receives the
    /// measurements after each round, so that an interrupted run keeps the rounds that it completed.
    pub fn run(
        &self,
        mut told: impl FnMut(&str),
        mut round_ended: impl FnMut(usize, &Measured) -> Result<(), EngineError>,
    ) -> Result<Measured, EngineError> {
        self.warm_up(&mut told)?;
        let mut measured = Measured::default();
        for repeat in 0..self.scale.repeats {
            told(&format!("round {} of {}", repeat + 1, self.scale.repeats));
            for step in self.steps(repeat) {
                for engine in self.in_turn(repeat).filter(|engine| can_run(*engine, step)) {
                    self.run_step(engine, step, &mut measured, &mut told)?;
                }
                if ends_a_store(step.phase) {
                    self.clear()?;
                    self.rest(&mut told);
                }
            }
            round_ended(repeat + 1, &measured)?;
        }
        Ok(measured)
    }

    /// Runs one load whose result is discarded. The host of a virtual machine may have reclaimed its idle
    /// memory, and the first engine to run would pay for getting it back: twice the CPU time of a load was
    /// seen.
    fn warm_up(&self, told: &mut impl FnMut(&str)) -> Result<(), EngineError> {
        told("warming up, not counted");
        let steps = self.steps(0);
        let first = steps.first().and_then(|&step| {
            self.in_turn(0).find(|engine| can_run(*engine, step)).map(|engine| (engine, step))
        });
        if let Some((engine, step)) = first {
            self.run_step(engine, step, &mut Measured::default(), told)?;
            self.clear()?;
        }
        Ok(())
    }

    /// The steps of a round. The largest count of pairs takes an hour for all engines, so it is run once.
    fn steps(&self, repeat: usize) -> Vec<Step> {
        let is_wanted = |step: &Step| self.parts.is_empty() || self.parts.contains(&part_of(*step));
        let is_due = |step: &Step| repeat == 0 || step.phase != Phase::PairsMany;
        steps().into_iter().filter(is_wanted).filter(is_due).collect()
    }

    /// The engines in an order that starts with a different one in every round.
    fn in_turn(&self, repeat: usize) -> impl Iterator<Item = EngineName> {
        let start = repeat % self.engines.len().max(1);
        self.engines.iter().cycle().skip(start).take(self.engines.len()).copied()
    }

    fn run_step(
        &self,
        engine: EngineName,
        step: Step,
        measured: &mut Measured,
        told: &mut impl FnMut(&str),
    ) -> Result<(), EngineError> {
        let spec = self.spec(engine, step);
        let what = format!("{:>8} {:?}, {} B values", engine.name(), step.phase, step.value_bytes);
        match self.run_child(&spec) {
            Ok(result) => {
                told(&format!("{what}: {}", summary(step.phase, &result)));
                measured.add((step.phase, step.value_bytes, engine), result);
            }
            Err(error) => {
                told(&format!("{what}: FAILED: {error}"));
                measured.failures.push(Failure { engine, what: format!("{what}: {error}") });
            }
        }
        if step.phase == Phase::LoadSingle || part_of(step) == Part::Pairs {
            fs::remove_dir_all(&spec.folder)?;
            self.rest(told);
        }
        Ok(())
    }

    /// Waits until the system has finished with removed files, if there may be many. Whether others are busy
    /// afterwards is judged by what each window saw of them.
    fn rest(&self, told: &mut impl FnMut(&str)) {
        if self.scale.records == Scale::FULL.records {
            rustix::fs::sync();
            let calm = wait_for_calm(true, |busy| {
                told(&format!("waiting for a calm machine: {:.0} % busy", busy * 100.0))
            });
            if let Calm::Busy(share) = calm {
                told(&format!("going on with {:.0} % of the machine busy with other work", share * 100.0));
            }
        }
    }

    fn spec(&self, engine: EngineName, step: Step) -> Spec {
        let records = match step.phase {
            Phase::TailFill | Phase::TailOpen => self.scale.tail_bytes / 124,
            // With fewer records, what the control group leaves besides the budget would hold most of the
            // data.
            Phase::Beyond if self.scale.records >= Scale::QUICK.records => {
                self.scale.records.max(BEYOND_RECORDS_MIN)
            }
            Phase::Contract => self.scale.large_records,
            Phase::PairsFew => self.scale.pairs[0],
            Phase::Pairs => self.scale.pairs[1],
            Phase::PairsMany => self.scale.pairs[2],
            Phase::Ranges => self.scale.records * 2,
            _ if step.value_bytes == VALUE_BYTES[0] => self.scale.records,
            _ => self.scale.large_records,
        };
        let store = match step.phase {
            Phase::LoadSingle => "single",
            Phase::TailFill | Phase::TailOpen => "tail",
            Phase::Append => "append",
            Phase::Beyond => "beyond",
            Phase::PairsFew | Phase::Pairs | Phase::PairsMany => "pairs",
            Phase::Ranges => "ranges",
            _ => "store",
        };
        Spec {
            engine,
            phase: step.phase,
            folder: self.work.join(format!("{store}-{}-{}", step.value_bytes, engine.name())),
            records,
            value_bytes: step.value_bytes,
            requests: match step.phase {
                Phase::Scan | Phase::ScanAged => self.scale.scans,
                Phase::Beyond => records / 20,
                _ => records,
            },
            answer: self.work.join("answer.json"),
        }
    }

    fn run_child(&self, spec: &Spec) -> Result<PhaseResult, EngineError> {
        let _ = fs::remove_file(&spec.answer);
        if matches!(
            spec.phase,
            Phase::Load | Phase::LoadSingle | Phase::TailFill | Phase::Append | Phase::Beyond | Phase::Ranges
        ) {
            let _ = fs::remove_dir_all(&spec.folder);
        }
        // No engine pays for writes that its predecessor left to the kernel.
        rustix::fs::sync();
        let status = run_to_end(
            Command::new(std::env::current_exe()?).arg("child").arg(serde_json::to_string(spec)?),
        )?;
        let as_planned = match spec.phase {
            Phase::TailFill => status.signal() == Some(rustix::process::Signal::KILL.as_raw()),
            _ => status.success(),
        };
        if !as_planned {
            return Err(format!("the child ended with {status}").into());
        }
        Ok(serde_json::from_slice(&fs::read(&spec.answer)?)?)
    }

    fn clear(&self) -> Result<(), EngineError> {
        clear(&self.work)
    }
}

/// Empties the folder.
pub fn clear(work: &Path) -> Result<(), EngineError> {
    if work.exists() {
        fs::remove_dir_all(work)?;
    }
    Ok(fs::create_dir_all(work)?)
}

/// Waits for a child to end, up to a time limit.
fn run_to_end(command: &mut Command) -> Result<ExitStatus, EngineError> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let pid = rustix::process::Pid::from_child(&child);
    let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    let limit = rustix::event::Timespec::try_from(CHILD_TIME_MAX)?;
    let mut events = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
    let is_late = rustix::event::poll(&mut events, Some(&limit))? == 0;
    if is_late {
        child.kill()?;
    }
    let status = child.wait()?;
    // A child that was killed, even for lack of memory, leaves its control group behind.
    remove_group_of(child.id());
    if is_late {
        return Err(format!("the child did not end within {CHILD_TIME_MAX:?}").into());
    }
    Ok(status)
}

/// All steps of a round; stores of one value length live from their load to the check after A.
fn steps() -> Vec<Step> {
    let [small, large] = VALUE_BYTES;
    let step = |value_bytes| move |phase| Step { phase, value_bytes };
    let of_small = [
        Phase::Load,
        Phase::Get,
        Phase::GetMany,
        Phase::Scan,
        Phase::LoadSingle,
        Phase::Update,
        Phase::Verify,
        Phase::UpdatePair,
        Phase::ReadBeside,
        Phase::Overwrite,
        Phase::ScanAged,
        Phase::TailFill,
        Phase::TailOpen,
        Phase::Append,
        Phase::Contract,
        Phase::Beyond,
        Phase::Ranges,
    ];
    let of_large = [
        Phase::Load,
        Phase::Get,
        Phase::Scan,
        Phase::Update,
        Phase::Verify,
        Phase::ReadBeside,
        Phase::Overwrite,
        Phase::ScanAged,
    ];
    let of_pairs = [Phase::PairsFew, Phase::Pairs, Phase::PairsMany];
    let of_values = of_small.map(step(small)).into_iter().chain(of_large.map(step(large)));
    of_values.chain(of_pairs.map(step(PAIR_BYTES))).collect()
}

const fn part_of(step: Step) -> Part {
    match step.phase {
        Phase::TailFill | Phase::TailOpen => Part::Recovery,
        Phase::Append | Phase::Contract => Part::Contract,
        Phase::Beyond => Part::Beyond,
        Phase::Ranges => Part::Ranges,
        Phase::PairsFew | Phase::Pairs | Phase::PairsMany => Part::Pairs,
        _ if step.value_bytes == VALUE_BYTES[1] => Part::Large,
        _ => Part::Small,
    }
}

const fn ends_a_store(phase: Phase) -> bool {
    matches!(phase, Phase::ScanAged | Phase::TailOpen | Phase::Append | Phase::Beyond | Phase::Ranges)
}

/// Whether the step is meaningful for the engine.
fn can_run(engine: EngineName, step: Step) -> bool {
    let is_large = step.value_bytes != VALUE_BYTES[0];
    if part_of(step) == Part::Pairs {
        return engine == EngineName::Atoll || engine.has_only_pairs();
    }
    if engine.has_only_pairs() {
        return false;
    }
    match step.phase {
        Phase::Load | Phase::Get => !(is_large && engine == EngineName::Harness),
        Phase::GetMany => engine.is_persistent(),
        Phase::Scan | Phase::LoadSingle | Phase::Update => engine != EngineName::Harness,
        Phase::Verify => engine.is_persistent(),
        Phase::TailFill | Phase::TailOpen => engine.survives_kill(),
        Phase::Append | Phase::Contract | Phase::Ranges => engine == EngineName::Atoll,
        Phase::UpdatePair | Phase::ReadBeside | Phase::Overwrite | Phase::ScanAged => engine.serves_two(),
        // Decided above.
        Phase::PairsFew | Phase::Pairs | Phase::PairsMany => false,
        Phase::Beyond => matches!(engine, EngineName::Atoll | EngineName::Rocksdb) && *MAY_CONFINE,
    }
}

/// One line about a result.
fn summary(phase: Phase, result: &PhaseResult) -> String {
    let wrong = match result.wrong {
        0 => String::new(),
        wrong => format!(", {wrong} WRONG VALUES"),
    };
    match phase {
        Phase::TailFill => format!("killed itself after {:.1} s", result.wall_seconds),
        Phase::TailOpen => {
            let seconds = result.open_ms / 1000.0;
            format!("answers after {seconds:.2} s, {:.2} s of CPU{wrong}", result.cpu_seconds)
        }
        Phase::Verify => format!("{} values checked{wrong}", result.checked),
        Phase::Append
        | Phase::Contract
        | Phase::ReadBeside
        | Phase::Overwrite
        | Phase::Beyond
        | Phase::PairsFew
        | Phase::Pairs
        | Phase::PairsMany
        | Phase::Ranges => {
            let figures: Vec<String> =
                result.extra.iter().map(|(name, figure)| format!("{name} {figure:.3}")).collect();
            figures.join(", ") + &wrong
        }
        _ => format!(
            "{:.3} us of CPU an operation, settled {:.3}{wrong}",
            result.cpu_us(),
            result.settled_cpu_us()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_goes_first_once_in_as_many_rounds() {
        let plan = Plan {
            scale: Scale::QUICK,
            engines: vec![EngineName::Atoll, EngineName::Lmdb, EngineName::Floor],
            parts: Vec::new(),
            work: PathBuf::new(),
        };
        let first: Vec<EngineName> = (0..3).filter_map(|round| plan.in_turn(round).next()).collect();
        assert_eq!(first, plan.engines);
        assert_eq!(plan.in_turn(1).count(), 3);
    }

    #[test]
    fn a_part_is_run_alone_and_the_most_pairs_only_once() {
        let plan = Plan {
            scale: Scale::QUICK,
            engines: vec![EngineName::Atoll],
            parts: vec![Part::Pairs],
            work: PathBuf::new(),
        };
        let phases = |repeat| plan.steps(repeat).iter().map(|step| step.phase).collect::<Vec<_>>();
        assert_eq!(phases(0), [Phase::PairsFew, Phase::Pairs, Phase::PairsMany]);
        assert_eq!(phases(1), [Phase::PairsFew, Phase::Pairs]);
    }

    #[test]
    fn reads_follow_their_load_and_are_followed_by_the_check() {
        for value_bytes in VALUE_BYTES {
            let phases: Vec<Phase> = steps()
                .iter()
                .filter(|step| step.value_bytes == value_bytes)
                .map(|step| step.phase)
                .collect();
            let at = |phase| phases.iter().position(|&other| other == phase);
            assert!(at(Phase::Load) < at(Phase::Get) && at(Phase::Get) < at(Phase::Scan));
            assert!(at(Phase::Scan) < at(Phase::Update) && at(Phase::Update) < at(Phase::Verify));
        }
    }
}

//! All results of a run, and their medians over its repeats.

use crate::measure::CALM_SHARE_MAX;
use crate::peers::EngineName;
use crate::phases::{Phase, PhaseResult};
use std::collections::BTreeMap;

/// Identifies a figure: its phase, its value length, and its engine.
pub type Subject = (Phase, usize, EngineName);

/// What a run measured.
#[derive(Default)]
pub struct Measured {
    results: BTreeMap<Subject, Vec<PhaseResult>>,
    /// Phases that failed, each with its reason.
    pub failures: Vec<Failure>,
}

/// A phase that failed.
pub struct Failure {
    /// The engine whose phase it was.
    pub engine: EngineName,
    /// Which phase, and why.
    pub what: String,
}

/// One result, as recorded in the file.
#[derive(serde::Serialize)]
struct Line<'a> {
    engine: EngineName,
    phase: Phase,
    value_bytes: usize,
    repeat: usize,
    result: &'a PhaseResult,
}

impl Measured {
    /// Adds one result.
    pub fn add(&mut self, subject: Subject, result: PhaseResult) {
        self.results.entry(subject).or_default().push(result);
    }

    /// The median over the repeats of one figure of a result; none if the phase was not run.
    pub fn median(&self, subject: Subject, figure: impl Fn(&PhaseResult) -> f64) -> Option<f64> {
        let mut figures: Vec<f64> = self.results.get(&subject)?.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len().saturating_sub(1) / 2).copied()
    }

    /// The largest over the repeats: for stalls, a median would hide what users notice.
    pub fn worst(&self, subject: Subject, figure: impl Fn(&PhaseResult) -> Option<f64>) -> Option<f64> {
        self.results.get(&subject)?.iter().filter_map(figure).max_by(f64::total_cmp)
    }

    /// The same figure of every engine that has it.
    pub fn of_all(
        &self,
        phase: Phase,
        value_bytes: usize,
        figure: impl Fn(&PhaseResult) -> f64,
    ) -> BTreeMap<&'static str, f64> {
        EngineName::ALL
            .into_iter()
            .filter_map(|engine| Some((engine.name(), self.median((phase, value_bytes, engine), &figure)?)))
            .collect()
    }

    /// Bytes written per user byte, for every engine: for Atoll the larger of the two counts, for its rivals
    /// only the bytes that reached the disk, which omits what a later write overtook.
    pub fn bytes_of_all(&self, phase: Phase, value_bytes: usize) -> BTreeMap<&'static str, f64> {
        let mut bytes = self.of_all(phase, value_bytes, PhaseResult::bytes_to_disk);
        bytes.retain(|name, _| EngineName::from_name(name).is_some_and(EngineName::is_persistent));
        let own = self.median((phase, value_bytes, EngineName::Atoll), PhaseResult::bytes_at_most);
        bytes.extend(own.map(|own| (EngineName::Atoll.name(), own)));
        bytes
    }

    /// Phases and value lengths that were run, in order.
    pub fn phases(&self) -> Vec<(Phase, usize)> {
        let mut phases: Vec<_> = self.results.keys().map(|&(phase, bytes, _)| (phase, bytes)).collect();
        phases.dedup();
        phases
    }

    /// The number of wrong values that an engine returned, with the first of them.
    pub fn wrong(&self, engine: EngineName) -> Option<(u64, String)> {
        let of_engine = self.results.iter().filter(|((_, _, name), _)| *name == engine);
        let wrong = of_engine.flat_map(|(_, results)| results).filter(|result| result.wrong > 0);
        wrong.fold(None, |sum, result| {
            let first = result.first_wrong.clone().unwrap_or_default();
            let (count, first) = sum.unwrap_or((0, first));
            Some((count + result.wrong, first))
        })
    }

    /// Whether an engine returned something wrong, or did not complete a phase. None of its other figures is
    /// then worth anything, because the check that would have shown a wrong value may be what failed.
    pub fn is_spoiled(&self, engine: EngineName) -> bool {
        self.wrong(engine).is_some() || self.failures.iter().any(|failure| failure.engine == engine)
    }

    /// The largest share of the machine that other processes took during a window, and the largest that the
    /// host of a virtual machine took during a window of at least half a second; shorter ones are too coarse
    /// for the latter.
    pub fn most_disturbed(&self) -> (f64, f64) {
        let stolen = |result: &PhaseResult| if result.wall_seconds > 0.5 { result.stolen_share } else { 0.0 };
        self.results.values().flatten().fold((0.0, 0.0), |(others, most_stolen), result| {
            (result.others_at_least().max(others), stolen(result).max(most_stolen))
        })
    }

    /// The result among these during which other processes used the most of the machine, if that is too much
    /// for a figure to be judged. Noise works both ways, so neither a good nor a bad figure means anything
    /// then.
    pub fn disturbance(&self, subjects: &[Subject]) -> Option<String> {
        let share = |subject: &Subject| self.worst(*subject, |result| Some(result.others_at_least()));
        let shares = subjects.iter().filter_map(|subject| Some((subject, share(subject)?)));
        let ((phase, value_bytes, engine), share) =
            shares.max_by(|left, right| left.1.total_cmp(&right.1))?;
        (share > CALM_SHARE_MAX).then(|| {
            let (percent, engine) = (share * 100.0, engine.name());
            format!("others used {percent:.0} % of the machine beside {phase:?} of {engine}, {value_bytes} B values")
        })
    }

    /// Every single result, for the file kept with the figures.
    pub fn to_json(&self) -> serde_json::Value {
        let lines = self.results.iter().flat_map(|(&(phase, value_bytes, engine), results)| {
            results.iter().enumerate().map(move |(repeat, result)| Line {
                engine,
                phase,
                value_bytes,
                repeat,
                result,
            })
        });
        lines.map(|line| serde_json::json!(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_medians_and_stalls_are_the_worst() {
        let subject = (Phase::Load, 100, EngineName::Lmdb);
        let mut measured = Measured::default();
        for seconds in [5.0, 1.0, 2.0] {
            let result = PhaseResult { wall_seconds: seconds, wrong: 1, ..PhaseResult::default() };
            measured.add(subject, result);
        }
        assert_eq!(measured.median(subject, |result| result.wall_seconds), Some(2.0));
        assert_eq!(measured.worst(subject, |result| Some(result.wall_seconds)), Some(5.0));
        assert_eq!(measured.median((Phase::Scan, 100, EngineName::Lmdb), |result| result.wall_seconds), None);
        assert_eq!(measured.wrong(EngineName::Lmdb).map(|(count, _)| count), Some(3));
        assert!(measured.wrong(EngineName::Redb).is_none());
    }

    #[test]
    fn bytes_are_counted_against_atoll_and_for_its_rivals() {
        let io = crate::measure::IoBytes { handed_over: 300, to_disk: 200 };
        let mut measured = Measured::default();
        for engine in [EngineName::Atoll, EngineName::Lmdb, EngineName::Floor] {
            let result = PhaseResult { io, user_bytes: 100, ..PhaseResult::default() };
            measured.add((Phase::Load, 100, engine), result);
        }
        let bytes = measured.bytes_of_all(Phase::Load, 100);
        assert_eq!(bytes, BTreeMap::from([("atoll", 3.0), ("lmdb", 2.0)]));
    }
}

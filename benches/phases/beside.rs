//! Phases with more than one thread on a store: two threads that run YCSB A, and one that reads while a
//! checkpoint or a copy is written.

use super::window::Window;
use super::write::{check_again, make_updates, open_timed};
use super::{PhaseResult, SEED, Spec};
use crate::measure::LatencyMeter;
use crate::peers::{Engine, EngineError};
use crate::workloads::{
    Key, Others, UpdateRequest, Verifier, fill_value, give_versions, point_requests, update_requests,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// The reader's p99 while checkpoints are written, divided by its p99 in quiet.
pub const READER_RATIO: &str = "reader p99 beside a checkpoint over quiet";
/// The same while the bench copies the store by scans of a snapshot. The product's backup is not measured: it
/// belongs to a store behind the contract, and this phase reads the bare engine.
pub const COPY_RATIO: &str = "reader p99 beside a copy by scans over quiet";
/// The log segments that those checkpoints cleaned.
pub const SEGMENTS_CLEANED: &str = "log segments cleaned beside the reader";
/// The number of copies during which the reader runs.
const COPIES: usize = 2;
/// The number of checkpoints during which the reader runs.
const CHECKPOINTS: u64 = 5;

/// A bound above every record's version. A writes as many versions as it has requests, the two threads as
/// many again, and the checkpoints' rounds add few; the value of another key would have a version far beyond
/// the bound.
fn versions(spec: &Spec) -> u64 {
    3 * (spec.requests + 2)
}

/// Reads every record once, so that all of them are cached; returns their versions.
fn read_all(engine: &mut dyn Engine, spec: &Spec, verifier: &mut Verifier) -> Result<Vec<u32>, EngineError> {
    let mut found = vec![0; spec.records as usize];
    for (counter, version) in (0..).zip(&mut found) {
        let key = Key::of_counter(counter);
        engine.get(&key.0, &mut |value| {
            *version = verifier.find(&key.0, u64::from(u32::MAX), value) as u32;
        })?;
    }
    Ok(found)
}

/// The calls of two writers to the same records, and what each of them knows.
struct Pair {
    requests: Vec<UpdateRequest>,
    /// For each writer, the last version of each record that it wrote, or else the version that was there
    /// before.
    last: [Vec<u32>; 2],
    /// Versions from here on belong to the two: the even ones to the first, the odd ones to the second.
    from: u32,
}

impl Pair {
    /// Gives each writer half of the calls, for a store with these versions.
    fn of(spec: &Spec, found: Vec<u32>) -> Self {
        let mut requests = update_requests(spec.records, spec.requests, SEED + 9);
        let from = (found.iter().max().copied().unwrap_or(0) / 2 + 1) * 2;
        let mut last = [found.clone(), found];
        let (ours, theirs) = requests.split_at_mut(spec.requests as usize / 2);
        give_versions(ours, &mut last[0], |number| from + 2 * number);
        give_versions(theirs, &mut last[1], |number| from + 2 * number + 1);
        Self { requests, last, from }
    }

    /// The calls of one writer, and the other's versions that it may find.
    fn calls_of(&self, writer: usize) -> (&[UpdateRequest], Others) {
        let (ours, theirs) = self.requests.split_at(self.requests.len() / 2);
        let from = u64::from(self.from);
        let until = from + 2 * theirs.len() as u64;
        let others = Others { from, until, parity: 1 - writer as u64 };
        (if writer == 0 { ours } else { theirs }, others)
    }

    /// Checks that each record has the last version of one of the two writers, or its previous version if
    /// neither updated it.
    fn check_last(&self, engine: &mut dyn Engine, verifier: &mut Verifier) -> Result<(), EngineError> {
        for (counter, (&one, &other)) in (0..).zip(self.last[0].iter().zip(&self.last[1])) {
            let (one, other) = match (one < self.from, other < self.from) {
                (false, true) => (one, one),
                (true, false) => (other, other),
                _ => (one, other),
            };
            let (key, other) = (Key::of_counter(counter), u64::from(other));
            let others = Others { from: other, until: other + 1, parity: other & 1 };
            engine.get(&key.0, &mut |value| verifier.check_beside(&key.0, u64::from(one), others, value))?;
        }
        Ok(())
    }
}

/// YCSB A by two threads, half of the calls each, on the same records, with the same work per call as one
/// thread has. A thread must find what it last wrote itself, or anything that the other one wrote; in the end
/// each record has the last version of one of them.
pub fn update_pair(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut verifier = Verifier::new(spec.value_bytes);
    let pair = Pair::of(spec, read_all(engine.as_mut(), spec, &mut verifier)?);
    let [(ours, of_theirs), (theirs, of_ours)] = [0, 1].map(|writer| pair.calls_of(writer));
    let beside = engine.beside()?;
    let mut window = Window::start_with_control();
    let (own, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| make_updates(beside().as_mut(), spec, theirs, of_ours));
        let own = make_updates(engine.as_mut(), spec, ours, of_theirs)?;
        let other = other.join().map_err(|_| "the second thread panicked")??;
        Ok::<_, EngineError>((own, other))
    })?;
    let ((found, mut meter), (found_beside, meter_beside)) = (own, other);
    meter.join(meter_beside);
    window.end_calls(spec.requests, Some(&meter));
    [found, found_beside].into_iter().for_each(|found| verifier.join(found));
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, verifier);
    let updates = pair.requests.iter().filter(|request| request.is_update()).count() as u64;
    result.user_bytes = updates * spec.record_bytes();
    check_again(spec, &mut result, |engine, verifier| pair.check_last(engine, verifier))?;
    Ok(result)
}

/// One thread gets records: first alone, then during checkpoints of a tenth of the records, then during
/// copies of all records. Nothing else runs meanwhile: the updates between checkpoints are made while the
/// reader pauses. Long values lie in the log, which checkpoints clean.
pub fn read_beside(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut reading = Reading::of(spec);
    read_all(engine.as_mut(), spec, &mut reading.verifier)?;
    let mut window = Window::start_with_control();
    let mut quiet = LatencyMeter::start();
    let never = AtomicBool::new(false);
    let calls = reading.requests.all.iter().copied();
    read_until(engine.as_mut(), spec, calls, &never, &mut quiet, &mut reading.verifier)?;
    let quiet = quiet.finish().p99_us;
    let mut value = vec![0; spec.value_bytes];
    let mut checkpoints = LatencyMeter::start();
    let mut cleaned = engine.segments_cleaned().map(|_| 0_u64);
    for round in 0..CHECKPOINTS {
        for counter in (round..spec.records).step_by(10) {
            let key = Key::of_counter(counter);
            fill_value(&key, round + 1, &mut value);
            engine.put(&key.0, &value)?;
        }
        // What the updates, or the opening, cleaned was not cleaned beside the reader.
        let before = engine.segments_cleaned();
        reading.beside(engine.as_mut(), &mut checkpoints, |engine| engine.checkpoint())?;
        let both = before.zip(engine.segments_cleaned());
        cleaned = cleaned.zip(both).map(|(sum, (before, after))| sum + after.saturating_sub(before));
    }
    let copies = cleaned.map(|_| copy_beside(engine.as_mut(), &mut reading)).transpose()?;
    window.end_calls(spec.requests, Some(&checkpoints));
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, reading.verifier);
    let ratio = checkpoints.finish().p99_us / quiet;
    result.extra.insert(READER_RATIO.to_owned(), ratio);
    if let Some((cleaned, copies)) = cleaned.zip(copies) {
        result.extra.insert(SEGMENTS_CLEANED.to_owned(), cleaned as f64);
        result.extra.insert(COPY_RATIO.to_owned(), copies / quiet);
    }
    Ok(result)
}

/// The reader's p99 during copies of the store.
fn copy_beside(engine: &mut dyn Engine, reading: &mut Reading) -> Result<f64, EngineError> {
    let mut meter = LatencyMeter::start();
    let folder = reading.spec.folder.join("copy");
    for _ in 0..COPIES {
        std::fs::create_dir_all(&folder)?;
        reading.beside(engine, &mut meter, |engine| engine.copy_by_scans(&folder))?;
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(meter.finish().p99_us)
}

/// A reading thread.
struct Reading {
    spec: Spec,
    requests: Requests,
    verifier: Verifier,
}

/// The requested records, in a cycle. Each pass continues where the previous one ended, because recently read
/// records are warmer in every cache than they are in the quiet phase.
struct Requests {
    all: Vec<u32>,
    next: usize,
}

impl Requests {
    /// The requests from the next one on, at most a thousand times around.
    fn calls(&self) -> impl Iterator<Item = u32> + '_ {
        let (before, from_next) = self.all.split_at(self.next);
        let around = from_next.iter().chain(before).cycle();
        around.copied().take(self.all.len().saturating_mul(1000))
    }

    /// Moves on by the requests that were made.
    fn go_on(&mut self, asked: usize) {
        self.next = (self.next + asked) % self.all.len().max(1);
    }
}

impl Reading {
    fn of(spec: &Spec) -> Self {
        let all = point_requests(spec.records, spec.requests, SEED + 11);
        let requests = Requests { all, next: 0 };
        Self { spec: spec.clone(), requests, verifier: Verifier::new(spec.value_bytes) }
    }

    /// Reads while `work` runs.
    fn beside(
        &mut self,
        engine: &mut dyn Engine,
        meter: &mut LatencyMeter,
        work: impl FnOnce(&mut dyn Engine) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let (beside, ended) = (engine.beside()?, AtomicBool::new(false));
        let Self { spec, requests, verifier } = self;
        let (asked, worked) = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut reader = beside();
                meter.resume();
                read_until(reader.as_mut(), spec, requests.calls(), &ended, meter, verifier)
            });
            let worked = work(engine);
            ended.store(true, Ordering::Release);
            let asked = reading.join().map_err(|_| "the reader panicked")??;
            Ok::<_, EngineError>((asked, worked))
        })?;
        requests.go_on(asked);
        worked
    }
}

/// Times gets of these records until they are exhausted or `ended` is set; returns their number.
fn read_until(
    engine: &mut dyn Engine,
    spec: &Spec,
    requests: impl IntoIterator<Item = u32>,
    ended: &AtomicBool,
    meter: &mut LatencyMeter,
    verifier: &mut Verifier,
) -> Result<usize, EngineError> {
    let mut asked = 0;
    for record in requests {
        if ended.load(Ordering::Acquire) {
            break;
        }
        let key = Key::of_counter(u64::from(record));
        engine.get(&key.0, &mut |value| verifier.check_any(&key.0, versions(spec), value))?;
        meter.lap();
        asked += 1;
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_goes_on_where_it_ended_and_comes_around() {
        let mut requests = Requests { all: vec![5, 6, 7, 8], next: 0 };
        let mut asked = |count| {
            let found: Vec<u32> = requests.calls().take(count).collect();
            requests.go_on(count);
            found
        };
        assert_eq!((asked(3), asked(3), asked(6)), (vec![5, 6, 7], vec![8, 5, 6], vec![7, 8, 5, 6, 7, 8]));
        assert_eq!(asked(1), [5]);
        let none = Requests { all: Vec::new(), next: 0 };
        assert_eq!(none.calls().next(), None);
    }
}

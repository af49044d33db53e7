//! The steps of a run, drawn from its seed: which keys, which values, and which mix of calls.
//!
//! Every seed draws its own mix, so that some seeds only append and others never sync.

use crate::state::{Key, Mutation, Range, RangeMove, TREES, Value, WRITTEN_TREES};
use crate::subject::{Direction, Durability, Settings};
use fastrand::Rng;
use std::ops::Bound;

/// Values of at least this size have an extent of their own.
pub const LARGE_BYTES: usize = 64 * 1024;
const KEYS: usize = 160;
const NAMES: [&str; 4] = ["dawn", "noon", "dusk", "night"];

/// One call of the store.
#[derive(Clone, Debug)]
pub enum Step {
    /// An atomic batch.
    Write(Vec<Mutation>, Durability),
    /// Read one key.
    Get { tree: usize, key: Key },
    /// Read several keys.
    GetMany { tree: usize, keys: Vec<Key> },
    /// Read a range.
    Scan { tree: usize, range: Range, direction: Direction, limit: usize },
    /// Make everything durable.
    Sync,
    /// Write a checkpoint.
    Checkpoint,
    /// Open a snapshot.
    Hold,
    /// Drop an open snapshot.
    Release,
    /// Read from an open snapshot.
    ReadHeld { tree: usize, range: Range, direction: Direction },
    /// Make or replace a named snapshot.
    CreateNamed(&'static str),
    /// Delete a named snapshot, if it exists.
    DeleteNamed(&'static str),
    /// Read a named snapshot, if it exists.
    ReadNamed { name: &'static str, tree: usize, key: Key },
    /// Split a range off.
    SplitOff { tree: usize, at: Key, durability: Durability },
    /// Join a range that was split off with a tree again.
    Absorb { tree: usize, durability: Durability },
}

const STEPS: usize = 19;

/// How often each kind of step is taken, before a seed changes the mix.
const WEIGHTS: [u32; STEPS] = [40, 8, 14, 8, 3, 10, 12, 3, 8, 2, 1, 2, 2, 3, 1, 1, 2, 3, 3];

/// The source of steps.
#[derive(Clone, Debug)]
pub struct Workload {
    keys: Vec<Key>,
    weights: [u32; STEPS],
    durabilities: [u32; 3],
    large_per_mille: u32,
    medium_percent: u32,
    is_uniform: bool,
}

impl Workload {
    /// The mix of one seed.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let mut weights = WEIGHTS;
        for weight in &mut weights[1..] {
            *weight = match rng.u8(..8) {
                0 => 0,
                1 => *weight * 4,
                _ => *weight,
            };
        }
        // Every seed must make a checkpoint.
        weights[10] = weights[10].max(1);
        let mut durabilities = [3, 12, 2].map(|weight| if rng.u8(..5) == 0 { 0 } else { weight });
        durabilities[1] = durabilities[1].max(1);
        // Groups of one length, often identical: groups that a crash cut off then begin exactly where a new
        // group ends.
        let is_uniform = rng.u8(..8) == 0;
        if is_uniform {
            [1, 2, 3, 4, 17, 18].into_iter().for_each(|step| weights[step] = 0);
        }
        let mut keys: Vec<Key> = (0..KEYS).map(|number| make_key(rng, number)).collect();
        keys.extend((0..3).map(|number| Key::from(format!("uniform/{number}").into_bytes())));
        keys.sort();
        keys.dedup();
        Self {
            keys,
            weights,
            durabilities,
            large_per_mille: rng.choice([0, 3, 6, 12]).unwrap_or_default(),
            medium_percent: rng.choice([0, 5, 15, 40]).unwrap_or_default(),
            is_uniform,
        }
    }

    /// All keys that the run reads.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Draws the next step.
    pub fn next(&self, rng: &mut Rng) -> Step {
        let tree = rng.usize(..TREES);
        match choose(rng, &self.weights) {
            0 => self.write(rng, |workload, rng| workload.put(rng)),
            1 => self.write(rng, |workload, rng| workload.append(rng)),
            2 => self.write(rng, |workload, rng| Mutation::Delete {
                tree: rng.usize(..WRITTEN_TREES),
                key: workload.key(rng),
            }),
            3 => self.batch(rng),
            4 => self.write(rng, |workload, rng| Mutation::DeleteRange {
                tree: rng.usize(..WRITTEN_TREES),
                range: workload.narrow_range(rng),
            }),
            5 | 6 => Step::Get { tree, key: self.key(rng) },
            7 => {
                let count = rng.usize(1..40);
                Step::GetMany { tree, keys: (0..count).map(|_| self.key(rng)).collect() }
            }
            8 => Step::Scan {
                tree,
                range: self.range(rng),
                direction: direction(rng),
                limit: rng.choice([1, 5, 20, usize::MAX]).unwrap_or(1),
            },
            9 => Step::Sync,
            10 => Step::Checkpoint,
            11 => Step::Hold,
            12 => Step::Release,
            13 => Step::ReadHeld { tree, range: self.range(rng), direction: direction(rng) },
            14 => Step::CreateNamed(name(rng)),
            15 => Step::DeleteNamed(name(rng)),
            16 => Step::ReadNamed { name: name(rng), tree, key: self.key(rng) },
            17 => Step::SplitOff { tree, at: self.key(rng), durability: self.durability(rng) },
            _ => Step::Absorb { tree, durability: self.durability(rng) },
        }
    }

    /// A batch of changes, for callers that need only those.
    pub fn changes(&self, rng: &mut Rng) -> Vec<Mutation> {
        let count = rng.usize(1..9);
        (0..count).map(|_| self.any_change(rng)).collect()
    }

    /// A range to split off into a tree of its own, for callers that need only those.
    pub fn split_off(&self, rng: &mut Rng) -> RangeMove {
        RangeMove::SplitOff { tree: rng.usize(..2), at: self.key(rng), to: WRITTEN_TREES }
    }

    /// The reverse move, perhaps into another tree.
    pub fn absorb(&self, rng: &mut Rng) -> RangeMove {
        RangeMove::Absorb { tree: rng.usize(..2), from: WRITTEN_TREES }
    }

    fn write(&self, rng: &mut Rng, make: impl Fn(&Self, &mut Rng) -> Mutation) -> Step {
        let mutation = make(self, rng);
        Step::Write(vec![mutation], self.durability(rng))
    }

    fn batch(&self, rng: &mut Rng) -> Step {
        let changes = self.changes(rng);
        Step::Write(changes, self.durability(rng))
    }

    fn any_change(&self, rng: &mut Rng) -> Mutation {
        match rng.u8(..10) {
            0..=5 => self.put(rng),
            6 | 7 => self.append(rng),
            8 => Mutation::Delete { tree: rng.usize(..WRITTEN_TREES), key: self.key(rng) },
            _ => Mutation::DeleteRange { tree: rng.usize(..WRITTEN_TREES), range: self.narrow_range(rng) },
        }
    }

    fn put(&self, rng: &mut Rng) -> Mutation {
        if self.is_uniform {
            let number = rng.u8(..12);
            let key = format!("uniform/{}", number % 3).into_bytes().into();
            return Mutation::Put { tree: 0, key, value: vec![number; 40].into() };
        }
        let size = self.value_bytes(rng);
        Mutation::Put { tree: rng.usize(..WRITTEN_TREES), key: self.key(rng), value: bytes(rng, size) }
    }

    fn append(&self, rng: &mut Rng) -> Mutation {
        let size = if rng.u8(..20) == 0 { rng.usize(..5000) } else { rng.usize(..80) };
        Mutation::Append { tree: rng.usize(..WRITTEN_TREES), key: self.key(rng), bytes: bytes(rng, size) }
    }

    fn value_bytes(&self, rng: &mut Rng) -> usize {
        if rng.u32(..20_000) < self.large_per_mille {
            // Long enough for several pieces.
            return rng.usize(LARGE_BYTES * 8..LARGE_BYTES * 10);
        }
        if rng.u32(..1000) < self.large_per_mille {
            return rng.usize(LARGE_BYTES - 1..LARGE_BYTES * 2);
        }
        if rng.u32(..100) < self.medium_percent {
            // Usually near the lower bound, occasionally anywhere up to the upper one.
            let limit = if rng.u8(..10) == 0 { LARGE_BYTES } else { 2000 };
            return rng.usize(250..limit);
        }
        rng.usize(..100)
    }

    fn key(&self, rng: &mut Rng) -> Key {
        // Half of all calls go to an eighth of the keys.
        let count = if rng.bool() { self.keys.len() / 8 } else { self.keys.len() };
        self.keys[rng.usize(..count.max(1))].clone()
    }

    fn range(&self, rng: &mut Rng) -> Range {
        if rng.u8(..3) == 0 {
            return (Bound::Unbounded, Bound::Unbounded);
        }
        let (from, to) = (self.key(rng), self.key(rng));
        (bound(rng, from), bound(rng, to))
    }

    /// A range, usually of few keys: deleting everything all the time would leave little to lose.
    fn narrow_range(&self, rng: &mut Rng) -> Range {
        if rng.u8(..8) == 0 {
            return self.range(rng);
        }
        let from = rng.usize(..self.keys.len());
        let to = (from + rng.usize(..12)).min(self.keys.len() - 1);
        (bound(rng, self.keys[from].clone()), bound(rng, self.keys[to].clone()))
    }

    fn durability(&self, rng: &mut Rng) -> Durability {
        [Durability::Buffered, Durability::Flushed, Durability::Synced][choose(rng, &self.durabilities)]
    }
}

/// Limits small enough that a run of two thousand steps exceeds many of them.
pub fn small_settings(rng: &mut Rng) -> Settings {
    Settings {
        checkpoint_bytes: rng.choice([64, 256, 1024]).unwrap_or(64) * 1024,
        log_segment_bytes: rng.choice([16, 64, 256]).unwrap_or(64) * 1024,
        memory_bytes: rng.choice([32, 128, 1024, 8192]).unwrap_or(32) * 1024,
        store_seed: rng.u64(..),
        life: Some(0),
    }
}

fn choose(rng: &mut Rng, weights: &[u32]) -> usize {
    let mut left = rng.u32(..weights.iter().sum::<u32>().max(1));
    for (at, weight) in weights.iter().enumerate() {
        if left < *weight {
            return at;
        }
        left -= weight;
    }
    0
}

/// A key. Keys share a prefix, differ in length, and some contain bytes that are not valid text.
fn make_key(rng: &mut Rng, number: usize) -> Key {
    match rng.u8(..20) {
        0 => vec![rng.u8(..)].into(),
        1 => (0..rng.usize(1..8)).map(|_| rng.u8(..)).collect(),
        2 => format!("reef/{number:05}/{}", "x".repeat(rng.usize(200..1500))).into_bytes().into(),
        3 => format!("reef/{number:05}\0").into_bytes().into(),
        _ => format!("reef/{number:05}").into_bytes().into(),
    }
}

fn bytes(rng: &mut Rng, len: usize) -> Value {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes.into()
}

fn bound(rng: &mut Rng, key: Key) -> Bound<Key> {
    match rng.u8(..5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Excluded(key),
        _ => Bound::Included(key),
    }
}

fn direction(rng: &mut Rng) -> Direction {
    if rng.bool() { Direction::Forward } else { Direction::Backward }
}

fn name(rng: &mut Rng) -> &'static str {
    rng.choice(NAMES).unwrap_or(NAMES[0])
}

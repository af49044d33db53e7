//! The engine as a subject of the harness.
//!
//! Invariant: nothing happens in the background: checkpoints run in the harness's thread, when it asks for
//! them.

use crate::state::{Key, Mutation, Range, RangeMove, TREES, Value};
use crate::subject::{Direction, Durability, Failure, Outcome, Recovery, Settings, Subject};
use atoll_buffer::Buffer;
use atoll_disk::Disk;
use atoll_engine::{Commit, Engine, EngineError, Options, Tree, ValueRef, WriteBatch};
use atoll_errors::ErrorKind;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "planted")]
pub use atoll_engine::Bug as EngineBug;

/// The bugs that can be planted in the engine: none in an ordinary build.
#[cfg(not(feature = "planted"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineBug {}

#[cfg(not(feature = "planted"))]
impl EngineBug {
    /// All bugs.
    pub const ALL: [Self; 0] = [];
}

/// Plants a bug in all engines of this thread. A run stays in one thread.
#[cfg(feature = "planted")]
fn plant(bug: Option<EngineBug>) {
    atoll_engine::plant(bug);
}

#[cfg(not(feature = "planted"))]
const fn plant(_none: Option<EngineBug>) {}

/// An engine and its trees.
pub struct EngineSubject {
    engine: Engine,
    trees: Vec<Tree>,
    checkpoint_bytes: u64,
    /// The harness's estimate of the bytes written since the last checkpoint.
    written: AtomicU64,
}

impl Subject for EngineSubject {
    type Bug = EngineBug;
    type Snapshot = atoll_engine::Snapshot;

    fn open(disk: Arc<dyn Disk>, settings: &Settings, bug: Option<EngineBug>) -> Outcome<(Self, Recovery)> {
        plant(bug);
        let options = Options {
            memory_bytes: settings.memory_bytes,
            // With little memory, puts go into deltas beside absent leaves anyway.
            blind_puts: settings.memory_bytes >= 1 << 20,
            checkpoint_bytes: settings.checkpoint_bytes,
            log_segment_bytes: settings.log_segment_bytes,
            background: false,
            store_id: Some(settings.store_seed),
            life: settings.life,
            ..Options::default()
        };
        let engine = Engine::open(disk, options).map_err(failure)?;
        let report = engine.recovery();
        let recovery = Recovery {
            is_clean: report.clean,
            checkpoint: report.checkpoint,
            groups_replayed: report.groups_replayed,
            cut: report.cut.as_ref().map(|cut| format!("{cut:?}")),
            is_superblock_mended: report.superblock_mended,
        };
        let trees = (0..TREES)
            .map(|tree| engine.tree(&format!("tree {tree}")))
            .collect::<Result<_, _>>()
            .map_err(failure)?;
        let checkpoint_bytes = settings.checkpoint_bytes;
        Ok((Self { engine, trees, checkpoint_bytes, written: AtomicU64::new(0) }, recovery))
    }

    fn write(&self, batch: &[Mutation], durability: Durability) -> Outcome<u64> {
        let durability = of_engine(durability);
        let commit = match batch {
            [Mutation::Put { tree, key, value }] => self.trees[*tree].put(key, value, durability),
            [Mutation::Append { tree, key, bytes }] => self.trees[*tree].append(key, bytes, durability),
            [Mutation::Delete { tree, key }] => self.trees[*tree].delete(key, durability),
            [Mutation::Put { key, .. }, ..] if key.len().is_multiple_of(2) => {
                self.update(batch, key, durability)
            }
            _ => self.engine.write(&self.batch(batch), durability),
        };
        self.written.fetch_add(batch.iter().map(bytes_of).sum(), Ordering::Relaxed);
        commit.map(|commit| commit.sequence).map_err(failure)
    }

    fn move_range(&self, range: &RangeMove, durability: Durability) -> Outcome<()> {
        let durability = of_engine(durability);
        let moved = match range {
            RangeMove::SplitOff { tree, at, to } => {
                self.trees[*tree].split_off(at, self.trees[*to].name(), durability).map(drop)
            }
            RangeMove::Absorb { tree, from } => {
                self.trees[*tree].absorb(&self.trees[*from], durability).map(|_| ())
            }
        };
        moved.map_err(failure)
    }

    fn sync(&self) -> Outcome<()> {
        self.engine.sync().map_err(failure)
    }

    fn checkpoint(&self) -> Outcome<()> {
        self.engine.checkpoint().map_err(failure)?;
        self.written.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn wants_checkpoint(&self) -> bool {
        self.written.load(Ordering::Relaxed) > self.checkpoint_bytes
    }

    fn get(&self, tree: usize, key: &[u8]) -> Outcome<Option<Value>> {
        // Both ways of reading a single key must agree with the model.
        if key.len().is_multiple_of(2) {
            return self.trees[tree].get_with(key, |value| value.map(Value::from)).map_err(failure);
        }
        self.trees[tree].get(key).map_err(failure)?.map(|value| whole(&value)).transpose()
    }

    fn get_many(&self, tree: usize, keys: &[Key]) -> Outcome<Vec<Option<Value>>> {
        let mut values = Vec::with_capacity(keys.len());
        let show = |at: usize, value: Option<&[u8]>| {
            assert_eq!(at, values.len(), "values come in the order of their keys");
            values.push(value.map(Value::from));
        };
        self.trees[tree].get_many(keys, show).map_err(failure)?;
        Ok(values)
    }

    fn scan(
        &self,
        tree: usize,
        range: &Range,
        direction: Direction,
        limit: usize,
    ) -> Outcome<Vec<(Key, Value)>> {
        collect(limit, |visit| self.trees[tree].scan(borrow(range), towards(direction), visit))
    }

    fn snapshot(&self) -> Self::Snapshot {
        self.engine.snapshot()
    }

    fn snapshot_get(&self, snapshot: &Self::Snapshot, tree: usize, key: &[u8]) -> Outcome<Option<Value>> {
        snapshot.get(&self.trees[tree], key).map_err(failure)?.map(|value| whole(&value)).transpose()
    }

    fn snapshot_scan(
        &self,
        snapshot: &Self::Snapshot,
        tree: usize,
        range: &Range,
        direction: Direction,
        limit: usize,
    ) -> Outcome<Vec<(Key, Value)>> {
        collect(limit, |visit| snapshot.scan(&self.trees[tree], borrow(range), towards(direction), visit))
    }

    fn create_snapshot(&self, name: &str) -> Outcome<()> {
        self.engine.create_snapshot(name).map(drop).map_err(failure)
    }

    fn open_snapshot(&self, name: &str) -> Outcome<Self::Snapshot> {
        self.engine.open_snapshot(name).map_err(failure)
    }

    fn delete_snapshot(&self, name: &str) -> Outcome<()> {
        self.engine.delete_snapshot(name).map(drop).map_err(failure)
    }

    fn snapshot_names(&self) -> Vec<String> {
        self.engine.snapshot_names().into_iter().map(|(name, _)| name).collect()
    }

    fn check(&self) -> Outcome<u64> {
        let damage = self.engine.check().map_err(failure)?.damage;
        // A failed read says nothing about damage to what the disk holds.
        let (damage, failed): (Vec<_>, Vec<_>) =
            damage.into_iter().partition(|error| error.kind() == ErrorKind::Corrupt);
        failed.into_iter().next().map_or(Ok(damage.len() as u64), |error| Err(failure(error)))
    }

    fn inside(&self) -> Vec<(&'static str, u64)> {
        let (stats, hot) = (self.engine.stats(), self.engine.hot_use());
        vec![
            ("segments_cleaned", stats.segments_cleaned),
            ("values_moved", stats.values_moved),
            ("second_pages_written", stats.second_pages_written),
            ("leaves_merged", stats.leaves_merged),
            ("hot_records_found", hot.found),
            ("hot_records_evicted", hot.evicted),
        ]
    }

    fn close(self) -> Outcome<()> {
        self.engine.close().map_err(failure)
    }
}

impl EngineSubject {
    /// Writes through `update`, which reads first and then writes in one step; the values read do not
    /// affect the write.
    fn update(
        &self,
        batch: &[Mutation],
        key: &[u8],
        durability: atoll_engine::Durability,
    ) -> Result<Commit, EngineError> {
        let (_, commit) = self.engine.update(durability, |reader| {
            let before = reader.get(&self.trees[0], key)?;
            Ok::<_, EngineError>((Some(self.batch(batch)), before))
        })?;
        Ok(commit.unwrap_or_else(|| unreachable!("the update gave a batch")))
    }

    fn batch(&self, mutations: &[Mutation]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for mutation in mutations {
            match mutation {
                // Passed by ownership, a long value is split into several pieces.
                Mutation::Put { tree, key, value } if value.len() > 200 => {
                    batch.put_buffer(&self.trees[*tree], key, Buffer::copy_from(value));
                }
                Mutation::Put { tree, key, value } => batch.put(&self.trees[*tree], key, value),
                Mutation::Append { tree, key, bytes } => batch.append(&self.trees[*tree], key, bytes),
                Mutation::Delete { tree, key } => batch.delete(&self.trees[*tree], key),
                Mutation::DeleteRange { tree, range } => {
                    batch.delete_range(&self.trees[*tree], borrow(range));
                }
            }
        }
        batch
    }
}

const fn of_engine(durability: Durability) -> atoll_engine::Durability {
    match durability {
        Durability::Buffered => atoll_engine::Durability::Buffered,
        Durability::Flushed => atoll_engine::Durability::Flushed,
        Durability::Synced => atoll_engine::Durability::Synced,
    }
}

fn bytes_of(mutation: &Mutation) -> u64 {
    match mutation {
        Mutation::Put { key, value: bytes, .. } | Mutation::Append { key, bytes, .. } => {
            (key.len() + bytes.len()) as u64
        }
        Mutation::Delete { .. } | Mutation::DeleteRange { .. } => 40,
    }
}

fn borrow(range: &Range) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (range.0.as_ref().map(|key| &**key), range.1.as_ref().map(|key| &**key))
}

const fn towards(direction: Direction) -> atoll_engine::Direction {
    match direction {
        Direction::Forward => atoll_engine::Direction::Forward,
        Direction::Backward => atoll_engine::Direction::Backward,
    }
}

/// Joins the pieces of a value, after checking that they agree with its stated length.
fn whole(value: &atoll_engine::Value) -> Outcome<Value> {
    let mut bytes = Vec::with_capacity(value.len() as usize);
    for chunk in value.chunks() {
        bytes.extend_from_slice(&chunk.map_err(failure)?);
    }
    assert_eq!(bytes.len() as u64, value.len(), "the pieces of a value add up to its length");
    Ok(bytes.into())
}

type Visit<'a> = &'a mut dyn FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>;

fn collect(
    limit: usize,
    scan: impl FnOnce(Visit<'_>) -> Result<Option<Vec<u8>>, EngineError>,
) -> Outcome<Vec<(Key, Value)>> {
    let mut entries = Vec::new();
    let mut broken = None;
    let mut visit = |key: &[u8], value: ValueRef<'_>| {
        match value.bytes() {
            Ok(bytes) => entries.push((Key::from(key), Value::from(&*bytes))),
            Err(error) => broken = Some(error),
        }
        if broken.is_some() || entries.len() >= limit {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    scan(&mut visit).map_err(failure)?;
    broken.map_or(Ok(entries), |error| Err(failure(error)))
}

fn failure(error: EngineError) -> Failure {
    let is_final = matches!(
        error,
        EngineError::Poisoned { .. } | EngineError::Broken { .. } | EngineError::Closed { .. }
    );
    Failure { is_unknown: error.is_unknown(), is_final, ..Failure::new(error.kind(), &error) }
}

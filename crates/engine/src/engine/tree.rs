//! One named tree of a store: its reads and writes.

use super::Engine;
use crate::batch::{Action, Given, Op};
use crate::commit::Commit;
use crate::hot::HotKey;
use crate::planted::{self, Bug};
use crate::search::{self, Sought};
use crate::shared::{ROUNDS_MAX, Shared};
use crate::value::{Front, Stored, Value, ValueRef};
use crate::visit::{Direction, Range};
use crate::{Durability, EngineError};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Most keys that [`Tree::get_many`] looks up while writers are held off. The others are read afterwards, as
/// they were at that moment.
const STILL_READ_KEYS_MAX: usize = 1024;

/// One named tree of a store: an ordered map from keys to values. Cheap to clone.
#[derive(Clone)]
pub struct Tree {
    pub(crate) engine: Engine,
    id: u32,
    name: Arc<str>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({:?})", self.name)
    }
}

impl Tree {
    pub(crate) fn new(engine: Engine, id: u32, name: &str) -> Self {
        Self { engine, id, name: name.into() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The value of `key`, or none.
    ///
    /// # Errors
    /// [`EngineError`] when a page must be read back and cannot be, or is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, EngineError> {
        self.lookup(key, |found| found.map(|found| found.to_value()))
    }

    /// Shows the value of `key` to `show`, without a copy where the value lies in one piece in memory. `show`
    /// must not call this store: a lock is held while it runs.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get_with<R>(&self, key: &[u8], show: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, EngineError> {
        let mut show = Some(show);
        let mut shown = None;
        let kept = self.lookup(key, |found| match found.map(|found| (found.stored, found)) {
            None => {
                shown = show.take().map(|show| show(None));
                None
            }
            Some((Stored::Inline(bytes), _)) => {
                shown = show.take().map(|show| show(Some(bytes)));
                None
            }
            // Longer values may have to be read from disk, which is not done under the lock.
            Some((_, found)) => Some(found.to_value()),
        })?;
        match (shown, show, kept) {
            (Some(shown), _, _) => Ok(shown),
            (None, Some(show), Some(value)) => Ok(show(Some(&value.to_buffer()?))),
            (None, Some(show), None) => Ok(show(None)),
            (None, None, _) => unreachable!("a value is shown once"),
        }
    }

    /// The first bytes of the value of `key`, and its length; nothing else is copied.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn front<const N: usize>(&self, key: &[u8]) -> Result<Option<Front<N>>, EngineError> {
        let found =
            self.lookup(key, |found| found.map(|found| found.front().ok_or_else(|| found.to_value())))?;
        match found {
            None => Ok(None),
            Some(Ok(front)) => Ok(Some(front)),
            // Reads from disk happen without the lock.
            Some(Err(value)) => Ok(Some(Front::of(&value.read(0, N as u64)?, value.len()))),
        }
    }

    /// Looks `key` up, reading missing pages on the way. It ends however busy writers are: after
    /// [`ROUNDS_MAX`] it answers from a leaf that it read for itself.
    pub(crate) fn lookup<R>(
        &self,
        key: &[u8],
        mut found: impl FnMut(Option<ValueRef<'_>>) -> R,
    ) -> Result<R, EngineError> {
        let shared = &*self.engine.shared;
        let hot = HotKey::of(self.id, key);
        shared.check_open()?;
        // An inline value has no place on disk that a pin would have to keep.
        let show = |value: &[u8]| found(Some(shared.value_ref(Stored::Inline(value), 0)));
        if let Some(shown) = shared.hot.find(&hot, show) {
            return Ok(shown);
        }
        let (mut made_room, mut rounds) = (false, 0);
        loop {
            let missing = {
                let forest = shared.forest.read();
                shared.check_open()?;
                let Some(tree) = forest.tree(self.id) else { return Ok(found(None)) };
                match search::leaf_of(&tree.root, key) {
                    Ok(leaf) => {
                        let _latch = shared.latch(leaf);
                        // The previous holder of the latch may have left half of a change there.
                        shared.check_open()?;
                        let (stored, epoch) = (search::get_in(leaf, key), forest.epoch);
                        shared.hot.note_found(&hot, stored);
                        return Ok(found(stored.map(|stored| shared.value_ref(stored, epoch))));
                    }
                    Err(absent) => {
                        let show =
                            |value: &[u8]| found(Some(shared.value_ref(Stored::Inline(value), forest.epoch)));
                        if let Some(shown) = absent.find_beside(key, show) {
                            return Ok(shown);
                        }
                        let epoch = if planted::is(Bug::ReadUnpinned) { 0 } else { forest.epoch };
                        (absent.to_read(key), shared.pins.pin(epoch), forest.epoch)
                    }
                }
            };
            if shared.backing.excess() > 0 && !made_room {
                // What is held here could not be evicted.
                drop(missing);
                shared.make_room();
                made_room = true;
                continue;
            }
            rounds += 1;
            let insists = rounds > ROUNDS_MAX;
            let sought = if insists { Sought::Elsewhere } else { shared.find_apart(self.id, &missing.0)? };
            match sought {
                Sought::Elsewhere => {}
                Sought::Nearer => continue,
                Sought::In(leaf) => {
                    let stored = leaf.value_of(key);
                    return Ok(found(stored.map(|stored| shared.value_ref(stored, missing.2))));
                }
            }
            if let Some(leaf) = shared.leaf_apart(self.id, &missing.0, insists)? {
                return Ok(found(leaf.value_of(key).map(|stored| shared.value_ref(stored, missing.2))));
            }
            shared.load_missing(self.id, missing.0, missing.1)?;
        }
    }

    /// Shows the values of `keys`, in order, all as of one moment; the lookups overlap their waits for
    /// memory. `show` must not call this store: a lock is held while it runs.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut show: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        let shared = &*self.engine.shared;
        let mut done = 0;
        let view = {
            let _still = shared.writer.still();
            let forest = shared.forest.read();
            shared.check_open()?;
            let Some(tree) = forest.tree(self.id) else { return Ok(()) };
            for lanes in keys[..keys.len().min(STILL_READ_KEYS_MAX)].chunks(search::LANES) {
                let mut long = None;
                let ready = search::get_lanes(&tree.root, lanes, |lane, stored| match stored {
                    _ if long.is_some() => {}
                    Some(Stored::Inline(bytes)) => show(done + lane, Some(bytes)),
                    None => show(done + lane, None),
                    Some(Stored::Chain(_)) => long = Some(lane),
                });
                done += long.unwrap_or(ready);
                if long.is_some() || ready < lanes.len() {
                    break;
                }
            }
            if done == keys.len() {
                return Ok(());
            }
            // The keys that wait for the disk are read with no lock held, and still as of this moment.
            let pin = shared.pins.pin(forest.epoch);
            shared.views.add(forest.trees.clone(), forest.epoch, pin)
        };
        for (at, key) in keys.iter().enumerate().skip(done) {
            let value =
                view.get(self.id, key.as_ref(), shared)?.map(|value| value.to_buffer()).transpose()?;
            show(at, value.as_deref());
        }
        drop(view);
        if shared.backing.excess() > 0 {
            shared.make_room();
        }
        Ok(())
    }

    /// Visits the records of a range in order, all as of one moment, until the visitor stops, and returns the
    /// key at which it stopped. The visitor must not call this store: a lock is held while it runs.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn scan(
        &self,
        range: Range<'_>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        crate::snapshot::scan_current(self, range, direction, visit)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`Engine::write`].
    pub fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<Commit, EngineError> {
        self.commit(Action::Put(key, Given::Bytes(value)), durability)
    }

    /// Adds `bytes` at the end of the value of `key`; an absent key counts as empty.
    ///
    /// # Errors
    /// As [`Engine::write`].
    pub fn append(&self, key: &[u8], bytes: &[u8], durability: Durability) -> Result<Commit, EngineError> {
        self.commit(Action::Append(key, Given::Bytes(bytes)), durability)
    }

    /// Removes `key`; an absent key is no error.
    ///
    /// # Errors
    /// As [`Engine::write`].
    pub fn delete(&self, key: &[u8], durability: Durability) -> Result<Commit, EngineError> {
        self.commit(Action::Delete(key), durability)
    }

    fn commit(&self, action: Action<'_>, durability: Durability) -> Result<Commit, EngineError> {
        self.engine.shared.commit(&[Op { tree: self.id, action }], durability)
    }

    /// Sets many keys in one atomic batch.
    ///
    /// # Errors
    /// As [`Engine::write`].
    pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: &[(K, V)],
        durability: Durability,
    ) -> Result<Commit, EngineError> {
        let ops: Vec<Op<'_>> = records
            .iter()
            .map(|(key, value)| Op {
                tree: self.id,
                action: Action::Put(key.as_ref(), Given::Bytes(value.as_ref())),
            })
            .collect();
        self.engine.shared.commit(&ops, durability)
    }
}

impl Shared {
    #[inline]
    pub(crate) fn value_ref<'a>(&'a self, stored: Stored<'a>, epoch: u64) -> ValueRef<'a> {
        ValueRef { stored, backing: &self.backing, pins: &self.pins, epoch }
    }
}

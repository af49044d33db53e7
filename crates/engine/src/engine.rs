//! The engine's handles: the store as a whole, and one of its trees.

use crate::batch::{Action, Given, Op, WriteBatch};
use crate::checkpoint::Checkpoint;
use crate::commit::Commit;
use crate::forest::Forest;
use crate::options::Options;
use crate::pins::Pins;
use crate::record::Record;
use crate::recovery::{self, RecoveryReport};
use crate::room::Room;
use crate::search;
use crate::shared::{Nudge, Shared, Wanted, Writer};
use crate::snapshot::{Reader, Snapshot};
use crate::space::Space;
use crate::sync::Syncer;
use crate::value::{Value, ValueRef};
use crate::view::Views;
use crate::visit::{Direction, Range};
use crate::{Durability, EngineError};
use atoll_disk::Disk;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// A store: several named trees in one file, or in memory. Cheap to clone; all clones are the same store.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    background: Arc<Background>,
}

/// The thread that makes checkpoints; it ends with the last handle.
struct Background {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Background {
    fn stop(&self) {
        self.shared.nudge.ask(Wanted::Exit);
        self.shared.end_waiting();
        if let Some(thread) = self.thread.lock().take() {
            // A checkpoint thread that panicked has left the store as a crash would; opening recovers it.
            let _ = thread.join();
        }
    }
}

impl Engine {
    /// Opens the store on `disk`; an empty disk becomes a new store.
    ///
    /// # Errors
    /// [`EngineError`]: not a store, of a newer format, damaged below the synced end of its log, or the disk
    /// failed.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Self, EngineError> {
        options.validate()?;
        let found = recovery::recover(disk, &options)?;
        let flushed = found.log.flushed();
        let log = (!options.read_only).then_some(found.log);
        let (retired, checkpointed) = (found.retired, found.checkpointed);
        let writer = Writer { log, retired, checkpointed, epochs: VecDeque::new() };
        let shared = Shared {
            options,
            backing: found.backing,
            placing: RwLock::new(()),
            checkpointing: Mutex::new(()),
            writer: Mutex::new(writer),
            forest: RwLock::new(found.forest),
            space: Mutex::new(found.space),
            pins: Arc::new(Pins::default()),
            syncer: Syncer::new(found.synced),
            flushed: AtomicU64::new(flushed),
            closed: AtomicBool::new(false),
            recovery: found.report,
            nudge: Nudge::default(),
            table: Mutex::new(Some(found.table)),
            checkpoints: AtomicU64::new(0),
            segments_cleaned: AtomicU64::new(0),
            values_moved: AtomicU64::new(0),
            fruitless: Mutex::default(),
            doubtful_copy: AtomicUsize::new(0),
            evict_above: AtomicU64::new(0),
            views: Views::default(),
            turn: AtomicUsize::new(0),
            room: Room::default(),
        };
        Self::start(shared)
    }

    /// A store in memory: the same trees, no log, gone with its last handle.
    ///
    /// # Errors
    /// [`EngineError::Option`] when the options make no sense.
    pub fn in_memory(options: Options) -> Result<Self, EngineError> {
        options.validate()?;
        let id = options.seed.unwrap_or(1);
        let backing = crate::backing::Backing::new(None, id, options.memory_bytes);
        let shared = Shared {
            options: Options { background: false, ..options },
            backing: Arc::new(backing),
            placing: RwLock::new(()),
            checkpointing: Mutex::new(()),
            writer: Mutex::new(Writer::without_log()),
            forest: RwLock::new(Forest { epoch: 1, ..Forest::default() }),
            space: Mutex::new(Space::default()),
            pins: Arc::new(Pins::default()),
            syncer: Syncer::default(),
            flushed: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            recovery: RecoveryReport { created: true, clean: true, ..RecoveryReport::default() },
            nudge: Nudge::default(),
            table: Mutex::new(None),
            checkpoints: AtomicU64::new(0),
            segments_cleaned: AtomicU64::new(0),
            values_moved: AtomicU64::new(0),
            fruitless: Mutex::default(),
            doubtful_copy: AtomicUsize::new(0),
            evict_above: AtomicU64::new(0),
            views: Views::default(),
            turn: AtomicUsize::new(0),
            room: Room::default(),
        };
        Self::start(shared)
    }

    fn start(shared: Shared) -> Result<Self, EngineError> {
        let shared = Arc::new(shared);
        let runs = shared.options.background && !shared.options.read_only;
        let thread = if runs { keep_up_apart(&shared) } else { None };
        let background = Background { shared: Arc::clone(&shared), thread: Mutex::new(thread) };
        Ok(Self { shared, background: Arc::new(background) })
    }

    /// What opening found and did.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.shared.recovery
    }

    /// The tree of this name; it is made if there is none.
    ///
    /// # Errors
    /// [`EngineError::ReadOnly`] if it does not exist and the store is open for reading; errors of the disk.
    pub fn tree(&self, name: &str) -> Result<Tree, EngineError> {
        self.shared.check_open()?;
        let find = |forest: &Forest| forest.trees.iter().find(|tree| tree.name == name).map(|tree| tree.id);
        let known = find(&self.shared.forest.read());
        let id = match known {
            Some(id) => id,
            None => {
                let mut writer = self.shared.writer.lock();
                let known = find(&self.shared.forest.read());
                match known {
                    Some(id) => id,
                    None => {
                        let tree = self.shared.forest.read().trees.len() as u32;
                        self.shared.log_event(&mut writer, &Record::NewTree { tree, name })?;
                        self.shared.forest.write().add_tree(name)
                    }
                }
            }
        };
        Ok(Tree { engine: self.clone(), id, name: name.into() })
    }

    /// Whether the store was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// Names of all trees, in the order of their making.
    #[must_use]
    pub fn tree_names(&self) -> Vec<String> {
        self.shared.forest.read().trees.iter().map(|tree| tree.name.clone()).collect()
    }

    /// Applies a batch atomically, in order.
    ///
    /// # Errors
    /// [`EngineError`]; nothing was changed unless [`EngineError::is_unknown`].
    pub fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<Commit, EngineError> {
        self.shared.commit(&batch.ops(), durability)
    }

    /// Reads, decides and writes in one step that no other write comes between. `decide` reads through the
    /// reader it is given and must not write: the writer lock is held meanwhile.
    ///
    /// # Errors
    /// Those of `decide` and of [`Engine::write`].
    pub fn update<R, E: From<EngineError>>(
        &self,
        durability: Durability,
        decide: impl FnOnce(&Reader<'_>) -> Result<(Option<WriteBatch>, R), E>,
    ) -> Result<(R, Option<Commit>), E> {
        self.shared.wait_for_room(1)?;
        let writer = self.shared.writer.lock();
        self.shared.check_open()?;
        let (batch, answer) = decide(&Reader { engine: self })?;
        let Some(batch) = batch else { return Ok((answer, None)) };
        let visible = self.shared.commit_visible(writer, &batch.ops(), Vec::new(), durability)?;
        Ok((answer, Some(self.shared.make_durable(&visible, durability)?)))
    }

    /// Makes everything committed so far survive the loss of power.
    ///
    /// # Errors
    /// [`EngineError::Disk`] or [`EngineError::NotDurable`] when the disk refuses.
    pub fn sync(&self) -> Result<(), EngineError> {
        self.shared.check_open()?;
        let mut writer = self.shared.writer.lock();
        let Some(log) = &mut writer.log else { return Ok(()) };
        log.flush(&self.shared.backing)?;
        let position = log.flushed();
        self.shared.flushed.store(position, Ordering::Release);
        drop(writer);
        self.shared.sync_to(position)
    }

    /// Writes the present state as a commit of its own, so that recovery starts from here.
    ///
    /// # Errors
    /// [`EngineError`]; the store goes on from the commit before.
    pub fn checkpoint(&self) -> Result<Checkpoint, EngineError> {
        self.shared.checkpoint(false)
    }

    /// All trees as they are now, for as long as the snapshot is kept.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let forest = self.shared.forest.read();
        let pin = self.shared.pins.pin(forest.epoch);
        let view = self.shared.views.add(forest.trees.clone(), forest.epoch, pin);
        Snapshot::new(self.clone(), view, forest.sequence)
    }

    /// Keeps all trees as they are now under a name, across restarts.
    ///
    /// # Errors
    /// [`EngineError::SnapshotExists`]; errors of the disk.
    pub fn create_snapshot(&self, name: &str) -> Result<Commit, EngineError> {
        let mut writer = self.shared.writer.lock();
        if self.shared.forest.read().snapshots.iter().any(|snapshot| snapshot.name == name) {
            return Err(EngineError::SnapshotExists { name: name.to_owned() });
        }
        let sequence = self.shared.log_event(&mut writer, &Record::Snapshot { name })?;
        self.shared.forest.write().add_snapshot(name);
        Ok(Commit { sequence, durability: Durability::Flushed })
    }

    /// A named snapshot, for reading.
    ///
    /// # Errors
    /// [`EngineError::NoSnapshot`].
    pub fn open_snapshot(&self, name: &str) -> Result<Snapshot, EngineError> {
        self.shared.check_open()?;
        let forest = self.shared.forest.read();
        let found = forest.snapshots.iter().find(|snapshot| snapshot.name == name);
        let Some(found) = found else { return Err(EngineError::NoSnapshot { name: name.to_owned() }) };
        // Its space stays while it is open, even if the name is deleted meanwhile.
        let pin = self.shared.pins.pin(found.epoch);
        let view = self.shared.views.add(found.trees.clone(), found.epoch, pin);
        Ok(Snapshot::new(self.clone(), view, found.sequence))
    }

    /// Forgets a named snapshot; its space comes back with the next checkpoint.
    ///
    /// # Errors
    /// [`EngineError::NoSnapshot`]; errors of the disk.
    pub fn delete_snapshot(&self, name: &str) -> Result<Commit, EngineError> {
        let mut writer = self.shared.writer.lock();
        if !self.shared.forest.read().snapshots.iter().any(|snapshot| snapshot.name == name) {
            return Err(EngineError::NoSnapshot { name: name.to_owned() });
        }
        let sequence = self.shared.log_event(&mut writer, &Record::NoSnapshot { name })?;
        self.shared.forest.write().remove_snapshot(name);
        Ok(Commit { sequence, durability: Durability::Flushed })
    }

    /// Names of the snapshots, oldest first, each with the commit it shows.
    #[must_use]
    pub fn snapshot_names(&self) -> Vec<(String, u64)> {
        let forest = self.shared.forest.read();
        forest.snapshots.iter().map(|snapshot| (snapshot.name.clone(), snapshot.sequence)).collect()
    }

    /// Syncs, makes a last checkpoint, and refuses everything that comes after.
    ///
    /// # Errors
    /// [`EngineError`] of the last sync or checkpoint; the store is closed all the same.
    pub fn close(self) -> Result<(), EngineError> {
        self.close_shared()
    }

    /// As [`Engine::close`], for one of several handles. Closing twice is no error.
    ///
    /// # Errors
    /// As [`Engine::close`].
    pub fn close_shared(&self) -> Result<(), EngineError> {
        self.background.stop();
        if self.shared.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let result = match self.shared.options.read_only {
            true => Ok(()),
            false => self.shared.checkpoint(true).map(|_| ()),
        };
        // Whoever passed the check before is waited for: once this returns nothing more reaches the disk,
        // which may then belong to somebody else.
        let _placing = self.shared.placing.write();
        let _running = self.shared.checkpointing.lock();
        let mut writer = self.shared.writer.lock();
        self.shared.closed.store(true, Ordering::Release);
        match &mut writer.log {
            Some(log) if result.is_ok() => Ok(log.flush(&self.shared.backing)?),
            _ => result,
        }
    }
}

impl Shared {
    /// Commits a record that is no change of a tree; its sequence.
    fn log_event(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        record: &Record<'_>,
    ) -> Result<u64, EngineError> {
        self.check_writable()?;
        if let Some(log) = &mut writer.log {
            let mut payload = Vec::new();
            record.encode(&mut payload);
            self.prepare_log(log, payload.len())?;
            let prepared = log.begin();
            log.payload().extend_from_slice(&payload);
            let ended = log.end(&prepared, self.syncer.synced());
            if let Err(error) = log.flush(&self.backing) {
                log.roll_back(&prepared, Some(ended));
                return Err(error.into());
            }
            self.flushed.store(log.flushed(), Ordering::Release);
        }
        let mut forest = self.forest.write();
        forest.sequence += 1;
        Ok(forest.sequence)
    }
}

/// Starts the thread that makes checkpoints; none where the system has none to give.
fn keep_up_apart(shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let worker = Arc::clone(shared);
    let work = move || {
        // Writers wait from here on, and no longer than this thread runs, even should it panic.
        let _serving = worker.serve();
        keep_up(&worker);
    };
    std::thread::Builder::new().name("atoll-checkpoint".into()).spawn(work).ok()
}

/// Makes a checkpoint whenever one is wanted, until the engine goes.
fn keep_up(shared: &Shared) {
    while shared.nudge.wait() == Wanted::Checkpoint {
        shared.checkpoint_begins();
        if let Err(error) = shared.checkpoint(false) {
            tracing::warn!(store = shared.backing.name(), error = %error, "a checkpoint failed; the log keeps growing");
        }
        shared.checkpoint_ended();
    }
}

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
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// How many records it holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.engine.shared.forest.read().tree(self.id).map_or(0, |tree| tree.records)
    }

    /// Whether it holds no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `key`, or none.
    ///
    /// # Errors
    /// [`EngineError`] when a page must be read back and cannot be, or is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, EngineError> {
        self.lookup(key, |found| found.map(|found| found.to_value()))
    }

    /// Shows the value of `key` to `show`, without copying it where it lies in one piece in memory. `show` must
    /// not call this store: a lock is held meanwhile.
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
            Some((crate::value::Stored::Inline(bytes), _)) => {
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

    /// Looks `key` up, reading missing pages until it is found.
    pub(crate) fn lookup<R>(
        &self,
        key: &[u8],
        mut found: impl FnMut(Option<ValueRef<'_>>) -> R,
    ) -> Result<R, EngineError> {
        let shared = &*self.engine.shared;
        let mut made_room = false;
        loop {
            let missing = {
                let forest = shared.forest.read();
                shared.check_open()?;
                let Some(tree) = forest.tree(self.id) else { return Ok(found(None)) };
                match search::get(&tree.root, key) {
                    Ok(stored) => {
                        let epoch = forest.epoch;
                        return Ok(found(stored.map(|stored| shared.value_ref(stored, epoch))));
                    }
                    Err(missing) => (missing, shared.pins.pin(forest.epoch), forest.epoch),
                }
            };
            if shared.backing.excess() > 0 && !made_room {
                // What is held here could not go.
                drop(missing);
                shared.make_room();
                made_room = true;
                continue;
            }
            if let Some(leaf) = shared.leaf_apart(&missing.0)? {
                let stored = leaf.find(key, crate::checksum::key_hash(key)).map(|slot| leaf.value(slot));
                return Ok(found(stored.map(|stored| shared.value_ref(stored, missing.2))));
            }
            shared.load_missing(self.id, missing.0, missing.1)?;
        }
    }

    /// Shows the values of `keys`, in order; lookups overlap their waits for memory. `show` must not call this
    /// store: a lock is held meanwhile.
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
        while done < keys.len() {
            let lanes = &keys[done..keys.len().min(done + search::LANES)];
            let mut long = None;
            let (ready, missing) = {
                let forest = shared.forest.read();
                shared.check_open()?;
                let Some(tree) = forest.tree(self.id) else { break };
                let (mut ready, missing) =
                    search::get_lanes(&tree.root, lanes, |lane, stored| match stored {
                        _ if long.is_some() => {}
                        Some(crate::value::Stored::Inline(bytes)) => show(done + lane, Some(bytes)),
                        None => show(done + lane, None),
                        Some(stored) => {
                            long = Some((lane, shared.value_ref(stored, forest.epoch).to_value()))
                        }
                    });
                if let Some((lane, _)) = &long {
                    ready = *lane;
                }
                (ready, missing.map(|missing| (missing, shared.pins.pin(forest.epoch))))
            };
            done += ready;
            match (long, missing) {
                (Some((_, value)), _) => {
                    show(done, Some(&value.to_buffer()?));
                    done += 1;
                }
                (None, Some(missing)) if shared.backing.excess() > 0 => {
                    drop(missing);
                    let value = self.get(keys[done].as_ref())?.map(|value| value.to_buffer()).transpose()?;
                    show(done, value.as_deref());
                    done += 1;
                }
                (None, Some((missing, pin))) => {
                    shared.load_missing(self.id, missing, pin)?;
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Visits the records of a range in order, as they all were at one moment, until the visitor stops; the
    /// key at which it stopped. The visitor must not call this store: a lock is held meanwhile.
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
    pub(crate) fn value_ref<'a>(&'a self, stored: crate::value::Stored<'a>, epoch: u64) -> ValueRef<'a> {
        ValueRef { stored, backing: &self.backing, pins: &self.pins, epoch }
    }
}

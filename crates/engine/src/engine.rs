//! The store as a whole: opening and closing it, its trees and snapshots, and writes to several trees.

mod background;
mod tree;

pub use tree::Tree;

use crate::backing::Backing;
use crate::batch::WriteBatch;
use crate::broken::UnfinishedGroup;
use crate::checkpoint::Checkpoint;
use crate::commit::Commit;
use crate::fence::{self, FenceWatch};
use crate::forest::Forest;
use crate::gate::CachePadded;
use crate::options::Options;
use crate::planted::Bug;
use crate::record::Record;
use crate::recovery::{self, RecoveryReport};
use crate::revocable_disk::{GivenUp, RevocableDisk};
use crate::shared::{Shared, Writer};
use crate::snapshot::{Reader, Snapshot};
use crate::sync::Syncer;
use crate::threads::{AtomicU64, Mutex, unless};
use crate::{Durability, EngineError};
use atoll_disk::Disk;
use background::Background;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A store: several named trees in one file, or in memory. Cheap to clone; all clones are the same store.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    background: Arc<Background>,
}

impl Engine {
    /// Opens the store on `disk`; an empty disk becomes a new store.
    ///
    /// # Errors
    /// [`EngineError`]: not a store, of a newer format, damaged below the synced end of its log, claimed by
    /// another owner, or the disk failed.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Self, EngineError> {
        Self::open_as(0, disk, options)
    }

    /// As [`Engine::open`], for the owner with this token; 0 for whoever owns the store.
    pub(crate) fn open_as(token: u64, disk: Arc<dyn Disk>, options: Options) -> Result<Self, EngineError> {
        options.validate()?;
        let (is_given_up, watch) = (GivenUp::default(), Arc::<FenceWatch>::default());
        let disk = RevocableDisk::until(&is_given_up, &watch, disk);
        let found = recovery::recover(Arc::clone(&disk), &options, token)?;
        let ownership = found.superblock.ownership();
        if !options.read_only {
            let fence = fence::check_free(&*disk, &found.superblock, token)?;
            watch.begin(found.superblock.store_id, ownership.fence, fence);
        }
        let flushed = found.log.flushed();
        let log = if options.log_windows { found.log } else { found.log.without_windows() };
        let log = (!options.read_only).then_some(log);
        let (retired, checkpointed) = (found.retired, found.checkpointed);
        // The last commit ended the epoch before this one, and the log goes on from its point.
        let epochs = VecDeque::from([(found.superblock.epoch, found.superblock.log.number)]);
        let placed_bytes = found.named_bytes;
        let writer = Writer { log, retired, checkpointed, placed_bytes, epochs };
        Ok(Self::start(Shared {
            space: Mutex::new(found.space),
            syncer: Syncer::new(found.synced),
            flushed: CachePadded(AtomicU64::new(flushed)),
            table: Mutex::new(Some(found.table)),
            features: AtomicU64::new(found.superblock.features),
            features_noted: AtomicU64::new(found.superblock.features),
            committed: Mutex::new(Some(found.superblock)),
            is_given_up,
            ownership: Mutex::new(ownership),
            fence: watch,
            ..Shared::new(options, found.backing, writer, found.forest, found.report)
        }))
    }

    /// A store in memory: the same trees without a log, gone with the last handle.
    ///
    /// # Errors
    /// [`EngineError::Option`] when the options make no sense.
    pub fn in_memory(options: Options) -> Result<Self, EngineError> {
        options.validate()?;
        let id = options.store_id.unwrap_or(1);
        let backing = Arc::new(Backing::new(None, id, options.memory_bytes));
        let report = RecoveryReport { created: true, clean: true, ..RecoveryReport::default() };
        let options = Options { background: false, ..options };
        let mut forest = Forest::default();
        forest.epoch = 1;
        Ok(Self::start(Shared::new(options, backing, Writer::without_log(), forest, report)))
    }

    fn start(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        let background = Arc::new(Background::of(&shared));
        Self { shared, background }
    }

    /// What opening found and did.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.shared.recovery
    }

    /// The tree of this name, which is created if it does not exist.
    ///
    /// # Errors
    /// [`EngineError::ReadOnly`] if it does not exist and the store is open for reading; errors of the disk.
    pub fn tree(&self, name: &str) -> Result<Tree, EngineError> {
        self.shared.check_open()?;
        let known = self.shared.forest.read().id_of(name);
        let id = match known {
            Some(id) => id,
            None => {
                let mut writer = self.shared.writer.alone();
                let known = self.shared.forest.read().id_of(name);
                match known {
                    Some(id) => id,
                    None => {
                        let tree = self.shared.forest.read().trees.len() as u32;
                        self.shared.log_event(&mut writer, &Record::NewTree { tree, name })?;
                        self.shared.forest.write().add_tree(name, &self.shared.backing)
                    }
                }
            }
        };
        Ok(Tree::new(self.clone(), id, name))
    }

    /// Whether the store was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.answering.is_closed()
    }

    /// Names of all trees, in the order of their creation.
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

    /// Reads, decides and writes as one step that no other write comes between. `decide` reads through the
    /// reader that it is given, and must neither write nor ask for [`Tree::len`]: the writer lock is held
    /// while it runs.
    ///
    /// # Errors
    /// Those of `decide` and of [`Engine::write`].
    pub fn update<R, E: From<EngineError>>(
        &self,
        durability: Durability,
        decide: impl FnOnce(&Reader<'_>) -> Result<(Option<WriteBatch>, R), E>,
    ) -> Result<(R, Option<Commit>), E> {
        self.shared.wait_for_usual_room()?;
        let writer = self.shared.writer.alone();
        self.shared.check_open()?;
        let (batch, answer) = decide(&Reader { engine: self })?;
        let Some(batch) = batch else { return Ok((answer, None)) };
        let visible = self.shared.commit_decided(writer, &batch, durability)?;
        Ok((answer, Some(self.shared.make_durable(&visible, durability)?)))
    }

    /// Makes every commit so far survive a loss of power.
    ///
    /// # Errors
    /// [`EngineError::Disk`] or [`EngineError::NotDurable`] when the disk refuses.
    pub fn sync(&self) -> Result<(), EngineError> {
        self.shared.check_open()?;
        match self.flush_log()? {
            Some(position) => self.shared.sync_to(position),
            None => Ok(()),
        }
    }

    /// Hands the part of the log that only memory holds to the disk. Returns the position up to which the
    /// disk has the log; none without a log.
    fn flush_log(&self) -> Result<Option<u64>, EngineError> {
        let mut writer = self.shared.writer.alone();
        let Some(log) = &mut writer.log else { return Ok(None) };
        // Once the store is closed, the file may belong to another process.
        self.shared.check_writable()?;
        log.flush(&self.shared.backing)?;
        let position = log.flushed();
        self.shared.flushed.store(position, Ordering::Release);
        Ok(Some(position))
    }

    /// Writes the present state as a commit of its own, from which recovery starts.
    ///
    /// # Errors
    /// [`EngineError`]; the store goes on from the commit before. [`EngineError::NotDurable`] is the
    /// exception: a sync failed, and the store accepts no writes until it is opened again.
    pub fn checkpoint(&self) -> Result<Checkpoint, EngineError> {
        self.shared.checkpoint(false)
    }

    /// All trees as they are now, for as long as the snapshot lives.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let _still = self.shared.writer.still();
        let forest = self.shared.forest.read();
        let pin = self.shared.pins.pin(forest.epoch);
        let view = self.shared.views.add(forest.trees.clone(), forest.epoch, pin);
        Snapshot::new(self.clone(), view, forest.sequence.get())
    }

    /// Keeps all trees as they are now under a name, across restarts.
    ///
    /// # Errors
    /// [`EngineError::SnapshotExists`]; errors of the disk.
    pub fn create_snapshot(&self, name: &str) -> Result<Commit, EngineError> {
        let mut writer = self.shared.writer.alone();
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
        // The pin keeps its space while it is open, even if the name is deleted meanwhile.
        let pin = self.shared.pins.pin(found.epoch);
        let view = self.shared.views.add(found.trees.clone(), found.epoch, pin);
        Ok(Snapshot::new(self.clone(), view, found.sequence))
    }

    /// Deletes a named snapshot; its space comes back with the next checkpoint.
    ///
    /// # Errors
    /// [`EngineError::NoSnapshot`]; errors of the disk.
    pub fn delete_snapshot(&self, name: &str) -> Result<Commit, EngineError> {
        let mut writer = self.shared.writer.alone();
        if !self.shared.forest.read().snapshots.iter().any(|snapshot| snapshot.name == name) {
            return Err(EngineError::NoSnapshot { name: name.to_owned() });
        }
        let sequence = self.shared.log_event(&mut writer, &Record::NoSnapshot { name })?;
        self.shared.forest.write().remove_snapshot(name);
        Ok(Commit { sequence, durability: Durability::Flushed })
    }

    /// Names of the snapshots, oldest first, each with the last commit that it includes.
    #[must_use]
    pub fn snapshot_names(&self) -> Vec<(String, u64)> {
        let forest = self.shared.forest.read();
        forest.snapshots.iter().map(|snapshot| (snapshot.name.clone(), snapshot.sequence)).collect()
    }

    /// Syncs, makes a last checkpoint, and refuses every later operation.
    ///
    /// # Errors
    /// [`EngineError`] of the last sync or checkpoint; the store is closed either way.
    pub fn close(self) -> Result<(), EngineError> {
        self.close_shared()
    }

    /// As [`Engine::close`], for one of several handles. Closing twice is no error, also by two
    /// threads at once.
    ///
    /// # Errors
    /// As [`Engine::close`].
    pub fn close_shared(&self) -> Result<(), EngineError> {
        self.close_once().map(|_| ())
    }

    /// As [`Engine::close_shared`]. Returns whether this call closed the store, and none before it.
    pub(crate) fn close_once(&self) -> Result<bool, EngineError> {
        // Flush first: others may already have read the buffered writes and read the file next, and a
        // checkpoint that is under way takes its time. A flush that fails here is repeated below, which
        // returns the error.
        let _ = self.flush_log();
        self.background.stop();
        self.shared.give_up_segment();
        let result = match self.shared.options.read_only {
            true => Ok(()),
            false => self.shared.checkpoint(true).map(|_| ()),
        };
        // Wait for every caller that passed the check before: once this returns, nothing more reaches the
        // disk, which may then belong to another owner.
        let _placing = unless(Bug::CloseUnlocked, || self.shared.placing.write());
        let _running = self.shared.checkpointing.lock();
        let mut writer = self.shared.writer.alone();
        if self.is_closed() {
            // Another handle closed it and returns how that ended. What the log still holds must not be
            // written by now. This is not checked without the locks: the other one holds them until it has
            // written all it had.
            return Ok(false);
        }
        self.shared.answering.close();
        let Some(log) = &mut writer.log else { return result.map(|()| true) };
        // A failed checkpoint takes nothing from the log, so the log is flushed all the same. A store that
        // was given up, or that broke, may write nothing more.
        let flushed = match self.shared.syncer.is_poisoned() {
            true => Ok(()),
            false => log.flush(&self.shared.backing),
        };
        let ended = result.and_then(|()| Ok(flushed?));
        // However it ended, stop preparing pages: the preparation would write zeros into a file that may
        // belong to another owner by now.
        log.end_windows();
        ended.map(|()| true)
    }

    /// Refuses every later operation and writes not a byte more, not even for a checkpoint that is under way,
    /// because the disk belongs to another owner by now. What the log on the disk does not have is lost, as
    /// in a crash.
    pub fn abandon(&self) {
        self.shared.is_given_up.store(true, Ordering::Release);
        self.shared.syncer.poison();
        // This only waits for what is under way: no last checkpoint is made where nothing may be written.
        let _ = self.close_shared();
    }
}

impl Shared {
    /// Commits a record that changes no tree, and returns its sequence.
    fn log_event(&self, writer: &mut Writer, record: &Record<'_>) -> Result<u64, EngineError> {
        let in_log = self.log_records(writer, std::slice::from_ref(record))?;
        let forest = self.forest.write();
        let sequence = forest.sequence.add(1);
        in_log.done();
        Ok(sequence)
    }

    /// Writes a group of records that need no room in memory to the log, and hands it to the disk.
    pub(crate) fn log_records(
        &self,
        writer: &mut Writer,
        records: &[Record<'_>],
    ) -> Result<UnfinishedGroup<'_>, EngineError> {
        self.check_writable()?;
        let Some(log) = &mut writer.log else { return Ok(self.unfinished()) };
        let mut payload = Vec::new();
        records.iter().for_each(|record| record.encode(&mut payload));
        self.prepare_log(log, payload.len())?;
        let in_log = self.unfinished();
        let prepared = log.begin();
        log.payload().extend_from_slice(&payload);
        let ended = log.end(&prepared, self.syncer.synced());
        self.settled.end();
        if let Err(error) = log.flush(&self.backing) {
            log.roll_back(&prepared, ended);
            in_log.done();
            return Err(error.into());
        }
        self.flushed.store(log.flushed(), Ordering::Release);
        Ok(in_log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_disk::MemoryDisk;
    use std::time::Duration;

    /// While a second handle closes the store, the first one has gone through with it.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "nothing tells that a thread waits for a lock")]
    fn a_store_that_another_handle_closes_meanwhile_is_closed_without_an_error() {
        let options = Options { background: false, log_windows: false, ..Options::default() };
        let engine = Engine::open(Arc::new(MemoryDisk::new()), options).unwrap();
        engine.tree("t").unwrap().put(b"k", b"v", Durability::Buffered).unwrap();
        let shared = &*engine.shared;
        let flushed = || shared.flushed.load(Ordering::Acquire);
        let before = flushed();
        let running = shared.checkpointing.lock();
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| engine.close_shared());
            // Its first step hands the log over. It waits for the checkpoint lock soon after that.
            while flushed() == before {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            shared.answering.close();
            drop(running);
            let closed = closing.join().unwrap();
            assert!(closed.is_ok(), "{closed:?}");
        });
    }

    /// The handle that closes the store marks it as closed before it hands the last of the log over.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "nothing tells that a thread waits for a lock")]
    fn closing_a_second_time_waits_until_the_first_handle_has_written_all() {
        let options = Options { background: false, log_windows: false, ..Options::default() };
        let engine = Engine::open(Arc::new(MemoryDisk::new()), options).unwrap();
        engine.tree("t").unwrap().put(b"k", b"v", Durability::Buffered).unwrap();
        let shared = &*engine.shared;
        let flushed = || shared.flushed.load(Ordering::Acquire);
        let before = flushed();
        let wanted = shared.nudge.wanted.lock();
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| engine.close_shared());
            // After its first step, which hands the log over, it waits to end the background threads.
            while flushed() == before {
                std::thread::yield_now();
            }
            let writer = shared.writer.alone();
            shared.answering.close();
            drop(wanted);
            std::thread::sleep(Duration::from_millis(50));
            assert!(!closing.is_finished(), "the first handle may still write");
            drop(writer);
            let closed = closing.join().unwrap();
            assert!(closed.is_ok(), "{closed:?}");
        });
    }
}

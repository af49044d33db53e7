//! The log of a member, its vote, its seat and its snapshot: in memory, and also in a file if there is a
//! folder.
//!
//! The newest snapshot and all entries that were not purged are in memory; the file is read only when a
//! member starts.
//!
//! Invariant: the snapshot is a record of the same file as the entries. So a crash leaves a beginning of what
//! was written in the order of the calls, and there is no moment at which entries are gone that no snapshot
//! has.
//! Invariant: records are synced in the order of the calls: an entry that follows a vote never survives
//! without it.
//! Invariant: a seat and its log are created together: a member that lost its log gets another seat.

#[cfg(test)]
mod crashes;
mod facts;
mod file;
mod writer;

use crate::codec::{Coded, RingId};
use crate::types::{EntryOf, LogIdOf, SeatId, StorageError, Types, VoteOf};
use crate::{CouncilError, random_id};
use facts::{DurableState, Fact};
pub(crate) use facts::{KeptSnapshot, SNAPSHOT_BYTES_MAX};
use file::{LogFile, RECORD_BYTES_MAX};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader, StorageIOError};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{oneshot, watch};
use writer::{Job, Lengths, Writer};

/// The approximate limit on changes that are sent to another member at a time; a single entry may exceed it.
const CHANGES_AT_ONCE: usize = 32_768;

/// A file is replaced by one without what is obsolete once it is longer than this, and than twice what was
/// not obsolete when it was made: so replacing it writes no more than everything else does.
const REPLACE_BYTES: usize = 4 << 20;

/// The log. Clones share it.
#[derive(Clone)]
pub(crate) struct Log {
    shared: Arc<Mutex<Shared>>,
    /// Whether the log waits for room on its disk.
    lacks_room: watch::Receiver<bool>,
    covered: watch::Sender<Covered>,
}

struct Shared {
    kept: DurableState,
    /// The channel to the writer thread; none if the log is in memory only.
    jobs: Option<SyncSender<Job>>,
    /// How long the file is, as the writer thread says: it may not have had the room for a shorter one.
    lengths: Arc<Lengths>,
}

/// What the snapshot has of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Covered {
    /// The index of the first entry that it does not have.
    next: u64,
    /// Whether a snapshot could not be put in place: whoever waits for it would wait for ever.
    has_failed: bool,
}

/// The resources behind a log: its writer thread, and the lock on its folder.
pub(crate) struct LogGuard {
    writer: Option<Writer>,
    _lock: Option<File>,
}

impl LogGuard {
    /// Waits until everything is written. To be called when no other user of the log is left.
    pub(crate) fn end(self) {
        if let Some(writer) = self.writer {
            writer.end();
        }
    }
}

impl Log {
    /// Opens the log in a folder, or makes a new one in memory.
    pub(crate) fn open(folder: Option<&Path>) -> Result<(Self, LogGuard), CouncilError> {
        let seat = SeatId(random_id::draw()?);
        let Some(folder) = folder else {
            return Ok((Self::in_memory(seat), LogGuard { writer: None, _lock: None }));
        };
        let lock = lock(folder)?;
        let (file, kept) = LogFile::open(&folder.join("log"), seat)?;
        let (telling, lacks_room) = watch::channel(false);
        let began = Writer::begin(file, telling);
        let action = "start the thread that writes the log of the configuration group";
        let (jobs, writer) = began.map_err(|source| CouncilError::System { action, source })?;
        let log = Self::of(kept, Some(jobs), lacks_room);
        // What is obsolete in it counts too: the file of a log that was never cut is as long as its history.
        log.shared().lengths = writer.lengths();
        Ok((log, LogGuard { writer: Some(writer), _lock: Some(lock) }))
    }

    /// A log that is lost with the process.
    pub(crate) fn in_memory(seat: SeatId) -> Self {
        Self::of(DurableState::new(seat), None, watch::channel(false).1)
    }

    fn of(kept: DurableState, jobs: Option<SyncSender<Job>>, lacks_room: watch::Receiver<bool>) -> Self {
        let covered = watch::Sender::new(Covered { next: kept.covered(), has_failed: false });
        let shared = Shared { kept, jobs, lengths: Arc::default() };
        Self { shared: Arc::new(Mutex::new(shared)), lacks_room, covered }
    }

    /// The same, with a sender that decides whether there is room.
    #[cfg(test)]
    pub(crate) fn with_room_told(seat: SeatId) -> (Self, watch::Sender<bool>) {
        let (telling, lacks_room) = watch::channel(false);
        (Self::of(DurableState::new(seat), None, lacks_room), telling)
    }

    /// The same, with the jobs for its writer left to the caller.
    #[cfg(test)]
    pub(crate) fn with_writes_left(seat: SeatId) -> (Self, std::sync::mpsc::Receiver<Job>) {
        let (jobs, received) = std::sync::mpsc::sync_channel(256);
        (Self::of(DurableState::new(seat), Some(jobs), watch::channel(false).1), received)
    }

    /// Whether the log waits for room on its disk. Until there is some, the consensus of this member stands
    /// still.
    pub(crate) fn lacks_room(&self) -> bool {
        *self.lacks_room.borrow()
    }

    /// Returns when that changes; never, if it cannot change any more.
    pub(crate) async fn room_changed(&mut self) {
        if self.lacks_room.changed().await.is_err() {
            std::future::pending().await
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seat of this member.
    pub(crate) fn seat(&self) -> SeatId {
        self.shared().kept.seat
    }

    /// The group that the log belongs to, if that is known.
    pub(crate) fn ring(&self) -> Option<RingId> {
        self.shared().kept.ring
    }

    /// Whether the log has any entry that the group decided.
    pub(crate) fn has_entries(&self) -> bool {
        self.shared().kept.last().is_some()
    }

    /// Makes the log belong to this group.
    pub(crate) async fn set_ring(&self, ring: RingId) -> io::Result<()> {
        self.keep(Fact::Ring(ring)).await
    }

    /// The newest snapshot.
    pub(crate) fn snapshot(&self) -> Option<KeptSnapshot> {
        self.shared().kept.snapshot.clone()
    }

    /// The last entry that was removed from the front.
    #[cfg(test)]
    pub(crate) fn purged(&self) -> Option<LogIdOf> {
        self.shared().kept.purged
    }

    /// Keeps a snapshot that this member made; returns when it will survive. One that is not news is not
    /// kept.
    pub(crate) async fn keep_snapshot(&self, snapshot: KeptSnapshot) -> io::Result<()> {
        self.keep_all(|kept| {
            kept.is_news(&snapshot).then_some(Fact::Snapshot(snapshot)).into_iter().collect()
        })
        .await
    }

    /// Keeps the snapshot of another member; returns when it will survive. Entries stay only if they are
    /// known to follow it.
    pub(crate) async fn install(&self, snapshot: KeptSnapshot) -> io::Result<()> {
        self.keep_all(|kept| {
            if !kept.is_news(&snapshot) {
                return Vec::new();
            }
            // In one record: a log that ends before its snapshot has a gap in which entries of an earlier
            // leader may be, which the consensus would take for a part of the log after a crash.
            let anew = (!kept.has(snapshot.last)).then_some(Fact::Anew(snapshot.last));
            std::iter::once(Fact::Snapshot(snapshot)).chain(anew).collect()
        })
        .await
    }

    /// Says that a snapshot could not be put in place. Entries that it was to replace are never purged.
    pub(crate) fn snapshot_failed(&self) {
        self.covered.send_modify(|covered| covered.has_failed = true);
    }

    /// Waits until there is a snapshot that has this entry; returns whether there is.
    ///
    /// When the consensus takes a snapshot of another member, it purges the entries at once, while the state
    /// machine is still reading the snapshot. Purged first, they would be gone after a crash, and the
    /// snapshot not there yet.
    async fn is_covered(&self, log_id: LogIdOf) -> bool {
        let mut covered = self.covered.subscribe();
        let is_known = |covered: &Covered| covered.has_failed || covered.next > log_id.index;
        let known = covered.wait_for(is_known).await.map(|covered| *covered);
        known.is_ok_and(|covered| covered.next > log_id.index)
    }

    /// Applies and writes a fact; returns when it will survive.
    async fn keep(&self, fact: Fact) -> io::Result<()> {
        self.keep_all(|_| vec![fact]).await
    }

    /// Applies and writes facts, all of them or none; returns when they will survive.
    async fn keep_all(&self, facts: impl FnOnce(&DurableState) -> Vec<Fact>) -> io::Result<()> {
        let (done, synced) = oneshot::channel();
        {
            let mut shared = self.shared();
            let facts = facts(&shared.kept);
            if facts.is_empty() {
                return Ok(());
            }
            let mut bytes = Vec::new();
            for fact in facts {
                fact.put(&mut bytes);
                shared.kept.take(fact).map_err(io::Error::other)?;
            }
            shared.write(bytes, move |written| drop(done.send(written)));
            // Whatever is written from now on follows these facts.
            self.covered.send_modify(|covered| covered.next = shared.kept.covered());
        }
        synced.await.unwrap_or_else(|_| Err(io::Error::other("the thread that writes the log ended")))
    }
}

impl Shared {
    /// Hands facts that were applied to the writer thread, in the order of the calls.
    fn write(&self, facts: Vec<u8>, done: impl FnOnce(io::Result<()>) + Send + 'static) {
        let Some(jobs) = &self.jobs else { return done(Ok(())) };
        // If the thread has ended, the caller notices because `done` is dropped.
        let _ = jobs.send(Job { facts, replaces: false, done: Box::new(done) });
    }

    /// Replaces the file if most of it is obsolete. Call it only when facts have survived that were written
    /// after the call before, so that the length of the file is not that before the last replacement.
    fn tidy(&self) {
        let [file, made] =
            [&self.lengths.file, &self.lengths.made].map(|bytes| bytes.load(Ordering::Acquire));
        let most = REPLACE_BYTES.max(made.saturating_mul(2));
        let Some(jobs) = self.jobs.as_ref().filter(|_| file > most) else { return };
        let facts = self.kept.facts();
        if facts.len() > RECORD_BYTES_MAX {
            return;
        }
        let _ = jobs.send(Job { facts, replaces: true, done: Box::new(|_| ()) });
    }
}

/// Creates the folder and locks it against other processes.
fn lock(folder: &Path) -> Result<File, CouncilError> {
    let failed = |source| CouncilError::Folder { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let lock = File::create(folder.join("lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(CouncilError::InUse { path: folder.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<EntryOf>, StorageError> {
        let from = match range.start_bound() {
            Bound::Included(&from) => from,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let shared = self.shared();
        let behind = shared.kept.entries.iter().skip(shared.kept.before(from));
        Ok(behind.take_while(|entry| range.contains(&entry.log_id.index)).cloned().collect())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<EntryOf>, StorageError> {
        let mut entries = self.try_get_log_entries(start..end).await?;
        if entries.first().is_some_and(|entry| entry.log_id.index != start) {
            // A member that led a moment ago purges without asking who still reads. Sent behind the entry
            // before `start`, these would be taken for other entries. Without any, a heartbeat is sent.
            entries.clear();
        }
        let mut changes = 0;
        let fits = entries.iter().take_while(|entry| {
            let is_first = changes == 0;
            changes += weight(entry);
            is_first || changes <= CHANGES_AT_ONCE
        });
        let count = fits.count();
        entries.truncate(count);
        Ok(entries)
    }
}

fn weight(entry: &EntryOf) -> usize {
    match &entry.payload {
        openraft::EntryPayload::Normal(changes) => changes.weight().max(1),
        _ => 1,
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let shared = self.shared();
        Ok(LogState { last_purged_log_id: shared.kept.purged, last_log_id: shared.kept.last() })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf) -> Result<(), StorageError> {
        self.keep(Fact::Vote(*vote)).await.map_err(|error| StorageIOError::write_vote(&error).into())
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf>, StorageError> {
        let mut vote = self.shared().kept.vote;
        // A leader that restarts would go on in its term, and take the last entry that it purged or applied
        // for all that is committed: it would confirm that it leads before it knows what it answered in its
        // former life. As a candidate it has to be elected again, in a term with an entry of its own.
        if let Some(vote) = vote.as_mut().filter(|vote| vote.leader_id.voted_for() == Some(self.seat())) {
            vote.committed = false;
        }
        Ok(vote)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = EntryOf> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut shared = self.shared();
        let is_written = shared.jobs.is_some();
        let mut facts = Vec::new();
        for entry in entries {
            if is_written {
                facts::put_entry(&entry, &mut facts);
            }
            let taken = shared.kept.take(Fact::Entry(entry));
            taken.map_err(|problem| StorageIOError::write_logs(&io::Error::other(problem)))?;
        }
        shared.write(facts, |written| callback.log_io_completed(written));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogIdOf) -> Result<(), StorageError> {
        let cut = self.keep(Fact::Cut(log_id.index)).await;
        cut.map_err(|error| StorageIOError::write_logs(&error).into())
    }

    async fn purge(&mut self, log_id: LogIdOf) -> Result<(), StorageError> {
        if !self.is_covered(log_id).await {
            let error = io::Error::other("the snapshot that replaces these entries is not there");
            return Err(StorageIOError::write_logs(&error).into());
        }
        let purged = self.keep(Fact::Purged(log_id)).await;
        self.shared().tidy();
        purged.map_err(|error| StorageIOError::write_logs(&error).into())
    }
}

//! A toy store that keeps its promises, and bugs that can be planted in it. The harness must pass the first
//! and catch the others.
//!
//! Everything is in memory, over a log of groups and dumps of the whole state; space is never reused. Slow
//! on large states, and simple enough to be right.

mod bug;
mod format;

use crate::state::{Content, Event, Key, Mutation, Range, RangeMove, State, Value};
use crate::subject::{Direction, Durability, Failure, Outcome, Recovery, Settings, Subject};
use atoll_disk::{Disk, DiskError};
use atoll_errors::ErrorKind;
pub use bug::ToyBug;
use format::{GROUP_HEADER_BYTES, GroupHeader, SUPERBLOCK_BYTES, Source, Superblock};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use twox_hash::XxHash3_64;

const SLOT_BYTES: u64 = 4096;
const SLOTS: [u64; 2] = [0, SLOT_BYTES];
const GROUP_ALIGNMENT: u64 = 512;
const RESERVE_BYTES: u64 = 256 * 1024;

/// The store.
pub struct Toy {
    inner: Mutex<Inner>,
    bug: Option<ToyBug>,
    checkpoint_bytes: u64,
}

struct Inner {
    disk: Arc<dyn Disk>,
    state: State,
    superblock: Superblock,
    /// Encoded events that are not in a group yet.
    buffer: Vec<u8>,
    log_end: u64,
    synced_to: u64,
    reserved_to: u64,
    chain: u64,
    sequence: u64,
    checkpoints: u64,
    is_broken: bool,
    // State that planted bugs carry until the store is opened again.
    is_unreadable: bool,
    was_refused: bool,
    is_garbled: bool,
}

/// A snapshot of a state.
pub struct ToySnapshot {
    content: Content,
    panics: bool,
}

impl Drop for ToySnapshot {
    fn drop(&mut self) {
        assert!(!self.panics || std::thread::panicking(), "planted");
    }
}

impl Toy {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, bug: ToyBug) -> bool {
        self.bug == Some(bug)
    }

    fn commit(&self, event: &Event, durability: Durability) -> Outcome<u64> {
        let inner = &mut *self.inner();
        inner.check_working()?;
        if self.has(ToyBug::RefusedForEver) && inner.was_refused {
            return Err(failure(ErrorKind::OutOfSpace, "an earlier write was refused"));
        }
        if let Event::Move(range) = event
            && !inner.state.content.allows(range)
        {
            return Err(failure(ErrorKind::Conflict, "the range cannot move"));
        }
        let before = inner.buffer.len();
        if !self.is_left_out(event) {
            format::put_event(&mut inner.buffer, event);
        }
        let is_flushed = durability != Durability::Buffered && !self.has(ToyBug::FlushedIsBuffered);
        let is_flushed = is_flushed || durability == Durability::Synced;
        if is_flushed && let Err(failure) = inner.flush() {
            inner.buffer.truncate(before);
            inner.was_refused |= failure.is_refusal();
            if self.has(ToyBug::RefusedButApplied) {
                inner.state.apply(event);
            }
            return Err(failure);
        }
        inner.state.apply(event);
        inner.sequence += 1;
        if durability == Durability::Synced {
            inner.sync(self.bug)?;
        }
        let is_long = inner.log_end - inner.superblock.log_at > self.checkpoint_bytes;
        if is_long && let Err(failure) = inner.checkpoint(self.bug) {
            // The commit itself is in the log; a checkpoint that lacks space can wait.
            inner.is_broken |= !failure.is_refusal();
        }
        Ok(inner.sequence)
    }

    fn is_left_out(&self, event: &Event) -> bool {
        match event {
            Event::Write(batch) => {
                self.has(ToyBug::DeleteRangeNotLogged)
                    && batch.iter().any(|mutation| matches!(mutation, Mutation::DeleteRange { .. }))
            }
            Event::CreateSnapshot(_) | Event::DeleteSnapshot(_) => self.has(ToyBug::SnapshotNotLogged),
            Event::Move(_) => false,
        }
    }

    /// A sound toy reads only from memory. Some planted bugs read the disk as well, or fail every later
    /// read.
    fn check_readable(&self, inner: &mut Inner) -> Outcome<()> {
        if self.has(ToyBug::RefusalSpoilsReads) && inner.was_refused {
            return Err(failure(ErrorKind::Corrupt, "an earlier write was refused"));
        }
        if !self.has(ToyBug::ReadErrorKept) {
            return Ok(());
        }
        if inner.is_unreadable {
            return Err(failure(ErrorKind::Unavailable, "it could not be read before"));
        }
        let read = read_range(&*inner.disk, 0, SUPERBLOCK_BYTES as u64).map(drop);
        inner.is_unreadable = read.is_err();
        read
    }

    fn scan_content(
        &self,
        content: &Content,
        tree: usize,
        range: &Range,
        direction: Direction,
        limit: usize,
    ) -> Vec<(Key, Value)> {
        let all = content.scan(tree, range).map(|(key, value)| (key.clone(), value.clone()));
        match direction {
            Direction::Forward => all.take(limit).collect(),
            Direction::Backward => {
                all.rev().skip(usize::from(self.has(ToyBug::BackwardScanSkipsLast))).take(limit).collect()
            }
        }
    }
}

impl Inner {
    fn check_working(&self) -> Outcome<()> {
        if self.is_broken {
            let failure = failure(ErrorKind::Unavailable, "an earlier write failed; open the store again");
            return Err(Failure { is_final: true, ..failure });
        }
        Ok(())
    }

    /// Runs one step on the disk; any failure but a refusal makes the store unusable.
    fn attempt<T>(&mut self, step: impl FnOnce(&dyn Disk) -> Result<T, DiskError>) -> Outcome<T> {
        step(&*self.disk).map_err(|error| {
            let failure = from_disk(&error);
            self.is_broken |= !failure.is_refusal();
            failure
        })
    }

    fn reserve_to(&mut self, end: u64) -> Outcome<()> {
        if end > self.reserved_to {
            let from = self.reserved_to;
            let len = (end - from).next_multiple_of(RESERVE_BYTES);
            self.attempt(|disk| disk.reserve(from, len))?;
            self.reserved_to = from + len;
        }
        Ok(())
    }

    fn flush(&mut self) -> Outcome<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let header = GroupHeader {
            epoch: self.superblock.number,
            opening: self.superblock.openings,
            len: self.buffer.len() as u64,
            synced_to: self.synced_to,
            previous: self.chain,
            hash: 0,
        }
        .seal(&self.buffer);
        let at = self.log_end;
        let end = (at + GROUP_HEADER_BYTES as u64 + header.len).next_multiple_of(GROUP_ALIGNMENT);
        self.reserve_to(end)?;
        let mut group = Vec::with_capacity((end - at) as usize);
        group.extend(header.encode());
        group.extend(&self.buffer);
        group.resize((end - at) as usize, 0);
        self.attempt(|disk| disk.write_at(at, &group))?;
        self.buffer.clear();
        self.chain = header.hash;
        self.log_end = end;
        Ok(())
    }

    fn sync(&mut self, bug: Option<ToyBug>) -> Outcome<()> {
        self.check_working()?;
        self.flush()?;
        let outcome = match bug {
            Some(ToyBug::SyncDoesNothing) => Ok(()),
            Some(ToyBug::SyncErrorForgotten) => {
                let _ignored = self.disk.sync();
                Ok(())
            }
            _ => self.attempt(Disk::sync),
        };
        outcome?;
        self.synced_to = self.log_end;
        Ok(())
    }

    fn checkpoint(&mut self, bug: Option<ToyBug>) -> Outcome<()> {
        self.check_working()?;
        self.flush()?;
        let mut dump = Vec::new();
        if bug == Some(ToyBug::TreeForgottenInCheckpoint) {
            let mut state = self.state.clone();
            state.content.clear_tree(1);
            format::put_state(&mut dump, &state);
        } else {
            format::put_state(&mut dump, &self.state);
        }
        let dump_at = self.log_end.next_multiple_of(SLOT_BYTES);
        let log_at = (dump_at + dump.len() as u64).next_multiple_of(SLOT_BYTES);
        let superblock = Superblock {
            number: self.superblock.number + 1,
            openings: self.superblock.openings,
            dump_at,
            dump_len: dump.len() as u64,
            dump_hash: XxHash3_64::oneshot(&dump),
            log_at: if bug == Some(ToyBug::LogReplayedTwice) { self.superblock.log_at } else { log_at },
        };
        self.reserve_to(log_at)?;
        self.attempt(|disk| {
            disk.write_at(dump_at, &dump)?;
            if bug != Some(ToyBug::SuperblockBeforeDump) {
                disk.sync()?;
            }
            write_superblock(disk, &superblock, SLOTS)
        })?;
        self.superblock = superblock;
        if bug == Some(ToyBug::LogReplayedTwice) {
            return Ok(());
        }
        (self.log_end, self.synced_to, self.chain) = (log_at, log_at, superblock.number);
        self.checkpoints += 1;
        Ok(())
    }

    /// Replays the groups of the log. Ends at the first bad one, or fails if that one was synced.
    fn replay(&mut self, bug: Option<ToyBug>, recovery: &mut Recovery) -> Outcome<()> {
        let len = self.disk.len().map_err(|error| from_disk(&error))?;
        let log_at = self.superblock.log_at.min(len);
        let mut log = vec![0; (len - log_at) as usize];
        self.disk.read_at(log_at, &mut log).map_err(|error| from_disk(&error))?;
        let mut at = 0;
        while at < log.len() {
            if let Some((header, payload)) = self.group_at(&log, at, bug) {
                self.apply_payload(payload, bug);
                self.chain = header.hash;
                at = end_of_group(at, payload.len());
                recovery.groups_replayed += 1;
            } else if bug == Some(ToyBug::HoleSkipped) {
                at += GROUP_ALIGNMENT as usize;
                continue;
            } else {
                break;
            }
            self.log_end = self.superblock.log_at + at as u64;
        }
        self.synced_to = self.log_end;
        if bug == Some(ToyBug::TornGroupAccepted) {
            self.apply_payload(log.get(at + GROUP_HEADER_BYTES..).unwrap_or_default(), bug);
        }
        let rest = log.get(at..).unwrap_or_default();
        if bug != Some(ToyBug::TailCutBelowSynced) && self.is_synced_beyond(rest) {
            return Err(failure(ErrorKind::Corrupt, &format!("the log is damaged at {}", self.log_end)));
        }
        if rest.iter().any(|byte| *byte != 0) {
            recovery.cut = Some(format!("the log was cut at {}", self.log_end));
        }
        // After a failed sync the medium may lack what was read.
        let replayed = &log[..at.min(log.len())];
        let again = self.disk.write_at(log_at, replayed).and_then(|()| self.disk.sync());
        again.map_err(|error| from_disk(&error))
    }

    fn group_at<'a>(&self, log: &'a [u8], at: usize, bug: Option<ToyBug>) -> Option<(GroupHeader, &'a [u8])> {
        let (header, payload) = split_group(log, at)?;
        let is_next = header.epoch == self.superblock.number
            && (header.previous == self.chain
                || matches!(bug, Some(ToyBug::ChainNotChecked | ToyBug::HoleSkipped)));
        let is_whole = header.hash == header.hash_with(payload) || bug == Some(ToyBug::GroupHashNotChecked);
        (is_next && is_whole && header.len > 0).then_some((header, payload))
    }

    /// Whether a later group records that the position of the bad one had been synced.
    fn is_synced_beyond(&self, rest: &[u8]) -> bool {
        (GROUP_ALIGNMENT as usize..rest.len()).step_by(GROUP_ALIGNMENT as usize).any(|at| {
            split_group(rest, at).is_some_and(|(header, payload)| {
                header.epoch == self.superblock.number
                    && header.synced_to > self.log_end
                    && header.hash == header.hash_with(payload)
            })
        })
    }

    fn apply_payload(&mut self, payload: &[u8], bug: Option<ToyBug>) {
        let mut source = Source(payload);
        while let Some(mut event) = source.event(bug == Some(ToyBug::TornGroupAccepted)) {
            if let (Event::Write(batch), Some(ToyBug::BatchReplayedBackwards)) = (&mut event, bug) {
                batch.reverse();
            }
            self.state.apply(&event);
        }
    }
}

impl Subject for Toy {
    type Bug = ToyBug;
    type Snapshot = ToySnapshot;

    fn open(disk: Arc<dyn Disk>, settings: &Settings, bug: Option<ToyBug>) -> Outcome<(Self, Recovery)> {
        let mut recovery = Recovery::default();
        let (superblock, is_mended) = open_superblock(&*disk)?;
        recovery.checkpoint = superblock.number;
        recovery.is_superblock_mended = is_mended;
        let reserved_to = disk.len().map_err(|error| from_disk(&error))?;
        let (state, is_garbled) = read_dump(&*disk, &superblock, bug)?;
        let mut inner = Inner {
            state,
            superblock,
            buffer: Vec::new(),
            log_end: superblock.log_at,
            synced_to: superblock.log_at,
            reserved_to,
            chain: superblock.number,
            sequence: 0,
            checkpoints: 0,
            is_broken: false,
            is_unreadable: false,
            was_refused: false,
            is_garbled,
            disk,
        };
        inner.replay(bug, &mut recovery)?;
        if is_garbled && recovery.cut.is_none() {
            return Err(damaged_dump(&superblock));
        }
        recovery.is_clean = recovery.groups_replayed == 0 && recovery.cut.is_none();
        let toy = Self { inner: Mutex::new(inner), bug, checkpoint_bytes: settings.checkpoint_bytes };
        Ok((toy, recovery))
    }

    fn write(&self, batch: &[Mutation], durability: Durability) -> Outcome<u64> {
        self.commit(&Event::Write(batch.to_vec()), durability)
    }

    fn move_range(&self, range: &RangeMove, durability: Durability) -> Outcome<()> {
        self.commit(&Event::Move(range.clone()), durability).map(drop)
    }

    fn sync(&self) -> Outcome<()> {
        self.inner().sync(self.bug)
    }

    fn checkpoint(&self) -> Outcome<()> {
        self.inner().checkpoint(self.bug)
    }

    fn get(&self, tree: usize, key: &[u8]) -> Outcome<Option<Value>> {
        let mut inner = self.inner();
        self.check_readable(&mut inner)?;
        if inner.is_garbled {
            return Ok(Some(Value::from(&b"garbage"[..])));
        }
        Ok(inner.state.content.get(tree, key).cloned())
    }

    fn get_many(&self, tree: usize, keys: &[Key]) -> Outcome<Vec<Option<Value>>> {
        keys.iter().map(|key| self.get(tree, key)).collect()
    }

    fn scan(
        &self,
        tree: usize,
        range: &Range,
        direction: Direction,
        limit: usize,
    ) -> Outcome<Vec<(Key, Value)>> {
        let inner = self.inner();
        if inner.is_garbled {
            return Err(damaged_dump(&inner.superblock));
        }
        Ok(self.scan_content(&inner.state.content, tree, range, direction, limit))
    }

    fn snapshot(&self) -> ToySnapshot {
        ToySnapshot { content: self.inner().state.content.clone(), panics: self.has(ToyBug::SnapshotPanics) }
    }

    fn snapshot_get(&self, snapshot: &ToySnapshot, tree: usize, key: &[u8]) -> Outcome<Option<Value>> {
        if self.has(ToyBug::SnapshotSeesLater) {
            return self.get(tree, key);
        }
        Ok(snapshot.content.get(tree, key).cloned())
    }

    fn snapshot_scan(
        &self,
        snapshot: &ToySnapshot,
        tree: usize,
        range: &Range,
        direction: Direction,
        limit: usize,
    ) -> Outcome<Vec<(Key, Value)>> {
        Ok(self.scan_content(&snapshot.content, tree, range, direction, limit))
    }

    fn create_snapshot(&self, name: &str) -> Outcome<()> {
        self.commit(&Event::CreateSnapshot(name.to_owned()), Durability::Flushed).map(drop)
    }

    fn open_snapshot(&self, name: &str) -> Outcome<ToySnapshot> {
        let missing = || failure(ErrorKind::NotFound, "no such snapshot");
        let content = self.inner().state.snapshots.get(name).cloned().ok_or_else(missing)?;
        Ok(ToySnapshot { content, panics: false })
    }

    fn delete_snapshot(&self, name: &str) -> Outcome<()> {
        self.commit(&Event::DeleteSnapshot(name.to_owned()), Durability::Flushed).map(drop)
    }

    fn snapshot_names(&self) -> Vec<String> {
        self.inner().state.snapshots.keys().cloned().collect()
    }

    fn check(&self) -> Outcome<u64> {
        let inner = self.inner();
        let bytes = read_range(&*inner.disk, inner.superblock.dump_at, inner.superblock.dump_len)?;
        let is_whole = bytes.is_empty() || XxHash3_64::oneshot(&bytes) == inner.superblock.dump_hash;
        Ok(u64::from(!is_whole))
    }

    fn inside(&self) -> Vec<(&'static str, u64)> {
        vec![("checkpoints_by_themselves", self.inner().checkpoints)]
    }

    fn close(self) -> Outcome<()> {
        self.inner().checkpoint(self.bug)
    }
}

/// The newest intact superblock, or that of a new store, and whether the other copy was repaired.
fn open_superblock(disk: &dyn Disk) -> Outcome<(Superblock, bool)> {
    let (first, second) = (read_superblock(disk, 0)?, read_superblock(disk, SLOT_BYTES)?);
    let len = disk.len().map_err(|error| from_disk(&error))?;
    match [first, second].into_iter().flatten().max_by_key(|found| (found.number, found.openings)) {
        Some(superblock) => {
            let is_mended = first.is_none() || second.is_none();
            let order = if first == Some(superblock) { [SLOT_BYTES, 0] } else { [0, SLOT_BYTES] };
            let superblock = Superblock { openings: superblock.openings + 1, ..superblock };
            // After a kill everything may be in the page cache only, and the good copy must not be
            // overwritten before the other one is durable. Also, later groups will record that the log is
            // synced.
            let renewed = disk.sync().and_then(|()| write_superblock(disk, &superblock, order));
            renewed.map_err(|error| from_disk(&error))?;
            Ok((superblock, is_mended))
        }
        None if len <= 2 * SLOT_BYTES => {
            let superblock = Superblock { number: 1, log_at: 2 * SLOT_BYTES, ..Superblock::default() };
            write_superblock(disk, &superblock, SLOTS).map_err(|error| from_disk(&error))?;
            Ok((superblock, false))
        }
        None => Err(failure(ErrorKind::Corrupt, "both superblocks are damaged")),
    }
}

fn read_superblock(disk: &dyn Disk, at: u64) -> Outcome<Option<Superblock>> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    match disk.read_at(at, &mut bytes) {
        Ok(()) => Ok(Superblock::decode(&bytes)),
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(None),
        Err(error) => Err(from_disk(&error)),
    }
}

/// Writes both copies, one after the other, so that one of them is intact at any time.
fn write_superblock(disk: &dyn Disk, superblock: &Superblock, slots: [u64; 2]) -> Result<(), DiskError> {
    for at in slots {
        disk.write_at(at, &superblock.encode())?;
        disk.sync()?;
    }
    Ok(())
}

fn read_range(disk: &dyn Disk, at: u64, len: u64) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    disk.read_at(at, &mut bytes).map_err(|error| from_disk(&error))?;
    Ok(bytes)
}

/// The state of the last checkpoint, and whether it is not really that state because a planted bug let a
/// bad dump pass.
fn read_dump(disk: &dyn Disk, superblock: &Superblock, bug: Option<ToyBug>) -> Outcome<(State, bool)> {
    if superblock.dump_len == 0 {
        return Ok((State::default(), false));
    }
    let dump = read_range(disk, superblock.dump_at, superblock.dump_len)?;
    let is_whole =
        XxHash3_64::oneshot(&dump) == superblock.dump_hash || bug == Some(ToyBug::DumpHashNotChecked);
    let is_used = is_whole || bug == Some(ToyBug::GarbageBehindCut);
    let state = is_used.then(|| Source(&dump).state()).flatten();
    state.map(|state| (state, !is_whole)).ok_or_else(|| damaged_dump(superblock))
}

fn damaged_dump(superblock: &Superblock) -> Failure {
    failure(ErrorKind::Corrupt, &format!("the dump at {} is damaged", superblock.dump_at))
}

fn split_group(log: &[u8], at: usize) -> Option<(GroupHeader, &[u8])> {
    let (header, rest) = log.get(at..)?.split_first_chunk::<GROUP_HEADER_BYTES>()?;
    let header = GroupHeader::decode(header)?;
    let payload = rest.get(..usize::try_from(header.len).ok()?)?;
    Some((header, payload))
}

const fn end_of_group(at: usize, payload: usize) -> usize {
    (at + GROUP_HEADER_BYTES + payload).next_multiple_of(GROUP_ALIGNMENT as usize)
}

fn from_disk(error: &DiskError) -> Failure {
    told_by_kind(Failure::new(error.kind(), error))
}

fn failure(kind: ErrorKind, message: &str) -> Failure {
    told_by_kind(Failure { kind, message: message.to_owned(), is_unknown: false, is_final: false })
}

/// Makes a failure look like that of a store which knows only by a few kinds of errors that nothing
/// happened.
fn told_by_kind(failure: Failure) -> Failure {
    let is_known = matches!(failure.kind, ErrorKind::OutOfSpace | ErrorKind::ReadOnly | ErrorKind::Limit);
    Failure { is_unknown: !is_known, ..failure }
}

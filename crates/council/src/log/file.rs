//! The file of the log: its format, and how much of it is believed after a crash.
//! ```text
//!  file    | magic 8 | record | record | ...
//!  record  | checksum 8 | length 4 | number 8 | facts ... length bytes
//! ```
//! Little-endian. `checksum` is XXH3-64 of what follows it. A record is what was written and synced at once,
//! and the next one is written only after that. So a record that does not match its checksum is the torn end
//! of the file if no whole record with a higher number comes after it, and damage if one does.
//!
//! Invariant: a file is written whole under another name and then renamed, so its first record is never torn.
//! Invariant: a process relies only on what it has synced itself. Bytes that it reads may never have reached
//! the disk: the process before may have been killed between a write and its sync, or a sync may have failed,
//! after which the system regards the pages as clean.
//! Invariant: nothing after damage is believed, and damage is never cut off.

use super::facts::{DurableState, Fact};
use crate::CouncilError;
use crate::codec::{Coded, Reader, SavedState};
use crate::types::SeatId;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = *b"\x89atollc\n";

/// Bytes of a record before its facts.
const HEADER_BYTES: usize = 20;

/// Longest record that is written or believed, in bytes.
pub(super) const RECORD_BYTES_MAX: usize = 256 << 20;

/// Encodes a record.
fn record(number: u64, facts: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(facts.len()).ok().filter(|length| *length as usize <= RECORD_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("more at once than a record can hold"))?;
    let mut bytes = vec![0; 8];
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(facts);
    let checksum = XxHash3_64::oneshot(bytes.get(8..).unwrap_or_default());
    bytes.splice(..8, checksum.to_le_bytes());
    Ok(bytes)
}

/// The facts of the record at the front, if there is a whole one with this number or, if `or_later`, a higher
/// one.
fn facts_of(bytes: &[u8], number: u64, or_later: bool) -> Option<&[u8]> {
    let header = bytes.get(..HEADER_BYTES)?;
    let checksum = u64::from_le_bytes(header.get(..8)?.try_into().ok()?);
    let length = u32::from_le_bytes(header.get(8..12)?.try_into().ok()?) as usize;
    let found = u64::from_le_bytes(header.get(12..)?.try_into().ok()?);
    let is_likely = found == number || (or_later && found > number && found - number <= bytes.len() as u64);
    if !is_likely || length > RECORD_BYTES_MAX {
        return None;
    }
    let rest = bytes.get(8..HEADER_BYTES + length)?;
    if XxHash3_64::oneshot(rest) != checksum { None } else { rest.get(HEADER_BYTES - 8..) }
}

/// The contents of a file, where its last whole record ends, and the number of the next one.
#[derive(Debug)]
struct FileContents {
    kept: DurableState,
    end: usize,
    next: u64,
}

/// Reads the bytes of a file. An error names the place and the problem there.
fn read(bytes: &[u8]) -> Result<FileContents, (usize, &'static str)> {
    if bytes.get(..MAGIC.len()) != Some(&MAGIC[..]) {
        return Err((0, "not a log of a configuration group"));
    }
    let mut found = FileContents { kept: DurableState::new(SeatId::default()), end: MAGIC.len(), next: 0 };
    loop {
        let rest = bytes.get(found.end..).unwrap_or_default();
        let Some(facts) = facts_of(rest, found.next, false) else {
            let is_behind =
                |at: usize| facts_of(rest.get(at..).unwrap_or_default(), found.next + 1, true).is_some();
            if found.next == 0 || (1..rest.len()).any(is_behind) {
                return Err((found.end, "a record does not match its checksum, and others follow it"));
            }
            return Ok(found);
        };
        let mut reader = Reader::new(facts);
        while reader.left() > 0 {
            let fact = Fact::take(&mut reader).map_err(|damaged| (found.end, damaged.problem))?;
            if let Fact::Snapshot(snapshot) = &fact {
                // Here the place is known. Only the last snapshot is decoded, by whoever goes on from it.
                let checked = SavedState::checked(&snapshot.bytes.0);
                checked.map_err(|damaged| (found.end, damaged.problem))?;
            }
            found.kept.take(fact).map_err(|problem| (found.end, problem))?;
        }
        found.end += HEADER_BYTES + facts.len();
        found.next += 1;
    }
}

/// A file that is open for writing.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    next: u64,
    /// Where the last complete record ends.
    end: u64,
    /// Whether part of a record may stand after `end`, because there was no room for the rest.
    is_torn: bool,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Written {
    /// The facts will survive.
    Synced,
    /// The disk had no room for the facts: the log is as it was.
    NoRoom,
}

/// Whether the error means that the disk or the quota is full.
fn lacks_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl LogFile {
    /// Opens the file, or creates one with this seat. Returns the contents once they will survive: the
    /// consensus relies on a vote that it reads, and does not write it again.
    pub(crate) fn open(path: &Path, seat: SeatId) -> Result<(Self, DurableState), CouncilError> {
        let failed = |source| CouncilError::Folder { path: path.to_owned(), source };
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let kept = DurableState::new(seat);
                let made = Self::make(path, &kept.facts()).map_err(failed)?;
                return Ok((made, kept));
            }
            Err(error) => return Err(failed(error)),
        };
        let FileContents { kept, end, next } = read(&bytes).map_err(|(at, problem)| {
            CouncilError::Damaged { path: path.to_owned(), at: at as u64, problem }
        })?;
        if end < bytes.len() {
            tracing::warn!(path = %path.display(), at = end, bytes = bytes.len() - end, "a torn end was cut off");
        }
        // Into another file: pages for which a sync failed are not written again by the next sync of the same
        // file.
        let whole = write_beside(path, bytes.get(..end).unwrap_or_default()).and_then(|()| name(path));
        let file = whole.and_then(|()| OpenOptions::new().append(true).open(path)).map_err(failed)?;
        Ok((Self { path: path.to_owned(), file, next, end: end as u64, is_torn: false }, kept))
    }

    /// The length of the file, without a torn end.
    pub(crate) fn bytes(&self) -> u64 {
        self.end
    }

    /// Appends facts; returns when they will survive.
    pub(crate) fn append(&mut self, facts: &[u8]) -> io::Result<Written> {
        let record = record(self.next, facts)?;
        if self.is_torn {
            self.file.set_len(self.end)?;
        }
        self.is_torn = true;
        match self.file.write_all(&record) {
            Err(error) if lacks_room(&error) => return Ok(Written::NoRoom),
            written => written?,
        }
        // Whatever the error is, the contents of the disk are unknown then.
        self.file.sync_data()?;
        (self.next, self.end, self.is_torn) = (self.next + 1, self.end + record.len() as u64, false);
        Ok(Written::Synced)
    }

    /// Replaces the file by one with these facts.
    pub(crate) fn replace(&mut self, facts: &[u8]) -> io::Result<Written> {
        match write_beside(&self.path, &whole(facts)?) {
            Err(error) if lacks_room(&error) => return Ok(Written::NoRoom),
            written => written?,
        }
        *self = Self::named(&self.path, facts)?;
        Ok(Written::Synced)
    }

    /// Makes the disk look full from here on.
    #[cfg(test)]
    pub(crate) fn fill_disk(&mut self) -> File {
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        std::mem::replace(&mut self.file, full)
    }

    /// Creates a file with one record, completely or not at all.
    fn make(path: &Path, facts: &[u8]) -> io::Result<Self> {
        write_beside(path, &whole(facts)?)?;
        Self::named(path, facts)
    }

    /// Renames the file with these facts, which was written beside it, into place and opens it.
    fn named(path: &Path, facts: &[u8]) -> io::Result<Self> {
        name(path)?;
        let file = OpenOptions::new().append(true).open(path)?;
        let end = (MAGIC.len() + HEADER_BYTES + facts.len()) as u64;
        Ok(Self { path: path.to_owned(), file, next: 1, end, is_torn: false })
    }
}

/// The bytes of a file with one record.
fn whole(facts: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(record(0, facts)?);
    Ok(bytes)
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("unfinished")
}

/// Writes a file under a temporary name, for [`name`] to rename: so the file appears whole, or stays as it
/// was.
fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = File::create(unfinished(path)).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.inspect_err(|_| drop_unfinished(path))
}

fn name(path: &Path) -> io::Result<()> {
    std::fs::rename(unfinished(path), path).inspect_err(|_| drop_unfinished(path))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Removes the temporary file. The error is most likely a full disk, and others need the room.
fn drop_unfinished(path: &Path) {
    let _ = std::fs::remove_file(unfinished(path));
}

#[cfg(test)]
mod tests {
    use super::super::facts::KeptSnapshot;
    use super::*;
    use crate::codec::{RingId, saved_state};
    use crate::types::{Changes, EntryOf, LogIdOf, SnapshotBytes, SnapshotMetaOf};
    use atoll_replica::{Change, Slot, Version};
    use openraft::{EntryPayload, LeaderId, LogId, Vote};
    use std::sync::Arc;

    fn log_id(index: u64) -> LogIdOf {
        LogId { leader_id: LeaderId::new(1 + index / 7, SeatId(5)), index }
    }

    fn entry(index: u64) -> EntryOf {
        let change = Change::Recover { slot: Slot(index as u32), seen: Version(u64::MAX) };
        let payload = EntryPayload::Normal(Changes::new(vec![change]));
        EntryOf { log_id: log_id(index), payload }
    }

    /// A snapshot that ends with this entry.
    fn snapshot(last: u64) -> Fact {
        let meta = SnapshotMetaOf { last_log_id: Some(log_id(last)), ..SnapshotMetaOf::default() };
        let bytes = SnapshotBytes(Arc::new(saved_state().sealed()));
        Fact::Snapshot(KeptSnapshot::of(meta, bytes).unwrap())
    }

    /// Facts that make sense one after the other, each for a record of its own.
    fn some_facts(seed: u64) -> Vec<Fact> {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut next, mut first, mut covered) = (0, 0, 0);
        (0..random.usize(5..40))
            .map(|at| match random.u8(..9) {
                0 => Fact::Vote(Vote::new(at as u64, SeatId(random.u64(..9)))),
                1 => Fact::Ring(RingId(random.u64(..))),
                2 if next > first.max(covered) => {
                    next = random.u64(first.max(covered)..next);
                    Fact::Cut(next)
                }
                3 if covered > first => {
                    first = random.u64(first..covered) + 1;
                    Fact::Purged(log_id(first - 1))
                }
                4 if next > covered => {
                    covered = random.u64(covered..next) + 1;
                    snapshot(covered - 1)
                }
                5 if covered > first && covered == next => {
                    // The snapshot of another member, which has more than this log.
                    (first, next) = (covered, covered);
                    Fact::Anew(log_id(covered - 1))
                }
                _ => {
                    next += 1;
                    Fact::Entry(entry(next - 1))
                }
            })
            .collect()
    }

    fn append(file: &mut LogFile, fact: Fact) {
        assert_eq!(file.append(&fact.to_bytes()).unwrap(), Written::Synced);
    }

    /// Writes a file with a record for each fact; returns where each record ends, and the state at that
    /// point.
    fn written(path: &Path, facts: &[Fact]) -> Vec<(u64, DurableState)> {
        let (mut file, mut kept) = LogFile::open(path, SeatId(5)).unwrap();
        let mut after = vec![(std::fs::metadata(path).unwrap().len(), kept.clone())];
        for fact in facts {
            append(&mut file, fact.clone());
            kept.take(fact.clone()).unwrap();
            after.push((std::fs::metadata(path).unwrap().len(), kept.clone()));
        }
        after
    }

    #[test]
    fn what_was_written_is_found_and_the_seat_stays() {
        let folder = tempfile::tempdir().unwrap();
        for seed in 0..20 {
            let path = folder.path().join(format!("{seed}"));
            let after = written(&path, &some_facts(seed));
            let (mut file, kept) = LogFile::open(&path, SeatId(6)).unwrap();
            assert_eq!(kept, after.last().unwrap().1, "seed {seed}");
            assert_eq!(file.replace(&kept.facts()).unwrap(), Written::Synced);
            append(&mut file, Fact::Ring(RingId(1)));
            let (_, again) = LogFile::open(&path, SeatId(6)).unwrap();
            assert_eq!(again, DurableState { ring: Some(RingId(1)), ..kept }, "seed {seed}");
        }
    }

    #[test]
    fn what_is_read_is_written_to_another_file_before_it_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let after = written(&path, &some_facts(1));
        let before = File::open(&path).unwrap();
        let (mut file, kept) = LogFile::open(&path, SeatId(6)).unwrap();
        append(&mut file, Fact::Ring(RingId(1)));
        let (length, believed) = after.last().unwrap();
        assert_eq!(kept, *believed);
        assert_eq!(
            before.metadata().unwrap().len(),
            *length,
            "the file that was found is written to no more"
        );
        assert!(std::fs::metadata(&path).unwrap().len() > *length);
        assert_eq!(LogFile::open(&path, SeatId(6)).unwrap().1.ring, Some(RingId(1)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn a_torn_end_is_cut_off_and_all_before_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        for seed in 0..3 {
            let path = folder.path().join("log");
            let _ = std::fs::remove_file(&path);
            let after = written(&path, &some_facts(seed));
            let bytes = std::fs::read(&path).unwrap();
            let (start, before) = &after[after.len() - 2];
            for end in *start as usize..bytes.len() {
                let mut torn = bytes[..end].to_vec();
                if end % 2 == 0 {
                    // The file was extended, but the bytes never arrived.
                    torn.resize(bytes.len() + 100, 0);
                }
                if torn.starts_with(&bytes) {
                    continue;
                }
                std::fs::write(&path, torn).unwrap();
                let (mut file, kept) = LogFile::open(&path, SeatId(5)).unwrap();
                assert_eq!(kept, *before, "seed {seed}, cut at {end}");
                append(&mut file, Fact::Ring(RingId(9)));
                let (_, again) = LogFile::open(&path, SeatId(5)).unwrap();
                assert_eq!(again.ring, Some(RingId(9)));
            }
        }
    }

    #[test]
    fn damage_before_the_last_record_is_an_error_that_names_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let after = written(&path, &some_facts(3));
        let bytes = std::fs::read(&path).unwrap();
        let last = after[after.len() - 2].0 as usize;
        for at in 0..last {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&path, &damaged).unwrap();
            let place = after.iter().map(|(end, _)| *end).rfind(|end| *end <= at as u64);
            let first = if at < MAGIC.len() { 0 } else { MAGIC.len() as u64 };
            match LogFile::open(&path, SeatId(5)) {
                Err(CouncilError::Damaged { at: found, .. }) => {
                    assert_eq!(found, place.unwrap_or(first), "byte {at}");
                }
                other => panic!("byte {at}: {other:?}"),
            }
            assert_eq!(std::fs::read(&path).unwrap(), damaged, "damage is left as it is");
        }
    }

    #[test]
    fn a_gap_between_entries_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut file, _) = LogFile::open(&path, SeatId(5)).unwrap();
        append(&mut file, Fact::Entry(entry(0)));
        append(&mut file, Fact::Entry(entry(2)));
        assert!(matches!(LogFile::open(&path, SeatId(5)), Err(CouncilError::Damaged { .. })));
    }

    #[test]
    fn entries_that_are_removed_and_that_no_snapshot_has_are_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut file, _) = LogFile::open(&path, SeatId(5)).unwrap();
        (0..6).for_each(|index| append(&mut file, Fact::Entry(entry(index))));
        append(&mut file, snapshot(3));
        append(&mut file, Fact::Purged(log_id(3)));
        assert_eq!(LogFile::open(&path, SeatId(5)).unwrap().1.entries.len(), 2);
        for removed in [Fact::Purged(log_id(4)), Fact::Anew(log_id(4))] {
            let (mut file, _) = LogFile::open(&path, SeatId(5)).unwrap();
            let before = std::fs::read(&path).unwrap();
            append(&mut file, removed);
            match LogFile::open(&path, SeatId(5)) {
                Err(CouncilError::Damaged { at, problem, .. }) => {
                    assert_eq!(
                        (at, problem),
                        (before.len() as u64, "entries are removed that no snapshot has")
                    );
                }
                other => panic!("{other:?}"),
            }
            std::fs::write(&path, before).unwrap();
        }
    }

    #[test]
    fn a_snapshot_that_is_wrong_in_an_intact_record_is_an_error_that_names_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut file, _) = LogFile::open(&path, SeatId(5)).unwrap();
        append(&mut file, Fact::Entry(entry(0)));
        let place = std::fs::metadata(&path).unwrap().len();
        let Fact::Snapshot(mut wrong) = snapshot(0) else { unreachable!() };
        let mut bytes = saved_state().sealed();
        bytes[20] ^= 1;
        wrong.bytes = SnapshotBytes(Arc::new(bytes));
        append(&mut file, Fact::Snapshot(wrong));
        match LogFile::open(&path, SeatId(5)) {
            Err(CouncilError::Damaged { path: named, at, problem }) => {
                assert_eq!((named, at), (path, place));
                assert_eq!(problem, "a snapshot does not match its checksum");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_there_was_no_room_for_is_written_once_there_is_some() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut file, _) = LogFile::open(&path, SeatId(5)).unwrap();
        for number in 0..4 {
            // A device without room, and then part of a record, as if there was room for that much.
            let fact = Fact::Entry(entry(number)).to_bytes();
            let disk = file.fill_disk();
            assert_eq!(file.append(&fact).unwrap(), Written::NoRoom);
            file.file = disk;
            let part = number as usize * 9;
            file.file.write_all(&record(file.next, &fact).unwrap()[..part]).unwrap();
            append(&mut file, Fact::Entry(entry(number)));
        }
        assert_eq!(LogFile::open(&path, SeatId(6)).unwrap().1.entries, (0..4).map(entry).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_that_could_not_be_written_leaves_nothing_unfinished_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let full = || std::os::unix::fs::symlink("/dev/full", unfinished(&path)).unwrap();
        let names = || {
            let names = std::fs::read_dir(folder.path()).unwrap();
            names.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        let lacks_room = |opened| match opened {
            Err(CouncilError::Folder { source, .. }) => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        };
        full();
        assert!(lacks_room(LogFile::open(&path, SeatId(5))));
        assert!(names().is_empty(), "a new log: {:?}", names());
        let (mut file, kept) = LogFile::open(&path, SeatId(5)).unwrap();
        append(&mut file, Fact::Ring(RingId(1)));
        full();
        assert!(lacks_room(LogFile::open(&path, SeatId(5))));
        assert_eq!(names(), ["log"], "one that was there");
        full();
        assert_eq!(file.replace(&kept.facts()).unwrap(), Written::NoRoom);
        assert_eq!(names(), ["log"], "one that is made anew");
        assert_eq!(LogFile::open(&path, SeatId(6)).unwrap().1.ring, Some(RingId(1)));
        // A name that the file cannot have.
        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).unwrap();
        write_beside(&taken, b"log").unwrap();
        assert!(name(&taken).is_err());
        assert!(!unfinished(&taken).exists());
    }
}

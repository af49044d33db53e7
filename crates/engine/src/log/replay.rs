//! The reading end of the log: what was committed after the last checkpoint, and where the log ends.

use super::Signpost;
use super::{
    GROUP_HEADER, GROUP_MAGIC, GroupHeader, JUMP_MAGIC, LogPoint, SEGMENT_HEADER, group_checksum,
    segment_header,
};
use crate::backing::Backing;
use crate::options::SEGMENT_BYTES_MAX;
use crate::planted::{self, Bug};
use crate::space::Extent;
use crate::{Damage, EngineError};
use atoll_disk::{DiskError, Operation};
use std::io;
use std::sync::Arc;

/// Most bytes of a segment that are read: no group reaches 4 GiB, and no segment is longer than its group
/// needs and the options allow. A forged store may name all of a file with terabytes of holes.
const READ_MAX: u64 = (4 << 30) + SEGMENT_BYTES_MAX;

/// A segment in memory while it is replayed.
type SegmentBytes = Arc<Vec<u8>>;

/// Reads groups one after the other from a point of the log.
pub(crate) struct Replay<'a> {
    backing: &'a Backing,
    point: LogPoint,
    bytes: SegmentBytes,
    /// Position up to which the log is known to have been synced.
    synced: u64,
    /// Where it started.
    from: LogPoint,
    /// Segments that were entered by a jump.
    entered: Vec<LogPoint>,
    signpost: Option<Signpost>,
    /// Whether everything before a damage that lies below the synced end is accepted.
    salvages: bool,
}

/// A group that was read and verified.
pub(crate) struct Group {
    pub(crate) sequence: u64,
    /// The point behind it.
    pub(crate) next: LogPoint,
    /// Offset in the file of its payload.
    pub(crate) payload_offset: u64,
    bytes: SegmentBytes,
    payload: (usize, usize),
}

impl Group {
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[self.payload.0..self.payload.1]
    }
}

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) point: LogPoint,
    /// Bytes behind the end that held torn or unchained groups, if any.
    pub(crate) cut_bytes: u64,
    /// Whether some of them had been synced.
    pub(crate) was_synced: bool,
}

/// What lies at a position.
enum LogEntry {
    Group(GroupHeader),
    Jump(GroupHeader, LogPoint),
    /// No group: nothing, a torn one, or one from an earlier life of this space.
    Nothing,
}

impl<'a> Replay<'a> {
    /// Starts at `point`; the log was synced at least up to `synced`.
    pub(crate) fn start(backing: &'a Backing, point: LogPoint, synced: u64) -> Result<Self, EngineError> {
        let bytes = read_segment(backing, point.segment)?;
        Ok(Self {
            backing,
            point,
            bytes,
            synced,
            from: point,
            entered: Vec::new(),
            signpost: None,
            salvages: false,
        })
    }

    /// Where to look for more of the log if it seems to end early. The signpost was read before the log.
    pub(crate) fn with_signpost(self, signpost: Option<Signpost>) -> Self {
        Self { signpost, ..self }
    }

    /// Whether everything before a damage is accepted as the whole log.
    pub(crate) fn salvaging(self, salvages: bool) -> Self {
        Self { salvages, ..self }
    }

    pub(crate) fn point(&self) -> LogPoint {
        self.point
    }

    /// Position up to which the log is known to have been synced.
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    pub(crate) fn entered(&self) -> &[LogPoint] {
        &self.entered
    }

    /// The extents of the log from the position that is known to have been synced up to `end`: a part of each
    /// segment, including its header and the jump at its end.
    pub(crate) fn unsynced(&self, end: &LogPoint) -> Vec<Extent> {
        let mut parts = Vec::new();
        for segment in std::iter::once(&self.from).chain(&self.entered) {
            let segment_end = segment.start + segment.segment.len;
            let until = if segment.number == end.number { end.position } else { segment_end };
            let from = segment.start.max(self.synced);
            if segment.number <= end.number && from < until {
                parts.push(Extent { offset: segment.offset_of(from), len: until - from });
            }
        }
        parts
    }

    /// The next group, or none at the end of the log.
    pub(crate) fn next(&mut self) -> Result<Option<Group>, EngineError> {
        loop {
            match self.look_at(&self.point, &self.bytes) {
                LogEntry::Group(header)
                    if (header.chain == self.point.chain
                        && header.sequence == self.point.sequence.wrapping_add(1))
                        || planted::is(Bug::ChainIgnored) =>
                {
                    return Ok(Some(self.take(header)));
                }
                LogEntry::Jump(header, next)
                    if header.chain == self.point.chain
                        && self.point.leads_to(&next)
                        && self.has_header(&next)? =>
                {
                    self.synced = self.synced.max(header.synced);
                    self.enter(next)?;
                }
                LogEntry::Group(_) | LogEntry::Jump(..) | LogEntry::Nothing => return Ok(None),
            }
        }
    }

    fn take(&mut self, header: GroupHeader) -> Group {
        let position = self.point.position;
        let at = (position - self.point.start) as usize;
        self.synced = self.synced.max(header.synced);
        self.point.position += header.stride();
        self.point.chain = header.checksum;
        self.point.sequence = header.sequence;
        Group {
            sequence: header.sequence,
            next: self.point,
            payload_offset: self.point.offset_of(position) + GROUP_HEADER as u64,
            bytes: Arc::clone(&self.bytes),
            payload: (at + GROUP_HEADER, at + GROUP_HEADER + header.payload as usize),
        }
    }

    fn enter(&mut self, next: LogPoint) -> Result<(), EngineError> {
        self.bytes = read_segment(self.backing, next.segment)?;
        self.point = next;
        self.entered.push(next);
        Ok(())
    }

    /// Ends the replay at `at`, a point where no group follows, or whose next group is refused.
    ///
    /// Searches further on for groups which say that the log was synced beyond this point: then this is no
    /// torn tail.
    pub(crate) fn end(&mut self, at: LogPoint) -> Result<LogEnd, EngineError> {
        if at.segment != self.point.segment {
            self.bytes = read_segment(self.backing, at.segment)?;
        }
        self.point = at;
        let ahead = self.look_ahead(at)?;
        let synced = self.synced.max(ahead.synced);
        let was_synced = synced > at.position;
        if was_synced && !self.salvages && !planted::is(Bug::CutBelowSyncedEnd) {
            let offset = at.offset_of(at.position);
            return Err(self.backing.corrupt(offset, Damage::LogBeforeSyncedEnd));
        }
        self.entered.retain(|entered| entered.number <= at.number);
        Ok(LogEnd { point: at, cut_bytes: ahead.bytes, was_synced })
    }

    /// Groups anywhere behind `at` that pass their own checksum, chained or not, and that may be of this log.
    fn look_ahead(&self, at: LogPoint) -> Result<BytesAhead, EngineError> {
        let mut ahead = BytesAhead { synced: 0, bytes: 0 };
        let mut point = at;
        let mut bytes = Arc::clone(&self.bytes);
        // A torn group right at the end counts as cut even if no intact one follows. There is one if its
        // magic says so or, in case the magic is what is damaged, if it is chained to the group before.
        let here = (at.position - at.start) as usize;
        if let Some(head) = bytes.get(here..here + GROUP_HEADER)
            && matches!(self.look_at(&at, &bytes), LogEntry::Nothing)
        {
            let chained = at.chain != 0 && head[24..32] == at.chain.to_le_bytes();
            match GroupHeader::decode(head) {
                Ok(header) => ahead.bytes = header.stride().min(at.room()),
                Err(_) if chained => ahead.bytes = GROUP_HEADER as u64,
                Err(_) => {}
            }
        }
        let mut segments = 0u64;
        let mut signpost = self.signpost.filter(|signpost| signpost.start > at.position);
        loop {
            if point.room() <= GROUP_HEADER as u64 {
                // No jump led on from here, but a damaged one may have.
                let Some(lost) = signpost.take_if(|signpost| signpost.number > point.number) else { break };
                bytes = read_segment(self.backing, lost.segment)?;
                let (segment, number, start) = (lost.segment, lost.number, lost.start);
                point = LogPoint { segment, number, start, position: start + SEGMENT_HEADER, ..at };
                ahead.bytes = ahead.bytes.max(point.position - at.position);
                continue;
            }
            let may_follow =
                header_at(&point, &bytes).is_some_and(|head| head.may_follow(&at, point.position));
            let entry = if may_follow { self.look_at(&point, &bytes) } else { LogEntry::Nothing };
            match entry {
                LogEntry::Group(header) => {
                    ahead.synced = ahead.synced.max(header.synced);
                    // A jump from a former life may lead back to positions that this one has passed.
                    let end = point.position + header.stride();
                    ahead.bytes = ahead.bytes.max(end.saturating_sub(at.position));
                    point.position += header.stride();
                }
                // The header of the next segment may be what is damaged, so it is not checked here.
                LogEntry::Jump(header, next) if next.number > point.number && segments < 1 << 20 => {
                    ahead.synced = ahead.synced.max(header.synced);
                    bytes = read_segment(self.backing, next.segment)?;
                    point = next;
                    segments += 1;
                }
                _ => {
                    let from = (point.position - point.start) as usize + 8;
                    let candidate = next_candidate(&bytes, from).map(|candidate| candidate as u64);
                    point.position = point.start + candidate.unwrap_or(point.segment.len);
                }
            }
        }
        Ok(ahead)
    }

    /// What lies at `point`, judged by its own checksum; the caller checks whether it is chained.
    fn look_at(&self, point: &LogPoint, bytes: &[u8]) -> LogEntry {
        let Some(header) = header_at(point, bytes) else { return LogEntry::Nothing };
        let at = (point.position - point.start) as usize;
        let body = at + GROUP_HEADER;
        let Some(payload) = bytes.get(body..body + header.payload as usize) else { return LogEntry::Nothing };
        let sum = group_checksum(self.backing.store_id(), point.position, &bytes[at..at + 32], payload);
        if sum != header.checksum && !planted::is(Bug::GroupChecksumIgnored) {
            return LogEntry::Nothing;
        }
        if header.magic == GROUP_MAGIC {
            return LogEntry::Group(header);
        }
        match LogPoint::from_jump(payload, header.sequence) {
            Ok(next) => LogEntry::Jump(header, next),
            Err(_) => LogEntry::Nothing,
        }
    }

    /// Whether the segment that begins at `next` has the header that belongs there.
    fn has_header(&self, next: &LogPoint) -> Result<bool, EngineError> {
        let mut found = [0; SEGMENT_HEADER as usize];
        let end = self.backing.disk().map_or(Ok(0), |disk| disk.len())?;
        if next.segment.offset.saturating_add(SEGMENT_HEADER) > end {
            return Ok(false);
        }
        self.backing.read(next.segment.offset, &mut found)?;
        Ok(found == segment_header(self.backing.store_id(), next))
    }
}

struct BytesAhead {
    synced: u64,
    bytes: u64,
}

/// The header at `point`, if it looks like one.
fn header_at(point: &LogPoint, bytes: &[u8]) -> Option<GroupHeader> {
    let at = (point.position - point.start) as usize;
    GroupHeader::decode(bytes.get(at..at + GROUP_HEADER)?).ok()
}

/// The next multiple of eight at or after `from` where a group may start.
fn next_candidate(bytes: &[u8], from: usize) -> Option<usize> {
    let magics = [GROUP_MAGIC.to_le_bytes(), JUMP_MAGIC.to_le_bytes()];
    let start = from.next_multiple_of(8);
    let rest = bytes.get(start..)?;
    let found = rest.chunks_exact(8).position(|chunk| magics.iter().any(|magic| chunk.starts_with(magic)))?;
    Some(start + found * 8)
}

/// The bytes of a segment, up to the end of the file.
fn read_segment(backing: &Backing, segment: Extent) -> Result<SegmentBytes, EngineError> {
    let end = match backing.disk() {
        Some(disk) => disk.len()?,
        None => 0,
    };
    let there = end.saturating_sub(segment.offset).min(segment.len);
    if there > READ_MAX {
        return Err(backing.corrupt(segment.offset, Damage::LogContent));
    }
    // A vector that finds no memory ends the process; this one only asks.
    Vec::<u8>::new().try_reserve_exact(there as usize).map_err(|_| DiskError {
        operation: Operation::Read,
        name: backing.name(),
        offset: segment.offset,
        source: io::Error::new(io::ErrorKind::OutOfMemory, "no memory for a log segment"),
    })?;
    let mut bytes = vec![0; there as usize];
    backing.read(segment.offset, &mut bytes)?;
    Ok(Arc::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::{END_BYTES, JUMP_BYTES, group_bytes};
    use super::*;
    use crate::codec::Encode;
    use atoll_disk::{Disk, MemoryDisk, Relay};
    use std::sync::atomic::{AtomicUsize, Ordering};

    const STORE: u64 = 7;
    const SEGMENT: u64 = 4096;

    /// A disk that fails once it was read so often that its reader must be going in circles.
    struct Patient(MemoryDisk, AtomicUsize);

    impl Relay for Patient {
        fn inner(&self) -> &dyn Disk {
            &self.0
        }

        fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
            if self.1.fetch_add(1, Ordering::Relaxed) < 100 {
                return self.0.read_at(offset, target);
            }
            let source = io::Error::other("read too often");
            Err(DiskError { operation: Operation::Read, name: "patient".to_owned(), offset, source })
        }
    }

    /// The log of every case goes on from here, in the first of two segments.
    fn first() -> LogPoint {
        let segment = Extent { offset: SEGMENT, len: SEGMENT };
        let position = 5000 + SEGMENT_HEADER;
        LogPoint { segment, number: 3, start: 5000, position, chain: 11, sequence: 20 }
    }

    /// Where the first jump from there leads.
    fn second() -> LogPoint {
        first().jump_to(Extent { offset: 2 * SEGMENT, len: SEGMENT }, 9).0
    }

    /// A disk with a jump at [`first`] that leads to `next`, where one group lies, unless that is the place
    /// of the jump. Every checksum is right.
    fn jumping_to(next: &LogPoint) -> Arc<dyn Disk> {
        let disk = MemoryDisk::with_bytes(vec![0; 3 * SEGMENT as usize]);
        let write = |offset: u64, bytes: &[u8]| disk.write_at(offset, bytes).unwrap();
        let group = LogPoint { sequence: next.sequence + 1, ..*next };
        write(next.offset_of(next.position), &group_bytes(STORE, &group, GROUP_MAGIC, 0, &[5; 24]));
        write(next.segment.offset, &segment_header(STORE, next));
        let mut payload = Vec::new();
        let LogPoint { segment, number, start, chain, .. } = *next;
        for word in [segment.offset, segment.len, number, start, 9, chain] {
            payload.put_u64(word);
        }
        let jump = group_bytes(STORE, &first(), JUMP_MAGIC, 0, &payload);
        assert_eq!(jump.len() as u64, JUMP_BYTES);
        write(first().offset_of(first().position), &jump);
        Arc::new(Patient(disk, AtomicUsize::new(0)))
    }

    /// The points behind the groups that are found, and the end of the log.
    fn replayed(disk: Arc<dyn Disk>) -> Result<(Vec<LogPoint>, LogEnd), EngineError> {
        let backing = Backing::new(Some(disk), STORE, 1 << 20);
        let mut replay = Replay::start(&backing, first(), first().position)?;
        let mut found = Vec::new();
        while let Some(group) = replay.next()? {
            found.push(group.next);
        }
        let at = replay.point();
        Ok((found, replay.end(at)?))
    }

    #[test]
    fn a_jump_leads_to_the_segment_behind_this_one_and_nowhere_else() {
        let (found, end) = replayed(jumping_to(&second())).unwrap();
        assert_eq!((found.len(), end.point.number), (1, 4), "a true jump");
        assert_eq!(found[0].position, second().position + 64);
        let begin = |start: u64| LogPoint { start, position: start + SEGMENT_HEADER, ..second() };
        let short = Extent { len: SEGMENT_HEADER + END_BYTES - 8, ..second().segment };
        for (next, what) in [
            (first(), "to itself"),
            (begin(100), "to an earlier position"),
            (begin(second().start - 8), "into the jump"),
            (begin(second().start + 8), "to a later position"),
            (LogPoint { number: 3, ..second() }, "to a segment of the same number"),
            (LogPoint { number: 5, ..second() }, "past a number"),
            (LogPoint { segment: short, ..second() }, "to a segment without room for a jump"),
        ] {
            let (found, end) = replayed(jumping_to(&next)).unwrap();
            assert_eq!((found, end.point), (Vec::new(), first()), "{what}");
        }
    }

    /// A disk that is very long, and on which nothing was ever written.
    struct Endless;

    impl Disk for Endless {
        fn read_at(&self, _offset: u64, _target: &mut [u8]) -> Result<(), DiskError> {
            Ok(())
        }

        fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<(), DiskError> {
            Ok(())
        }

        fn sync(&self) -> Result<(), DiskError> {
            Ok(())
        }

        fn reserve(&self, _offset: u64, _len: u64) -> Result<(), DiskError> {
            Ok(())
        }

        fn truncate(&self, _len: u64) -> Result<(), DiskError> {
            Ok(())
        }

        fn len(&self) -> Result<u64, DiskError> {
            Ok(1 << 58)
        }

        fn name(&self) -> &str {
            "endless"
        }
    }

    #[test]
    fn a_segment_longer_than_any_can_be_is_damage_and_takes_no_memory() {
        let backing = Backing::new(Some(Arc::new(Endless)), STORE, 1 << 20);
        for len in [READ_MAX + 1, 1 << 50] {
            let read = read_segment(&backing, Extent { offset: SEGMENT, len }).map(|bytes| bytes.len());
            let is_told = matches!(
                read,
                Err(EngineError::Corrupt { offset: SEGMENT, problem: Damage::LogContent, .. })
            );
            assert!(is_told, "{len}: {read:?}");
        }
        let read = read_segment(&backing, Extent { offset: SEGMENT, len: SEGMENT }).unwrap();
        assert_eq!(read.len() as u64, SEGMENT);
    }
}

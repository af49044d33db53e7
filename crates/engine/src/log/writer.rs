//! The writing end of the log: one open group at a time, encoded in the buffer that it is written from.

use super::Signpost;
use super::{
    END_BYTES, GROUP_HEADER, GROUP_MAGIC, GroupHeader, JUMP_BYTES, JUMP_MAGIC, LogPoint, SEGMENT_HEADER,
    group_bytes, group_checksum, segment_header,
};
use crate::backing::Backing;
use crate::record::Record;
use crate::space::Extent;
use crate::value::Piece;
use atoll_disk::{Ahead, Disk, DiskError, Window};
use std::sync::Arc;

/// Bytes that may wait in memory before they are handed to the disk.
const PENDING_MAX: usize = 256 << 10;

/// Groups up to this many bytes are copied into a window instead of being written: at this size, both cost
/// about the same.
const COPIED_MAX: usize = 16 << 10;

/// Length of a window on the log, in bytes.
const WINDOW_BYTES: u64 = 8 << 20;

/// Bytes of the record that begins the first group of a life.
const OPENED_BYTES: usize = 9;

/// The writing end of the log.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    store_id: u64,
    point: LogPoint,
    /// Groups that were not handed to the disk yet; the first starts at `flushed`.
    pending: Vec<u8>,
    flushed: u64,
    /// Where small groups are copied to, as long as they lie within; none where the disk has no windows.
    window: Option<Window>,
    /// The previous window, to be dropped by the caller that has released the log.
    former: Option<Window>,
    has_no_windows: bool,
    /// Whether the next segment was asked for already.
    is_next_wanted: bool,
    /// Pieces whose home is in a pending group.
    unsettled: Vec<(Piece, u64)>,
    life: u64,
    /// Whether this life has not written a group yet.
    is_fresh: bool,
    signpost: SignpostPlace,
}

/// Where the signpost lies, if the store has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignpostPlace {
    /// Offset in the file; 0 for none.
    pub(crate) offset: u64,
    /// Whether it points elsewhere than to where the log goes on, so that it must not stay once the log does.
    pub(crate) is_stale: bool,
}

/// Work that the log leaves to the caller that has released it. Each item takes as long as a hundred small
/// groups, or longer.
#[derive(Default)]
#[must_use = "the work is left undone if it is dropped"]
pub(crate) struct Chores {
    /// Pages that the window will need soon.
    pages: Option<Ahead>,
    /// A window that has ended and is to be unmapped.
    pub(crate) former: Option<Window>,
    /// Whether the next segment is to be prepared.
    pub(crate) wants_segment: bool,
}

impl Chores {
    /// Does the work that is left to this thread.
    pub(crate) fn run(self) {
        self.pages.into_iter().for_each(Ahead::ask);
        drop(self.former);
    }
}

/// What is needed to restore the log to its state before a group was begun.
pub(crate) struct Prepared {
    group_at: usize,
    unsettled: usize,
    was_fresh: bool,
}

impl Log {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        store_id: u64,
        life: u64,
        point: LogPoint,
        signpost: SignpostPlace,
    ) -> Self {
        Self {
            disk,
            store_id,
            point,
            pending: Vec::new(),
            flushed: point.position,
            window: None,
            former: None,
            has_no_windows: false,
            is_next_wanted: false,
            unsettled: Vec::new(),
            life,
            is_fresh: true,
            signpost,
        }
    }

    /// The same log, written by calls only.
    pub(crate) fn without_windows(self) -> Self {
        Self { has_no_windows: true, ..self }
    }

    /// Drops the windows, and waits for whatever still prepares their pages for this log. From here on,
    /// writes are made by calls.
    pub(crate) fn end_windows(&mut self) {
        self.has_no_windows = true;
        (self.window, self.former) = (None, None);
    }

    pub(crate) fn point(&self) -> LogPoint {
        self.point
    }

    /// Offset of the signpost in the file; 0 for none.
    pub(crate) fn signpost_offset(&self) -> u64 {
        self.signpost.offset
    }

    /// Position up to which the log was handed to the disk.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Whether a group of `payload` bytes fits into the segment, with a jump behind it.
    pub(crate) fn fits(&self, payload: usize) -> bool {
        let group = (GROUP_HEADER as u64 + (payload + OPENED_BYTES) as u64).next_multiple_of(8);
        group + END_BYTES <= self.point.room()
    }

    /// Least length of a segment that holds a group of `payload` bytes.
    pub(crate) fn segment_for(payload: usize) -> u64 {
        SEGMENT_HEADER
            + (GROUP_HEADER as u64 + (payload + OPENED_BYTES) as u64).next_multiple_of(8)
            + END_BYTES
    }

    /// A window on the beginning of a segment that the log will enter; none where the disk provides none.
    pub(crate) fn window_on(disk: &dyn Disk, segment: Extent) -> Option<Window> {
        disk.window(segment.offset, segment.len.min(WINDOW_BYTES))
    }

    /// Reserves a segment for [`Log::switch`]. If this fails, nothing on the disk refers to the segment.
    pub(crate) fn reserve(&self, segment: Extent) -> Result<(), DiskError> {
        self.disk.reserve(segment.offset, segment.len)
    }

    /// Enters a fresh segment that is reserved: writes its header first, then the jump to it and the copy of
    /// the jump. A window on its beginning may be given. All groups must have been handed to the disk before.
    pub(crate) fn switch(
        &mut self,
        (segment, window): (Extent, Option<Window>),
        synced: u64,
    ) -> Result<(), DiskError> {
        debug_assert!(self.pending.is_empty());
        // The jump and its copy are written by calls, to pages that may be in preparation.
        self.hold_still();
        let (next, payload) = self.point.jump_to(segment, self.life);
        let copy_at = self.point.start + self.point.segment.len - JUMP_BYTES;
        let copy_point = LogPoint { position: copy_at, ..self.point };
        self.disk.write_at(segment.offset, &segment_header(self.store_id, &next))?;
        for point in [copy_point, self.point] {
            let jump = group_bytes(self.store_id, &point, JUMP_MAGIC, synced, &payload);
            self.disk.write_at(point.offset_of(point.position), &jump)?;
        }
        // Only now: an opening that reads the signpost first and then the log will find the jump as well.
        self.put_signpost(&next)?;
        // Its space may be freed and used again, for the log as well, and its pages must not be prepared
        // then: nothing has prepared any since the window was held still.
        self.former = std::mem::replace(&mut self.window, window);
        self.is_next_wanted = false;
        self.point = next;
        self.flushed = next.position;
        Ok(())
    }

    fn put_signpost(&mut self, point: &LogPoint) -> Result<(), DiskError> {
        if self.signpost.offset > 0 {
            let bytes = Signpost::of(point).encode(self.store_id);
            self.disk.write_at(self.signpost.offset, &bytes)?;
        }
        self.signpost.is_stale = false;
        Ok(())
    }

    /// Replaces a signpost that a former life left and that points elsewhere than to where the log goes on.
    pub(crate) fn renew_signpost(&mut self) -> Result<(), DiskError> {
        if self.signpost.is_stale { self.put_signpost(&self.point()) } else { Ok(()) }
    }

    /// Begins a group; its payload is then appended to [`Log::payload`].
    pub(crate) fn begin(&mut self) -> Prepared {
        let (group_at, unsettled, was_fresh) = (self.pending.len(), self.unsettled.len(), self.is_fresh);
        self.pending.extend_from_slice(&[0; GROUP_HEADER]);
        if self.is_fresh {
            Record::Opened { life: self.life }.encode(&mut self.pending);
            self.is_fresh = false;
        }
        Prepared { group_at, unsettled, was_fresh }
    }

    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// Offset in the file of the next payload byte.
    pub(crate) fn payload_offset(&self) -> u64 {
        self.point.offset_of(self.flushed) + self.pending.len() as u64
    }

    /// Registers a piece whose bytes are part of the open group. It gets its home when the group is flushed.
    pub(crate) fn will_settle(&mut self, piece: Piece, offset: u64) {
        self.unsettled.push((piece, offset));
    }

    /// Ends the open group by filling in its header. The group is then part of the log, though still in
    /// memory.
    pub(crate) fn end(&mut self, prepared: &Prepared, synced: u64) -> RollbackPoint {
        let before = self.point;
        debug_assert!(self.pending.len() - prepared.group_at >= GROUP_HEADER);
        let body = prepared.group_at + GROUP_HEADER;
        let mut header = GroupHeader {
            magic: GROUP_MAGIC,
            payload: (self.pending.len() - body) as u32,
            sequence: self.point.sequence + 1,
            synced,
            chain: self.point.chain,
            checksum: 0,
        };
        let head = header.encode();
        header.checksum =
            group_checksum(self.store_id, self.point.position, &head[..32], &self.pending[body..]);
        self.pending[prepared.group_at..body].copy_from_slice(&header.encode());
        self.pending.resize(prepared.group_at + header.stride() as usize, 0);
        self.point.position += header.stride();
        self.point.chain = header.checksum;
        self.point.sequence += 1;
        RollbackPoint { before }
    }

    /// Undoes a group that was begun and ended, and that the disk refused.
    pub(crate) fn roll_back(&mut self, prepared: &Prepared, ended: RollbackPoint) {
        self.pending.truncate(prepared.group_at);
        self.unsettled.truncate(prepared.unsettled);
        self.is_fresh = prepared.was_fresh;
        self.point = ended.before;
        // The disk may have taken all of it and failed afterwards, and a write that was refused must not turn
        // out to be done after a crash. So its header is overwritten; the next group is written over this. A
        // disk that refuses this write too can do no more.
        let _ = self.disk.write_at(self.point.offset_of(self.point.position), &[0; GROUP_HEADER]);
    }

    /// Whether so much is pending that it should be handed to the disk in any case.
    pub(crate) fn is_heavy(&self) -> bool {
        self.pending.len() >= PENDING_MAX
    }

    /// Hands all pending groups to the disk. After an error they are still pending.
    pub(crate) fn flush(&mut self, backing: &Backing) -> Result<(), DiskError> {
        if !self.pending.is_empty() {
            self.renew_signpost()?;
            self.hand_over()?;
            self.pending.clear();
            self.pending.shrink_to(PENDING_MAX * 2);
            self.flushed = self.point.position;
        }
        for (piece, offset) in self.unsettled.drain(..) {
            piece.settle(offset);
            let bytes = piece.resident_bytes().map_or(0, |bytes| bytes.allocated_bytes());
            backing.admit(piece, bytes as u64);
        }
        Ok(())
    }

    /// Work that is due soon, for the caller to do once it has released the log.
    pub(crate) fn chores(&mut self, backing: &Backing) -> Chores {
        let is_time = !self.is_next_wanted && self.point.room() < self.point.segment.len / 2;
        self.is_next_wanted |= is_time;
        Chores { pages: self.ahead(backing.is_short()), former: self.former.take(), wants_segment: is_time }
    }

    /// Pages that the window will need soon.
    fn ahead(&mut self, is_short: bool) -> Option<Ahead> {
        let offset = self.point.offset_of(self.flushed);
        self.window.as_mut()?.ahead_of(offset, is_short)
    }

    /// Writes the pending groups. Short ones are copied where that is possible, because a call would be most
    /// of their cost.
    fn hand_over(&mut self) -> Result<(), DiskError> {
        let offset = self.point.offset_of(self.flushed);
        if self.pending.len() <= COPIED_MAX {
            self.open_window(offset);
            if self.window.as_mut().is_some_and(|window| window.write_at(offset, &self.pending).is_ok()) {
                return Ok(());
            }
        }
        self.hold_still();
        // If the window had no room or no page, the disk itself reports what is wrong.
        self.disk.write_at(offset, &self.pending)
    }

    /// Makes sure that no thread prepares pages of the window while the disk is written by calls.
    fn hold_still(&mut self) {
        if let Some(window) = &mut self.window {
            window.hold_still();
        }
    }

    /// Makes sure that the window covers what is pending at `offset`, if the disk has windows.
    fn open_window(&mut self, offset: u64) {
        let len = self.pending.len() as u64;
        if self.has_no_windows || self.window.as_ref().is_some_and(|window| window.covers(offset, len)) {
            return;
        }
        let segment = self.point.segment;
        let end = (segment.offset + segment.len).min(offset + WINDOW_BYTES);
        // The previous window goes first: there are never two on the log.
        self.window = None;
        self.window = self.disk.window(offset, end - offset);
        self.has_no_windows = self.window.is_none();
    }
}

/// The point of the log before a group was ended.
pub(crate) struct RollbackPoint {
    before: LogPoint,
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_disk::{FileDisk, Mode, Relay};
    use parking_lot::Mutex;

    const SEGMENT: u64 = 4 << 20;

    /// A file on which the preparation of pages comes late: right after the next write by a call to the first
    /// segment.
    struct LateFile {
        file: FileDisk,
        told: Mutex<Vec<Ahead>>,
    }

    impl Relay for LateFile {
        fn inner(&self) -> &dyn Disk {
            &self.file
        }

        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
            self.file.write_at(offset, bytes)?;
            if offset < SEGMENT {
                self.told.lock().drain(..).for_each(Ahead::ask);
            }
            Ok(())
        }
    }

    /// Adds a group, hands it to the disk, and returns the offset of its payload.
    fn add(log: &mut Log, backing: &Backing, payload: &[u8]) -> u64 {
        let prepared = log.begin();
        let offset = log.payload_offset();
        log.payload().extend_from_slice(payload);
        log.end(&prepared, 0);
        log.flush(backing).unwrap();
        offset
    }

    #[test]
    fn whoever_makes_pages_ready_late_overwrites_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = FileDisk::open(&folder.path().join("store"), Mode::Create).unwrap();
        let disk = Arc::new(LateFile { file, told: Mutex::default() });
        Disk::reserve(&*disk, 0, 2 * SEGMENT).unwrap();
        let backing = Backing::new(Some(disk.clone()), 1, 64 << 20);
        let segment = Extent { offset: 0, len: SEGMENT };
        let point =
            LogPoint { segment, number: 1, start: 0, position: SEGMENT_HEADER, chain: 1, sequence: 0 };
        let mut log = Log::new(disk.clone(), 1, 1, point, SignpostPlace { offset: 0, is_stale: false });
        // At the beginning, a group that is written by a call lies beyond the prepared pages; at the end, a
        // jump and its copy do.
        let small = [3000; 60];
        let lens = small.into_iter().chain([400_000]).chain([3000; 1158]);
        let (mut groups, mut told) = (Vec::new(), 0);
        for (len, mark) in lens.zip((1..=u8::MAX).cycle()) {
            let payload = vec![mark; len];
            groups.push((add(&mut log, &backing, &payload), payload));
            let ahead = log.ahead(false);
            told += usize::from(ahead.is_some());
            disk.told.lock().extend(ahead);
        }
        if told == 0 {
            println!("SKIPPED [windows] the file system of the temporary folder has none");
            return;
        }
        let later = disk.told.lock().len();
        assert!((1..told).contains(&later), "{later} of {told} were told behind the long one");
        let jump_at = log.point().position;
        let left = SEGMENT - jump_at;
        assert!(
            (64 << 10..96 << 10).contains(&left),
            "the last pages are on their way, with {left} bytes left"
        );
        log.switch((Extent { offset: SEGMENT, len: SEGMENT }, None), 0).unwrap();
        for (offset, payload) in &groups {
            let mut found = vec![0; payload.len()];
            Disk::read_at(&*disk, *offset, &mut found).unwrap();
            assert!(found == *payload, "the group at {offset}");
        }
        for at in [jump_at, SEGMENT - JUMP_BYTES] {
            let mut found = vec![0; JUMP_BYTES as usize];
            Disk::read_at(&*disk, at, &mut found).unwrap();
            assert!(found.iter().any(|&byte| byte != 0), "the jump at {at}");
        }
    }
}

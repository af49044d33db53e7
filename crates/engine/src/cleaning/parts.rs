//! Segments as cleaning reads them: whole, or part by part where memory has no room for the whole.
//!
//! A segment is longer than others where it was made for one long group, or while the store had more memory.
//!
//! Invariant: no more than [`Shared::part_bytes`] of a segment are in memory at once.

use crate::EngineError;
use crate::cold::{self, COLD_NUMBER};
use crate::log::{self, SegmentValue};
use crate::shared::Shared;
use crate::space::{Extent, SegmentUse};

/// Least length of a part: the longest value of a segment fits together with its key.
const PART_BYTES_MIN: u64 = 256 << 10;

/// The values of a part of a segment. Their ranges refer to the bytes that were read for the part.
pub(super) struct SegmentPart {
    /// Offset of the part in the file.
    pub(super) offset: u64,
    pub(super) values: Vec<SegmentValue>,
}

/// A pass through a segment.
pub(super) struct SegmentParts<'s> {
    segment: &'s SegmentUse,
    is_over: bool,
    position: PassPosition,
}

/// How far a pass through a segment came.
#[derive(Default)]
struct PassPosition {
    /// Bytes of the segment that the pass is done with.
    done: u64,
    log: log::Passage,
    cold: cold::Passage,
}

/// Where cleaning stopped in a segment that it moved values out of, for the next checkpoint to go on.
pub(crate) struct ResumePoint {
    position: PassPosition,
    held: Option<u64>,
}

impl<'s> SegmentParts<'s> {
    pub(super) fn of(segment: &'s SegmentUse) -> Self {
        Self { segment, is_over: false, position: PassPosition::default() }
    }

    /// Stops here. `held` is the newest epoch that a snapshot holds; nothing in the whole segment is needed
    /// by it.
    pub(super) fn resume_point(self, held: Option<u64>) -> ResumePoint {
        ResumePoint { position: self.position, held }
    }
}

impl ResumePoint {
    /// Whether this epoch is known to need nothing of the segment: what is alive there becomes no older.
    pub(super) fn is_free_of(&self, held: Option<u64>) -> bool {
        self.held == held
    }

    pub(super) fn parts(self, segment: &SegmentUse) -> SegmentParts<'_> {
        SegmentParts { segment, is_over: false, position: self.position }
    }
}

impl Shared {
    /// Where cleaning stopped in this segment, if it did.
    pub(super) fn take_resume_point(&self, segment: &SegmentUse) -> Option<ResumePoint> {
        self.resume_points.lock().remove(&segment.extent.offset)
    }

    pub(super) fn note_resume_point(&self, segment: &SegmentUse, point: ResumePoint) {
        self.resume_points.lock().insert(segment.extent.offset, point);
    }

    /// Bytes of a segment that are read at once: the length of the segments that the log makes at present.
    pub(super) fn part_bytes(&self) -> u64 {
        self.options.segment_bytes().max(PART_BYTES_MIN)
    }

    /// Whether a segment is too long to be read at once.
    pub(super) fn has_parts(&self, segment: &SegmentUse) -> bool {
        segment.extent.len > self.part_bytes()
    }

    /// Reads the next part into the buffer of the one before; none behind the last part.
    pub(super) fn next_part(
        &self,
        parts: &mut SegmentParts<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<SegmentPart>, EngineError> {
        let segment = parts.segment;
        let left = segment.extent.len.saturating_sub(parts.position.done);
        if parts.is_over || left == 0 {
            return Ok(None);
        }
        let offset = segment.extent.offset + parts.position.done;
        self.read_into(bytes, Extent { offset, len: left.min(self.part_bytes()) })?;
        let is_cold = segment.number == COLD_NUMBER;
        let (values, passed) = match self.has_parts(segment) {
            false if is_cold => (cold::values_in(bytes, &self.backing), 0),
            false => (log::values_in(segment, bytes, &self.backing), 0),
            true if is_cold => parts.position.cold.pass(bytes, &self.backing),
            true => parts.position.log.pass(segment, bytes, &self.backing),
        };
        parts.position.done += passed as u64;
        parts.is_over = passed == 0;
        Ok(Some(SegmentPart { offset, values }))
    }

    /// Reads as much of an extent as the file has.
    fn read_into(&self, bytes: &mut Vec<u8>, Extent { offset, len }: Extent) -> Result<(), EngineError> {
        let end = self.backing.disk().map_or(Ok(0), |disk| disk.len())?;
        bytes.resize(end.saturating_sub(offset).min(len) as usize, 0);
        self.backing.read(offset, bytes)
    }
}

//! Fetched bytes of many bands: adjacent bytes are one buffer, however many bands and columns they belong to.
//!
//! Invariant: every slice of a band lies in a single one of its stretches.

use super::super::super::fetch::Range;
use super::super::super::source::Source;
use super::PlannedBand;
use atoll_buffer::bring_bytes_nearer;
use atoll_store::Buffer;

/// Bands and the bytes of their slices.
#[derive(Default)]
pub(super) struct Fetched<'r> {
    pub(super) bands: Vec<Located<'r>>,
    stretches: Vec<Stretch>,
}

/// A band, with the stretches that its slices lie in.
pub(super) struct Located<'r> {
    pub(super) planned: &'r PlannedBand,
    from: u32,
    to: u32,
}

/// A contiguous range of an object, and its bytes once they are fetched.
struct Stretch {
    at: Range,
    bytes: Option<Buffer>,
}

impl<'r> Fetched<'r> {
    /// Begins the next band.
    pub(super) fn begin(&mut self, planned: &'r PlannedBand) {
        let from = self.stretches.len() as u32;
        self.bands.push(Located { planned, from, to: from });
    }

    /// Total number of rows to decode.
    pub(super) fn rows(&self) -> u64 {
        self.bands.iter().map(|band| band.planned.decoded).sum()
    }

    /// Adds a slice of the last band.
    pub(super) fn add(&mut self, source: &Source, from: u64, bytes: u64) {
        let at = Range { object: source.object, from, to: from + bytes };
        let here = source.here(at);
        let grows = |last: &&mut Stretch| {
            last.at.object == at.object && last.at.to == from && last.bytes.is_none() && here.is_none()
        };
        match self.stretches.last_mut().filter(grows) {
            Some(last) => last.at.to = at.to,
            None => self.stretches.push(Stretch { at, bytes: here }),
        }
        let last = self.stretches.len() as u32;
        if let Some(band) = self.bands.last_mut() {
            (band.from, band.to) = (band.from.min(last - 1), last);
        }
    }

    /// The ranges that have to be read, and the stretch of each.
    pub(super) fn missing(&self) -> (Vec<Range>, Vec<usize>) {
        let places = self.stretches.iter().enumerate();
        places
            .filter(|(_, stretch)| stretch.bytes.is_none())
            .map(|(place, stretch)| (stretch.at, place))
            .unzip()
    }

    /// Stores the bytes of a stretch.
    pub(super) fn arrived(&mut self, stretch: usize, bytes: Buffer) {
        self.stretches[stretch].bytes = Some(bytes);
    }

    /// The bytes of a slice of a band; `None` if it was not fetched.
    #[inline]
    pub(super) fn slice(&self, band: &Located<'_>, (from, bytes): (u64, u64)) -> Option<&[u8]> {
        let stretches = &self.stretches[band.from as usize..band.to as usize];
        let stretch =
            stretches.iter().find(|stretch| stretch.at.from <= from && from + bytes <= stretch.at.to)?;
        let start = (from - stretch.at.from) as usize;
        stretch.bytes.as_ref()?.get(start..start + bytes as usize)
    }

    /// Prefetches the bytes of a band, so that decoding it next waits less for memory.
    pub(super) fn bring_nearer(&self, band: &Located<'_>, (from, bytes): (u64, u64)) {
        for stretch in &self.stretches[band.from as usize..band.to as usize] {
            let start = from.max(stretch.at.from);
            let end = from.saturating_add(bytes).min(stretch.at.to);
            let range =
                start.saturating_sub(stretch.at.from) as usize..end.saturating_sub(stretch.at.from) as usize;
            if let Some(bytes) = stretch.bytes.as_ref().and_then(|bytes| bytes.get(range)) {
                bring_bytes_nearer(bytes);
            }
        }
    }
}

//! What was fetched of many bands: bytes that lie behind each other in one piece, however many bands and
//! columns they are.
//!
//! Invariant: every slice of a band lies whole in one of its stretches.

use super::super::super::fetch::Range;
use super::super::super::source::Source;
use super::Planned;
use atoll_buffer::bring_bytes_nearer;
use atoll_store::Buffer;

/// Bands, and the bytes of their slices.
#[derive(Default)]
pub(super) struct Fetched<'r> {
    pub(super) bands: Vec<Located<'r>>,
    stretches: Vec<Stretch>,
}

/// A band, and which stretches its slices lie in.
pub(super) struct Located<'r> {
    pub(super) planned: &'r Planned,
    from: u32,
    to: u32,
}

/// Bytes of an object.
struct Stretch {
    at: Range,
    bytes: Option<Buffer>,
}

impl<'r> Fetched<'r> {
    /// Goes on to a band.
    pub(super) fn begin(&mut self, planned: &'r Planned) {
        let from = self.stretches.len() as u32;
        self.bands.push(Located { planned, from, to: from });
    }

    /// Rows that are decoded of all of them.
    pub(super) fn rows(&self) -> u64 {
        self.bands.iter().map(|band| band.planned.decoded).sum()
    }

    /// Takes in a slice of the last band.
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

    /// What has to be read, and which stretch each of it is.
    pub(super) fn missing(&self) -> (Vec<Range>, Vec<usize>) {
        let places = self.stretches.iter().enumerate();
        places
            .filter(|(_, stretch)| stretch.bytes.is_none())
            .map(|(place, stretch)| (stretch.at, place))
            .unzip()
    }

    /// Takes in the bytes of a stretch.
    pub(super) fn arrived(&mut self, stretch: usize, bytes: Buffer) {
        self.stretches[stretch].bytes = Some(bytes);
    }

    /// The bytes of a slice of a band; none if it was not read.
    #[inline]
    pub(super) fn slice(&self, band: &Located<'_>, (from, bytes): (u64, u64)) -> Option<&[u8]> {
        let stretches = &self.stretches[band.from as usize..band.to as usize];
        let stretch =
            stretches.iter().find(|stretch| stretch.at.from <= from && from + bytes <= stretch.at.to)?;
        let start = (from - stretch.at.from) as usize;
        stretch.bytes.as_ref()?.get(start..start + bytes as usize)
    }

    /// Asks for the bytes of a band, so that whoever decodes it next waits less for memory.
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

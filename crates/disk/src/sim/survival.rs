//! Power loss: which of the unsynced changes reach the medium, and in what state.
//!
//! Invariant: a synced change is never considered here.

use super::image::Image;
use super::plan::Counters;

/// The unit in which a medium tears a write.
const SECTOR_BYTES: u64 = 512;

/// Which unsynced writes survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// None.
    Nothing,
    /// All of them, whole.
    Everything,
    /// Each one is kept, dropped or torn at random, independently of those before it.
    Mixed,
}

/// A change that waits for a sync.
#[derive(Debug)]
pub(super) enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Grow { len: u64 },
    Cut { len: u64 },
    Clear { offset: u64, len: u64 },
}

/// Applies the unsynced changes that survive to the medium.
pub(super) fn survive(
    medium: &mut Image,
    mut pending: Vec<Change>,
    survival: Survival,
    rng: &mut fastrand::Rng,
    counters: &mut Counters,
) {
    if survival == Survival::Mixed && rng.bool() {
        shuffle_between_cuts(&mut pending, rng);
    }
    let mut has_dropped = false;
    for change in &pending {
        let fate = match survival {
            Survival::Nothing => Fate::Dropped,
            Survival::Everything => Fate::Kept,
            Survival::Mixed => Fate::by_chance(change, rng),
        };
        if let (Change::Write { .. }, true) = (change, has_dropped && fate != Fate::Dropped) {
            counters.writes_reordered += 1;
        }
        has_dropped |= fate == Fate::Dropped;
        fate.apply(medium, change, rng, counters);
    }
}

/// Overlapping writes may reach the medium in any order; the file system orders cuts of the length.
fn shuffle_between_cuts(pending: &mut [Change], rng: &mut fastrand::Rng) {
    for stretch in pending.split_mut(|change| matches!(change, Change::Cut { .. })) {
        rng.shuffle(stretch);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Dropped,
    TornAtSectors,
    TornAtBytes,
}

impl Fate {
    fn by_chance(change: &Change, rng: &mut fastrand::Rng) -> Self {
        let torn = matches!(change, Change::Write { .. });
        match rng.u8(..8) {
            0..=2 => Self::Kept,
            3..=5 => Self::Dropped,
            6 if torn => Self::TornAtSectors,
            7 if torn => Self::TornAtBytes,
            _ => Self::Kept,
        }
    }

    fn apply(self, medium: &mut Image, change: &Change, rng: &mut fastrand::Rng, counters: &mut Counters) {
        let Change::Write { offset, bytes } = change else {
            if self != Self::Dropped {
                apply(medium, change);
            }
            return;
        };
        match self {
            Self::Kept => {
                medium.write(*offset, bytes);
                counters.writes_kept += 1;
            }
            Self::Dropped => counters.writes_dropped += 1,
            Self::TornAtSectors => {
                write_some_sectors(medium, *offset, bytes, rng);
                counters.writes_torn_at_sectors += 1;
            }
            Self::TornAtBytes => {
                let start = if rng.bool() { 0 } else { rng.usize(..=bytes.len()) };
                let end = rng.usize(start..=bytes.len());
                medium.write(offset + start as u64, &bytes[start..end]);
                counters.writes_torn_at_bytes += 1;
            }
        }
    }
}

fn write_some_sectors(medium: &mut Image, offset: u64, bytes: &[u8], rng: &mut fastrand::Rng) {
    let mut at = 0;
    while at < bytes.len() {
        let to_boundary = (SECTOR_BYTES - (offset + at as u64) % SECTOR_BYTES) as usize;
        let end = bytes.len().min(at + to_boundary);
        if rng.bool() {
            medium.write(offset + at as u64, &bytes[at..end]);
        }
        at = end;
    }
}

pub(super) fn apply(image: &mut Image, change: &Change) {
    match change {
        Change::Write { offset, bytes } => image.write(*offset, bytes),
        Change::Grow { len } => image.grow(*len),
        Change::Cut { len } => image.cut(*len),
        Change::Clear { offset, len } => image.clear(*offset, *len),
    }
}

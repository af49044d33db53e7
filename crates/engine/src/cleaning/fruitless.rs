//! Segments from which nothing could be moved, and when to read them again.

use crate::shared::Shared;
use crate::space::SegmentUse;

/// A segment that could not be read is tried again after at most this many checkpoints.
const PAUSE_CHECKPOINTS_MAX: u64 = 16;

/// Outcome of cleaning a segment.
pub(super) enum Cleaned {
    /// This many bytes were moved.
    Moved(u64),
    /// A snapshot needs some of it, or nothing in it is alive.
    Nothing,
    /// Something could not be read, and nothing was moved.
    Unread,
}

impl Cleaned {
    pub(super) fn of(added: u64, is_unread: bool) -> Self {
        match (added, is_unread) {
            (0, true) => Self::Unread,
            (0, false) => Self::Nothing,
            (bytes, _) => Self::Moved(bytes),
        }
    }
}

/// Why a segment is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fruitless {
    /// A snapshot needs some of it, or nothing in it is alive. Holds for as long as the newest epoch that a
    /// snapshot holds is this one.
    Held(Option<u64>),
    /// Something could not be read, which may be temporary. The segment is tried again in epoch `again`; each
    /// further pause is longer.
    Unread { again: u64, pause: u64 },
}

impl Fruitless {
    /// The entry after one more failed try.
    pub(super) fn unread(before: Option<Self>, epoch: u64) -> Self {
        let pause = match before {
            Some(Self::Unread { pause, .. }) => (pause * 2).min(PAUSE_CHECKPOINTS_MAX),
            _ => 1,
        };
        Self::Unread { again: epoch + pause, pause }
    }

    /// Whether cleaning would be as fruitless in `epoch`, with `held` as the newest epoch that a snapshot
    /// holds.
    pub(super) fn is_left(self, epoch: u64, held: Option<u64>) -> bool {
        match self {
            Self::Held(before) => before == held,
            Self::Unread { again, .. } => epoch < again,
        }
    }
}

impl Shared {
    pub(super) fn note_fruitless(
        &self,
        segment: &SegmentUse,
        left: impl FnOnce(Option<Fruitless>) -> Fruitless,
    ) {
        let mut fruitless = self.fruitless.lock();
        let before = fruitless.get(&segment.extent.offset).copied();
        fruitless.insert(segment.extent.offset, left(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_tried_again_at_once_and_then_less_and_less_often() {
        let (mut left, mut tried) = (None, Vec::new());
        for epoch in 1..=80 {
            if left.is_none_or(|left: Fruitless| !left.is_left(epoch, None)) {
                tried.push(epoch);
                left = Some(Fruitless::unread(left, epoch));
            }
        }
        assert_eq!(tried, [1, 2, 4, 8, 16, 32, 48, 64, 80]);
    }
}

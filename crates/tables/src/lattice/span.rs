//! Spans: the side of a cube on one axis.
//!
//! A tree starts with a root that just contains the first rows. All other cubes follow from the root by
//! halving. The root grows by doubling, toward the side on which a row lies outside.
//!
//! Invariant: one half of [`Span::doubled`] is the span that was doubled. A cube that exists is therefore a
//! cube of every later tree, with the same boundaries.

use super::Coordinate;
use std::ops::RangeInclusive;

/// `2^bits` adjacent cells of one axis, starting at `low`. It may extend beyond the ends of the lattice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    low: i128,
    bits: u8,
}

/// The side toward which a span grows; also a half of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Smaller coordinates.
    Low,
    /// Larger coordinates.
    High,
}

impl Span {
    /// Wherever a span of this length begins, one more doubling makes it contain the whole lattice.
    pub const BITS_MAX: u8 = 65;

    /// The shortest span that begins at `least` and contains `greatest`; the cell of `least` alone if
    /// `greatest` lies below it.
    #[must_use]
    pub fn around(least: Coordinate, greatest: Coordinate) -> Self {
        let steps = greatest.0.saturating_sub(least.0);
        Self { low: least.0.into(), bits: (u64::BITS - steps.leading_zeros()) as u8 }
    }

    /// The span that starts at `low` and has `2^bits` cells, as stored in a manifest; `None` if no growth
    /// leads to it.
    #[must_use]
    pub fn new(low: i128, bits: u8) -> Option<Self> {
        let span = Self { low, bits };
        let holds_something = low <= i128::from(u64::MAX) && bits <= Self::BITS_MAX && low + span.cells() > 0;
        holds_something.then_some(span)
    }

    /// The first cell; negative if the span extends beyond the lower end of the lattice.
    #[must_use]
    pub const fn low(self) -> i128 {
        self.low
    }

    /// How often the span can be halved.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.bits
    }

    const fn cells(self) -> i128 {
        1 << self.bits
    }

    /// Whether a coordinate lies in the span.
    #[must_use]
    pub fn holds(self, coordinate: Coordinate) -> bool {
        let offset = i128::from(coordinate.0) - self.low;
        (0..self.cells()).contains(&offset)
    }

    /// Whether any of these coordinates lies in the span.
    #[must_use]
    pub fn meets(self, reach: &RangeInclusive<Coordinate>) -> bool {
        let (first, last) = (i128::from(reach.start().0), i128::from(reach.end().0));
        first <= last && first < self.low + self.cells() && self.low <= last
    }

    /// The half that contains a coordinate of this span; `None` for a single cell.
    #[must_use]
    pub fn side_of(self, coordinate: Coordinate) -> Option<Side> {
        let middle = self.half(Side::High)?.low;
        Some(if i128::from(coordinate.0) < middle { Side::Low } else { Side::High })
    }

    /// One half; `None` for a single cell.
    #[must_use]
    pub fn half(self, side: Side) -> Option<Self> {
        let half = Self { low: self.low, bits: self.bits.checked_sub(1)? };
        Some(match side {
            Side::Low => half,
            Side::High => Self { low: half.low + half.cells(), ..half },
        })
    }

    /// The span of twice the length whose other half is this one; `None` beyond [`Self::BITS_MAX`].
    #[must_use]
    pub fn doubled(self, toward: Side) -> Option<Self> {
        if self.bits >= Self::BITS_MAX {
            return None;
        }
        let low = match toward {
            Side::Low => self.low - self.cells(),
            Side::High => self.low,
        };
        Some(Self { low, bits: self.bits + 1 })
    }

    /// The side toward which the span must grow to contain a coordinate, and the number of doublings, which
    /// may be 0.
    ///
    /// A caller should think twice about a large number: every doubling adds a level to the tree, and a
    /// single stray row is better kept beside it.
    #[must_use]
    pub fn doublings_to_hold(self, coordinate: Coordinate) -> (Side, u8) {
        let side = if i128::from(coordinate.0) < self.low { Side::Low } else { Side::High };
        let mut grown = self;
        while !grown.holds(coordinate) {
            let Some(doubled) = grown.doubled(side) else { break };
            grown = doubled;
        }
        (side, grown.bits - self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::for_seeds;

    #[test]
    fn the_first_root_is_as_short_as_its_rows_allow() {
        let span = |least, greatest| Span::around(Coordinate(least), Coordinate(greatest));
        assert_eq!(span(7, 7).bits(), 0);
        assert_eq!(span(7, 8).bits(), 1);
        assert_eq!(span(100, 131).bits(), 5);
        assert_eq!(span(100, 132).bits(), 6);
        assert_eq!(span(0, u64::MAX).bits(), 64);
        assert!(span(100, 132).holds(Coordinate(163)) && !span(100, 132).holds(Coordinate(164)));
    }

    #[test]
    fn a_doubled_span_has_the_old_one_as_its_other_half() {
        for_seeds("a_doubled_span_has_the_old_one_as_its_other_half", 1_000, |random| {
            let least = random.u64(..);
            let span = Span::around(Coordinate(least), Coordinate(random.u64(least..)));
            assert_eq!(span.doubled(Side::High).unwrap().half(Side::Low), Some(span));
            assert_eq!(span.doubled(Side::Low).unwrap().half(Side::High), Some(span));
        });
    }

    #[test]
    fn halves_share_out_every_coordinate() {
        for_seeds("halves_share_out_every_coordinate", 1_000, |random| {
            let least = random.u64(..u64::MAX);
            let greatest = random.u64(least + 1..);
            let span = Span::around(Coordinate(least), Coordinate(greatest));
            let middle = span.half(Side::High).unwrap().low() as u64;
            for coordinate in [least, greatest, random.u64(least..=greatest), middle, middle - 1] {
                let side = span.side_of(Coordinate(coordinate)).unwrap();
                let other = if side == Side::Low { Side::High } else { Side::Low };
                assert!(span.half(side).unwrap().holds(Coordinate(coordinate)), "{span:?} {coordinate}");
                assert!(!span.half(other).unwrap().holds(Coordinate(coordinate)), "{span:?} {coordinate}");
            }
        });
    }

    #[test]
    fn every_root_can_grow_until_it_holds_any_coordinate() {
        for_seeds("every_root_can_grow_until_it_holds_any_coordinate", 1_000, |random| {
            let mut root = Span::around(Coordinate(random.u64(..)), Coordinate(random.u64(..)));
            for coordinate in [Coordinate(random.u64(..)), Coordinate(0), Coordinate(u64::MAX)] {
                let (side, times) = root.doublings_to_hold(coordinate);
                for _ in 0..times {
                    root = root.doubled(side).unwrap();
                }
                assert!(root.holds(coordinate), "{root:?} {coordinate:?}");
            }
        });
        assert_eq!(
            Span::around(Coordinate(8), Coordinate(15)).doublings_to_hold(Coordinate(7)),
            (Side::Low, 1)
        );
        assert_eq!(Span::around(Coordinate(8), Coordinate(15)).doublings_to_hold(Coordinate(15)).1, 0);
    }

    #[test]
    fn a_span_meets_the_coordinates_it_shares_and_no_others() {
        let span = Span::around(Coordinate(8), Coordinate(15));
        let meets = |first, last| span.meets(&(Coordinate(first)..=Coordinate(last)));
        assert!(meets(0, 8) && meets(15, 20) && meets(9, 9) && meets(0, u64::MAX));
        assert!(!meets(0, 7) && !meets(16, 20) && !meets(12, 11));
    }

    #[test]
    fn only_spans_that_hold_something_come_back_from_a_manifest() {
        assert_eq!(Span::new(-4, 3), Some(Span { low: -4, bits: 3 }));
        assert_eq!(Span::new(-8, 3), None);
        assert_eq!(Span::new(1 << 64, 3), None);
        assert_eq!(Span::new(0, 66), None);
        assert_eq!(Span::new(i128::MIN, 65), None);
    }
}

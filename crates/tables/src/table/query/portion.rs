//! Portions: estimates how much to read at once to get a number of rows that only reading can determine.
//!
//! Weights are uniformly distributed, so the directory alone tells about how many rows are below a cut. The
//! share of them that passes the filter is learned while reading.

use crate::part::BandFacts;
use crate::{Weight, Window};

/// A band to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedBand {
    /// Index of the source.
    pub(super) source: usize,
    /// Index of the band in the source.
    pub(super) band: usize,
    /// The least weight of matching rows in it.
    pub(super) least: Weight,
    /// The greatest weight of matching rows in it.
    pub(super) greatest: Weight,
    /// Number of rows to decode.
    pub(super) decoded: u64,
    /// The range of rows of the band that contains them, if known.
    pub(super) rows: Option<(u32, u32)>,
    /// Approximate number of these whose weights can match.
    pub(super) expected: f64,
    /// Whether each of these is known to match.
    pub(super) is_certain: bool,
    /// Whether the weights of all rows in it can match.
    pub(super) is_whole: bool,
}

impl PlannedBand {
    /// A band of a source, with the range of matching weights.
    pub(super) fn new(
        (source, band): (usize, usize),
        (least, greatest): (Weight, Weight),
        facts: BandFacts,
        is_certain: bool,
    ) -> Self {
        let span = |(least, greatest): (Weight, Weight)| (greatest.get() - least.get()) as f64 + 1.0;
        let share = span((least, greatest)) / span((facts.least, facts.greatest));
        let is_whole = (least, greatest) == (facts.least, facts.greatest);
        let (decoded, expected) = (facts.decoded, (facts.rows as f64 * share).min(facts.decoded as f64));
        Self { source, band, least, greatest, decoded, rows: None, expected, is_certain, is_whole }
    }

    /// Narrows the band to rows in a range of weights, for which `decoded` rows are decoded, all of them in
    /// `rows`.
    pub(super) fn narrowed(
        self,
        (least, greatest): (Weight, Weight),
        decoded: u64,
        rows: std::ops::Range<usize>,
    ) -> Self {
        let is_all = (least, greatest) == (self.least, self.greatest) && rows.len() as u64 >= self.decoded;
        let is_whole = self.is_whole && is_all;
        let decoded = decoded.min(rows.len() as u64);
        let rows = Some((rows.start as u32, rows.end as u32));
        Self { least, greatest, decoded, rows, expected: self.expected.min(decoded as f64), is_whole, ..self }
    }

    /// The range of matching weights.
    pub(super) fn window(&self) -> Window {
        Window::between(self.least, self.greatest)
    }

    /// Approximate number of its matching rows below a weight.
    pub(super) fn below(&self, cut: Weight) -> f64 {
        if cut <= self.least {
            return 0.0;
        }
        let of = |weight: Weight| (weight.get() - self.least.get()) as f64 + 1.0;
        self.expected * (of(cut) / of(self.greatest)).min(1.0)
    }
}

/// Progress of a reading toward a number of rows or units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Progress {
    /// Number wanted.
    pub(super) wanted: usize,
    /// Number found, at any weight.
    pub(super) found: usize,
    /// Rows read for that.
    pub(super) touched: u64,
}

impl Progress {
    /// Approximate number of rows that must be below the cut, whether they pass the filter or not.
    pub(super) fn rows(&self) -> f64 {
        let wanted = self.wanted as f64;
        // Two standard errors more, because one band too many costs less than another round.
        let wanted = wanted + 2.0 * wanted.sqrt();
        if self.touched == 0 {
            return wanted;
        }
        let touched = self.touched as f64;
        let share = (self.found as f64 / touched).min(1.0);
        // A few rows are little evidence for the share, so reading grows at most fourfold.
        (wanted / share).min((4.0 * touched).max(wanted))
    }
}

/// How many of the planned bands, sorted by least weight, must be read to get about `wanted` rows below a
/// cut. `read` of them have been read; returns at least one more.
pub(super) fn enough(planned: &[PlannedBand], read: usize, wanted: f64) -> usize {
    let lies_below = |count: &usize| -> f64 {
        let cut = planned[*count].least;
        planned[..*count].iter().map(|band| band.below(cut)).sum()
    };
    let counts: Vec<usize> = (read + 1..planned.len()).collect();
    let place = counts.partition_point(|count| lies_below(count) < wanted);
    counts.get(place).copied().unwrap_or(planned.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(least: f64, greatest: f64, rows: u64) -> PlannedBand {
        let weight = |share: f64| Weight::new((share * 2f64.powi(64)) as u64).unwrap();
        let range = (weight(least), weight(greatest));
        let facts = BandFacts { rows, decoded: rows, least: range.0, greatest: range.1 };
        PlannedBand::new((0, 0), range, facts, true)
    }

    /// Ten blocks of 1,024 rows in bands of 256, 256 and 512.
    fn ten_blocks() -> Vec<PlannedBand> {
        let bands = [(0.001, 0.25, 256), (0.251, 0.5, 256), (0.501, 1.0, 512)];
        let mut planned: Vec<PlannedBand> = (0..10)
            .flat_map(|block| {
                let late = f64::from(block) * 1e-5;
                bands.map(|(from, to, rows)| band(from + late, to - 1e-6, rows))
            })
            .collect();
        planned.sort_by_key(|band| band.least);
        planned
    }

    #[test]
    fn what_the_first_bands_hold_is_read_in_one_round() {
        let planned = ten_blocks();
        let progress = |wanted| Progress { wanted, found: 0, touched: 0 }.rows();
        assert_eq!(enough(&planned, 0, progress(1)), 10, "no row is known to be the lightest before");
        assert_eq!(enough(&planned, 0, progress(2000)), 10);
        assert_eq!(enough(&planned, 0, progress(3000)), 20);
        assert_eq!(enough(&planned, 0, progress(10_240)), 30);
    }

    #[test]
    fn a_share_that_was_learned_leads_further_but_not_too_far() {
        let planned = ten_blocks();
        let one_in_ten = Progress { wanted: 400, found: 256, touched: 2560 };
        assert_eq!(enough(&planned, 10, one_in_ten.rows()), 20);
        let none = Progress { wanted: 400, found: 0, touched: 256 };
        assert_eq!(enough(&planned, 1, none.rows()), 10, "fourfold and no more");
        assert_eq!(enough(&planned, 29, none.rows()), 30, "always one more");
    }
}

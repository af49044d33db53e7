//! The bands of an object as its directory stores them: one column of packed numbers for each property of a
//! band.
//!
//! ```text
//! words: rows | upper halves of the least and of the greatest weights | bytes | marks
//! for each index column, words: flags | least | greatest values
//! for each column, words: lengths
//! ```
//!
//! A mark stands at every [`MARK_ROWS`]th row of a band. It records in which 256th of the band's weight range
//! the weight of that row lies.
//!
//! A query looks at few bands of an object, so what only those need stays packed: marks and lengths always,
//! extents until the first query that the box of a whole layer does not settle.
//!
//! Invariant: decoding is total, and no slice reaches beyond its band, whatever the numbers say.

use super::fields::Fields;
use super::rank::Rank;
use super::words::{Words, put_words};
use super::{BAND_ROWS_MAX, MARK_ROWS};
use crate::Weight;
use crate::block::{BlockError, damaged};
use crate::lattice::Extent;
use crate::weight::Window;
use std::ops::Range;

/// The most cubes or bands of an object: a band holds at least one row and takes some bytes.
pub(super) const BANDS_MAX: usize = 1 << 18;

/// The number of parts of a band's weight range that marks distinguish.
const MARK_PARTS: u64 = 256;

/// A band that is being written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NewBand {
    pub(super) head: BandHead,
    pub(super) marks: Vec<u8>,
    pub(super) extents: Vec<Extent>,
    /// The lengths of its columns, seals included.
    pub(super) lengths: Vec<u64>,
}

/// The properties of a band that every query needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BandHead {
    pub(super) rows: u32,
    /// A lower bound of the weights: the lower half is all zeros.
    pub(super) least: Weight,
    /// An upper bound of the weights: the lower half is all ones.
    pub(super) greatest: Weight,
}

/// The bands of an object.
#[derive(Clone, Debug)]
pub(super) struct Bands {
    heads: Vec<BandHead>,
    /// Where each band begins, counted from the first one; then where the last one ends.
    offsets: Vec<u64>,
    /// The number of marks before those of each band.
    marks_before: Vec<u32>,
    marks: Words,
    /// For each index column: flags, least and greatest values.
    extents: Vec<(Rank, [Words; 3])>,
    lengths: Vec<Words>,
    /// The bytes of the directory, which hold the packed numbers.
    bytes: Vec<u8>,
}

impl BandHead {
    /// Summarizes the weights of a band, which are in rising order.
    pub(super) fn of(weights: &[Weight]) -> Self {
        let upper = |weight: Option<&Weight>| weight.map_or(0, |weight| weight.get() >> 32);
        let (least, greatest) = (from_upper(upper(weights.first())), up_from_upper(upper(weights.last())));
        Self { rows: weights.len() as u32, least, greatest }
    }

    /// The number of weights in the band's range.
    pub(super) fn range(self) -> u128 {
        u128::from(self.greatest.get() - self.least.get()) + 1
    }

    /// The part of the range in which `weight` lies.
    fn part(self, weight: Weight) -> u8 {
        (u128::from(weight.get() - self.least.get()) * u128::from(MARK_PARTS) / self.range()) as u8
    }

    /// The lightest weight in a part of the range.
    fn lightest(self, part: u64) -> Weight {
        let offset = (u128::from(part) * self.range()).div_ceil(MARK_PARTS.into());
        let weight = u128::from(self.least.get()) + offset;
        u64::try_from(weight).ok().and_then(Weight::new).unwrap_or(self.greatest)
    }

    /// The heaviest weight in a part of the range.
    fn heaviest(self, part: u64) -> Weight {
        let next = (part < MARK_PARTS - 1).then(|| self.lightest(part + 1).get() - 1);
        next.and_then(Weight::new).unwrap_or(self.greatest)
    }

    fn mark_count(self) -> usize {
        (self.rows as usize).div_ceil(MARK_ROWS).saturating_sub(1)
    }
}

impl NewBand {
    pub(super) fn new(weights: &[Weight], extents: Vec<Extent>, lengths: Vec<u64>) -> Self {
        let head = BandHead::of(weights);
        let marks = weights.iter().step_by(MARK_ROWS).skip(1).map(|&weight| head.part(weight)).collect();
        Self { head, marks, extents, lengths }
    }
}

/// Appends the columns of `bands`, whose rows have `columns` columns.
pub(super) fn put_bands(bands: &[NewBand], ranks: &[Rank], columns: usize, bytes: &mut Vec<u8>) {
    let mut put = |word: &dyn Fn(&NewBand) -> u64| {
        put_words(&bands.iter().map(word).collect::<Vec<_>>(), bytes);
    };
    put(&|band| band.head.rows.into());
    put(&|band| band.head.least.get() >> 32);
    put(&|band| band.head.greatest.get() >> 32);
    put(&|band| band.lengths.iter().sum());
    let marks = bands.iter().flat_map(|band| &band.marks);
    put_words(&marks.map(|&mark| u32::from(mark)).collect::<Vec<_>>(), bytes);
    put_extents(bands.iter().map(|band| band.extents.as_slice()), ranks, bytes);
    for column in 0..columns {
        put_words(&bands.iter().map(|band| band.lengths[column]).collect::<Vec<_>>(), bytes);
    }
}

/// Appends extents, one for each index column of each box.
pub(super) fn put_extents<'e>(
    boxes: impl Iterator<Item = &'e [Extent]> + Clone,
    ranks: &[Rank],
    bytes: &mut Vec<u8>,
) {
    for (axis, rank) in ranks.iter().enumerate() {
        let extents = || boxes.clone().map(|extents| extents[axis]);
        put_words(&extents().map(|extent| rank.flags(&extent)).collect::<Vec<_>>(), bytes);
        put_words(&extents().map(|extent| rank.ends(&extent).0).collect::<Vec<_>>(), bytes);
        put_words(&extents().map(|extent| rank.ends(&extent).1).collect::<Vec<_>>(), bytes);
    }
}

/// Finds the extents of `count` boxes: for each index column flags, least and greatest values.
pub(super) fn find_extents(
    fields: &mut Fields<'_>,
    ranks: &[Rank],
    count: usize,
) -> Result<Vec<(Rank, [Words; 3])>, BlockError> {
    let of_axis =
        |rank: &Rank| Ok((*rank, [fields.packed(count)?, fields.packed(count)?, fields.packed(count)?]));
    ranks.iter().map(of_axis).collect()
}

/// The extents of the box at a place.
pub(super) fn extents_at(
    found: &[(Rank, [Words; 3])],
    bytes: &[u8],
    place: usize,
) -> impl Iterator<Item = Extent> {
    found.iter().map(move |(rank, words)| rank.extent(words.map(|words| words.get(bytes, place))))
}

impl Bands {
    /// Reads `count` bands, whose rows have `columns` columns, from the fields of a directory.
    pub(super) fn decode(
        fields: &mut Fields<'_>,
        bytes: &[u8],
        count: usize,
        ranks: &[Rank],
        columns: usize,
    ) -> Result<Self, BlockError> {
        let (rows, least) = (fields.words(count)?, fields.words(count)?);
        let (greatest, lengths) = (fields.words(count)?, fields.words(count)?);
        let heads = heads(&rows, &least, &greatest)?;
        let mut marks_before = Vec::with_capacity(count);
        let mut marks = 0_u32;
        for head in &heads {
            marks_before.push(marks);
            let more = u32::try_from(head.mark_count()).ok().and_then(|more| marks.checked_add(more));
            marks = more.ok_or_else(|| damaged("a band has too many rows"))?;
        }
        let mut offsets = Vec::with_capacity(count + 1);
        offsets.push(0);
        let mut end = 0_u64;
        for length in lengths {
            end = end.checked_add(length).ok_or_else(|| damaged("its bands are too long"))?;
            offsets.push(end);
        }
        let marks = fields.packed(marks as usize)?;
        let extents = find_extents(fields, ranks, count)?;
        let lengths = (0..columns).map(|_| fields.packed(count)).collect::<Result<_, _>>()?;
        Ok(Self { heads, offsets, marks_before, marks, extents, lengths, bytes: bytes.to_vec() })
    }

    pub(super) fn heads(&self) -> &[BandHead] {
        &self.heads
    }

    /// The total length of all bands in bytes.
    pub(super) fn end(&self) -> u64 {
        self.offsets.last().copied().unwrap_or_default()
    }

    /// The extent of a band's rows in each index column.
    pub(super) fn extents(&self, place: usize) -> impl Iterator<Item = Extent> {
        extents_at(&self.extents, &self.bytes, place)
    }

    /// The length of a band in bytes.
    pub(super) fn bytes(&self, place: usize) -> u64 {
        self.offsets[place + 1] - self.offsets[place]
    }

    /// Where a band begins, counted from the first one.
    pub(super) fn offset(&self, place: usize) -> u64 {
        self.offsets[place]
    }

    /// The number of columns of a band.
    pub(super) fn column_count(&self) -> usize {
        self.lengths.len()
    }

    /// Offset, counted from the first band, and length of each column of a band.
    pub(super) fn columns(&self, place: usize) -> impl Iterator<Item = (u64, u64)> {
        let end = self.offsets[place + 1];
        let mut at = self.offsets[place];
        self.lengths.iter().map(move |words| {
            let length = words.get(&self.bytes, place).min(end - at);
            at += length;
            (at - length, length)
        })
    }

    /// The rows of a band to decode for a window: a range between two marks.
    pub(super) fn decoded(&self, place: usize, window: Window) -> Range<usize> {
        let head = self.heads[place];
        let rows = head.rows as usize;
        if window.takes(head.least) && window.takes(head.greatest) {
            return 0..rows;
        }
        let mark = |number: usize| self.marks.get(&self.bytes, self.marks_before[place] as usize + number);
        // The weight of the row at a mark lies between the lightest and the heaviest weight of its part.
        let is_out = |number: usize| window.after().takes(head.heaviest(mark(number)));
        let is_within = |number: usize| window.until().takes(head.lightest(mark(number)));
        let out = first_without(head.mark_count(), is_out);
        let within = first_without(head.mark_count(), is_within);
        let to = ((within + 1) * MARK_ROWS).min(rows);
        (out * MARK_ROWS).min(to)..to
    }

    /// The rows of a band that are certain to be in a window, by its marks: a part of those that are decoded.
    pub(super) fn certain(&self, place: usize, window: Window) -> Range<usize> {
        let head = self.heads[place];
        let rows = head.rows as usize;
        let mark = |number: usize| self.marks.get(&self.bytes, self.marks_before[place] as usize + number);
        let from = if window.after().takes(head.least) {
            let is_out = |number: usize| window.after().takes(head.lightest(mark(number)));
            ((first_without(head.mark_count(), is_out) + 1) * MARK_ROWS).min(rows)
        } else {
            0
        };
        let to = if window.until().takes(head.greatest) {
            rows
        } else {
            let is_within = |number: usize| window.until().takes(head.heaviest(mark(number)));
            // Rows before the last of these marks are no heavier than the row at it.
            first_without(head.mark_count(), is_within) * MARK_ROWS
        };
        from..to.max(from)
    }
}

fn heads(rows: &[u64], least: &[u64], greatest: &[u64]) -> Result<Vec<BandHead>, BlockError> {
    let head = |((&rows, &least), &greatest): ((&u64, &u64), &u64)| {
        let rows = u32::try_from(rows).ok().filter(|rows| *rows > 0 && *rows as usize <= BAND_ROWS_MAX);
        let rows = rows.filter(|_| least <= greatest);
        let is_half = greatest <= u32::MAX.into();
        let rows = rows.filter(|_| is_half).ok_or_else(|| damaged("its directory contradicts itself"))?;
        Ok(BandHead { rows, least: from_upper(least), greatest: up_from_upper(greatest) })
    };
    rows.iter().zip(least).zip(greatest).map(head).collect()
}

/// The first of `count` numbers for which `is_true` is false, given that it is true for a prefix of them.
fn first_without(count: usize, is_true: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (0, count);
    while from < to {
        let middle = usize::midpoint(from, to);
        if is_true(middle) { from = middle + 1 } else { to = middle }
    }
    from
}

/// The lightest weight with this upper half.
fn from_upper(upper: u64) -> Weight {
    Weight::new(upper << 32).unwrap_or(Weight::LEAST)
}

/// The heaviest weight with this upper half.
fn up_from_upper(upper: u64) -> Weight {
    Weight::new(upper << 32 | u64::from(u32::MAX)).unwrap_or(Weight::LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cube::words::SLACK_BYTES;
    use crate::seeds::for_seeds;

    #[test]
    fn the_rows_that_marks_call_certain_have_weights_of_the_window_and_no_other_but_the_decoded_has() {
        let mut certain = 0;
        for_seeds("the_rows_that_marks_call_certain", 300, |random| {
            let rows = random.usize(1..200);
            let most = [1 << 34, u64::MAX][random.usize(..2)];
            let mut weights: Vec<Weight> =
                (0..rows).map(|_| Weight::new(random.u64(1..most) >> random.u32(..3) | 1).unwrap()).collect();
            weights.sort_unstable();
            let mut bytes = Vec::new();
            put_bands(&[NewBand::new(&weights, Vec::new(), Vec::new())], &[], 0, &mut bytes);
            bytes.extend_from_slice(&[0; SLACK_BYTES]);
            let bands = Bands::decode(&mut Fields::new(&bytes), &bytes, 1, &[], 0).unwrap();
            for _ in 0..20 {
                let mut some = || weights[random.usize(..rows)];
                let (from, to) = (some(), some());
                let window = match random.u8(..3) {
                    0 => Window::below(crate::Cut::through(to)),
                    1 => Window::above(crate::Cut::through(from)),
                    _ => Window::between(from.min(to), from.max(to)),
                };
                let wanted = window.slice(&weights);
                let (sure, decoded) = (bands.certain(0, window), bands.decoded(0, window));
                assert!(
                    sure.is_empty() || (wanted.start <= sure.start && sure.end <= wanted.end),
                    "{sure:?} {wanted:?}"
                );
                assert!(wanted.is_empty() || (decoded.start <= wanted.start && wanted.end <= decoded.end));
                assert!(sure.is_empty() || wanted.len() - sure.len() <= 6 * MARK_ROWS, "{sure:?} {wanted:?}");
                certain += sure.len();
            }
        });
        assert!(certain > 100_000, "only {certain} rows were certain");
    }

    #[test]
    fn a_band_that_claims_billions_of_rows_is_refused() {
        for (rows, is_refused) in [(1, false), (u32::MAX, true)] {
            let weight = Weight::new(1 << 40).unwrap();
            let mut band = NewBand::new(&[weight], Vec::new(), vec![8]);
            band.head.rows = rows;
            band.marks = vec![0; band.head.mark_count().min(1)];
            let mut bytes = Vec::new();
            put_bands(&[band], &[], 1, &mut bytes);
            bytes.extend_from_slice(&[0; SLACK_BYTES]);
            let found = Bands::decode(&mut Fields::new(&bytes), &bytes, 1, &[], 1);
            assert_eq!(found.is_err(), is_refused, "{rows} rows");
        }
    }
}

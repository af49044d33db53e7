//! Filters: which entities have rows in a band, and in which rows, in a few bits for each entity.
//!
//! ```text
//! section:  band: beginnings | buckets | remainders, … | seal 8
//! ```
//!
//! The rows of an entity have one weight, so within a band they are neighbours. *Beginnings* has one bit for
//! each row, set where the weight differs from that of the row before. Each of the `n` distinct weights lies
//! in one of `n << REMAINDER_BITS` equal parts of the band's range. The upper bits of the number of that part
//! select one of `n` *buckets*, which are stored as bits: a 1 for each weight in the bucket and a 0 at its
//! end (the code of Elias and Fano). The lower [`REMAINDER_BITS`] bits are the *remainder*. An entity that is
//! not in the band is therefore mistaken for one that is once in `1 << REMAINDER_BITS` times.
//!
//! Invariant: the rows that a filter names for a weight include all rows of the band with that weight.
//! Invariant: decoding is total, and allocates at most one number for each band.

use super::bands::BandHead;
use super::write::{SEAL_BYTES, seal};
use crate::Weight;
use crate::block::{BlockError, damaged};
use crate::planted::{self, Bug};
use std::ops::Range;

/// Bits of a remainder.
const REMAINDER_BITS: usize = 10;

/// The seed of this section's seal, which differs from that of any column.
const FILTERS_SEED: u64 = u64::from_le_bytes(*b"entities");

/// The filters of the bands of an object.
#[derive(Clone, Debug)]
pub(super) struct Filters {
    bytes: Vec<u8>,
    /// Where the filter of each band begins.
    starts: Vec<u32>,
}

/// A string of bits, from the lowest bit of the first byte on.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.count.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.count % 8);
        }
        self.count += 1;
    }
}

/// The bucket and the remainder of `weight` in a band with `count` distinct weights.
fn part(weight: Weight, band: BandHead, count: usize) -> (usize, u64) {
    let parts = (count as u128) << REMAINDER_BITS;
    let part = u128::from(weight.get() - band.least.get()) * parts / band.range();
    ((part >> REMAINDER_BITS) as usize, part as u64 & ((1 << REMAINDER_BITS) - 1))
}

/// Appends the filter of a band whose rows have these weights, in rising order.
pub(super) fn put_filter(weights: &[Weight], bytes: &mut Vec<u8>) {
    let band = BandHead::of(weights);
    let mut distinct = weights.to_vec();
    distinct.dedup();
    let mut beginnings = Bits::default();
    for (row, weight) in weights.iter().enumerate() {
        beginnings.push(row == 0 || *weight != weights[row - 1]);
    }
    let (mut buckets, mut remainders, mut current) = (Bits::default(), Bits::default(), 0);
    for weight in &distinct {
        let (bucket, remainder) = part(*weight, band, distinct.len());
        for _ in current..bucket {
            buckets.push(false);
        }
        current = bucket;
        buckets.push(true);
        (0..REMAINDER_BITS).for_each(|bit| remainders.push(remainder >> bit & 1 == 1));
    }
    for _ in current..distinct.len() {
        buckets.push(false);
    }
    [beginnings, buckets, remainders].iter().for_each(|bits| bytes.extend_from_slice(&bits.bytes));
}

/// Ends a section of filters with its seal.
pub(super) fn seal_filters(bytes: &mut Vec<u8>) {
    let sum = seal(bytes, FILTERS_SEED);
    bytes.extend_from_slice(&sum.to_le_bytes());
}

/// The lengths in bytes of the parts of a filter, for a band with `rows` rows and `count` distinct weights.
const fn lengths(rows: usize, count: usize) -> [usize; 3] {
    [rows.div_ceil(8), (2 * count).div_ceil(8), (REMAINDER_BITS * count).div_ceil(8)]
}

/// The number of ones among the first `bits` bits.
fn ones(bytes: &[u8], bits: usize) -> usize {
    let whole: usize = bytes[..bits / 8].iter().map(|byte| byte.count_ones() as usize).sum();
    let rest = bytes.get(bits / 8).map_or(0, |byte| byte & ((1_u16 << (bits % 8)) - 1) as u8);
    whole + rest.count_ones() as usize
}

fn bit(bytes: &[u8], place: usize) -> bool {
    bytes.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1)
}

/// The place of the `number`th bit that equals `value`, counted from 0; `bits` if there are fewer.
fn place_of(bytes: &[u8], bits: usize, value: bool, number: usize) -> usize {
    let mut left = number;
    for (place, byte) in bytes.iter().enumerate() {
        let here = if value { byte.count_ones() } else { byte.count_zeros() } as usize;
        if left < here {
            let mut of_byte = (place * 8..place * 8 + 8).filter(|&at| bit(bytes, at) == value);
            return of_byte.nth(left).unwrap_or(bits).min(bits);
        }
        left -= here;
    }
    bits
}

impl Filters {
    /// Reads the section of an object with these bands.
    pub(super) fn decode(bytes: &[u8], bands: &[BandHead]) -> Result<Self, BlockError> {
        let sealed = bytes.len().checked_sub(SEAL_BYTES).map(|at| bytes.split_at(at));
        let (bytes, found) = sealed.ok_or_else(|| damaged("its filters are cut off"))?;
        if found != seal(bytes, FILTERS_SEED).to_le_bytes() {
            return Err(damaged("its filters do not match their seal"));
        }
        let odd = || damaged("its filters contradict its directory");
        let (mut starts, mut at) = (Vec::with_capacity(bands.len()), 0);
        for band in bands {
            let rows = band.rows as usize;
            let rest = bytes.get(at..).filter(|rest| rest.len() >= rows.div_ceil(8)).ok_or_else(odd)?;
            let count = ones(rest, rows);
            let [beginnings, buckets, remainders] = lengths(rows, count);
            let of_buckets = rest.get(beginnings..beginnings + buckets).ok_or_else(odd)?;
            if !bit(rest, 0) || ones(of_buckets, 2 * count) != count {
                return Err(odd());
            }
            starts.push(u32::try_from(at).map_err(|_| odd())?);
            at += beginnings + buckets + remainders;
        }
        if at == bytes.len() { Ok(Self { bytes: bytes.to_vec(), starts }) } else { Err(odd()) }
    }

    /// The rows of a band that may have one of these weights, all of which lie in its range.
    pub(super) fn rows(&self, place: usize, band: BandHead, weights: &[Weight]) -> Option<Range<usize>> {
        let rows = band.rows as usize;
        let start = self.starts.get(place).map_or(self.bytes.len(), |start| *start as usize);
        // Decoding has checked that the whole filter is there.
        let of_band = self.bytes.get(start..).unwrap_or_default();
        let count = ones(of_band, rows);
        let [beginnings, buckets, remainders] = lengths(rows, count);
        let of_band = of_band.get(..beginnings + buckets + remainders)?;
        let (beginnings, rest) = of_band.split_at(beginnings);
        let (buckets, remainders) = rest.split_at(buckets);
        let mut found: Option<Range<usize>> = None;
        for weight in weights {
            let (bucket, remainder) = part(*weight, band, count);
            let end = place_of(buckets, 2 * count, false, bucket);
            let from = bucket.checked_sub(1).map_or(0, |last| place_of(buckets, 2 * count, false, last) + 1);
            for number in from - bucket..end - bucket {
                if remainder_of(remainders, number) == remainder {
                    let first = place_of(beginnings, rows, true, number);
                    let last = place_of(beginnings, rows, true, number + 1)
                        - usize::from(planted::is(Bug::FilterTooShort));
                    found =
                        Some(found.map_or(first..last, |found| found.start.min(first)..found.end.max(last)));
                }
            }
        }
        found
    }
}

fn remainder_of(remainders: &[u8], number: usize) -> u64 {
    let first = number * REMAINDER_BITS;
    (0..REMAINDER_BITS).map(|at| u64::from(bit(remainders, first + at)) << at).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::for_seeds;
    use fastrand::Rng;

    /// Bands of rows of a few entities, as a writer sees them.
    fn bands(random: &mut Rng) -> Vec<Vec<Weight>> {
        let bands = (0..random.usize(1..8)).map(|_| {
            // Weights of a deep cube lie near each other, even in the same 2^32.
            let (low, bits) = (random.u64(..), random.u32(1..64));
            let entities: Vec<u64> =
                (0..random.usize(1..100)).map(|_| low.saturating_add(random.u64(..) >> bits)).collect();
            let rows = random.usize(1..200);
            let mut weights: Vec<Weight> = (0..rows)
                .map(|_| Weight::new(entities[random.usize(..entities.len())].max(1)).unwrap())
                .collect();
            weights.sort_unstable();
            weights
        });
        bands.collect()
    }

    fn written(bands: &[Vec<Weight>]) -> (Vec<u8>, Vec<BandHead>) {
        let mut bytes = Vec::new();
        bands.iter().for_each(|weights| put_filter(weights, &mut bytes));
        seal_filters(&mut bytes);
        (bytes, bands.iter().map(|weights| BandHead::of(weights)).collect())
    }

    #[test]
    fn the_rows_of_an_entity_are_all_found_and_few_others() {
        let (mut exact, mut all, mut wrong, mut strange) = (0, 0, 0, 0);
        for_seeds("the_rows_of_an_entity_are_all_found", 300, |random| {
            let bands = bands(random);
            let (bytes, entries) = written(&bands);
            let filters = Filters::decode(&bytes, &entries).unwrap();
            for (place, (weights, entry)) in bands.iter().zip(&entries).enumerate() {
                for weight in weights {
                    let rows = filters.rows(place, *entry, &[*weight]).unwrap();
                    let own = weights.partition_point(|other| other < weight)
                        ..weights.partition_point(|other| other <= weight);
                    assert!(rows.start <= own.start && own.end <= rows.end, "{own:?} in {rows:?}");
                    (exact, all) = (exact + usize::from(rows == own), all + 1);
                }
                for _ in 0..50 {
                    let span = entry.greatest.get() - entry.least.get();
                    let other = entry.least.get() + random.u64(..) % span.max(1);
                    let other = Weight::new(other).unwrap();
                    if weights.binary_search(&other).is_err() {
                        strange += 1;
                        wrong += usize::from(filters.rows(place, *entry, &[other]).is_some());
                    }
                }
            }
        });
        assert!(exact * 100 >= all * 40, "{exact} of {all}");
        assert!(wrong * 50 <= strange, "{wrong} of {strange}");
    }

    #[test]
    fn weights_that_are_spread_evenly_are_mistaken_as_rarely_as_their_bits_say() {
        let mut random = Rng::with_seed(1);
        let mut weights: Vec<Weight> = (0..128).map(|_| Weight::new(random.u64(1..)).unwrap()).collect();
        weights.sort_unstable();
        let (bytes, entries) = written(std::slice::from_ref(&weights));
        assert_eq!(bytes.len(), 16 + 32 + 128 * REMAINDER_BITS / 8 + SEAL_BYTES);
        let filters = Filters::decode(&bytes, &entries).unwrap();
        let tries = 400_000;
        let is_found = |_: &u32| {
            let other = random.u64(weights[0].get()..weights[127].get());
            filters.rows(0, entries[0], &[Weight::new(other).unwrap()]).is_some()
        };
        let found = (0..tries).filter(is_found).count() as f64;
        let expected = f64::from(tries) / f64::from(1 << REMAINDER_BITS);
        assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{found} of {expected}");
    }

    #[test]
    fn several_entities_have_the_rows_around_all_of_them() {
        let weights: Vec<Weight> =
            (1..=40).map(|number| Weight::new((number / 4 + 1) << 56).unwrap()).collect();
        let (bytes, entries) = written(std::slice::from_ref(&weights));
        let filters = Filters::decode(&bytes, &entries).unwrap();
        let rows = |entities: &[Weight]| filters.rows(0, entries[0], entities);
        assert_eq!(rows(&[]), None);
        assert_eq!(rows(&[weights[8], weights[20]]), Some(7..23));
    }

    #[test]
    fn damaged_filters_are_refused() {
        for_seeds("damaged_filters_are_refused", 30, |random| {
            let (bytes, entries) = written(&bands(random));
            for cut in 0..bytes.len() {
                assert!(Filters::decode(&bytes[..cut], &entries).is_err());
            }
            let mut changed = bytes.clone();
            let at = random.usize(..bytes.len());
            changed[at] ^= 1 << random.u8(..8);
            assert!(Filters::decode(&changed, &entries).is_err(), "byte {at}");
            // Reading anything with a valid seal terminates, and returns rows of the band.
            let mut sealed: Vec<u8> = bytes[..bytes.len() - SEAL_BYTES].to_vec();
            let at = random.usize(..sealed.len());
            sealed[at] ^= 1 << random.u8(..8);
            seal_filters(&mut sealed);
            if let Ok(filters) = Filters::decode(&sealed, &entries) {
                for (place, entry) in entries.iter().enumerate() {
                    let rows = filters.rows(place, *entry, &[entry.least, entry.greatest]);
                    assert!(rows.is_none_or(|rows| rows.end <= entry.rows as usize));
                }
            }
        });
    }
}

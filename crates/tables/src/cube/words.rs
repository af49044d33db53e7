//! Words: runs of 64-bit numbers, packed into as few bits as their range needs.
//!
//! ```text
//! bits 1 | shift 1 | base 8 | count * bits, from the lowest bit of the first byte on
//! ```
//!
//! A number is `base + (packed << shift)`. At least [`SLACK_BYTES`] bytes must follow the packed bits, so
//! that each number is one load wherever it begins. Numbers of more than 57 bits are stored in 64.
//!
//! Invariant: numbers are unpacked as they were packed; unpacking is total.

use super::groups::{GROUP_NUMBERS, Number, Word, mask};
use crate::block::BlockError;
use std::ops::{BitOr, Range, Sub};

/// Bytes that must follow packed bits.
pub(super) const SLACK_BYTES: usize = 8;

/// Length of the header in front of packed bits.
const HEAD_BYTES: usize = 10;

/// The most bits that are sure to lie within one load, wherever they begin.
const BITS_IN_ONE_LOAD: u32 = 57;

/// Groups that are unpacked before they are converted: as many numbers as most bands have rows.
const GROUPS_AT_ONCE: usize = 8;

/// Numbers that can be packed.
pub(super) trait Packable:
    Copy + Ord + Default + Into<u64> + Sub<Output = Self> + BitOr<Output = Self>
{
}

impl Packable for u32 {}
impl Packable for u64 {}

/// The parameters of packing that all numbers of a run share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packing {
    bits: u32,
    shift: u32,
    base: u64,
}

impl Packing {
    /// The tightest packing for these numbers.
    fn of<N: Packable>(words: &[N]) -> Self {
        let Some(base) = words.iter().copied().min() else { return Self::default() };
        let any: u64 = words.iter().fold(N::default(), |any, &word| any | (word - base)).into();
        let shift = if any == 0 { 0 } else { any.trailing_zeros() };
        let bits = u64::BITS - (any >> shift).leading_zeros();
        if bits > BITS_IN_ONE_LOAD {
            return Self { bits: u64::BITS, shift: 0, base: 0 };
        }
        Self { bits, shift, base: base.into() }
    }

    /// The number of bytes that `count` numbers take.
    const fn bytes(self, count: usize) -> Option<usize> {
        match count.checked_mul(self.bits as usize) {
            Some(bits) => Some(bits.div_ceil(8)),
            None => None,
        }
    }

    fn put_head(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&[self.bits as u8, self.shift as u8]);
        bytes.extend_from_slice(&self.base.to_le_bytes());
    }

    fn put<N: Packable>(self, words: &[N], bytes: &mut Vec<u8>) {
        match self.bits {
            0 => {}
            1..=14 => self.put_joined::<4, N>(words, bytes),
            15..=28 => self.put_joined::<2, N>(words, bytes),
            29..=56 => self.put_joined::<1, N>(words, bytes),
            _ => self.put_wide(words, bytes),
        }
    }

    /// Joins `JOINED` numbers, of at most 56 bits together, before appending them, since each append waits
    /// for the one before it.
    fn put_joined<const JOINED: usize, N: Packable>(self, words: &[N], bytes: &mut Vec<u8>) {
        let start = bytes.len();
        let end = start + (words.len() * self.bits as usize).div_ceil(8);
        // Whole words are written; the last one reaches beyond the end.
        bytes.resize(end + size_of::<u64>(), 0);
        let out = &mut bytes[start..];
        let (mut held, mut fill, mut at) = (0_u64, 0, 0);
        let mut put = |offset: u64, bits: u32| {
            held |= offset << fill;
            fill += bits;
            if let Some(to) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                *to = held.to_le_bytes();
            }
            at += fill as usize / 8;
            held >>= fill & !7;
            fill %= 8;
        };
        let offset = |word: N| (word.into() - self.base) >> self.shift;
        let (groups, rest) = words.as_chunks::<JOINED>();
        for group in groups {
            let join = |joined: u64, &word: &N| joined << self.bits | offset(word);
            put(group.iter().rev().fold(0, join), self.bits * JOINED as u32);
        }
        rest.iter().for_each(|&word| put(offset(word), self.bits));
        bytes.truncate(end);
    }

    fn put_wide<N: Packable>(self, words: &[N], bytes: &mut Vec<u8>) {
        let (mut held, mut fill) = (0_u128, 0);
        for &word in words {
            held |= u128::from((word.into() - self.base) >> self.shift) << fill;
            fill += self.bits;
            if fill >= u64::BITS {
                bytes.extend_from_slice(&(held as u64).to_le_bytes());
                held >>= u64::BITS;
                fill -= u64::BITS;
            }
        }
        bytes.extend_from_slice(&held.to_le_bytes()[..fill.div_ceil(8) as usize]);
    }

    /// Reads the packing at the front of `bytes`. Returns it with the bytes that follow.
    #[inline(always)]
    pub(super) fn read(bytes: &[u8]) -> Result<(Self, &[u8]), BlockError> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(cut_off)?;
        let base = head.last_chunk().map_or(0, |base| u64::from_le_bytes(*base));
        let packing = Self { bits: u32::from(head[0]), shift: u32::from(head[1]), base };
        let is_known = packing.bits <= BITS_IN_ONE_LOAD || packing.bits == u64::BITS;
        if is_known && packing.shift < u64::BITS { Ok((packing, rest)) } else { Err(odd()) }
    }

    /// The bytes after `count` packed numbers.
    fn rest(self, bytes: &[u8], count: usize) -> Result<&[u8], BlockError> {
        let packed = self.bytes(count).ok_or_else(cut_off)?;
        let is_whole = bytes.len() >= packed.saturating_add(SLACK_BYTES);
        if is_whole { Ok(&bytes[packed..]) } else { Err(cut_off()) }
    }

    /// Appends the numbers in the range `numbers`, out of `count` packed ones, each converted by `of` from
    /// its word. A narrow word loses the upper bits.
    #[inline(never)]
    pub(super) fn unpack_to<N: Number>(
        self,
        bytes: &[u8],
        count: usize,
        numbers: Range<usize>,
        values: &mut Vec<N>,
        of: impl Fn(N::Word) -> N::Word,
    ) -> Result<(), BlockError> {
        self.rest(bytes, count)?;
        if numbers.end > count {
            return Err(cut_off());
        }
        // Numbers of zero bits take no bytes, so a damaged count can ask for more than there is memory.
        values.try_reserve(numbers.len()).map_err(|_| cut_off())?;
        let whole = |offset: u64| self.base.wrapping_add(offset << self.shift);
        let one = |number: usize| N::of(of(N::Word::of(whole(self.offset(bytes, number)))));
        let Some(unpack) = N::Word::unpack(self.bits as usize) else {
            if self.bits == 0 {
                values.extend(std::iter::repeat_n(N::of(of(N::Word::of(self.base))), numbers.len()));
            } else {
                values.extend(numbers.map(one));
            }
            return Ok(());
        };
        let first = numbers.start.next_multiple_of(GROUP_NUMBERS).min(numbers.end);
        values.extend((numbers.start..first).map(one));
        let (mut at, mut groups) = (first, [[N::Word::default(); GROUP_NUMBERS]; GROUPS_AT_ONCE]);
        while at < numbers.end {
            // The last group may reach beyond what is wanted: most bands have more rows than that.
            let wanted = (numbers.end - at).div_ceil(GROUP_NUMBERS).min(GROUPS_AT_ONCE);
            // Where the first group begins; eight numbers take whole bytes.
            let bytes = bytes.get(at / GROUP_NUMBERS * self.bits as usize..).unwrap_or_default();
            let done = unpack(bytes, &mut groups[..wanted]);
            let words = groups[..done].as_flattened_mut();
            let made = words.len().min(numbers.end - at);
            N::Word::raise(&mut words[..made], N::Word::of(self.base), self.shift, &of);
            N::append(&words[..made], values);
            at += made;
            if done < wanted {
                break;
            }
        }
        values.extend((at..numbers.end).map(one));
        Ok(())
    }

    /// A packed number without base and shift.
    fn offset(self, bytes: &[u8], number: usize) -> u64 {
        let at = number * self.bits as usize;
        let word = bytes.get(at / 8..).and_then(<[u8]>::first_chunk);
        (word.map_or(0, |word| u64::from_le_bytes(*word)) >> (at % 8)) & mask(self.bits)
    }
}

/// A run of packed numbers that is read in place: each number is one load, and nothing is unpacked in
/// advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    packing: Packing,
    /// Where the packed bits begin.
    at: usize,
}

impl Words {
    /// Finds the run of `count` numbers that begins at `at` in `bytes`. Returns it with the offset of its
    /// end.
    pub(super) fn find(bytes: &[u8], at: usize, count: usize) -> Result<(Self, usize), BlockError> {
        let (packing, rest) = Packing::read(bytes.get(at..).unwrap_or_default())?;
        let end = bytes.len() - packing.rest(rest, count)?.len();
        Ok((Self { packing, at: bytes.len() - rest.len() }, end))
    }

    /// One number of the run, from the bytes in which it was found; an arbitrary number for a place beyond
    /// the end.
    pub(super) fn get(self, bytes: &[u8], place: usize) -> u64 {
        let Packing { bits, shift, base } = self.packing;
        let at = place.wrapping_mul(bits as usize);
        let load = self.at.checked_add(at / 8).and_then(|at| bytes.get(at..)).and_then(<[u8]>::first_chunk);
        let word = load.map_or(0, |word| u64::from_le_bytes(*word));
        base.wrapping_add(((word >> (at % 8)) & mask(bits)) << shift)
    }
}

/// Appends a run of numbers.
pub(super) fn put_words<N: Packable>(words: &[N], bytes: &mut Vec<u8>) {
    let packing = Packing::of(words);
    packing.put_head(bytes);
    packing.put(words, bytes);
}

/// Reads a run of `count` numbers. Returns it with the bytes that follow.
pub(super) fn read_words(bytes: &[u8], count: usize) -> Result<(Vec<u64>, &[u8]), BlockError> {
    let (packing, rest) = Packing::read(bytes)?;
    // A run of zero-bit numbers costs its writer nothing, whatever it promises; callers bound `count`.
    let mut words = Vec::with_capacity(count.min(bytes.len().saturating_mul(8)));
    packing.unpack_to(rest, count, 0..count, &mut words, |word| word)?;
    Ok((words, packing.rest(rest, count)?))
}

fn cut_off() -> BlockError {
    BlockError::Damaged { problem: "packed numbers are cut off".to_owned() }
}

fn odd() -> BlockError {
    BlockError::Damaged { problem: "numbers are packed in an unknown way".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(words: &[u64]) -> usize {
        let mut bytes = Vec::new();
        put_words(words, &mut bytes);
        let length = bytes.len();
        bytes.extend_from_slice(&[0xA5; SLACK_BYTES]);
        let (read, rest) = read_words(&bytes, words.len()).unwrap();
        assert_eq!(read, words);
        assert_eq!(rest, &[0xA5; SLACK_BYTES]);
        let (found, end) = Words::find(&bytes, 0, words.len()).unwrap();
        assert_eq!(end, length);
        // Any range, and also the lower halves alone.
        let from = words.len() / 3;
        let (mut some, mut halves) = (vec![7_u64], vec![7_u32]);
        let (packing, packed) = Packing::read(&bytes).unwrap();
        packing.unpack_to(packed, words.len(), from..words.len(), &mut some, |word| word).unwrap();
        assert_eq!(some[1..], words[from..]);
        packing.unpack_to(packed, words.len(), from..words.len(), &mut halves, |word| word).unwrap();
        assert!(halves[1..].iter().copied().eq(words[from..].iter().map(|&word| word as u32)));
        let in_place: Vec<u64> = (0..words.len()).map(|place| found.get(&bytes, place)).collect();
        assert_eq!(in_place, words);
        found.get(&bytes, usize::MAX);
        length
    }

    #[test]
    fn numbers_of_every_width_come_back() {
        let mut random = fastrand::Rng::with_seed(1);
        for bits in 0..=64_u32 {
            for count in [0, 1, 2, 7, 8, 63, 64, 65, 300] {
                let mask = mask(bits);
                let base = random.u64(..) & !mask;
                let words: Vec<u64> = (0..count).map(|_| base | random.u64(..) & mask).collect();
                let bytes = round_trip(&words);
                let expected = if bits > 57 { 64 } else { bits as usize };
                assert!(bytes <= HEAD_BYTES + (count * expected).div_ceil(8), "{bits} bits, {count} numbers");
            }
        }
    }

    #[test]
    fn a_common_base_and_common_zeros_cost_nothing() {
        assert_eq!(round_trip(&[u64::MAX; 100]), HEAD_BYTES);
        assert_eq!(round_trip(&[7 << 40, 9 << 40, 8 << 40, 10 << 40]), HEAD_BYTES + 1);
    }

    #[test]
    fn what_is_cut_off_or_odd_is_refused() {
        let mut bytes = Vec::new();
        put_words(&[1_u64, 2, 300], &mut bytes);
        bytes.extend_from_slice(&[0; SLACK_BYTES]);
        for cut in 0..bytes.len() {
            assert!(read_words(&bytes[..cut], 3).is_err(), "cut at {cut}");
            assert!(Words::find(&bytes[..cut], 0, 3).is_err(), "cut at {cut}");
        }
        assert!(read_words(&bytes, usize::MAX).is_err());
        bytes[0] = 58;
        assert!(read_words(&bytes, 0).is_err());
        (bytes[0], bytes[1]) = (9, 64);
        assert!(read_words(&bytes, 3).is_err());
    }
}

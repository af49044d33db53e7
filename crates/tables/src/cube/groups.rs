//! Groups: packed numbers are unpacked eight at a time, by one loop for each width.
//!
//! Eight numbers of any width begin and end on whole bytes. Within a group of a known width every load and
//! every shift is therefore a constant, and one check of the length serves all eight.
//!
//! Invariant: the result equals unpacking with [`super::words::Packing`] one number at a time; unpacking is
//! total.

use std::ops::{BitAnd, BitXor, Not};

/// Numbers in a group.
pub(super) const GROUP_NUMBERS: usize = 8;

/// Bytes that must follow the bits of a group, so that each number is one load.
const GROUP_SLACK_BYTES: usize = 8;

/// The lowest `bits` bits.
pub(super) const fn mask(bits: u32) -> u64 {
    if bits >= u64::BITS { u64::MAX } else { (1 << bits) - 1 }
}

/// Fills groups from bytes that begin with the first of them. Returns how many groups the bytes sufficed for.
type Unpack<W> = fn(&[u8], &mut [[W; GROUP_NUMBERS]]) -> usize;

/// The word type that packed numbers are unpacked into first.
pub(super) trait Word: Copy + Default {
    /// The loop for numbers of `bits` bits, if there is one.
    fn unpack(bits: usize) -> Option<Unpack<Self>>;

    fn of(word: u64) -> Self;

    /// Turns packed words into values: shifts them by `shift` bits, adds `base`, and applies `of`. Overflow
    /// is discarded.
    fn raise(words: &mut [Self], base: Self, shift: u32, of: impl Fn(Self) -> Self);
}

/// A number of one width, which is the lower bits of a word.
pub(super) trait Number: Copy {
    /// The shortest word that holds them.
    type Word: Word
        + BitXor<Output = Self::Word>
        + BitAnd<Output = Self::Word>
        + Not<Output = Self::Word>
        + PartialEq;

    fn of(word: Self::Word) -> Self;

    /// Appends the numbers in `words`.
    fn append(words: &[Self::Word], values: &mut Vec<Self>);
}

macro_rules! narrow {
    ($($number:ty)*) => {
        $(impl Number for $number {
            type Word = u32;

            #[inline]
            fn of(word: u32) -> Self {
                word as Self
            }

            fn append(words: &[u32], values: &mut Vec<Self>) {
                values.extend(words.iter().map(|&word| word as Self));
            }
        })*
    };
}

macro_rules! whole {
    ($($number:ty)*) => {
        $(impl Number for $number {
            type Word = Self;

            #[inline]
            fn of(word: Self) -> Self {
                word
            }

            fn append(words: &[Self], values: &mut Vec<Self>) {
                values.extend_from_slice(words);
            }
        })*
    };
}

narrow!(u8 u16);
whole!(u32 u64);

fn groups<W: Word, const BITS: usize>(bytes: &[u8], groups: &mut [[W; GROUP_NUMBERS]]) -> usize {
    let mask = const { mask(BITS as u32) };
    for (place, group) in groups.iter_mut().enumerate() {
        let Some(bytes) = bytes.get(place * BITS..place * BITS + BITS + GROUP_SLACK_BYTES) else {
            return place;
        };
        for (number, word) in group.iter_mut().enumerate() {
            let at = number * BITS;
            let load = bytes[at / 8..].first_chunk().map_or(0, |load| u64::from_le_bytes(*load));
            *word = W::of((load >> (at % 8)) & mask);
        }
    }
    groups.len()
}

macro_rules! word {
    ($word:ty: $($bits:literal)*) => {
        impl Word for $word {
            fn unpack(bits: usize) -> Option<Unpack<Self>> {
                match bits {
                    $($bits => Some(groups::<Self, $bits>),)*
                    _ => None,
                }
            }

            #[inline]
            fn of(word: u64) -> Self {
                word as Self
            }

            // Two loops, so that most numbers, which need no shift, do not pay for one. In place, so that the
            // compiler handles several at a time.
            #[inline(always)]
            fn raise(words: &mut [Self], base: Self, shift: u32, of: impl Fn(Self) -> Self) {
                match shift {
                    0 => words.iter_mut().for_each(|word| *word = of(word.wrapping_add(base))),
                    1..Self::BITS => {
                        words.iter_mut().for_each(|word| *word = of((*word << shift).wrapping_add(base)));
                    }
                    _ => words.fill(of(base)),
                }
            }
        }
    };
}

word!(u32: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
// One load takes eight bytes, from the byte in which a number begins. They contain any number of up to 57
// bits, wherever it begins (57 + 7 = 64); numbers of 64 bits begin on whole bytes. Widths between are
// unpacked one number at a time.
word!(u64: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 64);

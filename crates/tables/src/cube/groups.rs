//! Groups: packed numbers, eight at a time, by a loop of its own for each width.
//!
//! Eight numbers of any width begin and end on whole bytes, so within a group of a known width every load and every
//! shift is a constant, and one look at the length of the bytes serves them all.
//!
//! Invariant: what comes out is what [`super::words::Packing`] says one number at a time; unpacking is total.

/// Numbers of a group.
pub(super) const GROUP: usize = 8;

/// Bytes that must lie behind the bits of a group, so that each number is one load.
const SLACK: usize = 8;

/// Fills groups from the bytes where the first of them begins; answers how many of them the bytes sufficed for.
type Unpack<W> = fn(&[u8], &mut [[W; GROUP]]) -> usize;

/// A word that packed numbers become before anything else is done with them.
pub(super) trait Word: Copy + Default {
    /// The loop for numbers of so many bits, if there is one.
    fn unpack(bits: usize) -> Option<Unpack<Self>>;

    fn of(word: u64) -> Self;

    /// This and another that is shifted by so many bits; what does not fit is lost.
    fn plus(self, other: Self, shift: u32) -> Self;
}

fn groups<W: Word, const BITS: usize>(bytes: &[u8], groups: &mut [[W; GROUP]]) -> usize {
    let mask = (1_u64 << BITS) - 1;
    for (place, group) in groups.iter_mut().enumerate() {
        let Some(bytes) = bytes.get(place * BITS..place * BITS + BITS + SLACK) else { return place };
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

            #[inline]
            fn plus(self, other: Self, shift: u32) -> Self {
                self.wrapping_add(other.unbounded_shl(shift))
            }
        }
    };
}

word!(u32: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
word!(u64: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
    33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57);

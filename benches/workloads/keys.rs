//! Keys in YCSB's format: "user" and 20 digits of a hashed counter.
//!
//! Invariant: the hash is a bijection of 64 bits, so no two counters share a key.

/// Length of every key in bytes.
pub const KEY_BYTES: usize = 24;

/// One key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key(pub [u8; KEY_BYTES]);

const DIGIT_PAIRS: [[u8; 2]; 100] = digit_pairs();

const fn digit_pairs() -> [[u8; 2]; 100] {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
}

impl Key {
    /// The key of the record that was inserted as number `counter`.
    #[inline]
    pub fn of_counter(counter: u64) -> Self {
        Self::of_hash(hash_of_counter(counter))
    }

    /// The key whose digits are `hash`.
    #[inline]
    pub fn of_hash(hash: u64) -> Self {
        let mut bytes = *b"user00000000000000000000";
        let mut rest = hash;
        // From the last pair of digits to the first: a 64-bit number has at most 20.
        for at in (4..KEY_BYTES).step_by(2).rev() {
            bytes[at..at + 2].copy_from_slice(&DIGIT_PAIRS[(rest % 100) as usize]);
            rest /= 100;
        }
        Self(bytes)
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Spreads a counter over all 64-bit numbers (the finaliser of SplitMix64).
#[inline]
pub fn hash_of_counter(counter: u64) -> u64 {
    let mut hash = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_user_and_twenty_digits() {
        for hash in [0, 7, 10_000_000_000, u64::MAX] {
            assert_eq!(Key::of_hash(hash).0.as_slice(), format!("user{hash:020}").as_bytes());
        }
    }

    #[test]
    fn key_order_is_hash_order_and_keys_never_repeat() {
        let mut hashes: Vec<u64> = (0..10_000).map(hash_of_counter).collect();
        hashes.sort_unstable();
        assert!(hashes.windows(2).all(|pair| Key::of_hash(pair[0]) < Key::of_hash(pair[1])));
    }
}

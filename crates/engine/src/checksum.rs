//! Checksums of everything that is read back, and the hash behind leaf fingerprints.
//!
//! XXH3-64 serves both. A seed ties bytes to their store and place, so that intact bytes in the wrong place
//! do not pass.

use twox_hash::XxHash3_64;

/// Checksum of `bytes`, tied to the store or place that `seed` names.
pub(crate) fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// Hash of a key, in memory only.
pub(crate) fn key_hash(key: &[u8]) -> u8 {
    (fold(folded(key)) >> 24) as u8
}

/// Hash of a key of a tree, in memory only.
#[inline]
pub(crate) fn wide_hash(tree: u32, key: &[u8]) -> u64 {
    fold(folded(key) ^ u64::from(tree))
}

/// Multiply-fold over words: a table in memory needs a few good bits, not as many as a checksum.
#[inline]
fn folded(key: &[u8]) -> u64 {
    let mut state = key.len() as u64;
    let mut chunks = key.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        state = fold(state ^ u64::from_le_bytes(word));
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        state = fold(state ^ u64::from_le_bytes(word));
    }
    state
}

fn fold(word: u64) -> u64 {
    let wide = u128::from(word ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93;
    (wide as u64) ^ ((wide >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_of_similar_keys_spread_evenly() {
        let mut counts = [0u32; 256];
        for number in 0..25_600u64 {
            counts[key_hash(format!("user{number:020}").as_bytes()) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (50..160).contains(&count)), "{counts:?}");
    }

    #[test]
    fn a_checksum_depends_on_seed_and_bytes() {
        assert_ne!(checksum(1, b"a"), checksum(2, b"a"));
        assert_ne!(checksum(1, b"a"), checksum(1, b"b"));
    }
}

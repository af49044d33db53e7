//! Unique random numbers for attempts and chunks.
//!
//! They come from the operating system each time. A generator of our own, however well seeded, would repeat
//! its numbers in a process that was restored twice from one snapshot, and one seeded by the clock would do
//! so in two processes that start at once.
//!
//! Invariant: two writes never carry the same number, and two values never lie in chunks of the same name.

use crate::codec::ChunkId;
use atoll_store::StoreError;
use rustls::crypto::aws_lc_rs::default_provider;

/// The number of an attempt.
pub(crate) fn attempt() -> Result<u128, StoreError> {
    draw().map(u128::from_be_bytes)
}

/// A name for chunks that are about to be written.
pub(crate) fn chunk_id() -> Result<ChunkId, StoreError> {
    draw()
}

fn draw() -> Result<[u8; 16], StoreError> {
    let mut number = [0; 16];
    default_provider().secure_random.fill(&mut number).map_err(|_| StoreError::Unavailable {
        place: "this machine".to_owned(),
        reason: "its generator of random numbers fails".to_owned(),
        source: None,
    })?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_number_comes_twice_and_no_byte_stands_still() {
        let numbers: Vec<u128> = (0..2000).map(|_| attempt().unwrap()).collect();
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len());
        let (ones, zeros) =
            (numbers.iter().fold(0, |all, n| all | n), numbers.iter().fold(0, |all, n| all | !n));
        assert_eq!((ones, zeros), (u128::MAX, u128::MAX));
    }
}

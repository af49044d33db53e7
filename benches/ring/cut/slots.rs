//! Slots of keys, and which node serves each, as far as nodes have said.

use std::net::SocketAddr;

/// How many slots there are.
pub const SLOTS: usize = 16_384;

/// The slot of a key without a hash tag: CRC16 as XMODEM has it.
pub fn slot_of(key: &[u8]) -> usize {
    let step = |sum: u16, byte: &u8| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 }
        })
    };
    usize::from(key.iter().fold(0, step)) % SLOTS
}

/// Where a refusal sends its reader: `MOVED slot address`.
pub fn moved(words: &[u8]) -> Option<(usize, SocketAddr)> {
    let words = std::str::from_utf8(words).ok()?;
    let mut rest = words.strip_prefix("MOVED ")?.split(' ');
    let slot = rest.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
    Some((slot, rest.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b""), 0);
    }

    #[test]
    fn only_a_move_to_a_place_is_followed() {
        assert_eq!(moved(b"MOVED 3999 10.77.0.2:7001"), Some((3_999, "10.77.0.2:7001".parse().unwrap())));
        for words in ["MOVED 16384 10.77.0.2:7001", "MOVED 1", "MOVED 1 :7001", "ASK 1 10.77.0.2:7001", "ERR"]
        {
            assert_eq!(moved(words.as_bytes()), None, "{words}");
        }
    }
}

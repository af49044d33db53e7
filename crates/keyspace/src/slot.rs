//! The slot of a key, as every client of a Redis cluster reckons it.

/// How many slots there are.
pub const SLOTS: u16 = 16384;

/// The slot of a key: the checksum of what stands between its first braces, or of all of it where nothing does.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    checksum(hashed(key)) % SLOTS
}

fn hashed(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let behind = &key[open + 1..];
    match behind.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &behind[..close],
    }
}

/// CRC16 of the XMODEM kind: polynomial 1021, from zero, nothing mirrored.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, &byte| (sum << 8) ^ TABLE[usize::from((sum >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(checksum(b"123456789"), 0x31c3);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn slots_are_those_of_redis() {
        // As a Redis 7.0 answered to CLUSTER KEYSLOT.
        for (key, slot) in [("foo", 12182), ("bar", 5061), ("hello", 866), ("", 0), ("somekey", 11058)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn only_what_is_in_the_first_braces_counts_if_there_is_anything() {
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"a{b}{c}"), slot_of(b"b"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        for whole in [&b"foo{}{bar}"[..], b"a{b", b"a}b{", b"{}"] {
            assert_eq!(slot_of(whole), checksum(whole) % SLOTS);
        }
    }
}

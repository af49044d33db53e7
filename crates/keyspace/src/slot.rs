//! The slot of a key, computed as clients of a Redis cluster do.

/// The number of slots.
pub const SLOTS: u16 = 16384;

/// The slot of a key: the checksum of the text between its first pair of braces, or of the whole key if there
/// is none or the text is empty.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    checksum(hashed(key)) % SLOTS
}

/// Most slots that there may be.
pub const SLOTS_WIDE: u32 = 1 << 20;

/// The slot of a key among a larger number of slots, a power of two: each slot of [`slot_of`] is divided by a
/// second checksum of the same bytes. So keys that belong together still do, and a client that uses fewer
/// slots sees each of its slots as a run of these.
#[must_use]
pub fn slot_among(key: &[u8], slots: u32) -> u32 {
    let parts = (slots / u32::from(SLOTS)).max(1);
    // FNV-1a, because CRC16 has no more bits to give. The upper half is folded in because only a few of the
    // lower bits would be used otherwise.
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = hashed(key).iter().fold(0xcbf2_9ce4_8422_2325, step);
    let part = (sum ^ sum >> 32) as u32 % parts;
    u32::from(slot_of(key)) * parts + part
}

fn hashed(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let behind = &key[open + 1..];
    match behind.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &behind[..close],
    }
}

/// CRC16/XMODEM: polynomial 1021, initial value zero, not reflected.
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

    #[test]
    fn more_slots_divide_those_that_there_are_and_about_evenly() {
        let mut counts = vec![0_u32; SLOTS_WIDE as usize];
        for number in 0..1_u32 << 21 {
            let key = format!("key-{number:08}");
            let wide = slot_among(key.as_bytes(), SLOTS_WIDE);
            assert_eq!(wide >> 6, u32::from(slot_of(key.as_bytes())));
            counts[wide as usize] += 1;
        }
        // Two keys a slot: by chance one in seven has none, and hardly any has a dozen.
        let empty = counts.iter().filter(|&&count| count == 0).count() as f64 / counts.len() as f64;
        assert!((0.10..0.18).contains(&empty), "{empty}");
        assert!(counts.iter().all(|&count| count <= 20));
        assert_eq!(slot_among(b"{user1000}.following", SLOTS_WIDE), slot_among(b"user1000", SLOTS_WIDE));
        assert_eq!(slot_among(b"foo", SLOTS.into()), u32::from(slot_of(b"foo")));
    }
}

//! Slots of keys, and the node that serves each, as far as nodes have told.

use super::beside::connect;
use super::key;
use crate::client::{Operation, Protocol, Reply};
use std::io::{self, Read, Write};
use std::net::SocketAddr;

/// How many slots there are.
pub const SLOTS: usize = 16_384;
/// The first letter of keys that are only read, never written.
const LETTER: char = 't';
/// How many slots are requested at once: fewer bytes than any socket buffer holds, so that the two sides
/// never wait for each other.
const SLOTS_PER_BATCH: usize = 256;

/// The slot of a key without a hash tag: CRC16 (XMODEM).
pub fn slot_of(key: &[u8]) -> usize {
    let step = |sum: u16, byte: &u8| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 }
        })
    };
    usize::from(key.iter().fold(0, step)) % SLOTS
}

/// The slot and address in a `MOVED slot address` refusal.
pub fn moved(words: &[u8]) -> Option<(usize, SocketAddr)> {
    let words = std::str::from_utf8(words).ok()?;
    let mut rest = words.strip_prefix("MOVED ")?.split(' ');
    let slot = rest.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
    Some((slot, rest.next()?.parse().ok()?))
}

/// The node that serves each slot, according to this node; itself where it names no other.
pub fn table(address: SocketAddr, token: Option<&str>) -> io::Result<Vec<SocketAddr>> {
    let mut stream = connect(address, token)?;
    let mut serves = vec![address; SLOTS];
    for batch in keys_of_all_slots().chunks(SLOTS_PER_BATCH) {
        let mut request = Vec::new();
        batch.iter().for_each(|key| Protocol::Resp.write(Operation::Get, key.as_bytes(), b"", &mut request));
        stream.write_all(&request)?;
        let (mut heard, mut scratch, mut answered) = (Vec::new(), [0; 16 << 10], 0);
        while answered < batch.len() {
            match stream.read(&mut scratch)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => heard.extend_from_slice(&scratch[..count]),
            }
            let mut taken = 0;
            while let Some((reply, length)) =
                Protocol::Resp.parse(&heard[taken..]).map_err(io::Error::other)?
            {
                if let Reply::Refused(words) = reply
                    && let Some((slot, address)) = moved(words)
                {
                    serves[slot] = address;
                }
                answered += 1;
                taken += length;
            }
            heard.drain(..taken);
        }
    }
    Ok(serves)
}

/// A key for each slot.
pub fn keys_of_all_slots() -> Vec<String> {
    let mut keys: Vec<Option<String>> = vec![None; SLOTS];
    let (mut found, mut number) = (0, 0);
    while found < SLOTS {
        number += 1;
        let key = key(LETTER, number);
        let slot = &mut keys[slot_of(key.as_bytes())];
        found += usize::from(slot.is_none());
        slot.get_or_insert(key);
    }
    keys.into_iter().flatten().collect()
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

//! Messages between nodes, built byte by byte from their specification, and damaged ones.

use atoll_wire::{Flags, Kind, encode_frame};
use fastrand::Rng;

pub const TOKEN: &[u8] = b"0123456789abcdef";

/// A frame with a valid checksum.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_frame(&mut out, Kind::Request, Flags { more: false, last: true }, 0, body);
    out
}

/// A greeting: the node that dials, its incarnation and ring, the node it means, and the secret.
pub fn greeting(node: u32, incarnation: u64, ring: u64, to: u32, token: &[u8]) -> Vec<u8> {
    let (node, incarnation) = (node.to_le_bytes(), incarnation.to_le_bytes());
    [b"ATOLLPR6", &node[..], &incarnation, &ring.to_le_bytes(), &to.to_le_bytes(), token].concat()
}

fn slot_message(kind: u8, slot: u64, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((slot as u32).to_le_bytes());
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes
}

/// A message of each kind, about a slot in its first epoch.
pub fn said(slot: u64) -> Vec<Vec<u8>> {
    let body = b"\0*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n";
    let mut append = slot_message(1, slot, &[1, 0, 0, 0]);
    append.extend(2_u32.to_le_bytes());
    for sequence in [1_u64, 2] {
        [1, sequence, 77].iter().for_each(|number: &u64| append.extend(number.to_le_bytes()));
        append.extend((body.len() as u32).to_le_bytes());
        append.extend(body);
    }
    let mut piece = slot_message(7, slot, &[1, 9, 77]);
    piece.extend(0_u32.to_le_bytes());
    piece.push(1);
    piece.extend(1_u32.to_le_bytes());
    for bytes in [&b"\x01a"[..], b"\0b"] {
        piece.extend((bytes.len() as u32).to_le_bytes());
        piece.extend(bytes);
    }
    let numbers = |kind: u8, numbers: &[u64]| {
        let mut bytes = vec![kind];
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes
    };
    vec![
        append,
        slot_message(2, slot, &[1, 2]),
        slot_message(3, slot, &[1, 1]),
        numbers(4, &[1, 2, 3, 4]),
        numbers(5, &[1, 2, 3, 4]),
        numbers(6, &[5]),
        piece,
        numbers(8, &[77]),
    ]
}

/// A message that is cut, partly duplicated, or has a huge number or a changed byte; sometimes unchanged.
pub fn damaged(mut message: Vec<u8>, random: &mut Rng) -> Vec<u8> {
    for _ in 0..random.usize(..3) {
        let at = random.usize(..message.len().max(1)).min(message.len());
        let four = at..(at + 4).min(message.len());
        match random.u8(..6) {
            0 => message.truncate(at),
            1 => message[four].fill(0xff),
            2 => message[four].fill(0),
            3 if at < message.len() => message[at] = random.u8(..),
            4 => {
                let part = message[four].to_vec();
                message.splice(at..at, part).for_each(drop);
            }
            _ => message.push(random.u8(..)),
        }
    }
    message
}

//! Records of the log: what one commit changed, one record for each change.
//!
//! ```text
//! put, append of bytes:  1, 3 | tree | key length | value length | key | bytes
//! put, append of extent: 2, 4 | tree | key length | value length | key | offset | checksum 8
//! delete: 5 | tree | key      delete range: 6 | tree | bound | bound     bound: 0 | 1 key | 2 key
//! new tree: 7 | tree | name   snapshot made: 8 | name   snapshot deleted: 9 | name   opened: 10 | life 8
//! split off: 11 | tree | tree | key      absorb: 12 | tree | tree
//! ```
//! Numbers are varints; strings are length-prefixed where no length precedes them.
//!
//! Invariant: decoding is total.

use crate::KEY_MAX;
use crate::codec::{Decoder, Encode, Malformed};
use crate::superblock::DATA_START;
use crate::value::VALUE_MAX;
use std::ops::Bound;

const PUT: u8 = 1;
const PUT_EXTENT: u8 = 2;
const APPEND: u8 = 3;
const APPEND_EXTENT: u8 = 4;
const DELETE: u8 = 5;
const DELETE_RANGE: u8 = 6;
const NEW_TREE: u8 = 7;
const SNAPSHOT: u8 = 8;
const NO_SNAPSHOT: u8 = 9;
const OPENED: u8 = 10;
const SPLIT_OFF: u8 = 11;
const ABSORB: u8 = 12;

/// A value in the log: its bytes, or their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged<'a> {
    /// The bytes, and where in the payload they start.
    Bytes {
        bytes: &'a [u8],
        at: usize,
    },
    Extent {
        offset: u64,
        len: u32,
        checksum: u64,
    },
}

/// One record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Put {
        tree: u32,
        key: &'a [u8],
        value: Logged<'a>,
    },
    Append {
        tree: u32,
        key: &'a [u8],
        value: Logged<'a>,
    },
    Delete {
        tree: u32,
        key: &'a [u8],
    },
    DeleteRange {
        tree: u32,
        from: Bound<&'a [u8]>,
        to: Bound<&'a [u8]>,
    },
    NewTree {
        tree: u32,
        name: &'a str,
    },
    Snapshot {
        name: &'a str,
    },
    NoSnapshot {
        name: &'a str,
    },
    /// First record of the first group after an opening: a number that no other life of the store has.
    Opened {
        life: u64,
    },
    /// Everything in `tree` at or above `at` moves to `to`, which is empty.
    SplitOff {
        tree: u32,
        to: u32,
        at: &'a [u8],
    },
    /// Everything in `from` moves to `tree`.
    Absorb {
        tree: u32,
        from: u32,
    },
}

/// Most bytes that a record takes beyond its key and value.
pub(crate) const OVERHEAD_MAX: usize = 1 + 5 + 5 + 5 + 18 + 8;

impl Record<'_> {
    pub(crate) fn encode(&self, payload: &mut Vec<u8>) {
        match *self {
            Self::Put { tree, key, value } => encode_value([PUT, PUT_EXTENT], tree, key, value, payload),
            Self::Append { tree, key, value } => {
                encode_value([APPEND, APPEND_EXTENT], tree, key, value, payload);
            }
            Self::Delete { tree, key } => {
                payload.put_u8(DELETE);
                payload.put_varint(u64::from(tree));
                payload.put_bytes(key);
            }
            Self::DeleteRange { tree, from, to } => {
                payload.put_u8(DELETE_RANGE);
                payload.put_varint(u64::from(tree));
                encode_bound(from, payload);
                encode_bound(to, payload);
            }
            Self::NewTree { tree, name } => {
                payload.put_u8(NEW_TREE);
                payload.put_varint(u64::from(tree));
                payload.put_bytes(name.as_bytes());
            }
            Self::Snapshot { name } => {
                payload.put_u8(SNAPSHOT);
                payload.put_bytes(name.as_bytes());
            }
            Self::NoSnapshot { name } => {
                payload.put_u8(NO_SNAPSHOT);
                payload.put_bytes(name.as_bytes());
            }
            Self::Opened { life } => {
                payload.put_u8(OPENED);
                payload.put_u64(life);
            }
            Self::SplitOff { tree, to, at } => {
                payload.put_u8(SPLIT_OFF);
                payload.put_varint(u64::from(tree));
                payload.put_varint(u64::from(to));
                payload.put_bytes(at);
            }
            Self::Absorb { tree, from } => {
                payload.put_u8(ABSORB);
                payload.put_varint(u64::from(tree));
                payload.put_varint(u64::from(from));
            }
        }
    }
}

fn encode_value(kinds: [u8; 2], tree: u32, key: &[u8], value: Logged<'_>, payload: &mut Vec<u8>) {
    let (kind, len) = match value {
        Logged::Bytes { bytes, .. } => (kinds[0], bytes.len() as u64),
        Logged::Extent { len, .. } => (kinds[1], u64::from(len)),
    };
    payload.put_u8(kind);
    payload.put_varint(u64::from(tree));
    payload.put_varint(key.len() as u64);
    payload.put_varint(len);
    payload.extend_from_slice(key);
    match value {
        Logged::Bytes { bytes, .. } => payload.extend_from_slice(bytes),
        Logged::Extent { offset, checksum, .. } => {
            payload.put_varint(offset);
            payload.put_u64(checksum);
        }
    }
}

fn encode_bound(bound: Bound<&[u8]>, payload: &mut Vec<u8>) {
    match bound {
        Bound::Unbounded => payload.put_u8(0),
        Bound::Included(key) => {
            payload.put_u8(1);
            payload.put_bytes(key);
        }
        Bound::Excluded(key) => {
            payload.put_u8(2);
            payload.put_bytes(key);
        }
    }
}

/// Decodes the next record.
pub(crate) fn decode<'a>(payload: &mut Decoder<'a>) -> Result<Record<'a>, Malformed> {
    let kind = payload.u8()?;
    Ok(match kind {
        PUT | PUT_EXTENT | APPEND | APPEND_EXTENT => {
            let tree = number(payload)?;
            let key_len = number(payload)? as usize;
            let len = number(payload)?;
            let key = fit(payload.take(key_len)?)?;
            if u64::from(len) > VALUE_MAX {
                return Err(Malformed);
            }
            let value = if kind == PUT || kind == APPEND {
                let at = payload.position();
                Logged::Bytes { bytes: payload.take(len as usize)?, at }
            } else {
                let offset = payload.word()?;
                if offset < DATA_START {
                    return Err(Malformed);
                }
                Logged::Extent { offset, len, checksum: payload.u64()? }
            };
            if kind == PUT || kind == PUT_EXTENT {
                Record::Put { tree, key, value }
            } else {
                Record::Append { tree, key, value }
            }
        }
        DELETE => Record::Delete { tree: number(payload)?, key: fit(payload.bytes()?)? },
        DELETE_RANGE => {
            Record::DeleteRange { tree: number(payload)?, from: bound(payload)?, to: bound(payload)? }
        }
        NEW_TREE => Record::NewTree { tree: number(payload)?, name: text(payload)? },
        SNAPSHOT => Record::Snapshot { name: text(payload)? },
        NO_SNAPSHOT => Record::NoSnapshot { name: text(payload)? },
        OPENED => Record::Opened { life: payload.u64()? },
        SPLIT_OFF => {
            Record::SplitOff { tree: number(payload)?, to: number(payload)?, at: fit(payload.bytes()?)? }
        }
        ABSORB => Record::Absorb { tree: number(payload)?, from: number(payload)? },
        _ => return Err(Malformed),
    })
}

/// A key, if its length is allowed.
fn fit(key: &[u8]) -> Result<&[u8], Malformed> {
    if (1..=KEY_MAX).contains(&key.len()) { Ok(key) } else { Err(Malformed) }
}

fn number(payload: &mut Decoder<'_>) -> Result<u32, Malformed> {
    u32::try_from(payload.varint()?).map_err(|_| Malformed)
}

fn text<'a>(payload: &mut Decoder<'a>) -> Result<&'a str, Malformed> {
    std::str::from_utf8(payload.bytes()?).map_err(|_| Malformed)
}

fn bound<'a>(payload: &mut Decoder<'a>) -> Result<Bound<&'a [u8]>, Malformed> {
    Ok(match payload.u8()? {
        0 => Bound::Unbounded,
        kind @ (1 | 2) => {
            let key = payload.bytes()?;
            match kind {
                _ if key.len() > KEY_MAX => return Err(Malformed),
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            }
        }
        _ => return Err(Malformed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let records = [
            Record::Put { tree: 1, key: b"k", value: Logged::Bytes { bytes: b"value", at: 5 } },
            Record::Append {
                tree: 300,
                key: b"a",
                value: Logged::Extent { offset: 1 << 40, len: 9, checksum: 7 },
            },
            Record::Delete { tree: 2, key: b"gone" },
            Record::DeleteRange { tree: 2, from: Bound::Included(b"a"), to: Bound::Unbounded },
            Record::NewTree { tree: 3, name: "träd" },
            Record::Snapshot { name: "s" },
            Record::NoSnapshot { name: "s" },
            Record::Opened { life: 77 },
            Record::SplitOff { tree: 3, to: 400, at: b"m" },
            Record::Absorb { tree: 3, from: 400 },
        ];
        for record in records {
            let mut payload = Vec::new();
            record.encode(&mut payload);
            let mut decoder = Decoder::new(&payload);
            assert_eq!(decode(&mut decoder), Ok(record));
            assert!(decoder.is_at_end());
        }
    }

    #[test]
    fn nothing_lies_where_superblocks_do() {
        for (offset, is_refused) in [(0, true), (64, true), (DATA_START - 1, true), (DATA_START, false)] {
            let value = Logged::Extent { offset, len: 9, checksum: 7 };
            for record in
                [Record::Put { tree: 1, key: b"k", value }, Record::Append { tree: 1, key: b"k", value }]
            {
                let mut payload = Vec::new();
                record.encode(&mut payload);
                assert_eq!(decode(&mut Decoder::new(&payload)).is_err(), is_refused, "{offset}");
            }
        }
    }
}

//! The body of an entry of a slot's log: a client's request as it came, expired keys to delete, or an order
//! to forget clients that were silent for long.

use crate::peer;
use crate::peer::codec::{ONE_ENTRY_BYTES, Reader, put};
use atoll_keyspace::{BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, KEY_BYTES_MAX, Overdue, VALUE_BYTES_MAX};
use atoll_resp::{Command, Limits, Request, RequestParser, write_request};
use atoll_wire::HEADER_BYTES;
use std::sync::Arc;

/// The body of an entry.
pub(super) enum Body<'a> {
    /// A request, in the protocol of Redis.
    Request(&'a [u8]),
    /// Keys to delete if they still have exactly these deadlines, in milliseconds since 1970.
    Expiry(Vec<(Vec<u8>, u64)>),
    /// Forget at most this many clients that have been silent for long by the date of the entry.
    Forgetting(u64),
    /// None of these.
    Damaged,
}

/// An entry that was accepted once must parse again: the door has judged its size.
pub(super) const LIMITS: Limits =
    Limits { elements: 1 << 21, string_bytes: 128 << 20, total_bytes: 256 << 20, depth: 1 };

/// Room for the lengths that an inline command gains when it is written as an array. One with more words
/// grows the buffer.
const INLINE_BYTES: usize = 32;

// An entry travels in one frame. One that fits into none would never reach another copy, and every later
// write to its slot would wait behind it.
const _: () = assert!(
    ONE_ENTRY_BYTES + KIND_BYTES + Limits::AUTHENTICATED.request_bytes_max()
        <= peer::LIMITS.frame_bytes - HEADER_BYTES,
    "the longest request of a client fits into a frame between nodes"
);

// A connection that sends more than the door takes ends, and its client does not learn why.
const _: () = assert!(
    VALUE_BYTES_MAX <= Limits::AUTHENTICATED.string_bytes
        && VALUE_BYTES_MAX + BATCH_BYTES_MAX + KEY_BYTES_MAX + BATCH_OPERATIONS_MAX * b"DELRANGE[(".len()
            < Limits::AUTHENTICATED.total_bytes,
    "the door takes every batch that the store contract allows"
);

const _: () = assert!(
    Limits::AUTHENTICATED.elements <= LIMITS.elements
        && Limits::AUTHENTICATED.string_bytes <= LIMITS.string_bytes
        && Limits::AUTHENTICATED.total_bytes <= LIMITS.total_bytes,
    "what the door takes is read again as an entry of a log"
);

/// Bytes of a body before the request.
const KIND_BYTES: usize = 1;

/// Bytes of an expired key in a body, beside the key.
pub(super) const EXPIRED_KEY_BYTES: usize = 16;

const REQUEST: u8 = 0;
const EXPIRY: u8 = 1;
const FORGETTING: u8 = 2;

impl<'a> Body<'a> {
    pub(super) fn of_request(request: &Request<'_>) -> Arc<[u8]> {
        let mut body = Vec::with_capacity(KIND_BYTES + request.bytes() + INLINE_BYTES);
        body.push(REQUEST);
        write_all(request, &mut body);
        body.into()
    }

    pub(super) fn request_bytes(request: &Request<'_>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(request.bytes() + INLINE_BYTES);
        write_all(request, &mut bytes);
        bytes
    }

    pub(super) fn of_expiry(overdue: &[Overdue]) -> Arc<[u8]> {
        let mut body = vec![EXPIRY];
        for key in overdue {
            put(key.deadline_ms, &mut body);
            put(key.key.len() as u64, &mut body);
            body.extend_from_slice(&key.key);
        }
        body.into()
    }

    pub(super) fn of_forgetting(most: u64) -> Arc<[u8]> {
        let mut body = vec![FORGETTING];
        put(most, &mut body);
        body.into()
    }

    pub(super) fn of(body: &'a [u8]) -> Self {
        match body.split_first() {
            Some((&REQUEST, request)) => Self::Request(request),
            Some((&EXPIRY, keys)) => read_keys(keys).map_or(Self::Damaged, Self::Expiry),
            Some((&FORGETTING, most)) => {
                most.try_into().map_or(Self::Damaged, |most| Self::Forgetting(u64::from_le_bytes(most)))
            }
            _ => Self::Damaged,
        }
    }
}

/// Whether a body says something that can be done here.
pub(super) fn is_understood(body: &[u8], parser: &mut RequestParser) -> bool {
    match Body::of(body) {
        Body::Expiry(_) | Body::Forgetting(_) => true,
        Body::Damaged => false,
        Body::Request(bytes) => {
            let understood = match parser.parse(bytes) {
                Ok(Some(request)) => request.bytes() == bytes.len() && Command::of(&request).is_ok(),
                Ok(None) | Err(_) => false,
            };
            if !understood {
                // The parser holds half a request, which must not become the beginning of the next one.
                *parser = RequestParser::new(LIMITS);
            }
            understood
        }
    }
}

fn write_all(request: &Request<'_>, target: &mut Vec<u8>) {
    let arguments: Vec<_> = request.iter().collect();
    write_request(target, &arguments);
}

fn read_keys(bytes: &[u8]) -> Option<Vec<(Vec<u8>, u64)>> {
    let mut reader = Reader::of(bytes);
    let mut keys = Vec::new();
    while !reader.is_at_end() {
        let (deadline_ms, length) = (reader.number().ok()?, reader.number().ok()?);
        let key = reader.take(usize::try_from(length).ok()?).ok()?;
        keys.push((key.to_vec(), deadline_ms));
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_whose_time_is_over_are_read_as_they_were_written() {
        let overdue = |key: &str, deadline_ms| Overdue { slot: 1, key: key.into(), deadline_ms };
        let body = Body::of_expiry(&[overdue("a", 5), overdue("", u64::MAX)]);
        let Body::Expiry(keys) = Body::of(&body) else { panic!("another body") };
        assert_eq!(keys, [(b"a".to_vec(), 5), (Vec::new(), u64::MAX)]);
        assert!(matches!(Body::of(&body[..body.len() - 1]), Body::Damaged));
        assert!(matches!(Body::of(&[]), Body::Damaged));
        assert!(matches!(Body::of(&[9]), Body::Damaged));
    }

    #[test]
    fn how_many_clients_are_forgotten_is_read_as_it_was_written() {
        let body = Body::of_forgetting(256);
        assert!(matches!(Body::of(&body), Body::Forgetting(256)));
        assert!(is_understood(&body, &mut RequestParser::new(LIMITS)));
        for wrong in [&body[..8], &[&body[..], &[0]].concat()] {
            assert!(matches!(Body::of(wrong), Body::Damaged), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn half_a_body_means_nothing_and_takes_nothing_of_the_next_one() {
        let mut parser = RequestParser::new(LIMITS);
        let request = b"\0*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n";
        for end in 0..request.len() {
            assert!(!is_understood(&request[..end], &mut parser), "{end}");
            assert!(is_understood(request, &mut parser), "{end}");
        }
        for nonsense in [&b"\0*1\r\n$4\r\nNOPE\r\n"[..], b"\0*2\r\n$3\r\nGET\r\n$-5\r\n", b"\x01\0", b"\x02"]
        {
            assert!(!is_understood(nonsense, &mut parser), "{}", nonsense.escape_ascii());
        }
    }
}

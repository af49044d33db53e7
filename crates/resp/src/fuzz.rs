//! Doors for the fuzzer.

use crate::{Limits, ProtocolError, ReplyParser, RequestParser, Value};

/// Limits that small inputs reach.
const SMALL: Limits = Limits { elements: 40, string_bytes: 60, total_bytes: 200, depth: 4 };

/// All requests in `bytes`, which arrive in pieces of this many, and the error at which they end.
pub fn requests(bytes: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut parser, mut found) = (RequestParser::new(SMALL), Vec::new());
    let (mut from, mut to) = (0, 0);
    while to < bytes.len() {
        to = bytes.len().min(to + piece.max(1));
        loop {
            match parser.parse(&bytes[from..to]) {
                Ok(None) => break,
                Ok(Some(request)) => {
                    found.push(request.iter().map(<[u8]>::to_vec).collect());
                    from += request.bytes();
                }
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

/// All replies in `bytes`, as [`requests`].
pub fn replies(bytes: &[u8], piece: usize) -> (Vec<Value>, Option<ProtocolError>) {
    let (mut parser, mut found) = (ReplyParser::new(SMALL), Vec::new());
    let (mut from, mut to) = (0, 0);
    while to < bytes.len() {
        to = bytes.len().min(to + piece.max(1));
        loop {
            match parser.parse(&bytes[from..to]) {
                Ok((taken, value)) => {
                    from += taken;
                    match value {
                        Some(value) => found.push(value),
                        None => break,
                    }
                }
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

//! Entry points for the fuzzer.

use crate::{
    Command, Limits, Protocol, ProtocolError, ReplyParser, ReplyWriter, RequestParser, Value, write_request,
};

/// Limits that small inputs can reach.
const SMALL: Limits = Limits { elements: 40, string_bytes: 60, total_bytes: 200, depth: 4 };

/// All requests in `bytes`, which arrive in pieces of this size, and the error that ended the parsing.
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

/// All replies in `bytes`, in the same way as [`requests`].
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

/// Parses requests as commands, and checks that each error is written as exactly one reply.
///
/// # Panics
/// If it is not.
pub fn commands(requests: &[Vec<Vec<u8>>]) {
    for arguments in requests.iter().filter(|arguments| !arguments.is_empty()) {
        let (mut bytes, mut parser) = (Vec::new(), RequestParser::new(Limits::default()));
        write_request(&mut bytes, arguments);
        let Ok(Some(request)) = parser.parse(&bytes) else { unreachable!("it was written just now") };
        if let Err(error) = Command::of(&request) {
            let mut reply = Vec::new();
            error.write(&mut ReplyWriter::new(&mut reply, Protocol::Resp2));
            let (found, wrong) = replies(&reply, reply.len());
            assert!(
                matches!(found.as_slice(), [Value::Error(_)]) && wrong.is_none(),
                "{}",
                reply.escape_ascii()
            );
        }
    }
}

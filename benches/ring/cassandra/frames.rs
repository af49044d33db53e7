//! Cassandra's native protocol, version 4, as far as the bench needs it: prepared statements on the streams
//! of a connection.
//!
//! Invariant: a frame is returned only when all its bytes have arrived, and the length that it may announce
//! is bounded.

const VERSION: u8 = 0x04;
/// Errors by which a node says that too few others answered in time (native protocol, section 9).
const WRITE_TIMEOUT: u32 = 0x1100;
const READ_TIMEOUT: u32 = 0x1200;
const ANSWER: u8 = 0x80;
const HEADER_BYTES: usize = 9;
/// The longest body of an answer; those of the bench have a few hundred bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
const QUORUM: [u8; 2] = [0, 4];
/// Flags: values come with the statement, and column descriptions are not needed.
const VALUES_AND_NO_DESCRIPTION: u8 = 0x01 | 0x02;

/// Opcodes of requests.
#[derive(Clone, Copy, Debug)]
pub enum Opcode {
    Startup = 0x01,
    Query = 0x07,
    Prepare = 0x09,
    Execute = 0x0A,
}

/// A node's answer.
#[derive(Debug, PartialEq, Eq)]
pub enum NodeAnswer<'a> {
    /// The node accepts requests.
    Ready,
    /// Done, without a result.
    Done,
    /// A statement was prepared; this is its id at the node.
    Prepared(&'a [u8]),
    /// A row of one column.
    Value(&'a [u8]),
    /// No row.
    Nothing,
    /// An error, with the node's message.
    Refused(&'a [u8]),
    /// Too few nodes answered in time, with the node's message: a write may have happened or not.
    TimedOut(&'a [u8]),
    /// Any other answer.
    Other(u8),
}

/// Bytes that are not an answer of the protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an answer that is none")]
pub struct Malformed;

/// Appends a request to `into`.
pub fn write(opcode: Opcode, stream: u16, body: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&[VERSION, 0]);
    into.extend_from_slice(&stream.to_be_bytes());
    into.push(opcode as u8);
    into.extend_from_slice(&(body.len() as u32).to_be_bytes());
    into.extend_from_slice(body);
}

/// The body of a connection's first request.
pub fn startup() -> Vec<u8> {
    let mut body = vec![0, 1];
    for text in ["CQL_VERSION", "3.0.0"] {
        body.extend_from_slice(&(text.len() as u16).to_be_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    body
}

/// The body of a request to prepare a statement.
pub fn statement(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// The body of a single query at a quorum.
pub fn query(text: &str) -> Vec<u8> {
    [&statement(text)[..], &QUORUM, &[0]].concat()
}

/// The body of a request to execute a prepared statement at a quorum.
pub fn execution(prepared: &[u8], values: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::with_capacity(256);
    body.extend_from_slice(&(prepared.len() as u16).to_be_bytes());
    body.extend_from_slice(prepared);
    body.extend_from_slice(&QUORUM);
    body.push(VALUES_AND_NO_DESCRIPTION);
    body.extend_from_slice(&(values.len() as u16).to_be_bytes());
    for value in values {
        body.extend_from_slice(&(value.len() as u32).to_be_bytes());
        body.extend_from_slice(value);
    }
    body
}

/// Parses the answer at the beginning of `input`: its stream, its content, and its length.
pub fn parse(input: &[u8]) -> Result<Option<(u16, NodeAnswer<'_>, usize)>, Malformed> {
    let Some(&[version, _, stream_high, stream_low, opcode, a, b, c, d]) =
        input.first_chunk::<HEADER_BYTES>()
    else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if version != VERSION | ANSWER || length > BODY_BYTES_MAX {
        return Err(Malformed);
    }
    let Some(body) = input.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
    let mut body = Body(body);
    let said = match opcode {
        0x00 => match body.number()? {
            WRITE_TIMEOUT | READ_TIMEOUT => NodeAnswer::TimedOut(body.short_bytes()?),
            _ => NodeAnswer::Refused(body.short_bytes()?),
        },
        0x02 => NodeAnswer::Ready,
        0x08 => result(&mut body)?,
        other => NodeAnswer::Other(other),
    };
    Ok(Some((u16::from_be_bytes([stream_high, stream_low]), said, HEADER_BYTES + length)))
}

fn result<'a>(body: &mut Body<'a>) -> Result<NodeAnswer<'a>, Malformed> {
    match body.number()? {
        2 => row(body),
        4 => Ok(NodeAnswer::Prepared(body.short_bytes()?)),
        _ => Ok(NodeAnswer::Done),
    }
}

/// The only value of the only row, whose column is not described.
fn row<'a>(body: &mut Body<'a>) -> Result<NodeAnswer<'a>, Malformed> {
    let (flags, columns) = (body.number()?, body.number()?);
    if flags & 0x04 == 0 || flags & 0x02 != 0 || columns != 1 {
        return Err(Malformed);
    }
    match body.number()? {
        0 => Ok(NodeAnswer::Nothing),
        1 => {
            let length = body.number()?;
            // A negative length is a null value.
            if length > i32::MAX as u32 {
                Ok(NodeAnswer::Nothing)
            } else {
                body.take(length as usize).map(NodeAnswer::Value)
            }
        }
        _ => Err(Malformed),
    }
}

/// The rest of a body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?.first_chunk::<4>().ok_or(Malformed)?;
        Ok(u32::from_be_bytes(*bytes))
    }

    fn short_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let bytes = self.take(2)?.first_chunk::<2>().ok_or(Malformed)?;
        self.take(usize::from(u16::from_be_bytes(*bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(opcode: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x84, 0, 1, 2, opcode];
        frame.extend((body.len() as u32).to_be_bytes());
        frame.extend(body);
        frame
    }

    #[test]
    fn answers_are_told_when_they_are_whole() {
        let row = [&[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3][..], b"abc"].concat();
        let frame = answer(8, &row);
        for cut in 0..frame.len() {
            assert_eq!(parse(&frame[..cut]), Ok(None), "{cut}");
        }
        let (stream, said, length) = parse(&frame).unwrap().unwrap();
        assert_eq!((stream, said, length), (258, NodeAnswer::Value(b"abc"), frame.len()));
        let none = answer(8, &[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(parse(&none).unwrap().unwrap().1, NodeAnswer::Nothing);
        assert_eq!(parse(&answer(8, &[0, 0, 0, 1])).unwrap().unwrap().1, NodeAnswer::Done);
        let no = |code| answer(0, &[0, 0, code, 0, 0, 2, b'n', b'o', 9]);
        assert_eq!(parse(&no(0x22)).unwrap().unwrap().1, NodeAnswer::Refused(b"no"));
        for late in [0x11, 0x12] {
            assert_eq!(parse(&no(late)).unwrap().unwrap().1, NodeAnswer::TimedOut(b"no"));
        }
        assert_eq!(parse(&answer(8, &[0, 0, 0, 4, 0, 1, 7])).unwrap().unwrap().1, NodeAnswer::Prepared(&[7]));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let described = answer(8, &[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
        let short = answer(8, &[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3, b'a']);
        let long = [0x84, 0, 0, 0, 8, 0xff, 0, 0, 0];
        let request = [0x04, 0, 0, 0, 8, 0, 0, 0, 0];
        for bytes in [&described[..], &short, &long, &request] {
            assert_eq!(parse(bytes), Err(Malformed));
        }
    }

    #[test]
    fn a_request_says_its_stream_and_its_length() {
        let mut out = Vec::new();
        write(Opcode::Execute, 3, &execution(b"id", &[b"key", b"v"]), &mut out);
        assert_eq!(out[..9], [4, 0, 0, 3, 10, 0, 0, 0, 21]);
        assert_eq!(out[9..], *b"\0\x02id\0\x04\x03\0\x02\0\0\0\x03key\0\0\0\x01v");
    }
}

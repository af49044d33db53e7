//! Cassandra's native protocol, version 4, as far as the bench speaks it: prepared statements on streams of a
//! connection.
//!
//! Invariant: a frame is told only when all its bytes are there, and what it may announce is bounded.

const VERSION: u8 = 0x04;
const ANSWER: u8 = 0x80;
const HEADER_BYTES: usize = 9;
/// The longest body of an answer; those of the bench have some hundred bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
const QUORUM: [u8; 2] = [0, 4];
/// Values come with the statement, and columns need not be described again.
const VALUES_AND_NO_DESCRIPTION: u8 = 0x01 | 0x02;

/// What a client sends.
#[derive(Clone, Copy, Debug)]
pub enum Opcode {
    Startup = 0x01,
    Query = 0x07,
    Prepare = 0x09,
    Execute = 0x0A,
}

/// What a node said.
#[derive(Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// It takes requests.
    Ready,
    /// Done, with nothing to tell.
    Done,
    /// A statement, by the name that the node gave it.
    Prepared(&'a [u8]),
    /// A row of one column.
    Value(&'a [u8]),
    /// No row.
    Nothing,
    /// An error, in the node's words.
    Refused(&'a [u8]),
    /// Anything else.
    Other(u8),
}

/// Bytes that are no answer of the protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an answer that is none")]
pub struct Malformed;

/// Adds a request to what is sent.
pub fn write(opcode: Opcode, stream: u16, body: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&[VERSION, 0]);
    into.extend_from_slice(&stream.to_be_bytes());
    into.push(opcode as u8);
    into.extend_from_slice(&(body.len() as u32).to_be_bytes());
    into.extend_from_slice(body);
}

/// The body of the first request of a connection.
pub fn startup() -> Vec<u8> {
    let mut body = vec![0, 1];
    for text in ["CQL_VERSION", "3.0.0"] {
        body.extend_from_slice(&(text.len() as u16).to_be_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    body
}

/// The body of a statement that is prepared.
pub fn statement(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// The body of a statement that is asked once, at a quorum.
pub fn query(text: &str) -> Vec<u8> {
    [&statement(text)[..], &QUORUM, &[0]].concat()
}

/// The body of a prepared statement's execution at a quorum.
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

/// The answer that `input` begins with: its stream, what was said, and how many bytes it takes.
pub fn parse(input: &[u8]) -> Result<Option<(u16, Said<'_>, usize)>, Malformed> {
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
        0x00 => {
            body.number()?;
            Said::Refused(body.short_bytes()?)
        }
        0x02 => Said::Ready,
        0x08 => result(&mut body)?,
        other => Said::Other(other),
    };
    Ok(Some((u16::from_be_bytes([stream_high, stream_low]), said, HEADER_BYTES + length)))
}

fn result<'a>(body: &mut Body<'a>) -> Result<Said<'a>, Malformed> {
    match body.number()? {
        2 => row(body),
        4 => Ok(Said::Prepared(body.short_bytes()?)),
        _ => Ok(Said::Done),
    }
}

/// The only value of the only row, whose column is not described.
fn row<'a>(body: &mut Body<'a>) -> Result<Said<'a>, Malformed> {
    let (flags, columns) = (body.number()?, body.number()?);
    if flags & 0x04 == 0 || flags & 0x02 != 0 || columns != 1 {
        return Err(Malformed);
    }
    match body.number()? {
        0 => Ok(Said::Nothing),
        1 => {
            let length = body.number()?;
            // Less than none is a value that is null.
            if length > i32::MAX as u32 {
                Ok(Said::Nothing)
            } else {
                body.take(length as usize).map(Said::Value)
            }
        }
        _ => Err(Malformed),
    }
}

/// What is left of a body.
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
        assert_eq!((stream, said, length), (258, Said::Value(b"abc"), frame.len()));
        let none = answer(8, &[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(parse(&none).unwrap().unwrap().1, Said::Nothing);
        assert_eq!(parse(&answer(8, &[0, 0, 0, 1])).unwrap().unwrap().1, Said::Done);
        let no = answer(0, &[0, 0, 0x11, 0, 0, 2, b'n', b'o', 9]);
        assert_eq!(parse(&no).unwrap().unwrap().1, Said::Refused(b"no"));
        assert_eq!(parse(&answer(8, &[0, 0, 0, 4, 0, 1, 7])).unwrap().unwrap().1, Said::Prepared(&[7]));
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

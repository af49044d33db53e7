//! What the client says and hears: three languages, the same three operations.
//!
//! Invariant: a reply is told only when all its bytes are there, and the count of its bytes with it.
//! Invariant: what a server may announce is bounded; beyond it the reply is malformed, and nothing was
//! reserved for it.

use super::{memcached, resp};

/// The longest line of a reply.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The longest value that a reply may announce.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// A language of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Redis, version 2.
    Resp,
    /// memcached's classic text commands, a reply to each.
    MemcachedText,
    /// memcached's meta commands, quiet ones and a no-operation behind them: all replies of a batch come
    /// together.
    MemcachedQuiet,
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// A value instead of whatever was there.
    Set,
    /// The value.
    Get,
    /// More bytes behind the value.
    Append,
}

impl Operation {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::Append => "append",
        }
    }
}

/// One reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Done: `+OK`, `STORED`, `HD`.
    Done,
    /// Another status than done, such as `+PONG`.
    Status(&'a [u8]),
    /// A value.
    Value(&'a [u8]),
    /// Nothing is there.
    Nothing,
    /// A whole number, such as the length after an append.
    Number(i64),
    /// The end of a quiet batch.
    End,
    /// An error, in the server's words.
    Refused(&'a [u8]),
}

/// Bytes that are no reply of the protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a reply that is none, beginning with {begins_with:?}")]
pub struct Malformed {
    /// Its first bytes.
    pub begins_with: String,
}

impl Malformed {
    /// About what these bytes begin with.
    pub fn at(input: &[u8]) -> Self {
        Self { begins_with: input.iter().take(40).map(|byte| byte.escape_ascii().to_string()).collect() }
    }
}

/// One reply and how many bytes it takes; none while some of them are not there yet.
pub type Parsed<'a> = Result<Option<(Reply<'a>, usize)>, Malformed>;

impl Protocol {
    /// Writes a request; `value` is what is set or appended.
    pub fn write(self, operation: Operation, key: &[u8], value: &[u8], into: &mut Vec<u8>) {
        match self {
            Self::Resp => resp::write(operation, key, value, into),
            Self::MemcachedText => memcached::write_text(operation, key, value, into),
            Self::MemcachedQuiet => memcached::write_quiet(operation, key, value, into),
        }
    }

    /// Ends a batch of requests.
    pub fn end_batch(self, into: &mut Vec<u8>) {
        if self == Self::MemcachedQuiet {
            into.extend_from_slice(b"mn\r\n");
        }
    }

    /// The reply that `input` begins with.
    pub fn parse(self, input: &[u8]) -> Parsed<'_> {
        match self {
            Self::Resp => resp::parse(input),
            Self::MemcachedText | Self::MemcachedQuiet => memcached::parse(input),
        }
    }

    /// A request that any server of the protocol answers at once, to see that it is there.
    pub const fn greeting(self) -> &'static [u8] {
        match self {
            Self::Resp => b"*1\r\n$4\r\nPING\r\n",
            Self::MemcachedText | Self::MemcachedQuiet => b"mn\r\n",
        }
    }
}

/// The line that `input` begins with, without its end, and how many bytes it takes with it.
pub fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    let searched = &input[..input.len().min(LINE_BYTES_MAX)];
    // Lines are short, and a value behind one is not: the search ends at the first.
    let Some(end) = searched.iter().position(|&byte| byte == b'\n') else {
        return if searched.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Malformed::at(input)) };
    };
    match input[..end].strip_suffix(b"\r") {
        Some(line) => Ok(Some((line, end + 1))),
        None => Err(Malformed::at(input)),
    }
}

/// The `length` bytes at `from`, which a line end must follow, and where that ends.
pub fn counted(input: &[u8], from: usize, length: usize) -> Result<Option<(&[u8], usize)>, Malformed> {
    if length > VALUE_BYTES_MAX {
        return Err(Malformed::at(input));
    }
    let end = from + length;
    match input.get(end..end + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some((&input[from..end], end + 2))),
        Some(_) => Err(Malformed::at(input)),
    }
}

/// A decimal number without a sign.
pub fn decimal(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + usize::from(digit - b'0')))
}

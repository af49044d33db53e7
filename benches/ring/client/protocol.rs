//! Requests and replies of the client: three protocols with the same three operations.
//!
//! Invariant: a reply is returned only when all its bytes have arrived, together with its length.
//! Invariant: lengths that a server may announce are bounded; beyond that the reply is malformed, and no
//! memory was reserved for it.

use super::{memcached, resp};

/// The longest line of a reply.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The longest value that a reply may announce.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// A protocol of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The Redis protocol, version 2.
    Resp,
    /// memcached's classic text commands, with one reply each.
    MemcachedText,
    /// memcached's meta commands, quiet ones followed by a no-operation: all replies of a batch arrive
    /// together.
    MemcachedQuiet,
}

/// An operation requested from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Sets the value, replacing any former one.
    Set,
    /// Gets the value.
    Get,
    /// Appends bytes to the value.
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
    /// A status other than done, such as `+PONG`.
    Status(&'a [u8]),
    /// A value.
    Value(&'a [u8]),
    /// There is no value.
    Nothing,
    /// A whole number, such as the length after an append.
    Number(i64),
    /// The end of a quiet batch.
    End,
    /// An error, with the server's message.
    Refused(&'a [u8]),
}

/// Bytes that are not a reply of the protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a reply that is none, beginning with {begins_with:?}")]
pub struct Malformed {
    /// Its first bytes.
    pub begins_with: String,
}

impl Malformed {
    /// An error about the bytes at the beginning of `input`.
    pub fn at(input: &[u8]) -> Self {
        Self { begins_with: input.iter().take(40).map(|byte| byte.escape_ascii().to_string()).collect() }
    }
}

/// One reply and its length in bytes; `None` while it is incomplete.
pub type Parsed<'a> = Result<Option<(Reply<'a>, usize)>, Malformed>;

impl Protocol {
    /// Writes a request; `value` is the value to set or append.
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

    /// Parses the reply at the beginning of `input`.
    pub fn parse(self, input: &[u8]) -> Parsed<'_> {
        match self {
            Self::Resp => resp::parse(input),
            Self::MemcachedText | Self::MemcachedQuiet => memcached::parse(input),
        }
    }

    /// A request that any server of the protocol answers at once, to find out whether it is up.
    pub const fn greeting(self) -> &'static [u8] {
        match self {
            Self::Resp => b"*1\r\n$4\r\nPING\r\n",
            Self::MemcachedText | Self::MemcachedQuiet => b"mn\r\n",
        }
    }
}

/// The line at the beginning of `input` without its end, and its length including the end.
pub fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    let searched = &input[..input.len().min(LINE_BYTES_MAX)];
    // Lines are short, and the value after one is not: the search ends at the first line end.
    let Some(end) = searched.iter().position(|&byte| byte == b'\n') else {
        return if searched.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Malformed::at(input)) };
    };
    match input[..end].strip_suffix(b"\r") {
        Some(line) => Ok(Some((line, end + 1))),
        None => Err(Malformed::at(input)),
    }
}

/// The `length` bytes at `from`, which must be followed by a line end, and the position after that.
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

//! The layout of a frame.
//!
//! ```text
//!  0        8       12   13    14      16       24
//!  | checksum | length | kind | flags | guard | stream | body ... length bytes
//! ```
//! All numbers are little-endian. `checksum` is XXH3-64 of everything after it, body included. `guard` is the
//! low half-word of XXH3-64 over the other header fields, so that a damaged length is seen at once instead
//! of being waited for.

use crate::WireError;
use twox_hash::XxHash3_64;

/// Length of a frame's header in bytes.
pub const HEADER_BYTES: usize = 24;

/// What may be sent and held at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest body of a frame accepted.
    pub frame_bytes: usize,
    /// Longest body of a frame sent; longer messages are cut into chunks of this size.
    pub chunk_bytes: usize,
    /// Longest message accepted, all chunks together.
    pub message_bytes: usize,
    /// Bytes waiting to be sent beyond which senders wait.
    pub outbox_bytes: usize,
    /// Bytes of a many-message answer that may be on their way to a reader that does not read; one message
    /// more than that at most.
    pub window_bytes: usize,
    /// Requests open at once on one connection.
    pub streams: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 16 << 20,
            chunk_bytes: 1 << 20,
            message_bytes: 80 << 20,
            outbox_bytes: 4 << 20,
            window_bytes: 4 << 20,
            streams: 65_536,
        }
    }
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message, or a piece of one, of whoever opened the stream.
    Request,
    /// A message, or a piece of one, in answer.
    Response,
    /// The sender gives the stream up; what it sent of it in part is void.
    Cancel,
    /// So many bytes of answers were taken from the stream; the body is a number of 8 bytes.
    Credit,
    /// The sender takes no further requests on this connection; those that it took are still answered. The
    /// body is how many these are and their streams, numbers of 8 bytes.
    Goodbye,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Request, Self::Response, Self::Cancel, Self::Credit, Self::Goodbye];

    const fn code(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
            Self::Cancel => 3,
            Self::Credit => 4,
            Self::Goodbye => 5,
        }
    }
}

/// What follows a frame on its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The message goes on in the next frame of this stream and kind.
    pub more: bool,
    /// No message follows this one on the stream.
    pub last: bool,
}

impl Flags {
    const fn code(self) -> u8 {
        self.more as u8 | (self.last as u8) << 1
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is for.
    pub kind: Kind,
    /// What follows it.
    pub flags: Flags,
    /// Which request it belongs to.
    pub stream: u64,
    /// The bytes.
    pub body: Vec<u8>,
}

/// The fields of a header that was found right.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub checksum: u64,
    pub length: usize,
    pub kind: Kind,
    pub flags: Flags,
    pub stream: u64,
}

/// Adds a frame to `out`.
pub fn encode_frame(out: &mut Vec<u8>, kind: Kind, flags: Flags, stream: u64, body: &[u8]) {
    let start = out.len();
    out.reserve(HEADER_BYTES + body.len());
    out.extend_from_slice(&[0; 8]);
    let mut fields = [0; 16];
    fields[..4].copy_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    fields[4] = kind.code();
    fields[5] = flags.code();
    fields[8..].copy_from_slice(&stream.to_le_bytes());
    let guard = guard(fields);
    fields[6..8].copy_from_slice(&guard.to_le_bytes());
    out.extend_from_slice(&fields);
    out.extend_from_slice(body);
    let checksum = XxHash3_64::oneshot(&out[start + 8..]);
    out[start..start + 8].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads a header; the body and its checksum are not looked at yet.
pub(crate) fn decode_header(bytes: &[u8; HEADER_BYTES], limits: &Limits) -> Result<Header, WireError> {
    let mut fields = [0; 16];
    fields.copy_from_slice(&bytes[8..]);
    let expected = u16::from_le_bytes([fields[6], fields[7]]);
    let stream = number(&fields[8..]);
    fields[6] = 0;
    fields[7] = 0;
    let found = guard(fields);
    if found != expected {
        let (found, expected) = (u64::from(found), u64::from(expected));
        return Err(WireError::Checksum { part: "a frame header", found, expected });
    }
    let length = u32::from_le_bytes([fields[0], fields[1], fields[2], fields[3]]) as usize;
    if length > limits.frame_bytes {
        let max = limits.frame_bytes as u64;
        return Err(WireError::TooLarge { part: "a frame", bytes: length as u64, max });
    }
    let kind = Kind::ALL.into_iter().find(|kind| kind.code() == fields[4]);
    let kind = kind.ok_or(WireError::Protocol { problem: "unknown kind of frame", stream })?;
    let flags = Flags { more: fields[5] & 1 != 0, last: fields[5] & 2 != 0 };
    if flags.code() != fields[5] {
        return Err(WireError::Protocol { problem: "unknown flags", stream });
    }
    Ok(Header { checksum: number(&bytes[..8]), length, kind, flags, stream })
}

fn guard(fields: [u8; 16]) -> u16 {
    (XxHash3_64::oneshot(&fields) & 0xffff) as u16
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

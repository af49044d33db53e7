//! The layout of a frame.
//!
//! ```text
//!  0        8       12   13    14      16       24
//!  | checksum | length | kind | flags | guard | stream | body ... length bytes
//! ```
//! All numbers are little-endian. `checksum` is XXH3-64 of everything after it, including the body. `guard`
//! is the low half-word of XXH3-64 over the other header fields, so that a damaged length is detected at
//! once, instead of waiting for that many bytes.

use crate::WireError;
use twox_hash::XxHash3_64;

/// Length of a frame's header in bytes.
pub const HEADER_BYTES: usize = 24;

/// Limits on what may be sent and held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest frame body that is accepted.
    pub frame_bytes: usize,
    /// Longest frame body that is sent; longer messages are split into chunks of this size.
    pub chunk_bytes: usize,
    /// Longest message that is accepted, over all chunks.
    pub message_bytes: usize,
    /// Bytes waiting to be sent beyond which senders wait.
    pub outbox_bytes: usize,
    /// Bytes of a multi-message answer that may be on their way to a client that does not read; at most one
    /// message more.
    pub window_bytes: usize,
    /// Most open requests on one connection.
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

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message, or a piece of one, from the side that opened the stream.
    Request,
    /// A message, or a piece of one, in answer.
    Response,
    /// The sender gives up the stream; an incomplete message that it sent is void.
    Cancel,
    /// The receiver has consumed this many bytes of answers on the stream; the body is an 8-byte number.
    Credit,
    /// The sender accepts no further requests on this connection; those it has accepted are still answered.
    /// The body is their count and their streams, as 8-byte numbers.
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
    /// The message continues in the next frame of this stream and kind.
    pub more: bool,
    /// This is the last message on the stream.
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
    /// Its purpose.
    pub kind: Kind,
    /// What follows it.
    pub flags: Flags,
    /// The request that it belongs to.
    pub stream: u64,
    /// The bytes.
    pub body: Vec<u8>,
}

/// The fields of a verified header.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub checksum: u64,
    pub length: usize,
    pub kind: Kind,
    pub flags: Flags,
    pub stream: u64,
}

/// Appends a frame to `out`.
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

/// Decodes a header; the body and its checksum are not checked yet.
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

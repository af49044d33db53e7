//! Joins chunks into messages.
//!
//! Invariant: in each direction at most one message is in pieces at a time, so a peer can make this side hold
//! at most one incomplete message. Complete small messages may pass between its pieces.

use crate::{Flags, Frame, Kind, Limits, WireError};

/// A complete message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its purpose.
    pub kind: Kind,
    /// The request that it belongs to.
    pub stream: u64,
    /// Whether it is the last of its stream in this direction.
    pub is_last: bool,
    /// The bytes.
    pub body: Vec<u8>,
}

/// Joins chunks into messages.
#[derive(Debug)]
pub struct Assembler {
    limits: Limits,
    open: Option<Message>,
}

impl Assembler {
    /// An assembler that accepts what `limits` allow.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, open: None }
    }

    /// Takes a frame; returns the message that it completes.
    ///
    /// # Errors
    /// [`WireError`] if the frame does not fit what came before it.
    pub fn push(&mut self, frame: Frame) -> Result<Option<Message>, WireError> {
        let Frame { kind, flags, stream, body } = frame;
        let is_control = !matches!(kind, Kind::Request | Kind::Response);
        if is_control && flags != Flags::default() {
            return Err(WireError::Protocol { problem: "a control frame with flags", stream });
        }
        let continues = self.open.as_ref().is_some_and(|open| open.stream == stream);
        if !continues || is_control {
            if kind == Kind::Cancel && continues {
                self.open = None;
            }
            let message = Message { kind, stream, is_last: flags.last, body };
            return if flags.more { self.start(message) } else { Ok(Some(message)) };
        }
        self.extend(kind, flags, &body)
    }

    fn start(&mut self, message: Message) -> Result<Option<Message>, WireError> {
        if self.open.is_some() {
            return Err(WireError::Protocol { problem: "two messages in pieces", stream: message.stream });
        }
        self.open = Some(message);
        Ok(None)
    }

    fn extend(&mut self, kind: Kind, flags: Flags, body: &[u8]) -> Result<Option<Message>, WireError> {
        let Some(mut open) = self.open.take() else { return Ok(None) };
        if open.kind != kind {
            return Err(WireError::Protocol { problem: "pieces of two kinds", stream: open.stream });
        }
        let bytes = open.body.len() + body.len();
        if bytes > self.limits.message_bytes {
            let max = self.limits.message_bytes as u64;
            return Err(WireError::TooLarge { part: "a message", bytes: bytes as u64, max });
        }
        open.body.extend_from_slice(body);
        open.is_last = flags.last;
        if flags.more {
            self.open = Some(open);
            return Ok(None);
        }
        Ok(Some(open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(stream: u64, body: &[u8], more: bool) -> Frame {
        Frame { kind: Kind::Request, flags: Flags { more, last: !more }, stream, body: body.to_vec() }
    }

    #[test]
    fn small_messages_pass_between_the_pieces_of_a_large_one() {
        let mut assembler = Assembler::new(Limits::default());
        assert_eq!(assembler.push(piece(1, b"ab", true)).unwrap(), None);
        assert_eq!(assembler.push(piece(2, b"x", false)).unwrap().unwrap().body, b"x");
        let whole = assembler.push(piece(1, b"cd", false)).unwrap().unwrap();
        assert_eq!((whole.stream, &whole.body[..], whole.is_last), (1, &b"abcd"[..], true));
    }

    #[test]
    fn a_cancelled_message_leaves_nothing_behind() {
        let mut assembler = Assembler::new(Limits::default());
        assembler.push(piece(1, b"ab", true)).unwrap();
        let cancel = Frame { kind: Kind::Cancel, flags: Flags::default(), stream: 1, body: Vec::new() };
        assert_eq!(assembler.push(cancel).unwrap().unwrap().kind, Kind::Cancel);
        assert!(assembler.push(piece(3, b"ef", true)).is_ok());
    }

    #[test]
    fn a_peer_cannot_make_us_hold_more_than_one_message_in_pieces_nor_a_long_one() {
        let limits = Limits { message_bytes: 3, ..Limits::default() };
        let mut assembler = Assembler::new(limits);
        assembler.push(piece(1, b"ab", true)).unwrap();
        assert!(matches!(assembler.push(piece(2, b"x", true)), Err(WireError::Protocol { .. })));
        assert!(matches!(assembler.push(piece(1, b"cd", true)), Err(WireError::TooLarge { max: 3, .. })));
    }
}

//! Decodes bytes into frames or a typed error; no I/O.
//!
//! Invariant: after an error no more frames come out, because the start of the next one is unknown.
//! Invariant: the buffer holds only what arrived, and reserves nothing in advance, whatever a header claims.

use crate::frame::{HEADER_BYTES, decode_header};
use crate::{Assembler, Frame, Limits, WireError};
use twox_hash::XxHash3_64;

/// Splits a stream of bytes into frames.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    buffer: Vec<u8>,
    start: usize,
    is_broken: bool,
}

impl Decoder {
    /// A decoder that accepts what `limits` allow.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, buffer: Vec::new(), start: 0, is_broken: false }
    }

    /// Takes bytes as they arrive, in pieces of any size.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.space(0).extend_from_slice(bytes);
    }

    /// A buffer for a transport to append to, with capacity for at least `bytes` more.
    pub fn space(&mut self, bytes: usize) -> &mut Vec<u8> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > self.limits.chunk_bytes.saturating_mul(2) {
            self.buffer = Vec::new();
        }
        self.buffer.reserve(bytes);
        &mut self.buffer
    }

    /// The next complete frame, or none until more bytes are fed.
    ///
    /// # Errors
    /// [`WireError`] for bytes that are not a frame; the connection is useless then.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        if self.is_broken {
            return Err(WireError::Closed);
        }
        let frame = self.decode();
        self.is_broken = frame.is_err();
        frame
    }

    fn decode(&mut self) -> Result<Option<Frame>, WireError> {
        let bytes = &self.buffer[self.start..];
        let Some((header_bytes, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = decode_header(header_bytes, &self.limits)?;
        let Some(body) = rest.get(..header.length) else { return Ok(None) };
        let end = HEADER_BYTES + header.length;
        let found = XxHash3_64::oneshot(&bytes[8..end]);
        if found != header.checksum {
            return Err(WireError::Checksum { part: "a frame", found, expected: header.checksum });
        }
        let frame =
            Frame { kind: header.kind, flags: header.flags, stream: header.stream, body: body.to_vec() };
        self.start += end;
        Ok(Some(frame))
    }

    /// The bytes that are not part of a returned frame, for a decoder with other limits.
    #[must_use]
    pub fn into_rest(mut self) -> Vec<u8> {
        self.buffer.split_off(self.start)
    }

    /// To be called at the end of the stream.
    ///
    /// # Errors
    /// [`WireError::Torn`] if it ends within a frame.
    pub fn finish(&self) -> Result<(), WireError> {
        match self.buffer.len() - self.start {
            0 => Ok(()),
            bytes => Err(WireError::Torn { bytes }),
        }
    }
}

/// Decodes arbitrary bytes to their end or the first error; returns the number of messages, and the error.
/// For fuzzing and for captured traffic.
pub fn check_bytes(bytes: &[u8], piece: usize, limits: Limits) -> (usize, Option<WireError>) {
    let mut decoder = Decoder::new(limits);
    let mut assembler = Assembler::new(limits);
    let mut messages = 0;
    for piece in bytes.chunks(piece.max(1)) {
        decoder.feed(piece);
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => match assembler.push(frame) {
                    Ok(message) => messages += usize::from(message.is_some()),
                    Err(error) => return (messages, Some(error)),
                },
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, decoder.finish().err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, Kind, encode_frame};

    fn frames(seed: u64) -> Vec<Frame> {
        let mut random = fastrand::Rng::with_seed(seed);
        let kinds = [Kind::Request, Kind::Response, Kind::Cancel, Kind::Credit, Kind::Goodbye];
        (0..random.usize(1..20))
            .map(|_| Frame {
                kind: kinds[random.usize(..kinds.len())],
                flags: Flags { more: random.bool(), last: random.bool() },
                stream: random.u64(..),
                body: (0..random.usize(..300)).map(|_| random.u8(..)).collect(),
            })
            .collect()
    }

    fn encoded(frames: &[Frame]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            encode_frame(&mut bytes, frame.kind, frame.flags, frame.stream, &frame.body);
        }
        bytes
    }

    fn decoded(bytes: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<Frame>, Option<WireError>) {
        let mut decoder = Decoder::new(Limits::default());
        let (mut frames, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
            decoder.feed(now);
            rest = later;
            loop {
                match decoder.next_frame() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, decoder.finish().err())
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_the_bytes_are_split() {
        for seed in 0..200 {
            let sent = frames(seed);
            let mut random = fastrand::Rng::with_seed(seed);
            let (received, error) = decoded(&encoded(&sent), || random.usize(1..100));
            assert!(error.is_none(), "seed {seed}: {error:?}");
            assert_eq!(received, sent, "seed {seed}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_never_yields_a_wrong_frame() {
        let sent = frames(7);
        let bytes = encoded(&sent);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (received, error) = decoded(&damaged, || 64);
            assert!(error.is_some(), "bit {bit} was not noticed");
            assert_eq!(received[..], sent[..received.len()], "bit {bit}");
        }
    }

    #[test]
    fn bytes_that_end_early_are_torn_unless_they_end_between_frames() {
        let sent = frames(3);
        let bytes = encoded(&sent);
        for end in 0..bytes.len() {
            let (received, error) = decoded(&bytes[..end], || 1000);
            let whole = encoded(&sent[..received.len()]).len();
            assert_eq!(received[..], sent[..received.len()]);
            match error {
                None => assert_eq!(whole, end),
                Some(WireError::Torn { bytes }) => assert_eq!(bytes, end - whole),
                Some(other) => panic!("cut at {end}: {other}"),
            }
        }
    }

    #[test]
    fn a_hostile_length_is_refused_before_anything_is_allocated() {
        let limits = Limits { frame_bytes: 100, ..Limits::default() };
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, Kind::Request, Flags::default(), 1, &[0; 101]);
        let mut decoder = Decoder::new(limits);
        decoder.feed(&bytes[..HEADER_BYTES]);
        assert!(matches!(decoder.next_frame(), Err(WireError::TooLarge { bytes: 101, max: 100, .. })));
        assert!(matches!(decoder.next_frame(), Err(WireError::Closed)));
    }

    #[test]
    fn random_bytes_are_errors_and_never_panics() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bytes = encoded(&frames(seed));
            for _ in 0..random.usize(1..5) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.extend((0..random.usize(..100)).map(|_| random.u8(..)));
            check_bytes(&bytes, random.usize(1..50), Limits::default());
        }
    }
}

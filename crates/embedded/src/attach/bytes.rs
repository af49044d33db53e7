//! Compact binary encoding (numbers of variable length, counted bytes) and a reader that accepts any input.
//!
//! Invariant: reading any bytes gives a value or a [`DecodeError`]; it never panics, and never allocates more
//! than a small multiple of the length of the input.

use atoll_store::Buffer;
use std::time::Duration;

/// Bytes from a peer that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at} cannot be read")]
pub struct DecodeError {
    /// What was expected.
    pub what: &'static str,
    /// The offset at which it was expected, in bytes.
    pub at: usize,
}

/// A message being written.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    pub fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    pub fn counted(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    pub fn flag(&mut self, flag: bool) {
        self.byte(u8::from(flag));
    }

    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub fn duration(&mut self, duration: Duration) {
        self.number(duration.as_secs());
        self.number(u64::from(duration.subsec_nanos()));
    }
}

/// A message being read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

type Decoded<T> = Result<T, DecodeError>;

impl<'a> Reader<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub const fn error(&self, what: &'static str) -> DecodeError {
        DecodeError { what, at: self.at }
    }

    pub fn byte(&mut self, what: &'static str) -> Decoded<u8> {
        let byte = *self.bytes.get(self.at).ok_or(self.error(what))?;
        self.at += 1;
        Ok(byte)
    }

    pub fn number(&mut self, what: &'static str) -> Decoded<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.error(what))
    }

    pub fn size(&mut self, what: &'static str) -> Decoded<usize> {
        usize::try_from(self.number(what)?).map_err(|_| self.error(what))
    }

    /// The number of items that follow, each of at least `bytes_each` bytes.
    pub fn count(&mut self, bytes_each: usize, what: &'static str) -> Decoded<usize> {
        let count = self.size(what)?;
        if count > (self.bytes.len() - self.at) / bytes_each.max(1) {
            return Err(self.error(what));
        }
        Ok(count)
    }

    pub fn counted(&mut self, what: &'static str) -> Decoded<&'a [u8]> {
        let count = self.count(1, what)?;
        let bytes = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(bytes)
    }

    pub fn buffer(&mut self, what: &'static str) -> Decoded<Buffer> {
        self.counted(what).map(Buffer::from)
    }

    pub fn text(&mut self, what: &'static str) -> Decoded<String> {
        self.counted(what).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    pub fn flag(&mut self, what: &'static str) -> Decoded<bool> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error(what)),
        }
    }

    pub fn option<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self) -> Decoded<T>,
    ) -> Decoded<Option<T>> {
        if self.flag(what)? { read(self).map(Some) } else { Ok(None) }
    }

    pub fn many<T>(
        &mut self,
        bytes_each: usize,
        what: &'static str,
        mut read: impl FnMut(&mut Self) -> Decoded<T>,
    ) -> Decoded<Vec<T>> {
        let count = self.count(bytes_each, what)?;
        (0..count).map(|_| read(self)).collect()
    }

    pub fn duration(&mut self, what: &'static str) -> Decoded<Duration> {
        let seconds = self.number(what)?;
        let nanoseconds =
            u32::try_from(self.number(what)?).ok().filter(|&nanoseconds| nanoseconds < 1_000_000_000);
        Ok(Duration::new(seconds, nanoseconds.ok_or(self.error(what))?))
    }

    /// Ends the reading: no bytes may be left.
    pub fn end<T>(&self, value: T) -> Decoded<T> {
        if self.at == self.bytes.len() { Ok(value) } else { Err(self.error("the end of the message")) }
    }
}

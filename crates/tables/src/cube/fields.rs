//! Fields of a directory, read one after the other.
//!
//! Invariant: reading is total.

use super::words::{Words, read_words};
use crate::block::{BlockError, damaged};
use crate::protocol::RunId;

/// Bytes that are read from front to back.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], BlockError> {
        let first = self.rest().first_chunk().ok_or_else(cut_off)?;
        self.at += N;
        Ok(*first)
    }

    pub(super) fn u32(&mut self) -> Result<u32, BlockError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, BlockError> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads and unpacks a run of numbers.
    pub(super) fn words(&mut self, count: usize) -> Result<Vec<u64>, BlockError> {
        let (words, rest) = read_words(self.rest(), count)?;
        self.at = self.bytes.len() - rest.len();
        Ok(words)
    }

    /// Finds a run of numbers and leaves it packed.
    pub(super) fn packed(&mut self, count: usize) -> Result<Words, BlockError> {
        let (words, end) = Words::find(self.bytes, self.at, count)?;
        self.at = end;
        Ok(words)
    }

    pub(super) fn run(&mut self) -> Result<RunId, BlockError> {
        let bytes = self.u32()? as usize;
        let name = self.rest().get(..bytes).ok_or_else(cut_off)?;
        self.at += bytes;
        let name = std::str::from_utf8(name).map_err(|_| damaged("the name of a run is not text"))?;
        Ok(RunId::from(name))
    }
}

fn cut_off() -> BlockError {
    damaged("its directory is cut off")
}

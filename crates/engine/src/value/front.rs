//! The beginning of a value, and its length, for callers that need no more: nothing is copied or shared.

use super::piece::LINES_OF_END;
use super::{Chain, Piece, Stored, ValueRef};
use atoll_buffer::prefetch;
use std::sync::atomic::Ordering;

/// The first bytes of a value, at most `N`, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front<const N: usize> {
    bytes: [u8; N],
    shown: usize,
    len: u64,
}

impl<const N: usize> Front<N> {
    /// The front of a value of length `len` that begins with these bytes, of which at most `N` are kept.
    #[must_use]
    pub fn of(bytes: &[u8], len: u64) -> Self {
        let shown = bytes.len().min(N);
        let mut front = Self { bytes: [0; N], shown, len };
        front.bytes[..shown].copy_from_slice(&bytes[..shown]);
        front
    }

    /// The first bytes of the value: all of it, or `N` bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.shown]
    }

    /// Length of the value in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the value has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl ValueRef<'_> {
    /// The front of the value; none where its beginning is not in memory, or lies in several pieces.
    pub(crate) fn front<const N: usize>(&self) -> Option<Front<N>> {
        match self.stored {
            Stored::Inline(bytes) => Some(Front::of(bytes, bytes.len() as u64)),
            Stored::Chain(chain) => chain.front(),
        }
    }
}

impl Chain {
    fn front<const N: usize>(&self) -> Option<Front<N>> {
        let (first, len) = (self.pieces().first()?, self.len());
        let wanted = N.min(usize::try_from(len).unwrap_or(N));
        first.front(wanted, |bytes| Front::of(bytes, len))
    }
}

impl Piece {
    /// Shows its first `wanted` bytes, if they are in memory.
    fn front<R>(&self, wanted: usize, show: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let cell = &self.0;
        if let Some(front) = cell.front().and_then(|front| front.get(..wanted)) {
            // A caller that asks only for the beginning of a value may be about to append to it.
            let end = cell.bytes_at.load(Ordering::Relaxed).wrapping_add(cell.len as usize);
            prefetch(end, LINES_OF_END);
            return Some(show(front));
        }
        cell.resident.lock().bytes().get(..wanted).map(show)
    }
}

//! The bytes on a simulated medium, in shared blocks: copying an image copies no bytes.
//!
//! Invariant: blocks that were never written, and bytes past the end, are zero.

use std::ops::Range;
use std::sync::Arc;

const BLOCK_BYTES: usize = 4096;

type Block = [u8; BLOCK_BYTES];

/// Bytes and a length; absent blocks are zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    blocks: Vec<Option<Arc<Block>>>,
    len: u64,
}

impl Image {
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut image = Self::default();
        image.write(0, bytes);
        image
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Reads a range; the caller has checked that it lies before the end.
    pub(super) fn read(&self, offset: u64, target: &mut [u8]) {
        for piece in pieces(offset, target.len()) {
            let out = &mut target[piece.source..piece.source + piece.len];
            match self.blocks.get(piece.block).and_then(Option::as_ref) {
                Some(block) => out.copy_from_slice(&block[piece.within..piece.within + piece.len]),
                None => out.fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.grow(offset + bytes.len() as u64);
        for piece in pieces(offset, bytes.len()) {
            let block = self.blocks[piece.block].get_or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            Arc::make_mut(block)[piece.within..piece.within + piece.len]
                .copy_from_slice(&bytes[piece.source..piece.source + piece.len]);
        }
    }

    pub(super) fn grow(&mut self, len: u64) {
        if len > self.len {
            self.len = len;
            self.blocks.resize((len as usize).div_ceil(BLOCK_BYTES), None);
        }
    }

    pub(super) fn cut(&mut self, len: u64) {
        if len >= self.len {
            return;
        }
        self.len = len;
        self.blocks.truncate((len as usize).div_ceil(BLOCK_BYTES));
        let within = len as usize % BLOCK_BYTES;
        if let (Some(Some(last)), true) = (self.blocks.last_mut(), within > 0) {
            Arc::make_mut(last)[within..].fill(0);
        }
    }

    /// Zeroes a range, up to the end of the image.
    pub(super) fn clear(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len);
        for piece in pieces(offset, end.saturating_sub(offset) as usize) {
            match &mut self.blocks[piece.block] {
                whole if piece.len == BLOCK_BYTES => *whole = None,
                Some(block) => Arc::make_mut(block)[piece.within..piece.within + piece.len].fill(0),
                None => {}
            }
        }
    }

    pub(super) fn flip(&mut self, offset: u64, bit: u8) {
        let mut byte = [0];
        self.read(offset, &mut byte);
        self.write(offset, &[byte[0] ^ (1 << (bit % 8))]);
    }

    /// Offset of a byte of the range, chosen by `rng`, in a block that was written at least once.
    pub(super) fn some_written_byte(&self, range: Range<u64>, rng: &mut fastrand::Rng) -> Option<u64> {
        let end = range.end.min(self.len) as usize;
        let first = range.start as usize / BLOCK_BYTES;
        let blocks = first..end.div_ceil(BLOCK_BYTES);
        let written = blocks.filter(|block| self.blocks[*block].is_some());
        let block = rng.choice(written.collect::<Vec<_>>())?;
        let start = (block * BLOCK_BYTES).max(range.start as usize);
        let end = end.min((block + 1) * BLOCK_BYTES);
        (start < end).then(|| rng.usize(start..end) as u64)
    }
}

struct Piece {
    block: usize,
    within: usize,
    source: usize,
    len: usize,
}

/// The parts of a range, one per block.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let offset = offset as usize;
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let within = (offset + done) % BLOCK_BYTES;
            let piece = Piece {
                block: (offset + done) / BLOCK_BYTES,
                within,
                source: done,
                len: (BLOCK_BYTES - within).min(len - done),
            };
            done += piece.len;
            piece
        })
    })
}

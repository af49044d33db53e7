//! Pieces of a value that are needed together: read together where they lie together, and handed out as one buffer.
//!
//! Invariant: whatever is read from the disk passes the checksum of its piece before anybody sees it.

use super::Piece;
use crate::EngineError;
use crate::backing::Backing;
use atoll_buffer::Buffer;

/// The bytes of pieces that follow each other, those in one buffer that were absent and lie together on disk.
pub(super) fn loaded(pieces: &[&Piece], backing: &Backing) -> Result<Vec<Buffer>, EngineError> {
    let (mut buffers, mut rest) = (Vec::new(), pieces);
    while let Some((first, others)) = rest.split_first() {
        let together = absent_neighbours(rest);
        if together > 1 {
            buffers.push(read_together(&rest[..together], backing)?);
            rest = &rest[together..];
        } else {
            buffers.push(first.load(backing)?);
            rest = others;
        }
    }
    Ok(buffers)
}

/// Where these buffers end, which begin at `first`.
pub(super) fn at_end(buffers: &[Buffer], first: u64) -> u64 {
    first + buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>()
}

/// Buffers as one; no copy where they lie behind each other in memory, as pieces do that were put at once or were
/// read from the disk together.
pub(super) fn together(buffers: &[Buffer]) -> Buffer {
    let Some((first, others)) = buffers.split_first() else { return Buffer::new() };
    let joined = others.iter().try_fold(first.clone(), |joined, next| joined.joined(next));
    let copied =
        || Buffer::concat(buffers.iter().map(|part| part.len()).sum(), buffers.iter().map(Buffer::as_slice));
    joined.unwrap_or_else(copied)
}

/// How many of the first of these pieces are not in memory and follow each other on disk.
fn absent_neighbours(pieces: &[&Piece]) -> usize {
    let is_absent = |piece: &Piece| piece.resident_bytes().is_none();
    let follows = |pair: &[&Piece]| {
        let end = pair[0].home().map(|home| home + u64::from(pair[0].len()));
        end.is_some() && end == pair[1].home() && is_absent(pair[1])
    };
    let Some(first) = pieces.first() else { return 0 };
    if !is_absent(first) {
        return 0;
    }
    1 + pieces.windows(2).take_while(|pair| follows(pair)).count()
}

/// Reads back pieces that follow each other on disk, verifies each, and keeps all in one allocation.
fn read_together(pieces: &[&Piece], backing: &Backing) -> Result<Buffer, EngineError> {
    let len = pieces.iter().map(|piece| piece.len() as usize).sum();
    let offset = pieces.first().and_then(|piece| piece.home()).unwrap_or_default();
    let whole = Buffer::try_build(len, |target| backing.read(offset, target))?;
    let mut at = 0;
    for piece in pieces {
        let bytes = whole.slice(at..at + piece.len() as usize);
        piece.check(&bytes, backing)?;
        at += bytes.len();
    }
    at = 0;
    for piece in pieces {
        let bytes = whole.slice(at..at + piece.len() as usize);
        at += bytes.len();
        *piece.0.resident.lock() = Some(bytes);
        backing.admit((*piece).clone(), u64::from(piece.len()));
    }
    Ok(whole)
}

//! Pieces of a value that are needed together: read at once where they are adjacent on disk, and returned as
//! one buffer.
//!
//! Invariant: everything read from the disk passes the checksum of its piece before a caller sees it.

use super::Piece;
use super::growing::Resident;
use crate::EngineError;
use crate::backing::Backing;
use atoll_buffer::Buffer;
use std::ops::Range;

/// At most this share of the bytes of a run may be unused in its allocation.
const UNUSED_SHARE: usize = 4;

/// Unused bytes that are always tolerated in the allocation of a run, such as those that align it.
const UNUSED_BYTES_MAX: usize = 4096;

/// The bytes of consecutive pieces; absent ones that are adjacent on disk come in one buffer.
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

/// A range of the bytes of consecutive pieces, which lie in these buffers. No copy where these are adjacent
/// in memory, as those of pieces that were put at once or read together are. Other pieces are moved into one
/// buffer if most of their bytes are wanted, so that the next caller need not copy them again.
pub(super) fn together(pieces: &[&Piece], buffers: &[Buffer], range: Range<usize>) -> Buffer {
    let runs = runs(buffers);
    let Some((first, others)) = runs.split_first() else { return Buffer::new() };
    if others.is_empty() {
        return first.slice(range.start.min(first.len())..range.end.min(first.len()));
    }
    let len = runs.iter().map(|run| run.len()).sum::<usize>();
    // A part of an allocation stays where it is: the rest would keep the whole allocation alive, uncounted.
    let are_whole = runs.iter().all(is_whole);
    if range.len() < len / 2 || !are_whole {
        return copied(&runs, range);
    }
    let whole = Buffer::concat(len, buffers.iter().map(Buffer::as_slice));
    let mut at = 0;
    for piece in pieces {
        let end = at + piece.len() as usize;
        // A piece that was evicted meanwhile stays absent: its bytes would not be counted.
        let mut resident = piece.0.resident.lock();
        if !matches!(*resident, Resident::Absent) {
            *resident = Resident::Whole(whole.slice(at..end));
        }
        at = end;
    }
    whole.slice(range)
}

/// Whether its allocation holds hardly more than its bytes.
fn is_whole(run: &Buffer) -> bool {
    run.allocated_bytes() <= run.len() + UNUSED_BYTES_MAX.max(run.len() / UNUSED_SHARE)
}

/// Consecutive buffers; those that are adjacent in memory are joined into one.
fn runs(buffers: &[Buffer]) -> Vec<Buffer> {
    let mut runs: Vec<Buffer> = Vec::new();
    for buffer in buffers {
        match runs.last_mut().and_then(|run| Some((run.joined(buffer)?, run))) {
            Some((joined, run)) => *run = joined,
            None => runs.push(buffer.clone()),
        }
    }
    runs
}

/// A copy of just this range of the bytes of consecutive buffers.
fn copied(buffers: &[Buffer], range: Range<usize>) -> Buffer {
    let mut at = 0;
    let parts: Vec<&[u8]> = buffers
        .iter()
        .map(|buffer| {
            let (from, to) =
                (range.start.clamp(at, at + buffer.len()), range.end.clamp(at, at + buffer.len()));
            let part = &buffer[from - at..to.max(from) - at];
            at += buffer.len();
            part
        })
        .collect();
    Buffer::concat(parts.iter().map(|part| part.len()).sum(), parts)
}

/// Number of pieces at the front that are not in memory and are adjacent on disk.
fn absent_neighbours(pieces: &[&Piece]) -> usize {
    let is_absent = |piece: &Piece| !piece.is_resident();
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

/// Reads back pieces that are adjacent on disk, verifies each, and keeps all of them in one allocation.
fn read_together(pieces: &[&Piece], backing: &Backing) -> Result<Buffer, EngineError> {
    let len = pieces.iter().map(|piece| piece.len() as usize).sum();
    let offset = pieces.first().and_then(|piece| piece.home()).unwrap_or_default();
    let whole = Buffer::try_read(len, |target| backing.read(offset, target))?;
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
        *piece.0.resident.lock() = Resident::Whole(bytes);
        backing.admit((*piece).clone(), u64::from(piece.len()));
    }
    Ok(whole)
}

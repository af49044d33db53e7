//! Values that grow: where their bytes lie, and how an append changes their pieces.
//!
//! An append to a value that only its leaf refers to writes behind the present bytes, into room that is kept
//! for this. Bytes that are shared or on disk stay as they are; the value then gets another piece, or a
//! longer one in place of its last.

use super::piece::{PieceCell, PieceHome, Waiting};
use super::{ALONE_FROM, BUFFER_BYTES, Chain, JOIN_BELOW, Piece};
use crate::backing::Backing;
use crate::meter::Kind;
use crate::threads::Mutex;
use atoll_buffer::{Buffer, Counted};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

/// Where the bytes of a piece are.
#[derive(Default)]
pub(super) enum Resident {
    /// On disk only.
    #[default]
    Absent,
    /// In memory, and shareable.
    Whole(Buffer),
    /// In memory, with room for more.
    Growing(Vec<u8>),
}

/// Longest range of a growing piece that is copied for a read; for longer ones, the piece is made shareable.
const COPIED_RANGE_BYTES_MAX: usize = 1024;

/// Bytes of a growing piece that are also kept in [`Waiting`], so that a reader of only these does not wait
/// for the memory of the others.
pub(super) const FRONT_BYTES: usize = 24;

impl Resident {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Absent => &[],
            Self::Whole(bytes) => bytes,
            Self::Growing(bytes) => bytes,
        }
    }

    /// The bytes, made shareable; none if they are on disk only.
    pub(super) fn whole(&mut self) -> Option<Buffer> {
        if let Self::Growing(bytes) = self {
            *self = Self::Whole(Buffer::copy_from(bytes));
        }
        self.ready()
    }

    /// The bytes, if they are shareable.
    pub(super) fn ready(&self) -> Option<Buffer> {
        match self {
            Self::Whole(bytes) => Some(bytes.clone()),
            Self::Absent | Self::Growing(_) => None,
        }
    }

    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

impl PieceCell {
    /// An absent piece, not counted as waiting.
    pub(super) fn of(len: u32, checksum: u64, birth: u64) -> Self {
        Self {
            resident: Mutex::default(),
            bytes_at: AtomicPtr::default(),
            home: PieceHome::default(),
            birth,
            checksum: AtomicU64::new(checksum),
            counted: AtomicU64::new(0),
            waiting: None,
            len,
            is_summed: AtomicBool::new(true),
            in_log: false,
        }
    }
}

impl Piece {
    /// A piece that lives in memory until a checkpoint writes it.
    pub(super) fn waiting_as(resident: Resident, birth: u64, backing: &Backing) -> Self {
        let (bytes, room) = match &resident {
            Resident::Growing(bytes) => (bytes.as_slice(), bytes.capacity()),
            other => (other.bytes(), other.bytes().len()),
        };
        let mut cell = PieceCell::of(bytes.len() as u32, 0, birth);
        let waiting = Waiting {
            meter: Arc::clone(backing.meter()),
            bytes: room as u64 + BUFFER_BYTES,
            seed: backing.store_id(),
            front: bytes.first_chunk().copied().filter(|_| matches!(resident, Resident::Growing(_))),
        };
        waiting.meter.add(Kind::Waiting, waiting.bytes);
        *cell.is_summed.get_mut() = false;
        *cell.bytes_at.get_mut() = bytes.as_ptr().cast_mut();
        cell.resident = Mutex::new(resident);
        cell.waiting = Some(Box::new(waiting));
        Self(Counted::new(cell))
    }

    /// The cell of a growing piece that only the caller refers to, of this epoch.
    fn growing(&mut self, epoch: u64) -> Option<&mut PieceCell> {
        let cell = self.0.get_mut()?;
        let is_ours = cell.birth == epoch && cell.home.get().is_none() && cell.len < JOIN_BELOW;
        let grows = is_ours && matches!(*cell.resident.lock(), Resident::Growing(_));
        grows.then_some(cell)
    }
}

impl PieceCell {
    /// Its first bytes, where they are kept.
    pub(super) fn front(&self) -> Option<&[u8; FRONT_BYTES]> {
        self.waiting.as_ref()?.front.as_ref()
    }

    fn grow(&mut self, added: &[u8]) {
        let mut resident = self.resident.lock();
        let Resident::Growing(bytes) = &mut *resident else { return };
        if bytes.capacity() - bytes.len() < added.len() {
            let room = bytes.capacity();
            bytes.reserve(added.len());
            let more = (bytes.capacity() - room) as u64;
            if let Some(waiting) = &mut self.waiting {
                waiting.meter.add(Kind::Waiting, more);
                waiting.bytes += more;
            }
        }
        bytes.extend_from_slice(added);
        self.len = bytes.len() as u32;
        *self.bytes_at.get_mut() = bytes.as_mut_ptr();
        *self.is_summed.get_mut() = false;
    }
}

/// What an append adds.
#[derive(Clone, Copy)]
pub(crate) enum Added<'a> {
    /// Bytes that are stored nowhere else yet.
    Bytes(&'a [u8]),
    /// A piece that may have a home already.
    Piece(&'a Piece),
}

impl Chain {
    fn last_growing(&mut self, epoch: u64) -> Option<&mut PieceCell> {
        match self {
            Self::One(piece) => piece.growing(epoch),
            Self::Many(pieces) => Arc::get_mut(pieces)?.last_mut()?.growing(epoch),
        }
    }

    /// Whether bytes can be added in place: only the caller refers to the last ones, and they are not written
    /// yet.
    pub(crate) fn can_grow(&mut self, epoch: u64) -> bool {
        self.last_growing(epoch).is_some()
    }

    /// Adds bytes in place, and returns whether that [was possible](Self::can_grow).
    pub(crate) fn grow(&mut self, added: &[u8], epoch: u64) -> bool {
        self.last_growing(epoch).map(|cell| cell.grow(added)).is_some()
    }

    /// This chain with something appended, and whether an added piece is not part of it because its bytes
    /// were joined with others at once. If the end `grows`, it gets room for more.
    ///
    /// Pieces of similar length are joined while both are in memory, so that n appended bytes are copied
    /// O(log n) times and leave O(log n) pieces.
    pub(crate) fn appended(
        &self,
        added: Added<'_>,
        grows: bool,
        backing: &Backing,
        epoch: u64,
    ) -> (Self, bool) {
        let held;
        let bytes = match added {
            Added::Bytes(bytes) => Some(bytes),
            Added::Piece(piece) => {
                held = piece.resident_bytes();
                held.as_deref()
            }
        };
        let (mut kept, mut fronts) = (self.pieces(), Vec::new());
        let mut len = match added {
            Added::Bytes(bytes) => bytes.len(),
            Added::Piece(piece) => piece.len() as usize,
        };
        while let (Some(_), Some((last, before))) = (bytes, kept.split_last()) {
            let joins = len < ALONE_FROM && last.len() < JOIN_BELOW && len >= last.len() as usize / 2;
            let Some(front) = joins.then(|| last.resident_bytes()).flatten() else { break };
            len += front.len();
            fronts.push(front);
            kept = before;
        }
        let is_joined = !fronts.is_empty();
        let parts = fronts.iter().rev().map(Buffer::as_slice).chain(bytes);
        let tail = match added {
            Added::Piece(piece) if !is_joined => piece.clone(),
            // A value appended to piece by piece never grows in place, so room for more would stay empty.
            Added::Bytes(_) if grows => {
                let mut whole = Vec::with_capacity(2 * len);
                parts.for_each(|part| whole.extend_from_slice(part));
                Piece::waiting_as(Resident::Growing(whole), epoch, backing)
            }
            _ => Piece::waiting(Buffer::concat(len, parts), epoch, backing),
        };
        let chain = match kept {
            [] => Self::One(tail),
            kept => Self::Many(kept.iter().cloned().chain([tail]).collect()),
        };
        (chain, is_joined && matches!(added, Added::Piece(_)))
    }

    /// As [`Chain::appended`], for a value that lay in its leaf so far.
    pub(crate) fn begun(old: &[u8], added: &[u8], grows: bool, backing: &Backing, epoch: u64) -> Self {
        let len = old.len() + added.len();
        Self::One(if grows {
            let mut whole = Vec::with_capacity(2 * len);
            whole.extend_from_slice(old);
            whole.extend_from_slice(added);
            Piece::waiting_as(Resident::Growing(whole), epoch, backing)
        } else {
            Piece::waiting(Buffer::concat(len, [old, added]), epoch, backing)
        })
    }

    /// A short range of a single growing piece; none for any other chain.
    pub(super) fn few_of_growing(&self, range: Range<u64>) -> Option<Buffer> {
        let Self::One(Piece(cell)) = self else { return None };
        let (from, to) = (range.start as usize, range.end as usize);
        if let Some(few) = cell.front().and_then(|front| front.get(from..to)) {
            return Some(Buffer::copy_from(few));
        }
        match &*cell.resident.lock() {
            Resident::Growing(bytes) if to - from <= COPIED_RANGE_BYTES_MAX && to - from < bytes.len() => {
                Some(Buffer::copy_from(&bytes[from..to]))
            }
            _ => None,
        }
    }
}

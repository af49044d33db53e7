//! Values: small ones lie in the leaf, longer ones are chains of pieces.
//!
//! A piece is immutable bytes that know where they live on disk (their *home*) and may be resident in
//! memory. An append shares the pieces before it, so its cost does not depend on the value's length. The last piece of a
//! value that nobody else has and no disk grows where it lies.
//!
//! Invariant: a piece that is not resident has a home, and bytes read from there pass the checksum.
//! Invariant: a piece that more than one value, reader or list has does not change.

mod front;
mod growing;
mod together;

use crate::backing::Backing;
use crate::meter::{Kind, Meter};
use crate::pins::{Pin, Pins};
use crate::planted::{self, Bug};
use crate::prefetch::prefetch;
use crate::threads::Mutex;
use crate::{Damage, EngineError};
use atoll_buffer::{Buffer, Counted};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use together::{loaded, together};

pub use front::Front;
pub(crate) use growing::Added;
use growing::{FRONT, Resident};

/// Values below this many bytes lie in leaf pages.
pub(crate) const INLINE_BELOW: usize = 256;

/// Pieces of at least this many bytes get an extent of their own; shorter ones live in the log.
pub(crate) const EXTENT_FROM: usize = 64 << 10;

/// Pieces of a long value that is put at once have at least about this many bytes: whoever reads a range of the value
/// reads few of them.
pub(crate) const PART_LEN: usize = 256 << 10;

/// Pieces of at least this many bytes are not joined with what is before them.
const ALONE_FROM: usize = PART_LEN / 2;

/// Longest value, in bytes.
pub(crate) const VALUE_MAX: u64 = 64 << 20;

/// A piece that grew to this length is not copied again to join it with appended bytes.
const JOIN_BELOW: u32 = 1 << 20;

/// Lines of a value that a scan asks for; what follows one after the other comes by itself.
const PREFETCHED_LINES: usize = 16;

/// Lines of memory that whoever looks at the beginning of a value reads, or whoever adds to it writes, most likely.
const LINES_OF_END: usize = 3;

/// How far before the bytes of a buffer its owners are counted, about.
const OWNERS_BEFORE: usize = 64;

/// About what a piece takes beside its bytes, and its place among others.
pub(crate) const PIECE_BYTES: usize = 160;

/// About what bytes in memory take beside themselves: an aligned start, an owner count, and what the allocator adds.
const BUFFER_BYTES: u64 = 96;

/// Bytes of a value, immutable for all who share them.
#[derive(Clone)]
pub(crate) struct Piece(Counted<PieceCell>);

/// In this order: who reads it needs what comes first.
#[repr(C)]
struct PieceCell {
    resident: Mutex<Resident>,
    /// Where the bytes were when they came into memory: only ever asked for, never read.
    bytes_at: AtomicPtr<u8>,
    len: u32,
    birth: u64,
    /// Reckoned when somebody asks, where it is not known from the beginning, and before it has a home.
    checksum: OnceLock<u64>,
    /// Whether its bytes are in a log group that the disk does not have yet.
    in_log: bool,
    /// Where its bytes count for as long as it has no home, and for how many.
    waits_at: Option<Arc<Meter>>,
    waiting_bytes: u64,
    /// What the checksum begins with, where it is not known yet.
    seed: u64,
    home: OnceLock<u64>,
    /// What its bytes in memory count for, once somebody counts them.
    counted: AtomicU64,
    /// What it begins with, if it grows or did.
    front: Option<[u8; FRONT]>,
}

impl PieceCell {
    /// Takes its bytes off the meter, with its home or its end.
    fn wait_ended(&self) {
        if let Some(meter) = &self.waits_at {
            meter.take_off(Kind::Waiting, self.waiting_bytes);
        }
    }
}

impl Drop for PieceCell {
    fn drop(&mut self) {
        if self.home.get().is_none() {
            self.wait_ended();
        }
    }
}

impl Piece {
    /// A piece that lives only in memory, or will soon be told its home.
    pub(crate) fn resident(bytes: Buffer, checksum: u64, birth: u64) -> Self {
        Self::new(bytes, checksum, birth, false)
    }

    /// A piece that lives in memory until a checkpoint writes it.
    pub(crate) fn waiting(bytes: Buffer, birth: u64, backing: &Backing) -> Self {
        Self::waiting_as(Resident::Whole(bytes), birth, backing)
    }

    /// A piece whose bytes are part of a log group that will soon be flushed.
    pub(crate) fn in_log(bytes: Buffer, checksum: u64, birth: u64) -> Self {
        Self::new(bytes, checksum, birth, true)
    }

    fn new(bytes: Buffer, checksum: u64, birth: u64, in_log: bool) -> Self {
        let mut cell = PieceCell::of(bytes.len() as u32, checksum, birth);
        cell.in_log = in_log;
        *cell.bytes_at.get_mut() = bytes.as_ptr().cast_mut();
        cell.resident = Mutex::new(Resident::Whole(bytes));
        Self(Counted::new(cell))
    }

    /// A piece that lies on disk.
    pub(crate) fn on_disk(home: u64, len: u32, checksum: u64, birth: u64) -> Self {
        let mut cell = PieceCell::of(len, checksum, birth);
        cell.home = OnceLock::from(home);
        Self(Counted::read(cell))
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.len
    }

    pub(crate) fn birth(&self) -> u64 {
        self.0.birth
    }

    pub(crate) fn checksum(&self) -> u64 {
        let reckon = || crate::checksum::checksum(self.0.seed, self.0.resident.lock().bytes());
        *self.0.checksum.get_or_init(reckon)
    }

    /// Whether it may get a home although the current tree let go of it in `epoch`.
    pub(crate) fn may_settle(&self, epoch: u64) -> bool {
        self.0.in_log || self.0.birth < epoch
    }

    /// Offset of the bytes on disk, once they were written.
    pub(crate) fn home(&self) -> Option<u64> {
        self.0.home.get().copied()
    }

    pub(crate) fn settle(&self, offset: u64) {
        // From here on its bytes may go from memory, and what they were must be known then.
        self.checksum();
        // Settling twice would mean that two checkpoints wrote it at once; the first home stays true.
        if self.0.home.set(offset).is_ok() {
            self.0.wait_ended();
        }
    }

    pub(crate) fn resident_bytes(&self) -> Option<Buffer> {
        self.0.resident.lock().whole()
    }

    /// The same, where nothing has to be copied for it.
    fn ready_bytes(&self) -> Option<Buffer> {
        self.0.resident.lock().ready()
    }

    fn is_resident(&self) -> bool {
        !matches!(*self.0.resident.lock(), Resident::Absent)
    }

    /// Its bytes in memory count for so many more.
    pub(crate) fn count(&self, bytes: u64) {
        self.0.counted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Lets go of the bytes in memory, if they can be read back; how many they counted for.
    pub(crate) fn evict(&self) -> u64 {
        if self.0.home.get().is_none() {
            return 0;
        }
        let bytes = self.0.resident.lock().take();
        drop(bytes);
        self.0.counted.swap(0, Ordering::Relaxed)
    }

    /// Whether nobody has it but the caller, and those who count its bytes in memory.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.owners() <= 2
    }

    /// Takes over the bytes that a piece of the same content has in memory; both can be read back.
    pub(crate) fn take_over(&self, from: &Self, backing: &Backing) {
        // Bytes that are shared are only handed on: even who counts their owners need not be looked at.
        let bytes = match from.0.resident.lock().take() {
            Resident::Whole(bytes) => bytes,
            mut other => match other.whole() {
                Some(bytes) => bytes,
                None => return,
            },
        };
        let counted = from.0.counted.swap(0, Ordering::Relaxed);
        backing.meter().take_off(Kind::Value, counted);
        let counts = if counted > 0 { counted } else { bytes.allocated_bytes() as u64 };
        let bytes_at = from.0.bytes_at.load(Ordering::Relaxed);
        self.0.bytes_at.store(bytes_at, Ordering::Relaxed);
        *self.0.resident.lock() = Resident::Whole(bytes);
        backing.admit(self.clone(), counts);
    }

    /// Brings what says where its bytes are nearer.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(self.0.start(), Counted::<PieceCell>::LINES);
    }

    /// Brings its first bytes nearer, and what counts who shows them, which lies before them.
    #[inline]
    fn prefetch_bytes(&self) {
        let bytes = self.0.bytes_at.load(Ordering::Relaxed);
        if !bytes.is_null() {
            let lines = (self.0.len as usize).div_ceil(64).min(PREFETCHED_LINES);
            prefetch(bytes.wrapping_sub(OWNERS_BEFORE), lines + 1);
        }
    }

    /// Brings nearer what counts who shows its bytes.
    #[inline]
    fn prefetch_owners(&self) {
        let bytes = self.0.bytes_at.load(Ordering::Relaxed);
        if !bytes.is_null() {
            prefetch(bytes.wrapping_sub(OWNERS_BEFORE), 1);
        }
    }

    /// Brings its first bytes nearer, and those where more may be added.
    #[inline]
    fn prefetch_ends(&self) {
        let bytes = self.0.bytes_at.load(Ordering::Relaxed);
        if !bytes.is_null() {
            prefetch(bytes, LINES_OF_END);
            prefetch(bytes.wrapping_add(self.0.len as usize), LINES_OF_END);
        }
    }

    /// What tells this piece from every other that is alive.
    pub(crate) fn address(&self) -> usize {
        self.0.start().addr()
    }

    /// How many hold it.
    #[cfg(test)]
    pub(crate) fn owners(&self) -> usize {
        self.0.owners()
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    /// Reads the bytes on disk and verifies them.
    pub(crate) fn verify(&self, backing: &Backing) -> Result<Buffer, EngineError> {
        let offset = self.home().unwrap_or_default();
        let bytes = Buffer::try_read(self.0.len as usize, |target| backing.read(offset, target))?;
        self.check(&bytes, backing)?;
        Ok(bytes)
    }

    /// Refuses bytes read back that are not those of this piece.
    fn check(&self, bytes: &[u8], backing: &Backing) -> Result<(), EngineError> {
        if backing.checksum(bytes) != self.checksum() && !planted::is(Bug::ValueChecksumIgnored) {
            return Err(backing.corrupt(self.home().unwrap_or_default(), Damage::ValueChecksum));
        }
        Ok(())
    }

    /// The bytes, read back and verified where they are not resident.
    pub(crate) fn load(&self, backing: &Backing) -> Result<Buffer, EngineError> {
        if let Some(bytes) = self.resident_bytes() {
            return Ok(bytes);
        }
        let bytes = self.verify(backing)?;
        *self.0.resident.lock() = Resident::Whole(bytes.clone());
        self.0.bytes_at.store(bytes.as_ptr().cast_mut(), Ordering::Relaxed);
        backing.admit(self.clone(), bytes.allocated_bytes() as u64);
        Ok(bytes)
    }
}

/// One or more pieces, in order.
#[derive(Clone)]
pub(crate) enum Chain {
    One(Piece),
    Many(Arc<[Piece]>),
}

impl Chain {
    pub(crate) fn from_pieces(mut pieces: Vec<Piece>) -> Self {
        match pieces.len() {
            1 => Self::One(pieces.remove(0)),
            _ => Self::Many(pieces.into()),
        }
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Many(pieces) => pieces,
        }
    }

    /// The bytes, where they lie in one piece in memory that can be shared.
    fn ready_bytes(&self) -> Option<Buffer> {
        let Self::One(piece) = self else { return None };
        piece.prefetch();
        piece.prefetch_bytes();
        piece.ready_bytes()
    }

    /// Brings its first piece nearer.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Self::One(piece) = self {
            piece.prefetch();
        }
    }

    /// Brings its bytes nearer, where they are one piece.
    #[inline]
    pub(crate) fn prefetch_bytes(&self) {
        if let Self::One(piece) = self {
            piece.prefetch_bytes();
        }
    }

    /// Brings nearer what counts who shows its bytes, where they are one piece.
    #[inline]
    pub(crate) fn prefetch_owners(&self) {
        if let Self::One(piece) = self {
            piece.prefetch_owners();
        }
    }

    /// Brings the ends of its bytes nearer, where they are one piece.
    #[inline]
    pub(crate) fn prefetch_ends(&self) {
        if let Self::One(piece) = self {
            piece.prefetch_ends();
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.pieces().iter().map(|piece| u64::from(piece.len())).sum()
    }

    /// This chain with `to` in place of the pieces that moved there.
    pub(crate) fn with_moved(&self, is_moved: impl Fn(&Piece) -> bool, to: &Piece) -> Self {
        if planted::is(Bug::MovedAlone) {
            return Self::One(to.clone());
        }
        let pieces = self.pieces().iter();
        Self::from_pieces(pieces.map(|piece| if is_moved(piece) { to } else { piece }.clone()).collect())
    }
}

/// What a leaf holds for a key, by reference.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    Inline(&'a [u8]),
    Chain(&'a Chain),
}

impl<'a> Stored<'a> {
    /// The chain, if it is one.
    pub(crate) fn chain(self) -> Option<&'a Chain> {
        match self {
            Self::Inline(_) => None,
            Self::Chain(chain) => Some(chain),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Chain(chain) => chain.len(),
        }
    }
}

/// A value during a read, before it is copied or kept.
pub struct ValueRef<'a> {
    pub(crate) stored: Stored<'a>,
    pub(crate) backing: &'a Arc<Backing>,
    pub(crate) pins: &'a Arc<Pins>,
    pub(crate) epoch: u64,
}

impl<'a> ValueRef<'a> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.stored.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, without copying where they lie in one piece in memory.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`] or [`EngineError::Disk`] when they must be read back.
    #[inline]
    pub fn bytes(&self) -> Result<ValueBytes<'a>, EngineError> {
        match self.stored {
            Stored::Inline(bytes) => Ok(ValueBytes::Inline(bytes)),
            Stored::Chain(chain) => Ok(ValueBytes::Shared(match chain.ready_bytes() {
                Some(bytes) => bytes,
                None => self.to_value().to_buffer()?,
            })),
        }
    }

    /// The value, to be kept.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let whole = match self.stored {
            Stored::Inline(bytes) => Some(Buffer::copy_from(bytes)),
            // What still grows is not copied before somebody wants all of it.
            Stored::Chain(chain) => chain.ready_bytes(),
        };
        Value(match (whole, self.stored) {
            (Some(bytes), _) => Kept::Whole(bytes),
            (None, Stored::Inline(bytes)) => Kept::Whole(Buffer::copy_from(bytes)),
            (None, Stored::Chain(chain)) => Kept::Chain {
                chain: chain.clone(),
                backing: Arc::clone(self.backing),
                // The pin keeps the bytes on disk in place for as long as somebody may read them back.
                _pin: self.backing.disk().map(|_| self.pins.pin(self.epoch)),
            },
        })
    }
}

/// The bytes of a value, in place or shared.
pub enum ValueBytes<'a> {
    /// In a leaf.
    Inline(&'a [u8]),
    /// In a buffer of their own.
    Shared(Buffer),
}

impl std::ops::Deref for ValueBytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline(bytes) => bytes,
            Self::Shared(buffer) => buffer,
        }
    }
}

/// A value that was read: cheap to clone, and read back from disk only where it is used.
#[derive(Clone)]
pub struct Value(Kept);

#[derive(Clone)]
enum Kept {
    Whole(Buffer),
    Chain { chain: Chain, backing: Arc<Backing>, _pin: Option<Pin> },
}

impl Value {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Kept::Whole(bytes) => bytes.len() as u64,
            Kept::Chain { chain, .. } => chain.len(),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all bytes are in memory, so that reading them waits for nothing.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        match &self.0 {
            Kept::Whole(_) => true,
            Kept::Chain { chain, .. } => chain.pieces().iter().all(Piece::is_resident),
        }
    }

    /// All bytes in one buffer; no copy where they lie in one piece.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`] or [`EngineError::Disk`] when they must be read back.
    pub fn to_buffer(&self) -> Result<Buffer, EngineError> {
        self.read(0, self.len())
    }

    /// The bytes from `offset`, at most `len`, clamped to the value.
    ///
    /// # Errors
    /// As [`Value::to_buffer`].
    pub fn read(&self, offset: u64, len: u64) -> Result<Buffer, EngineError> {
        if let Kept::Whole(bytes) = &self.0 {
            let end = offset.saturating_add(len).min(bytes.len() as u64) as usize;
            return Ok(bytes.slice(offset.min(end as u64) as usize..end));
        }
        let Kept::Chain { chain, backing, .. } = &self.0 else { return Ok(Buffer::new()) };
        let (from, to) = (offset.min(self.len()), offset.saturating_add(len).min(self.len()));
        if let Some(few) = chain.few_of_growing(from..to) {
            return Ok(few);
        }
        let (mut at, mut first, mut pieces) = (0, 0, Vec::new());
        for piece in chain.pieces() {
            let end = at + u64::from(piece.len());
            if end > from && at < to {
                first = if pieces.is_empty() { at } else { first };
                pieces.push(piece);
            }
            at = end;
        }
        let parts = loaded(&pieces, backing)?;
        Ok(together(&pieces, &parts, (from - first) as usize..(to - first) as usize))
    }

    /// The pieces, each read back only when it is asked for.
    pub fn chunks(&self) -> impl Iterator<Item = Result<Buffer, EngineError>> + '_ {
        self.pieces().map(|piece| piece.bytes())
    }

    fn pieces(&self) -> impl Iterator<Item = KeptPiece<'_>> + '_ {
        let (whole, chain) = match &self.0 {
            Kept::Whole(bytes) => (Some(KeptPiece::Whole(bytes)), None),
            Kept::Chain { chain, backing, .. } => (None, Some((chain, backing))),
        };
        let pieces = chain.into_iter().flat_map(|(chain, backing)| {
            chain.pieces().iter().map(move |piece| KeptPiece::Piece(piece, backing))
        });
        whole.into_iter().chain(pieces)
    }
}

enum KeptPiece<'a> {
    Whole(&'a Buffer),
    Piece(&'a Piece, &'a Backing),
}

impl KeptPiece<'_> {
    fn bytes(&self) -> Result<Buffer, EngineError> {
        match self {
            Self::Whole(bytes) => Ok((*bytes).clone()),
            Self::Piece(piece, backing) => piece.load(backing),
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({} B)", self.len())
    }
}

//! Values: small ones lie in the leaf, longer ones are chains of pieces.
//!
//! A piece is immutable bytes that know their place on disk (their *home*) and may be resident in memory. An
//! append shares the pieces before it, so its cost does not depend on the length of the value. The last piece
//! of a value grows in place while it is unshared and not on disk.
//!
//! [`piece`] has the pieces, [`growing`] makes values longer, [`front`] shows their first bytes, [`together`]
//! reads several pieces at once.

mod front;
mod growing;
mod piece;
mod together;

use crate::EngineError;
use crate::backing::Backing;
use crate::pins::{Pin, Pins};
use crate::planted::{self, Bug};
use atoll_buffer::Buffer;
use std::ops::Range;
use std::sync::Arc;
use together::{loaded, together};

pub use front::Front;
pub(crate) use growing::Added;
pub(crate) use piece::{PIECE_BYTES, Piece};

/// Values below this many bytes lie in leaf pages.
pub(crate) const INLINE_BELOW: usize = 256;

/// Pieces of at least this many bytes get an extent of their own; shorter ones live in the log.
pub(crate) const EXTENT_FROM: usize = 64 << 10;

/// Approximate least length of the pieces of a long value that is put at once: reading a range of the value
/// touches few of them.
pub(crate) const PART_LEN: usize = 256 << 10;

/// Pieces of at least this many bytes are not joined with those before them.
const ALONE_FROM: usize = PART_LEN / 2;

/// Longest value, in bytes.
pub const VALUE_MAX: u64 = 64 << 20;

/// A piece of this length or more is not copied again to join it with appended bytes.
const JOIN_BELOW: u32 = 1 << 20;

/// About what bytes in memory take beyond their length: alignment, an owner count, and the allocator's
/// overhead.
const BUFFER_BYTES: u64 = 96;

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

    /// The bytes, if they lie in one piece in memory that can be shared.
    fn ready_bytes(&self) -> Option<Buffer> {
        let Self::One(piece) = self else { return None };
        piece.prefetch();
        piece.prefetch_bytes();
        piece.ready_bytes()
    }

    /// Prefetches its piece, if there is only one.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Self::One(piece) = self {
            piece.prefetch();
        }
    }

    /// Prefetches its bytes, if they are one piece.
    #[inline]
    pub(crate) fn prefetch_bytes(&self) {
        if let Self::One(piece) = self {
            piece.prefetch_bytes();
        }
    }

    /// Prefetches the owner count of its bytes, if they are one piece.
    #[inline]
    pub(crate) fn prefetch_owners(&self) {
        if let Self::One(piece) = self {
            piece.prefetch_owners();
        }
    }

    /// Prefetches the memory that dropping its piece will touch, if there is only one.
    #[inline]
    pub(crate) fn prefetch_end(&self) {
        if let Self::One(piece) = self {
            piece.prefetch_end();
        }
    }

    /// Prefetches the memory that dropping its bytes will touch, if they are one piece.
    pub(crate) fn prefetch_end_of_bytes(&self) {
        if let Self::One(piece) = self {
            piece.prefetch_end_of_bytes();
        }
    }

    /// The bytes, if they are one shareable piece in memory without another owner.
    pub(crate) fn into_bytes(self) -> Option<Buffer> {
        match self {
            Self::One(piece) => piece.into_bytes(),
            Self::Many(_) => None,
        }
    }

    /// Prefetches both ends of its bytes, if they are one piece.
    #[inline]
    pub(crate) fn prefetch_ends(&self) {
        if let Self::One(piece) = self {
            piece.prefetch_ends();
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.pieces().iter().map(|piece| u64::from(piece.len())).sum()
    }

    /// This chain with `to` in place of the piece that moved there.
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

    /// The bytes, without a copy where they lie in one piece in memory.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`] or [`EngineError::Disk`] when they must be read back.
    // Inlined: a result returned through memory is waited for, and the bytes of most values lie in the leaf.
    #[inline(always)]
    pub fn bytes(&self) -> Result<ValueBytes<'a>, EngineError> {
        match self.stored {
            Stored::Inline(bytes) => Ok(ValueBytes::Inline(bytes)),
            Stored::Chain(chain) => self.bytes_of(chain).map(ValueBytes::Shared),
        }
    }

    #[inline(never)]
    fn bytes_of(&self, chain: &Chain) -> Result<Buffer, EngineError> {
        match chain.ready_bytes() {
            Some(bytes) => Ok(bytes),
            None => self.to_value().to_buffer(),
        }
    }

    /// The value, to be kept beyond the read.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let whole = match self.stored {
            Stored::Inline(bytes) => Some(Buffer::copy_from(bytes)),
            // A growing piece is not copied before all of it is wanted.
            Stored::Chain(chain) => chain.ready_bytes(),
        };
        Value(match (whole, self.stored) {
            (Some(bytes), _) => ValueSource::Whole(bytes),
            (None, Stored::Inline(bytes)) => ValueSource::Whole(Buffer::copy_from(bytes)),
            (None, Stored::Chain(chain)) => ValueSource::Chain {
                chain: chain.clone(),
                backing: Arc::clone(self.backing),
                // The pin keeps the bytes on disk in place for as long as this value may read them back.
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

/// A value that was read: cheap to clone, and read back from disk only when it is used.
#[derive(Clone)]
pub struct Value(ValueSource);

#[derive(Clone)]
enum ValueSource {
    Whole(Buffer),
    Chain { chain: Chain, backing: Arc<Backing>, _pin: Option<Pin> },
}

impl Value {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            ValueSource::Whole(bytes) => bytes.len() as u64,
            ValueSource::Chain { chain, .. } => chain.len(),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all bytes are in memory, so that reading them does not wait.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        self.is_resident_within(0, self.len())
    }

    /// Whether the bytes that [`Value::read`] would return are in memory, whether or not others are.
    #[must_use]
    pub fn is_resident_within(&self, offset: u64, len: u64) -> bool {
        match &self.0 {
            ValueSource::Whole(_) => true,
            ValueSource::Chain { chain, .. } => {
                touched(chain, self.clamped(offset, len)).all(|(_, piece)| piece.is_resident())
            }
        }
    }

    /// All bytes in one buffer, without a copy where they lie in one piece.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`] or [`EngineError::Disk`] when they must be read back.
    pub fn to_buffer(&self) -> Result<Buffer, EngineError> {
        self.read(0, self.len())
    }

    /// The bytes from `offset` on, at most `len`, clamped to the value.
    ///
    /// # Errors
    /// As [`Value::to_buffer`].
    pub fn read(&self, offset: u64, len: u64) -> Result<Buffer, EngineError> {
        if let ValueSource::Whole(bytes) = &self.0 {
            let end = offset.saturating_add(len).min(bytes.len() as u64) as usize;
            return Ok(bytes.slice(offset.min(end as u64) as usize..end));
        }
        let ValueSource::Chain { chain, backing, .. } = &self.0 else { return Ok(Buffer::new()) };
        let range = self.clamped(offset, len);
        if let Some(few) = chain.few_of_growing(range.clone()) {
            return Ok(few);
        }
        let mut touched = touched(chain, range.clone()).peekable();
        let first = touched.peek().map_or(range.start, |(from, _)| *from);
        let pieces: Vec<_> = touched.map(|(_, piece)| piece).collect();
        let parts = loaded(&pieces, backing)?;
        Ok(together(&pieces, &parts, (range.start - first) as usize..(range.end - first) as usize))
    }

    /// The bytes from `offset` on, at most `len`, that the value has.
    fn clamped(&self, offset: u64, len: u64) -> Range<u64> {
        offset.min(self.len())..offset.saturating_add(len).min(self.len())
    }

    /// The pieces, each read back only when it is reached.
    pub fn chunks(&self) -> impl Iterator<Item = Result<Buffer, EngineError>> + '_ {
        self.pieces().map(|piece| piece.bytes())
    }

    fn pieces(&self) -> impl Iterator<Item = PieceSource<'_>> + '_ {
        let (whole, chain) = match &self.0 {
            ValueSource::Whole(bytes) => (Some(PieceSource::Whole(bytes)), None),
            ValueSource::Chain { chain, backing, .. } => (None, Some((chain, backing))),
        };
        let pieces = chain.into_iter().flat_map(|(chain, backing)| {
            chain.pieces().iter().map(move |piece| PieceSource::Piece(piece, backing))
        });
        whole.into_iter().chain(pieces)
    }
}

/// The pieces that have bytes of a range, each with the offset where it begins.
fn touched(chain: &Chain, range: Range<u64>) -> impl Iterator<Item = (u64, &Piece)> {
    let mut at = 0;
    chain.pieces().iter().filter_map(move |piece| {
        let from = at;
        at += u64::from(piece.len());
        (at > range.start && from < range.end).then_some((from, piece))
    })
}

enum PieceSource<'a> {
    Whole(&'a Buffer),
    Piece(&'a Piece, &'a Backing),
}

impl PieceSource<'_> {
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

//! The longer values of a commit. Each gets a piece; one that is too large for the log is written to an
//! extent of its own before the log names it.

use crate::EngineError;
use crate::batch::{Action, Given, Op};
use crate::forest::NewValue;
use crate::full_disk::is_full;
use crate::shared::Shared;
use crate::space::Extent;
use crate::value::{EXTENT_FROM, INLINE_BELOW, Piece};

/// A value too long for a leaf record. A large one was written to an extent of its own.
pub(crate) struct PlacedValue {
    pub(super) piece: Piece,
    pub(super) extent: Option<Extent>,
}

impl PlacedValue {
    /// The value, for the tree.
    pub(crate) fn to_value(&self) -> NewValue<'static> {
        NewValue::piece(self.piece.clone())
    }
}

impl Shared {
    /// Gives every longer value a piece, and writes those that are too large for the log to extents of their
    /// own.
    pub(super) fn place_large_values(
        &self,
        ops: &[Op<'_>],
        placed: &mut Vec<Option<PlacedValue>>,
    ) -> Result<(), EngineError> {
        let epoch = self.forest.read().epoch;
        for op in &ops[placed.len()..] {
            placed.push(match op.action {
                Action::Put(_, given) | Action::Append(_, given) if given.bytes().len() >= INLINE_BELOW => {
                    Some(self.place(given, epoch, false)?)
                }
                _ => None,
            });
        }
        Ok(())
    }

    /// Makes a piece for one value. `ahead` means that the writer lock is not held and the commit is yet to
    /// come.
    pub(crate) fn place(
        &self,
        given: Given<'_>,
        epoch: u64,
        ahead: bool,
    ) -> Result<PlacedValue, EngineError> {
        self.place_summed(given, self.backing.checksum(given.bytes()), epoch, ahead)
    }

    /// As [`Shared::place`], for a value whose checksum is known.
    pub(crate) fn place_summed(
        &self,
        given: Given<'_>,
        checksum: u64,
        epoch: u64,
        ahead: bool,
    ) -> Result<PlacedValue, EngineError> {
        let bytes = given.to_buffer();
        let len = bytes.len() as u64;
        let Some(disk) = self.backing.disk() else {
            return Ok(PlacedValue { piece: Piece::resident(bytes, checksum, epoch), extent: None });
        };
        if bytes.len() < EXTENT_FROM {
            return Ok(PlacedValue { piece: Piece::in_log(bytes, checksum, epoch), extent: None });
        }
        self.use_kept(self.options.keep);
        let extent = if ahead {
            self.space.lock().allocate_in_flight(len)
        } else {
            self.space.lock().allocate_for_writer(len)
        };
        let write_to = |extent: Extent| {
            disk.reserve(extent.offset, extent.len).and_then(|()| disk.write_at(extent.offset, &bytes))
        };
        let extent = match write_to(extent) {
            Ok(()) => extent,
            Err(error) if is_full(&error) => self.find_room_instead(extent, error, write_to)?,
            Err(error) => {
                self.space.lock().cancel(extent);
                return Err(error.into());
            }
        };
        // Not kept in memory: the system's page cache has it, and a heavy writer would fill the budget with
        // values that may never be read.
        let piece = Piece::on_disk(extent.offset, bytes.len() as u32, checksum, epoch);
        Ok(PlacedValue { piece, extent: Some(extent) })
    }

    pub(crate) fn unplace(&self, placed: &[Option<PlacedValue>]) {
        let mut space = self.space.lock();
        for extent in placed.iter().flatten().filter_map(|placed| placed.extent) {
            space.cancel(extent);
        }
    }
}

//! Packing: moves the same rows to other objects.
//!
//! A pack reads one version and is committed in a later one. Two things may have happened in between. Input
//! pieces may have been superseded, deleted whole, or packed by another packer: then the pack is refused.
//! Tombstones may have been added: the new pieces record up to which version they have applied tombstones, so
//! later ones continue to hold for them.

use super::{EditError, Manifest, Piece, PieceKey, Placed, Removal, Version};
use crate::planted::{self, Bug};
use std::collections::BTreeSet;

impl Manifest {
    pub(super) fn pack(
        &mut self,
        base: Version,
        remove: &[Removal],
        add: &[Piece],
        dropped: u64,
    ) -> Result<Vec<Placed>, EditError> {
        if base >= self.version {
            return Err(EditError::Ahead { asked: base, current: self.version });
        }
        check_sum(remove.iter().map(|removal| removal.rows), add, dropped)?;
        self.check_new(add)?;
        let mut gone = Vec::with_capacity(remove.len());
        for removal in remove {
            match self.take_out(base, removal) {
                Err(EditError::InputGone { .. }) if planted::is(Bug::PackRevivesRows) => {}
                taken => gone.push(taken?),
            }
        }
        let clean_to = if planted::is(Bug::PackOverlooksDelete) { self.version } else { base };
        for piece in add {
            let placed = Placed { piece: piece.clone(), born: self.version, clean_to };
            self.pieces.insert(piece.key(), placed);
        }
        Ok(gone)
    }

    /// Takes a range of weights out of the piece that holds it; the rest of the piece stays. Returns the
    /// original piece.
    fn take_out(&mut self, base: Version, removal: &Removal) -> Result<Placed, EditError> {
        let gone = EditError::InputGone { object: removal.object };
        let placed = self.holder(removal).filter(|placed| placed.clean_to <= base).cloned();
        let Some(placed) = placed else { return Err(gone) };
        self.pieces.remove(&placed.piece.key());
        let mut rest = placed.piece.weights.without(&removal.weights);
        let (left, more) = (rest.next(), rest.next());
        let object = removal.object;
        if more.is_some() {
            return Err(EditError::MiddleTaken { object });
        }
        let rows = placed.piece.rows.checked_sub(removal.rows).filter(|rows| left.is_some() || *rows == 0);
        let Some(rows) = rows else {
            return Err(EditError::Miscounted { object, there: placed.piece.rows, asked: removal.rows });
        };
        if let Some(weights) = left {
            let of_rows =
                u128::from(placed.piece.bytes) * u128::from(rows) / u128::from(placed.piece.rows.max(1));
            let bytes = u64::try_from(of_rows).unwrap_or(u64::MAX);
            // The ends of the box may be values of the rows that were taken.
            let piece = Piece { weights, rows, bytes, tight: None, ..placed.piece.clone() };
            self.pieces.insert(piece.key(), Placed { piece, ..placed.clone() });
        }
        Ok(placed)
    }

    /// The piece that holds all of these weights, if there is one.
    fn holder(&self, removal: &Removal) -> Option<&Placed> {
        let key = |weight_from| PieceKey { object: removal.object, part: removal.part, weight_from };
        let (found, placed) = self.pieces.last_up_to(&key(removal.weights.from))?;
        let is_same = found.object == removal.object && found.part == removal.part;
        (is_same && placed.piece.weights.covers(&removal.weights)).then_some(placed)
    }

    /// Checks that new pieces are in objects that were never named before, and do not overlap.
    pub(super) fn check_new(&self, add: &[Piece]) -> Result<(), EditError> {
        let objects: BTreeSet<_> = add.iter().map(|piece| piece.object).collect();
        for object in objects {
            self.check_unused(object)?;
        }
        for (place, piece) in add.iter().enumerate() {
            let same_part = |other: &&Piece| other.object == piece.object && other.part == piece.part;
            let mut others = add.iter().take(place).filter(same_part);
            if others.any(|other| other.weights.meets(&piece.weights)) {
                return Err(EditError::ObjectReused { object: piece.object });
            }
        }
        Ok(())
    }
}

/// Checks that every row taken, from pieces or from a writer, is in a new piece or was struck.
pub(super) fn check_sum(
    taken: impl Iterator<Item = u64>,
    add: &[Piece],
    dropped: u64,
) -> Result<(), EditError> {
    let removed = taken.fold(0, u64::saturating_add);
    let added = add.iter().map(|piece| piece.rows).fold(0, u64::saturating_add);
    if added.checked_add(dropped) == Some(removed) {
        Ok(())
    } else {
        Err(EditError::RowsDoNotAddUp { removed, added, dropped })
    }
}

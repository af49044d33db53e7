//! Sources of rows: parts of objects, each with bands in weight order, as a version names them.
//!
//! Invariant: of a part only the weights that the version names are read, and no row that it has struck.

use super::super::codec::damaged;
use super::asked::Asked;
use super::fetch::Range;
use super::{Table, TableError, Work};
use crate::block::{BlockError, BlockReader, HEAD_BYTES};
use crate::expression::{Bound, Expression};
use crate::protocol::{Manifest, ObjectId, Struck, WeightRange};
use crate::{Cut, Weight, Window};
use atoll_store::Buffer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much of a block is read at first: the directory of a block of a million rows with ten columns fits.
const FRONT_BYTES: u64 = 8 << 10;

/// What a version says of a part that a query may have to read.
pub(super) struct Piece {
    object: ObjectId,
    /// The weights that the version names.
    named: Window,
    /// Rows for which one of these is true are struck.
    struck: Vec<Arc<Bound>>,
    /// Rows that the version names, struck ones included.
    pub(super) rows: u64,
}

impl Piece {
    /// Whether all rows that the version names answer the query, so that it need not be opened to count them.
    pub(super) fn answers_whole(&self, asked: &Asked) -> bool {
        let takes_all = asked.window.intersection(self.named) == self.named;
        asked.filter.is_none() && self.struck.is_empty() && takes_all
    }

    /// Whether none of its rows has a weight that the query asks for.
    pub(super) fn is_beside(&self, asked: &Asked) -> bool {
        asked.window.intersection(self.named).is_empty()
    }
}

/// A part that was opened: its directory is known.
pub(super) struct Source {
    pub(super) object: ObjectId,
    pub(super) window: Window,
    pub(super) struck: Vec<Arc<Bound>>,
    pub(super) reader: BlockReader,
    /// The bytes that were read to open it; small parts lie in them whole.
    pub(super) front: Buffer,
}

impl Source {
    /// The bytes of a range, if they were read with the front.
    pub(super) fn here(&self, range: Range) -> Option<Buffer> {
        let is_here = range.to <= self.front.len() as u64;
        is_here.then(|| self.front.slice(range.from as usize..range.to as usize))
    }
}

/// What a version names, with what it strikes; the columns that this takes are read too.
pub(super) fn pieces(
    table: &Table,
    asked: &mut Asked,
    manifest: &Manifest,
) -> Result<Vec<Piece>, TableError> {
    let mut conditions = BTreeMap::new();
    let mut pieces = Vec::with_capacity(manifest.pieces.len());
    for placed in manifest.pieces.values() {
        let mut struck = Vec::new();
        for Struck { run, steps, expression } in manifest.struck_of(placed) {
            let text = expression.as_ref().filter(|_| run.is_none() && steps.is_none());
            let what = "a cube of which some runs or steps were deleted";
            let text = text.ok_or(TableError::Unsupported { what })?;
            if !conditions.contains_key(text) {
                let condition = struck_by(table, text)?;
                asked.also_read_for(&condition, &table.schema);
                conditions.insert(Arc::clone(text), Arc::new(condition));
            }
            struck.extend(conditions.get(text).map(Arc::clone));
        }
        let (object, rows, named) = (placed.piece.object, placed.piece.rows, window_of(placed.piece.weights));
        pieces.push(Piece { object, named, struck, rows });
    }
    Ok(pieces)
}

fn struck_by(table: &Table, text: &str) -> Result<Bound, TableError> {
    let unreadable = |error| damaged(&table.name, &format!("what was deleted cannot be told: {error}"));
    Expression::parse(text).and_then(|expression| expression.bind(table.schema.columns())).map_err(unreadable)
}

fn window_of(weights: WeightRange) -> Window {
    let below = |number: u64| Weight::new(number).map_or(Cut::NOTHING, Cut::below);
    let until = Window::below(weights.to.map_or(Cut::ALL, below));
    Window::above(below(weights.from)).intersection(until)
}

/// Opens parts: reads what is at the front of each, all at once; a long directory once more.
pub(super) async fn open(
    table: &Table,
    asked: &Asked,
    pieces: Vec<Piece>,
    work: &mut Work,
) -> Result<Vec<Source>, TableError> {
    let front = |object, bytes| Range { object, from: 0, to: bytes };
    let first: Vec<Range> = pieces.iter().map(|piece| front(piece.object, FRONT_BYTES)).collect();
    let mut fronts = table.fetch_all(&first, work).await?;
    let (mut places, mut longer) = (Vec::new(), Vec::new());
    for (place, (piece, bytes)) in pieces.iter().zip(&fronts).enumerate() {
        let head = &bytes[..HEAD_BYTES.min(bytes.len())];
        let needed = BlockReader::front_bytes(head).map_err(|source| in_object(piece.object, source))?;
        if needed > FRONT_BYTES {
            places.push(place);
            longer.push(front(piece.object, needed));
        }
    }
    for (place, bytes) in places.into_iter().zip(table.fetch_all(&longer, work).await?) {
        fronts[place] = bytes;
    }
    let opened = pieces.into_iter().zip(fronts).map(|(piece, front)| {
        let Piece { object, named, struck, .. } = piece;
        let window = asked.window.intersection(named);
        let reader = BlockReader::open(Arc::clone(&table.schema), &front);
        let reader = reader.map_err(|source| in_object(object, source))?;
        Ok(Source { object, window, struck, reader, front })
    });
    opened.collect()
}

pub(super) fn in_object(object: ObjectId, source: BlockError) -> TableError {
    TableError::Block { object: format!("object {object}"), source }
}

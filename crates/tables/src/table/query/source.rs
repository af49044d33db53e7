//! Sources of rows: parts of objects, each with bands in weight order, as a version names them.
//!
//! Invariant: of a part only the weights that the version names are read, and no row that it has struck.

use super::super::parts::OpenPart;
use super::super::strike::{Strike, bound};
use super::asked::Asked;
use super::fetch::Range;
use super::{Table, TableError, Work};
use crate::block::{BlockError, HEAD_BYTES};
use crate::expression::Bound;
use crate::part::Part;
use crate::planted::{self, Bug};
use crate::protocol::{Manifest, ObjectId, WeightRange};
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
    /// Rows that one of these strikes are not there.
    struck: Vec<Strike>,
    /// Rows that the version names, struck ones included.
    pub(super) rows: u64,
}

impl Piece {
    /// Whether all rows that the version names answer the query, so that it need not be opened to count them.
    pub(super) fn answers_whole(&self, asked: &Asked) -> bool {
        let takes_all = asked.window.intersection(self.named) == self.named;
        asked.filter.is_none()
            && (self.struck.is_empty() || planted::is(Bug::CountForgetsStruck))
            && takes_all
    }

    /// Whether none of its rows has a weight that the query asks for.
    pub(super) fn is_beside(&self, asked: &Asked) -> bool {
        !asked.may_weigh(self.named)
    }
}

/// A part that was opened: its directory is known.
pub(super) struct Source {
    pub(super) object: ObjectId,
    pub(super) window: Window,
    pub(super) struck: Vec<Strike>,
    pub(super) part: Arc<Part>,
    /// The bytes that were read to open it; small parts lie in them whole.
    pub(super) front: Buffer,
}

impl Source {
    /// Whether it has to be told where its rows were written.
    pub(super) fn with_origins(&self) -> bool {
        self.struck.iter().any(Strike::needs_origins)
    }

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
    let mut conditions: BTreeMap<Arc<str>, Arc<Bound>> = BTreeMap::new();
    let mut pieces = Vec::with_capacity(manifest.pieces.len());
    for placed in manifest.pieces.values() {
        let mut struck = Vec::new();
        for said in manifest.struck_of(placed) {
            let strike = Strike::of(said, |text| {
                if let Some(known) = conditions.get(text) {
                    return Ok(Arc::clone(known));
                }
                let condition = bound(table, text)?;
                conditions.insert(Arc::clone(text), Arc::clone(&condition));
                Ok(condition)
            })?;
            struck.push(strike);
        }
        let (object, rows, named) = (placed.piece.object, placed.piece.rows, window_of(placed.piece.weights));
        pieces.push(Piece { object, named, struck, rows });
    }
    for condition in conditions.values() {
        asked.also_read_for(condition, &table.schema);
    }
    Ok(pieces)
}

fn window_of(weights: WeightRange) -> Window {
    let below = |number: u64| Weight::new(number).map_or(Cut::NOTHING, Cut::below);
    let to = weights.to.map(|to| to - u64::from(planted::is(Bug::LastWeightLeftOut)));
    let until = Window::below(to.map_or(Cut::ALL, below));
    Window::above(below(weights.from)).intersection(until)
}

/// Opens parts: those that are not known yet by what is at the front of each.
pub(super) async fn open(
    table: &Table,
    asked: &Asked,
    pieces: Vec<Piece>,
    work: &mut Work,
) -> Result<Vec<Source>, TableError> {
    let mut opened: Vec<Option<OpenPart>> =
        pieces.iter().map(|piece| table.parts.get(piece.object)).collect();
    let new: Vec<usize> = (0..pieces.len()).filter(|&place| opened[place].is_none()).collect();
    let objects: Vec<ObjectId> = new.iter().map(|&place| pieces[place].object).collect();
    for (place, front) in new.into_iter().zip(fronts(table, &objects, work).await?) {
        let object = pieces[place].object;
        let part =
            Part::open(Arc::clone(&table.schema), &front).map_err(|source| in_object(object, source))?;
        let part = OpenPart { part: Arc::new(part), front };
        table.parts.put(object, part.clone());
        opened[place] = Some(part);
    }
    let sources =
        pieces.into_iter().zip(opened.into_iter().flatten()).map(|(piece, OpenPart { part, front })| {
            let Piece { object, named, struck, .. } = piece;
            let window = asked.window.intersection(named);
            Source { object, window, struck, part, front }
        });
    Ok(sources.collect())
}

/// What is at the front of objects, all at once; a long directory once more.
async fn fronts(table: &Table, objects: &[ObjectId], work: &mut Work) -> Result<Vec<Buffer>, TableError> {
    let front = |object, bytes| Range { object, from: 0, to: bytes };
    let first: Vec<Range> = objects.iter().map(|&object| front(object, FRONT_BYTES)).collect();
    let mut fronts = table.fetch_all(&first, work).await?;
    let (mut places, mut longer) = (Vec::new(), Vec::new());
    for (place, (&object, bytes)) in objects.iter().zip(&fronts).enumerate() {
        let head = &bytes[..HEAD_BYTES.min(bytes.len())];
        let needed = Part::front_bytes(head).map_err(|source| in_object(object, source))?;
        if needed > FRONT_BYTES {
            places.push(place);
            longer.push(front(object, needed));
        }
    }
    for (place, bytes) in places.into_iter().zip(table.fetch_all(&longer, work).await?) {
        fronts[place] = bytes;
    }
    Ok(fronts)
}

pub(super) fn in_object(object: ObjectId, source: BlockError) -> TableError {
    TableError::Block { object: format!("object {object}"), source }
}

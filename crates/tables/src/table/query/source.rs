//! Sources of rows: parts of objects named by a version, each with bands in weight order.
//!
//! Invariant: only the weights that the version names are read of a part, and no row that it has struck.

use super::super::codec::extents_of;
use super::super::part_cache::OpenPart;
use super::super::strike::{Strike, bound};
use super::bound_query::BoundQuery;
use super::fetch::Range;
use super::filters::{filters_bytes, take_filters};
use super::{Table, TableError, Work};
use crate::block::{BlockError, HEAD_BYTES};
use crate::expression::{Bound, Verdict};
use crate::lattice::Extent;
use crate::part::Part;
use crate::planted::{self, Bug};
use crate::protocol::{self, Form, Manifest, ObjectId, TightBox, WeightRange};
use crate::threads::{map, threads};
use crate::{Cut, Weight, Window};
use atoll_store::Buffer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Minimum number of bytes to read first of a block; small blocks are read whole.
const FRONT_BYTES: u64 = 8 << 10;

/// The same for an object of cubes whose directory length was not recorded: about a fortieth of the object.
const CUBES_FRONT_BYTES: u64 = 32 << 10;

/// What a version says about a part that a query may have to read.
pub(super) struct CandidatePiece {
    pub(super) object: ObjectId,
    /// Its index among the pieces that the version names.
    pub(super) place: usize,
    /// Lower bound of the weights of its wanted rows.
    pub(super) lightest: Weight,
    /// The weights that the version names.
    named: Window,
    /// Rows that one of these strikes are left out.
    struck: Vec<Strike>,
    /// Number of rows that the version names, including struck ones.
    pub(super) rows: u64,
    /// Approximate number of bytes of these rows.
    bytes: u64,
    /// Number of bytes to read first.
    pub(super) front_bytes: u64,
    /// A box around all of its rows, in its stored form.
    tight: Option<TightBox>,
    /// The verdict of the filter on all of its rows, given their box.
    verdict: Verdict,
}

impl CandidatePiece {
    /// Whether all rows that the version names match, so that it need not be opened to count them.
    pub(super) fn answers_whole(&self, asked: &BoundQuery) -> bool {
        let takes_all = asked.window.intersection(self.named) == self.named;
        let is_untouched = self.struck.is_empty() || planted::is(Bug::CountForgetsStruck);
        self.verdict == Verdict::Always && is_untouched && takes_all
    }

    /// The least and the greatest weight that its rows can have, if the version names an end: it does for
    /// what a packer made, and not for what a writer appended.
    pub(super) fn named_weights(&self) -> Option<(Weight, Weight)> {
        let is_named = self.named.until() != Cut::ALL;
        is_named.then(|| self.named.clipped(Weight::LEAST, Weight::GREATEST)).flatten()
    }

    /// The extent of its rows in an index column, given by its place among these; `None` if unknown.
    pub(super) fn extent(&self, axis: usize) -> Option<Extent> {
        extents_of(self.tight.as_ref()?)?.get(axis).copied()
    }

    /// Approximate bytes of its object, or the bytes to read at its front if these are more.
    pub(super) fn bytes_to_open(&self) -> u64 {
        self.bytes.max(self.rows).max(self.front_bytes)
    }

    /// Approximate number of its rows with requested weights, and of their bytes.
    pub(super) fn about(&self, asked: &BoundQuery) -> (u64, u64) {
        let width = |window: Window| (window.until().share() - window.after().share()).max(0.0);
        let share = width(asked.window.intersection(self.named)) / width(self.named);
        // An empty window is counted as a whole.
        let share = if share.is_finite() { share.min(1.0) } else { 1.0 };
        let of = |count: u64| (count as f64 * share).ceil() as u64;
        (of(self.rows), of(self.bytes.max(self.rows)))
    }
}

/// An opened part, with its directory.
pub(super) struct Source {
    pub(super) object: ObjectId,
    /// Its index among the pieces that the version names.
    pub(super) place: usize,
    pub(super) window: Window,
    pub(super) struck: Vec<Strike>,
    pub(super) part: Arc<Part>,
    /// The bytes that were read to open it, or none; a small part is contained in them.
    pub(super) front: Buffer,
}

impl Source {
    /// Whether the origins of its rows are needed.
    pub(super) fn with_origins(&self) -> bool {
        self.struck.iter().any(Strike::needs_origins)
    }

    /// Keeps the bytes that were read to open it, if `held` bytes of others leave room for them; otherwise
    /// those of its rows are read again. Returns the number of bytes that are held then.
    pub(super) fn keep_front(&mut self, held: u64, bytes_max: u64) -> u64 {
        let bytes = held.saturating_add(self.front.len() as u64);
        if bytes <= bytes_max {
            return bytes;
        }
        self.front = Buffer::new();
        held
    }

    /// The bytes of a range, if they were read with the front.
    pub(super) fn here(&self, range: Range) -> Option<Buffer> {
        let is_here = range.to <= self.front.len() as u64;
        is_here.then(|| self.front.slice(range.from as usize..range.to as usize))
    }
}

/// The pieces of a version that may match, with their strikes. The columns that the strikes need are added to
/// those that are read.
pub(super) fn pieces(
    table: &Table,
    asked: &mut BoundQuery,
    manifest: &Manifest,
) -> Result<Vec<CandidatePiece>, TableError> {
    let mut conditions: BTreeMap<Arc<str>, Arc<Bound>> = BTreeMap::new();
    let mut pieces = Vec::new();
    if let Some(runs) = &asked.runs {
        runs.check(table, manifest)?;
    }
    if let Some(objects) = &asked.objects {
        objects.check(manifest)?;
    }
    for (place, placed) in manifest.pieces.values().enumerate() {
        if asked.objects.as_ref().is_some_and(|objects| !objects.has(placed.piece.object)) {
            continue;
        }
        let (named, verdict) = (window_of(placed.piece.weights), verdict_on(&placed.piece, asked));
        let wanted = asked.window.intersection(named).clipped(Weight::LEAST, Weight::GREATEST);
        let Some((lightest, _)) = wanted.filter(|_| verdict != Verdict::Never && asked.may_weigh(named))
        else {
            continue;
        };
        let others = asked.runs.as_ref().map(|runs| runs.within(&placed.piece.extent));
        let Some(others) = others.unwrap_or(Some(None)) else { continue };
        let mut struck: Vec<Strike> = others.into_iter().collect();
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
        let protocol::Piece { object, rows, bytes, .. } = placed.piece;
        let filters_bytes = filters_bytes(table, asked, &placed.piece);
        let front_bytes = front_bytes(&placed.piece).saturating_add(filters_bytes);
        pieces.push(CandidatePiece {
            object,
            place,
            lightest,
            named,
            struck,
            rows,
            bytes,
            front_bytes,
            tight: placed.piece.tight.clone(),
            verdict,
        });
    }
    for condition in conditions.values() {
        asked.also_read_for(condition, &table.schema);
    }
    Ok(pieces)
}

/// The verdict of the filter on all rows of a piece, as far as that can be told without opening it.
pub(super) fn verdict_on(piece: &protocol::Piece, asked: &BoundQuery) -> Verdict {
    if asked.bounds.is_empty() {
        return Verdict::Never;
    }
    let extents = piece.tight.as_ref().and_then(extents_of);
    asked.bounds.verdict(&extents.unwrap_or_default())
}

/// Number of bytes to read first of an object.
pub(super) fn front_bytes(piece: &protocol::Piece) -> u64 {
    match (piece.form, piece.front_bytes) {
        (Form::Block, noted) => noted.max(FRONT_BYTES),
        (Form::Cube, 0) => CUBES_FRONT_BYTES,
        (Form::Cube, noted) => noted,
    }
}

pub(super) fn window_of(weights: WeightRange) -> Window {
    let below = |number: u64| Weight::new(number).map_or(Cut::NOTHING, Cut::below);
    let to = weights.to.map(|to| to - u64::from(planted::is(Bug::LastWeightLeftOut)));
    let until = Window::below(to.map_or(Cut::ALL, below));
    Window::above(below(weights.from)).intersection(until)
}

/// Opens parts; reads the front of those that are not in the cache.
pub(super) async fn open(
    table: &Table,
    asked: &BoundQuery,
    pieces: &[CandidatePiece],
    work: &mut Work,
) -> Result<Vec<Source>, TableError> {
    let mut opened: Vec<Option<OpenPart>> =
        pieces.iter().map(|piece| table.parts.get(piece.object)).collect();
    let new: Vec<usize> = (0..pieces.len()).filter(|&place| opened[place].is_none()).collect();
    let objects: Vec<(ObjectId, u64)> =
        new.iter().map(|&place| (pieces[place].object, pieces[place].front_bytes)).collect();
    let fronts = fronts(table, &objects, work).await?;
    // Decoding the directories of a large table takes longer than reading them.
    let rows = new.iter().map(|&place| pieces[place].rows).fold(0, u64::saturating_add);
    let parts = map(&fronts, threads(rows as usize), |front| table.open_part(front));
    for ((place, front), part) in new.into_iter().zip(fronts).zip(parts) {
        let object = pieces[place].object;
        let part = part.map_err(|source| in_object(object, source))?;
        let front = if asked.known.is_some() { take_filters(&part, object, front)? } else { front };
        let part = OpenPart { part: Arc::new(part), front };
        table.parts.put(object, part.clone());
        opened[place] = Some(part);
    }
    let sources = pieces.iter().zip(opened.into_iter().flatten()).map(|(piece, OpenPart { part, front })| {
        let (object, place, struck) = (piece.object, piece.place, piece.struck.clone());
        let window = asked.window.intersection(piece.named);
        Source { object, place, window, struck, part, front }
    });
    Ok(sources.collect())
}

/// Reads the fronts of objects, all at once; reads a front again if the directory is longer than expected.
pub(super) async fn fronts(
    table: &Table,
    objects: &[(ObjectId, u64)],
    work: &mut Work,
) -> Result<Vec<Buffer>, TableError> {
    let front = |object, bytes| Range { object, from: 0, to: bytes };
    let first: Vec<Range> = objects.iter().map(|&(object, bytes)| front(object, bytes)).collect();
    let mut fronts = table.fetch_all(&first, work).await?;
    let (mut places, mut longer) = (Vec::new(), Vec::new());
    for (place, (&(object, first), bytes)) in objects.iter().zip(&fronts).enumerate() {
        let head = &bytes[..HEAD_BYTES.min(bytes.len())];
        let needed = Part::front_bytes(head).map_err(|source| in_object(object, source))?;
        if needed > first {
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

//! Filters of cubes, read if the weights of matching rows are known: they tell which bands hold the entities.
//!
//! Invariant: reading filters or not changes what else is read, but no answer.

use super::bound_query::BoundQuery;
use super::fetch::Range;
use super::source::{Source, in_object};
use super::{Table, TableError, Work};
use crate::part::Part;
use crate::protocol::{Form, ObjectId, Piece};
use atoll_store::Buffer;

/// If no more bands than this can match, reading them costs less than reading the filters.
const BANDS_MIN: usize = 3;

/// Reads the filters of all sources that have some, unless they are loaded already or not worth it.
pub(super) async fn read_filters(
    table: &Table,
    asked: &BoundQuery,
    sources: &[Source],
    work: &mut Work,
) -> Result<(), TableError> {
    if asked.known.is_none() {
        return Ok(());
    }
    let (mut owners, mut ranges) = (Vec::new(), Vec::new());
    for source in sources.iter().filter(|source| !source.part.has_filters()) {
        let Some(at) = source.part.filters_at().filter(|_| is_worth_it(asked, source)) else { continue };
        let range = Range { object: source.object, from: at.start, to: at.end };
        match source.here(range) {
            Some(bytes) => keep(source, &bytes)?,
            None => {
                owners.push(source);
                ranges.push(range);
            }
        }
    }
    for (source, bytes) in owners.into_iter().zip(table.fetch_all(&ranges, work).await?) {
        keep(source, &bytes)?;
    }
    Ok(())
}

/// Number of additional bytes to read at the front of an object because its filters will be needed: about
/// their length.
pub(super) fn filters_bytes(table: &Table, asked: &BoundQuery, piece: &Piece) -> u64 {
    let has_filters = piece.form == Form::Cube && table.schema.samples_entities();
    // Thirteen bits per row, if each is of a different entity, plus the padding of each band to whole bytes.
    if asked.known.is_some() && has_filters { piece.rows.saturating_mul(7) / 4 } else { 0 }
}

/// Decodes the filters from the bytes read at the front of an object, if they are all there. Returns the
/// bytes before them, which are kept for longer.
pub(super) fn take_filters(part: &Part, object: ObjectId, front: Buffer) -> Result<Buffer, TableError> {
    let at = part.filters_at().filter(|at| at.end <= front.len() as u64);
    let Some(at) = at.map(|at| at.start as usize..at.end as usize) else { return Ok(front) };
    part.keep_filters(&front[at.clone()]).map_err(|error| in_object(object, error))?;
    Ok(Buffer::from(front[..at.start].to_vec()))
}

fn keep(source: &Source, bytes: &[u8]) -> Result<(), TableError> {
    source.part.keep_filters(bytes).map_err(|error| in_object(source.object, error))
}

/// Whether many bands may have rows with known weights.
fn is_worth_it(asked: &BoundQuery, source: &Source) -> bool {
    let judge = |extents: &[_]| asked.bounds.verdict(extents);
    let is_candidate = |band: usize| {
        let facts = source.part.facts(band, source.window);
        let range = source.window.clipped(facts.least, facts.greatest);
        let known = asked.known.as_ref().zip(range);
        known.is_some_and(|(known, (least, greatest))| !known.between(least, greatest).is_empty())
    };
    let mut candidates = 0;
    // Planning judges all bands anyway; this stops at the layer that exceeds the limit.
    source.part.judged_layers(source.window, judge).iter().any(|layer| {
        let count = |band, _| candidates += usize::from(is_candidate(band));
        source.part.judged_bands_of(layer, source.window, judge, count);
        candidates > BANDS_MIN
    })
}

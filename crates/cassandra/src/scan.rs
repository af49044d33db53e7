//! Scans: a page is one read at SERIAL, cut to what the contract allows.
//!
//! Invariant: all entries of a page were read at one moment; the chunks that they refer to were written before.
//! Invariant: a read has a limit of rows, so that no page needs unbounded memory.

use crate::cells::{Pieces, length, raw_rows};
use crate::codec::{KIND_CELL, KIND_HEAD};
use crate::net::{after, half_open};
use crate::read::{MOVES_MAX, chunk_lost};
use crate::store::Shared;
use atoll_store::{
    Buffer, ByteRange, Direction, Limits, Projection, ScanEntry, ScanPage, ScanRequest, SortKey, StoreError,
};
use std::sync::Arc;

/// Rows of one read with values: those of 64 KiB would be 16 MiB.
const ROWS_MAX: usize = 256;

/// Rows of one read of keys.
const KEYS_MAX: usize = 1000;

/// One page.
pub(crate) async fn page(shared: &Arc<Shared>, request: ScanRequest) -> Result<ScanPage, StoreError> {
    let last = request.check(&shared.limits)?;
    if request.range.is_empty() {
        return Ok(ScanPage { entries: Vec::new(), resume: None });
    }
    for _ in 0..MOVES_MAX {
        let read = read_cells(shared, &request, last.as_deref()).await?;
        if let Some(page) = project(shared, &request, read).await? {
            return Ok(page);
        }
    }
    Err(chunk_lost(&shared.link, last.as_deref().unwrap_or_default()))
}

/// Whole cells in the order of the scan, and whether there may be more.
struct Cells {
    cells: Vec<(SortKey, Pieces)>,
    has_more: bool,
}

async fn read_cells(
    shared: &Arc<Shared>,
    request: &ScanRequest,
    last: Option<&[u8]>,
) -> Result<Cells, StoreError> {
    let link = &shared.link;
    let (from, to) = rest(request, last);
    if to.as_ref().is_some_and(|to| *to <= from) {
        return Ok(Cells { cells: Vec::new(), has_more: false });
    }
    let (kind, to) = to.map_or((KIND_HEAD, SortKey::new()), |to| (KIND_CELL, to));
    let with_values = request.projection != Projection::KeysOnly;
    let direction = usize::from(request.direction == Direction::Backward);
    let (statements, most) = match with_values {
        true => (&link.statements.reads.page, ROWS_MAX),
        false => (&link.statements.reads.page_heads, KEYS_MAX),
    };
    let rows = request.limit.saturating_add(1).min(most);
    let partition = shared.key(&request.partition);
    let values = (&partition, from, kind, to, i32::try_from(rows).unwrap_or(i32::MAX));
    let answer = {
        let _permit = link.permit().await;
        link.rows("scan", &statements[direction], &values).await?
    };
    let is_cut = answer.rows_num() >= rows;
    let mut cells: Vec<(SortKey, Pieces)> = Vec::new();
    for row in raw_rows(link, &answer, with_values)? {
        let sort = row.sort.to_vec();
        let Some(piece) = link.piece(row)? else { continue };
        match cells.last_mut() {
            Some((of, pieces)) if *of == sort => pieces.push(piece),
            _ => cells.push((sort, vec![piece])),
        }
    }
    if request.direction == Direction::Backward {
        cells.iter_mut().for_each(|(_, pieces)| pieces.reverse());
    }
    if is_cut {
        whole(shared, &partition, &mut cells).await?;
    }
    Ok(Cells { cells, has_more: is_cut })
}

/// Leaves out the last cell, of which pieces may be missing; if it is the only one, it is read whole.
async fn whole(
    shared: &Arc<Shared>,
    partition: &[u8],
    cells: &mut Vec<(SortKey, Pieces)>,
) -> Result<(), StoreError> {
    let Some((sort, _)) = cells.pop() else { return Ok(()) };
    if cells.is_empty() {
        let pieces = crate::read::read_pieces(shared, partition, &sort).await?;
        cells.push((sort, pieces));
    }
    Ok(())
}

/// What is left of the range behind the last key of the former page.
fn rest(request: &ScanRequest, last: Option<&[u8]>) -> (SortKey, Option<SortKey>) {
    let (from, to) = half_open(&request.range);
    match (request.direction, last) {
        (_, None) => (from, to),
        (Direction::Forward, Some(last)) => (after(last), to),
        (Direction::Backward, Some(last)) => (from, Some(last.to_vec())),
    }
}

/// The page of these cells; none if a chunk is gone because its cell moved on.
async fn project(
    shared: &Arc<Shared>,
    request: &ScanRequest,
    read: Cells,
) -> Result<Option<ScanPage>, StoreError> {
    let mut page = ScanPage { entries: Vec::new(), resume: None };
    let range = match request.projection {
        Projection::KeysOnly => ByteRange::new(0, 0),
        Projection::Values => ByteRange::ALL,
        Projection::Bytes(range) => range,
    };
    let mut page_bytes = 0;
    let mut is_full = false;
    for (sort, pieces) in &read.cells {
        // A cell that was there alone when the page was cut, and is gone since: the page is read again.
        if pieces.is_empty() {
            return Ok(None);
        }
        let (start, end) = range.within(length(pieces));
        page_bytes += sort.len() as u64 + (end - start);
        is_full = page.entries.len() == request.limit || exceeds(page_bytes, &shared.limits);
        if is_full && !page.entries.is_empty() {
            break;
        }
        is_full = false;
        let value = match request.projection {
            Projection::KeysOnly => Buffer::new(),
            _ => match shared.link.joined(sort, pieces, range).await? {
                Some(value) => value,
                None => return Ok(None),
            },
        };
        page.entries.push(ScanEntry { sort: sort.clone(), value, value_bytes: length(pieces) });
    }
    if (is_full || read.has_more)
        && let Some(last) = page.entries.last()
    {
        page.resume = Some(request.token_after(&last.sort));
    }
    Ok(Some(page))
}

fn exceeds(bytes: u64, limits: &Limits) -> bool {
    bytes > limits.page_bytes as u64
}

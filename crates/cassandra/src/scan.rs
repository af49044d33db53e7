//! Scans: each page is one read at SERIAL, cut to what the contract allows.
//!
//! Invariant: all entries of a page were read at one moment; the chunks that they refer to were written
//! before that.
//! Invariant: every read limits its rows, so that no page needs unbounded memory.

use crate::cells::{Pieces, length, raw_rows};
use crate::chunks::{Found, Owner};
use crate::codec::{ChunkId, KIND_CELL, KIND_HEAD};
use crate::net::{after, half_open};
use crate::read::Moves;
use crate::store::Shared;
use atoll_store::{
    Buffer, ByteRange, Direction, Limits, Projection, ScanEntry, ScanPage, ScanRequest, SortKey, StoreError,
};
use std::sync::Arc;

/// The most rows of one read with values: at 64 KiB each they take 16 MiB.
const ROWS_MAX: usize = 256;

/// The most rows of one read of keys.
const KEYS_MAX: usize = 1000;

/// One page.
pub(crate) async fn page(shared: &Arc<Shared>, request: ScanRequest) -> Result<ScanPage, StoreError> {
    let last = request.check(&shared.limits)?;
    if request.range.is_empty() {
        return Ok(ScanPage { entries: Vec::new(), resume: None });
    }
    let partition = shared.key(&request.partition);
    let mut moves = Moves::default();
    let mut has_settled = false;
    loop {
        let read = read_cells(shared, &partition, &request, last.as_deref()).await?;
        let cells = read.cells.iter().map(|(sort, pieces)| (sort.as_slice(), pieces.as_slice()));
        let settling = shared.link.settle(&partition, cells).await?;
        // A creation that only a minority had when the page was read is at a majority since then. The page is
        // read again, so that it is of one moment.
        if !settling.others.is_empty() || (settling.asked > 0 && !has_settled) {
            has_settled = true;
            moves.unsettled(&shared.link, &settling)?;
            continue;
        }
        match project(shared, &partition, &request, read).await? {
            Projected::Page(page) => return Ok(page),
            Projected::Moved => moves.again(&shared.link.place)?,
            Projected::Gone(sort, id) => {
                moves.gone(&shared.link, Owner { partition: &partition, sort: &sort }, id)?;
            }
        }
    }
}

/// Whole cells in scan order, and whether there may be more.
struct Cells {
    cells: Vec<(SortKey, Pieces)>,
    has_more: bool,
}

async fn read_cells(
    shared: &Arc<Shared>,
    partition: &[u8],
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
    let values = (partition, from, kind, to, i32::try_from(rows).unwrap_or(i32::MAX));
    let answer = {
        let _permit = link.permit().await;
        link.rows("scan", &statements[direction], &values).await?
    };
    let is_cut = answer.rows_num() >= rows;
    let mut cells: Vec<(SortKey, Pieces)> = Vec::new();
    let mut last_row = SortKey::new();
    for row in raw_rows(link, &answer, with_values)? {
        let sort = row.sort.to_vec();
        last_row.clone_from(&sort);
        let Some(piece) = link.piece(partition, row)? else { continue };
        match cells.last_mut() {
            Some((of, pieces)) if *of == sort => pieces.push(piece),
            _ => cells.push((sort, vec![piece])),
        }
    }
    if request.direction == Direction::Backward {
        cells.iter_mut().for_each(|(_, pieces)| pieces.reverse());
    }
    if is_cut && cells.is_empty() {
        // An empty page would report the end of the scan where only the read ended.
        return Err(link.damaged(Owner { partition, sort: &last_row }, "rows of it have no head"));
    }
    if is_cut {
        whole(shared, partition, &mut cells).await?;
    }
    Ok(Cells { cells, has_more: is_cut })
}

/// Drops the last cell, which may lack pieces; if it is the only one, it is read whole.
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

/// The part of the range behind the last key of the previous page.
fn rest(request: &ScanRequest, last: Option<&[u8]>) -> (SortKey, Option<SortKey>) {
    let (from, to) = half_open(&request.range);
    match (request.direction, last) {
        (_, None) => (from, to),
        (Direction::Forward, Some(last)) => (after(last), to),
        (Direction::Backward, Some(last)) => (from, Some(last.to_vec())),
    }
}

/// The outcome of projecting the cells of a page.
enum Projected {
    Page(ScanPage),
    /// A cell was deleted meanwhile.
    Moved,
    /// Chunks of a cell are gone.
    Gone(SortKey, ChunkId),
}

/// Builds the page from these cells.
async fn project(
    shared: &Arc<Shared>,
    partition: &[u8],
    request: &ScanRequest,
    read: Cells,
) -> Result<Projected, StoreError> {
    let mut page = ScanPage { entries: Vec::new(), resume: None };
    let range = match request.projection {
        Projection::KeysOnly => ByteRange::new(0, 0),
        Projection::Values => ByteRange::ALL,
        Projection::Bytes(range) => range,
    };
    let mut page_bytes = 0;
    let mut is_full = false;
    for (sort, pieces) in &read.cells {
        // The page was cut down to this one cell, which has been deleted since: the page is read again.
        if pieces.is_empty() {
            return Ok(Projected::Moved);
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
            _ => match shared.link.joined(Owner { partition, sort }, pieces, range).await? {
                Found::Bytes(value) => value,
                Found::Gone(id) => return Ok(Projected::Gone(sort.clone(), id)),
            },
        };
        page.entries.push(ScanEntry { sort: sort.clone(), value, value_bytes: length(pieces) });
    }
    if (is_full || read.has_more)
        && let Some(last) = page.entries.last()
    {
        page.resume = Some(request.token_after(&last.sort));
    }
    Ok(Projected::Page(page))
}

fn exceeds(bytes: u64, limits: &Limits) -> bool {
    bytes > limits.page_bytes as u64
}

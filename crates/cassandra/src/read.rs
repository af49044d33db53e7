//! Reads of single cells: linearizable, or under the vow of `create`.
//!
//! Invariant: a cell that refers to a chunk that is gone is read anew, because it was changed meanwhile; only one
//! that goes on referring to it is damaged.

use crate::cells::Pieces;
use crate::link::Link;
use crate::store::Shared;
use atoll_store::{Buffer, ByteRange, StoreError};
use std::sync::Arc;

/// How often a cell is read anew because a chunk was gone.
pub(crate) const MOVES_MAX: usize = 16;

/// Some bytes of a cell; none if it is absent.
pub(crate) async fn read(
    shared: &Arc<Shared>,
    partition: &[u8],
    sort: &[u8],
    range: ByteRange,
    is_vowed: bool,
) -> Result<Option<Buffer>, StoreError> {
    if is_vowed && let Some(bytes) = read_vowed(shared, partition, sort, range).await? {
        return Ok(bytes);
    }
    for _ in 0..MOVES_MAX {
        let pieces = read_pieces(shared, partition, sort).await?;
        if pieces.is_empty() {
            return Ok(None);
        }
        if let Some(bytes) = shared.link.joined(sort, &pieces, range).await? {
            return Ok(Some(bytes));
        }
    }
    Err(chunk_lost(&shared.link, sort))
}

/// The pieces of a cell, at SERIAL.
pub(crate) async fn read_pieces(
    shared: &Arc<Shared>,
    partition: &[u8],
    sort: &[u8],
) -> Result<Pieces, StoreError> {
    crate::lanes::read(&shared.link, &shared.lanes, partition, sort).await
}

/// The cell as it was read before, as one replica has it, or else a majority; none if that is not enough to tell.
async fn read_vowed(
    shared: &Arc<Shared>,
    partition: &[u8],
    sort: &[u8],
    range: ByteRange,
) -> Result<Option<Option<Buffer>>, StoreError> {
    let link = &shared.link;
    if let Some(created) = link.kept.cell(partition, sort)
        && let Some(bytes) = link.of_created(&created, range).await?
    {
        return Ok(Some(Some(bytes)));
    }
    for statement in [&link.statements.reads.cell_near, &link.statements.reads.cell] {
        let pieces = {
            let _permit = link.permit().await;
            link.cell_by(statement, partition, sort).await?
        };
        let bytes = match &pieces[..] {
            [] => None,
            [piece] => link.of_created(&link.take_in(partition, sort, piece)?, range).await?,
            pieces => link.joined(sort, pieces, range).await?,
        };
        if bytes.is_some() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

pub(crate) fn chunk_lost(link: &Link, sort: &[u8]) -> StoreError {
    link.damaged(sort, "a chunk of its value is gone")
}

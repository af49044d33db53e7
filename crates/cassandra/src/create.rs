//! `create`: a plain write at a majority, without consensus, for cells that are written once, ever.
//!
//! The write carries a timestamp that lies above every deletion that was done before and at or below every
//! conditional write to come: the one of the partition's head, plus one. So a deletion that comes later always
//! wins, whatever the clocks say, and one that came before never hides a new cell.
//!
//! Invariant: trying again writes the same bytes, chunks included, so that a write that comes late changes
//! nothing.
//! Invariant: of racing creations with different values, which break the vow, one stays whole.

use crate::bind::Bind;
use crate::cells::{Pieces, length};
use crate::chunks::Owner;
use crate::codec::{Body, ChunkId, KIND_CELL, KIND_HEAD, PieceHead, checksum, sealed};
use crate::store::Shared;
use atoll_store::{ByteRange, Cell, Conflict, StoreError};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use twox_hash::XxHash3_64;

/// Values up to this many bytes lie in the row: a plain write writes them once.
const INLINE_BYTES: usize = 256 << 10;

/// What is there before a cell is created.
struct Found {
    pieces: Pieces,
    /// When the last conditional write of the partition was, in its own microseconds; 0 if there was none.
    last_write: i64,
}

/// Creates a cell; tells whether it was there with this value already.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    cell: Cell<'_>,
    value: &[u8],
    is_sent: &AtomicBool,
) -> Result<bool, StoreError> {
    let partition = shared.key(cell.partition);
    let sum = checksum(value);
    let mut head = PieceHead { checksum: sum, bytes: value.len() as u64, body: Body::Inline };
    let mut row_value = Vec::new();
    let found = if value.len() <= INLINE_BYTES {
        row_value = sealed(sum, value);
        look(shared, &partition, cell.sort).await?
    } else {
        let id = chunk_id(&partition, cell.sort, value, shared.link.options.chunk_bytes);
        head.body = Body::Chunks(id, shared.link.options.chunk_bytes as u32);
        let owner = Owner { partition: &partition, sort: cell.sort };
        // At once: a cell that is created is hardly ever there. Of one that is, the same chunks are written again,
        // or, where the vow is broken, some that a sweep takes.
        let chunks = shared.link.write_chunks(&id, owner, value);
        futures::try_join!(look(shared, &partition, cell.sort), chunks)?.0
    };
    if !found.pieces.is_empty() {
        return compare(shared, &partition, cell.sort, found.pieces, value).await.map(|()| true);
    }
    let head = head.encode();
    let values = vec![
        Bind::Big(found.last_write + 1),
        Bind::Bytes(&head),
        Bind::Bytes(&row_value),
        Bind::Bytes(&partition),
        Bind::Bytes(cell.sort),
        Bind::Int(0),
    ];
    let _permit = shared.link.permit().await;
    is_sent.store(true, Ordering::SeqCst);
    shared.link.write("create", &shared.link.statements.plain.create, &values).await.map(|()| false)
}

/// Reads the cell, and when the head of its partition was written.
async fn look(shared: &Arc<Shared>, partition: &[u8], sort: &[u8]) -> Result<Found, StoreError> {
    let link = &shared.link;
    let _permit = link.permit().await;
    let names: &[(i8, &[u8])] = &[(KIND_CELL, sort), (KIND_HEAD, &[])];
    let answer = link.rows("reading", &link.statements.reads.look, &(partition, names)).await?;
    type Row = (i8, Bytes, i32, Option<Bytes>, Option<Bytes>, Option<i64>);
    let rows = answer.rows::<Row>().map_err(|error| link.not_understood(&error))?;
    let mut found = Found { pieces: Pieces::new(), last_write: 0 };
    for row in rows {
        let (kind, sort, piece, head, value, written) = row.map_err(|error| link.not_understood(&error))?;
        match kind {
            KIND_HEAD => found.last_write = written.unwrap_or(0),
            _ => found.pieces.extend(link.piece(crate::cells::RawRow { kind, sort, piece, head, value })?),
        }
    }
    Ok(found)
}

/// Creating a cell again with the value that it has is done; with another value it is a conflict.
async fn compare(
    shared: &Arc<Shared>,
    partition: &[u8],
    sort: &[u8],
    pieces: Pieces,
    value: &[u8],
) -> Result<(), StoreError> {
    let is_same_length = length(&pieces) == value.len() as u64;
    // What was found is a moment old, so the cell is read as it is now.
    let told =
        if is_same_length { ByteRange::ALL } else { ByteRange::new(0, Conflict::ACTUAL_BYTES_MAX as u64) };
    let actual = match shared.link.joined(sort, &pieces, told).await? {
        Some(actual) => Some(actual),
        None => crate::read::read(shared, partition, sort, told, false).await?,
    };
    if actual.as_deref() == Some(value) {
        return Ok(());
    }
    let actual = actual.map(|actual| actual.slice(..actual.len().min(Conflict::ACTUAL_BYTES_MAX)));
    let conflict = Conflict { condition: 0, sort: sort.to_vec(), actual, actual_bytes: length(&pieces) };
    Err(StoreError::Conflict(Box::new(conflict)))
}

/// The name of the chunks of a created cell: the same for the same cell and value, and for nothing else.
fn chunk_id(partition: &[u8], sort: &[u8], value: &[u8], chunk_bytes: usize) -> ChunkId {
    let mut named = (partition.len() as u64).to_be_bytes().to_vec();
    named.extend_from_slice(partition);
    named.extend_from_slice(&(sort.len() as u64).to_be_bytes());
    named.extend_from_slice(sort);
    named.extend_from_slice(&(value.len() as u64).to_be_bytes());
    // Another release may cut values otherwise.
    named.extend_from_slice(&(chunk_bytes as u64).to_be_bytes());
    let mut id = ChunkId::default();
    for (seed, half) in (1_u64..).zip(id.chunks_exact_mut(8)) {
        let of_value = XxHash3_64::oneshot_with_seed(seed, value);
        let of_all = [&named[..], &of_value.to_be_bytes()].concat();
        half.copy_from_slice(&XxHash3_64::oneshot_with_seed(seed, &of_all).to_be_bytes());
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_named_by_cell_and_value() {
        let names = [
            chunk_id(b"p", b"ab", b"value", 1000),
            chunk_id(b"pa", b"b", b"value", 1000),
            chunk_id(b"p", b"ab", b"valuf", 1000),
            chunk_id(b"p", b"ab", b"value\0", 1000),
            chunk_id(b"p", b"", b"value", 1000),
            chunk_id(b"p", b"ab", b"value", 1001),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name));
            assert_ne!(name[..8], name[8..]);
        }
        assert_eq!(names[0], chunk_id(b"p", b"ab", b"value", 1000));
    }
}

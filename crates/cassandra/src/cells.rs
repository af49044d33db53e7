//! Cells as rows: reading them, at SERIAL or from any replica, and joining their pieces.
//!
//! Invariant: bytes that do not match their checksum are an error and are never returned.

use crate::chunks::{Chunks, Found, Owner};
use crate::codec::{Body, ChunkId, KIND_CELL, PieceHead, unsealed};
use crate::failure::damage;
use crate::kept::{Created, Turn};
use crate::link::Link;
use atoll_store::{Buffer, ByteRange, SortKey, StoreError};
use bytes::Bytes;
use scylla::response::query_result::QueryRowsResult;
use scylla::statement::prepared::PreparedStatement;
use std::collections::HashMap;
use std::ops::Range;

/// One piece of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Its position in the cell.
    pub(crate) number: i32,
    /// Its length, checksum and location.
    pub(crate) head: PieceHead,
    /// Its sealed bytes, if they lie inline and were read.
    pub(crate) sealed: Option<Bytes>,
}

/// The pieces of a cell in their order; empty if the cell is absent.
pub(crate) type Pieces = Vec<Piece>;

/// Cells read at one moment on behalf of several callers, each of which asked for one cell. Damage to one
/// cell does not affect the callers of the others.
#[derive(Debug)]
pub(crate) struct AtOnce {
    pub(crate) cells: HashMap<SortKey, Pieces>,
    /// Cells that could not be read, in whole or in part.
    pub(crate) damaged: HashMap<SortKey, StoreError>,
}

/// Length of a cell.
pub(crate) fn length(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.head.bytes).sum()
}

/// One row as the database returned it.
#[derive(Debug)]
pub(crate) struct RawRow {
    pub(crate) kind: i8,
    pub(crate) sort: Bytes,
    pub(crate) piece: i32,
    pub(crate) head: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
}

/// The rows of an answer, with or without values.
pub(crate) fn raw_rows(
    link: &Link,
    answer: &QueryRowsResult,
    with_values: bool,
) -> Result<Vec<RawRow>, StoreError> {
    // The row count is only a number in the answer, so it is not trusted for the allocation.
    let mut rows = Vec::with_capacity(answer.rows_num().min(answer.rows_bytes_size()));
    let wrong = |error: &dyn std::fmt::Display| link.not_understood(error);
    if with_values {
        let found = answer.rows::<(i8, Bytes, i32, Option<Bytes>, Option<Bytes>)>().map_err(|e| wrong(&e))?;
        for row in found {
            let (kind, sort, piece, head, value) = row.map_err(|error| wrong(&error))?;
            rows.push(RawRow { kind, sort, piece, head, value });
        }
    } else {
        let found = answer.rows::<(i8, Bytes, i32, Option<Bytes>)>().map_err(|error| wrong(&error))?;
        for row in found {
            let (kind, sort, piece, head) = row.map_err(|error| wrong(&error))?;
            rows.push(RawRow { kind, sort, piece, head, value: None });
        }
    }
    Ok(rows)
}

impl Link {
    /// A row of a partition as a piece; none for a row that exists only to guard a condition.
    pub(crate) fn piece(&self, partition: &[u8], row: RawRow) -> Result<Option<Piece>, StoreError> {
        let Some(head) = row.head else { return Ok(None) };
        let owner = Owner { partition, sort: &row.sort };
        let head =
            PieceHead::decode(&head).ok_or_else(|| self.damaged(owner, "its head has another form"))?;
        Ok(Some(Piece { number: row.piece, head, sealed: row.value }))
    }

    /// The error for a cell that is not as it was written.
    pub(crate) fn damaged(&self, of: Owner<'_>, problem: &str) -> StoreError {
        damage(&self.place_of(of), problem)
    }

    /// The name of a cell in messages.
    pub(crate) fn place_of(&self, of: Owner<'_>) -> String {
        let partition = of.partition.strip_prefix(self.options.namespace.as_slice()).unwrap_or(of.partition);
        let (partition, sort) = (partition.escape_ascii(), of.sort.escape_ascii());
        format!("{} partition \"{partition}\" sort key \"{sort}\"", self.place)
    }

    /// Rows by kind and sort key, of one partition, at one moment.
    pub(crate) async fn named(
        &self,
        statement: &PreparedStatement,
        partition: &[u8],
        names: &[(i8, &[u8])],
        with_values: bool,
    ) -> Result<Vec<RawRow>, StoreError> {
        let answer = self.rows("reading", statement, &(partition, names)).await?;
        raw_rows(self, &answer, with_values)
    }

    /// Some cells of one partition at one moment, with their values; absent cells are left out.
    pub(crate) async fn cells_at_once(
        &self,
        partition: &[u8],
        sorts: &[&[u8]],
    ) -> Result<AtOnce, StoreError> {
        let names: Vec<_> = sorts.iter().map(|sort| (KIND_CELL, *sort)).collect();
        let (cells, damaged) = (HashMap::with_capacity(sorts.len()), HashMap::new());
        let mut found = AtOnce { cells, damaged };
        for row in self.named(&self.statements.reads.names, partition, &names, true).await? {
            let sort = row.sort.to_vec();
            match self.piece(partition, row) {
                Ok(Some(piece)) => found.cells.entry(sort).or_default().push(piece),
                Ok(None) => {}
                Err(error) => drop(found.damaged.insert(sort, error)),
            }
        }
        Ok(found)
    }

    /// One cell, read with this statement: from any replica, or from a majority.
    pub(crate) async fn cell_by(
        &self,
        statement: &PreparedStatement,
        partition: &[u8],
        sort: &[u8],
    ) -> Result<Pieces, StoreError> {
        let answer = self.rows("reading", statement, &(partition, sort)).await?;
        let mut pieces = Pieces::new();
        for row in raw_rows(self, &answer, true)? {
            pieces.extend(self.piece(partition, row)?);
        }
        Ok(pieces)
    }

    /// Some bytes of a cell whose pieces have been read, unless a chunk is gone.
    pub(crate) async fn joined(
        &self,
        of: Owner<'_>,
        pieces: &[Piece],
        range: ByteRange,
    ) -> Result<Found<Buffer>, StoreError> {
        let (start, end) = range.within(length(pieces));
        if let [piece] = pieces
            && piece.head.body == Body::Inline
        {
            return self
                .inline(of, piece)
                .map(|bytes| Found::Bytes(Buffer::copy_from(slice(bytes, start, end))));
        }
        let mut parts = Vec::new();
        let mut at = 0;
        for piece in pieces {
            let (from, to) = (start.clamp(at, at + piece.head.bytes), end.clamp(at, at + piece.head.bytes));
            if from < to {
                let within = from - at..to - at;
                match piece.head.body {
                    Body::Inline => {
                        let bytes = self.inline(of, piece)?;
                        parts.push(Buffer::copy_from(slice(bytes, within.start, within.end)));
                    }
                    Body::Chunks(id, chunk_bytes) => {
                        match self.of_chunks(of, &piece.head, (id, chunk_bytes), within).await? {
                            Found::Bytes(found) => parts.extend(found),
                            Found::Gone(id) => return Ok(Found::Gone(id)),
                        }
                    }
                }
            }
            at += piece.head.bytes;
        }
        Ok(Found::Bytes(concat(parts)))
    }

    async fn of_chunks(
        &self,
        owner: Owner<'_>,
        head: &PieceHead,
        (id, chunk_bytes): (ChunkId, u32),
        range: Range<u64>,
    ) -> Result<Found<Vec<Buffer>>, StoreError> {
        let chunks = Chunks { owner, id, chunk_bytes: u64::from(chunk_bytes), piece: *head };
        self.read_chunks(&chunks, range).await
    }

    /// Caches a created cell, which is one piece, after its bytes are checked.
    pub(crate) fn take_in(&self, turn: Turn, of: Owner<'_>, piece: &Piece) -> Result<Created, StoreError> {
        let inline = match piece.head.body {
            Body::Inline => Buffer::copy_from(self.inline(of, piece)?),
            Body::Chunks(..) => Buffer::new(),
        };
        let created = Created { head: piece.head, inline };
        self.kept.keep_cell(turn, of.partition, of.sort, created.clone());
        Ok(created)
    }

    /// Some bytes of a created cell, unless a chunk is gone.
    pub(crate) async fn of_created(
        &self,
        of: Owner<'_>,
        created: &Created,
        range: ByteRange,
    ) -> Result<Found<Buffer>, StoreError> {
        let (start, end) = range.within(created.head.bytes);
        match created.head.body {
            Body::Inline => Ok(Found::Bytes(created.inline.slice(start as usize..end as usize))),
            Body::Chunks(..) if start == end => Ok(Found::Bytes(Buffer::new())),
            Body::Chunks(id, chunk_bytes) => {
                let parts = self.of_chunks(of, &created.head, (id, chunk_bytes), start..end).await?;
                Ok(parts.map(concat))
            }
        }
    }

    /// The bytes of an inline piece.
    pub(crate) fn inline<'p>(&self, of: Owner<'_>, piece: &'p Piece) -> Result<&'p [u8], StoreError> {
        let sealed = piece.sealed.as_deref().unwrap_or_default();
        unsealed(sealed)
            .filter(|bytes| bytes.len() as u64 == piece.head.bytes)
            .ok_or_else(|| self.damaged(of, "its bytes do not match their checksum"))
    }
}

/// The parts as one buffer; a single part is returned without a copy.
fn concat(mut parts: Vec<Buffer>) -> Buffer {
    match parts.len() {
        0 | 1 => parts.pop().unwrap_or_default(),
        _ => Buffer::concat(parts.iter().map(|part| part.len()).sum(), parts.iter().map(Buffer::as_slice)),
    }
}

fn slice(bytes: &[u8], start: u64, end: u64) -> &[u8] {
    bytes.get(start as usize..end as usize).unwrap_or_default()
}

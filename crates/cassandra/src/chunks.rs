//! Chunks: the bytes of values that are too large for a row of the partition.
//!
//! Chunks are written before a cell refers to them, under a random name that is never used again, and deleted
//! after the cell has let go of them. What a crash leaves in between is found by a sweep.
//!
//! Invariant: chunks that a cell refers to are complete, and are deleted only after no cell refers to them.

use crate::bind::Bind;
use crate::codec::{ChunkId, PieceHead, chunk_checksum, unsealed_chunk};
use crate::link::Link;
use atoll_store::{Buffer, Outcome, StoreError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

/// Chunks of one value in flight at once.
const IN_FLIGHT: usize = 16;

/// The chunks of one piece.
pub(crate) struct Chunks<'a> {
    pub(crate) owner: Owner<'a>,
    pub(crate) id: ChunkId,
    pub(crate) chunk_bytes: u64,
    /// Length and checksum of the piece.
    pub(crate) piece: PieceHead,
}

/// Some bytes of a value.
#[derive(Debug)]
pub(crate) enum Found<T> {
    /// The bytes.
    Bytes(T),
    /// A chunk of this name is not there, at a majority.
    Gone(ChunkId),
}

impl<T> Found<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Found<U> {
        match self {
            Self::Bytes(bytes) => Found::Bytes(change(bytes)),
            Self::Gone(id) => Found::Gone(id),
        }
    }
}

/// The cell that rows and chunks are of.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// As the table has it.
    pub(crate) partition: &'a [u8],
    pub(crate) sort: &'a [u8],
}

impl Link {
    /// Writes `bytes` as chunks; returns when all of them are there.
    pub(crate) async fn write_chunks(
        &self,
        id: &ChunkId,
        owner: Owner<'_>,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let chunks = stream::iter((0_i32..).zip(bytes.chunks(self.options.chunk_bytes)));
        chunks
            .map(Ok)
            .try_for_each_concurrent(IN_FLIGHT, |(number, chunk)| self.write_chunk(id, owner, number, chunk))
            .await
    }

    async fn write_chunk(
        &self,
        id: &ChunkId,
        owner: Owner<'_>,
        number: i32,
        chunk: &[u8],
    ) -> Result<(), StoreError> {
        let _permit = self.permit().await;
        let values = vec![
            Bind::Bytes(id),
            Bind::Int(number),
            Bind::Sealed(chunk_checksum(id, number, chunk), chunk),
            // For sweeps.
            Bind::Bytes(owner.partition),
            Bind::Bytes(owner.sort),
        ];
        // Until a cell refers to it a chunk means nothing, so a write that may have happened did not.
        let written = self.write("writing a chunk", &self.statements.plain.put_chunk, &values).await;
        written.map_err(|error| match error.outcome() {
            Outcome::Unknown => StoreError::Unavailable {
                place: self.place.clone(),
                reason: "a chunk of a large value could not be written".to_owned(),
                source: Some(Arc::new(error)),
            },
            _ => error,
        })
    }

    /// Some bytes of a piece, in parts.
    pub(crate) async fn read_chunks(
        &self,
        chunks: &Chunks<'_>,
        range: Range<u64>,
    ) -> Result<Found<Vec<Buffer>>, StoreError> {
        let numbers = range.start / chunks.chunk_bytes..range.end.div_ceil(chunks.chunk_bytes);
        let mut reads =
            stream::iter(numbers.map(|number| self.read_chunk(chunks, number))).buffered(IN_FLIGHT);
        let mut parts = Vec::new();
        while let Some((number, chunk)) = match reads.try_next().await? {
            Some(None) => return Ok(Found::Gone(chunks.id)),
            found => found.flatten(),
        } {
            let at = number * chunks.chunk_bytes;
            let part = |position: u64| position.saturating_sub(at).min(chunk.len() as u64) as usize;
            parts.push(chunk.slice(part(range.start)..part(range.end)));
        }
        if range == (0..chunks.piece.bytes) && checksum_of(&parts) != chunks.piece.checksum {
            return Err(self.torn(chunks, "together do not match the checksum of the value"));
        }
        Ok(Found::Bytes(parts))
    }

    async fn read_chunk(
        &self,
        chunks: &Chunks<'_>,
        number: u64,
    ) -> Result<Option<(u64, Buffer)>, StoreError> {
        if let Some(chunk) = self.kept.chunk(&chunks.id, number) {
            return Ok(Some((number, chunk)));
        }
        let _permit = self.permit().await;
        let mut found: Option<Bytes> = None;
        // Chunks never change, so that any replica that has one may answer.
        for statement in [&self.statements.plain.chunk_near, &self.statements.plain.chunk] {
            let values = (&chunks.id[..], number as i32);
            let answer = self.rows("reading a chunk", statement, &values).await?;
            let row = answer.maybe_first_row::<(Option<Bytes>,)>();
            found = row.map_err(|error| self.not_understood(&error))?.and_then(|(data,)| data);
            if found.is_some() {
                break;
            }
        }
        let Some(sealed) = found else { return Ok(None) };
        let expected = chunks.chunk_bytes.min(chunks.piece.bytes.saturating_sub(number * chunks.chunk_bytes));
        match unsealed_chunk(&chunks.id, number as i32, &sealed) {
            Some(bytes) if bytes.len() as u64 == expected => {
                let chunk = Buffer::copy_from(bytes);
                self.kept.keep_chunk(&chunks.id, number, &chunk);
                Ok(Some((number, chunk)))
            }
            _ => Err(self.torn(chunks, &format!("do not match their checksums: number {number}"))),
        }
    }

    fn torn(&self, chunks: &Chunks<'_>, problem: &str) -> StoreError {
        self.damaged(chunks.owner, &format!("its chunks {} {problem}", hexadecimal(&chunks.id)))
    }

    /// Deletes chunks that no cell refers to any more. What fails is left to a sweep.
    pub(crate) async fn delete_chunks(&self, id: ChunkId, count: u64) {
        let deletions = stream::iter(0..count).for_each_concurrent(IN_FLIGHT, |number| async move {
            // Not of the budget: where a majority does not answer each is tried for seconds, and nobody who
            // reads waits for it.
            let _permit = self.deletions.acquire().await.ok();
            let values = (&id[..], number as i32);
            if let Err(error) =
                self.write("deleting a chunk", &self.statements.plain.delete_chunk, &values).await
            {
                tracing::debug!(%error, "a chunk is left to the next sweep");
            }
        });
        deletions.await;
    }

    /// A place in the budget of requests in flight.
    pub(crate) async fn permit(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.budget.acquire().await.ok()
    }
}

fn checksum_of(parts: &[Buffer]) -> u64 {
    let mut hasher = twox_hash::XxHash3_64::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

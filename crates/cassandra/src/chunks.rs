//! Chunks: the bytes of values that are too large for a row of the partition.
//!
//! Chunks are written before a cell refers to them, under a random name that is never used again, and deleted
//! after the cell has stopped referring to them. A sweep finds what a crash in between leaves behind.
//!
//! Invariant: chunks that a cell refers to are complete, and are deleted only after no cell refers to them.

use crate::bind::Bind;
use crate::codec::{ChunkId, PieceHead, chunk_checksum, unsealed_chunk};
use crate::failure::damage_of_chunks;
use crate::link::Link;
use atoll_store::{Buffer, Outcome, StoreError};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use scylla::cluster::Node;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::response::query_result::QueryRowsResult;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Chunks of one value in flight at once.
const IN_FLIGHT: usize = 16;

/// How long one replica may take to return its copy of a chunk of which another replica has wrong bytes.
const REPLICA_TIME: Duration = Duration::from_secs(2);

/// The chunks of one piece.
pub(crate) struct Chunks<'a> {
    pub(crate) owner: Owner<'a>,
    pub(crate) id: ChunkId,
    pub(crate) chunk_bytes: u64,
    /// Length and checksum of the piece.
    pub(crate) piece: PieceHead,
}

impl Chunks<'_> {
    /// The bytes of one chunk, if they are those that were written.
    fn unsealed<'s>(&self, number: u64, sealed: &'s [u8]) -> Option<&'s [u8]> {
        let expected = self.chunk_bytes.min(self.piece.bytes.saturating_sub(number * self.chunk_bytes));
        unsealed_chunk(&self.id, number as i32, sealed).filter(|bytes| bytes.len() as u64 == expected)
    }
}

/// Some bytes of a value.
#[derive(Debug)]
pub(crate) enum Found<T> {
    /// The bytes.
    Bytes(T),
    /// A chunk of this name is absent at a majority.
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

/// The cell that rows and chunks belong to.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// The partition key as stored in the table.
    pub(crate) partition: &'a [u8],
    pub(crate) sort: &'a [u8],
}

impl Link {
    /// Writes `bytes` as chunks; returns when all of them are written.
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
        // A chunk means nothing until a cell refers to it, so a write with an unknown outcome counts as not
        // done.
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
        let permit = self.permit().await;
        let mut found: Option<Bytes> = None;
        // Chunks never change, so any replica that has one may answer.
        for statement in [&self.statements.plain.chunk_near, &self.statements.plain.chunk] {
            let values = (&chunks.id[..], number as i32);
            let answer = self.rows("reading a chunk", statement, &values).await?;
            found = self.data_of(&answer)?;
            if found.is_some() {
                break;
            }
        }
        let Some(sealed) = found else { return Ok(None) };
        drop(permit);
        let chunk = match chunks.unsealed(number, &sealed) {
            Some(bytes) => Buffer::copy_from(bytes),
            None => self.chunk_elsewhere(chunks, number).await?,
        };
        self.kept.keep_chunk(&chunks.id, number, &chunk);
        Ok(Some((number, chunk)))
    }

    fn data_of(&self, answer: &QueryRowsResult) -> Result<Option<Bytes>, StoreError> {
        let row = answer.maybe_first_row::<(Option<Bytes>,)>();
        Ok(row.map_err(|error| self.not_understood(&error))?.and_then(|(data,)| data))
    }

    /// Reads a chunk of which one replica has wrong bytes from another replica, and overwrites the wrong
    /// copy. Each replica is asked alone: of two copies that differ but have the same age, a read at a
    /// majority, like a repair, takes the one whose bytes are larger, whether it is right or not, and gives
    /// it to all replicas.
    async fn chunk_elsewhere(&self, chunks: &Chunks<'_>, number: u64) -> Result<Buffer, StoreError> {
        let values = (&chunks.id[..], number as i32);
        for node in self.replicas_of_chunk(&values) {
            let mut statement = self.statements.plain.chunk_near.clone();
            let target = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(node), None);
            statement.set_load_balancing_policy(Some(target));
            statement.set_request_timeout(Some(REPLICA_TIME));
            let permit = self.permit().await;
            let answer = self.session.execute_unpaged(&statement, &values).await;
            drop(permit);
            let answer = answer.ok().and_then(|answer| answer.into_rows_result().ok());
            let sealed = answer.and_then(|answer| self.data_of(&answer).ok().flatten());
            let Some(sealed) = sealed else { continue };
            let Some(bytes) = chunks.unsealed(number, &sealed) else { continue };
            tracing::warn!(id = hexadecimal(&chunks.id), number, "a replica has a chunk with wrong bytes");
            // If the chunk was deleted meanwhile, a sweep removes the copy written here.
            if !self.options.read_only
                && let Err(error) = self.write_chunk(&chunks.id, chunks.owner, number as i32, bytes).await
            {
                tracing::warn!(%error, "the chunk could not be written again");
            }
            return Ok(Buffer::copy_from(bytes));
        }
        Err(self.torn(chunks, &format!("do not match their checksums: number {number}")))
    }

    /// The connected nodes that have a replica of a chunk.
    fn replicas_of_chunk(&self, values: &(&[u8], i32)) -> Vec<Arc<Node>> {
        let token = self.statements.plain.chunk_near.calculate_token(values).ok().flatten();
        let Some(token) = token else { return Vec::new() };
        let state = self.session.get_cluster_state();
        let replicas = state.get_token_endpoints(&self.options.keyspace, "chunks", token);
        replicas.into_iter().map(|(node, _)| node).filter(|node| node.is_connected()).collect()
    }

    fn torn(&self, chunks: &Chunks<'_>, problem: &str) -> StoreError {
        let place = self.place_of(chunks.owner);
        damage_of_chunks(&place, &format!("its chunks {} {problem}", hexadecimal(&chunks.id)))
    }

    /// Deletes chunks that no cell refers to. Deletions that fail are left to a sweep.
    pub(crate) async fn delete_chunks(&self, id: ChunkId, count: u64) {
        let deletions = stream::iter(0..count).for_each_concurrent(IN_FLIGHT, |number| async move {
            // Not from the budget for requests: if no majority answers, each deletion is retried for seconds,
            // and reads must not wait for that.
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

    /// A permit from the budget of requests in flight.
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

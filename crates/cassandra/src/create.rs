//! `create`: a plain write at a majority, without consensus, for cells that are written once, ever.
//!
//! The timestamp of the write is that of the partition's head plus one: above every earlier deletion, and at
//! or below every later conditional write. So a later deletion always wins, whatever the clocks say, and an
//! earlier one never hides a new cell.
//!
//! Invariant: a retry writes the same value, so that a write that arrives late changes nothing that a reader
//! was given.
//! Invariant: each try names chunks of its own. The chunks of a deleted cell are removed seconds later, when
//! another client may already have created the cell again; no clock can tell the two sets apart.
//! Invariant: of racing creations with different values, which break the vow, one survives whole.
//! Invariant: a conflict names what was there. A cell whose chunks are gone was deleted meanwhile, and is
//! created; if it goes on naming them, it is damaged.
//! Invariant: a creation with chunks is acknowledged only after the cell was read back: a sweep may have run
//! before the row was written and taken the chunks left by an earlier try, and has then deleted the cell with
//! a timestamp above that row.
//! Invariant: a try that is given up before its row was sent, wherever it waits, lets its chunks go.

use crate::bind::Bind;
use crate::cells::{Piece, Pieces, length};
use crate::chunks::{Found as Read, Owner};
use crate::codec::{Body, ChunkId, KIND_CELL, KIND_HEAD, PieceHead, checksum, sealed};
use crate::leaving::Gone;
use crate::link::Link;
use crate::numbers;
use crate::plan::CHUNK_AGE_MAX;
use crate::read::Moves;
use crate::store::Shared;
use atoll_store::age::Moment;
use atoll_store::{ByteRange, Cell, Conflict, Outcome, PartitionKey, StoreError};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Values up to this many bytes are stored in the row: a plain write writes them only once.
const INLINE_BYTES: usize = 256 << 10;

/// The state before a cell is created.
struct Found {
    pieces: Pieces,
    /// The time of the partition's last conditional write, in microseconds by its own timestamp; 0 if there
    /// was none.
    last_write: i64,
}

/// The end of one try.
enum Tried {
    /// The cell is there; whether it was before.
    Done(bool),
    /// Something came between: the creation is tried again.
    Again,
    /// These chunks of the cell that was there are gone.
    Gone(ChunkId),
}

/// Creates a cell; returns whether it already existed with this value.
pub(crate) async fn create(
    shared: &Arc<Shared>,
    cell: Cell<'_>,
    value: &[u8],
    is_sent: &AtomicBool,
) -> Result<bool, StoreError> {
    let creation = Creation::of(shared, cell, value);
    let mut moves = Moves::default();
    loop {
        let was_sent = is_sent.load(Ordering::SeqCst);
        let may_go_on = match creation.attempt(is_sent).await {
            Ok(Tried::Done(is_repeated)) => return Ok(is_repeated),
            Ok(Tried::Again) => moves.again(&shared.link.place),
            Ok(Tried::Gone(id)) => moves.gone(&shared.link, creation.owner(), id),
            Err(error) if was_sent => return Err(honest(is_sent, error)),
            // The error of the first row that is sent already reports its outcome.
            Err(error) => return Err(error),
        };
        may_go_on.map_err(|error| honest(is_sent, error))?;
    }
}

/// Turns an error after a row was sent into `unknown`: a later failure says nothing about that row.
fn honest(is_sent: &AtomicBool, error: StoreError) -> StoreError {
    let is_told = matches!(error, StoreError::Unknown { .. } | StoreError::Conflict(_));
    if is_told || !is_sent.load(Ordering::SeqCst) {
        return error;
    }
    StoreError::Unknown {
        what: "create",
        reason: "it was written and did not stay, and could not be written again".to_owned(),
        source: Some(Arc::new(error)),
    }
}

/// The chunks of one try, which no row names yet. A caller whose deadline has passed drops the try in the
/// middle of a step; the chunks then go like those of a try that failed.
struct Unnamed<'a> {
    shared: &'a Arc<Shared>,
    chunks: Vec<Gone>,
}

impl Unnamed<'_> {
    /// Leaves the chunks to the caller.
    fn take(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.chunks)
    }
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        // Not at once: some of them may still be on their way to the nodes, behind their own deletion.
        let chunks = self.take();
        self.shared.let_go_later(chunks);
    }
}

/// One creation.
struct Creation<'a> {
    shared: &'a Arc<Shared>,
    partition: PartitionKey,
    sort: &'a [u8],
    value: &'a [u8],
    checksum: u64,
}

impl<'a> Creation<'a> {
    fn of(shared: &'a Arc<Shared>, cell: Cell<'a>, value: &'a [u8]) -> Self {
        let partition = shared.key(cell.partition);
        Self { shared, partition, sort: cell.sort, value, checksum: checksum(value) }
    }

    fn owner(&self) -> Owner<'_> {
        Owner { partition: &self.partition, sort: self.sort }
    }

    /// The head of the row that a try writes.
    fn head(&self) -> Result<PieceHead, StoreError> {
        let body = match self.value.len() <= INLINE_BYTES {
            true => Body::Inline,
            false => Body::Chunks(numbers::chunk_id()?, self.shared.link.options.chunk_bytes as u32),
        };
        Ok(PieceHead { checksum: self.checksum, bytes: self.value.len() as u64, body, is_created: true })
    }

    /// One try.
    async fn attempt(&self, is_sent: &AtomicBool) -> Result<Tried, StoreError> {
        let (begun, head) = (Moment::now(), self.head()?);
        let mut unnamed = Unnamed { shared: self.shared, chunks: head.chunks().into_iter().collect() };
        let found = self.prepare(&head).await?;
        if !found.pieces.is_empty() {
            // All of them are written, and no row names them.
            self.shared.let_go(unnamed.take());
            return Ok(match compare(&self.shared.link, self.owner(), &found.pieces, self.value).await? {
                // An earlier try of this very call may have created it.
                Read::Bytes(()) => Tried::Done(!is_sent.load(Ordering::SeqCst)),
                Read::Gone(id) => Tried::Gone(id),
            });
        }
        let has_chunks = matches!(head.body, Body::Chunks(..));
        if has_chunks && begun.age() > CHUNK_AGE_MAX {
            return Ok(Tried::Again);
        }
        is_sent.store(true, Ordering::SeqCst);
        let chunks = unnamed.take();
        if let Err(error) = self.write_row(&head, found.last_write + 1).await {
            if error.outcome() == Outcome::Refused {
                self.shared.let_go(chunks);
            }
            return Err(error);
        }
        if has_chunks && !self.is_there().await? {
            // The client that deleted the cell may have missed this row, and others may be reading it.
            self.shared.let_go_later(chunks);
            return Ok(Tried::Again);
        }
        self.shared.link.settled.note(&self.partition, self.sort, &head);
        Ok(Tried::Done(false))
    }

    /// Reads the present state and writes the chunks concurrently: a cell that is created hardly ever exists
    /// already.
    async fn prepare(&self, head: &PieceHead) -> Result<Found, StoreError> {
        let look = look(self.shared, &self.partition, self.sort);
        match head.body {
            Body::Inline => look.await,
            Body::Chunks(id, _) => {
                let chunks = self.shared.link.write_chunks(&id, self.owner(), self.value);
                Ok(futures::try_join!(look, chunks)?.0)
            }
        }
    }

    async fn write_row(&self, head: &PieceHead, written: i64) -> Result<(), StoreError> {
        let value = match head.body {
            Body::Inline => sealed(head.checksum, self.value),
            Body::Chunks(..) => Vec::new(),
        };
        let head = head.encode();
        let values = vec![
            Bind::Big(written),
            Bind::Bytes(&head),
            Bind::Bytes(&value),
            Bind::Bytes(&self.partition),
            Bind::Bytes(self.sort),
            Bind::Int(0),
        ];
        let link = &self.shared.link;
        let _permit = link.permit().await;
        link.write("create", &link.statements.plain.create, &values).await
    }

    /// Whether the cell is present at a majority.
    async fn is_there(&self) -> Result<bool, StoreError> {
        let link = &self.shared.link;
        let _permit = link.permit().await;
        let names = [(KIND_CELL, self.sort)];
        let rows = link.named(&link.statements.reads.names_glance, &self.partition, &names, false).await;
        // The row was written; only this read could have shown whether it stays.
        let rows = rows.map_err(|error| StoreError::Unknown {
            what: "create",
            reason: "it was written, but whether it stays could not be checked".to_owned(),
            source: Some(Arc::new(error)),
        })?;
        Ok(rows.iter().any(|row| row.head.is_some()))
    }
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
            _ => {
                let row = crate::cells::RawRow { kind, sort, piece, head, value };
                found.pieces.extend(link.piece(partition, row)?);
            }
        }
    }
    Ok(found)
}

/// Accepts a cell that exists with the same value; another value is a conflict.
async fn compare(link: &Link, of: Owner<'_>, pieces: &[Piece], value: &[u8]) -> Result<Read<()>, StoreError> {
    let is_same_length = length(pieces) == value.len() as u64;
    let told =
        if is_same_length { ByteRange::ALL } else { ByteRange::new(0, Conflict::ACTUAL_BYTES_MAX as u64) };
    let actual = match link.joined(of, pieces, told).await? {
        // The pieces were read a moment ago. If their chunks are gone, nothing is known of the cell now.
        Read::Gone(id) => return Ok(Read::Gone(id)),
        Read::Bytes(actual) => actual,
    };
    if actual.as_slice() == value {
        return Ok(Read::Bytes(()));
    }
    let actual = Some(actual.slice(..Conflict::ACTUAL_BYTES_MAX).to_owned_alone());
    let conflict = Conflict { condition: 0, sort: of.sort.to_vec(), actual, actual_bytes: length(pieces) };
    Err(StoreError::Conflict(Box::new(conflict)))
}

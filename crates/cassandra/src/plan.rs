//! Turns what was read into what is sent: judges conditions, lays out pieces, and notes old chunks.
//!
//! Invariant: a condition that a cell is absent is also sent to the database, because `create` may add the
//! cell without touching the head of the partition.

use crate::bind::Bind;
use crate::cells::{Piece, Pieces, length};
use crate::chunks::{Found, Owner};
use crate::codec::{Body, ChunkId, PieceHead, checksum, sealed};
use crate::link::Link;
use crate::net::{Change, Net};
use crate::numbers;
use atoll_store::age::Moment;
use atoll_store::{Batch, Buffer, ByteRange, Condition, Conflict, Limits, PartitionKey, SortKey, StoreError};
use scylla::statement::prepared::PreparedStatement;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Values up to this many bytes are stored in the row when they are written conditionally; the limit is low
/// because consensus writes each value several times.
pub(crate) const INLINE_BYTES: usize = 64 << 10;

/// The most bytes of values in the rows of one conditional batch.
const INLINE_BATCH_BYTES: usize = 1 << 20;

/// An append to a cell with at least this many pieces also joins the small ones at its end.
const PIECES_JOINED: usize = 16;

/// One statement of a conditional batch.
pub(crate) type Sending<'a> = (&'a PreparedStatement, Vec<Bind<'a>>);

/// The state of a partition as it was read at one moment.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// The cells that a batch names.
    pub(crate) cells: HashMap<SortKey, Pieces>,
    /// Those of them that could not be read, in whole or in part, and that the batch replaces.
    pub(crate) damaged: BTreeSet<SortKey>,
    /// Chunks of the cells in ranges that the batch deletes.
    pub(crate) left_behind: Vec<(ChunkId, u64)>,
}

/// A piece to be written.
#[derive(Debug)]
struct NewPiece {
    sort: SortKey,
    number: i32,
    head: Vec<u8>,
    value: Vec<u8>,
    /// Whether the write requires that the row does not exist.
    is_first: bool,
}

/// The effect of a batch, ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pieces: Vec<NewPiece>,
    guards: Vec<SortKey>,
    deleted: Vec<SortKey>,
    deleted_behind: Vec<(SortKey, i32)>,
    ranges: Vec<crate::net::HalfOpen>,
    /// Whether some cell becomes more than one inline piece.
    pub(crate) is_compound: bool,
    /// Chunks that no cell refers to once the batch is applied.
    pub(crate) old_chunks: Vec<(ChunkId, u64)>,
}

/// The largest age of chunks to which a write may begin to refer: far below the age at which a sweep takes
/// them.
pub(crate) const CHUNK_AGE_MAX: Duration = Duration::from_secs(3600);

/// Chunks that were written for a batch, kept while the batch is retried.
pub(crate) type Written = HashMap<(SortKey, u64, u64), WrittenChunks>;

/// The chunks of one piece, and when their writing began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenChunks {
    pub(crate) id: ChunkId,
    pub(crate) count: u64,
    begun: Moment,
}

/// Judges the conditions against what was read.
pub(crate) async fn judge(
    link: &Link,
    partition: &[u8],
    batch: &Batch,
    view: &View,
) -> Result<Judged, StoreError> {
    for (place, condition) in batch.conditions.iter().enumerate() {
        let sort = condition.sort();
        let of = Owner { partition, sort };
        let pieces = view.cells.get(sort).map_or(&[][..], Vec::as_slice);
        match holds(link, of, condition, pieces).await? {
            Found::Bytes(true) => continue,
            Found::Bytes(false) => {}
            Found::Gone(id) => return Ok(Judged::Gone(sort.to_vec(), id)),
        }
        let told = ByteRange::new(0, Conflict::ACTUAL_BYTES_MAX as u64);
        let actual = match pieces.is_empty() {
            true => None,
            false => match link.joined(of, pieces, told).await? {
                Found::Bytes(bytes) => Some(bytes),
                Found::Gone(id) => return Ok(Judged::Gone(sort.to_vec(), id)),
            },
        };
        let actual_bytes = length(pieces);
        let conflict = Conflict { condition: place, sort: sort.to_vec(), actual, actual_bytes };
        return Ok(Judged::Conflict(Box::new(conflict)));
    }
    Ok(Judged::Holds)
}

/// The outcome of judging the conditions.
#[derive(Debug)]
pub(crate) enum Judged {
    /// All of them hold.
    Holds,
    /// This condition does not hold.
    Conflict(Box<Conflict>),
    /// Chunks of this cell are gone.
    Gone(SortKey, ChunkId),
}

async fn holds(
    link: &Link,
    of: Owner<'_>,
    condition: &Condition,
    pieces: &[Piece],
) -> Result<Found<bool>, StoreError> {
    let Condition::Equals(_, expected) = condition else { return Ok(Found::Bytes(pieces.is_empty())) };
    if pieces.is_empty() || length(pieces) != expected.len() as u64 {
        return Ok(Found::Bytes(false));
    }
    if let [piece] = pieces
        && piece.head.checksum != checksum(expected)
    {
        return Ok(Found::Bytes(false));
    }
    Ok(link.joined(of, pieces, ByteRange::ALL).await?.map(|actual| actual == *expected))
}

/// Lays out the effect of the batch, and writes the chunks that it needs.
pub(crate) async fn lay_out(
    link: &Link,
    partition: &[u8],
    batch: &Batch,
    view: &View,
    limits: &Limits,
    written: &mut Written,
) -> Result<Plan, StoreError> {
    let of = |sort: &[u8]| view.cells.get(sort).map_or(&[][..], Vec::as_slice);
    let net = Net::of(&batch.mutations, |sort| length(of(sort)), limits)?;
    let mut plan = Plan { ranges: net.ranges, old_chunks: view.left_behind.clone(), ..Plan::default() };
    let mut layout = Layout { link, partition, written, inline_left: INLINE_BATCH_BYTES };
    for (sort, change) in &net.cells {
        let old = of(sort);
        match change {
            Change::Put(parts) => {
                let bytes = joined(parts);
                let piece = layout.piece(sort, 0, &bytes).await?;
                plan.push(piece);
                plan.forget(old);
                if old.iter().any(|piece| piece.number > 0) || view.damaged.contains(sort) {
                    plan.deleted_behind.push((sort.clone(), 0));
                }
            }
            Change::Append(parts) => layout.append(&mut plan, sort, old, parts).await?,
            Change::Delete => {
                plan.forget(old);
                plan.deleted.push(sort.clone());
            }
        }
    }
    plan.guard(batch);
    plan.is_compound |= plan.pieces.iter().any(|piece| piece.number > 0 || piece.value.is_empty());
    Ok(plan)
}

/// Decides where the bytes of new pieces are stored.
struct Layout<'a> {
    link: &'a Link,
    partition: &'a [u8],
    written: &'a mut Written,
    inline_left: usize,
}

impl Layout<'_> {
    async fn piece(&mut self, sort: &SortKey, number: i32, bytes: &[u8]) -> Result<NewPiece, StoreError> {
        let (sum, len) = (checksum(bytes), bytes.len() as u64);
        let mut head = PieceHead { checksum: sum, bytes: len, body: Body::Inline, is_created: false };
        let mut value = Vec::new();
        if bytes.len() <= INLINE_BYTES.min(self.inline_left) {
            self.inline_left -= bytes.len();
            value = sealed(sum, bytes);
        } else {
            let id = self.chunks(sort, sum, bytes).await?;
            head.body = Body::Chunks(id, self.link.options.chunk_bytes as u32);
        }
        Ok(NewPiece { sort: sort.clone(), number, head: head.encode(), value, is_first: false })
    }

    /// Returns chunks with these bytes, reusing those that an earlier try wrote.
    async fn chunks(&mut self, sort: &SortKey, sum: u64, bytes: &[u8]) -> Result<ChunkId, StoreError> {
        let key = (sort.clone(), sum, bytes.len() as u64);
        // After a sleep, a writer must not assume that the chunks still exist.
        if let Some(written) = self.written.get(&key).filter(|written| written.begun.age() < CHUNK_AGE_MAX) {
            return Ok(written.id);
        }
        let id = numbers::chunk_id()?;
        let count = bytes.len().div_ceil(self.link.options.chunk_bytes) as u64;
        // Recorded first, so that chunks that were written only in part are also deleted.
        self.written.insert(key, WrittenChunks { id, count, begun: Moment::now() });
        self.link.write_chunks(&id, Owner { partition: self.partition, sort }, bytes).await?;
        Ok(id)
    }

    /// Adds one piece behind the others, joined with the small ones at the end once there are many.
    async fn append(
        &mut self,
        plan: &mut Plan,
        sort: &SortKey,
        old: &[Piece],
        parts: &[Buffer],
    ) -> Result<(), StoreError> {
        let is_inline = |piece: &&Piece| piece.head.body == Body::Inline;
        let small = match old.len() >= PIECES_JOINED {
            true => old.iter().rev().take_while(is_inline).count(),
            false => 0,
        };
        let of = Owner { partition: self.partition, sort };
        let (kept, joining) = old.split_at(old.len() - small);
        let mut bytes = Vec::new();
        for piece in joining {
            bytes.extend_from_slice(self.link.inline(of, piece)?);
        }
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let number = match (joining.first(), kept.last()) {
            (Some(first), _) => first.number,
            (None, Some(last)) => match last.number.checked_add(1) {
                Some(number) => number,
                None => {
                    return Err(self.link.damaged(of, "a piece has a number behind which there is none"));
                }
            },
            (None, None) => 0,
        };
        let piece = self.piece(sort, number, &bytes).await?;
        plan.push(piece);
        if joining.len() > 1 {
            plan.deleted_behind.push((sort.clone(), number));
        }
        Ok(())
    }
}

fn joined(parts: &[Buffer]) -> Buffer {
    match parts {
        [part] => part.clone(),
        parts => {
            let len = parts.iter().map(|part| part.len()).sum();
            Buffer::concat(len, parts.iter().map(Buffer::as_slice))
        }
    }
}

impl Plan {
    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
            && self.deleted.is_empty()
            && self.deleted_behind.is_empty()
            && self.ranges.is_empty()
    }

    /// Cells that the plan changes.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &SortKey> {
        let behind = self.deleted_behind.iter().map(|(sort, _)| sort);
        self.pieces.iter().map(|piece| &piece.sort).chain(&self.deleted).chain(behind)
    }

    /// Ranges of cells that the plan deletes.
    pub(crate) fn ranges(&self) -> &[crate::net::HalfOpen] {
        &self.ranges
    }

    /// Cells that consist of one inline piece, with that piece as it is written.
    pub(crate) fn whole_cells(&self) -> impl Iterator<Item = (&SortKey, Piece)> {
        self.pieces.iter().filter(|new| new.number == 0 && !new.value.is_empty()).filter_map(|new| {
            let head = PieceHead::decode(&new.head)?;
            Some((&new.sort, Piece { number: 0, head, sealed: Some(new.value.clone().into()) }))
        })
    }

    fn push(&mut self, piece: NewPiece) {
        self.pieces.push(piece);
    }

    fn forget(&mut self, old: &[Piece]) {
        self.old_chunks.extend(old.iter().filter_map(|piece| piece.head.chunks()));
    }

    /// Makes the database itself check the conditions of absence.
    fn guard(&mut self, batch: &Batch) {
        let absent = batch.conditions.iter().filter_map(|condition| match condition {
            Condition::Absent(sort) => Some(sort),
            Condition::Equals(..) => None,
        });
        for sort in absent.collect::<BTreeSet<_>>() {
            match self.pieces.iter_mut().find(|piece| piece.number == 0 && piece.sort == *sort) {
                Some(piece) => piece.is_first = true,
                None => self.guards.push(sort.clone()),
            }
        }
    }

    /// The statements of the plan.
    pub(crate) fn sendings<'a>(&'a self, link: &'a Link, partition: &'a PartitionKey) -> Vec<Sending<'a>> {
        let (statements, p) = (&link.statements, || Bind::Bytes(partition));
        let mut sendings: Vec<Sending<'a>> = Vec::new();
        for piece in &self.pieces {
            let statement =
                if piece.is_first { &statements.changes.put_absent } else { &statements.changes.put };
            let values = vec![
                Bind::Bytes(&piece.head),
                Bind::Bytes(&piece.value),
                p(),
                Bind::Bytes(&piece.sort),
                Bind::Int(piece.number),
            ];
            sendings.push((statement, values));
        }
        for sort in &self.guards {
            sendings.push((&statements.changes.guard_absent, vec![p(), Bind::Bytes(sort)]));
        }
        for sort in &self.deleted {
            sendings.push((&statements.changes.delete_cell, vec![p(), Bind::Bytes(sort)]));
        }
        for (sort, number) in &self.deleted_behind {
            sendings
                .push((&statements.changes.delete_pieces, vec![p(), Bind::Bytes(sort), Bind::Int(*number)]));
        }
        for (from, to) in &self.ranges {
            sendings.push(match to {
                Some(to) => (&statements.changes.delete_range, vec![p(), Bind::Bytes(from), Bind::Bytes(to)]),
                None => (&statements.changes.delete_from, vec![p(), Bind::Bytes(from)]),
            });
        }
        sendings
    }
}

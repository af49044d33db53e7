//! Sweeping: deletes chunks that no cell refers to. Clients leave them behind when they end between writing
//! chunks and referring to them, or between ceasing to refer to them and deleting them.
//!
//! Invariant: before a chunk is deleted, the head of its partition moves, at a time when the chunk is already
//! old. So a write that began before can no longer be applied, and a write that begins later does not refer
//! to old chunks. If the cell is absent, the same write deletes it, above whatever a creation may have
//! written before.
//! Invariant: no chunk of a created cell is deleted. The row of another try of its creation, at one replica
//! or in a queue, may be the one that survives, whatever the head of the partition is by then. The chunks are
//! deleted after the cell is.
//! Invariant: a chunk that was written again since it was examined stays, because its deletion carries the
//! timestamp that was seen.
//! Invariant: nothing is deleted on behalf of a closed store.
//! Invariant: a sweep that ends well has looked at every token once. It begins at any of them, so that what
//! many sweeps that end early look at is the whole ring, and not its beginning many times.

use crate::bind::Bind;
use crate::cells::Piece;
use crate::codec::{Body, ChunkId};
use crate::store::Shared;
use crate::write::Writing;
use atoll_store::{Batch, ErrorKind, StoreError};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use scylla::statement::unprepared::Statement;
use scylla::value::{CqlValue, Row};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Longer than any write is in flight.
pub(crate) const AGE_MIN: Duration = Duration::from_secs(86_400);

/// How often a keyspace is swept.
const EVERY: Duration = Duration::from_secs(7 * 86_400);

/// How long a store must be open before it sweeps: a command that ends at once must not take the turn of a
/// long-lived client.
const SETTLED: Duration = Duration::from_secs(60);

/// How often a store checks whether a sweep is due.
const LOOK_AGAIN: Duration = Duration::from_secs(6 * 3600);

/// The first token of the ring; the one below it belongs to no key.
const TOKEN_FIRST: i64 = i64::MIN + 1;

/// Chunks examined with one request.
const PAGE: i32 = 500;

/// For how many values a sweep remembers whether a cell refers to them.
const KNOWN_MAX: usize = 100_000;

/// For how many values one sweep may fail to learn whether a cell refers to them: each may have taken the
/// full request time-out.
const UNJUDGED_MAX: usize = 256;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// All chunks that were found, including those of other stores in the keyspace.
    pub looked_at: u64,
    /// Chunks that no cell referred to and that were deleted.
    pub deleted: u64,
}

/// A chunk and its owner.
struct Found {
    id: ChunkId,
    number: i32,
    partition: Bytes,
    sort: Bytes,
    written_us: i64,
}

/// The chunks to be swept; a trait so that tests can replace the cluster.
trait Ground {
    /// Whether the sweep must stop.
    fn is_over(&self) -> bool;
    /// The first chunks between two tokens, and the token to continue from.
    fn look(&self, from: i64, to: i64) -> impl Future<Output = Result<Page, StoreError>> + Send;
    /// Whether the cell refers to the chunk, or may still do so.
    fn is_referred(&self, chunk: &Found) -> impl Future<Output = Result<bool, StoreError>> + Send;
    fn delete(&self, chunk: &Found) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The chunks of one store.
struct Sweeping<'a> {
    shared: &'a Arc<Shared>,
    /// Whether the sweep runs in the background, so that it ends with the last handle of the store.
    is_unasked: bool,
}

impl Ground for Sweeping<'_> {
    fn is_over(&self) -> bool {
        self.shared.is_closed() || (self.is_unasked && Arc::strong_count(self.shared) == 1)
    }

    async fn look(&self, from: i64, to: i64) -> Result<Page, StoreError> {
        look(self.shared, from, to).await
    }

    async fn is_referred(&self, chunk: &Found) -> Result<bool, StoreError> {
        is_referred(self.shared, chunk).await
    }

    async fn delete(&self, chunk: &Found) -> Result<(), StoreError> {
        delete(self.shared, chunk).await
    }
}

/// Deletes chunks older than `age` that no cell refers to.
pub(crate) async fn sweep(shared: &Arc<Shared>, age: Duration) -> Result<Swept, StoreError> {
    sweep_ground(&Sweeping { shared, is_unasked: false }, age).await
}

async fn sweep_ground(store: &Sweeping<'_>, age: Duration) -> Result<Swept, StoreError> {
    let link = &store.shared.link;
    // The age of a chunk depends on the clock of some node: a sweep relies on it only if all clocks agree.
    let now_us = crate::clock::of_all(link).await? / 1000;
    let oldest_us = i64::try_from(now_us.saturating_sub(age.as_micros() as u64)).unwrap_or(0);
    let begin = fastrand::i64(TOKEN_FIRST..);
    let (swept, unjudged) = go_over(store, begin, oldest_us, &link.place).await?;
    if unjudged > 0 {
        tracing::warn!(
            unjudged,
            "it is unknown whether some values are referred to: the next sweep checks again"
        );
    }
    Ok(swept)
}

/// Goes once round the ring over the chunks of a store, from the token `begin` on. Also returns for how many
/// values it could not learn whether a cell refers to them.
async fn go_over(
    ground: &impl Ground,
    begin: i64,
    oldest_us: i64,
    place: &str,
) -> Result<(Swept, usize), StoreError> {
    let (mut swept, mut unjudged) = (Swept::default(), 0);
    let (mut from, mut to) = (begin, i64::MAX);
    // The chunks of one value lie on all nodes, and so on many pages.
    let mut referred: HashMap<ChunkId, bool> = HashMap::new();
    loop {
        let Page { looked_at, chunks, next } = ground.look(from, to).await?;
        swept.looked_at += looked_at;
        if referred.len() > KNOWN_MAX {
            referred.clear();
        }
        for chunk in chunks.into_iter().filter(|chunk| chunk.written_us <= oldest_us) {
            if ground.is_over() {
                break;
            }
            let is_referred = match referred.get(&chunk.id) {
                Some(known) => *known,
                None => match ground.is_referred(&chunk).await {
                    // What a damaged cell refers to is unknown; the chunks of others are examined all the
                    // same.
                    Err(error) if error.kind() == ErrorKind::Corrupt => true,
                    // The same holds for a cell whose replicas do not answer: it must not keep the chunks
                    // behind it from being examined.
                    Err(error) if error.kind() == ErrorKind::Unavailable && unjudged < UNJUDGED_MAX => {
                        tracing::debug!(%error, "it is unknown whether a value is referred to");
                        unjudged += 1;
                        true
                    }
                    asked => asked?,
                },
            };
            referred.insert(chunk.id, is_referred);
            // The store may have been closed meanwhile.
            if !is_referred && !ground.is_over() {
                ground.delete(&chunk).await?;
                swept.deleted += 1;
            }
        }
        match next {
            _ if ground.is_over() => return Err(StoreError::closed(place)),
            Some(next) => from = next,
            // The end of the ring; what lies before the beginning is still missing.
            None if to == i64::MAX && begin > TOKEN_FIRST => (from, to) = (TOKEN_FIRST, begin - 1),
            None => return Ok((swept, unjudged)),
        }
    }
}

/// Some chunks in the order of tokens.
struct Page {
    /// How many chunks the page has, of all stores of the keyspace.
    looked_at: u64,
    /// The chunks of this store; other stores of the keyspace sweep their own.
    chunks: Vec<Found>,
    /// The token to continue from, if there may be more.
    next: Option<i64>,
}

async fn look(shared: &Shared, from: i64, to: i64) -> Result<Page, StoreError> {
    let link = &shared.link;
    let answer = link.rows("sweeping", &link.statements.plain.owners, &(from, to, PAGE)).await?;
    type Owned = (Bytes, i32, Option<Bytes>, Option<Bytes>, Option<i64>, i64);
    let rows = answer.rows::<Owned>().map_err(|error| link.not_understood(&error))?;
    let (mut looked_at, mut chunks, mut last) = (0, Vec::new(), None);
    for row in rows {
        let (id, number, partition, sort, written, token) =
            row.map_err(|error| link.not_understood(&error))?;
        last = token.checked_add(1);
        if let (Ok(id), Some(partition), Some(sort), Some(written_us)) =
            (ChunkId::try_from(&id[..]), partition, sort, written)
        {
            looked_at += 1;
            if partition.starts_with(&link.options.namespace) {
                chunks.push(Found { id, number, partition, sort, written_us });
            }
        }
    }
    let is_cut = answer.rows_num() >= PAGE as usize;
    Ok(Page { looked_at, chunks, next: last.filter(|next| is_cut && *next <= to) })
}

async fn is_referred(shared: &Arc<Shared>, chunk: &Found) -> Result<bool, StoreError> {
    // What is read may not be what was decided: then nothing can be judged by it.
    shared.check_open()?;
    let (key, partition) = (&chunk.partition[..], shared.without_namespace(&chunk.partition));
    let pieces = crate::read::read_pieces(shared, key, &chunk.sort).await?;
    match standing(&pieces, &chunk.id) {
        Standing::Refers | Standing::Created => Ok(true),
        // A creation that reached only one replica, which then went down, must not appear after its chunks
        // are gone.
        Standing::Absent => {
            let batch = Batch::on(partition).if_absent(&chunk.sort[..]).delete(&chunk.sort[..]);
            match Writing::new(shared, &batch, None, &AtomicBool::new(false)).run().await {
                Ok(_) => Ok(false),
                Err(StoreError::Conflict(_)) => Ok(true),
                Err(error) => Err(error),
            }
        }
        Standing::Other => {
            let batch = Batch::on(partition);
            Writing::new(shared, &batch, None, &AtomicBool::new(false)).moving().run().await?;
            let pieces = crate::read::read_pieces(shared, key, &chunk.sort).await?;
            // If the cell was deleted meanwhile, the chunk is left to the next sweep.
            Ok(standing(&pieces, &chunk.id) != Standing::Other)
        }
    }
}

/// The relation of a cell to some chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It refers to them.
    Refers,
    /// The cell does not exist.
    Absent,
    /// The cell was created and refers to other chunks or to none: these may belong to another try of its
    /// creation.
    Created,
    /// The cell was written later and refers to other chunks or to none.
    Other,
}

fn standing(pieces: &[Piece], chunks: &ChunkId) -> Standing {
    let refers = |piece: &Piece| matches!(piece.head.body, Body::Chunks(id, _) if id == *chunks);
    match pieces {
        [] => Standing::Absent,
        pieces if pieces.iter().any(refers) => Standing::Refers,
        pieces if pieces.iter().any(|piece| piece.head.is_created) => Standing::Created,
        _ => Standing::Other,
    }
}

async fn delete(shared: &Shared, chunk: &Found) -> Result<(), StoreError> {
    let link = &shared.link;
    let values = vec![Bind::Big(chunk.written_us), Bind::Bytes(&chunk.id), Bind::Int(chunk.number)];
    link.write("sweeping", &link.statements.plain.delete_old_chunk, &values).await
}

/// Sweeps in each week in which no other client does, while the store is open.
pub(crate) async fn sweep_now_and_then(shared: Weak<Shared>) {
    now_and_then(|is_owed| turn(shared.clone(), is_owed).boxed()).await;
}

/// Takes one turn after the other until one returns none. Each turn receives what the previous one returned.
async fn now_and_then(mut turn: impl FnMut(bool) -> BoxFuture<'static, Option<bool>>) {
    let (mut pause, mut is_owed) = (SETTLED, false);
    loop {
        tokio::time::sleep(pause).await;
        is_owed = match turn(is_owed).await {
            Some(is_owed) => is_owed,
            None => return,
        };
        pause = LOOK_AGAIN;
    }
}

/// Sweeps if a sweep is due. A week that was claimed but not swept to the end is still owed, because no other
/// client will claim it.
async fn turn(shared: Weak<Shared>, is_owed: bool) -> Option<bool> {
    let shared = shared.upgrade().filter(|shared| !shared.is_closed())?;
    if !is_owed && claim(&shared).await != Some(true) {
        return Some(false);
    }
    let swept = sweep_ground(&Sweeping { shared: &shared, is_unasked: true }, AGE_MIN).await;
    match &swept {
        Ok(swept) => tracing::debug!(?swept, "swept"),
        Err(_) if shared.is_closed() || Arc::strong_count(&shared) == 1 => return None,
        Err(error) => tracing::warn!(%error, "a sweep ended early; it is tried again in some hours"),
    }
    Some(swept.is_err())
}

/// Claims this week's sweep in the keyspace; only one client succeeds. If the answer is lost, the claim may
/// have been made, and then nobody else makes it: this client sweeps. That two do at once is harmless.
async fn claim(shared: &Shared) -> Option<bool> {
    let link = &shared.link;
    let week = i32::try_from(shared.clock.now(link).await.ok()?.0 / 1_000_000_000 / EVERY.as_secs()).ok()?;
    let keyspace = link.options.keyspace_quoted();
    let mut read = Statement::new(format!("SELECT number FROM {keyspace}.meta WHERE name = 'swept'"));
    read.set_consistency(link.majority());
    let rows = link.session.query_unpaged(read, ()).await.ok()?.into_rows_result().ok()?;
    let before = rows.maybe_first_row::<(Option<i32>,)>().ok()?.and_then(|(number,)| number);
    if before.is_some_and(|before| before >= week) {
        return Some(false);
    }
    let mut write =
        Statement::new(format!("UPDATE {keyspace}.meta SET number = ? WHERE name = 'swept' IF number = ?"));
    write.set_execution_profile_handle(Some(link.profiles.serial.clone()));
    let answer = match link.session.query_unpaged(write, (week, before)).await {
        Ok(answer) => answer.into_rows_result().ok(),
        Err(error) if link.may_be_done(&error) => None,
        Err(_) => return None,
    };
    let row = answer.and_then(|rows| rows.first_row::<Row>().ok());
    let is_refused = row.is_some_and(|row| row.columns.first() == Some(&Some(CqlValue::Boolean(false))));
    Some(!is_refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::PieceHead;
    use futures::future::ready;
    use parking_lot::Mutex;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_store_that_stays_open_looks_for_a_sweep_again_and_again() {
        let (started, turns) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&turns);
        now_and_then(move |is_owed| {
            let mut turns = noted.lock();
            turns.push((started.elapsed().as_secs(), is_owed));
            // The second turn fails.
            let next = (turns.len() < 4).then_some(turns.len() == 2);
            ready(next).boxed()
        })
        .await;
        let hours = 6 * 3600;
        let expected = [(60, false), (60 + hours, false), (60 + 2 * hours, true), (60 + 3 * hours, false)];
        assert_eq!(*turns.lock(), expected);
        assert!(LOOK_AGAIN < EVERY, "no week goes by");
    }

    /// Values of one chunk each, to which no cell refers. For some of them that cannot be determined, and
    /// after a number of deletions the store is closed.
    struct Few {
        values: u16,
        is_told: fn(u16) -> Result<bool, ErrorKind>,
        closed_after: usize,
        deleted: Mutex<Vec<u16>>,
    }

    fn number(chunk: &Found) -> u16 {
        u16::from_be_bytes([chunk.id[14], chunk.id[15]])
    }

    impl Ground for Few {
        fn is_over(&self) -> bool {
            self.deleted.lock().len() >= self.closed_after
        }

        /// Two chunks per page; each one's token is its number.
        async fn look(&self, from: i64, to: i64) -> Result<Page, StoreError> {
            let of = |at: u16| Found {
                id: u128::from(at).to_be_bytes(),
                number: 0,
                partition: Bytes::new(),
                sort: Bytes::new(),
                written_us: i64::from(at),
            };
            let between = (0..self.values).filter(move |at| (from..=to).contains(&i64::from(*at)));
            let next = between.clone().nth(2).map(i64::from);
            let chunks: Vec<Found> = between.take(2).map(of).collect();
            Ok(Page { looked_at: chunks.len() as u64, chunks, next })
        }

        async fn is_referred(&self, chunk: &Found) -> Result<bool, StoreError> {
            (self.is_told)(number(chunk)).map_err(|kind| crate::failure::told(kind, String::new(), ""))
        }

        async fn delete(&self, chunk: &Found) -> Result<(), StoreError> {
            self.deleted.lock().push(number(chunk));
            Ok(())
        }
    }

    /// The outcome of a sweep, and what it deleted.
    fn swept(few: Few) -> (Result<(u64, usize), String>, Vec<u16>) {
        swept_from(TOKEN_FIRST, few)
    }

    fn swept_from(begin: i64, few: Few) -> (Result<(u64, usize), String>, Vec<u16>) {
        let swept = go_over(&few, begin, i64::from(u16::MAX), "here").now_or_never().unwrap();
        let ends = swept.map(|(swept, unjudged)| (swept.looked_at, unjudged));
        (ends.map_err(|error| error.to_string()), few.deleted.into_inner())
    }

    #[test]
    fn a_sweep_ends_when_its_store_is_closed() {
        let few =
            |closed_after| Few { values: 7, is_told: |_| Ok(false), closed_after, deleted: Mutex::default() };
        assert_eq!(swept(few(usize::MAX)), (Ok((7, 0)), vec![0, 1, 2, 3, 4, 5, 6]));
        let (ends, deleted) = swept(few(3));
        assert!(ends.as_ref().is_err_and(|error| error.contains("it was closed")), "{ends:?}");
        assert_eq!(deleted, [0, 1, 2]);
        assert_eq!(swept(few(0)).1, [0; 0]);
    }

    #[test]
    fn a_sweep_goes_round_the_ring_once_wherever_it_begins() {
        let few =
            |closed_after| Few { values: 7, is_told: |_| Ok(false), closed_after, deleted: Mutex::default() };
        let cases: [(i64, [u16; 7]); 5] = [
            (TOKEN_FIRST, [0, 1, 2, 3, 4, 5, 6]),
            (3, [3, 4, 5, 6, 0, 1, 2]),
            (6, [6, 0, 1, 2, 3, 4, 5]),
            (7, [0, 1, 2, 3, 4, 5, 6]),
            (i64::MAX, [0, 1, 2, 3, 4, 5, 6]),
        ];
        for (begin, order) in cases {
            assert_eq!(swept_from(begin, few(usize::MAX)), (Ok((7, 0)), order.to_vec()), "from {begin}");
        }
        assert_eq!(swept_from(5, few(3)).1, [5, 6, 0], "one that ends early has looked behind its beginning");
    }

    #[test]
    fn what_cannot_be_told_is_left_and_what_is_behind_it_is_swept() {
        let few =
            |is_told, values| Few { values, is_told, closed_after: usize::MAX, deleted: Mutex::default() };
        let one = |at| match at {
            1 => Err(ErrorKind::Unavailable),
            2 => Err(ErrorKind::Corrupt),
            at => Ok(at == 3),
        };
        assert_eq!(swept(few(one, 6)), (Ok((6, 1)), vec![0, 4, 5]));
        let (ends, deleted) = swept(few(|_| Err(ErrorKind::ReadOnly), 6));
        assert!(ends.is_err() && deleted.is_empty(), "another error ends it");
    }

    #[test]
    fn a_created_cell_keeps_the_chunks_of_every_try_of_its_creation() {
        let piece = |body, is_created| {
            let head = PieceHead { checksum: 1, bytes: 300_000, body, is_created };
            Piece { number: 0, head, sealed: None }
        };
        let (mine, other) = (Body::Chunks([1; 16], 1 << 18), Body::Chunks([2; 16], 1 << 18));
        let told = |pieces: &[Piece]| standing(pieces, &[1; 16]);
        assert_eq!(told(&[]), Standing::Absent);
        assert_eq!(told(&[piece(other, true), piece(mine, false)]), Standing::Refers);
        assert_eq!(told(&[piece(mine, true)]), Standing::Refers);
        assert_eq!(told(&[piece(other, true)]), Standing::Created);
        assert_eq!(told(&[piece(other, true), piece(Body::Inline, false)]), Standing::Created);
        assert_eq!(told(&[piece(other, false)]), Standing::Other);
    }

    #[test]
    fn a_sweep_that_is_told_of_nothing_ends() {
        let few = |values| Few {
            values,
            is_told: |_| Err(ErrorKind::Unavailable),
            closed_after: usize::MAX,
            deleted: Mutex::default(),
        };
        let most = UNJUDGED_MAX as u16;
        assert_eq!(swept(few(most)), (Ok((u64::from(most), UNJUDGED_MAX)), Vec::new()));
        assert!(swept(few(most + 1)).0.is_err(), "each may have taken as long as a request may");
    }
}

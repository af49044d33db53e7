//! Sweeping: chunks that no cell refers to, left by clients that ended between writing them and referring to
//! them, or between letting go of them and deleting them.
//!
//! Invariant: before a chunk is deleted the head of its partition moves, after the chunk was old already. So a write
//! that was begun before does not apply any more, and one that begins later does not go by chunks that are old. A
//! cell that is absent is deleted with it, above whatever a creation may have written before.
//! Invariant: a chunk that was written again since it was looked at stays, because the deletion carries the
//! timestamp of what was seen.

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

/// No write is on its way for longer than this.
pub(crate) const AGE_MIN: Duration = Duration::from_secs(86_400);

/// How often a keyspace is swept.
const EVERY: Duration = Duration::from_secs(7 * 86_400);

/// How long a store is open before it sweeps: a command that ends at once must not take the turn of a client
/// that stays.
const SETTLED: Duration = Duration::from_secs(60);

/// How often a store looks whether it is time for a sweep.
const LOOK_AGAIN: Duration = Duration::from_secs(6 * 3600);

/// Chunks looked at with one request.
const PAGE: i32 = 500;

/// Values of which a sweep keeps in mind whether they are referred to.
const KNOWN_MAX: usize = 100_000;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Chunks that are there.
    pub looked_at: u64,
    /// Chunks that nothing referred to, deleted now.
    pub deleted: u64,
}

/// A chunk and whose it is.
struct Found {
    id: ChunkId,
    number: i32,
    partition: Bytes,
    sort: Bytes,
    written_us: i64,
}

/// Deletes chunks older than `age` that no cell refers to.
pub(crate) async fn sweep(shared: &Arc<Shared>, age: Duration) -> Result<Swept, StoreError> {
    // The age of a chunk is what the clock of some node says: a sweep goes by them only if all of them agree.
    let now_us = crate::clock::of_all(&shared.link).await? / 1000;
    let oldest_us = i64::try_from(now_us.saturating_sub(age.as_micros() as u64)).unwrap_or(0);
    let mut swept = Swept::default();
    let mut from = i64::MIN + 1;
    // Chunks of one value lie on all nodes, and so on many pages.
    let mut referred: HashMap<ChunkId, bool> = HashMap::new();
    loop {
        let (page, next) = look(shared, from).await?;
        if referred.len() > KNOWN_MAX {
            referred.clear();
        }
        for chunk in page {
            swept.looked_at += 1;
            // Other stores of the keyspace look after their own.
            let Some(partition) = chunk.partition.strip_prefix(shared.link.options.namespace.as_slice())
            else {
                continue;
            };
            if chunk.written_us > oldest_us {
                continue;
            }
            let is_referred = match referred.get(&chunk.id) {
                Some(known) => *known,
                None => match is_referred(shared, partition, &chunk).await {
                    // What a damaged cell refers to nobody knows, and the chunks of others are looked at all the same.
                    Err(error) if error.kind() == ErrorKind::Corrupt => true,
                    asked => asked?,
                },
            };
            referred.insert(chunk.id, is_referred);
            if !is_referred {
                delete(shared, &chunk).await?;
                swept.deleted += 1;
            }
        }
        match next {
            Some(next) => from = next,
            None => return Ok(swept),
        }
    }
}

/// Chunks from a token on, and where to go on.
async fn look(shared: &Shared, from: i64) -> Result<(Vec<Found>, Option<i64>), StoreError> {
    let link = &shared.link;
    let answer = link.rows("sweeping", &link.statements.plain.owners, &(from, PAGE)).await?;
    type Owned = (Bytes, i32, Option<Bytes>, Option<Bytes>, Option<i64>, i64);
    let rows = answer.rows::<Owned>().map_err(|error| link.not_understood(&error))?;
    let (mut found, mut last) = (Vec::new(), None);
    for row in rows {
        let (id, number, partition, sort, written, token) =
            row.map_err(|error| link.not_understood(&error))?;
        last = token.checked_add(1);
        if let (Ok(id), Some(partition), Some(sort), Some(written_us)) =
            (ChunkId::try_from(&id[..]), partition, sort, written)
        {
            found.push(Found { id, number, partition, sort, written_us });
        }
    }
    Ok((found, last.filter(|_| answer.rows_num() >= PAGE as usize)))
}

/// Whether the cell refers to the chunk, or may do so yet.
async fn is_referred(shared: &Arc<Shared>, partition: &[u8], chunk: &Found) -> Result<bool, StoreError> {
    let key = shared.key(partition);
    let pieces = crate::read::read_pieces(shared, &key, &chunk.sort).await?;
    match standing(&pieces, &chunk.id) {
        Standing::Refers => Ok(true),
        // A creation that reached one replica, which then was down, must not appear after its chunks are gone.
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
            let pieces = crate::read::read_pieces(shared, &key, &chunk.sort).await?;
            // One that was deleted meanwhile is left to the next sweep.
            Ok(standing(&pieces, &chunk.id) != Standing::Other)
        }
    }
}

/// How a cell stands to chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It refers to them.
    Refers,
    /// It is not there.
    Absent,
    /// It is there, and refers to others or none.
    Other,
}

fn standing(pieces: &[Piece], chunks: &ChunkId) -> Standing {
    let refers = |piece: &Piece| matches!(piece.head.body, Body::Chunks(id, _) if id == *chunks);
    match pieces {
        [] => Standing::Absent,
        pieces if pieces.iter().any(refers) => Standing::Refers,
        _ => Standing::Other,
    }
}

async fn delete(shared: &Shared, chunk: &Found) -> Result<(), StoreError> {
    let link = &shared.link;
    let values = vec![Bind::Big(chunk.written_us), Bind::Bytes(&chunk.id), Bind::Int(chunk.number)];
    link.write("sweeping", &link.statements.plain.delete_old_chunk, &values).await
}

/// Sweeps each week in which nobody else does, as long as the store is open.
pub(crate) async fn sweep_now_and_then(shared: Weak<Shared>) {
    now_and_then(|is_owed| turn(shared.clone(), is_owed).boxed()).await;
}

/// Takes one turn after the other, until one says that there are to be no more. Each is told what the one before left.
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

/// Sweeps if it is time for it. A week that was claimed and not swept to the end is owed: it is nobody else's any more.
async fn turn(shared: Weak<Shared>, is_owed: bool) -> Option<bool> {
    let shared = shared.upgrade().filter(|shared| !shared.is_closed())?;
    if !is_owed && claim(&shared).await != Some(true) {
        return Some(false);
    }
    let swept = sweep(&shared, AGE_MIN).await;
    match &swept {
        Ok(swept) => tracing::debug!(?swept, "swept"),
        Err(error) => tracing::warn!(%error, "a sweep ended early; it is tried again in some hours"),
    }
    Some(swept.is_err())
}

/// Notes in the keyspace that it is being swept this week; of all clients, one succeeds.
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
    let rows = link.session.query_unpaged(write, (week, before)).await.ok()?.into_rows_result().ok()?;
    let row = rows.first_row::<Row>().ok()?;
    Some(matches!(row.columns.first(), Some(Some(CqlValue::Boolean(true)))))
}

#[cfg(test)]
mod tests {
    use super::*;
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
            // The second one breaks off.
            let next = (turns.len() < 4).then_some(turns.len() == 2);
            ready(next).boxed()
        })
        .await;
        let hours = 6 * 3600;
        let expected = [(60, false), (60 + hours, false), (60 + 2 * hours, true), (60 + 3 * hours, false)];
        assert_eq!(*turns.lock(), expected);
        assert!(LOOK_AGAIN < EVERY, "no week goes by");
    }
}

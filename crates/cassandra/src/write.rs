//! Conditional writes: one batch, applied whole, by a lightweight transaction on the head of its partition.
//!
//! A write reads the head and the cells that it needs at SERIAL, judges its conditions, and sends one
//! conditional batch: IF the head is still the one that was read, all changes apply, and a new head with the
//! number of this attempt replaces it. If the answer is lost, the same batch is sent again. It can apply only
//! while the head stands, so it applies once, and afterwards the row of the version shows who made it.
//! Finding the old head proves nothing by itself: the first try may still be in a queue.
//!
//! Invariant: a head never recurs, because each carries a random number; so a batch applies at most once,
//! however often it is sent.
//! Invariant: a write ends as refused only if none of its tries can apply any more.
//! Invariant: a write that is given up before it sent a batch, wherever it waits, lets its chunks go.

use crate::bind::Bind;
use crate::cells::RawRow;
use crate::chunks::Owner;
use crate::codec::{KIND_CELL, KIND_HEAD, KIND_REQUEST, KIND_WINNER, PartitionHead, winner_slot};
use crate::failure::{refused, waited_in_vain};
use crate::leaving::Gone;
use crate::link::{Decided, Patience};
use crate::net::half_open;
use crate::numbers;
use crate::options::REQUEST_MEMORY_MARGIN;
use crate::plan::{Judged, Plan, View, Written as WrittenChunks, judge, lay_out};
use crate::read::Moves;
use crate::recall::Known;
use crate::settle::Settling;
use crate::store::Shared;
use crate::verdict::{Attempt, Traces, Verdict, honest, lost_track, verdict};
use atoll_store::age::Moment;
use atoll_store::{Batch, Condition, Mutation, Outcome, PartitionKey, RequestId, SortKey, StoreError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How a write succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// It was applied by this call.
    Now,
    /// It had been applied before.
    Before,
}

/// How often a write starts again because other writers were faster, before it is given up.
const RACES_MAX: usize = 10_000;

/// How many heads in deleted ranges are searched for chunks; chunks beyond that are left to a sweep.
const LEFT_BEHIND_MAX: i32 = 10_000;

/// The most cells that a batch only puts or deletes and that are still read together with the cells whose
/// values it needs: for so few, a separate request would take longer than reading their values.
const OTHERS_MAX: usize = 8;

/// One write in progress.
pub(crate) struct Writing<'a> {
    shared: &'a Arc<Shared>,
    partition: PartitionKey,
    batch: &'a Batch,
    request: Option<RequestId>,
    /// Set once something was sent that may be applied.
    is_sent: &'a AtomicBool,
    /// Whether the head moves even if nothing else changes.
    must_move: bool,
    chunks: WrittenChunks,
    moves: Moves,
}

/// What a try has read.
struct Look {
    head: Option<PartitionHead>,
    view: View,
    traces: Traces,
    /// What a majority has of the creations among these cells. If that differs, what was read is not of one
    /// moment.
    settling: Settling,
}

/// How long a write is tried again.
struct TimeLeft {
    patience: Patience,
    /// Whether the outcome of any try was in doubt.
    was_in_doubt: bool,
}

impl TimeLeft {
    fn new(time_out: Duration) -> Self {
        Self { patience: Patience::new(time_out), was_in_doubt: false }
    }

    /// Begins the time anew after a lost race, unless a try was in doubt before. The cluster answers: races
    /// are limited by their number, and the time is for what has no answer. What is first in doubt after
    /// long races has to be looked for as long as what came before them; but if each lost race after a doubt
    /// began the time anew, a write whose answers are lost in turn with races would have no limit.
    fn lost_a_race(&mut self, time_out: Duration) {
        if !self.was_in_doubt {
            self.patience = Patience::new(time_out);
        }
    }

    /// Pauses and returns true, or returns false if the time is up.
    async fn goes_on(&mut self) -> bool {
        self.patience.goes_on().await
    }

    /// The same after a try whose outcome is unknown.
    async fn goes_on_in_doubt(&mut self) -> bool {
        self.was_in_doubt = true;
        self.patience.goes_on().await
    }
}

/// The outcome of a try.
enum Tried {
    Done(Done),
    Again(Option<Attempt>),
    Fails(StoreError),
}

impl<'a> Writing<'a> {
    pub(crate) fn new(
        shared: &'a Arc<Shared>,
        batch: &'a Batch,
        request: Option<RequestId>,
        is_sent: &'a AtomicBool,
    ) -> Self {
        let partition = shared.key(&batch.partition);
        let (chunks, moves) = (WrittenChunks::new(), Moves::default());
        Self { shared, partition, batch, request, is_sent, must_move: false, chunks, moves }
    }

    /// Makes the write move the head even if the batch changes nothing: a client that read the partition
    /// before must read it again.
    pub(crate) fn moving(mut self) -> Self {
        self.must_move = true;
        self
    }

    /// Writes the batch, and deletes the chunks that are not used in the end.
    pub(crate) async fn run(mut self) -> Result<Done, StoreError> {
        let lane = self.shared.lanes.writes(&self.partition);
        let (asked, time_out) = (Instant::now(), self.shared.link.options.request_time_out);
        let mut known = lane.lock().await;
        if known.is_in_vain(asked, time_out) {
            return Err(waited_in_vain(&self.shared.link.place, time_out));
        }
        let result = self.attempts(&mut known).await;
        known.ended(result.as_ref().err(), Instant::now());
        // In these cases no try was applied or can be.
        let is_refused = result.as_ref().is_err_and(|error| error.outcome() == Outcome::Refused);
        if is_refused || matches!(result, Ok(Done::Before)) {
            self.shared.let_go(self.take_chunks());
        }
        result
    }

    /// The chunks that were written for the batch.
    fn take_chunks(&mut self) -> Vec<Gone> {
        let chunks = std::mem::take(&mut self.chunks);
        chunks.into_values().map(|written| (written.id, written.count)).collect()
    }

    async fn attempts(&mut self, known: &mut Known) -> Result<Done, StoreError> {
        let mut time = TimeLeft::new(self.shared.link.options.request_time_out);
        let mut last: Option<Attempt> = None;
        let mut pause_ms = 1;
        for race in 0..RACES_MAX {
            match self.attempt(known, last, &mut time).await {
                Tried::Done(done) => return Ok(done),
                Tried::Fails(error) => {
                    known.forget();
                    return Err(error);
                }
                Tried::Again(attempt) => {
                    known.was_overtaken();
                    if race > 0 && attempt.is_none_or(|attempt| !attempt.is_doubtful) {
                        pause_ms = (pause_ms * 2).min(64);
                        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..pause_ms * 1000))).await;
                    }
                    last = attempt;
                }
            }
        }
        let lost = StoreError::Unavailable {
            place: self.shared.link.place.clone(),
            reason: format!("{RACES_MAX} tries of a write lost against others"),
            source: None,
        };
        Err(honest(last, lost))
    }

    async fn attempt(&mut self, known: &mut Known, last: Option<Attempt>, time: &mut TimeLeft) -> Tried {
        // A request id has to be looked up, and so has the outcome of an earlier try.
        let recalled = if last.is_none() && self.request.is_none() { known.recall(self.batch) } else { None };
        let is_recalled = recalled.is_some();
        let look = match recalled {
            Some((head, view)) => {
                Look { head: Some(head), view, traces: Traces::default(), settling: Settling::default() }
            }
            None => match self.look(last).await {
                Ok(look) => look,
                Err(error) => return Tried::Fails(honest(last, error)),
            },
        };
        let last = match last {
            Some(last) => match verdict(last, look.head, look.traces, self.is_remembered(last)) {
                Verdict::Applied => {
                    known.learn_head(look.head);
                    return Tried::Done(Done::Now);
                }
                Verdict::Lost => return Tried::Fails(lost_track()),
                Verdict::Dead => None,
                Verdict::Stands => Some(last),
            },
            None => None,
        };
        if look.traces.request.is_some() {
            return Tried::Done(Done::Before);
        }
        let judged = match look.settling.others.is_empty() {
            false => self.moves.unsettled(&self.shared.link, &look.settling).map(|()| None),
            true => judge(&self.shared.link, &self.partition, self.batch, &look.view).await.map(Some),
        };
        match judged {
            Err(error) => return Tried::Fails(honest(last, error)),
            Ok(Some(Judged::Conflict(_))) if is_recalled => return Tried::Again(None),
            // The last try may still be applied, if only a creation that few replicas have seen stands in its
            // way.
            Ok(Some(Judged::Conflict(conflict))) => {
                return Tried::Fails(honest(last, StoreError::Conflict(conflict)));
            }
            Ok(Some(Judged::Gone(sort, id))) => {
                let of = Owner { partition: &self.partition, sort: &sort };
                return match self.moves.gone(&self.shared.link, of, id) {
                    Ok(()) => Tried::Again(last),
                    Err(error) => Tried::Fails(honest(last, error)),
                };
            }
            Ok(None) => return Tried::Again(last),
            Ok(Some(Judged::Holds)) => {}
        }
        match self.prepare(&look, last).await {
            Ok((plan, _)) if plan.is_empty() && self.request.is_none() && !self.must_move => {
                self.without_sending(&look, last)
            }
            Ok((plan, attempt)) => self.send(known, look.view, &plan, attempt, time).await,
            Err(error) => Tried::Fails(honest(last, error)),
        }
    }

    /// Ends a try that has nothing to send, so that only what was read tells whether the conditions hold. A
    /// creation that a majority did not have when it was read came to it since; until then others may have
    /// missed it, and by then other cells may have changed. So all of it is read again.
    fn without_sending(&mut self, look: &Look, last: Option<Attempt>) -> Tried {
        if look.settling.asked == 0 {
            return Tried::Done(Done::Now);
        }
        match self.moves.again(&self.shared.link.place) {
            Ok(()) => Tried::Again(last),
            Err(error) => Tried::Fails(honest(last, error)),
        }
    }

    /// Whether the row of a request id reveals what became of a try.
    fn is_remembered(&self, last: Attempt) -> bool {
        self.request.is_some() && last.is_remembered(self.shared.link.options.request_memory)
    }

    /// Prepares the plan to send and the attempt that carries it.
    async fn prepare(&mut self, look: &Look, last: Option<Attempt>) -> Result<(Plan, Attempt), StoreError> {
        let (link, limits) = (&self.shared.link, &self.shared.limits);
        let plan = lay_out(link, &self.partition, self.batch, &look.view, limits, &mut self.chunks).await?;
        let attempt = match last.filter(|last| last.is_doubtful) {
            Some(last) => last,
            None => Attempt {
                expected: look.head,
                number: numbers::attempt()?,
                is_doubtful: false,
                since: Moment::now(),
            },
        };
        Ok((plan, attempt))
    }

    /// Sends the plan as one conditional batch.
    async fn send(
        &self,
        known: &mut Known,
        view: View,
        plan: &Plan,
        attempt: Attempt,
        time: &mut TimeLeft,
    ) -> Tried {
        let link = &self.shared.link;
        let next = attempt.next(plan.is_compound);
        let (encoded, slot) = (next.encode(), winner_slot(next.version));
        let before = attempt.expected.map(|head| head.encode());
        let p = || Bind::Bytes(&self.partition);
        let before = before.as_deref().map_or(Bind::Null, Bind::Bytes);
        let mut sendings = vec![
            (&link.statements.changes.advance, vec![Bind::Bytes(&encoded), p(), before]),
            (&link.statements.changes.note, vec![Bind::Bytes(&encoded), p(), Bind::Bytes(&slot)]),
        ];
        let request = self.request.map(request_key);
        if let Some(key) = &request {
            let seconds = (link.options.request_memory + REQUEST_MEMORY_MARGIN).as_secs();
            let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
            let values = vec![Bind::Int(seconds), Bind::Bytes(&encoded), p(), Bind::Bytes(key)];
            sendings.push((&link.statements.changes.remember, values));
        }
        sendings.extend(plan.sendings(link, &self.partition));
        let values = sendings.iter().map(|(_, values)| values.as_slice());
        if let Err(error) = crate::size::check(&self.partition, values, link.mutation_bytes_max) {
            return Tried::Fails(honest(Some(attempt), error));
        }
        self.is_sent.store(true, Ordering::SeqCst);
        match link.decide(&sendings).await {
            Decided::Applied => {
                known.learn(attempt.expected, next, view, plan);
                self.shared.let_go_later(plan.old_chunks.clone());
                Tried::Done(Done::Now)
            }
            Decided::Lost => {
                time.lost_a_race(link.options.request_time_out);
                Tried::Again(Some(attempt))
            }
            Decided::Refused(error) => Tried::Fails(honest(Some(attempt), error)),
            Decided::Passing(error) if time.goes_on().await => {
                tracing::debug!(%error, "a write is tried again");
                Tried::Again(Some(attempt))
            }
            Decided::Passing(error) => {
                Tried::Fails(honest(Some(attempt), refused(&link.place, "write", error)))
            }
            Decided::Doubtful(error) if time.goes_on_in_doubt().await => {
                tracing::debug!(%error, "a write whose outcome is unknown is sent again");
                Tried::Again(Some(Attempt { is_doubtful: true, ..attempt }))
            }
            Decided::Doubtful(error) => Tried::Fails(error),
        }
    }

    /// Reads what the batch needs, at one moment.
    async fn look(&self, last: Option<Attempt>) -> Result<Look, StoreError> {
        let link = &self.shared.link;
        let needed = needed(self.batch);
        let request = self.request.map(request_key);
        let slot = last.map(|last| winner_slot(last.version()));
        let mut names = cell_names(&needed.at_once);
        names.push((KIND_HEAD, &[]));
        names.extend(slot.as_ref().map(|slot| (KIND_WINNER, &slot[..])));
        names.extend(request.as_ref().map(|key| (KIND_REQUEST, &key[..])));
        let needs_values = needed.has_values;
        let statement =
            if needs_values { &link.statements.reads.names } else { &link.statements.reads.names_heads };
        let mut look = Look {
            head: None,
            view: View::default(),
            traces: Traces::default(),
            settling: Settling::default(),
        };
        for row in link.named(statement, &self.partition, &names, needs_values).await? {
            match row.kind {
                KIND_CELL => self.note(&mut look.view, row)?,
                kind => {
                    let head = row.head.as_deref().map(PartitionHead::decode);
                    let head = head.map(|head| {
                        head.ok_or_else(|| {
                            let of = Owner { partition: &self.partition, sort: &row.sort };
                            link.damaged(of, "the head of its partition has another form")
                        })
                    });
                    let target = match kind {
                        KIND_HEAD => &mut look.head,
                        KIND_REQUEST => &mut look.traces.request,
                        _ => &mut look.traces.winner,
                    };
                    *target = head.transpose()?;
                }
            }
        }
        if needs_values {
            let cells = &look.view.cells;
            let cells = cells.iter().map(|(sort, pieces)| (sort.as_slice(), pieces.as_slice()));
            look.settling = link.settle(&self.partition, cells).await?;
        }
        // No condition is judged by these cells. They are read after the head, so that what is found is what
        // the batch replaces if it applies to that head.
        if !needed.later.is_empty() {
            let (names, statement) = (cell_names(&needed.later), &link.statements.reads.names_glance);
            for row in link.named(statement, &self.partition, &names, false).await? {
                self.note(&mut look.view, row)?;
            }
        }
        // If so much was deleted before that the range cannot be read, it can still be deleted: a sweep finds
        // the chunks.
        look.view.left_behind = self.left_behind().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "chunks of a deleted range are left to a sweep");
            Vec::new()
        });
        Ok(look)
    }

    /// Adds a row of a cell to what was read.
    fn note(&self, view: &mut View, row: RawRow) -> Result<(), StoreError> {
        let sort = row.sort.to_vec();
        match self.shared.link.piece(&self.partition, row) {
            Ok(Some(piece)) => view.cells.entry(sort).or_default().push(piece),
            Ok(None) => {}
            // The batch replaces the cell, and a sweep finds its chunks.
            Err(_) if self.replaces(&sort) => drop(view.damaged.insert(sort)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The chunks of the cells in ranges that the batch deletes. They are read after the head, so that what
    /// is found is gone if the batch applies to that head.
    async fn left_behind(&self) -> Result<Vec<(crate::codec::ChunkId, u64)>, StoreError> {
        let link = &self.shared.link;
        let mut found = Vec::new();
        for mutation in &self.batch.mutations {
            let Mutation::DeleteRange(range) = mutation else { continue };
            if range.is_empty() {
                continue;
            }
            let (from, to) = half_open(range);
            let (kind, to) = to.map_or((KIND_HEAD, SortKey::new()), |to| (KIND_CELL, to));
            let values = (&self.partition, from, kind, to, LEFT_BEHIND_MAX);
            let answer = link.rows("reading", &link.statements.reads.range_heads, &values).await?;
            for row in crate::cells::raw_rows(link, &answer, false)? {
                found.extend(link.piece(&self.partition, row)?.and_then(|piece| piece.head.chunks()));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Whether the batch puts or deletes the cell whatever it held before.
    fn replaces(&self, sort: &[u8]) -> bool {
        let appends = |mutation: &Mutation| matches!(mutation, Mutation::Append(to, _) if to == sort);
        let is_asked = self.batch.conditions.iter().any(|condition| condition.sort() == sort);
        !is_asked && !self.batch.mutations.iter().any(appends)
    }
}

impl Drop for Writing<'_> {
    /// A caller whose deadline has passed drops the write in the middle of a step.
    fn drop(&mut self) {
        if !self.is_sent.load(Ordering::SeqCst) {
            // Not at once: some of them may still be on their way to the nodes, behind their own deletion.
            let chunks = self.take_chunks();
            self.shared.let_go_later(chunks);
        }
    }
}

/// The cells that a batch names, and how they are read.
#[derive(Debug, PartialEq, Eq)]
struct Needed<'b> {
    /// Together with the head.
    at_once: BTreeSet<&'b [u8]>,
    /// Whether these are read with their values: conditions are judged by them, and appends may join them.
    has_values: bool,
    /// After the head, without values.
    later: BTreeSet<&'b [u8]>,
}

fn needed(batch: &Batch) -> Needed<'_> {
    let mut at_once: BTreeSet<&[u8]> = batch.conditions.iter().map(Condition::sort).collect();
    let mut others = BTreeSet::new();
    for mutation in &batch.mutations {
        match mutation {
            Mutation::Append(sort, _) => drop(at_once.insert(sort)),
            Mutation::Put(sort, _) | Mutation::Delete(sort) => drop(others.insert(sort.as_slice())),
            Mutation::DeleteRange(_) => {}
        }
    }
    let has_values = !at_once.is_empty();
    let mut later: BTreeSet<&[u8]> = others.difference(&at_once).copied().collect();
    if !has_values || later.len() <= OTHERS_MAX {
        at_once.append(&mut later);
    }
    Needed { at_once, has_values, later }
}

fn cell_names<'b>(sorts: &BTreeSet<&'b [u8]>) -> Vec<(i8, &'b [u8])> {
    sorts.iter().map(|sort| (KIND_CELL, *sort)).collect()
}

/// The key of the row of a request id.
fn request_key(id: RequestId) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&id.client.to_be_bytes());
    key[16..].copy_from_slice(&id.sequence.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lost_races_begin_the_time_anew_only_while_nothing_was_in_doubt() {
        let time_out = Duration::from_secs(5);
        let mut time = TimeLeft::new(time_out);
        tokio::time::advance(Duration::from_secs(7)).await;
        time.lost_a_race(time_out);
        assert!(time.goes_on_in_doubt().await, "the races before took no time of it");
        tokio::time::advance(Duration::from_secs(4)).await;
        time.lost_a_race(time_out);
        assert!(time.goes_on().await, "a second is left");
        tokio::time::advance(Duration::from_secs(1)).await;
        time.lost_a_race(time_out);
        assert!(!time.goes_on_in_doubt().await, "the time since the first doubt is up");
    }

    #[test]
    fn of_many_cells_that_are_only_replaced_no_value_is_read() {
        let deleting = |batch| (0..100).fold(batch, |batch: Batch, sort| batch.delete([sort]));
        let fenced = deleting(
            Batch::on(b"p".to_vec())
                .if_equals(b"lease".to_vec(), b"mine".to_vec())
                .append(b"log".to_vec(), b"x".to_vec()),
        );
        let read = needed(&fenced);
        assert_eq!(read.at_once.iter().copied().collect::<Vec<_>>(), [&b"lease"[..], b"log"]);
        assert_eq!((read.has_values, read.later.len()), (true, 100));
        // Without conditions one request without values is enough.
        let plain = deleting(Batch::on(b"p"));
        assert_eq!((needed(&plain).has_values, needed(&plain).at_once.len()), (false, 100));
        // If there are few, their values are read too.
        let few = Batch::on(b"p".to_vec())
            .if_absent(b"lease".to_vec())
            .put(b"lease".to_vec(), b"mine".to_vec())
            .put(b"other".to_vec(), b"x".to_vec());
        assert_eq!((needed(&few).at_once.len(), needed(&few).later.len()), (2, 0));
    }
}

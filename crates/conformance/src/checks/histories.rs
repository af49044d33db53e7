//! Many small random histories of one partition each, each of which some sequential order must explain.

use crate::context::{Client, Context, Stop, Verdict, after, broken, ensure};
use crate::flaky::Flaky;
use crate::linearizability::{Action, Answer, Cells, Explained, Operation, explain};
use atoll_store::{Batch, Buffer, Cell, Outcome, ReadOptions, ScanRequest, StoreError, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CLIENTS: u64 = 4;
const CELLS: u8 = 3;

/// The logical clock that all clients of a history share.
type Moments = Arc<AtomicU64>;

pub(super) async fn histories_on_one_partition_are_linearizable(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    check(context, &client, context.size.of(150, 15_000)).await
}

pub(super) async fn histories_with_unknown_outcomes_are_linearizable(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let flaky = Flaky::new(client.store.clone(), context.random(u64::MAX).u64(..));
    check(context, &Client { store: Arc::new(flaky) }, context.size.of(150, 15_000)).await
}

/// Totals over the histories of a check.
#[derive(Default)]
struct Met {
    histories: u64,
    /// Histories in which a write overlapped another operation.
    overlapping: u64,
    writes: u64,
    refused: u64,
}

impl Met {
    fn add(&mut self, Recorded { history, refused }: &Recorded) {
        self.histories += 1;
        self.overlapping += u64::from(overlaps(history));
        let writes = history.iter().filter(|operation| is_write(&operation.action)).count() as u64;
        self.writes += writes + refused;
        self.refused += refused;
    }

    /// Checks that the histories prove something: operations that never overlap, or reads alone, can always
    /// be explained.
    fn says_something(&self) -> Verdict {
        let Self { histories, overlapping, writes, refused } = self;
        ensure(refused * 2 <= *writes, || {
            format!("{refused} of {writes} writes were refused, and what is left says nothing")
        })?;
        ensure(overlapping * 4 >= *histories, || {
            format!("only in {overlapping} of {histories} histories a write met another operation")
        })
    }
}

fn is_write(action: &Action) -> bool {
    !matches!(action, Action::Get(_) | Action::Scan)
}

/// Whether a write overlapped another operation of a history, which is in the order of its calls.
fn overlaps(history: &[Operation]) -> bool {
    history.iter().enumerate().any(|(at, one)| {
        let mut met = history[at + 1..].iter().take_while(|other| other.called < one.returned);
        met.any(|other| is_write(&one.action) || is_write(&other.action))
    })
}

async fn check(context: &Context<'_>, client: &Client, histories: u64) -> Verdict {
    let mut met = Met::default();
    for round in 0..histories {
        let recorded = record(context, client, round).await?;
        met.add(&recorded);
        let history = recorded.history;
        if let Explained::Never { longest } = explain(&history) {
            let shown: Vec<_> =
                history.iter().enumerate().map(|(at, one)| format!("\n  {at}: {one:?}")).collect();
            let shown = shown.concat();
            return broken(format!("history {round} has no order; the longest begins {longest:?} of{shown}"));
        }
    }
    met.says_something()
}

/// The recorded answers of a history, and the number of refused writes.
struct Recorded {
    history: Vec<Operation>,
    refused: u64,
}

async fn record(context: &Context<'_>, client: &Client, round: u64) -> Verdict<Recorded> {
    let (moments, begun) = (Moments::default(), Arc::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let caller = Caller {
                client: client.clone(),
                partition: format!("history {round}"),
                number,
                random: context.random(round * CLIENTS + number),
                moments: moments.clone(),
                begun: Arc::clone(&begun),
                is_far: round % 2 == 1,
            };
            tokio::spawn(caller.run())
        })
        .collect();
    let mut recorded = Recorded { history: Vec::new(), refused: 0 };
    for client in clients {
        let Recorded { history, refused } = client.await??;
        recorded.history.extend(history);
        recorded.refused += refused;
    }
    recorded.history.sort_by_key(|operation| operation.called);
    Ok(recorded)
}

/// One client of a history.
struct Caller {
    client: Client,
    partition: String,
    number: u64,
    random: fastrand::Rng,
    moments: Moments,
    /// How many clients have begun.
    begun: Arc<AtomicU64>,
    /// Whether its calls and their answers are delayed. Without delays, the calls of a store that never waits
    /// would not overlap on one core; with short delays, a history says more about the order of its calls.
    is_far: bool,
}

impl Caller {
    async fn run(mut self) -> Verdict<Recorded> {
        let mut recorded = Recorded { history: Vec::new(), refused: 0 };
        let mut last_seen = None;
        self.begun.fetch_add(1, Ordering::SeqCst);
        while self.begun.load(Ordering::SeqCst) < CLIENTS {
            tokio::task::yield_now().await;
        }
        for at in 0..self.random.u8(3..7) {
            let value = format!("{}{at}.", self.number);
            let action = choose(&mut self.random, value, &last_seen);
            let (there, back) = (self.way(), self.way());
            let called = self.moments.fetch_add(1, Ordering::SeqCst);
            let answer = after(there, perform(&self.client, &self.partition, &action)).await?;
            after(back, async {}).await;
            let returned = self.moments.fetch_add(1, Ordering::SeqCst);
            if let Some(Answer::Value(seen) | Answer::Conflict(seen)) = &answer {
                last_seen.clone_from(seen);
            }
            recorded.refused += u64::from(answer.is_none());
            recorded.history.extend(answer.map(|answer| Operation { action, answer, called, returned }));
            if self.random.bool() {
                tokio::task::yield_now().await;
            }
        }
        Ok(recorded)
    }

    /// For how many turns of other tasks a call or an answer is delayed.
    fn way(&mut self) -> u32 {
        if self.is_far { self.random.u32(0..3) } else { 0 }
    }
}

/// Chooses the next action. Swaps mostly expect the value seen last, so that they often succeed.
fn choose(random: &mut fastrand::Rng, value: String, last_seen: &Option<String>) -> Action {
    let cell = random.u8(0..CELLS);
    match random.u8(0..12) {
        0..=2 => Action::Get(cell),
        3..=4 => Action::Scan,
        5 => Action::Put(vec![cell], value),
        6 => Action::Put((0..CELLS).collect(), value),
        7..=8 => Action::Append(cell, value),
        9..=10 => Action::Swap(cell, last_seen.clone(), value),
        _ => Action::Delete(cell),
    }
}

/// The answer; none if the store refused, which has no effect.
async fn perform(client: &Client, partition: &str, action: &Action) -> Verdict<Option<Answer>> {
    let text = |value: &Buffer| String::from_utf8_lossy(value).into_owned();
    let on = || Batch::on(partition);
    let bytes = |value: &String| Buffer::copy_from(value.as_bytes());
    let batch = match action {
        Action::Get(cell) => {
            let read = client.store.get(Cell::new(partition, &[*cell]), ReadOptions::default()).await?;
            return Ok(Some(Answer::Value(read.as_ref().map(text))));
        }
        Action::Scan => {
            let entries = client.store.scan(ScanRequest::all(partition)).await?.entries;
            let cell = |sort: &[u8]| sort.first().copied().unwrap_or(u8::MAX);
            let cells: Cells = entries.iter().map(|entry| (cell(&entry.sort), text(&entry.value))).collect();
            return Ok(Some(Answer::Cells(cells)));
        }
        Action::Put(cells, value) => cells.iter().fold(on(), |batch, &cell| batch.put([cell], bytes(value))),
        Action::Append(cell, value) => on().append([*cell], bytes(value)),
        Action::Swap(cell, expected, value) => {
            on().if_is([*cell], expected.as_ref().map(bytes)).put([*cell], bytes(value))
        }
        Action::Delete(cell) => on().delete([*cell]),
    };
    match client.store.write(batch, WriteOptions::default()).await {
        Ok(_) => Ok(Some(Answer::Done)),
        Err(StoreError::Conflict(conflict)) => Ok(Some(Answer::Conflict(conflict.actual.as_ref().map(text)))),
        Err(error) if error.outcome() == Outcome::Unknown => Ok(Some(Answer::Unknown)),
        // Nothing happened, so there is nothing to explain. A store that serves must not refuse such a write,
        // though.
        Err(error) if error.kind().names().retry_can_help => Ok(None),
        Err(error) => Err(Stop::from(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(called: u64, returned: u64, action: Action) -> Operation {
        Operation { action, answer: Answer::Done, called, returned }
    }

    fn met(histories: Vec<(Vec<Operation>, u64)>) -> Verdict {
        let mut met = Met::default();
        histories.into_iter().for_each(|(history, refused)| met.add(&Recorded { history, refused }));
        met.says_something()
    }

    fn put(called: u64, returned: u64) -> Operation {
        operation(called, returned, Action::Put(vec![0], "a".to_owned()))
    }

    fn get(called: u64, returned: u64) -> Operation {
        operation(called, returned, Action::Get(0))
    }

    #[test]
    fn a_write_has_to_meet_another_operation_in_one_history_of_four() {
        let alone = || (vec![put(0, 1), get(2, 3)], 0);
        let reads = || (vec![put(0, 1), get(2, 5), get(3, 4)], 0);
        for meeting in [vec![put(0, 2), get(1, 3)], vec![get(0, 9), get(1, 2), put(3, 4)]] {
            assert!(met(vec![alone(), reads(), alone(), (meeting.clone(), 0)]).is_ok());
            assert!(met(vec![alone(), reads(), alone(), alone(), (meeting, 0)]).is_err());
        }
    }

    #[test]
    fn half_of_the_writes_have_to_be_answered() {
        let meeting = || vec![put(0, 2), put(1, 3), get(4, 5)];
        assert!(met(vec![(meeting(), 2)]).is_ok());
        assert!(met(vec![(meeting(), 3)]).is_err());
    }
}

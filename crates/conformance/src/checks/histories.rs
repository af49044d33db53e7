//! Many small random histories, each of one partition, each explained by some order or not at all.

use crate::context::{Client, Context, Stop, Verdict, broken};
use crate::flaky::Flaky;
use crate::linearizability::{Action, Answer, Cells, Explained, Operation, explain};
use atoll_store::{Batch, Buffer, Cell, Outcome, ReadOptions, ScanRequest, StoreError, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CLIENTS: u64 = 4;
const CELLS: u8 = 3;

/// One count of moments for all clients of a history.
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

async fn check(context: &Context<'_>, client: &Client, histories: u64) -> Verdict {
    for round in 0..histories {
        let history = record(context, client, round).await?;
        if let Explained::Never { longest } = explain(&history) {
            let shown: Vec<_> = history.iter().enumerate().map(|(at, one)| format!("\n  {at}: {one:?}")).collect();
            let shown = shown.concat();
            return broken(format!("history {round} has no order; the longest begins {longest:?} of{shown}"));
        }
    }
    Ok(())
}

async fn record(context: &Context<'_>, client: &Client, round: u64) -> Verdict<Vec<Operation>> {
    let moments = Moments::default();
    let partition = format!("history {round}");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let random = context.random(round * CLIENTS + number);
            tokio::spawn(run_client(client.clone(), partition.clone(), number, random, moments.clone()))
        })
        .collect();
    let mut history = Vec::new();
    for client in clients {
        history.extend(client.await??);
    }
    history.sort_by_key(|operation| operation.called);
    Ok(history)
}

async fn run_client(
    client: Client,
    partition: String,
    number: u64,
    mut random: fastrand::Rng,
    moments: Moments,
) -> Verdict<Vec<Operation>> {
    let mut history = Vec::new();
    let mut last_seen = None;
    for at in 0..random.u8(3..7) {
        let value = format!("{number}{at}.");
        let action = choose(&mut random, value, &last_seen);
        let called = moments.fetch_add(1, Ordering::SeqCst);
        let answer = perform(&client, &partition, &action).await?;
        let returned = moments.fetch_add(1, Ordering::SeqCst);
        if let Some(Answer::Value(seen) | Answer::Conflict(seen)) = &answer {
            last_seen.clone_from(seen);
        }
        history.extend(answer.map(|answer| Operation { action, answer, called, returned }));
        if random.bool() {
            tokio::task::yield_now().await;
        }
    }
    Ok(history)
}

/// Swaps mostly expect what was seen last, so that they often succeed.
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
        // Nothing happened, so nothing has to be explained; but a store that serves refuses no such write.
        Err(error) if error.kind().names().retry_can_help => Ok(None),
        Err(error) => Err(Stop::from(error)),
    }
}

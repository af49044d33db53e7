//! Many writers at once on one partition: no batch applied in part, none lost, none applied twice.

use crate::context::{Client, Context, Verdict, after, ensure, same};
use atoll_store::{Batch, Buffer, Cell, ReadOptions, ScanRequest, StoreError, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const CELLS: u8 = 6;

/// A batch that writes `value` to all cells.
fn everywhere(value: &[u8]) -> Batch {
    (0..CELLS).fold(Batch::on(*b"p"), |batch, cell| batch.put([cell], value))
}

/// Moves all cells from one value to the next, on the condition that all hold the former value.
async fn move_on(client: Client, writer: u8, rounds: u32) -> Verdict<u64> {
    let mut moved = 0;
    for round in 0..rounds {
        let current = client.store.get(Cell::new("p", &[0]), ReadOptions::default()).await?.unwrap_or_default();
        let next = [&[writer][..], &round.to_be_bytes()].concat();
        let batch = (0..CELLS).fold(everywhere(&next), |batch, cell| batch.if_equals([cell], current.clone()));
        match client.try_write(batch).await {
            Ok(_) => moved += 1,
            Err(StoreError::Conflict(conflict)) => ensure(conflict.condition == 0, || {
                format!("cell {} differs from cell 0, which moved with it: {conflict:?}", conflict.condition)
            })?,
            Err(error) => return Err(error.into()),
        }
        tokio::task::yield_now().await;
    }
    Ok(moved)
}

/// Checks that all cells hold the same value.
async fn look(client: &Client) -> Verdict {
    let entries = client.scan(ScanRequest::all(*b"p")).await?;
    let whole = entries.len() == usize::from(CELLS) && entries.iter().all(|entry| entry.value == entries[0].value);
    ensure(whole, || format!("a batch is seen in part: {entries:?}"))
}

pub(super) async fn a_batch_is_seen_whole_or_not_at_all(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.write(everywhere(b"start")).await?;
    for turns in 0..20 {
        let (written, seen) = futures::join!(client.write(everywhere(&[turns as u8])), after(turns, look(&client)));
        written.and(seen)?;
    }
    client.write(everywhere(b"start")).await?;
    let rounds = context.size.of(100, 20_000);
    let writers: Vec<_> =
        (0..3).map(|writer| tokio::spawn(move_on(client.clone(), writer, rounds))).collect();
    let mut seen: Verdict = Ok(());
    while seen.is_ok() && !writers.iter().all(|writer| writer.is_finished()) {
        seen = look(&client).await;
        tokio::task::yield_now().await;
    }
    let mut moved = 0;
    for writer in writers {
        moved += writer.await??;
    }
    ensure(moved > 0, || "no conditional batch out of many applied".into())?;
    seen
}

async fn append_records(client: Client, writer: u32, records: u32) -> Verdict {
    for record in 0..records {
        let bytes = [writer.to_be_bytes(), record.to_be_bytes()].concat();
        client.store.append(Cell::new("p", "log"), &bytes, WriteOptions::default()).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

pub(super) async fn concurrent_appends_are_all_kept(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    for turns in 0..8 {
        let sort = format!("after {turns} turns");
        let append = |bytes| client.store.append(Cell::new("p", &sort), bytes, WriteOptions::default());
        let (one, other) = futures::join!(append(b"1"), after(turns, append(b"1")));
        one.and(other)?;
        same(format!("two appends, the second {turns} turns late"), &client.get("p", &sort).await?, &Some(b"11".to_vec()))?;
    }
    let (writers, records) = (4, context.size.of(60, 2000));
    let tasks: Vec<_> =
        (0..writers).map(|writer| tokio::spawn(append_records(client.clone(), writer, records))).collect();
    for task in tasks {
        task.await??;
    }
    let log = client.get("p", "log").await?.unwrap_or_default();
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
    let found: Vec<_> = log.chunks(8).map(|record| record.split_at(record.len().min(4))).collect();
    for writer in 0..writers {
        let of_writer: Vec<_> =
            found.iter().filter(|(by, _)| number(by) == writer).map(|(_, record)| number(record)).collect();
        let expected: Vec<_> = (0..records).collect();
        same(format!("records of writer {writer} in the order of their acknowledgement"), &of_writer, &expected)?;
    }
    same("records in the log", &found.len(), &((writers * records) as usize))
}

async fn count_up(client: Client, rounds: u32, stop: Arc<AtomicBool>) -> Verdict<u64> {
    let cell = Cell::new("p", "counter");
    let mut counted = 0;
    for attempt in 0.. {
        if counted == u64::from(rounds) || stop.load(Ordering::Relaxed) {
            break;
        }
        ensure(attempt < rounds * 100, || format!("{counted} of {attempt} swaps were done, all others are conflicts"))?;
        let current = client.store.get(cell, ReadOptions::default()).await?;
        let number = current.as_deref().map_or("0".into(), String::from_utf8_lossy).parse().unwrap_or(0_u64);
        let next = (number + 1).to_string();
        match client.store.compare_and_swap(cell, current.as_deref(), next.as_bytes(), WriteOptions::default()).await {
            Ok(_) => counted += 1,
            Err(StoreError::Conflict(conflict)) => ensure(conflict.actual != current, || {
                format!("a swap is refused although the cell holds what was expected: {:?}", conflict.actual)
            })?,
            Err(error) => {
                stop.store(true, Ordering::Relaxed);
                return Err(error.into());
            }
        }
        tokio::task::yield_now().await;
    }
    Ok(counted)
}

pub(super) async fn concurrent_swaps_lose_no_update(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    for turns in 0..8 {
        let sort = format!("after {turns} turns");
        let swap = |value| client.store.compare_and_swap(Cell::new("p", &sort), None, value, WriteOptions::default());
        let (one, other) = futures::join!(swap(b"1"), after(turns, swap(b"2")));
        let done = usize::from(one.is_ok()) + usize::from(other.is_ok());
        same(format!("swaps of one value that were done, the second {turns} turns late"), &done, &1)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = context.size.of(50, 5000);
    let tasks: Vec<_> =
        (0..4).map(|_| tokio::spawn(count_up(client.clone(), rounds, stop.clone()))).collect();
    let mut counted = 0;
    for task in tasks {
        counted += task.await??;
    }
    let expected = Buffer::from(counted.to_string().into_bytes());
    same("the counter after all swaps", &client.get("p", "counter").await?, &Some(expected.to_vec()))
}

pub(super) async fn a_dropped_call_leaves_all_or_nothing(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.write(everywhere(b"start")).await?;
    for polls in 0..20_u8 {
        let mut writing = client.store.write(everywhere(&[polls]), WriteOptions::default());
        let mut reading = client.store.scan(ScanRequest::all(*b"p"));
        for _ in 0..polls {
            // A future may panic if it is polled again after its end.
            if futures::poll!(&mut writing).is_ready() || futures::poll!(&mut reading).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop((writing, reading));
        look(&client).await?;
        client.write(everywhere(b"after")).await?;
    }
    Ok(())
}

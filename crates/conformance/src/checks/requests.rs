//! Request ids and deadlines: a retried write is applied once, whatever happened to the first attempt.

use crate::context::{Client, Context, Verdict, after, conflict, ensure, same};
use crate::flaky::Flaky;
use atoll_store::{Batch, Buffer, Cell, ErrorKind, Outcome, ReadOptions, RequestId, StoreError, WriteOptions, Written};
use std::sync::Arc;
use std::time::Duration;

fn request(client: u128, sequence: u64) -> WriteOptions {
    WriteOptions { request: Some(RequestId { client, sequence }), ..WriteOptions::default() }
}

async fn append(client: &Client, sort: &str, bytes: &[u8], options: WriteOptions) -> Result<Written, StoreError> {
    client.store.append(Cell::new("p", sort), bytes, options).await
}

pub(super) async fn a_retried_request_is_applied_once(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    for sequence in 0..20 {
        let bytes = [b'a' + sequence];
        for retry in 0..3 {
            let written = append(&client, "a", &bytes, request(1, sequence.into())).await?;
            same(format!("whether try {retry} of request {sequence} was a repetition"), &written.repeated, &(retry > 0))?;
        }
    }
    let expected: Vec<u8> = (b'a'..b'a' + 20).collect();
    same("the cell after every request was tried three times", &client.get("p", "a").await?, &Some(expected))?;
    let swap = Batch::on(*b"p").if_absent(*b"b").put(*b"b", Buffer::copy_from(b"1"));
    client.store.write(swap.clone(), request(1, 100)).await?;
    client.put("p", "b", "2").await?;
    let retried = client.store.write(swap, request(1, 100)).await;
    ensure(retried.is_ok_and(|written| written.repeated), || {
        "the retry of a swap that was done is judged by its condition anew".into()
    })?;
    same("the cell after the retry of an old swap", &client.get("p", "b").await?, &Some(b"2".to_vec()))
}

pub(super) async fn clients_do_not_share_request_ids(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let clients = [0, 1, 2, u128::from(u64::MAX), 1 << 64, u128::MAX];
    for sequence in [0, 1, u64::MAX] {
        for number in clients {
            let written = append(&client, "a", b"x", request(number, sequence)).await?;
            ensure(!written.repeated, || format!("request {sequence} of client {number} is taken for another"))?;
        }
    }
    same("the cell after requests of many clients", &client.get("p", "a").await?, &Some(vec![b'x'; clients.len() * 3]))
}

pub(super) async fn a_refused_request_may_be_tried_again(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let swap = Batch::on(*b"p").if_equals(*b"a", Buffer::copy_from(b"1")).append(*b"a", Buffer::copy_from(b"2"));
    conflict("a swap too early", client.store.write(swap.clone(), request(1, 1)).await)?;
    client.put("p", "a", "1").await?;
    let written = client.store.write(swap.clone(), request(1, 1)).await?;
    ensure(!written.repeated, || "a request that was refused is taken for done".into())?;
    ensure(client.store.write(swap, request(1, 1)).await?.repeated, || "a request that was done is done again".into())?;
    same("the cell", &client.get("p", "a").await?, &Some(b"12".to_vec()))
}

pub(super) async fn concurrent_retries_are_applied_once(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    for turns in 0..8 {
        let one = append(&client, "b", b"x", request(2, turns));
        let other = append(&client, "b", b"x", request(2, turns));
        let (one, other) = futures::join!(one, after(turns as u32, other));
        let applied = u32::from(!one?.repeated) + u32::from(!other?.repeated);
        same(format!("tries that applied one request, the second {turns} turns late"), &applied, &1)?;
    }
    let rounds = context.size.of(50, 1000);
    for sequence in 0..rounds {
        let tries = (0..4).map(|_| {
            let client = client.clone();
            tokio::spawn(async move { append(&client, "a", b"x", request(1, sequence)).await })
        });
        let mut applied = 0;
        for attempt in tries.collect::<Vec<_>>() {
            applied += u32::from(!attempt.await??.repeated);
        }
        same(format!("tries that applied request {sequence}"), &applied, &1)?;
    }
    let found = client.get("p", "a").await?.map(|value| value.len() as u64);
    same("bytes appended, one by each request", &found, &Some(rounds))
}

pub(super) async fn retries_until_done_are_applied_once(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let flaky = Client { store: Arc::new(Flaky::new(client.store.clone(), context.random(0).u64(..))) };
    let rounds = context.size.of(100, 2000);
    let writers: Vec<_> = (0..3_u8)
        .map(|writer| {
            let flaky = flaky.clone();
            tokio::spawn(append_until_done(flaky, writer, rounds))
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    for writer in 0..3_u8 {
        let found = client.get("p", writer.to_string()).await?.unwrap_or_default();
        let expected: Vec<_> = (0..rounds).flat_map(u32::to_be_bytes).collect();
        let first = found.chunks(4).zip(expected.chunks(4)).position(|(found, expected)| found != expected);
        ensure(found == expected, || {
            format!("writer {writer}: {} bytes of {}, first difference at record {first:?}", found.len(), expected.len())
        })?;
    }
    Ok(())
}

async fn append_until_done(client: Client, writer: u8, rounds: u32) -> Verdict {
    for record in 0..rounds {
        loop {
            let options = request(writer.into(), record.into());
            match append(&client, &writer.to_string(), &record.to_be_bytes(), options).await {
                Ok(_) => break,
                Err(error) if error.outcome() == Outcome::Unknown => tokio::task::yield_now().await,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

pub(super) async fn a_deadline_ends_a_call_honestly(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    for round in 0..20_u64 {
        let (cell, sort) = (round.to_be_bytes(), round.to_string());
        let deadline = Some(Duration::from_micros(round * round));
        let options = WriteOptions { deadline, ..WriteOptions::default() };
        let result = client.store.put(Cell::new("p", &sort), &cell, options).await;
        // A read has no effect, so one that is given up counts as refused.
        let read = ReadOptions { deadline, ..ReadOptions::default() };
        if let Err(late) = client.store.get(Cell::new("p", &sort), read).await {
            same("the outcome of a read whose time ran out", &late.outcome(), &Outcome::Refused)?;
        }
        let found = client.get("p", &sort).await?;
        match result {
            Ok(_) => same("a cell put within its deadline", &found, &Some(cell.to_vec()))?,
            Err(error) if error.outcome() == Outcome::Refused => {
                same(format!("a cell whose put was refused as {}", error.kind()), &found, &None)?;
            }
            Err(error) => same("the kind of a call whose time ran out", &error.kind(), &ErrorKind::TimedOut)?,
        }
    }
    let (deadline, late) = (Some(Duration::from_secs(3600)), Cell::new("p", "in time"));
    client.store.put(late, b"x", WriteOptions { deadline, ..WriteOptions::default() }).await?;
    let read = client.store.get(late, ReadOptions { deadline, ..ReadOptions::default() }).await?;
    same("a read within its deadline", &read.as_deref(), &Some(&b"x"[..]))
}

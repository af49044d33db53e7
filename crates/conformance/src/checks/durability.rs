//! The writes that survive the end of a store, by the class at which they were acknowledged.

use crate::context::{Client, Context, Stop, Verdict, ensure, same};
use crate::subject::Ending;
use atoll_store::{Batch, Buffer, Cell, Durability, Outcome, RequestId, ScanRequest, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Skips the check if the store offers no class as strong.
fn needs(client: &Client, class: Durability) -> Verdict {
    if client.store.capabilities().durability.iter().any(|&offered| offered >= class) {
        return Ok(());
    }
    Err(Stop::Skipped(format!("the store offers nothing that is {}", class.name())))
}

/// Writes cells at the class, ends the store, opens it again and looks for them.
async fn survive(context: &Context<'_>, class: Durability, ending: Ending) -> Verdict {
    let mut client = context.open().await?;
    needs(&client, class)?;
    for round in 0..context.size.of(3, 10_u32) {
        for at in 0..30_u32 {
            let batch = Batch::on(*b"p")
                .put([round.to_be_bytes(), at.to_be_bytes()].concat(), vec![at as u8; at as usize * 50])
                .append(*b"log", at.to_be_bytes().to_vec());
            client.store.write(batch, WriteOptions::durable(class)).await?;
        }
        client.store.write(Batch::on(*b"p").delete(round.to_be_bytes()), WriteOptions::durable(class)).await?;
        client = end(context, client, ending).await?;
        let found = client.scan(ScanRequest::all(*b"p")).await?;
        same("cells after reopening", &found.len(), &(1 + 30 * (round as usize + 1)))?;
        for entry in found.iter().filter(|entry| entry.sort.len() == 8) {
            let at = entry.sort[7];
            same("a value after reopening", entry.value.as_slice(), vec![at; usize::from(at) * 50].as_slice())?;
        }
        let log = client.get("p", "log").await?.unwrap_or_default();
        let expected: Vec<u8> = (0..=round).flat_map(|_| (0..30_u32).flat_map(u32::to_be_bytes)).collect();
        same("the appended cell after reopening", &log, &expected)?;
    }
    Ok(())
}

async fn end(context: &Context<'_>, client: Client, ending: Ending) -> Verdict<Client> {
    if ending == Ending::Closed {
        client.store.close().await?;
    }
    context.reopen(client, ending).await
}

pub(super) async fn what_was_acknowledged_is_there_after_close(context: &Context<'_>) -> Verdict {
    let weakest = context.open().await?.store.capabilities().durability.first().copied();
    survive(context, weakest.unwrap_or(Durability::Buffered), Ending::Closed).await
}

pub(super) async fn what_was_flushed_survives_the_process(context: &Context<'_>) -> Verdict {
    survive(context, Durability::Flushed, Ending::Killed).await
}

pub(super) async fn what_was_synced_survives_power_loss(context: &Context<'_>) -> Verdict {
    survive(context, Durability::Synced, Ending::PowerLost).await
}

/// The progress of one writer.
#[derive(Default)]
struct Progress {
    tried: AtomicU32,
    done: AtomicU32,
}

/// Writes the same rising number into three cells at once, until told to stop or the store ends.
async fn write_on(client: Client, writer: u32, progress: Arc<Progress>, stop: Arc<AtomicBool>) -> Verdict {
    for number in 1.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        progress.tried.store(number, Ordering::SeqCst);
        let bytes = Buffer::copy_from(&number.to_be_bytes());
        let batch = (0..3_u8).fold(Batch::on(writer.to_be_bytes()), |batch, cell| batch.put([cell], bytes.clone()));
        match client.store.write(batch, WriteOptions::durable(Durability::Flushed)).await {
            Ok(_) => progress.done.store(number, Ordering::SeqCst),
            Err(error) if error.outcome() == Outcome::Unknown || error.kind().names().retry_can_help => break,
            Err(error) => return Err(error.into()),
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

pub(super) async fn batches_are_not_torn_by_a_crash(context: &Context<'_>) -> Verdict {
    let mut client = context.open().await?;
    needs(&client, Durability::Flushed)?;
    for _ in 0..context.size.of(3, 20) {
        let stop = Arc::new(AtomicBool::new(false));
        let progress: Vec<_> = (0..3).map(|_| Arc::new(Progress::default())).collect();
        let writers: Vec<_> = (0_u32..)
            .zip(&progress)
            .map(|(writer, progress)| tokio::spawn(write_on(client.clone(), writer, progress.clone(), stop.clone())))
            .collect();
        while progress.iter().any(|progress| progress.done.load(Ordering::SeqCst) < 10)
            && !writers.iter().any(|writer| writer.is_finished())
        {
            tokio::task::yield_now().await;
        }
        // Writes acknowledged by now must be there; later ones, made while the store dies, may be.
        let done: Vec<_> = progress.iter().map(|progress| progress.done.load(Ordering::SeqCst)).collect();
        client = context.reopen(client, Ending::Killed).await?;
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await??;
        }
        for (writer, (progress, done)) in (0_u32..).zip(progress.iter().zip(done)) {
            is_between(&client, writer, done, progress.tried.load(Ordering::SeqCst)).await?;
            client.store.delete_partition(&writer.to_be_bytes(), WriteOptions::default()).await?;
        }
    }
    Ok(())
}

async fn is_between(client: &Client, writer: u32, done: u32, tried: u32) -> Verdict {
    let entries = client.scan(ScanRequest::all(writer.to_be_bytes())).await?;
    let whole = entries.len() == 3 && entries.iter().all(|entry| entry.value == entries[0].value);
    ensure(whole, || format!("writer {writer}: a batch is there in part after the crash: {entries:?}"))?;
    let found = entries[0].value.iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
    ensure((done..=tried).contains(&found), || {
        format!("writer {writer}: found {found} after the crash, {done} was acknowledged and {tried} the last tried")
    })
}

pub(super) async fn request_ids_survive_with_their_writes(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    needs(&client, Durability::Flushed)?;
    let options = |sequence| WriteOptions {
        request: Some(RequestId { client: 5, sequence }),
        ..WriteOptions::durable(Durability::Flushed)
    };
    let cell = Cell::new("p", "a");
    for sequence in 0..10 {
        client.store.append(cell, b"x", options(sequence)).await?;
    }
    let client = context.reopen(client, Ending::Killed).await?;
    for sequence in 0..10 {
        let written = client.store.append(cell, b"x", options(sequence)).await?;
        ensure(written.repeated, || format!("request {sequence} is applied again after the store was opened again"))?;
    }
    same("the cell after all retries", &client.get("p", "a").await?, &Some(vec![b'x'; 10]))?;
    a_retry_is_as_durable_as_it_says(context, client).await
}

/// A write made at the weakest class and retried at a stronger one survives what the stronger class survives.
async fn a_retry_is_as_durable_as_it_says(context: &Context<'_>, client: Client) -> Verdict {
    let cell = Cell::new("p", "retried");
    for class in [Durability::Buffered, Durability::Flushed] {
        let request = Some(RequestId { client: 6, sequence: 0 });
        let options = WriteOptions { request, ..WriteOptions::durable(class) };
        let written = client.store.append(cell, b"x", options).await?;
        ensure(written.durability >= class, || format!("asked for {class:?}, answered {written:?}"))?;
    }
    let client = context.reopen(client, Ending::Killed).await?;
    same("a cell written twice, the second time flushed", &client.get("p", "retried").await?, &Some(vec![b'x']))
}

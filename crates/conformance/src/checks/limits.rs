//! Limits: the largest allowed size works; one more is refused, and nothing is written.

use crate::context::{Client, Context, Verdict, ensure, refused, same};
use atoll_store::{Batch, Buffer, Cell, ErrorKind, Expectation, ReadOptions, ScanRequest, WriteOptions};
use std::time::Duration;

async fn is_empty(client: &Client, partition: &[u8]) -> Verdict {
    let found = client.scan(ScanRequest::all(partition)).await?.len();
    same("cells written by a refused call", &found, &0)
}

fn zeroes(len: usize) -> Buffer {
    Buffer::build(len, |_| ())
}

pub(super) async fn keys_are_limited(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let limits = client.store.capabilities().limits;
    let options = WriteOptions::default;
    let (partition, sort) = (vec![b'p'; limits.partition_key_bytes], vec![0xff; limits.sort_key_bytes]);
    client.put(&partition, &sort, "longest").await?;
    same("the cell with the longest keys", &client.get(&partition, &sort).await?, &Some(b"longest".to_vec()))?;
    let scanned = client.scan(ScanRequest::all(partition.clone())).await?;
    ensure(scanned.len() == 1 && scanned[0].sort == sort, || "a scan does not find the longest keys".into())?;

    let too_long = [partition, vec![b'p']].concat();
    let cell = Cell::new(&too_long, "a");
    refused("put with a partition key too long", client.store.put(cell, b"x", options()).await, ErrorKind::Limit)?;
    refused("get with a partition key too long", client.store.get(cell, ReadOptions::default()).await, ErrorKind::Limit)?;
    let scan = client.store.scan(ScanRequest::all(too_long.clone())).await;
    refused("scan with a partition key too long", scan, ErrorKind::Limit)?;

    let too_long = [sort, vec![0]].concat();
    let cell = Cell::new("p", &too_long);
    refused("put with a sort key too long", client.store.put(cell, b"x", options()).await, ErrorKind::Limit)?;
    refused("get with a sort key too long", client.store.get(cell, ReadOptions::default()).await, ErrorKind::Limit)?;
    refused("delete with a sort key too long", client.store.delete(cell, options()).await, ErrorKind::Limit)?;
    let wait = client.store.wait(cell, Expectation::Equals(None), Duration::ZERO).await;
    refused("wait with a sort key too long", wait, ErrorKind::Limit)?;

    let nameless = Cell::new("", "a");
    let put = client.store.put(nameless, b"x", options()).await;
    refused("put with an empty partition key", put, ErrorKind::InvalidInput)?;
    let get = client.store.get(nameless, ReadOptions::default()).await;
    refused("get with an empty partition key", get, ErrorKind::InvalidInput)?;
    is_empty(&client, b"p").await
}

pub(super) async fn batches_are_limited(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let limits = client.store.capabilities().limits;
    let of = |count: usize, partition: &[u8]| {
        (1..count).fold(Batch::on(partition), |batch, at| batch.put(at.to_be_bytes(), zeroes(1))).if_absent(*b"none")
    };
    client.write(of(limits.batch_operations, b"most")).await?;
    let found = client.scan(ScanRequest::all(*b"most")).await?.len();
    same("cells of the largest batch", &found, &(limits.batch_operations - 1))?;
    let more = client.try_write(of(limits.batch_operations + 1, b"p")).await;
    refused("a batch of too many operations", more, ErrorKind::Limit)?;
    is_empty(&client, b"p").await?;

    // The two keys, of one byte each, count among the bytes of the batch.
    let half = limits.batch_bytes / 2 - 1;
    client.write(Batch::on(*b"full").put(*b"a", zeroes(half)).put(*b"b", zeroes(half))).await?;
    let more = client.try_write(Batch::on(*b"p").put(*b"a", zeroes(half)).put(*b"b", zeroes(half + 1))).await;
    refused("a batch of too many bytes", more, ErrorKind::Limit)?;
    is_empty(&client, b"p").await?;

    let alone = (limits.batch_bytes + 1).min(limits.value_bytes as usize);
    let swap = Batch::on(*b"alone").if_absent(*b"a").put(*b"a", zeroes(alone));
    client.write(swap).await?;
    let read = client.store.get(Cell::new("alone", "a"), ReadOptions::default()).await?;
    same("length of a value larger than a batch", &read.map(|value| value.len()), &Some(alone))
}

pub(super) async fn values_are_limited(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let most = client.store.capabilities().limits.value_bytes as usize;
    let more = zeroes(most + 1);
    let put = client.try_write(Batch::on(*b"p").put(*b"a", more.clone())).await;
    refused("a value too large", put, ErrorKind::Limit)?;
    is_empty(&client, b"p").await?;
    let largest = more.slice(..most);
    client.write(Batch::on(*b"p").put(*b"a", largest)).await?;
    let grown = client.store.append(Cell::new("p", "a"), b"x", WriteOptions::default()).await;
    refused("an append beyond the largest value", grown, ErrorKind::Limit)?;
    let in_steps = Batch::on(*b"p").put(*b"b", zeroes(1)).append(*b"a", zeroes(1));
    refused("a batch with an append beyond the largest value", client.try_write(in_steps).await, ErrorKind::Limit)?;
    same("a cell put by a refused batch", &client.get("p", "b").await?, &None)?;
    let last = ReadOptions { range: atoll_store::ByteRange::new(most as u64 - 1, 10), ..ReadOptions::default() };
    let read = client.store.get(Cell::new("p", "a"), last).await?;
    same("the last byte of the largest value", &read.as_deref(), &Some(&[0][..]))
}

pub(super) async fn values_in_conditions_are_limited(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let most = client.store.capabilities().limits.condition_bytes;
    client.write(Batch::on(*b"p").put(*b"a", zeroes(most))).await?;
    client.write(Batch::on(*b"p").if_equals(*b"a", zeroes(most)).put(*b"b", zeroes(0))).await?;
    let more = Batch::on(*b"p").if_equals(*b"a", zeroes(most + 1)).put(*b"c", zeroes(0));
    refused("a value in a condition too large", client.try_write(more).await, ErrorKind::Limit)?;
    same("a cell put by a refused batch", &client.get("p", "c").await?, &None)?;
    let cell = Cell::new("p", "a");
    client.store.wait(cell, Expectation::Equals(Some(zeroes(most))), Duration::ZERO).await?;
    let wait = client.store.wait(cell, Expectation::Differs(Some(zeroes(most + 1))), Duration::ZERO).await;
    refused("a wait for a value too large", wait, ErrorKind::Limit).map(drop)
}

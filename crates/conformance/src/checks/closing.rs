//! Closing: a closed store refuses every call.

use crate::context::{Context, Verdict, broken, ensure, refused};
use atoll_store::{
    Batch, Buffer, Cell, ErrorKind, Expectation, PartitionQuery, Read, ReadOptions, ScanRequest, WriteOptions,
};
use futures::StreamExt;
use std::time::Duration;

pub(super) async fn a_closed_store_refuses_every_call(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.put("p", "a", "1").await?;
    let store = &client.store;
    store.close().await?;
    store.close().await?;
    let (cell, kind) = (Cell::new("p", "a"), ErrorKind::Unavailable);
    refused("get after close", store.get(cell, ReadOptions::default()).await, kind)?;
    refused("write after close", store.write(Batch::on(*b"p").delete(*b"a"), WriteOptions::default()).await, kind)?;
    refused("create after close", store.create(cell, Buffer::from(b"1".as_slice()), WriteOptions::default()).await, kind)?;
    refused("scan after close", store.scan(ScanRequest::all(*b"p")).await, kind)?;
    refused("wait after close", store.wait(cell, Expectation::Differs(None), Duration::ZERO).await, kind)?;
    refused("listing after close", store.partition_keys(PartitionQuery::prefix(*b"")).await, kind)?;
    refused("splits after close", store.splits(2).await, kind)?;
    refused("place after close", store.place(b"p").await, kind)?;
    refused("now after close", store.now().await, kind)?;
    refused("sync after close", store.sync().await, kind)?;
    let many: Vec<_> = store.get_many(vec![Read::new(*b"p", *b"a"); 2]).collect().await;
    ensure(many.len() == 2, || format!("two reads after close are answered {} times", many.len()))?;
    for (_, read) in many {
        refused("get_many after close", read, kind)?;
    }
    Ok(())
}

pub(super) async fn closing_ends_waits(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let waits: Vec<_> = (0..10)
        .map(|at| {
            let store = client.store.clone();
            tokio::spawn(async move {
                let sort = at.to_string();
                store.wait(Cell::new("p", &sort), Expectation::Differs(None), Duration::from_secs(3600)).await
            })
        })
        .collect();
    tokio::task::yield_now().await;
    client.store.close().await?;
    for wait in waits {
        let Ok(ended) = tokio::time::timeout(Duration::from_secs(6), wait).await else {
            return broken("a wait under way does not end when the store is closed");
        };
        refused("a wait under way when the store is closed", ended?, ErrorKind::Unavailable)?;
    }
    Ok(())
}

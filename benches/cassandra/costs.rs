//! What calls of the contract cost on Cassandra: requests to the cluster, as counted by its nodes, and
//! time. Also how many lightweight transactions a second are possible, in one partition and over many.
//!
//! Requests are those of all connections except the one that reads the counts; the driver's keep-alive
//! requests are measured first and subtracted. The same calls go to a folder, to help users who choose
//! between the two.

use super::{NAME, session};
use crate::peers::EngineError;
use atoll_store::{
    Batch, Buffer, Cell, Expectation, Read, ReadOptions, ScanRequest, Store, StoreError, WriteOptions,
};
use futures::StreamExt;
use futures::future::try_join_all;
use scylla::client::session::Session;
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Calls of each kind; requests and times are per call.
const CALLS: usize = 200;
/// How many partitions the calls go to in turn.
const PARTITIONS: usize = 20;
/// How long transactions are counted.
const COUNTED: Duration = Duration::from_secs(8);
/// How many writers run at once, for the figure over all partitions and for that of one contended cell.
const WRITERS: usize = 64;
/// How long the idle request rate is measured.
const IDLE: Duration = Duration::from_secs(3);
const SMALL: [u8; 100] = [7; 100];
const LARGE_BYTES: usize = 1 << 20;

/// One operation of the contract.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    Get,
    GetOfAbsent,
    GetOfCreated,
    GetManyOfTwenty,
    Put,
    CompareAndSwap,
    Append,
    Delete,
    BatchOfTen,
    Create,
    CreateOfOneMebibyte,
    GetOfOneMebibyteCreated,
    PutOfOneMebibyte,
    ScanOfAHundred,
    WaitThatIsMet,
    PartitionKeys,
    DeletePartition,
    Now,
}

const OPERATIONS: [Operation; 18] = [
    Operation::Get,
    Operation::GetOfAbsent,
    Operation::GetOfCreated,
    Operation::GetManyOfTwenty,
    Operation::Put,
    Operation::CompareAndSwap,
    Operation::Append,
    Operation::Delete,
    Operation::BatchOfTen,
    Operation::Create,
    Operation::CreateOfOneMebibyte,
    Operation::GetOfOneMebibyteCreated,
    Operation::PutOfOneMebibyte,
    Operation::ScanOfAHundred,
    Operation::WaitThatIsMet,
    Operation::PartitionKeys,
    Operation::DeletePartition,
    Operation::Now,
];

/// What a call costs.
#[derive(Serialize)]
struct Cost {
    operation: Operation,
    calls: usize,
    requests: f64,
    milliseconds: f64,
}

/// All results, as the Python half reads them.
#[derive(Serialize)]
struct Costs {
    operations: Vec<Cost>,
    /// Transactions a second of one writer in one partition.
    one_writer: f64,
    /// The same when all writers compete for one cell of one partition.
    one_cell: f64,
    /// The same when each writer has its own partition.
    all: f64,
}

/// Measures all costs on the store at this URL or in this folder and writes them to `out`. Requests are
/// counted at the nodes at `contacts`, if there are any.
pub async fn costs(url: &str, contacts: Option<&str>, out: &Path) -> Result<(), EngineError> {
    let store = crate::counts::open(Path::new(url)).await?;
    let meter = Meter::of(contacts).await?;
    prepare(store.as_ref()).await?;
    let idle = meter.idle().await?;
    let mut operations = Vec::with_capacity(OPERATIONS.len());
    for operation in OPERATIONS {
        operations.push(cost(store.as_ref(), &meter, idle, operation).await?);
    }
    let one_writer = transactions(&store, 1, |_| "alone".to_owned()).await?;
    let one_cell = transactions(&store, WRITERS, |_| "wanted".to_owned()).await?;
    let all = transactions(&store, WRITERS, |writer| format!("own-{writer}")).await?;
    let costs = Costs { operations, one_writer, one_cell, all };
    std::fs::write(out, serde_json::to_string(&costs)?)?;
    store.close().await?;
    Ok(())
}

/// Reads how many client requests the node has counted; without a node there are none.
struct Meter {
    session: Option<Session>,
}

impl Meter {
    async fn of(contacts: Option<&str>) -> Result<Self, EngineError> {
        let session = match contacts {
            Some(contacts) => Some(session(contacts).await?),
            None => None,
        };
        Ok(Self { session })
    }

    async fn requests(&self) -> Result<u64, EngineError> {
        let Some(session) = &self.session else { return Ok(0) };
        let query = "SELECT request_count, client_options FROM system_views.clients";
        let rows = session.query_unpaged(query, &[]).await?.into_rows_result()?;
        let mut sum = 0;
        for row in rows.rows::<(i64, Option<HashMap<String, String>>)>()? {
            let (requests, options) = row?;
            let name = options.and_then(|mut options| options.remove("APPLICATION_NAME"));
            sum += if name.as_deref() == Some(NAME) { 0 } else { u64::try_from(requests)? };
        }
        Ok(sum)
    }

    /// Requests a second while no calls are made.
    async fn idle(&self) -> Result<f64, EngineError> {
        if self.session.is_none() {
            return Ok(0.0);
        }
        let (before, started) = (self.requests().await?, Instant::now());
        tokio::time::sleep(IDLE).await;
        Ok(self.requests().await?.saturating_sub(before) as f64 / started.elapsed().as_secs_f64())
    }
}

async fn cost(
    store: &dyn Store,
    meter: &Meter,
    idle: f64,
    operation: Operation,
) -> Result<Cost, EngineError> {
    let mut times = Vec::with_capacity(CALLS);
    let (before, started) = (meter.requests().await?, Instant::now());
    for turn in 0..CALLS {
        let called = Instant::now();
        call(store, operation, turn).await?;
        times.push(called.elapsed().as_secs_f64() * 1e3);
    }
    let unasked = idle * started.elapsed().as_secs_f64();
    let sent = meter.requests().await?.saturating_sub(before) as f64 - unasked;
    times.sort_by(f64::total_cmp);
    Ok(Cost { operation, calls: CALLS, requests: sent / CALLS as f64, milliseconds: times[CALLS / 2] })
}

fn small() -> Buffer {
    Buffer::from(SMALL.as_slice())
}

fn large() -> Buffer {
    Buffer::from([7; LARGE_BYTES].as_slice())
}

/// Writes the data that the calls read.
async fn prepare(store: &dyn Store) -> Result<(), StoreError> {
    let options = WriteOptions::default;
    for partition in (0..PARTITIONS).map(|number| format!("costs-{number}")) {
        let mut batch = Batch::on(partition.as_str());
        for sort in 0..100 {
            batch = batch.put(format!("present-{sort:03}"), SMALL.as_slice());
        }
        store.write(batch, options()).await?;
        store.create(Cell::new(partition.as_str(), "created"), small(), options()).await?;
        store.create(Cell::new(partition.as_str(), "large"), large(), options()).await?;
        store.put(Cell::new(format!("gone-{partition}").as_str(), "cell"), &SMALL, options()).await?;
    }
    Ok(())
}

async fn call(store: &dyn Store, operation: Operation, turn: usize) -> Result<(), StoreError> {
    let partition = format!("costs-{}", turn % PARTITIONS);
    let partition = partition.as_str();
    let (linearizable, options) = (ReadOptions::default(), WriteOptions::default());
    let immutable = ReadOptions { immutable: true, ..linearizable };
    let fresh = format!("fresh-{turn}");
    let present = Cell::new(partition, "present-000");
    let own = Cell::new(partition, fresh.as_str());
    match operation {
        Operation::Get => store.get(present, linearizable).await.map(drop),
        Operation::GetOfAbsent => store.get(Cell::new(partition, "absent"), linearizable).await.map(drop),
        Operation::GetOfCreated => store.get(Cell::new(partition, "created"), immutable).await.map(drop),
        Operation::GetManyOfTwenty => {
            let read = |number| Read { immutable: true, ..Read::new(format!("costs-{number}"), "created") };
            let mut answers = store.get_many((0..PARTITIONS).map(read).collect());
            while let Some((_, answer)) = answers.next().await {
                answer?;
            }
            Ok(())
        }
        Operation::Put => store.put(present, &SMALL, options).await.map(drop),
        Operation::CompareAndSwap => {
            store.compare_and_swap(present, Some(&SMALL), &SMALL, options).await.map(drop)
        }
        Operation::Append => store.append(Cell::new(partition, "appended"), &SMALL, options).await.map(drop),
        Operation::Delete => store.delete(Cell::new(partition, "present-099"), options).await.map(drop),
        Operation::BatchOfTen => {
            let batch = Batch::on(partition).if_equals("present-000", small());
            let put = |batch: Batch, sort| batch.put(format!("present-{sort:03}"), SMALL.as_slice());
            store.write((10..20).fold(batch, put), options).await.map(drop)
        }
        Operation::Create => store.create(own, small(), options).await.map(drop),
        Operation::CreateOfOneMebibyte => {
            let own = format!("large-{turn}");
            store.create(Cell::new(partition, own.as_str()), large(), options).await.map(drop)
        }
        Operation::GetOfOneMebibyteCreated => {
            store.get(Cell::new(partition, "large"), immutable).await.map(drop)
        }
        Operation::PutOfOneMebibyte => {
            store.put(Cell::new(partition, "changing"), &[7; LARGE_BYTES], options).await.map(drop)
        }
        Operation::ScanOfAHundred => {
            store.scan(ScanRequest { limit: 100, ..ScanRequest::all(partition) }).await.map(drop)
        }
        Operation::WaitThatIsMet => {
            let expected = Expectation::Equals(Some(small()));
            store.wait(present, expected, Duration::from_secs(1)).await.map(drop)
        }
        Operation::PartitionKeys => {
            store.partition_keys(atoll_store::PartitionQuery::prefix("costs-1")).await.map(drop)
        }
        Operation::DeletePartition => {
            store.delete_partition(format!("gone-{partition}").as_bytes(), options).await.map(drop)
        }
        Operation::Now => store.now().await.map(drop),
    }
}

/// Compare-and-swaps a second by so many writers; lost ones are retried and counted once.
async fn transactions(
    store: &Arc<dyn Store>,
    writers: usize,
    partition: impl Fn(usize) -> String,
) -> Result<f64, EngineError> {
    let started = Instant::now();
    let each = (0..writers).map(|writer| {
        let (store, partition) = (Arc::clone(store), partition(writer));
        async move { tokio::spawn(count_up(store, partition, started)).await? }
    });
    let done: u64 = try_join_all(each).await?.into_iter().sum();
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

async fn count_up(store: Arc<dyn Store>, partition: String, started: Instant) -> Result<u64, EngineError> {
    let cell = Cell::new(partition.as_str(), "counter");
    let mut done = 0_u64;
    let mut known = store.get(cell, ReadOptions::default()).await?;
    while started.elapsed() < COUNTED {
        let next = (known.as_deref().map_or(0, count) + 1).to_be_bytes();
        match store.compare_and_swap(cell, known.as_deref(), &next, WriteOptions::default()).await {
            Ok(_) => {
                done += 1;
                known = Some(Buffer::from(next.as_slice()));
            }
            Err(StoreError::Conflict(conflict)) => known = conflict.actual,
            // Under contention some calls time out; reading again tells their outcome.
            Err(_) => known = store.get(cell, ReadOptions::default()).await?,
        }
    }
    Ok(done)
}

fn count(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_be_bytes)
}

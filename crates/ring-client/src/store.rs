//! The store: limits and deadlines in front of the calls, and the state that they share.

use crate::nodes::Nodes;
use crate::options::RingOptions;
use crate::sending::{Sending, SentAt};
use crate::session::Names;
use crate::{listing, request, scan, wait};
use atoll_keyspace::{REQUESTS_MAX, SESSION_MS_MIN, slot_of};
use atoll_resp::Value;
use atoll_store::watch::Watches;
use atoll_store::{
    Batch, Buffer, ByteRange, Capabilities, Cell, Conflict, Durability, Expectation, Limits, Outcome,
    PartitionPage, PartitionQuery, Place, Read, ReadOptions, ScanPage, ScanRequest, Split, Store, StoreError,
    StoreFuture, StoreStream, Timestamp, Waited, WriteOptions, Written, within,
};
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Requests in flight beyond which a node gains nothing.
const PARALLELISM: usize = 64;

/// A store on a ring of nodes.
///
/// It works inside the tokio runtime in which it was opened.
#[derive(Clone)]
pub struct RingStore {
    shared: Arc<Shared>,
}

/// The state that all calls of one store share.
pub(crate) struct Shared {
    pub(crate) nodes: Nodes,
    pub(crate) limits: Limits,
    pub(crate) watches: Watches,
    names: Names,
    /// The latest time that a node reported.
    latest: AtomicU64,
    is_closed: AtomicBool,
}

impl RingStore {
    /// Connects to the ring.
    ///
    /// # Errors
    /// `unavailable` if no node answers, or those that do stay full for as long as a call goes on;
    /// `unauthenticated` if the token is wrong.
    pub async fn open(options: RingOptions) -> Result<Self, StoreError> {
        let watches = Watches::new(options.waiters_max);
        let nodes = Nodes::new(options);
        nodes.begin().await?;
        nodes.ask_durability().await?;
        let shared = Shared {
            nodes,
            limits: Limits::CONTRACT,
            watches,
            names: Names::default(),
            latest: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        };
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl Shared {
    pub(crate) fn unavailable(&self, reason: &str) -> StoreError {
        StoreError::Unavailable { place: self.nodes.place.clone(), reason: reason.to_owned(), source: None }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn check_open(&self) -> Result<(), StoreError> {
        match self.is_closed() {
            true => Err(StoreError::closed(self.nodes.place.clone())),
            false => Ok(()),
        }
    }

    fn capabilities(&self) -> Capabilities {
        let durability = self.nodes.durability();
        Capabilities {
            limits: self.limits,
            durability: vec![durability],
            durability_default: durability,
            cheap_scans_across_large_values: true,
            waiters_max: self.nodes.options.waiters_max,
            wait_latency: Duration::from_micros(300),
            parallelism_best: PARALLELISM,
            round_trip: Duration::from_micros(200),
            request_memory: Duration::from_millis(SESSION_MS_MIN),
            // This many of each client, at each slot.
            request_memory_count: REQUESTS_MAX,
        }
    }

    pub(crate) async fn get(&self, cell: Cell<'_>, range: ByteRange) -> Result<Option<Buffer>, StoreError> {
        self.limits.check_cell(cell)?;
        self.check_open()?;
        let request = request::get(cell.partition, cell.sort, range);
        match self.nodes.read("get", cell.partition, &request).await? {
            Value::Null => Ok(None),
            Value::String(bytes) => Ok(Some(Buffer::from(bytes))),
            _ => Err(self.nodes.odd("get")),
        }
    }

    async fn write(&self, batch: Batch, options: WriteOptions) -> Result<Written, StoreError> {
        self.limits.check_batch(&batch)?;
        self.check_open()?;
        if self.nodes.options.read_only {
            return Err(StoreError::ReadOnly { place: self.nodes.place.clone() });
        }
        // The node that gets it is asked what it keeps: nodes may have been started with different classes.
        let sending = Sending::of(options.durability.unwrap_or(Durability::Buffered));
        let sending = match options.request {
            Some(_) => sending.named(SentAt::now()),
            None => sending,
        };
        let writing = async {
            let (_name, request) = match options.request {
                Some(request) => (None, request::batch(&batch, request, 0)?),
                None => {
                    let name = self.names.take(slot_of(&batch.partition)).await;
                    let request = request::batch(&batch, name.request, name.request.sequence)?;
                    (Some(name), request)
                }
            };
            self.nodes.write(&batch.partition, &request, &sending).await
        };
        let answer =
            within(options.deadline, ("write", &self.nodes.place), || sending.may_be_done(), writing).await;
        let outcome = answer.and_then(|answer| {
            // Whether an unnamed write was sent twice does not matter to the caller.
            let repeated = self.outcome(&batch, &answer)? && options.request.is_some();
            Ok(Written { durability: sending.keeps(), repeated })
        });
        outcome.map_err(|error| match error {
            // An earlier try may still be under way, and a condition that failed now may hold by then.
            error if sending.is_doubtful() && error.outcome() == Outcome::Refused => {
                let reason = format!("an earlier attempt was not answered, and the last one failed: {error}");
                StoreError::Unknown { what: "write", reason, source: Some(Arc::new(error)) }
            }
            error => error,
        })
    }

    /// Whether a write had been done before, from a node's answer.
    fn outcome(&self, batch: &Batch, answer: &Value) -> Result<bool, StoreError> {
        let Value::Array(parts) = answer else { return Err(self.nodes.odd("write")) };
        match &parts[..] {
            [Value::Integer(repeated), Value::Simple(_)] => Ok(*repeated != 0),
            [Value::Integer(_), Value::Array(parts)] => Err(self.conflict(batch, parts)),
            _ => Err(self.nodes.odd("write")),
        }
    }

    fn conflict(&self, batch: &Batch, parts: &[Value]) -> StoreError {
        let [Value::Integer(place), actual, Value::Integer(length)] = parts else {
            return self.nodes.odd("write");
        };
        let place = usize::try_from(*place).unwrap_or(usize::MAX);
        let Some(condition) = batch.conditions.get(place) else { return self.nodes.odd("write") };
        let actual =
            if let Value::String(bytes) = actual { Some(Buffer::from(bytes.as_slice())) } else { None };
        let conflict = Conflict {
            condition: place,
            sort: condition.sort().to_vec(),
            actual,
            actual_bytes: length.unsigned_abs(),
        };
        StoreError::Conflict(Box::new(conflict))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.check_open()?;
        let answer = self.nodes.ask("clock", &[b"TIME"]).await?;
        let Value::Array(parts) = &answer else { return Err(self.nodes.odd("clock")) };
        let number = |part: Option<&Value>| std::str::from_utf8(part?.bytes()?).ok()?.parse::<u64>().ok();
        match (number(parts.first()), number(parts.get(1))) {
            (Some(seconds), Some(microseconds)) => {
                let now =
                    seconds.saturating_mul(1_000_000_000).saturating_add(microseconds.saturating_mul(1000));
                Ok(Timestamp(now.max(self.latest.fetch_max(now, Ordering::AcqRel))))
            }
            _ => Err(self.nodes.odd("clock")),
        }
    }
}

impl Store for RingStore {
    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities()
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            let reading = self.shared.get(cell, options.range);
            // A read changes nothing, so an abandoned one did not happen.
            within(options.deadline, ("get", &self.shared.nodes.place), || false, reading).await
        })
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        let shared = &self.shared;
        let answers = stream::iter(reads.into_iter().enumerate()).map(move |(at, read)| async move {
            (at, shared.get(Cell::new(&read.partition, &read.sort), read.range).await)
        });
        answers.buffer_unordered(PARALLELISM).boxed()
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(async move { self.shared.write(batch, options).await })
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        Box::pin(async move {
            self.shared.check_open()?;
            scan::page(&self.shared, request).await
        })
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        Box::pin(async move {
            self.shared.limits.check_cell(cell)?;
            self.shared.limits.check_expectation(&expectation)?;
            self.shared.check_open()?;
            wait::wait(&self.shared, cell, expectation, time_out).await
        })
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        Box::pin(async move {
            self.shared.check_open()?;
            listing::page(&self.shared, query).await
        })
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        Box::pin(async move {
            self.shared.check_open()?;
            listing::splits(&self.shared, readers)
        })
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        Box::pin(async move {
            self.shared.limits.check_partition(partition)?;
            self.shared.check_open()?;
            Ok(listing::place(&self.shared, slot_of(partition)))
        })
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        Box::pin(self.shared.now())
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        // Every acknowledgement has the durability of the ring already.
        Box::pin(async move { self.shared.check_open() })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.shared.is_closed.store(true, Ordering::SeqCst);
            self.shared.watches.close();
            self.shared.nodes.close();
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests;

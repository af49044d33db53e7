//! Many callers in one program: each makes one call after the other with Atoll's own client.
//!
//! Invariant: a caller uses only its own keys, so the right answer to each call is known.

use crate::client::{Choice, Model, Operation, Outcome, Pieces, Tally, Usage};
use atoll_ring_client::{LatencyClass, RingOptions, RingStore};
use atoll_store::{Batch, Cell, ReadOptions, Store, StoreError, WriteOptions};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The system started no threads.
    #[error("cannot start the callers")]
    Threads(#[from] io::Error),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] StoreError),
    /// A caller ended early.
    #[error("a caller ended early")]
    Ended(#[from] tokio::task::JoinError),
}

/// The callers of one store.
pub struct Callers {
    runtime: tokio::runtime::Runtime,
    store: RingStore,
    processes: Vec<u32>,
    pieces: Arc<Pieces>,
    each: Vec<Caller>,
}

struct Caller {
    /// Its number, and how many callers there are: its keys are those whose index modulo the count is its
    /// number.
    number: u32,
    callers: u32,
    /// The expected contents of its keys, in order.
    model: Model,
}

/// The operations of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMix {
    /// Always the same operation.
    Only(Operation),
    /// A set or a get with equal probability.
    SetOrGet,
}

/// The load of all callers.
#[derive(Clone, Copy)]
struct Task {
    wanted: CallMix,
    /// When answers begin to count and when callers stop; without it, every key is used once.
    times: Option<(Instant, Instant)>,
    seed: u64,
}

impl Callers {
    /// Callers of a ring that holds none of their keys, all of one class.
    pub fn of(
        (addresses, processes): (&[SocketAddr], Vec<u32>),
        latency: LatencyClass,
        (callers, keys): (u32, u32),
    ) -> Result<Self, CallError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let seeds = addresses.iter().map(SocketAddr::to_string).collect();
        let store = runtime.block_on(RingStore::open(RingOptions { latency, ..RingOptions::of(seeds) }))?;
        let model = |number| Model::empty(keys.saturating_sub(number).div_ceil(callers));
        let each = (0..callers).map(|number| Caller { number, callers, model: model(number) }).collect();
        Ok(Self { runtime, store, processes, pieces: Arc::new(Pieces::seeded(3)), each })
    }

    /// Lets all of them make calls; returns the outcome.
    pub fn run(&mut self, wanted: CallMix, choice: Choice, seed: u64) -> Result<Outcome, CallError> {
        let each = std::mem::take(&mut self.each);
        let Self { runtime, store, processes, pieces, .. } = &*self;
        let start = Instant::now();
        let times = match choice {
            Choice::Random { warm, measured } => Some((start + warm, start + warm + measured)),
            Choice::EachOnce => None,
        };
        let mut tally = Tally::between(times);
        let task = Task { wanted, times, seed };
        let (outcome, each) = runtime.block_on(async {
            let started: Vec<_> = each
                .into_iter()
                .map(|caller| tokio::spawn(caller.run(store.clone(), Arc::clone(pieces), task)))
                .collect();
            let mut usage = None;
            if let Some((from, until)) = times {
                tokio::time::sleep_until(from.into()).await;
                let before = Usage::now(processes);
                tokio::time::sleep_until(until.into()).await;
                usage = Some(before.since(processes));
            }
            let mut each = Vec::new();
            for caller in started {
                let (caller, counted) = caller.await??;
                tally.add(counted);
                each.push(caller);
            }
            let usage = usage.unwrap_or_else(|| Usage::now(processes).since(processes));
            let seconds = tally.seconds();
            Ok::<_, CallError>((Outcome::of(usage, tally, seconds), each))
        })?;
        self.each = each;
        Ok(outcome)
    }
}

impl Caller {
    async fn run(
        mut self,
        store: RingStore,
        pieces: Arc<Pieces>,
        task: Task,
    ) -> Result<(Self, Tally), StoreError> {
        let mut tally = Tally::between(task.times);
        let mut random = fastrand::Rng::with_seed(task.seed << 32 | u64::from(self.number));
        let own = self.model.keys();
        let mut place = 0;
        loop {
            let sent_at = Instant::now();
            let is_over = task.times.map_or(place >= own, |(_, until)| sent_at >= until);
            if is_over || own == 0 {
                return Ok((self, tally));
            }
            let chosen = if task.times.is_some() { random.u32(..own) } else { place };
            place += 1;
            let operation = match task.wanted {
                CallMix::Only(operation) => operation,
                CallMix::SetOrGet if random.bool() => Operation::Set,
                CallMix::SetOrGet => Operation::Get,
            };
            self.ask(&store, &pieces, operation, chosen, &mut tally).await?;
            tally.count(sent_at, Instant::now(), 1);
        }
    }

    /// Makes one call about one of its keys.
    async fn ask(
        &mut self,
        store: &RingStore,
        pieces: &Pieces,
        operation: Operation,
        place: u32,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        let key = place * self.callers + self.number;
        let name = Pieces::key(key);
        if operation == Operation::Set {
            let piece = pieces.piece(key, self.model.set(place));
            let batch = Batch::on(name).put(*b"", piece.as_slice());
            return store.write(batch, WriteOptions::default()).await.map(drop);
        }
        let found = store.get(Cell::new(&name, b""), ReadOptions::default()).await?;
        let (held, bytes) = (self.model.held(place), found.as_deref().unwrap_or_default());
        if !pieces.is_held(key, held, bytes) {
            tally.wrong(|| format!("key {key} holds {} bytes, and not {held:?}", bytes.len()));
        }
        Ok(())
    }
}

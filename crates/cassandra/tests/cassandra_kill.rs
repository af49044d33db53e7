//! Histories on three nodes of which one is killed under load: every partition stays linearizable, and no
//! outcome is reported wrongly as done or refused. They include creations, some of whose programs end
//! halfway.
//!
//! Needs a cluster of three nodes: `ATOLL_CASSANDRA`, `ATOLL_CASSANDRA_NODES=3`, and in
//! `ATOLL_CASSANDRA_CONTROL` the program that kills and starts a node (`PROGRAM cassandra kill 2`).
//! `KILL_SEED=n` sets the seed, `KILL_OPERATIONS=n` the length.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;

use atoll_conformance::linearizability::{Action, Answer, Explained, Operation, explain};
use atoll_conformance::{Relay, Relayed, SharedStore};
use atoll_store::{
    Batch, Buffer, Cell, ErrorKind, Outcome, ReadOptions, ScanPage, ScanRequest, Store, StoreError,
    StoreFuture, WriteOptions,
};
use common::{Namespaces, contacts};
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PARTITIONS: usize = 20;
const CELLS: u8 = 3;
/// Cells from this number on are created, each by a single call.
const CREATED: u8 = 10;
/// The number of programs, each with a store of its own.
const STORES: usize = 3;
const CLIENTS_OF_A_STORE: usize = 3;

/// The state that all clients share.
struct Run {
    /// A counter that orders the moments of all clients.
    moments: AtomicU64,
    definite: AtomicU64,
    refused: AtomicU64,
    stop: AtomicBool,
    histories: Vec<Mutex<Vec<Operation>>>,
    /// The number of creations begun in each partition.
    created: Vec<AtomicU64>,
}

#[test]
fn histories_stay_linearizable_while_a_node_is_killed() {
    let Some(contacts) = contacts() else { return };
    let control = std::env::var("ATOLL_CASSANDRA_CONTROL").ok();
    let is_three = std::env::var("ATOLL_CASSANDRA_NODES").is_ok_and(|nodes| nodes == "3");
    let (Some(control), true) = (control, is_three) else {
        println!("SKIPPED [cassandra-nodes] needs three nodes and ATOLL_CASSANDRA_CONTROL to kill one");
        return;
    };
    let seed = number("KILL_SEED", 7);
    let operations = number("KILL_OPERATIONS", 3000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let run = runtime.block_on(record(contacts, control, seed, operations));
    judge(&run, seed);
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn record(contacts: Vec<String>, control: String, seed: u64, operations: u64) -> Arc<Run> {
    let namespaces = Namespaces::new(contacts, "conformance");
    let namespace = namespaces.fresh();
    let run = Arc::new(Run {
        moments: AtomicU64::new(0),
        definite: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        histories: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
        created: (0..PARTITIONS).map(|_| AtomicU64::new(0)).collect(),
    });
    let mut clients = Vec::new();
    for store_number in 0..STORES {
        let store = namespaces.open_as(namespace.clone()).await.expect("three nodes answer");
        for client in 0..CLIENTS_OF_A_STORE {
            let number = (store_number * CLIENTS_OF_A_STORE + client) as u64;
            let random = fastrand::Rng::with_seed(seed.wrapping_mul(1000) + number);
            clients.push(tokio::spawn(work(Arc::clone(&run), store.clone(), number, random)));
        }
    }
    // Each third of the run has one node down, a different one each time.
    for (node, share) in [("2", 1), ("3", 4), ("1", 7)] {
        reach(&run, operations * share / 10).await;
        steer(&control, "kill", node).await;
        reach(&run, operations * (share + 2) / 10).await;
        steer(&control, "start", node).await;
    }
    reach(&run, operations).await;
    run.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    run
}

/// Waits until this many operations have a definite answer.
async fn reach(run: &Run, operations: u64) {
    let started = tokio::time::Instant::now();
    while run.definite.load(Ordering::SeqCst) < operations {
        assert!(
            started.elapsed() < Duration::from_secs(240),
            "the cluster does not serve with one node down"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn steer(control: &str, verb: &str, node: &str) {
    let (control, arguments) =
        (control.to_owned(), ["cassandra".to_owned(), verb.to_owned(), node.to_owned()]);
    let what = format!("{control} {}", arguments.join(" "));
    let status = tokio::task::spawn_blocking(move || Command::new(control).args(arguments).status()).await;
    assert!(status.unwrap().unwrap().success(), "{what}");
}

async fn work(run: Arc<Run>, store: SharedStore, number: u64, mut random: fastrand::Rng) {
    let mut last_seen = None;
    for at in 0_u64.. {
        if run.stop.load(Ordering::SeqCst) {
            return;
        }
        let partition = random.usize(0..PARTITIONS);
        let action = choose(&mut random, format!("{number}-{at}."), &last_seen, &run.created[partition]);
        let is_creation = matches!(&action, Action::Swap(CREATED.., ..));
        // Some programs end halfway, between one replica and the next.
        let patience = Duration::from_micros(match is_creation && random.u8(0..3) == 0 {
            true => random.u64(500..12_000),
            false => u64::MAX >> 20,
        });
        let called = run.moments.fetch_add(1, Ordering::SeqCst);
        let name = format!("history {partition}");
        let answer = tokio::time::timeout(patience, perform(&store, &name, &action)).await;
        let answer = answer.unwrap_or(Some(Answer::Unknown));
        let returned = run.moments.fetch_add(1, Ordering::SeqCst);
        let Some(answer) = answer else {
            run.refused.fetch_add(1, Ordering::SeqCst);
            continue;
        };
        if answer != Answer::Unknown {
            run.definite.fetch_add(1, Ordering::SeqCst);
        }
        if let Answer::Value(seen) | Answer::Conflict(seen) = &answer {
            last_seen.clone_from(seen);
        }
        run.histories[partition].lock().unwrap().push(Operation { action, answer, called, returned });
    }
}

fn choose(
    random: &mut fastrand::Rng,
    value: String,
    last_seen: &Option<String>,
    created: &AtomicU64,
) -> Action {
    let cell = random.u8(0..CELLS);
    let number = created.load(Ordering::SeqCst) as u8;
    match random.u8(0..16) {
        12..=13 if number < 100 => {
            Action::Swap(CREATED + created.fetch_add(1, Ordering::SeqCst) as u8, None, value)
        }
        // The newest creations are those that may be at a minority.
        14..=15 if number > 0 => Action::Get(CREATED + number - 1 - random.u8(0..number.min(4))),
        0..=3 => Action::Get(cell),
        4 => Action::Scan,
        5..=6 => Action::Put(vec![cell], value),
        7 => Action::Put((0..CELLS).collect(), value),
        8 => Action::Append(cell, value),
        9..=10 => Action::Swap(cell, last_seen.clone(), value),
        _ => Action::Delete(cell),
    }
}

/// Leaves out calls that were refused because nodes are down: there is nothing to explain. Any other refusal
/// is a failure, because damage that appears when a node dies would otherwise vanish from the history
/// together with the calls that met it.
fn refused(error: &StoreError) -> Option<Answer> {
    assert!(error.kind() == ErrorKind::Unavailable, "a right call is refused as {}: {error}", error.kind());
    None
}

/// The answer; none if the store refused the call, which then has no effect.
async fn perform(store: &SharedStore, partition: &str, action: &Action) -> Option<Answer> {
    let text = |value: &Buffer| String::from_utf8_lossy(value).into_owned();
    let on = || Batch::on(partition);
    let bytes = |value: &String| Buffer::copy_from(value.as_bytes());
    let batch = match action {
        Action::Get(cell) => {
            return match store.get(Cell::new(partition, &[*cell]), ReadOptions::default()).await {
                Ok(read) => Some(Answer::Value(read.as_ref().map(text))),
                Err(error) => refused(&error),
            };
        }
        Action::Scan => {
            let cells = |page: ScanPage| {
                page.entries.iter().map(|entry| (entry.sort[0], text(&entry.value))).collect()
            };
            return match store.scan(ScanRequest::all(partition)).await {
                Ok(page) => Some(Answer::Cells(cells(page))),
                Err(error) => refused(&error),
            };
        }
        Action::Swap(cell @ CREATED.., _, value) => {
            let cell = Cell::new(partition, std::slice::from_ref(cell));
            return match store.create(cell, bytes(value), WriteOptions::default()).await {
                Ok(_) => Some(Answer::Done),
                Err(error) if error.outcome() == Outcome::Unknown => Some(Answer::Unknown),
                Err(StoreError::Conflict(conflict)) => panic!("created twice: {conflict:?}"),
                Err(error) => refused(&error),
            };
        }
        Action::Put(cells, value) => cells.iter().fold(on(), |batch, &cell| batch.put([cell], bytes(value))),
        Action::Append(cell, value) => on().append([*cell], bytes(value)),
        Action::Swap(cell, expected, value) => {
            on().if_is([*cell], expected.as_ref().map(bytes)).put([*cell], bytes(value))
        }
        Action::Delete(cell) => on().delete([*cell]),
    };
    match store.write(batch, WriteOptions::default()).await {
        Ok(_) => Some(Answer::Done),
        Err(StoreError::Conflict(conflict)) => Some(Answer::Conflict(conflict.actual.as_ref().map(text))),
        Err(error) if error.outcome() == Outcome::Unknown => Some(Answer::Unknown),
        Err(error) => refused(&error),
    }
}

/// Removes writes whose outcome is unknown and whose value was never read. Each value is written by only one
/// operation, so an order that explains the answers also does so without these; with them, the search would
/// try all their subsets.
fn without_unseen(mut history: Vec<Operation>) -> Vec<Operation> {
    let mut seen = String::new();
    for operation in &history {
        match &operation.answer {
            Answer::Value(value) | Answer::Conflict(value) => seen.extend(value.as_deref()),
            Answer::Cells(cells) => seen.extend(cells.values().map(String::as_str)),
            Answer::Done | Answer::Unknown => continue,
        }
        seen.push('|');
    }
    let is_seen = |action: &Action| match action {
        Action::Put(_, value) | Action::Append(_, value) | Action::Swap(_, _, value) => {
            seen.contains(value.as_str())
        }
        Action::Get(_) | Action::Scan | Action::Delete(_) => true,
    };
    history.retain(|operation| operation.answer != Answer::Unknown || is_seen(&operation.action));
    history
}

fn judge(run: &Run, seed: u64) {
    let mut unknown = 0;
    for (partition, history) in run.histories.iter().enumerate() {
        let mut history = history.lock().unwrap().clone();
        history.sort_by_key(|operation| operation.called);
        unknown += history.iter().filter(|operation| operation.answer == Answer::Unknown).count();
        let history = without_unseen(history);
        if let Explained::Never { longest } = explain(&history) {
            let shown: Vec<_> =
                history.iter().enumerate().map(|(at, one)| format!("\n  {at}: {one:?}")).collect();
            let shown = shown.concat();
            panic!("seed {seed}: partition {partition} has no order; the longest is {longest:?} of{shown}");
        }
    }
    let definite = run.definite.load(Ordering::SeqCst);
    let refused = run.refused.load(Ordering::SeqCst);
    println!(
        "linearizable: {definite} definite operations over {PARTITIONS} partition keys, {unknown} unknown, \
         {refused} refused, three nodes killed one after the other, seed {seed}"
    );
    assert!(definite >= 2000, "only {definite} operations had a definite answer");
    assert!(refused * 10 < definite, "{refused} operations were refused, {definite} were not");
}

/// A store of which every tenth read fails.
struct Failing {
    inner: SharedStore,
    reads: AtomicU64,
    how: fn() -> StoreError,
}

impl Relay for Failing {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        let how = self.how;
        match self.reads.fetch_add(1, Ordering::SeqCst) % 10 {
            9 => Box::pin(async move { Err(how()) }),
            _ => self.inner.get(cell, options),
        }
    }
}

/// How many of twenty reads through a failing store count as refused.
async fn refused_of_twenty(how: fn() -> StoreError) -> usize {
    let inner = Arc::new(atoll_memory::MemoryStore::new());
    let store: SharedStore = Arc::new(Relayed(Failing { inner, reads: AtomicU64::new(0), how }));
    let mut refused = 0;
    for _ in 0..20 {
        refused += usize::from(perform(&store, "p", &Action::Get(1)).await.is_none());
    }
    refused
}

#[tokio::test]
async fn a_store_that_cannot_serve_now_is_no_violation() {
    let how = || StoreError::Unavailable { place: "here".to_owned(), reason: String::new(), source: None };
    assert_eq!(refused_of_twenty(how).await, 2);
}

#[tokio::test]
#[should_panic(expected = "a right call is refused as corrupt")]
async fn damage_that_a_read_meets_is_not_left_out_of_the_history() {
    refused_of_twenty(|| StoreError::Remote {
        kind: ErrorKind::Corrupt,
        unknown: false,
        message: "a chunk of its value is gone".to_owned(),
        hint: None,
    })
    .await;
}

//! Three nodes: which node is asked, which errors are reported when some are down or have a wrong clock, and
//! how the ring is divided.
//!
//! Needs the same as `cassandra_kill.rs`: three nodes, and the program that kills and starts one.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;

use atoll_cassandra::{CassandraStore, Options};
use atoll_store::{
    Buffer, Cell, ErrorKind, Outcome, PartitionQuery, Place, Read, ReadOptions, Split, Store, WriteOptions,
};
use common::{Namespaces, Paused, contacts};
use futures::StreamExt;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::Command;
use std::time::Duration;

/// Nodes are stopped and started, so the tests of this file take turns.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const PARTITIONS: usize = 600;

/// The three nodes, and the program that kills and starts them.
struct Nodes {
    contacts: Vec<String>,
    control: String,
}

impl Nodes {
    fn there() -> Option<Self> {
        let contacts = contacts()?;
        let control = std::env::var("ATOLL_CASSANDRA_CONTROL").ok();
        if let (Some(control), true) = (control, contacts.len() == 3) {
            return Some(Self { contacts, control });
        }
        println!("SKIPPED [cassandra-nodes] needs three nodes and ATOLL_CASSANDRA_CONTROL to kill one");
        None
    }

    fn steer(&self, words: &[&str]) {
        let status = Command::new(&self.control).arg("cassandra").args(words).status();
        assert!(status.unwrap().success(), "{words:?}");
    }

    /// Starts whatever nodes a failed test left down.
    fn all_up(&self) {
        ["1", "2", "3"].iter().for_each(|number| self.steer(&["start", number]));
    }

    fn namespaces(&self) -> Namespaces {
        Namespaces::new(self.contacts.clone(), "conformance")
    }

    /// The address of the node with this number, counted from 1.
    fn address(&self, number: usize) -> String {
        self.contacts[number - 1].rsplit_once(':').unwrap().0.to_owned()
    }

    /// The requests that programs named `atoll` have sent to each node since they connected.
    async fn requests(&self) -> Vec<i64> {
        let mut all = Vec::new();
        for contact in &self.contacts {
            let session = alone(contact).await;
            let query = "SELECT request_count, client_options FROM system_views.clients";
            let rows = session.query_unpaged(query, ()).await.unwrap().into_rows_result().unwrap();
            let of_atoll = rows.rows::<(i64, Option<HashMap<String, String>>)>().unwrap().map(Result::unwrap);
            let is_atoll = |options: &HashMap<String, String>| {
                options.get("APPLICATION_NAME").is_some_and(|name| name == "atoll")
            };
            let counts = of_atoll.filter(|(_, options)| options.as_ref().is_some_and(is_atoll));
            all.push(counts.map(|(count, _)| count).sum());
        }
        all
    }
}

/// A session that asks only one node: its own state is in tables of its own.
async fn alone(contact: &str) -> Session {
    use scylla::client::execution_profile::ExecutionProfile;
    use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
    let target =
        SingleTargetLoadBalancingPolicy::new(NodeIdentifier::NodeAddress(contact.parse().unwrap()), None);
    let profile = ExecutionProfile::builder()
        .load_balancing_policy(target)
        .consistency(scylla::statement::Consistency::One)
        .build();
    let builder =
        SessionBuilder::new().known_node(contact).default_execution_profile_handle(profile.into_handle());
    builder.build().await.unwrap()
}

async fn keys_of(store: &CassandraStore, split: Option<&Split>) -> Vec<Vec<u8>> {
    let mut query = PartitionQuery { split: split.cloned(), limit: 100, ..PartitionQuery::prefix("") };
    let mut keys = Vec::new();
    loop {
        let page = store.partition_keys(query.clone()).await.unwrap();
        keys.extend(page.partitions);
        query.resume = page.resume;
        if query.resume.is_none() {
            return keys;
        }
    }
}

fn value_of(key: &[u8]) -> Buffer {
    Buffer::from(key.repeat(20))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_hold_every_partition_once_and_a_reader_of_one_asks_the_node_beside_it() {
    let Some(nodes) = Nodes::there() else { return };
    let _turn = TURN.lock().await;
    nodes.all_up();
    let (namespaces, beside) = (nodes.namespaces(), nodes.address(2));
    let namespace = namespaces.fresh();
    let writer = CassandraStore::open(namespaces.options(namespace.clone())).await.unwrap();
    let expected: BTreeSet<Vec<u8>> =
        (0..PARTITIONS).map(|at| format!("partition {at}").into_bytes()).collect();
    let creations = futures::stream::iter(&expected).map(|key| {
        let writer = &writer;
        async move { writer.create(Cell::new(key, ""), value_of(key), WriteOptions::default()).await.unwrap() }
    });
    assert_eq!(creations.buffer_unordered(32).count().await, PARTITIONS);

    let options = Options { beside: Some(beside.parse().unwrap()), ..namespaces.options(namespace) };
    let reader = CassandraStore::open(options).await.unwrap();
    for readers in [1, 3, 8] {
        let splits = reader.splits(readers).await.unwrap();
        let (mut seen, mut places) = (Vec::new(), BTreeMap::<String, usize>::new());
        for split in &splits {
            let keys = keys_of(&reader, Some(split)).await;
            for key in &keys {
                assert_eq!(reader.place(key).await.unwrap(), split.place, "{readers} readers");
            }
            *places.entry(format!("{:?}", split.place)).or_default() += keys.len();
            seen.extend(keys);
        }
        println!("{readers} readers, {} splits: {places:?}", splits.len());
        assert_eq!(
            (seen.len(), seen.iter().cloned().collect::<BTreeSet<_>>()),
            (PARTITIONS, expected.clone())
        );
        assert_eq!(places.len(), 3, "every node has a share: {places:?}");
    }

    // The split of the node next to this reader is listed and read without any request to the other nodes.
    let splits = reader.splits(3).await.unwrap();
    let here: Vec<&Split> = splits.iter().filter(|split| split.place == Place::Here).collect();
    let before = nodes.requests().await;
    let mut count = 0;
    for split in here {
        let keys = keys_of(&reader, Some(split)).await;
        let reads = keys.iter().map(|key| Read { immutable: true, ..Read::new(key.clone(), *b"") }).collect();
        for (at, read) in reader.get_many(reads).collect::<Vec<_>>().await {
            assert_eq!(read.unwrap(), Some(value_of(&keys[at])));
            count += 1;
        }
    }
    let after = nodes.requests().await;
    let asked: Vec<i64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    println!("{count} cells of the split of {beside} were read by requests to each node: {asked:?}");
    assert!(count > 50, "{count} cells");
    // The driver keeps its connections alive and refreshes its metadata now and then.
    assert!(asked[1] >= count && asked[0] < 20 && asked[2] < 20, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_down_at_the_start_are_named_and_do_no_harm_while_a_majority_is_there() {
    let Some(nodes) = Nodes::there() else { return };
    let _turn = TURN.lock().await;
    nodes.all_up();
    let namespaces = nodes.namespaces();
    let quick = |namespace: Vec<u8>| Options {
        connect_time_out: Duration::from_secs(5),
        request_time_out: Duration::from_secs(2),
        ..namespaces.options(namespace)
    };
    let namespace = namespaces.fresh();
    drop(CassandraStore::open(quick(namespace.clone())).await.unwrap());
    nodes.steer(&["kill", "2"]);
    let down = Options { contacts: vec![nodes.contacts[1].clone()], ..quick(namespace.clone()) };
    let error = CassandraStore::open(down).await.err().unwrap();
    println!("{error} [{:?}]", error.hint());
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&nodes.contacts[1]) && error.hint().is_some(), "{error}");

    let store = CassandraStore::open(quick(namespace.clone())).await.unwrap();
    store.put(Cell::new("p", "a"), b"1", WriteOptions::default()).await.unwrap();
    nodes.steer(&["kill", "3"]);
    // The first node notices within seconds; until then the outcome of a write is unknown.
    let started = tokio::time::Instant::now();
    loop {
        let error = store.put(Cell::new("p", "a"), b"2", WriteOptions::default()).await.unwrap_err();
        println!("{error} [{:?}]", error.hint());
        assert!(error.hint().is_some(), "{error}");
        if error.to_string().contains("alive") {
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Unavailable, Outcome::Refused),
                "{error}"
            );
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "nobody noticed that two nodes are down");
    }
    let error = store.now().await.unwrap_err();
    println!("{error} [{:?}]", error.hint());
    assert!(error.to_string().contains(&format!("only {} answers", nodes.address(1))), "{error}");
    nodes.all_up();
    let read = store.get(Cell::new("p", "a"), ReadOptions::default()).await.unwrap();
    assert!([&b"1"[..], b"2"].contains(&read.as_deref().unwrap()), "{read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_whose_clock_is_far_off_is_named_and_costs_leases_alone() {
    let Some(nodes) = Nodes::there() else { return };
    let _turn = TURN.lock().await;
    nodes.all_up();
    let namespaces = nodes.namespaces();
    nodes.steer(&["kill", "2"]);
    nodes.steer(&["start", "2", "--clock-ahead", "3600"]);
    let options =
        Options { request_time_out: Duration::from_secs(3), ..namespaces.options(namespaces.fresh()) };
    let store = CassandraStore::open(options).await.unwrap();
    let error = store.now().await.unwrap_err();
    println!("{error} [{:?}]", error.hint());
    assert!(error.to_string().contains(&format!("node {} is", nodes.address(2))), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("clock")), "{error}");
    // No clock decides which of two writes counts. Cassandra itself drops messages to a node whose clock is
    // that far ahead, so some requests end without an answer; the answers that arrive are true.
    let cell = Cell::new("p", "a");
    let mut possible = vec![None];
    let mut done = 0;
    for value in 0..30_u8 {
        match store.put(cell, &[value], WriteOptions::default()).await {
            Ok(_) => {
                possible = vec![Some(value)];
                done += 1;
            }
            Err(error) if error.outcome() == Outcome::Unknown => possible.push(Some(value)),
            Err(_) => {}
        }
        if let Ok(read) = store.get(cell, ReadOptions::default()).await {
            let read = read.map(|read| read[0]);
            assert!(possible.contains(&read), "{read:?} is read, and only {possible:?} can be");
        }
    }
    println!("{done} of 30 writes were acknowledged beside a node whose clock is an hour ahead");
    assert!(done > 0);
    nodes.steer(&["kill", "2"]);
    nodes.steer(&["start", "2"]);
    store.now().await.unwrap();
    let read = store.get(cell, ReadOptions::default()).await.unwrap().map(|read| read[0]);
    assert!(possible.contains(&read), "{read:?} is left, and only {possible:?} can be");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_was_ahead_is_believed_once_it_is_set_right() {
    let Some(nodes) = Nodes::there() else { return };
    let Ok(folder) = std::env::var("ATOLL_CASSANDRA_FOLDER") else {
        println!("SKIPPED [cassandra-nodes] ATOLL_CASSANDRA_FOLDER names no cluster whose clocks can be set");
        return;
    };
    let _turn = TURN.lock().await;
    nodes.all_up();
    let namespaces = nodes.namespaces();
    nodes.steer(&["kill", "2"]);
    nodes.steer(&["start", "2", "--clock-ahead", "3600"]);
    let store = CassandraStore::open(namespaces.options(namespaces.fresh())).await.unwrap();
    let error = store.now().await.unwrap_err();
    assert!(error.to_string().contains(&format!("node {} is", nodes.address(2))), "{error}");
    // The node goes on running, and has told the later time before.
    std::fs::write(format!("{folder}/node-2/clock-is-right"), b"").unwrap();
    let started = tokio::time::Instant::now();
    while let Err(error) = store.now().await {
        assert!(started.elapsed() < Duration::from_secs(60), "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    nodes.steer(&["kill", "2"]);
    nodes.steer(&["start", "2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_swept_while_the_clock_of_a_node_that_hangs_is_not_heard() {
    let (Some(nodes), Some(third)) = (Nodes::there(), Paused::node(3)) else { return };
    let _turn = TURN.lock().await;
    nodes.all_up();
    let namespaces = nodes.namespaces();
    let options =
        Options { request_time_out: Duration::from_secs(4), ..namespaces.options(namespaces.fresh()) };
    let store = CassandraStore::open(options).await.unwrap();
    store.sweep(Duration::from_secs(3600)).await.unwrap();
    third.stop();
    let error = store.sweep(Duration::from_secs(3600)).await.unwrap_err();
    // Leases need the clocks of two nodes, which are available.
    let now = store.now().await;
    // A sweep is also refused after the node's connections are given up, when it looks like one that is down:
    // that takes 6 s, and these sweeps take 12.
    let mut later = Vec::new();
    for _ in 0..3 {
        later.push(store.sweep(Duration::from_secs(3600)).await);
    }
    third.go_on();
    println!("{error} [{:?}]", error.hint());
    for error in later.into_iter().map(Result::unwrap_err).chain([error]) {
        assert!(error.kind() == ErrorKind::Unavailable && error.hint().is_some(), "{error}");
        assert!(error.to_string().contains(&format!("{} does not answer", nodes.address(3))), "{error}");
    }
    now.unwrap();
    // The driver reconnects to it after a pause.
    let started = tokio::time::Instant::now();
    while let Err(error) = store.sweep(Duration::from_secs(3600)).await {
        assert!(started.elapsed() < Duration::from_secs(60), "{error}");
    }
}

/// Puts, reads and creates in one partition, concurrently; returns how long that took.
async fn all_three(store: &CassandraStore, partition: &str) -> Duration {
    let started = tokio::time::Instant::now();
    let cell = |sort| Cell::new(partition, sort);
    let (put, read, made) = futures::join!(
        store.put(cell("put"), b"1", WriteOptions::default()),
        store.get(cell("absent"), ReadOptions::default()),
        store.create(cell("made"), value_of(b"made"), WriteOptions::default()),
    );
    put.unwrap();
    assert_eq!(read.unwrap(), None);
    made.unwrap();
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_costs_calls_some_seconds_and_none_of_them_fails() {
    let (Some(nodes), Some(third)) = (Nodes::there(), Paused::node(3)) else { return };
    let _turn = TURN.lock().await;
    nodes.all_up();
    let namespaces = nodes.namespaces();
    let options = namespaces.options(namespaces.fresh());
    let beside = Options { beside: Some(nodes.address(3).parse().unwrap()), ..options.clone() };
    let stores = [CassandraStore::open(options).await.unwrap(), CassandraStore::open(beside).await.unwrap()];
    third.stop();
    for (round, longest_allowed) in [Duration::from_secs(15), Duration::from_secs(5)].into_iter().enumerate()
    {
        let calls = stores.iter().enumerate().flat_map(|(number, store)| {
            (0..30).map(move |at| async move { all_three(store, &format!("{round}.{number}.{at}")).await })
        });
        let longest = futures::future::join_all(calls).await.into_iter().max().unwrap();
        println!("round {round} beside a node that hangs: {longest:?} at most");
        // An attempt without an answer takes five seconds: by the second round no request goes to that node.
        assert!(longest < longest_allowed, "round {round} took {longest:?}");
    }
    third.go_on();
}

//! What can go wrong in a cluster: altered tables, and a node that stops answering in the middle of writes.
//! Each is an error that names cause and remedy, or `unknown` where that is the truth, and nothing is lost.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;

use atoll_cassandra::{CassandraStore, Options};
use atoll_conformance::SharedStore;
use atoll_store::{
    Batch, Buffer, Cell, ErrorKind, Expectation, Outcome, PartitionQuery, ReadOptions, ScanRequest, Store,
    StoreError, WriteOptions,
};
use common::{Namespaces, Paused, contacts};
use futures::StreamExt;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A stopped node answers no client, so the tests of this file take turns.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn session() -> Session {
    SessionBuilder::new().known_nodes(contacts().unwrap()).build().await.unwrap()
}

async fn refusal(options: Options) -> StoreError {
    match CassandraStore::open(options).await {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

/// A keyspace of its own that holds a small and a large cell and was then altered by these statements.
async fn altered(session: &Session, statements: &[&str]) -> (Options, CassandraStore) {
    let keyspace = format!("altered_{:x}", fastrand::u64(..));
    let options = Options::of(contacts().unwrap(), keyspace.as_str());
    let store = CassandraStore::open(options.clone()).await.unwrap();
    for len in [10, 300_000] {
        store.put(Cell::new("p", &len.to_string()), &vec![7; len], WriteOptions::default()).await.unwrap();
    }
    for statement in statements {
        session.query_unpaged(statement.replace("{k}", &keyspace), ()).await.unwrap();
    }
    session.await_schema_agreement().await.unwrap();
    (options, store)
}

async fn drop_keyspace(session: &Session, options: &Options) {
    session.query_unpaged(format!("DROP KEYSPACE {}", options.keyspace), ()).await.unwrap();
}

#[tokio::test]
async fn tables_that_somebody_altered_are_refused_with_what_differs_and_what_to_do() {
    if contacts().is_none() {
        return;
    }
    let _turn = TURN.lock().await;
    let session = session().await;
    let cases: [(&[&str], [&str; 2]); 7] = [
        (&["DROP TABLE {k}.chunks"], ["table chunks is missing", "snapshot"]),
        (&["DROP TABLE {k}.cells"], ["table cells is missing", "snapshot"]),
        (&["DROP TABLE {k}.meta"], ["does not say by which format", "snapshot"]),
        (&["ALTER TABLE {k}.cells DROP value"], ["column value of its table cells is missing", "snapshot"]),
        (
            &[
                "DROP TABLE {k}.chunks",
                "CREATE TABLE {k}.chunks (id blob, n int, data text, PRIMARY KEY ((id, n)))",
            ],
            ["column data of its table chunks is of type text", "should be blob"],
        ),
        (
            &["ALTER TABLE {k}.cells WITH default_time_to_live = 3600"],
            ["deleted by themselves after 3600 s", "default_time_to_live = 0"],
        ),
        (
            &["ALTER TABLE {k}.cells WITH read_repair = 'NONE'"],
            ["do not repair what they find", "read_repair = 'BLOCKING'"],
        ),
    ];
    for (statements, words) in cases {
        let (options, _store) = altered(&session, statements).await;
        let error = refusal(options.clone()).await;
        let said = format!("{error} [{}]", error.hint().unwrap_or_default());
        println!("{statements:?}: {said}");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{statements:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{statements:?}: {said}");
        drop_keyspace(&session, &options).await;
    }
}

#[tokio::test]
async fn an_open_store_whose_table_is_altered_says_so_and_loses_nothing_else() {
    if contacts().is_none() {
        return;
    }
    let _turn = TURN.lock().await;
    let session = session().await;
    let (options, store) = altered(&session, &["ALTER TABLE {k}.chunks DROP data"]).await;
    let written = store.put(Cell::new("p", "large"), &vec![1; 300_000], WriteOptions::default()).await;
    let error = written.unwrap_err();
    let sources = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    let said: String = sources.map(|error| format!("{error}; ")).collect();
    println!("{said} [{:?}]", error.hint());
    assert_eq!(error.outcome(), Outcome::Refused, "{said}");
    assert!(said.contains("data") && said.contains("chunk"), "{said}");
    assert_eq!(value(&store, "10").await, Some(Buffer::from(vec![7; 10])), "small cells have no chunks");
    drop_keyspace(&session, &options).await;
}

#[tokio::test]
async fn a_wait_whose_table_is_dropped_ends_and_says_so() {
    if contacts().is_none() {
        return;
    }
    let _turn = TURN.lock().await;
    let session = session().await;
    let (options, store) = altered(&session, &[]).await;
    let expectation = Expectation::Equals(Some(Buffer::from(&b"never"[..])));
    let waiting = store.wait(Cell::new("p", "10"), expectation, Duration::from_secs(60));
    let dropping = async {
        // The wait has read the cell by now, and waits for another value.
        tokio::time::sleep(Duration::from_secs(1)).await;
        session.query_unpaged(format!("DROP TABLE {}.cells", options.keyspace), ()).await.unwrap();
    };
    let (waited, ()) = futures::join!(waiting, dropping);
    let error = waited.unwrap_err();
    println!("{error} [{:?}]", error.hint());
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("cells") && error.hint().is_some(), "{error}");
    drop_keyspace(&session, &options).await;
}

#[tokio::test]
async fn what_an_administrator_may_change_changes_nothing_for_atoll() {
    if contacts().is_none() {
        return;
    }
    let _turn = TURN.lock().await;
    let session = session().await;
    let statements = [
        "ALTER TABLE {k}.cells WITH compaction = {'class': 'SizeTieredCompactionStrategy'} AND gc_grace_seconds = 1000",
        "ALTER TABLE {k}.chunks WITH compression = {'class': 'LZ4Compressor'}",
        "ALTER TABLE {k}.cells ADD remark text",
    ];
    let (options, open) = altered(&session, &statements).await;
    let again = CassandraStore::open(options.clone()).await.unwrap();
    for store in [&open, &again] {
        assert_eq!(value(store, "10").await, Some(Buffer::from(vec![7; 10])));
        assert_eq!(value(store, "300000").await, Some(Buffer::from(vec![7; 300_000])));
        store.append(Cell::new("p", "log"), b"x", WriteOptions::default()).await.unwrap();
    }
    assert_eq!(value(&again, "log").await.as_deref(), Some(&b"xx"[..]));
    drop_keyspace(&session, &options).await;
}

async fn value(store: &CassandraStore, sort: &str) -> Option<Buffer> {
    store.get(Cell::new("p", sort), ReadOptions::default()).await.unwrap()
}

/// Appends distinct words, and returns the outcome of each.
async fn append_words(
    store: SharedStore,
    writer: usize,
    stop: Arc<AtomicBool>,
) -> Vec<(String, Option<Outcome>)> {
    let mut words = Vec::new();
    for at in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let word = format!("<{writer}.{at}>");
        let partition = format!("words {writer}");
        let cell = Cell::new(&partition, "log");
        let failed = store.append(cell, word.as_bytes(), WriteOptions::default()).await.err();
        words.push((word, failed.map(|error| error.outcome())));
    }
    words
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_a_node_does_not_answer_are_done_refused_or_unknown_and_each_says_the_truth() {
    let Some(contacts) = contacts() else { return };
    let Some(paused) = Paused::node(1) else { return };
    let _turn = TURN.lock().await;
    let namespaces = Namespaces::new(contacts, "conformance");
    let options =
        Options { request_time_out: Duration::from_secs(1), ..namespaces.options(namespaces.fresh()) };
    let store: SharedStore = Arc::new(CassandraStore::open(options).await.unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..3).map(|writer| tokio::spawn(append_words(store.clone(), writer, Arc::clone(&stop)))).collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        paused.stop();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        paused.go_on();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::SeqCst);
    let (mut done, mut unknown, mut refused) = (0, 0, 0);
    for (writer, words) in writers.into_iter().enumerate() {
        let words = words.await.unwrap();
        let partition = format!("words {writer}");
        let log = store.get(Cell::new(&partition, "log"), ReadOptions::default()).await.unwrap();
        let log = String::from_utf8(log.unwrap().to_vec()).unwrap();
        let mut at = 0;
        for (word, outcome) in words {
            let times = log.matches(&word).count();
            let (most, least) = match outcome {
                None => (1, 1),
                Some(Outcome::Unknown) => (1, 0),
                Some(_) => (0, 0),
            };
            assert!(
                (least..=most).contains(&times),
                "{word} ended as {outcome:?} and is there {times} times: {log}"
            );
            match outcome {
                None => done += 1,
                Some(Outcome::Unknown) => unknown += 1,
                Some(_) => refused += 1,
            }
            // One writer's words appear in the order in which they were written.
            if let Some(place) = log.find(&word) {
                assert!(place >= at, "{word} stands before the word that came before it: {log}");
                at = place;
            }
        }
    }
    println!("{done} done, {unknown} unknown, {refused} refused");
    assert!(done > 0 && unknown + refused > 0, "the node was never missed");
}

#[tokio::test]
async fn a_partition_with_more_dead_request_ids_than_a_node_passes_over_is_listed_like_all_others() {
    let Some(contacts) = contacts() else { return };
    let _turn = TURN.lock().await;
    let (session, namespaces) = (session().await, Namespaces::new(contacts, "conformance"));
    let namespace = namespaces.fresh();
    let store = namespaces.open_as(namespace.clone()).await.unwrap();
    let names: BTreeSet<Vec<u8>> = (0..12).map(|at| format!("p{at}").into_bytes()).collect();
    for name in &names {
        store.put(Cell::new(name, "a"), b"1", WriteOptions::default()).await.unwrap();
    }
    let delete =
        session.prepare("DELETE FROM conformance.cells WHERE p = ? AND kind = 3 AND s = ?").await.unwrap();
    let partition = [&namespace[..], b"p7"].concat();
    let deleting = futures::stream::iter(0..1_005_u32).map(async |hundreds| {
        let mut batch = scylla::statement::batch::Batch::new(scylla::statement::batch::BatchType::Unlogged);
        (0..100).for_each(|_| batch.append_statement(delete.clone()));
        let names = (0..100_u32).map(|at| (hundreds * 100 + at).to_be_bytes().to_vec());
        let values: Vec<_> = names.map(|name| (&partition, name)).collect();
        session.batch(&batch, &values).await.unwrap();
    });
    deleting.buffer_unordered(16).collect::<Vec<()>>().await;
    let read = "SELECT p FROM conformance.cells WHERE p = ?";
    let error = session.query_unpaged(read, (&partition,)).await.unwrap_err();
    assert!(error.to_string().contains("TOO_MANY_TOMBSTONES"), "{error}");
    let started = tokio::time::Instant::now();
    let (mut query, mut listed) = (PartitionQuery::prefix("p"), BTreeSet::new());
    loop {
        let page = store.partition_keys(query.clone()).await.unwrap();
        listed.extend(page.partitions);
        query.resume = page.resume;
        if query.resume.is_none() {
            break;
        }
    }
    assert_eq!(listed, names);
    assert!(started.elapsed() < Duration::from_secs(10), "nothing that fails again is tried again");
    assert_eq!(
        store.scan(ScanRequest::all(*b"p7")).await.unwrap().entries.len(),
        1,
        "they lie behind its cells"
    );
    let delete = "DELETE FROM conformance.cells WHERE p = ?";
    session.query_unpaged(delete, (partition,)).await.unwrap();
}

/// Makes a cell unreadable to any release, as a faulty disk or a manual edit might.
async fn damage(session: &Session, options: &Options, partition: &str, sort: &str) {
    let update = format!(
        "UPDATE {}.cells SET head = 0x07 WHERE p = ? AND kind = 0 AND s = ? AND piece = 0",
        options.keyspace
    );
    session.query_unpaged(update, (partition.as_bytes(), sort.as_bytes())).await.unwrap();
}

#[tokio::test]
async fn a_cell_that_nobody_understands_is_named_and_hides_no_other_and_can_be_written_anew() {
    if contacts().is_none() {
        return;
    }
    let _turn = TURN.lock().await;
    let session = session().await;
    let (options, store) = altered(&session, &[]).await;
    let put = |sort: &'static str| store.put(Cell::new("p", sort), b"value", WriteOptions::default());
    for sort in ["a", "b", "c"] {
        put(sort).await.unwrap();
    }
    damage(&session, &options, "p", "b").await;
    damage(&session, &options, "p", "300000").await;
    let is_of_b = |error: &StoreError| {
        let said = error.to_string();
        println!("{said} [{:?}]", error.hint());
        error.kind() == ErrorKind::Corrupt && said.contains("partition \"p\" sort key \"b\"")
    };
    // All of them are read with one request.
    let get = |sort: &'static str| store.get(Cell::new("p", sort), ReadOptions::default());
    let (a, b, c) = futures::join!(get("a"), get("b"), get("c"));
    let whole = Some(Buffer::from(&b"value"[..]));
    assert_eq!((a.unwrap(), c.unwrap()), (whole.clone(), whole.clone()));
    assert!(is_of_b(&b.unwrap_err()));
    // A second store on the same namespace remembers nothing. A batch that depends on the damaged cell is
    // refused, and has no effect.
    let other = CassandraStore::open(options.clone()).await.unwrap();
    let write = |batch| other.write(batch, WriteOptions::default());
    for batch in [
        Batch::on("p").append("b", &b"more"[..]),
        Batch::on("p").if_equals("b", &b"value"[..]).put("c", &b"other"[..]),
    ] {
        let error = write(batch).await.unwrap_err();
        assert!(is_of_b(&error) && error.outcome() == Outcome::Refused);
    }
    assert_eq!(value(&other, "c").await, whole);
    write(Batch::on("p").put("b", &b"anew"[..]).delete("300000")).await.unwrap();
    assert_eq!(value(&other, "b").await, Some(Buffer::from(&b"anew"[..])));
    assert_eq!(value(&other, "300000").await, None);
    drop_keyspace(&session, &options).await;
}

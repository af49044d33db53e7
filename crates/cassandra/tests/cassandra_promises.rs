//! What the store on Cassandra promises beyond what the suite checks of every store.
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
    Batch, Buffer, Cell, ErrorKind, Expectation, Outcome, ReadOptions, ScanRequest, SortRange, Store,
    StoreError, Waited, WriteOptions,
};
use common::{Namespaces, contacts};
use futures::future::join_all;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::sync::Arc;
use std::time::Duration;

const CHUNKED: usize = 1_300_000;

fn namespaces() -> Option<Namespaces> {
    contacts().map(|contacts| Namespaces::new(contacts, "conformance"))
}

async fn session() -> Session {
    SessionBuilder::new().known_nodes(contacts().unwrap()).build().await.unwrap()
}

fn bytes(len: usize, seed: u64) -> Buffer {
    Buffer::build(len, |bytes| fastrand::Rng::with_seed(seed).fill(bytes))
}

async fn value(store: &SharedStore, sort: &str) -> Option<Buffer> {
    store.get(Cell::new("p", sort), ReadOptions::default()).await.unwrap()
}

async fn create(store: &SharedStore, sort: &str, value: &Buffer) {
    store.create(Cell::new("p", sort), value.clone(), WriteOptions::default()).await.unwrap();
}

#[tokio::test]
async fn a_new_cell_in_a_range_that_was_deleted_before_is_seen() {
    let Some(namespaces) = namespaces() else { return };
    let store = namespaces.open_fresh().await.unwrap();
    store.write(Batch::on(*b"p").put(*b"old", b"1".to_vec()), WriteOptions::default()).await.unwrap();
    for (round, len) in [10, CHUNKED].into_iter().enumerate() {
        store.delete_partition(b"p", WriteOptions::default()).await.unwrap();
        let (name, bytes) = (format!("new {round}"), bytes(len, 1));
        create(&store, &name, &bytes).await;
        assert_eq!(value(&store, &name).await.as_ref(), Some(&bytes), "{len} bytes");
    }
}

#[tokio::test]
async fn a_deletion_right_after_a_creation_wins() {
    let Some(namespaces) = namespaces() else { return };
    let store = namespaces.open_fresh().await.unwrap();
    for round in 0..50 {
        let sort = round.to_string();
        create(&store, &sort, &bytes(100, round)).await;
        let batch = Batch::on(*b"p");
        let batch =
            if round % 2 == 0 { batch.delete(sort.as_str()) } else { batch.delete_range(SortRange::all()) };
        store.write(batch, WriteOptions::default()).await.unwrap();
        assert_eq!(value(&store, &sort).await, None, "round {round}");
    }
}

#[tokio::test]
async fn a_batch_does_not_apply_beside_a_creation_that_it_excludes() {
    let Some(namespaces) = namespaces() else { return };
    let namespace = namespaces.fresh();
    let [creator, writer] =
        join_all([0, 1].map(|_| namespaces.open_as(namespace.clone()))).await.try_into().ok().unwrap();
    let (creator, writer): (SharedStore, SharedStore) = (creator.unwrap(), writer.unwrap());
    for round in 0..60_u64 {
        let (made, marker) = (format!("made {round}"), format!("marker {round}"));
        let creation = async {
            create(&creator, &made, &bytes(20, round)).await;
            // A client that has seen the acknowledgement may look for the marker: it must not come later.
            value(&creator, &marker).await.is_some()
        };
        let batch = Batch::on(*b"p").if_absent(made.as_str()).put(marker.as_str(), b"x".to_vec());
        let writing = async {
            tokio::time::sleep(Duration::from_micros(round * 100)).await;
            writer.write(batch, WriteOptions::default()).await
        };
        let (was_marked, written) = futures::join!(creation, writing);
        assert!(was_marked || written.is_err(), "round {round}: the batch applied after the cell was there");
    }
}

async fn chunk_rows(session: &Session, partition: &[u8]) -> usize {
    let query = "SELECT p FROM conformance.chunks";
    let rows = session.query_unpaged(query, ()).await.unwrap().into_rows_result().unwrap();
    rows.rows::<(Option<Vec<u8>>,)>()
        .unwrap()
        .filter(|row| row.as_ref().unwrap().0.as_deref() == Some(partition))
        .count()
}

#[tokio::test]
async fn chunks_that_nothing_refers_to_go_and_all_others_stay() {
    let Some(namespaces) = namespaces() else { return };
    let namespace = namespaces.fresh();
    let store = CassandraStore::open(namespaces.options(namespace.clone())).await.unwrap();
    let (session, partition) = (session().await, [&namespace[..], b"p"].concat());
    let shared: SharedStore = Arc::new(store.clone());
    create(&shared, "made", &bytes(CHUNKED, 1)).await;
    for round in 0..3 {
        let put = Batch::on(*b"p").put(*b"kept", bytes(CHUNKED, round)).put(*b"gone", bytes(CHUNKED, round));
        store.write(put, WriteOptions::default()).await.unwrap();
    }
    store
        .write(Batch::on(*b"p").delete_range(SortRange::prefix(b"g")), WriteOptions::default())
        .await
        .unwrap();
    let of_one = CHUNKED.div_ceil(Options::default().chunk_bytes);
    let mut left = 0;
    // A reader of the previous value has ten seconds.
    for _ in 0..1200 {
        left = chunk_rows(&session, &partition).await;
        if left == 2 * of_one {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(left, 2 * of_one, "chunks of two cells");

    // A client that ends halfway: its chunks are written, and no cell refers to them.
    for steps in [2, 4, 8] {
        let mut put = store.write(Batch::on(*b"p").put(*b"torn", bytes(CHUNKED, 9)), WriteOptions::default());
        for _ in 0..steps {
            // A quick cluster may be done by now, and a finished future must not be polled again.
            if futures::poll!(&mut put).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        drop(put);
    }
    let swept = store.sweep(Duration::from_secs(86_400)).await.unwrap();
    assert_eq!(swept.deleted, 0, "chunks of today stay");
    store.sweep(Duration::ZERO).await.unwrap();
    let refers = value(&shared, "torn").await.is_some();
    assert_eq!(chunk_rows(&session, &partition).await, (2 + usize::from(refers)) * of_one);
    assert_eq!(value(&shared, "kept").await, Some(bytes(CHUNKED, 2)));
    assert_eq!(value(&shared, "made").await, Some(bytes(CHUNKED, 1)));
}

#[tokio::test]
async fn a_wait_ends_by_what_another_client_does() {
    let Some(namespaces) = namespaces() else { return };
    let namespace = namespaces.fresh();
    let waiter = namespaces.open_as(namespace.clone()).await.unwrap();
    let writer = namespaces.open_as(namespace).await.unwrap();
    for (sort, is_created) in [("put", false), ("created", true)] {
        let store = waiter.clone();
        let wait = tokio::spawn(async move {
            store.wait(Cell::new("p", sort), Expectation::Differs(None), Duration::from_secs(30)).await
        });
        // By now the polling interval has grown to its steady state, so that polling has to find the change.
        tokio::time::sleep(Duration::from_millis(400)).await;
        match is_created {
            true => create(&writer, sort, &bytes(7, 3)).await,
            false => assert!(
                !writer
                    .put(Cell::new("p", sort), &bytes(7, 3), WriteOptions::default())
                    .await
                    .unwrap()
                    .repeated
            ),
        }
        assert_eq!(wait.await.unwrap().unwrap(), Waited::Met(Some(bytes(7, 3))), "{sort}");
    }
}

#[tokio::test]
async fn many_small_appends_stay_few_pieces_and_read_back_whole() {
    let Some(namespaces) = namespaces() else { return };
    let store = namespaces.open_fresh().await.unwrap();
    let mut expected = Vec::new();
    for round in 0..120_u64 {
        let len = if round % 40 == 39 { 90_000 } else { 700 };
        let part = bytes(len, round);
        expected.extend_from_slice(&part);
        store.append(Cell::new("p", "log"), &part, WriteOptions::default()).await.unwrap();
    }
    assert_eq!(value(&store, "log").await.as_deref(), Some(expected.as_slice()));
    let page = store.scan(ScanRequest::all(*b"p")).await.unwrap();
    assert_eq!(page.entries[0].value.as_slice(), expected);
}

#[tokio::test]
async fn a_batch_that_no_node_takes_is_over_a_limit_and_a_part_of_it_is_done() {
    let Some(namespaces) = namespaces() else { return };
    let store = namespaces.open_fresh().await.unwrap();
    // Each deletion names the partition, so this becomes a request of 17 MB.
    let partition = vec![b'p'; 16 << 10];
    let sort = |at: usize| format!("{at:01000}").into_bytes();
    let deleting = |count: usize| (0..count).fold(Batch::on(partition.clone()), |b, at| b.delete(sort(at)));
    store.put(Cell::new(&partition, &sort(1)), b"x", WriteOptions::default()).await.unwrap();
    let error = store.write(deleting(1000), WriteOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Limit, Outcome::Refused), "{error}");
    assert!(error.to_string().contains("batch of 17"), "{error}");
    store.write(deleting(300), WriteOptions::default()).await.unwrap();
    let read = store.get(Cell::new(&partition, &sort(1)), ReadOptions::default()).await.unwrap();
    assert_eq!(read, None);
}

#[tokio::test]
async fn clients_that_create_the_same_keyspace_at_once_share_it() {
    let Some(contacts) = contacts() else { return };
    let keyspace = format!("raced_{:x}", fastrand::u32(..));
    let open = |_| CassandraStore::open(Options::of(contacts.clone(), keyspace.as_str()));
    let stores: Vec<_> = join_all((0..4).map(open)).await;
    for (at, store) in stores.iter().enumerate() {
        let store = store.as_ref().unwrap_or_else(|error| panic!("client {at}: {error} {error:?}"));
        store.append(Cell::new("p", "a"), b"x", WriteOptions::default()).await.unwrap();
    }
    let read = stores[0].as_ref().unwrap().get(Cell::new("p", "a"), ReadOptions::default()).await.unwrap();
    assert_eq!(read.as_deref(), Some(&b"xxxx"[..]));
    drop(stores);
    session().await.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
}

async fn refusal(options: Options) -> StoreError {
    match CassandraStore::open(options).await {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_keyspace_of_a_newer_release_is_refused_before_anything_is_read() {
    let Some(contacts) = contacts() else { return };
    let keyspace = format!("newer_{:x}", fastrand::u32(..));
    let options = Options::of(contacts, keyspace.as_str());
    drop(CassandraStore::open(options.clone()).await.unwrap());
    let session = session().await;
    let raise = format!("UPDATE {keyspace}.meta SET number = 99 WHERE name = 'format' IF EXISTS");
    session.query_unpaged(raise, ()).await.unwrap();
    let error = refusal(options).await;
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
    assert!(error.to_string().contains("99") && error.hint().is_some(), "{error}");
    session.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_opened_is_refused_with_cause_and_remedy() {
    let Some(contacts) = contacts() else { return };
    let absent = Options { create: false, ..Options::of(contacts.clone(), "never_made") };
    assert_eq!(refusal(absent).await.kind(), ErrorKind::NotFound);
    let quick = Duration::from_secs(2);
    let nobody = Options { connect_time_out: quick, ..Options::of(["127.0.0.1:9"], "k") };
    let error = refusal(nobody).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("127.0.0.1:9") && error.hint().is_some(), "{error}");
    let elsewhere = Options { datacenter: Some("nowhere".into()), ..Options::of(contacts.clone(), "k") };
    let error = refusal(elsewhere).await;
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    // One contact point that is down does not matter.
    let mut some_down = vec!["127.0.0.1:9".to_owned()];
    some_down.extend(contacts);
    CassandraStore::open(Options::of(some_down, "conformance")).await.unwrap();
}

#[tokio::test]
async fn a_store_opened_for_reading_writes_nothing() {
    let Some(namespaces) = namespaces() else { return };
    let options = Options { read_only: true, ..namespaces.options(namespaces.fresh()) };
    let store = CassandraStore::open(options).await.unwrap();
    let written = store.put(Cell::new("p", "a"), b"x", WriteOptions::default()).await.unwrap_err();
    assert_eq!((written.kind(), written.outcome()), (ErrorKind::ReadOnly, Outcome::Refused));
    let created = store.create(Cell::new("p", "a"), bytes(1, 1), WriteOptions::default()).await.unwrap_err();
    assert_eq!(created.kind(), ErrorKind::ReadOnly);
    assert_eq!(store.get(Cell::new("p", "a"), ReadOptions::default()).await.unwrap(), None);
}

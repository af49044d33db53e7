//! Sweeps alongside writers that slept, and chunks that are missing or swapped.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;

use atoll_cassandra::{CassandraStore, Options};
use atoll_store::{Batch, Buffer, Cell, ErrorKind, ReadOptions, ScanRequest, Store, WriteOptions};
use common::{Namespaces, bytes, chunks_of, contacts, leave_chunk};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::time::Duration;

const CHUNKED: usize = 1_300_000;

/// A store, its namespace, and a session next to it.
async fn opened() -> Option<(CassandraStore, Vec<u8>, Session)> {
    let contacts = contacts()?;
    let namespaces = Namespaces::new(contacts.clone(), "conformance");
    let namespace = namespaces.fresh();
    // A client's memory would hide what is done to the tables.
    let options = Options { memory_bytes: 0, ..namespaces.options(namespace.clone()) };
    let store = CassandraStore::open(options).await.unwrap();
    Some((store, namespace, SessionBuilder::new().known_nodes(contacts).build().await.unwrap()))
}

async fn value(store: &CassandraStore, sort: &str) -> Option<Buffer> {
    store.get(Cell::new("p", sort), ReadOptions::default()).await.unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);

async fn head_of(session: &Session, partition: &[u8]) -> Vec<u8> {
    let read = "SELECT head FROM conformance.cells WHERE p = ? AND kind = 1";
    let rows = session.query_unpaged(read, (partition,)).await.unwrap().into_rows_result().unwrap();
    rows.single_row::<(Vec<u8>,)>().unwrap().0
}

#[tokio::test]
async fn no_chunk_goes_before_the_head_has_moved_even_if_its_cell_is_there() {
    let Some((store, namespace, session)) = opened().await else { return };
    let partition = [&namespace[..], b"p"].concat();
    store.write(Batch::on(*b"p").put(*b"there", b"1".to_vec()), WriteOptions::default()).await.unwrap();
    let before = head_of(&session, &partition).await;
    leave_chunk(&session, &partition, b"there").await;
    assert!(store.sweep(HOUR).await.unwrap().deleted == 1);
    assert_ne!(head_of(&session, &partition).await, before);
    assert_eq!(value(&store, "there").await.as_deref(), Some(&b"1"[..]));
}

#[tokio::test]
async fn chunks_beside_a_created_cell_stay_until_it_is_deleted_and_then_go() {
    let Some((store, namespace, session)) = opened().await else { return };
    let partition = [&namespace[..], b"p"].concat();
    let made = bytes(CHUNKED, 6);
    store.create(Cell::new("p", "made"), made.clone(), WriteOptions::default()).await.unwrap();
    // A chunk of another try, whose row may be at a replica that is down and be the one that survives.
    leave_chunk(&session, &partition, b"made").await;
    assert_eq!(store.sweep(HOUR).await.unwrap().deleted, 0);
    assert_eq!(value(&store, "made").await, Some(made));
    store.delete(Cell::new("p", "made"), WriteOptions::default()).await.unwrap();
    assert_eq!(store.sweep(HOUR).await.unwrap().deleted, 1);
    assert_eq!(value(&store, "made").await, None);
}

#[tokio::test]
async fn chunks_that_are_gone_or_belong_elsewhere_are_damage_and_never_an_answer() {
    let Some((store, namespace, session)) = opened().await else { return };
    let partition = [&namespace[..], b"p"].concat();
    for (sort, is_vowed) in [("put", false), ("made", true)] {
        let value = bytes(CHUNKED, 5);
        match is_vowed {
            true => drop(
                store.create(Cell::new("p", sort), value.clone(), WriteOptions::default()).await.unwrap(),
            ),
            false => drop(
                store.put(Cell::new("p", sort), value.as_slice(), WriteOptions::default()).await.unwrap(),
            ),
        }
        let (id, chunks) = chunks_of(&session, &partition, sort).await;
        let options = ReadOptions { immutable: is_vowed, ..ReadOptions::default() };
        let write = "UPDATE conformance.chunks SET data = ? WHERE id = ? AND n = ?";
        // Two chunks of the same length, each valid in itself, with one in the other's place.
        session.query_unpaged(write, (&chunks[1], &id, 0)).await.unwrap();
        let error = store.get(Cell::new("p", sort), options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{sort}: {error}");
        session.query_unpaged(write, (&chunks[0], &id, 0)).await.unwrap();
        let delete = "DELETE FROM conformance.chunks WHERE id = ? AND n = 2";
        session.query_unpaged(delete, (&id,)).await.unwrap();
        let error = store.get(Cell::new("p", sort), options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{sort}: {error}");
        assert!(error.to_string().contains("gone"), "{error}");
        let error = store.scan(ScanRequest::all(*b"p")).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("gone"), "{error}");
        // A damaged cell can be replaced.
        store.put(Cell::new("p", sort), b"new", WriteOptions::default()).await.unwrap();
        assert_eq!(
            store.get(Cell::new("p", sort), ReadOptions::default()).await.unwrap().as_deref(),
            Some(&b"new"[..])
        );
    }
}

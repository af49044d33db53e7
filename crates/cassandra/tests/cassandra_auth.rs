//! Authentication: a cluster that requires a password distinguishes a wrong one, none, and the right one.
//!
//! Needs `ATOLL_CASSANDRA_AUTH`, the contact point of a cluster whose superuser is `cassandra` with that
//! password (`cargo xtask cassandra up --auth`).
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use atoll_cassandra::{CassandraStore, Credentials, Options};
use atoll_store::{Cell, ErrorKind, Store, StoreError, WriteOptions};
use scylla::client::session_builder::SessionBuilder;

fn contact() -> Option<String> {
    let contact = std::env::var("ATOLL_CASSANDRA_AUTH").ok();
    if contact.is_none() {
        println!("SKIPPED [cassandra-auth] ATOLL_CASSANDRA_AUTH names no cluster that asks for a password");
    }
    contact
}

fn options(contact: &str, who: Option<(&str, &str)>) -> Options {
    let credentials =
        who.map(|(user, password)| Credentials { user: user.into(), password: password.into() });
    Options { credentials, ..Options::of([contact], "auth_test") }
}

async fn refusal(options: Options) -> StoreError {
    match CassandraStore::open(options).await {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_password_decides_who_comes_in_and_rights_decide_what_they_do() {
    let Some(contact) = contact() else { return };
    for who in [None, Some(("cassandra", "wrong")), Some(("nobody", "cassandra"))] {
        let error = refusal(options(&contact, who)).await;
        println!("{who:?}: {error} [{:?}]", error.hint());
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{who:?}: {error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("ATOLL_CASSANDRA_PASSWORD")));
    }
    let session =
        SessionBuilder::new().known_node(&contact).user("cassandra", "cassandra").build().await.unwrap();
    for statement in [
        "CREATE ROLE IF NOT EXISTS ada WITH PASSWORD = 'secret' AND LOGIN = true",
        "DROP KEYSPACE IF EXISTS auth_test",
    ] {
        session.query_unpaged(statement, ()).await.unwrap();
    }
    let error = refusal(options(&contact, Some(("ada", "secret")))).await;
    println!("no rights: {error} [{:?}]", error.hint());
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("CREATE KEYSPACE") && hint.contains("TO ada")));
    let store = CassandraStore::open(options(&contact, Some(("cassandra", "cassandra")))).await.unwrap();
    store.put(Cell::new("p", "a"), b"x", WriteOptions::default()).await.unwrap();
}

//! Nodes that have just started: what they do not know yet is no answer.

use super::*;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

const LOADING: &str = "-LOADING this node has not yet learned the state of its ring\r\n";
const NO_HOME: &str = "-NOPERM User ana begins in keyspace 'one', which does not exist\r\n";
const NO_KEYSPACE: &str = "-NOTFOUND there is no keyspace 'one'; AT.KEYSPACE CREATE makes one\r\n";

/// A node that answers these of the requests that begin like this, counted from 0, with an error. If the
/// first one is answered otherwise, the node was killed in between: the first write ends its connection.
/// Watches are answered at once.
async fn begins(start: &'static str, which: Range<usize>, error: &'static str) -> Stub {
    let (came, writes, strangers) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    Stub::start(move |port, connection, words| {
        let is_greeting = words.starts_with("AUTH ") || words.starts_with("HELLO ");
        if strangers.lock().contains(&connection) && !is_greeting {
            return Answer::Says("-NOAUTH Authentication required.\r\n".to_owned());
        }
        if words.starts_with(start) && which.contains(&came.fetch_add(1, Ordering::SeqCst)) {
            is_greeting.then(|| strangers.lock().insert(connection));
            return Answer::Says(error.to_owned());
        }
        let is_write = words.starts_with("AT.ID");
        if is_write && writes.fetch_add(1, Ordering::SeqCst) == 0 && which.start > 0 {
            return Answer::Ends(String::new());
        }
        usual(port, words).unwrap_or_else(|| {
            Answer::Says(match words.split(' ').collect::<Vec<_>>()[..] {
                ["AT.ID", ..] => "*2\r\n:0\r\n+OK\r\n".to_owned(),
                ["AT.GET", ..] => "$-1\r\n".to_owned(),
                ["AT.WATCH", id, ..] => format!("+OK\r\n>4\r\n$8\r\nat.watch\r\n:{id}\r\n:1\r\n$1\r\nv\r\n"),
                _ => "+OK\r\n".to_owned(),
            })
        })
    })
    .await
}

fn options(node: &Stub) -> RingOptions {
    RingOptions {
        token: Some("secret".to_owned()),
        user: Some("ana".to_owned()),
        keyspace: Some("one".to_owned()),
        ..RingOptions::of(vec![node.address.clone()])
    }
}

async fn written(store: &RingStore) -> Result<Written, StoreError> {
    store.write(Batch::on(b"p").put(b"s", &b"v"[..]), WriteOptions::default()).await
}

#[tokio::test(start_paused = true)]
async fn a_ring_is_opened_at_a_node_that_has_begun_a_moment_ago() {
    for start in ["AUTH", "AT.KEYSPACE", "AT.TABLE", "CONFIG"] {
        let node = begins(start, 0..3, LOADING).await;
        let opened = RingStore::open(options(&node)).await.map(drop);
        assert!(opened.is_ok(), "{start}: {opened:?}");
        assert!(node.came(start).len() > 3, "{start}");
    }
    let node = begins("AT.TABLE", 0..usize::MAX, LOADING).await;
    let patience = Duration::from_millis(50);
    let error = RingStore::open(RingOptions { patience, ..options(&node) }).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("has not yet learned the state of its ring"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_write_goes_on_at_a_node_that_does_not_know_yet_in_which_keyspace_a_user_begins() {
    for (start, error) in [("AUTH", NO_HOME), ("AUTH", LOADING), ("AT.KEYSPACE", NO_KEYSPACE)] {
        let node = begins(start, 1..4, error).await;
        let store = RingStore::open(options(&node)).await.unwrap();
        let done = written(&store).await;
        assert!(done.is_ok(), "{start}: {done:?}");
        assert!(node.came(start).len() > 4, "{start}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_node_that_does_not_know_of_a_keyspace_yet_keeps_no_ring_from_being_opened() {
    for (start, error) in [("AUTH", NO_HOME), ("AT.KEYSPACE", NO_KEYSPACE)] {
        let (late, node) = (begins(start, 0..1, error).await, begins(start, 0..0, error).await);
        // Which of the two is asked first is random.
        while late.came(start).is_empty() {
            let seeds = vec![late.address.clone(), node.address.clone()];
            let opened = RingStore::open(RingOptions { seeds, ..options(&node) }).await.map(drop);
            assert!(opened.is_ok(), "{start}: {opened:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_keyspace_that_no_node_knows_of_is_told_at_once() {
    for (start, error, kind) in
        [("AUTH", NO_HOME, ErrorKind::Unauthenticated), ("AT.KEYSPACE", NO_KEYSPACE, ErrorKind::NotFound)]
    {
        let node = begins(start, 0..usize::MAX, error).await;
        let refused = RingStore::open(options(&node)).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
        assert!(refused.to_string().contains("one"), "{refused}");
        assert_eq!(node.came(start).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_outlives_a_node_that_does_not_know_of_its_keyspace_yet() {
    for (start, which, error) in [
        // The first one belongs to the connection with which the ring is opened.
        ("AT.KEYSPACE", 1..4, NO_KEYSPACE),
        ("AT.KEYSPACE", 1..4, LOADING),
        ("HELLO", 0..3, NO_HOME),
        ("HELLO", 0..3, LOADING),
    ] {
        let node = begins(start, which, error).await;
        let store = RingStore::open(options(&node)).await.unwrap();
        let waited = store.wait(CELL, Expectation::Differs(None), Duration::from_secs(3600)).await;
        assert!(matches!(waited, Ok(Waited::Met(Some(_)))), "{start} {error}: {waited:?}");
        assert!(node.came(start).len() > 3, "{start}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_where_no_node_lets_anybody_in_for_as_long_as_a_call_goes_on() {
    for (start, which, error, kind) in [
        ("AT.KEYSPACE", 1..usize::MAX, NO_KEYSPACE, ErrorKind::Unavailable),
        ("HELLO", 0..usize::MAX, "-WRONGPASS invalid\r\n", ErrorKind::Unauthenticated),
    ] {
        let node = begins(start, which, error).await;
        let store = RingStore::open(options(&node)).await.unwrap();
        let waited =
            store.wait(CELL, Expectation::Differs(None), Duration::from_secs(3600)).await.unwrap_err();
        assert_eq!(waited.kind(), kind, "{waited}");
    }
}

//! Redirections to a node that does not lead the slot: whoever redirects may know an older table than the
//! client.

use super::*;
use crate::stub::{known_table, table};
use std::sync::atomic::AtomicUsize;

const DOWN: &str = "-CLUSTERDOWN Hash slot not served\r\n";
const LOADING: &str = "-LOADING this node has not yet learned the state of its ring\r\n";
const NO_KEYSPACE: &str = "-NOTFOUND there is no keyspace 'one'; AT.KEYSPACE CREATE makes one\r\n";

/// How requests begin, and the error that is the answer to them.
type Refusal = (&'static str, &'static str);

/// How a node may say that it cannot serve a request that begins like this.
fn refusals(at: &'static str) -> [Refusal; 7] {
    [
        (at, DOWN),
        (at, "-TRYAGAIN the slot is being handed over\r\n"),
        (at, "-NOREPLICAS too few copies are in sync\r\n"),
        (at, LOADING),
        (at, "-UNKNOWN another node leads the slot by now\r\n"),
        ("AT.KEYSPACE", LOADING),
        ("AT.KEYSPACE", NO_KEYSPACE),
    ]
}

/// Two nodes. The first one leads everything in the latest table, and redirects this many requests that begin
/// like this to the second one, which refuses them and has an older table.
async fn astray(at: &'static str, redirected: usize, (refused, error): Refusal) -> [Stub; 2] {
    let behind = Stub::start(move |port, _, words| {
        if words.starts_with(refused) {
            return Answer::Says(error.to_owned());
        }
        if words.starts_with("AT.TABLE") {
            return Answer::Says(known_table("ring.0.6"));
        }
        usual(port, words).unwrap_or_else(|| Answer::Says("+OK\r\n".to_owned()))
    })
    .await;
    let (other, came) = (behind.address.clone(), AtomicUsize::new(0));
    let leads = Stub::start(move |port, _, words| {
        if words.starts_with(at) && came.fetch_add(1, Ordering::SeqCst) < redirected {
            return Answer::Says(format!("-MOVED 7 {other}\r\n"));
        }
        let text = match words.split(' ').collect::<Vec<_>>()[..] {
            ["AT.TABLE"] => table(port, Some("ring.0.7")),
            ["AT.TABLE", ..] => known_table("ring.0.7"),
            ["AT.GET", ..] => "$-1\r\n".to_owned(),
            ["AT.ID", ..] => "*2\r\n:0\r\n+OK\r\n".to_owned(),
            ["AT.WATCH", id, ..] => format!("+OK\r\n>4\r\n$8\r\nat.watch\r\n:{id}\r\n:1\r\n$1\r\nv\r\n"),
            _ => return usual(port, words).unwrap_or_else(|| Answer::Says("+OK\r\n".to_owned())),
        };
        Answer::Says(text)
    })
    .await;
    [leads, behind]
}

/// A store whose calls go on for this long, and which has heard only of this node.
async fn store_at(node: &Stub, patience: Duration) -> RingStore {
    let keyspace = Some("one".to_owned());
    let options = RingOptions { keyspace, patience, ..RingOptions::of(vec![node.address.clone()]) };
    RingStore::open(options).await.unwrap()
}

async fn call(store: &RingStore, at: &str) -> Result<(), StoreError> {
    match at {
        "AT.GET" => store.get(CELL, ReadOptions::default()).await.map(drop),
        _ => store.write(Batch::on(b"p").put(b"s", &b"v"[..]), WriteOptions::default()).await.map(drop),
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn a_call_that_was_redirected_to_a_node_that_cannot_serve_it_goes_back_to_the_one_in_the_table() {
    for at in ["AT.GET", "AT.ID"] {
        for refusal in refusals(at) {
            let [leads, behind] = astray(at, 1, refusal).await;
            let store = store_at(&leads, PATIENCE).await;
            let began = tokio::time::Instant::now();
            let done = call(&store, at).await;
            assert!(done.is_ok(), "{at} {refusal:?}: {done:?}");
            assert!(began.elapsed() < Duration::from_secs(1), "{at} {refusal:?}: {:?}", began.elapsed());
            assert_eq!(leads.came(at).len(), 2, "{at} {refusal:?}");
            assert!(!behind.came(refusal.0).is_empty(), "{at} {refusal:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_at_such_a_node_leaves_nothing_to_the_next_one() {
    for refusal in refusals("AT.GET") {
        let [leads, _behind] = astray("AT.GET", 1, refusal).await;
        let store = store_at(&leads, Duration::ZERO).await;
        let first = call(&store, "AT.GET").await.unwrap_err();
        assert_eq!(first.kind(), ErrorKind::Unavailable, "{refusal:?}: {first}");
        let second = call(&store, "AT.GET").await;
        assert!(second.is_ok(), "{refusal:?}: {second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_redirected_to_a_node_that_cannot_take_it_goes_back_to_the_one_in_the_table() {
    for refusal in refusals("AT.WATCH") {
        let [leads, behind] = astray("AT.WATCH", 1, refusal).await;
        let store = store_at(&leads, PATIENCE).await;
        let began = tokio::time::Instant::now();
        let waited = store.wait(CELL, Expectation::Differs(None), Duration::from_secs(3600)).await;
        assert!(matches!(waited, Ok(Waited::Met(Some(_)))), "{refusal:?}: {waited:?}");
        assert!(began.elapsed() < Duration::from_secs(1), "{refusal:?}: {:?}", began.elapsed());
        assert_eq!(leads.came("AT.WATCH").len(), 2, "{refusal:?}");
        assert!(!behind.came(refusal.0).is_empty(), "{refusal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_that_are_redirected_to_such_a_node_again_and_again_pause_each_time() {
    for waits in [1, 50] {
        let nodes = astray("AT.WATCH", usize::MAX, ("AT.WATCH", DOWN)).await;
        let store = store_at(&nodes[0], PATIENCE).await;
        let second = Duration::from_secs(1);
        let waiting = (0..waits).map(|_| store.wait(CELL, Expectation::Differs(None), second));
        for waited in futures::future::join_all(waiting).await {
            assert!(matches!(waited, Ok(Waited::TimedOut)), "{waited:?}");
        }
        let asked = nodes.iter().map(|node| node.came("AT.WATCH").len()).sum::<usize>();
        assert!((4 * waits..40 * waits).contains(&asked), "{asked} times, by {waits}");
    }
}

//! Nodes that were started with different durability, or again with another one: a write claims what the node
//! keeps that acknowledged it.

use super::*;
use crate::stub::table;
use atoll_store::Durability;
use parking_lot::Mutex;
use std::sync::atomic::AtomicUsize;

const WRITTEN: &str = "*2\r\n:0\r\n+OK\r\n";

fn port_of(node: &Stub) -> u16 {
    node.address.rsplit(':').next().unwrap().parse().unwrap()
}

/// The answer of a node to `CONFIG GET append*`.
fn config(class: Durability) -> String {
    let (keeps, syncs) = match class {
        Durability::Buffered => ("no", "no"),
        Durability::Flushed => ("yes", "everysec"),
        Durability::Synced => ("yes", "always"),
    };
    let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let words = ["appendonly", keeps, "appendfsync", syncs];
    format!("*4\r\n{}", words.map(text).concat())
}

/// The answer of a node to `AT.TABLE`: each of the two nodes with these ports leads half of the slots.
fn halves(ports: [u16; 2]) -> String {
    let nodes = ports.map(|port| format!("*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")).concat();
    let slots = "*6\r\n:0\r\n:8191\r\n:0\r\n:8192\r\n:16383\r\n:1\r\n";
    format!("*6\r\n$7\r\nversion\r\n$-1\r\n$5\r\nnodes\r\n*2\r\n{nodes}$5\r\nslots\r\n{slots}")
}

/// Two nodes that lead half of the slots each. Of the first one this is the class; the second one has the
/// other, or says nothing at all.
async fn two(first: Durability, second: Option<Durability>) -> [Stub; 2] {
    let ports = Arc::new(Mutex::new([0; 2]));
    let node = |class: Option<Durability>| {
        let ports = Arc::clone(&ports);
        Stub::start(move |_, _, words| match (class, words.split(' ').next()) {
            (None, _) => Answer::Hangs,
            (Some(class), Some("CONFIG")) => Answer::Says(config(class)),
            (Some(_), Some("AT.TABLE")) => Answer::Says(halves(*ports.lock())),
            _ => Answer::Says(WRITTEN.to_owned()),
        })
    };
    let nodes = [node(Some(first)).await, node(second).await];
    *ports.lock() = [port_of(&nodes[0]), port_of(&nodes[1])];
    nodes
}

/// A partition in the first half of the slots, or the second one.
fn partition_in(half: u16) -> Vec<u8> {
    let mut partitions = (0..).map(|number: u32| number.to_string().into_bytes());
    partitions.find(|partition| slot_of(partition) / 8192 == half).unwrap()
}

async fn write_to(
    store: &RingStore,
    partition: &[u8],
    options: WriteOptions,
) -> Result<Durability, StoreError> {
    let batch = Batch::on(partition).put(b"s", &b"v"[..]);
    store.write(batch, options).await.map(|written| written.durability)
}

fn asking(durability: Option<Durability>) -> WriteOptions {
    WriteOptions { durability, ..WriteOptions::default() }
}

/// With lanes and without.
const LATENCIES: [LatencyClass; 2] = [LatencyClass::None, LatencyClass::FiveHundred];

#[tokio::test(start_paused = true)]
async fn a_write_claims_what_its_node_keeps_and_a_store_offers_what_the_weakest_does() {
    use Durability::{Flushed, Synced};
    for latency in LATENCIES {
        let nodes = two(Synced, Some(Flushed)).await;
        let seeds = nodes.iter().map(|node| node.address.clone()).collect();
        let store = RingStore::open(RingOptions { latency, ..RingOptions::of(seeds) }).await.unwrap();
        for _ in 0..2 {
            for (half, class) in [(0, Synced), (1, Flushed)] {
                let done = write_to(&store, &partition_in(half), WriteOptions::default()).await;
                assert_eq!(done.unwrap(), class, "{latency:?} {half}");
            }
            let offered = store.capabilities();
            assert_eq!((offered.durability, offered.durability_default), (vec![Flushed], Flushed));
        }
        // Each node is judged by itself.
        assert_eq!(write_to(&store, &partition_in(0), asking(Some(Synced))).await.unwrap(), Synced);
        let error = write_to(&store, &partition_in(1), asking(Some(Synced))).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::Refused), "{error}");
        assert_eq!([nodes[0].came("AT.ID").len(), nodes[1].came("AT.ID").len()], [3, 2], "{latency:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_says_nothing_holds_up_nothing_at_another_one() {
    for latency in LATENCIES {
        let nodes = two(Durability::Flushed, None).await;
        let [connect_time_out, silence_first] = [Duration::from_millis(300); 2];
        let seeds = vec![nodes[0].address.clone()];
        let options = RingOptions { connect_time_out, silence_first, latency, ..RingOptions::of(seeds) };
        let began = tokio::time::Instant::now();
        let store = RingStore::open(options).await.unwrap();
        // The silent one may be asked first, but not for long.
        assert!(began.elapsed() < 2 * connect_time_out, "{:?}", began.elapsed());
        assert_eq!(store.capabilities().durability_default, Durability::Flushed);
        let deadline = Some(connect_time_out / 2);
        for asked in [None, Some(Durability::Flushed)] {
            let options = WriteOptions { deadline, ..asking(asked) };
            let done = write_to(&store, &partition_in(0), options).await;
            assert_eq!(done.unwrap(), Durability::Flushed, "{latency:?} {asked:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_another_node_does_claims_what_that_one_keeps() {
    use Durability::{Flushed, Synced};
    for latency in LATENCIES {
        let weaker = Stub::start(|port, _, words| match words.split(' ').next() {
            Some("CONFIG") => Answer::Says(config(Flushed)),
            _ => usual(port, words).unwrap_or_else(|| Answer::Says(WRITTEN.to_owned())),
        })
        .await;
        let (port, to) = (port_of(&weaker), weaker.address.clone());
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let stronger = Stub::start(move |own, _, words| {
            let is_over = ends.load(Ordering::SeqCst);
            match words.split(' ').next() {
                Some("CONFIG") => Answer::Says(config(Synced)),
                Some("AT.TABLE") => Answer::Says(table(if is_over { port } else { own }, None)),
                _ if is_over => Answer::Says(format!("-MOVED 7 {to}\r\n")),
                _ => Answer::Says(WRITTEN.to_owned()),
            }
        })
        .await;
        let options = RingOptions { latency, ..RingOptions::of(vec![stronger.address.clone()]) };
        let store = RingStore::open(options).await.unwrap();
        assert_eq!(write_to(&store, b"p", asking(Some(Synced))).await.unwrap(), Synced);
        is_over.store(true, Ordering::SeqCst);
        // The other node is met while this one is under way.
        let error = write_to(&store, b"p", asking(Some(Synced))).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::Refused), "{error}");
        assert_eq!(weaker.came("AT.ID").len(), 0, "what is refused is not sent");
        assert_eq!(store.capabilities().durability_default, Flushed);
        for asked in [None, Some(Flushed)] {
            assert_eq!(write_to(&store, b"p", asking(asked)).await.unwrap(), Flushed);
        }
        assert_eq!(weaker.came("AT.ID").len(), 2);
        assert_eq!(weaker.came("CONFIG").len(), 1, "not for each write");
    }
}

/// A node, the number of its latest connection, and that of the first one after it was started again: 0 until
/// then. It answers `first` when it is asked what it keeps, and `then` once it was started again.
async fn begun_again(first: String, then: String) -> (Stub, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (last, good) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (latest, from) = (Arc::clone(&last), Arc::clone(&good));
    let node = Stub::start(move |port, connection, words| {
        latest.fetch_max(connection, Ordering::SeqCst);
        let from = from.load(Ordering::SeqCst);
        match words.split(' ').next() {
            _ if connection < from => Answer::Ends(String::new()),
            Some("CONFIG") if from == 0 => Answer::Says(first.clone()),
            Some("CONFIG") => Answer::Says(then.clone()),
            Some("AT.GET") => Answer::Says("$-1\r\n".to_owned()),
            _ => usual(port, words).unwrap_or_else(|| Answer::Says(WRITTEN.to_owned())),
        }
    })
    .await;
    (node, last, good)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_started_again_at_its_address_is_asked_again() {
    use Durability::{Flushed, Synced};
    for (former, latter) in [(Synced, Flushed), (Flushed, Synced)] {
        for latency in LATENCIES {
            let (node, last, good) = begun_again(config(former), config(latter)).await;
            let options = RingOptions { latency, ..RingOptions::of(vec![node.address.clone()]) };
            let store = RingStore::open(options).await.unwrap();
            assert_eq!(write_to(&store, b"p", asking(None)).await.unwrap(), former);
            good.store(last.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Notices that the connections are over.
            store.get(CELL, ReadOptions::default()).await.unwrap();
            let strong = write_to(&store, b"p", asking(Some(Synced))).await.map_err(|error| error.kind());
            let expected = if latter == Synced { Ok(Synced) } else { Err(ErrorKind::Unsupported) };
            assert_eq!(strong, expected, "{latency:?}");
            assert_eq!(write_to(&store, b"p", asking(None)).await.unwrap(), latter, "{latency:?}");
            assert_eq!(store.capabilities().durability_default, latter, "{latency:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_is_not_sent_to_a_node_that_does_not_say_what_it_keeps() {
    let refusal = "-NOPERM User ana has no permissions to run the 'config' command\r\n".to_owned();
    for latency in LATENCIES {
        let (node, last, good) = begun_again(config(Durability::Synced), refusal.clone()).await;
        let options = RingOptions { latency, ..RingOptions::of(vec![node.address.clone()]) };
        let store = RingStore::open(options).await.unwrap();
        good.store(last.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
        let error = write_to(&store, b"p", asking(None)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unauthenticated, Outcome::Refused),
            "{latency:?} {error}"
        );
        assert_eq!(node.came("AT.ID").len(), 0, "{latency:?}");
    }
}

//! Nodes that were started with different durability: a store claims no more than the weakest of those that
//! lead slots keeps.

use super::*;
use crate::stub::table;
use atoll_store::Durability;
use parking_lot::Mutex;

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

#[tokio::test(start_paused = true)]
async fn a_store_offers_what_the_weakest_of_its_leaders_keeps() {
    use Durability::{Buffered, Flushed, Synced};
    for (classes, weakest) in
        [([Synced, Synced], Synced), ([Synced, Flushed], Flushed), ([Flushed, Buffered], Buffered)]
    {
        // Which of the two is asked for the table is random.
        for _ in 0..10 {
            let nodes = two(classes[0], Some(classes[1])).await;
            let seeds = nodes.iter().map(|node| node.address.clone()).collect();
            let store = RingStore::open(RingOptions::of(seeds)).await.unwrap();
            let offered = store.capabilities();
            assert_eq!((offered.durability, offered.durability_default), (vec![weakest], weakest));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_says_nothing_keeps_no_ring_from_being_opened() {
    let nodes = two(Durability::Flushed, None).await;
    let connect_time_out = Duration::from_millis(300);
    let options = RingOptions { connect_time_out, ..RingOptions::of(vec![nodes[0].address.clone()]) };
    let began = tokio::time::Instant::now();
    let store = RingStore::open(options).await.unwrap();
    assert_eq!(store.capabilities().durability_default, Durability::Flushed);
    assert!(began.elapsed() < 2 * connect_time_out, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_another_node_does_claims_what_that_one_keeps() {
    let weaker = Stub::start(|port, _, words| match words.split(' ').next() {
        Some("CONFIG") => Answer::Says(config(Durability::Flushed)),
        _ => usual(port, words).unwrap_or_else(|| Answer::Says(WRITTEN.to_owned())),
    })
    .await;
    let (port, to) = (port_of(&weaker), weaker.address.clone());
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let stronger = Stub::start(move |own, _, words| match words.split(' ').next() {
        Some("CONFIG") => Answer::Says(config(Durability::Synced)),
        Some("AT.TABLE") => Answer::Says(table(if ends.load(Ordering::SeqCst) { port } else { own }, None)),
        _ if ends.load(Ordering::SeqCst) => Answer::Says(format!("-MOVED 7 {to}\r\n")),
        _ => Answer::Says(WRITTEN.to_owned()),
    })
    .await;
    let store = RingStore::open(RingOptions::of(vec![stronger.address.clone()])).await.unwrap();
    let write = |asked: Option<Durability>| {
        let options = WriteOptions { durability: asked, ..WriteOptions::default() };
        store.write(Batch::on(b"p").put(b"s", &b"v"[..]), options)
    };
    assert_eq!(write(Some(Durability::Synced)).await.unwrap().durability, Durability::Synced);
    is_over.store(true, Ordering::SeqCst);
    // The other node is met while this one is under way.
    assert_eq!(write(Some(Durability::Synced)).await.unwrap().durability, Durability::Flushed);
    assert_eq!(write(None).await.unwrap().durability, Durability::Flushed);
    assert_eq!(write(Some(Durability::Synced)).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(weaker.came("AT.ID").len(), 2, "what is refused is not sent");
    assert_eq!(weaker.came("CONFIG").len(), 1, "not for each write");
}

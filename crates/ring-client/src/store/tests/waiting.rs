//! Waits at nodes that do not know where the cell is.

use super::*;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

#[tokio::test(start_paused = true)]
async fn a_wait_that_nobody_takes_ends_in_time_however_many_nodes_say_nothing() {
    let asked = AtomicUsize::new(0);
    let node = Stub::start(move |port, _, words| match words.split(' ').next().unwrap() {
        "AT.GET" => Answer::Says("$-1\r\n".to_owned()),
        "AT.WATCH" => Answer::Says("-CLUSTERDOWN Hash slot not served\r\n".to_owned()),
        "AT.TABLE" if asked.fetch_add(1, Ordering::SeqCst) > 0 => Answer::Hangs,
        _ => usual(port, words).unwrap_or_else(|| Answer::Says("+OK\r\n".to_owned())),
    })
    .await;
    let mut seeds = vec![node.address.clone()];
    for _ in 0..60 {
        seeds.push(Stub::start(|_, _, _| Answer::Hangs).await.address);
    }
    let second = Duration::from_secs(1);
    let options = RingOptions { patience: second, request_time_out: second, ..RingOptions::of(seeds) };
    let store = RingStore::open(options).await.unwrap();
    let began = tokio::time::Instant::now();
    let waited = store.wait(CELL, Expectation::Differs(None), Duration::from_secs(3600)).await;
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nodes_that_send_a_wait_to_each_other_are_asked_with_pauses() {
    // After more requests than this, with no time passing, they say nothing more.
    const ASKED_MAX: usize = 1_000;
    let (asked, ports) = (Arc::new(AtomicUsize::new(0)), [const { OnceLock::<u16>::new() }; 2].map(Arc::new));
    let start = |other: Arc<OnceLock<u16>>| {
        let asked = Arc::clone(&asked);
        Stub::start(move |port, _, words| match words.split(' ').next().unwrap() {
            "AT.GET" => Answer::Says("$-1\r\n".to_owned()),
            "AT.WATCH" if asked.fetch_add(1, Ordering::SeqCst) > ASKED_MAX => Answer::Hangs,
            "AT.WATCH" => Answer::Says(format!("-MOVED 1 127.0.0.1:{}\r\n", other.get().unwrap())),
            _ => usual(port, words).unwrap_or_else(|| Answer::Says("+OK\r\n".to_owned())),
        })
    };
    let nodes = [start(Arc::clone(&ports[1])).await, start(Arc::clone(&ports[0])).await];
    for (node, port) in nodes.iter().zip(&ports) {
        port.set(node.address.rsplit(':').next().unwrap().parse().unwrap()).unwrap();
    }
    let told = nodes.iter().map(|node| node.address.clone()).collect();
    let store = RingStore::open(RingOptions::of(told)).await.unwrap();
    let waited = store.wait(CELL, Expectation::Differs(None), Duration::from_secs(1)).await.unwrap();
    assert!(matches!(waited, Waited::TimedOut));
    let asked = nodes.iter().map(|node| node.came("AT.WATCH").len()).sum::<usize>();
    assert!((10..200).contains(&asked), "{asked} times");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_closed_ends_a_wait_whose_first_look_is_not_answered() {
    let node = Stub::start(|port, _, words| match words.starts_with("AT.GET ") {
        true => Answer::Hangs,
        false => usual(port, words).unwrap(),
    })
    .await;
    for time in [Duration::from_secs(3600), Duration::MAX] {
        let store = RingStore::open(RingOptions::of(vec![node.address.clone()])).await.unwrap();
        let began = tokio::time::Instant::now();
        let closing = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            store.close().await.unwrap();
        };
        let (waited, ()) = tokio::join!(store.wait(CELL, Expectation::Differs(None), time), closing);
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
    assert_eq!(node.came("AT.GET").len(), 2, "each looked");
}

//! Waits at nodes that do not know whom to wait at.

use super::*;
use std::sync::atomic::AtomicUsize;

#[tokio::test(start_paused = true)]
async fn a_wait_that_nobody_takes_ends_in_time_however_many_nodes_say_nothing() {
    let asked = AtomicUsize::new(0);
    let node = Stub::start(move |port, _, words| match words.split(' ').next().unwrap() {
        "AT.GET" => Answer::Says("$-1\r\n".to_owned()),
        "AT.WATCH" => Answer::Says("-CLUSTERDOWN Hash slot not served\r\n".to_owned()),
        "CLUSTER" if asked.fetch_add(1, Ordering::SeqCst) > 0 => Answer::Hangs,
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

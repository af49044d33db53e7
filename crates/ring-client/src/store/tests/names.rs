//! What nodes remember of writes without request ids.

use super::*;
use futures::future::join_all;
use std::collections::BTreeSet;

#[tokio::test(start_paused = true)]
async fn many_writes_to_a_partition_at_once_have_no_more_names_than_are_under_way() {
    let node = Stub::start(|port, _, words| {
        usual(port, words).unwrap_or_else(|| Answer::Says("*2\r\n:0\r\n+OK\r\n".to_owned()))
    })
    .await;
    let store = RingStore::open(RingOptions::of(vec![node.address.clone()])).await.unwrap();
    let batch = || Batch::on(b"p").put(b"s", &b"v"[..]);
    let written = join_all((0..2_000).map(|_| store.write(batch(), WriteOptions::default()))).await;
    assert!(written.iter().all(Result::is_ok));
    let sent = node.came("AT.ID");
    let clients: BTreeSet<_> = sent.iter().map(|words| words.split(' ').nth(1).unwrap()).collect();
    assert_eq!(sent.len(), 2_000);
    assert!(clients.len() <= 256, "{}", clients.len());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_others_does_not_wait_for_its_time_once_more() {
    let node = Stub::start(|port, _, words| {
        let refused = || Answer::Says("-CLUSTERDOWN Hash slot not served\r\n".to_owned());
        usual(port, words).unwrap_or_else(refused)
    })
    .await;
    let patience = Duration::from_secs(2);
    let options = RingOptions { patience, ..RingOptions::of(vec![node.address.clone()]) };
    let store = RingStore::open(options).await.unwrap();
    let began = tokio::time::Instant::now();
    let batch = || Batch::on(b"p").put(b"s", &b"v"[..]);
    let written = join_all((0..600).map(|_| store.write(batch(), WriteOptions::default()))).await;
    assert!(written.iter().all(Result::is_err));
    assert!(began.elapsed() < 2 * patience, "{:?}", began.elapsed());
}

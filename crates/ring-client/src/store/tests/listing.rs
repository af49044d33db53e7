//! Keys of Redis clients that are not partitions.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_hash_at_the_empty_key_is_no_partition() {
    let node = Stub::start(|port, _, words| {
        let keys = || Answer::Says("*2\r\n$1\r\n0\r\n*2\r\n$0\r\n\r\n$1\r\nk\r\n".to_owned());
        usual(port, words).unwrap_or_else(keys)
    })
    .await;
    let store = RingStore::open(RingOptions::of(vec![node.address.clone()])).await.unwrap();
    let page = store.partition_keys(PartitionQuery::prefix(b"")).await.unwrap();
    assert_eq!(page.partitions, [b"k"]);
}

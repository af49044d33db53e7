//! A store at nodes that answer as they are told to.

use super::*;
use crate::stub::{Answer, Stub, usual};
use atoll_store::ErrorKind;

const FULL: &str = "-ERR max number of clients reached\r\n";

/// A node that has no place for its first connections.
async fn full_for(connections: usize) -> Stub {
    Stub::start(move |port, connection, words| match connection < connections {
        true => Answer::Ends(FULL.to_owned()),
        false => usual(port, words).unwrap(),
    })
    .await
}

#[tokio::test]
async fn a_node_that_is_full_is_asked_again_until_it_has_a_place() {
    for token in [None, Some("secret".to_owned())] {
        let node = full_for(4).await;
        let options = RingOptions { token, ..RingOptions::of(vec![node.address.clone()]) };
        RingStore::open(options).await.unwrap();
        assert_eq!(node.came("CONFIG").len(), 1);
    }
}

#[tokio::test]
async fn a_node_that_stays_full_is_unavailable_and_says_why() {
    let node = full_for(usize::MAX).await;
    let patience = Duration::from_millis(50);
    let token = Some("secret".to_owned());
    let options = RingOptions { token, patience, ..RingOptions::of(vec![node.address.clone()]) };
    let error = RingStore::open(options).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("max number of clients"), "{error}");
    assert!(node.came("").len() > 1);
}

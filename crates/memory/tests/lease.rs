//! Leases on the memory store, with a clock that the test controls.

#![allow(clippy::unwrap_used, clippy::panic)]

use atoll_memory::{MemoryStore, Options};
use atoll_store::clock::ManualClock;
use atoll_store::lease::{Acquired, Lease, acquire, release};
use atoll_store::{Batch, Buffer, Cell, ErrorKind, Store, Timestamp, WriteOptions};
use std::sync::Arc;
use std::time::Duration;

const TERM: Duration = Duration::from_secs(10);

fn store() -> (MemoryStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::starting_at(Timestamp(1_000)));
    let options = Options { clock: clock.clone(), ..Options::default() };
    (MemoryStore::open(options).unwrap(), clock)
}

fn cell() -> Cell<'static> {
    Cell::new("locks", "leader")
}

async fn held(store: &MemoryStore, holder: &str) -> Lease {
    match acquire(store, cell(), holder.as_bytes(), TERM).await.unwrap() {
        Acquired::Held(lease) => lease,
        Acquired::Busy(by) => panic!("{holder} found {by:?}"),
    }
}

#[tokio::test]
async fn a_holder_that_was_paused_past_its_term_can_do_nothing_more() {
    let (store, clock) = store();
    let paused = held(&store, "first").await;
    clock.advance(TERM);
    let successor = held(&store, "second").await;
    assert!(successor.epoch > paused.epoch);

    assert_eq!(release(&store, cell(), &paused).await.unwrap_err().kind(), ErrorKind::Conflict);
    let guarded =
        Batch::on(*b"locks").if_equals(*b"leader", paused.encode()).put(*b"work", Buffer::copy_from(b"late"));
    let refused = store.write(guarded, WriteOptions::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    let renewal = acquire(&store, cell(), b"first", TERM).await.unwrap();
    assert_eq!(renewal, Acquired::Busy(successor));
}

#[tokio::test]
async fn renewing_in_time_keeps_the_epoch_and_prolongs_the_term() {
    let (store, clock) = store();
    let lease = held(&store, "first").await;
    clock.advance(TERM / 2);
    let renewed = held(&store, "first").await;
    assert_eq!(renewed.epoch, lease.epoch);
    assert_eq!(renewed.expires, lease.expires.after(TERM / 2));
}

#[tokio::test]
async fn a_lease_that_ended_or_was_given_back_starts_a_higher_epoch_even_for_the_same_holder() {
    let (store, clock) = store();
    let lease = held(&store, "first").await;
    clock.advance(TERM);
    let after_end = held(&store, "first").await;
    assert!(after_end.epoch > lease.epoch);
    release(&store, cell(), &after_end).await.unwrap();
    assert!(held(&store, "second").await.epoch > after_end.epoch);
}

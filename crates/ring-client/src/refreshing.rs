//! The table of slots is asked for once on behalf of all calls that want it at the same time, from any node.
//!
//! Invariant: a call that waits for another one's question gets an answer that was complete only after the
//! call came.

use crate::nodes::Address;
use atoll_store::StoreError;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Questions of a store for the table of slots.
#[derive(Default)]
pub(crate) struct Refreshing {
    /// How many questions have ended.
    ended: AtomicU64,
    /// Held while asking; contains the error of the last question, if it failed.
    turn: tokio::sync::Mutex<Option<StoreError>>,
    /// Nodes that did not answer last.
    silent: Mutex<BTreeSet<Address>>,
}

impl Refreshing {
    /// Asks, or waits for the question under way and takes its result.
    pub(crate) async fn once(
        &self,
        ask: impl Future<Output = Result<(), StoreError>>,
    ) -> Result<(), StoreError> {
        let before = self.ended.load(Ordering::Acquire);
        let mut turn = self.turn.lock().await;
        if self.ended.load(Ordering::Acquire) == before {
            *turn = ask.await.err();
            self.ended.fetch_add(1, Ordering::Release);
        }
        turn.clone().map_or(Ok(()), Err)
    }

    /// The order in which to ask nodes: random, so that not all programs ask the same one, with silent nodes
    /// last.
    pub(crate) fn order(&self, known: BTreeSet<Address>) -> Vec<Address> {
        let mut silent = self.silent.lock();
        silent.retain(|address| known.contains(address));
        let mut order: Vec<Address> = known.into_iter().collect();
        fastrand::shuffle(&mut order);
        order.sort_by_key(|address| silent.contains(address));
        order
    }

    /// Whether a node did not answer last.
    pub(crate) fn is_silent(&self, address: &Address) -> bool {
        self.silent.lock().contains(address)
    }

    /// Records whether a node answered.
    pub(crate) fn note(&self, address: &Address, answers: bool) {
        let mut silent = self.silent.lock();
        if answers {
            silent.remove(address);
        } else {
            silent.insert(address.clone());
        }
    }
}

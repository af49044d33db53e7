//! Who has which slot is asked once for all calls that want to know it at the same time, of any node.
//!
//! Invariant: who waited for somebody else's question gets the answer of one that ended after it came.

use crate::nodes::Address;
use atoll_store::StoreError;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Questions of a store about who has what.
#[derive(Default)]
pub(crate) struct Refreshing {
    /// How many ended.
    ended: AtomicU64,
    /// Held by whoever asks; what the last one who did was told, if it failed.
    turn: tokio::sync::Mutex<Option<StoreError>>,
    /// Who did not answer last.
    silent: Mutex<BTreeSet<Address>>,
}

impl Refreshing {
    /// Asks, or waits for whoever is asking and takes the answer.
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

    /// In which order nodes are asked: any, so that not all programs ask the same one, but who did not answer
    /// comes last.
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

    /// A node answered, or did not.
    pub(crate) fn note(&self, address: &Address, answers: bool) {
        let mut silent = self.silent.lock();
        if answers {
            silent.remove(address);
        } else {
            silent.insert(address.clone());
        }
    }
}

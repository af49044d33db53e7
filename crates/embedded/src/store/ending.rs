//! The end of a store that was not closed: an operation of its engine ended half-way, or its folder belongs
//! to another process.
//!
//! Invariant: every waiter for a cell is woken when the store stops answering, and gets that as an error.

use super::{EmbeddedStore, Inner};
use atoll_engine::Engine;
use atoll_store::StoreError;
use atoll_store::watch::Watches;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Whether a store has ended.
pub(super) struct Ending {
    broken: Arc<watch::Sender<bool>>,
    is_abandoned: AtomicBool,
}

impl Ending {
    /// Registers with `engine` to wake all waiters when it breaks.
    pub(super) fn of(engine: &Engine, watches: &Arc<Watches>) -> Self {
        let broken = Arc::new(watch::Sender::new(false));
        // The engine owns this callback, so the callback must not own the engine.
        let (watches, tells) = (Arc::clone(watches), Arc::clone(&broken));
        engine.when_broken(move || {
            watches.wake_all();
            tells.send_replace(true);
        });
        Self { broken, is_abandoned: AtomicBool::new(false) }
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    /// Clears the mark of an abandoned store. True if it was abandoned and is broken; reported once.
    pub(super) fn close_broken(&self) -> bool {
        self.is_abandoned.swap(false, Ordering::AcqRel) && *self.broken.borrow()
    }
}

impl Inner {
    /// The error of every call on a store that was abandoned.
    pub(super) fn abandoned(&self) -> StoreError {
        let reason = "this process gave it up, since an operation on it ended half-way or its folder belongs to another process: close it here and open it again";
        StoreError::Unavailable { place: self.place.clone(), reason: reason.into(), source: None }
    }
}

impl EmbeddedStore {
    /// Returns once an operation of the engine ended half-way, after which it answers no call; otherwise
    /// never.
    pub fn until_broken(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut broken = self.inner.ending.broken.subscribe();
        async move {
            if broken.wait_for(|is_broken| *is_broken).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Abandons the store to another process: not a byte more is written, and no call is answered.
    pub async fn abandon(&self) {
        self.inner.ending.is_abandoned.store(true, Ordering::Release);
        let inner = Arc::clone(&self.inner);
        // It waits for writes that are under way. If the runtime ends, so does all writing.
        let abandoned = tokio::task::spawn_blocking(move || {
            inner.engine.abandon();
            inner.watches.wake_all();
        });
        let _ = abandoned.await;
    }
}

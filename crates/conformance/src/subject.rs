//! The store under test, as the suite needs it: how to open it, and how to crash it.

use atoll_store::{Store, StoreError};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// A store, as the suite holds it.
pub type SharedStore = Arc<dyn Store>;

/// How a store ends before it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was closed; everything acknowledged must be there again.
    Closed,
    /// Its process was killed; what was acknowledged as `flushed` or better must be there again.
    Killed,
    /// Power was lost; what was acknowledged as `synced` must be there again.
    PowerLost,
}

/// An implementation under test.
///
/// The suite calls it inside a tokio runtime with several worker threads and a timer.
pub trait Subject: Send + Sync {
    /// Its name in reports.
    fn name(&self) -> String;

    /// Opens a fresh and empty store that shares nothing with those opened before.
    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>>;

    /// Ends `store` in the given way and opens what it left. None where the implementation cannot end
    /// like that, because it is volatile or has no means to simulate it; the checks that need it are
    /// then reported as skipped.
    ///
    /// For [`Ending::Closed`] the suite has called `close` before. Calls may still be under way.
    fn reopen(
        &self,
        store: SharedStore,
        ending: Ending,
    ) -> Option<BoxFuture<'_, Result<SharedStore, StoreError>>> {
        let _ = (store, ending);
        None
    }

    /// How many times longer its calls may take than those of a store on this machine. A check gets this many
    /// times longer before it counts as hanging.
    fn slowness(&self) -> u32 {
        1
    }

    /// Lets `duration` pass by the clock of `store`. An implementation with an injected clock moves it.
    fn pass<'a>(&'a self, store: &'a SharedStore, duration: Duration) -> BoxFuture<'a, ()> {
        let _ = store;
        Box::pin(tokio::time::sleep(duration))
    }
}

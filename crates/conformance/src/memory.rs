//! The memory store as a subject, with a clock that the suite moves.

use crate::subject::{SharedStore, Subject};
use atoll_memory::{MemoryStore, Options};
use atoll_store::clock::{Clock, ManualClock};
use atoll_store::{StoreError, Timestamp};
use futures::future::{BoxFuture, ready};
use std::sync::Arc;
use std::time::Duration;

/// The memory store, which passes every check that applies to a volatile store.
pub struct Memory {
    clock: Arc<ManualClock>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { clock: Arc::new(ManualClock::starting_at(Timestamp(1_000_000_000))) }
    }
}

impl Memory {
    /// A fresh memory store on the subject's clock.
    ///
    /// # Errors
    /// If the default options of the memory store are not valid, which is a bug.
    pub fn store(&self) -> Result<MemoryStore, StoreError> {
        let clock: Arc<dyn Clock> = self.clock.clone();
        MemoryStore::open(Options { clock, ..Options::default() }).map_err(|error| StoreError::Failed {
            what: "opening",
            place: "a memory store".into(),
            source: Arc::new(error),
        })
    }

    /// Moves the clock of all stores of this subject.
    pub fn advance(&self, duration: Duration) {
        self.clock.advance(duration);
    }
}

impl Subject for Memory {
    fn name(&self) -> String {
        "memory store".into()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        Box::pin(ready(self.store().map(|store| Arc::new(store) as SharedStore)))
    }

    fn pass<'a>(&'a self, _store: &'a SharedStore, duration: Duration) -> BoxFuture<'a, ()> {
        self.advance(duration);
        Box::pin(ready(()))
    }
}

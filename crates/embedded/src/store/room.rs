//! Waiting for a checkpoint to make room in memory: on another thread, so that tasks on this one go on.

use super::EmbeddedStore;
use atoll_store::StoreError;
use std::sync::Arc;

impl EmbeddedStore {
    /// Returns once there is room for a write of values of these lengths, or as much room as there will be.
    /// One write waits on behalf of all: a thread for each would leave none for reads.
    pub(super) async fn wait_for_room(
        &self,
        lengths: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), StoreError> {
        if !self.inner.engine.may_wait(lengths.clone()) {
            return Ok(());
        }
        let only_one = Arc::clone(&self.inner.room).lock_owned().await;
        if !self.inner.engine.may_wait(lengths.clone()) {
            return Ok(());
        }
        let lengths: Vec<usize> = lengths.collect();
        self.off_thread("write", move |inner| {
            // Held until the wait ends, even if the caller of the write is gone.
            let _only_one = only_one;
            let waited = inner.engine.wait_for_room(lengths.into_iter());
            waited.map_err(|error| inner.refused("write", error))
        })
        .await
    }
}

//! Waiting for room in memory, which a checkpoint makes: elsewhere, so that whoever shares the thread goes
//! on.

use super::EmbeddedStore;
use atoll_store::StoreError;
use std::sync::Arc;

impl EmbeddedStore {
    /// Returns once there is room for a write of values of such lengths, or as much as there will be. One
    /// waits for all: a thread for each would leave none to reads.
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
            // Also if nobody waits for the write any more.
            let _only_one = only_one;
            let waited = inner.engine.wait_for_room(lengths.into_iter());
            waited.map_err(|error| inner.refused("write", error))
        })
        .await
    }
}

//! A store that served checks before, made as good as a new one, where to begin another would take longer
//! than a check.

use crate::relay::Relay;
use atoll_store::{Batch, PartitionQuery, RequestId, Store, StoreError, StoreFuture, WriteOptions, Written};

/// Deletes all that a store holds.
///
/// # Errors
/// Those of the store.
pub async fn empty(store: &dyn Store) -> Result<(), StoreError> {
    let mut query = PartitionQuery::prefix(*b"");
    loop {
        let page = store.partition_keys(query.clone()).await?;
        for partition in &page.partitions {
            store.delete_partition(partition, WriteOptions::default()).await?;
        }
        query.resume = page.resume;
        if query.resume.is_none() {
            return Ok(());
        }
    }
}

/// A store whose clients have other names than those who name their writes know, so that what earlier ones
/// did is not taken for theirs.
pub struct Renamed<S> {
    /// The store.
    pub store: S,
    /// What is drawn for each check.
    pub stranger: u128,
}

impl<S: Store> Relay for Renamed<S> {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let renamed = |id: RequestId| RequestId { client: id.client ^ self.stranger, ..id };
        self.store.write(batch, WriteOptions { request: options.request.map(renamed), ..options })
    }
}

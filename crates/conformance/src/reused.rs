//! Reuse of a store for several checks, each of which finds it as good as new, for stores that take longer to
//! start than a check runs.

use crate::relay::Relay;
use atoll_store::{Batch, PartitionQuery, RequestId, Store, StoreError, StoreFuture, WriteOptions, Written};

/// Deletes everything that a store holds.
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

/// A store that changes the client of each request id, so that the ids of a check are not taken for those of
/// an earlier one.
pub struct Renamed<S> {
    /// The store.
    pub store: S,
    /// Mixed into the client of each request id; drawn for each check.
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

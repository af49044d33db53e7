//! Objects that no version will ever name, because a load failed: they do not stay.

use super::door::is_object;
use super::load::{objects, options, steps};
use super::rows::{create, open, steps_seen};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Batch, Mutation, Outcome, Store, StoreError, StoreFuture, WriteOptions, Written};
use atoll_tables::PackOptions;
use std::sync::{Arc, Mutex};

/// A store that creates one object, the first, and says each time that the outcome is unknown.
struct Doubtful {
    inner: Arc<dyn Store>,
    object: Mutex<Option<Vec<u8>>>,
}

fn puts_object(batch: &Batch) -> bool {
    is_object(&batch.partition) && batch.mutations.iter().any(|it| matches!(it, Mutation::Put(..)))
}

impl Relay for Doubtful {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let is_first = puts_object(&batch) && {
            let mut object = self.object.lock().unwrap();
            *object.get_or_insert_with(|| batch.partition.clone()) == batch.partition
        };
        Box::pin(async move {
            let written = self.inner.write(batch, options).await;
            if is_first {
                let reason = "it was planned so".to_owned();
                return Err(StoreError::Unknown { what: "a write", reason, source: None });
            }
            written
        })
    }
}

#[tokio::test]
async fn a_block_in_doubt_does_not_stay_if_its_load_fails() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&inner).await;
    table.begin("a", 1, 1).await.unwrap();
    let store = Doubtful { inner: Arc::clone(&inner), object: Mutex::new(None) };
    let store: Arc<dyn Store> = Arc::new(Relayed(store));
    // The handle lives on, and with it its session, during which no vacuum removes anything that it wrote.
    let loader = open(&store).await;
    let before = objects(&inner).await;
    let few = PackOptions { rows_min: 100_000, ..options() };
    let failed = loader.load("a", 1, &steps(1..=4), &few).await.unwrap_err();
    assert_eq!(failed.outcome(), Outcome::Unknown, "{failed}");
    assert_eq!(objects(&inner).await, before);
    loader.load("a", 1, &steps(1..=4), &few).await.unwrap();
    assert_eq!(objects(&inner).await, before + 4);
    assert_eq!(steps_seen(&table).await.len(), 4);
}

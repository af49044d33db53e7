//! A store that fails at one of its writes, before or after carrying it out, as in a crash at any write of a
//! pack.

use crate::run;
use crate::tube::{Tube, schema};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Batch, Store, StoreError, StoreFuture, WriteOptions, Written};
use atoll_tables::cube::Shape;
use atoll_tables::{PackOptions, Query, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store that fails after a number of writes.
struct Failing {
    inner: Arc<dyn Store>,
    /// The writes that are left; the last one is carried out, but its answer is lost.
    left: AtomicU64,
}

fn unknown() -> StoreError {
    StoreError::Unknown { what: "a write", reason: "it was planned so".to_owned(), source: None }
}

impl Failing {
    async fn guarded(&self, written: StoreFuture<'_, Written>) -> Result<Written, StoreError> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Err(_) => Err(StoreError::ReadOnly { place: "here".to_owned() }),
            Ok(1) => {
                written.await?;
                Err(unknown())
            }
            Ok(_) => written.await,
        }
    }
}

impl Relay for Failing {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(self.guarded(self.inner.write(batch, options)))
    }
}

#[test]
fn a_pack_that_ends_at_any_of_its_writes_has_changed_no_answer() {
    run(async {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let table = Table::create(Arc::clone(&inner), "run", schema(false)).await.unwrap();
        Tube::new(5, 300, 12).write(&table).await;
        let before = table.query(&Query::default()).await.unwrap().rows;
        let mut options = PackOptions::whole();
        options.shape = Shape { cube_rows: 200, leaf_rows: 300, object_bytes: 8 << 10, ..options.shape };
        let mut ended = 0;
        for writes in 1.. {
            let store = Relayed(Failing { inner: Arc::clone(&inner), left: AtomicU64::new(u64::MAX) });
            let store = Arc::new(store);
            let packer = Table::open(Arc::clone(&store) as Arc<dyn Store>, "run").await.unwrap();
            store.left.store(writes, Ordering::SeqCst);
            let packed = packer.pack(&options).await;
            let reader = Table::open(Arc::clone(&inner), "run").await.unwrap();
            assert_eq!(reader.query(&Query::default()).await.unwrap().rows, before, "after {writes} writes");
            match packed {
                Ok(report) => {
                    // The last write made the pack true, but its answer was lost, so the next pack had
                    // nothing to do.
                    assert!(report.version.is_none() || report.objects_after > 5, "{report:?}");
                    break;
                }
                Err(_) => ended += 1,
            }
        }
        assert!(ended > 6, "{ended} crashes");
        assert_eq!(table.query(&Query::default()).await.unwrap().rows, before);
    });
}

//! Tests the comparison while other queries cause opened parts to be evicted.

use super::super::Work;
use super::super::failing::ROWS;
use super::*;
use crate::table::part_cache::TableParts;
use crate::table::tests::{rows, schema};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Buffer, Read, Store, StoreStream};
use std::sync::OnceLock;

/// A store that makes a table evict its opened parts whenever objects are read.
struct Forgetful {
    inner: MemoryStore,
    parts: Arc<OnceLock<Arc<TableParts>>>,
}

impl Relay for Forgetful {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        if let Some(parts) = self.parts.get() {
            parts.forget();
        }
        self.inner.get_many(reads)
    }
}

#[tokio::test]
async fn a_part_that_is_forgotten_while_others_are_opened_was_taken_at_the_first_look() {
    let parts = Arc::new(OnceLock::new());
    let store = Forgetful { inner: MemoryStore::new(), parts: Arc::clone(&parts) };
    let table = Table::create(Arc::new(Relayed(store)), "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for step in 0..3 {
        let block = crate::protocol::BlockId { run: "run".into(), attempt: 1, step, rank: 0 };
        table.append(block, &rows(&mut random, step as i64, 0, ROWS as usize)).await.unwrap();
    }
    let manifest = table.ledger.current().await.unwrap().manifest;
    let found = visible(&manifest, &RunId::from("run"), None);
    let all: Vec<&Candidate> = found.iter().collect();
    let opened = async |candidates| table.opened(candidates, &manifest, &mut Work::default()).await;
    assert_eq!(opened(&all[..1]).await.unwrap().len(), 1);
    parts.set(Arc::clone(&table.parts)).ok();
    assert_eq!(opened(&all).await.unwrap().len(), 3);
}

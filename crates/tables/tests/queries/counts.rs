//! What answering takes, counted: noise cannot move these, so they are exact, and a change that costs more
//! fails here.

use crate::counted::{CountedStore, Counts};
use crate::particles::{batch, schema, some};
use crate::run;
use atoll_memory::MemoryStore;
use atoll_tables::protocol::BlockId;
use atoll_tables::{Query, Table, Work};
use fastrand::Rng;
use std::sync::Arc;

/// Rows of a block.
const ROWS: i64 = 60_000;

/// Four blocks, a step each, on a store that counts.
async fn four_blocks() -> (Table, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let store = CountedStore { inner: Arc::new(MemoryStore::new()), counts: Arc::clone(&counts) };
    let table = Table::create(Arc::new(store), "run", schema(false, 0)).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let mut random = Rng::with_seed(9);
    for step in 0..4 {
        let rows = some(&mut random, table.schema(), step, 0..ROWS);
        let id = BlockId { run: "run".into(), attempt: 1, step: step as u64, rank: 0 };
        table.append(id, &batch(table.schema(), &rows)).await.unwrap();
    }
    (table, counts)
}

/// What a query took, as it says itself; and in how many rounds. Checked against the store's own count.
async fn took(table: &Table, counts: &Counts, query: &Query) -> (Work, u64) {
    counts.take();
    let work = table.query(query).await.unwrap().work;
    let (requests, bytes, rounds) = counts.take();
    assert_eq!((work.requests, work.bytes), (requests, bytes), "what was counted is not what was said");
    (work, rounds)
}

#[test]
fn a_sample_of_everything_touches_at_most_twice_its_rows_and_a_band_of_each_block() {
    run(async {
        let (table, counts) = four_blocks().await;
        for share in [0.001, 0.01, 0.015, 0.1, 0.3, 1.0] {
            let (work, rounds) = took(&table, &counts, &Query::default().sample(share).unwrap()).await;
            assert!(work.rows_touched <= 2 * work.rows_returned + 4 * 256, "{share}: {work:?}");
            assert_eq!(rounds, 2, "{share}: directories, then slices");
            assert!(work.requests <= 8 + work.bytes / (3 << 20), "{share}: {work:?}");
        }
        let (work, _) = took(&table, &counts, &Query::default().sample(0.01).unwrap()).await;
        let expected = Work {
            blocks: 4,
            bands: 12,
            rows_touched: 4096,
            rows_returned: work.rows_returned,
            requests: 8,
            bytes: work.bytes,
        };
        assert_eq!(work, expected);
    });
}

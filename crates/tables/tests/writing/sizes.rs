//! What commits cost in tables of many blocks.

use super::door::Door;
use super::rows::{block, create, open, rows};
use atoll_memory::MemoryStore;
use atoll_store::Store;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// `ATOLL_STEPS=10000 cargo test --release -p atoll-tables --test writing sizes -- --nocapture` prints the figures
/// of a table of 20,000 blocks.
#[tokio::test]
async fn a_commit_to_a_large_table_costs_no_more_than_one_to_a_small_one() {
    let steps = setting("ATOLL_STEPS", 2000);
    let door = Door::new(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let table = create(&store).await;
    table.begin("a", 1, 2).await.unwrap();
    let started = Instant::now();
    for step in 0..steps {
        for rank in 0..2 {
            table.append_at(block("a", 1, step, rank), Some(step as f64), &rows(step, 0, 1)).await.unwrap();
        }
        if (step + 1) % (steps / 4) == 0 {
            report(&door, &store, 2 * (step + 1), started).await;
        }
    }
    let written = door.manifest_bytes.lock().unwrap().clone();
    let total: usize = written.iter().sum();
    let (mean, most) = (total / written.len(), written.iter().max().copied().unwrap_or_default());
    println!("{} commits, {mean} bytes each, the longest {most}", written.len());
    assert!(mean < 1000, "{mean} bytes a commit");
    assert!(most < 128 * 2 * steps as usize, "{most} bytes in one commit");
    // Opening reads a whole manifest and the edits since, a page at a time, never one by one.
    let before = door.reads.load(Ordering::SeqCst);
    let reader = open(&store).await;
    let reads = door.reads.load(Ordering::SeqCst) - before;
    assert_eq!(reader.steps(None).await.unwrap().len() as u64, steps);
    assert!(reads < 70, "{reads} reads to open");
}

async fn report(door: &Door, store: &Arc<dyn Store>, blocks: u64, started: Instant) {
    let written = started.elapsed();
    let before = door.reads.load(Ordering::SeqCst);
    let started = Instant::now();
    open(store).await;
    let (opened, reads) = (started.elapsed(), door.reads.load(Ordering::SeqCst) - before);
    println!("{blocks} blocks after {written:.1?}, opened in {opened:.1?} by {reads} reads");
}

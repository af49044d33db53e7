//! What commits cost in tables of many blocks.

use super::door::{Door, Doorway};
use super::rows::{block, create, open, rows};
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::Query;
use atoll_tables::protocol::{
    Block, Edit, Extent, Form, LastStep, Manifest, ObjectId, Piece, Scope, SessionId, StepRange, WeightRange,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// `ATOLL_STEPS=10000 cargo test --release -p atoll-tables --test writing sizes -- --nocapture` prints the
/// numbers for a table of 20,000 blocks.
#[tokio::test]
async fn a_commit_to_a_large_table_costs_no_more_than_one_to_a_small_one() {
    let steps = setting("ATOLL_STEPS", 2000);
    let door = Doorway::before(Arc::new(MemoryStore::new()));
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
    // Opening reads a whole manifest and the edits since, page by page and never one by one.
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

/// `ATOLL_RUNS=10000 cargo test -p atoll-tables --test writing runs -- --nocapture` prints the numbers for a
/// table of ten thousand runs of a thousand rows, in a folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_very_many_small_runs_is_written_listed_and_asked_in_time() {
    let (runs, count) = (setting("ATOLL_RUNS", 200), 1000);
    let folder = tempfile::tempdir().unwrap();
    let opened = atoll_embedded::open(folder.path(), atoll_embedded::OpenOptions::default()).await.unwrap();
    let door = Doorway::before(opened.store());
    let store: Arc<dyn Store> = door.clone();
    let table = create(&store).await;
    let rows = rows(0, 0, count);
    let counted = || (door.reads.load(Ordering::SeqCst), door.writes.load(Ordering::SeqCst));
    let (_, none) = counted();
    let started = Instant::now();
    for run in 0..runs {
        let name = format!("run {run:05}");
        table.begin(&name, 1, 1).await.unwrap();
        table.append(block(&name, 1, 0, 0), &rows).await.unwrap();
    }
    let written = started.elapsed();
    let (before, writes) = counted();
    let started = Instant::now();
    let reader = open(&store).await;
    let opened = started.elapsed();
    let listed = reader.runs().await.unwrap();
    let listing = started.elapsed() - opened;
    let (reads, _) = counted();
    assert_eq!(listed.len() as u64, runs);
    assert!(listed.iter().all(|run| run.rows == count as u64 && run.last_complete == Some(0)));
    let started = Instant::now();
    let first = Query { limit: Some(1000), ..Query::default() };
    assert_eq!(reader.query(&first).await.unwrap().rows.num_rows(), 1000);
    let first_query = started.elapsed();
    println!(
        "{runs} runs of {count} rows: written in {written:.1?}, opened in {opened:.1?}, listed in {listing:.1?}, \
         first query in {first_query:.1?}"
    );
    // The limits for ten thousand runs, with a margin for a busy machine.
    let share = runs as f64 / 10_000.0;
    assert!(written.as_secs_f64() < 60.0 * share + 5.0, "{written:?} to write");
    assert!((opened + listing).as_secs_f64() < share + 1.0, "{opened:?} to open, {listing:?} to list");
    let (reads, writes) = (reads - before, writes - none);
    println!("{writes} writes, {reads} reads to open and list");
    assert!(writes as u64 <= 3 * runs + 3, "{writes} writes of {runs} runs");
    assert!(reads as u64 <= 70 + runs / 100, "{reads} reads to open and list {runs} runs");
}

/// A block of one row, with the object of this number.
fn block_of(run: &str, step: u64, rank: u32, sequence: u64) -> Block {
    let piece = Piece {
        object: ObjectId { session: SessionId(1), sequence },
        part: 0,
        form: Form::Block,
        weights: WeightRange::ALL,
        rows: 1,
        bytes: 100,
        front_bytes: 50,
        extent: Extent { run: Some(run.into()), steps: StepRange::only(step) },
        tight: None,
    };
    Block { id: block(run, 1, step, rank), time: None, piece: Some(piece) }
}

#[test]
fn what_a_delete_removes_is_not_compared_with_every_block_that_is_arriving() {
    let count = 30_000;
    let begin = |run: &str, ranks| Edit::Begin { run: run.into(), attempt: 1, ranks, last: LastStep::Any };
    let there = Edit::Append { blocks: (0..count).map(|step| block_of("a", step, 0, step)).collect() };
    let scope = Scope { run: Some("a".into()), steps: StepRange::ALL, expression: None };
    let delete = Edit::Delete { scope };
    let took = |ranks: u32| {
        // The step of the other run waits for one more rank.
        let arriving = (0..ranks).map(|rank| block_of("b", 0, rank, count + u64::from(rank))).collect();
        let arriving = Edit::Append { blocks: arriving };
        let edits = [begin("a", 1), begin("b", ranks + 1), there.clone(), arriving];
        let manifest = edits.iter().fold(Manifest::default(), |manifest, edit| manifest.apply(edit).unwrap());
        let started = Instant::now();
        assert_eq!(manifest.apply(&delete).unwrap().retired.len() as u64, count);
        started.elapsed().as_secs_f64()
    };
    let (few, many) = (took(10), took(30_000));
    println!("{count} blocks deleted in {few:.3} s, and in {many:.3} s with 30,000 that are arriving");
    // Nearly a billion comparisons take several seconds.
    assert!(many < 10.0 * few + 1.0, "{many} s rather than {few} s");
}

//! Loading: whole steps at once, packed on the way in.

use super::door::Doorway;
use super::rows::{block, create, open, rows, schema, steps_seen};
use arrow_schema::DataType;
use atoll_conformance::{Relay, Relayed};
use atoll_memory::{MemoryStore, Options};
use atoll_store::{
    Batch, ErrorKind, Limits, Mutation, Outcome, PartitionQuery, ScanRequest, SortRange, Store, StoreError,
    StoreFuture, WriteOptions, Written,
};
use atoll_tables::block::BlockError;
use atoll_tables::cube::Shape;
use atoll_tables::protocol::EditError;
use atoll_tables::{PackOptions, Table, TableError, WholeStep, column};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Small enough that a few rows make a tree.
pub fn options() -> PackOptions {
    PackOptions { rows_min: 100, ..PackOptions::default() }
}

pub fn step(step: u64, count: usize) -> WholeStep {
    WholeStep { step, time: Some(step as f64 / 2.0), rows: rows(step, 0, count) }
}

pub fn steps(numbers: std::ops::RangeInclusive<u64>) -> Vec<WholeStep> {
    numbers.map(|number| step(number, 60)).collect()
}

pub async fn table(ranks: u32) -> (Arc<dyn Store>, Table) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    table.begin("a", 1, ranks).await.unwrap();
    (store, table)
}

/// A table with unique ids.
pub async fn unique() -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema().with_unique_ids()).await.unwrap();
    table.begin("a", 1, 1).await.unwrap();
    table
}

#[tokio::test]
async fn what_is_loaded_is_packed_and_listed_with_its_times() {
    let (store, table) = table(3).await;
    let before = table.version().await.unwrap();
    let version = table.load("a", 1, &steps(1..=4), &options()).await.unwrap();
    assert_eq!(version.0, before.0 + 1, "four steps of three ranks in one version");
    let info = open(&store).await.info().await.unwrap();
    assert_eq!((info.rows, info.blocks), (240, 0));
    assert!(info.cubes > 0);
    assert_eq!(steps_seen(&open(&store).await).await, [(1, 60), (2, 60), (3, 60), (4, 60)]);
    let listed = table.steps(Some("a")).await.unwrap();
    let told: Vec<_> = listed.iter().map(|step| (step.step, step.time, step.rows)).collect();
    assert_eq!(told[2], (3, Some(1.5), 60));
}

#[tokio::test]
async fn loading_again_changes_nothing_and_leaves_no_objects() {
    let (store, table) = table(1).await;
    let version = table.load("a", 1, &steps(1..=3), &options()).await.unwrap();
    let cells = objects(&store).await;
    assert_eq!(table.load("a", 1, &steps(1..=3), &options()).await.unwrap(), version);
    assert_eq!(objects(&store).await, cells, "what the second load wrote is gone");
    assert_eq!(steps_seen(&table).await.len(), 3);
}

/// The versions that have a whole manifest.
async fn wholes(store: &Arc<dyn Store>) -> Vec<u64> {
    let listed = store.partition_keys(PartitionQuery::prefix("\0atoll.table/")).await.unwrap().partitions;
    let manifest = listed.into_iter().find(|key| key.ends_with(b"/m")).unwrap();
    let request = ScanRequest { range: SortRange::prefix(b"f"), ..ScanRequest::all(manifest.as_slice()) };
    let found = store.scan(request).await.unwrap().entries;
    found.iter().map(|cell| u64::from_be_bytes(cell.sort[1..].try_into().unwrap())).collect()
}

#[tokio::test]
async fn loads_of_thousands_of_steps_leave_no_long_history_for_whoever_opens_the_table() {
    let (store, mut table) = table(1).await;
    let before = table.version().await.unwrap().0;
    for load in 0..4_u64 {
        let steps: Vec<_> = (4200 * load..4200 * (load + 1)).map(|number| step(number, 0)).collect();
        table.load("a", 1, &steps, &options()).await.unwrap();
        if load % 2 == 1 {
            // This handle has read the edits, and not made them.
            table = open(&store).await;
        }
    }
    // Each is written once the edits since the last one have half as many entries.
    assert_eq!(wholes(&store).await, [before + 1, before + 3]);
    assert_eq!(open(&store).await.steps(None).await.unwrap().len(), 4 * 4200);
}

/// The number of partitions in the store besides those of the table's own cells.
pub async fn objects(store: &Arc<dyn Store>) -> usize {
    store.partition_keys(PartitionQuery::prefix("")).await.unwrap().partitions.len()
}

#[tokio::test]
async fn what_is_there_or_may_not_come_is_known_before_anything_is_written() {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let table = create(&(door.clone() as Arc<dyn Store>)).await;
    table.begin("a", 1, 1).await.unwrap();
    let version = table.load("a", 1, &steps(1..=3), &options()).await.unwrap();
    let writes = || door.writes.load(Ordering::SeqCst);
    let before = writes();
    assert_eq!(table.load("a", 1, &steps(1..=3), &options()).await.unwrap(), version);
    for (run, attempt) in [("a", 1), ("a", 2), ("b", 1)] {
        table.load(run, attempt, &steps(3..=6), &options()).await.unwrap_err();
    }
    assert_eq!(writes(), before);
    table.begin("a", 2, 1).await.unwrap();
    let before = writes();
    let stale = table.load("a", 1, &steps(4..=6), &options()).await.unwrap_err();
    assert!(matches!(stale, TableError::Edit(EditError::StaleAttempt { .. })), "{stale}");
    assert_eq!(writes(), before);
}

#[tokio::test]
async fn steps_of_which_some_are_there_are_refused_as_a_whole() {
    let (store, table) = table(1).await;
    table.load("a", 1, &steps(1..=3), &options()).await.unwrap();
    let cells = objects(&store).await;
    let refused = table.load("a", 1, &steps(3..=6), &options()).await.unwrap_err();
    assert!(matches!(&refused, TableError::Edit(EditError::StepOrder { last: 3, .. })), "{refused}");
    assert_eq!((steps_seen(&table).await.len(), objects(&store).await), (3, cells));
    table.load("a", 1, &steps(4..=6), &options()).await.unwrap();
    assert_eq!(steps_seen(&table).await.len(), 6);
}

#[tokio::test]
async fn a_step_that_is_arriving_is_not_loaded_over() {
    let (_, table) = table(2).await;
    table.append(block("a", 1, 2, 0), &rows(2, 0, 10)).await.unwrap();
    for steps in [steps(1..=4), steps(3..=4)] {
        let refused = table.load("a", 1, &steps, &options()).await.unwrap_err();
        let is_arriving = |error: &TableError| {
            matches!(error, TableError::Edit(EditError::StepArriving { arriving: 2, .. }))
        };
        assert!(is_arriving(&refused), "{refused}");
        assert!(refused.hint().unwrap().contains("step 2 of the other ranks"));
    }
    table.append(block("a", 1, 2, 1), &rows(2, 100, 10)).await.unwrap();
    table.load("a", 1, &steps(3..=4), &options()).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(2, 20), (3, 60), (4, 60)]);
}

#[tokio::test]
async fn a_new_attempt_takes_the_place_of_what_was_loaded_and_the_other_way_round() {
    let (_, table) = table(1).await;
    table.load("a", 1, &steps(1..=4), &options()).await.unwrap();
    table.begin("a", 2, 1).await.unwrap();
    table.append(block("a", 2, 3, 0), &rows(3, 500, 7)).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(1, 60), (2, 60), (3, 7)]);
    table.begin("a", 3, 1).await.unwrap();
    let stale = table.load("a", 2, &steps(4..=6), &options()).await.unwrap_err();
    assert!(matches!(stale, TableError::Edit(EditError::StaleAttempt { .. })), "{stale}");
    table.load("a", 3, &steps(2..=5), &options()).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(1, 60), (2, 60), (3, 60), (4, 60), (5, 60)]);
}

#[tokio::test]
async fn a_delete_reaches_what_was_loaded_before_it_and_not_what_comes_after() {
    let (_, table) = table(1).await;
    table.load("a", 1, &steps(1..=3), &options()).await.unwrap();
    table.delete(None, None, Some("x < 0.5")).await.unwrap();
    table.load("a", 1, &steps(4..=6), &options()).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(1, 30), (2, 30), (3, 30), (4, 60), (5, 60), (6, 60)]);
    table.pack(&PackOptions::whole()).await.unwrap();
    assert_eq!(steps_seen(&table).await, [(1, 30), (2, 30), (3, 30), (4, 60), (5, 60), (6, 60)]);
}

#[tokio::test]
async fn few_rows_come_as_blocks_and_unique_ids_are_compared() {
    let (_, few) = table(2).await;
    few.load("a", 1, &[step(1, 20), step(2, 20)], &options()).await.unwrap();
    assert_eq!((few.info().await.unwrap().cubes, steps_seen(&few).await), (0, vec![(1, 20), (2, 20)]));
    let unique = unique().await;
    unique.load("a", 1, &steps(1..=4), &options()).await.unwrap();
    let mut repeated = step(5, 60);
    repeated.rows = rows(4, 0, 60);
    let refused = unique.load("a", 1, &[repeated, step(6, 60)], &options()).await.unwrap_err();
    assert!(matches!(refused, TableError::Edit(EditError::RepeatedIds { .. })), "{refused}");
    assert_eq!(steps_seen(&unique).await.len(), 4);
}

#[tokio::test]
async fn few_rows_that_are_too_large_for_an_object_are_cut_into_several() {
    let limits = Limits { value_bytes: 256 << 10, ..Limits::CONTRACT };
    let store = MemoryStore::open(Options { limits, ..Options::default() }).unwrap();
    let table = create(&(Arc::new(store) as Arc<dyn Store>)).await;
    table.begin("a", 1, 1).await.unwrap();
    // Exactly as many bytes of numbers as an object may have, and none of what comes with them.
    let exact = step(1, (256 << 10) / 16);
    let (most, row) = table.bytes_at_most(&exact.rows).unwrap();
    assert!(most > table.block_bytes_max() && most < table.block_bytes_max() + 4096, "{most}");
    assert!((24..100).contains(&row), "{row}");
    let refused = table.append(block("a", 1, 1, 0), &exact.rows).await.unwrap_err();
    assert!(matches!(refused, TableError::TooLarge { bytes, .. } if bytes == most), "{refused}");
    let shape = Shape { object_bytes: 64 << 10, ..Shape::default() };
    let options = PackOptions { shape, ..PackOptions::default() };
    assert!(options.rows_min > 100_000, "so they are few");
    table.load("a", 1, &[exact, step(2, 10)], &options).await.unwrap();
    let info = table.info().await.unwrap();
    assert!(info.cubes > 0 && info.blocks == 0, "{info:?}");
    assert_eq!(steps_seen(&table).await, [(1, 16_384), (2, 10)]);
    // Those that fit stay a block each.
    table.load("a", 1, &[step(3, 16_000)], &options).await.unwrap();
    assert_eq!(table.info().await.unwrap().blocks, 1);
}

#[tokio::test]
async fn rows_from_before_a_column_was_added_have_no_value_in_it() {
    let (_, table) = table(1).await;
    table.add_column(column("charge", DataType::Float32, true).as_ref().clone()).await.unwrap();
    table.load("a", 1, &steps(1..=2), &options()).await.unwrap();
    let rows = table.query(&atoll_tables::Query::default()).await.unwrap().rows;
    assert_eq!((rows.num_rows(), rows.column(3).null_count()), (120, 120));
}

#[tokio::test]
async fn rows_that_do_not_fit_are_refused_by_name_and_nothing_is_written() {
    let (store, table) = table(1).await;
    let cells = objects(&store).await;
    let narrow = WholeStep { step: 2, time: None, rows: rows(2, 0, 60).project(&[0, 1]).unwrap() };
    let refused = table.load("a", 1, &[step(1, 60), narrow], &options()).await.unwrap_err();
    assert!(matches!(&refused, TableError::Block { source: BlockError::Columns { .. }, .. }), "{refused}");
    let nobody = table.load("b", 1, &steps(1..=3), &options()).await.unwrap_err();
    assert!(matches!(nobody, TableError::Edit(EditError::NotBegun { .. })), "{nobody}");
    assert_eq!(objects(&store).await, cells);
    assert_eq!(table.load("a", 1, &[], &options()).await.unwrap(), table.version().await.unwrap());
}

#[tokio::test]
async fn rows_without_the_columns_of_a_unique_id_are_refused_by_name() {
    let unique = unique().await;
    let narrow = WholeStep { rows: rows(2, 0, 60).project(&[0]).unwrap(), ..step(2, 60) };
    for options in [options(), PackOptions::default()] {
        let refused = unique.load("a", 1, &[step(1, 60), narrow.clone()], &options).await.unwrap_err();
        assert!(
            matches!(&refused, TableError::Block { source: BlockError::Columns { .. }, .. }),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn more_steps_than_an_edit_holds_are_refused_before_anything_is_written() {
    let (store, table) = table(1).await;
    let cells = objects(&store).await;
    let steps: Vec<WholeStep> = (0..20_000).map(|number| step(number, 1)).collect();
    let refused = table.load("a", 1, &steps, &PackOptions::default()).await.unwrap_err();
    assert!(matches!(refused, TableError::TooManySteps { steps: 20_000, .. }), "{refused}");
    assert_eq!((refused.kind(), objects(&store).await), (ErrorKind::Limit, cells));
    assert!(refused.hint().unwrap().contains("loader"));
}

#[tokio::test]
async fn many_steps_of_few_rows_are_no_object_each() {
    let (store, _) = table(1).await;
    let (crowd, crowded) = Crowd::before(Arc::clone(&store));
    let table = open(&crowded).await;
    let steps: Vec<WholeStep> = (0..1000).map(|number| step(number, 1)).collect();
    table.load("a", 1, &steps, &PackOptions::default()).await.unwrap();
    assert_eq!(steps_seen(&table).await.len(), 1000);
    // A few of them are blocks as usual, which are written one after the other.
    let steps: Vec<WholeStep> = (1000..1060).map(|number| step(number, 1)).collect();
    table.load("a", 1, &steps, &PackOptions::default()).await.unwrap();
    assert_eq!(table.info().await.unwrap().blocks, 60);
    assert!((2..=20).contains(&crowd.most()), "{} writes at the same time", crowd.most());
}

/// A store that records the greatest number of concurrent writes.
pub struct Crowd {
    store: Arc<dyn Store>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Crowd {
    pub fn before(store: Arc<dyn Store>) -> (Arc<Relayed<Self>>, Arc<dyn Store>) {
        let crowd = Self { store, now: AtomicUsize::new(0), most: AtomicUsize::new(0) };
        let crowd = Arc::new(Relayed(crowd));
        (Arc::clone(&crowd), crowd)
    }

    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Relay for Crowd {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(async move {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let written = self.store.write(batch, options).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            written
        })
    }
}

/// A store that fails one of many creations.
pub struct Failing {
    pub store: Arc<dyn Store>,
    pub left: AtomicUsize,
}

impl Relay for Failing {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        // Objects have no sort key; the table's own cells do.
        let is_object = batch
            .mutations
            .iter()
            .any(|mutation| matches!(mutation, Mutation::Put(sort, _) if sort.is_empty()));
        if is_object && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let error = StoreError::OutOfSpace { place: "the disk".to_owned(), source: None };
            return Box::pin(async { Err(error) });
        }
        self.store.write(batch, options)
    }
}

#[tokio::test]
async fn a_load_whose_store_fails_shows_nothing_and_may_be_done_again() {
    let (store, _) = table(1).await;
    let failing = Failing { store: Arc::clone(&store), left: AtomicUsize::new(3) };
    let failing: Arc<dyn Store> = Arc::new(Relayed(failing));
    let table = open(&failing).await;
    let shape = Shape { object_bytes: 512, cube_rows: 20, leaf_rows: 40, ..Default::default() };
    let options = PackOptions { shape, ..options() };
    let error = table.load("a", 1, &steps(1..=6), &options).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Refused, "{error}");
    assert!(steps_seen(&open(&store).await).await.is_empty());
    table.load("a", 1, &steps(1..=6), &options).await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await.len(), 6);
}

#[tokio::test]
async fn steps_without_rows_are_loaded_too() {
    let (_, table) = table(2).await;
    let version = table.version().await.unwrap();
    assert_eq!(table.load("a", 1, &[], &PackOptions::whole()).await.unwrap(), version);
    table.load("a", 1, &[step(1, 0), step(2, 0)], &PackOptions::whole()).await.unwrap();
    table.load("a", 1, &[step(3, 0), step(4, 5)], &PackOptions::whole()).await.unwrap();
    let listed = table.steps(Some("a")).await.unwrap();
    assert_eq!(listed.iter().map(|step| step.rows).collect::<Vec<_>>(), [0, 0, 0, 5]);
}

#[tokio::test]
async fn what_a_failed_pack_or_load_wrote_does_not_stay() {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let table = create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    for number in 0..4 {
        table.append(block("a", 1, number, 0), &rows(number, 0, 500)).await.unwrap();
    }
    let shape = Shape { cube_rows: 100, leaf_rows: 200, object_bytes: 4 << 10, ..Shape::default() };
    let before = objects(&store).await;
    let few = PackOptions { rows_min: 100_000, ..options() };
    let refuse_third = || {
        door.passing.store(2, Ordering::SeqCst);
        door.refused.store(1, Ordering::SeqCst);
    };
    for times in 0..3 {
        refuse_third();
        let refused = table.pack(&PackOptions { shape, ..PackOptions::whole() }).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{times}");
        assert_eq!(objects(&store).await, before, "after {times} failed packs");
        for options in [&PackOptions { shape, ..options() }, &few] {
            refuse_third();
            let refused = table.load("a", 1, &steps(10..=15), options).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{times}");
            assert_eq!(objects(&store).await, before, "after {times} failed loads");
        }
    }
    let report = table.pack(&PackOptions { shape, ..PackOptions::whole() }).await.unwrap();
    assert!(report.objects_after > 3, "{report:?}");
    assert_eq!(steps_seen(&open(&store).await).await.len(), 4);
}

//! Loaders: more steps than fit in memory, loaded one tree after the other.

use super::door::Doorway;
use super::load::{Crowd, Failing, options, step, steps, table, unique};
use super::rows::{create, open, rows, steps_seen};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Buffer, Cell, ReadOptions, Store, StoreError, StoreFuture};
use atoll_tables::block::BlockError;
use atoll_tables::protocol::EditError;
use atoll_tables::{PackOptions, TableError, WholeStep};
use futures::FutureExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[tokio::test]
async fn a_loader_makes_a_tree_of_as_many_bytes_as_it_is_told() {
    let (_, table) = table(2).await;
    // A row has 24 bytes here, and a step 60 rows.
    let mut loader = table.loader("a", 1, 3 * 60 * 24, options()).unwrap();
    for step in steps(1..=8) {
        loader.push(step).await.unwrap();
    }
    // The first tree is written once the second one grows.
    assert_eq!((loader.last(), steps_seen(&table).await.len()), (Some(3), 3));
    let version = loader.finish().await.unwrap();
    assert_eq!(version, table.version().await.unwrap());
    assert_eq!(steps_seen(&table).await.len(), 8);
    let info = table.info().await.unwrap();
    assert_eq!((info.blocks, info.rows), (0, 480));
    let mut nothing = table.loader("a", 1, 1, options()).unwrap();
    assert_eq!(nothing.finish().await.unwrap(), version);
}

#[tokio::test]
async fn after_a_step_that_fails_a_loader_takes_none() {
    let (store, _) = table(1).await;
    let failing = Failing { store: Arc::clone(&store), left: AtomicUsize::new(2) };
    let failing: Arc<dyn Store> = Arc::new(Relayed(failing));
    let table = open(&failing).await;
    let mut loader = table.loader("a", 1, 2 * 60 * 24, options()).unwrap();
    let mut failed = None;
    for step in steps(1..=12) {
        if let Err(error) = loader.push(step).await {
            failed.get_or_insert(error);
        }
    }
    assert!(matches!(failed, Some(TableError::Store(StoreError::OutOfSpace { .. }))), "{failed:?}");
    let behind = loader.finish().await.unwrap_err();
    assert!(matches!(&behind, TableError::Behind { id } if id.step == 3), "{behind}");
    assert_eq!(loader.last(), Some(2), "whoever goes on knows from where");
    assert_eq!(steps_seen(&open(&store).await).await.len(), 2, "none but those before it");
    // A new loader continues where the first one failed.
    let mut loader = table.loader("a", 1, 2 * 60 * 24, options()).unwrap();
    for step in steps(3..=12) {
        loader.push(step).await.unwrap();
    }
    loader.finish().await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await.len(), 12);
}

#[tokio::test]
async fn an_import_that_is_given_again_writes_only_what_is_not_there() {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let table = create(&(door.clone() as Arc<dyn Store>)).await;
    table.begin("a", 1, 1).await.unwrap();
    let mut loader = table.loader("a", 1, 2 * 60 * 24, options()).unwrap();
    for step in steps(1..=6) {
        loader.push(step).await.unwrap();
    }
    let version = loader.finish().await.unwrap();
    let writes = || door.writes.load(Ordering::SeqCst);
    let before = writes();
    let mut again = table.loader("a", 1, 2 * 60 * 24, options()).unwrap();
    for step in steps(1..=6) {
        again.push(step).await.unwrap();
    }
    assert_eq!((again.finish().await.unwrap(), again.last(), writes()), (version, Some(6), before));
    // It can continue even after its end.
    for step in steps(7..=9) {
        again.push(step).await.unwrap();
    }
    again.finish().await.unwrap();
    assert_eq!((again.last(), steps_seen(&table).await.len()), (Some(9), 9));
    let before = writes();
    let mut early = table.loader("a", 2, 60 * 24, options()).unwrap();
    let nobody = early.push(step(10, 60)).await.unwrap_err();
    assert!(matches!(nobody, TableError::Edit(EditError::NotBegun { .. })), "{nobody}");
    let behind = early.push(step(11, 60)).await.unwrap_err();
    assert!(matches!(&behind, TableError::Behind { id } if id.step == 10), "{behind}");
    assert!(behind.hint().unwrap().contains("new loader"));
    assert_eq!((early.last(), writes()), (None, before));
}

#[tokio::test]
async fn a_loader_of_what_is_new_refuses_steps_that_somebody_else_brought() {
    let (store, table) = table(1).await;
    let bring = async |first: u64, last: u64| {
        open(&store).await.load("a", 1, &steps(first..=last), &options()).await.unwrap();
    };
    bring(1, 2).await;
    let mut loader = table.loader("a", 1, 2 * 60 * 24, options()).unwrap().only_new();
    loader.push(step(1, 60)).await.unwrap();
    let there = loader.push(step(2, 60)).await.unwrap_err();
    assert!(
        matches!(&there, TableError::Edit(EditError::StepOrder { id, last: 2 }) if id.step == 1),
        "{there}"
    );
    // Nor steps that arrive while its own are on the way.
    let mut loader = table.loader("a", 1, 2 * 60 * 24, options()).unwrap().only_new();
    for step in steps(3..=4) {
        loader.push(step).await.unwrap();
    }
    bring(3, 4).await;
    let there = loader.finish().await.unwrap_err();
    assert!(matches!(there, TableError::Edit(EditError::StepOrder { .. })), "{there}");
    assert_eq!(loader.last(), None);
    let behind = loader.push(step(5, 60)).await.unwrap_err();
    assert!(matches!(&behind, TableError::Behind { id } if id.step == 3), "{behind}");
}

#[tokio::test]
async fn a_loader_of_a_table_that_cannot_be_heard_counts_its_own_steps_once() {
    let (store, _) = table(1).await;
    let door = Doorway::before(Arc::clone(&store));
    let table = open(&(door.clone() as Arc<dyn Store>)).await;
    let mut loader = table.loader("a", 1, 1 << 30, options()).unwrap().only_new();
    for step in steps(1..=3) {
        loader.push(step).await.unwrap();
    }
    // Carried out, and answered with an unknown outcome: it recognizes the steps as its own.
    door.unheard.store(1, Ordering::SeqCst);
    loader.finish().await.unwrap();
    assert_eq!((loader.last(), steps_seen(&open(&store).await).await.len()), (Some(3), 3));
}

#[tokio::test]
async fn a_loader_of_trees_without_bytes_is_refused() {
    let (_, table) = table(1).await;
    let refused = table.loader("a", 1, 0, options()).err().unwrap();
    assert!(matches!(refused, TableError::PackOptions { .. }), "{refused}");
}

#[tokio::test]
async fn rows_that_do_not_fit_end_a_loader_behind_those_that_do() {
    let (_, table) = table(1).await;
    let mut loader = table.loader("a", 1, 2 * 60 * 24, options()).unwrap();
    for step in steps(1..=4) {
        loader.push(step).await.unwrap();
    }
    let narrow = WholeStep { step: 5, time: None, rows: rows(5, 0, 60).project(&[0, 1]).unwrap() };
    let pushed = loader.push(narrow).await;
    assert!(pushed.is_ok(), "nothing was looked at yet");
    let refused = loader.finish().await.unwrap_err();
    assert!(matches!(&refused, TableError::Block { source: BlockError::Columns { .. }, .. }), "{refused}");
    assert_eq!(steps_seen(&table).await.len(), 4);
}

#[tokio::test]
async fn rows_without_the_columns_of_a_unique_id_end_a_loader() {
    let mut loader = unique().await.loader("a", 1, 1 << 20, options()).unwrap();
    let narrow = WholeStep { rows: rows(2, 0, 60).project(&[0]).unwrap(), ..step(2, 60) };
    for step in [step(1, 60), narrow] {
        loader.push(step).await.unwrap();
    }
    let refused = loader.finish().await.unwrap_err();
    assert!(matches!(&refused, TableError::Block { source: BlockError::Columns { .. }, .. }), "{refused}");
}

/// A store whose reads do not end while it is silent.
struct Silent {
    store: Arc<dyn Store>,
    is_silent: AtomicBool,
}

impl Relay for Silent {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        if self.is_silent.load(Ordering::SeqCst) {
            return Box::pin(futures::future::pending());
        }
        self.store.get(cell, options)
    }
}

#[tokio::test]
async fn a_step_whose_push_was_given_up_is_not_passed_by_later_ones() {
    let (store, _) = table(1).await;
    let silent = Silent { store: Arc::clone(&store), is_silent: AtomicBool::new(false) };
    let silent = Arc::new(Relayed(silent));
    let table = open(&(Arc::clone(&silent) as Arc<dyn Store>)).await;
    let mut loader = table.loader("a", 1, 60 * 24, options()).unwrap();
    for step in steps(1..=2) {
        loader.push(step).await.unwrap();
    }
    // It has one more column, for which the table is consulted.
    let wide = arrow_array::RecordBatch::try_from_iter(
        ["pid", "step", "x", "y"]
            .into_iter()
            .zip([0, 1, 2, 2].map(|place| rows(3, 0, 60).column(place).clone())),
    );
    silent.is_silent.store(true, Ordering::SeqCst);
    assert!(loader.push(WholeStep { rows: wide.unwrap(), ..step(3, 60) }).now_or_never().is_none());
    silent.is_silent.store(false, Ordering::SeqCst);
    let behind = loader.push(step(4, 60)).await.unwrap_err();
    assert!(matches!(&behind, TableError::Behind { id } if id.step == 3), "{behind}");
}

#[tokio::test]
async fn a_loader_takes_as_many_steps_of_few_rows_as_there_are() {
    let (store, _) = table(1).await;
    let (crowd, crowded) = Crowd::before(Arc::clone(&store));
    let table = open(&crowded).await;
    let before = table.version().await.unwrap();
    let mut loader = table.loader("a", 1, 1 << 30, PackOptions::default()).unwrap();
    for number in 0..20_000 {
        loader.push(step(number, 1)).await.unwrap();
    }
    let version = loader.finish().await.unwrap();
    assert_eq!(version.0, before.0 + 2, "no edit with more steps than it may have");
    let listed = table.steps(Some("a")).await.unwrap();
    assert_eq!((listed.len(), table.info().await.unwrap().rows), (20_000, 20_000));
    assert!(crowd.most() <= 20, "{} writes at the same time", crowd.most());
}

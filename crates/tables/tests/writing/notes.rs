//! Notes that ranks make on a run: each for itself, and only until a later attempt asks for them.

use super::rows::{block, create, open, rows};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, ErrorKind, Mutation, Outcome, Store, StoreError, StoreFuture, WriteOptions, Written,
};
use atoll_tables::{AttributeChanges, Attributes, AttributesOf, TableError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn note(text: &str) -> Attributes {
    Attributes::from([("checkpoint".to_owned(), text.into())])
}

#[tokio::test]
async fn ranks_note_what_they_alone_know() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    for (run, rank) in [("a", 0), ("a", 258), ("a", u32::MAX), ("ab", 1)] {
        table.set_rank_notes(run, 1, rank, &note("earlier")).await.unwrap();
        table.set_rank_notes(run, 1, rank, &note(&format!("{run} {rank}"))).await.unwrap();
    }
    let noted = open(&store).await.rank_notes("a", 1).await.unwrap();
    assert_eq!(noted, [0, 258, u32::MAX].map(|rank| (rank, note(&format!("a {rank}")))).into());
    assert!(table.rank_notes("b", 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_attempt_notes_until_a_later_one_has_begun() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    table.begin("a", 2, 2).await.unwrap();
    table.set_rank_notes("a", 2, 1, &note("of 2")).await.unwrap();
    table.begin("a", 3, 2).await.unwrap();
    // What it noted before the request counts, and is the same for all that ask.
    table.set_rank_notes("a", 2, 0, &note("of 2")).await.unwrap();
    let noted = table.rank_notes("a", 3).await.unwrap();
    assert_eq!(noted, [0, 1].map(|rank| (rank, note("of 2"))).into());
    let refused = table.set_rank_notes("a", 2, 1, &note("late")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(refused.to_string(), "attempt 3 of run \"a\" has taken over from attempt 2");
    assert_eq!(table.rank_notes("a", 2).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(table.rank_notes("a", 3).await.unwrap(), noted);
}

#[tokio::test]
async fn what_ranks_noted_goes_with_all_steps_of_their_run_and_with_nothing_less() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    for run in ["a", "ab", "b"] {
        table.begin(run, 1, 1).await.unwrap();
        table.append(block(run, 1, 10, 0), &rows(10, 0, 3)).await.unwrap();
        table.set_rank_notes(run, 1, 0, &note(run)).await.unwrap();
    }
    let noted = async |run: &str| !table.rank_notes(run, 1).await.unwrap().is_empty();
    let all = async || [noted("a").await, noted("ab").await, noted("b").await];
    table.delete(Some("a"), Some(0..20), None).await.unwrap();
    table.delete(Some("a"), None, Some("step < 20")).await.unwrap();
    assert_eq!(all().await, [true; 3]);
    table.delete(Some("a"), None, None).await.unwrap();
    assert_eq!(all().await, [false, true, true]);
    // Its attempt may continue, and make notes again.
    table.set_rank_notes("a", 1, 0, &note("a")).await.unwrap();
    assert_eq!(all().await, [true; 3]);
    table.delete_from(None, 0, None).await.unwrap();
    assert_eq!(all().await, [false; 3]);
}

#[tokio::test]
async fn what_ranks_noted_goes_also_where_an_attempt_failed_before_its_first_step() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    table.begin("a", 1, 2).await.unwrap();
    for rank in 0..2 {
        table.append(block("a", 1, 10, rank), &rows(10, 100 * i64::from(rank), 3)).await.unwrap();
        table.set_rank_notes("a", 1, rank, &note("of what is deleted")).await.unwrap();
    }
    // It notes that a checkpoint is gone, and its hint is to delete the steps.
    table.begin("a", 2, 2).await.unwrap();
    table.set_rank_notes("a", 2, 0, &note("gone")).await.unwrap();
    table.delete(Some("a"), None, None).await.unwrap();
    assert_eq!(table.rank_notes("a", 3).await.unwrap(), Default::default());
}

/// A job that starts right before a delete removes notes of ranks: the next attempt of run "a", and run
/// "new".
struct Starting {
    store: Arc<dyn Store>,
    starts: AtomicBool,
}

impl Relay for Starting {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let removes_notes = batch.mutations.iter().any(|mutation| match mutation {
            Mutation::DeleteRange(_) => true,
            Mutation::Delete(key) => key.starts_with(b"\0rank\0"),
            _ => false,
        });
        let starts = removes_notes && self.starts.swap(false, Ordering::SeqCst);
        Box::pin(async move {
            if starts {
                let table = open(&self.store).await;
                assert_eq!(table.begin_next("a", 2).await.unwrap(), 2);
                table.set_rank_notes("a", 2, 0, &note("of the next life")).await.unwrap();
                table.begin("new", 1, 1).await.unwrap();
                table.set_rank_notes("new", 1, 0, &note("of a new run")).await.unwrap();
            }
            self.store.write(batch, options).await
        })
    }
}

#[tokio::test]
async fn what_ranks_note_while_a_delete_ends_stays_and_what_they_noted_before_goes() {
    for run in [Some("a"), None] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let door = Arc::new(Relayed(Starting { store, starts: AtomicBool::new(false) }));
        let store: Arc<dyn Store> = door.clone();
        let table = create(&store).await;
        for run in ["a", "b"] {
            table.begin(run, 1, 2).await.unwrap();
            for rank in 0..2 {
                table.append(block(run, 1, 10, rank), &rows(10, 100 * i64::from(rank), 3)).await.unwrap();
                table.set_rank_notes(run, 1, rank, &note("of what is deleted")).await.unwrap();
            }
        }
        door.starts.store(true, Ordering::SeqCst);
        table.delete(run, None, None).await.unwrap();
        assert!(!door.starts.load(Ordering::SeqCst), "nobody started");
        let noted = table.rank_notes("a", 2).await.unwrap();
        assert_eq!(noted, [(0, note("of the next life"))].into(), "{run:?}");
        assert_eq!(table.rank_notes("new", 1).await.unwrap(), [(0, note("of a new run"))].into(), "{run:?}");
        assert_eq!(table.rank_notes("b", 1).await.unwrap().is_empty(), run.is_none());
    }
}

/// A store that refuses to remove any notes or attributes.
struct Full {
    store: Arc<dyn Store>,
    is_full: AtomicBool,
}

impl Relay for Full {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        if batch.partition.ends_with(b"/a") && self.is_full.load(Ordering::SeqCst) {
            return Box::pin(async {
                Err(StoreError::OutOfSpace { place: "the test".to_owned(), source: None })
            });
        }
        self.store.write(batch, options)
    }
}

#[tokio::test]
async fn a_delete_that_leaves_notes_says_that_the_rows_are_gone() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let door = Arc::new(Relayed(Full { store, is_full: AtomicBool::new(false) }));
    let store: Arc<dyn Store> = door.clone();
    let table = create(&store).await;
    for run in ["a", "b"] {
        table.begin(run, 1, 1).await.unwrap();
        table.append(block(run, 1, 10, 0), &rows(10, 0, 3)).await.unwrap();
    }
    // The notes of ranks and the attributes of runs are removed one after the other, and either may fail.
    table.set_rank_notes("a", 1, 0, &note("left")).await.unwrap();
    let why = AttributeChanges::from([("why".to_owned(), Some("left".into()))]);
    table.note(AttributesOf::Run("b"), &why).await.unwrap();
    for run in ["a", "b"] {
        door.is_full.store(true, Ordering::SeqCst);
        let left = table.delete(Some(run), None, None).await.unwrap_err();
        door.is_full.store(false, Ordering::SeqCst);
        assert_eq!((left.kind(), left.outcome()), (ErrorKind::OutOfSpace, Outcome::Unknown), "{left}");
        let TableError::NotesLeft { version, .. } = left else { panic!("{left}") };
        assert_eq!(version, table.version().await.unwrap(), "{run}");
        assert!(left.hint().unwrap().contains("only if no rows were added since"));
    }
    assert!(table.steps(None).await.unwrap().is_empty());
    assert!(!table.rank_notes("a", 1).await.unwrap().is_empty());
    // Repeated, they remove what was left.
    for run in ["a", "b"] {
        table.delete(Some(run), None, None).await.unwrap();
    }
    assert!(table.rank_notes("a", 1).await.unwrap().is_empty());
    assert!(table.attributes(AttributesOf::Run("b")).await.unwrap().is_empty());
}

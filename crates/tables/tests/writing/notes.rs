//! What ranks note of a run: each for itself, and only as long as no later attempt has asked for it.

use super::rows::{block, create, open, rows};
use atoll_memory::MemoryStore;
use atoll_store::{ErrorKind, Store};
use atoll_tables::Attributes;
use std::sync::Arc;

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
    // What it noted before anybody asked counts, and is the same for all who ask.
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
    // Its attempt may go on, and notes again.
    table.set_rank_notes("a", 1, 0, &note("a")).await.unwrap();
    assert_eq!(all().await, [true; 3]);
    table.delete_from(None, 0, None).await.unwrap();
    assert_eq!(all().await, [false; 3]);
}

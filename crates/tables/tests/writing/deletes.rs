//! Deletes and supersedes, compared with a plain list of the rows that should exist.

use super::rows::{block, create, open, rows, seen, steps_seen};
use atoll_memory::MemoryStore;
use atoll_store::{ErrorKind, Store};
use atoll_tables::{AttributesOf, Table};
use std::sync::Arc;

/// Two runs of three steps of 20 rows.
async fn two_runs() -> (Arc<dyn Store>, Table) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    for (run, first) in [("a", 0), ("b", 1000)] {
        table.begin(run, 1, 1).await.unwrap();
        for step in 1..4 {
            table.append(block(run, 1, step, 0), &rows(step, first, 20)).await.unwrap();
        }
    }
    (store, table)
}

#[tokio::test]
async fn whole_steps_and_runs_go_as_such_and_are_listed_no_longer() {
    let (store, table) = two_runs().await;
    table.delete(Some("a"), Some(2..3), None).await.unwrap();
    let reader = open(&store).await;
    assert_eq!(steps_seen(&reader).await, [(1, 40), (2, 20), (3, 40)]);
    let steps = reader.steps(Some("a")).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.step).collect::<Vec<_>>(), [1, 3]);
    table.delete(None, Some(3..u64::MAX), None).await.unwrap();
    assert_eq!(steps_seen(&reader).await, [(1, 40), (2, 20)]);
    table.delete(Some("a"), None, None).await.unwrap();
    let runs = reader.runs().await.unwrap();
    assert_eq!(runs.iter().map(|run| (run.name.as_str(), run.rows)).collect::<Vec<_>>(), [("b", 40)]);
    assert_eq!((reader.info().await.unwrap().runs, reader.info().await.unwrap().rows), (1, 40));
    // Appending a block again does not restore its deleted rows.
    table.append(block("a", 1, 3, 0), &rows(3, 0, 20)).await.unwrap();
    assert_eq!(steps_seen(&reader).await, [(1, 20), (2, 20)]);
    // The run continues, and is listed again with new steps.
    assert_eq!(table.begin_next("a", 1).await.unwrap(), 2);
    table.append(block("a", 2, 1, 0), &rows(1, 500, 5)).await.unwrap();
    assert_eq!(steps_seen(&reader).await, [(1, 25), (2, 20)]);
    assert_eq!(reader.runs().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_delete_is_kept_over_whole_manifests_and_says_what_is_wrong_with_it() {
    let (store, table) = two_runs().await;
    table.delete(Some("b"), Some(1..3), None).await.unwrap();
    for attempt in 2..80 {
        table.begin("c", attempt, 1).await.unwrap();
    }
    let reader = open(&store).await;
    assert_eq!(steps_seen(&reader).await, [(1, 20), (2, 20), (3, 40)]);
    assert_eq!(reader.steps(Some("b")).await.unwrap().len(), 1);
    let kind = |outcome: Result<_, atoll_tables::TableError>| outcome.unwrap_err().kind();
    assert_eq!(kind(table.delete(Some("z"), None, None).await), ErrorKind::NotFound);
    assert_eq!(kind(table.delete(None, Some(3..3), None).await), ErrorKind::InvalidInput);
    assert_eq!(kind(table.delete(None, None, Some("x <")).await), ErrorKind::InvalidInput);
    assert!(table.delete(None, None, Some("velocity > 1")).await.is_err());
}

/// Sets one attribute each of the table, of two runs, and of one step of each.
async fn note_everywhere(table: &Table) {
    let of = [AttributesOf::Table, AttributesOf::Run("a"), AttributesOf::Run("b")];
    for of in of.into_iter().chain([AttributesOf::Step("a", 1), AttributesOf::Step("b", 1)]) {
        table.note(of, &[("solvent".to_owned(), Some("water".into()))].into()).await.unwrap();
    }
}

/// How many of these have attributes: the table, runs a and b, one step of each.
async fn noted(table: &Table) -> [usize; 5] {
    let of = [AttributesOf::Table, AttributesOf::Run("a"), AttributesOf::Run("b")];
    let of = of.into_iter().chain([AttributesOf::Step("a", 1), AttributesOf::Step("b", 1)]);
    let mut counts = [0; 5];
    for (count, of) in counts.iter_mut().zip(of) {
        *count = table.attributes(of).await.unwrap().len();
    }
    counts
}

#[tokio::test]
async fn attributes_go_with_all_steps_of_their_run() {
    let (store, table) = two_runs().await;
    note_everywhere(&table).await;
    table.delete(Some("a"), Some(1..4), None).await.unwrap();
    assert_eq!(noted(&table).await, [1; 5], "steps alone were meant");
    table.delete(Some("a"), None, None).await.unwrap();
    let reader = open(&store).await;
    assert_eq!(noted(&reader).await, [1, 0, 1, 0, 1]);
    assert_eq!(reader.attributes_of_runs().await.unwrap().into_keys().collect::<Vec<_>>(), ["b"]);
    table.delete(None, None, None).await.unwrap();
    assert_eq!(noted(&reader).await, [1, 0, 0, 0, 0], "the table's are about what comes as well");
}

#[tokio::test]
async fn attributes_stay_for_what_a_snapshot_shows_and_for_an_attempt_that_began() {
    let (_store, table) = two_runs().await;
    note_everywhere(&table).await;
    table.create_snapshot("before", None).await.unwrap();
    table.delete(Some("a"), None, None).await.unwrap();
    assert_eq!(noted(&table).await, [1; 5]);
    table.delete_snapshot("before").await.unwrap();
    table.begin_next("b", 1).await.unwrap();
    table.delete(Some("b"), None, None).await.unwrap();
    assert_eq!(noted(&table).await, [1; 5], "attempt 2 may have noted them");
}

/// The rows that should exist: run, attempt, step and particle, with their x.
type Expected = Vec<(usize, u64, i64, f64)>;

/// Random appends, restarts and deletes, each compared with the list; replay with the seed in the message.
#[tokio::test]
async fn deletes_of_steps_runs_and_expressions_and_restarts_leave_what_a_plain_list_says() {
    for seed in 1..=20_u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let table = create(&store).await;
        let mut expected: Expected = Vec::new();
        let (mut attempts, mut next) = ([0_u64; 2], [0_u64; 2]);
        for _ in 0..40 {
            let run = random.usize(..2);
            let name = ["a", "b"][run];
            match random.u8(..10) {
                0 => {
                    attempts[run] = table.begin_next(name, 1).await.unwrap();
                    // Back to a checkpoint, or onward.
                    next[run] = random.u64(next[run].saturating_sub(3)..=next[run]);
                    continue;
                }
                1 => {
                    let from = random.u64(..10);
                    let to = from + random.u64(1..4);
                    let whole = random.bool();
                    let scope = whole.then_some(name).filter(|_| attempts[run] > 0);
                    table.delete(scope, Some(from..to), None).await.unwrap();
                    let is_run = |other: usize| scope.is_none() || other == run;
                    expected.retain(|(other, step, ..)| !(is_run(*other) && (from..to).contains(step)));
                }
                2 => {
                    let below = random.f64();
                    let expression = format!("x < {below} and pid >= {}", run * 1000);
                    table.delete(None, None, Some(&expression)).await.unwrap();
                    expected.retain(|(_, _, pid, x)| !(*x < below && *pid >= run as i64 * 1000));
                }
                _ if attempts[run] == 0 => continue,
                _ => {
                    let (step, count) = (next[run], random.usize(..12));
                    next[run] += 1;
                    table
                        .append(block(name, attempts[run], step, 0), &rows(step, run as i64 * 1000, count))
                        .await
                        .unwrap();
                    expected.retain(|(other, old, ..)| *other != run || *old < step);
                    let added = (0..count)
                        .map(|row| (run, step, (run * 1000 + row) as i64, row as f64 / count as f64));
                    expected.extend(added);
                }
            }
            let mut wanted: Vec<(u64, i64)> =
                expected.iter().map(|(_, step, pid, _)| (*step, *pid)).collect();
            wanted.sort_unstable();
            let reader = if random.bool() { open(&store).await } else { table.clone() };
            let found: Vec<(u64, i64)> = seen(&reader)
                .await
                .into_iter()
                .map(|(row, count)| {
                    assert_eq!(count, 1, "seed {seed}: {row:?}");
                    row
                })
                .collect();
            assert_eq!(found, wanted, "seed {seed}");
        }
    }
}

#[tokio::test]
async fn the_last_step_that_there_can_be_is_deleted_with_all_from_a_step_on() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    for step in [3, 7, u64::MAX] {
        table.append(block("a", 1, step, 0), &rows(3, 0, 10)).await.unwrap();
    }
    let steps =
        async || -> Vec<u64> { table.steps(Some("a")).await.unwrap().iter().map(|step| step.step).collect() };
    // The end of the range is exclusive.
    table.delete(Some("a"), Some(7..u64::MAX), None).await.unwrap();
    assert_eq!(steps().await, [3, u64::MAX]);
    table.delete_from(Some("a"), 4, None).await.unwrap();
    assert_eq!(steps().await, [3]);
    assert!(table.delete_from(Some("z"), 0, None).await.is_err());
}

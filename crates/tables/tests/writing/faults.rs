//! Stores that lose requests and answers: no edit is doubled or lost, and every outcome is honest.

use super::door::Doorway;
use super::rows::{block, open, rows, schema, seen};
use atoll_conformance::Flaky;
use atoll_memory::MemoryStore;
use atoll_store::{ErrorKind, Outcome, Store};
use atoll_tables::{Table, TableError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ROWS: usize = 3;

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("ATOLL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=count).collect(),
    }
}

/// The outcome of each step, as reported to its writer.
type StepOutcomes = BTreeMap<u64, Result<(), TableError>>;

/// Opens or creates the table, with as many attempts as a connection that loses answers takes.
async fn insist(store: &Arc<dyn Store>) -> Table {
    loop {
        match Table::create(Arc::clone(store), "run", schema()).await {
            Ok(table) => return table,
            Err(error) => assert_eq!(error.outcome(), Outcome::Unknown, "{error}"),
        }
    }
}

/// One rank of a run: writes 30 steps. A step whose outcome is unknown is repeated, half of the time by a new
/// handle.
async fn write(store: Arc<dyn Store>, run: String, rank: u32, seed: u64) -> StepOutcomes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut table = insist(&store).await;
    while let Err(error) = table.begin(&run, 1, 2).await {
        assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    }
    let mut told = StepOutcomes::new();
    for step in 0..30 {
        let rows = rows(step, i64::from(rank) * 100, ROWS);
        loop {
            match table.append(block(&run, 1, step, rank), &rows).await {
                Ok(_) => {
                    told.insert(step, Ok(()));
                    break;
                }
                Err(error) if error.outcome() == Outcome::Unknown => {
                    if random.bool() {
                        // Like a process that restarts.
                        table = insist(&store).await;
                    }
                    told.insert(step, Err(error));
                }
                Err(error) => panic!("seed {seed}, step {step}: {error}"),
            }
        }
        tokio::task::yield_now().await;
    }
    told
}

#[tokio::test]
async fn on_a_line_that_loses_answers_no_block_is_doubled_and_none_that_was_acknowledged_is_lost() {
    for seed in seeds(12) {
        println!("replay with ATOLL_SEED={seed} cargo test -p atoll-tables --test writing faults");
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        // Each process has its own connection; two ranks of a run may share a process.
        let lines: Vec<Arc<dyn Store>> = (0..3)
            .map(|line| Arc::new(Flaky::new(memory.clone(), seed * 10 + line)) as Arc<dyn Store>)
            .collect();
        let writers = (0..6_u64).map(|writer| {
            let line = Arc::clone(&lines[writer as usize % 3]);
            let (run, rank) = (format!("run {}", writer / 2), (writer % 2) as u32);
            tokio::spawn(write(line, run, rank, seed * 100 + writer))
        });
        let told = futures::future::join_all(writers).await;
        for outcome in told {
            assert!(outcome.unwrap().values().all(Result::is_ok), "seed {seed}");
        }
        let reader = open(&memory).await;
        let seen = seen(&reader).await;
        // The three runs have the same steps and particles, each once.
        let expected: BTreeMap<(u64, i64), u32> =
            (0..30).flat_map(|step| [0, 1, 2, 100, 101, 102].map(|pid| ((step, pid), 3))).collect();
        assert_eq!(seen, expected, "seed {seed}");
        for run in reader.runs().await.unwrap() {
            assert_eq!((run.steps, run.rows), (30, 30 * 2 * ROWS as u64), "seed {seed}, {}", run.name);
        }
    }
}

#[tokio::test]
async fn an_append_of_unknown_outcome_is_there_whole_or_not_at_all() {
    for seed in seeds(12) {
        println!("replay with ATOLL_SEED={seed} cargo test -p atoll-tables --test writing faults");
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let line: Arc<dyn Store> = Arc::new(Flaky::new(memory.clone(), seed));
        let table = insist(&line).await;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sure = BTreeSet::new();
        let mut maybe = BTreeSet::new();
        let mut begun = 0;
        while begun < 40 {
            let attempt = match table.begin_next("a", 1).await {
                Ok(attempt) => attempt,
                Err(error) => {
                    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
                    continue;
                }
            };
            begun += 1;
            let step = begun * 10;
            // Some are dropped on the way, as by a caller that loses patience.
            let rows = rows(step, 0, ROWS);
            let append = table.append(block("a", attempt, step, 0), &rows);
            let patience = async {
                for _ in 0..random.u32(1..40) {
                    tokio::task::yield_now().await;
                }
            };
            match futures::future::select(Box::pin(append), Box::pin(patience)).await {
                futures::future::Either::Left((Ok(_), _)) => drop(sure.insert(step)),
                futures::future::Either::Left((Err(error), _)) => {
                    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
                    maybe.insert(step);
                }
                futures::future::Either::Right(_) => drop(maybe.insert(step)),
            }
        }
        // Writes that are still under way arrive.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let mut steps: BTreeMap<u64, usize> = BTreeMap::new();
        for ((step, pid), count) in seen(&open(&memory).await).await {
            assert_eq!(count, 1, "seed {seed}: particle {pid} of step {step}");
            *steps.entry(step).or_default() += 1;
        }
        assert!(steps.values().all(|rows| *rows == ROWS), "seed {seed}: {steps:?}");
        let there: BTreeSet<u64> = steps.into_keys().collect();
        assert!(there.is_superset(&sure), "seed {seed}: lost {:?}", sure.difference(&there));
        let known: BTreeSet<u64> = sure.union(&maybe).copied().collect();
        assert!(there.is_subset(&known), "seed {seed}: nobody wrote {:?}", there.difference(&known));
    }
}

#[tokio::test]
async fn a_line_that_never_answers_ends_in_doubt_and_not_in_a_claim() {
    let door = Doorway::before(Arc::new(MemoryStore::new()));
    let store: Arc<dyn Store> = door.clone();
    let table = insist(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    door.is_lost.store(true, Ordering::SeqCst);
    let doubt = table.append(block("a", 1, 0, 0), &rows(0, 0, ROWS)).await.unwrap_err();
    assert_eq!((doubt.kind(), doubt.outcome()), (ErrorKind::TimedOut, Outcome::Unknown), "{doubt}");
    let wanted = "append the same rows again as step 0 of run \"a\" (attempt 1, rank 0)";
    assert!(doubt.hint().unwrap().starts_with(wanted), "{:?}", doubt.hint());
    // A caller that named no step has to learn which step it was: appended as the next step, the rows would
    // be doubled.
    let own = ("a".into(), 1, 0);
    let doubt = table.append_next(own, 7, None, &rows(7, 0, ROWS)).await.unwrap_err();
    assert!(doubt.hint().unwrap().contains("as step 7 of"), "{:?}", doubt.hint());
    // What is deleted again takes more, if others have appended since.
    let doubt = table.delete(Some("a"), None, None).await.unwrap_err();
    assert_eq!((doubt.kind(), doubt.outcome()), (ErrorKind::TimedOut, Outcome::Unknown), "{doubt}");
    let wanted = "see whether the rows are still there before you repeat it";
    assert!(doubt.hint().unwrap().starts_with(wanted), "{:?}", doubt.hint());
    // Other edits are the same however often they are repeated.
    let doubt = table.begin("b", 1, 1).await.unwrap_err();
    assert!(doubt.hint().unwrap().starts_with("repeat it"), "{:?}", doubt.hint());
    door.is_lost.store(false, Ordering::SeqCst);
    table.append(block("a", 1, 0, 0), &rows(0, 0, ROWS)).await.unwrap();
    assert_eq!(seen(&table).await.len(), ROWS);
}

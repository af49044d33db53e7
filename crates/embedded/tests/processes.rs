//! Several processes on one folder, any of them killed at any moment: nothing acknowledged is lost, no
//! process is stuck, and there is one owner at a time.
//!
//! The test program starts itself again as its workers, and the environment gives each its role. Four of them
//! write, one reads beside them, one reads without the right to write. The driver kills one worker after
//! another, every second time the owner, and starts it again; in the end it opens the folder and counts.
//!
//! `ATOLL_ROUNDS=50 cargo test -p atoll-embedded --test processes` runs more rounds than the 10 of a test,
//! `ATOLL_SEED` takes another seed, `ATOLL_AT` another folder; `cargo xtask soak processes` runs on with
//! fresh seeds on a real disk.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use atoll_conformance::killed::{self, Driver, Workers, tell};
use atoll_embedded::owner::{Locking, Mode, OwnerOptions, OwnerRecord};
use atoll_embedded::{FolderOptions, OpenOptions, StoreOptions};
use atoll_engine::Options;
use atoll_store::{
    Cell, Durability, ErrorKind, Outcome, ReadOptions, ScanRequest, Store, StoreError, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const WRITERS: u64 = 4;
/// The longest that a worker may be silent.
const STUCK: Duration = Duration::from_secs(2);

async fn open(folder: &Path, mode: Mode, locking: Option<Locking>) -> Result<Arc<dyn Store>, StoreError> {
    let owner = OwnerOptions { locking, ..OwnerOptions::default() };
    let engine = Options { log_segment_bytes: 1 << 20, memory_bytes: 64 << 20, ..Options::default() };
    let options = OpenOptions {
        mode,
        store: StoreOptions { engine, ..StoreOptions::default() },
        folder: FolderOptions { owner, ..FolderOptions::default() },
        ..OpenOptions::default()
    };
    Ok(atoll_embedded::open(folder, options).await?.store())
}

// ---- the workers

/// Not a test: the entry point of a worker.
#[test]
fn worker() {
    killed::work(work);
}

fn work(role: &str, folder: &Path) {
    let locking = std::env::var("ATOLL_FILE_LOCK").is_ok().then_some(Locking::File);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match role.split_once(' ').unwrap() {
            ("write", number) => write_on(folder, locking, number).await,
            ("read", _) => read_on(folder, locking, Mode::Write).await,
            ("look", _) => read_on(folder, locking, Mode::Read).await,
            _ => panic!("no such worker: {role}"),
        }
    });
}

/// Writes the next number under its own key, and adds one to the counter that all share, for ever.
async fn write_on(folder: &Path, locking: Option<Locking>, number: &str) {
    let store = open(folder, Mode::Write, locking).await.unwrap();
    let partition = format!("writer {number}");
    // The planted fault: what is acknowledged survives nothing.
    let durability = std::env::var("ATOLL_PLANT").is_ok().then_some(Durability::Buffered);
    let options = WriteOptions { durability, ..WriteOptions::default() };
    // Each life of a worker begins where no earlier one can have written.
    let start = u64::from(std::process::id()) << 32;
    for sequence in start.. {
        let key = sequence.to_be_bytes();
        match store.put(Cell::new(&partition, &key), &key, options).await {
            Ok(_) => tell(format_args!("wrote {sequence}")),
            Err(error) if error.outcome() == Outcome::Unknown => tell(format_args!("maybe {sequence}")),
            Err(error) => panic!("put: {error} ({error:?})"),
        }
        count_up(&*store).await;
    }
}

async fn count_up(store: &dyn Store) {
    let cell = Cell::new("all", "counter");
    let current = store.get(cell, ReadOptions::default()).await.unwrap();
    let count = current.as_deref().map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    let next = (count + 1).to_le_bytes();
    match store.compare_and_swap(cell, current.as_deref(), &next, WriteOptions::default()).await {
        Ok(_) => tell(format_args!("counted 1")),
        Err(error) if error.kind() == ErrorKind::Conflict => tell(format_args!("lost 1")),
        Err(error) if error.outcome() == Outcome::Unknown => tell(format_args!("maybe-counted 1")),
        Err(error) => panic!("count: {error} ({error:?})"),
    }
}

/// Reads the counter for ever, and opens the store anew now and then, as readers do. The counter never falls
/// while the store of one and the same writer answers.
async fn read_on(folder: &Path, locking: Option<Locking>, mode: Mode) {
    let mut highest = 0;
    loop {
        let store = match open(folder, mode, locking).await {
            Ok(store) => store,
            // A reader that finds no owner reads the state on disk, which may change under it or not be there
            // yet.
            Err(error) if mode == Mode::Read && error.kind() != ErrorKind::Corrupt => {
                tell(format_args!("read 0"));
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            Err(error) => panic!("open: {error} ({error:?})"),
        };
        for _ in 0..200 {
            let value = match store.get(Cell::new("all", "counter"), ReadOptions::default()).await {
                Ok(value) => value,
                Err(error) if mode == Mode::Read && error.kind() != ErrorKind::Corrupt => break,
                Err(error) => panic!("get as {mode:?}: {error} ({error:?})"),
            };
            let count = value.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()));
            assert!(mode == Mode::Read || count >= highest, "the counter fell from {highest} to {count}");
            highest = highest.max(count);
            tell(format_args!("read {count}"));
        }
        if mode == Mode::Read {
            let refused = store.put(Cell::new("all", "counter"), b"", WriteOptions::default()).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
        }
        drop(store);
    }
}

// ---- the driver

/// What the workers reported.
#[derive(Default)]
struct Told {
    wrote: Vec<(String, u64)>,
    counted: u64,
    maybe: u64,
}

fn hear(told: &mut Told, role: &str, what: &str, number: &str) {
    match what {
        "wrote" => told.wrote.push((role.to_owned(), number.parse().unwrap())),
        "counted" => told.counted += 1,
        "maybe-counted" => told.maybe += 1,
        _ => {}
    }
}

fn start(folder: &Path, locking: Option<Locking>, is_planted: bool) -> Driver<Told> {
    let writers = (0..WRITERS).map(|number| format!("write {number}"));
    let roles = writers.chain(["read 0".into(), "look 0".into()]).collect();
    let lock = locking.map(|_| ("ATOLL_FILE_LOCK", "1"));
    let plant = is_planted.then_some(("ATOLL_PLANT", "1"));
    let environment = lock.into_iter().chain(plant).collect();
    let workers = Workers { roles, folder: folder.to_owned(), environment, silence_max: STUCK };
    Driver::start(workers, Told::default(), hear)
}

/// The worker that owns the folder.
fn owner(driver: &Driver<Told>, locking: Option<Locking>) -> Option<usize> {
    let file = if locking.is_some() { "owner" } else { "lock" };
    let record = OwnerRecord::decode(&std::fs::read(driver.folder().join(file)).ok()?)?;
    driver.worker_of(record.identity.pid)
}

async fn count_and_compare(folder: &Path, locking: Option<Locking>, told: &Told) {
    let store = open(folder, Mode::Write, locking).await.unwrap();
    for (role, sequence) in &told.wrote {
        let partition = role.replace("write", "writer");
        let key = sequence.to_be_bytes();
        let value = store.get(Cell::new(&partition, &key), ReadOptions::default()).await.unwrap();
        assert_eq!(value.as_deref(), Some(&key[..]), "{role} lost {sequence}, which was acknowledged");
    }
    let counter = store.get(Cell::new("all", "counter"), ReadOptions::default()).await.unwrap();
    let count = counter.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()));
    let (least, most) = (told.counted, told.counted + told.maybe);
    assert!(
        (least..=most).contains(&count),
        "{count} counted, {least} acknowledged, at most {most} possible"
    );
    let page = store.scan(ScanRequest::all(*b"all")).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    store.close().await.unwrap();
}

fn run(rounds: u64, seed: u64, locking: Option<Locking>, is_planted: bool) {
    // In memory where there is such a place: the sync time of a busy disk is not the subject, and what
    // survives the end of a process does not depend on it. `ATOLL_AT` names another place.
    let place = match std::env::var("ATOLL_AT") {
        Ok(folder) => tempfile::tempdir_in(folder).expect("the folder that ATOLL_AT names"),
        Err(_) => tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap(),
    };
    let folder = place.path().join("store");
    std::fs::create_dir(&folder).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    println!("seed {seed}, {rounds} rounds");
    let mut driver = start(&folder, locking, is_planted);
    driver.listen(500);
    let mut owners = 0;
    for round in 0..rounds {
        let owner = owner(&driver, locking).filter(|_| round % 2 == 0);
        owners += u64::from(owner.is_some());
        let index = owner.unwrap_or_else(|| random.usize(..driver.workers()));
        driver.kill(index);
        // Its last write may have taken effect unreported.
        driver.told.maybe += 1;
        driver.listen(random.usize(200..1000));
    }
    driver.end();
    driver.told.maybe += driver.workers() as u64;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let told = &driver.told;
    runtime.block_on(count_and_compare(&folder, locking, told));
    println!(
        "{} writes acknowledged, {} counted, {owners} owners killed, longest silence {:?}",
        told.wrote.len(),
        told.counted,
        driver.slowest()
    );
    assert!(told.wrote.len() > 100 && told.counted > 10 && owners > 0);
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn whoever_is_killed_nothing_acknowledged_is_lost_and_nobody_is_stuck() {
    if !killed::is_worker() {
        run(setting("ATOLL_ROUNDS", 10), setting("ATOLL_SEED", 1), None, false);
    }
}

#[test]
fn the_same_holds_with_lock_files_as_on_network_file_systems() {
    if !killed::is_worker() {
        run(setting("ATOLL_ROUNDS", 10), setting("ATOLL_SEED", 2), Some(Locking::File), false);
    }
}

#[test]
fn a_store_that_loses_what_it_acknowledged_is_found_out() {
    if !killed::is_worker() {
        // With few killed owners, each may happen to have written what others flushed.
        let runs = || (3..13).for_each(|seed| run(40, seed, None, true));
        let outcome = std::panic::catch_unwind(runs);
        let message = outcome.expect_err("the planted loss was not noticed");
        let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(message.contains("which was acknowledged"), "{message}");
    }
}

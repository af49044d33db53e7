//! The embedded store keeps every promise of the contract: in memory, on a simulated disk that is killed
//! and loses power, and in a real file.
//!
//! `CONFORMANCE_SEED=n` takes another seed, `CONFORMANCE_SIZE=full` the full size; both together seed after
//! seed: `cargo xtask soak conformance`.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use atoll_conformance::{Ending, SEED_DEFAULT, SharedStore, Size, Subject, run_seeded};
use atoll_disk::{Disk, FileDisk, Mode, SimDisk};
use atoll_embedded::{EmbeddedStore, StoreOptions};
use atoll_engine::{Engine, Options};
use atoll_store::clock::ManualClock;
use atoll_store::{StoreError, Timestamp};
use futures::future::{BoxFuture, ready};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The medium of a subject's stores.
trait Medium: Send + Sync {
    fn name(&self) -> &'static str;
    /// A fresh disk; none for memory.
    fn fresh(&self, number: u64) -> Option<AnyDisk>;
}

#[derive(Clone)]
enum AnyDisk {
    Simulated(SimDisk),
    File(std::path::PathBuf),
}

impl AnyDisk {
    fn disk(&self) -> Arc<dyn Disk> {
        match self {
            Self::Simulated(disk) => Arc::new(disk.clone()),
            Self::File(path) => Arc::new(FileDisk::open(path, Mode::Create).unwrap()),
        }
    }

    /// The disk that is left after this ending of the store; none if it cannot end so.
    fn after(&self, ending: Ending) -> Option<Self> {
        match (self, ending) {
            (Self::Simulated(disk), Ending::PowerLost) => Some(Self::Simulated(disk.crash())),
            (Self::Simulated(disk), Ending::Killed) => Some(Self::Simulated(disk.kill())),
            (_, Ending::Closed) => Some(self.clone()),
            (Self::File(_), _) => None,
        }
    }
}

struct Embedded<M> {
    medium: M,
    clock: Arc<ManualClock>,
    disks: Mutex<HashMap<usize, AnyDisk>>,
    opened: AtomicU64,
}

impl<M: Medium> Embedded<M> {
    fn new(medium: M) -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp(1_000_000_000)));
        Self { medium, clock, disks: Mutex::default(), opened: AtomicU64::new(0) }
    }

    fn open_on(&self, disk: Option<AnyDisk>) -> Result<SharedStore, StoreError> {
        let engine = Options { log_segment_bytes: 1 << 20, memory_bytes: 64 << 20, ..Options::default() };
        let options =
            StoreOptions { engine: engine.clone(), clock: self.clock.clone(), ..StoreOptions::default() };
        let Some(disk) = disk else { return Ok(Arc::new(EmbeddedStore::in_memory(options)?)) };
        let opened = Engine::open(disk.disk(), engine).expect("what was left opens");
        let store: SharedStore = Arc::new(EmbeddedStore::on_engine(opened, options, "test")?);
        self.disks.lock().unwrap().insert(address(&store), disk);
        Ok(store)
    }
}

fn address(store: &SharedStore) -> usize {
    Arc::as_ptr(store).cast::<()>().addr()
}

impl<M: Medium> Subject for Embedded<M> {
    fn name(&self) -> String {
        format!("embedded store, {}", self.medium.name())
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        Box::pin(ready(self.open_on(self.medium.fresh(number))))
    }

    fn reopen(
        &self,
        store: SharedStore,
        ending: Ending,
    ) -> Option<BoxFuture<'_, Result<SharedStore, StoreError>>> {
        let left = self.disks.lock().unwrap().remove(&address(&store))?.after(ending)?;
        Some(Box::pin(ready(self.open_on(Some(left)))))
    }

    fn pass<'a>(&'a self, _store: &'a SharedStore, duration: Duration) -> BoxFuture<'a, ()> {
        self.clock.advance(duration);
        Box::pin(ready(()))
    }
}

struct InMemory;

impl Medium for InMemory {
    fn name(&self) -> &'static str {
        "in memory"
    }

    fn fresh(&self, _number: u64) -> Option<AnyDisk> {
        None
    }
}

struct Simulated;

impl Medium for Simulated {
    fn name(&self) -> &'static str {
        "on a simulated disk"
    }

    fn fresh(&self, number: u64) -> Option<AnyDisk> {
        Some(AnyDisk::Simulated(SimDisk::seeded(seed() ^ number)))
    }
}

struct InFile(tempfile::TempDir);

impl Medium for InFile {
    fn name(&self) -> &'static str {
        "in a file"
    }

    fn fresh(&self, number: u64) -> Option<AnyDisk> {
        Some(AnyDisk::File(self.0.path().join(number.to_string())))
    }
}

fn seed() -> u64 {
    std::env::var("CONFORMANCE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED_DEFAULT)
}

fn size() -> Size {
    match std::env::var("CONFORMANCE_SIZE").as_deref() {
        Err(_) | Ok("quick") => Size::Quick,
        Ok("full") => Size::Full,
        Ok(other) => panic!("CONFORMANCE_SIZE is quick or full, not {other:?}"),
    }
}

fn check(subject: &dyn Subject, skips: usize) {
    let report = run_seeded(subject, size(), seed());
    println!("{report}");
    for slow in report.checks.iter().filter(|check| check.took > Duration::from_millis(500)) {
        println!("{:>10.1?} {}", slow.took, slow.name);
    }
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.skipped().count(), skips, "{report}");
}

#[test]
fn the_store_in_memory_keeps_every_promise() {
    check(&Embedded::new(InMemory), 5);
}

#[test]
fn the_store_on_a_simulated_disk_keeps_every_promise_and_skips_none() {
    check(&Embedded::new(Simulated), 0);
}

#[test]
fn the_store_in_a_file_keeps_every_promise() {
    check(&Embedded::new(InFile(tempfile::tempdir().unwrap())), 4);
}

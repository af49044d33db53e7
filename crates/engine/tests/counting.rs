//! The number of records of a tree that has to be counted, beside other work.
// Threads wait for each other, and nothing tells that one waits for a lock.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use atoll_disk::{Disk, DiskError, MemoryDisk, Relay};
use atoll_engine::{Durability, Engine, Options, WriteBatch};
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, Builder};
use std::time::Duration;

/// Name of the thread whose reads wait.
const DELETING: &str = "deleting";

/// Threads that look something up: more than there are places of the forest lock, which each thread takes in
/// turn.
const LOOKUPS: usize = 8;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Before,
    Waiting,
    Open,
}

/// A disk in memory on which the reads of one thread wait until they are let through.
#[derive(Default)]
struct Slow {
    bytes: MemoryDisk,
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Slow {
    fn set(&self, stage: Stage) {
        *self.stage.lock().unwrap() = stage;
        self.changed.notify_all();
    }

    fn wait_until_it_waits(&self) {
        let stage = self.stage.lock().unwrap();
        drop(self.changed.wait_while(stage, |stage| *stage != Stage::Waiting).unwrap());
    }
}

impl Relay for Slow {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if thread::current().name() == Some(DELETING) {
            let mut stage = self.stage.lock().unwrap();
            if *stage == Stage::Before {
                *stage = Stage::Waiting;
                self.changed.notify_all();
            }
            drop(self.changed.wait_while(stage, |stage| *stage != Stage::Open).unwrap());
        }
        self.bytes.read_at(offset, target)
    }
}

fn open(disk: &Arc<Slow>) -> Engine {
    let options = Options { background: false, hot_bytes: Some(0), store_id: Some(7), ..Options::default() };
    Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options).unwrap()
}

/// A tree whose number of records nobody knows, beside another one, and a record that is looked up.
fn filled(disk: &Arc<Slow>) {
    let engine = open(disk);
    let long = engine.tree("long").unwrap();
    for number in 0..5000u32 {
        long.put(&number.to_be_bytes(), &[7; 100], Durability::Buffered).unwrap();
    }
    long.split_off(&3000u32.to_be_bytes(), "upper", Durability::Buffered).unwrap();
    engine.tree("few").unwrap().put(b"k", b"v", Durability::Buffered).unwrap();
    engine.close().unwrap();
}

fn known(engine: &Engine, name: &str) -> Option<u64> {
    engine.stats().trees.iter().find(|(tree, _)| tree == name).and_then(|(_, records)| *records)
}

#[test]
fn lookups_do_not_wait_for_a_long_delete_because_a_tree_is_counted_beside_it() {
    let disk: Arc<Slow> = Arc::default();
    filled(&disk);
    let engine = open(&disk);
    let [long, upper, few] = ["long", "upper", "few"].map(|name| engine.tree(name).unwrap());
    let (engine, long, upper, few) = (&engine, &long, &upper, &few);
    assert!(few.get(b"k").unwrap().is_some(), "it is in memory from here on");
    assert_eq!(known(engine, "upper"), None, "it has to be counted");
    thread::scope(|scope| {
        let delete = move || {
            let mut batch = WriteBatch::new();
            batch.delete_range(long, (Bound::Unbounded, Bound::Unbounded));
            engine.write(&batch, Durability::Buffered).map(|_| ())
        };
        let deleting = Builder::new().name(DELETING.to_owned()).spawn_scoped(scope, delete).unwrap();
        disk.wait_until_it_waits();
        let counting = scope.spawn(move || upper.len());
        // It reads its tree meanwhile, and then waits until it may note the number.
        thread::sleep(Duration::from_millis(500));
        let (tell, told) = mpsc::channel();
        for _ in 0..LOOKUPS {
            let tell = tell.clone();
            scope.spawn(move || tell.send(few.get(b"k").is_ok_and(|value| value.is_some())));
        }
        let found = (0..LOOKUPS).filter(|_| told.recv_timeout(Duration::from_secs(10)) == Ok(true)).count();
        // Before anything is asserted: the scope waits for all threads.
        disk.set(Stage::Open);
        assert!(deleting.join().unwrap().is_ok());
        assert_eq!(counting.join().unwrap().unwrap(), 2000);
        assert_eq!(found, LOOKUPS, "the others waited for the delete");
    });
    assert_eq!(known(engine, "upper"), Some(2000), "it need not be counted again");
}

//! Tests of reads from the disk beside a writer that never rests: a write comes before each page is read.
//!
//! Such a write goes into a leaf that has the same parent as the missing one, or beside the missing leaf
//! itself. Each test ends by a number of writes, since a reader that cannot get by would read for ever.

use crate::engine::{Engine, Tree};
use crate::options::Options;
use crate::search;
use crate::superblock::DATA_START;
use crate::value::ValueRef;
use crate::visit::Direction;
use crate::{Durability, EngineError};
use atoll_disk::{Disk, DiskError, MemoryDisk, Relay};
use std::ops::{Bound, ControlFlow, RangeInclusive};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const SEGMENT: u64 = 64 << 10;

/// Writes after which the writer rests in any case: far more than any reader lets come between.
const WRITES_MAX: usize = 20_000;

/// Most writes that may come between the reads of one lookup.
const BETWEEN: RangeInclusive<usize> = 1..=8;

/// The key that is written to in most tests: its leaf is in memory.
const BUSY: [u8; 4] = 0u32.to_be_bytes();

/// What is written.
const WRITTEN: &[u8] = b"written meanwhile";

/// Writes, unless that would wait for the reader. Returns whether it did.
type Write = Box<dyn FnMut() -> bool + Send>;

/// A disk in memory on which a write comes before each read of a page.
#[derive(Default)]
struct Busy {
    bytes: MemoryDisk,
    write: Mutex<Option<Write>>,
    writes: AtomicUsize,
    /// Reads during which the writer would have waited.
    kept_away: AtomicUsize,
}

impl Busy {
    /// From here on, writes to a key come between.
    fn begin(&self, tree: &Tree, key: [u8; 4]) {
        let tree = tree.clone();
        let write = move || {
            // A reader that holds one of these locks keeps writers away, so none comes between.
            let shared = &tree.engine.shared;
            let is_alone = shared.writer.try_alone().is_some();
            let is_free = is_alone && shared.forest.try_write().is_some();
            if is_free {
                tree.put(&key, WRITTEN, Durability::Buffered).unwrap();
            }
            is_free
        };
        self.writes.store(0, Ordering::Relaxed);
        *self.write.lock().unwrap() = Some(Box::new(write));
    }

    /// No more writes come between. Returns how many did.
    fn rest(&self) -> usize {
        let write = self.write.lock().unwrap().take();
        drop(write);
        self.writes.load(Ordering::Relaxed)
    }
}

impl Relay for Busy {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        // What is longer is a log segment.
        let is_page = offset >= DATA_START && target.len() < SEGMENT as usize / 2;
        if is_page && self.writes.load(Ordering::Relaxed) < WRITES_MAX {
            // Taken out meanwhile, because the write may read as well.
            let taken = self.write.lock().unwrap().take();
            if let Some(mut write) = taken {
                let counted = if write() { &self.writes } else { &self.kept_away };
                counted.fetch_add(1, Ordering::Relaxed);
                *self.write.lock().unwrap() = Some(write);
            }
        }
        self.bytes.read_at(offset, target)
    }
}

fn open(disk: &Arc<Busy>, blind_puts: bool) -> (Engine, Tree) {
    let options = Options {
        background: false,
        blind_puts,
        log_segment_bytes: SEGMENT,
        checkpoint_bytes: u64::MAX,
        hot_bytes: Some(0),
        store_id: Some(7),
        ..Options::default()
    };
    let engine = Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options).unwrap();
    let tree = engine.tree("records").unwrap();
    (engine, tree)
}

fn record(number: u32, bytes: usize) -> ([u8; 4], Vec<u8>) {
    (number.to_be_bytes(), vec![number as u8; bytes])
}

fn get(tree: &Tree, number: u32) -> Result<Option<Vec<u8>>, EngineError> {
    tree.get(&number.to_be_bytes())?.map(|value| Ok(value.to_buffer()?.to_vec())).transpose()
}

/// A store with records of these numbers, all on disk alone.
fn filled(numbers: impl Iterator<Item = u32>, bytes: usize) -> Arc<Busy> {
    let disk: Arc<Busy> = Arc::default();
    let (engine, tree) = open(&disk, false);
    // A few in each group of the log, which is no longer than a segment then.
    let records: Vec<_> = numbers.map(|number| record(number, bytes)).collect();
    for some in records.chunks(20) {
        tree.put_many(some, Durability::Buffered).unwrap();
    }
    engine.close().unwrap();
    disk
}

/// Number of inner nodes in memory on the path to a key.
fn depth_of(tree: &Tree, number: u32) -> usize {
    let forest = tree.engine.shared.forest.read();
    forest.tree(tree.id()).map_or(0, |state| search::depth_of(&state.root, &number.to_be_bytes()))
}

/// A way to read; returns how many records it found.
type Reading<'a> = &'a dyn Fn(&Tree) -> usize;

/// A store with records of 100 bytes, of which the first is in memory, and the number of the last, whose
/// parent the first has too. That is the root; where there are levels below it, more than the leaf is
/// missing.
fn beside_first(levels: usize, count: u32) -> (Arc<Busy>, Engine, Tree, u32) {
    let disk = filled(0..count, 100);
    let (engine, tree) = open(&disk, false);
    assert_eq!(get(&tree, 0).unwrap(), Some(record(0, 100).1));
    let last = count - 1;
    assert_eq!((depth_of(&tree, 0), depth_of(&tree, last)), (levels, 1), "{count} records");
    (disk, engine, tree, last)
}

/// Trees with one level of inner nodes and with two: levels, and number of records.
const TREES: [(usize, u32); 2] = [(1, 2000), (2, 60_000)];

#[test]
fn a_lookup_ends_however_busy_a_writer_is() {
    for (levels, count) in TREES {
        let (disk, _engine, tree, last) = beside_first(levels, count);
        disk.begin(&tree, BUSY);
        let found = get(&tree, last).unwrap();
        let writes = disk.rest();
        assert!(BETWEEN.contains(&writes), "{writes} writes came between, {levels} levels");
        assert_eq!(found, Some(record(last, 100).1));
        assert_eq!(get(&tree, 0).unwrap().as_deref(), Some(WRITTEN));
        disk.begin(&tree, BUSY);
        assert_eq!(get(&tree, last).unwrap(), found);
        assert_eq!(disk.rest(), 0, "what was read did not stay in memory, {levels} levels");
    }
}

#[test]
fn a_ticket_reads_for_the_trees_however_busy_a_writer_is() {
    for (levels, count) in TREES {
        let (disk, _engine, tree, last) = beside_first(levels, count);
        disk.begin(&tree, BUSY);
        for level in 0..levels {
            let ticket = tree.read_before_write(&last.to_be_bytes());
            assert!(ticket.is_some_and(|ticket| ticket.run().is_ok()), "level {level} of {levels}");
        }
        assert!(tree.read_before_write(&last.to_be_bytes()).is_none(), "all of it was read");
        assert_eq!(disk.rest(), levels);
        assert_eq!(get(&tree, last).unwrap(), Some(record(last, 100).1));
        assert_eq!(get(&tree, 0).unwrap().as_deref(), Some(WRITTEN));
    }
}

/// What is read while a record is put beside the leaf lacks that record. It must not come into the trees, and
/// a reader that it happens to each time has to get by with it.
#[test]
fn what_is_put_beside_a_leaf_while_that_is_read_is_not_lost() {
    const COUNT: u32 = 2000;
    const LAST: u32 = COUNT - 1;
    let disk = filled(0..COUNT, 100);
    let (engine, tree) = open(&disk, true);
    // From here on it is known where the leaves are.
    tree.put(&BUSY, b"first", Durability::Buffered).unwrap();
    // In the leaf of the last key, behind that.
    disk.begin(&tree, COUNT.to_be_bytes());
    let found = get(&tree, LAST).unwrap();
    let writes = disk.rest();
    assert!((2..=*BETWEEN.end()).contains(&writes), "{writes} records came beside the leaf");
    assert_eq!(found, Some(record(LAST, 100).1));
    for number in [COUNT, LAST, COUNT] {
        let value = if number == COUNT { WRITTEN.to_vec() } else { record(number, 100).1 };
        assert_eq!(get(&tree, number).unwrap(), Some(value), "{number}");
    }
    assert_eq!(tree.len().unwrap(), u64::from(COUNT) + 1);
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn the_first_read_of_a_root_keeps_no_writer_waiting() {
    const COUNT: u32 = 2000;
    const LAST: [u8; 4] = (COUNT - 1).to_be_bytes();
    let everything = (Bound::Unbounded, Bound::Unbounded);
    let get_last = |tree: &Tree| usize::from(tree.get(&LAST).unwrap().is_some());
    let run_ticket = |tree: &Tree| {
        let ticket = tree.read_before_write(&LAST);
        ticket.map_or(0, |ticket| usize::from(ticket.run().is_ok()))
    };
    let scan = |tree: &Tree| {
        let mut visited = 0;
        let visit = |_: &[u8], _: ValueRef<'_>| {
            visited += 1;
            ControlFlow::Continue(())
        };
        tree.scan(everything, Direction::Forward, visit).unwrap();
        visited
    };
    let reads: [(Reading<'_>, usize); 3] = [(&get_last, 1), (&run_ticket, 1), (&scan, COUNT as usize)];
    for (number, (read, found)) in reads.into_iter().enumerate() {
        let disk = filled(0..COUNT, 100);
        let (_engine, tree) = open(&disk, false);
        disk.begin(&tree, BUSY);
        assert_eq!(read(&tree), found, "read {number}");
        let writes = disk.rest();
        assert!(writes > 0, "nothing was read, read {number}");
        assert_eq!(disk.kept_away.load(Ordering::Relaxed), 0, "a lock was held, read {number}");
        // The writer found the root in the meantime: what it did there stays.
        assert_eq!(get(&tree, 0).unwrap().as_deref(), Some(WRITTEN));
        assert_eq!(tree.len().unwrap(), COUNT.into());
    }
}

#[test]
fn cleaning_ends_however_busy_a_writer_is() {
    const HALF: u32 = 1000;
    const BYTES: usize = 1000;
    // Each log segment has values of both halves.
    let disk = filled((0..HALF).flat_map(|number| [number, number + HALF]), BYTES);
    let (engine, tree) = open(&disk, false);
    // Of the segments one half dies, and the leaves of the other one are not in memory.
    for number in 0..HALF {
        tree.put(&number.to_be_bytes(), b"short", Durability::Buffered).unwrap();
    }
    disk.begin(&tree, BUSY);
    engine.checkpoint().unwrap();
    let writes = disk.rest();
    // A leaf is read once for all values that it has, or a few times.
    assert!((1..=HALF as usize / 4).contains(&writes), "{writes} writes came between");
    assert!(engine.stats().values_moved > 100, "{:?}", engine.stats());
    for number in HALF..2 * HALF {
        assert_eq!(get(&tree, number).unwrap(), Some(record(number, BYTES).1), "{number}");
    }
    assert!(engine.check().unwrap().damage.is_empty());
}

//! What the engine does when its disk refuses: nothing is lost, and it continues once the cause is gone.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{Disk, DiskError, FaultPlan, Relay, SimDisk, Survival};
use atoll_engine::{Damage, Durability, Engine, EngineError, Options, Tree, ValueWriter, WriteBatch};
use atoll_errors::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options() -> Options {
    Options { background: false, log_segment_bytes: 64 << 10, store_id: Some(7), ..Options::default() }
}

fn open(disk: &SimDisk) -> (Engine, Tree) {
    let engine = Engine::open(Arc::new(disk.clone()), options()).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

fn fill(tree: &Tree, from: u32, to: u32) {
    for number in from..to {
        tree.put(&number.to_be_bytes(), &[number as u8; 300], Durability::Flushed).unwrap();
    }
}

fn assert_holds(tree: &Tree, count: u32) {
    assert_eq!(tree.len().unwrap(), u64::from(count));
    for number in 0..count {
        let value = tree.get(&number.to_be_bytes()).unwrap().unwrap().to_buffer().unwrap();
        assert_eq!(*value, [number as u8; 300], "key {number}");
    }
}

#[test]
fn a_checkpoint_that_failed_half_way_is_made_again_whole() {
    for struck in 0..3 {
        let disk = SimDisk::seeded(struck);
        let (engine, tree) = open(&disk);
        fill(&tree, 0, 3000);
        disk.set_plan(FaultPlan { fail_write: Some(struck), ..FaultPlan::default() });
        engine.checkpoint().unwrap_err();
        disk.set_plan(FaultPlan::default());
        fill(&tree, 3000, 3100);
        engine.checkpoint().unwrap();
        let (engine, tree) = open(&disk.crash());
        assert_holds(&tree, 3100);
        assert!(engine.check().unwrap().damage.is_empty());
    }
}

#[test]
fn a_full_disk_refuses_writes_and_serves_again_when_there_is_room() {
    let disk = SimDisk::seeded(1);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 100);
    disk.set_plan(FaultPlan { space_left: Some(10_000), ..FaultPlan::default() });
    let refused = (100..100_000u32).find_map(|number| {
        tree.put(&number.to_be_bytes(), &[number as u8; 300], Durability::Flushed)
            .err()
            .map(|error| (number, error))
    });
    let (stopped_at, error) = refused.expect("the disk fills");
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    assert_holds(&tree, stopped_at);
    // It finds no room at first, and then takes what is kept for it.
    engine.checkpoint().unwrap();
    assert_holds(&tree, stopped_at);
    disk.set_plan(FaultPlan::default());
    fill(&tree, stopped_at, stopped_at + 50);
    engine.close().unwrap();
    assert_holds(&open(&disk.crash()).1, stopped_at + 50);
}

#[test]
fn a_batch_that_is_too_long_for_the_disk_takes_no_room_from_what_is_short() {
    let disk = SimDisk::seeded(2);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 100);
    disk.set_plan(FaultPlan { space_left: Some(300 << 10), ..FaultPlan::default() });
    let mut long = WriteBatch::new();
    (0..20u8).for_each(|number| long.put(&tree, &[number], &[number; 30_000]));
    for _ in 0..3 {
        let refused = engine.write(&long, Durability::Flushed).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
    }
    let put = |number: &u32| tree.put(&number.to_be_bytes(), &[*number as u8; 300], Durability::Flushed);
    let stopped_at = (100..100_000).find(|number| put(number).is_err()).unwrap();
    let written = (stopped_at - 100) * 300;
    assert!(written > 200 << 10, "{written} bytes of 300 KiB");
    disk.set_plan(FaultPlan::default());
    engine.write(&long, Durability::Flushed).unwrap();
    let (engine, tree) = open(&disk.kill());
    assert_eq!(tree.len().unwrap(), u64::from(stopped_at) + 20);
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn after_a_failed_sync_nothing_more_is_promised_until_it_is_opened_again() {
    let disk = SimDisk::seeded(3);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 10);
    engine.sync().unwrap();
    disk.set_plan(FaultPlan { fail_sync: Some(0), ..FaultPlan::default() });
    let error = tree.put(b"last", b"value", Durability::Synced).unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert!(matches!(tree.put(b"more", b"", Durability::Flushed), Err(EngineError::Poisoned { .. })));
    let value = tree.get(&0u32.to_be_bytes()).unwrap();
    assert!(value.is_some(), "reads go on");
    let (_, tree) = open(&disk.crash());
    for number in 0..10u32 {
        assert!(tree.get(&number.to_be_bytes()).unwrap().is_some());
    }
}

#[test]
fn a_batch_is_visible_before_the_sync_of_its_ticket_and_unknown_if_that_fails() {
    let disk = SimDisk::seeded(9);
    let (engine, tree) = open(&disk);
    let batch_of = |keys: &[&[u8]]| {
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| batch.put(&tree, key, b"value"));
        batch
    };
    let is_there = |key: &[u8]| tree.get(key).unwrap().is_some();
    // The first batch fits in place, the second does not.
    let (one, two): ([&[u8]; 1], [&[u8]; 2]) = ([b"a"], [b"b", b"c"]);
    for keys in [&one[..], &two[..]] {
        let before = disk.counters().syncs;
        let ticket = engine.write_visible(&batch_of(keys)).unwrap();
        assert!(keys.iter().all(|key| is_there(key)));
        assert_eq!(disk.counters().syncs, before, "the ticket has yet to sync");
        ticket.run().unwrap();
        assert_eq!(disk.counters().syncs, before + 1);
    }
    let tickets = [&b"d"[..], &b"e"[..]].map(|key| engine.write_visible(&batch_of(&[key])).unwrap());
    disk.set_plan(FaultPlan { fail_sync: Some(0), ..FaultPlan::default() });
    for ticket in tickets {
        assert!(ticket.run().unwrap_err().is_unknown(), "its batch is visible");
    }
    let refused = engine.write_visible(&batch_of(&[&b"f"[..]]));
    assert!(matches!(refused, Err(EngineError::Poisoned { .. })));
    assert!(is_there(b"e") && !is_there(b"f"));
    let (_, tree) = open(&disk.crash());
    for key in [b"a", b"b", b"c"] {
        assert!(tree.get(key).unwrap().is_some(), "its sync succeeded");
    }
}

#[test]
fn read_only_media_can_be_read_and_are_never_written() {
    let disk = SimDisk::seeded(4);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 500);
    engine.checkpoint().unwrap();
    fill(&tree, 500, 600);
    engine.sync().unwrap();
    let media = disk.crash();
    let before = media.to_bytes();
    media.set_plan(FaultPlan { read_only: true, ..FaultPlan::default() });
    let read_only = Options { read_only: true, ..options() };
    let engine = Engine::open(Arc::new(media.clone()), read_only).unwrap();
    let tree = engine.tree("t").unwrap();
    assert_holds(&tree, 600);
    assert!(matches!(tree.put(b"k", b"v", Durability::Flushed), Err(EngineError::ReadOnly { .. })));
    assert!(matches!(engine.tree("other"), Err(EngineError::ReadOnly { .. })));
    engine.close().unwrap();
    assert!(media.to_bytes() == before, "not a byte was written");
}

#[test]
fn a_store_of_a_newer_format_and_a_file_that_is_no_store_say_so() {
    let foreign = SimDisk::with_bytes(1, &[b'x'; 10_000]);
    assert!(matches!(Engine::open(Arc::new(foreign), options()), Err(EngineError::NotAStore { .. })));
    let short = SimDisk::with_bytes(1, b"hello");
    assert!(matches!(Engine::open(Arc::new(short), options()), Err(EngineError::NotAStore { .. })));
}

#[test]
fn a_store_that_was_begun_and_never_finished_is_none_yet_to_who_only_reads() {
    let begun = SimDisk::with_bytes(1, b"");
    let read_only = Options { read_only: true, ..options() };
    let refused = Engine::open(Arc::new(begun.clone()), read_only);
    assert!(matches!(refused, Err(EngineError::NotYetAStore { .. })));
    Engine::open(Arc::new(begun), options()).unwrap().close().unwrap();
}

#[test]
fn one_damaged_superblock_is_mended_and_two_are_an_error() {
    let disk = SimDisk::seeded(5);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 100);
    engine.close().unwrap();
    for copy in [0, 4096] {
        let damaged = disk.fork();
        damaged.flip_bit(copy + 100, 3);
        let (engine, tree) = open(&damaged);
        assert!(engine.recovery().superblock_mended);
        assert_holds(&tree, 100);
        drop((engine, tree));
        assert!(!open(&damaged).0.recovery().superblock_mended, "it was mended");
    }
    let damaged = disk.fork();
    damaged.flip_bit(100, 3);
    damaged.flip_bit(4196, 3);
    let error = Engine::open(Arc::new(damaged), options()).err().expect("it does not open");
    assert!(matches!(error, EngineError::Corrupt { problem: Damage::Superblocks, .. }), "{error}");
}

/// What a former life left behind a torn end must not come back, even where this life writes the same bytes.
#[test]
fn a_group_that_was_cut_stays_cut() {
    let disk = SimDisk::seeded(6);
    let (engine, tree) = open(&disk);
    engine.sync().unwrap();
    let before = disk.to_bytes();
    tree.put(b"a", b"first", Durability::Flushed).unwrap();
    tree.put(b"b", b"second", Durability::Flushed).unwrap();
    let mut torn = disk.to_bytes();
    let start = (0..torn.len()).find(|&at| before.get(at) != torn.get(at)).unwrap();
    torn[start..start + 40].fill(0);
    let disk = SimDisk::with_bytes(7, &torn);
    let (engine, tree) = open(&disk);
    assert!(engine.recovery().cut.is_some());
    assert!(tree.is_empty().unwrap());
    tree.put(b"a", b"first", Durability::Flushed).unwrap();
    let (_, tree) = open(&disk.kill());
    assert!(tree.get(b"a").unwrap().is_some());
    assert!(tree.get(b"b").unwrap().is_none());
}

/// Begins a large value and writes all of it.
fn upload(tree: &Tree, bytes: &[u8]) -> ValueWriter {
    let mut value = tree.value_writer(b"large").unwrap();
    value.write(bytes).unwrap();
    value
}

/// A group whose large value the medium lost is cut and is itself intact. Neither it nor what follows it may
/// come back when the same bytes come to the same place.
#[test]
fn a_group_that_was_cut_for_its_large_value_stays_cut_when_that_is_written_again() {
    let large = vec![7; 1 << 20];
    let disk = SimDisk::seeded(17);
    let (_engine, tree) = open(&disk);
    tree.put(b"before", b"v", Durability::Synced).unwrap();
    upload(&tree, &large).commit(Durability::Flushed).unwrap();
    tree.put(b"after", b"v", Durability::Flushed).unwrap();
    let mut bytes = disk.to_bytes();
    let place = (0..bytes.len()).step_by(4096).find(|&at| bytes[at..].starts_with(&large)).unwrap();
    bytes[place..place + large.len()].fill(0);
    let assert_cut = |tree: &Tree| {
        assert!(tree.get(b"before").unwrap().is_some());
        assert!(tree.get(b"large").unwrap().is_none() && tree.get(b"after").unwrap().is_none());
    };

    let disk = SimDisk::with_bytes(18, &bytes);
    let (engine, tree) = open(&disk);
    let cut = engine.recovery().cut.expect("the value is not there").offset as usize;
    assert_cut(&tree);
    // An upload that is given up leaves the bytes, and no group.
    drop(upload(&tree, &large));
    assert!(disk.to_bytes()[place..].starts_with(&large), "it came to another place");
    assert_cut(&open(&disk.kill()).1);

    // The power may fail before this process writes anything else.
    let disk = SimDisk::with_bytes(19, &bytes);
    let _opened = open(&disk);
    let medium = disk.crash_with(Survival::Nothing).to_bytes();
    assert_eq!(medium[cut..cut + 40], [0; 40], "the group is on the medium");

    let disk = SimDisk::with_bytes(20, &bytes);
    disk.set_plan(FaultPlan { read_only: true, ..FaultPlan::default() });
    let read_only = Engine::open(Arc::new(disk), Options { read_only: true, ..options() }).unwrap();
    assert_cut(&read_only.tree("t").unwrap());
}

/// One copy torn by a failed write, the other by a crash: the copy in doubt must be written first.
#[test]
fn a_crash_after_a_failed_superblock_write_leaves_one_copy_intact() {
    for struck in 0..12 {
        for cut in 0..12 {
            let disk = SimDisk::seeded(struck * 100 + cut);
            let (engine, tree) = open(&disk);
            fill(&tree, 0, 20);
            engine.sync().unwrap();
            disk.set_plan(FaultPlan { fail_write: Some(struck), ..FaultPlan::default() });
            let _ = engine.checkpoint();
            disk.set_plan(FaultPlan { power_cut_after: Some(cut), ..FaultPlan::default() });
            let _ = engine.checkpoint();
            assert_holds(&open(&disk.crash()).1, 20);
        }
    }
}

#[test]
fn a_flipped_bit_in_the_head_of_the_last_group_is_never_passed_over() {
    let disk = SimDisk::seeded(8);
    let (engine, tree) = open(&disk);
    tree.put(b"before", b"value", Durability::Synced).unwrap();
    let without = disk.to_bytes();
    tree.put(b"last", b"value", Durability::Synced).unwrap();
    let with = disk.to_bytes();
    drop(engine);
    let start = (0..with.len()).find(|&at| without.get(at) != with.get(at)).unwrap();
    for bit in 0..40 * 8 {
        let mut bytes = with.clone();
        bytes[start + bit / 8] ^= 1 << (bit % 8);
        let damaged = SimDisk::with_bytes(9, &bytes);
        let Ok(engine) = Engine::open(Arc::new(damaged), options()) else { continue };
        let is_there = engine.tree("t").unwrap().get(b"last").unwrap().is_some();
        assert!(is_there || engine.recovery().cut.is_some(), "bit {bit} of the group's head");
    }
}

/// Offsets of the log segments, ordered by number.
fn segments(bytes: &[u8]) -> Vec<(u64, usize)> {
    let heads = (0..bytes.len()).step_by(4096).filter(|&at| bytes[at..].starts_with(b"ATOLLLOG"));
    let mut found: Vec<_> =
        heads.map(|at| (u64::from_le_bytes(*bytes[at + 16..].first_chunk().unwrap()), at)).collect();
    found.sort_unstable();
    found
}

/// The bytes of a store whose log has entered several segments since its last checkpoint.
fn with_a_long_log(seed: u64, durability: Durability) -> Vec<u8> {
    let disk = SimDisk::seeded(seed);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 2000);
    engine.checkpoint().unwrap();
    for number in 2000..3000_u32 {
        tree.put(&number.to_be_bytes(), &[number as u8; 300], durability).unwrap();
    }
    disk.to_bytes()
}

#[test]
fn a_log_whose_next_segment_was_written_over_as_a_whole_is_never_taken_for_one_that_ends_there() {
    for durability in [Durability::Flushed, Durability::Synced] {
        let bytes = with_a_long_log(10, durability);
        let segments = segments(&bytes);
        // The checkpoint lies in one of the earlier ones; the jumps into the last of these are damaged.
        let newest: Vec<usize> = segments.iter().rev().take(4).map(|&(_, at)| at).collect();
        assert_eq!(newest.len(), 4);
        let (engine, _) = open(&SimDisk::with_bytes(11, &bytes));
        assert_eq!(engine.recovery().cut, None, "the log is whole");
        for &at in &newest[1..] {
            let mut bytes = bytes.clone();
            bytes[at..at + (64 << 10)].fill(0xa5);
            let opened = Engine::open(Arc::new(SimDisk::with_bytes(12, &bytes)), options());
            match (opened, durability) {
                (Ok(engine), Durability::Flushed) => {
                    assert!(engine.recovery().cut.is_some(), "a silent step back: {:?}", engine.recovery());
                }
                // Later segments record that the log was synced up to here.
                (
                    Err(EngineError::Corrupt { problem: Damage::LogBeforeSyncedEnd, .. }),
                    Durability::Synced,
                ) => {}
                (opened, _) => panic!("{durability:?}, segment at {at}: {:?}", opened.map(|_| ())),
            }
        }
    }
}

#[test]
fn a_cut_is_told_once_and_not_again_when_the_log_went_on_from_there() {
    let bytes = with_a_long_log(13, Durability::Flushed);
    let last_but_one = segments(&bytes).iter().rev().nth(1).unwrap().1;
    let mut damaged = bytes;
    damaged[last_but_one..last_but_one + (64 << 10)].fill(0xa5);
    for goes_on_by in ["a write", "a checkpoint", "closing"] {
        let disk = SimDisk::with_bytes(14, &damaged);
        let (engine, tree) = open(&disk);
        assert!(engine.recovery().cut.is_some());
        match goes_on_by {
            "a write" => drop(tree.put(b"k", b"v", Durability::Flushed).unwrap()),
            "a checkpoint" => drop(engine.checkpoint().unwrap()),
            _ => engine.clone().close().unwrap(),
        }
        drop((engine, tree));
        let (engine, _) = open(&disk.kill());
        assert_eq!(engine.recovery().cut, None, "after {goes_on_by}");
        assert!(engine.check().unwrap().damage.is_empty(), "after {goes_on_by}");
    }
}

#[test]
fn a_torn_signpost_costs_nothing_and_is_mended_by_the_next_write() {
    let whole = with_a_long_log(15, Durability::Flushed);
    let signpost = (0..whole.len()).step_by(4096).find(|&at| whole[at..].starts_with(b"ATOLLSGN")).unwrap();
    let mut torn = whole.clone();
    torn[signpost + 20] ^= 1;
    let disk = SimDisk::with_bytes(16, &torn);
    let (engine, tree) = open(&disk);
    assert_eq!(engine.recovery().cut, None);
    assert_holds(&tree, 3000);
    // The power may fail while it is written, so this is no damage to report.
    assert!(engine.check().unwrap().damage.is_empty());
    tree.put(&3000_u32.to_be_bytes(), &[3000_u32 as u8; 300], Durability::Flushed).unwrap();
    assert_eq!(disk.to_bytes()[signpost..signpost + 64], whole[signpost..signpost + 64]);
}

/// A disk that holds up one write: it reports the write, and waits until the write may go on. Later writes
/// are counted.
struct StalledDisk {
    disk: SimDisk,
    next: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    later: AtomicU64,
}

impl Relay for StalledDisk {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.later.fetch_add(1, Ordering::Relaxed);
        let held = self.next.lock().unwrap().take();
        if let Some((here, go_on)) = held {
            here.send(()).unwrap();
            go_on.recv().unwrap();
            self.later.store(0, Ordering::Relaxed);
        }
        self.disk.write_at(offset, bytes)
    }
}

#[test]
fn a_checkpoint_of_a_store_that_is_abandoned_writes_no_page_more() {
    let disk = SimDisk::seeded(5);
    let disk = Arc::new(StalledDisk { disk, next: Mutex::default(), later: AtomicU64::new(0) });
    let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
    let tree = engine.tree("t").unwrap();
    fill(&tree, 0, 10_000);
    let (is_here, here) = channel();
    let (goes_on, go_on) = channel();
    *disk.next.lock().unwrap() = Some((is_here, go_on));
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| engine.checkpoint());
        here.recv().unwrap();
        let abandoning = scope.spawn(|| engine.abandon());
        while tree.put(b"beside", b"", Durability::Flushed).is_ok() {}
        goes_on.send(()).unwrap();
        checkpoint.join().unwrap().unwrap_err();
        abandoning.join().unwrap();
    });
    assert_eq!(disk.later.load(Ordering::Relaxed), 0, "writes to what belongs to somebody else");
}

#[test]
fn a_store_that_closes_hands_over_what_only_it_holds_before_it_waits_for_a_checkpoint() {
    let disk = SimDisk::seeded(5);
    let disk = Arc::new(StalledDisk { disk, next: Mutex::default(), later: AtomicU64::new(0) });
    let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
    let tree = engine.tree("t").unwrap();
    fill(&tree, 0, 10_000);
    let hold_next = || {
        let (is_here, here) = channel();
        let (goes_on, go_on) = channel();
        *disk.next.lock().unwrap() = Some((is_here, go_on));
        (here, goes_on)
    };
    let (here, goes_on) = hold_next();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| engine.checkpoint());
        here.recv().unwrap();
        tree.put(b"beside", b"", Durability::Buffered).unwrap();
        let (handed_over, ends) = hold_next();
        let closing = scope.spawn(|| engine.close_shared());
        let is_early = handed_over.recv_timeout(Duration::from_secs(10)).is_ok();
        ends.send(()).unwrap();
        goes_on.send(()).unwrap();
        checkpoint.join().unwrap().unwrap();
        closing.join().unwrap().unwrap();
        assert!(is_early, "it waits for the checkpoint first");
    });
}

//! A node that is the whole ring ends when its engine failed half-way through a write, even if it is
//! configured to keep nothing.

use super::*;
use atoll_disk::{FaultPlan, SimDisk};
use atoll_engine::{Commit, Durability, EngineError, WriteBatch};
use atoll_errors::ErrorKind;
use std::ops::Bound;

/// Records of some 120 bytes: three times the memory.
const RECORDS: u32 = 20_000;
const LAST: &[u8] = b"zzzzz";

fn open(disk: &SimDisk, memory_bytes: u64) -> Engine {
    let options =
        Options { memory_bytes, background: false, log_segment_bytes: 64 << 10, ..Options::default() };
    Engine::open(Arc::new(disk.clone()), options).unwrap()
}

/// The same with slots, whose writes are not kept.
fn open_with_slots(disk: &SimDisk) -> (Engine, Slots) {
    let engine = open(disk, 1 << 20);
    let slots = Slots::open(&engine, (Persistence::Off, true), 1 << 30, Arc::default()).unwrap();
    (engine, slots)
}

fn delete_all(engine: &Engine) -> Result<Commit, EngineError> {
    let tree = engine.tree("other").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&tree, LAST, b"v");
    batch.delete_range(&tree, (Bound::Unbounded, Bound::Excluded(LAST)));
    engine.write(&batch, Durability::Buffered)
}

/// Slots on an engine whose log has a write that the trees lack.
fn slots_that_broke() -> Slots {
    let disk = SimDisk::seeded(1);
    let filling = open(&disk, 1 << 30);
    let tree = filling.tree("other").unwrap();
    for number in 0..RECORDS {
        tree.put(&number.to_be_bytes(), &[7; 120], Durability::Buffered).unwrap();
    }
    filling.close().unwrap();
    let copy = disk.fork();
    let (engine, _slots) = open_with_slots(&copy);
    let before = copy.counters().reads;
    delete_all(&engine).unwrap();
    for read in (0..copy.counters().reads - before).rev() {
        let copy = disk.fork();
        let (engine, slots) = open_with_slots(&copy);
        copy.set_plan(FaultPlan { fail_read: Some(read), ..FaultPlan::default() });
        let failed = delete_all(&engine).unwrap_err();
        copy.set_plan(FaultPlan::default());
        if failed.is_unknown() {
            return slots;
        }
    }
    panic!("no read fails behind the log");
}

#[test]
fn a_node_that_keeps_nothing_ends_with_an_engine_that_answers_nothing() {
    let slots = slots_that_broke();
    let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let chosen = Choices::of_test(Arc::new(SystemClock), address);
    let here = LoopState::new(Arc::new(Shared::new(chosen, table(address))), slots);
    let (waiting, _waker) = EventLoop::poll().unwrap();
    let event_loop = EventLoop::new(waiting, Some(listener), here, Arc::default()).unwrap();
    let thread = std::thread::spawn(move || event_loop.run());
    let mut client = Socket::connect(address).unwrap();
    say(&mut client, "SET a 1");
    assert!(!matches!(client.read(&mut [0]), Ok(1..)), "it answers, and lives on");
    assert_eq!(thread.join().unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
}

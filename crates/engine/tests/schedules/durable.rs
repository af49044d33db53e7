//! Models of acknowledgements: that a write survives a loss of power, and that a store is closed.

use crate::disk::Scheduled;
use crate::small::{content, get, join, open, options, put};
use atoll_engine::{Durability, Engine, EngineError, Options, Reader, WriteBatch};
use shuttle::sync::Mutex;
use shuttle::thread::spawn;
use std::sync::Arc;

/// The power may fail after this many changes of the disk.
const LATER: usize = 4;

/// Three threads have their writes synced, and one of them makes a checkpoint too; the power fails at any
/// moment.
pub fn synced() {
    let disk = Scheduled::empty();
    let (engine, tree) = open(disk.clone(), options());
    put(&tree, "a", b"0");
    let begun = disk.changes();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let writer = |name: &'static str| {
        let (engine, tree, told) = (engine.clone(), tree.clone(), Arc::clone(&told));
        move || {
            for number in 0..3 {
                let key = format!("{name}{number}");
                let put = |durability| tree.put(key.as_bytes(), b"kept", durability).is_ok();
                // One syncs afterwards, by a ticket.
                let is_kept = if name == "d" {
                    put(Durability::Buffered) && by_ticket(&engine)
                } else {
                    put(Durability::Synced)
                };
                if !is_kept {
                    return;
                }
                told.lock().unwrap().push(key);
                if name == "c" && number == 1 {
                    drop(engine.checkpoint());
                }
            }
        }
    };
    let writers = vec![spawn(writer("b")), spawn(writer("c")), spawn(writer("d"))];
    let power = spawn({
        let (disk, told) = (Arc::clone(&disk), Arc::clone(&told));
        move || {
            // Some time later.
            while disk.changes() < begun + LATER && told.lock().unwrap().len() < 4 {
                shuttle::thread::yield_now();
            }
            let promised = told.lock().unwrap().clone();
            let rest = disk.cut();
            let (_engine, tree) = open(Arc::new(rest), Options { life: Some(2), ..options() });
            promised.iter().for_each(|key| assert!(get(&tree, key).is_some(), "{key} was told to be synced"));
            let seen = content(&tree);
            for name in ["b", "c", "d"] {
                let kept: Vec<bool> =
                    (0..3).map(|number| seen.contains_key(format!("{name}{number}").as_bytes())).collect();
                assert!(kept.is_sorted_by(|a, b| a >= b), "what is lost is the end: {kept:?}");
            }
        }
    });
    join(writers);
    join(vec![power]);
}

/// Syncs earlier writes of this thread, by a ticket for an update.
fn by_ticket(engine: &Engine) -> bool {
    let tree = engine.tree("tickets").ok();
    let updated = tree.and_then(|tree| {
        let decide = |_: &Reader<'_>| {
            let mut batch = WriteBatch::new();
            batch.put(&tree, b"any", b"1");
            Ok::<_, EngineError>((Some(batch), ()))
        };
        engine.update_visible(decide).ok()
    });
    updated.is_some_and(|(_, ticket)| ticket.is_some_and(|ticket| ticket.run().is_ok()))
}

/// A store is closed while one thread writes a large value and another small ones; nothing reaches the disk
/// afterwards.
pub fn close() {
    let disk = Scheduled::empty();
    let (engine, tree) = open(disk.clone(), options());
    put(&tree, "a", b"0");
    let large = spawn({
        let tree = tree.clone();
        move || {
            let _ = tree.put(b"large", &[5; 70 << 10], Durability::Flushed);
        }
    });
    let streamed = spawn({
        let tree = tree.clone();
        move || {
            let Ok(mut value) = tree.value_writer(b"streamed") else { return };
            if (0..2).all(|_| value.write(&[6; 300 << 10]).is_ok()) {
                let _ = value.commit(Durability::Flushed);
            }
        }
    });
    let small = spawn({
        let tree = tree.clone();
        move || {
            (0..3)
                .take_while(|number| {
                    tree.put(format!("s{number}").as_bytes(), b"1", Durability::Flushed).is_ok()
                })
                .count()
        }
    });
    engine.close_shared().unwrap();
    let closed_at = disk.changes();
    join(vec![large, streamed]);
    let told = small.join().unwrap();
    assert_eq!(disk.changes(), closed_at, "nothing more reaches the disk");
    let (again, tree) = open(disk, Options { life: Some(2), ..options() });
    assert!(get(&tree, "a").is_some() && again.recovery().cut.is_none());
    assert!(
        (0..told).all(|number| get(&tree, &format!("s{number}")).is_some()),
        "{told} were told to be there"
    );
    assert!(again.check().unwrap().damage.is_empty());
}

/// Two threads close a store at once, which is no error for either of them.
pub fn close_at_once() {
    let disk = Scheduled::empty();
    let (engine, tree) = open(disk.clone(), options());
    put(&tree, "a", b"0");
    let other = engine.clone();
    let closing =
        vec![spawn(move || engine.close_shared().unwrap()), spawn(move || other.close_shared().unwrap())];
    join(closing);
    let (again, tree) = open(disk, Options { life: Some(2), ..options() });
    assert!(get(&tree, "a").is_some() && again.recovery().clean);
}

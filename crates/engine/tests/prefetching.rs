//! Prefetching only asks for memory: other threads may change, shrink and remove what is prefetched, and
//! prefetching changes none of it.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use atoll_disk::{Disk, MemoryDisk};
use atoll_engine::{Durability, Engine, Options, Tree};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const KEYS: u64 = 300;
const CHANGES: u64 = 60_000;

fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn some_keys(random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    (0..random.usize(..40)).map(|_| key(random.u64(..2 * KEYS))).collect()
}

#[test]
fn whoever_changes_records_meanwhile_finds_what_was_written() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let engine = Engine::in_memory(Options { background: false, ..Options::default() }).unwrap();
    let tree = engine.tree("t").unwrap();
    let is_over = AtomicBool::new(false);
    let mut model = vec![None::<Vec<u8>>; KEYS as usize];
    std::thread::scope(|scope| {
        for asking in 1..3 {
            let (tree, is_over) = (&tree, &is_over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(asking));
                while !is_over.load(Ordering::Acquire) {
                    tree.bring_nearer(&some_keys(&mut random));
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..CHANGES {
            change(&tree, &mut model, &mut random);
        }
        is_over.store(true, Ordering::Release);
    });
    for (number, expected) in (0..).zip(&model) {
        let found = tree.get_with(&key(number), |value| value.map(<[u8]>::to_vec)).unwrap();
        assert_eq!(&found, expected, "key {number}, seed {seed}");
    }
}

/// Puts, appends to or deletes a record. Values grow beyond what a leaf holds, so that every step has
/// something to prefetch.
fn change(tree: &Tree, model: &mut [Option<Vec<u8>>], random: &mut fastrand::Rng) {
    let number = random.u64(..KEYS);
    let (name, value) = (key(number), &mut model[number as usize]);
    let bytes = vec![number as u8; random.usize(1..150)];
    match random.u8(..4) {
        0 => {
            tree.delete(&name, Durability::Buffered).unwrap();
            *value = None;
        }
        1 => {
            tree.put(&name, &bytes, Durability::Buffered).unwrap();
            *value = Some(bytes);
        }
        _ => {
            tree.append(&name, &bytes, Durability::Buffered).unwrap();
            value.get_or_insert_default().extend(bytes);
        }
    }
}

#[test]
fn what_is_on_a_disk_alone_stays_there() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let open =
        || Engine::open(Arc::clone(&disk), Options { background: false, ..Options::default() }).unwrap();
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let engine = open();
    let tree = engine.tree("t").unwrap();
    for key in &keys {
        tree.put(key, &[1; 500], Durability::Flushed).unwrap();
    }
    engine.checkpoint().unwrap();
    drop((tree, engine));
    let engine = open();
    let tree = engine.tree("t").unwrap();
    let before = engine.stats().memory_bytes;
    tree.bring_nearer(&keys);
    assert_eq!(engine.stats().memory_bytes, before);
    assert!(keys.iter().all(|key| tree.get(key).unwrap().is_some()));
    assert!(engine.stats().memory_bytes > before);
}

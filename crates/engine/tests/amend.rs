//! Records that are read and changed in one step: the change sees what is stored, nothing comes between, and
//! where it cannot be done nothing changes.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use atoll_disk::MemoryDisk;
use atoll_engine::{Amended, Amendment, Durability, Engine, Front, Options, Tree};
use std::sync::Arc;

const THREADS: u64 = 3;
const ROUNDS: u64 = 20_000;
const COUNTERS: u64 = 8;

fn in_memory() -> (Engine, Tree) {
    let engine = Engine::in_memory(Options { background: false, ..Options::default() }).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

fn amend(tree: &Tree, key: &[u8], change: Option<Amendment<'_>>) -> (Amended, Option<Front<4>>) {
    let mut shown = None;
    let amended = tree.amend(key, Durability::Flushed, |front| {
        shown = front;
        change
    });
    (amended.unwrap(), shown)
}

fn is_committed(amended: Amended) -> bool {
    matches!(amended, Amended::Committed(_))
}

fn get(tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    tree.get_with(key, |value| value.map(<[u8]>::to_vec)).unwrap()
}

#[test]
fn a_record_is_shown_as_it_is_and_becomes_what_is_wanted() {
    let (_engine, tree) = in_memory();
    let front = |bytes: &[u8], len| Some(Front::of(bytes, len));
    let (amended, shown) = amend(&tree, b"k", Some(Amendment::Put(b"coral")));
    assert!(is_committed(amended) && shown.is_none());
    let (amended, shown) = amend(&tree, b"k", Some(Amendment::Append(b" reef")));
    assert!(is_committed(amended));
    assert_eq!((shown, get(&tree, b"k").as_deref()), (front(b"coral", 5), Some(&b"coral reef"[..])));
    let (amended, shown) = amend(&tree, b"k", None);
    assert_eq!((amended, shown), (Amended::Seen, front(b"coral reef", 10)));
    // A value longer than a leaf record can be, to which appends are made in place.
    let long = [7; 300];
    tree.put(b"l", &long, Durability::Flushed).unwrap();
    for grown in 1..20 {
        let (amended, shown) = amend(&tree, b"l", Some(Amendment::Append(b"8")));
        assert!(is_committed(amended));
        assert_eq!(shown, front(&long, 299 + grown), "after {grown} appends");
    }
    for key in [b"k", b"l"] {
        // A leaf that would become too empty is joined with others, which a change in place cannot do.
        for other in 0..200 {
            tree.put(&[b'm', other], &[1; 50], Durability::Flushed).unwrap();
        }
        let (amended, _) = amend(&tree, key, Some(Amendment::Delete));
        assert!(is_committed(amended) && get(&tree, key).is_none());
    }
}

#[test]
fn what_cannot_be_done_where_the_record_lies_is_not_done() {
    let (_engine, tree) = in_memory();
    assert!(is_committed(amend(&tree, b"k", Some(Amendment::Put(b"short"))).0));
    let (amended, shown) = amend(&tree, b"k", Some(Amendment::Put(&[1; 5000])));
    assert_eq!((amended, shown), (Amended::Seen, Some(Front::of(b"short", 5))));
    assert_eq!(get(&tree, b"k").as_deref(), Some(&b"short"[..]));

    let disk = Arc::new(MemoryDisk::new());
    let engine = Engine::open(disk, Options { background: false, ..Options::default() }).unwrap();
    let tree = engine.tree("t").unwrap();
    tree.put(b"k", b"kept", Durability::Flushed).unwrap();
    let snapshot = engine.snapshot();
    let (amended, shown) = amend(&tree, b"k", Some(Amendment::Put(b"lost?")));
    assert_eq!((amended, shown, get(&tree, b"k").as_deref()), (Amended::Unseen, None, Some(&b"kept"[..])));
    drop(snapshot);
    engine.checkpoint().unwrap();
    let (amended, _) = amend(&tree, b"k", Some(Amendment::Put(b"lost?")));
    assert_eq!((amended, get(&tree, b"k").as_deref()), (Amended::Unseen, Some(&b"kept"[..])));
}

#[test]
fn nobody_changes_a_record_between_what_is_shown_and_what_is_done() {
    let (_engine, tree) = in_memory();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let tree = &tree;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    count_up(tree, (round * 7 + thread) % COUNTERS);
                }
            });
        }
    });
    let counted = (0..COUNTERS)
        .map(|counter| u64::from_le_bytes(get(&tree, &counter.to_le_bytes()).unwrap().try_into().unwrap()));
    assert_eq!(counted.sum::<u64>(), THREADS * ROUNDS);
}

/// Adds one to a counter, in whatever way the engine does it.
fn count_up(tree: &Tree, counter: u64) {
    loop {
        let mut next = [0; 8];
        let to = &mut next;
        let amended =
            tree.amend(&counter.to_le_bytes(), Durability::Flushed, move |front: Option<Front<8>>| {
                let before = front.map_or(0, |front| u64::from_le_bytes(front.bytes().try_into().unwrap()));
                *to = (before + 1).to_le_bytes();
                Some(Amendment::Put(to))
            });
        if is_committed(amended.unwrap()) {
            return;
        }
    }
}

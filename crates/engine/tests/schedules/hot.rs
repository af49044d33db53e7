//! Models of hot records: one or two places, for which all keys of the model stand for election.

use crate::small::{get, join, options, put, put_all};
use atoll_engine::{Engine, Tree};
use shuttle::thread::spawn;

/// A value of several words with this number.
fn value(number: u8) -> Vec<u8> {
    vec![number; 40]
}

/// The number of a value, which must not be torn.
fn number(tree: &Tree, key: &str) -> u8 {
    let value = get(tree, key).unwrap();
    assert!(value.len() == 40 && value.iter().all(|&byte| byte == value[0]), "torn: {value:?}");
    value[0]
}

/// A store of two keys that were looked up until one of them is hot.
fn hot() -> (Engine, Tree) {
    let engine = Engine::in_memory(options()).unwrap();
    let tree = engine.tree("records").unwrap();
    put_all(&tree, ["a", "b"].map(str::to_owned).into_iter(), &value(0));
    (0..3).for_each(|_| assert_eq!(number(&tree, "a"), 0));
    (engine, tree)
}

/// One thread puts into a hot record, another looks it up, and a third looks up a key that competes for its
/// place.
pub fn put_in_place() {
    let (_engine, tree) = hot();
    let writer = spawn({
        let tree = tree.clone();
        move || (1..=3).for_each(|round| _ = put(&tree, "a", &value(round)))
    });
    let reader = spawn({
        let tree = tree.clone();
        move || {
            let seen: Vec<u8> = (0..4).map(|_| number(&tree, "a")).collect();
            assert!(seen.is_sorted(), "it goes back: {seen:?}");
        }
    });
    let other = spawn({
        let tree = tree.clone();
        move || (0..4).for_each(|_| assert_eq!(number(&tree, "b"), 0))
    });
    join(vec![writer, reader, other]);
    assert_eq!((number(&tree, "a"), number(&tree, "b")), (3, 0));
}

/// One thread sets both records at once; others look up one after the other, in either order.
pub fn batches() {
    let (_engine, tree) = hot();
    let writer = spawn({
        let tree = tree.clone();
        move || {
            (1..=2).for_each(|round| put_all(&tree, ["a", "b"].map(str::to_owned).into_iter(), &value(round)))
        }
    });
    let reader = |first: &'static str, then: &'static str| {
        let tree = tree.clone();
        move || {
            for _ in 0..2 {
                let (first, then) = (number(&tree, first), number(&tree, then));
                assert!(first <= then, "{first} and then {then}");
            }
        }
    };
    join(vec![writer, spawn(reader("a", "b")), spawn(reader("b", "a"))]);
    assert_eq!((number(&tree, "a"), number(&tree, "b")), (2, 2));
}

/// Two leaves whose records compete for one place: one record is looked up and comes in, the other is looked
/// up and changed.
pub fn of_two_trees() {
    let engine = Engine::in_memory(options()).unwrap();
    let (one, other) = (engine.tree("one").unwrap(), engine.tree("other").unwrap());
    put(&one, "a", &value(0));
    put(&other, "b", &value(0));
    // From here on the places exist.
    assert_eq!(number(&one, "a"), 0);
    let first = spawn({
        let one = one.clone();
        move || (0..2).for_each(|_| assert_eq!(number(&one, "a"), 0))
    });
    let reader = spawn({
        let other = other.clone();
        move || (0..3).for_each(|_| assert!(number(&other, "b") <= 1))
    });
    let writer = spawn({
        let other = other.clone();
        move || {
            put(&other, "b", &value(1));
            assert_eq!(number(&other, "b"), 1);
        }
    });
    join(vec![first, reader, writer]);
    assert_eq!(number(&other, "b"), 1);
    other.delete(b"b", atoll_engine::Durability::Flushed).unwrap();
    assert_eq!(get(&other, "b"), None);
}

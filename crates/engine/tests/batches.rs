//! Large batches, which are applied in key order, have the same effect as their puts one after the other.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-engine --test batches`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod common;

use atoll_engine::{Direction, Durability, Engine, Options, Tree, WriteBatch};
use common::each_seed;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys with common prefixes of zero to forty bytes, so that prefixes that nodes leave out are compared too.
fn key(random: &mut fastrand::Rng, shape: u32) -> Vec<u8> {
    let number = random.u32(..4000);
    match shape {
        0 => format!("user{number:020}").into_bytes(),
        1 => format!("{}{number:04}", "deep/".repeat(8)).into_bytes(),
        2 => vec![0; 1 + number as usize % 60],
        3 => number.to_le_bytes()[..1 + number as usize % 4].to_vec(),
        _ => [&b"same-sixteen-byte"[..], &number.to_be_bytes()].concat(),
    }
}

fn content(tree: &Tree) -> Model {
    let mut content = Model::new();
    let visit = |key: &[u8], value: atoll_engine::ValueRef<'_>| {
        content.insert(key.to_vec(), value.bytes().unwrap().to_vec());
        ControlFlow::Continue(())
    };
    tree.scan((Bound::Unbounded, Bound::Unbounded), Direction::Forward, visit).unwrap();
    content
}

fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let engine = Engine::in_memory(Options::default()).unwrap();
    let tree = engine.tree("t").unwrap();
    let mut model = Model::new();
    let mut held = Vec::new();
    for round in 0..12_u32 {
        let mut batch = WriteBatch::new();
        let shapes = if random.bool() { 0..5 } else { round % 5..round % 5 + 1 };
        for put in 0..random.u32(1..3000) {
            let key = key(&mut random, shapes.start + put % (shapes.end - shapes.start));
            // Occasionally a value too long for a leaf, or one that makes a record grow.
            let len = if random.u8(..) == 0 { random.usize(200..3000) } else { random.usize(..90) };
            let value = vec![random.u8(..); len];
            batch.put(&tree, &key, &value);
            model.insert(key, value);
        }
        engine.write(&batch, Durability::Flushed).unwrap();
        assert!(content(&tree) == model, "round {round}");
        assert_eq!(tree.len().unwrap(), model.len() as u64, "round {round}");
        if random.bool() {
            held.push((engine.snapshot(), model.clone()));
        }
    }
    for (snapshot, model) in held {
        for (key, value) in model {
            let found = snapshot.get(&tree, &key).unwrap().unwrap();
            assert_eq!(&found.to_buffer().unwrap()[..], &value[..], "a snapshot saw a later write");
        }
    }
}

#[test]
fn a_batch_is_the_same_as_its_puts_one_after_the_other() {
    each_seed("batches", 1..=8, run);
}

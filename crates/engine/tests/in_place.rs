//! Concurrent puts and deletes in place: a reader of more than one leaf sees the trees between two commits,
//! no decision is overtaken, and a reopened store has what was acknowledged.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-engine --test in_place`; the threads interleave
//! differently each time, so it may take a few runs.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use atoll_disk::{Disk, FileDisk, MemoryDisk, Mode};
use atoll_engine::{Direction, Durability, Engine, EngineError, Options, Tree, WriteBatch};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const WRITERS: u64 = 3;
/// Other records around those under test, so that these lie in different leaves.
const FILLING: u64 = 4000;

fn seed() -> u64 {
    std::env::var("ATOLL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Key `place` of a writer: far from its other keys, and next to those of other writers.
fn key(place: u64, writer: u64) -> Vec<u8> {
    format!("{:06}/{writer}", place * 1000).into_bytes()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// A value with this number, whose every byte follows from it.
fn value(number: u64, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(random.usize(8..60), number as u8);
    bytes
}

/// As [`value`], but every other one lies in the log, and replaces one in the leaf or in the log.
fn any_value(number: u64, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = value(number, random);
    if random.bool() {
        bytes.resize(random.usize(256..1500), number as u8);
    }
    bytes
}

fn assert_whole(bytes: &[u8]) -> u64 {
    let number = number(bytes);
    assert!(bytes[8..].iter().all(|byte| *byte == number as u8), "a torn value");
    number
}

fn get(tree: &Tree, key: &[u8]) -> u64 {
    tree.get_with(key, |found| found.map_or(0, assert_whole)).unwrap()
}

fn open(disk: &Arc<dyn Disk>, memory_bytes: u64) -> (Engine, Tree) {
    let options = Options {
        memory_bytes,
        log_segment_bytes: 64 << 10,
        checkpoint_bytes: 256 << 10,
        ..Options::default()
    };
    let engine = Engine::open(Arc::clone(disk), options).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

/// Puts each number first to the writer's first key and then to its second, so that the first is never
/// behind.
fn write_pairs(tree: &Tree, writer: u64, rounds: u64, acknowledged: &AtomicU64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed * 100 + writer);
    for round in 1..=rounds {
        let durability = if random.u8(..) < 4 { Durability::Synced } else { Durability::Flushed };
        for place in [1, 2] {
            tree.put(&key(place, writer), &value(round, &mut random), durability).unwrap();
        }
        for place in [5, 6] {
            tree.put(&key(place, writer), &any_value(round, &mut random), durability).unwrap();
        }
        acknowledged.store(round, Ordering::Release);
        assert_eq!(get(tree, &key(2, writer)), round, "a writer reads what it wrote");
        assert_eq!(get(tree, &key(6, writer)), round, "a writer reads what it wrote");
        // A record that comes and goes.
        if is_there_after(round, writer) {
            tree.put(&key(4, writer), &any_value(round, &mut random), durability).unwrap();
        } else {
            tree.delete(&key(4, writer), durability).unwrap();
        }
        let expected = if is_there_after(round, writer) { round } else { 0 };
        assert_eq!(get(tree, &key(4, writer)), expected, "a writer reads what it wrote or removed");
        // Occasionally something that is not done in place: a split, a longer value, a delete of one.
        match random.u8(..32) {
            0 => drop(tree.put(&key(3, writer), &[round as u8; 9000], Durability::Flushed).unwrap()),
            1 => drop(tree.delete(&key(3, writer), Durability::Flushed).unwrap()),
            2 => drop(tree.put(
                format!("{:06}/{round}", random.u64(..FILLING)).as_bytes(),
                &[1; 9],
                durability,
            )),
            _ => {}
        }
    }
}

/// Whether the record that comes and goes exists after this round of a writer: after three rounds of four.
fn is_there_after(round: u64, writer: u64) -> bool {
    !(round + writer).is_multiple_of(4)
}

fn numbers_of(records: &[(Vec<u8>, Vec<u8>)], [first, second]: [u64; 2], writer: u64) -> (u64, u64) {
    let of = |place| {
        let key = key(place, writer);
        let found = records.binary_search_by(|(other, _)| other.cmp(&key));
        found.map_or(0, |index| assert_whole(&records[index].1))
    };
    (of(first), of(second))
}

fn scanned(
    scan: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<(), EngineError>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    scan(&mut |key, value| records.push((key.to_vec(), value.to_vec()))).unwrap();
    records
}

/// Asserts that any read of both keys of a writer sees the first at the number of the second, or at the next
/// one.
fn assert_between_commits(
    engine: &Engine,
    tree: &Tree,
    acknowledged: &[AtomicU64],
    random: &mut fastrand::Rng,
) {
    let before: Vec<u64> = acknowledged.iter().map(|round| round.load(Ordering::Acquire)).collect();
    // Short values, or long ones.
    let pair = if random.bool() { [1, 2] } else { [5, 6] };
    let [first, second] = pair;
    let seen: Vec<(u64, u64)> = match random.u8(..3) {
        0 => {
            let records = scanned(|add| {
                let visit = |key: &[u8], value: atoll_engine::ValueRef<'_>| {
                    add(key, &value.bytes().unwrap());
                    ControlFlow::Continue(())
                };
                tree.scan(ALL, Direction::Forward, visit).map(|_| ())
            });
            (0..WRITERS).map(|writer| numbers_of(&records, pair, writer)).collect()
        }
        1 => {
            let snapshot = engine.snapshot();
            let of = |place, writer| {
                let found = snapshot.get(tree, &key(place, writer)).unwrap();
                found.map_or(0, |value| assert_whole(&value.to_buffer().unwrap()))
            };
            let both = |writer| (of(first, writer), of(second, writer));
            let seen = (0..WRITERS).map(both).collect();
            let again = (0..WRITERS).map(both).collect::<Vec<_>>();
            assert_eq!(seen, again, "a snapshot changed");
            seen
        }
        _ => {
            let keys: Vec<Vec<u8>> =
                (0..WRITERS).flat_map(|writer| [key(first, writer), key(second, writer)]).collect();
            let mut numbers = vec![0; keys.len()];
            tree.get_many(&keys, |index, found| numbers[index] = found.map_or(0, assert_whole)).unwrap();
            numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect()
        }
    };
    for (&(first, second), before) in seen.iter().zip(before) {
        assert!(first == second || first == second + 1, "first at {first}, second at {second}");
        assert!(second >= before, "{before} was acknowledged, {second} was seen");
    }
}

/// Counts in two keys by updates, between which no other put may come.
fn count(engine: &Engine, tree: &Tree, rounds: u64) {
    for _ in 0..rounds {
        engine
            .update::<_, EngineError>(Durability::Flushed, |reader| {
                let looked = |key: &[u8]| reader.get_with(tree, key, |found| found.map_or(0, number));
                let before: Vec<u64> =
                    (0..WRITERS).map(|writer| looked(&key(1, writer))).collect::<Result<_, _>>()?;
                let counted = looked(b"counted")?;
                let mut records = 0;
                reader.scan(tree, ALL, Direction::Forward, |_, _| {
                    records += 1;
                    if records < 500 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                let after: Vec<u64> =
                    (0..WRITERS).map(|writer| looked(&key(1, writer))).collect::<Result<_, _>>()?;
                assert_eq!(before, after, "something was written during an update");
                let mut batch = WriteBatch::new();
                batch.put(tree, b"counted", &(counted + 1).to_le_bytes());
                Ok((Some(batch), ()))
            })
            .unwrap();
    }
}

fn run(disk: &Arc<dyn Disk>, memory_bytes: u64, rounds: u64) {
    let seed = seed();
    println!("ATOLL_SEED={seed}");
    let (engine, tree) = open(disk, memory_bytes);
    let mut batch = WriteBatch::new();
    (0..FILLING).for_each(|number| batch.put(&tree, format!("{number:06}").as_bytes(), &[7; 40]));
    engine.write(&batch, Durability::Flushed).unwrap();
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (tree, acknowledged) = (&tree, &acknowledged[writer as usize]);
                scope.spawn(move || write_pairs(tree, writer, rounds, acknowledged, seed))
            })
            .collect();
        let counting = scope.spawn(|| count(&engine, &tree, rounds / 20));
        for reader in 0..2 {
            let (engine, tree, acknowledged, ended) = (&engine, &tree, &acknowledged, &ended);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 100 + 50 + reader);
                while !ended.load(Ordering::Acquire) {
                    assert_between_commits(engine, tree, acknowledged, &mut random);
                }
            });
        }
        let outcomes: Vec<_> = writers.into_iter().chain([counting]).map(|thread| thread.join()).collect();
        ended.store(true, Ordering::Release);
        assert!(outcomes.iter().all(Result::is_ok), "a thread failed");
    });
    let assert_holds = |tree: &Tree| {
        for writer in 0..WRITERS {
            for place in [1, 2, 5, 6] {
                assert_eq!(get(tree, &key(place, writer)), rounds);
            }
            let last = if is_there_after(rounds, writer) { rounds } else { 0 };
            assert_eq!(get(tree, &key(4, writer)), last);
        }
        assert_eq!(tree.get_with(b"counted", |found| found.map_or(0, number)).unwrap(), rounds / 20);
        let records = scanned(|add| {
            tree.scan(ALL, Direction::Forward, |key, value| {
                add(key, &value.bytes().unwrap());
                ControlFlow::Continue(())
            })
            .map(|_| ())
        });
        assert_eq!(records.len() as u64, tree.len().unwrap(), "how many records there are");
        assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys ascend");
        records
    };
    let records = assert_holds(&tree);
    assert!(engine.check().unwrap().damage.is_empty());
    // As after a kill: nothing is closed, and the log has the same contents.
    drop((tree, engine));
    let (engine, tree) = open(disk, memory_bytes);
    assert!(assert_holds(&tree) == records, "another content after opening");
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn puts_at_once_are_seen_between_commits_and_kept() {
    run(&(Arc::new(MemoryDisk::new()) as Arc<dyn Disk>), 64 << 20, 4000);
}

#[test]
fn so_they_are_in_a_file_and_under_a_budget_that_leaves_go_by() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(&folder.path().join("store"), Mode::Create).unwrap();
    run(&(Arc::new(disk) as Arc<dyn Disk>), 384 << 10, 1500);
}

#[test]
fn an_update_of_one_store_reads_another_that_is_being_updated() {
    let options = || Options { background: false, ..Options::default() };
    let [a, b] = [Engine::in_memory(options()).unwrap(), Engine::in_memory(options()).unwrap()];
    let [in_a, in_b] = [a.tree("t").unwrap(), b.tree("t").unwrap()];
    in_a.put(b"key", b"value", Durability::Flushed).unwrap();
    let visit = |_: &[u8], _: atoll_engine::ValueRef<'_>| ControlFlow::Continue(());
    a.update::<_, EngineError>(Durability::Flushed, |of_a| {
        b.update::<_, EngineError>(Durability::Flushed, |of_b| {
            of_a.scan(&in_a, ALL, Direction::Forward, visit)?;
            of_b.scan(&in_b, ALL, Direction::Forward, visit)?;
            Ok((None, ()))
        })?;
        of_a.scan(&in_a, ALL, Direction::Forward, visit)?;
        Ok((None, ()))
    })
    .unwrap();
    // And afterwards no thread is left in either.
    in_a.put(b"key", b"other", Durability::Flushed).unwrap();
    in_b.put(b"key", b"other", Durability::Flushed).unwrap();
}

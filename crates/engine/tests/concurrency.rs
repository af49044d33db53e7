//! Many threads on one engine: no torn batch, no lost update, no snapshot that changes, and nothing lost
//! after it is opened again.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-engine --test concurrency`; the threads interleave
//! differently each time, so it may take a few runs.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use atoll_disk::{Disk, FileDisk, MemoryDisk, Mode};
use atoll_engine::{Direction, Durability, Engine, EngineError, Options, Snapshot, Tree, WriteBatch};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const WRITERS: u64 = 3;
const SLOTS: u64 = 300;

/// Each thread of a run has its own sequence of random numbers.
fn random_of(seed: u64, thread: u64) -> Rng {
    Rng::with_seed(seed * 1000 + thread)
}

fn durability(random: &mut Rng) -> Durability {
    [Durability::Buffered, Durability::Flushed, Durability::Synced][random.usize(..3)]
}

fn options() -> Options {
    Options {
        memory_bytes: 384 << 10,
        log_segment_bytes: 64 << 10,
        checkpoint_bytes: 512 << 10,
        store_id: Some(7),
        ..Options::default()
    }
}

fn slot_key(writer: u64, slot: u64) -> Vec<u8> {
    format!("writer{writer}/slot{:06}", slot * 7919 % 100_003).into_bytes()
}

fn counter_key(writer: u64) -> Vec<u8> {
    format!("writer{writer}/counter").into_bytes()
}

/// A value that identifies its writer, and whose every byte follows from that.
fn value(writer: u64, round: u64, len: usize) -> Vec<u8> {
    let mut bytes = writer.to_le_bytes().to_vec();
    bytes.extend_from_slice(&round.to_le_bytes());
    bytes.extend((0..len).map(|at| (writer * 31 + round * 7 + at as u64) as u8));
    bytes
}

fn assert_whole(key: &[u8], bytes: &[u8]) {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (writer, round) = (number(0), number(8));
    assert!(
        bytes == value(writer, round, bytes.len() - 16),
        "torn value of {:?}",
        String::from_utf8_lossy(key)
    );
}

fn number(bytes: Option<Vec<u8>>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

fn get(tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    tree.get(key).unwrap().map(|value| value.to_buffer().unwrap().to_vec())
}

struct Store {
    engine: Engine,
    a: Tree,
    b: Tree,
}

impl Store {
    fn open(disk: &Arc<dyn Disk>) -> Self {
        let engine = Engine::open(Arc::clone(disk), options()).unwrap();
        let (a, b) = (engine.tree("a").unwrap(), engine.tree("b").unwrap());
        Self { engine, a, b }
    }

    fn content(&self, snapshot: &Snapshot, tree: &Tree) -> Content {
        let read = |direction| {
            let mut records = Vec::new();
            snapshot
                .scan(tree, ALL, direction, |key, value| {
                    records.push((key.to_vec(), value.bytes().unwrap().to_vec()));
                    ControlFlow::Continue(())
                })
                .unwrap();
            records
        };
        let forward = read(Direction::Forward);
        let mut backward = read(Direction::Backward);
        backward.reverse();
        assert!(forward == backward, "both directions show the same");
        assert!(forward.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys ascend");
        assert_eq!(forward.len() as u64, snapshot.len(tree).unwrap());
        forward.into_iter().collect()
    }

    /// Asserts what must hold of the state at any moment.
    fn assert_consistent(&self, snapshot: &Snapshot) -> Content {
        let (a, b) = (self.content(snapshot, &self.a), self.content(snapshot, &self.b));
        let twins = |content: &Content| -> Content {
            let is_twin = |key: &[u8]| key.starts_with(b"writer") || key == b"shared";
            content.iter().filter(|(key, _)| is_twin(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        assert!(twins(&a) == twins(&b), "a batch is in both trees or in none");
        for (key, bytes) in twins(&a).iter().filter(|(key, _)| key.windows(5).any(|part| part == b"/slot")) {
            assert_whole(key, bytes);
        }
        for writer in 0..WRITERS {
            let done = number(a.get(&counter_key(writer)).cloned());
            let journal = a.get(format!("journal{writer}").as_bytes()).cloned().unwrap_or_default();
            let rounds: Vec<u64> =
                journal.chunks(8).map(|round| u64::from_le_bytes(round.try_into().unwrap())).collect();
            assert!(rounds.iter().copied().eq(1..=done), "the journal of {writer} up to {done}: {rounds:?}");
        }
        a
    }
}

struct Run {
    store: Store,
    seed: u64,
    rounds: u64,
    done: AtomicBool,
    writing: AtomicU64,
    updates: AtomicU64,
}

impl Run {
    /// Writes its own slots into both trees at once, and counts.
    fn write(&self, writer: u64) -> (Content, Vec<u64>) {
        let mut random = random_of(self.seed, writer);
        let (mut model, mut sequences) = (Content::new(), Vec::new());
        for round in 1..=self.rounds {
            let mut batch = WriteBatch::new();
            for tree in [&self.store.a, &self.store.b] {
                batch.put(tree, &counter_key(writer), &round.to_le_bytes());
            }
            batch.append(&self.store.a, format!("journal{writer}").as_bytes(), &round.to_le_bytes());
            for _ in 0..1 + random.u64(..8) {
                let key = slot_key(writer, random.u64(..SLOTS));
                let len = match random.u64(..40) {
                    0 => 70_000,
                    1..=9 => 256 + random.u64(..3000) as usize,
                    _ => random.u64(..200) as usize,
                };
                let deletes = random.u64(..5) == 0;
                for tree in [&self.store.a, &self.store.b] {
                    if deletes {
                        batch.delete(tree, &key);
                    } else {
                        batch.put(tree, &key, &value(writer, round, len));
                    }
                }
                if deletes {
                    model.remove(&key);
                } else {
                    model.insert(key, value(writer, round, len));
                }
            }
            if random.u64(..25) == 0 {
                let (from, to) = (slot_key(writer, 0), format!("writer{writer}/slot02").into_bytes());
                for tree in [&self.store.a, &self.store.b] {
                    batch.delete_range(tree, (Bound::Included(&from), Bound::Excluded(&to)));
                }
                model.retain(|key, _| *key < from || *key >= to);
            }
            let commit = self.store.engine.write(&batch, durability(&mut random)).unwrap();
            sequences.push(commit.sequence);
            if round % 4 == 0 {
                sequences.push(self.count_up());
            }
            if round % 16 == 0 {
                let key = slot_key(writer, random.u64(..SLOTS));
                assert_eq!(
                    get(&self.store.a, &key),
                    model.get(&key).cloned(),
                    "a writer reads what it wrote"
                );
            }
        }
        if self.writing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.store(true, Ordering::Release);
        }
        (model, sequences)
    }

    /// Adds one to a counter that all writers share.
    fn count_up(&self) -> u64 {
        let store = &self.store;
        let updated = store.engine.update::<_, EngineError>(Durability::Flushed, |reader| {
            let next =
                number(reader.get(&store.a, b"shared")?.map(|value| value.to_buffer().unwrap().to_vec())) + 1;
            let mut batch = WriteBatch::new();
            batch.put(&store.a, b"shared", &next.to_le_bytes());
            batch.put(&store.b, b"shared", &next.to_le_bytes());
            Ok((Some(batch), next))
        });
        self.updates.fetch_add(1, Ordering::Relaxed);
        updated.unwrap().1.unwrap().sequence
    }

    fn is_on(&self) -> bool {
        !self.done.load(Ordering::Acquire)
    }

    /// Reads the present state in every possible way.
    fn read(&self, thread: u64) {
        let mut random = random_of(self.seed, thread);
        let mut seen = [0; WRITERS as usize];
        let a = &self.store.a;
        while self.is_on() {
            for writer in 0..WRITERS {
                let now = number(get(a, &counter_key(writer)));
                assert!(now >= seen[writer as usize], "a counter never falls");
                seen[writer as usize] = now;
            }
            let keys: Vec<Vec<u8>> =
                (0..40).map(|_| slot_key(random.u64(..WRITERS), random.u64(..SLOTS))).collect();
            let mut answered = 0;
            a.get_many(&keys, |index, found| {
                assert_eq!(index, answered);
                answered += 1;
                if let Some(bytes) = found {
                    assert_whole(&keys[index], bytes);
                }
            })
            .unwrap();
            assert_eq!(answered, keys.len());
            self.scan(&mut random);
        }
    }

    fn scan(&self, random: &mut Rng) {
        let backward = random.u64(..2) == 0;
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let writer = random.u64(..WRITERS);
        let (from, to) = (format!("writer{writer}/slot"), format!("writer{writer}/slow"));
        let range = (Bound::Included(from.as_bytes()), Bound::Excluded(to.as_bytes()));
        let mut last: Option<Vec<u8>> = None;
        let mut rest = random.u64(..400);
        self.store
            .a
            .scan(range, direction, |key, value| {
                assert!(last.as_ref().is_none_or(|last| (last.as_slice() < key) != backward && last != key));
                assert_whole(key, &value.bytes().unwrap());
                last = Some(key.to_vec());
                rest = rest.saturating_sub(1);
                if rest == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
    }

    /// Takes snapshots and reads each several times.
    fn watch(&self) {
        while self.is_on() {
            let snapshot = self.store.engine.snapshot();
            let first = self.store.assert_consistent(&snapshot);
            for _ in 0..3 {
                assert!(self.store.content(&snapshot, &self.store.a) == first, "a snapshot does not change");
            }
        }
    }

    /// Makes checkpoints, and named snapshots before, between and after them.
    fn keep(&self) -> BTreeMap<String, Content> {
        let mut random = random_of(self.seed, 99);
        let mut named: BTreeMap<String, Content> = BTreeMap::new();
        let engine = &self.store.engine;
        let mut made = 0;
        while self.is_on() {
            if random.u64(..2) == 0 {
                let name = format!("named{made}");
                made += 1;
                engine.create_snapshot(&name).unwrap();
                let content = self.store.assert_consistent(&engine.open_snapshot(&name).unwrap());
                named.insert(name, content);
            }
            if named.len() > 3 {
                let name = named.keys().nth(random.u64(..3) as usize).unwrap().clone();
                let opened = engine.open_snapshot(&name).unwrap();
                engine.delete_snapshot(&name).unwrap();
                engine.checkpoint().unwrap();
                let was = named.remove(&name).unwrap();
                assert!(self.store.content(&opened, &self.store.a) == was, "open, though its name is gone");
            }
            engine.checkpoint().unwrap();
            for (name, was) in &named {
                let now = self.store.content(&engine.open_snapshot(name).unwrap(), &self.store.a);
                assert!(now == *was, "named snapshot {name} does not change");
            }
        }
        named
    }

    /// Writes long values piece by piece, while everything else goes on.
    fn write_long(&self) -> Content {
        let mut random = random_of(self.seed, 77);
        let mut model = Content::new();
        let mut round = 0;
        while self.is_on() {
            round += 1;
            let key = format!("long{}", random.u64(..3)).into_bytes();
            let whole = value(50, round, 1_500_000 + random.u64(..1_000_000) as usize);
            let mut writer = self.store.b.value_writer(&key).unwrap();
            for part in whole.chunks(1 << 19) {
                writer.write(part).unwrap();
            }
            if random.u64(..4) == 0 {
                continue;
            }
            writer.commit(durability(&mut random)).unwrap();
            assert!(get(&self.store.b, &key).as_ref() == Some(&whole), "long value {round}");
            model.insert(key, whole);
        }
        model
    }
}

fn run(disk: &Arc<dyn Disk>, seed: u64, rounds: u64) {
    println!("replay with ATOLL_SEED={seed} cargo test -p atoll-engine --test concurrency");
    let run = Run {
        store: Store::open(disk),
        seed,
        rounds,
        done: AtomicBool::new(false),
        writing: AtomicU64::new(WRITERS),
        updates: AtomicU64::new(0),
    };
    let run_ref = &run;
    let (written, named, long) = std::thread::scope(|threads| {
        let run = run_ref;
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| threads.spawn(move || on_fault(run, || run.write(writer)))).collect();
        let readers: Vec<_> = (0..2).map(|reader| threads.spawn(move || run.read(10 + reader))).collect();
        let watcher = threads.spawn(|| run.watch());
        let keeper = threads.spawn(|| run.keep());
        let long = threads.spawn(|| run.write_long());
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        watcher.join().unwrap();
        (written, keeper.join().unwrap(), long.join().unwrap())
    });
    let Run { store, updates, .. } = run;
    let sequences: Vec<u64> = written.iter().flat_map(|(_, sequences)| sequences).copied().collect();
    assert!(written.iter().all(|(_, own)| own.windows(2).all(|pair| pair[0] < pair[1])), "in order");
    assert_eq!(sequences.iter().collect::<BTreeSet<_>>().len(), sequences.len(), "each commit has its own");
    let verify = |store: &Store, when: &str| {
        let snapshot = store.engine.snapshot();
        let a = store.assert_consistent(&snapshot);
        let b = store.content(&snapshot, &store.b);
        let slots: Content =
            written.iter().flat_map(|(model, _)| model.iter()).map(|(k, v)| (k.clone(), v.clone())).collect();
        let found: Content = a
            .iter()
            .filter(|(key, _)| key.windows(5).any(|part| part == b"/slot"))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert!(found == slots, "{when}: {} slots, not {}", found.len(), slots.len());
        assert_eq!(number(a.get(&b"shared"[..]).cloned()), updates.load(Ordering::Relaxed), "{when}");
        let found: Content = b.into_iter().filter(|(key, _)| key.starts_with(b"long")).collect();
        assert!(found == long, "{when}: long values");
        for (name, was) in &named {
            let now = store.content(&store.engine.open_snapshot(name).unwrap(), &store.a);
            assert!(now == *was, "{when}: named snapshot {name}");
        }
        assert_eq!(store.engine.check().unwrap().damage.len(), 0, "{when}");
        let stats = store.engine.stats();
        assert!(stats.leaf_memory_bytes < 1 << 32 && stats.value_memory_bytes < 1 << 32, "{when}: {stats:?}");
    };
    verify(&store, "at the end");
    store.engine.sync().unwrap();
    // As after the end of the process: without a last checkpoint.
    drop(store);
    let store = Store::open(disk);
    verify(&store, "opened after it was dropped");
    store.engine.close().unwrap();
    let store = Store::open(disk);
    verify(&store, "opened after it was closed");
}

/// Ends the other threads when a writer fails, so that the test ends too.
fn on_fault<T>(run: &Run, write: impl FnOnce() -> T) -> T {
    struct Ending<'a>(&'a AtomicBool);
    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.store(true, Ordering::Release);
            }
        }
    }
    let _ending = Ending(&run.done);
    write()
}

fn seeds() -> Vec<u64> {
    match std::env::var("ATOLL_SEED") {
        Ok(seed) => vec![seed.parse().expect("ATOLL_SEED is a number")],
        Err(_) => vec![1, 2],
    }
}

#[test]
fn threads_on_a_store_in_memory_see_whole_batches_and_lose_nothing() {
    for seed in seeds() {
        run(&(Arc::new(MemoryDisk::new()) as Arc<dyn Disk>), seed, 150);
    }
}

#[test]
fn threads_on_a_file_see_whole_batches_and_lose_nothing() {
    for seed in seeds() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(&folder.path().join("store.atoll"), Mode::Create).unwrap();
        run(&(Arc::new(disk) as Arc<dyn Disk>), seed, 60);
    }
}

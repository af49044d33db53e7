//! A log that is copied into windows of its file is byte for byte the log that is written without them,
//! except for zeros behind its end where the space was used before.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{Disk, DiskError, FileDisk, Mode, Operation, Relay, Window};
use atoll_engine::{Durability, Engine, Options, WriteBatch};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A file that counts its windows, or refuses to give any.
struct Counted {
    file: FileDisk,
    allowed: bool,
    windows: AtomicU64,
    writes: AtomicU64,
    /// Runs when a superblock is next written; long writes fail from then on.
    at_superblock: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    is_failing: AtomicBool,
}

impl Counted {
    fn of(file: FileDisk, allowed: bool) -> Arc<Self> {
        let (windows, writes, is_failing) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { file, allowed, windows, writes, at_superblock: Mutex::default(), is_failing })
    }
}

impl Relay for Counted {
    fn inner(&self) -> &dyn Disk {
        &self.file
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if offset < 64 << 10
            && let Some(hook) = self.at_superblock.lock().unwrap().take()
        {
            hook();
            self.is_failing.store(true, Ordering::Relaxed);
        }
        if self.is_failing.load(Ordering::Relaxed) && bytes.len() > 20_000 {
            let (name, source) = (self.name().to_owned(), std::io::Error::other("worn out"));
            return Err(DiskError { operation: Operation::Write, name, offset, source });
        }
        self.file.write_at(offset, bytes)
    }

    fn window(&self, offset: u64, len: u64) -> Option<Window> {
        let window = self.file.window(offset, len).filter(|_| self.allowed)?;
        self.windows.fetch_add(1, Ordering::Relaxed);
        Some(window)
    }
}

fn open(path: &Path, allowed: bool, life: u64) -> (Engine, Arc<Counted>) {
    open_with(path, allowed, life, 256 << 10)
}

fn open_with(path: &Path, allowed: bool, life: u64, log_segment_bytes: u64) -> (Engine, Arc<Counted>) {
    let file = FileDisk::open(path, Mode::Create).unwrap();
    let disk = Counted::of(file, allowed);
    let options = Options {
        background: false,
        log_segment_bytes,
        store_id: Some(7),
        life: Some(life),
        ..Options::default()
    };
    (Engine::open(disk.clone(), options).unwrap(), disk)
}

/// Makes writes of all sizes, above and below the limit for copying, over many segments. Returns what the
/// tree holds at the end.
///
/// With every other seed it frees space on the way, which is reused.
fn write(engine: &Engine, seed: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let tree = engine.tree("t").unwrap();
    for step in 0..3000 {
        let durability = [Durability::Buffered, Durability::Flushed, Durability::Flushed, Durability::Synced]
            [random.usize(..4)];
        let mut batch = WriteBatch::new();
        for _ in 0..if random.u8(..) < 8 { 200 } else { 1 } {
            let key = random.u16(..2000).to_be_bytes();
            let most = if random.u8(..) < 8 { 40_000 } else { 400 };
            let len = random.usize(..most);
            match random.u8(..8) {
                0 => batch.delete(&tree, &key),
                1 => batch.append(&tree, &key, &vec![random.u8(..); len]),
                _ => batch.put(&tree, &key, &vec![random.u8(..); len]),
            }
        }
        engine.write(&batch, durability).unwrap();
        if step == 2000 && frees_space(seed) {
            engine.checkpoint().unwrap();
        }
    }
    // From here on, what was buffered is not lost with the process.
    tree.put(b"last", b"", Durability::Flushed).unwrap();
    contents(engine)
}

fn frees_space(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

fn contents(engine: &Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let tree = engine.tree("t").unwrap();
    let mut records = Vec::new();
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    tree.scan(all, atoll_engine::Direction::Forward, |key, value| {
        records.push((key.to_vec(), value.bytes().unwrap().to_vec()));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    records
}

#[test]
fn windows_change_no_byte_of_the_file_and_save_most_writes() {
    for seed in 1..5 {
        let folder = tempfile::tempdir().unwrap();
        let [with, without] = ["with", "without"].map(|name| folder.path().join(name));
        let (first, windowed) = open(&with, true, 1);
        let (second, plain) = open(&without, false, 1);
        let expected = write(&first, seed);
        assert!(write(&second, seed) == expected, "seed {seed}");
        if windowed.windows.load(Ordering::Relaxed) == 0 {
            println!("SKIPPED [windows] the file system of the temporary folder has none");
            return;
        }
        let writes = [windowed, plain].map(|disk| disk.writes.load(Ordering::Relaxed));
        assert!(writes[0] * 2 < writes[1], "{writes:?} writes, seed {seed}");
        // Neither is closed: what follows is what a killed process leaves.
        let [ours, theirs] = [&with, &without].map(|path| std::fs::read(path).unwrap());
        let may_be_zero = frees_space(seed);
        let differs = ours.iter().zip(&theirs).position(|(a, b)| a != b && !(may_be_zero && *a == 0));
        assert!(ours.len() == theirs.len() && differs.is_none(), "at {differs:?}, seed {seed}");
        let copy = folder.path().join("copy");
        std::fs::copy(&with, &copy).unwrap();
        let (again, _) = open(&copy, true, 2);
        assert!(again.recovery().records_replayed > 0);
        assert!(contents(&again) == expected, "after opening, seed {seed}");
        assert_goes_on(&again, seed);
    }
}

/// Asserts that writes go on in the segment that the life before left.
fn assert_goes_on(engine: &Engine, seed: u64) {
    let tree = engine.tree("t").unwrap();
    tree.put(b"after", b"the crash", Durability::Flushed).unwrap();
    let value = tree.get(b"after").unwrap().map(|value| value.to_buffer().unwrap().to_vec());
    assert_eq!(value.as_deref(), Some(b"the crash".as_slice()), "seed {seed}");
    assert!(engine.check().unwrap().damage.is_empty(), "seed {seed}");
}

/// Small writes are copied, with their pages prepared by a thread that holds no lock; meanwhile longer ones
/// are written by calls, to where those pages are.
#[test]
fn what_threads_write_in_both_ways_at_once_is_in_the_log() {
    for seed in 1..4 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let (engine, _) = open_with(&path, true, 1, 8 << 20);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let engine = &engine;
                scope.spawn(move || write_own_keys(engine, seed, thread));
            }
        });
        let expected = contents(&engine);
        // It is not closed, as above.
        let copy = folder.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        let (again, _) = open(&copy, true, 2);
        assert!(contents(&again) == expected, "seed {seed}");
        assert_goes_on(&again, seed);
    }
}

/// One thread of four writes values that are too long to be copied, the others short ones.
fn write_own_keys(engine: &Engine, seed: u64, thread: u8) {
    let mut random = fastrand::Rng::with_seed(seed * 4 + u64::from(thread));
    let tree = engine.tree("t").unwrap();
    let (writes, least, most) = if thread == 0 { (300, 17_000, 60_000) } else { (8000, 1, 250) };
    for _ in 0..writes {
        let [low, high] = random.u16(..500).to_be_bytes();
        let value = vec![random.u8(1..); random.usize(least..most)];
        tree.put(&[thread, low, high], &value, Durability::Flushed).unwrap();
    }
}

#[test]
fn a_store_whose_last_write_failed_lets_go_of_its_windows_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (engine, disk) = open_with(&path, true, 1, 8 << 20);
    let tree = engine.tree("t").unwrap();
    tree.put(b"copied", b"v", Durability::Flushed).unwrap();
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        maps.contains(path.to_str().unwrap())
    };
    if !is_mapped() {
        println!("SKIPPED [windows] the file system of the temporary folder has none, or nobody tells");
        return;
    }
    // Behind what the last checkpoint commits, so that closing itself has to hand it over.
    let late = tree.clone();
    let put = move || {
        late.put(b"late", &[7; 30_000], Durability::Buffered).unwrap();
    };
    *disk.at_superblock.lock().unwrap() = Some(Box::new(put));
    let error = engine.close_shared().unwrap_err();
    assert!(error.to_string().contains("write"), "{error}");
    assert!(!is_mapped(), "somebody may still write there, though the disk is another's by now");
}

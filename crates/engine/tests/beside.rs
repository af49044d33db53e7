//! What a reader of the last state sees while the owner of the store goes on.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{Disk, DiskError, Relay, SimDisk};
use atoll_engine::{Durability, Engine, EngineError, Options, Tree};
use atoll_errors::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// End of the superblocks.
const DATA_START: u64 = 8192;

const KEYS: u32 = 2000;

fn options() -> Options {
    Options { background: false, log_segment_bytes: 64 << 10, store_id: Some(7), ..Options::default() }
}

fn fill(tree: &Tree, round: u32) {
    for number in 0..KEYS {
        tree.put(&number.to_be_bytes(), &[round as u8; 300], Durability::Flushed).unwrap();
    }
}

type Happening = Box<dyn FnMut() + Send>;

/// A disk on which something happens before the first read after a superblock was read.
struct Overtaken {
    disk: SimDisk,
    /// Number of openings that are yet to be overtaken.
    openings: AtomicU32,
    happening: Mutex<Happening>,
    superblock_was_read: Mutex<bool>,
}

impl Overtaken {
    fn new(disk: &SimDisk, openings: u32, happening: impl FnMut() + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            disk: disk.clone(),
            openings: AtomicU32::new(openings),
            happening: Mutex::new(Box::new(happening)),
            superblock_was_read: Mutex::new(false),
        })
    }

    /// Whether this is the first read after a superblock, in an opening that is to be overtaken.
    fn is_due(&self, offset: u64) -> bool {
        let mut was_read = self.superblock_was_read.lock().unwrap();
        let is_superblock = offset < DATA_START;
        let is_first = std::mem::replace(&mut *was_read, is_superblock) && !is_superblock;
        is_first
            && self
                .openings
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
    }
}

impl Relay for Overtaken {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if self.is_due(offset) {
            (self.happening.lock().unwrap())();
        }
        self.disk.read_at(offset, target)
    }
}

fn read(disk: Arc<dyn Disk>) -> Result<Engine, EngineError> {
    Engine::open(disk, Options { read_only: true, ..options() })
}

#[test]
fn a_reader_that_the_owner_overtakes_while_it_opens_finds_a_state_and_not_damage() {
    let disk = SimDisk::seeded(1);
    let owner = Engine::open(Arc::new(disk.clone()), options()).unwrap();
    let tree = owner.tree("t").unwrap();
    fill(&tree, 0);
    owner.checkpoint().unwrap();
    let mut round = 0;
    let overtaken = Overtaken::new(&disk, 5, move || {
        // Two checkpoints free what the state before them used, and further writes reuse it.
        for _ in 0..4 {
            round += 1;
            fill(&tree, round);
            owner.checkpoint().unwrap();
        }
    });
    let reader = read(Arc::clone(&overtaken) as Arc<dyn Disk>).expect("there is no damage");
    assert_eq!(overtaken.openings.load(Ordering::Relaxed), 0, "it was overtaken as often as was planned");
    let tree = reader.tree("t").unwrap();
    for number in 0..KEYS {
        let value = tree.get(&number.to_be_bytes()).unwrap().unwrap().to_buffer().unwrap();
        assert_eq!(*value, [20; 300], "key {number}");
    }
}

#[test]
fn damage_in_a_state_that_stays_is_told_at_once() {
    let disk = SimDisk::seeded(2);
    let owner = Engine::open(Arc::new(disk.clone()), options()).unwrap();
    fill(&owner.tree("t").unwrap(), 0);
    owner.close().unwrap();
    let mut bytes = disk.to_bytes();
    bytes[DATA_START as usize..].fill(0x5a);
    let looks = Overtaken::new(&SimDisk::with_bytes(3, &bytes), 10, || {});
    let error = read(Arc::clone(&looks) as Arc<dyn Disk>).err().expect("nothing is left of it");
    assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
    assert_eq!(looks.openings.load(Ordering::Relaxed), 9, "it was opened once");
}

/// A disk that reads one segment of the log in two halves, with something happening in between.
struct Halved {
    disk: SimDisk,
    happening: Mutex<Option<Happening>>,
}

impl Relay for Halved {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        let is_segment = target.len() == 64 << 10;
        let happening = if is_segment { self.happening.lock().unwrap().take() } else { None };
        let Some(mut happening) = happening else { return self.disk.read_at(offset, target) };
        let half = target.len() / 2;
        let (front, back) = target.split_at_mut(half);
        self.disk.read_at(offset, front)?;
        happening();
        self.disk.read_at(offset + half as u64, back)
    }
}

#[test]
fn a_reader_that_copies_the_log_while_it_grows_finds_it_whole() {
    // Wherever in its segment the log ends when it is read.
    for number in 0..12 {
        let disk = SimDisk::seeded(number);
        let owner = Engine::open(Arc::new(disk.clone()), options()).unwrap();
        let tree = owner.tree("t").unwrap();
        let put = move |tree: &Tree, from: u32, count: u32| {
            for number in from..from + count {
                tree.put(&number.to_be_bytes(), &[1; 300], Durability::Synced).unwrap();
            }
        };
        put(&tree, 0, 16 * number as u32);
        owner.checkpoint().unwrap();
        put(&tree, 1000, 10);
        let other = tree.clone();
        let happening: Happening = Box::new(move || put(&other, 2000, 140));
        let halved = Arc::new(Halved { disk: disk.clone(), happening: Mutex::new(Some(happening)) });
        for salvage in [false, true] {
            let options = Options { read_only: true, salvage, ..options() };
            let reader = Engine::open(Arc::clone(&halved) as Arc<dyn Disk>, options).expect("it is whole");
            assert_eq!(reader.recovery().cut.filter(|cut| cut.was_synced), None);
            let tree = reader.tree("t").unwrap();
            assert!((1000..1010u32).all(|number| tree.get(&number.to_be_bytes()).unwrap().is_some()));
        }
        assert!(halved.happening.lock().unwrap().is_none(), "the log was read otherwise");
    }
}

/// Length of a log segment of a store whose reader loses one, and of the header of each.
const SHORT: usize = 16 << 10;
const HEADER: usize = 64;

/// Keys of that store. Putting all of them takes between one and two segments.
const FEW: u32 = 130;

/// Most rounds of writes until the space of a freed segment is used again.
const ROUNDS_MAX: u32 = 200;

/// A disk on which the owner goes on, before an opening reads its second log segment, until nothing is left
/// of that segment.
struct Losing {
    disk: SimDisk,
    /// Number of openings that are yet to lose a segment.
    openings: AtomicU32,
    happening: Mutex<Happening>,
    first_was_read: AtomicBool,
}

impl Losing {
    fn header_at(&self, offset: u64) -> Option<[u8; HEADER]> {
        let mut bytes = [0; HEADER];
        self.disk.read_at(offset, &mut bytes).ok().map(|()| bytes)
    }

    /// Whether this reads the header of the second segment, in an opening that is to lose it.
    fn is_due(&self, offset: u64, len: usize) -> bool {
        if offset < DATA_START || len == SHORT {
            self.first_was_read.store(offset >= DATA_START, Ordering::Relaxed);
            return false;
        }
        let left = |left: u32| left.checked_sub(1);
        len == HEADER
            && self.first_was_read.swap(false, Ordering::Relaxed)
            && self.openings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }
}

impl Relay for Losing {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if self.is_due(offset, target.len()) {
            let before = self.header_at(offset);
            let mut happening = self.happening.lock().unwrap();
            let mut rounds = 0;
            while self.header_at(offset) == before {
                assert!(rounds < ROUNDS_MAX, "the segment at {offset} stays");
                happening();
                rounds += 1;
            }
        }
        self.disk.read_at(offset, target)
    }
}

/// A store whose log reaches into its second segment, on a disk on which this many openings lose that
/// segment; and what its values consist of by then.
fn losing(seed: u64, openings: u32) -> (Arc<Losing>, Arc<AtomicU32>) {
    let disk = SimDisk::seeded(seed);
    let short = Options { log_segment_bytes: SHORT as u64, ..options() };
    let owner = Engine::open(Arc::new(disk.clone()), short).unwrap();
    let tree = owner.tree("t").unwrap();
    let last = Arc::new(AtomicU32::new(0));
    let round = Arc::clone(&last);
    let fill = move || {
        let byte = round.fetch_add(1, Ordering::Relaxed) + 1;
        for number in 0..FEW {
            tree.put(&number.to_be_bytes(), &[byte as u8; 100], Durability::Flushed).unwrap();
        }
    };
    fill();
    owner.sync().unwrap();
    let happening: Happening = Box::new(move || {
        // The log leaves the segment behind, the checkpoint frees it, and there is a log to replay again.
        fill();
        fill();
        owner.checkpoint().unwrap();
        fill();
        owner.sync().unwrap();
    });
    let (openings, happening) = (AtomicU32::new(openings), Mutex::new(happening));
    (Arc::new(Losing { disk, openings, happening, first_was_read: AtomicBool::new(false) }), last)
}

#[test]
fn a_reader_whose_log_is_freed_while_it_reads_it_finds_all_that_was_synced() {
    let (losing, last) = losing(5, 3);
    let reader = read(Arc::clone(&losing) as Arc<dyn Disk>).expect("there is no damage");
    assert_eq!(losing.openings.load(Ordering::Relaxed), 0, "each opening lost a segment");
    let tree = reader.tree("t").unwrap();
    let byte = last.load(Ordering::Relaxed) as u8;
    for number in 0..FEW {
        let value = tree.get(&number.to_be_bytes()).unwrap().unwrap().to_buffer().unwrap();
        assert_eq!(*value, [byte; 100], "key {number}");
    }
}

#[test]
fn a_reader_that_every_time_loses_a_part_of_the_log_is_refused_and_gets_no_former_state() {
    let (losing, _) = losing(6, u32::MAX);
    let error = read(Arc::clone(&losing) as Arc<dyn Disk>).err().expect("its state is a former one");
    assert!(matches!(error, EngineError::Superseded { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

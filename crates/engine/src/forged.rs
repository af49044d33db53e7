//! Forged stores: every checksum is right, and what it covers makes no sense.
//!
//! Every operation on such a store ends in an answer or an error, never in a panic, and operations that do
//! not touch the forged part succeed.

use crate::checksum::checksum;
use crate::codec::{Decoder, Encode};
use crate::engine::{Engine, Tree};
use crate::log::{GROUP_MAGIC, group_bytes};
use crate::node::{Home, Inner, PageRef};
use crate::options::Options;
use crate::page;
use crate::record::{self, Logged, Record};
use crate::slot::Slot;
use crate::space::Extent;
use crate::superblock::{COPIES, Copy, DELTAS, Superblock, Table};
use crate::value::ValueRef;
use crate::visit::Direction;
use crate::{Damage, Durability, EngineError, WriteBatch};
use atoll_disk::{Disk, DiskError, MemoryDisk, Operation, Relay};
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The part of a store that is forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForgedPart {
    FirstLeaf,
    MiddleLeaf,
    LastLeaf,
    /// The records beside the leaf in the middle.
    Beside,
    Inner,
    Table,
    Superblock,
    /// The records of a group behind the last commit.
    Log,
}

/// Changes the bytes of a part before anything refers to them.
type Changing<'c> = &'c dyn Fn(ForgedPart, &mut Vec<u8>);

fn options() -> Options {
    Options {
        background: false,
        log_segment_bytes: 16 << 10,
        log_windows: false,
        store_id: Some(7),
        ..Options::default()
    }
}

/// A disk in memory with a limited length.
struct Short(MemoryDisk);

impl Short {
    fn with(image: &[u8]) -> Arc<dyn Disk> {
        Arc::new(Self(MemoryDisk::with_bytes(image.to_vec())))
    }

    fn take(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        if offset.saturating_add(len) < 1 << 24 {
            return Ok(());
        }
        let source = std::io::Error::from(std::io::ErrorKind::FileTooLarge);
        Err(DiskError { operation: Operation::Write, name: "short".to_owned(), offset, source })
    }
}

impl Relay for Short {
    fn inner(&self) -> &dyn Disk {
        &self.0
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.take(offset, bytes.len() as u64)?;
        self.0.write_at(offset, bytes)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.take(offset, len)?;
        self.0.reserve(offset, len)
    }
}

fn opened(image: &[u8]) -> Result<Engine, EngineError> {
    Engine::open(Short::with(image), options())
}

/// A store with an empty tree.
fn base() -> Vec<u8> {
    let disk = Arc::new(MemoryDisk::new());
    let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
    engine.tree("t").unwrap();
    engine.close().unwrap();
    let mut image = vec![0; disk.len().unwrap() as usize];
    disk.read_at(0, &mut image).unwrap();
    image
}

/// A store being forged.
struct Forger<'c> {
    image: Vec<u8>,
    superblock: Superblock,
    table: Table,
    changing: Changing<'c>,
}

impl<'c> Forger<'c> {
    fn new(base: &[u8], changing: Changing<'c>) -> Self {
        let Copy::Intact(superblock) = Superblock::decode(&base[..4096]) else { panic!("no superblock") };
        let (from, len) = (superblock.table.offset as usize, superblock.table.len as usize);
        let table = Table::decode(&base[from..from + len]).unwrap();
        Self { image: base.to_vec(), superblock, table, changing }
    }

    /// Appends bytes to the image.
    fn place(&mut self, bytes: &[u8]) -> PageRef {
        self.image.resize(self.image.len().next_multiple_of(64), 0);
        let offset = self.image.len() as u64;
        self.image.extend_from_slice(bytes);
        PageRef {
            offset,
            len: bytes.len() as u32,
            checksum: checksum(self.superblock.store_id, bytes),
            birth: 1,
        }
    }

    fn part(&mut self, part: ForgedPart, mut bytes: Vec<u8>) -> PageRef {
        (self.changing)(part, &mut bytes);
        self.place(&bytes)
    }

    /// Makes a page the root of the tree, and everything else consistent with it.
    fn finish(mut self, root: Home) -> Vec<u8> {
        let Superblock { store_id, log, .. } = self.superblock;
        let extent = self.place(&[8; 700]);
        let mut payload = records(&extent);
        (self.changing)(ForgedPart::Log, &mut payload);
        let mut point = log;
        point.sequence += 1;
        let group = group_bytes(store_id, &point, GROUP_MAGIC, 0, &payload);
        let at = log.offset_of(log.position) as usize;
        self.image[at..at + group.len()].copy_from_slice(&group);
        self.table.trees[0].root = root;
        self.table.trees[0].records = 7;
        self.image.resize(self.image.len().next_multiple_of(4096), 0);
        // Keep some space free; otherwise the file ends here.
        self.table.free = vec![Extent::in_units(extent.offset, extent.len.into())];
        self.table.end = self.image.len() as u64 + 4096;
        let mut bytes = self.table.encode();
        (self.changing)(ForgedPart::Table, &mut bytes);
        bytes.resize(4096, 0);
        self.superblock.table = PageRef { birth: self.superblock.epoch, ..self.place(&bytes) };
        self.superblock.features |= DELTAS;
        let mut bytes = self.superblock.encode();
        (self.changing)(ForgedPart::Superblock, &mut bytes);
        let (body, sum) = bytes.split_at_mut(4088);
        sum.copy_from_slice(&checksum(u64::from_le_bytes(*b"ATOLLST1"), body).to_le_bytes());
        for copy in COPIES {
            self.image[copy as usize..][..4096].copy_from_slice(&bytes);
        }
        self.image
    }
}

/// A leaf of small records, the last of which has a long value if a place for one is given.
fn leaf(prefix: &str, suffixes: &[&str], long: Option<&PageRef>) -> Vec<u8> {
    let mut page = vec![1];
    page.put_bytes(prefix.as_bytes());
    page.put_varint(suffixes.len() as u64);
    for (index, suffix) in suffixes.iter().enumerate() {
        page.put_bytes(suffix.as_bytes());
        match long.filter(|_| index + 1 == suffixes.len()) {
            None => {
                page.put_varint(10);
                page.extend_from_slice(b"value");
            }
            Some(place) => {
                page.put_varint(3);
                page.put_varint(place.offset);
                page.put_varint(place.len.into());
                page.put_u64(place.checksum);
                page.put_varint(place.birth);
            }
        }
    }
    page
}

fn inner(homes: &[Home], pivots: &[&str]) -> Vec<u8> {
    let pivots = pivots.iter().map(|pivot| pivot.as_bytes().into()).collect();
    let node = Inner::new(1, pivots, vec![Slot::default(); homes.len()]);
    let mut page = Vec::new();
    page::encode_inner(&node, homes, &mut page);
    page
}

/// One record of each kind.
fn records(extent: &PageRef) -> Vec<u8> {
    let bytes = |bytes| Logged::Bytes { bytes, at: 0 };
    let PageRef { offset, len, checksum, .. } = *extent;
    let key = b"key/0110".as_slice();
    let (from, to) = (b"key/0001".as_slice(), b"key/0002".as_slice());
    let all = [
        Record::Opened { life: 9 },
        Record::Put { tree: 0, key, value: bytes(b"in the log") },
        Record::Append { tree: 0, key, value: bytes(b", longer") },
        Record::Put { tree: 0, key: b"key/0120", value: bytes(&[3; 300]) },
        Record::Append { tree: 0, key: b"key/0120", value: bytes(&[4; 9]) },
        Record::Put { tree: 0, key: b"key/0400", value: Logged::Extent { offset, len, checksum } },
        Record::Delete { tree: 0, key: b"key/0101" },
        Record::DeleteRange { tree: 0, from: Bound::Included(from), to: Bound::Excluded(to) },
        Record::NewTree { tree: 1, name: "u" },
        Record::SplitOff { tree: 0, to: 1, at: b"key/0150" },
        Record::Snapshot { name: "s" },
        Record::Absorb { tree: 0, from: 1 },
        Record::NoSnapshot { name: "s" },
    ];
    let mut payload = Vec::new();
    all.iter().for_each(|record| record.encode(&mut payload));
    payload
}

/// A store of three leaves; the middle one has records beside it.
fn store(base: &[u8], changing: Changing<'_>) -> Vec<u8> {
    let mut forger = Forger::new(base, changing);
    let long = forger.place(&[5; 300]);
    let first = forger.part(ForgedPart::FirstLeaf, leaf("", &["key/0001", "key/0002"], None));
    let middle = forger.part(ForgedPart::MiddleLeaf, leaf("key/01", &["00", "01", "50"], Some(&long)));
    let last = forger.part(ForgedPart::LastLeaf, leaf("", &["key/0300", "z"], None));
    let mut beside = vec![3];
    for key in ["key/0101", "key/0160"] {
        beside.put_bytes(key.as_bytes());
        beside.put_bytes(b"put");
    }
    let filter = crate::delta::Records::decode(&beside).unwrap().filter();
    let delta = Some(forger.part(ForgedPart::Beside, beside));
    let homes = [first.into(), Home { page: middle, delta, filter }, last.into()];
    let root = forger.part(ForgedPart::Inner, inner(&homes, &["key/0100", "key/0190"]));
    forger.finish(root.into())
}

const KEYS: [&str; 9] =
    ["a", "key", "key/0001", "key/0100", "key/0101", "key/0150", "key/0160", "key/0300", "z"];

fn read_all(engine: &Engine, tree: &Tree) {
    let whole = (Bound::Unbounded, Bound::Unbounded);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut left = 10_000;
        let mut visit = |_: &[u8], value: ValueRef<'_>| {
            let _ = value.bytes();
            left -= 1;
            if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let _ = tree.scan(whole, direction, &mut visit);
        let _ = engine.snapshot().scan(tree, whole, direction, &mut visit);
    }
    for key in KEYS {
        let _ = tree.get(key.as_bytes()).map(|value| value.map(|value| value.to_buffer()));
    }
    let _ = tree.get_many(&KEYS, |_, _| ());
    let _ = tree.len();
    let _ = engine.check();
}

/// Performs every kind of operation on a store.
fn use_all(image: &[u8]) {
    for salvage in [false, true] {
        let options = Options { read_only: true, salvage, ..options() };
        if let Ok(engine) = Engine::open(Short::with(image), options) {
            engine.tree_names().iter().filter_map(|name| engine.tree(name).ok()).for_each(|tree| {
                read_all(&engine, &tree);
            });
        }
    }
    let Ok(engine) = opened(image) else { return };
    let Ok(tree) = engine.tree("t") else { return };
    read_all(&engine, &tree);
    for key in KEYS {
        let _ = tree.put(key.as_bytes(), &[1; 40], Durability::Flushed);
        let _ = tree.append(key.as_bytes(), &[2; 300], Durability::Flushed);
    }
    let _ = engine.checkpoint();
    for key in ["key/0100", "key/0140"] {
        if let Ok((other, _)) = tree.split_off(key.as_bytes(), "other", Durability::Flushed) {
            let _ = tree.absorb(&other, Durability::Flushed);
        }
    }
    let _ = tree.delete(b"key/0150", Durability::Flushed);
    let mut batch = WriteBatch::new();
    batch.delete_range(&tree, (Bound::Included(b"key/0002"), Bound::Unbounded));
    let _ = engine.write(&batch, Durability::Flushed);
    let _ = engine.checkpoint();
    read_all(&engine, &tree);
    let _ = engine.close();
}

fn assert_no_panic(image: &[u8], what: &str) {
    let used = catch_unwind(AssertUnwindSafe(|| use_all(image)));
    assert!(used.is_ok(), "{what}: it panicked");
}

#[test]
fn whatever_byte_of_a_store_is_another_one_that_its_checksum_covers_nothing_panics() {
    use ForgedPart::{Beside, FirstLeaf, Inner, LastLeaf, Log, MiddleLeaf, Superblock, Table};
    let base = base();
    let sound = opened(&store(&base, &|_, _| ())).unwrap();
    let damage = sound.check().unwrap().damage;
    assert!(damage.is_empty(), "{damage:?}");
    assert_eq!(sound.tree("t").unwrap().len().unwrap(), 9, "all of it is there and the log was applied");
    for part in [FirstLeaf, MiddleLeaf, LastLeaf, Beside, Inner, Table, Superblock, Log] {
        let len = std::cell::Cell::new(0);
        store(&base, &|other, bytes| len.set(if other == part { bytes.len() } else { len.get() }));
        // The rest of a superblock is zero.
        for at in 0..len.get().min(160) {
            for flipped in (0..8).map(|bit| 1 << bit).chain([0x7f, 0xff]) {
                let image = store(&base, &|other, bytes| {
                    if other == part {
                        bytes[at] ^= flipped;
                    }
                });
                assert_no_panic(&image, &format!("{part:?}, byte {at}, flipped {flipped:#x}"));
            }
        }
    }
}

/// A store whose middle leaf is this page.
fn with_middle(page: &[u8]) -> Vec<u8> {
    store(&base(), &|part, bytes| match part {
        ForgedPart::MiddleLeaf => *bytes = page.to_vec(),
        ForgedPart::Beside => *bytes = vec![3],
        ForgedPart::Log => *bytes = Vec::new(),
        _ => {}
    })
}

#[test]
fn a_leaf_that_does_not_belong_where_it_is_refuses_changes_and_stops_no_others() {
    let many: Vec<String> = (0..3000).map(|number| format!("a{number:05}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = "key/0100 and more than any key here has";
    for page in [leaf(long, &[], None), leaf("", &["a"], None), leaf("", &["z"], None), leaf("", &many, None)]
    {
        let image = with_middle(&page);
        assert_no_panic(&image, "it does not belong there");
        let engine = opened(&image).unwrap();
        let tree = engine.tree("t").unwrap();
        assert!(!engine.check().unwrap().damage.is_empty());
        let is_told = |result: Result<(), EngineError>| {
            assert!(matches!(result, Err(EngineError::Corrupt { problem: Damage::PageContent, .. })));
        };
        is_told(tree.put(b"key/0105", b"value", Durability::Flushed).map(|_| ()));
        is_told(tree.delete(b"key/0105", Durability::Flushed).map(|_| ()));
        let mut batch = WriteBatch::new();
        batch.delete_range(&tree, (Bound::Unbounded, Bound::Unbounded));
        is_told(engine.write(&batch, Durability::Flushed).map(|_| ()));
        is_told(tree.split_off(b"key/0105", "u", Durability::Flushed).map(|_| ()));
        tree.put(b"key/0002", b"elsewhere", Durability::Flushed).unwrap();
        engine.checkpoint().unwrap();
        assert_eq!(&*tree.get(b"key/0002").unwrap().unwrap().to_buffer().unwrap(), b"elsewhere");
        // Once it is read, it is a neighbour of leaves that have little left.
        let _ = tree.get(b"key/0105");
        for key in ["key/0001", "key/0002", "key/0300", "z"] {
            tree.delete(key.as_bytes(), Durability::Flushed).unwrap();
        }
        is_told(tree.put(b"key/0105", b"value", Durability::Flushed).map(|_| ()));
        tree.put(b"key/0002", b"again", Durability::Flushed).unwrap();
        engine.checkpoint().unwrap();
        assert_eq!(&*tree.get(b"key/0002").unwrap().unwrap().to_buffer().unwrap(), b"again");
    }
}

#[test]
fn nodes_below_nodes_without_end_are_damage() {
    let base = base();
    let mut forger = Forger::new(&base, &|_, _| ());
    let mut below: Home = forger.place(&leaf("", &["a", "z"], None)).into();
    for _ in 0..100_000 {
        below = forger.place(&inner(&[below], &[])).into();
    }
    let image = forger.finish(below);
    assert_no_panic(&image, "very deep");
    let engine = opened(&store(&base, &|_, _| ())).map(drop).and_then(|()| opened(&image));
    assert!(matches!(engine.map(drop), Err(EngineError::Corrupt { problem: Damage::PageContent, .. })));
}

/// A disk in memory that counts the reads of one place.
struct Watched {
    bytes: MemoryDisk,
    place: u64,
    reads: AtomicUsize,
}

impl Relay for Watched {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if (self.place..self.place + 700).contains(&offset) {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.bytes.read_at(offset, target)
    }
}

#[test]
fn a_large_value_in_the_space_of_one_that_was_named_before_is_refused_unread() {
    let base = base();
    for shift in [0u32, 64] {
        let place = std::cell::Cell::new(0);
        let image = store(&base, &|part, bytes| {
            if part != ForgedPart::Log {
                return;
            }
            let mut fields = Decoder::new(bytes);
            let (offset, len, checksum) = loop {
                let record = record::decode(&mut fields).unwrap();
                if let Record::Put { value: Logged::Extent { offset, len, checksum }, .. } = record {
                    break (offset, len, checksum);
                }
            };
            place.set(offset);
            let offset_again = offset + u64::from(shift);
            let first = Logged::Extent { offset, len, checksum };
            let again = Logged::Extent { offset: offset_again, len: len - shift, checksum };
            bytes.clear();
            for value in std::iter::once(first).chain([again; 50]) {
                Record::Put { tree: 0, key: b"key/0400", value }.encode(bytes);
            }
        });
        let (place, reads) = (place.get(), AtomicUsize::new(0));
        let disk = Arc::new(Watched { bytes: MemoryDisk::with_bytes(image), place, reads });
        let found = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).map(drop);
        let is_told = matches!(found, Err(EngineError::Corrupt { problem: Damage::SpaceUsedTwice, .. }));
        assert!(is_told, "{shift}: {found:?}");
        assert_eq!(disk.reads.load(Ordering::Relaxed), 1, "{shift}");
    }
}

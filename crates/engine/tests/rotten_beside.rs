//! Leaves that rot beneath the records beside them: checkpoints go on, and those records are found.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

mod support;

use atoll_disk::{Disk, DiskError, MemoryDisk, Operation, Relay};
use atoll_engine::{Attempt, Durability, Engine, EngineError, Options, Tree};
use std::sync::{Arc, Mutex};
use support::{KEYS, SICK, fill, image, key, old, options, value};

/// End of the superblocks.
const DATA_START: u64 = 8192;

type Happening = Box<dyn FnOnce() + Send>;

/// A disk in memory on which a write fails, or something happens before a read.
#[derive(Default)]
struct Troubled {
    bytes: MemoryDisk,
    /// Number of writes that are accepted before one that is not.
    writes_left: Mutex<Option<u32>>,
    happening: Mutex<Option<Happening>>,
}

impl Relay for Troubled {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        let happening = self.happening.lock().unwrap().take_if(|_| offset >= DATA_START);
        if let Some(happening) = happening {
            happening();
        }
        self.bytes.read_at(offset, target)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut left = self.writes_left.lock().unwrap();
        *left = match *left {
            Some(0) => {
                *left = None;
                let source = std::io::Error::other("planted");
                return Err(DiskError {
                    operation: Operation::Write,
                    name: "troubled".into(),
                    offset,
                    source,
                });
            }
            left => left.map(|left| left - 1),
        };
        drop(left);
        self.bytes.write_at(offset, bytes)
    }
}

impl Troubled {
    /// Damages every occurrence of these bytes. One may be in the log before the last checkpoint, which is
    /// not read.
    fn rot(&self, needle: &[u8]) {
        self.rot_where(&image(&self.bytes), needle);
    }

    /// The same, at the places where an earlier image had them.
    fn rot_where(&self, image: &[u8], needle: &[u8]) {
        let places = (0..image.len() - needle.len()).filter(|&at| image[at..].starts_with(needle));
        let damaged = places.map(|at| self.bytes.write_at(at as u64 + 5, &[image[at + 5] ^ 1]).unwrap());
        assert!(damaged.count() > 0);
    }
}

fn opened(disk: &Arc<Troubled>, blind_puts: bool) -> (Engine, Tree) {
    let engine =
        Engine::open(Arc::clone(disk) as Arc<dyn Disk>, Options { blind_puts, ..options() }).unwrap();
    let tree = engine.tree("t").unwrap();
    if blind_puts {
        // So that the depth of the leaves is known.
        tree.put(&key(0), b"first of all", Durability::Flushed).unwrap();
    }
    (engine, tree)
}

fn new(number: u32) -> Vec<u8> {
    format!("later, {number:08}").repeat(13).into_bytes()
}

fn image_of_filled() -> Vec<u8> {
    let disk = Arc::new(Troubled::default());
    let (engine, tree) = opened(&disk, false);
    fill(&tree);
    // Still more room around the sick key.
    for number in (SICK - 199..SICK + 200).step_by(2) {
        tree.delete(&key(number), Durability::Buffered).unwrap();
    }
    engine.close().unwrap();
    image(&disk.bytes)
}

fn with(image: &[u8]) -> Arc<Troubled> {
    Arc::new(Troubled { bytes: MemoryDisk::with_bytes(image.to_vec()), ..Troubled::default() })
}

/// Asserts that these have their new values, and that everything elsewhere is unchanged.
fn assert_there(tree: &Tree, put: impl Iterator<Item = u32>) {
    for number in put {
        assert_eq!(value(tree, number).unwrap(), Some(new(number)), "{number}");
    }
    let away = |number: &u32| !(SICK - 200..SICK + 200).contains(number) && *number > 10;
    for number in (0..KEYS).step_by(97).filter(away) {
        assert_eq!(value(tree, number).unwrap(), Some(old(number)), "{number}");
    }
}

/// As [`assert_there`], and that the sick key is damaged.
fn assert_there_but_for(tree: &Tree, put: impl Iterator<Item = u32>, sick: u32) {
    assert_there(tree, put);
    let found = value(tree, sick);
    assert!(matches!(found, Err(EngineError::Corrupt { .. })), "{sick}: {found:?}");
}

#[test]
fn a_leaf_that_rots_after_a_checkpoint_failed_does_not_stop_the_next_ones() {
    let image = image_of_filled();
    let mut stayed_damaged = 0;
    // A few go to a second page, more are merged with the leaf.
    for (count, writes) in [2, 9].into_iter().flat_map(|count| (0..12).map(move |writes| (count, writes))) {
        let disk = with(&image);
        let (engine, tree) = opened(&disk, true);
        let put = (SICK + 2..SICK + 2 + 2 * count).step_by(2);
        for number in put.clone() {
            tree.put(&key(number), &new(number), Durability::Flushed).unwrap();
        }
        *disk.writes_left.lock().unwrap() = Some(writes);
        let has_failed = engine.checkpoint().is_err();
        *disk.writes_left.lock().unwrap() = None;
        disk.rot_where(&image, &old(SICK));
        for round in 0..3 {
            tree.put(&key(round), &old(round), Durability::Flushed).unwrap();
            let done = engine.checkpoint();
            assert!(
                done.is_ok(),
                "{count} put, after {writes} writes, failed: {has_failed}, {round}: {done:?}"
            );
            assert_there(&tree, put.clone());
        }
        // Unless the page with everything was written before.
        let is_damaged = value(&tree, SICK).is_err();
        stayed_damaged += u32::from(is_damaged && count == 9);
        engine.close().unwrap();
        for blind in [false, true] {
            let (engine, tree) = opened(&disk, blind);
            assert_there(&tree, put.clone());
            assert_eq!(value(&tree, SICK).is_err(), is_damaged);
            let damage = engine.check().unwrap().damage;
            assert_eq!(damage.len(), usize::from(is_damaged), "{damage:?}");
            engine.close().unwrap();
        }
    }
    assert!(stayed_damaged > 0, "no checkpoint failed that was about to merge");
}

#[test]
fn a_merged_page_that_rots_under_what_was_put_meanwhile_stops_no_checkpoint() {
    let disk = with(&image_of_filled());
    let (engine, tree) = opened(&disk, true);
    // Put so much that the checkpoint makes one page of both, and more of it while it reads the leaf.
    for number in (SICK + 2..SICK + 26).step_by(2) {
        tree.put(&key(number), &new(number), Durability::Flushed).unwrap();
    }
    let other = tree.clone();
    let late = SICK + 11;
    let happening = move || assert!(other.put(&key(late), &new(late), Durability::Flushed).is_ok());
    *disk.happening.lock().unwrap() = Some(Box::new(happening));
    engine.checkpoint().unwrap();
    assert!(disk.happening.lock().unwrap().is_none(), "the checkpoint read nothing");
    disk.rot(&new(SICK + 4));
    for round in 0..3 {
        tree.put(&key(round), &old(round), Durability::Flushed).unwrap();
        engine.checkpoint().unwrap();
        assert_there_but_for(&tree, [late].into_iter(), SICK + 4);
    }
    engine.close().unwrap();
    let (engine, tree) = opened(&disk, false);
    assert_there_but_for(&tree, [late].into_iter(), SICK + 4);
    assert_eq!(engine.check().unwrap().damage.len(), 1);
}

#[test]
fn what_was_put_beside_a_rotten_leaf_is_found_wherever_it_is_asked_for() {
    let disk = with(&image_of_filled());
    let (engine, tree) = opened(&disk, true);
    tree.put(&key(SICK + 2), &new(SICK + 2), Durability::Flushed).unwrap();
    engine.close().unwrap();
    disk.rot(&old(SICK));
    for blind in [false, true] {
        let (engine, tree) = opened(&disk, blind);
        let snapshot = engine.snapshot();
        assert_eq!(
            *snapshot.get(&tree, &key(SICK + 2)).unwrap().unwrap().to_buffer().unwrap(),
            *new(SICK + 2)
        );
        assert!(snapshot.get(&tree, &key(SICK)).is_err());
        engine.close().unwrap();
        let (engine, tree) = opened(&disk, blind);
        let attempt = |number| loop {
            match tree.try_get(&key(number)).unwrap() {
                Attempt::Ready(value) => break Ok(value.map(|value| value.to_buffer().unwrap().to_vec())),
                Attempt::NeedsRead(ticket) => match ticket.run() {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
            }
        };
        assert_eq!(attempt(SICK + 2).unwrap(), Some(new(SICK + 2)));
        assert!(matches!(attempt(SICK), Err(EngineError::Corrupt { .. })));
        let mut shown = Vec::new();
        tree.get_many(&[key(5), key(SICK + 2)], |_, value| shown.push(value.map(<[u8]>::to_vec))).unwrap();
        assert_eq!(shown, [Some(old(5)), Some(new(SICK + 2))]);
        assert_there_but_for(&tree, [SICK + 2].into_iter(), SICK);
        engine.close().unwrap();
    }
}

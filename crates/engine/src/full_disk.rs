//! Writes on a disk that is full: the space that the file already has is used before a write is refused.
//!
//! Free space is no promise there: some of it is holes, and some was never given by the file system. So a
//! write that was refused tries other free extents, among them those that were kept for readers of other
//! processes. If none of them does, it asks for a checkpoint, which frees log and replaced values, unless the
//! last one has shown that there is nothing to free.
//!
//! Invariant: an extent that was tried in vain is free again before its writer returns.

use crate::shared::Shared;
use crate::space::Extent;
use crate::threads::Mutex;
use atoll_disk::DiskError;
use atoll_errors::ErrorKind;
// Nothing waits for it, so its steps are none that a schedule has to order.
use std::sync::atomic::{AtomicBool as Flag, Ordering};
use std::time::Duration;

/// Most extents that are tried in place of one that was refused.
const OTHERS_MAX: usize = 8;

/// Whether the file system had no room.
pub(crate) fn is_full(error: &DiskError) -> bool {
    error.kind() == ErrorKind::OutOfSpace
}

/// Whether the last checkpoint showed that another one would free nothing.
///
/// Invariant: while it is set, the log has not gone on since a checkpoint that freed nothing and left nothing
/// to be freed, except what readers hold.
#[derive(Default)]
pub(crate) struct Settled {
    is_set: Flag,
    /// Whether cleaning, since the last commit, looked at every segment that it may take something from.
    saw_all: Flag,
    /// Epochs whose readers that checkpoint found. Once one of them is gone, the next checkpoint may free
    /// what it held.
    readers: Mutex<Vec<u64>>,
}

impl Settled {
    /// The caller holds the writer lock.
    pub(crate) fn begin(&self, readers: Vec<u64>) {
        *self.readers.lock() = readers;
        self.is_set.store(true, Ordering::Release);
    }

    /// Notes whether cleaning looked at every segment. The caller holds `checkpointing`.
    pub(crate) fn note_cleaning(&self, saw_all: bool) {
        self.saw_all.store(saw_all, Ordering::Relaxed);
    }

    /// Whether cleaning looked at every segment before the commit that asks; the next one has to clean anew.
    /// The caller holds `checkpointing`.
    pub(crate) fn take_saw_all(&self) -> bool {
        self.saw_all.swap(false, Ordering::Relaxed)
    }

    /// Notes that the log goes on. The caller holds the writer lock.
    #[inline]
    pub(crate) fn end(&self) {
        // Most commits find it unset, and then only read.
        if self.is_set.load(Ordering::Relaxed) {
            self.is_set.store(false, Ordering::Relaxed);
        }
    }

    fn readers(&self) -> Option<Vec<u64>> {
        self.is_set.load(Ordering::Acquire).then(|| self.readers.lock().clone())
    }
}

impl Shared {
    /// Makes space usable that was kept for at least this long.
    pub(crate) fn use_kept(&self, keep: Duration) {
        let mut space = self.space.lock();
        if space.kept_bytes() > 0 {
            space.use_kept(self.options.clock.now(), keep);
        }
    }

    /// Notes that the disk is full: nothing is kept for readers of other processes any more, and free space
    /// that is known to have blocks is preferred until a checkpoint succeeds.
    pub(crate) fn use_all_there_is(&self) {
        self.space.lock().avoid_holes(true);
        self.use_kept(Duration::ZERO);
    }

    /// Finds another extent for a writer in the place of `refused`, for which the disk had no room: one for
    /// which `take` succeeds. The refused ones are given back at the end, so that each is another one.
    pub(crate) fn find_room_instead(
        &self,
        refused: Extent,
        mut error: DiskError,
        mut take: impl FnMut(Extent) -> Result<(), DiskError>,
    ) -> Result<Extent, DiskError> {
        self.use_all_there_is();
        let mut found = None;
        let mut in_vain = vec![refused];
        while found.is_none() && is_full(&error) && in_vain.len() <= OTHERS_MAX {
            let Some(other) = self.space.lock().allocate_instead(refused) else { break };
            match take(other) {
                Ok(()) => found = Some(other),
                Err(next) => {
                    in_vain.push(other);
                    error = next;
                }
            }
        }
        let mut space = self.space.lock();
        in_vain.into_iter().for_each(|extent| space.refuse(extent));
        drop(space);
        // Writes that are refused one after the other would have checkpoints made without a pause.
        if found.is_none() && !self.checkpointing.is_locked() && self.may_free_more() {
            self.ask_for_checkpoint();
        }
        found.ok_or(error)
    }

    /// Whether the next checkpoint may free what the last one could not.
    fn may_free_more(&self) -> bool {
        let Some(readers) = self.settled.readers() else { return true };
        readers.iter().any(|&epoch| !self.pins.holds(epoch, epoch + 1))
    }
}

#[cfg(test)]
mod tests {
    use crate::cleaning::Fruitless;
    use crate::{Clock, Durability, Engine, Options, Tree};
    use atoll_disk::{Disk, FaultPlan, SimDisk};
    use atoll_errors::ErrorKind;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const LEN: usize = 1 << 20;

    fn options() -> Options {
        Options {
            background: false,
            log_segment_bytes: 64 << 10,
            log_windows: false,
            store_id: Some(7),
            ..Options::default()
        }
    }

    fn open(disk: &SimDisk, options: Options) -> (Engine, Tree) {
        let engine = Engine::open(Arc::new(disk.clone()), options).unwrap();
        let tree = engine.tree("t").unwrap();
        (engine, tree)
    }

    fn put(tree: &Tree, number: u8) -> Result<(), ErrorKind> {
        let put = tree.put(&[number], &[number].repeat(LEN), Durability::Flushed);
        put.map(|_| ()).map_err(|error| error.kind())
    }

    fn assert_holds(tree: &Tree, number: u8) {
        let value = tree.get(&[number]).unwrap().unwrap().to_buffer().unwrap();
        assert!(value.len() == LEN && value.iter().all(|&byte| byte == number), "{number}");
    }

    fn leave(disk: &SimDisk, bytes: u64) {
        disk.set_plan(FaultPlan { space_left: Some(bytes), ..FaultPlan::default() });
    }

    /// A store that keeps the space of a value for a minute, of which `clock` says the seconds.
    fn that_keeps(disk: &SimDisk, clock: &Arc<AtomicU64>) -> (Engine, Tree) {
        let seconds = Arc::clone(clock);
        let now = move || Duration::from_secs(seconds.load(Ordering::Relaxed));
        let keep = Duration::from_secs(60);
        let (engine, tree) = open(disk, Options { keep, clock: Clock::new(now), ..options() });
        // Enough for a quarter of the file to be more than what is kept.
        (0..10).for_each(|number| put(&tree, number).unwrap());
        engine.checkpoint().unwrap();
        tree.delete(&[0], Durability::Flushed).unwrap();
        engine.checkpoint().unwrap();
        assert!(engine.stats().kept_bytes >= LEN as u64, "{:?}", engine.stats());
        (engine, tree)
    }

    #[test]
    fn space_that_was_kept_long_enough_is_used_without_another_checkpoint() {
        let (disk, clock) = (SimDisk::seeded(1), Arc::new(AtomicU64::new(0)));
        let (engine, tree) = that_keeps(&disk, &clock);
        clock.store(60, Ordering::Relaxed);
        let before = engine.stats().file_bytes;
        put(&tree, 10).unwrap();
        assert_eq!(engine.stats().file_bytes, before, "the file grew");
        assert_holds(&tree, 10);
    }

    #[test]
    fn a_full_disk_leaves_nothing_to_be_kept() {
        let (disk, clock) = (SimDisk::seeded(2), Arc::new(AtomicU64::new(0)));
        let (engine, tree) = that_keeps(&disk, &clock);
        leave(&disk, 0);
        put(&tree, 10).unwrap();
        assert_eq!(engine.stats().kept_bytes, 0);
        assert_eq!(put(&tree, 11), Err(ErrorKind::OutOfSpace), "there was one place");
        drop((tree, engine));
        let (engine, tree) = open(&disk.kill(), options());
        (1..11).for_each(|number| assert_holds(&tree, number));
        assert!(engine.check().unwrap().damage.is_empty());
    }

    /// Takes all free space that is not kept, so that whatever is written next needs more of the disk.
    fn take_free_space(engine: &Engine) {
        let mut space = engine.shared.space.lock();
        while let Some(len) = space.longest_free(4096) {
            space.allocate(len);
        }
    }

    #[test]
    fn the_last_checkpoint_on_a_full_disk_uses_what_is_kept() {
        let (disk, clock) = (SimDisk::seeded(5), Arc::new(AtomicU64::new(0)));
        let (engine, tree) = that_keeps(&disk, &clock);
        tree.put(b"short", b"v", Durability::Flushed).unwrap();
        take_free_space(&engine);
        leave(&disk, 0);
        let before = disk.counters().out_of_space;
        engine.close().unwrap();
        assert!(disk.counters().out_of_space > before, "there was room without it");
        drop(tree);
        let (engine, tree) = open(&disk.kill(), options());
        assert!(engine.recovery().clean);
        (1..10).for_each(|number| assert_holds(&tree, number));
        assert!(tree.get(b"short").unwrap().is_some());
    }

    #[test]
    fn a_change_that_found_no_room_for_its_checkpoint_finds_what_is_kept_the_next_time() {
        let (disk, clock) = (SimDisk::seeded(6), Arc::new(AtomicU64::new(0)));
        let (engine, tree) = that_keeps(&disk, &clock);
        tree.put(b"short", b"v", Durability::Flushed).unwrap();
        take_free_space(&engine);
        leave(&disk, 0);
        let change = || engine.shared.checkpoint_with(|_, _| Ok(()), &[]);
        assert_eq!(change().unwrap_err().kind(), ErrorKind::OutOfSpace);
        assert_eq!(engine.stats().kept_bytes, 0);
        change().unwrap();
    }

    #[test]
    fn a_hole_that_fits_best_hides_no_free_space_that_has_blocks() {
        let disk = SimDisk::seeded(3);
        let (engine, tree) = open(&disk, options());
        let (hole, long) = {
            let mut space = engine.shared.space.lock();
            let hole = space.allocate(LEN as u64);
            space.allocate(4096);
            let long = space.allocate(3 * LEN as u64);
            space.allocate(4096);
            disk.reserve(0, space.end()).unwrap();
            disk.release(hole.offset, hole.len).unwrap();
            space.insert_free(hole);
            space.insert_free(long);
            (hole, long)
        };
        leave(&disk, 0);
        put(&tree, 1).unwrap();
        assert_holds(&tree, 1);
        let free = engine.shared.space.lock().free_bytes();
        assert!(free >= hole.len + long.len - LEN as u64, "{free}: what was refused did not come back");
        drop((tree, engine));
        assert_holds(&open(&disk.kill(), options()).1, 1);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "nothing tells that a thread made a checkpoint")]
    fn a_write_that_found_no_room_asks_for_the_checkpoint_that_makes_some() {
        let disk = SimDisk::seeded(4);
        let (engine, tree) = open(&disk, Options { background: true, ..options() });
        put(&tree, 1).unwrap();
        // Its space is free after a checkpoint, for which nothing but the full disk is a reason.
        tree.delete(&[1], Durability::Flushed).unwrap();
        leave(&disk, 900 << 10);
        assert_eq!(put(&tree, 2), Err(ErrorKind::OutOfSpace));
        let serves = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            put(&tree, 2).is_ok()
        });
        assert!(serves, "{:?}", engine.stats());
        assert_holds(&tree, 2);
    }

    #[test]
    fn nothing_is_left_to_free_until_a_commit_or_the_end_of_a_reader() {
        let (engine, tree) = open(&SimDisk::seeded(7), options());
        let may = || engine.shared.may_free_more();
        // One that frees something may have left more to the next.
        let settles = || {
            (0..4).any(|_| {
                engine.checkpoint().unwrap();
                !may()
            })
        };
        put(&tree, 1).unwrap();
        assert!(may());
        assert!(settles());
        let snapshot = engine.snapshot();
        tree.delete(&[1], Durability::Buffered).unwrap();
        assert!(may(), "a commit that only memory has");
        assert!(settles(), "the reader goes on");
        drop(snapshot);
        assert!(may(), "what the reader held can come back");
        assert!(engine.checkpoint().unwrap().freed_bytes >= LEN as u64);
        assert!(settles());
        engine.create_snapshot("named").unwrap();
        assert!(settles());
        engine.delete_snapshot("named").unwrap();
        assert!(may(), "no tree was changed");
        assert!(settles());
        // What could not be read may be read, and taken from, later.
        let unread = Fruitless::Unread { again: u64::MAX, pause: 1 };
        engine.shared.fruitless.lock().insert(u64::MAX, unread);
        engine.checkpoint().unwrap();
        assert!(may(), "cleaning left something out");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "nothing tells that no thread makes a checkpoint")]
    fn writes_that_are_refused_have_no_checkpoint_made_once_one_freed_nothing() {
        let disk = SimDisk::seeded(8);
        let (engine, tree) = open(&disk, Options { background: true, ..options() });
        put(&tree, 1).unwrap();
        leave(&disk, 900 << 10);
        let (mut made, mut unchanged) = (0, 0);
        let rests = (0..10_000).any(|_| {
            assert_eq!(put(&tree, 2), Err(ErrorKind::OutOfSpace));
            std::thread::sleep(Duration::from_millis(1));
            let now = engine.stats().checkpoints_made;
            unchanged = if now == made { unchanged + 1 } else { 0 };
            made = now;
            made > 0 && unchanged == 300
        });
        assert!(rests, "{:?}", engine.stats());
    }
}

//! The next segment of the log, prepared before it is needed.
//!
//! Reserving a segment and mapping its pages takes a file system a millisecond or more, and all writers would
//! wait for it. So once half of a segment is full, a background thread does it for the next one. Where there
//! is no such thread, or where it is late, the writer that needs the segment prepares it.
//!
//! Invariant: until the log jumps to it, such a segment is free space for every commit on disk, so a crash
//! costs nothing.
//! Invariant: zeros are written to it only before its first byte.

use crate::log::{Chores, Log};
use crate::shared::{Shared, Wanted};
use crate::threads::Mutex;
use atoll_disk::Window;

/// Shorter segments, of stores with little memory, are prepared by the writer that needs them: a thread would
/// be woken all the time.
const BACKGROUND_SEGMENT_BYTES_MIN: u64 = 1 << 20;

impl Shared {
    /// Does the work that the log left to a thread that holds no lock any more.
    pub(crate) fn do_chores(&self, chores: Option<Chores>) {
        let Some(mut chores) = chores else { return };
        let is_worth_it =
            self.options.background && self.options.segment_bytes() >= BACKGROUND_SEGMENT_BYTES_MIN;
        if is_worth_it && chores.former.is_some() {
            // The thread unmaps it when it is woken for the next segment.
            let before = std::mem::replace(&mut *self.window_former.lock(), chores.former.take());
            drop(before);
        }
        if is_worth_it && chores.wants_segment {
            self.log_nudge.ask(Wanted::Segment);
        }
        chores.run();
    }

    /// Prepares the next segment, if none is ready. A failure is not reported: the writer that needs the
    /// segment tries again, and gets the error.
    pub(crate) fn make_segment_ready(&self) {
        let Some(disk) = self.backing.disk() else { return };
        drop_apart(&self.window_former);
        let len = self.options.segment_bytes();
        self.use_kept(self.options.keep);
        let extent = {
            let mut space = self.space.lock();
            if space.is_ahead() || self.check_writable().is_err() {
                return;
            }
            space.allocate_in_flight(len)
        };
        if let Err(error) = disk.reserve(extent.offset, extent.len) {
            self.space.lock().give_back(extent, error.kind());
            return;
        }
        let window = if self.options.log_windows { Log::window_on(&**disk, extent) } else { None };
        *self.window_ahead.lock() = window;
        self.space.lock().keep_ahead(extent);
    }

    /// Frees the segment that was prepared and will not be needed. No further one is prepared from here on.
    pub(crate) fn give_up_segment(&self) {
        drop_apart(&self.window_former);
        drop_apart(&self.window_ahead);
        self.space.lock().give_up_ahead();
    }
}

/// Unmaps a window while no lock is held.
fn drop_apart(window: &Mutex<Option<Window>>) {
    let window = window.lock().take();
    drop(window);
}

#[cfg(test)]
mod tests {
    use crate::{Durability, Engine, Options};
    use atoll_disk::{Disk, DiskError, FileDisk, MemoryDisk, Mode, Relay, Window};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    const SEGMENT: u64 = 1 << 20;

    /// A disk that counts requests.
    struct Counting<D> {
        disk: D,
        reserved: AtomicU64,
        windows: AtomicU64,
    }

    impl<D: Disk> Counting<D> {
        fn of(disk: D) -> Arc<Self> {
            Arc::new(Self { disk, reserved: AtomicU64::new(0), windows: AtomicU64::new(0) })
        }

        /// How often space was reserved and a window given since the last call.
        fn since(&self) -> (u64, u64) {
            (self.reserved.swap(0, Ordering::Relaxed), self.windows.swap(0, Ordering::Relaxed))
        }
    }

    impl<D: Disk> Relay for Counting<D> {
        fn inner(&self) -> &dyn Disk {
            &self.disk
        }

        fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
            self.reserved.fetch_add(1, Ordering::Relaxed);
            self.disk.reserve(offset, len)
        }

        fn window(&self, offset: u64, len: u64) -> Option<Window> {
            let window = self.disk.window(offset, len)?;
            self.windows.fetch_add(1, Ordering::Relaxed);
            Some(window)
        }
    }

    fn open(disk: Arc<dyn Disk>) -> Engine {
        let options = Options { background: false, log_segment_bytes: SEGMENT, ..Options::default() };
        Engine::open(disk, options).unwrap()
    }

    /// Puts records until the log has entered another segment.
    fn fill(engine: &Engine, numbers: &mut std::ops::RangeFrom<u32>) {
        let tree = engine.tree("records").unwrap();
        let segments = engine.stats().log_segments;
        while engine.stats().log_segments == segments {
            let number = numbers.next().unwrap();
            tree.put(&number.to_be_bytes(), &[number as u8; 900], Durability::Flushed).unwrap();
        }
    }

    fn assert_holds(engine: &Engine, count: u32) {
        let tree = engine.tree("records").unwrap();
        for number in 0..count {
            let found = tree.get(&number.to_be_bytes()).unwrap().unwrap().to_buffer().unwrap();
            assert!(*found == [number as u8; 900], "{number}");
        }
        assert!(engine.check().unwrap().damage.is_empty());
    }

    #[test]
    fn the_log_goes_on_in_the_segment_that_is_ready_and_asks_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Counting::of(FileDisk::open(&folder.path().join("store"), Mode::Create).unwrap());
        let engine = open(disk.clone());
        let mut numbers = 0..;
        fill(&engine, &mut numbers);
        let has_windows = disk.since().1 > 0;
        fill(&engine, &mut numbers);
        assert_eq!(disk.since(), (1, u64::from(has_windows)), "nothing was ready");
        for _ in 0..3 {
            engine.shared.make_segment_ready();
            engine.shared.make_segment_ready();
            assert_eq!(disk.since(), (1, u64::from(has_windows)), "made ready once");
            fill(&engine, &mut numbers);
            assert_eq!(disk.since(), (u64::from(!has_windows), 0), "the log asked for more");
        }
        let count = numbers.next().unwrap();
        assert_holds(&engine, count);
        drop(engine);
        assert_holds(&open(disk), count);
    }

    #[test]
    fn a_segment_that_is_ready_is_free_for_whoever_opens_the_store() {
        for was_entered in [false, true] {
            let disk: Arc<MemoryDisk> = Arc::default();
            let engine = open(disk.clone());
            let mut numbers = 0..;
            fill(&engine, &mut numbers);
            let before = engine.stats();
            engine.shared.make_segment_ready();
            // The state on disk does not include the segment then.
            engine.checkpoint().unwrap();
            if was_entered {
                fill(&engine, &mut numbers);
            }
            let count = numbers.next().unwrap();
            drop(engine);
            let engine = open(disk.clone());
            assert_holds(&engine, count);
            let stats = engine.stats();
            assert_eq!(stats.log_segments, before.log_segments + u64::from(was_entered));
            let taken = |stats: &crate::Stats| stats.file_bytes - stats.free_bytes;
            let segments = if was_entered { SEGMENT } else { 0 };
            assert!(taken(&stats) < taken(&before) + segments + (128 << 10), "{before:?} {stats:?}");
            engine.close().unwrap();
        }
    }

    #[test]
    fn closing_gives_back_what_the_log_did_not_need() {
        let disk: Arc<MemoryDisk> = Arc::default();
        let engine = open(disk.clone());
        fill(&engine, &mut (0..));
        engine.shared.make_segment_ready();
        let before = engine.stats();
        engine.shared.give_up_segment();
        assert_eq!(engine.stats().free_bytes, before.free_bytes + SEGMENT);
        assert!(!engine.shared.space.lock().is_ahead());
        engine.close().unwrap();
    }
}

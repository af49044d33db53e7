//! A window on a file: a range of it in memory, written by copying, from its beginning to its end.
//!
//! Writing a hundred bytes by a system call costs most of a microsecond; copying them into a mapped page
//! costs a tenth of that. The system owns the page either way: what was copied survives the end of the
//! process, reads of the file see it, and a sync of the file makes it durable.
//!
//! A page must be present before it is written, and a mapping faults pages in one by one, each of which is
//! first read and then made writable by itself. So zeros are written by a call to where the next copies will
//! go, many pages at once.
//!
//! A disk that fails under a mapping answers with a signal that ends the process, not with an error. So pages
//! are allocated and populated before they are written, by steps that fail with an error. And a window is
//! only given where a present page stays writable: on file systems that overwrite in place, on a range that
//! exists already.
//!
//! XFS overwrites in place unless another file shares the block. If somebody copies the file by sharing
//! blocks (`cp`, a takeover of the store) while a window is open, the next copy into a page that was prepared
//! before needs a new block, and the signal comes if the disk has none. A page that is prepared later has its
//! own block from the zeros that are written to it.
//!
//! A simulated disk has windows as well, if it is asked to: the same steps, but what is copied goes to its
//! image instead of to memory that belongs to the system.
//!
//! Invariant: nothing is copied outside of the window, or to a page that was not populated.
//! Invariant: a window is only written; no reference into it is ever made.
//! Invariant: zeros are written only behind everything written so far, and never once the window has ended.

use crate::file::{allocate, write_zeros};
use crate::page_exclusion::WindowGuard;
use crate::{DiskError, Operation, SimDisk};
use mapped::{Memory, PAGE};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of pages that are prepared at once: zeros of more would push other data out of the nearest caches. A
/// sync writes pages that are prepared but not used yet, too.
const PREPARED_BYTES: u64 = 64 << 10;

/// A range of a file that is written by copying.
#[derive(Debug)]
pub struct Window {
    pages: Arc<Pages>,
    name: String,
    /// Its range in the file.
    range: Range<u64>,
    /// The part of it that was prepared last.
    ready: Range<u64>,
    /// The range behind it that another thread was asked to prepare.
    ahead: Option<(Range<u64>, Arc<Mutex<PreparationStage>>)>,
    /// Keeps writes that bypass the page cache away from its pages.
    guard: Option<WindowGuard>,
}

/// Where the bytes of a window go.
#[derive(Debug)]
enum Pages {
    Mapped(MappedPages),
    Simulated(SimDisk),
}

/// The file, and its pages in memory.
#[derive(Debug)]
struct MappedPages {
    file: File,
    memory: Memory,
    /// Offset in the file at which the memory begins.
    start: u64,
}

/// State of a preparation that was handed out. The thread that runs it holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreparationStage {
    Wanted,
    Ready,
    /// It failed, or is not wanted any more.
    Over,
}

/// Pages of a window that will be needed soon, to be prepared by a thread that holds no lock.
#[derive(Debug)]
#[must_use = "the pages stay unprepared if it is dropped"]
pub struct Ahead {
    pages: Arc<Pages>,
    range: Range<u64>,
    stage: Arc<Mutex<PreparationStage>>,
}

impl Pages {
    /// Fills a range with zeros, so that copies to it cannot fail any more.
    fn make_ready(&self, range: &Range<u64>) -> io::Result<()> {
        match self {
            Self::Mapped(pages) => pages.make_ready(range),
            Self::Simulated(disk) => disk.prepare_window(range).map_err(|error| error.source),
        }
    }

    /// Copies `bytes` to `offset` of the file, which was made ready. Only a simulated disk reports an error:
    /// that its power is off, which a process on a real one does not live to see.
    fn copy(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Mapped(pages) => {
                pages.memory.copy(offset - pages.start, bytes);
                Ok(())
            }
            Self::Simulated(disk) => disk.copy_to_window(offset, bytes).map_err(|error| error.source),
        }
    }
}

impl MappedPages {
    /// Fills a range of the file with zeros, and populates its pages.
    fn make_ready(&self, range: &Range<u64>) -> io::Result<()> {
        write_zeros(&self.file, range.start, range.end)?;
        self.memory.make_writable(range.start / PAGE * PAGE - self.start..range.end - self.start)
    }
}

impl Ahead {
    /// Prepares the pages, unless the window went on without them. An error is reported only by the write
    /// that needs them.
    pub fn ask(self) {
        let mut stage = self.stage.lock();
        if *stage == PreparationStage::Wanted {
            let is_ready = self.pages.make_ready(&self.range).is_ok();
            *stage = if is_ready { PreparationStage::Ready } else { PreparationStage::Over };
        }
    }
}

impl Window {
    /// A window on a range of a file that is long enough; none where a window would not be safe: only space
    /// that the file system itself reserved stays writable, however full the disk is.
    pub(crate) fn on(file: &File, name: &str, range: Range<u64>) -> Option<Self> {
        let is_there = file.metadata().ok()?.len() >= range.end;
        if range.is_empty() || !is_there || !mapped::overwrites_in_place(file) {
            return None;
        }
        // Reserves holes too, which a copy of a file may have where it had zeros.
        allocate(file, range.start, range.end - range.start).ok()?;
        let start = range.start / PAGE * PAGE;
        let memory = Memory::of(file, &(start..range.end))?;
        let pages = MappedPages { file: file.try_clone().ok()?, memory, start };
        // A system that cannot populate pages reports it only here.
        Self::prepared(Pages::Mapped(pages), name, range)
    }

    /// A window on a range of a simulated disk; none where the first part of it cannot be prepared.
    pub(crate) fn simulated(disk: SimDisk, name: &str, range: Range<u64>) -> Option<Self> {
        Self::prepared(Pages::Simulated(disk), name, range)
    }

    /// A window whose first part is ready.
    fn prepared(pages: Pages, name: &str, range: Range<u64>) -> Option<Self> {
        let (pages, ready) = (Arc::new(pages), range.start..range.start);
        let mut window = Self { pages, name: name.to_owned(), range, ready, ahead: None, guard: None };
        window.prepare(window.range.start, 1).ok()?;
        Some(window)
    }

    /// The same window, with a guard that is kept for as long as the window exists.
    pub(crate) fn guarded_by(mut self, guard: WindowGuard) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Whether `len` bytes at `offset` of the file lie within the window.
    #[must_use]
    pub fn covers(&self, offset: u64, len: u64) -> bool {
        offset >= self.range.start && offset.checked_add(len).is_some_and(|end| end <= self.range.end)
    }

    /// Writes all of `bytes` at `offset` of the file. What lies behind them in the window may be zeros from
    /// here on.
    ///
    /// # Errors
    /// [`DiskError`] if the disk has no pages for it, or if it does not lie within the window; nothing was
    /// written then.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let len = bytes.len() as u64;
        let prepared = match self.covers(offset, len) {
            true if self.is_ready(offset, len) => Ok(()),
            true => self.prepare(offset, len),
            false => Err(io::ErrorKind::InvalidInput.into()),
        };
        prepared.and_then(|()| self.pages.copy(offset, bytes)).map_err(|source| {
            let (operation, name) = (Operation::Write, self.name.clone());
            DiskError { operation, name, offset, source }
        })
    }

    /// The pages that another thread should prepare before writes that continue at `offset` need them, if it
    /// is time and no request is pending.
    ///
    /// `is_far` asks for twice as much at once: fewer calls, where caches hold little that could be pushed
    /// out.
    pub fn ahead_of(&mut self, offset: u64, is_far: bool) -> Option<Ahead> {
        let from = self.ready.end;
        let until = (from + if is_far { 2 * PREPARED_BYTES } else { PREPARED_BYTES }).min(self.range.end);
        let is_time = offset <= from && offset + PREPARED_BYTES / 2 >= from;
        // Nothing was written behind `offset` yet. If `offset` has passed the prepared part, that does not
        // hold for the range between.
        if self.ahead.is_some() || from == until || !is_time {
            return None;
        }
        let (range, stage) = (from..until, Arc::new(Mutex::new(PreparationStage::Wanted)));
        self.ahead = Some((range.clone(), Arc::clone(&stage)));
        Some(Ahead { pages: Arc::clone(&self.pages), range, stage })
    }

    /// Waits for a preparation that is running, and cancels one that is pending. The owner calls this before
    /// it writes to the range otherwise than through the window.
    pub fn hold_still(&mut self) {
        let Some((range, stage)) = self.ahead.take() else { return };
        let stage = std::mem::replace(&mut *stage.lock(), PreparationStage::Over);
        if stage == PreparationStage::Ready {
            self.ready.end = range.end;
        }
    }

    fn is_ready(&self, offset: u64, len: u64) -> bool {
        self.ready.start <= offset && offset + len <= self.ready.end
    }

    /// Prepares these bytes, and some behind them.
    fn prepare(&mut self, offset: u64, len: u64) -> io::Result<()> {
        // Zeros written later would overwrite what is copied now.
        self.hold_still();
        if self.is_ready(offset, len) {
            return Ok(());
        }
        let goes_on = (self.ready.start..=self.ready.end).contains(&offset);
        let from = if goes_on { self.ready.end } else { offset };
        let until = (offset + len).next_multiple_of(PREPARED_BYTES).min(self.range.end);
        self.pages.make_ready(&(from..until))?;
        self.ready = if goes_on { self.ready.start..until } else { from..until };
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.hold_still();
        drop(self.guard.take());
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod mapped {
    #![allow(unsafe_code)]

    use rustix::fs::fstatfs;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
    use std::fs::File;
    use std::io;
    use std::ops::Range;
    use std::ptr::NonNull;

    /// Bytes of a page: the largest size there is, where processors differ.
    pub(super) const PAGE: u64 = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };

    /// Magic numbers of ext4 (and ext2 and ext3, which cannot reserve), XFS and tmpfs.
    const IN_PLACE_FILE_SYSTEMS: [u64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

    /// Whether a page of the file that was written once can be written again, however full the disk is. On
    /// XFS this holds for as long as no other file comes to share its blocks.
    pub(super) fn overwrites_in_place(file: &File) -> bool {
        fstatfs(file).is_ok_and(|system| IN_PLACE_FILE_SYSTEMS.contains(&(system.f_type as u64)))
    }

    /// Pages of a file in memory.
    #[derive(Debug)]
    pub(super) struct Memory {
        start: NonNull<u8>,
        len: usize,
    }

    // SAFETY: it is an address; the memory there is written only by the one window, exclusively borrowed.
    unsafe impl Send for Memory {}
    // SAFETY: shared users only populate pages, which the system allows several threads at once and which
    // changes no byte.
    unsafe impl Sync for Memory {}

    impl Memory {
        /// Maps a range of a file that begins on a page boundary.
        pub(super) fn of(file: &File, range: &Range<u64>) -> Option<Self> {
            let len = usize::try_from(range.end - range.start).ok()?;
            let (readable, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            // SAFETY: a fresh mapping at an address of the system's choice affects no existing memory.
            let mapped = unsafe { mmap(std::ptr::null_mut(), len, readable, shared, file, range.start) };
            Some(Self { start: NonNull::new(mapped.ok()?.cast())?, len })
        }

        /// Populates the pages of these bytes, which begin on a page boundary, so that they may be written.
        pub(super) fn make_writable(&self, bytes: Range<u64>) -> io::Result<()> {
            let (from, until) = (bytes.start as usize, bytes.end as usize);
            assert!(from <= until && until <= self.len, "pages outside of the window");
            // SAFETY: the bytes lie within the mapping; advice of this kind changes none of them.
            unsafe {
                madvise(self.start.as_ptr().add(from).cast(), until - from, Advice::LinuxPopulateWrite)
            }?;
            Ok(())
        }

        /// Copies `bytes` to `at`.
        ///
        /// Only one window copies, one copy at a time, because it is exclusively borrowed for that.
        pub(super) fn copy(&self, at: u64, bytes: &[u8]) {
            let at = at as usize;
            assert!(
                at.checked_add(bytes.len()).is_some_and(|end| end <= self.len),
                "a copy outside of the window"
            );
            // SAFETY: the target lies within the mapping, as was just asserted, and `bytes` in memory managed
            // by Rust, so they do not overlap. Nothing here reads the mapping or refers into it, so another
            // process that writes the file changes nothing that Rust relies on.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) }
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: the mapping is this long, and nothing refers to it any more.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod mapped {
    use std::fs::File;
    use std::io;
    use std::ops::Range;

    pub(super) const PAGE: u64 = 64 << 10;

    /// Pages cannot be populated on other systems.
    pub(super) fn overwrites_in_place(_file: &File) -> bool {
        false
    }

    /// Never exists.
    #[derive(Debug)]
    pub(super) enum Memory {}

    impl Memory {
        pub(super) fn of(_file: &File, _range: &Range<u64>) -> Option<Self> {
            None
        }

        pub(super) fn make_writable(&self, _bytes: Range<u64>) -> io::Result<()> {
            match *self {}
        }

        pub(super) fn copy(&self, _at: u64, _bytes: &[u8]) {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const MIB: u64 = 1 << 20;

    /// Reports that there was nothing to test.
    fn skipped() {
        println!("SKIPPED [windows] the file system of the temporary folder has none");
    }

    /// A file of a mebibyte of ones, and a window on all of it except the first and the last page.
    fn window() -> (File, Option<Window>) {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; MIB as usize], 0).unwrap();
        let window = Window::on(&file, "file", PAGE..MIB - PAGE);
        assert!(
            window.is_some() || !mapped::overwrites_in_place(&file),
            "no window where there should be one"
        );
        (file, window)
    }

    #[test]
    fn what_is_written_one_behind_the_other_is_read_from_the_file() {
        const END: u64 = 8 * MIB;
        let file = tempfile::tempfile().unwrap();
        file.set_len(END).unwrap();
        let Some(mut window) = Window::on(&file, "file", PAGE..END) else { return skipped() };
        let seed = 11;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut expected = vec![0; END as usize];
        let mut late: Vec<Ahead> = Vec::new();
        let mut at = PAGE;
        while at < END - 40_000 {
            let is_long = random.u8(..) < 4;
            let len = random.usize(0..if is_long { 40_000 } else { 1000 });
            let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(1..)).take(len).collect();
            // Long ones are written by calls, as the log does.
            if is_long {
                window.hold_still();
                file.write_all_at(&bytes, at).unwrap();
            } else {
                window.write_at(at, &bytes).unwrap();
            }
            expected[at as usize..][..len].copy_from_slice(&bytes);
            at += len as u64;
            late.extend(window.ahead_of(at, false));
            // Some preparations run at once, some long after their pages were written.
            while !late.is_empty() && random.u8(..) < 4 {
                late.swap_remove(random.usize(..late.len())).ask();
            }
        }
        let mut found = vec![0; at as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected[..at as usize], "seed {seed}");
        drop(window);
        late.into_iter().for_each(Ahead::ask);
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected[..at as usize], "after the window, seed {seed}");
    }

    #[test]
    fn what_comes_before_the_window_and_behind_it_stays() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![1; MIB as usize], 0).unwrap();
        let Some(mut window) = Window::on(&file, "file", PAGE + 100..MIB - PAGE) else { return skipped() };
        window.write_at(PAGE + 100, b"first").unwrap();
        window.write_at(MIB - PAGE - 4, b"last").unwrap();
        let mut found = vec![0; MIB as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        let (end, last) = ((MIB - PAGE) as usize, (MIB - PAGE - 4) as usize);
        assert!(found[..PAGE as usize + 100].iter().chain(&found[end..]).all(|&byte| byte == 1));
        assert_eq!((&found[PAGE as usize + 100..][..5], &found[last..end]), (&b"first"[..], &b"last"[..]));
    }

    #[test]
    fn what_somebody_made_ready_is_taken_in_and_what_was_overtaken_is_not() {
        let (_file, Some(mut window)) = window() else { return skipped() };
        window.write_at(PAGE, &[7; 100]).unwrap();
        assert_eq!(window.ready, PAGE..PREPARED_BYTES);
        assert!(window.ahead_of(PAGE + 100, false).is_none(), "more than half of a step is left");
        let ahead = window.ahead_of(PREPARED_BYTES - 100, false).unwrap();
        assert!(window.ahead_of(PREPARED_BYTES - 90, false).is_none(), "somebody was told");
        ahead.ask();
        window.write_at(PREPARED_BYTES - 90, &[7; 100]).unwrap();
        assert_eq!(window.ready, PAGE..2 * PREPARED_BYTES, "taken in, and nothing else made ready");
        // Needed before it was prepared: the writer prepares it, and the late preparation changes nothing.
        let late = window.ahead_of(2 * PREPARED_BYTES - 10, false).unwrap();
        window.write_at(2 * PREPARED_BYTES - 5, &[7; 100]).unwrap();
        assert_eq!(window.ready.end, 3 * PREPARED_BYTES);
        late.ask();
        window.write_at(2 * PREPARED_BYTES + 200, &[7; 100]).unwrap();
        assert_eq!((window.ready.end, window.ahead.is_none()), (3 * PREPARED_BYTES, true));
        // Bytes written by a call lie behind the prepared part, and must not be filled with zeros.
        assert!(window.ahead_of(3 * PREPARED_BYTES + 1, false).is_none());
        let far = window.ahead_of(3 * PREPARED_BYTES - 1, true);
        far.into_iter().for_each(Ahead::ask);
        window.hold_still();
        assert_eq!(window.ready.end, 5 * PREPARED_BYTES, "twice as far");
        // At the end there is nothing ahead.
        window.write_at(MIB - PAGE - 10, &[7; 10]).unwrap();
        assert!(window.ahead_of(MIB - PAGE, false).is_none());
    }

    #[test]
    fn nobody_writes_zeros_while_its_owner_writes_otherwise_nor_after_its_end() {
        let (file, Some(mut window)) = window() else { return skipped() };
        let is_kept = |at: u64| {
            let mut found = [0; 100];
            file.read_exact_at(&mut found, at).unwrap();
            found == [9; 100]
        };
        window.write_at(PAGE, &[7; 100]).unwrap();
        let told = window.ahead_of(PREPARED_BYTES - 100, false).unwrap();
        window.hold_still();
        file.write_all_at(&[9; 100], PREPARED_BYTES).unwrap();
        told.ask();
        assert!(is_kept(PREPARED_BYTES), "while it is held still");
        window.write_at(PREPARED_BYTES + 100, &[7; 100]).unwrap();
        let told = window.ahead_of(2 * PREPARED_BYTES - 100, false).unwrap();
        drop(window);
        file.write_all_at(&[9; 100], 2 * PREPARED_BYTES).unwrap();
        told.ask();
        assert!(is_kept(2 * PREPARED_BYTES), "after its end");
    }

    #[test]
    fn it_writes_nothing_outside_of_itself() {
        let (_file, Some(mut window)) = window() else { return skipped() };
        for (offset, len) in [(0, 1), (PAGE - 1, 2), (MIB - PAGE, 1), (MIB - PAGE - 1, 2), (u64::MAX, 1)] {
            assert!(!window.covers(offset, len), "{len} at {offset}");
            assert!(window.write_at(offset, &vec![7; len as usize]).is_err(), "{len} at {offset}");
        }
        window.write_at(MIB - PAGE - 1, &[7]).unwrap();
    }

    #[test]
    fn there_is_none_on_what_the_file_does_not_have() {
        let (file, _) = window();
        assert!(Window::on(&file, "file", PAGE..MIB + 1).is_none());
        assert!(Window::on(&file, "file", PAGE..PAGE).is_none());
        assert!(Window::on(&file, "file", u64::MAX - 1..u64::MAX).is_none());
    }

    #[test]
    fn pages_that_the_disk_does_not_have_are_an_error_and_no_signal() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&vec![1; MIB as usize], 0).unwrap();
        let Some(mut window) = Window::on(file.as_file(), "file", PAGE..MIB) else { return skipped() };
        window.write_at(PAGE, b"there").unwrap();
        // Behaves as a failing disk that takes no more.
        let Pages::Mapped(pages) = Arc::get_mut(&mut window.pages).unwrap() else { panic!("not of a file") };
        pages.file = File::open(file.path()).unwrap();
        assert!(window.write_at(MIB / 2 + PAGE, b"gone").is_err());
        window.write_at(PAGE + 5, b"there").unwrap();
        window.ahead_of(PREPARED_BYTES - 1, false).unwrap().ask();
        assert!(window.write_at(PREPARED_BYTES - 1, b"gone").is_err(), "nor what somebody asked for");
    }
}

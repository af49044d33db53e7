//! A window on a file: a stretch of it in memory, written by copying.
//!
//! A write of a hundred bytes through the system costs most of a microsecond, a copy into a mapped page a tenth of that.
//! The system owns the page either way: what was copied survives the end of the process, reads of the file see it,
//! and a sync of the file makes it durable.
//!
//! A disk that fails under a mapping answers with a signal that ends the process, not with an error. So pages are asked
//! for before they are written, which fails with an error, and a window is only given where a page that is there stays
//! writable: on file systems that overwrite in place, on a range that is there already.
//!
//! Invariant: nothing is copied outside of the window, nor to a page that was not asked for.
//! Invariant: a window is only written; no reference into it is ever made.

use crate::{DiskError, Operation};
use mapped::{Memory, PAGE};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of pages that are asked for at once. What is asked for and not written yet goes to the disk with a sync too.
const STEP: u64 = 64 << 10;

/// A stretch of a file that is written by copying.
#[derive(Debug)]
pub struct Window {
    memory: Arc<Memory>,
    name: String,
    /// Where it lies in the file.
    range: Range<u64>,
    /// The part of it whose pages were asked for last.
    ready: Range<u64>,
    /// What somebody was told to ask for behind it, and whether it is there.
    ahead: Option<(Range<u64>, Arc<AtomicBool>)>,
}

/// Pages of a window that will be needed soon, to be asked for by whoever holds no lock.
#[derive(Debug)]
#[must_use = "nobody else asks for them"]
pub struct Ahead {
    memory: Arc<Memory>,
    /// In the window.
    bytes: Range<u64>,
    are_there: Arc<AtomicBool>,
}

impl Ahead {
    /// Asks for the pages. Those that the disk does not have are an error only for who writes there.
    pub fn ask(self) {
        if self.memory.make_writable(self.bytes).is_ok() {
            self.are_there.store(true, Ordering::Release);
        }
    }
}

impl Window {
    /// A window on a range of a file, which is as long; none where one would not be safe: only what the file system
    /// itself reserved is there to be written, whatever others do to the disk.
    pub(crate) fn on(file: &File, name: &str, range: Range<u64>) -> Option<Self> {
        let is_there = file.metadata().ok()?.len() >= range.end;
        if range.is_empty() || !is_there || !mapped::overwrites_in_place(file) {
            return None;
        }
        // Holes too, which a copy of a file may have where it had zeros.
        crate::file::allocate(file, range.start, range.end - range.start).ok()?;
        let range = range.start / PAGE * PAGE..range.end;
        let memory = Arc::new(Memory::of(file, &range)?);
        let ready = range.start..range.start;
        let mut window = Self { memory, name: name.to_owned(), range, ready, ahead: None };
        // A system that cannot be asked for pages would say so only now.
        window.prepare(window.range.start, 1).ok()?;
        Some(window)
    }

    /// Whether `len` bytes at `offset` of the file lie within.
    #[must_use]
    pub fn covers(&self, offset: u64, len: u64) -> bool {
        offset >= self.range.start && offset.checked_add(len).is_some_and(|end| end <= self.range.end)
    }

    /// Writes all of `bytes` at `offset` of the file.
    ///
    /// # Errors
    /// [`DiskError`] where the disk has no pages for it, or if it does not lie within; nothing was written then.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let len = bytes.len() as u64;
        self.take_in_ahead();
        let prepared = match self.covers(offset, len) {
            true if self.ready.start <= offset && offset + len <= self.ready.end => Ok(()),
            true => self.prepare(offset, len),
            false => Err(io::ErrorKind::InvalidInput.into()),
        };
        prepared.map_err(|source| {
            let (operation, name) = (Operation::Write, self.name.clone());
            DiskError { operation, name, offset, source }
        })?;
        self.memory.copy(offset - self.range.start, bytes);
        Ok(())
    }

    /// What somebody should ask for before writes that go on at `offset` need it, if it is time and nobody was told yet.
    pub fn ahead_of(&mut self, offset: u64) -> Option<Ahead> {
        let from = self.ready.end;
        let until = (from + STEP).min(self.range.end);
        if self.ahead.is_some() || from == until || offset + STEP / 2 < from {
            return None;
        }
        let are_there = Arc::new(AtomicBool::new(false));
        self.ahead = Some((from..until, Arc::clone(&are_there)));
        let bytes = from - self.range.start..until - self.range.start;
        Some(Ahead { memory: Arc::clone(&self.memory), bytes, are_there })
    }

    /// Takes pages that somebody asked for into those that are ready, and forgets about those that were overtaken.
    fn take_in_ahead(&mut self) {
        let Some((range, are_there)) = &self.ahead else { return };
        let follows = range.start == self.ready.end;
        if follows && are_there.load(Ordering::Acquire) {
            self.ready.end = range.end;
        } else if follows {
            return;
        }
        self.ahead = None;
    }

    /// Asks for the pages of these bytes and some behind them.
    fn prepare(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let goes_on = (self.ready.start..=self.ready.end).contains(&offset);
        let from = if goes_on { self.ready.end } else { offset / PAGE * PAGE };
        let until = (offset + len).next_multiple_of(STEP).min(self.range.end);
        self.memory.make_writable(from - self.range.start..until - self.range.start)?;
        self.ready = if goes_on { self.ready.start..until } else { from..until };
        Ok(())
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

    /// Bytes of a page: where processors differ, the most there are.
    pub(super) const PAGE: u64 = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };

    /// Those of ext4 (and of ext2 and ext3, which cannot reserve), XFS and tmpfs.
    const IN_PLACE: [u64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

    /// Whether a page of the file that was written once is there to be written again, however full the disk is.
    pub(super) fn overwrites_in_place(file: &File) -> bool {
        fstatfs(file).is_ok_and(|system| IN_PLACE.contains(&(system.f_type as u64)))
    }

    /// Pages of a file in memory.
    #[derive(Debug)]
    pub(super) struct Memory {
        start: NonNull<u8>,
        len: usize,
    }

    // SAFETY: it is an address; what lies there is written only by the one window, borrowed for itself alone.
    unsafe impl Send for Memory {}
    // SAFETY: whoever shares it asks for pages, which the system may be asked by several at once and which changes no byte.
    unsafe impl Sync for Memory {}

    impl Memory {
        /// Maps a range of a file, which begins with a page.
        pub(super) fn of(file: &File, range: &Range<u64>) -> Option<Self> {
            let len = usize::try_from(range.end - range.start).ok()?;
            let (readable, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            // SAFETY: a fresh mapping at an address of the system's choice touches nothing that is there.
            let mapped = unsafe { mmap(std::ptr::null_mut(), len, readable, shared, file, range.start) };
            Some(Self { start: NonNull::new(mapped.ok()?.cast())?, len })
        }

        /// Makes sure that pages lie behind these bytes, which begin with a page, and that they may be written.
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
        /// Only one window copies, one copy at a time: it is borrowed for itself alone meanwhile.
        pub(super) fn copy(&self, at: u64, bytes: &[u8]) {
            let at = at as usize;
            assert!(
                at.checked_add(bytes.len()).is_some_and(|end| end <= self.len),
                "a copy outside of the window"
            );
            // SAFETY: the target lies within the mapping, as was just asserted, and `bytes` in memory of Rust's own, so
            // they do not overlap. Nothing here reads the mapping or refers into it, so that another process that writes
            // the file changes nothing that Rust relies on.
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

    /// Elsewhere pages cannot be asked for.
    pub(super) fn overwrites_in_place(_file: &File) -> bool {
        false
    }

    /// Of which there is none.
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

    /// A file of a mebibyte of ones, and a window on all of it but the first page and the last.
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
    fn what_is_copied_is_read_from_the_file_and_nothing_else_changes() {
        let (file, Some(mut window)) = window() else { return };
        let seed = 11;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut expected = vec![1; MIB as usize];
        for _ in 0..2000 {
            let len = random.u64(0..3000);
            let offset = random.u64(PAGE..MIB - PAGE - len);
            let bytes = vec![random.u8(..); len as usize];
            window.write_at(offset, &bytes).unwrap();
            expected[offset as usize..][..len as usize].copy_from_slice(&bytes);
        }
        let mut found = vec![0; MIB as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected, "seed {seed}");
        drop(window);
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected, "after the window, seed {seed}");
    }

    #[test]
    fn what_somebody_asked_for_is_taken_in_and_what_was_overtaken_is_not() {
        let (_file, Some(mut window)) = window() else { return };
        window.write_at(PAGE, &[7; 100]).unwrap();
        assert_eq!(window.ready.end, STEP);
        assert!(window.ahead_of(PAGE + 100).is_none(), "more than half of a step is left");
        let ahead = window.ahead_of(STEP - 100).unwrap();
        assert!(window.ahead_of(STEP - 90).is_none(), "somebody was told");
        ahead.ask();
        window.write_at(STEP - 90, &[7; 100]).unwrap();
        assert_eq!(window.ready, PAGE..2 * STEP, "taken in, and nothing else asked for");
        // Needed before it was there: the writer asks itself, and what comes then changes nothing.
        let late = window.ahead_of(2 * STEP - 10).unwrap();
        window.write_at(2 * STEP - 5, &[7; 100]).unwrap();
        assert_eq!(window.ready.end, 3 * STEP);
        late.ask();
        window.write_at(2 * STEP + 200, &[7; 100]).unwrap();
        assert_eq!((window.ready.end, window.ahead.is_none()), (3 * STEP, true));
        // Somewhere else: what was asked for does not follow what is ready there.
        let ahead = window.ahead_of(3 * STEP - 10).unwrap();
        window.write_at(8 * STEP, &[7; 100]).unwrap();
        ahead.ask();
        window.write_at(8 * STEP + 100, &[7; 100]).unwrap();
        assert_eq!(window.ready, 8 * STEP..9 * STEP);
        // At the end there is nothing ahead.
        window.write_at(MIB - PAGE - 10, &[7; 10]).unwrap();
        assert!(window.ahead_of(MIB - PAGE).is_none());
    }

    #[test]
    fn it_writes_nothing_outside_of_itself() {
        let (_file, Some(mut window)) = window() else { return };
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
        let (file, Some(mut window)) = window() else { return };
        window.write_at(PAGE, b"there").unwrap();
        // As a disk that fails: what was there when the window was made is there no more.
        file.set_len(MIB / 2).unwrap();
        assert!(window.write_at(MIB / 2 + PAGE, b"gone").is_err());
        window.write_at(MIB / 4, b"there").unwrap();
    }
}

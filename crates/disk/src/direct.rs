//! Reads and writes that bypass the page cache, where the system supports them.
//!
//! A file that is larger than memory gains little from the system's cache, and pays for it: each page that is
//! read evicts another one, and written pages wait in memory that others need.
//!
//! Invariant: whether a call bypasses the cache makes no difference to what later reads return, either way.
//! For windows, [`crate::page_exclusion`] ensures this.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls past the cache begin and end on a multiple of this many bytes, in the file and in memory. Most
/// devices need 512.
pub const BLOCK: usize = 4096;

/// Longer reads go through the cache, because the system reads ahead there.
const READ_BYTES_MAX: usize = 256 << 10;

/// A second handle of a file, which bypasses the cache.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    /// Opened with the first call; none where it cannot be opened.
    file: OnceLock<Option<File>>,
    /// Whether the file system opened the file that way, but refuses calls.
    is_refused: AtomicBool,
}

impl Direct {
    /// A handle to another file, which shows what went this way.
    #[cfg(test)]
    pub(crate) fn to(file: File) -> Self {
        Self { file: OnceLock::from(Some(file)), is_refused: AtomicBool::new(false) }
    }

    /// Fills `target` from `offset`, and returns whether that was possible.
    pub(crate) fn read(&self, file: &File, offset: u64, target: &mut [u8]) -> io::Result<bool> {
        thread_local! {
            /// Reads need memory on a block boundary, of whole blocks.
            static BLOCKS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let range = whole_blocks(offset, target.len());
        let len = (range.end - range.start) as usize;
        let Some(direct) = self.file(file).filter(|_| len <= READ_BYTES_MAX) else { return Ok(false) };
        BLOCKS.with_borrow_mut(|room| {
            let blocks = aligned(room, len);
            let skipped = (offset - range.start) as usize;
            let filled = self.unless_refused(fill(direct, range.start, blocks, skipped + target.len()))?;
            // The last block of a file may be incomplete.
            let is_whole = filled.is_some_and(|filled| filled >= skipped + target.len());
            if is_whole {
                target.copy_from_slice(&blocks[skipped..skipped + target.len()]);
            }
            Ok(is_whole)
        })
    }

    /// Writes whole blocks that are aligned in memory and in the file, and returns whether that was possible.
    pub(crate) fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let is_whole = |number: usize| number.is_multiple_of(BLOCK);
        let fits = is_whole(bytes.as_ptr().addr()) && is_whole(bytes.len()) && is_whole(offset as usize);
        let Some(direct) = self.file(file).filter(|_| fits) else { return Ok(false) };
        Ok(self.unless_refused(direct.write_all_at(bytes, offset))?.is_some())
    }

    fn file(&self, file: &File) -> Option<&File> {
        if self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        self.file.get_or_init(|| opened_again(file).ok()).as_ref()
    }

    /// None where the file system refuses such a call; no further one is made then.
    fn unless_refused<T>(&self, done: io::Result<T>) -> io::Result<Option<T>> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.is_refused.store(true, Ordering::Relaxed);
                Ok(None)
            }
            done => done.map(Some),
        }
    }
}

/// The whole blocks around these bytes of a file.
fn whole_blocks(offset: u64, len: usize) -> Range<u64> {
    let block = BLOCK as u64;
    offset / block * block..(offset + len as u64).next_multiple_of(block)
}

/// `len` bytes of `room` that begin on a block boundary.
pub(crate) fn aligned(room: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if room.len() < len + BLOCK {
        room.resize(len + BLOCK, 0);
    }
    let start = room.as_ptr().align_offset(BLOCK);
    &mut room[start..start + len]
}

/// Reads until `enough` bytes are there or the file ends, and returns how many are.
fn fill(file: &File, offset: u64, target: &mut [u8], enough: usize) -> io::Result<usize> {
    let mut filled = 0;
    while filled < enough {
        match file.read_at(&mut target[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // Where the file ends within a block, nothing can be read from there on.
        if !filled.is_multiple_of(BLOCK) {
            break;
        }
    }
    Ok(filled)
}

/// Opens the same file again, past the cache. By its descriptor, because its path may name another file by
/// now.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn opened_again(file: &File) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, fcntl_getfl, open};
    use std::os::fd::AsRawFd;
    let access = fcntl_getfl(file)? & OFlags::ACCMODE;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?.into())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn opened_again(_file: &File) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 100,001 bytes in the folder of the build, which is more likely to lie on a real disk than
    /// others.
    fn file() -> (File, Vec<u8>) {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let bytes: Vec<u8> = (0..100_001_u32).map(|number| (number / 7) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        (file, bytes)
    }

    fn can(file: &File) -> bool {
        let can = opened_again(file).is_ok();
        if !can {
            println!("SKIPPED [direct] the file system of this folder has no way past the cache");
        }
        can
    }

    #[test]
    fn both_ways_see_what_the_other_one_wrote() {
        let (file, mut expected) = file();
        if !can(&file) {
            return;
        }
        let (direct, mut random) = (Direct::default(), fastrand::Rng::with_seed(7));
        let mut room = Vec::new();
        for step in 0..500_u32 {
            let (len, at) = (random.usize(1..20_000), random.usize(..80_000));
            if random.bool() {
                let (block, blocks) = (random.usize(..20), random.usize(1..4));
                let bytes = aligned(&mut room, blocks * BLOCK);
                bytes.fill(step as u8);
                assert!(direct.write(&file, (block * BLOCK) as u64, bytes).unwrap(), "step {step}");
                expected[block * BLOCK..][..blocks * BLOCK].fill(step as u8);
            } else {
                let bytes = vec![step as u8; random.usize(1..5000)];
                file.write_all_at(&bytes, at as u64).unwrap();
                expected[at..][..bytes.len()].copy_from_slice(&bytes);
            }
            let mut found = vec![0; len];
            assert!(direct.read(&file, at as u64, &mut found).unwrap(), "step {step}");
            assert!(found == expected[at..][..len], "step {step}");
        }
        let mut found = vec![0; expected.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == expected);
    }

    #[test]
    fn the_last_bytes_of_a_file_are_read_and_none_behind_them() {
        let (file, expected) = file();
        if !can(&file) {
            return;
        }
        let direct = Direct::default();
        let mut last = [0; 3000];
        assert!(direct.read(&file, 97_001, &mut last).unwrap());
        assert_eq!(last[..], expected[97_001..]);
        assert!(!direct.read(&file, 97_002, &mut last).unwrap(), "one byte is missing");
        assert!(!direct.read(&file, 200_000, &mut last).unwrap());
    }

    #[test]
    fn what_is_no_whole_block_goes_the_other_way() {
        let (file, _) = file();
        let (direct, mut room) = (Direct::default(), Vec::new());
        let bytes = aligned(&mut room, 2 * BLOCK);
        assert!(!direct.write(&file, 512, &bytes[..BLOCK]).unwrap());
        assert!(!direct.write(&file, 0, &bytes[..BLOCK - 1]).unwrap());
        assert!(!direct.write(&file, 0, &bytes[64..BLOCK + 64]).unwrap());
        let mut long = vec![0; READ_BYTES_MAX + 1];
        assert!(!direct.read(&file, 0, &mut long).unwrap());
    }

    /// No file system refuses calls because a test asks it to. But every system refuses an offset beyond the
    /// greatest one, and with the same error.
    const BEYOND: u64 = 1 << 63;

    #[test]
    fn a_file_system_that_refuses_a_call_gets_no_other() {
        let (file, expected) = file();
        let (mut room, mut found) = (Vec::new(), [0; 3000]);
        for is_write in [false, true] {
            let direct = Direct::to(file.try_clone().unwrap());
            assert!(direct.read(&file, 0, &mut found).unwrap());
            let other: io::Result<Option<()>> = direct.unless_refused(Err(io::ErrorKind::StorageFull.into()));
            assert!(other.is_err() && direct.read(&file, 4096, &mut found).unwrap(), "that was no refusal");
            let before = found;
            let refused = match is_write {
                true => direct.write(&file, BEYOND, aligned(&mut room, BLOCK)),
                false => direct.read(&file, BEYOND, &mut found),
            };
            assert!(!refused.unwrap(), "it is no error: the caller goes the other way");
            assert!(!direct.read(&file, 0, &mut found).unwrap());
            assert!(!direct.write(&file, 0, aligned(&mut room, BLOCK)).unwrap());
            assert!(found == before, "what was refused has filled nothing");
        }
        let mut bytes = vec![0; expected.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == expected, "nor written anything");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error() {
        let (file, _) = file();
        if !can(&file) {
            return;
        }
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let read_only = File::open(path).unwrap();
        let mut room = Vec::new();
        assert!(Direct::default().write(&read_only, 0, aligned(&mut room, BLOCK)).is_err());
    }
}

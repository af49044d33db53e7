//! A real file: positioned reads and writes, `fdatasync`, space reserved ahead.
//!
//! What differs by operating system here is in `allocate`, `punch` and `ask_for` at the end of this file. In
//! the rest of this crate it is the module `mapped` of `window.rs` (pages of a file in memory) and
//! `opened_again` of `direct.rs` (a file past the page cache) and `system` of `share.rs` (files that share
//! blocks). Other crates have places of their own: memory
//! in `atoll-buffer` and in `heap.rs` and `hot/memory.rs` of `atoll-engine`; locks, file systems and the
//! identity of processes in `owner` of `atoll-embedded`; clocks in `age.rs` of `atoll-store`; what the doors
//! and the ring ask of the system (limits, sockets, `/proc`) in theirs.
//!
//! Invariant: a file opened with [`Mode::Read`] is never written, not one byte and not one timestamp.
//! Invariant: a file that [`Mode::Create`] made still exists after a power loss, empty or with later
//! contents.

use crate::direct::Direct;
use crate::fault::check_end;
use crate::page_exclusion::PageExclusion;
use crate::{Disk, DiskError, Operation, Window};
use parking_lot::RwLock;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// What the file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading and writing; a missing file is created.
    Create,
    /// Reading and writing; a missing file is an error.
    Write,
    /// Reading only; a missing file is an error.
    Read,
}

/// A file behind the [`Disk`] trait.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    mode: Mode,
    name: String,
    /// Shared by writers, exclusive for growing or cutting the file: zeros written over bytes that another
    /// thread has just written, or a failed growth undone beneath them, would lose those bytes.
    growth: RwLock<()>,
    /// Whether its file system counts the names of a file: a file without a name was then removed.
    has_names: bool,
    direct: Direct,
    exclusion: Arc<PageExclusion>,
}

impl FileDisk {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`DiskError`] with the path.
    pub fn open(path: &Path, mode: Mode) -> Result<Self, DiskError> {
        let name = path.display().to_string();
        let opened = open_file(path, mode).and_then(|file| Ok((has_names(&file)?, file)));
        let (has_names, file) = opened.map_err(|source| DiskError {
            operation: Operation::Open,
            name: name.clone(),
            offset: 0,
            source,
        })?;
        Ok(Self {
            file,
            mode,
            name,
            growth: RwLock::new(()),
            has_names,
            direct: Direct::default(),
            exclusion: Arc::default(),
        })
    }

    fn error(&self, operation: Operation, offset: u64) -> impl FnOnce(io::Error) -> DiskError {
        move |source| DiskError { operation, name: self.name.clone(), offset, source }
    }

    fn check_writable(&self, operation: Operation, offset: u64) -> Result<(), DiskError> {
        if self.mode == Mode::Read {
            let refusal = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened for reading only");
            return Err(self.error(operation, offset)(refusal));
        }
        Ok(())
    }

    /// Refuses a file that was removed: writes to it succeed, but no name leads to them.
    fn check_there(&self) -> io::Result<()> {
        if self.has_names && !has_names(&self.file)? {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the file was removed, with everything written to it",
            ));
        }
        Ok(())
    }

    /// Writes past the cache, and returns whether that was possible.
    fn write_direct(&self, offset: u64, bytes: &[u8]) -> Result<bool, DiskError> {
        let _shared = self.growth.read();
        self.direct.write(&self.file, offset, bytes).map_err(self.error(Operation::Write, offset))
    }

    fn reserve_space(&self, offset: u64, len: u64) -> io::Result<()> {
        let _alone = self.growth.write();
        let before = self.file.metadata()?.len();
        let grown = match allocate(&self.file, offset, len) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                write_zeros(&self.file, before, offset + len)
            }
            outcome => outcome,
        };
        // A growth that fails half-way may leave steps that succeeded, and a failure must change nothing.
        if grown.is_err() && self.file.metadata()?.len() > before {
            self.file.set_len(before)?;
        }
        grown
    }
}

impl Disk for FileDisk {
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.file.read_exact_at(target, offset).map_err(self.error(Operation::Read, offset))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.check_writable(Operation::Write, offset)?;
        check_end(&self.name, Operation::Write, offset, bytes.len() as u64)?;
        let _shared = self.growth.read();
        self.file.write_all_at(bytes, offset).map_err(self.error(Operation::Write, offset))
    }

    fn read_past(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        let done = self.direct.read(&self.file, offset, target);
        if done.map_err(self.error(Operation::Read, offset))? {
            return Ok(());
        }
        self.read_at(offset, target)
    }

    fn write_past(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.check_writable(Operation::Write, offset)?;
        check_end(&self.name, Operation::Write, offset, bytes.len() as u64)?;
        let (mut at, end) = (offset, offset + bytes.len() as u64);
        while at < end {
            let (part, passing) = self.exclusion.first_part(at..end);
            let bytes = &bytes[(part.start - offset) as usize..(part.end - offset) as usize];
            if passing.is_none() || !self.write_direct(at, bytes)? {
                self.write_at(at, bytes)?;
            }
            at = part.end;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.check_writable(Operation::Sync, 0)?;
        let synced = self.file.sync_data().and_then(|()| self.check_there());
        synced.map_err(self.error(Operation::Sync, 0))
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_writable(Operation::Write, offset)?;
        check_end(&self.name, Operation::Write, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        self.reserve_space(offset, len).map_err(self.error(Operation::Write, offset))
    }

    fn truncate(&self, len: u64) -> Result<(), DiskError> {
        self.check_writable(Operation::Resize, len)?;
        let _alone = self.growth.write();
        if self.len()? > len {
            self.file.set_len(len).map_err(self.error(Operation::Resize, len))?;
        }
        Ok(())
    }

    fn release(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_writable(Operation::Resize, offset)?;
        if len == 0 {
            return Ok(());
        }
        match punch(&self.file, offset, len) {
            // Where a file cannot have holes, it keeps its space.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            outcome => outcome.map_err(self.error(Operation::Resize, offset)),
        }
    }

    fn window(&self, offset: u64, len: u64) -> Option<Window> {
        if self.mode == Mode::Read {
            return None;
        }
        let range = offset..offset.checked_add(len)?;
        let guard = self.exclusion.register_window(&range);
        Some(Window::on(&self.file, &self.name, range)?.guarded_by(guard))
    }

    fn will_read(&self, offset: u64, len: u64) {
        ask_for(&self.file, offset, len);
    }

    fn room_bytes(&self) -> Option<u64> {
        let system = rustix::fs::fstatvfs(&self.file).ok()?;
        Some(system.f_bavail.saturating_mul(system.f_frsize))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(self.error(Operation::Resize, 0))
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn open_file(path: &Path, mode: Mode) -> io::Result<File> {
    open_with(path, mode, &mut sync_parent)
}

/// Opens a file; `sync_parent` makes its name durable.
fn open_with(
    path: &Path,
    mode: Mode,
    sync_parent: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<File> {
    match mode {
        Mode::Read => OpenOptions::new().read(true).open(path),
        Mode::Write => OpenOptions::new().read(true).write(true).open(path),
        Mode::Create => match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
            Ok(file) => {
                // The name of a new file is stored in its folder, so the folder must be durable as well.
                file.sync_all()?;
                sync_parent(path)?;
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = open_with(path, Mode::Write, sync_parent)?;
                // Whoever made it may not have come to make its name durable.
                if file.metadata()?.len() == 0 {
                    file.sync_all()?;
                    match sync_parent(path) {
                        // A folder that may not be listed cannot be synced; the file is there all the same.
                        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                        synced => synced?,
                    }
                }
                Ok(file)
            }
            Err(error) => Err(error),
        },
    }
}

/// Whether a file has a name in some folder, as far as its file system can tell.
fn has_names(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() > 0)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => sync_folder(Path::new(".")),
    }
}

/// Makes the names in a folder durable, as they are now.
///
/// # Errors
/// Why the folder cannot be opened or synced. A file system that does not sync folders is no error: there, a
/// name is durable when it is made.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        outcome => outcome,
    }
}

/// Writes zeros up to `to`, which also grows a file on a system that cannot reserve space.
pub(crate) fn write_zeros(file: &File, from: u64, to: u64) -> io::Result<()> {
    static ZEROS: [u8; 128 << 10] = [0; 128 << 10];
    let mut at = from;
    while at < to {
        let piece = (to - at).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..piece as usize], at)?;
        at += piece;
    }
    Ok(())
}

/// Reserves space and grows the file to `offset + len`; `Unsupported` where the file system cannot.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::{Errno, retry_on_intr};
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), offset, len)) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
        Err(error) => Err(error.into()),
    }
}

/// Turns a range into a hole; `Unsupported` where the file system cannot.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::{Errno, retry_on_intr};
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| fallocate(file, flags, offset, len)) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn punch(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn allocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Asks the system to read a range ahead. A refusal is no error: the later read waits instead.
#[cfg(target_os = "linux")]
fn ask_for(file: &File, offset: u64, len: u64) {
    let len = std::num::NonZeroU64::new(len);
    let _ = rustix::fs::fadvise(file, offset, len, rustix::fs::Advice::WillNeed);
}

#[cfg(not(target_os = "linux"))]
fn ask_for(_file: &File, _offset: u64, _len: u64) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::{BLOCK, aligned};

    #[test]
    fn without_reservation_a_file_grows_by_zeros_and_keeps_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let file = open_file(&folder.path().join("store"), Mode::Create).unwrap();
        file.write_all_at(b"reef", 0).unwrap();
        write_zeros(&file, 4, 200_001).unwrap();
        let mut bytes = vec![1; 200_001];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.starts_with(b"reef") && bytes[4..].iter().all(|byte| *byte == 0));
        assert_eq!(file.metadata().unwrap().len(), 200_001);
    }

    #[test]
    fn a_file_gets_a_durable_name_also_where_a_former_attempt_to_make_it_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut fail = |_: &Path| -> io::Result<()> { Err(io::Error::other("planted")) };
        open_with(&path, Mode::Create, &mut fail).unwrap_err();
        assert!(path.exists());
        open_with(&path, Mode::Create, &mut fail).unwrap_err();
        let synced = std::cell::Cell::new(0);
        let mut count = |synced_path: &Path| -> io::Result<()> {
            assert_eq!(synced_path, path);
            synced.set(synced.get() + 1);
            Ok(())
        };
        let file = open_with(&path, Mode::Create, &mut count).unwrap();
        assert_eq!(synced.get(), 1);
        file.write_all_at(b"reef", 0).unwrap();
        open_with(&path, Mode::Create, &mut count).unwrap();
        assert_eq!(synced.get(), 1, "what was written came after the name was durable");
    }

    #[test]
    fn what_the_file_system_refuses_past_the_cache_goes_through_it() {
        let folder = tempfile::tempdir().unwrap();
        let past = tempfile::tempfile().unwrap();
        let mut disk = FileDisk::open(&folder.path().join("store"), Mode::Create).unwrap();
        disk.direct = Direct::to(past.try_clone().unwrap());
        for file in [&disk.file, &past] {
            file.set_len(4 * BLOCK as u64).unwrap();
        }
        let mut room = Vec::new();
        let block = aligned(&mut room, BLOCK);
        block.fill(7);
        let firsts = |file: &File| {
            [0, BLOCK, 2 * BLOCK].map(|at| {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at as u64).unwrap();
                byte[0]
            })
        };
        disk.write_past(0, block).unwrap();
        assert_eq!((firsts(&past), firsts(&disk.file)), ([7, 0, 0], [0, 0, 0]), "past the cache");
        // Every system refuses this offset with the error by which file systems refuse such calls.
        disk.read_past(1 << 63, &mut [0; 10]).unwrap_err();
        disk.write_past(BLOCK as u64, block).unwrap();
        assert_eq!((firsts(&past), firsts(&disk.file)), ([7, 0, 0], [0, 7, 0]), "through it");
        let mut found = [0; 10];
        disk.read_past(BLOCK as u64, &mut found).unwrap();
        assert_eq!(found, [7; 10]);
    }

    #[test]
    fn what_may_share_a_page_with_a_window_goes_through_the_cache() {
        const MIB: usize = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let past = tempfile::tempfile().unwrap();
        let mut disk = FileDisk::open(&folder.path().join("store"), Mode::Create).unwrap();
        disk.direct = Direct::to(past.try_clone().unwrap());
        for file in [&disk.file, &past] {
            file.set_len(12 * MIB as u64).unwrap();
        }
        let is_marked = |file: &File, from: usize, to: usize| {
            let mut found = vec![0; to - from];
            file.read_exact_at(&mut found, from as u64).unwrap();
            let marked = found.iter().filter(|byte| **byte == 7).count();
            assert!(marked == 0 || marked == to - from, "{marked} of {}", to - from);
            marked > 0
        };
        let end = 6 * MIB - BLOCK;
        let Some(window) = disk.window(5 * MIB as u64, (end - 5 * MIB) as u64) else {
            println!("SKIPPED [windows] the file system of the temporary folder has none");
            return;
        };
        let mut room = Vec::new();
        let blocks = aligned(&mut room, 3 * MIB);
        blocks.fill(7);
        disk.write_past(2 * MIB as u64, blocks).unwrap();
        disk.write_past(end as u64, &blocks[..BLOCK]).unwrap();
        disk.write_past(6 * MIB as u64, &blocks[..BLOCK]).unwrap();
        let near = [(4 * MIB, 5 * MIB), (end, 6 * MIB)];
        let far = [(2 * MIB, 4 * MIB), (6 * MIB, 6 * MIB + BLOCK)];
        for (from, to) in near {
            assert!(is_marked(&disk.file, from, to) && !is_marked(&past, from, to), "{from}");
        }
        for (from, to) in far {
            assert!(is_marked(&past, from, to) && !is_marked(&disk.file, from, to), "{from}");
        }
        drop(window);
        disk.write_past(4 * MIB as u64, &blocks[..MIB]).unwrap();
        assert!(is_marked(&past, 4 * MIB, 5 * MIB), "after the window");
    }
}

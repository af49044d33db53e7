//! The two kinds of locks on a folder.
//!
//! [`KernelLock`] is an exclusive `flock` on the folder and on the file `lock` in it, with the owner's record
//! as the content of the file. Both, because a lock on a removed file guards nothing, and other programs may
//! remove a file that seems old; a folder with a store in it stays. [`FileLock`] is the file `owner`: it is
//! created by link and replaced by rename, so it is always whole, and it exists as long as its owner.

use super::decide::Heartbeat;
use super::host::HostIdentity;
use super::record::OwnerRecord;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that carries the kernel's lock.
pub const LOCK_FILE: &str = "lock";
const OWNER_FILE: &str = "owner";

/// The byte that fills the file `lock` while nobody owns the folder.
const BLANK: u8 = b' ';

fn open_lock(folder: &Path) -> io::Result<File> {
    let flags = OFlags::CLOEXEC.bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(folder.join(LOCK_FILE))
}

/// The bytes of the record in the file of the kernel's lock; none if there is no file, or only blanks in it.
pub(super) fn read_kernel_record(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    let bytes = read(&folder.join(LOCK_FILE))?;
    Ok(bytes.filter(|bytes| bytes.iter().any(|byte| *byte != BLANK)))
}

/// The bytes of the lock file; none if there is none.
pub(super) fn read_file_record(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    read(&folder.join(OWNER_FILE))
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The kernel's lock, held until dropped.
#[derive(Debug)]
pub(super) struct KernelLock {
    file: File,
    /// None on file systems where folders cannot be locked.
    folder: Option<File>,
}

impl KernelLock {
    /// Takes the lock; none if another process holds it.
    pub fn take(folder: &Path) -> io::Result<Option<Self>> {
        // The folder first: a process that comes too late must not leave a new lock file that names no owner.
        let opened = File::open(folder)?;
        let folder_lock = match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Some(opened),
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) if is_without_locks(error) => None,
            Err(error) => return Err(error.into()),
        };
        // Older builds lock only the file, so it is locked as well.
        Ok(take_file(folder, flock_file)?.map(|file| Self { file, folder: folder_lock }))
    }

    /// Writes the owner's record. The end of a longer record before it stays in the file, and is ignored.
    pub fn sign(&self, record: &OwnerRecord) -> io::Result<()> {
        self.file.write_all_at(record.encode().as_bytes(), 0)
    }

    /// Blanks the record, so that a copy of the folder names no owner, and unlocks explicitly: otherwise
    /// processes forked from this one would hold the lock for as long as they live. The file keeps its
    /// length, so that the next owner can write its record even if the disk is full.
    pub fn erase(&self) -> io::Result<()> {
        let blanks = self.file.metadata().map(|metadata| vec![BLANK; metadata.len() as usize]);
        let erased = blanks.and_then(|blanks| self.file.write_all_at(&blanks, 0));
        let erased = erased.or_else(|_| self.file.set_len(0));
        for locked in [Some(&self.file), self.folder.as_ref()].into_iter().flatten() {
            flock(locked, FlockOperation::Unlock)?;
        }
        erased
    }
}

/// How long a process that took over without a kernel's lock waits for rivals that do the same at that
/// moment.
const RIVALS_PAUSE: Duration = Duration::from_secs(1);

/// Locks a file without waiting.
type LockFile = fn(&File) -> rustix::io::Result<()>;

fn flock_file(file: &File) -> rustix::io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Whether the error means that the file system has no such locks, or none at the moment.
const fn is_without_locks(error: Errno) -> bool {
    matches!(error, Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Takes the lock on the lock file; none if another process holds it.
fn take_file(folder: &Path, lock: LockFile) -> io::Result<Option<File>> {
    let file = open_lock(folder)?;
    match lock(&file) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether nobody has the lock on an existing lock file that names nobody. An owner has it beside the lock on
/// the folder, which any program can take that may list the folder.
pub(super) fn is_lock_file_free(folder: &Path) -> bool {
    let Ok(file) = OpenOptions::new().read(true).write(true).open(folder.join(LOCK_FILE)) else {
        return false;
    };
    // An owner that begins at this moment finds this lock, and looks again.
    let is_free = flock_file(&file).is_ok();
    // Explicitly, because a process that was forked just now has the file open as well.
    let _ = flock(&file, FlockOperation::Unlock);
    is_free && matches!(read_kernel_record(folder), Ok(None))
}

/// Takes a name that one process of this network namespace can have at a time, and that is freed when the
/// process ends; none if another process has it.
fn take_name(nonce: u64) -> io::Result<Option<UnixDatagram>> {
    match bind_name(&format!("atoll-heir-{nonce:016x}")) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(target_os = "linux")]
fn bind_name(name: &str) -> io::Result<UnixDatagram> {
    use std::os::linux::net::SocketAddrExt;
    UnixDatagram::bind_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)
}

#[cfg(not(target_os = "linux"))]
fn bind_name(_: &str) -> io::Result<UnixDatagram> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The lock file, held by this process until released.
#[derive(Clone, Debug)]
pub(super) struct FileLock {
    path: PathBuf,
    nonce: u64,
}

impl FileLock {
    /// Creates the lock file; none if there is one already.
    pub fn make(folder: &Path, record: &OwnerRecord) -> io::Result<Option<Self>> {
        let path = folder.join(OWNER_FILE);
        let draft = Draft::write(folder, record)?;
        match std::fs::hard_link(&draft.path, &path) {
            Ok(()) => {}
            // A network file system may lose the answer to a link that it made; the link count is reliable.
            Err(_) if std::fs::metadata(&draft.path)?.nlink() == 2 => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(_) => return Self::make_by_rename(&draft, path, record.nonce),
        }
        Ok(Some(Self { path, nonce: record.nonce }))
    }

    /// For file systems without links.
    fn make_by_rename(draft: &Draft, path: PathBuf, nonce: u64) -> io::Result<Option<Self>> {
        let (from, to) = (rustix::fs::CWD, rustix::fs::CWD);
        match rustix::fs::renameat_with(from, &draft.path, to, &path, rustix::fs::RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Some(Self { path, nonce })),
            Err(Errno::EXIST) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the lock file of `dead`; none if the file is not that of `dead` any more, or a rival is
    /// taking over.
    pub fn take_over(folder: &Path, dead: &OwnerRecord, record: &OwnerRecord) -> io::Result<Option<Self>> {
        Self::take_over_by((flock_file, RIVALS_PAUSE), folder, dead, record)
    }

    /// Only processes of one host take over from each other, so exclusion on one host is enough: the kernel's
    /// lock where the file system has it, and a name. Without the lock, processes in several network
    /// namespaces may have the name at once; after a pause, all but the last of them find another record.
    fn take_over_by(
        (lock, pause): (LockFile, Duration),
        folder: &Path,
        dead: &OwnerRecord,
        record: &OwnerRecord,
    ) -> io::Result<Option<Self>> {
        // Both, because either can fail for one process and not for the next.
        let name = match take_name(dead.nonce) {
            Ok(None) => return Ok(None),
            taken => taken,
        };
        let lock = match take_file(folder, lock) {
            Ok(None) => return Ok(None),
            Err(error) if name.is_err() || !Errno::from_io_error(&error).is_some_and(is_without_locks) => {
                return Err(error);
            }
            taken => taken,
        };
        let has_lock = lock.is_ok();
        let now = read_file_record(folder)?.as_deref().and_then(OwnerRecord::decode);
        if now.as_ref() != Some(dead) {
            return Ok(None);
        }
        let path = folder.join(OWNER_FILE);
        let draft = Draft::write(folder, record)?;
        std::fs::rename(&draft.path, &path)?;
        let taken = Self { path, nonce: record.nonce };
        if has_lock {
            return Ok(Some(taken));
        }
        // No event announces a rival in another namespace; this thread may block.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(pause);
        Ok(taken.is_ours()?.then_some(taken))
    }

    /// Renews the heartbeat. False if this process does not hold the lock file any more.
    pub fn beat(&self) -> io::Result<bool> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if !self.is_ours()? {
            return Ok(false);
        }
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        rustix::fs::futimens(&file, &rustix::fs::Timestamps { last_access: now, last_modification: now })?;
        Ok(true)
    }

    fn is_ours(&self) -> io::Result<bool> {
        let record = read(&self.path)?.as_deref().and_then(OwnerRecord::decode);
        Ok(record.is_some_and(|record| record.nonce == self.nonce))
    }

    /// Removes the lock file if this process still holds it.
    pub fn release(&self) -> io::Result<()> {
        if self.is_ours()? { std::fs::remove_file(&self.path) } else { Ok(()) }
    }
}

/// Whether the lock file was touched within `limit`, by the clock of its file system: its time is compared
/// with that of a file created just now.
pub(super) fn heartbeat(folder: &Path, identity: &HostIdentity, limit: Duration) -> io::Result<Heartbeat> {
    let record = OwnerRecord { identity: identity.clone(), socket: None, nonce: new_nonce() };
    let draft = Draft::write(folder, &record)?;
    let now = std::fs::metadata(&draft.path)?.modified()?;
    let beat = match std::fs::metadata(folder.join(OWNER_FILE)) {
        Ok(metadata) => metadata.modified()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Heartbeat::Fresh),
        Err(error) => return Err(error),
    };
    // A heartbeat in the future is no proof of death.
    let age = now.duration_since(beat).unwrap_or_default();
    Ok(if age > limit { Heartbeat::Stale } else { Heartbeat::Fresh })
}

/// A random number, different for every ownership.
pub(super) fn new_nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds each of these with the system's randomness.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

/// A file that is to become the lock file; removed when dropped, unless it was renamed.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn write(folder: &Path, record: &OwnerRecord) -> io::Result<Self> {
        let draft = Self { path: folder.join(format!("{OWNER_FILE}.{:016x}", record.nonce)) };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft.path)?;
        // Closing it makes it visible to other hosts. It need not survive a loss of power, because its owner
        // does not.
        file.write_all(record.encode().as_bytes())?;
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It was renamed already, or the file that stays does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(nonce: u64) -> OwnerRecord {
        OwnerRecord { identity: HostIdentity::of_this_process(), socket: None, nonce }
    }

    fn owner(folder: &Path) -> Option<u64> {
        Some(OwnerRecord::decode(&read_file_record(folder).unwrap()?).unwrap().nonce)
    }

    #[test]
    fn of_many_who_make_a_lock_file_at_once_one_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let made: usize = std::thread::scope(|scope| {
            let path = folder.path();
            let threads: Vec<_> = (0..16)
                .map(|nonce| scope.spawn(move || FileLock::make(path, &record(nonce)).unwrap().is_some()))
                .collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(made, 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "drafts are left");
    }

    fn check_takeovers(lock: LockFile) {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let dead = record(new_nonce());
            FileLock::make(folder.path(), &dead).unwrap().unwrap();
            let taken: Vec<u64> = std::thread::scope(|scope| {
                let (path, dead) = (folder.path(), &dead);
                let take = move |nonce| {
                    FileLock::take_over_by((lock, Duration::ZERO), path, dead, &record(nonce))
                        .unwrap()
                        .map(|_| nonce)
                };
                let threads: Vec<_> = (0..8).map(|nonce| scope.spawn(move || take(nonce))).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(taken.len(), 1);
            assert_eq!(owner(folder.path()), Some(taken[0]));
        }
    }

    #[test]
    fn of_many_who_take_over_from_the_dead_one_succeeds_and_stays() {
        check_takeovers(flock_file);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_dead_are_followed_where_the_file_system_has_no_locks_too() {
        check_takeovers(|_| Err(Errno::NOSYS));
    }

    #[test]
    fn an_owner_notices_that_its_lock_file_is_gone_and_never_removes_anothers() {
        let folder = tempfile::tempdir().unwrap();
        let first = record(new_nonce());
        let lock = FileLock::make(folder.path(), &first).unwrap().unwrap();
        assert!(lock.beat().unwrap());
        FileLock::take_over(folder.path(), &first, &record(2)).unwrap().unwrap();
        assert!(!lock.beat().unwrap());
        lock.release().unwrap();
        assert_eq!(owner(folder.path()), Some(2));
    }

    #[test]
    fn a_heartbeat_is_judged_by_the_clock_of_the_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FileLock::make(folder.path(), &record(1)).unwrap().unwrap();
        let judged =
            || heartbeat(folder.path(), &HostIdentity::of_this_process(), Duration::from_secs(30)).unwrap();
        assert_eq!(judged(), Heartbeat::Fresh);
        let file = File::open(folder.path().join(OWNER_FILE)).unwrap();
        let then = file.metadata().unwrap().modified().unwrap() - Duration::from_secs(40);
        file.set_modified(then).unwrap();
        assert_eq!(judged(), Heartbeat::Stale);
        assert!(lock.beat().unwrap());
        assert_eq!(judged(), Heartbeat::Fresh);
    }

    #[test]
    fn an_owner_that_ends_leaves_room_for_the_name_of_the_next_and_names_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK_FILE);
        for nonce in 1..=2 {
            let lock = KernelLock::take(folder.path()).unwrap().unwrap();
            lock.sign(&record(nonce)).unwrap();
            let signed = read_kernel_record(folder.path()).unwrap().unwrap();
            assert_eq!(OwnerRecord::decode(&signed), Some(record(nonce)));
            lock.erase().unwrap();
            assert_eq!(read_kernel_record(folder.path()).unwrap(), None);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), signed.len() as u64);
        }
    }

    #[test]
    fn the_kernels_lock_is_exclusive_and_ends_with_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let lock = KernelLock::take(folder.path()).unwrap().unwrap();
        assert!(KernelLock::take(folder.path()).unwrap().is_none());
        drop(lock);
        assert!(KernelLock::take(folder.path()).unwrap().is_some());
    }
}

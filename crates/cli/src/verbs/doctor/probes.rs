//! The doctor's probes: each tries the feature itself, in a scratch folder of its own.

use crate::Failure;
use crate::verbs::doctor::file_systems::{FileSystem, file_system};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, statfs};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of synced writes in a measurement.
const SYNCS: usize = 32;

/// Number of names to try for the scratch folder.
const NAMES: usize = 16;

/// The folder to examine: the path itself, or its nearest ancestor that exists.
pub(super) struct Folder {
    path: PathBuf,
    asked: PathBuf,
}

impl Folder {
    pub(super) fn nearest(place: &Path) -> Result<Self, Failure> {
        let failure =
            |source| Failure::File { action: "look at", place: place.display().to_string(), source };
        let absolute = std::path::absolute(place).map_err(failure)?;
        let there = absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        if !there.is_dir() {
            return Err(Failure::Usage {
                problem: format!("{} is a file, but a store is a folder", there.display()),
                hint: "name a folder, which need not exist yet".to_owned(),
            });
        }
        let path = there.to_path_buf();
        Ok(Self { path, asked: absolute })
    }

    /// The path that was asked about, if it does not exist and this is only its nearest ancestor.
    pub(super) fn asked(&self) -> Option<String> {
        (self.asked != self.path).then(|| self.asked.display().to_string())
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn file_system(&self) -> io::Result<FileSystem> {
        // The numbers have 32 bits; some kernels return them sign-extended.
        Ok(file_system((statfs(&self.path)?.f_type as u64 & u64::from(u32::MAX)) as u32))
    }

    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let space = rustix::fs::statvfs(&self.path)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

/// A folder of our own that is removed when this value is dropped.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it cannot be removed, a few kilobytes stay behind and nothing else.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// How long syncs took.
pub(super) struct SyncTimes {
    pub(super) median: Duration,
    pub(super) worst: Duration,
    pub(super) count: usize,
}

impl Scratch {
    pub(super) fn make(folder: &Folder) -> io::Result<Self> {
        // The standard library seeds each of these with the system's randomness.
        let random = || RandomState::new().build_hasher().finish();
        Self::make_as(&folder.path, || format!(".atoll-doctor-{}-{:016x}", std::process::id(), random()))
    }

    /// Makes a folder of the first of some names that is free: a process that was killed may have left one of
    /// its own, and another user of the folder may have taken one in order to be in the way.
    fn make_as(folder: &Path, name: impl Fn() -> String) -> io::Result<Self> {
        for _ in 0..NAMES {
            let path = folder.join(name());
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self { path }),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Whether a lock excludes a second one.
    pub(super) fn locks_exclude(&self) -> io::Result<bool> {
        let path = self.path.join("lock");
        let first = File::create(&path)?;
        flock(&first, FlockOperation::NonBlockingLockExclusive)?;
        let second = File::open(&path)?;
        Ok(flock(&second, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    pub(super) fn links(&self) -> io::Result<()> {
        let (first, second, third) =
            (self.path.join("first"), self.path.join("second"), self.path.join("third"));
        File::create(&first)?;
        fs::hard_link(&first, &second)?;
        fs::rename(&second, third)
    }

    pub(super) fn socket(&self) -> io::Result<()> {
        std::os::unix::net::UnixListener::bind(self.path.join("socket")).map(drop)
    }

    pub(super) fn direct(&self) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT;
        open(self.path.join("direct"), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(())
    }

    // Measuring needs the real clock.
    #[allow(clippy::disallowed_methods)]
    pub(super) fn sync_times(&self) -> io::Result<SyncTimes> {
        let mut file = File::create(self.path.join("sync"))?;
        let mut times = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            file.write_all(&[0x5a; 4096])?;
            let started = Instant::now();
            file.sync_data()?;
            times.push(started.elapsed());
        }
        times.sort_unstable();
        let (median, worst) = (times[SYNCS / 2], times[SYNCS - 1]);
        Ok(SyncTimes { median, worst, count: SYNCS })
    }
}

/// The memory of the machine.
pub(super) fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The memory limit of the control group, if it is lower.
pub(super) fn memory_limit_bytes() -> Option<u64> {
    let places = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit =
        places.into_iter().find_map(|place| fs::read_to_string(place).ok()?.trim().parse::<u64>().ok())?;
    memory_bytes().filter(|total| limit < *total).map(|_| limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn names_that_are_taken_are_left_alone_and_none_is_the_same_twice() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("0"), "another's").unwrap();
        fs::create_dir(place.path().join("1")).unwrap();
        let number = Cell::new(0);
        let scratch =
            Scratch::make_as(place.path(), || number.replace(number.get() + 1).to_string()).unwrap();
        assert_eq!(scratch.path, place.path().join("2"));
        drop(scratch);
        assert!(Scratch::make_as(place.path(), || "0".to_owned()).is_err());
        assert!(place.path().join("0").exists() && place.path().join("1").exists());
        let folder = Folder { path: place.path().to_owned(), asked: place.path().to_owned() };
        let (first, second) = (Scratch::make(&folder).unwrap(), Scratch::make(&folder).unwrap());
        assert_ne!(first.path, second.path);
    }
}

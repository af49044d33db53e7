//! Looks at a folder, decides, acts, and looks again, until the role of this process is settled.
//!
//! Invariant: the socket listens before the record names it, so any process that reads the record can
//! connect; its requests wait there until the store is open.

use super::OwnerError;
use super::decide::{Decision, Heartbeat, Host, Lock, Mode, Observed, Owner, Process, Socket, decide};
use super::file_system::{FileSystem, Locking};
use super::held::{HeldLock, Ownership, Spawn, beat_on, spawn_heartbeat};
use super::host::HostIdentity;
use super::lock::{
    FileLock, KernelLock, LOCK_FILE, heartbeat, is_lock_file_free, new_nonce, read_file_record,
    read_kernel_record,
};
use super::record::OwnerRecord;
use super::socket;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// How ownership is acquired.
#[derive(Clone, Debug)]
pub struct OwnerOptions {
    /// How long to wait for an owner that is about to begin or to end.
    pub patience: Duration,
    /// Forces a kind of locking; the kind that the file system needs for none.
    pub locking: Option<Locking>,
    /// Folders for a socket that cannot lie beside the store's folder; the first one that works is used.
    pub run_time_folders: Vec<PathBuf>,
    /// How often an owner touches its lock file.
    pub heartbeat_every: Duration,
    /// How long a lock file from before this host's last start must go untouched to count as stale.
    pub heartbeat_limit: Duration,
    /// The identity of this process.
    pub identity: HostIdentity,
}

impl Default for OwnerOptions {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            locking: None,
            run_time_folders: socket::run_time_folders(),
            heartbeat_every: Duration::from_secs(5),
            heartbeat_limit: Duration::from_secs(30),
            identity: HostIdentity::of_this_process(),
        }
    }
}

/// Whether a connection failed because nobody listens at the socket, or it does not exist.
fn is_of_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// The role of this process for the folder.
#[derive(Debug)]
pub enum Settled {
    /// Its owner.
    Owner(Ownership),
    /// Attached to its owner by this connection.
    Attached(UnixStream, OwnerRecord),
    /// A reader of the last state on disk.
    ReadOnly,
}

/// Settles the role of this process for `folder`, which must exist. Runs on a Tokio runtime with its timer
/// enabled.
///
/// # Errors
/// [`OwnerError`], which names the owner if there is one that cannot be reached.
pub async fn settle(folder: &Path, mode: Mode, options: &OwnerOptions) -> Result<Settled, OwnerError> {
    let folder = folder.canonicalize().map_err(io_error("find", folder))?;
    let until = tokio::time::Instant::now() + options.patience;
    let mut pause = Duration::from_millis(1);
    loop {
        let has_time = tokio::time::Instant::now() < until;
        let (folder, options) = (folder.clone(), options.clone());
        let attempt = Attempt { folder, mode, options, spawn: spawn_heartbeat };
        match tokio::task::spawn_blocking(move || attempt.run(has_time)).await {
            Ok(Ok(Some(settled))) => return Ok(settled),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                return Err(io_error("look at", Path::new("the folder"))(io::ErrorKind::Interrupted.into()));
            }
        }
        // No event announces that another process is about to write its record; a start takes a millisecond
        // or two.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> OwnerError {
    move |source| OwnerError::Io { action, path: path.to_owned(), source }
}

struct Attempt {
    folder: PathBuf,
    mode: Mode,
    options: OwnerOptions,
    spawn: Spawn,
}

impl Attempt {
    /// One look at the folder; none if another look is needed.
    fn run(&self, has_time: bool) -> Result<Option<Settled>, OwnerError> {
        match self.look(has_time) {
            // A process that may read the store but not its lock runs as another user, whom the owner would
            // not answer.
            Err(OwnerError::Io { source, .. })
                if self.mode == Mode::Read && source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Ok(Some(Settled::ReadOnly))
            }
            other => other,
        }
    }

    fn look(&self, has_time: bool) -> Result<Option<Settled>, OwnerError> {
        let wrong = io_error("lock", &self.folder);
        let locking = self.locking()?;
        let foreign = self.foreign(locking).map_err(&wrong)?;
        let asks_kernel = self.mode == Mode::Write && locking == Locking::Kernel && foreign.is_none();
        let kernel = if asks_kernel { KernelLock::take(&self.folder).map_err(&wrong)? } else { None };
        let lock = match &kernel {
            Some(_) => Lock::Ours,
            None if asks_kernel => Lock::Taken,
            None => Lock::NotAsked,
        };
        let (owner, record) = match foreign {
            Some(foreign) => foreign,
            None => self.owner(locking).map_err(&wrong)?,
        };
        let mut seen = Observed { mode: self.mode, lock, owner, socket: Socket::Untried, has_time };
        let (mut connection, mut is_deaf) = (None, false);
        loop {
            match decide(seen) {
                Decision::Own => return self.own(Guard::Kernel, kernel).map(Some).or_else(again),
                Decision::Make => return self.own(Guard::New, None).map(Some).or_else(again),
                Decision::TakeOver => return self.own(Guard::Dead(record), None).map(Some).or_else(again),
                Decision::Connect => {
                    let socket = record.as_ref().and_then(|record| record.socket.as_deref());
                    let connected = socket.map(|socket| socket::connect(&self.folder, socket));
                    // Any other obstacle would still be there once the owner has ended.
                    is_deaf = matches!(&connected, Some(Err(error)) if is_of_nobody(error));
                    connection = connected.and_then(Result::ok);
                    seen.socket = if connection.is_some() { Socket::Answers } else { Socket::Silent };
                }
                Decision::Attach => {
                    return Ok(connection
                        .zip(record)
                        .map(|(stream, record)| Settled::Attached(stream, record)));
                }
                Decision::ReadOnly => return Ok(Some(Settled::ReadOnly)),
                Decision::LookAgain => return Ok(None),
                Decision::Refuse => return Err(self.refusal(lock, record, is_deaf)),
            }
        }
    }

    fn locking(&self) -> Result<Locking, OwnerError> {
        match self.options.locking {
            Some(locking) => Ok(locking),
            None => FileSystem::of(&self.folder)
                .map(|file_system| file_system.locking)
                .map_err(io_error("look at", &self.folder)),
        }
    }

    /// The owner by the other kind of lock, unless it is proved dead. A folder can be local to one host and
    /// shared for another, so each must respect the other's kind of lock.
    fn foreign(&self, locking: Locking) -> io::Result<Option<(Owner, Option<OwnerRecord>)>> {
        let bytes = match locking {
            Locking::Kernel => read_file_record(&self.folder)?,
            Locking::File => read_kernel_record(&self.folder)?,
        };
        let Some(record) = bytes.as_deref().and_then(OwnerRecord::decode) else { return Ok(None) };
        if self.is_gone(&record, locking)? {
            return Ok(None);
        }
        let host = self.options.identity.host_of(&record);
        Ok(Some((Owner::Named(host, Process::Alive, Heartbeat::Fresh), Some(record))))
    }

    /// Whether the owner by the other kind of lock than `locking` is dead. A lock file that this machine left
    /// before its restart must also have no heartbeat, as it must where every process uses lock files. A
    /// reader skips that check, because it does no harm.
    fn is_gone(&self, record: &OwnerRecord, locking: Locking) -> io::Result<bool> {
        let OwnerOptions { identity, heartbeat_limit, .. } = &self.options;
        if identity.host_of(record) != Host::BeforeRestart || self.mode == Mode::Read {
            return Ok(identity.process_of(record) == Process::Dead);
        }
        Ok(match locking {
            Locking::Kernel => heartbeat(&self.folder, identity, *heartbeat_limit)? == Heartbeat::Stale,
            Locking::File => true,
        })
    }

    fn owner(&self, locking: Locking) -> io::Result<(Owner, Option<OwnerRecord>)> {
        let bytes = match locking {
            Locking::Kernel => read_kernel_record(&self.folder)?,
            Locking::File => read_file_record(&self.folder)?,
        };
        let Some(bytes) = bytes else { return Ok((Owner::Nobody, None)) };
        let Some(record) = OwnerRecord::decode(&bytes) else { return Ok((Owner::Unreadable, None)) };
        let identity = &self.options.identity;
        let host = identity.host_of(&record);
        let process = identity.process_of(&record);
        // Asked only where it matters, because reading the clock of the file system takes a write to it.
        let asks_time = self.mode == Mode::Write && locking == Locking::File && host == Host::BeforeRestart;
        let beat = if asks_time {
            heartbeat(&self.folder, identity, self.options.heartbeat_limit)?
        } else {
            Heartbeat::Fresh
        };
        Ok((Owner::Named(host, process, beat), Some(record)))
    }

    fn refusal(&self, lock: Lock, record: Option<OwnerRecord>, is_deaf: bool) -> OwnerError {
        let folder = self.folder.clone();
        match record {
            Some(record) if lock == Lock::Taken && self.options.identity.has_ended(&record) => {
                OwnerError::Inherited { folder, pid: record.identity.pid }
            }
            Some(record) => {
                let is_ending = is_deaf && self.options.identity.is_awake(&record);
                let HostIdentity { host, pid, .. } = record.identity;
                OwnerError::Owned { folder, host, pid, is_ending }
            }
            None if lock == Lock::Taken && !folder.join(LOCK_FILE).exists() => OwnerError::Unnamed { folder },
            None if lock == Lock::Taken && is_lock_file_free(&folder) => OwnerError::Foreign { folder },
            None if lock == Lock::Taken => OwnerError::Garbled { folder },
            None => OwnerError::Unreadable { folder },
        }
    }

    /// Becomes the owner. If another process gets the lock file first, the error is of kind would-block.
    fn own(&self, guard: Guard, kernel: Option<KernelLock>) -> Result<Settled, OwnerError> {
        let nonce = new_nonce();
        let wrong = io_error("listen beside", &self.folder);
        let name = if kernel.is_some() { socket::Name::Beside(nonce) } else { socket::Name::Apart(nonce) };
        let (listener, socket) =
            socket::listen(&self.folder, name, &self.options.run_time_folders).map_err(wrong)?;
        let identity = self.options.identity.clone();
        let record = OwnerRecord { identity, socket: Some(socket.path().to_owned()), nonce };
        let lock = self.sign(guard, kernel, &record);
        let lock = lock.inspect_err(|_| socket.remove()).map_err(io_error("lock", &self.folder))?;
        // Signs first and looks second, so that of two processes with different kinds of lock at least one
        // sees the other.
        let locking = if matches!(lock, HeldLock::Kernel(_)) { Locking::Kernel } else { Locking::File };
        if !matches!(self.foreign(locking), Ok(None)) {
            socket.remove();
            lock.release().map_err(io_error("unlock", &self.folder))?;
            return Err(io_error("lock", &self.folder)(io::ErrorKind::WouldBlock.into()));
        }
        let (stop, lost) = match &lock {
            HeldLock::Kernel(_) => (None, watch::channel(false).1),
            HeldLock::File(lock) => {
                let OwnerOptions { heartbeat_every: every, heartbeat_limit: limit, .. } = self.options;
                let beating = beat_on(lock.clone(), every, limit / 3 * 2, self.spawn);
                let (stop, lost) = beating
                    .inspect_err(|_| {
                        socket.remove();
                        // Otherwise it would name a living process, this one, that is not an owner.
                        if let Err(error) = lock.release() {
                            tracing::warn!(%error, "the name of a process that is not an owner stays on the folder");
                        }
                    })
                    // Wrapped, because the error for no thread left is would-block too, which would mean that
                    // a rival was quicker.
                    .map_err(|error| io_error("keep the heartbeat of", &self.folder)(io::Error::other(error)))?;
                (Some(stop), lost)
            }
        };
        Ok(Settled::Owner(Ownership { listener: Some(listener), socket, lock, record, stop, lost }))
    }

    fn sign(&self, guard: Guard, kernel: Option<KernelLock>, record: &OwnerRecord) -> io::Result<HeldLock> {
        let lock = match (guard, kernel) {
            (Guard::Kernel, Some(lock)) => {
                lock.sign(record)?;
                return Ok(HeldLock::Kernel(lock));
            }
            (Guard::Dead(Some(dead)), _) => FileLock::take_over(&self.folder, &dead, record)?,
            _ => FileLock::make(&self.folder, record)?,
        };
        lock.map(HeldLock::File).ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

/// How the lock is acquired.
enum Guard {
    Kernel,
    New,
    Dead(Option<OwnerRecord>),
}

/// Looks again if another process was quicker.
fn again(error: OwnerError) -> Result<Option<Settled>, OwnerError> {
    match &error {
        OwnerError::Io { source, .. } if source.kind() == io::ErrorKind::WouldBlock => Ok(None),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;

    fn no_thread(_: Box<dyn FnOnce() + Send>) -> io::Result<std::thread::JoinHandle<()>> {
        // The error that the system gives when no thread is left.
        Err(io::ErrorKind::WouldBlock.into())
    }

    #[test]
    fn a_program_that_locks_the_folder_alone_is_not_told_as_an_owner() {
        let folder = tempfile::tempdir().unwrap();
        let options = OwnerOptions { locking: Some(Locking::Kernel), ..OwnerOptions::default() };
        let attempt = || {
            let (folder, options) = (folder.path().to_owned(), options.clone());
            Attempt { folder, mode: Mode::Write, options, spawn: spawn_heartbeat }.run(false)
        };
        let refused = || attempt().unwrap_err();
        let former = KernelLock::take(folder.path()).unwrap().unwrap();
        // An owner whose name is gone.
        let told = refused();
        assert!(matches!(told, OwnerError::Garbled { .. }), "{told}");
        former.erase().unwrap();
        drop(former);
        // A program of anybody who may list the folder.
        let other = File::open(folder.path()).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        let told = refused();
        assert!(matches!(told, OwnerError::Foreign { .. }), "{told}");
        let told = atoll_store::StoreError::from(told).to_string();
        assert!(told.contains("chmod 700"), "{told}");
        // Its lock file says that somebody began meanwhile, who is not known.
        std::fs::write(folder.path().join(LOCK_FILE), "?").unwrap();
        assert!(matches!(refused(), OwnerError::Garbled { .. }));
        std::fs::write(folder.path().join(LOCK_FILE), "").unwrap();
        drop(other);
        let owned = attempt();
        assert!(matches!(owned, Ok(Some(Settled::Owner(_)))), "{owned:?}");
    }

    #[test]
    fn a_heartbeat_that_cannot_begin_leaves_no_name_and_no_socket_behind() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("store");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(outer.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let run_time_folders = vec![outer.path().to_owned()];
        let options =
            OwnerOptions { locking: Some(Locking::File), run_time_folders, ..OwnerOptions::default() };
        let attempt =
            |spawn| Attempt { folder: folder.clone(), mode: Mode::Write, options: options.clone(), spawn };
        let refused = attempt(no_thread).run(true);
        assert!(
            matches!(refused, Err(OwnerError::Io { action: "keep the heartbeat of", .. })),
            "{refused:?}"
        );
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "a name is left");
        assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1, "a socket is left");
        let owned = attempt(spawn_heartbeat).run(true);
        assert!(matches!(owned, Ok(Some(Settled::Owner(_)))), "{owned:?}");
    }
}

//! The owner's socket: where it lies, and which users may be at its ends.
//!
//! Invariant: a socket lies beside the folder, or in a folder that only this user can enter.
//! Invariant: a socket at which another process listens is never removed. A folder that is moved while it is
//! owned leaves its socket under a name that another folder may have by then, and other programs may use such
//! names too.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest path of a socket in bytes, its final zero included.
const SOCKET_PATH_BYTES: usize = 108;

/// How long the socket of a killed process may outlive its lock.
const KILLED_TIME: Duration = Duration::from_millis(50);

/// How long to wait while the owner's queue of connections is full, because many may come at once.
const CONNECT_TIME: Duration = Duration::from_millis(250);

/// Folders for sockets that cannot lie beside their store: the session's, or one in the temporary folder.
#[must_use]
#[allow(clippy::disallowed_methods)] // The only reader of the environment.
pub fn run_time_folders() -> Vec<PathBuf> {
    let session = std::env::var("XDG_RUNTIME_DIR").ok().map(PathBuf::from);
    let own = std::env::temp_dir().join(own_name());
    session.into_iter().chain([own]).collect()
}

/// Where a socket may lie; the number is the ownership's nonce.
#[derive(Clone, Copy)]
pub(super) enum Name {
    /// Beside the folder, because this process holds its lock; apart if that is not possible.
    Beside(u64),
    /// Under a name of its own, because this process does not hold the lock yet, and others may listen as
    /// well.
    Apart(u64),
}

/// Listens on a socket for `folder` that only this user can reach, and returns it with its file.
pub(super) fn listen(
    folder: &Path,
    name: Name,
    run_time_folders: &[PathBuf],
) -> io::Result<(UnixListener, SocketFile)> {
    let (Name::Beside(nonce) | Name::Apart(nonce)) = name;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "there is no folder for sockets");
    if matches!(name, Name::Beside(_)) {
        match bind(&beside(folder)) {
            Ok(bound) => return Ok(bound),
            Err(error) => failure = error,
        }
    }
    for run_time_folder in run_time_folders {
        match bind_in(run_time_folder, nonce) {
            Ok(bound) => return Ok(bound),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Listens in a run-time folder, or beside the one in the temporary folder if another user took its name,
/// which can be foreseen, and which everybody may make there.
fn bind_in(folder: &Path, nonce: u64) -> io::Result<(UnixListener, SocketFile)> {
    let name = format!("atoll-{nonce:016x}.socket");
    let refused = match private(folder) {
        Ok(()) => return bind(&folder.join(name)),
        Err(refused) => refused,
    };
    if folder.file_name() != Some(OsStr::new(&own_name())) {
        return Err(refused);
    }
    let mut own = OsString::from(folder);
    own.push(format!("-{nonce:016x}"));
    let own = PathBuf::from(own);
    if std::fs::DirBuilder::new().mode(0o700).create(&own).is_err() {
        return Err(refused);
    }
    match bind(&own.join(name)) {
        Ok((listener, file)) => Ok((listener, SocketFile { folder: Some(own), ..file })),
        Err(error) => {
            // An empty folder that stays does no harm.
            let _ = std::fs::remove_dir(&own);
            Err(error)
        }
    }
}

/// The name of this user's folder in the temporary folder.
fn own_name() -> String {
    format!("atoll-{}", rustix::process::geteuid().as_raw())
}

fn beside(folder: &Path) -> PathBuf {
    let mut path = OsString::from(folder);
    path.push(".socket");
    path.into()
}

fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    if path.as_os_str().len() >= SOCKET_PATH_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is too long for a socket"));
    }
    // The name belongs to this process, by the lock or by the nonce, so a socket there at which nobody
    // listens was left by a dead owner.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket && is_left_behind(path)? {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile { path: path.to_owned(), made: Made::of(path)?, folder: None };
    // Other users cannot connect before this either: the server checks the user of its peer.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}

/// Whether nobody listens at a socket, at once or after a moment: when a process is killed, its lock may go
/// before its socket does. A connection that waits in its queue then ends.
fn is_left_behind(path: &Path) -> io::Result<bool> {
    let Some(probe) = probe(path)? else { return Ok(true) };
    probe.set_nonblocking(false)?;
    probe.set_read_timeout(Some(KILLED_TIME))?;
    let heard = (&probe).read(&mut [0]);
    let is_alive =
        heard.is_err_and(|error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut));
    Ok(!is_alive && self::probe(path)?.is_none())
}

/// Connects without waiting for a busy listener; none if nobody listens.
fn probe(path: &Path) -> io::Result<Option<UnixStream>> {
    let socket = socket(SocketFlags::NONBLOCK)?;
    let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
    Ok((connected != Err(Errno::CONNREFUSED)).then(|| socket.into()))
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// The file of a socket that this process listens at.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    made: Made,
    /// The folder that was made for this socket alone.
    folder: Option<PathBuf>,
}

impl SocketFile {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, unless another file has its name by now, and the folder that was made for it.
    pub fn remove(&self) {
        if Made::of(&self.path).is_ok_and(|made| made == self.made) {
            // If it stays, the next owner replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
        if let Some(folder) = &self.folder {
            // An empty folder that stays does no harm, and one with something in it is kept.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Tells a file from all that had its name or its inode number before. Writing to a socket does not change
/// the file's modification time, so it is that of its creation.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    device: u64,
    number: u64,
    at: (i64, i64),
}

impl Made {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        let at = (metadata.mtime(), metadata.mtime_nsec());
        Ok(Self { device: metadata.dev(), number: metadata.ino(), at })
    }
}

/// Makes sure that `folder` is a real folder that only this user can enter.
fn private(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = std::fs::symlink_metadata(folder)?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if metadata.is_dir() && is_ours && metadata.mode() & 0o077 == 0 {
        return Ok(());
    }
    let problem = format!("{} is not a folder that only this user can enter", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Connects to the owner, if its process runs as this user, as the folder's user or as the superuser. The
/// connection is bounded in time: a suspended owner accepts none, and then its queue may be full.
pub(super) fn connect(folder: &Path, socket: &Path) -> io::Result<UnixStream> {
    let connecting = self::socket(SocketFlags::empty())?;
    sockopt::set_socket_timeout(&connecting, sockopt::Timeout::Send, Some(CONNECT_TIME))?;
    rustix::net::connect(&connecting, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(connecting);
    let uid = sockopt::socket_peercred(&stream)?.uid.as_raw();
    let folder_uid = std::fs::metadata(folder)?.uid();
    if ![rustix::process::geteuid().as_raw(), folder_uid, 0].contains(&uid) {
        let problem = format!("the socket {} is served by another user", socket.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_lies_beside_the_folder_and_only_its_user_can_reach_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("store");
        std::fs::create_dir(&folder).unwrap();
        let (_listener, file) = listen(&folder, Name::Beside(1), &[]).unwrap();
        assert_eq!(file.path(), place.path().join("store.socket"));
        assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        connect(&folder, file.path()).unwrap();
    }

    #[test]
    fn a_long_path_moves_the_socket_to_the_run_time_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("x".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let run_time = place.path().join("run");
        let (_listener, file) = listen(&folder, Name::Beside(7), std::slice::from_ref(&run_time)).unwrap();
        assert_eq!(file.path(), run_time.join("atoll-0000000000000007.socket"));
        assert_eq!(std::fs::metadata(&run_time).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_run_time_folder_that_others_can_enter_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let folder = place.path().join("x".repeat(120));
        assert!(listen(&folder, Name::Beside(7), &[place.path().to_owned()]).is_err());
        let link = place.path().join("link");
        std::os::unix::fs::symlink("/root", &link).unwrap();
        assert!(private(&link).is_err());
    }

    #[test]
    fn a_name_in_the_temporary_folder_that_somebody_took_keeps_no_user_from_sharing() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("x".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let taken = place.path().join(own_name());
        std::fs::create_dir(&taken).unwrap();
        std::fs::set_permissions(&taken, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (_listener, file) = listen(&folder, Name::Beside(7), std::slice::from_ref(&taken)).unwrap();
        let own = place.path().join(format!("{}-0000000000000007", own_name()));
        assert_eq!(file.path(), own.join("atoll-0000000000000007.socket"));
        assert_eq!(std::fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        connect(&folder, file.path()).unwrap();
        // A folder that is there already, whoever made it, is not used.
        let again = listen(&folder, Name::Apart(7), std::slice::from_ref(&taken));
        assert!(again.is_err(), "{again:?}");
        file.remove();
        assert!(!own.exists() && taken.exists());
    }

    #[test]
    fn the_socket_of_a_dead_owner_is_replaced_and_anything_else_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("store");
        drop(listen(&folder, Name::Beside(1), &[]).unwrap());
        let (again, file) = listen(&folder, Name::Beside(2), &[]).unwrap();
        drop(again);
        let path = file.path();
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, "somebody's notes").unwrap();
        file.remove();
        assert!(listen(&folder, Name::Beside(3), &[]).is_err());
        assert_eq!(std::fs::read_to_string(path).unwrap(), "somebody's notes");
    }

    #[test]
    fn who_connects_does_not_wait_for_one_who_takes_nobody() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("store");
        std::fs::create_dir(&folder).unwrap();
        let (listener, file) = listen(&folder, Name::Beside(1), &[]).unwrap();
        // A queue with room for one.
        rustix::net::listen(&listener, 0).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let socket = file.path().to_owned();
        std::thread::spawn(move || {
            let first = connect(&folder, &socket);
            let second = connect(&folder, &socket);
            let _ = tell.send((first.is_ok(), second.map(|_| ()).map_err(|error| error.kind())));
        });
        let connected = told.recv_timeout(Duration::from_secs(10));
        assert_eq!(connected, Ok((true, Err(io::ErrorKind::WouldBlock))));
    }

    #[test]
    fn a_socket_that_somebody_listens_at_is_left_to_him() {
        let place = tempfile::tempdir().unwrap();
        let (folder, run_time) = (place.path().join("store"), place.path().join("run"));
        let others = place.path().join("store.socket");
        let listener = UnixListener::bind(&others).unwrap();
        let (_ours, file) = listen(&folder, Name::Beside(7), std::slice::from_ref(&run_time)).unwrap();
        assert_eq!(file.path(), run_time.join("atoll-0000000000000007.socket"));
        let _client = UnixStream::connect(&others).unwrap();
        listener.accept().unwrap();
    }
}

//! A folder that this process owns: the lock, the socket that other processes find, and the heartbeat of a
//! lock file.

use super::lock::{FileLock, KernelLock};
use super::record::OwnerRecord;
use super::socket;
use atoll_store::age::Moment;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// This process owns the folder until this is dropped.
#[derive(Debug)]
pub struct Ownership {
    pub(super) listener: Option<UnixListener>,
    // Released in this order: the heartbeat, the socket, the lock.
    pub(super) stop: Option<StopBeating>,
    pub(super) socket: socket::SocketFile,
    pub(super) lock: HeldLock,
    pub(super) record: OwnerRecord,
    pub(super) lost: watch::Receiver<bool>,
}

impl Ownership {
    /// The socket to serve on; returned once.
    pub fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }

    /// Where the socket lies.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.socket.path()
    }

    /// The record that names this owner.
    #[must_use]
    pub const fn record(&self) -> &OwnerRecord {
        &self.record
    }

    /// Turns true once the lock file was removed or replaced, or could not be touched for so long that
    /// another process may soon take it over. Nothing may be written from then on.
    #[must_use]
    pub fn lost(&self) -> watch::Receiver<bool> {
        self.lost.clone()
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        self.stop = None;
        self.socket.remove();
        if let Err(error) = self.lock.release() {
            tracing::warn!(%error, "the name of this owner stays on the folder; the next one will see that it ended");
        }
    }
}

#[derive(Debug)]
pub(super) enum HeldLock {
    Kernel(KernelLock),
    File(FileLock),
}

impl HeldLock {
    pub(super) fn release(&self) -> io::Result<()> {
        match self {
            Self::Kernel(lock) => lock.erase(),
            Self::File(lock) => lock.release(),
        }
    }
}

/// Ends the heartbeat when dropped.
#[derive(Debug)]
pub(super) struct StopBeating {
    signal: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Starts the thread of the heartbeat.
pub(super) type Spawn = fn(Box<dyn FnOnce() + Send>) -> io::Result<std::thread::JoinHandle<()>>;

pub(super) fn spawn_heartbeat(beat: Box<dyn FnOnce() + Send>) -> io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("atoll-heartbeat".into()).spawn(beat)
}

/// Touches the lock file at every interval. An owner that cannot do so for `silent_max` has lost the lock
/// file: other processes may soon take it for stale.
pub(super) fn beat_on(
    lock: FileLock,
    every: Duration,
    silent_max: Duration,
    spawn: Spawn,
) -> io::Result<(StopBeating, watch::Receiver<bool>)> {
    let (lose, lost) = watch::channel(false);
    let signal = Arc::new((Mutex::new(false), Condvar::new()));
    let stopped = Arc::clone(&signal);
    let beat = move || {
        let mut is_stopped = stopped.0.lock();
        let mut touched = Moment::now();
        while !*is_stopped {
            stopped.1.wait_for(&mut is_stopped, every);
            let begun = Moment::now();
            match lock.beat() {
                Ok(true) => touched = begun,
                Ok(false) if *is_stopped => {}
                Ok(false) => {
                    tracing::error!("the lock file of this owner was removed or replaced");
                    lose.send_replace(true);
                    return;
                }
                Err(error) if touched.age() < silent_max => {
                    tracing::warn!(%error, "cannot touch the lock file");
                }
                Err(error) => {
                    tracing::error!(%error, "the lock file of this owner could not be touched for too long");
                    lose.send_replace(true);
                    return;
                }
            }
        }
    };
    let thread = spawn(Box::new(beat))?;
    Ok((StopBeating { signal, thread: Some(thread) }, lost))
}

impl Drop for StopBeating {
    fn drop(&mut self) {
        *self.signal.0.lock() = true;
        self.signal.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic; if it did, there would be nothing to do.
            let _ = thread.join();
        }
    }
}

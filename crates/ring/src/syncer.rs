//! The thread that makes logs survive the loss of power: one sync for all that was handed to them meanwhile.
//!
//! Invariant: an entry is said to be synced only after a sync that began behind its writing ended.

mod rounds;

pub(crate) use rounds::Rounds;

use atoll_engine::{Engine, EngineError};
use atoll_replica::{LogRun, Position, Slot};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Entries of logs, by slot, and what of the log each belongs to.
pub(crate) type Logged = Vec<(Slot, Position, LogRun)>;

/// The thread, and the way to it. It is handed names of what was written, such as entries of logs.
pub(crate) struct Syncer<T = (Slot, Position, LogRun)> {
    handed: Option<Sender<Vec<T>>>,
    thread: Option<JoinHandle<()>>,
}

/// How often what nobody waits for is synced, where there is such.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

impl<T: Send + 'static> Syncer<T> {
    /// Begins the thread. It tells `done` what is synced, or why nothing is any more. What nobody hands over
    /// is synced within about a period, if there is one.
    pub(crate) fn start(
        engine: Engine,
        period: Option<Duration>,
        done: impl Fn(Result<Vec<T>, EngineError>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (handed, receiver) = channel();
        let thread = std::thread::Builder::new().name("atoll-ring-sync".to_owned());
        let thread = thread.spawn(move || run(&engine, &receiver, period, &done))?;
        Ok(Self { handed: Some(handed), thread: Some(thread) })
    }

    /// These were written, and somebody waits until they are synced.
    pub(crate) fn hand(&self, written: Vec<T>) {
        if let Some(handed) = &self.handed {
            // A thread that ended has told why.
            drop(handed.send(written));
        }
    }
}

fn run<T>(
    engine: &Engine,
    receiver: &Receiver<Vec<T>>,
    period: Option<Duration>,
    done: &impl Fn(Result<Vec<T>, EngineError>),
) {
    loop {
        let handed = match period {
            Some(period) => receiver.recv_timeout(period),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let mut written = match handed {
            Ok(written) => written,
            // Whoever waits for nothing gets a sync in each period all the same; where nothing was written it
            // costs nothing.
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        while let Ok(more) = receiver.try_recv() {
            written.extend(more);
        }
        let synced = engine.sync();
        let is_over = synced.is_err();
        done(synced.map(|()| written));
        if is_over {
            return;
        }
    }
}

impl<T> Drop for Syncer<T> {
    fn drop(&mut self) {
        self.handed = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

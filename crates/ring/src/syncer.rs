//! The thread that syncs logs: one sync for everything that was handed over since the last one.
//!
//! Invariant: an entry is reported as synced only once a sync has ended that began after it was written.

mod rounds;

pub(crate) use rounds::Rounds;

use atoll_engine::{Engine, EngineError};
use atoll_replica::{LogRun, Position, Slot};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Entries of logs, by slot, and the run of the log that each belongs to.
pub(crate) type Logged = Vec<(Slot, Position, LogRun)>;

/// The thread and the channel to it. It is handed names of what was written, such as log entries.
pub(crate) struct Syncer<T = (Slot, Position, LogRun)> {
    handed: Option<Sender<Vec<T>>>,
    thread: Option<JoinHandle<()>>,
}

/// How often writes are synced that no caller waits for, if there are such.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// That writes are synced which nobody handed over.
pub(crate) struct Period {
    /// The longest time from one sync to the next.
    pub(crate) length: Duration,
    /// Whether any write is to be synced without being handed over.
    pub(crate) is_wanted: Box<dyn Fn() -> bool + Send>,
}

impl<T: Send + 'static> Syncer<T> {
    /// Starts the thread. It calls `done` with what is synced, or with why syncing has failed for good. If
    /// there is a period, writes that are not handed over are synced within about a period.
    pub(crate) fn start(
        engine: Engine,
        period: Option<Period>,
        done: impl Fn(Result<Vec<T>, EngineError>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (handed, receiver) = channel();
        let thread = std::thread::Builder::new().name("atoll-ring-sync".to_owned());
        let thread = thread.spawn(move || run(&engine, &receiver, period.as_ref(), &done))?;
        Ok(Self { handed: Some(handed), thread: Some(thread) })
    }

    /// Hands over what was written, so that it is synced and reported soon.
    pub(crate) fn hand(&self, written: Vec<T>) {
        if let Some(handed) = &self.handed {
            // A thread that has ended has reported why.
            drop(handed.send(written));
        }
    }
}

fn run<T>(
    engine: &Engine,
    receiver: &Receiver<Vec<T>>,
    period: Option<&Period>,
    done: &impl Fn(Result<Vec<T>, EngineError>),
) {
    loop {
        let handed = match period {
            Some(period) => receiver.recv_timeout(period.length),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let mut written = match handed {
            Ok(written) => written,
            // Writes that were not handed over get a sync in each period as well. If there are none it costs
            // nothing.
            Err(RecvTimeoutError::Timeout) if period.is_some_and(|period| !(period.is_wanted)()) => continue,
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

//! Waiting: one runtime for the process, made when it is first needed, on which all calls run.
//!
//! Invariant: a call that waits here has released the interpreter lock, and notices a signal within
//! [`SIGNAL_INTERVAL`].
//! Invariant: in a forked child, which has none of the threads that a store needs, calls fail instead of
//! waiting forever; and the child never closes what it inherited, since its parent still uses it.

use crate::error::Failure;
use pyo3::prelude::*;
use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// How often a waiting call looks for signals, so that Ctrl-C stops it within 100 ms.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(40);

/// The least number of threads: decoding and ordering a long answer keeps one busy for seconds, and other
/// calls must make progress meanwhile, even on a single processor.
const WORKERS_MIN: usize = 4;

/// The runtime, and the process that made it.
struct Made {
    runtime: Runtime,
    process: u32,
}

fn runtime() -> Result<&'static Runtime, Failure> {
    static MADE: OnceLock<Result<Made, String>> = OnceLock::new();
    let make = || {
        let threads =
            std::thread::available_parallelism().map_or(WORKERS_MIN, |found| found.get().max(WORKERS_MIN));
        let runtime =
            Builder::new_multi_thread().worker_threads(threads).thread_name("atoll").enable_all().build();
        runtime
            .map(|runtime| Made { runtime, process: std::process::id() })
            .map_err(|error| error.to_string())
    };
    match MADE.get_or_init(make) {
        Ok(made) if made.process == std::process::id() => Ok(&made.runtime),
        Ok(_) => Err(Failure::Forked),
        Err(problem) => Err(Failure::NoThreads { problem: problem.clone() }),
    }
}

/// The runtime, for a thread that outlives the call.
pub(crate) fn handle() -> Result<&'static Handle, Failure> {
    Ok(runtime()?.handle())
}

/// Waits for a call. If a signal handler raises, the call is aborted.
pub(crate) fn wait<T, E>(
    py: Python<'_>,
    call: impl Future<Output = Result<T, E>> + Send + 'static,
) -> PyResult<T>
where
    T: Send + 'static,
    E: Into<Failure> + Send + 'static,
{
    let (answer, mut answers) = sync_channel(1);
    let task = runtime()?.spawn(async move {
        // The receiver is gone if a signal came meanwhile.
        let _ = answer.send(call.await);
    });
    loop {
        let waited = py.detach(move || {
            let waited = answers.recv_timeout(SIGNAL_INTERVAL);
            (answers, waited)
        });
        answers = waited.0;
        match waited.1 {
            Ok(result) => return result.map_err(|error| PyErr::from(error.into())),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Panicked.into()),
        }
        if let Err(signal) = py.check_signals() {
            task.abort();
            return Err(signal);
        }
    }
}

/// A value that belongs to the process that made it.
pub(crate) struct Kept<T: Send> {
    value: Option<T>,
    process: u32,
}

impl<T: Send> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    /// The value; an error in a forked child, or once it was dropped.
    pub(crate) fn get(&self) -> Result<&T, Failure> {
        let value = self.value.as_ref().ok_or(Failure::Closed)?;
        if self.process == std::process::id() { Ok(value) } else { Err(Failure::Forked) }
    }
}

impl<T: Send> Drop for Kept<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        if self.process != std::process::id() {
            // Its locks and sockets are the parent's, which still uses them: closing them here would break
            // it.
            std::mem::forget(value);
        } else if value.is_some() {
            // The last handle of a store waits for its threads, perhaps during a checkpoint: release the
            // lock, so that other Python threads run meanwhile.
            let mut value = Some(value);
            Python::try_attach(|py| py.detach(|| drop(value.take())));
        }
    }
}

//! A table that is kept packed in the background, by a thread of this process.
//!
//! The thread is its own, since a pack computes for long stretches, and calls that wait must not wait for
//! those.
//!
//! Invariant: the thread never asks for the interpreter lock.

use crate::error::Failure;
use crate::runtime::{Kept, handle};
use crate::table::report_as_dict;
use atoll_tables::{KeepPacked, PackReport, Table};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How much later than others this thread is to get a processor: a simulation that needs all of them goes
/// first.
const NICENESS: i32 = 5;

/// How far it got.
#[derive(Default)]
struct Progress {
    report: PackReport,
    is_over: bool,
    error: Option<Failure>,
}

/// What its owner holds: the thread ends once this is gone.
struct Thread {
    stop: Mutex<Option<oneshot::Sender<()>>>,
    ended: Mutex<Receiver<()>>,
}

/// A table that is kept packed.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Packer {
    thread: Kept<Thread>,
    progress: Arc<Mutex<Progress>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Packer {
    /// Begins to keep a table packed.
    pub(crate) fn begin(table: Table, how: KeepPacked) -> Result<Self, Failure> {
        let (progress, runtime) = (Arc::<Mutex<Progress>>::default(), handle()?);
        let ((stop, stopped), (told, ended)) = (oneshot::channel(), sync_channel(1));
        let seen = Arc::clone(&progress);
        let keep = move || {
            // Being less polite is no reason not to pack.
            let _ = rustix::process::nice(NICENESS);
            let until = async {
                // Told to stop, or nobody is left to tell.
                let _ = stopped.await;
            };
            let on_pack = |report: &PackReport| locked(&seen).report += *report;
            let keep = || runtime.block_on(table.keep_packed(&how, until, on_pack));
            let kept = catch_unwind(AssertUnwindSafe(keep));
            // Whoever waits for the end may close the store next.
            drop(table);
            let mut progress = locked(&seen);
            progress.is_over = true;
            progress.error = match kept {
                Ok(kept) => kept.err().map(Failure::from),
                Err(_) => Some(Failure::Panicked),
            };
            drop(progress);
            let _ = told.send(());
        };
        std::thread::Builder::new()
            .name("atoll-pack".to_owned())
            .spawn(keep)
            .map_err(|error| Failure::NoThreads { problem: error.to_string() })?;
        let thread = Thread { stop: Mutex::new(Some(stop)), ended: Mutex::new(ended) };
        Ok(Self { thread: Kept::new(thread), progress })
    }
}

#[pymethods]
impl Packer {
    /// Tells it to stop, and waits for that for so many seconds at most; whether it has ended.
    fn stop(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let thread = self.thread.get()?;
        drop(locked(&thread.stop).take());
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|_| Failure::input(format!("{seconds} is no time to wait, in seconds")))?;
        py.detach(|| {
            // An error says that it told before, or is gone: both are the end.
            let _ = locked(&thread.ended).recv_timeout(time);
        });
        Ok(locked(&self.progress).is_over)
    }

    /// Whether it is at work, and what was packed so far, by name.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<(bool, Bound<'py, PyDict>)> {
        // Not locked while anything of the interpreter is made: collecting garbage may run whatever it likes.
        let (is_over, report) = {
            let progress = locked(&self.progress);
            (progress.is_over, progress.report)
        };
        Ok((!is_over, report_as_dict(py, &report)?))
    }

    /// Raises what ended it, if it failed; once.
    fn check(&self) -> PyResult<()> {
        let error = locked(&self.progress).error.take();
        error.map_or(Ok(()), |error| Err(error.into()))
    }
}

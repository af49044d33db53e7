//! Keeps a table packed in the background, on a thread of this process.
//!
//! The thread is a dedicated one: a pack computes for long stretches, and would delay the calls that wait on
//! the runtime.
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

/// How much the thread lowers its own scheduling priority: a simulation that needs every processor goes
/// first. Elsewhere than on Linux, a priority is that of the whole process, and the simulation's with it.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// How far the thread has come.
#[derive(Default)]
struct Progress {
    report: PackReport,
    is_over: bool,
    error: Option<Failure>,
}

/// The owner's end of the thread, which ends once this is dropped.
struct Thread {
    stop: Mutex<Option<oneshot::Sender<()>>>,
    ended: Mutex<Receiver<()>>,
}

/// A table that the background thread keeps packed.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Packer {
    thread: Kept<Thread>,
    progress: Arc<Mutex<Progress>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Packer {
    /// Starts to keep a table packed.
    pub(crate) fn begin(table: Table, how: KeepPacked) -> Result<Self, Failure> {
        let (progress, runtime) = (Arc::<Mutex<Progress>>::default(), handle()?);
        let ((stop, stopped), (told, ended)) = (oneshot::channel(), sync_channel(1));
        let seen = Arc::clone(&progress);
        let keep = move || {
            // Failing to lower the priority is no reason not to pack.
            #[cfg(target_os = "linux")]
            let _ = rustix::process::nice(NICENESS);
            let until = async {
                // The owner asked to stop, or dropped its end.
                let _ = stopped.await;
            };
            let on_pack = |report: &PackReport| locked(&seen).report += *report;
            let keep = || runtime.block_on(table.keep_packed(&how, until, on_pack));
            let kept = catch_unwind(AssertUnwindSafe(keep));
            // First: the owner may close the store as soon as it learns of the end.
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
    /// Asks the thread to stop and waits at most this many seconds; returns whether it has ended.
    fn stop(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let thread = self.thread.get()?;
        drop(locked(&thread.stop).take());
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|_| Failure::input(format!("{seconds} is not a valid duration in seconds")))?;
        py.detach(|| {
            // An error means that it reported before, or is gone: it has ended either way.
            let _ = locked(&thread.ended).recv_timeout(time);
        });
        Ok(locked(&self.progress).is_over)
    }

    /// Whether the thread is running, and what it packed so far, by name.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<(bool, Bound<'py, PyDict>)> {
        // Not locked while Python objects are made: a garbage collection may run arbitrary code.
        let (is_over, report) = {
            let progress = locked(&self.progress);
            (progress.is_over, progress.report)
        };
        Ok((!is_over, report_as_dict(py, &report)?))
    }

    /// Raises the error that ended the thread, if any; once.
    fn check(&self) -> PyResult<()> {
        let error = locked(&self.progress).error.take();
        error.map_or(Ok(()), |error| Err(error.into()))
    }
}

//! The thread that writes and syncs the log, so that nobody else waits for the disk.
//!
//! Invariant: what was handed in first is synced first; what comes meanwhile is synced together.
//! Invariant: after the first error nothing more is written: what the disk has then is not known.

use super::file::LogFile;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Called when it will survive, or never will.
pub(crate) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Jobs that wait. The consensus waits for each by itself, so there are never more than a few.
const JOBS_MAX: usize = 256;

/// What is synced together at most, in bytes.
const TOGETHER_BYTES: usize = 8 << 20;

/// What is to be written.
pub(crate) struct Job {
    pub(crate) facts: Vec<u8>,
    /// Whether these facts take the place of all before them.
    pub(crate) replaces: bool,
    pub(crate) done: Done,
}

/// Begins the thread; it ends when nobody can hand anything in any more.
pub(crate) fn begin(file: LogFile) -> io::Result<(SyncSender<Job>, JoinHandle<()>)> {
    let (jobs, received) = sync_channel(JOBS_MAX);
    let thread =
        std::thread::Builder::new().name("council-log".to_owned()).spawn(move || write(file, &received))?;
    Ok((jobs, thread))
}

fn write(mut file: LogFile, jobs: &Receiver<Job>) {
    let mut failed: Option<io::Error> = None;
    let mut waiting = None;
    while let Some(mut job) = waiting.take().or_else(|| jobs.recv().ok()) {
        let mut done = vec![job.done];
        while job.facts.len() < TOGETHER_BYTES
            && waiting.is_none()
            && let Ok(next) = jobs.try_recv()
        {
            if next.replaces {
                waiting = Some(next);
            } else {
                job.facts.extend_from_slice(&next.facts);
                done.push(next.done);
            }
        }
        if failed.is_none() {
            let written = if job.replaces { file.replace(&job.facts) } else { file.append(&job.facts) };
            if let Err(error) = &written {
                tracing::error!(%error, "the log of the configuration group cannot be written");
            }
            failed = written.err();
        }
        for done in done {
            done(
                failed.as_ref().map_or(Ok(()), |error| Err(io::Error::new(error.kind(), error.to_string()))),
            );
        }
    }
}

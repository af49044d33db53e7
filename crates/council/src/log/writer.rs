//! The thread that writes and syncs the log, so that no other thread waits for the disk.
//!
//! Invariant: jobs are synced in the order in which they were handed in; those that arrive during a sync are
//! synced together.
//! Invariant: after the first error nothing more is written, because the contents of the disk are unknown
//! then. A full disk is not such an error: the facts that it has no room for wait, and so does everything
//! behind them, so the member stays silent meanwhile. The log's users are told.

use super::file::{LogFile, Written};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// Called when the facts will survive, or never will.
pub(crate) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Most jobs that wait. The consensus waits for each job by itself, so there are never more than a few.
const JOBS_MAX: usize = 256;

/// Most bytes that are synced together.
const TOGETHER_BYTES: usize = 8 << 20;

/// Facts to be written.
pub(crate) struct Job {
    pub(crate) facts: Vec<u8>,
    /// Whether these facts replace all earlier ones.
    pub(crate) replaces: bool,
    pub(crate) done: Done,
}

/// The pause before a full disk is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// The writer thread.
pub(crate) struct Writer {
    thread: JoinHandle<()>,
    end: Arc<End>,
}

/// How long the file is. Whoever was told that facts will survive sees what it was with them, or later.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    /// The length of the file, as the thread left it.
    pub(crate) file: AtomicUsize,
    /// How much of that was not obsolete when the file was made; 0 if that is not known.
    pub(crate) made: AtomicUsize,
}

/// Shared with the thread: whether it should give up waiting for room, whether it is waiting, and how far it
/// got.
struct End {
    is_ending: Mutex<bool>,
    woken: Condvar,
    /// Whether the disk has no room for the next facts.
    lacks_room: watch::Sender<bool>,
    lengths: Arc<Lengths>,
}

impl Writer {
    /// Starts the thread. It ends when no job can come any more, and reports while it waits for room.
    pub(crate) fn begin(
        file: LogFile,
        lacks_room: watch::Sender<bool>,
    ) -> io::Result<(SyncSender<Job>, Self)> {
        let (jobs, received) = sync_channel(JOBS_MAX);
        let end = Arc::new(End::telling(lacks_room));
        end.note_length(&file);
        let waits_for = Arc::clone(&end);
        let name = "council-log".to_owned();
        let thread =
            std::thread::Builder::new().name(name).spawn(move || write(file, &received, &waits_for))?;
        Ok((jobs, Self { thread, end }))
    }

    /// How long the file is, now and from now on.
    pub(crate) fn lengths(&self) -> Arc<Lengths> {
        Arc::clone(&self.end.lengths)
    }

    /// Waits until everything is written that there is room for.
    pub(crate) fn end(self) {
        *self.end.is_ending.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.woken.notify_all();
        let _ = self.thread.join();
    }
}

impl End {
    fn telling(lacks_room: watch::Sender<bool>) -> Self {
        Self { is_ending: Mutex::new(false), woken: Condvar::new(), lacks_room, lengths: Arc::default() }
    }

    fn note_length(&self, file: &LogFile) {
        let bytes = usize::try_from(file.bytes()).unwrap_or(usize::MAX);
        self.lengths.file.store(bytes, Ordering::Release);
    }

    /// Waits until the next attempt is due; returns whether to make it.
    fn pause(&self) -> bool {
        let is_ending = self.is_ending.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.woken.wait_timeout_while(is_ending, RETRY_EVERY, |is_ending| !*is_ending);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Writes facts, waiting for room if need be.
fn append(file: &mut LogFile, facts: &[u8], end: &End) -> io::Result<()> {
    while file.append(facts)? == Written::NoRoom {
        if !end.lacks_room.send_replace(true) {
            tracing::error!(
                "the disk is full: this member of the configuration group waits for room for its log"
            );
        }
        if !end.pause() {
            return Err(io::ErrorKind::StorageFull.into());
        }
    }
    if end.lacks_room.send_if_modified(std::mem::take) {
        tracing::info!("the disk has room again for the log of the configuration group");
    }
    Ok(())
}

/// Replaces the file by one with these facts. Without room for that the old one stays, and says the same.
fn replace(file: &mut LogFile, facts: &[u8], end: &End) -> io::Result<()> {
    match file.replace(facts)? {
        Written::Synced => end.lengths.made.store(facts.len(), Ordering::Release),
        Written::NoRoom => {
            let (bytes, needed) = (file.bytes(), facts.len());
            tracing::warn!(
                bytes,
                needed,
                "the disk has no room for a shorter log of the configuration group"
            );
        }
    }
    Ok(())
}

fn write(mut file: LogFile, jobs: &Receiver<Job>, end: &End) {
    let mut failed: Option<io::Error> = None;
    let mut waiting = None;
    while let Some(mut job) = waiting.take().or_else(|| jobs.recv().ok()) {
        let mut done = vec![job.done];
        // Nothing joins facts that replace the file: without room for a new file they are in none.
        while !job.replaces
            && job.facts.len() < TOGETHER_BYTES
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
            let written = match job.replaces {
                true => replace(&mut file, &job.facts, end),
                false => append(&mut file, &job.facts, end),
            };
            if let Err(error) = &written {
                tracing::error!(%error, "the log of the configuration group cannot be written");
            }
            failed = written.err();
            end.note_length(&file);
        }
        for done in done {
            done(
                failed.as_ref().map_or(Ok(()), |error| Err(io::Error::new(error.kind(), error.to_string()))),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SeatId;

    #[test]
    fn facts_behind_a_replacement_without_room_are_in_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (file, _) = LogFile::open(&path, SeatId(5)).unwrap();
        let before = path.metadata().unwrap().len();
        // The new file is written here first, and finds no room.
        std::os::unix::fs::symlink("/dev/full", path.with_extension("unfinished")).unwrap();
        let (jobs, received) = sync_channel(8);
        let (answer, answers) = std::sync::mpsc::channel();
        for (facts, replaces) in [(b"all of it".to_vec(), true), (b"a vote".to_vec(), false)] {
            let answer = answer.clone();
            jobs.send(Job { facts, replaces, done: Box::new(move |written| answer.send(written).unwrap()) })
                .unwrap();
        }
        drop(jobs);
        write(file, &received, &End::telling(watch::channel(false).0));
        assert!(answers.try_iter().all(|written| written.is_ok()));
        assert!(path.metadata().unwrap().len() > before, "the vote is nowhere");
    }

    #[test]
    fn it_is_told_as_long_as_there_is_no_room_for_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = LogFile::open(&folder.path().join("log"), SeatId(5)).unwrap();
        let (lacks_room, told) = watch::channel(false);
        let end = End::telling(lacks_room);
        end.lacks_room.send_replace(true);
        append(&mut file, b"facts", &end).unwrap();
        assert!(!*told.borrow(), "there was room again");
        drop(file.fill_disk());
        *end.is_ending.lock().unwrap() = true;
        assert_eq!(append(&mut file, b"more", &end).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(*told.borrow());
    }
}

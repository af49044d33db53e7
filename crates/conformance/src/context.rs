//! The context of a check: stores to test, seeded randomness, and shorthands for calls and verdicts.

use crate::subject::{Ending, SharedStore, Subject};
use crate::suite::Size;
use atoll_store::{
    Batch, Cell, Conflict, ErrorKind, Outcome, ReadOptions, ScanEntry, ScanRequest, StoreError, WriteOptions,
    Written,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Why a check ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A promise was broken.
    Broken(String),
    /// The store cannot be checked.
    Skipped(String),
}

/// The result of a check.
pub(crate) type Verdict<T = ()> = Result<T, Stop>;

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Broken(format!("a call that must succeed failed as {}: {error}", error.kind()))
    }
}

impl From<tokio::task::JoinError> for Stop {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Broken(format!("a call did not return: {error}"))
    }
}

pub(crate) fn broken<T>(how: impl Display) -> Verdict<T> {
    Err(Stop::Broken(how.to_string()))
}

/// Fails unless `holds`.
pub(crate) fn ensure(holds: bool, how: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { broken(how()) }
}

/// Fails unless both are equal.
pub(crate) fn same<T: PartialEq + Debug + ?Sized>(what: impl Display, actual: &T, expected: &T) -> Verdict {
    ensure(actual == expected, || {
        format!("{what}: expected {}, found {}", shortened(expected), shortened(actual))
    })
}

/// Shortens a value, because a large one would bury the message.
fn shortened(value: &(impl Debug + ?Sized)) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(400) {
        None => text,
        Some((at, _)) => format!("{}… ({} characters)", &text[..at], text.len()),
    }
}

/// Fails unless the call was refused with this kind, and reports that nothing happened.
pub(crate) fn refused<T: Debug>(
    what: impl Display,
    result: Result<T, StoreError>,
    kind: ErrorKind,
) -> Verdict<StoreError> {
    match result {
        Ok(answer) => {
            broken(format!("{what}: must be refused as {kind}, was answered {}", shortened(&answer)))
        }
        Err(error) if error.kind() != kind || error.outcome() != Outcome::Refused => broken(format!(
            "{what}: must be refused as {kind}, ended {:?} as {}: {error}",
            error.outcome(),
            error.kind()
        )),
        Err(error) => Ok(error),
    }
}

/// Fails unless the write ended in a conflict.
pub(crate) fn conflict(what: impl Display, result: Result<Written, StoreError>) -> Verdict<Conflict> {
    match refused(&what, result, ErrorKind::Conflict)? {
        StoreError::Conflict(conflict) => Ok(*conflict),
        error => broken(format!("{what}: the conflict does not tell its condition: {error}")),
    }
}

/// Runs `call` after yielding to others in the task this many times. Joined with another call, it meets that
/// call at each of its steps in turn, even on one core.
pub(crate) async fn after<T>(turns: u32, call: impl Future<Output = T>) -> T {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    call.await
}

/// One run of one check.
pub(crate) struct Context<'a> {
    subject: &'a dyn Subject,
    pub(crate) size: Size,
    seed: u64,
    opened: Mutex<Vec<SharedStore>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(subject: &'a dyn Subject, check: &str, size: Size, seed: u64) -> Self {
        // Each check has randomness of its own, so that a check that is replayed alone sees the same.
        let seed =
            check.bytes().fold(seed, |seed, byte| seed.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        Self { subject, size, seed, opened: Mutex::default() }
    }

    /// Opens a fresh store.
    pub(crate) async fn open(&self) -> Verdict<Client> {
        let store = self.subject.open().await?;
        self.opened.lock().push(store.clone());
        Ok(Client { store })
    }

    /// Ends the store and opens what it left; skips the check if the subject cannot do that.
    pub(crate) async fn reopen(&self, client: Client, ending: Ending) -> Verdict<Client> {
        self.opened.lock().retain(|opened| !Arc::ptr_eq(opened, &client.store));
        let reopened: BoxFuture<'_, _> = self.subject.reopen(client.store, ending).ok_or_else(|| {
            Stop::Skipped(format!("the store cannot be opened again after it was {ending:?}"))
        })?;
        let store = reopened.await?;
        self.opened.lock().push(store.clone());
        Ok(Client { store })
    }

    pub(crate) async fn pass(&self, client: &Client, duration: Duration) {
        self.subject.pass(&client.store, duration).await;
    }

    /// Randomness for round or task `salt` of this check.
    pub(crate) fn random(&self, salt: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) async fn close(&self) {
        let opened = std::mem::take(&mut *self.opened.lock());
        for store in opened {
            // The check has its verdict, and a broken store may well fail to close.
            let _ = tokio::time::timeout(Duration::from_secs(10), store.close()).await;
        }
    }
}

/// A store, with shorthands for calls.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) store: SharedStore,
}

impl Client {
    pub(crate) async fn get(
        &self,
        partition: impl AsRef<[u8]>,
        sort: impl AsRef<[u8]>,
    ) -> Verdict<Option<Vec<u8>>> {
        let cell = Cell::new(&partition, &sort);
        Ok(self.store.get(cell, ReadOptions::default()).await?.map(|value| value.to_vec()))
    }

    pub(crate) async fn put(
        &self,
        partition: impl AsRef<[u8]>,
        sort: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Verdict {
        self.store.put(Cell::new(&partition, &sort), value.as_ref(), WriteOptions::default()).await?;
        Ok(())
    }

    /// A write that must succeed.
    pub(crate) async fn write(&self, batch: Batch) -> Verdict<Written> {
        Ok(self.store.write(batch, WriteOptions::default()).await?)
    }

    /// A write that may fail.
    pub(crate) async fn try_write(&self, batch: Batch) -> Result<Written, StoreError> {
        self.store.write(batch, WriteOptions::default()).await
    }

    /// All entries of a scan, page by page.
    pub(crate) async fn scan(&self, request: ScanRequest) -> Verdict<Vec<ScanEntry>> {
        Ok(self.pages(request).await?.concat())
    }

    /// The pages of a scan.
    pub(crate) async fn pages(&self, mut request: ScanRequest) -> Verdict<Vec<Vec<ScanEntry>>> {
        let mut pages = Vec::new();
        loop {
            let page = self.store.scan(request.clone()).await?;
            ensure(page.entries.len() <= request.limit, || {
                format!("a page limited to {} entries has {}", request.limit, page.entries.len())
            })?;
            ensure(page.resume.is_none() || !page.entries.is_empty(), || {
                "a page that is not the last has no entries".into()
            })?;
            ensure(pages.len() < 100_000, || "a scan does not come to an end".into())?;
            pages.push(page.entries);
            match page.resume {
                None => return Ok(pages),
                token => request.resume = token,
            }
            // Lets other tasks write between two pages, where it matters.
            tokio::task::yield_now().await;
        }
    }
}

/// Tasks that keep writing while a check reads.
pub(crate) struct Background {
    pulse: Pulse,
    tasks: Vec<tokio::task::JoinHandle<Verdict>>,
}

/// Tells a background task whether to go on, and counts its rounds.
#[derive(Clone, Default)]
pub(crate) struct Pulse {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
}

impl Pulse {
    /// Whether to go on; yields to other tasks in between.
    pub(crate) async fn goes_on(&self) -> bool {
        self.rounds.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        !self.stop.load(Ordering::SeqCst)
    }
}

impl Background {
    pub(crate) fn start<T>(
        tasks: impl IntoIterator<Item = T>,
        run: impl Fn(T, Pulse) -> BoxFuture<'static, Verdict>,
    ) -> Self {
        let pulse = Pulse::default();
        let tasks = tasks.into_iter().map(|task| tokio::spawn(run(task, pulse.clone()))).collect();
        Self { pulse, tasks }
    }

    /// Calls `look` again and again while the tasks make this many rounds, then ends them. It runs as a task
    /// among them, so that they take turns even on one core.
    pub(crate) async fn watch<L>(self, rounds: u64, mut look: impl FnMut() -> L + Send + 'static) -> Verdict
    where
        L: Future<Output = Verdict> + Send,
    {
        let pulse = self.pulse.clone();
        let looking = tokio::spawn(async move {
            while pulse.rounds.load(Ordering::SeqCst) < rounds && !pulse.stop.load(Ordering::SeqCst) {
                look().await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        });
        let mut looking = looking;
        let seen = loop {
            tokio::select! {
                seen = &mut looking => break seen,
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    // A failed task would never reach its rounds.
                    if self.tasks.iter().any(|task| task.is_finished()) {
                        self.pulse.stop.store(true, Ordering::SeqCst);
                    }
                }
            }
        };
        self.pulse.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await??;
        }
        seen?
    }
}

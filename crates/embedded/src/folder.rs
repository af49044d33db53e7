//! A folder that several processes have open at once. One process owns it and the others attach to the owner;
//! when the owner ends, one of them takes its place.
//!
//! An owner whose store is broken and answers no more calls gives the folder up as well.
//!
//! Invariant: the lock is held before the store is opened, and released only after the store was closed or
//! can no longer be written to.

use crate::attach::{
    AttachedStore, Attachment, Reattach, Route, ServeOptions, Served, Server, Snapshots, attach_to, serve,
};
use crate::owner::{HostIdentity, Mode, OwnerError, OwnerOptions, OwnerRecord, Ownership, Settled, settle};
use atoll_store::{ErrorKind, Store, StoreError, StoreFuture};
use futures::future::BoxFuture;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Opens the store in a folder, once it is settled that this process may.
pub trait OpenStore: Send + Sync + 'static {
    /// Opens the store to write; this process owns the folder until the store is closed. Long work must not
    /// block the calling thread.
    fn open_owned<'a>(&'a self, folder: &'a Path) -> StoreFuture<'a, Arc<dyn Store>>;

    /// Opens the last committed state without writing a byte; another process may own the folder. Called anew
    /// each time the state may be out of date, because no metadata of a file shows that it was not written to
    /// through mapped pages.
    fn open_read_only<'a>(&'a self, folder: &'a Path) -> StoreFuture<'a, Arc<dyn Store>>;

    /// Abandons the store that was opened to write, because its folder belongs to another process: not a byte
    /// more may be written to it.
    fn abandon(&self) -> BoxFuture<'_, ()>;

    /// Returns once the store that was opened to write is broken: it answers no more calls, though it was not
    /// closed; otherwise never. Its folder is then given up to the next process that opens it.
    fn until_broken(&self) -> BoxFuture<'static, ()>;

    /// The named snapshots of the store that was opened to write, for attached processes; none if it has
    /// none.
    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        None
    }
}

/// How a folder is shared.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// How ownership is acquired.
    pub owner: OwnerOptions,
    /// What each attached process may have under way at once.
    pub serve: ServeOptions,
    /// How long an owner may take to open its store, recovery included, or to close it, before an attaching
    /// process gives up.
    pub opening_time: Duration,
    /// How long a reader that reaches no owner may use the last state on disk before it looks for the owner
    /// again.
    pub last_state_age: Duration,
}

/// How long a reader looks for the next owner after the last one ended, before it reads the state on disk.
const SUCCESSOR_TIME: Duration = Duration::from_millis(500);

/// A last state is used for at least this many times as long as it took to look for an owner and open it, so
/// that the search costs little.
const LAST_STATE_WORTH: u32 = 20;

impl Default for FolderOptions {
    fn default() -> Self {
        let (owner, serve) = (OwnerOptions::default(), ServeOptions::default());
        let (opening_time, last_state_age) = (Duration::from_secs(60), Duration::from_secs(1));
        Self { owner, serve, opening_time, last_state_age }
    }
}

/// Opens `folder`, which must exist: as its owner, attached to its owner, or to read the last state on disk.
///
/// # Errors
/// [`StoreError::Owned`] if the owner cannot be reached; those of `opener`.
pub async fn open_folder(
    folder: PathBuf,
    mode: Mode,
    options: FolderOptions,
    opener: Arc<dyn OpenStore>,
) -> Result<AttachedStore, StoreError> {
    let place = folder.display().to_string();
    let (owned, was_attached) = (Arc::default(), AtomicBool::new(false));
    let closing = watch::channel(false).0;
    let (watching, suspended) = Default::default();
    let identity = OnceLock::new();
    let way = FolderWay {
        folder,
        identity,
        mode,
        options,
        opener,
        owned,
        was_attached,
        watching,
        suspended,
        closing,
    };
    AttachedStore::open(place, mode == Mode::Read, Arc::new(way), background()?).await
}

/// The runtime that carries connections. It is separate, so that an owner answers whatever its program does
/// with its own threads, and connections outlive the runtime in which they were opened.
///
/// # Errors
/// `unavailable` if the operating system gives no threads.
pub fn background() -> Result<Handle, StoreError> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("atoll-attach")
            .enable_all()
            .build()
    });
    runtime.as_ref().map(|runtime| runtime.handle().clone()).map_err(|error| StoreError::Unavailable {
        place: "this process".into(),
        reason: format!("no threads for connections: {error}"),
        source: None,
    })
}

/// The way to the store in a folder.
struct FolderWay {
    folder: PathBuf,
    /// Device and inode number of the folder that was opened.
    identity: OnceLock<(u64, u64)>,
    mode: Mode,
    options: FolderOptions,
    opener: Arc<dyn OpenStore>,
    owned: Arc<Mutex<Option<Owned>>>,
    /// Whether the last search for an owner ended with an attachment.
    was_attached: AtomicBool,
    /// The task that watches the owner that this process is attached to.
    watching: parking_lot::Mutex<Option<AbortHandle>>,
    /// The owner that a reader found suspended; it is not asked again until it is awake.
    suspended: Arc<parking_lot::Mutex<Option<OwnerRecord>>>,
    /// Whether the store is closed.
    closing: watch::Sender<bool>,
}

/// What an owner releases when it closes, in this order.
struct Owned {
    server: Server,
    ownership: Ownership,
}

impl Reattach for FolderWay {
    fn reattach(&self) -> BoxFuture<'_, Result<Route, StoreError>> {
        Box::pin(async {
            match self.is_suspended_still() {
                true => self.last_state(Instant::now()).await,
                false => self.find().await,
            }
        })
    }

    fn give_up(&self) {
        self.closing.send_replace(true);
        self.watch(None);
    }

    fn close(&self, local: Option<Arc<dyn Store>>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let owned = self.owned.lock().await.take();
            if let Some(owned) = &owned {
                owned.server.stop().await;
            }
            let closed = match local {
                Some(store) => store.close().await,
                None => Ok(()),
            };
            drop(owned.map(|owned| owned.ownership));
            closed
        })
    }
}

impl FolderWay {
    async fn find(&self) -> Result<Route, StoreError> {
        self.watch(None);
        let begun = Instant::now();
        let until = begun + self.options.opening_time;
        let other_until = begun
            + match self.mode {
                Mode::Read => SUCCESSOR_TIME.min(self.options.owner.patience),
                Mode::Write => self.options.owner.patience,
            };
        let successor_until = self
            .was_attached
            .swap(false, Ordering::AcqRel)
            .then(|| begun + SUCCESSOR_TIME.min(self.options.owner.patience));
        loop {
            let looked = Instant::now();
            let settled = match self.settle().await {
                // The owner has stopped listening, and its last checkpoint may take longer than `patience`.
                Err(OwnerError::Owned { is_ending: true, .. })
                    if Instant::now() < until && !self.is_closing() =>
                {
                    tokio::time::sleep(BEFORE_NEXT_LOOK).await;
                    continue;
                }
                settled => settled?,
            };
            let error = match settled {
                Settled::Owner(ownership) => return self.own(ownership).await,
                Settled::ReadOnly => match successor_until {
                    Some(until) if looked < until => {
                        tokio::time::sleep(BEFORE_NEXT_LOOK).await;
                        continue;
                    }
                    _ => return self.last_state(looked).await,
                },
                Settled::Attached(stream, owner) => match self.attach(stream, &owner).await {
                    Ok(Some(attachment)) => {
                        self.was_attached.store(true, Ordering::Release);
                        self.watch(Some((owner, attachment.clone())));
                        return Ok(Route::Attached(attachment));
                    }
                    // There may be a new owner, whose record is read next.
                    Ok(None) if looked < other_until && !self.is_closing() => {
                        tokio::time::sleep(BEFORE_NEXT_LOOK).await;
                        continue;
                    }
                    Ok(None) if self.mode == Mode::Read => return self.last_state(looked).await,
                    Ok(None) => return Err(self.owned_by(&owner)),
                    // A reader needs no owner.
                    Err(StoreError::Suspended { .. }) if self.mode == Mode::Read => {
                        *self.suspended.lock() = Some(owner);
                        // Timed from here: looking again whether the owner is suspended is quick.
                        return self.last_state(Instant::now()).await;
                    }
                    Err(StoreError::Owned { .. }) if self.mode == Mode::Read => {
                        return self.last_state(looked).await;
                    }
                    Err(error) => error,
                },
            };
            // The owner died, or failed to open the store, during the wait: look for the next one.
            if error.kind() != ErrorKind::Unavailable
                || matches!(error, StoreError::Owned { .. } | StoreError::Suspended { .. })
                || Instant::now() > until
                || self.is_closing()
            {
                return Err(error);
            }
            tokio::time::sleep(BEFORE_NEXT_LOOK).await;
        }
    }

    /// Watches this owner in place of the one before. Nothing else shows why calls wait while an owner is
    /// suspended, and after an owner is killed, a process that it forked may keep the connection open. A
    /// reader then switches to the last state on disk.
    fn watch(&self, owner: Option<(OwnerRecord, Attachment)>) {
        let owner = owner.filter(|(owner, _)| HostIdentity::of_this_process().is_awake(owner));
        let place = self.folder.display().to_string();
        let suspended = (self.mode == Mode::Read).then(|| Arc::clone(&self.suspended));
        let begin = |(owner, attachment)| {
            tokio::spawn(look_after(place, owner, attachment, suspended)).abort_handle()
        };
        let former = std::mem::replace(&mut *self.watching.lock(), owner.map(begin));
        if let Some(former) = former {
            former.abort();
        }
    }

    /// Whether the owner that was found suspended still is.
    fn is_suspended_still(&self) -> bool {
        let mut suspended = self.suspended.lock();
        let us = HostIdentity::of_this_process();
        *suspended = suspended.take().filter(|owner| us.is_suspended(owner));
        suspended.is_some()
    }

    fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Opens the last state on disk; `looked` is when the look at the folder began.
    async fn last_state(&self, looked: Instant) -> Result<Route, StoreError> {
        let store = self.opener.open_read_only(&self.folder).await?;
        let good_for = self.options.last_state_age.max(looked.elapsed() * LAST_STATE_WORTH);
        Ok(Route::LastState(store, good_for))
    }

    async fn own(&self, mut ownership: Ownership) -> Result<Route, StoreError> {
        let broken = |source: std::io::Error| StoreError::Failed {
            what: "listening",
            place: self.folder.display().to_string(),
            source: Arc::new(source),
        };
        let listener =
            ownership.take_listener().ok_or_else(|| broken(std::io::ErrorKind::NotConnected.into()))?;
        let listener = tokio::net::UnixListener::from_std(listener).map_err(broken)?;
        let store = self.opener.open_owned(&self.folder).await?;
        let owner = Some(ownership.record().nonce);
        let served = Served { store: Arc::clone(&store), snapshots: self.opener.snapshots(), owner };
        let server = serve(listener, served, self.options.serve, &Handle::current());
        let lost = ownership.lost();
        *self.owned.lock().await = Some(Owned { server, ownership });
        self.abandon_when_lost(lost);
        self.give_up_when_broken();
        Ok(Route::Local(store))
    }

    fn abandon_when_lost(&self, mut lost: watch::Receiver<bool>) {
        let (opener, owned) = (Arc::clone(&self.opener), Arc::downgrade(&self.owned));
        tokio::spawn(async move {
            // The ownership holds the sender, so this ends with it.
            if lost.wait_for(|is_lost| *is_lost).await.is_err() {
                return;
            }
            tracing::error!("the store is abandoned: its folder belongs to another process now");
            opener.abandon().await;
            // Attached processes then look for the new owner.
            let Some(owned) = owned.upgrade() else { return };
            if let Some(owned) = owned.lock().await.take() {
                owned.server.stop().await;
            }
        });
    }

    /// Gives the folder up when its store breaks, as if this process had died: the next process that opens it
    /// recovers from the log.
    fn give_up_when_broken(&self) {
        let (opener, owned) = (Arc::clone(&self.opener), Arc::downgrade(&self.owned));
        let (broken, mut closing) = (opener.until_broken(), self.closing.subscribe());
        let place = self.folder.display().to_string();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = broken => {}
                // Closing releases the folder as well.
                _ = closing.wait_for(|is_closing| *is_closing) => return,
            }
            tracing::error!(store = %place, "an operation on the store ended half-way, so this process gave it up: another process may take it, or this one by opening it again");
            let Some(owned) = owned.upgrade() else { return };
            let Some(Owned { server, ownership }) = owned.lock().await.take() else { return };
            // The ownership goes last, once nothing can be written to the store. Attached processes ask the
            // next owner.
            server.stop().await;
            opener.abandon().await;
            drop(ownership);
        });
    }

    async fn settle(&self) -> Result<Settled, OwnerError> {
        self.check_same()?;
        let settled = settle(&self.folder, self.mode, &self.options.owner).await?;
        self.check_same()?;
        Ok(settled)
    }

    /// Refuses to write to another folder than the one that was opened: it may have been moved away and
    /// replaced by a folder of the same name.
    fn check_same(&self) -> Result<(), OwnerError> {
        if self.mode == Mode::Read {
            return Ok(());
        }
        // If the folder cannot be looked at, the search for its owner reports that.
        let Ok(metadata) = std::fs::metadata(&self.folder) else { return Ok(()) };
        let now = (metadata.dev(), metadata.ino());
        if *self.identity.get_or_init(|| now) == now {
            return Ok(());
        }
        Err(OwnerError::Replaced { folder: self.folder.clone() })
    }

    fn owned_by(&self, owner: &OwnerRecord) -> StoreError {
        let (host, pid) = (owner.identity.host.clone(), owner.identity.pid);
        StoreError::Owned { place: self.folder.display().to_string(), host, pid }
    }

    /// Attaches to this owner; none if another process answers at its socket, or the owner has ended.
    async fn attach(
        &self,
        stream: UnixStream,
        owner: &OwnerRecord,
    ) -> Result<Option<Attachment>, StoreError> {
        let place = self.folder.display().to_string();
        let stream = tokio::net::UnixStream::from_std(stream).map_err(|source| StoreError::Unavailable {
            place: place.clone(),
            reason: "the connection to its owner cannot be used".into(),
            source: Some(Arc::new(source)),
        })?;
        let hello = attach_to(owner.nonce, stream, &place, self.mode == Mode::Read);
        let mut closing = self.closing.subscribe();
        let pid = owner.identity.pid;
        tokio::select! {
            biased;
            attached = hello => attached,
            _ = closing.wait_for(|is_closing| *is_closing) => Err(self.owned_by(owner)),
            () = tokio::time::sleep(self.options.opening_time) => Err(self.owned_by(owner)),
            silence = until_silent(owner, SUSPENDED_CHECK) => match silence {
                Silence::Suspended => Err(StoreError::Suspended { place: place.clone(), pid }),
                Silence::Ended => Ok(None),
            },
        }
    }
}

impl Drop for FolderWay {
    fn drop(&mut self) {
        self.watch(None);
    }
}

/// The pause before the next look at a folder: no event announces a new owner.
const BEFORE_NEXT_LOOK: Duration = Duration::from_millis(5);

/// How often to check whether an owner that does not answer is suspended.
const SUSPENDED_CHECK: Duration = Duration::from_millis(500);

/// The same for an owner that has answered.
const SUSPENDED_WATCH: Duration = Duration::from_secs(2);

/// How long the connection to an owner that has ended is still read for its last answers.
const LAST_WORDS_TIME: Duration = Duration::from_millis(500);

/// Watches an owner: warns each time it is suspended, and ends the connection once it has ended. A reader
/// notes a suspended owner in `suspended` and ends the connection to it as well.
async fn look_after(
    place: String,
    owner: OwnerRecord,
    attachment: Attachment,
    suspended: Option<Arc<parking_lot::Mutex<Option<OwnerRecord>>>>,
) {
    let us = HostIdentity::of_this_process();
    let pid = owner.identity.pid;
    while until_silent(&owner, SUSPENDED_WATCH).await == Silence::Suspended {
        if let Some(suspended) = suspended {
            tracing::warn!(store = %place, pid, "the process that owns the store is suspended, and the last state on disk is read until it continues");
            *suspended.lock() = Some(owner);
            return attachment.give_up();
        }
        tracing::warn!(store = %place, pid, "the process that owns the store is suspended, and requests to it wait until it continues");
        while us.is_suspended(&owner) {
            tokio::time::sleep(SUSPENDED_WATCH).await;
        }
    }
    tokio::time::sleep(LAST_WORDS_TIME).await;
    tracing::warn!(store = %place, pid, "the process that owned the store has ended, and one that it forked keeps its connections");
    attachment.give_up();
}

/// Why an owner does not answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Silence {
    /// Suspended until it is resumed.
    Suspended,
    /// Ended for good.
    Ended,
}

/// Returns when the owner is found ended, or suspended at two checks in a row.
async fn until_silent(owner: &OwnerRecord, every: Duration) -> Silence {
    let us = HostIdentity::of_this_process();
    let mut was_suspended = false;
    loop {
        tokio::time::sleep(every).await;
        if us.has_ended(owner) {
            return Silence::Ended;
        }
        let is_suspended = us.is_suspended(owner);
        if is_suspended && was_suspended {
            return Silence::Suspended;
        }
        was_suspended = is_suspended;
    }
}

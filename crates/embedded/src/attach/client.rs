//! The client side: a store that another process owns, until this process becomes the owner.
//!
//! Invariant: once this process owns the store, it stays the owner; calls then go straight to the store.
//! Invariant: one loss of the connection calls the hook once, however many calls were under way; if the hook
//! fails, they all fail.

mod contract;

use super::Request;
use super::answer::{self, Travels};
use super::attachment::{Attachment, unavailable};
use super::buffered::Buffered;
use super::call::Call;
use super::link::{LastState, Link};
use atoll_store::{Store, StoreError, Waited};
use atoll_wire::{Client, Lost};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::SetOnce;
use tokio::task::AbortHandle;

/// How many owners in a row may be lost under one call before it gives up: the call itself may be what ends
/// them. A wait outlives any number of them.
pub(super) const LOSSES_MAX: usize = 20;
/// The pause of a wait after each further loss, so that it does not ask without end an owner that turns it
/// away.
const LOSS_PAUSE: Duration = Duration::from_millis(200);
/// How long past its deadline a call waits for the owner's own answer.
const DEADLINE_GRACE: Duration = Duration::from_millis(200);
/// The same for a wait, whose first read may take the owner long.
const WAIT_GRACE: Duration = Duration::from_secs(5);

/// Where calls go.
pub enum Route {
    /// To the owner.
    Attached(Attachment),
    /// To a store in this process, from now on.
    Local(Arc<dyn Store>),
    /// To the last state on disk, for this long; then the owner is looked for again. Only for readers.
    LastState(Arc<dyn Store>, Duration),
}

/// Finds a route to a store, at first and again whenever its owner is lost.
pub trait Reattach: Send + Sync + 'static {
    /// Attaches to the owner, or becomes the owner. Called on the runtime given to the store.
    fn reattach(&self) -> BoxFuture<'_, Result<Route, StoreError>>;

    /// Called when the store is closed: a search that only waits for another process to begin or to end may
    /// stop.
    fn give_up(&self) {}

    /// Closes what [`Reattach::reattach`] opened; `local` is the store if it is open in this process.
    fn close(&self, local: Option<Arc<dyn Store>>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            match local {
                Some(store) => store.close().await,
                None => Ok(()),
            }
        })
    }
}

/// A store that another process owns, or this process once it has become the owner.
pub struct AttachedStore {
    shared: Arc<Shared>,
}

struct Shared {
    place: String,
    is_read_only: bool,
    local: SetOnce<Arc<dyn Store>>,
    /// Numbered, so that each link is given up once.
    link: Mutex<Option<(u64, Link)>>,
    reattaching: tokio::sync::Mutex<()>,
    /// The number of searches for the owner that failed, and the last one's error.
    failed: Mutex<(u64, Option<StoreError>)>,
    reattach: Arc<dyn Reattach>,
    runtime: Handle,
    is_closed: AtomicBool,
    buffered: Buffered,
    /// The task that looks for the next owner when this one ends, even if no call is under way.
    following: Mutex<Option<AbortHandle>>,
}

/// The pause after a search for the next owner that failed and that no call waited for.
const BEFORE_NEXT_SEARCH: Duration = Duration::from_secs(1);
/// The same after many searches: each leaves a connection at an owner that does not accept it.
const BEFORE_NEXT_SEARCH_MAX: Duration = Duration::from_secs(60);

/// The answer to a call, or the store in this process that is to answer it.
pub(super) enum Asked<T> {
    Answer(T),
    Local(Arc<dyn Store>),
}

impl AttachedStore {
    /// Opens the store that `reattach` finds; connections run on `runtime`.
    ///
    /// # Errors
    /// Those of the hook.
    pub async fn open(
        place: String,
        is_read_only: bool,
        reattach: Arc<dyn Reattach>,
        runtime: Handle,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            place,
            is_read_only,
            local: SetOnce::new(),
            link: Mutex::new(None),
            reattaching: tokio::sync::Mutex::new(()),
            failed: Mutex::default(),
            reattach,
            runtime,
            is_closed: AtomicBool::new(false),
            buffered: Buffered::default(),
            following: Mutex::default(),
        });
        let store = Self { shared };
        store.find_owner(0).await?;
        Ok(store)
    }

    /// Whether calls are answered in this process.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.local().is_some() || self.shared.last_state().is_some()
    }

    /// Waits until this process owns the store; a reader waits for ever.
    pub async fn until_local(&self) {
        self.shared.local.wait().await;
    }

    pub(super) fn local(&self) -> Option<&Arc<dyn Store>> {
        self.shared.local.get()
    }

    /// The current link and its number, or an error if the store is closed.
    pub(super) fn link(&self) -> Result<(u64, Link), StoreError> {
        if self.shared.is_closed.load(Ordering::Acquire) {
            return Err(StoreError::closed(&self.shared.place));
        }
        let link = self.shared.link.lock().clone();
        link.ok_or_else(|| StoreError::closed(&self.shared.place))
    }

    /// Finds the owner anew, unless another call did so since connection `lost`. The search goes on if the
    /// caller is dropped, so that a half-opened store is never abandoned.
    pub(super) async fn find_owner(&self, lost: u64) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let finding = self.shared.runtime.spawn(async move { shared.find_owner(lost).await });
        finding.await.unwrap_or_else(|_| Err(StoreError::closed(&self.shared.place)))
    }

    /// Sends a request to the owner, whichever process that becomes.
    pub(super) async fn ask<T: Travels>(&self, request: &Request) -> Result<Asked<T>, StoreError> {
        self.ask_whom(&Call::new(request)).await.map(|(asked, _)| asked)
    }

    /// As [`AttachedStore::ask`], with the number of the connection that answered; 0 for none.
    async fn ask_whom<T: Travels>(&self, call: &Call<'_>) -> Result<(Asked<T>, u64), StoreError> {
        let request = call.request;
        if request.is_write() && self.shared.is_read_only {
            return Err(StoreError::ReadOnly { place: self.shared.place.clone() });
        }
        let asking = self.ask_until_answered(call);
        let grace = if request.is_wait() { WAIT_GRACE } else { DEADLINE_GRACE };
        let Some(time) = request.time().map(|time| time.saturating_add(grace)) else { return asking.await };
        let sleep = self.sleep(time);
        tokio::select! {
            biased;
            answer = asking => answer,
            // The owner would have answered by now, but it is suspended, or there is none.
            () = sleep => self.too_late(call).map(|answer| (answer, 0)),
        }
    }

    /// A timer, which the store's runtime drives, wherever the call is polled.
    fn sleep(&self, time: Duration) -> tokio::time::Sleep {
        let _runtime = self.shared.runtime.enter();
        tokio::time::sleep(time)
    }

    /// Sends the request to one owner after another; `call` keeps track of it.
    async fn ask_until_answered<T: Travels>(&self, call: &Call<'_>) -> Result<(Asked<T>, u64), StoreError> {
        let request = call.request;
        let mut encoded = request.encode();
        let mut losses = 0;
        loop {
            if let Some(local) = self.local() {
                call.check_repeat(&local.capabilities(), None)?;
                return Ok((Asked::Local(Arc::clone(local)), 0));
            }
            let (number, attachment) = match self.link().map_err(|error| call.failed(error))? {
                (number, Link::Owner(attachment)) => (number, attachment),
                (_, Link::LastState(state)) if state.left().is_some() => {
                    return Ok((Asked::Local(state.store), 0));
                }
                (number, Link::LastState(_)) => {
                    self.find_owner(number).await?;
                    self.count_loss(call, &mut losses).await?;
                    continue;
                }
            };
            // The search may have taken long, and others may have written meanwhile.
            call.check_repeat(&attachment.capabilities, None)?;
            attachment.check_length(&encoded).map_err(|error| call.failed(error))?;
            let was_out = call.is_out();
            call.set_out(true);
            let lost = match attachment.client.call(&encoded).await {
                Ok(bytes) => {
                    call.set_out(was_out);
                    let answer = self.decoded(request, &bytes).map_err(|error| call.failed(error))?;
                    if request.durability().is_some_and(|class| attachment.buffers(class)) {
                        self.shared.buffered.wrote(number);
                    }
                    return Ok((Asked::Answer(answer), number));
                }
                Err(lost) => lost,
            };
            call.set_out(was_out || lost.was_sent);
            self.check_loss(call, &attachment, &lost).map_err(|error| call.failed(error))?;
            self.find_owner(number).await.map_err(|error| call.failed(error))?;
            self.count_loss(call, &mut losses).await?;
            if let Some(later) = call.later() {
                encoded = later.encode();
            }
        }
    }

    /// Counts one more loss under a call: after too many of them it fails, or pauses if it is a wait.
    async fn count_loss(&self, call: &Call<'_>, losses: &mut usize) -> Result<(), StoreError> {
        *losses += 1;
        if *losses < LOSSES_MAX {
            return Ok(());
        }
        if !call.request.is_wait() {
            return Err(call.failed(self.gave_up()));
        }
        self.sleep(LOSS_PAUSE).await;
        Ok(())
    }

    /// The answer to a call whose deadline has passed.
    fn too_late<T: Travels>(&self, call: &Call<'_>) -> Result<Asked<T>, StoreError> {
        // A wait of no time only asks for the present state, which nobody has read.
        if call.request.is_wait() && call.request.time() != Some(Duration::ZERO) {
            let answer = answer::encode(&Ok(Waited::TimedOut));
            return self.decoded(call.request, &answer).map(Asked::Answer);
        }
        let reason = "the owner did not answer before the deadline".to_owned();
        let place = self.shared.place.clone();
        Err(call.failed(StoreError::Unavailable { place, reason, source: None }))
    }

    pub(super) fn gave_up(&self) -> StoreError {
        let reason = "one owner after the other was lost".to_owned();
        StoreError::Unavailable { place: self.shared.place.clone(), reason, source: None }
    }

    fn decoded<T: Travels>(&self, request: &Request, bytes: &[u8]) -> Result<T, StoreError> {
        answer::decode(bytes).unwrap_or_else(|error| {
            Err(if request.is_write() {
                let reason = "the owner's answer cannot be read".to_owned();
                StoreError::Unknown { what: request.name(), reason, source: Some(Arc::new(error)) }
            } else {
                unavailable(&self.shared.place, error)
            })
        })
    }

    /// Checks that the call may be repeated after this loss.
    fn check_loss(&self, call: &Call<'_>, attachment: &Attachment, lost: &Lost) -> Result<(), StoreError> {
        if self.shared.is_closed.load(Ordering::Acquire) && !(call.request.is_write() && lost.was_sent) {
            return Err(StoreError::closed(&self.shared.place));
        }
        attachment.check_room(lost)?;
        // The search for the next owner takes long, and is in vain if the call may not be repeated there.
        call.check_repeat(&attachment.capabilities, Some(lost))
    }
}

impl Shared {
    async fn find_owner(self: &Arc<Self>, lost: u64) -> Result<(), StoreError> {
        let failed_before = self.failed.lock().0;
        let _only_one = self.reattaching.lock().await;
        let number = self.link.lock().as_ref().map_or(0, |(number, _)| *number);
        if self.local.get().is_some() || number != lost {
            return Ok(());
        }
        if self.is_closed.load(Ordering::Acquire) {
            return Err(StoreError::closed(&self.place));
        }
        // A call that waited for another call's search shares its failure: another search would take as long
        // again.
        if let (failed, Some(error)) = &*self.failed.lock()
            && *failed != failed_before
        {
            return Err(error.clone());
        }
        let found = self.reattach.reattach().await.inspect_err(|error| {
            let mut failed = self.failed.lock();
            *failed = (failed.0 + 1, Some(error.clone()));
        })?;
        let link = match found {
            Route::Attached(attachment) => {
                self.follow(number + 1, attachment.client.clone());
                Link::Owner(attachment)
            }
            Route::LastState(store, good_for) => Link::LastState(LastState::new(store, good_for)),
            Route::Local(store) => {
                // The first store stays; the lock above admits one search at a time.
                let _ = self.local.set(store);
                return Ok(());
            }
        };
        let former = self.link.lock().replace((number + 1, link));
        // Dropped after the lock, which every call takes: the memory of a whole store may be freed with it.
        drop(former);
        Ok(())
    }

    /// Takes part in the search for the next owner once connection `number` ends: the store would have no
    /// owner if all attached processes waited for their next call. A reader cannot become the owner.
    fn follow(self: &Arc<Self>, number: u64, client: Client) {
        if self.is_read_only {
            return;
        }
        let shared = Arc::downgrade(self);
        let following = self.runtime.spawn(async move {
            client.ended().await;
            drop(client);
            let mut pause = BEFORE_NEXT_SEARCH;
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_closed.load(Ordering::Acquire)) {
                let (runtime, place) = (shared.runtime.clone(), shared.place.clone());
                // A task of its own, so that it goes on if this one is aborted.
                let finding = runtime.spawn(async move { shared.find_owner(number).await });
                match finding.await {
                    // For instance, the next owner is suspended or cannot be reached, or the disk is full.
                    Ok(Err(error)) if error.kind().names().retry_can_help => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(BEFORE_NEXT_SEARCH_MAX);
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(store = %place, %error, "the process that owned the store has ended, and this one cannot take its place");
                        return;
                    }
                    _ => return,
                }
            }
        });
        let former = self.following.lock().replace(following.abort_handle());
        if let Some(former) = former {
            former.abort();
        }
    }

    fn last_state(&self) -> Option<LastState> {
        match &*self.link.lock() {
            Some((_, Link::LastState(state))) => Some(state.clone()),
            _ => None,
        }
    }

    /// The store in this process that is closed with this one.
    fn store_here(&self) -> Option<Arc<dyn Store>> {
        self.local.get().cloned().or_else(|| self.last_state().map(|state| state.store))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(following) = self.following.lock().take() {
            following.abort();
        }
        if !self.is_closed.load(Ordering::Acquire) {
            let (reattach, local) = (Arc::clone(&self.reattach), self.store_here());
            // A caller that wants to know how closing ends calls `close`.
            self.runtime.spawn(async move { reattach.close(local).await });
        }
    }
}

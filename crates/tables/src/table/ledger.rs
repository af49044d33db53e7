//! The ledger: reads and writes the manifest partition of a table according to [`crate::protocol`].
//!
//! Invariant: a handle commits one edit at a time.

mod backoff;
mod committing;
mod listing;
mod marks;
mod past;
mod reading;
mod snapshots;

pub(super) use snapshots::SnapshotCell;

use super::names::Names;
use super::session::OwnSession;
use super::{TableError, codec};
use crate::protocol::{AttemptId, Cell, EditError, Head, Manifest, ObjectId, SessionId, Version};
use atoll_store::{Batch, Buffer, Expectation, ReadOptions, Store, StoreError, Waited, WriteOptions};
use futures::lock::{Mutex as Turn, MutexGuard};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard as Guard, PoisonError};
use std::time::Duration;

/// Maximum length of a part of a whole manifest, in bytes. A manifest that is not longer than this together
/// with its edit is put in the same batch.
pub(super) const PART_BYTES_MAX: usize = 1 << 20;

/// Maximum length of an edit that later commits have in a condition, in bytes.
const KNOWN_EDIT_BYTES_MAX: usize = 64 << 10;

/// Number of writes with an unknown outcome after which a commit is abandoned as in doubt.
const UNKNOWN_MAX: usize = 64;

/// A version and its content.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) head: Head,
    pub(super) manifest: Arc<Manifest>,
    /// Number of entries of the edits since the last whole manifest.
    entries_since: u64,
    /// The cell of the edit that made the version, if it was read or written and is short. It says whose
    /// version of this number it is.
    edit: Option<Buffer>,
}

impl State {
    /// Whether the version of a head that was read later can follow this one: versions only rise, and a whole
    /// manifest up to this one was known with it. If not, the store has gone back and lost this version.
    fn may_precede(&self, head: Head) -> bool {
        let is_same_or_newer = self.head.full == head.full || self.head.version < head.full;
        self.head.version <= head.version && is_same_or_newer
    }
}

/// The outcome of a commit, if the store settled it.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// The edit made this version. The manifest is that of this version or of a later one, as the commit
    /// itself wrote or read it: it says what of the edit was news.
    Made(Version, Arc<Manifest>),
    /// The edit is in no version and never will be.
    Refused(EditError),
    /// The session is gone. The edit is in no version and never will be.
    Fenced,
    /// The outcome can no longer be determined.
    Forgotten,
}

/// The cell of an edit, if it is short enough for [`State::edit`].
fn if_short(edit: &Buffer) -> Option<Buffer> {
    (edit.len() <= KNOWN_EDIT_BYTES_MAX).then(|| edit.clone())
}

/// The manifest partition of one table, with the session of this handle.
pub(super) struct Ledger {
    store: Arc<dyn Store>,
    table: String,
    partition: Vec<u8>,
    own_session: Mutex<Option<OwnSession>>,
    opening: Turn<()>,
    turn: Turn<()>,
    next: AtomicU64,
    /// The newest state read so far; `None` before the first read.
    known: Mutex<Option<State>>,
    /// Whether other processes seem to be writing. If so, looking before a write saves futile ones.
    has_company: AtomicBool,
    /// The marks that were looked up; `None` for an attempt without one. Neither ever changes.
    marks: Mutex<BTreeMap<AttemptId, Option<u128>>>,
}

impl Ledger {
    /// Opens the ledger of a table; writes nothing.
    pub(super) async fn open(store: Arc<dyn Store>, table: &str, names: &Names) -> Result<Self, TableError> {
        let ledger = Self {
            store,
            table: table.to_owned(),
            partition: names.manifest(),
            own_session: Mutex::new(None),
            opening: Turn::new(()),
            turn: Turn::new(()),
            next: AtomicU64::new(1),
            known: Mutex::new(None),
            has_company: AtomicBool::new(false),
            marks: Mutex::default(),
        };
        ledger.current().await?;
        Ok(ledger)
    }

    /// The session of this handle; begins one if there is none.
    pub(super) async fn session(&self) -> Result<OwnSession, TableError> {
        let _opening = self.opening.lock().await;
        if let Some(session) = self.own_session().clone() {
            return Ok(session);
        }
        // Whatever this handle reads from here on is this version or a later one, since versions only rise.
        let from = self.head().await?.version;
        let session = OwnSession::begin(&*self.store, &self.table, &self.partition, from).await?;
        *self.own_session() = Some(session.clone());
        Ok(session)
    }

    /// The session, if one has begun.
    pub(super) fn own_session(&self) -> Guard<'_, Option<OwnSession>> {
        self.own_session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a session that has ended, so that the next write begins another one.
    fn forget_session(&self, ended: SessionId) {
        self.own_session().take_if(|known| known.id == ended);
    }

    /// Renews the session if it is due, for a caller that works or pauses for a long time before its next
    /// commit. If the outcome of a renewal is unknown, the next one finds it out.
    ///
    /// # Errors
    /// [`TableError::Fenced`] if the session has ended.
    pub(super) async fn renew_session(&self) -> Result<(), TableError> {
        let now = self.store.now().await?.0;
        // The cell is a condition of any commit in progress.
        let _turn = self.turn().await;
        let Some(mut session) = self.own_session().clone() else { return Ok(()) };
        let Some(renewal) = session.renewal(now, self.known_version()) else { return Ok(()) };
        self.keep(&session);
        let key = Cell::Session(session.id).sort_key();
        let batch = Batch::on(self.partition.as_slice())
            .if_equals(key.as_slice(), session.cell.clone())
            .put(key, renewal.clone());
        match self.store.write(batch, WriteOptions::default()).await {
            Ok(_) => {
                session.renewed(renewal, now);
                self.keep(&session);
                Ok(())
            }
            Err(StoreError::Conflict(_)) => self.look_at(session).await,
            Err(error) if is_unknown(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks whether the session still stands, for a caller that writes many objects before its next commit:
    /// if a vacuum has ended the session, or the table was dropped, it writes them in vain.
    ///
    /// # Errors
    /// [`TableError::Fenced`] if the session has ended.
    pub(super) async fn check_session(&self) -> Result<(), TableError> {
        let _turn = self.turn().await;
        let Some(session) = self.own_session().clone() else { return Ok(()) };
        self.look_at(session).await
    }

    /// Compares the cell of the session with what this handle wrote. The caller must hold the turn.
    async fn look_at(&self, mut session: OwnSession) -> Result<(), TableError> {
        let found = self.cell(Cell::Session(session.id), false).await?;
        let stands = session.saw(found.as_deref());
        self.keep(&session);
        if stands {
            return Ok(());
        }
        self.forget_session(session.id);
        Err(TableError::Fenced { table: self.table.clone() })
    }

    /// Ends the session, so that no vacuum has to.
    pub(super) async fn end_session(&self) -> Result<(), TableError> {
        let _turn = self.turn().await;
        let Some(session) = self.own_session().take() else { return Ok(()) };
        let key = Cell::Session(session.id).sort_key();
        let cell = atoll_store::Cell::new(&self.partition, &key);
        let mut unknown = 0;
        loop {
            match self.store.delete(cell, WriteOptions::default()).await {
                Ok(_) => return Ok(()),
                // The name of a session is never reused, so deleting it twice does no harm.
                Err(error) if is_unknown(&error) && unknown < UNKNOWN_MAX => unknown += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A new object name in a session of this handle.
    pub(super) fn new_object_of(&self, session: SessionId) -> ObjectId {
        ObjectId { session, sequence: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    async fn cell(&self, cell: Cell, immutable: bool) -> Result<Option<Buffer>, TableError> {
        let key = cell.sort_key();
        let cell = atoll_store::Cell::new(&self.partition, &key);
        Ok(self.store.get(cell, ReadOptions { immutable, ..ReadOptions::default() }).await?)
    }

    async fn head(&self) -> Result<Head, TableError> {
        match self.cell(Cell::Head, false).await? {
            Some(bytes) => codec::head_from_bytes(&self.table, &bytes),
            None if self.cell(Cell::Dropped, false).await?.is_some() => Err(self.not_found()),
            None => Ok(Head::default()),
        }
    }

    fn not_found(&self) -> TableError {
        TableError::NotFound { name: self.table.clone() }
    }

    pub(super) fn known(&self) -> Option<State> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest version that this handle has seen.
    pub(super) fn known_version(&self) -> Version {
        self.known().map_or(Version::EMPTY, |known| known.head.version)
    }

    fn learn(&self, state: &State) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| known.head.version < state.head.version) {
            *known = Some(state.clone());
        }
    }

    /// Learns the state that a write of this handle has just made. Of two states of one version it is the
    /// right one: the store had lost the other before the write could succeed.
    fn learn_made(&self, state: &State) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| known.head.version <= state.head.version) {
            *known = Some(state.clone());
        }
    }

    /// Forgets a state that the store has lost, unless another one has been learned since.
    fn unlearn(&self, lost: &State) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.take_if(|known| Arc::ptr_eq(&known.manifest, &lost.manifest));
    }

    /// The current state.
    pub(super) async fn current(&self) -> Result<State, TableError> {
        let known = self.known();
        let mut head = self.head().await?;
        // A store that has gone back gives the numbers of the versions that it lost to other contents.
        if let Some(lost) = known.as_ref().filter(|known| !known.may_precede(head)) {
            self.unlearn(lost);
        }
        let before = known.map_or(Version::EMPTY, |known| known.head.version);
        loop {
            // A later version that this handle has learned in the meantime, such as one that it made, is as
            // good an answer; going back from it to the head would take a whole manifest. A later version
            // that it knew before is none: the store has lost it.
            let is_later = |known: &State| known.head.version > head.version.max(before);
            if let Some(later) = self.known().filter(is_later) {
                return Ok(later);
            }
            match self.state_at(head).await {
                // A vacuum may have removed edits after the head was read. There is a later whole manifest
                // then.
                Err(error @ TableError::Damaged { .. }) => {
                    let now = self.head().await?;
                    if now.full <= head.full {
                        return Err(error);
                    }
                    head = now;
                }
                ended => return ended,
            }
        }
    }

    /// Waits until the head differs from `head` or the time runs out; returns the head at that point.
    pub(super) async fn wait(&self, head: Head, wait: Duration) -> Result<Head, TableError> {
        let key = Cell::Head.sort_key();
        let cell = atoll_store::Cell::new(&self.partition, &key);
        let is = (head != Head::default()).then(|| Buffer::from(codec::head_to_bytes(head)));
        match self.store.wait(cell, Expectation::Differs(is), wait).await? {
            Waited::Met(Some(bytes)) => codec::head_from_bytes(&self.table, &bytes),
            Waited::Met(None) => self.head().await,
            Waited::TimedOut => Ok(head),
        }
    }

    /// The current head.
    pub(super) async fn head_now(&self) -> Result<Head, TableError> {
        self.head().await
    }

    /// The turn to commit. Only its holder may commit through this handle.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    fn keep(&self, session: &OwnSession) {
        let mut known = self.own_session();
        if known.as_ref().is_some_and(|known| known.id == session.id) {
            *known = Some(session.clone());
        }
    }
}

/// The value of the cell of a whole manifest. A manifest that is long, or goes with a long edit, is first
/// written in parts under `name`.
pub(super) async fn put_parts(
    store: &dyn Store,
    partition: &[u8],
    name: ObjectId,
    bytes: Vec<u8>,
    edit_bytes: usize,
) -> Result<Vec<u8>, TableError> {
    if bytes.len().saturating_add(edit_bytes) <= PART_BYTES_MAX {
        return Ok(bytes);
    }
    let parts = (0_u32..).zip(bytes.chunks(PART_BYTES_MAX));
    let count = bytes.len().div_ceil(PART_BYTES_MAX);
    let create = parts.map(|(number, part)| async move {
        let key = Cell::Part(name, number).sort_key();
        create(store, atoll_store::Cell::new(partition, &key), &Buffer::from(part)).await
    });
    futures::future::try_join_all(create).await?;
    Ok(codec::join_whole(name, u32::try_from(count).unwrap_or(u32::MAX)))
}

/// How often an object is written if the outcome is unknown. Creating it again is harmless.
const CREATE_ATTEMPTS_MAX: usize = 5;

/// Creates a cell that no other process creates.
pub(super) async fn create(
    store: &dyn Store,
    cell: atoll_store::Cell<'_>,
    bytes: &Buffer,
) -> Result<(), TableError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match store.create(cell, bytes.clone(), WriteOptions::default()).await {
            Ok(_) => return Ok(()),
            Err(error) if is_unknown(&error) && attempts < CREATE_ATTEMPTS_MAX => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) fn is_unknown(error: &StoreError) -> bool {
    error.outcome() == atoll_store::Outcome::Unknown
}

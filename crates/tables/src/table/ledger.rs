//! The ledger: the manifest partition of a table, read and written as [`crate::protocol`] says.
//!
//! Invariant: the session's cell is read before the head: if it is gone by then, no write of this session that
//! is still on its way can become true, and what became true before is in the head.
//! Invariant: one edit of a handle is on its way at a time.

mod crowd;
mod listing;
mod past;
mod reading;
mod snapshots;

pub(super) use snapshots::Kept;

use super::names::Names;
use super::query::Repeats;
use super::session::Stay;
use super::{TableError, codec};
use crate::planted::{self, Bug};
use crate::protocol::{
    Cell, Commit, Edit, EditError, EditId, Ended, Head, Manifest, ObjectId, Outcome, Proposal, SessionId,
    Step, Version, View,
};
use atoll_store::{Batch, Buffer, Expectation, ReadOptions, Store, StoreError, Waited, WriteOptions};
use futures::lock::{Mutex as Turn, MutexGuard};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard as Guard, PoisonError};
use std::time::Duration;

/// Longest part of a whole manifest, in bytes: one batch holds it with its edit.
const PART_BYTES: usize = 1 << 20;

/// After how many writes of unknown outcome an edit is given up, in doubt.
const UNKNOWN_MAX: usize = 64;

/// How often a version is looked at anew because objects that it names are gone.
const LOOKS_MAX: usize = 8;

/// A version and its content.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) head: Head,
    pub(super) manifest: Arc<Manifest>,
}

/// How an edit ended, where the store told.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// It is in this version.
    Made(Version),
    /// It is in no version and never will be.
    Refused(EditError),
    /// The session is gone, and the edit is in no version and never will be.
    Fenced,
    /// Nobody knows any more.
    Forgotten,
}

/// The manifest partition of one table, and this handle's session in it.
pub(super) struct Ledger {
    store: Arc<dyn Store>,
    table: String,
    partition: Vec<u8>,
    stay: Mutex<Option<Stay>>,
    opening: Turn<()>,
    turn: Turn<()>,
    next: AtomicU64,
    /// The newest state that was read; none before the first.
    known: Mutex<Option<State>>,
    /// Whether somebody else seems to be writing: then looking first spares a write in vain.
    has_company: AtomicBool,
}

impl Ledger {
    /// The ledger of a table; nothing is written.
    pub(super) async fn open(store: Arc<dyn Store>, table: &str, names: &Names) -> Result<Self, TableError> {
        let ledger = Self {
            store,
            table: table.to_owned(),
            partition: names.manifest(),
            stay: Mutex::new(None),
            opening: Turn::new(()),
            turn: Turn::new(()),
            next: AtomicU64::new(1),
            known: Mutex::new(None),
            has_company: AtomicBool::new(false),
        };
        ledger.current().await?;
        Ok(ledger)
    }

    /// This handle's session, begun now if there is none yet.
    pub(super) async fn session(&self) -> Result<Stay, TableError> {
        let _opening = self.opening.lock().await;
        if let Some(stay) = self.stay().clone() {
            return Ok(stay);
        }
        // From the first version on: what is read now may be any version from this one, and it only rises.
        let from = self.head().await?.version;
        let stay = Stay::begin(&*self.store, &self.table, &self.partition, from).await?;
        *self.stay() = Some(stay.clone());
        Ok(stay)
    }

    /// The session, if one has begun.
    pub(super) fn stay(&self) -> Guard<'_, Option<Stay>> {
        self.stay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the session if it is time, for whoever rests for long before the next commit. What became of a renewal in doubt is
    /// found out by the next one.
    ///
    /// # Errors
    /// [`TableError::Fenced`] if the session has ended.
    pub(super) async fn renew_session(&self) -> Result<(), TableError> {
        let now = self.store.now().await?.0;
        // A commit that is under way has the cell as its condition.
        let _turn = self.turn().await;
        let Some(mut stay) = self.stay().clone() else { return Ok(()) };
        let Some(renewal) = stay.renewal(now, self.known_version()) else { return Ok(()) };
        self.keep(&stay);
        let key = Cell::Session(stay.id).sort_key();
        let batch = Batch::on(self.partition.as_slice())
            .if_equals(key.as_slice(), stay.cell.clone())
            .put(key, renewal.clone());
        match self.store.write(batch, WriteOptions::default()).await {
            Ok(_) => {
                stay.renewed(renewal, now);
                self.keep(&stay);
                Ok(())
            }
            Err(StoreError::Conflict(_)) => {
                let found = self.cell(Cell::Session(stay.id), false).await?;
                let stands = stay.saw(found.as_deref());
                self.keep(&stay);
                if stands { Ok(()) } else { Err(TableError::Fenced { table: self.table.clone() }) }
            }
            Err(error) if is_unknown(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the session, so that nothing of it awaits a vacuum.
    pub(super) async fn end_session(&self) -> Result<(), TableError> {
        let _turn = self.turn().await;
        let Some(stay) = self.stay().take() else { return Ok(()) };
        let key = Cell::Session(stay.id).sort_key();
        let cell = atoll_store::Cell::new(&self.partition, &key);
        let mut unknown = 0;
        loop {
            match self.store.delete(cell, WriteOptions::default()).await {
                Ok(_) => return Ok(()),
                // Nobody else has a session of this name, so doing it twice does no harm.
                Err(error) if is_unknown(&error) && unknown < UNKNOWN_MAX => unknown += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A name for a new object of a session of this handle.
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

    /// The state that is current now.
    pub(super) async fn current(&self) -> Result<State, TableError> {
        let mut head = self.head().await?;
        loop {
            match self.state_at(head).await {
                // Whoever lingered between head and edits may find that a vacuum took them: a later whole manifest
                // is there then.
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

    /// Waits until the head says another version than `head`, or the time runs out; what it says then.
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

    /// The head as it is now.
    pub(super) async fn head_now(&self) -> Result<Head, TableError> {
        self.head().await
    }

    /// The turn to commit: whoever has it is the only one of this handle who does.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Makes an edit true; the version that has it. An edit that changes nothing is true already.
    ///
    /// An edit that names no new objects is made again under a new session if the old one has ended.
    pub(super) async fn commit(&self, edit: Edit) -> Result<Version, TableError> {
        match self.commit_new(edit).await {
            Err(TableError::Edit(EditError::AlreadyDone)) => Ok(self.known_version()),
            ended => ended,
        }
    }

    /// As [`Ledger::commit`]; an edit that changes nothing is an error.
    pub(super) async fn commit_new(&self, edit: Edit) -> Result<Version, TableError> {
        let names_objects = matches!(edit, Edit::Append { .. } | Edit::Load { .. } | Edit::Pack { .. });
        let _turn = self.turn().await;
        loop {
            match self.commit_once(edit.clone()).await? {
                Fate::Made(version) => return Ok(version),
                Fate::Refused(error) => return Err(error.into()),
                Fate::Fenced if names_objects => {
                    return Err(TableError::Fenced { table: self.table.clone() });
                }
                Fate::Fenced => {}
                Fate::Forgotten => return Err(TableError::Forgotten { table: self.table.clone() }),
            }
        }
    }

    /// Makes an edit true under the session that stands now. Whoever calls this has the turn.
    ///
    /// # Errors
    /// [`TableError::InDoubt`] if the store fails while a write may be on its way; other errors where the edit is
    /// in no version and never will be.
    pub(super) async fn commit_once(&self, edit: Edit) -> Result<Fate, TableError> {
        self.commit_checked(edit, None).await
    }

    /// As [`Ledger::commit_once`], where what the edit brings is compared with each version that it may follow.
    pub(super) async fn commit_checked(
        &self,
        edit: Edit,
        repeats: Option<&mut Repeats<'_>>,
    ) -> Result<Fate, TableError> {
        let stay = self.session().await?;
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let mut commit = Commit::new(EditId { session: stay.id, sequence }, edit);
        let ended = self.drive(&mut commit, stay, repeats).await;
        match ended {
            Err(error @ TableError::InDoubt { .. }) => Err(error),
            Err(source) if commit.doubt().is_some() => {
                Err(TableError::InDoubt { table: self.table.clone(), source: Box::new(source) })
            }
            Err(error) => Err(error),
            Ok(Ended::Made(version)) => Ok(Fate::Made(version)),
            Ok(Ended::Refused(error)) => Ok(Fate::Refused(error)),
            Ok(Ended::Fenced) => {
                // The next edit begins another session.
                let mut known = self.stay();
                if known.as_ref().is_some_and(|known| known.id == commit.id().session) {
                    *known = None;
                }
                Ok(Fate::Fenced)
            }
            Ok(Ended::Forgotten) => Ok(Fate::Forgotten),
        }
    }

    async fn drive(
        &self,
        commit: &mut Commit,
        mut stay: Stay,
        mut repeats: Option<&mut Repeats<'_>>,
    ) -> Result<Ended, TableError> {
        let now = self.store.now().await?.0;
        // Only what this edit tries from here on will be looked up.
        let renewal = stay.renewal(now, self.known_version());
        let mut attempt = Attempt { renewal, now, unknown: 0 };
        self.keep(&stay);
        let mut state = self.known().unwrap_or(State { head: Head::default(), manifest: Arc::default() });
        let may_guess = !self.has_company.load(Ordering::Relaxed) && stay.covers(state.head.version);
        if may_guess && state.manifest.apply(commit.edit()).is_ok() {
            // What is known may be old, and then the write is refused: its conditions are all that counts.
            let view = View { head: state.head, manifest: &state.manifest, session_stands: true };
            commit.saw(view, |_| None);
        }
        let mut looks = 0;
        loop {
            let ended = match commit.step() {
                Step::Look => {
                    looks += 1;
                    self.look(commit, &mut state, &mut stay).await?
                }
                Step::Write(proposal) => {
                    // The write holds only if the version that is compared here is still the current one. A write
                    // in doubt is repeated on the same version, where nothing else comes of it.
                    let refusal = match &mut repeats {
                        Some(repeats) => repeats.refusal(&state.manifest).await,
                        None => Ok(None),
                    };
                    match refusal {
                        Ok(None) => {
                            let wrote =
                                self.write(&proposal, commit, &state, &mut stay, &mut attempt).await?;
                            if wrote == Outcome::Refused && looks > 0 {
                                self.give_way(commit.id(), looks).await;
                            }
                            commit.wrote(wrote)
                        }
                        // What stood in the way of a guess may be gone: what is refused is refused after a look.
                        Ok(Some(_)) if looks == 0 => commit.wrote(Outcome::Refused),
                        Ok(Some(error)) => return Ok(Ended::Refused(error)),
                        // A vacuum takes what older versions name, also while it is compared.
                        Err(TableError::ObjectGone { .. }) if looks < LOOKS_MAX => {
                            commit.wrote(Outcome::Refused)
                        }
                        Err(error) => return Err(error),
                    }
                }
                Step::Ended => None,
            };
            if let Some(ended) = ended {
                return Ok(ended);
            }
        }
    }

    fn keep(&self, stay: &Stay) {
        let mut known = self.stay();
        if known.as_ref().is_some_and(|known| known.id == stay.id) {
            *known = Some(stay.clone());
        }
    }

    async fn look(
        &self,
        commit: &mut Commit,
        state: &mut State,
        stay: &mut Stay,
    ) -> Result<Option<Ended>, TableError> {
        let session = self.cell(Cell::Session(stay.id), false).await?;
        let session_stands = stay.saw(session.as_deref()) || is_fenced_pack(commit.edit());
        self.keep(stay);
        let before = state.head;
        *state = self.current().await?;
        self.has_company.store(state.head != before, Ordering::Relaxed);
        let maker = match commit.doubt().filter(|tried| state.head.version >= *tried) {
            None => None,
            Some(tried) => match self.cell(Cell::Edit(tried), true).await? {
                None => None,
                Some(text) => Some(codec::edit_from_json(&self.table, &text)?.0),
            },
        };
        let view = View { head: state.head, manifest: &state.manifest, session_stands };
        Ok(commit.saw(view, |_| maker))
    }

    /// Carries a proposal out; an error only where nothing was written and trying again will not help.
    async fn write(
        &self,
        proposal: &Proposal,
        commit: &Commit,
        state: &State,
        stay: &mut Stay,
        attempt: &mut Attempt,
    ) -> Result<Outcome, TableError> {
        let (head_key, session_key) = (Cell::Head.sort_key(), Cell::Session(stay.id).sort_key());
        let base = (proposal.base != Head::default()).then(|| codec::head_to_bytes(proposal.base));
        let next = state.manifest.apply(commit.edit())?;
        let mut batch = Batch::on(self.partition.as_slice()).if_is(head_key.as_slice(), base);
        if !is_fenced_pack(commit.edit()) {
            batch = batch.if_equals(session_key.as_slice(), stay.cell.clone());
        }
        batch = batch.put(head_key.as_slice(), codec::head_to_bytes(proposal.head)).put(
            Cell::Edit(proposal.head.version).sort_key(),
            codec::edit_to_json(proposal.id, commit.edit()).into_bytes(),
        );
        if proposal.head.full == proposal.head.version {
            let full = self.put_parts(stay, codec::whole_to_bytes(&remembered(&next))).await?;
            batch = batch.put(Cell::Full(proposal.head.version).sort_key(), full);
        }
        if let Some(renewal) = &attempt.renewal {
            batch = batch.put(session_key.as_slice(), renewal.clone());
        }
        match self.store.write(batch, WriteOptions::default()).await {
            Ok(_) => {
                if let Some(renewal) = attempt.renewal.take() {
                    stay.renewed(renewal, attempt.now);
                    self.keep(stay);
                }
                self.learn(&State { head: proposal.head, manifest: Arc::new(next) });
                Ok(Outcome::Done)
            }
            Err(StoreError::Conflict(_)) => Ok(Outcome::Refused),
            Err(error) if is_unknown(&error) => {
                attempt.unknown += 1;
                if attempt.unknown < UNKNOWN_MAX {
                    return Ok(Outcome::Unknown);
                }
                Err(TableError::InDoubt { table: self.table.clone(), source: Box::new(error.into()) })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the cell of a whole manifest says: the manifest, or the name of the parts that were written for it.
    ///
    /// Parts whose edit comes to nothing await a vacuum; a whole manifest that long is written once in thousands
    /// of edits.
    async fn put_parts(&self, stay: &Stay, bytes: Vec<u8>) -> Result<Vec<u8>, TableError> {
        put_parts(&*self.store, &self.partition, self.new_object_of(stay.id), bytes).await
    }
}

/// What the cell of a whole manifest says; parts are written under this name.
pub(super) async fn put_parts(
    store: &dyn Store,
    partition: &[u8],
    name: ObjectId,
    bytes: Vec<u8>,
) -> Result<Vec<u8>, TableError> {
    if bytes.len() <= PART_BYTES {
        return Ok(bytes);
    }
    let parts = (0_u32..).zip(bytes.chunks(PART_BYTES));
    let count = bytes.len().div_ceil(PART_BYTES);
    let create = parts.map(|(number, part)| async move {
        let key = Cell::Part(name, number).sort_key();
        create(store, atoll_store::Cell::new(partition, &key), &Buffer::from(part)).await
    });
    futures::future::try_join_all(create).await?;
    Ok(codec::join_whole(name, u32::try_from(count).unwrap_or(u32::MAX)))
}

/// Whether it is a pack, and a bug lets packs become true though their session has ended.
fn is_fenced_pack(edit: &Edit) -> bool {
    planted::is(Bug::FencedPackCommits) && matches!(edit, Edit::Pack { .. })
}

/// What a whole manifest has: everything, but for a bug.
fn remembered(manifest: &Manifest) -> Cow<'_, Manifest> {
    if planted::is(Bug::WholeManifestForgets) {
        return Cow::Owned(Manifest { tombstones: Vec::new(), ..manifest.clone() });
    }
    if planted::is(Bug::ColumnsForgotten) {
        return Cow::Owned(Manifest { columns: Arc::default(), ..manifest.clone() });
    }
    Cow::Borrowed(manifest)
}

/// What stays the same over the writes of one commit.
struct Attempt {
    /// The cell that renews the session, if it is time.
    renewal: Option<Vec<u8>>,
    /// When the commit began, in nanoseconds of the store's clock.
    now: u64,
    /// How many writes had an unknown outcome.
    unknown: usize,
}

/// How often an object is written, should the outcome be unknown. Creating it again is harmless.
const CREATE_ATTEMPTS_MAX: usize = 5;

/// Creates a cell that nobody else creates.
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

//! The ledger: the manifest partition of a table, read and written as [`crate::protocol`] says.
//!
//! Invariant: the session's cell is read before the head: if it is gone by then, no write of this session that
//! is still on its way can become true, and what became true before is in the head.

mod past;

use super::names::{Names, random_id};
use super::{TableError, codec};
use crate::protocol::{
    Cell, Commit, Edit, EditError, EditId, Ended, Head, Manifest, ObjectId, Outcome, Proposal, SessionId,
    Step, Version, View,
};
use atoll_store::{Batch, Buffer, Read, ReadOptions, Store, StoreError, WriteOptions};
use futures::StreamExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How long a session lasts without being renewed, in nanoseconds.
const SESSION_NS: u64 = 3_600_000_000_000;

/// How often a session's cell is tried to be put under another name, should it not be known whether it was.
const SESSION_ATTEMPTS_MAX: usize = 5;

/// A version and its content.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) head: Head,
    pub(super) manifest: Arc<Manifest>,
}

/// The manifest partition of one table, and this process's session in it.
pub(super) struct Ledger {
    store: Arc<dyn Store>,
    table: String,
    partition: Vec<u8>,
    session: SessionId,
    /// The session's cell as this process wrote it.
    session_cell: Vec<u8>,
    next: AtomicU64,
    /// The newest state that was read.
    known: Mutex<State>,
}

impl Ledger {
    /// Begins a session at a table.
    pub(super) async fn open(store: Arc<dyn Store>, table: &str, names: &Names) -> Result<Self, TableError> {
        let mut ledger = Self {
            store,
            table: table.to_owned(),
            partition: names.manifest(),
            session: SessionId(0),
            session_cell: Vec::new(),
            next: AtomicU64::new(1),
            known: Mutex::new(State { head: Head::default(), manifest: Arc::default() }),
        };
        ledger.begin_session().await?;
        ledger.current().await?;
        Ok(ledger)
    }

    async fn begin_session(&mut self) -> Result<(), TableError> {
        let mut attempts = 0;
        loop {
            // From the first version on: what is read now may be any version from this one, and it only rises.
            let from = self.head().await?.version;
            let expires = self.store.now().await?.0.saturating_add(SESSION_NS);
            self.session = SessionId(random_id());
            self.session_cell = codec::session_to_json(from, expires).into_bytes();
            let key = Cell::Session(self.session).sort_key();
            let batch = Batch::on(self.partition.as_slice())
                .if_absent(key.as_slice())
                .put(key.as_slice(), self.session_cell.clone());
            attempts += 1;
            match self.store.write(batch, WriteOptions::default()).await {
                Ok(_) => return Ok(()),
                // A late write must not bring this session back, so its name is not used again.
                Err(error) if is_unknown(&error) && attempts < SESSION_ATTEMPTS_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    /// A name for a new object.
    pub(super) fn new_object(&self) -> ObjectId {
        ObjectId { session: self.session, sequence: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    async fn cell(&self, cell: Cell, immutable: bool) -> Result<Option<Buffer>, TableError> {
        let key = cell.sort_key();
        let cell = atoll_store::Cell::new(&self.partition, &key);
        Ok(self.store.get(cell, ReadOptions { immutable, ..ReadOptions::default() }).await?)
    }

    async fn head(&self) -> Result<Head, TableError> {
        match self.cell(Cell::Head, false).await? {
            None => Ok(Head::default()),
            Some(bytes) => codec::head_from_bytes(&self.table, &bytes),
        }
    }

    fn known(&self) -> State {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state that is current now.
    pub(super) async fn current(&self) -> Result<State, TableError> {
        let head = self.head().await?;
        self.state_at(head).await
    }

    /// The state of this head: what is known and the edits since, or a whole manifest and the edits since.
    async fn state_at(&self, head: Head) -> Result<State, TableError> {
        let known = self.known();
        let start = if known.head.version >= head.full && known.head.version <= head.version {
            known.manifest
        } else {
            self.full(head.full).await?
        };
        let mut manifest = start;
        let missing: Vec<Version> = (manifest.version.0 + 1..=head.version.0).map(Version).collect();
        for (version, text) in missing.iter().zip(self.edits(&missing).await?) {
            let (_, edit) = codec::edit_from_json(&self.table, &text)?;
            let next = manifest.apply(&edit).map_err(|error| self.contradicts(*version, &error))?;
            manifest = Arc::new(next);
        }
        let state = State { head, manifest };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.head.version < head.version {
            *known = state.clone();
        }
        Ok(state)
    }

    async fn full(&self, version: Version) -> Result<Arc<Manifest>, TableError> {
        if version == Version::EMPTY {
            return Ok(Arc::default());
        }
        let text = self.cell(Cell::Full(version), true).await?;
        let text = text.ok_or_else(|| self.lost(version))?;
        Ok(Arc::new(codec::manifest_from_json(&self.table, &text)?))
    }

    /// The edits of these versions, in their order.
    async fn edits(&self, versions: &[Version]) -> Result<Vec<Buffer>, TableError> {
        let reads = versions.iter().map(|version| {
            let read = Read::new(self.partition.as_slice(), Cell::Edit(*version).sort_key());
            Read { immutable: true, ..read }
        });
        let mut answers = self.store.get_many(reads.collect());
        let mut edits: Vec<Option<Buffer>> = vec![None; versions.len()];
        while let Some((place, answer)) = answers.next().await {
            edits[place] = answer?;
        }
        edits
            .into_iter()
            .zip(versions)
            .map(|(edit, version)| edit.ok_or_else(|| self.lost(*version)))
            .collect()
    }

    fn lost(&self, version: Version) -> TableError {
        codec::damaged(&self.table, &format!("the edit that made version {version} is missing"))
    }

    fn contradicts(&self, version: Version, error: &EditError) -> TableError {
        codec::damaged(&self.table, &format!("the edit that made version {version} contradicts it: {error}"))
    }

    /// Makes an edit true; the version that has it. An edit that changes nothing is true already.
    pub(super) async fn commit(&self, edit: Edit) -> Result<Version, TableError> {
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let mut commit = Commit::new(EditId { session: self.session, sequence }, edit);
        let mut state = self.known();
        loop {
            let ended = match commit.step() {
                Step::Look => self.look(&mut commit, &mut state).await?,
                Step::Write(proposal) => {
                    let outcome = self.write(&proposal, commit.edit(), &state).await?;
                    commit.wrote(outcome)
                }
                Step::Ended => None,
            };
            match ended {
                None => {}
                Some(Ended::Made(version)) => return Ok(version),
                Some(Ended::Refused(EditError::AlreadyDone)) => return Ok(state.head.version),
                Some(Ended::Refused(error)) => return Err(error.into()),
                Some(Ended::Fenced) => return Err(TableError::Fenced { table: self.table.clone() }),
                Some(Ended::Forgotten) => return Err(TableError::Forgotten { table: self.table.clone() }),
            }
        }
    }

    async fn look(&self, commit: &mut Commit, state: &mut State) -> Result<Option<Ended>, TableError> {
        let session = self.cell(Cell::Session(self.session), false).await?;
        let session_stands = session.as_deref() == Some(&self.session_cell[..]);
        *state = self.current().await?;
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
    async fn write(&self, proposal: &Proposal, edit: &Edit, state: &State) -> Result<Outcome, TableError> {
        let head_key = Cell::Head.sort_key();
        let base = (proposal.base != Head::default()).then(|| codec::head_to_bytes(proposal.base));
        let edit_text = codec::edit_to_json(proposal.id, edit).into_bytes();
        let mut batch = Batch::on(self.partition.as_slice())
            .if_is(head_key.as_slice(), base)
            .if_equals(Cell::Session(self.session).sort_key(), self.session_cell.clone())
            .put(head_key.as_slice(), codec::head_to_bytes(proposal.head))
            .put(Cell::Edit(proposal.head.version).sort_key(), edit_text);
        if proposal.head.full == proposal.head.version {
            let full = codec::manifest_to_json(&state.manifest.apply(edit)?);
            batch = batch.put(Cell::Full(proposal.head.version).sort_key(), full.into_bytes());
        }
        match self.store.write(batch, WriteOptions::default()).await {
            Ok(_) => Ok(Outcome::Done),
            Err(StoreError::Conflict(_)) => Ok(Outcome::Refused),
            Err(error) if is_unknown(&error) => Ok(Outcome::Unknown),
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) fn is_unknown(error: &StoreError) -> bool {
    error.outcome() == atoll_store::Outcome::Unknown
}

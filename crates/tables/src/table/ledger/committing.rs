//! Commits an edit: afterwards it is committed, will never be committed, or is in doubt.
//!
//! Invariant: the session's cell is read before the head. If the cell is gone by then, no write of this
//! session that is still in flight can succeed, and whatever succeeded earlier is in the head.

use super::super::query::Repeats;
use super::super::session::OwnSession;
use super::super::{TableError, codec};
use super::{Fate, Ledger, State, UNKNOWN_MAX, if_short, is_unknown, put_parts};
use crate::planted::{self, Bug};
use crate::protocol::{
    Cell, Commit, Edit, EditError, EditId, Ended, Head, Manifest, Outcome, Proposal, Step, Version, View,
};
use atoll_store::{Batch, Buffer, StoreError, WriteOptions};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a version is looked at anew because objects that it names are missing.
const LOOKS_MAX: usize = 8;
/// How often the edit before may turn out to be another one than this handle has read. A store that answers
/// such reads from what it remembers would have the handle try for ever.
const GONE_BACK_MAX: usize = 2;
const GONE_BACK: &str = "the store has gone back to an earlier state, and this process remembers another edit of its \
                         newest version: open the table anew, in a new process";

impl Ledger {
    /// Commits an edit; returns the version that has it. An edit that changes nothing counts as committed.
    ///
    /// If the session has ended, an edit that names no new objects is repeated under a new one.
    pub(in crate::table) async fn commit(&self, edit: Edit) -> Result<Version, TableError> {
        match self.commit_new(edit).await {
            Err(TableError::Edit(EditError::AlreadyDone)) => Ok(self.known_version()),
            ended => ended,
        }
    }

    /// Like [`Ledger::commit`], but an edit that changes nothing is an error.
    pub(in crate::table) async fn commit_new(&self, edit: Edit) -> Result<Version, TableError> {
        let names_objects = matches!(edit, Edit::Append { .. } | Edit::Load { .. } | Edit::Pack { .. });
        let _turn = self.turn().await;
        loop {
            match self.commit_once(edit.clone()).await? {
                Fate::Made(version, _) => return Ok(version),
                Fate::Refused(error) => return Err(error.into()),
                Fate::Fenced if names_objects => {
                    return Err(TableError::Fenced { table: self.table.clone() });
                }
                Fate::Fenced => {}
                Fate::Forgotten => return Err(TableError::Forgotten { table: self.table.clone() }),
            }
        }
    }

    /// Commits an edit under the current session. The caller must hold the turn.
    ///
    /// # Errors
    /// [`TableError::InDoubt`] if the store fails while a write may be in flight; after any other error, the
    /// edit is in no version and never will be.
    pub(in crate::table) async fn commit_once(&self, edit: Edit) -> Result<Fate, TableError> {
        self.commit_checked(edit, None).await
    }

    /// Like [`Ledger::commit_once`], but also compares the new ids of the edit with each version that it is
    /// to follow.
    pub(in crate::table) async fn commit_checked(
        &self,
        edit: Edit,
        repeats: Option<&mut Repeats<'_>>,
    ) -> Result<Fate, TableError> {
        let session = self.session().await?;
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let mut commit = Commit::new(EditId { session: session.id, sequence }, edit);
        let mut state = self.known().unwrap_or_default();
        let ended = self.drive(&mut commit, &mut state, session, repeats).await;
        match ended {
            Err(error @ TableError::InDoubt { .. }) => Err(error),
            Err(source) if commit.doubt().is_some() => {
                Err(TableError::InDoubt { table: self.table.clone(), source: Box::new(source) })
            }
            Err(error) => Err(error),
            Ok(Ended::Made(version)) => Ok(Fate::Made(version, state.manifest)),
            Ok(Ended::Refused(error)) => Ok(Fate::Refused(error)),
            Ok(Ended::Fenced) => {
                self.forget_session(commit.id().session);
                Ok(Fate::Fenced)
            }
            Ok(Ended::Forgotten) => Ok(Fate::Forgotten),
        }
    }

    /// Carries the commit out, from a state that may be outdated. Leaves in `state` what the commit wrote or
    /// read last.
    async fn drive(
        &self,
        commit: &mut Commit,
        state: &mut State,
        mut session: OwnSession,
        mut repeats: Option<&mut Repeats<'_>>,
    ) -> Result<Ended, TableError> {
        let now = self.store.now().await?.0;
        // Later looks only need the makers of versions that this edit tries to make from here on.
        let renewal = session.renewal(now, self.known_version());
        let mut attempt = Attempt { renewal, now, unknown: 0, looks: 0, gone_back: 0 };
        self.keep(&session);
        let may_guess = !self.has_company.load(Ordering::Relaxed) && session.covers(state.head.version);
        if may_guess && state.manifest.apply(commit.edit()).is_ok() {
            // The known state may be outdated. The write is refused in that case, so only its conditions
            // matter.
            let view = View { head: state.head, manifest: &state.manifest, session_stands: true };
            commit.saw(view, |_| None);
        }
        loop {
            let looks = attempt.looks;
            let ended = match commit.step() {
                Step::Look => {
                    attempt.looks += 1;
                    self.look(commit, state, &mut session).await?
                }
                Step::Write(proposal) => {
                    // The write succeeds only if the version compared here is still current. A write in doubt
                    // is repeated on the same version, with the same result of this comparison.
                    let refusal = match &mut repeats {
                        Some(repeats) => repeats.refusal(&state.manifest).await,
                        None => Ok(None),
                    };
                    match refusal {
                        Ok(None) => {
                            let wrote =
                                self.write(&proposal, commit, state, &mut session, &mut attempt).await?;
                            if wrote == Outcome::Refused && looks > 0 {
                                self.back_off(commit.id(), looks).await;
                            }
                            commit.wrote(wrote)
                        }
                        // The guessed state may be outdated, and the repeated ids gone: refuse only after a
                        // look.
                        Ok(Some(_)) if looks == 0 => commit.wrote(Outcome::Refused),
                        Ok(Some(error)) => return Ok(Ended::Refused(error)),
                        // A vacuum may remove objects of older versions, even during the comparison.
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

    async fn look(
        &self,
        commit: &mut Commit,
        state: &mut State,
        session: &mut OwnSession,
    ) -> Result<Option<Ended>, TableError> {
        let cell = self.cell(Cell::Session(session.id), false).await?;
        let session_stands = session.saw(cell.as_deref()) || is_fenced_pack(commit.edit());
        self.keep(session);
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

    /// Carries out a proposal, and puts what it made into `state`. Fails only if nothing was written and a
    /// retry would not help.
    async fn write(
        &self,
        proposal: &Proposal,
        commit: &Commit,
        state: &mut State,
        session: &mut OwnSession,
        attempt: &mut Attempt,
    ) -> Result<Outcome, TableError> {
        let (head_key, session_key) = (Cell::Head.sort_key(), Cell::Session(session.id).sort_key());
        let base = (proposal.base != Head::default()).then(|| codec::head_to_bytes(proposal.base));
        let next = state.manifest.apply(commit.edit())?;
        let version = proposal.head.version;
        let entries = state.entries_since.saturating_add(commit.edit().entries());
        // Any version may have a whole manifest: how many edits come between two is no rule of the protocol.
        // A commit that others overtake leaves it to the next one, as each attempt would write it anew.
        let head = match attempt.looks <= 1 && next.is_whole_due(entries) {
            true => Head { version, full: version },
            false => proposal.head,
        };
        let text = Buffer::from(codec::edit_to_json(proposal.id, commit.edit()).into_bytes());
        let mut batch = Batch::on(self.partition.as_slice()).if_is(head_key.as_slice(), base);
        let base_key = Cell::Edit(proposal.base.version).sort_key();
        if let Some(edit) = &state.edit {
            batch = batch.if_equals(base_key.as_slice(), edit.clone());
        }
        if !is_fenced_pack(commit.edit()) {
            batch = batch.if_equals(session_key.as_slice(), session.cell.clone());
        }
        batch = batch.put(head_key.as_slice(), codec::head_to_bytes(head));
        batch = batch.put(Cell::Edit(version).sort_key(), text.clone());
        let begun = state.manifest.begun_by(commit.edit());
        if !begun.is_empty() {
            // A session serves one handle of one store, so its id marks these rows and no others.
            let mark = codec::mark_to_json(session.id.0, &begun);
            batch = batch.put(Cell::Mark(version).sort_key(), mark.into_bytes());
        }
        let is_whole = head.full == version;
        if is_whole {
            let bytes = codec::whole_to_bytes(&remembered(&next));
            let full = self.put_parts(session, bytes, text.len()).await?;
            batch = batch.put(Cell::Full(version).sort_key(), full);
        }
        if let Some(renewal) = &attempt.renewal {
            batch = batch.put(session_key.as_slice(), renewal.clone());
        }
        match self.store.write(batch, WriteOptions::default()).await {
            Ok(_) => {
                if let Some(renewal) = attempt.renewal.take() {
                    session.renewed(renewal, attempt.now);
                    self.keep(session);
                }
                let entries_since = if is_whole { 0 } else { entries };
                *state = State { head, manifest: Arc::new(next), entries_since, edit: if_short(&text) };
                self.learn_made(state);
                Ok(Outcome::Done)
            }
            Err(StoreError::Conflict(conflict)) if conflict.sort == base_key => self.go_back(state, attempt),
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

    /// Forgets a state that the store has lost: another process has made its own version of this number.
    fn go_back(&self, state: &State, attempt: &mut Attempt) -> Result<Outcome, TableError> {
        self.unlearn(state);
        attempt.gone_back += 1;
        match attempt.gone_back > GONE_BACK_MAX {
            true => Err(codec::damaged(&self.table, GONE_BACK)),
            false => Ok(Outcome::Refused),
        }
    }

    /// The value of the cell of a whole manifest: the manifest itself, or the name of the parts written for
    /// it.
    ///
    /// Parts whose edit is not committed are left to a vacuum. A manifest of that length is written only once
    /// in thousands of edits, or of entries of long edits.
    async fn put_parts(
        &self,
        session: &OwnSession,
        bytes: Vec<u8>,
        edit_bytes: usize,
    ) -> Result<Vec<u8>, TableError> {
        put_parts(&*self.store, &self.partition, self.new_object_of(session.id), bytes, edit_bytes).await
    }
}

/// Whether this is a pack, and the bug that commits packs of an ended session is planted.
fn is_fenced_pack(edit: &Edit) -> bool {
    planted::is(Bug::FencedPackCommits) && matches!(edit, Edit::Pack { .. })
}

/// The content of a whole manifest: everything, unless a bug is planted.
fn remembered(manifest: &Manifest) -> Cow<'_, Manifest> {
    if planted::is(Bug::WholeManifestForgets) {
        return Cow::Owned(Manifest { tombstones: Vec::new(), ..manifest.clone() });
    }
    if planted::is(Bug::ColumnsForgotten) {
        return Cow::Owned(Manifest { columns: Arc::default(), ..manifest.clone() });
    }
    Cow::Borrowed(manifest)
}

/// State of one commit that is kept over its writes.
struct Attempt {
    /// The cell that renews the session, if a renewal is due.
    renewal: Option<Vec<u8>>,
    /// Start of the commit, in nanoseconds of the store's clock.
    now: u64,
    /// Number of writes with an unknown outcome.
    unknown: usize,
    /// Number of looks at the store so far.
    looks: usize,
    /// Number of writes that were refused because the store has another edit of the version they follow.
    gone_back: usize,
}

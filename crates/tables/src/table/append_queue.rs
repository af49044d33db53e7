//! The append queue: appends of one handle that wait to be committed, in the order in which they were called.
//!
//! Each append writes its own objects, all of them concurrently. The append that has the turn to commit
//! includes all others whose objects are written, in a single edit; the next ones gather in the meantime. So
//! there is no batching delay, and under load one conditional write carries many blocks.
//!
//! Invariant: the blocks of one rank are committed in call order; none overtakes one that is still being
//! written.
//! Invariant: if an append fails before it is committed, those behind it of the same rank fail too, so that
//! all can be appended again in order.
//! Invariant: if an append is dropped while it commits for others, these stay in the queue, and another one
//! commits for them. A block that the table already has changes nothing.
//! Invariant: no append stays in the queue whose caller has dropped it, unless another one is committing it.
//! Invariant: an append that returns to the queue may be part of an edit whose outcome is unknown, and is
//! marked as in doubt from then on.

#[cfg(test)]
mod tests;

use super::ledger::Fate;
use super::query::{NewIds, Repeats};
use super::{Table, TableError};
use crate::protocol::{Block, Edit, EditError, RunId, SessionId};
use atoll_store::{ErrorKind, Outcome, StoreError};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::{Either, select};
use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of blocks from which on an edit takes no further append. Keeps its text well below a page of a
/// scan.
const BLOCKS_MAX: usize = 1000;

/// A sequence of ordered steps: a rank of an attempt of a run.
pub(super) type Lane = (RunId, u64, u32);

/// The answer to a waiting append.
#[derive(Debug)]
pub(super) enum AppendAnswer {
    /// The outcome of its edit.
    Fate(Fate),
    /// The session under which the objects were written has ended: write them again.
    Anew,
    /// An earlier append of the same rank failed.
    Behind,
    /// The ledger could not determine the outcome of the edit, or nothing was written.
    Failed(TableError),
    /// This append should take the turn and commit.
    Go,
}

/// The waiting appends of a handle.
#[derive(Default)]
pub(super) struct AppendQueue {
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    waiting: VecDeque<Member>,
    next: u64,
}

struct Member {
    ticket: u64,
    lanes: Vec<Lane>,
    state: MemberState,
    /// Whether an earlier append of the same rank has failed.
    is_behind: bool,
    /// Whether its caller has dropped it.
    is_left: bool,
    tell: UnboundedSender<AppendAnswer>,
}

enum MemberState {
    /// Its objects are being written.
    Writing,
    /// Its objects are written.
    Ready(Ready),
    /// Another append is committing it.
    Taken,
}

/// Blocks whose objects are written.
#[derive(Clone)]
pub(super) struct Ready {
    pub(super) blocks: Vec<Block>,
    /// The ids of these blocks, if ids are unique.
    pub(super) ids: Vec<Arc<NewIds>>,
    pub(super) session: SessionId,
    /// Whether it shares its edit with no other append: an edit that is only partly new does not tell which
    /// part.
    pub(super) is_alone: bool,
    /// Whether the blocks were in an edit with an unknown outcome, which may have been committed or may still
    /// be.
    pub(super) is_in_doubt: Arc<AtomicBool>,
}

/// A place in the queue; dropping it leaves the queue.
pub(super) struct QueuePlace<'a> {
    queue: &'a AppendQueue,
    ticket: u64,
    answers: UnboundedReceiver<AppendAnswer>,
}

impl AppendQueue {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the queue behind all others.
    pub(super) fn join(&self, lanes: Vec<Lane>) -> QueuePlace<'_> {
        let mut members = self.members();
        let ticket = members.next;
        members.next += 1;
        let (tell, answers) = unbounded();
        let state = MemberState::Writing;
        members.waiting.push_back(Member { ticket, lanes, state, is_behind: false, is_left: false, tell });
        QueuePlace { queue: self, ticket, answers }
    }

    /// Commits all appends that are eligible, and answers them. The caller holds the turn.
    async fn serve(&self, table: &Table) -> Result<(), TableError> {
        // An error before anything was taken belongs to the caller.
        let session = table.ledger.session().await?.id;
        let mut group = Group { queue: self, taken: self.members().take(session) };
        let blocks: Vec<Block> = group.taken.iter().flat_map(|(_, ready)| ready.blocks.clone()).collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let ids = group.taken.iter().flat_map(|(_, ready)| ready.ids.clone()).collect();
        match commit(table, blocks, ids).await {
            Ok(Fate::Refused(error)) if error != EditError::AlreadyDone && group.taken.len() > 1 => {
                group.one_by_one(table).await;
            }
            Ok(fate) => group.tell(&fate, usize::MAX),
            // The store is unreachable, so no block is at fault. Committing each alone would wait as long for
            // each, one after the other, for the same error.
            Err(TableError::Store(error)) if is_gone(&error) => group.fail_all(&error),
            // Nothing was written, and which blocks are at fault is unknown: commit each alone, to give each
            // its own answer.
            Err(error) if error.outcome() == Outcome::Refused && group.taken.len() > 1 => {
                group.one_by_one(table).await;
            }
            // The first one gets the error; the others return to the queue and find out for themselves.
            Err(error) => group.fail(error),
        }
        Ok(())
    }
}

impl Members {
    fn place_of(&self, ticket: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |member| member.ticket).ok()
    }

    fn member(&mut self, ticket: u64) -> Option<&mut Member> {
        let place = self.place_of(ticket)?;
        self.waiting.get_mut(place)
    }

    /// Takes out, in order, all appends that are ready and not behind an unready one of the same rank. Those
    /// that wrote under another session are told to write again.
    fn take(&mut self, session: SessionId) -> VecDeque<(u64, Ready)> {
        let mut blocked: BTreeSet<&Lane> = BTreeSet::new();
        let mut taken = VecDeque::new();
        let mut blocks = 0;
        for member in &mut self.waiting {
            let is_free = !member.is_behind && !member.lanes.iter().any(|lane| blocked.contains(lane));
            match std::mem::replace(&mut member.state, MemberState::Taken) {
                MemberState::Ready(ready) if ready.session != session => {
                    member.state = MemberState::Writing;
                    member.say(AppendAnswer::Anew);
                }
                MemberState::Ready(ready)
                    if is_free && blocks < BLOCKS_MAX && (taken.is_empty() || !ready.is_alone) =>
                {
                    blocks += if ready.is_alone { BLOCKS_MAX } else { ready.blocks.len() };
                    taken.push_back((member.ticket, ready));
                    continue;
                }
                other => member.state = other,
            }
            blocked.extend(&member.lanes);
        }
        taken
    }

    /// The places of all appends that [`Members::take`] takes as long as the edit has room, in order: those
    /// that are ready and not behind an unready one of the same rank. Blocking is transitive: a blocked
    /// append blocks all of its own ranks.
    fn free(&self) -> impl Iterator<Item = usize> {
        let mut blocked: BTreeSet<&Lane> = BTreeSet::new();
        self.waiting.iter().enumerate().filter_map(move |(place, member)| {
            let is_ready = matches!(member.state, MemberState::Ready(_)) && !member.is_behind;
            let is_free = is_ready && !member.lanes.iter().any(|lane| blocked.contains(lane));
            if !is_free {
                blocked.extend(&member.lanes);
            }
            is_free.then_some(place)
        })
    }

    /// Wakes an append that could commit, if there is one. Waking one needlessly does no harm, as long as a
    /// needless wake-up does not trigger another.
    fn nudge(&self) {
        if let Some(member) = self.free().next().and_then(|place| self.waiting.get(place)) {
            member.say(AppendAnswer::Go);
        }
    }

    /// Removes an append that failed. Those behind it of the same rank fail, because they lack an earlier
    /// step.
    fn fail(&mut self, ticket: u64) {
        let Some(place) = self.place_of(ticket) else { return };
        let Some(failed) = self.waiting.remove(place) else { return };
        for member in self.waiting.iter_mut().skip(place) {
            if !member.is_behind && member.lanes.iter().any(|lane| failed.lanes.contains(lane)) {
                member.is_behind = true;
                if matches!(member.state, MemberState::Ready(_)) {
                    member.say(AppendAnswer::Behind);
                }
            }
        }
    }
}

impl Member {
    fn say(&self, answer: AppendAnswer) {
        // The append may have been dropped; then nobody needs the answer.
        let _ = self.tell.unbounded_send(answer);
    }
}

/// Commits blocks, unless the table already has some of their ids.
async fn commit(table: &Table, blocks: Vec<Block>, ids: Vec<Arc<NewIds>>) -> Result<Fate, TableError> {
    let mut repeats = Repeats::of(table, ids);
    table.ledger.commit_checked(Edit::Append { blocks }, Some(&mut repeats)).await
}

/// Whether the store could not be reached and nothing was written.
fn is_gone(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Unavailable && error.outcome() == Outcome::Refused
}

/// Whether the refused rows may be corrected and appended again. Then those behind them must not overtake
/// them.
fn may_be_mended(fate: &Fate) -> bool {
    matches!(fate, Fate::Refused(EditError::RepeatedIds { .. } | EditError::Skipped { .. }))
}

/// The appends being committed. Those that remain when this is dropped return to the queue.
struct Group<'a> {
    queue: &'a AppendQueue,
    taken: VecDeque<(u64, Ready)>,
}

impl Group<'_> {
    /// Gives the first `count` appends the outcome.
    fn tell(&mut self, fate: &Fate, count: usize) {
        let mut members = self.queue.members();
        for (ticket, _) in self.taken.drain(..count.min(self.taken.len())) {
            let Some(place) = members.place_of(ticket) else { continue };
            if matches!(fate, Fate::Fenced) {
                match members.member(ticket) {
                    None => {}
                    // Nobody writes it again: in its place it would block its ranks for ever.
                    Some(member) if member.is_left => members.fail(ticket),
                    // The append keeps its place and writes its objects again, unless that is in vain.
                    Some(member) => {
                        member.state = MemberState::Writing;
                        let is_behind = member.is_behind;
                        member.say(if is_behind { AppendAnswer::Behind } else { AppendAnswer::Anew });
                    }
                }
            } else {
                if let Some(member) = members.waiting.get(place) {
                    member.say(AppendAnswer::Fate(fate.clone()));
                }
                if may_be_mended(fate) {
                    members.fail(ticket);
                } else {
                    members.waiting.remove(place);
                }
            }
        }
    }

    /// Gives the first append an error: its outcome is unknown, or nothing was written.
    fn fail(&mut self, error: TableError) {
        let mut members = self.queue.members();
        if let Some((ticket, _)) = self.taken.pop_front() {
            if let Some(member) = members.member(ticket) {
                member.say(AppendAnswer::Failed(error));
            }
            members.fail(ticket);
        }
    }

    /// Gives all appends the error of an unreachable store: nothing was written.
    fn fail_all(&mut self, error: &StoreError) {
        let mut members = self.queue.members();
        for (ticket, _) in self.taken.drain(..) {
            if let Some(member) = members.member(ticket) {
                member.say(AppendAnswer::Failed(error.clone().into()));
            }
            members.fail(ticket);
        }
    }

    /// Removes the first append if an earlier one of its rank was refused in the meantime; returns whether it
    /// did.
    fn leaves_behind(&mut self) -> bool {
        let Some(ticket) = self.taken.front().map(|(ticket, _)| *ticket) else { return false };
        let mut members = self.queue.members();
        let Some(member) = members.member(ticket).filter(|member| member.is_behind) else { return false };
        member.say(AppendAnswer::Behind);
        members.fail(ticket);
        self.taken.pop_front();
        true
    }

    /// Commits each append in an edit of its own, since one of them cannot be committed.
    async fn one_by_one(&mut self, table: &Table) {
        loop {
            while self.leaves_behind() {}
            let Some((_, Ready { blocks, ids, .. })) = self.taken.front() else { return };
            match commit(table, blocks.clone(), ids.clone()).await {
                // The others wrote under the same session.
                Ok(Fate::Fenced) => return self.tell(&Fate::Fenced, usize::MAX),
                Ok(fate) => self.tell(&fate, 1),
                Err(error) => return self.fail(error),
            }
        }
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        let mut members = self.queue.members();
        for (ticket, ready) in self.taken.drain(..) {
            let Some(member) = members.member(ticket) else { continue };
            ready.is_in_doubt.store(true, Ordering::Relaxed);
            member.state = MemberState::Ready(ready);
            if member.is_behind {
                member.say(AppendAnswer::Behind);
            }
            if member.is_left {
                members.fail(ticket);
            }
        }
        members.nudge();
    }
}

impl QueuePlace<'_> {
    /// Waits until the blocks, whose objects are written, are committed.
    pub(super) async fn commit(&mut self, table: &Table, ready: Ready) -> Result<AppendAnswer, TableError> {
        let Some(mut may_commit) = self.ready(ready) else { return Ok(AppendAnswer::Behind) };
        loop {
            let answer = if may_commit {
                match select(self.answers.next(), pin!(table.ledger.turn())).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right((_turn, told)) => {
                        drop(told);
                        // Another append may have committed this one while it waited for the turn.
                        match self.answers.try_recv() {
                            Ok(answer) if !matches!(answer, AppendAnswer::Go) => return Ok(answer),
                            _ => self.queue.serve(table).await?,
                        }
                        may_commit = false;
                        continue;
                    }
                }
            } else {
                self.answers.next().await
            };
            match answer {
                Some(AppendAnswer::Go) => may_commit = true,
                Some(answer) => return Ok(answer),
                // The member left the queue without an answer, which only its own drop causes.
                None => return Ok(AppendAnswer::Behind),
            }
        }
    }

    /// Marks the objects as written. Returns whether this append may commit, or has to wait for one before
    /// it; `None` if an earlier one of its rank failed.
    fn ready(&self, ready: Ready) -> Option<bool> {
        let mut members = self.queue.members();
        let place = members.place_of(self.ticket)?;
        let member = members.waiting.get_mut(place).filter(|member| !member.is_behind)?;
        member.state = MemberState::Ready(ready);
        Some(members.free().take_while(|free| *free <= place).any(|free| free == place))
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut members = self.queue.members();
        match members.member(self.ticket) {
            // It has been answered.
            None => {}
            Some(member) if matches!(member.state, MemberState::Taken) => member.is_left = true,
            Some(_) => members.fail(self.ticket),
        }
        members.nudge();
    }
}

//! The line: appends of one handle that wait to become true, in the order in which they were called.
//!
//! Each writes its objects by itself, all at the same time. Whoever has the turn to commit takes everybody
//! along whose objects are there, as one edit; meanwhile the next ones gather. So there is no window to wait
//! for, and under load one conditional write carries many blocks.
//!
//! Invariant: the blocks of one rank become true in the order of the calls: nobody passes one who still
//! writes.
//! Invariant: if one fails before it is committed, those behind it of the same rank fail too, so that they
//! can be given again in order.
//! Invariant: whoever is dropped while it commits for others leaves them in the line, and another commits for
//! them; a block that is there already changes nothing.
//! Invariant: who goes back to the line may be in an edit that nobody heard of, and is said to be in doubt
//! from then on.

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

/// From how many blocks on an edit takes no further append along: its text stays well below a page of a scan.
const BLOCKS_MAX: usize = 1000;

/// Whose steps come in order: a rank of an attempt of a run.
pub(super) type Lane = (RunId, u64, u32);

/// What is told to an append that waits.
#[derive(Debug)]
pub(super) enum Answer {
    /// How its edit ended.
    Fate(Fate),
    /// The session has ended under which the objects were written: write them again.
    Anew,
    /// One before it of the same rank failed.
    Behind,
    /// The ledger could not tell how its edit ended, or nothing was written.
    Failed(TableError),
    /// Somebody has to commit.
    Go,
}

/// Who waits.
#[derive(Default)]
pub(super) struct Line {
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
    standing: Standing,
    /// Whether one before it of the same rank failed.
    is_behind: bool,
    /// Whether its caller is gone.
    is_left: bool,
    tell: UnboundedSender<Answer>,
}

enum Standing {
    /// Its objects are being written.
    Writing,
    /// They are there.
    Ready(Ready),
    /// Somebody commits for it.
    Taken,
}

/// Blocks whose objects are there.
#[derive(Clone)]
pub(super) struct Ready {
    pub(super) blocks: Vec<Block>,
    /// Of these blocks, where ids are unique.
    pub(super) ids: Vec<Arc<NewIds>>,
    pub(super) session: SessionId,
    /// Whether nobody is taken along with it: an edit that is new in part does not tell which part.
    pub(super) is_alone: bool,
    /// Whether they were in an edit of which nobody heard how it ended: it may be true, or may yet become so.
    pub(super) is_in_doubt: Arc<AtomicBool>,
}

/// A place in the line; dropping it leaves the line.
pub(super) struct Place<'a> {
    line: &'a Line,
    ticket: u64,
    told: UnboundedReceiver<Answer>,
}

impl Line {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place behind all others.
    pub(super) fn join(&self, lanes: Vec<Lane>) -> Place<'_> {
        let mut members = self.members();
        let ticket = members.next;
        members.next += 1;
        let (tell, told) = unbounded();
        let standing = Standing::Writing;
        members.waiting.push_back(Member { ticket, lanes, standing, is_behind: false, is_left: false, tell });
        Place { line: self, ticket, told }
    }

    /// Commits for all whose turn it is, and tells them. The caller has the turn.
    async fn serve(&self, table: &Table) -> Result<(), TableError> {
        // An error before anybody is taken is the caller's.
        let session = table.ledger.session().await?.id;
        let mut group = Group { line: self, taken: self.members().take(session) };
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
            // It is not about anybody's blocks: each alone would wait as long, one after the other, to hear
            // the same.
            Err(TableError::Store(error)) if is_gone(&error) => group.fail_all(&error),
            // Nothing was written, and whose blocks are why is not known: each hears what becomes of its own.
            Err(error) if error.outcome() == Outcome::Refused && group.taken.len() > 1 => {
                group.one_by_one(table).await;
            }
            // The first one hears of it; the others go back to the line, and hear for themselves.
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

    /// Takes out, in order, all who are ready and stand behind nobody of their rank who is not. Who wrote
    /// under another session is told so.
    fn take(&mut self, session: SessionId) -> VecDeque<(u64, Ready)> {
        let mut blocked: BTreeSet<&Lane> = BTreeSet::new();
        let mut taken = VecDeque::new();
        let mut blocks = 0;
        for member in &mut self.waiting {
            let is_free = !member.is_behind && !member.lanes.iter().any(|lane| blocked.contains(lane));
            match std::mem::replace(&mut member.standing, Standing::Taken) {
                Standing::Ready(ready) if ready.session != session => {
                    member.standing = Standing::Writing;
                    member.say(Answer::Anew);
                }
                Standing::Ready(ready)
                    if is_free && blocks < BLOCKS_MAX && (taken.is_empty() || !ready.is_alone) =>
                {
                    blocks += if ready.is_alone { BLOCKS_MAX } else { ready.blocks.len() };
                    taken.push_back((member.ticket, ready));
                    continue;
                }
                other => member.standing = other,
            }
            blocked.extend(&member.lanes);
        }
        taken
    }

    /// The places of all whom [`Members::take`] takes, in order: whoever is ready and stands behind nobody of
    /// their rank who is not. Who stands behind one who stands behind another is behind that one too,
    /// whatever their ranks.
    fn free(&self) -> impl Iterator<Item = usize> {
        let mut blocked: BTreeSet<&Lane> = BTreeSet::new();
        self.waiting.iter().enumerate().filter_map(move |(place, member)| {
            let is_ready = matches!(member.standing, Standing::Ready(_)) && !member.is_behind;
            let is_free = is_ready && !member.lanes.iter().any(|lane| blocked.contains(lane));
            if !is_free {
                blocked.extend(&member.lanes);
            }
            is_free.then_some(place)
        })
    }

    /// Wakes one who could commit, if there is one. Who is woken in vain does no harm, as long as nobody is
    /// woken in vain for what they did in vain.
    fn nudge(&self) {
        if let Some(member) = self.free().next().and_then(|place| self.waiting.get(place)) {
            member.say(Answer::Go);
        }
    }

    /// Lets a member go, which leaves those behind it of its rank without the steps before theirs.
    fn fail(&mut self, ticket: u64) {
        let Some(place) = self.place_of(ticket) else { return };
        let Some(failed) = self.waiting.remove(place) else { return };
        for member in self.waiting.iter_mut().skip(place) {
            if !member.is_behind && member.lanes.iter().any(|lane| failed.lanes.contains(lane)) {
                member.is_behind = true;
                if matches!(member.standing, Standing::Ready(_)) {
                    member.say(Answer::Behind);
                }
            }
        }
    }
}

impl Member {
    fn say(&self, answer: Answer) {
        // Whoever asked may be gone, and then nobody has to be told.
        let _ = self.tell.unbounded_send(answer);
    }
}

/// Makes blocks true, unless the table has some of their ids already.
async fn commit(table: &Table, blocks: Vec<Block>, ids: Vec<Arc<NewIds>>) -> Result<Fate, TableError> {
    let mut repeats = Repeats::of(table, ids);
    table.ledger.commit_checked(Edit::Append { blocks }, Some(&mut repeats)).await
}

/// Whether the store could not be reached, and nothing was written.
fn is_gone(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Unavailable && error.outcome() == Outcome::Refused
}

/// Whether the rows of a refused block may be given again, mended: then those behind it must not pass it.
fn may_be_mended(fate: &Fate) -> bool {
    matches!(fate, Fate::Refused(EditError::RepeatedIds { .. } | EditError::Skipped { .. }))
}

/// Those for whom somebody commits; whoever is left when it is dropped goes back to the line.
struct Group<'a> {
    line: &'a Line,
    taken: VecDeque<(u64, Ready)>,
}

impl Group<'_> {
    /// Tells the first `count` how it ended.
    fn tell(&mut self, fate: &Fate, count: usize) {
        let mut members = self.line.members();
        for (ticket, _) in self.taken.drain(..count.min(self.taken.len())) {
            let Some(place) = members.place_of(ticket) else { continue };
            if matches!(fate, Fate::Fenced) {
                // It keeps its place and writes its objects again.
                if let Some(member) = members.waiting.get_mut(place) {
                    member.standing = Standing::Writing;
                    member.say(Answer::Anew);
                }
            } else {
                if let Some(member) = members.waiting.get(place) {
                    member.say(Answer::Fate(fate.clone()));
                }
                if may_be_mended(fate) {
                    members.fail(ticket);
                } else {
                    members.waiting.remove(place);
                }
            }
        }
    }

    /// Tells the first that nobody knows, or that nothing was written.
    fn fail(&mut self, error: TableError) {
        let mut members = self.line.members();
        if let Some((ticket, _)) = self.taken.pop_front() {
            if let Some(member) = members.member(ticket) {
                member.say(Answer::Failed(error));
            }
            members.fail(ticket);
        }
    }

    /// Tells all that the store was not there, and that nothing was written.
    fn fail_all(&mut self, error: &StoreError) {
        let mut members = self.line.members();
        for (ticket, _) in self.taken.drain(..) {
            if let Some(member) = members.member(ticket) {
                member.say(Answer::Failed(error.clone().into()));
            }
            members.fail(ticket);
        }
    }

    /// Lets the first go if one before it of its rank was refused meanwhile; whether it did.
    fn leaves_behind(&mut self) -> bool {
        let Some(ticket) = self.taken.front().map(|(ticket, _)| *ticket) else { return false };
        let mut members = self.line.members();
        let Some(member) = members.member(ticket).filter(|member| member.is_behind) else { return false };
        member.say(Answer::Behind);
        members.fail(ticket);
        self.taken.pop_front();
        true
    }

    /// Commits for each by itself, since one of them cannot become true.
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
        let mut members = self.line.members();
        for (ticket, ready) in self.taken.drain(..) {
            let Some(member) = members.member(ticket) else { continue };
            ready.is_in_doubt.store(true, Ordering::Relaxed);
            member.standing = Standing::Ready(ready);
            if member.is_behind {
                member.say(Answer::Behind);
            }
            if member.is_left {
                members.fail(ticket);
            }
        }
        members.nudge();
    }
}

impl Place<'_> {
    /// Waits until the blocks, whose objects are there, are committed.
    pub(super) async fn commit(&mut self, table: &Table, ready: Ready) -> Result<Answer, TableError> {
        let Some(mut may_commit) = self.ready(ready) else { return Ok(Answer::Behind) };
        loop {
            let answer = if may_commit {
                match select(self.told.next(), pin!(table.ledger.turn())).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right((_turn, told)) => {
                        drop(told);
                        // While it waited for the turn, somebody else may have committed for it.
                        match self.told.try_recv() {
                            Ok(answer) if !matches!(answer, Answer::Go) => return Ok(answer),
                            _ => self.line.serve(table).await?,
                        }
                        may_commit = false;
                        continue;
                    }
                }
            } else {
                self.told.next().await
            };
            match answer {
                Some(Answer::Go) => may_commit = true,
                Some(answer) => return Ok(answer),
                // Its member left the line without a word, which nobody does but its own drop.
                None => return Ok(Answer::Behind),
            }
        }
    }

    /// Takes in that the objects are there; whether it may commit, or waits for one before it. None if one
    /// before it failed.
    fn ready(&self, ready: Ready) -> Option<bool> {
        let mut members = self.line.members();
        let place = members.place_of(self.ticket)?;
        let member = members.waiting.get_mut(place).filter(|member| !member.is_behind)?;
        member.standing = Standing::Ready(ready);
        Some(members.free().take_while(|free| *free <= place).any(|free| free == place))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut members = self.line.members();
        match members.member(self.ticket) {
            // It was served.
            None => {}
            Some(member) if matches!(member.standing, Standing::Taken) => member.is_left = true,
            Some(_) => members.fail(self.ticket),
        }
        members.nudge();
    }
}

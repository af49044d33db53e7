//! How a group is founded, and how a member that lost its log comes back into it.
//!
//! A seat without a log asks all other members. If one of them has a log, a group exists, and its leader is
//! asked to let this seat take the place of the one that this node had before. If none has, the member with
//! the lowest number founds the group with the seats that it was told. It needs an answer from every member,
//! since one that did not answer may have a log.
//!
//! A seat with a log asks too: the group may have seated its node elsewhere since, or be halfway through
//! that. Until then the seat does not claim that it counts.
//!
//! Invariant: a group is founded only with seats that have no log, each of which agreed to its number. So if
//! the first founder is lost and a second group is founded after it, no seat counts in both.

use crate::CouncilError;
use crate::codec::{Answer, Ask, RingId};
use crate::member::Shared;
use crate::random_id;
use crate::types::{Raft, Seat, SeatId};
use atoll_replica::NodeId;
use openraft::{ChangeMembers, Membership};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The pause between attempts.
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// How long another member may take to say who it is.
const WHO_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the group may take to add a seat.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it has to look as if the decisions of the group were lost before that is reported.
const LOST_FOR: Duration = Duration::from_secs(5);

/// Most entries that a new seat may lack to become a voter: the others depend on it getting those.
const LACKING_MAX: u64 = 100;

/// What another member says about itself.
struct MemberStatus {
    node: NodeId,
    seat: SeatId,
    has_log: bool,
}

/// Runs until the log of this member counts, by the word of the leader too: an old log may say so of itself,
/// and be long out of date.
pub(crate) async fn found_or_join(shared: Arc<Shared>) {
    let mut watch = LossWatch::default();
    while !shared.counts() {
        if shared.leads() {
            take_answer(&shared, &shared.join(shared.options.me, shared.log.seat()).await);
        } else {
            found_or_ask(&shared, &mut watch).await;
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

async fn found_or_ask(shared: &Shared, watch: &mut LossWatch) {
    let others = ask_others(shared).await;
    let has_log: Vec<_> = others.iter().filter(|who| who.has_log).collect();
    let all = shared.peers.nodes();
    let mut seems_lost = false;
    if !has_log.is_empty() {
        join(shared, &has_log).await;
        seems_lost = !shared.log.has_entries() && is_lost(shared, &others);
    } else if !shared.log.has_entries()
        && others.len() == all.len()
        && all.iter().all(|node| *node > shared.options.me)
    {
        found(shared, &others).await;
    }
    if watch.is_due(seems_lost, Instant::now()) {
        tell_of_loss(shared, &others).await;
    }
}

/// Whether the decisions of the group are lost, as this member saw it in each round of questions. While a
/// group is founded it looks like that for a moment: the founder has a log, and the others are still to get
/// theirs.
#[derive(Default)]
struct LossWatch {
    /// Since when each round has said so.
    since: Option<Instant>,
    was_told: bool,
}

impl LossWatch {
    /// Notes what a round said; returns whether to report a loss, which is done once.
    fn is_due(&mut self, seems_lost: bool, now: Instant) -> bool {
        if !seems_lost {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_due = !self.was_told && now.saturating_duration_since(since) >= LOST_FOR;
        self.was_told |= is_due;
        is_due
    }
}

/// Notes the leader's answer about this seat.
fn take_answer(shared: &Shared, answer: &Answer) {
    if matches!(answer, Answer::Yes) {
        shared.is_taken_in.send_replace(true);
    }
}

async fn ask_others(shared: &Shared) -> Vec<MemberStatus> {
    let mut others = Vec::new();
    for node in shared.peers.nodes() {
        if let Ok(Answer::Who { node: said, seat, has_log, .. }) =
            shared.peers.ask(node, &Ask::Who, WHO_TIMEOUT).await
            && said == node
        {
            others.push(MemberStatus { node, seat, has_log });
        }
    }
    others
}

async fn found(shared: &Shared, others: &[MemberStatus]) {
    let Ok(ring) = random_id::draw().map(RingId) else { return };
    for who in others {
        let answer = shared.peers.ask(who.node, &Ask::Prepare(ring), WHO_TIMEOUT).await;
        if !matches!(answer, Ok(Answer::Yes)) {
            return;
        }
    }
    if !matches!(shared.prepare(ring).await, Answer::Yes) {
        return;
    }
    let mut seats: BTreeMap<SeatId, Seat> =
        others.iter().map(|who| (who.seat, Seat { node: who.node })).collect();
    seats.insert(shared.log.seat(), Seat { node: shared.options.me });
    match shared.raft.initialize(seats).await {
        Ok(()) => tracing::info!(ring = ring.0, "a group is founded"),
        Err(error) => tracing::warn!(%error, "a group cannot be founded"),
    }
}

async fn join(shared: &Shared, has_log: &[&MemberStatus]) {
    let mut asked = BTreeSet::new();
    let mut next: Vec<NodeId> = has_log.iter().map(|who| who.node).collect();
    while let Some(node) = next.pop() {
        if !asked.insert(node) {
            continue;
        }
        let ask = Ask::Join { node: shared.options.me, seat: shared.log.seat() };
        match shared.peers.ask(node, &ask, JOIN_TIMEOUT).await {
            Ok(Answer::NotLeader(leader)) => next.extend(leader),
            Ok(answer @ Answer::Yes) => return take_answer(shared, &answer),
            Ok(answer) => tracing::debug!(?answer, %node, "not admitted yet"),
            Err(error) => tracing::debug!(%error, %node, "cannot ask to be admitted"),
        }
    }
}

/// Whether so many members have no log that the others are too few to decide anything.
fn is_lost(shared: &Shared, others: &[MemberStatus]) -> bool {
    let members = shared.options.members.len();
    let without = 1 + others.iter().filter(|who| !who.has_log).count();
    without > (members - 1) / 2
}

async fn tell_of_loss(shared: &Shared, others: &[MemberStatus]) {
    let of = |has_log| others.iter().filter(move |who| who.has_log == has_log).map(|who| who.node);
    let lost = std::iter::once(shared.options.me).chain(of(false)).collect();
    let _ = shared.troubles.send(CouncilError::QuorumLost { lost, kept: of(true).collect() }).await;
}

/// As the leader: makes a seat a voter, and removes the former seats of its node. One at a time, because a
/// change takes several entries of the log.
pub(crate) async fn take_in(raft: &Raft, seat: SeatId, whose: Seat) -> Answer {
    let membership = raft.server_metrics().borrow().membership_config.membership().clone();
    let Some(wanted) = wanted(&membership, seat, whose.node) else { return Answer::Yes };
    let left: BTreeSet<SeatId> = left(&membership, seat, whose.node);
    if !left.is_empty()
        && let Err(error) = raft.change_membership(ChangeMembers::RemoveNodes(left), false).await
    {
        return Answer::Failed(error.to_string());
    }
    if membership.get_node(&seat).is_none()
        && let Err(error) = raft.add_learner(seat, whose.clone(), false).await
    {
        return Answer::Failed(error.to_string());
    }
    let lacking = {
        let metrics = raft.data_metrics();
        let metrics = metrics.borrow();
        let matched = metrics.replication.as_ref().and_then(|all| all.get(&seat).copied().flatten());
        matched.map(|matched| metrics.last_log.map_or(0, |last| last.index.saturating_sub(matched.index)))
    };
    if lacking.is_none_or(|lacking| lacking > LACKING_MAX) {
        return Answer::Unsure;
    }
    let change = ChangeMembers::ReplaceAllVoters(wanted);
    match raft.change_membership(change, false).await {
        Ok(_) => {
            tracing::info!(node = %whose.node, %seat, "a member came back on another seat");
            Answer::Yes
        }
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// The voters once this seat is one; none if nothing has to change. During a change of voters this follows
/// from the new configuration: the old one still has a seat that is being removed, which no member holds any
/// more and which would stay for ever.
fn wanted(membership: &Membership<SeatId, Seat>, seat: SeatId, node: NodeId) -> Option<BTreeSet<SeatId>> {
    let configs = membership.get_joint_config();
    let deciding = configs.last().cloned().unwrap_or_default();
    let is_other = |id: &SeatId| membership.get_node(id).is_none_or(|seat| seat.node != node);
    let wanted: BTreeSet<SeatId> = deciding.iter().copied().filter(is_other).chain([seat]).collect();
    (configs.len() > 1 || wanted != deciding).then_some(wanted)
}

/// Seats of a node that came back again before its last seat became a voter.
fn left(membership: &Membership<SeatId, Seat>, seat: SeatId, node: NodeId) -> BTreeSet<SeatId> {
    let learners = membership.learner_ids().filter(|id| *id != seat);
    learners.filter(|id| membership.get_node(id).is_some_and(|seat| seat.node == node)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(seats: &[u64]) -> BTreeSet<SeatId> {
        seats.iter().copied().map(SeatId).collect()
    }

    /// Seats are numbered ten times the node that holds them, plus one for each time that it came back.
    fn membership(configs: &[&[u64]], learners: &[u64]) -> Membership<SeatId, Seat> {
        let all = configs.iter().copied().flatten().chain(learners);
        let nodes: BTreeMap<_, _> =
            all.map(|seat| (SeatId(*seat), Seat { node: NodeId((seat / 10) as u32) })).collect();
        Membership::new(configs.iter().map(|config| set(config)).collect(), nodes)
    }

    #[test]
    fn a_loss_is_reported_once_and_only_if_it_stays() {
        // When loss is reported, of rounds that are half a second apart and say this.
        let told = |rounds: &[bool]| {
            let (mut watch, began) = (LossWatch::default(), Instant::now());
            let at = |round: usize| began + Duration::from_millis(500) * round as u32;
            let each = rounds.iter().enumerate();
            let due = each.filter(|(round, seems_lost)| watch.is_due(**seems_lost, at(*round)));
            due.map(|(round, _)| round).collect::<Vec<_>>()
        };
        assert_eq!(told(&[true; 10]), [0; 0], "a group that is founded looks like that");
        assert_eq!(told(&[true; 40]), [10]);
        let mut once_not = [true; 20];
        once_not[8] = false;
        assert_eq!(told(&once_not), [19], "from then on in every round");
    }

    #[test]
    fn of_two_members_that_come_back_at_once_neither_leaves_a_seat_that_nobody_sits_on() {
        let before: &[u64] = &[10, 20, 30, 40, 50];
        let first = wanted(&membership(&[before], &[11, 21]), SeatId(11), NodeId(1));
        assert_eq!(first, Some(set(&[11, 20, 30, 40, 50])));
        // Half of that change is made, by this leader or the one before it.
        let halfway = membership(&[before, &[11, 20, 30, 40, 50]], &[21]);
        assert_eq!(wanted(&halfway, SeatId(21), NodeId(2)), Some(set(&[11, 21, 30, 40, 50])));
        assert_eq!(wanted(&halfway, SeatId(11), NodeId(1)), Some(set(&[11, 20, 30, 40, 50])), "it is ended");
        let both = membership(&[&[11, 21, 30, 40, 50]], &[]);
        assert_eq!(wanted(&both, SeatId(21), NodeId(2)), None);
        assert_eq!(wanted(&membership(&[&[10, 11, 20]], &[]), SeatId(11), NodeId(1)), Some(set(&[11, 20])));
    }

    #[test]
    fn a_member_that_came_back_twice_leaves_no_seat_behind() {
        let seen = membership(&[&[10, 20, 30]], &[11, 12, 21]);
        assert_eq!(left(&seen, SeatId(12), NodeId(1)), set(&[11]));
    }
}

//! How a group comes to be, and how a member that lost its log comes back into it.
//!
//! A seat without a log asks all other members. If one of them has a log, there is a group, and its leader is asked to take
//! this seat in for whichever one this node had before. If none has, the member with the lowest number founds the group with
//! the seats that it was told: all of them, since a member that is not asked may have a log.
//!
//! Invariant: a group is founded only with seats that have no log, each of which agreed to its number; so two groups that are
//! founded one after the other, since the first founder was lost, never share a seat that counts in both.

use crate::CouncilError;
use crate::chance;
use crate::codec::{Answer, Ask, RingId};
use crate::member::Shared;
use crate::types::{Raft, Seat, SeatId};
use atoll_replica::NodeId;
use openraft::ChangeMembers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How often it is tried.
const EVERY: Duration = Duration::from_millis(100);

/// How long another member may take to say who it is.
const WHO_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the group may take to take a seat in.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How many entries a seat may lack and be taken in: the others need what it then has still to get.
const LACKING_MAX: u64 = 100;

/// What another member says of itself.
struct Who {
    node: NodeId,
    seat: SeatId,
    has_log: bool,
}

/// Until the log of this member counts.
pub(crate) async fn found_or_join(shared: Arc<Shared>) {
    if shared.log.has_entries() && !is_learner(&shared).await {
        return;
    }
    let mut was_told = false;
    while !shared.is_seated() {
        let others = ask_others(&shared).await;
        let has_log: Vec<_> = others.iter().filter(|who| who.has_log).collect();
        let all = shared.peers.nodes();
        if !has_log.is_empty() {
            join(&shared, &has_log).await;
            if !was_told && !shared.log.has_entries() && is_lost(&shared, &others) {
                was_told = true;
                tell_of_loss(&shared, &others).await;
            }
        } else if !shared.log.has_entries()
            && others.len() == all.len()
            && all.iter().all(|node| *node > shared.options.me)
        {
            found(&shared, &others).await;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Whether the log of this member is fed by the others and does not count yet.
async fn is_learner(shared: &Shared) -> bool {
    let seat = shared.log.seat();
    let is_learner = shared.raft.with_raft_state(move |state| {
        let effective = state.membership_state.effective();
        effective.membership().learner_ids().any(|learner| learner == seat)
    });
    is_learner.await.unwrap_or(false)
}

async fn ask_others(shared: &Shared) -> Vec<Who> {
    let mut others = Vec::new();
    for node in shared.peers.nodes() {
        if let Ok(Answer::Who { node: said, seat, has_log, .. }) =
            shared.peers.ask(node, &Ask::Who, WHO_TIMEOUT).await
            && said == node
        {
            others.push(Who { node, seat, has_log });
        }
    }
    others
}

async fn found(shared: &Shared, others: &[Who]) {
    let Ok(ring) = chance::unique().map(RingId) else { return };
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

async fn join(shared: &Shared, has_log: &[&Who]) {
    let mut asked = BTreeSet::new();
    let mut next: Vec<NodeId> = has_log.iter().map(|who| who.node).collect();
    while let Some(node) = next.pop() {
        if !asked.insert(node) {
            continue;
        }
        let ask = Ask::Join { node: shared.options.me, seat: shared.log.seat() };
        match shared.peers.ask(node, &ask, JOIN_TIMEOUT).await {
            Ok(Answer::NotLeader(leader)) => next.extend(leader),
            Ok(Answer::Yes) => return,
            Ok(answer) => tracing::debug!(?answer, %node, "not taken in yet"),
            Err(error) => tracing::debug!(%error, %node, "cannot ask to be taken in"),
        }
    }
}

/// Whether so many members have no log that the others are too few to decide anything.
fn is_lost(shared: &Shared, others: &[Who]) -> bool {
    let members = shared.options.members.len();
    let without = 1 + others.iter().filter(|who| !who.has_log).count();
    without > (members - 1) / 2
}

async fn tell_of_loss(shared: &Shared, others: &[Who]) {
    let of = |has_log| others.iter().filter(move |who| who.has_log == has_log).map(|who| who.node);
    let lost = std::iter::once(shared.options.me).chain(of(false)).collect();
    let _ = shared.troubles.send(CouncilError::QuorumLost { lost, kept: of(true).collect() }).await;
}

/// As the leader: takes a seat in, and lets the one go that its node had before.
pub(crate) async fn take_in(raft: &Raft, seat: SeatId, whose: Seat) -> Answer {
    let membership = raft.server_metrics().borrow().membership_config.membership().clone();
    let voters: BTreeSet<SeatId> = membership.voter_ids().collect();
    if voters.contains(&seat) && membership.get_joint_config().len() == 1 {
        return Answer::Yes;
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
    let is_other = |id: &SeatId| membership.get_node(id).is_none_or(|seat| seat.node != whose.node);
    let wanted: BTreeSet<SeatId> = voters.into_iter().filter(is_other).chain([seat]).collect();
    let change = ChangeMembers::ReplaceAllVoters(wanted);
    match raft.change_membership(change, false).await {
        Ok(_) => {
            tracing::info!(node = %whose.node, %seat, "a member came back on another seat");
            Answer::Yes
        }
        Err(error) => Answer::Failed(error.to_string()),
    }
}

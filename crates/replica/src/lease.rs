//! Leases: promises between pairs of nodes, which let a primary trust for a while that no other node is
//! primary.
//!
//! A promise says: until it expires, I accept no table that takes a slot from you. The node that asked counts
//! it from when it asked; the node that gave it counts from when it gave it, and longer.
//!
//! Invariant: on any two clocks within the stated error of rate, the time for which a promise is used ends
//! before the time for which it is kept.

use crate::planted::{self, Bug};
use crate::{Incarnation, Moment, NodeId, Options, Reads, Version};
use std::collections::{BTreeMap, BTreeSet};

/// The promises that this node gave, and those that it holds.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// When each promise given expires, by node.
    given: BTreeMap<NodeId, Moment>,
    /// The last question of each node that was answered.
    answered: BTreeMap<NodeId, Question>,
    /// The newest table that each node has reported to know: it serves nothing that this table takes from it.
    known_by: BTreeMap<NodeId, Version>,
    held: BTreeMap<NodeId, HeldPromise>,
    /// The nodes that are asked.
    pub(crate) partners: BTreeSet<NodeId>,
    /// The nodes that were asked before, and until when such a promise may stand: until then they hear of
    /// each table, so that they can accept it.
    former: BTreeMap<NodeId, Moment>,
    round: u64,
    asked_at: Moment,
}

/// A node's request for a promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) asked_in: Incarnation,
    pub(crate) round: u64,
    pub(crate) asked_at: Moment,
}

/// A promise that this node holds.
#[derive(Clone, Copy, Debug)]
struct HeldPromise {
    round: u64,
    asked_at: Moment,
    heard_at: Moment,
    version: Version,
}

/// What a read requires of a promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The table in which the slot's configuration came to be.
    pub(crate) since: Version,
    /// The newest table that this node knows.
    pub(crate) known: Version,
    /// The first round of questions that was sent after the read came.
    pub(crate) round: u64,
}

impl Leases {
    /// Gives a promise.
    pub(crate) fn give(&mut self, to: NodeId, question: Question, now: Moment, options: &Options) {
        self.answered.insert(to, question);
        let length =
            if planted::is(Bug::PromiseNotLengthened) { options.lease_us } else { options.promise_us() };
        let until = self.given.entry(to).or_default();
        *until = now.after(length).max(*until);
    }

    /// The promises that stand, each with the last question that was answered. They stand under a newer table
    /// as well: a node that leads by that table is told so at once, and need not ask again.
    pub(crate) fn standing(&self, now: Moment) -> impl Iterator<Item = (NodeId, Question)> + '_ {
        let stands = move |node: &NodeId| self.given.get(node).is_some_and(|&until| until > now);
        self.answered.iter().filter(move |(node, _)| stands(node)).map(|(&node, &question)| (node, question))
    }

    pub(crate) fn heard_known(&mut self, node: NodeId, version: Version) {
        let known = self.known_by.entry(node).or_default();
        *known = version.max(*known);
    }

    /// Whether a promise to `to` delays a table that takes a slot from it as of this version.
    pub(crate) fn binds(&self, to: NodeId, version: Version, now: Moment) -> bool {
        if planted::is(Bug::PromiseBroken) {
            return false;
        }
        let knows = self.known_by.get(&to).is_some_and(|&known| known >= version);
        !knows && self.given.get(&to).is_some_and(|&until| until > now)
    }

    /// Whether a node has said that it goes by this table or a newer one.
    pub(crate) fn goes_by(&self, node: NodeId, version: Version) -> bool {
        self.held.get(&node).is_some_and(|held| held.version >= version)
    }

    /// Replaces the nodes that are asked.
    pub(crate) fn ask_others(&mut self, partners: BTreeSet<NodeId>, now: Moment, options: &Options) {
        let before = std::mem::replace(&mut self.partners, partners);
        self.former.retain(|node, until| *until > now && !self.partners.contains(node));
        let until = now.after(2 * options.promise_us());
        let left = before.difference(&self.partners);
        self.former.extend(left.map(|&node| (node, until)));
    }

    /// Whether a node that is no longer asked may still be bound by a promise.
    pub(crate) fn has_former(&self, now: Moment) -> bool {
        self.former.values().any(|&until| until > now)
    }

    /// The nodes that are to hear of the newest table.
    pub(crate) fn audience(&self, now: Moment) -> impl Iterator<Item = NodeId> + '_ {
        let former = self.former.iter().filter(move |(_, until)| **until > now).map(|(&node, _)| node);
        self.partners.iter().copied().chain(former)
    }

    /// Begins a round of questions, sent now; returns its number.
    pub(crate) fn next_round(&mut self, now: Moment) -> u64 {
        self.round += 1;
        self.asked_at = now;
        self.round
    }

    /// The number of the next round.
    pub(crate) fn coming_round(&self) -> u64 {
        self.round + 1
    }

    /// Whether it is time to ask again.
    pub(crate) fn is_due(&self, now: Moment, options: &Options) -> bool {
        now >= self.asked_at.after(options.lease_us / 4)
    }

    /// Whether all nodes that were asked have answered the last round.
    pub(crate) fn is_answered(&self) -> bool {
        self.partners.iter().all(|node| self.held.get(node).is_some_and(|held| held.round == self.round))
    }

    /// Takes a promise that another node gave.
    pub(crate) fn hold(&mut self, from: NodeId, round: u64, asked_at: Moment, version: Version, now: Moment) {
        let held = HeldPromise { round, asked_at, heard_at: now, version };
        let newest = self.held.entry(from).or_insert(held);
        if (held.round, held.version) >= (newest.round, newest.version) {
            *newest = held;
        }
    }

    /// Whether the promise of this node permits a read now.
    pub(crate) fn is_held(&self, from: NodeId, need: Need, now: Moment, options: &Options) -> bool {
        if planted::is(Bug::ReadWithoutLease) {
            return true;
        }
        let Some(held) = self.held.get(&from) else { return false };
        let is_of_this = held.version >= need.since && held.version <= need.known;
        if !is_of_this && !planted::is(Bug::LeaseOfAnyTable) {
            return false;
        }
        match options.reads {
            Reads::Confirmed => held.round >= need.round,
            Reads::Leases => {
                let from = if planted::is(Bug::LeaseFromHearing) { held.heard_at } else { held.asked_at };
                now < from.after(options.lease_us)
            }
        }
    }

    /// When this node last answered.
    pub(crate) fn heard_at(&self, from: NodeId) -> Option<Moment> {
        self.held.get(&from).map(|held| held.heard_at)
    }
}

//! Promises between pairs of nodes: who answers reads may trust for a while that nobody else is primary.
//!
//! A promise says: I accept no table that takes a slot from you until it has run out. It is counted from when
//! it was asked for by whoever asked, and from when it was given, lengthened, by whoever gave it.
//!
//! Invariant: the time for which a promise is used ends before the time for which it is kept, on any two
//! clocks within the stated error of rate.

use crate::planted::{self, Bug};
use crate::{Incarnation, Moment, NodeId, Options, Reads, Version};
use std::collections::{BTreeMap, BTreeSet};

/// What this node promised, and what it was promised.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Until when, by node.
    given: BTreeMap<NodeId, Moment>,
    /// The question of each node that was answered last.
    answered: BTreeMap<NodeId, Question>,
    /// The newest table that each node has told it knows: nothing which that table takes from it is served by
    /// it.
    known_by: BTreeMap<NodeId, Version>,
    held: BTreeMap<NodeId, Held>,
    /// Who is asked.
    pub(crate) partners: BTreeSet<NodeId>,
    /// Who was asked before, and until when that promise may stand: told of each table meanwhile, for it to
    /// go by it.
    former: BTreeMap<NodeId, Moment>,
    round: u64,
    asked_at: Moment,
}

/// What somebody asked to be promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) asked_in: Incarnation,
    pub(crate) round: u64,
    pub(crate) asked_at: Moment,
}

/// A promise to this node.
#[derive(Clone, Copy, Debug)]
struct Held {
    round: u64,
    asked_at: Moment,
    heard_at: Moment,
    version: Version,
}

/// What a read needs of promises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The table in which the slot's configuration came to be.
    pub(crate) since: Version,
    /// The newest table that this node knows.
    pub(crate) known: Version,
    /// The first round of questions that was sent behind the read.
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

    /// The promises that stand, each with the question that it answered last. They stand under a newer table
    /// as well: whoever leads by that one is told so at once, and need not ask again.
    pub(crate) fn standing(&self, now: Moment) -> impl Iterator<Item = (NodeId, Question)> + '_ {
        let stands = move |node: &NodeId| self.given.get(node).is_some_and(|&until| until > now);
        self.answered.iter().filter(move |(node, _)| stands(node)).map(|(&node, &question)| (node, question))
    }

    pub(crate) fn heard_known(&mut self, node: NodeId, version: Version) {
        let known = self.known_by.entry(node).or_default();
        *known = version.max(*known);
    }

    /// Whether a table must wait that takes a slot from this node, since this version.
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

    /// Others are asked from now on.
    pub(crate) fn ask_others(&mut self, partners: BTreeSet<NodeId>, now: Moment, options: &Options) {
        let before = std::mem::replace(&mut self.partners, partners);
        self.former.retain(|node, until| *until > now && !self.partners.contains(node));
        let until = now.after(2 * options.promise_us());
        let left = before.difference(&self.partners);
        self.former.extend(left.map(|&node| (node, until)));
    }

    /// Whether somebody who is asked no more may still stand by a promise.
    pub(crate) fn has_former(&self, now: Moment) -> bool {
        self.former.values().any(|&until| until > now)
    }

    /// Who is to hear of the newest table.
    pub(crate) fn audience(&self, now: Moment) -> impl Iterator<Item = NodeId> + '_ {
        let former = self.former.iter().filter(move |(_, until)| **until > now).map(|(&node, _)| node);
        self.partners.iter().copied().chain(former)
    }

    /// The round of questions that is sent now.
    pub(crate) fn next_round(&mut self, now: Moment) -> u64 {
        self.round += 1;
        self.asked_at = now;
        self.round
    }

    /// The round that will be sent next.
    pub(crate) fn coming_round(&self) -> u64 {
        self.round + 1
    }

    /// Whether it is time to ask again.
    pub(crate) fn is_due(&self, now: Moment, options: &Options) -> bool {
        now >= self.asked_at.after(options.lease_us / 4)
    }

    /// Whether the round sent last is answered by all who were asked.
    pub(crate) fn is_answered(&self) -> bool {
        self.partners.iter().all(|node| self.held.get(node).is_some_and(|held| held.round == self.round))
    }

    /// A promise came.
    pub(crate) fn hold(&mut self, from: NodeId, round: u64, asked_at: Moment, version: Version, now: Moment) {
        let held = Held { round, asked_at, heard_at: now, version };
        let newest = self.held.entry(from).or_insert(held);
        if (held.round, held.version) >= (newest.round, newest.version) {
            *newest = held;
        }
    }

    /// Whether this node's promise is good for a read now.
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

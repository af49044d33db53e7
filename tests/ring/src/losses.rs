//! Losses that an operator accepts while faults are active: another node leads a slot whose only copies the
//! group does not hear, though they may be alive and have clients.
//!
//! Invariant: from that moment on no node that follows an older table acknowledges anything of the slot.
//! Invariant: replies before a loss, and operations that began after it, are judged separately.

use crate::cells::State;
use crate::judge::{judge, judge_behind};
use crate::world::{Phase, World, say};
use atoll_replica::{Change, NodeId, Reads, Sequence, Slot, Version};
use fastrand::Rng;

/// A slot whose loss was accepted.
#[derive(Clone, Debug)]
pub(crate) struct GivenUp {
    /// The table in which it was accepted.
    branch: Version,
    /// What is left; unknown until a node leads by that table.
    kept: Option<KeptState>,
}

/// What is left of a slot after a loss.
#[derive(Clone, Debug)]
pub(crate) struct KeptState {
    /// The last place of its book.
    pub(crate) place: Sequence,
    /// The state at that place.
    pub(crate) state: State,
    /// When a node began to lead with it.
    pub(crate) moment: u64,
}

/// Whether the operator of this seed accepts losses without waiting. A separate generator, so that the
/// seed's other decisions do not depend on this one.
pub(crate) fn draw_impatience(seed: u64) -> bool {
    Rng::with_seed(seed ^ IMPATIENCE).bool()
}

/// Any number with which no other generator is seeded.
const IMPATIENCE: u64 = 0x6c6f_7373;

impl World {
    /// An operator accepts the loss of slots that no node serves, as far as the group can tell.
    pub(crate) fn accept_losses(&mut self) {
        let trusts_clocks = self.settings.options.reads == Reads::Leases;
        if !self.is_impatient || self.phase != Phase::Chaos || !trusts_clocks {
            return;
        }
        for slot in self.slot_ids() {
            if self.may_give_up(slot) {
                self.give_up(slot);
            }
        }
    }

    fn may_give_up(&self, slot: Slot) -> bool {
        let table = self.council.authority.table();
        let configuration = table.slot(slot);
        let is_silent = |node: NodeId| {
            let is_down = table.members.get(&node).is_none_or(|member| !member.is_up);
            let heard_at = self.council.heard_at.get(&node).copied().unwrap_or_default();
            is_down && self.now > heard_at + self.promise_us()
        };
        // Copies that hear each other but not the group carry on: their promises are not known to have
        // expired. One that has no lease at the moment gets one when it hears the others again.
        let goes_on = |node: NodeId| {
            let process = self.node(node).process.as_ref();
            process.is_some_and(|process| {
                let configuration = process.replica.table().slot(slot);
                configuration.primary == Some(node) && configuration.in_sync.len() > 1
            })
        };
        !self.given_up.contains_key(&slot)
            && !self.have_each_other(slot)
            && configuration.epoch.0 > 0
            && !configuration.in_sync.is_empty()
            && configuration.in_sync.iter().all(is_silent)
            && !self.node_ids().any(goes_on)
    }

    /// Whether several nodes run that have each other in sync, or will once they hear of a table that they
    /// are still to follow: they go on without the group, though it gave all of them up. An operator stops
    /// such nodes before accepting a loss.
    fn have_each_other(&self, slot: Slot) -> bool {
        let table = self.council.authority.table();
        let current = (table.version, table.slot(slot).in_sync.iter().collect::<Vec<_>>());
        let former = self.former_in_sync.get(&slot).into_iter().flatten();
        former.chain([&current]).any(|(until, in_sync)| {
            let may_follow = |node: &&NodeId| {
                let process = self.node(**node).process.as_ref();
                process.is_some_and(|process| process.replica.table().version <= *until)
            };
            in_sync.iter().filter(may_follow).count() > 1
        })
    }

    /// Notes which copies were in sync up to this table.
    pub(crate) fn were_in_sync(&mut self, slot: Slot, until: Version, in_sync: Vec<NodeId>) {
        if in_sync.len() > 1 {
            self.former_in_sync.entry(slot).or_default().push((until, in_sync));
        }
    }

    /// After this long every promise of the group to a node that it did not hear has expired, by any clock.
    fn promise_us(&self) -> u64 {
        let rate = u64::from(self.settings.clock_error_ppm);
        self.settings.options.lease_us * (1_000_000 + rate) / (1_000_000 - rate) + 1
    }

    fn give_up(&mut self, slot: Slot) {
        let table = self.council.authority.table();
        let (former, seen) = (table.slot(slot).primary, table.version);
        self.decide(Change::Recover { slot, seen });
        let configuration = self.council.authority.table().slot(slot);
        if configuration.primary.is_some() && configuration.primary != former {
            self.counts.bump("losses_accepted_in_between");
            if let Err(what) = judge(&self.operations, slot) {
                self.break_promise(format!("before a loss of it was accepted, {what}"));
            }
            self.given_up.insert(slot, GivenUp { branch: configuration.branch, kept: None });
        }
    }

    /// Whether a loss of the slot was accepted that this node does not know of.
    fn is_given_up(&self, node: NodeId, slot: Slot) -> bool {
        let Some(given_up) = self.given_up.get(&slot) else { return false };
        let process = self.node(node).process.as_ref();
        process.is_none_or(|process| process.replica.table().slot(slot).branch < given_up.branch)
    }

    /// Whether a node still has the abandoned state of a slot, which need not match the others'; it is
    /// dropped once the node learns of the loss. Such a node must not lead.
    pub(crate) fn has_given_up(&mut self, node: NodeId, slot: Slot) -> bool {
        if !self.is_given_up(node, slot) {
            return false;
        }
        if self.node(node).process.as_ref().is_some_and(|process| process.replica.leads(slot)) {
            self.break_promise(format!("{node} goes on with slot {}, of which a loss was accepted", slot.0));
        }
        self.is_behind_loss(slot)
    }

    /// A node begins to lead. If it is the first since a loss was accepted, everything that it has not
    /// applied is lost. So is what it had and forgot since, if nothing came after it.
    pub(crate) fn begins_to_lead(&mut self, node: NodeId, slot: Slot) {
        let Some(given_up) = self.given_up.get(&slot) else { return };
        let (branch, kept) = (given_up.branch, given_up.kept.as_ref().map(|kept| kept.place));
        let process = self.node(node).process.as_ref();
        let last = process.map(|process| process.replica.last(slot).sequence).unwrap_or_default();
        let may_lose = kept.is_none_or(|kept| kept == self.books[slot.0 as usize].last() && last < kept);
        if self.is_given_up(node, slot) || !may_lose {
            return;
        }
        let judged = self.judge_behind_loss(slot);
        let kept = judged.and_then(|()| self.lose_all_but_of(node, slot));
        match kept {
            Ok((place, state)) => {
                say!(self, "of slot {} is kept what {node} has, up to {}", slot.0, place.0);
                let moment = self.next_moment();
                self.given_up
                    .insert(slot, GivenUp { branch, kept: Some(KeptState { place, state, moment }) });
            }
            Err(what) => self.break_promise(what),
        }
    }

    /// Whether a loss of the slot was accepted, and a node leads what was kept.
    pub(crate) fn is_behind_loss(&self, slot: Slot) -> bool {
        self.given_up.get(&slot).is_some_and(|given_up| given_up.kept.is_some())
    }

    /// Judges the operations of a slot since its loss was accepted, if it was and a node leads since.
    pub(crate) fn judge_behind_loss(&self, slot: Slot) -> Result<(), String> {
        match self.given_up.get(&slot).and_then(|given_up| given_up.kept.as_ref()) {
            Some(kept) => judge_behind(&self.operations, slot, kept)
                .map_err(|what| format!("behind a loss that was accepted, {what}")),
            None => Ok(()),
        }
    }

    /// Everything of a slot that this node has not applied is lost.
    pub(crate) fn lose_all_but_of(&mut self, node: NodeId, slot: Slot) -> Result<(Sequence, State), String> {
        let nobody = State::default();
        let process = self.nodes[node.0 as usize - 1].process.as_ref();
        let live = process.and_then(|process| process.slots.get(&slot));
        let (kept, state) = live.map_or((Sequence(0), &nobody), |live| (live.applied.sequence, &live.state));
        match self.books[slot.0 as usize].accept_loss(kept, state, &mut self.operations) {
            true => Ok((kept, state.clone())),
            false => Err(format!("{node} never had slot {} as it was at {}", slot.0, kept.0)),
        }
    }
}

//! The end of a run: everything heals, and then every slot must come back, serve, and be the same on all
//! its copies.

use crate::operation::{OperationEnd, Work};
use crate::queue::Event;
use crate::world::{Phase, World, say};
use atoll_linearizability::{Action, Answer};
use atoll_replica::{Change, NodeId, Slot};

/// The longest time for which faults continue.
const CHAOS_US_MAX: u64 = 60_000_000;
/// How long it may take until every slot is back. A copy that was dismissed time and again rests twice as
/// long as the last time before it is admitted; faults seldom last so long that this comes to half a minute.
const HEALING_US_MAX: u64 = 25_000_000 + CHAOS_US_MAX / 2;
/// How often that is checked.
const LOOK_US: u64 = 100_000;
/// How long a fresh request may take.
const PROBE_US: u64 = 2_000_000;
/// How long copies may take to learn the commit point.
const LAST_WORDS_US: u64 = 600_000;

impl World {
    /// Runs with faults until clients have begun as many operations as the seed asks for.
    pub(crate) fn run_chaos(&mut self) -> Result<(), String> {
        let end = self.now + CHAOS_US_MAX;
        while self.now < end && self.begun < self.settings.operations {
            self.run_until(self.now + LOOK_US)?;
        }
        Ok(())
    }

    /// Heals everything; clients continue until all slots are back.
    pub(crate) fn run_healing(&mut self) -> Result<(), String> {
        self.heal();
        let end = self.now + HEALING_US_MAX;
        loop {
            self.run_until(self.now + LOOK_US)?;
            match self.wrong_slot() {
                None => break,
                Some(wrong) if self.now >= end => return Err(format!("when all was well, {wrong}")),
                Some(_) => {}
            }
        }
        self.phase = Phase::Quiet;
        say!(self, "all slots are back");
        let patience = self.settings.patience_us;
        self.run_until(self.now + patience + LAST_WORDS_US)
    }

    fn heal(&mut self) {
        say!(self, "all is well from now on");
        self.phase = Phase::Calm;
        self.network.calm();
        self.council.away_until = 0;
        for node in self.node_ids() {
            self.decide(Change::Stay { node });
            self.node_mut(node).disk.stalls_until = 0;
            self.resume(node);
            self.after(1_000, Event::Start { node });
        }
    }

    /// Describes a slot that is not as it should be. Slots that are lost for good are not checked.
    fn wrong_slot(&self) -> Option<String> {
        let table = self.council.authority.table();
        // Nodes that were asked to leave, and did, do not count as missing.
        let may_leave = self.is_planned || self.counts.of("faults_leave") > 0;
        let nodes = if may_leave { table.members.len() } else { self.settings.nodes as usize };
        let wanted = self.settings.copies.min(nodes);
        // A node that left in the last moment comes back a little later; until then it answers no client.
        if let Some(node) = self.node_ids().find(|node| self.node(*node).process.is_none()) {
            return Some(format!("{node} does not come back"));
        }
        self.slot_ids().filter(|&slot| !self.is_lost(slot)).find_map(|slot| {
            let configuration = table.slot(slot);
            let leads = |node: NodeId| {
                let process = self.node(node).process.as_ref();
                process.is_some_and(|process| process.replica.leads(slot))
            };
            let has_primary = configuration.primary.is_some_and(leads);
            let is_whole = configuration.in_sync.len() == wanted && configuration.joining.is_empty();
            (!has_primary || !is_whole)
                .then(|| format!("slot {} stays without a primary or a copy: {configuration:?}", slot.0))
        })
    }

    /// Whether every copy that had everything of the slot has lost it.
    pub(crate) fn is_lost(&self, slot: Slot) -> bool {
        let configuration = self.council.authority.table().slot(slot);
        configuration.epoch.0 > 0 && configuration.in_sync.is_empty()
    }

    /// Sends fresh requests, which must be answered, and compares all copies afterwards.
    pub(crate) fn run_probes(&mut self, slots: &[Slot]) -> Result<(), String> {
        for &slot in slots {
            let value = format!("last{}", slot.0);
            let put = Work::Write { action: Action::Put(vec![0], value.clone()), lifetime_us: None };
            self.probe(slot, put, &Answer::Done)?;
            self.probe(slot, Work::Read(Action::Get(0)), &Answer::Value(Some(value)))?;
        }
        self.run_until(self.now + LAST_WORDS_US)?;
        slots.iter().try_for_each(|&slot| self.compare_copies(slot))
    }

    fn probe(&mut self, slot: Slot, work: Work, expected: &Answer) -> Result<(), String> {
        let operation = self.begin_operation(0, slot, work, PROBE_US);
        self.run_until(self.now + PROBE_US + LOOK_US)?;
        match &self.operations[operation].ended {
            Some((_, OperationEnd::Told(answer))) if answer == expected => Ok(()),
            ended => {
                Err(format!("when all was well, slot {} answered a fresh request so: {ended:?}", slot.0))
            }
        }
    }

    fn compare_copies(&self, slot: Slot) -> Result<(), String> {
        let configuration = self.council.authority.table().slot(slot);
        let last = self.books[slot.0 as usize].last();
        let expected = self.books[slot.0 as usize].digest(last);
        for node in configuration.in_sync.iter() {
            let process = self.node(node).process.as_ref();
            let live = process.and_then(|process| process.slots.get(&slot));
            let has = live.map(|live| (live.applied.sequence, live.state.digest()));
            if has.map(|(sequence, _)| sequence) != Some(last) || has.map(|(_, digest)| digest) != expected {
                let has = has.map(|(sequence, _)| sequence.0);
                return Err(format!("{node} has slot {} up to {has:?}, and {} was the last", slot.0, last.0));
            }
        }
        Ok(())
    }

    /// Slots that lost all in-sync copies continue with what there is, once an operator accepts the loss.
    pub(crate) fn run_recovery(&mut self) -> Result<(), String> {
        self.recover().map_err(|what| format!("behind an accepted loss {what}"))
    }

    fn recover(&mut self) -> Result<(), String> {
        let lost: Vec<Slot> = self.slot_ids().filter(|&slot| self.is_lost(slot)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        for &slot in &lost {
            self.counts.bump("slots_recovered");
            let seen = self.council.authority.table().version;
            self.decide(Change::Recover { slot, seen });
            self.accept_loss(slot)?;
        }
        let end = self.now + HEALING_US_MAX;
        while let Some(wrong) = self.wrong_slot() {
            if self.now >= end {
                return Err(wrong);
            }
            self.run_until(self.now + LOOK_US)?;
        }
        self.run_probes(&lost)
    }

    /// Everything that the new primary has not applied is lost.
    fn accept_loss(&mut self, slot: Slot) -> Result<(), String> {
        let primary = self.council.authority.table().slot(slot).primary;
        let Some(primary) = primary else { return Err(format!("nobody could recover slot {}", slot.0)) };
        self.lose_all_but_of(primary, slot).map(drop)
    }
}

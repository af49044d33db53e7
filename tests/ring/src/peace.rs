//! Runs in which nothing fails: nodes join and leave, and slots move on an operator's request. Every
//! request must be answered, and none may take long.

use crate::operation::{Operation, OperationEnd, Work};
use crate::queue::Event;
use crate::world::{Phase, World, say};
use atoll_replica::{Change, NodeId, Slot};

/// How long the ring has to assign its slots to nodes before the first request.
const FOUNDING_US: u64 = 2_000_000;

/// Requests under way within this time before or after a move of their slot count as being around the move.
const AROUND_US: u64 = 20_000;

impl World {
    pub(crate) fn begin_in_peace(&mut self) {
        say!(self, "seed begins in peace: {:?}", self.settings);
        self.network.calm();
        self.phase = Phase::Calm;
        for node in self.node_ids() {
            // One node more than the number of copies starts soon, so that one may leave; the others join
            // under load.
            let is_first = node.0 as usize <= self.settings.copies + 1;
            let after =
                if is_first { self.random.u64(..20_000) } else { self.random.u64(2_000_000..5_000_000) };
            self.after(after, Event::Start { node });
        }
        self.after(30_000, Event::GroupLooks);
        self.after(FOUNDING_US, Event::Operator);
        for client in 0..self.clients.len() {
            self.after(FOUNDING_US, Event::Begin { client });
        }
    }

    /// Makes a node leave, or moves a slot.
    pub(crate) fn operator_acts(&mut self) {
        if self.phase == Phase::Quiet {
            return;
        }
        let next = self.random.u64(20_000..300_000);
        self.after(next, Event::Operator);
        let table = self.council.authority.table();
        let staying: Vec<NodeId> =
            table.members.iter().filter(|(_, member)| !member.is_leaving).map(|(&node, _)| node).collect();
        let is_quiet = staying.len() == table.members.len();
        if is_quiet && staying.len() > self.settings.copies && self.random.bool() {
            let node = staying[self.random.usize(..staying.len())];
            self.counts.bump("leaves_asked_for");
            self.decide(Change::Leave { node });
        } else {
            let slot = Slot(self.random.u32(..self.settings.slots));
            let configuration = table.slot(slot);
            let others: Vec<NodeId> = configuration
                .in_sync
                .iter()
                .filter(|node| Some(*node) != configuration.primary && staying.contains(node))
                .collect();
            if !others.is_empty() {
                let node = others[self.random.usize(..others.len())];
                self.decide(Change::HandOver { slot, epoch: configuration.epoch, node });
            }
        }
    }

    /// Clients send requests until the seed has enough; then each slot must be whole, and every request
    /// answered.
    pub(crate) fn run_in_peace(&mut self) -> Result<(), String> {
        self.run_chaos()?;
        self.phase = Phase::Quiet;
        let patience = self.settings.patience_us;
        self.run_until(self.now + patience)?;
        self.run_healing()?;
        let slots: Vec<Slot> = self.slot_ids().collect();
        self.run_probes(&slots)?;
        for slot in self.slot_ids() {
            crate::judge::judge(&self.operations, slot)?;
        }
        let failed = (0..).zip(&self.operations).find(|(_, operation)| operation.has_failed());
        match failed {
            Some((number, operation)) => {
                Err(format!("nothing failed, but operation {number} did: {:?}", operation.ended))
            }
            None => Ok(()),
        }
    }

    /// How long the slowest request around each move of a slot took.
    pub(crate) fn pauses_us(&self) -> Vec<u64> {
        let longest = |&(slot, at): &(Slot, u64)| {
            let around = |operation: &Operation| match operation.took {
                (began, Some(ended)) if began <= at + AROUND_US && ended + AROUND_US >= at => {
                    Some(ended - began)
                }
                _ => None,
            };
            let asked =
                self.operations.iter().filter(|operation| operation.slot == slot && operation.is_short());
            asked.filter_map(around).max()
        };
        self.moves.iter().filter_map(longest).collect()
    }
}

impl Operation {
    /// Whether it is answered at once if nothing is wrong.
    fn is_short(&self) -> bool {
        !matches!(self.work, Work::Wait { .. } | Work::Expire { .. })
    }

    fn has_failed(&self) -> bool {
        self.is_short()
            && self.ended.as_ref().is_some_and(|(_, ended)| !matches!(ended, OperationEnd::Told(_)))
    }
}

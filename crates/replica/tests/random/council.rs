//! The configuration group of the world: what it is asked, what it decides, and which nodes it has not heard
//! for too long.

use super::{Event, GROUP, SECOND, SLOT, World};
use atoll_replica::{Change, Decision, Moment, NodeId};
use std::sync::Arc;

impl World {
    pub(super) fn ask_group(&mut self, node: NodeId, change: Change) {
        for _ in 0..self.travels(node, GROUP) {
            let (delay, change) = (self.delay(), change.clone());
            self.at(delay, Event::Ask { node, change });
        }
    }

    pub(super) fn beat(&mut self, node: NodeId, life: u64, asked_at: Moment) {
        if !self.is_life(node, life) {
            return;
        }
        if self.nodes[&node].incarnation.is_none() {
            return;
        }
        self.heard_at.insert(node, self.now);
        if let Some(incarnation) = self.nodes[&node].incarnation {
            self.decide(node, Change::Hear { node, incarnation });
        }
        if self.travels(GROUP, node) > 0 {
            let delay = self.delay();
            self.at(delay, Event::Heard { node, life, asked_at });
        }
        if self.random.u8(..3) == 0 {
            self.send_table(node);
        }
    }

    pub(super) fn decide(&mut self, node: NodeId, change: Change) {
        let text = if self.traces { format!("{change:?}") } else { String::new() };
        let name = match &change {
            Change::Propose(atoll_replica::Proposal::Admit { .. }) => "admit",
            Change::Propose(atoll_replica::Proposal::Dismiss { .. }) => "dismiss",
            Change::Lead { .. } => "moved",
            _ => "changed",
        };
        let is_register = matches!(change, Change::Register { .. });
        let decision = self.group.apply(change);
        if decision == Decision::Unchanged {
            return;
        }
        self.counts.count(name);
        self.trace(|| {
            let table = self.group.table();
            format!("{text}: {:?} {:?}", table.version, table.slot(SLOT))
        });
        if let Decision::Registered { incarnation } = decision {
            self.heard_at.insert(node, self.now);
            let life = self.nodes[&node].life;
            if is_register && self.travels(GROUP, node) > 0 {
                let delay = self.delay();
                self.at(delay, Event::Registered { node, life, incarnation });
            }
        }
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.send_table(node);
        }
    }

    pub(super) fn send_table(&mut self, node: NodeId) {
        let table = self.group.table();
        for _ in 0..self.travels(GROUP, node) {
            let (delay, table) = (self.delay(), Arc::clone(&table));
            self.at(delay, Event::Table { node, table });
        }
    }

    pub(super) fn group_looks(&mut self) {
        self.at(SECOND / 5, Event::GroupLooks);
        let silent: Vec<_> = self
            .heard_at
            .iter()
            .filter(|(_, at)| self.now > **at + self.silence_us)
            .map(|(&node, _)| node)
            .collect();
        for node in silent {
            self.heard_at.remove(&node);
            if let Some(incarnation) = self.group.table().incarnation(node) {
                self.decide(node, Change::Fail { node, incarnation });
            }
        }
        let registered = self.group.table().members.len();
        if registered >= 2 && self.random.bool() {
            let gone: Vec<_> =
                self.nodes.keys().copied().filter(|node| !self.heard_at.contains_key(node)).collect();
            for change in self.group.plan(&gone) {
                self.decide(GROUP, change);
            }
        }
        let configuration = self.group.table().slot(SLOT);
        if !self.is_calm && self.random.u8(..20) == 0 && configuration.in_sync.len() > 1 {
            let node = configuration.in_sync.as_slice()[self.random.usize(..configuration.in_sync.len())];
            self.decide(GROUP, Change::Lead { slot: SLOT, epoch: configuration.epoch, node });
        }
        // Nodes without an answer ask again.
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.nodes[&node].is_up && self.nodes[&node].incarnation.is_none() {
                self.register(node);
            }
        }
    }
}

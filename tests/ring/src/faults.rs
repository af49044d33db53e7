//! Injects faults one after the other, often before the previous one is over.

use crate::lives::Ending;
use crate::network::GROUP;
use crate::queue::Event;
use crate::settings::one_of;
use crate::world::{Phase, World, say};
use atoll_replica::{Change, NodeId, Slot};

impl World {
    /// Injects a fault, and schedules the next one soon.
    pub(crate) fn something_breaks(&mut self) {
        if self.phase != Phase::Chaos {
            return;
        }
        let next = self.random.u64(10_000..self.settings.fault_us_max);
        self.after(next, Event::Fault);
        let node = self.any_node();
        match self.random.u8(..100) {
            0..=11 => self.kill_one(node),
            12..=14 => self.stop_one(node),
            15..=16 => self.total_outage(),
            17..=22 => self.split(),
            23..=30 => self.cut_off(node),
            31..=37 => self.cut_one_way(node),
            38..=43 => self.cut_from_group(node),
            44..=49 => self.slow_link(node),
            50..=59 => self.pause_one(node),
            60..=61 => self.pause_many(),
            62..=63 => self.group_goes_away(),
            64..=67 => self.disk_stalls(node),
            68..=69 => self.date_is_set(node),
            70..=76 => self.move_primary(),
            77..=79 => self.move_primaries(),
            80..=83 => self.move_copy(),
            84..=85 => self.drop_copy(),
            86 => self.leave_or_stay(node),
            // Two related faults at once.
            87..=92 => self.cut_off_and_move(),
            93..=96 => self.pause_and_move(),
            _ => self.move_and_kill(),
        }
    }

    fn goes_down(&mut self, node: NodeId, ending: Ending) {
        self.end(node, ending);
        let away = self.random.u64(5_000..self.settings.away_us_max);
        self.after(away, Event::Start { node });
    }

    fn kill_one(&mut self, node: NodeId) {
        if self.node(node).process.is_none() {
            return;
        }
        let ending = if self.random.bool() { Ending::Killed } else { Ending::PowerLost };
        if self.spares(node, ending) {
            return;
        }
        self.counts.bump(if ending == Ending::Killed { "faults_kill" } else { "faults_power_loss" });
        self.goes_down(node, ending);
    }

    /// Whether a node that ends in this way loses the data of any slot.
    fn loses(&self, ending: Ending) -> bool {
        self.slot_ids().any(|slot| self.settings.loses(slot, ending))
    }

    /// Usually spares the last node with all data of a slot from an ending that would lose it: a slot that
    /// is gone teaches little.
    fn spares(&mut self, node: NodeId, ending: Ending) -> bool {
        if !self.loses(ending) {
            return false;
        }
        let table = self.council.authority.table();
        let mut lost = self.slot_ids().filter(|&slot| self.settings.loses(slot, ending));
        let is_last = lost.any(|slot| {
            let in_sync = table.slot(slot).in_sync;
            let has_lost = |other: NodeId| self.node(other).lost.contains(&slot);
            let is_there = |other: NodeId| self.node(other).process.is_some() && !has_lost(other);
            in_sync.contains(node) && !in_sync.iter().any(|other| other != node && is_there(other))
        });
        is_last && self.random.u8(..16) > 0
    }

    /// Occasionally a process ends right after the first entry that it applied in place of others, before
    /// it wrote anything more.
    pub(crate) fn something_ends_behind_a_cut(&mut self, node: NodeId) {
        let may_end = self.phase == Phase::Chaos && !self.is_planned && self.dying.is_none();
        if may_end && self.random.bool() && !self.spares(node, Ending::PowerLost) {
            self.dying = Some(node);
        }
    }

    /// Ends the process now.
    pub(crate) fn end_behind_a_cut(&mut self, node: NodeId) {
        self.dying = None;
        self.counts.bump("faults_kill_behind_a_cut");
        let ending = if self.random.bool() { Ending::Killed } else { Ending::PowerLost };
        self.goes_down(node, ending);
    }

    fn stop_one(&mut self, node: NodeId) {
        if self.node(node).process.is_some() && !self.spares(node, Ending::Stopped) {
            self.counts.bump("faults_stop");
            self.goes_down(node, Ending::Stopped);
        }
    }

    /// All nodes fail at once. Where that loses everything it is rare, because a ring that is gone teaches
    /// little.
    fn total_outage(&mut self) {
        let ending = if self.random.bool() { Ending::Killed } else { Ending::PowerLost };
        if self.loses(ending) && (self.random.u8(..8) > 0 || self.begun * 10 < self.settings.operations * 9) {
            return;
        }
        self.counts.bump(match ending {
            Ending::Killed => "faults_outage_killed",
            _ => "faults_outage_power_lost",
        });
        for node in self.node_ids() {
            if self.node(node).process.is_some() {
                self.goes_down(node, ending);
            }
        }
    }

    fn mend_later(&mut self) {
        self.link_faults += 1;
        let faults = self.link_faults;
        let after = self.random.u64(20_000..3 * self.settings.options.lease_us + 100_000);
        self.after(after, Event::Mend { faults });
    }

    fn cut_both(&mut self, one: NodeId, other: NodeId) {
        self.network.cut(one, other);
        self.network.cut(other, one);
    }

    /// The network splits the nodes and the group into two parts.
    fn split(&mut self) {
        self.counts.bump("faults_split");
        let sides: Vec<bool> = (0..=self.settings.nodes).map(|_| self.random.bool()).collect();
        say!(self, "the network splits: {sides:?}, the group first");
        for one in 0..=self.settings.nodes {
            for other in 0..one {
                if sides[one as usize] != sides[other as usize] {
                    self.cut_both(NodeId(one), NodeId(other));
                }
            }
        }
        self.mend_later();
    }

    /// Often the primary of some slot is cut off: then another node has to take over.
    fn cut_off(&mut self, node: NodeId) {
        self.counts.bump("faults_node_cut_off");
        let node = self.some_primary().filter(|_| self.random.bool()).unwrap_or(node);
        let from_group = self.random.u8(..4) > 0;
        self.isolate(node, from_group);
    }

    fn isolate(&mut self, node: NodeId, from_group: bool) {
        say!(self, "{node} is cut off, from the group as well: {from_group}");
        for other in self.node_ids().filter(|&other| other != node).collect::<Vec<_>>() {
            self.cut_both(node, other);
        }
        if from_group {
            self.cut_both(node, GROUP);
        }
        self.mend_later();
    }

    fn cut_one_way(&mut self, node: NodeId) {
        self.counts.bump("faults_one_way_cut");
        let other = NodeId(self.random.u32(..=self.settings.nodes));
        let (from, to) = if self.random.bool() { (node, other) } else { (other, node) };
        say!(self, "{to} does not hear {from} any more");
        self.network.cut(from, to);
        self.mend_later();
    }

    /// A primary that the group does not hear is replaced while the other copies hear it well.
    fn cut_from_group(&mut self, node: NodeId) {
        self.counts.bump("faults_cut_from_group");
        let node = self.some_primary().filter(|_| self.random.u8(..4) > 0).unwrap_or(node);
        say!(self, "{node} is cut off from the group alone");
        self.cut_both(node, GROUP);
        self.mend_later();
    }

    fn slow_link(&mut self, node: NodeId) {
        self.counts.bump("faults_slow_link");
        let other = NodeId(self.random.u32(..=self.settings.nodes));
        let slow_us = self.random.u64(1_000..self.settings.options.lease_us);
        let loss_ppm = one_of(&mut self.random, &[0, 100_000, 500_000]);
        say!(
            self,
            "from {node} to {other} everything takes up to {slow_us} us, {loss_ppm} of a million is lost"
        );
        self.network.spoil(node, other, slow_us, loss_ppm);
        if self.random.bool() {
            self.network.spoil(other, node, slow_us, loss_ppm);
        }
        self.mend_later();
    }

    fn pause_length(&mut self) -> u64 {
        let lease_us = self.settings.options.lease_us;
        match self.random.u8(..3) {
            0 => self.random.u64(1_000..lease_us / 2),
            1 => self.random.u64(lease_us / 2..3 * lease_us),
            // About as long as promises last.
            _ => self.random.u64(lease_us * 9 / 10..lease_us * 5 / 4),
        }
    }

    fn pause_one(&mut self, node: NodeId) {
        if self.node(node).process.is_some() {
            self.counts.bump("faults_pause");
            let us = self.pause_length();
            self.pause(node, us);
        }
    }

    fn pause_many(&mut self) {
        self.counts.bump("faults_pause_of_many");
        for node in self.node_ids() {
            if self.node(node).process.is_some() && self.random.bool() {
                let us = self.pause_length();
                self.pause(node, us);
            }
        }
    }

    fn group_goes_away(&mut self) {
        self.counts.bump("faults_group_away");
        let us = self.random.u64(10_000..2 * self.settings.silence_us);
        self.council.away_until = self.now + us;
        say!(self, "the group does not answer for {us} us");
        if self.random.bool() {
            // The next leader of the group has heard every node just now.
            let until = self.council.away_until;
            self.council.heard_at.values_mut().for_each(|heard_at| *heard_at = until.max(*heard_at));
        }
    }

    fn disk_stalls(&mut self, node: NodeId) {
        self.counts.bump("faults_disk_stall");
        let us = self.random.u64(10_000..2 * self.settings.options.lease_us);
        let until = self.now + us;
        say!(self, "the disk of {node} does not answer for {us} us");
        self.node_mut(node).disk.stalls_until = until;
    }

    fn date_is_set(&mut self, node: NodeId) {
        self.counts.bump("faults_date_set");
        let error_ms = self.random.i64(-20_000..=20_000);
        self.node_mut(node).clock.date_error_ms = error_ms;
    }

    // Requests of an operator to the group.

    fn some_slot(&mut self) -> Slot {
        Slot(self.random.u32(..self.settings.slots))
    }

    fn some_primary(&mut self) -> Option<NodeId> {
        let slot = self.some_slot();
        self.council.authority.table().slot(slot).primary
    }

    /// Asks the group to move a slot to another node. Returns its primary, or `None` if no move is possible.
    fn move_slot(&mut self, slot: Slot) -> Option<NodeId> {
        let configuration = self.council.authority.table().slot(slot);
        let primary = configuration.primary?;
        let others: Vec<_> = configuration.in_sync.iter().filter(|&node| node != primary).collect();
        if others.is_empty() || self.now < self.council.away_until {
            return None;
        }
        let epoch = configuration.epoch;
        let node = others[self.random.usize(..others.len())];
        match self.random.u8(..8) {
            0..=3 => self.decide(Change::Lead { slot, epoch, node }),
            4..=6 => self.decide(Change::HandOver { slot, epoch, node }),
            // To one that may not have everything: that is refused.
            _ => {
                let node = configuration.joining.iter().next().unwrap_or(node);
                self.decide(Change::HandOver { slot, epoch, node })
            }
        };
        Some(primary)
    }

    fn move_primary(&mut self) {
        let slot = self.some_slot();
        if self.move_slot(slot).is_some() {
            self.counts.bump("faults_primary_moved");
        }
    }

    fn move_primaries(&mut self) {
        let moved = self.slot_ids().filter(|&slot| self.move_slot(slot).is_some()).count();
        if moved > 1 {
            self.counts.bump("faults_primaries_moved");
        }
    }

    /// The primary of a slot does not learn that it has been replaced.
    fn cut_off_and_move(&mut self) {
        let slot = self.some_slot();
        let Some(primary) = self.council.authority.table().slot(slot).primary else { return };
        self.counts.bump("faults_cut_off_and_moved");
        if self.random.bool() {
            say!(self, "{primary} is cut off from the group alone, and its slot {} is moved", slot.0);
            self.cut_both(primary, GROUP);
            self.mend_later();
        } else {
            self.isolate(primary, true);
        }
        self.move_slot(slot);
    }

    fn pause_and_move(&mut self) {
        let slot = self.some_slot();
        let Some(primary) = self.council.authority.table().slot(slot).primary else { return };
        if self.node(primary).process.is_some() {
            self.counts.bump("faults_paused_and_moved");
            let us = self.pause_length();
            self.pause(primary, us);
            self.move_slot(slot);
        }
    }

    /// Copies that promised something to the former primary die and come back soon.
    fn move_and_kill(&mut self) {
        let slot = self.some_slot();
        let configuration = self.council.authority.table().slot(slot);
        let Some(primary) = configuration.primary else { return };
        let copies: Vec<_> = configuration.in_sync.iter().filter(|&node| node != primary).collect();
        let killed: Vec<_> = copies
            .into_iter()
            .filter(|&node| self.node(node).process.is_some() && !self.loses(Ending::Killed))
            .collect();
        if killed.is_empty() {
            return;
        }
        self.counts.bump("faults_moved_and_killed");
        self.cut_both(primary, GROUP);
        self.mend_later();
        for node in killed {
            self.end(node, Ending::Killed);
            let back = self.random.u64(1_000..20_000);
            self.after(back, Event::Start { node });
        }
        self.move_slot(slot);
    }

    /// Asks a node to leave, or the leaving one to stay.
    fn leave_or_stay(&mut self, node: NodeId) {
        if self.now < self.council.away_until {
            return;
        }
        let table = self.council.authority.table();
        let leaving = table.members.iter().find(|(_, member)| member.is_leaving).map(|(&node, _)| node);
        let change = match leaving {
            Some(node) => Change::Stay { node },
            None => Change::Leave { node },
        };
        self.counts.bump(if leaving.is_some() { "faults_stay" } else { "faults_leave" });
        self.decide(change);
    }

    fn move_copy(&mut self) {
        let slot = self.some_slot();
        let node = self.any_node();
        let has = self.council.authority.table().slot(slot).has(node);
        if !has && self.now >= self.council.away_until {
            self.counts.bump("faults_copy_moved");
            self.decide(Change::Copy { slot, node });
        }
    }

    fn drop_copy(&mut self) {
        let slot = self.some_slot();
        let node = self.any_node();
        let configuration = self.council.authority.table().slot(slot);
        // For a lost slot, an operator keeps the copies that exist.
        let may = configuration.primary.is_some() && configuration.in_sync.as_slice() != [node];
        if configuration.has(node) && may && self.now >= self.council.away_until {
            self.counts.bump("faults_copy_dropped");
            self.decide(Change::Drop { slot, node });
        }
    }
}

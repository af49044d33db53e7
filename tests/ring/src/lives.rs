//! How processes start and end, what they find at their start, and what the group learns of it.

use crate::case::Flaw;
use crate::clients::ClientReply;
use crate::council::GroupRequest;
use crate::network::GROUP;
use crate::node::{LiveSlot, Pause, Process};
use crate::queue::{Cells, Event, ToNode};
use crate::settings::Durability;
use crate::world::{Phase, World, say};
use atoll_replica::{
    Change, Decision, Gathering, Incarnation, KeyspaceSet, NodeId, Proposal, Replica, Slot, Survived, Table,
    Version,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It is killed; the machine keeps running.
    Killed,
    /// The machine loses power.
    PowerLost,
    /// It shuts down cleanly, with everything synced.
    Stopped,
}

impl World {
    /// Starts a process on a machine that has none.
    pub(crate) fn start(&mut self, node: NodeId) {
        if self.node(node).process.is_some() {
            return;
        }
        let believes = self.flaw == Some(Flaw::HalfBelieved);
        self.node_mut(node).disk.remove_unfinished(believes);
        if let Err(what) = self.node(node).disk.found() {
            return self.break_promise(format!("{node}: {what}"));
        }
        let options = self.settings.options.clone();
        self.node_mut(node).life += 1;
        let life = self.node(node).life;
        let survived = self.survived(node);
        let left = survived.clone();
        let there = self.node_mut(node);
        there.process = Some(Process {
            replica: Replica::new(node, options),
            incarnation: None,
            survived,
            began_at: there.clock.moment(0),
            told: Version::default(),
            heard_behind: None,
            slots: BTreeMap::new(),
            waiting: BTreeMap::new(),
            gathering: Gathering::default(),
            holding: Vec::new(),
            stale_moment: None,
        });
        self.counts.bump(if life == 1 { "nodes_begun" } else { "restarts" });
        say!(self, "{node} starts, life {life}, and has {left:?} of what it said");
        let first = self.random.u64(..self.settings.options.tick_us);
        self.register(node, life);
        self.after(first, Event::ToNode { node, what: ToNode::Tick { life } });
        self.after(first / 2, Event::ToNode { node, what: ToNode::Beat { life } });
        if !self.settings.has_only(Durability::Always) {
            self.after(first, Event::ToNode { node, what: ToNode::SyncDue { life } });
        }
    }

    /// What a node that starts has left, as it sees that.
    fn survived(&self, node: NodeId) -> Survived {
        let there = self.node(node);
        let has_lost = |slot: &Slot| there.life == 1 || there.lost.contains(slot);
        let lost: KeyspaceSet =
            self.slot_ids().filter(has_lost).map(|slot| self.settings.keyspace_of(slot)).collect();
        let is_all = self.slot_ids().all(|slot| has_lost(&slot));
        let denies = match self.flaw {
            Some(Flaw::LossDenied) => true,
            Some(Flaw::LossDeniedForOthers) => !is_all,
            _ => false,
        };
        match (denies, is_all) {
            (true, _) => Survived::Everything,
            (false, true) => Survived::Nothing,
            (false, false) => Survived::of(KeyspaceSet::ALL.without(lost)),
        }
    }

    /// Asks the group for registration until it is answered.
    pub(crate) fn register(&mut self, node: NodeId, life: u64) {
        let Some(process) = &self.node(node).process else { return };
        if process.incarnation.is_some() {
            return;
        }
        let survived = process.survived.clone();
        if self.phase == Phase::Chaos && self.random.u8(..8) == 0 && survived == Survived::Everything {
            // A duplicate may arrive late, perhaps after the life that sent it is over.
            let what = GroupRequest::Register { life, survived: survived.clone() };
            let late = self.random.u64(..3 * self.settings.options.lease_us);
            self.after(late, Event::ToGroup { from: node, what });
        }
        self.ask_group(node, GroupRequest::Register { life, survived });
        let again = self.settings.options.resend_us;
        self.after(again, Event::ToNode { node, what: ToNode::Register { life } });
    }

    /// The group has assigned this life its number.
    pub(crate) fn begin(&mut self, node: NodeId, incarnation: Incarnation) {
        let now = self.node(node).clock.moment(self.now);
        let rate_error_ppm = self.settings.options.rate_error_ppm;
        let found = match self.node(node).disk.found() {
            Ok(found) => found,
            Err(what) => return self.break_promise(format!("{node}: {what}")),
        };
        let there = self.node_mut(node);
        let Some(process) = there.process.as_mut().filter(|process| process.incarnation.is_none()) else {
            return;
        };
        (process.incarnation, process.began_at) = (Some(incarnation), now);
        there.lost.clear();
        let mut logs = Vec::new();
        for (cells, found) in found {
            let Cells { slot, position, time_ms, state } = cells;
            let logged = found.entries.last().map_or(position, |last| last.position);
            let mut live = LiveSlot { state, applied: position, time_ms, logged, ..LiveSlot::default() };
            live.set_deadlines(now, rate_error_ppm);
            process.slots.insert(slot, live);
            logs.push(found);
        }
        process.replica.begin(now, incarnation, logs);
        say!(self, "{node} begins as number {}", incarnation.0);
        self.ask_group(node, GroupRequest::Fetch);
        self.ask_one_that_lags(node, incarnation);
    }

    /// A member of the group that lags may be the first to answer a node that begins, with a table from
    /// before it was registered.
    fn ask_one_that_lags(&mut self, node: NodeId, incarnation: Incarnation) {
        let is_before = |table: &Arc<Table>| table.incarnation(node) < Some(incarnation);
        let Some(former) = self.council.former.clone().filter(is_before) else { return };
        if self.phase == Phase::Chaos && self.random.u8(..4) == 0 {
            self.counts.bump("tables_from_before_a_life");
            let late = self.random.u64(..self.settings.options.lease_us);
            self.after(late, Event::ToNode { node, what: ToNode::Table(former) });
        }
    }

    /// Ends a process by itself or by a signal; what it wrote stays.
    pub(crate) fn end_process(&mut self, node: NodeId) {
        self.end(node, Ending::Killed);
    }

    /// Ends a process.
    pub(crate) fn end(&mut self, node: NodeId, ending: Ending) {
        let Some(mut process) = self.node_mut(node).process.take() else { return };
        say!(self, "{node} ends: {ending:?}");
        let Self { nodes, random, now, counts, settings, .. } = self;
        if process.slots.values().any(|live| live.import.is_some()) {
            counts.bump("imports_ended_with_their_process");
        }
        let there = &mut nodes[node.0 as usize - 1];
        if there.pause.take().is_some() {
            counts.bump("ended_while_paused");
        }
        if settings.has_only(Durability::Memory) {
            there.disk.lose_everything();
        } else {
            let has_lost = match ending {
                Ending::Killed => there.disk.die(random),
                Ending::PowerLost => there.disk.lose_power(random),
                Ending::Stopped => {
                    let slots = process.slots.iter();
                    let is_whole = |(_, live): &(_, &LiveSlot)| live.import.is_none();
                    let cells = slots.filter(|_| process.incarnation.is_some()).filter(is_whole);
                    for (&slot, live) in cells {
                        let (position, time_ms, state) = (live.applied, live.time_ms, live.state.clone());
                        there.disk.write_cells(Cells { slot, position, time_ms, state });
                    }
                    let last = there.disk.last();
                    there.disk.sync(last);
                    there.disk.is_busy = false;
                    false
                }
            };
            if has_lost {
                counts.bump("tails_of_disks_lost");
            }
            there.disk.lose_slots(|slot| settings.durability_of(slot) == Durability::Memory);
        }
        // Entries reported as logged may be lost only with the power, and only where syncs are not waited
        // for; or where nothing outlives a process.
        there.lost.extend((0..settings.slots).map(Slot).filter(|&slot| settings.loses(slot, ending)));
        if ending == Ending::PowerLost {
            let start = random.u64(..2_000_000);
            there.clock.reboot(*now, start);
        }
        let waiting = std::mem::take(&mut process.waiting);
        let holding = std::mem::take(&mut process.holding);
        let watchers = process.slots.into_values().flat_map(|live| live.watchers);
        for waiting in waiting.into_values().chain(watchers).collect::<Vec<_>>() {
            // Connected clients may or may not notice.
            if let Some((client, attempt)) = waiting.client
                && self.random.bool()
            {
                self.reply(node, client, waiting.operation, attempt, ClientReply::Lost);
            }
        }
        self.let_go(node, holding);
    }

    /// Pauses a machine for a while.
    pub(crate) fn pause(&mut self, node: NodeId, us: u64) {
        let now = self.now;
        let there = self.node_mut(node);
        if there.pause.is_some() {
            return;
        }
        there.pauses += 1;
        let pause = there.pauses;
        there.pause = Some(Pause { since: now, moment: there.clock.moment(now), held: Vec::new() });
        say!(self, "{node} stands still for {us} us");
        self.after(us, Event::Resume { node, pause });
    }

    /// Resumes a machine: messages that arrived meanwhile are delivered now.
    pub(crate) fn resume(&mut self, node: NodeId) {
        let (now, flaw) = (self.now, self.flaw);
        let there = self.node_mut(node);
        let Some(pause) = there.pause.take() else { return };
        if flaw == Some(Flaw::ClockStandsStill) {
            there.clock.stand(now - pause.since);
        }
        let stale = (flaw == Some(Flaw::NowBeforePause)).then_some(pause.moment);
        if let Some(process) = &mut there.process {
            process.stale_moment = stale;
        }
        say!(self, "{node} goes on");
        for what in pause.held {
            self.node_hears(node, what);
        }
        if let Some(process) = &mut self.node_mut(node).process {
            process.stale_moment = None;
        }
    }

    /// Stops a node that the group removed, and starts it again after a while.
    pub(crate) fn stop_who_left(&mut self, node: NodeId) {
        if self.council.authority.table().incarnation(node).is_none() && self.node(node).process.is_some() {
            self.end(node, Ending::Stopped);
            let away = self.random.u64(5_000..self.settings.away_us_max);
            self.after(away, Event::Start { node });
        }
    }

    // The configuration group.

    /// A request reaches the group.
    pub(crate) fn ask_council(&mut self, from: NodeId, asking: GroupRequest) {
        if self.now < self.council.away_until {
            return;
        }
        match asking {
            GroupRequest::Register { life, survived: Survived::Nothing | Survived::Of(_) }
                if !self.node(from).is_life(life) => {}
            GroupRequest::Register { life, survived } => self.council_registers(from, life, survived),
            GroupRequest::Beat { life, incarnation, asked_at, known } => {
                let table = self.council.authority.table();
                if table.incarnation(from) == Some(incarnation) {
                    self.council.heard_at.insert(from, self.now);
                    self.decide(Change::Hear { node: from, incarnation });
                    let version = self.council.authority.table().version;
                    self.tell_node(from, ToNode::Heard { life, asked_at, version });
                }
                if table.version > known {
                    self.tell_node(from, ToNode::Table(table));
                }
            }
            GroupRequest::Propose(proposal) => {
                let name = match proposal {
                    Proposal::Admit { .. } => "admissions",
                    Proposal::Dismiss { .. } => "dismissals",
                    Proposal::HandOver { .. } => "slots_handed_over",
                    Proposal::Keep { .. } => "slots_kept",
                };
                if self.decide(Change::Propose(proposal)) == Decision::Changed {
                    self.counts.bump(name);
                }
            }
            GroupRequest::Fetch => self.tell_node(from, ToNode::Table(self.council.authority.table())),
        }
    }

    fn council_registers(&mut self, node: NodeId, life: u64, survived: Survived) {
        match survived {
            Survived::Nothing if life > 1 => self.counts.bump("losses_registered"),
            Survived::Of(_) => self.counts.bump("losses_of_some_keyspaces_registered"),
            _ => {}
        }
        let change = Change::Register {
            node,
            nonce: life,
            address: node.to_string(),
            hints: self.settings.hints(node),
            survived,
        };
        match self.decide(change) {
            Decision::Registered { incarnation } => {
                self.council.heard_at.insert(node, self.now);
                self.tell_node(node, ToNode::Registered { life, incarnation });
            }
            // An earlier life registered late and counts now: this one has to start anew.
            _ => self.tell_node(node, ToNode::Replaced { life }),
        }
    }

    fn tell_node(&mut self, node: NodeId, what: ToNode) {
        let arrivals = self.network.arrivals((GROUP, node), self.now, &mut self.random, &mut self.counts);
        // Tables and answers may arrive twice, with the same content.
        if let Some(at) = arrivals[1] {
            let again = match &what {
                ToNode::Table(table) => Some(ToNode::Table(Arc::clone(table))),
                ToNode::Heard { life, asked_at, version } => {
                    Some(ToNode::Heard { life: *life, asked_at: *asked_at, version: *version })
                }
                ToNode::Registered { life, incarnation } => {
                    Some(ToNode::Registered { life: *life, incarnation: *incarnation })
                }
                _ => None,
            };
            if let Some(what) = again {
                self.queue.push(at, Event::ToNode { node, what });
            }
        }
        if let Some(at) = arrivals[0] {
            self.queue.push(at, Event::ToNode { node, what });
        }
    }

    /// Has the group decide about a change, and perhaps broadcast the new table.
    pub(crate) fn decide(&mut self, change: Change) -> Decision {
        let before = self.council.authority.table();
        let text = self.trace.is_some().then(|| format!("{change:?}"));
        let removed = match &change {
            Change::Remove { node, .. } => Some(*node),
            _ => None,
        };
        let survived = match &change {
            Change::Register { survived, .. } => Some(survived.clone()),
            _ => None,
        };
        let decision = self.council.authority.decide(change);
        let table = self.council.authority.table();
        if table.version == before.version {
            return decision;
        }
        if let Some(text) = text {
            say!(self, "the group decides on {text}: table {}", table.version.0);
        }
        for slot in self.slot_ids() {
            let (was, is) = (before.slot(slot), table.slot(slot));
            if was == is {
                continue;
            }
            say!(self, "  slot {} is {is:?}", slot.0);
            if is.in_sync != was.in_sync {
                self.were_in_sync(slot, before.version, was.in_sync.iter().collect());
            }
            if is.primary != was.primary && is.primary.is_some() && was.primary.is_some() {
                self.counts.bump("fail_overs_and_moves");
                self.moves.push((slot, self.now));
            }
            if is.in_sync.is_empty() && !was.in_sync.is_empty() {
                self.counts.bump("slots_lost");
                let keyspace = self.settings.keyspace_of(slot);
                let is_loss = survived.as_ref().is_some_and(|survived| !survived.has(keyspace));
                if !is_loss || self.settings.durability_of(slot) == Durability::Always {
                    self.break_promise(format!("slot {} has no copy in sync, and nobody lost it", slot.0));
                }
            }
        }
        if let Some(node) = removed {
            self.after(LEFT_US, Event::Left { node });
        }
        if self.settings.pushes_tables {
            for node in self.node_ids() {
                self.tell_node(node, ToNode::Table(Arc::clone(&table)));
            }
        }
        decision
    }

    pub(crate) fn council_looks(&mut self) {
        self.after(self.settings.options.lease_us / 10, Event::GroupLooks);
        if self.now < self.council.away_until {
            return;
        }
        if self.random.u8(..32) == 0 {
            self.council.former = Some(self.council.authority.table());
        }
        let silent = self.council.silent(self.now, self.settings.silence_us);
        let together = silent.len() > 1;
        let change = match silent[..] {
            [] => None,
            [(node, incarnation)] => Some(Change::Fail { node, incarnation }),
            _ => Some(Change::FailTogether { nodes: silent }),
        };
        if change.is_some_and(|change| self.decide(change) == Decision::Changed) {
            self.counts.bump(if together { "nodes_failed_together" } else { "nodes_failed" });
        }
        self.accept_losses();
        let members = self.council.authority.table().members.len();
        if members < self.settings.copies.min(3) || self.now < self.council.planned_at + PLAN_EVERY_US {
            return;
        }
        self.council.planned_at = self.now;
        let gone = self.council.gone(self.now, 3 * self.settings.silence_us);
        for change in self.council.authority.plan(&gone) {
            let name = match change {
                Change::Copy { .. } => "copies_begun",
                Change::Drop { .. } => "copies_dropped",
                Change::HandOver { .. } => "primaries_moved",
                Change::Remove { .. } => "nodes_left",
                Change::Lead { .. } => "slots_revived",
                _ => "slots_founded",
            };
            if self.decide(change) == Decision::Changed {
                self.counts.bump(name);
            }
        }
    }
}

/// How long a node that left keeps running and redirects clients.
const LEFT_US: u64 = 100_000;

/// How often the group plans where copies go.
const PLAN_EVERY_US: u64 = 300_000;

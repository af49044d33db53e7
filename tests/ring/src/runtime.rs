//! The runtime of a node around the protocol: it reads the clock, passes inputs to the protocol, and
//! performs the effects that it returns.
//!
//! Invariant: effects are performed in their order, and none of them calls the protocol again at once.

use crate::case::Flaw;
use crate::council::GroupRequest;
use crate::disk::Record;
use crate::network::GROUP;
use crate::node::LiveSlot;
use crate::queue::{Cells, Event, ToNode};
use crate::settings::Durability;
use crate::world::{World, say};
use atoll_linearizability::Answer;
use atoll_replica::{
    Effect, Entry, Input, LogRun, Message, Moment, NodeId, Position, Proposal, Slot, SlotMessage, Ticket,
    Version,
};

impl World {
    /// A message or a timer reaches the process of a node.
    pub(crate) fn node_hears(&mut self, node: NodeId, what: ToNode) {
        let is_life = |life: u64| self.node(node).is_life(life);
        match what {
            ToNode::Said { from, incarnation, message } => {
                self.give(node, Input::Message { from, incarnation, message });
            }
            ToNode::Table(table) => {
                let version = table.version;
                self.give(node, Input::Table(table));
                self.watch_table(node, version);
                self.hear_behind(node, version);
            }
            ToNode::Heard { life, asked_at, version } if is_life(life) => {
                self.group_heard(node, asked_at, version);
            }
            ToNode::Registered { life, incarnation } if is_life(life) => self.begin(node, incarnation),
            ToNode::Request { client, operation, attempt } => {
                self.serve(node, client, operation, attempt);
            }
            ToNode::Cells { from, cells } => self.stage(node, from, cells),
            ToNode::Staged { life, from, branch, cells } if is_life(life) => {
                self.install(node, from, branch, cells);
            }
            ToNode::Part { life, slot, number, is_last } if is_life(life) => {
                self.part_comes(node, slot, number, is_last);
            }
            ToNode::Sending { life, to, cells, arrives_at } if is_life(life) => {
                self.send_rest(node, to, cells, arrives_at);
            }
            ToNode::Replaced { life } if is_life(life) => self.begin_again(node),
            ToNode::Tick { life } if is_life(life) => self.tick(node, life),
            ToNode::Beat { life } if is_life(life) => self.beat(node, life),
            ToNode::Register { life } if is_life(life) => self.register(node, life),
            ToNode::Written { life, through } if is_life(life) => self.written(node, life, through),
            ToNode::Synced { life, through } if is_life(life) => self.synced(node, through),
            ToNode::Gathered { life } if is_life(life) => self.gathered(node),
            ToNode::SyncDue { life } if is_life(life) => self.sync_due(node, life),
            _ => {}
        }
    }

    /// Passes an input to the protocol with the current clock reading, and performs the effects.
    pub(crate) fn give(&mut self, node: NodeId, input: Input) {
        let now = self.node(node).moment(self.now);
        let mut effects = std::mem::take(&mut self.effects);
        let Some(process) = self.node_mut(node).begun() else {
            self.effects = effects;
            return;
        };
        process.replica.step(now, input, &mut effects);
        let is_superseded = process.replica.is_superseded();
        self.drop_overtaken_imports(node);
        self.watch_leaders(node);
        for effect in effects.drain(..) {
            self.perform(node, effect);
        }
        self.effects = effects;
        match self.dying == Some(node) {
            true => return self.end_behind_a_cut(node),
            false => self.node_mut(node).disk.settle(),
        }
        if is_superseded {
            self.begin_again(node);
        }
    }

    fn begin_again(&mut self, node: NodeId) {
        self.counts.bump("lives_superseded");
        say!(self, "{node} hears that another life of it counts, and begins again");
        self.end_process(node);
        self.after(1_000, Event::Start { node });
    }

    fn perform(&mut self, node: NodeId, effect: Effect) {
        if let Effect::Log { slot, .. } | Effect::Apply { slot, .. } = effect {
            self.drop_import(node, slot);
        }
        match effect {
            Effect::Send { to, message } => self.send(node, to, message),
            Effect::Log { slot, after, entries, run } => self.log(node, slot, (after, entries), run),
            Effect::Apply { slot, entry, ticket } => self.apply(node, slot, &entry, ticket),
            Effect::Read { ticket } => self.read(node, ticket),
            Effect::Refuse { ticket, refusal } => self.refuse(node, ticket, refusal),
            Effect::Unknown { ticket } => self.answer_unknown(node, ticket),
            Effect::Transfer { slot, to } => self.transfer(node, slot, to),
            Effect::Propose(proposal) => {
                say!(self, "{node} proposes {proposal:?}");
                let name = match proposal {
                    Proposal::Admit { .. } => "admissions_proposed",
                    Proposal::Dismiss { .. } => "dismissals_proposed",
                    Proposal::HandOver { .. } => "hand_overs_proposed",
                    Proposal::Keep { .. } => "hand_overs_given_up",
                };
                self.counts.bump(name);
                self.ask_group(node, GroupRequest::Propose(proposal));
            }
            Effect::FetchTable => self.ask_group(node, GroupRequest::Fetch),
            Effect::Forget { slot } => {
                self.counts.bump("copies_forgotten");
                say!(self, "{node} forgets slot {}", slot.0);
                let is_relied_on = self.settings.durability_of(slot) == Durability::Always;
                let there = self.node_mut(node);
                there.disk.forget(slot, is_relied_on);
                if let Some(process) = &mut there.process {
                    process.slots.remove(&slot);
                }
                self.flush(node);
            }
            Effect::Branch { slot, branch } => {
                say!(self, "{node} has slot {} in branch {}", slot.0, branch.0);
                self.node_mut(node).disk.note_branch(slot, branch);
                self.flush(node);
            }
            // No two copies of one branch ever contradict each other.
            Effect::NotTaken { slot, from, contradiction } => self.break_promise(format!(
                "{node} does not take what {from} says of slot {}: {contradiction}",
                slot.0
            )),
        }
    }

    fn send(&mut self, node: NodeId, to: NodeId, message: Message) {
        let Some(incarnation) = self.node(node).process.as_ref().and_then(|process| process.incarnation)
        else {
            return;
        };
        self.counts.bump("messages");
        match &message {
            Message::Slot { about: SlotMessage::Rejected { .. }, .. } => self.counts.bump("rejections"),
            Message::LeaseGrant { .. } => self.counts.bump("promises"),
            _ => {}
        }
        let arrivals = self.network.arrivals((node, to), self.now, &mut self.random, &mut self.counts);
        say!(
            self,
            "{node} says to {to}: {message:?}{}",
            if arrivals[0].is_none() { ", in vain" } else { "" }
        );
        let mut message = Some(message);
        let last = arrivals.iter().flatten().count();
        for (at, number) in arrivals.into_iter().flatten().zip(1..) {
            let said = if number == last { message.take() } else { message.clone() };
            if let Some(message) = said {
                let what = ToNode::Said { from: node, incarnation, message };
                self.queue.push(at, Event::ToNode { node: to, what });
            }
        }
    }

    pub(crate) fn ask_group(&mut self, node: NodeId, asking: GroupRequest) {
        let arrivals = self.network.arrivals((node, GROUP), self.now, &mut self.random, &mut self.counts);
        for at in arrivals.into_iter().flatten() {
            self.queue.push(at, Event::ToGroup { from: node, what: asking.clone() });
        }
    }

    fn log(&mut self, node: NodeId, slot: Slot, (after, entries): (Position, Vec<Entry>), run: LogRun) {
        let Some(process) = &mut self.node_mut(node).process else { return };
        let live = process.slots.entry(slot).or_default();
        let (applied, former) = (live.applied, live.logged);
        live.logged = entries.last().map_or(live.logged, |entry| entry.position);
        say!(self, "{node} logs {} behind {after} in slot {}", live_positions(&entries), slot.0);
        let is_cut = former.sequence > after.sequence;
        if is_cut {
            self.counts.bump("truncations");
        }
        if after.sequence < applied.sequence {
            self.break_promise(format!("{node} truncates behind {after}, but has applied {applied}"));
        }
        self.node_mut(node).disk.log(slot, (after, entries), run, is_cut);
        self.flush(node);
    }

    /// Sends records on their way to the disk; those that are added meanwhile go with the next batch.
    pub(crate) fn flush(&mut self, node: NodeId) {
        let now = self.now;
        let delay = self.random.u64(50..=self.settings.disk_us_max);
        let Self { nodes, queue, .. } = self;
        let there = &mut nodes[node.0 as usize - 1];
        let disk = &mut there.disk;
        if disk.is_busy || disk.written == disk.coming() {
            return;
        }
        disk.is_busy = true;
        let (life, through) = (there.life, disk.coming());
        let at = (now + delay).max(disk.stalls_until);
        queue.push(at, Event::ToNode { node, what: ToNode::Written { life, through } });
    }

    fn written(&mut self, node: NodeId, life: u64, through: u64) {
        let (syncs, only_syncs) =
            (self.settings.has(Durability::Always), self.settings.has_only(Durability::Always));
        let disk = &mut self.node_mut(node).disk;
        let from = disk.written;
        disk.written = disk.written.max(through);
        // Where all entries wait for it, nothing is written during a sync.
        disk.is_busy = only_syncs;
        let mut logged = disk.logged(from, through);
        logged.retain(|&slot, _| self.says_when_written(slot));
        if syncs {
            let delay = self.random.u64(50..=self.settings.disk_us_max);
            let at = (self.now + delay).max(self.node(node).disk.stalls_until);
            self.queue.push(at, Event::ToNode { node, what: ToNode::Synced { life, through } });
        }
        if !only_syncs {
            self.flush(node);
        }
        for (slot, (position, run)) in logged {
            self.give(node, Input::Logged { slot, position, run });
        }
    }

    /// Whether entries of a slot count as logged once they are written.
    fn says_when_written(&self, slot: Slot) -> bool {
        let durability = match self.flaw {
            Some(Flaw::SaidBeforeSynced) => Durability::EverySecond,
            Some(Flaw::SaidAtFirstClass) => self.settings.durability,
            _ => self.settings.durability_of(slot),
        };
        durability != Durability::Always
    }

    fn synced(&mut self, node: NodeId, through: u64) {
        let Self { nodes, settings, .. } = self;
        let disk = &mut nodes[node.0 as usize - 1].disk;
        let mut logged = disk.logged(disk.synced, through);
        logged.retain(|&slot, _| settings.durability_of(slot) == Durability::Always);
        disk.sync(through);
        self.counts.bump("syncs");
        if self.settings.has_only(Durability::Always) {
            self.node_mut(node).disk.is_busy = false;
            self.flush(node);
        }
        for (slot, (position, run)) in logged {
            self.give(node, Input::Logged { slot, position, run });
        }
    }

    fn sync_due(&mut self, node: NodeId, life: u64) {
        let disk = &self.node(node).disk;
        let (through, stalls_until) = (disk.written, disk.stalls_until);
        let at = (self.now + self.settings.disk_us_max).max(stalls_until);
        self.queue.push(at, Event::ToNode { node, what: ToNode::Synced { life, through } });
        self.after(SYNC_EVERY_US, Event::ToNode { node, what: ToNode::SyncDue { life } });
    }

    fn apply(&mut self, node: NodeId, slot: Slot, entry: &Entry, ticket: Option<Ticket>) {
        let has_given_up = self.has_given_up(node, slot);
        let Self { books, operations, moment, .. } = self;
        let next_moment = || {
            *moment += 1;
            *moment
        };
        let noted = match has_given_up {
            true => Ok(None),
            false => books[slot.0 as usize].apply(entry, operations, next_moment).map(Some),
        };
        let expected = match noted {
            Ok(expected) => expected,
            Err(what) => return self.break_promise(format!("{node}, slot {}: {what}", slot.0)),
        };
        let is_behind_cut = self.node(node).disk.is_cut(slot);
        if is_behind_cut && self.flaw != Some(Flaw::AppliedBeforeCut) {
            self.node_mut(node).disk.settle();
        }
        let now = self.node(node).moment(self.now);
        let rate_error_ppm = self.settings.options.rate_error_ppm;
        let Self { nodes, operations, flaw, .. } = self;
        let Some(process) = &mut nodes[node.0 as usize - 1].process else { return };
        let live = process.slots.entry(slot).or_default();
        if *flaw == Some(Flaw::StaleBehindLoss) {
            live.former = Some(live.state.clone());
        }
        let is_next = live.applied.sequence.next() == entry.position.sequence;
        let answer = match crate::operation::operation_of(&entry.body) {
            Some(number) => live.state.apply(number, &operations[number].work),
            None => Answer::Unknown,
        };
        (live.applied, live.time_ms) = (entry.position, entry.time_ms);
        live.logged = live.logged.max(entry.position);
        live.set_deadlines(now, rate_error_ppm);
        let digest = live.state.digest();
        say!(self, "{node} applies {} in slot {}", entry.position, slot.0);
        self.counts.bump("entries_applied");
        if !is_next || expected.is_some_and(|expected| expected != digest) {
            let what = if is_next { "other cells than elsewhere" } else { "out of order" };
            return self
                .break_promise(format!("{node} applies {} in slot {}: {what}", entry.position, slot.0));
        }
        if let Some(ticket) = ticket {
            self.answer_write(node, ticket, entry.position.sequence, answer);
        }
        self.tell_watchers(node, slot);
        if is_behind_cut {
            self.something_ends_behind_a_cut(node);
        }
        self.checkpoint(node, slot);
    }

    /// Occasionally writes the cells as they are, and trims entries that are in synced cells.
    fn checkpoint(&mut self, node: NodeId, slot: Slot) {
        let writes = if self.dying == Some(node) { 1 } else { self.random.u8(..8) };
        if writes > 1 || self.settings.durability_of(slot) == Durability::Memory {
            return;
        }
        let there = self.node_mut(node);
        let Some(live) = there.process.as_ref().and_then(|process| process.slots.get(&slot)) else { return };
        if writes == 0 {
            let through = there.disk.synced_base(slot);
            there.disk.append(Record::Trimmed { slot, through });
        } else {
            let cells = live.cells_of(slot);
            there.disk.write_cells(cells);
        }
        self.flush(node);
    }

    /// Sends the cells of a slot in pieces, each of which may be lost.
    fn transfer(&mut self, node: NodeId, slot: Slot, to: NodeId) {
        self.counts.bump("transfers");
        say!(self, "{node} sends the cells of slot {} to {to}", slot.0);
        let life = self.node(node).life;
        let there = self.node(node).process.as_ref();
        let Some(live) = there.and_then(|process| process.slots.get(&slot)) else { return };
        let cells = Box::new(live.cells_of(slot));
        let position = cells.position;
        self.give(node, Input::TransferBegan { slot, to, position });
        let mut whole_at = Some(self.now);
        for _ in 0..self.random.u8(1..=4) {
            let arrivals = self.network.arrivals((node, to), self.now, &mut self.random, &mut self.counts);
            whole_at = whole_at.zip(arrivals[0]).map(|(whole_at, at)| whole_at.max(at));
        }
        let delay = whole_at.map_or_else(|| self.random.u64(10_000..300_000), |at| (at - self.now) / 2);
        let what = ToNode::Sending { life, to, cells, arrives_at: whole_at };
        self.after(delay, Event::ToNode { node, what });
    }

    /// Sends the rest of the cells, unless they are lost or not needed any more. The node does not know
    /// when they arrive.
    fn send_rest(&mut self, node: NodeId, to: NodeId, cells: Box<Cells>, arrives_at: Option<u64>) {
        let slot = cells.slot;
        let Some(process) = self.node_mut(node).begun() else { return };
        if !process.replica.needs_cells(slot, to) {
            self.counts.bump("transfers_not_needed");
        } else if let Some(at) = arrives_at {
            let what = ToNode::Cells { from: node, cells };
            self.queue.push(at.max(self.now), Event::ToNode { node: to, what });
        } else {
            self.counts.bump("transfers_lost");
        }
        self.give(node, Input::TransferEnded { slot, to });
    }

    /// Received cells are written beside the old ones.
    fn stage(&mut self, node: NodeId, from: NodeId, cells: Box<Cells>) {
        let life = self.node(node).life;
        let delay = self.random.u64(100..=4 * self.settings.disk_us_max);
        let Some(process) = self.node_mut(node).begun() else { return };
        let configuration = process.replica.table().slot(cells.slot);
        if configuration.primary != Some(from) {
            return self.counts.bump("transfers_of_others");
        }
        let branch = configuration.branch;
        self.after(delay, Event::ToNode { node, what: ToNode::Staged { life, from, branch, cells } });
    }

    /// Replaces the cells here with received ones, if those are newer.
    fn install(&mut self, node: NodeId, from: NodeId, branch: Version, cells: Box<Cells>) {
        if self.has_long_slots && self.flaw != Some(Flaw::OldCellsInstalled) {
            return self.begin_import(node, from, branch, cells);
        }
        self.put_in_place(node, branch, cells);
    }

    /// Replaces all cells at once.
    pub(crate) fn put_in_place(&mut self, node: NodeId, branch: Version, cells: Box<Cells>) {
        let Cells { slot, position, time_ms, .. } = *cells;
        let now = self.node(node).moment(self.now);
        let asks = self.flaw != Some(Flaw::OldCellsInstalled);
        let is_said_early = self.flaw == Some(Flaw::CellsSaidBeforeSynced);
        let rate_error_ppm = self.settings.options.rate_error_ppm;
        let there = self.node_mut(node);
        let Some(process) = there.begun() else { return };
        if process.replica.table().slot(slot).branch != branch {
            return self.counts.bump("transfers_given_up");
        }
        if asks && !process.replica.would_install(slot, position) {
            return self.counts.bump("transfers_too_old");
        }
        let live = process.slots.entry(slot).or_default();
        (live.state, live.applied, live.time_ms) = (cells.state.clone(), position, time_ms);
        live.logged = position;
        live.set_deadlines(now, rate_error_ppm);
        let run = process.replica.log_run(slot);
        there.disk.append(Record::Installed(cells, run));
        self.counts.bump("transfers_installed");
        say!(self, "{node} puts cells up to {position} of slot {} in place", slot.0);
        self.flush(node);
        self.give(node, Input::Installed { slot, position, time_ms });
        // Where there is a log, the cells are reported once they are as durable as entries are.
        if is_said_early {
            self.give(node, Input::Logged { slot, position, run });
        }
    }

    fn tick(&mut self, node: NodeId, life: u64) {
        let every = self.node(node).clock.true_us(self.settings.options.tick_us);
        self.after(every, Event::ToNode { node, what: ToNode::Tick { life } });
        self.give(node, Input::Tick);
        self.expire_all(node);
    }

    fn beat(&mut self, node: NodeId, life: u64) {
        let every = self.node(node).clock.true_us(self.settings.options.lease_us / 8);
        self.after(every, Event::ToNode { node, what: ToNode::Beat { life } });
        let asked_at = self.node(node).moment(self.now);
        let Some(process) = self.node_mut(node).begun() else { return };
        let Some(incarnation) = process.incarnation else { return };
        let known = process.replica.table().version;
        self.ask_group(node, GroupRequest::Beat { life, incarnation, asked_at, known });
    }

    /// The group heard this node: the node may rely on that only once it has the table that the group had.
    fn group_heard(&mut self, node: NodeId, asked_at: Moment, version: Version) {
        let Some(process) = self.node_mut(node).begun() else { return };
        if process.told >= version {
            return self.give(node, Input::GroupHeard { asked_at });
        }
        process.heard_behind = process.heard_behind.max(Some((version, asked_at)));
    }

    fn hear_behind(&mut self, node: NodeId, version: Version) {
        let Some(process) = self.node_mut(node).begun() else { return };
        process.told = process.told.max(version);
        if let Some((version, asked_at)) = process.heard_behind.take() {
            self.group_heard(node, asked_at, version);
        }
    }

    /// Notes which slots the node leads, and whether a table waits.
    fn watch_leaders(&mut self, node: NodeId) {
        for slot in self.slot_ids() {
            let Some(process) = &mut self.node_mut(node).process else { return };
            let leads = process.replica.leads(slot);
            let has_tail = process.replica.last(slot).sequence > process.replica.committed(slot);
            if !leads && !process.slots.contains_key(&slot) {
                continue;
            }
            let live = process.slots.entry(slot).or_default();
            if live.leads == leads {
                continue;
            }
            live.leads = leads;
            let watchers = std::mem::take(&mut live.watchers);
            say!(self, "{node} {} slot {}", if leads { "leads" } else { "does not lead any more" }, slot.0);
            if leads {
                self.counts.bump("leaders");
                self.begins_to_lead(node, slot);
                if has_tail {
                    self.counts.bump("tails_committed_again");
                }
            }
            self.dismiss_watchers(node, watchers);
        }
    }

    /// Counts a table that could not take effect at once.
    pub(crate) fn watch_table(&mut self, node: NodeId, version: Version) {
        let now = self.node(node).moment(self.now);
        let promise_us = 2 * self.settings.options.lease_us;
        let Some(process) = self.node_mut(node).begun() else { return };
        if process.replica.table().version < version {
            let is_quiet = process.incarnation.is_some_and(|incarnation| incarnation.0 > 1)
                && now < process.began_at.after(promise_us)
                && process.replica.table().version == Version(0);
            self.counts.bump(if is_quiet { "quiet_starts" } else { "tables_that_waited_for_a_promise" });
        }
    }
}

/// How often written records are synced where no entry waits for it.
const SYNC_EVERY_US: u64 = 400_000;

fn live_positions(entries: &[Entry]) -> String {
    entries.iter().map(|entry| entry.position.to_string()).collect::<Vec<_>>().join(" ")
}

impl LiveSlot {
    fn cells_of(&self, slot: Slot) -> Cells {
        Cells { slot, position: self.applied, time_ms: self.time_ms, state: self.state.clone() }
    }
}

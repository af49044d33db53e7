//! The replicas of a node: takes an input and the time, and returns effects.
//!
//! Invariant: a table is accepted as a whole, and only when no promise stands against it; never an older one,
//! nor one from before the life of this node began.
//! Invariant: what a node says counts only in the life that the table names.

mod clients;
mod kept_entries;
mod led;
mod slots;
mod tables;
mod transfers;

use crate::copy::{Replicated, StepContext};
use crate::held_requests::{HeldRequests, Request, Write};
use crate::lease::{Leases, Question};
use crate::planted::{self, Bug};
use crate::primary::NodeView;
use crate::{
    Configuration, Effect, Entry, Epoch, Incarnation, Input, LogRun, Message, Moment, NodeId, Options,
    Position, Reads, Sequence, Slot, SlotMessage, Table, Version,
};
pub use clients::UnderWay;
use led::Led;
use slots::Slots;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A slot's log as a starting node found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The slot.
    pub slot: Slot,
    /// The last entry that is applied to the cells that were found.
    pub base: Position,
    /// The timestamp of that entry.
    pub base_time_ms: u64,
    /// The last branch of an [`Effect::Branch`] for the slot that was recorded, or an earlier one: a copy of
    /// another branch than the table says is dropped unless it is in sync. 0 where none was.
    pub branch: Version,
    /// The entries after it, without gaps.
    pub entries: Vec<Entry>,
}

impl Found {
    fn nothing(slot: Slot) -> Self {
        let (base, branch) = (Position::default(), Version::default());
        Self { slot, base, base_time_ms: 0, branch, entries: Vec::new() }
    }
}

/// All copies of a node.
#[derive(Debug)]
pub struct Replica {
    me: NodeId,
    incarnation: Incarnation,
    options: Options,
    table: Arc<Table>,
    /// The newest table, while a promise stands against it.
    pending: Option<Arc<Table>>,
    /// Whether a table has named this life of this node.
    is_named: bool,
    slots: Slots,
    /// How many copies this node has had in this life.
    copies_made: u64,
    /// Bytes of applied entries that all copies keep together.
    kept_bytes: usize,
    /// The slots that this node leads.
    led: Led,
    /// Client requests for slots that this node is about to lead.
    early: BTreeMap<Slot, HeldRequests>,
    /// Slots whose primary called in an epoch that this node did not know, or of which it had no copy.
    called: BTreeMap<Slot, Epoch>,
    /// Slots that a tick has to visit.
    busy: BTreeSet<Slot>,
    leases: Leases,
    /// Until then, promises of the former life may still hold.
    quiet_until: Moment,
    group_heard: Option<Moment>,
    fetched_at: Option<Moment>,
}

impl Replica {
    /// A node that knows nothing and has not begun a life.
    #[must_use]
    pub fn new(me: NodeId, options: Options) -> Self {
        Self {
            me,
            incarnation: Incarnation::default(),
            options,
            table: Arc::new(Table::default()),
            pending: None,
            is_named: false,
            slots: Slots::default(),
            copies_made: 0,
            kept_bytes: 0,
            led: Led::default(),
            early: BTreeMap::new(),
            called: BTreeMap::new(),
            busy: BTreeSet::new(),
            leases: Leases::default(),
            quiet_until: Moment::default(),
            group_heard: None,
            fetched_at: None,
        }
    }

    /// Begins a life with what the disk has. A node that lived before accepts no table until everything that
    /// it may have promised has expired.
    pub fn begin(&mut self, now: Moment, incarnation: Incarnation, found: Vec<Found>) {
        self.incarnation = incarnation;
        self.is_named = self.known().incarnation(self.me) >= Some(incarnation);
        if incarnation > Incarnation(1) && !planted::is(Bug::QuietSkipped) {
            self.quiet_until = now.after(self.options.promise_us());
        }
        found.into_iter().for_each(|found| self.add(found));
    }

    fn add(&mut self, found: Found) {
        self.copies_made += 1;
        self.slots.insert(Replicated::new(self.copies_made, found));
    }

    /// Takes one input. `now` must be read after the input arrived.
    pub fn step(&mut self, now: Moment, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Table(table) => self.hear_of(table, now, effects),
            Input::Message { from, incarnation, message } => {
                if self.is_known_life(from, incarnation) {
                    self.hear(from, message, now, effects);
                } else {
                    self.fetch(now, effects);
                }
            }
            Input::Write { slot, ticket, time_ms, body, keys } => {
                let write = Write { ticket, time_ms, body, keys };
                self.client_asks(slot, Request::Write(write), now, effects);
            }
            Input::Read { slot, ticket, keys } => {
                self.client_asks(slot, Request::Read { ticket, keys }, now, effects);
            }
            Input::Logged { slot, position, run } => {
                self.with(slot, now, effects, |copy, context| copy.logged(position, run, context));
                self.look_at(slot, now, effects);
            }
            Input::Installed { slot, position, time_ms } => {
                self.with(slot, now, effects, |copy, context| {
                    if copy.would_install(position) {
                        copy.installed(position, time_ms, context);
                    }
                });
            }
            Input::Emptied { slot } => self.with(slot, now, effects, Replicated::emptied),
            Input::TransferBegan { slot, to, position } => {
                self.with(slot, now, effects, |copy, _| copy.transfer_began(to, position.sequence));
            }
            Input::TransferEnded { slot, to } => {
                self.with(slot, now, effects, |copy, context| copy.transfer_ended(to, context));
            }
            Input::GroupHeard { asked_at } => self.group_heard = self.group_heard.max(Some(asked_at)),
            Input::Tick => self.tick(now, effects),
        }
    }

    /// The last entry of a slot's log on this node.
    #[must_use]
    pub fn last(&self, slot: Slot) -> Position {
        self.slots.get(slot).map(|copy| copy.log.last()).unwrap_or_default()
    }

    /// The run to return with [`Input::Logged`] for a write to the slot's log that begins now.
    #[must_use]
    pub fn log_run(&self, slot: Slot) -> LogRun {
        self.slots.get(slot).map(|copy| copy.run).unwrap_or_default()
    }

    /// Up to which entry a slot is committed, as far as this node knows.
    #[must_use]
    pub fn committed(&self, slot: Slot) -> Sequence {
        self.slots.get(slot).map(|copy| copy.committed).unwrap_or_default()
    }

    /// The table that this node goes by.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// How many entries each other node lacks in the slots that this one leads, as far as it knows.
    #[must_use]
    pub fn behind(&self) -> BTreeMap<NodeId, u64> {
        let mut behind = BTreeMap::new();
        let led = self.led.slots().filter_map(|slot| self.slots.get(slot));
        for (node, entries) in led.flat_map(Replicated::behind) {
            *behind.entry(node).or_default() += entries;
        }
        behind
    }

    /// Whether this node leads a slot, as far as it knows.
    #[must_use]
    pub fn leads(&self, slot: Slot) -> bool {
        self.slots.get(slot).is_some_and(|copy| copy.primary.is_some())
    }

    /// Whether the cells of a slot hold everything that was acknowledged, and no other node leads it. A
    /// listing of keys asks this where a read would wait for it. With `Reads::Confirmed`, only a read that
    /// asked the other copies can tell.
    #[must_use]
    pub fn may_read(&self, slot: Slot, now: Moment) -> bool {
        self.may_read_since(slot, self.coming_round(), now)
    }

    /// The same for a listing that came before this round of questions to the other copies: it may read a
    /// slot where they have answered that round or a later one.
    #[must_use]
    pub fn may_read_since(&self, slot: Slot, round: u64, now: Moment) -> bool {
        let Some(copy) = self.slots.get(slot) else { return false };
        let view = self.view(slot, now);
        let (me, options, effects) = (self.me, &self.options, &mut Vec::new());
        let goes_alone = self.goes_alone(slot, now);
        let context = StepContext {
            me,
            now,
            options,
            in_sync_min: 0,
            logs: true,
            kept_bytes_max: 0,
            goes_alone,
            effects,
        };
        copy.may_read(round, &view, &context)
    }

    /// The number of the next round of questions to the other copies.
    #[must_use]
    pub fn coming_round(&self) -> u64 {
        self.leases.coming_round()
    }

    /// Whether each read waits for a round of questions that was sent after it came.
    #[must_use]
    pub fn confirms_reads(&self) -> bool {
        self.options.reads == Reads::Confirmed
    }

    /// How long a read waits for other copies before it is refused, in microseconds.
    #[must_use]
    pub fn read_wait_us(&self) -> u64 {
        self.options.read_wait_us
    }

    /// Whether the newest table names this node as the primary of a slot.
    #[must_use]
    pub fn is_to_lead(&self, slot: Slot) -> bool {
        self.known().slot(slot).primary == Some(self.me)
    }

    /// Whether the table names another life of this node: what it says counts for nothing any more, and it
    /// has to start again.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.known().incarnation(self.me).is_some_and(|incarnation| incarnation > self.incarnation)
    }

    fn known(&self) -> &Table {
        self.pending.as_ref().unwrap_or(&self.table)
    }

    fn is_known_life(&self, from: NodeId, incarnation: Incarnation) -> bool {
        planted::is(Bug::FormerLifeHeard) || self.known().incarnation(from) == Some(incarnation)
    }

    fn fetch(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.fetched_at.is_none_or(|at| now >= at.after(self.options.tick_us)) {
            self.fetched_at = Some(now);
            effects.push(Effect::FetchTable);
        }
    }

    /// How many copies of a slot must be in sync for a write to be accepted, and whether its entries are
    /// logged.
    fn rules_of(&self, slot: Slot) -> (usize, bool) {
        let (_, in_sync_min) = self.table.copies_of(slot, (usize::MAX, self.options.in_sync_min));
        (in_sync_min, self.table.logs(slot, self.options.logs))
    }

    /// Lets a copy act, and records whether a tick has to visit it.
    fn with(
        &mut self,
        slot: Slot,
        now: Moment,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Replicated, &mut StepContext<'_>),
    ) {
        let ((in_sync_min, logs), goes_alone) = (self.rules_of(slot), self.goes_alone(slot, now));
        let (me, options, kept_bytes_max) = (self.me, &self.options, self.kept_bytes_max());
        let Some(copy) = self.slots.get_mut(slot) else { return };
        let before = copy.log.kept_bytes();
        let context =
            &mut StepContext { me, now, options, in_sync_min, logs, kept_bytes_max, goes_alone, effects };
        act(copy, context);
        self.kept_bytes = kept_entries::changed(self.kept_bytes, before, copy);
        note(&mut self.busy, copy);
    }

    /// The same, for steps that need to know more than the copy.
    fn with_view(
        &mut self,
        slot: Slot,
        now: Moment,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Replicated, &NodeView<'_>, &mut StepContext<'_>),
    ) {
        let ((in_sync_min, logs), group_hears) = (self.rules_of(slot), self.group_hears(now));
        let goes_alone = self.goes_alone(slot, now);
        let (me, options, kept_bytes_max) = (self.me, &self.options, self.kept_bytes_max());
        let Some(copy) = self.slots.get_mut(slot) else { return };
        let tables = (&*self.table, self.pending.as_deref());
        let view = NodeView::of(tables, &self.leases, (me, slot), group_hears);
        let before = copy.log.kept_bytes();
        let context =
            &mut StepContext { me, now, options, in_sync_min, logs, kept_bytes_max, goes_alone, effects };
        act(copy, &view, context);
        self.kept_bytes = kept_entries::changed(self.kept_bytes, before, copy);
        note(&mut self.busy, copy);
    }

    fn view(&self, slot: Slot, now: Moment) -> NodeView<'_> {
        let tables = (&*self.table, self.pending.as_deref());
        NodeView::of(tables, &self.leases, (self.me, slot), self.group_hears(now))
    }

    /// Whether the configuration group hears this node, as far as a primary needs that. Where no other copy
    /// is in sync there is nobody else to confirm anything, so this relies on the clock with
    /// `Reads::Confirmed` as well.
    fn group_hears(&self, now: Moment) -> bool {
        self.group_heard.is_some_and(|at| now < at.after(self.options.lease_us))
    }

    /// Whether this node may serve a slot of which no other copy is in sync. A newer table may name it behind
    /// an accepted loss, with another primary in between: what it served before it goes by that table would
    /// belong to neither side of the loss.
    fn goes_alone(&self, slot: Slot, now: Moment) -> bool {
        let keeps = |table: &Table| {
            let (next, branch) = (table.slot(slot), self.table.slot(slot).branch);
            next.primary == Some(self.me) && next.branch == branch
        };
        self.group_hears(now) && self.pending.as_deref().is_none_or(keeps)
    }

    fn look_at(&mut self, slot: Slot, now: Moment, effects: &mut Vec<Effect>) {
        if self.slots.get(slot).is_some_and(Replicated::has_to_look) {
            self.with_view(slot, now, effects, Replicated::look);
        }
    }

    /// The same for all slots where something waits: they are among those that a tick visits.
    fn look_at_busy(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let waits = |slot: &Slot| self.slots.get(*slot).is_some_and(Replicated::has_to_look);
        let waiting: Vec<Slot> = self.busy.iter().copied().filter(waits).collect();
        waiting.into_iter().for_each(|slot| self.look_at(slot, now, effects));
    }

    fn hear(&mut self, from: NodeId, message: Message, now: Moment, effects: &mut Vec<Effect>) {
        match message {
            Message::Slot { slot, epoch, about } => self.hear_of_slot(from, slot, epoch, about, now, effects),
            Message::LeaseAsk { asked_in, round, asked_at, known } => {
                self.leases.heard_known(from, known);
                self.try_accept(now, effects);
                self.promise(from, Question { asked_in, round, asked_at }, known, now, effects);
            }
            Message::LeaseGrant { asked_in, round, asked_at, version } => {
                if asked_in != self.incarnation {
                    return;
                }
                self.leases.hold(from, round, asked_at, version, now);
                if version > self.known().version {
                    self.fetch(now, effects);
                }
                self.look_at_busy(now, effects);
                self.ask_again(now, effects);
            }
            Message::TableIs { version } => {
                if version > self.known().version {
                    self.fetch(now, effects);
                }
            }
        }
    }

    fn hear_of_slot(
        &mut self,
        from: NodeId,
        slot: Slot,
        epoch: Epoch,
        about: SlotMessage,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        let Configuration { epoch: mine, primary, .. } = self.table.slot(slot);
        if (epoch > mine || !self.slots.has(slot)) && (slot.0 as usize) < self.table.slots.len() {
            let called = self.called.entry(slot).or_default();
            *called = epoch.max(*called);
        }
        if epoch > mine {
            return if epoch > self.known().slot(slot).epoch {
                self.fetch(now, effects)
            };
        }
        if epoch < mine && !planted::is(Bug::OldPrimaryHeard) {
            let version = self.known().version;
            return effects.push(Effect::Send { to: from, message: Message::TableIs { version } });
        }
        self.with(slot, now, effects, |copy, context| match about {
            SlotMessage::Append { previous, entries, committed } => {
                if (primary == Some(from) || planted::is(Bug::OldPrimaryHeard)) && primary != Some(context.me)
                {
                    copy.append(from, previous, entries, committed, context);
                }
            }
            SlotMessage::Appended { matched } => copy.appended(from, matched, context),
            SlotMessage::Rejected { hint } => copy.rejected(from, hint, context),
        });
        self.look_at(slot, now, effects);
    }

    fn tick(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.try_accept(now, effects);
        self.look_at_early(now, effects);
        let busy: Vec<_> = self.busy.iter().copied().collect();
        for slot in busy {
            self.with_view(slot, now, effects, Replicated::tick);
        }
        if self.leases.is_due(now, &self.options) {
            self.ask(now, effects);
        }
    }

    /// Asks every node that shares slots which this one leads for a promise, and tells it which table this
    /// node knows.
    fn ask(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let round = self.leases.next_round(now);
        let (asked_in, known) = (self.incarnation, self.known().version);
        for to in self.leases.audience(now) {
            let message = Message::LeaseAsk { asked_in, round, asked_at: now, known };
            effects.push(Effect::Send { to, message });
        }
    }

    /// Confirmed reads wait for a round that was sent after they came; one round at a time is under way.
    /// Without partners there is none to wait for, and former partners would answer each question with the
    /// next one.
    fn ask_again(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let waits = || self.busy.iter().any(|&slot| self.slots.get(slot).is_some_and(Replicated::has_reads));
        let is_asked = !self.leases.partners.is_empty();
        if self.options.reads == Reads::Confirmed && is_asked && self.leases.is_answered() && waits() {
            self.ask(now, effects);
        }
    }
}

/// Records whether a tick has to visit a copy.
fn note(busy: &mut BTreeSet<Slot>, copy: &mut Replicated) {
    let is_busy = !copy.is_idle();
    if std::mem::replace(&mut copy.is_busy, is_busy) == is_busy {
        return;
    }
    if is_busy {
        busy.insert(copy.slot);
    } else {
        busy.remove(&copy.slot);
    }
}

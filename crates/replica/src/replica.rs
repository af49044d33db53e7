//! All that a node does for its slots: an input and the time in, effects out.
//!
//! Invariant: a table is accepted as a whole, and only when no promise stands against it; older ones never.
//! Invariant: what a node says counts only in the life that the table names.

use crate::copy::{Around, Replicated};
use crate::lease::Leases;
use crate::planted::{self, Bug};
use crate::primary::{Knowing, Write};
use crate::{
    Configuration, Effect, Entry, Epoch, Incarnation, Input, Message, Moment, NodeId, Options, Position,
    Reads, Refusal, Sequence, Slot, SlotMessage, Table, Ticket, Version,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A slot's log as it was found when a node began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The slot.
    pub slot: Slot,
    /// The last entry that is applied to the cells found.
    pub base: Position,
    /// The date of that entry.
    pub base_time_ms: u64,
    /// The entries behind it, without gaps.
    pub entries: Vec<Entry>,
}

/// The copies of a node.
#[derive(Debug)]
pub struct Replica {
    me: NodeId,
    incarnation: Incarnation,
    options: Options,
    table: Arc<Table>,
    /// The newest table, while a promise stands against it.
    pending: Option<Arc<Table>>,
    slots: BTreeMap<Slot, Replicated>,
    /// Slots for which something is to be done when time passes.
    busy: BTreeSet<Slot>,
    leases: Leases,
    /// What was promised in the life before may hold until then.
    quiet_until: Moment,
    group_heard: Option<Moment>,
    fetched_at: Option<Moment>,
}

impl Replica {
    /// A node that knows nothing and has not begun.
    #[must_use]
    pub fn new(me: NodeId, options: Options) -> Self {
        Self {
            me,
            incarnation: Incarnation::default(),
            options,
            table: Arc::new(Table::default()),
            pending: None,
            slots: BTreeMap::new(),
            busy: BTreeSet::new(),
            leases: Leases::default(),
            quiet_until: Moment::default(),
            group_heard: None,
            fetched_at: None,
        }
    }

    /// Begins a life, with what the disk has. Who lived before waits until all that it may have promised has run out.
    pub fn begin(&mut self, now: Moment, incarnation: Incarnation, found: Vec<Found>) {
        self.incarnation = incarnation;
        if incarnation > Incarnation(1) && !planted::is(Bug::QuietSkipped) {
            self.quiet_until = now.after(self.options.promise_us());
        }
        for Found { slot, base, base_time_ms, entries } in found {
            self.slots.insert(slot, Replicated::new(slot, base, base_time_ms, entries));
        }
    }

    /// Takes one input, at a moment read after it came.
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
                self.client_writes(slot, Write { ticket, time_ms, body, keys }, now, effects);
            }
            Input::Read { slot, ticket, keys } => self.client_reads(slot, ticket, &keys, now, effects),
            Input::Logged { slot, position } => {
                self.with(slot, now, effects, |copy, around| copy.logged(position, around));
                self.look_at_reads(slot, now, effects);
            }
            Input::Installed { slot, position, time_ms } => {
                self.with(slot, now, effects, |copy, around| {
                    if copy.would_install(position) {
                        copy.installed(position, time_ms, around);
                    }
                });
            }
            Input::TransferEnded { slot, to } => {
                self.with(slot, now, effects, |copy, _| copy.transfer_ended(to));
            }
            Input::GroupHeard { asked_at } => self.group_heard = self.group_heard.max(Some(asked_at)),
            Input::Tick => self.tick(now, effects),
        }
    }

    /// The last entry of a slot's log here.
    #[must_use]
    pub fn last(&self, slot: Slot) -> Position {
        self.slots.get(&slot).map(|copy| copy.log.last()).unwrap_or_default()
    }

    /// Up to which entry a slot is committed, as far as this node knows.
    #[must_use]
    pub fn committed(&self, slot: Slot) -> Sequence {
        self.slots.get(&slot).map(|copy| copy.committed).unwrap_or_default()
    }

    /// Whether cells up to this entry, which came from another node, are newer than what is here: only then may they be
    /// put in place, and [`Input::Installed`] be given.
    #[must_use]
    pub fn would_install(&self, slot: Slot, position: Position) -> bool {
        self.slots.get(&slot).is_some_and(|copy| copy.would_install(position))
    }

    /// The table that this node goes by.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether this node leads a slot, as far as it knows.
    #[must_use]
    pub fn leads(&self, slot: Slot) -> bool {
        self.slots.get(&slot).is_some_and(|copy| copy.primary.is_some())
    }

    /// Whether the table names another life of this node: what it says counts for nothing any more, and it has to begin again.
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

    /// Does something with a copy, and notes whether it has to be looked at when time passes.
    fn with(
        &mut self,
        slot: Slot,
        now: Moment,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Replicated, &mut Around<'_>),
    ) {
        let Some(copy) = self.slots.get_mut(&slot) else { return };
        act(copy, &mut Around { me: self.me, now, options: &self.options, effects });
        self.note(slot);
    }

    /// The same, for what needs to know more than the copy.
    fn with_knowing(
        &mut self,
        slot: Slot,
        now: Moment,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Replicated, &Knowing<'_>, &mut Around<'_>),
    ) {
        let Some(mut copy) = self.slots.remove(&slot) else { return };
        let group_hears = match self.options.reads {
            Reads::Confirmed => true,
            Reads::Leases => self.group_heard.is_some_and(|at| now < at.after(self.options.lease_us)),
        };
        let known = self.known();
        let knowing = Knowing {
            table: &self.table,
            leases: &self.leases,
            known: known.version,
            keeps: self.pending.is_none() || known.slot(slot).primary == Some(self.me),
            group_hears,
        };
        act(&mut copy, &knowing, &mut Around { me: self.me, now, options: &self.options, effects });
        self.slots.insert(slot, copy);
        self.note(slot);
    }

    fn note(&mut self, slot: Slot) {
        if self.slots.get(&slot).is_none_or(Replicated::is_idle) {
            self.busy.remove(&slot);
        } else {
            self.busy.insert(slot);
        }
    }

    fn look_at_reads(&mut self, slot: Slot, now: Moment, effects: &mut Vec<Effect>) {
        if self.slots.get(&slot).is_some_and(Replicated::has_reads) {
            self.with_knowing(slot, now, effects, Replicated::answer_reads);
        }
    }

    fn hear(&mut self, from: NodeId, message: Message, now: Moment, effects: &mut Vec<Effect>) {
        match message {
            Message::Slot { slot, epoch, about } => self.hear_of_slot(from, slot, epoch, about, now, effects),
            Message::LeaseAsk { asked_in, round, asked_at, known } => {
                self.leases.heard_known(from, known);
                self.try_accept(now, effects);
                self.promise(from, Promise { asked_in, round, asked_at, known }, now, effects);
            }
            Message::LeaseGrant { asked_in, round, asked_at, version } => {
                if asked_in != self.incarnation {
                    return;
                }
                self.leases.hold(from, round, asked_at, version, now);
                if version > self.known().version {
                    self.fetch(now, effects);
                }
                let waiting: Vec<_> = self.busy.iter().copied().collect();
                waiting.into_iter().for_each(|slot| self.look_at_reads(slot, now, effects));
                self.ask_again(now, effects);
            }
            Message::TableIs { version } => {
                if version > self.known().version {
                    self.fetch(now, effects);
                }
            }
        }
    }

    /// Promises, unless a table waits that takes something from whoever asks.
    fn promise(&mut self, to: NodeId, promise: Promise, now: Moment, effects: &mut Vec<Effect>) {
        let Promise { asked_in, round, asked_at, known } = promise;
        let mine = self.known().version;
        if known > mine {
            self.fetch(now, effects);
        } else if known < mine {
            effects.push(Effect::Send { to, message: Message::TableIs { version: mine } });
        }
        let waits = self.pending.as_ref().is_some_and(|pending| self.takes_from(to, pending));
        if waits && !planted::is(Bug::PromiseBroken) {
            return;
        }
        if self.options.reads == Reads::Leases {
            self.leases.give(to, now, &self.options);
        }
        let version = self.table.version;
        let message = Message::LeaseGrant { asked_in, round, asked_at, version };
        effects.push(Effect::Send { to, message });
    }

    /// Whether a table takes a slot of which this node has a copy from that node.
    fn takes_from(&self, node: NodeId, table: &Table) -> bool {
        self.slots.iter().any(|(&slot, copy)| {
            copy.configuration.primary == Some(node) && table.slot(slot).primary != Some(node)
        })
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
        let mine = self.table.slot(slot).epoch;
        if epoch > mine {
            return if epoch > self.known().slot(slot).epoch {
                self.fetch(now, effects)
            };
        }
        if epoch < mine && !planted::is(Bug::OldPrimaryHeard) {
            let version = self.known().version;
            return effects.push(Effect::Send { to: from, message: Message::TableIs { version } });
        }
        let primary = self.table.slot(slot).primary;
        self.with(slot, now, effects, |copy, around| match about {
            SlotMessage::Append { previous, entries, committed } => {
                if (primary == Some(from) || planted::is(Bug::OldPrimaryHeard)) && primary != Some(around.me)
                {
                    copy.append(from, previous, entries, committed, around);
                }
            }
            SlotMessage::Appended { matched } => copy.appended(from, matched, around),
            SlotMessage::Rejected { hint } => copy.rejected(from, hint, around),
        });
        self.look_at_reads(slot, now, effects);
    }

    fn client_writes(&mut self, slot: Slot, write: Write, now: Moment, effects: &mut Vec<Effect>) {
        match self.refusal(slot) {
            Some(refusal) => effects.push(Effect::Refuse { ticket: write.ticket, refusal }),
            None => self.with(slot, now, effects, |copy, around| copy.client_writes(write, around)),
        }
        self.look_at_reads(slot, now, effects);
    }

    fn client_reads(
        &mut self,
        slot: Slot,
        ticket: Ticket,
        keys: &[u64],
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(refusal) = self.refusal(slot) {
            return effects.push(Effect::Refuse { ticket, refusal });
        }
        self.with_knowing(slot, now, effects, |copy, knowing, around| {
            copy.client_reads(ticket, keys, knowing, around);
        });
        if self.slots.get(&slot).is_some_and(Replicated::has_reads) {
            self.ask_again(now, effects);
        }
    }

    /// Why this node cannot take a request for a slot, if it cannot.
    fn refusal(&self, slot: Slot) -> Option<Refusal> {
        match self.known().slot(slot).primary {
            Some(primary) if primary == self.me && self.leads(slot) => None,
            // This node leads as soon as promises let it.
            Some(primary) if primary == self.me => Some(Refusal::NoLease),
            Some(to) => Some(Refusal::Moved { to }),
            None => Some(Refusal::NoPrimary),
        }
    }

    fn tick(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.try_accept(now, effects);
        let busy: Vec<_> = self.busy.iter().copied().collect();
        for slot in busy {
            self.with_knowing(slot, now, effects, Replicated::tick);
        }
        if self.leases.is_due(now, &self.options) {
            self.ask(now, effects);
        }
    }

    /// Asks every node that it shares slots with, as primary, for a promise; and tells them which table it knows.
    fn ask(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let round = self.leases.next_round(now);
        let (asked_in, known) = (self.incarnation, self.known().version);
        for &to in &self.leases.partners {
            let message = Message::LeaseAsk { asked_in, round, asked_at: now, known };
            effects.push(Effect::Send { to, message });
        }
    }

    /// Reads that are confirmed wait for a round that was sent behind them: one at a time is under way.
    fn ask_again(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let waits = || self.busy.iter().any(|slot| self.slots.get(slot).is_some_and(Replicated::has_reads));
        if self.options.reads == Reads::Confirmed && self.leases.is_answered() && waits() {
            self.ask(now, effects);
        }
    }

    /// A table came.
    fn hear_of(&mut self, table: Arc<Table>, now: Moment, effects: &mut Vec<Effect>) {
        if table.version <= self.known().version {
            return;
        }
        let loses = |slot: &Slot| table.slot(*slot).primary != Some(self.me);
        let renounces = self.slots.iter().any(|(slot, copy)| copy.primary.is_some() && loses(slot));
        self.pending = Some(table);
        if renounces {
            // Who promised may go on at once: nothing that it takes from this node is served any more.
            self.ask(now, effects);
        }
        self.try_accept(now, effects);
    }

    /// Goes by the newest table, once no promise stands against it.
    fn try_accept(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let Some(pending) = &self.pending else { return };
        let is_bound = |copy: &Replicated| {
            let primary = copy.configuration.primary;
            primary.filter(|&primary| primary != self.me).is_some_and(|primary| {
                pending.slot(copy.slot).primary != Some(primary)
                    && self.leases.binds(primary, pending.version, now)
            })
        };
        if now < self.quiet_until || self.slots.values().any(is_bound) {
            return;
        }
        let Some(table) = self.pending.take() else { return };
        self.accept(table, now, effects);
    }

    fn accept(&mut self, table: Arc<Table>, now: Moment, effects: &mut Vec<Effect>) {
        let before = std::mem::replace(&mut self.table, table);
        let table = Arc::clone(&self.table);
        for (slot, configuration) in table.slots.changed(&before.slots) {
            self.reconfigure(slot, configuration, now, effects);
        }
        let led: Vec<Slot> =
            self.slots.values().filter(|copy| copy.primary.is_some()).map(|copy| copy.slot).collect();
        for &slot in &led {
            self.with(slot, now, effects, |copy, around| copy.notice_lives(&table, around));
        }
        let copies = |slot: &Slot| {
            let configuration = table.slot(*slot);
            configuration.in_sync.iter().chain(configuration.joining.iter()).collect::<Vec<_>>()
        };
        let former = std::mem::take(&mut self.leases.partners);
        self.leases.partners = led.iter().flat_map(copies).filter(|&node| node != self.me).collect();
        if !former.is_subset(&self.leases.partners) || !self.leases.partners.is_empty() {
            self.ask(now, effects);
        }
        led.into_iter().for_each(|slot| self.look_at_reads(slot, now, effects));
    }

    fn reconfigure(
        &mut self,
        slot: Slot,
        configuration: Configuration,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        if configuration.has(self.me) {
            let fresh = || Replicated::new(slot, Position::default(), 0, Vec::new());
            self.slots.entry(slot).or_insert_with(fresh);
            self.with(slot, now, effects, |copy, around| copy.reconfigure(configuration, around));
            return;
        }
        if let Some(mut copy) = self.slots.remove(&slot) {
            copy.reconfigure(
                configuration,
                &mut Around { me: self.me, now, options: &self.options, effects },
            );
            effects.push(Effect::Forget { slot });
        }
        self.busy.remove(&slot);
    }
}

/// What somebody asked to be promised.
struct Promise {
    asked_in: Incarnation,
    round: u64,
    asked_at: Moment,
    known: Version,
}

//! New tables: when this node accepts them, the promises that delay that, and what changes with them.
//!
//! Invariant: a table is accepted only when no promise of this node stands against it.
//! Invariant: no table counts from before the group registered this life of this node.

use super::{Found, Replica};
use crate::copy::{Replicated, StepContext};
use crate::lease::Question;
use crate::planted::{self, Bug};
use crate::{Configuration, Effect, Message, Moment, NodeId, Reads, Slot, Table, Version};
use std::sync::Arc;

impl Replica {
    /// Gives a promise, unless a pending table takes something from the node that asks.
    pub(super) fn promise(
        &mut self,
        to: NodeId,
        question: Question,
        known: Version,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
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
            self.leases.give(to, question, now, &self.options);
        }
        self.grant(to, question, effects);
    }

    fn grant(&self, to: NodeId, question: Question, effects: &mut Vec<Effect>) {
        let Question { asked_in, round, asked_at } = question;
        let message = Message::LeaseGrant { asked_in, round, asked_at, version: self.table.version };
        effects.push(Effect::Send { to, message });
    }

    /// Repeats the standing promises under the table that this node goes by: the nodes that hold them may
    /// need just that.
    fn promise_again(&self, now: Moment, effects: &mut Vec<Effect>) {
        for (to, question) in self.leases.standing(now) {
            self.grant(to, question, effects);
        }
    }

    /// The copies of this node whose configuration differs between the current table and this one. They are
    /// few among many slots: the cost of a table follows from what it changes.
    fn touched<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = (&'a Replicated, Configuration)> {
        let changed = table.slots.changed(&self.table.slots);
        changed.filter_map(|(slot, configuration)| Some((self.slots.get(slot)?, configuration)))
    }

    /// Whether a table takes a slot of which this node has a copy from `node`.
    fn takes_from(&self, node: NodeId, table: &Table) -> bool {
        self.touched(table)
            .any(|(copy, next)| copy.configuration.primary == Some(node) && next.primary != Some(node))
    }

    /// Takes a table that has arrived.
    pub(super) fn hear_of(&mut self, table: Arc<Table>, now: Moment, effects: &mut Vec<Effect>) {
        if table.version <= self.known().version {
            return;
        }
        // A node that begins has no table to compare with, and the first one may come from a member of the
        // group that lags. It may lack copies that this node got since, which the group counts in since it
        // registered this life: they must not be forgotten.
        self.is_named |= table.incarnation(self.me) >= Some(self.incarnation);
        if !self.is_named {
            return;
        }
        let loses = |next: &Configuration| next.primary != Some(self.me);
        let renounces = self.touched(&table).any(|(copy, next)| copy.primary.is_some() && loses(&next));
        self.pending = Some(table);
        if renounces || self.leases.has_former(now) {
            // Nodes that promised may accept the table at once: this node serves nothing any more that it
            // takes away.
            self.ask(now, effects);
        }
        self.try_accept(now, effects);
        if renounces {
            // Requests held back for these slots are sent on, even while other promises delay the table.
            self.look_at_busy(now, effects);
        }
        self.look_at_early(now, effects);
    }

    /// Accepts the newest table, once no promise stands against it.
    pub(super) fn try_accept(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let Some(pending) = &self.pending else { return };
        let is_bound = |(copy, next): (&Replicated, Configuration)| {
            let primary = copy.configuration.primary;
            primary.filter(|&primary| primary != self.me).is_some_and(|primary| {
                // A primary that knows the table which decided this serves the slot no more, whatever came
                // since.
                next.primary != Some(primary) && self.leases.binds(primary, next.since, now)
            })
        };
        if now < self.quiet_until || self.touched(pending).any(is_bound) {
            return;
        }
        let Some(table) = self.pending.take() else { return };
        self.accept(table, now, effects);
    }

    fn accept(&mut self, table: Arc<Table>, now: Moment, effects: &mut Vec<Effect>) {
        let before = std::mem::replace(&mut self.table, table);
        let table = Arc::clone(&self.table);
        let changed: Vec<_> = table.slots.changed(&before.slots).collect();
        for &(slot, configuration) in &changed {
            self.reconfigure(slot, configuration, now, effects);
        }
        let lives = |table: &Table| {
            table.members.values().map(|member| (member.incarnation, member.is_up)).collect::<Vec<_>>()
        };
        let are_others = !before.members.keys().eq(table.members.keys()) || lives(&before) != lives(&table);
        let met = changed.iter().map(|&(slot, _)| slot).filter(|slot| self.led.has(*slot));
        let to_meet: Vec<Slot> = if are_others { self.led.slots().collect() } else { met.collect() };
        for slot in to_meet {
            self.with(slot, now, effects, |copy, context| copy.notice_lives(&table, context));
        }
        self.leases.ask_others(self.led.partners().collect(), now, &self.options);
        self.ask(now, effects);
        self.promise_again(now, effects);
        self.call_back(now, effects);
        self.look_at_busy(now, effects);
        self.look_at_early(now, effects);
    }

    /// Answers primaries that called in an epoch which this node has learned of since.
    fn call_back(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        for (slot, epoch) in std::mem::take(&mut self.called) {
            let known = self.table.slot(slot).epoch;
            if known >= epoch && self.slots.has(slot) {
                self.with(slot, now, effects, Replicated::call_back);
            } else if known <= epoch {
                self.called.insert(slot, epoch);
            }
        }
    }

    fn reconfigure(
        &mut self,
        slot: Slot,
        configuration: Configuration,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        self.led.change(slot, (configuration.primary == Some(self.me)).then_some(configuration), self.me);
        if configuration.has(self.me) {
            if !self.slots.has(slot) {
                self.add(Found::nothing(slot));
            }
            self.with(slot, now, effects, |copy, context| copy.reconfigure(configuration, context));
            return;
        }
        let ((in_sync_min, logs), goes_alone) = (self.rules_of(slot), self.goes_alone(slot, now));
        if let Some(mut copy) = self.slots.remove(slot) {
            self.kept_bytes = self.kept_bytes.saturating_sub(copy.log.kept_bytes());
            let (me, options, kept_bytes_max) = (self.me, &self.options, 0);
            let context =
                &mut StepContext { me, now, options, in_sync_min, logs, kept_bytes_max, goes_alone, effects };
            copy.reconfigure(configuration, context);
            effects.push(Effect::Forget { slot });
        }
        self.busy.remove(&slot);
    }
}

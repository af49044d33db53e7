//! One copy of a slot on this node: its log, how far it is logged and committed, and its role towards the
//! other copies.
//!
//! Invariant: committed entries are never truncated; applied entries are committed.
//! Invariant: `verified` never exceeds the part of this log that is known to be in the log of this epoch's
//! primary.

use crate::lengths::Uncommitted;
use crate::log::{Log, Needed};
use crate::planted::{self, Bug};
use crate::primary::Primary;
use crate::{
    Configuration, Contradiction, Effect, Entry, Found, LogRun, Message, NodeId, Options, Position, Sequence,
    Slot, SlotMessage, Version,
};

/// What a copy gets from its node with each step.
pub(crate) struct StepContext<'a> {
    pub(crate) me: NodeId,
    pub(crate) now: crate::Moment,
    pub(crate) options: &'a Options,
    /// How many copies of the slot must be in sync before a write is accepted.
    pub(crate) in_sync_min: usize,
    /// Whether entries of the slot are logged. If not, they count as logged once they arrive.
    pub(crate) logs: bool,
    /// How many bytes of applied entries the slot may keep for copies that lack them.
    pub(crate) kept_bytes_max: usize,
    /// Whether this node may serve the slot where no other copy is in sync: the configuration group hears
    /// this node, and no newer table gives the slot to another one.
    pub(crate) goes_alone: bool,
    pub(crate) effects: &'a mut Vec<Effect>,
}

/// One copy of a slot.
#[derive(Debug)]
pub(crate) struct Replicated {
    pub(crate) slot: Slot,
    pub(crate) configuration: Configuration,
    /// A table in which the slot had this epoch: the first such table that this node knows.
    pub(crate) epoch_since: Version,
    pub(crate) log: Log,
    /// All entries up to here are logged on this node, at the durability class of the slot.
    pub(crate) logged: Sequence,
    /// Handed out with each write to the log, and returned when that write is done.
    pub(crate) run: LogRun,
    /// Cells were installed up to here, and are not yet as durable as log entries are.
    unsettled: Option<Position>,
    pub(crate) committed: Sequence,
    /// How long the entries behind it are.
    pub(crate) uncommitted: Uncommitted,
    /// All entries up to here are known to be those of this epoch's primary.
    verified: Sequence,
    /// The timestamp of the last entry.
    pub(crate) time_ms: u64,
    pub(crate) primary: Option<Box<Primary>>,
    /// Whether this copy is among those that a tick has to visit.
    pub(crate) is_busy: bool,
}

impl Replicated {
    /// A copy that begins with what was found; `copy` is a number that no other copy of this node has.
    pub(crate) fn new(copy: u64, found: Found) -> Self {
        let Found { slot, base, base_time_ms, branch, entries } = found;
        let mut log = Log::behind(base);
        let time_ms = entries.last().map_or(base_time_ms, |entry| entry.time_ms);
        entries.into_iter().for_each(|entry| log.push(entry));
        Self {
            slot,
            configuration: Configuration { branch, ..Configuration::default() },
            epoch_since: Version::default(),
            logged: log.last().sequence,
            run: LogRun { copy, cuts: 0 },
            unsettled: None,
            committed: base.sequence,
            uncommitted: Uncommitted::of(&log, base.sequence, Configuration::default().epoch),
            verified: base.sequence,
            log,
            time_ms,
            primary: None,
            is_busy: false,
        }
    }

    pub(crate) fn send(&self, to: NodeId, about: SlotMessage, context: &mut StepContext<'_>) {
        let message = Message::Slot { slot: self.slot, epoch: self.configuration.epoch, about };
        context.effects.push(Effect::Send { to, message });
    }

    /// Takes over another configuration: a later epoch, or other copies that are catching up.
    pub(crate) fn reconfigure(&mut self, configuration: Configuration, context: &mut StepContext<'_>) {
        let is_new_epoch = configuration.epoch != self.configuration.epoch;
        let is_other_branch = configuration.branch != self.configuration.branch;
        self.configuration = configuration;
        if is_new_epoch {
            self.epoch_since = configuration.since;
            self.uncommitted = Uncommitted::of(&self.log, self.committed, configuration.epoch);
        }
        if is_other_branch {
            if !configuration.in_sync.contains(context.me) {
                // A loss was accepted: as far as the other copies know, the data of this one never existed.
                self.begin_anew(context);
            }
            context.effects.push(Effect::Branch { slot: self.slot, branch: configuration.branch });
        }
        let leads = configuration.primary == Some(context.me);
        if is_new_epoch && !planted::is(Bug::MatchedKept) {
            self.verified = self.committed;
        }
        let before = self.primary.take();
        match (leads, before) {
            (true, before) => {
                let primary = match before {
                    Some(primary) if !is_new_epoch => primary,
                    before => Primary::of(self, before, context),
                };
                self.primary = Some(primary);
                self.meet_copies(context);
            }
            (false, Some(primary)) => primary.end(configuration.primary, context),
            (false, None) => {}
        }
    }

    /// The primary of this epoch called before this node knew the epoch: answers where the log of this copy
    /// ends.
    pub(crate) fn call_back(&mut self, context: &mut StepContext<'_>) {
        if let Some(primary) = self.configuration.primary.filter(|&primary| primary != context.me) {
            self.send(primary, SlotMessage::Rejected { hint: self.log.last().sequence }, context);
        }
    }

    /// Drops the log and the cells.
    fn begin_anew(&mut self, context: &mut StepContext<'_>) {
        self.forget();
        context.effects.push(Effect::Forget { slot: self.slot });
    }

    fn forget(&mut self) {
        self.log = Log::default();
        self.uncommitted = Uncommitted::default();
        self.run.cuts += 1;
        (self.logged, self.committed, self.verified, self.unsettled) = Default::default();
        self.time_ms = 0;
    }

    /// The cells of this copy were dropped, to be replaced by others. The primary is told at once that
    /// nothing is left here.
    pub(crate) fn emptied(&mut self, context: &mut StepContext<'_>) {
        if planted::is(Bug::EmptiedKept) {
            return;
        }
        self.forget();
        self.call_back(context);
    }

    /// The last entry that this copy may report as shared with the primary, logged at its durability class.
    fn matched(&self) -> Sequence {
        if planted::is(Bug::UnverifiedSaid) {
            return self.logged;
        }
        let logged = if planted::is(Bug::SaidBeforeLogged) { self.log.last().sequence } else { self.logged };
        logged.min(self.verified)
    }

    /// Takes entries from the primary.
    pub(crate) fn append(
        &mut self,
        from: NodeId,
        previous: Position,
        entries: Vec<Entry>,
        committed: Sequence,
        context: &mut StepContext<'_>,
    ) {
        if let Some(contradiction) = self.contradiction_of(previous) {
            return context.effects.push(Effect::NotTaken { slot: self.slot, from, contradiction });
        }
        if !self.is_behind(previous) {
            let hint = self.hint(previous);
            return self.send(from, SlotMessage::Rejected { hint }, context);
        }
        let through = Sequence(previous.sequence.0 + entries.len() as u64);
        if let Err(contradiction) = self.take_in(entries, context) {
            // Whatever it says, nothing that it lacks here may count as logged.
            return context.effects.push(Effect::NotTaken { slot: self.slot, from, contradiction });
        }
        self.verified = self.verified.max(through.min(self.log.last().sequence));
        let known = if planted::is(Bug::AppliedOnReceipt) {
            self.log.last().sequence
        } else {
            committed.min(self.verified)
        };
        self.commit(known, None, context);
        self.send(from, SlotMessage::Appended { matched: self.matched() }, context);
        let needed = Needed { behind: self.committed, held_behind: None, bytes_max: context.kept_bytes_max };
        self.trim(needed, context.options);
    }

    /// What is wrong with a primary whose log has `previous`, if that cannot be: what is committed here is in
    /// the log of every later primary, whose epochs never fall. Without entries it says no more than this.
    fn contradiction_of(&self, previous: Position) -> Option<Contradiction> {
        let base = self.log.base();
        let is_below = previous.sequence <= base.sequence && previous.epoch > base.epoch;
        let is_other = || self.log.position(previous.sequence).is_some_and(|found| found != previous);
        match previous.sequence <= self.committed && (is_below || is_other()) {
            true if previous.sequence <= base.sequence => Some(Contradiction::Applied),
            true => Some(Contradiction::Committed),
            false => None,
        }
    }

    /// Whether this copy has the entry at `previous`.
    fn is_behind(&self, previous: Position) -> bool {
        if planted::is(Bug::PreviousIgnored) && previous.sequence <= self.log.last().sequence {
            return true;
        }
        // Committed entries are the same everywhere.
        if previous.sequence <= self.committed {
            return true;
        }
        match self.log.position(previous.sequence) {
            Some(_) if planted::is(Bug::EpochsNotCompared) => true,
            found => found == Some(previous),
        }
    }

    /// The last place at which this log may agree with a log that has `previous`: the end of this log, or
    /// else the place before `previous`. It steps back by one place only, because the primary's log may begin
    /// just where both still agree.
    fn hint(&self, previous: Position) -> Sequence {
        let last = self.log.last().sequence;
        last.min(previous.sequence.before()).max(self.committed)
    }

    /// Adds the entries that are new, replacing those that the primary does not have. If these entries cannot
    /// be right, nothing is added.
    fn take_in(&mut self, entries: Vec<Entry>, context: &mut StepContext<'_>) -> Result<(), Contradiction> {
        let is_new = |log: &Log, entry: &Entry| {
            let found = log.position(entry.position.sequence);
            entry.position.sequence > log.base().sequence
                && match found {
                    Some(_) if planted::is(Bug::NotTruncated) || planted::is(Bug::EpochsNotCompared) => false,
                    found => found != Some(entry.position),
                }
        };
        let base = self.log.base();
        let is_below = |entry: &Entry| entry.position.sequence <= base.sequence;
        if entries.iter().any(|entry| is_below(entry) && entry.position.epoch > base.epoch) {
            // A primary that lost what it had committed, such as one whose folder was put back to an earlier
            // state, writes other entries in places that are applied here.
            return Err(Contradiction::Applied);
        }
        let Some(first) = entries.iter().position(|entry| is_new(&self.log, entry)) else { return Ok(()) };
        let new: Vec<_> = entries.into_iter().skip(first).collect();
        let Some(sequence) = new.first().map(|entry| entry.position.sequence.before()) else { return Ok(()) };
        let after = self.log.position(sequence).ok_or(Contradiction::Disorder)?;
        self.check_following(after, &new)?;
        self.truncate_behind(sequence);
        new.iter().for_each(|entry| self.push(entry.clone()));
        self.write(after, new, context);
        Ok(())
    }

    /// Checks that these entries can follow `after`: each follows the one before it, with an epoch that does
    /// not fall and is not beyond the current one, and none replaces a committed entry, which is the same
    /// everywhere. A sender that says otherwise is not believed.
    fn check_following(&self, after: Position, entries: &[Entry]) -> Result<(), Contradiction> {
        let mut last = after;
        let follow = entries.iter().all(|Entry { position, .. }| {
            let follows = last.sequence.0.checked_add(1) == Some(position.sequence.0)
                && (last.epoch..=self.configuration.epoch).contains(&position.epoch);
            last = *position;
            follows
        });
        if !follow {
            return Err(Contradiction::Disorder);
        }
        match after.sequence >= self.committed || cfg!(feature = "planted") {
            true => Ok(()),
            false => Err(Contradiction::Committed),
        }
    }

    fn truncate_behind(&mut self, sequence: Sequence) {
        debug_assert!(sequence >= self.committed || cfg!(feature = "planted"), "what is committed stays");
        if self.log.truncate_behind(sequence) {
            self.run.cuts += 1;
            self.logged = self.logged.min(sequence);
            self.verified = self.verified.min(sequence);
            self.uncommitted = Uncommitted::of(&self.log, self.committed, self.configuration.epoch);
        }
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.time_ms = self.time_ms.max(entry.time_ms);
        self.uncommitted.push(&entry, self.configuration.epoch);
        self.log.push(entry);
    }

    /// Has the entries logged. Where the slot has no log they count as logged at once.
    pub(crate) fn write(&mut self, after: Position, entries: Vec<Entry>, context: &mut StepContext<'_>) {
        if context.logs {
            context.effects.push(Effect::Log { slot: self.slot, after, entries, run: self.run });
        } else {
            self.logged = self.log.last().sequence;
        }
    }

    /// The log holds this entry and all before it. A write of an earlier run does not count: entries may have
    /// been cut off and replaced since.
    pub(crate) fn logged(&mut self, position: Position, run: LogRun, context: &mut StepContext<'_>) {
        if run != self.run && !planted::is(Bug::LoggedOfAnother) {
            return;
        }
        // Once cells were installed, late confirmations of entries from before them count for nothing.
        let is_gone = match self.unsettled {
            Some(cells) => position == cells,
            None => position.sequence < self.log.base().sequence,
        };
        let is_this = self.log.position(position.sequence) == Some(position)
            || is_gone
            || (planted::is(Bug::LoggedOfAnother) && position.sequence <= self.log.last().sequence);
        if !is_this || position.sequence <= self.logged {
            return;
        }
        self.logged = position.sequence;
        self.unsettled = None;
        match self.configuration.primary {
            Some(me) if me == context.me => self.advance(context),
            Some(primary) => self.send(primary, SlotMessage::Appended { matched: self.matched() }, context),
            None => {}
        }
    }

    /// Commits all entries up to `through`, and has them applied.
    pub(crate) fn commit(
        &mut self,
        through: Sequence,
        mut primary: Option<&mut Primary>,
        context: &mut StepContext<'_>,
    ) {
        while self.committed < through {
            let sequence = self.committed.next();
            let Some(entry) = self.log.get(sequence).cloned() else { break };
            self.committed = sequence;
            self.uncommitted.commit(&entry, self.configuration.epoch);
            let mut ticket = primary.as_mut().and_then(|primary| primary.ticket_of(sequence));
            if self.configuration.in_sync.len() < context.in_sync_min
                && let Some(ticket) = ticket.take()
            {
                // Copies were lost since this write was accepted: it is applied, and may be lost with the few
                // copies that are left.
                context.effects.push(Effect::Unknown { ticket });
            }
            context.effects.push(Effect::Apply { slot: self.slot, entry, ticket });
        }
    }

    pub(crate) fn trim(&mut self, needed: Needed, options: &Options) {
        self.log.trim(self.committed, needed, options.kept_entries);
    }

    /// Whether cells up to this entry are newer than what this copy has.
    pub(crate) fn would_install(&self, position: Position) -> bool {
        if planted::is(Bug::InstalledOverNewer) {
            return true;
        }
        position.sequence > self.committed && self.log.position(position.sequence) != Some(position)
    }

    /// Cells were installed that include everything up to this entry.
    pub(crate) fn installed(&mut self, position: Position, time_ms: u64, context: &mut StepContext<'_>) {
        // If these cells are lost, the state that was applied before is still there.
        self.unsettled = context.logs.then_some(position);
        self.logged = if context.logs { self.logged.min(self.committed) } else { position.sequence };
        self.log = Log::behind(position);
        self.uncommitted = Uncommitted::default();
        self.committed = position.sequence;
        self.verified = position.sequence;
        self.time_ms = time_ms;
        if let Some(primary) = self.configuration.primary.filter(|&primary| primary != context.me) {
            self.send(primary, SlotMessage::Rejected { hint: self.committed }, context);
        }
    }
}

//! Client requests: the primary of a slot accepts them, a node that is about to lead holds them back, and
//! every other node names the primary.
//!
//! Invariant: requests that are held back are accepted or refused when this node leads, when it turns out not
//! to, or after a while.

use super::Replica;
use crate::copy::Replicated;
use crate::held_requests::{HeldRequests, Request};
use crate::{Effect, Moment, Refusal, Slot};

/// Where a request belongs.
enum Destination {
    Here,
    /// Here, once a promise or the former primary permits it.
    HereSoon,
    Elsewhere(Refusal),
}

/// The writes of a slot that are on their way to its cells, by the lengths of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// That of the longest one.
    pub longest: usize,
    /// The sum of those that an earlier primary took.
    pub inherited: usize,
}

impl Replica {
    pub(super) fn client_asks(
        &mut self,
        slot: Slot,
        request: Request,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        match self.destination(slot) {
            Destination::Here => self.take(slot, request, now, effects),
            Destination::HereSoon => {
                self.early.entry(slot).or_default().push(request, now, &self.options, effects)
            }
            Destination::Elsewhere(refusal) => request.refuse(refusal, effects),
        }
    }

    fn take(&mut self, slot: Slot, request: Request, now: Moment, effects: &mut Vec<Effect>) {
        match request {
            Request::Write(write) => {
                self.with(slot, now, effects, |copy, context| copy.client_writes(write, context));
                self.look_at(slot, now, effects);
            }
            Request::Read { ticket, keys } => {
                self.with_view(slot, now, effects, |copy, view, context| {
                    copy.client_reads(ticket, &keys, view, context);
                });
                if self.slots.get(slot).is_some_and(Replicated::has_reads) {
                    self.ask_again(now, effects);
                }
            }
        }
    }

    fn destination(&self, slot: Slot) -> Destination {
        let known = self.known().slot(slot);
        if known.primary == Some(self.me) {
            return if self.leads(slot) { Destination::Here } else { Destination::HereSoon };
        }
        match known.successor == Some(self.me) {
            true => Destination::HereSoon,
            false => Destination::Elsewhere(Refusal::of(known.primary)),
        }
    }

    /// Whether requests for a slot belong to this node: it leads the slot, or will so soon that they wait
    /// here.
    #[must_use]
    pub fn takes(&self, slot: Slot) -> bool {
        !matches!(self.destination(slot), Destination::Elsewhere(_))
    }

    /// Whether writes of a slot are on their way to its cells: logged and not applied, or held back until
    /// this node may accept them.
    #[must_use]
    pub fn is_under_way(&self, slot: Slot) -> bool {
        let is_held =
            self.slots.get(slot).is_some_and(Replicated::holds_any) || self.early.contains_key(&slot);
        is_held || self.last(slot).sequence > self.committed(slot)
    }

    /// How long the writes of a slot are that are on their way to its cells.
    #[must_use]
    pub fn under_way(&self, slot: Slot) -> UnderWay {
        let longest = self.early.get(&slot).map_or(0, HeldRequests::longest);
        let Some(copy) = self.slots.get(slot) else { return UnderWay { longest, inherited: 0 } };
        let longest = longest.max(copy.longest_held()).max(copy.uncommitted.longest());
        UnderWay { longest, inherited: copy.uncommitted.inherited() }
    }

    /// Bytes of the writes of a slot that this node took as its primary and that are not committed yet.
    #[must_use]
    pub fn under_way_bytes(&self, slot: Slot) -> usize {
        self.slots.get(slot).map_or(0, Replicated::under_way_bytes)
    }

    /// Accepts or refuses the requests that were held back, where that can be decided.
    pub(super) fn look_at_early(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let slots: Vec<Slot> = self.early.keys().copied().collect();
        for slot in slots {
            let Some(mut held) = self.early.remove(&slot) else { continue };
            match self.destination(slot) {
                Destination::Here => held.take().for_each(|request| self.take(slot, request, now, effects)),
                Destination::Elsewhere(refusal) => held.refuse(refusal, effects),
                Destination::HereSoon => {
                    let (us, refusal) = self.patience(slot);
                    held.refuse_older(Moment(now.0.saturating_sub(us)), refusal, effects);
                    if !held.is_empty() {
                        self.early.insert(slot, held);
                    }
                }
            }
        }
    }

    /// How long a request waits here for this node to lead its slot, and how it is refused after that.
    fn patience(&self, slot: Slot) -> (u64, Refusal) {
        match self.known().slot(slot).primary {
            Some(primary) if primary != self.me => (self.options.resend_us, Refusal::Moved { to: primary }),
            _ => (self.options.read_wait_us, Refusal::NoLease),
        }
    }
}

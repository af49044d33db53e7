//! What a loop has of other nodes: who leads a slot, the time, and their messages. A node that is the whole
//! ring has none of that.

use super::{Home, Slots};
use crate::NodeError;
use crate::clock::Now;
use crate::dates::ClockSeen;
use crate::group::GroupHeard;
use crate::metrics::OthersSeen;
use atoll_replica::{Change, Slot, Ticket};
use atoll_resp::{Command, Protocol, Request};
use mio::Registry;
use mio::event::Event;
use std::time::Duration;

impl Slots {
    /// The last answer of the configuration group, if there is one.
    pub(crate) fn group_heard(&self, now: Now) -> GroupHeard {
        match &self.home {
            Home::Alone(_) => GroupHeard::default(),
            Home::Replicated(replicated) => replicated.group_heard(now),
        }
    }

    /// The number of the ring, once the configuration group told it.
    pub(crate) fn ring(&self) -> Option<u64> {
        match &self.home {
            Home::Alone(_) => None,
            Home::Replicated(replicated) => replicated.ring,
        }
    }

    /// Replaces the date of a clock reading by the date that this node uses.
    pub(crate) fn dated(&mut self, clock: Now) -> Now {
        match &mut self.home {
            Home::Alone(_) => clock,
            Home::Replicated(replicated) => replicated.copies.dates.adjusted(clock),
        }
    }

    /// Dates the same moment again.
    pub(crate) fn dated_again(&self, now: Now) -> Now {
        match &self.home {
            Home::Alone(_) => now,
            Home::Replicated(replicated) => replicated.copies.dates.readjusted(now),
        }
    }

    /// How the clock of this node compares with those of others.
    pub(crate) fn clock_seen(&self) -> ClockSeen {
        match &self.home {
            Home::Alone(_) => ClockSeen::default(),
            Home::Replicated(replicated) => replicated.copies.dates.seen(),
        }
    }

    /// Whether requests about a slot wait here although another node still leads it.
    pub(crate) fn takes(&self, slot: Slot) -> bool {
        match &self.home {
            Home::Alone(_) => false,
            Home::Replicated(replicated) => replicated.copies.takes(slot),
        }
    }

    /// Whether keys of a slot may be listed, that is, whether its cells hold what a read would find. A read
    /// waits where this is false.
    pub(crate) fn may_read(&self, slot: Slot, now: Now) -> bool {
        match &self.home {
            Home::Alone(_) => true,
            Home::Replicated(replicated) => replicated.copies.may_read(slot, now),
        }
    }

    /// Whether a listing that may not read a slot waits there for the other copies to confirm this node.
    pub(crate) fn confirms_reads(&self) -> bool {
        matches!(&self.home, Home::Replicated(replicated) if replicated.copies.confirms_reads())
    }

    /// Whether other nodes may have copies, so that requests may have to wait for them.
    pub(crate) fn has_others(&self) -> bool {
        matches!(&self.home, Home::Replicated(_))
    }

    /// Lets a listing wait in a slot; the answer comes under its ticket.
    pub(crate) fn list(&mut self, slot: Slot, now: Now, request: &Request<'_>, asked: (Ticket, Protocol)) {
        if let Home::Replicated(replicated) = &mut self.home {
            let done = replicated.copies.list(slot, now, request, asked);
            replicated.note(done);
        }
    }

    /// Whether a slot may hold anything, in its cells or once the writes under way have arrived.
    pub(crate) fn may_hold(&self, slot: Slot) -> bool {
        let is_under_way = match &self.home {
            Home::Alone(_) => false,
            Home::Replicated(replicated) => replicated.copies.is_under_way(slot),
        };
        is_under_way || self.keys_in(slot) > 0
    }

    /// What this node itself knows of the others.
    pub(crate) fn others_seen(&self) -> OthersSeen {
        match &self.home {
            Home::Alone(_) => OthersSeen::default(),
            Home::Replicated(replicated) => OthersSeen {
                behind: replicated.copies.behind(),
                unreached: replicated.copies.peers.unreached().collect(),
                clock: self.clock_seen(),
            },
        }
    }

    /// Asks the configuration group for changes.
    pub(crate) fn ask_group(&mut self, changes: Vec<Change>) -> Result<(), &'static str> {
        match &mut self.home {
            Home::Alone(_) => Err("this node is the whole ring"),
            Home::Replicated(replicated) => {
                replicated.copies.ask_group(changes);
                Ok(())
            }
        }
    }

    /// Handles what the poll reported about other nodes.
    pub(crate) fn notice(&mut self, event: &Event, registry: &Registry) {
        if let Home::Replicated(replicated) = &mut self.home {
            replicated.notice(event, registry);
        }
    }

    /// Receives what other nodes sent that no event of the poll tells of. The clock is read behind this, and
    /// then all of it is heard.
    pub(crate) fn receive(&mut self, registry: &Registry) {
        if let Home::Replicated(replicated) = &mut self.home {
            replicated.receive(registry);
        }
    }

    /// Takes what came from other nodes and threads.
    pub(crate) fn hear(&mut self, now: Now, registry: &Registry) -> Result<(), NodeError> {
        match &mut self.home {
            Home::Alone(_) => Ok(()),
            Home::Replicated(replicated) => replicated.hear(now, registry),
        }
    }

    /// How often they need attention, if others have copies.
    pub(crate) fn tick(&self) -> Option<Duration> {
        match &self.home {
            Home::Alone(_) => None,
            Home::Replicated(replicated) => Some(replicated.tick()),
        }
    }

    /// Most bytes of values that a write returns if its answer comes later.
    pub(crate) fn returned_by(&self, slot: Slot, command: &Command<'_>) -> usize {
        match &self.home {
            Home::Alone(_) => 0,
            Home::Replicated(replicated) => replicated.copies.returned_by(slot, command),
        }
    }

    /// Roughly the bytes of values that a read will answer if its answer comes later.
    pub(crate) fn expected_of(&self, slot: Slot, ticket: Ticket, command: &Command<'_>) -> usize {
        match &self.home {
            Home::Alone(_) => 0,
            Home::Replicated(replicated) => replicated.copies.expected_of(slot, ticket, command),
        }
    }

    /// Most bytes of values of all writes whose answers are still to come.
    pub(crate) fn returned_bytes(&self) -> usize {
        match &self.home {
            Home::Alone(_) => 0,
            Home::Replicated(replicated) => replicated.copies.returned_bytes(),
        }
    }

    /// Bytes of the answers since the last call.
    pub(crate) fn answer_bytes(&self) -> usize {
        match &self.home {
            Home::Alone(_) => 0,
            Home::Replicated(replicated) => replicated.copies.answer_bytes(),
        }
    }
}

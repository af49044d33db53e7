//! A machine of the ring, and the process on it.

use crate::cells::State;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::holding::HeldRequest;
use crate::importing::Import;
use crate::queue::ToNode;
use atoll_replica::{Gathering, Incarnation, Moment, Position, Replica, Slot, Survived, Ticket, Version};
use std::collections::{BTreeMap, BTreeSet};

/// A machine.
pub(crate) struct Node {
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    /// Counts its processes.
    pub(crate) life: u64,
    pub(crate) process: Option<Process>,
    /// The slots of which an earlier process lost something without the group having learned of it yet.
    pub(crate) lost: BTreeSet<Slot>,
    pub(crate) pause: Option<Pause>,
    /// Counts its pauses.
    pub(crate) pauses: u64,
}

/// A pause of the machine; messages that arrive meanwhile are held.
pub(crate) struct Pause {
    pub(crate) since: u64,
    /// The reading of its clock then.
    pub(crate) moment: Moment,
    pub(crate) held: Vec<ToNode>,
}

/// A process.
pub(crate) struct Process {
    pub(crate) replica: Replica,
    /// Its number, once the group has assigned it.
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) survived: Survived,
    pub(crate) began_at: Moment,
    /// The newest table that arrived; and an answer to a heartbeat that waits for a newer table.
    pub(crate) told: Version,
    pub(crate) heard_behind: Option<(Version, Moment)>,
    pub(crate) slots: BTreeMap<Slot, LiveSlot>,
    /// Requests that the protocol has not answered yet.
    pub(crate) waiting: BTreeMap<Ticket, PendingRequest>,
    /// Gathers requests of clients with a latency class, which are kept in `holding`.
    pub(crate) gathering: Gathering,
    pub(crate) holding: Vec<HeldRequest>,
    /// The clock reading that a planted bug uses in place of the current one.
    pub(crate) stale_moment: Option<Moment>,
}

/// A slot in memory.
#[derive(Default)]
pub(crate) struct LiveSlot {
    pub(crate) state: State,
    /// The state before the last write, kept for a planted bug.
    pub(crate) former: Option<State>,
    pub(crate) applied: Position,
    pub(crate) time_ms: u64,
    /// The last entry that was given to the log.
    pub(crate) logged: Position,
    pub(crate) leads: bool,
    /// When each cell is to expire, by this node's clock, and when that was last requested.
    pub(crate) deadlines: BTreeMap<u8, Deadline>,
    /// Requests that wait for a value.
    pub(crate) watchers: Vec<PendingRequest>,
    /// The import under way, if any.
    pub(crate) import: Option<Import>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) put: usize,
    pub(crate) due: Moment,
    pub(crate) asked_at: Option<Moment>,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRequest {
    pub(crate) slot: Slot,
    pub(crate) operation: usize,
    /// The client and its attempt; none if the node itself asked.
    pub(crate) client: Option<(usize, u32)>,
}

impl Node {
    pub(crate) fn new(clock: Clock) -> Self {
        let (disk, lost) = (Disk::default(), BTreeSet::new());
        Self { clock, disk, life: 0, process: None, lost, pause: None, pauses: 0 }
    }

    /// The process, if the group has registered it.
    pub(crate) fn begun(&mut self) -> Option<&mut Process> {
        self.process.as_mut().filter(|process| process.incarnation.is_some())
    }

    pub(crate) fn is_life(&self, life: u64) -> bool {
        self.process.is_some() && self.life == life
    }

    /// The reading of its clock for its process.
    pub(crate) fn moment(&self, now: u64) -> Moment {
        let stale = self.process.as_ref().and_then(|process| process.stale_moment);
        stale.unwrap_or_else(|| self.clock.moment(now))
    }
}

impl LiveSlot {
    /// Restarts all deadlines: a node that gets the cells counts from now, so that no cell expires early.
    pub(crate) fn set_deadlines(&mut self, now: Moment, rate_error_ppm: u64) {
        let former = std::mem::take(&mut self.deadlines);
        for (&cell, lifetime) in &self.state.lifetimes {
            let kept = former.get(&cell).filter(|deadline| deadline.put == lifetime.put).copied();
            let lengthened = lifetime.us + lifetime.us * 3 * rate_error_ppm / 1_000_000;
            let fresh = Deadline { put: lifetime.put, due: now.after(lengthened), asked_at: None };
            self.deadlines.insert(cell, kept.unwrap_or(fresh));
        }
    }
}

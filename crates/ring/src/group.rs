//! The interface to the configuration group, which decides who has which slot; and a group that exists in
//! this process only.
//!
//! Invariant: a node receives the group's decisions in order; a later one may replace earlier ones.

use crate::NodeError;
use crate::clock::Clock;
use atoll_replica::{
    Change, Decision, Group, GroupOptions, Incarnation, Moment, NodeId, PlacementHints, Proposal, Survived,
    Table, Version,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the configuration group tells a node.
#[derive(Clone, Debug)]
pub enum GroupEvent {
    /// The node has this incarnation, in the ring with this number, which no other ring has.
    Registered(Incarnation, u64),
    /// The current table.
    Table(Arc<Table>),
    /// The group heard this node: it answers a message that the node sent at this moment of its own clock.
    /// The second field is the leader of the group, if it has one.
    Heard(Moment, Option<NodeId>),
    /// The group has one member less: the seat of this node failed, and the node goes on as a client of the
    /// group.
    SeatLost,
    /// Whether the seat of this node waits for room on its disk. Meanwhile the group has one member less.
    SeatWaits(bool),
    /// The node cannot go on: its store belongs to another ring.
    OtherRing,
    /// The node cannot go on: its number is that of another store, which clients reach at this address.
    NumberTaken(String),
    /// The node cannot go on: the group does not accept it any more.
    Lost(String),
}

/// The last answer of the group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupHeard {
    /// How long ago it was.
    pub(crate) silence: Duration,
    /// The leader of the group at that time.
    pub(crate) leader: Option<NodeId>,
    /// Whether the seat of this node failed, or waits for room on its disk.
    pub(crate) is_seat_lost: bool,
}

/// Receives what the group tells a node.
pub type OnGroupEvent = Arc<dyn Fn(GroupEvent) + Send + Sync>;

/// A node's request to join the ring.
pub struct Joining {
    /// The node.
    pub node: NodeId,
    /// Where it is reached, as the table is to say.
    pub address: String,
    /// What the placement of copies takes into account of it.
    pub hints: PlacementHints,
    /// What survived of its earlier data.
    pub survived: Survived,
    /// The ring whose copies it holds. In another ring it must not claim to have anything.
    pub of_ring: Option<u64>,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// Receives the group's events.
    pub on_event: OnGroupEvent,
}

/// The configuration group.
pub trait GroupDoor: Send + Sync {
    /// Joins the ring. The node is a member until the returned handle is dropped.
    ///
    /// # Errors
    /// Whatever keeps the node from asking.
    fn join(&self, joining: Joining) -> Result<Box<dyn GroupMember>, NodeError>;

    /// Whether the group keeps something on the disk for the number of this node: then its folder is that of
    /// this number, whether or not it has registered.
    fn keeps_on_disk(&self) -> bool {
        false
    }
}

/// A node's handle of the group.
pub trait GroupMember: Send {
    /// Makes proposals, to be decided together. They may be lost.
    fn propose(&self, proposals: Vec<Proposal>);
    /// Asks for changes in the name of the operator, each by itself. They may be lost.
    fn ask(&self, changes: Vec<Change>);
    /// Asks for the newest table. The request may be lost.
    fn fetch_table(&self);
    /// Reports that the node is alive. A node that has reported this and stops for seconds is taken for dead.
    fn at_work(&self, _now: Moment) {}
}

/// A configuration group within this process, for tests and for several nodes in one process. It forgets
/// everything when the process ends.
#[derive(Clone)]
pub struct LocalGroup {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    silence: Duration,
}

struct State {
    group: Group,
    members: BTreeMap<NodeId, Line>,
    nonces: u64,
    /// The version of the last published table.
    told: Version,
    /// Nodes that have been given up.
    gone: Vec<NodeId>,
    is_over: bool,
    /// A number that no other ring of this machine has.
    ring: u64,
}

struct Line {
    nonce: u64,
    clock: Arc<dyn Clock>,
    on_event: OnGroupEvent,
}

/// Number of rings made in this process.
static RINGS: AtomicU64 = AtomicU64::new(0);

/// How often nodes are heard and the table is planned anew.
const PERIOD: Duration = Duration::from_millis(20);

impl LocalGroup {
    /// Starts a group for a ring with these options. A node counts as dead after this long a silence.
    ///
    /// # Errors
    /// Whatever keeps a thread from starting.
    pub fn start(options: GroupOptions, silence: Duration) -> io::Result<Self> {
        let state = State {
            group: Group::new(options),
            members: BTreeMap::new(),
            nonces: 0,
            told: Version(0),
            gone: Vec::new(),
            is_over: false,
            ring: u64::from(std::process::id()) << 32 | RINGS.fetch_add(1, Ordering::Relaxed),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), silence });
        let looked_after = Arc::downgrade(&shared);
        std::thread::Builder::new().name("atoll-ring-group".to_owned()).spawn(move || {
            while let Some(shared) = looked_after.upgrade() {
                if !shared.look() {
                    return;
                }
            }
        })?;
        Ok(Self { shared })
    }

    /// The current table.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        self.shared.lock().group.table()
    }

    /// Applies a change.
    pub fn change(&self, change: Change) -> Decision {
        let mut state = self.shared.lock();
        let decision = state.group.apply(change);
        state.publish();
        decision
    }

    /// Gives up a node: its copies are made elsewhere, unless it begins again.
    pub fn give_up(&self, node: NodeId) {
        self.shared.lock().gone.push(node);
    }

    /// Waits until a table is as wanted, for at most `most`. Returns whether it is.
    pub fn wait(&self, most: Duration, is_wanted: impl Fn(&Table) -> bool) -> bool {
        let state = self.shared.lock();
        let waited =
            self.shared.changed.wait_timeout_while(state, most, |state| !is_wanted(&state.group.table()));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears all nodes and plans the table anew. Returns whether to go on.
    fn look(&self) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, PERIOD, |state| !state.is_over);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.is_over {
            return false;
        }
        for line in state.members.values() {
            (line.on_event)(GroupEvent::Heard(line.clock.now().moment, None));
        }
        for change in state.group.plan(&state.gone) {
            state.group.apply(change);
        }
        state.publish();
        drop(state);
        self.changed.notify_all();
        true
    }

    /// A node fell silent. It is declared dead after a while, unless it is back by then.
    fn lose(self: &Arc<Self>, node: NodeId, nonce: u64) {
        let Some(incarnation) = self.lock().leave(node, nonce) else { return };
        let shared = Arc::clone(self);
        let wait = move || {
            let state = shared.lock();
            let waited = shared.changed.wait_timeout_while(state, shared.silence, |state| !state.is_over);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.group.apply(Change::Fail { node, incarnation });
            state.publish();
        };
        if std::thread::Builder::new().spawn(wait).is_err() {
            tracing::error!(%node, "no thread waits until a node is considered gone");
        }
    }
}

impl State {
    fn leave(&mut self, node: NodeId, nonce: u64) -> Option<Incarnation> {
        if self.members.get(&node)?.nonce != nonce {
            return None;
        }
        self.members.remove(&node);
        self.group.table().incarnation(node)
    }

    /// Sends the table to all nodes, if it has changed.
    fn publish(&mut self) {
        let table = self.group.table();
        if std::mem::replace(&mut self.told, table.version) == table.version {
            return;
        }
        self.members.values().for_each(|line| (line.on_event)(GroupEvent::Table(table.clone())));
    }
}

impl GroupDoor for LocalGroup {
    fn join(&self, joining: Joining) -> Result<Box<dyn GroupMember>, NodeError> {
        let Joining { node, address, hints, survived, of_ring, clock, on_event } = joining;
        let mut state = self.shared.lock();
        if of_ring.is_some_and(|of_ring| of_ring != state.ring) {
            return Err(NodeError::OtherRing);
        }
        state.nonces += 1;
        let nonce = state.nonces;
        match state.group.apply(Change::Register { node, nonce, address, hints, survived }) {
            Decision::Registered { incarnation } => {
                on_event(GroupEvent::Registered(incarnation, state.ring));
            }
            Decision::Taken => {
                let table = state.group.table();
                let address = table.members.get(&node).map(|member| member.address.for_clients());
                return Err(NodeError::NumberTaken { number: node.0, address: address.unwrap_or_default() });
            }
            Decision::Changed | Decision::Unchanged => {}
        }
        state.gone.retain(|gone| *gone != node);
        state.members.insert(node, Line { nonce, clock, on_event });
        state.publish();
        drop(state);
        self.shared.changed.notify_all();
        Ok(Box::new(LocalMember { shared: Arc::clone(&self.shared), node, nonce }))
    }
}

struct LocalMember {
    shared: Arc<Shared>,
    node: NodeId,
    nonce: u64,
}

impl GroupMember for LocalMember {
    fn propose(&self, proposals: Vec<Proposal>) {
        let mut state = self.shared.lock();
        // No table yet: more proposals come soon, and one table a moment later tells of all.
        for proposal in proposals {
            state.group.apply(Change::Propose(proposal));
        }
    }

    fn ask(&self, changes: Vec<Change>) {
        let mut state = self.shared.lock();
        for change in changes {
            state.group.apply(change);
        }
        state.publish();
    }

    fn fetch_table(&self) {
        let state = self.shared.lock();
        if let Some(line) = state.members.get(&self.node) {
            (line.on_event)(GroupEvent::Table(state.group.table()));
        }
    }
}

impl Drop for LocalMember {
    fn drop(&mut self) {
        self.shared.lose(self.node, self.nonce);
    }
}

//! The door to the configuration group, which decides who has which slot; and one that lives in this process
//! alone.
//!
//! Invariant: whatever the group says is told in the order in which it was decided, or later things in place
//! of earlier ones.

use crate::NodeError;
use crate::clock::Clock;
use atoll_replica::{
    Change, Decision, Group, GroupOptions, Incarnation, Moment, NodeId, Proposal, Survived, Table, Version,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the group says to a node.
#[derive(Clone, Debug)]
pub enum GroupSaid {
    /// It has begun this life, in the ring of this number, which no other ring has.
    Registered(Incarnation, u64),
    /// This is the table.
    Table(Arc<Table>),
    /// The group heard what was said at this moment of the node's own clock, and is still the group; this
    /// node leads it, if any does.
    Heard(Moment, Option<NodeId>),
    /// The group has one member less: the part that this node has in it failed, and it goes on as one that
    /// only asks.
    SeatLost,
    /// Whether the group has one member less as long as the part that this node has in it waits for room on
    /// its disk.
    SeatWaits(bool),
    /// The node cannot go on, since what it has is of another ring.
    OtherRing,
    /// The node cannot go on, since the group will not hear it any more.
    Lost(String),
}

/// When the group answered a node last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupHeard {
    /// For how long it has not.
    pub(crate) silence: Duration,
    /// Who led it then.
    pub(crate) leader: Option<NodeId>,
    /// Whether the part that this node has in it failed, or waits for room on its disk.
    pub(crate) is_seat_lost: bool,
}

/// Where the group is told to say it.
pub type Said = Arc<dyn Fn(GroupSaid) + Send + Sync>;

/// A node that wants to be one of the ring.
pub struct Joining {
    /// Which.
    pub node: NodeId,
    /// Where it is reached, as the table is to say it.
    pub address: String,
    /// What it still has.
    pub survived: Survived,
    /// The ring whose copies it holds: in another one it is not to say what it has.
    pub of_ring: Option<u64>,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// Where the group's words go.
    pub said: Said,
}

/// The configuration group.
pub trait GroupDoor: Send + Sync {
    /// A node wants to be one of the ring; it is, until what comes back is dropped.
    ///
    /// # Errors
    /// Whatever keeps it from asking.
    fn join(&self, joining: Joining) -> Result<Box<dyn GroupMember>, NodeError>;
}

/// A node's own line to the group.
pub trait GroupMember: Send {
    /// Asks for some things, to be decided together; they may be lost.
    fn propose(&self, proposals: Vec<Proposal>);
    /// Asks for changes in the name of whoever runs the ring, each by itself; they may be lost.
    fn ask(&self, changes: Vec<Change>);
    /// Asks for the newest table; it may be lost.
    fn fetch_table(&self);
    /// Says that the node is at work now: one that was said to be, and is not for seconds, is taken for dead.
    fn at_work(&self, _now: Moment) {}
}

/// A configuration group in this process: for nodes of one process, in tests and on one machine. It forgets
/// all with the process.
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
    /// The table that everybody was told of.
    told: Version,
    /// Nodes that nobody waits for.
    gone: Vec<NodeId>,
    is_over: bool,
    /// A number that no other ring of this machine has.
    ring: u64,
}

struct Line {
    nonce: u64,
    clock: Arc<dyn Clock>,
    said: Said,
}

/// How many rings there were in this process.
static RINGS: AtomicU64 = AtomicU64::new(0);

/// How often every node is heard, and the table looked at.
const PERIOD: Duration = Duration::from_millis(20);

impl LocalGroup {
    /// A group that decides for a ring with these options; a node is taken for gone once it was silent for so
    /// long.
    ///
    /// # Errors
    /// Whatever keeps a thread from beginning.
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

    /// The table as it is.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        self.shared.lock().group.table()
    }

    /// Asks for a change.
    pub fn change(&self, change: Change) -> Decision {
        let mut state = self.shared.lock();
        let decision = state.group.apply(change);
        state.publish();
        decision
    }

    /// Nobody waits for this node any more: its copies are made elsewhere, unless it begins again.
    pub fn give_up(&self, node: NodeId) {
        self.shared.lock().gone.push(node);
    }

    /// Waits until the table is as is wanted, for so long at most; whether it is.
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

    /// Hears all nodes and looks at the table; whether to go on.
    fn look(&self) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, PERIOD, |state| !state.is_over);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.is_over {
            return false;
        }
        for line in state.members.values() {
            (line.said)(GroupSaid::Heard(line.clock.now().moment, None));
        }
        for change in state.group.plan(&state.gone) {
            state.group.apply(change);
        }
        state.publish();
        drop(state);
        self.changed.notify_all();
        true
    }

    /// A node fell silent; after a while it is taken for gone, unless it is back by then.
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
            tracing::error!(%node, "no thread waits until a node is taken for gone");
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

    /// Tells everybody of the table, if it is another one.
    fn publish(&mut self) {
        let table = self.group.table();
        if std::mem::replace(&mut self.told, table.version) == table.version {
            return;
        }
        self.members.values().for_each(|line| (line.said)(GroupSaid::Table(table.clone())));
    }
}

impl GroupDoor for LocalGroup {
    fn join(&self, joining: Joining) -> Result<Box<dyn GroupMember>, NodeError> {
        let Joining { node, address, survived, of_ring, clock, said } = joining;
        let mut state = self.shared.lock();
        if of_ring.is_some_and(|of_ring| of_ring != state.ring) {
            return Err(NodeError::OtherRing);
        }
        state.nonces += 1;
        state.gone.retain(|gone| *gone != node);
        let nonce = state.nonces;
        if let Decision::Registered { incarnation } =
            state.group.apply(Change::Register { node, nonce, address, survived })
        {
            said(GroupSaid::Registered(incarnation, state.ring));
        }
        state.members.insert(node, Line { nonce, clock, said });
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
        // More come soon, and one table tells of all of them a moment later.
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
            (line.said)(GroupSaid::Table(state.group.table()));
        }
    }
}

impl Drop for LocalMember {
    fn drop(&mut self) {
        self.shared.lose(self.node, self.nonce);
    }
}

//! States: the contents of the store, and the position of each process.

use super::oracle::Rows;
use super::world::{CommitIndex, ObjectIndex, RecordIndex, WishIndex};

/// A complete state. Equal states have equal futures.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The edit cells, which imply the head: the record of each version.
    pub history: Vec<RecordIndex>,
    /// Versions below this one have lost their edit cells, unless a snapshot keeps them.
    pub trimmed: u8,
    /// The objects in the store, sorted.
    pub present: Vec<ObjectIndex>,
    /// The session cells: the version from which each session reads, if it exists.
    pub sessions: Vec<Option<u8>>,
    /// The snapshot cells: the versions that they keep, sorted.
    pub snapshots: Vec<u8>,
    /// Writes of unknown outcome, which may land at any time or never; sorted.
    pub flights: Vec<Flight>,
    /// The processes.
    pub actors: Vec<Actor>,
    /// The rows of the steps that were acknowledged to a simulation.
    pub acknowledged: Rows,
    /// The number of processes that may still crash.
    pub crashes_left: u8,
}

/// A write under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flight {
    /// A conditional write that makes `wish` true if the head is `base` and the session stands.
    Commit { wish: WishIndex, base: u8, session: u8 },
    /// An object.
    Create(ObjectIndex),
    /// A session, created if it is absent.
    Open { session: u8, from: u8 },
}

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    /// Its position.
    pub at: At,
    /// The number of its writes that may still have an unknown outcome.
    pub doubts_left: u8,
    /// The number of sessions it had before this one.
    pub incarnation: u8,
    /// The number of times it started over.
    pub tries: u8,
}

/// The position of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// Killed. Its session remains.
    Crashed,
    /// Done, with its session closed.
    Ended,
    Writer(Writer),
    Packer(Packer),
    /// The delete under way.
    Deleter(CommitIndex),
    /// The column under way.
    Adder(CommitIndex),
    Reader(Reader),
    Snapshotter(Snapshotter),
    Vacuum(Vacuum),
}

/// A rank of a simulation; `step` is a place in its list of steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    /// Puts a new session.
    Open { step: u8 },
    /// Begins its attempt.
    Begin(CommitIndex),
    /// Adds its column.
    AddColumn(CommitIndex),
    /// Creates the block's object.
    Create { step: u8 },
    /// Appends the block.
    Append { step: u8, commit: CommitIndex },
    /// Waits until its steps are visible, and reports to the simulation.
    Flush,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Packer {
    /// Resolves a version and plans.
    Plan,
    /// Reads its inputs.
    Read(Plan),
    /// Creates its object.
    Create(Plan),
    /// Commits its pack.
    Commit { object: Option<ObjectIndex>, commit: CommitIndex },
    /// Has lost: removes its object.
    Discard(ObjectIndex),
}

/// The plan of a packer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The objects that it reads.
    pub inputs: Vec<ObjectIndex>,
    /// The object that it writes; `None` if no row is alive.
    pub object: Option<ObjectIndex>,
    /// The pack.
    pub commit: CommitIndex,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// Reads the head, to learn from where its session has to reach.
    Look,
    /// Puts its session.
    Open { seen: u8 },
    /// Resolves its version.
    Resolve { seen: u8 },
    /// Resolves once more, which only a mistaken reader does.
    ResolveAgain { first: u8 },
    /// Reads objects, one after another: the blocks of one version and the cubes of another, which normally
    /// are the same version.
    Read { blocks: u8, cubes: u8, next: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Snapshotter {
    /// Chooses the current version.
    Choose,
    /// Checks that it can still be read.
    Look { wanted: u8 },
    /// Puts the snapshot if the head has not changed.
    Put { wanted: u8, head: u8 },
    /// Drops the snapshot.
    Drop { kept: u8 },
}

/// The session cells as a mistaken vacuum saw them, too early.
pub type Early = Option<Vec<Option<u8>>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Vacuum {
    /// Reads the head.
    Start,
    /// A mistaken vacuum looks for sessions before the floor rises.
    LookEarly,
    /// Raises the floor.
    Raise { commit: CommitIndex, early: Early },
    /// Removes sessions that have expired.
    Expire { early: Early },
    /// Looks for readers.
    Scan { early: Early },
    /// Removes history that no process needs.
    Trim { to: u8, remove: Vec<ObjectIndex> },
    /// Removes objects, the last one first.
    Remove { left: Vec<ObjectIndex>, all: Vec<ObjectIndex> },
    /// Forgets the removed objects.
    Forget(CommitIndex),
    /// A mistaken vacuum looks for sessions before it lists.
    ListLate,
    /// Lists the objects in the store.
    List { early: Early },
    /// Looks for sessions.
    Look { listed: Vec<ObjectIndex>, early: Early },
    /// Removes orphans, the last one first.
    Sweep { left: Vec<ObjectIndex> },
}

impl State {
    pub fn head(&self) -> u8 {
        u8::try_from(self.history.len() - 1).unwrap()
    }

    pub fn at_head(&self) -> RecordIndex {
        self.history[usize::from(self.head())]
    }

    pub fn has(&self, object: ObjectIndex) -> bool {
        self.present.binary_search(&object).is_ok()
    }

    pub fn put(&mut self, object: ObjectIndex) {
        if let Err(place) = self.present.binary_search(&object) {
            self.present.insert(place, object);
        }
    }

    pub fn remove(&mut self, object: ObjectIndex) {
        if let Ok(place) = self.present.binary_search(&object) {
            self.present.remove(place);
        }
    }

    pub fn send(&mut self, flight: Flight) {
        self.flights.push(flight);
        self.flights.sort();
    }

    /// Whether a process can never act again.
    pub fn is_over(&self, actor: usize) -> bool {
        matches!(self.actors[actor].at, At::Ended | At::Crashed)
    }

    /// The number of a process's present session; each process may have [`SESSIONS_EACH`].
    pub fn session(&self, actor: usize) -> u8 {
        let of_actor = usize::from(SESSIONS_EACH) * actor;
        u8::try_from(of_actor).unwrap() + self.actors[actor].incarnation
    }

    pub fn session_stands(&self, session: u8) -> bool {
        self.sessions[usize::from(session)].is_some()
    }

    /// Ends a process that is done.
    pub fn end(&mut self, actor: usize) {
        let session = self.session(actor);
        self.sessions[usize::from(session)] = None;
        self.actors[actor].at = At::Ended;
    }
}

/// The number of sessions that a process may have, one after another.
pub const SESSIONS_EACH: u8 = 2;

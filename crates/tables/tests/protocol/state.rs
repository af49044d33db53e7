//! States: what the store holds, and where each process stands.

use super::oracle::Rows;
use super::world::{CommitIndex, ObjectIndex, RecordIndex, WishIndex};

/// One state of everything. Two that are equal have the same future.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The edit cells, and with them the head: which record each version is.
    pub history: Vec<RecordIndex>,
    /// Versions below this one have lost their edit cells, unless a snapshot keeps them.
    pub trimmed: u8,
    /// The objects in the store, sorted.
    pub present: Vec<ObjectIndex>,
    /// The session cells: from which version each session reads, if it is there.
    pub sessions: Vec<Option<u8>>,
    /// The snapshot cells: the versions that they keep, sorted.
    pub snapshots: Vec<u8>,
    /// Writes whose outcome their processes do not know, which may land at any time or never; sorted.
    pub flights: Vec<Flight>,
    /// The processes.
    pub actors: Vec<Actor>,
    /// The rows of the steps that were acknowledged to a simulation.
    pub acknowledged: Rows,
    /// How many processes may still crash.
    pub crashes_left: u8,
}

/// A write on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flight {
    /// A conditional write that makes `wish` true if the head is `base` and the session stands.
    Commit { wish: WishIndex, base: u8, session: u8 },
    /// An object.
    Create(ObjectIndex),
    /// A session, if it is absent.
    Open { session: u8, from: u8 },
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    /// Where it stands.
    pub at: At,
    /// How many of its writes may still have an unknown outcome.
    pub doubts_left: u8,
    /// How many sessions it had before this one.
    pub incarnation: u8,
    /// How often it started over.
    pub tries: u8,
}

/// Where a process stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// It was killed. Its session stays.
    Crashed,
    /// It is done and has closed its session.
    Ended,
    Writer(Writer),
    Packer(Packer),
    /// The delete on its way.
    Deleter(CommitIndex),
    /// The column on its way.
    Adder(CommitIndex),
    Reader(Reader),
    Snapshotter(Snapshotter),
    Vacuum(Vacuum),
}

/// A rank of a simulation; `step` is the place in its list of steps.
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
    /// Waits until its steps are visible, and tells the simulation.
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
    /// Makes its pack true.
    Commit { object: Option<ObjectIndex>, commit: CommitIndex },
    /// Lost: removes its object.
    Discard(ObjectIndex),
}

/// What a packer has in mind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// What it reads.
    pub inputs: Vec<ObjectIndex>,
    /// What it writes; none if nothing is alive.
    pub object: Option<ObjectIndex>,
    /// The pack.
    pub commit: CommitIndex,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// Reads the head, to know from where its session has to reach.
    Look,
    /// Puts its session.
    Open { seen: u8 },
    /// Resolves its version.
    Resolve { seen: u8 },
    /// Resolves once more, which only a mistaken reader does.
    ResolveAgain { first: u8 },
    /// Reads objects, one after another, of the blocks of one version and the cubes of another; they are the
    /// same.
    Read { blocks: u8, cubes: u8, next: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Snapshotter {
    /// Chooses a version: the one that is current now.
    Choose,
    /// Looks whether it can still be read.
    Look { wanted: u8 },
    /// Puts the snapshot if the head is as it was.
    Put { wanted: u8, head: u8 },
    /// Drops it.
    Drop { kept: u8 },
}

/// The session cells as a mistaken vacuum saw them, too early.
pub type Early = Option<Vec<Option<u8>>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Vacuum {
    /// Reads the head.
    Start,
    /// A mistaken one looks who is there before the floor rises.
    LookEarly,
    /// Raises the floor.
    Raise { commit: CommitIndex, early: Early },
    /// Removes sessions that have expired.
    Expire { early: Early },
    /// Looks who reads what.
    Scan { early: Early },
    /// Takes history that nobody needs.
    Trim { to: u8, remove: Vec<ObjectIndex> },
    /// Removes objects, the last one first.
    Remove { left: Vec<ObjectIndex>, all: Vec<ObjectIndex> },
    /// Forgets them.
    Forget(CommitIndex),
    /// A mistaken one looks who is there before it lists.
    ListLate,
    /// Lists the objects of the store.
    List { early: Early },
    /// Looks who is there.
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

    /// The number of the session that a process has now; each may have [`SESSIONS_EACH`].
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

/// How many sessions a process may have, one after another.
pub const SESSIONS_EACH: u8 = 2;

//! The model: a store, the processes of a scenario, and everything that may happen next.
//!
//! Each step is one atomic operation of the store. The local work of a process is part of the step before it.
//! Sessions rise and close in the same step as the read that allows it, which is the earliest possible
//! moment: every later one protects more.

use super::mistake::Mistake;
use super::oracle::Rows;
use super::scenario::{RUN, Role, Scenario, block};
use super::state::{Actor, At, Flight, Reader, SESSIONS_EACH, Snapshotter, State, Vacuum, Writer};
use super::world::{CommitIndex, ObjectIndex, RecordIndex, Violation, WishIndex, World, begun_anyway};
use atoll_tables::protocol::{
    Block, BlockId, Commit, Edit, EditError, Ended, Extent, Form, Head, Holders, LastStep, Outcome, Piece,
    Proposal, Session, SessionId, Step, StepRange, Version, View, WeightRange,
};
use std::collections::BTreeSet;

/// The possible next steps: for each, what happens and the state after it.
pub type Next = Vec<(&'static str, State)>;

/// The progress of a commit.
pub enum Progress {
    Going(CommitIndex),
    /// The outcome of the last write is unknown.
    InDoubt(CommitIndex),
    Over(Ended),
}

/// Computes the moves of a scenario.
pub struct Model {
    pub world: World,
    pub scenario: Scenario,
    /// The version at the beginning.
    pub start: u8,
    /// How commits ended, in the words of the protocol.
    pub endings: BTreeSet<String>,
}

/// The session that prepared the table.
const SETUP: SessionId = SessionId(u128::MAX);

pub fn version(number: u8) -> Version {
    Version(u64::from(number))
}

pub fn session_id(session: u8) -> SessionId {
    SessionId(u128::from(session) + 1)
}

impl Model {
    /// The model and its initial state.
    pub fn new(scenario: Scenario, mistake: Option<Mistake>) -> Result<(Self, State), Violation> {
        let world = World::new(scenario.table(), mistake);
        let mut model = Self { world, scenario, start: 0, endings: BTreeSet::new() };
        let mut state = model.empty();
        model.prepare(&mut state)?;
        model.start = state.head();
        for actor in 0..state.actors.len() {
            state.actors[actor].at = model.first(&mut state, actor);
        }
        Ok((model, state))
    }

    fn empty(&self) -> State {
        let parts = &self.scenario.parts;
        let actor = |doubts_left| Actor { at: At::Ended, doubts_left, incarnation: 0, tries: 0 };
        State {
            history: vec![0],
            trimmed: 0,
            present: Vec::new(),
            sessions: vec![None; parts.len() * usize::from(SESSIONS_EACH)],
            snapshots: Vec::new(),
            flights: Vec::new(),
            actors: parts.iter().map(|part| actor(part.doubts)).collect(),
            acknowledged: 0,
            crashes_left: self.scenario.crashes,
        }
    }

    /// Creates the initial contents of the table.
    fn prepare(&mut self, state: &mut State) -> Result<(), Violation> {
        let ranks = self.scenario.ranks;
        let begin = Edit::Begin { run: RUN.into(), attempt: 1, ranks, last: LastStep::Any };
        self.set_up(state, begin)?;
        for step in self.scenario.there.clone() {
            let blocks: Vec<_> = (0..self.scenario.ranks).map(|rank| block(1, step, rank)).collect();
            let blocks = blocks.into_iter().map(|id| self.written(state, SETUP, id)).collect();
            self.set_up(state, Edit::Append { blocks })?;
        }
        if self.scenario.is_packed {
            let planned = self.planned(state.at_head(), state.head(), false, SETUP, 0);
            let Some((_, object, edit)) = planned else {
                return Violation::found("there is nothing to pack");
            };
            object.into_iter().for_each(|object| state.put(object));
            self.set_up(state, edit)?;
        }
        Ok(())
    }

    fn set_up(&mut self, state: &mut State, edit: Edit) -> Result<(), Violation> {
        let wish = self.world.wish(SETUP, edit);
        self.land(state, wish, state.head())
    }

    fn written(&mut self, state: &mut State, session: SessionId, id: BlockId) -> Block {
        let (object, block) = self.block(session, (0, 0), id);
        state.put(object);
        block
    }

    /// A block in an object of its own, with this tag and `columns` added columns.
    pub fn block(
        &mut self,
        session: SessionId,
        (tag, columns): (u8, usize),
        id: BlockId,
    ) -> (ObjectIndex, Block) {
        let rows = self.world.table.block(&id);
        let object = self.world.object(session, tag, vec![rows], columns);
        let extent = Extent { run: Some(id.run.clone()), steps: StepRange::only(id.step) };
        let piece = self.piece(object, 0, WeightRange::ALL, rows, extent);
        (object, Block { id, time: None, piece: Some(piece) })
    }

    pub fn piece(
        &self,
        object: ObjectIndex,
        part: u32,
        weights: WeightRange,
        rows: Rows,
        extent: Extent,
    ) -> Piece {
        let rows = u64::from(rows.count_ones());
        let object = self.world.object_id(object);
        Piece {
            object,
            part,
            form: Form::Block,
            weights,
            rows,
            bytes: 0,
            front_bytes: 0,
            extent,
            tight: None,
        }
    }

    /// The initial position of a process; most have their session already.
    fn first(&mut self, state: &mut State, actor: usize) -> At {
        let session = usize::from(state.session(actor));
        let me = session_id(state.session(actor));
        state.sessions[session] = Some(self.start);
        match self.scenario.parts[actor].role.clone() {
            Role::Writer { attempt, begins: Some((ranks, last)), .. } => {
                let edit = Edit::Begin { run: RUN.into(), attempt, ranks, last };
                At::Writer(Writer::Begin(self.world.commit(me, edit)))
            }
            Role::Writer { adds: Some(column), .. } => {
                At::Writer(Writer::AddColumn(self.world.commit(me, Edit::AddColumn { column })))
            }
            Role::Adder { column } => At::Adder(self.world.commit(me, Edit::AddColumn { column })),
            Role::Writer { opens_late: true, .. } => {
                state.sessions[session] = None;
                At::Writer(Writer::Open { step: 0 })
            }
            Role::Writer { .. } => At::Writer(Writer::Create { step: 0 }),
            Role::Packer { .. } => At::Packer(super::state::Packer::Plan),
            Role::Deleter { scope } => At::Deleter(self.world.commit(me, Edit::Delete { scope })),
            Role::Reader { .. } => {
                state.sessions[session] = None;
                At::Reader(Reader::Look)
            }
            Role::Snapshotter => {
                state.sessions[session] = None;
                At::Snapshotter(Snapshotter::Choose)
            }
            Role::Vacuum { .. } => At::Vacuum(Vacuum::Start),
        }
    }

    /// Everything that a process may do next.
    pub fn steps_of(&mut self, state: &State, actor: usize) -> Result<Next, Violation> {
        match state.actors[actor].at.clone() {
            At::Crashed | At::Ended => Ok(Vec::new()),
            At::Writer(at) => self.writer(state, actor, &at),
            At::Packer(at) => self.packer(state, actor, at),
            At::Deleter(commit) => self.deleter(state, actor, commit),
            At::Adder(commit) => self.adder(state, actor, commit),
            At::Reader(at) => self.reader(state, actor, &at),
            At::Snapshotter(at) => self.snapshotter(state, actor, &at),
            At::Vacuum(at) => self.vacuum(state, actor, at),
        }
    }

    /// Everything that may happen to writes under way: each lands, or never will.
    pub fn flights_of(&mut self, state: &State) -> Result<Next, Violation> {
        let mut next = Vec::new();
        for (place, flight) in state.flights.iter().enumerate() {
            let mut lost = state.clone();
            lost.flights.remove(place);
            let mut landed = lost.clone();
            match *flight {
                Flight::Create(object) => landed.put(object),
                Flight::Open { session, from } => {
                    landed.sessions[usize::from(session)].get_or_insert(from);
                }
                Flight::Commit { wish, base, session } => {
                    if self.holds(state, base, session) {
                        self.land(&mut landed, wish, base)?;
                    }
                }
            }
            next.push(("a write is lost", lost));
            next.push(("a write lands late", landed));
        }
        Ok(next)
    }

    /// Whether the condition of a commit's write holds.
    fn holds(&self, state: &State, base: u8, session: u8) -> bool {
        let head = state.head() == base || self.world.has(Mistake::CommitWithoutHead);
        head && (state.session_stands(session) || self.world.has(Mistake::CommitWithoutSession))
    }

    /// Carries out a wish.
    fn land(&mut self, state: &mut State, wish: WishIndex, base: u8) -> Result<(), Violation> {
        let made = self.world.make(state.history[usize::from(base)], wish)?;
        if base != state.head() {
            return Violation::found(format!("version {} names two contents", base + 1));
        }
        state.history.push(made);
        // Writes under way whose condition can never hold again count as lost.
        let mut flights = std::mem::take(&mut state.flights);
        flights.retain(|flight| match flight {
            Flight::Commit { base, session, .. } => self.holds(state, *base, *session),
            Flight::Create(_) | Flight::Open { .. } => true,
        });
        state.flights = flights;
        Ok(())
    }

    /// The next step of a commit, in each way in which it may go.
    pub fn commit(
        &mut self,
        state: &State,
        actor: usize,
        commit: CommitIndex,
    ) -> Result<Vec<(State, Progress)>, Violation> {
        let (wish, machine) = self.world.on_its_way(commit);
        match machine.step() {
            Step::Look => Ok(vec![self.look(state, actor, wish, machine)?]),
            Step::Write(proposal) => self.propose(state, actor, (wish, machine), proposal),
            Step::Ended => Violation::found("a commit goes on after its end"),
        }
    }

    fn look(
        &mut self,
        state: &State,
        actor: usize,
        wish: WishIndex,
        mut machine: Commit,
    ) -> Result<(State, Progress), Violation> {
        let (mut next, head) = (state.clone(), state.head());
        let session = state.session(actor);
        if machine.doubt().is_none() {
            rise(&mut next, session, head);
        }
        let stands = state.session_stands(session);
        let view = View {
            head: Head { version: version(head), full: Version::EMPTY },
            manifest: &self.world.record(self.shown(state, machine.edit())).manifest,
            session_stands: stands || self.world.has(Mistake::CommitWithoutSession),
        };
        let maker = |tried: Version| {
            let number = u8::try_from(tried.0).unwrap();
            let is_there = number >= state.trimmed || state.snapshots.contains(&number);
            is_there.then(|| self.world.record(state.history[usize::from(number)]).id)
        };
        let ended = machine.saw(view, maker);
        if stands && ended == Some(Ended::Forgotten) {
            return Violation::found("the history that a process in doubt needs is gone");
        }
        Ok((next, self.progress(wish, machine, ended)))
    }

    /// The version that a process takes for the current one.
    fn shown(&self, state: &State, edit: &Edit) -> RecordIndex {
        match (self.world.mistake, edit) {
            (Some(Mistake::PackIgnoresSupersede), Edit::Pack { base, .. }) => {
                state.history[usize::try_from(base.0).unwrap()]
            }
            (Some(Mistake::AppendWithoutLooking), Edit::Append { .. } | Edit::Load { .. }) => {
                state.history[usize::from(self.start)]
            }
            (Some(Mistake::BeginOverlooksSteps), Edit::Begin { .. }) => {
                let head = &self.world.record(state.at_head()).manifest;
                let went_on = matches!(head.apply(edit), Err(EditError::RunWentOn { .. }));
                let is_overlooked = went_on && begun_anyway(head, edit).is_some();
                if is_overlooked { state.history[usize::from(self.start)] } else { state.at_head() }
            }
            (Some(Mistake::LoadPassesArriving), Edit::Load { .. }) => {
                let next = self.world.record(state.at_head()).manifest.apply(edit);
                let is_arriving = matches!(next, Err(EditError::StepArriving { .. }));
                if is_arriving { state.history[usize::from(self.start)] } else { state.at_head() }
            }
            (Some(Mistake::SkipPasses), Edit::Append { .. }) => {
                let next = self.world.record(state.at_head()).manifest.apply(edit);
                let skips = matches!(next, Err(EditError::Skipped { .. }));
                if skips { state.history[usize::from(self.start)] } else { state.at_head() }
            }
            _ => state.at_head(),
        }
    }

    fn propose(
        &mut self,
        state: &State,
        actor: usize,
        (wish, machine): (WishIndex, Commit),
        proposal: Proposal,
    ) -> Result<Vec<(State, Progress)>, Violation> {
        let base = u8::try_from(proposal.base.version.0).unwrap();
        let session = state.session(actor);
        let holds = self.holds(state, base, session);
        let (mut next, mut told) = (state.clone(), machine.clone());
        if holds {
            self.land(&mut next, wish, base)?;
        }
        let ended = told.wrote(if holds { Outcome::Done } else { Outcome::Refused });
        let mut ways = vec![(next, self.progress(wish, told, ended))];
        if holds && state.actors[actor].doubts_left > 0 {
            let (mut next, mut untold) = (state.clone(), machine);
            next.actors[actor].doubts_left -= 1;
            next.send(Flight::Commit { wish, base, session });
            untold.wrote(Outcome::Unknown);
            ways.push((next, Progress::InDoubt(self.world.keep(wish, untold))));
        }
        Ok(ways)
    }

    fn progress(&mut self, wish: WishIndex, machine: Commit, ended: Option<Ended>) -> Progress {
        match ended {
            Some(how) => {
                self.endings.insert(ending(&how));
                Progress::Over(how)
            }
            None => Progress::Going(self.world.keep(wish, machine)),
        }
    }

    /// The holders of old versions, by the cells.
    pub fn holders(&self, state: &State, sessions: &[Option<u8>]) -> Holders {
        let there = sessions.iter().enumerate().filter_map(|(place, from)| Some((place, (*from)?)));
        let session = |from| Session { from: version(from) };
        Holders {
            sessions: there
                .map(|(place, from)| (session_id(u8::try_from(place).unwrap()), session(from)))
                .collect(),
            snapshots: state.snapshots.iter().map(|kept| version(*kept)).collect(),
        }
    }
}

/// The name of an ending, without its numbers.
fn ending(how: &Ended) -> String {
    let name = |part: &str| part.chars().take_while(|letter| letter.is_alphabetic()).collect::<String>();
    match how {
        Ended::Refused(error) => name(&format!("{error:?}")),
        _ => name(&format!("{how:?}")),
    }
}

/// Lets a session rise to a version, if it stands.
pub fn rise(state: &mut State, session: u8, to: u8) {
    if let Some(from) = &mut state.sessions[usize::from(session)] {
        *from = to.max(*from);
    }
}

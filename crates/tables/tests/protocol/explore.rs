//! The explorer: every state that a scenario can reach, breadth first, each judged once.
//!
//! A state is identified by a 128-bit hash; two of some million states collide with a probability of 1 in
//! 10^25. The move that led to each state is kept too, so that a violation comes with its shortest story.

use super::mistake::Mistake;
use super::model::{Model, Next};
use super::scenario::Scenario;
use super::state::{At, State};
use super::world::Violation;
use atoll_tables::protocol::{Holders, ObjectId};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// The most states of a scenario; a larger one takes too long for a test that runs with every commit.
const STATES_MAX: usize = 4_000_000;

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// The number of distinct states.
    pub states: usize,
    /// The number of transitions between them.
    pub steps: usize,
    /// The number of states in which every process has ended.
    pub ends: usize,
    /// The number of distinct contents of versions.
    pub versions: usize,
    /// The length of the longest of the shortest paths.
    pub depth: usize,
    /// The ways in which commits ended.
    pub endings: BTreeSet<String>,
}

/// A broken promise, and the moves that led to it.
pub struct Counterexample {
    pub violation: Violation,
    pub story: Vec<String>,
}

/// A move into a state: the state before, the process that moved (255 for the store), and what happened.
type Move = (u32, u8, &'static str);

/// The store itself moves: a write under way lands or is lost.
const STORE: u8 = u8::MAX;

struct Explorer {
    model: Model,
    seen: HashSet<u128, BuildHasherDefault<Folded>>,
    moves: Vec<Move>,
    waiting: VecDeque<(u32, usize, State)>,
    explored: Explored,
}

/// Explores a scenario, optionally with a planted mistake.
pub fn explore(scenario: Scenario, mistake: Option<Mistake>) -> Result<Explored, Counterexample> {
    let unborn = |violation| Counterexample { violation, story: Vec::new() };
    let (model, first) = Model::new(scenario, mistake).map_err(unborn)?;
    let mut explorer = Explorer {
        model,
        seen: HashSet::default(),
        moves: Vec::new(),
        waiting: VecDeque::new(),
        explored: Explored::default(),
    };
    explorer.meet((0, STORE, "everything is prepared"), 0, first)?;
    while let Some((index, depth, state)) = explorer.waiting.pop_front() {
        explorer.expand(index, depth, &state)?;
    }
    explorer.explored.states = explorer.moves.len();
    explorer.explored.versions = explorer.model.world.versions();
    explorer.explored.endings = explorer.model.endings;
    Ok(explorer.explored)
}

impl std::fmt::Display for Explored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { states, steps, ends, versions, depth, endings } = self;
        let endings = endings.iter().cloned().collect::<Vec<_>>().join(", ");
        write!(f, "{states} states, {steps} steps, {ends} ends, {versions} versions, {depth} deep; {endings}")
    }
}

impl Explorer {
    /// Visits everything that may happen next in a state.
    fn expand(&mut self, index: u32, depth: usize, state: &State) -> Result<(), Counterexample> {
        self.explored.depth = depth;
        let mut can_go_on = false;
        for actor in 0..state.actors.len() {
            let name = u8::try_from(actor).unwrap();
            let steps = self.model.steps_of(state, actor);
            let steps = steps.map_err(|violation| self.told(violation, (index, name, "goes on")))?;
            can_go_on |= !steps.is_empty();
            self.meet_all(index, depth, name, steps)?;
            if state.crashes_left > 0 && !state.is_over(actor) {
                self.meet((index, name, "crashes"), depth + 1, crashed(state, actor))?;
            }
        }
        let flights = self.model.flights_of(state);
        let flights =
            flights.map_err(|violation| self.told(violation, (index, STORE, "a write lands late")))?;
        can_go_on |= !flights.is_empty();
        self.meet_all(index, depth, STORE, flights)?;
        if can_go_on {
            return Ok(());
        }
        self.explored.ends += 1;
        let at_rest = self.at_rest(state);
        at_rest.map_err(|violation| self.told(violation, (index, STORE, "everything has ended")))
    }

    fn meet_all(&mut self, index: u32, depth: usize, who: u8, steps: Next) -> Result<(), Counterexample> {
        for (what, next) in steps {
            self.meet((index, who, what), depth + 1, next)?;
        }
        Ok(())
    }

    /// Judges a new state, and queues it for expansion.
    fn meet(&mut self, way: Move, depth: usize, state: State) -> Result<(), Counterexample> {
        self.explored.steps += 1;
        if !self.seen.insert(fingerprint(&state)) {
            return Ok(());
        }
        self.check(&state).map_err(|violation| self.told(violation, way))?;
        let index = u32::try_from(self.moves.len()).unwrap();
        self.moves.push(way);
        self.waiting.push_back((index, depth, state));
        assert!(self.moves.len() <= STATES_MAX, "{}: too many states", self.model.scenario.name);
        Ok(())
    }

    /// Checks what must hold in every state. The rows of a version were judged when it was made.
    fn check(&self, state: &State) -> Result<(), Violation> {
        let head = self.model.world.record(state.at_head());
        let floor = u8::try_from(head.manifest.floor.0).unwrap();
        for number in (floor..=state.head()).chain(state.snapshots.iter().copied()) {
            let record = self.model.world.record(state.history[usize::from(number)]);
            if record.manifest.version.0 != u64::from(number) {
                return Violation::found(format!("version {number} has the content of another"));
            }
            if record.named.iter().any(|object| !state.has(*object)) {
                return Violation::found(format!("version {number} names an object that is not there"));
            }
        }
        if state.acknowledged & !head.oracle.ever != 0 {
            let lost = self.model.world.table.names(state.acknowledged & !head.oracle.ever);
            return Violation::found(format!("acknowledged, but never visible: [{lost}]"));
        }
        if state.trimmed > floor {
            return Violation::found(format!(
                "history from {} is gone, but not readable from",
                state.trimmed
            ));
        }
        Ok(())
    }

    /// Checks what must hold when nothing more can happen: only processes that a crash has left alone may be
    /// stuck, and one vacuum leaves only what it should.
    fn at_rest(&self, state: &State) -> Result<(), Violation> {
        let somebody_crashed = state.actors.iter().any(|actor| actor.at == At::Crashed);
        let is_stuck = (0..state.actors.len()).any(|actor| !state.is_over(actor));
        if is_stuck && !somebody_crashed {
            return Violation::found("somebody waits for ever");
        }
        let mut holders = self.model.holders(state, &state.sessions);
        self.check_vacuumed(state, &holders)?;
        holders.sessions.clear();
        self.check_vacuumed(state, &holders)
    }

    /// Checks that after one vacuum there is only what a version names, what a reader or a snapshot needs,
    /// and what a session wrote that has not expired.
    fn check_vacuumed(&self, state: &State, holders: &Holders) -> Result<(), Violation> {
        let (left, manifest) = self.model.vacuumed(state, holders);
        let world = &self.model.world;
        if let Some(lost) = manifest.objects().find(|object| !left.contains(&world.index_of(*object))) {
            return Violation::found(format!("a vacuum removed object {}, which is named", lost.sequence));
        }
        if holders.sessions.is_empty() && holders.snapshots.is_empty() && !manifest.retired.is_empty() {
            return Violation::found("a vacuum leaves objects that have left the versions");
        }
        let named: Vec<_> = manifest.objects().chain(manifest.retired.keys().copied()).collect();
        let is_owned = |id: ObjectId| named.contains(&id) || holders.sessions.contains_key(&id.session);
        match left.iter().find(|object| !is_owned(world.object_id(**object))) {
            Some(object) => Violation::found(format!("a vacuum leaves object {object}, which nobody owns")),
            None => Ok(()),
        }
    }

    /// A violation with the story that leads to it.
    fn told(&self, violation: Violation, last: Move) -> Counterexample {
        let mut ways = vec![last];
        let mut index = last.0;
        while index != 0 {
            let way = self.moves[index as usize];
            ways.push(way);
            index = way.0;
        }
        let story = ways.iter().rev().map(|(_, who, what)| self.line(*who, what)).collect();
        Counterexample { violation, story }
    }

    fn line(&self, who: u8, what: &str) -> String {
        match self.model.scenario.parts.get(usize::from(who)) {
            Some(part) => {
                let role = format!("{:?}", part.role);
                let kind = role.split([' ', '{']).next().unwrap_or_default();
                format!("{kind} {who} {what}")
            }
            None => what.to_owned(),
        }
    }
}

fn crashed(state: &State, actor: usize) -> State {
    let mut next = state.clone();
    next.crashes_left -= 1;
    next.actors[actor].at = At::Crashed;
    next
}

fn fingerprint(state: &State) -> u128 {
    let mut two = [Folded(0x9E37_79B9_7F4A_7C15), Folded(0xC2B2_AE3D_27D4_EB4F)];
    two.iter_mut().for_each(|hasher| state.hash(hasher));
    (u128::from(two[0].finish()) << 64) | u128::from(two[1].finish())
}

/// Odd numbers without a pattern.
const MULTIPLIER: u64 = 0xA076_1D64_78BD_642F;
const INCREMENT: u64 = 0x1656_67B1_9E37_79F9;

/// A hash by multiplying to 128 bits and folding the halves.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        self.0 = (wide as u64 ^ (wide >> 64) as u64).wrapping_add(INCREMENT).rotate_left(29);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

//! The steps of writers, packers and deleters.

use super::mistake::Mistake;
use super::model::{Model, Next, Progress, rise, session_id, version};
use super::scenario::{RUN, Role, block};
use super::state::{At, Flight, Packer, Plan, SESSIONS_EACH, State, Writer};
use super::world::{CUBES, CommitIndex, ObjectIndex, RecordIndex, Violation};
use atoll_tables::protocol::{
    Edit, EditError, Ended, Extent, LoadedStep, Placed, Removal, RunId, SessionId, StepRange, WeightRange,
};

/// The weights of light rows.
const LIGHT_WEIGHTS: WeightRange = WeightRange { from: 0, to: Some(2) };

impl Model {
    pub fn writer(&mut self, state: &State, actor: usize, at: &Writer) -> Result<Next, Violation> {
        match *at {
            Writer::Open { step } => Ok(self.open(state, actor, step)),
            Writer::Begin(commit) => self.begin(state, actor, commit),
            Writer::AddColumn(commit) => self.add_column(state, actor, commit),
            Writer::Create { step } => Ok(self.create_block(state, actor, step)),
            Writer::Append { step, commit } => self.append(state, actor, step, commit),
            Writer::Flush => Ok(self.flush(state, actor)),
        }
    }

    /// Puts a session. If the outcome is unknown, puts a different one: the first may land after a vacuum has
    /// already ended it.
    fn open(&self, state: &State, actor: usize, step: u8) -> Next {
        let (mut done, from, session) = (state.clone(), state.head(), state.session(actor));
        done.sessions[usize::from(session)].get_or_insert(from);
        done.actors[actor].at = At::Writer(Writer::Create { step });
        let mut ways = vec![("puts a session", done)];
        if state.actors[actor].doubts_left > 0 {
            let mut unknown = state.clone();
            unknown.actors[actor].doubts_left -= 1;
            unknown.send(Flight::Open { session, from });
            if !self.world.has(Mistake::PutSessionAgain) {
                take_another_session(&mut unknown, actor, step);
            }
            ways.push(("puts a session, in doubt", unknown));
        }
        ways
    }

    fn begin(&mut self, state: &State, actor: usize, commit: CommitIndex) -> Result<Next, Violation> {
        let mut ways = Vec::new();
        for (mut next, progress) in self.commit(state, actor, commit)? {
            match progress {
                Progress::Going(commit) | Progress::InDoubt(commit) => {
                    next.actors[actor].at = At::Writer(Writer::Begin(commit));
                }
                Progress::Over(Ended::Made(_) | Ended::Refused(EditError::AlreadyDone)) => {
                    next.actors[actor].at = At::Writer(Writer::Create { step: 0 });
                }
                Progress::Over(_) => next.end(actor),
            }
            ways.push(("begins its attempt", next));
        }
        Ok(ways)
    }

    /// Adds the column that it will write. If the outcome is unknown, it waits until it knows.
    fn add_column(&mut self, state: &State, actor: usize, commit: CommitIndex) -> Result<Next, Violation> {
        let hurries = self.world.has(Mistake::ColumnUsedInDoubt);
        let mut ways = Vec::new();
        for (mut next, progress) in self.commit(state, actor, commit)? {
            match progress {
                Progress::InDoubt(_) if hurries => {
                    next.actors[actor].at = At::Writer(Writer::Create { step: 0 });
                }
                Progress::Going(commit) | Progress::InDoubt(commit) => {
                    next.actors[actor].at = At::Writer(Writer::AddColumn(commit));
                }
                Progress::Over(
                    Ended::Made(_) | Ended::Refused(EditError::AlreadyDone | EditError::ColumnThere { .. }),
                ) => {
                    next.actors[actor].at = At::Writer(Writer::Create { step: 0 });
                }
                Progress::Over(Ended::Refused(error)) => {
                    return Violation::found(format!("a column is refused: {error}"));
                }
                Progress::Over(_) => next.end(actor),
            }
            ways.push(("adds its column", next));
        }
        Ok(ways)
    }

    pub fn adder(&mut self, state: &State, actor: usize, commit: CommitIndex) -> Result<Next, Violation> {
        let mut ways = Vec::new();
        for (mut next, progress) in self.commit(state, actor, commit)? {
            match progress {
                Progress::Going(commit) | Progress::InDoubt(commit) => {
                    next.actors[actor].at = At::Adder(commit);
                }
                Progress::Over(_) => next.end(actor),
            }
            ways.push(("adds a column", next));
        }
        Ok(ways)
    }

    fn create_block(&mut self, state: &State, actor: usize, step: u8) -> Next {
        let Role::Writer { attempt, rank, steps, adds, loads, .. } = &self.scenario.parts[actor].role else {
            return Vec::new();
        };
        if *loads {
            let (attempt, steps) = (*attempt, steps.clone());
            return self.create_load(state, actor, attempt, &steps);
        }
        let id = block(*attempt, steps[usize::from(step)], *rank);
        let me = session_id(state.session(actor));
        // With the columns of the newest version that it can have seen.
        let seen = self.world.record(state.at_head()).manifest.columns.len();
        let believed = usize::from(adds.is_some() && self.world.has(Mistake::ColumnUsedInDoubt));
        let tag = step + 16 * state.actors[actor].tries;
        let (object, block) = self.block(me, (tag, seen.max(believed)), id);
        let commit = self.world.commit(me, Edit::Append { blocks: vec![block] });
        self.create(state, actor, object, At::Writer(Writer::Append { step, commit }))
    }

    /// Creates one object for all steps of a rank.
    fn create_load(&mut self, state: &State, actor: usize, attempt: u64, steps: &[u64]) -> Next {
        let me = session_id(state.session(actor));
        let rows_of = |model: &Self, step: &u64| model.world.table.step(&block(attempt, *step, 0));
        let rows = steps.iter().fold(0, |rows, step| rows | rows_of(self, step));
        let light = rows & self.world.table.rows_where(|row| row.weight == 1);
        let parts = vec![light, rows & !light];
        let columns = self.world.record(state.at_head()).manifest.columns.len();
        let object = self.world.object(me, CUBES + state.actors[actor].tries, parts.clone(), columns);
        let (first, last) = (steps[0], steps[steps.len() - 1]);
        let extent = Extent { run: Some(RUN.into()), steps: StepRange { from: first, to: Some(last + 1) } };
        let piece = |(part, rows)| self.piece(object, part, WeightRange::ALL, rows, extent.clone());
        let add = (0..).zip(parts).map(piece).collect();
        let loaded = |step: &u64| {
            let rows = u64::from(rows_of(self, step).count_ones());
            LoadedStep { step: *step, time: None, rows }
        };
        let steps: Vec<LoadedStep> = steps.iter().map(loaded).collect();
        let step = u8::try_from(steps.len() - 1).unwrap();
        let commit = self.world.commit(me, Edit::Load { run: RUN.into(), attempt, steps, add });
        self.create(state, actor, object, At::Writer(Writer::Append { step, commit }))
    }

    /// Creates an object and continues; if the outcome is unknown, creates it again.
    fn create(&self, state: &State, actor: usize, object: ObjectIndex, then: At) -> Next {
        let mut done = state.clone();
        done.put(object);
        done.actors[actor].at = then;
        let mut ways = vec![("creates an object", done)];
        if self.scenario.creates_in_doubt && state.actors[actor].doubts_left > 0 {
            let mut unknown = state.clone();
            unknown.actors[actor].doubts_left -= 1;
            unknown.send(Flight::Create(object));
            ways.push(("creates an object, in doubt", unknown));
        }
        ways
    }

    fn append(
        &mut self,
        state: &State,
        actor: usize,
        step: u8,
        commit: CommitIndex,
    ) -> Result<Next, Violation> {
        let mut ways = Vec::new();
        for (mut next, progress) in self.commit(state, actor, commit)? {
            match progress {
                Progress::Going(commit) => {
                    next.actors[actor].at = At::Writer(Writer::Append { step, commit });
                }
                Progress::InDoubt(commit) => self.append_in_doubt(&mut next, actor, step, commit),
                Progress::Over(ended) => self.appended(&mut next, actor, step, ended)?,
            }
            ways.push(("appends a block", next));
        }
        Ok(ways)
    }

    fn append_in_doubt(&self, next: &mut State, actor: usize, step: u8, commit: CommitIndex) {
        let rows = self.rows_of_step(actor, step);
        match self.world.mistake {
            Some(Mistake::AppendWithoutLooking) => {
                next.actors[actor].tries += 1;
                next.actors[actor].at = At::Writer(Writer::Create { step });
            }
            Some(Mistake::AcknowledgeInDoubt) => {
                next.acknowledged |= rows;
                next.actors[actor].at = self.after_step(actor, step);
            }
            _ => next.actors[actor].at = At::Writer(Writer::Append { step, commit }),
        }
    }

    fn appended(&self, next: &mut State, actor: usize, step: u8, ended: Ended) -> Result<(), Violation> {
        match ended {
            Ended::Made(_) | Ended::Refused(EditError::AlreadyDone) => {
                next.actors[actor].at = self.after_step(actor, step);
            }
            Ended::Refused(EditError::StaleAttempt { .. }) => next.end(actor),
            // The program ends with this error, and leaves the others alone.
            Ended::Refused(error @ EditError::Skipped { .. }) if self.skips(&error) => {
                next.actors[actor].at = At::Crashed;
            }
            Ended::Refused(error) if self.may_refuse(next, actor, step, &error) => next.end(actor),
            Ended::Refused(error) => return Violation::found(format!("an append is refused: {error}")),
            Ended::Fenced | Ended::Forgotten => take_another_session(next, actor, step),
        }
        Ok(())
    }

    /// Whether a step may be refused because of its order. It may not once another rank's rows of the step
    /// are there, which would then wait for ever.
    fn may_refuse(&self, state: &State, actor: usize, step: u8, error: &EditError) -> bool {
        let Role::Writer { steps, loads, .. } = &self.scenario.parts[actor].role else { return false };
        let manifest = &self.world.record(state.at_head()).manifest;
        let Some(run) = manifest.runs.get(&RunId::from(RUN)) else { return false };
        match error {
            EditError::StepArriving { .. } => *loads,
            EditError::StepOrder { .. } => *loads || !run.arriving.contains_key(&steps[usize::from(step)]),
            _ => false,
        }
    }

    /// Whether a process of this scenario skips the step that is lost.
    fn skips(&self, error: &EditError) -> bool {
        let EditError::Skipped { id, lost, rank: skipping, .. } = error else { return false };
        let has_it = |role: &Role| match role {
            Role::Writer { attempt, rank, steps, .. } => {
                (*attempt, *rank) == (id.attempt, *skipping) && steps.contains(lost)
            }
            _ => false,
        };
        !self.scenario.parts.iter().any(|part| has_it(&part.role))
    }

    fn after_step(&self, actor: usize, step: u8) -> At {
        let Role::Writer { steps, .. } = &self.scenario.parts[actor].role else { return At::Ended };
        let is_last = usize::from(step) + 1 == steps.len();
        At::Writer(if is_last { Writer::Flush } else { Writer::Create { step: step + 1 } })
    }

    fn rows_of_step(&self, actor: usize, step: u8) -> super::oracle::Rows {
        let Role::Writer { attempt, rank, steps, .. } = &self.scenario.parts[actor].role else { return 0 };
        self.world.table.step(&block(*attempt, steps[usize::from(step)], *rank))
    }

    /// Waits until all of its steps are visible. A rank whose attempt is over learns so.
    fn flush(&self, state: &State, actor: usize) -> Next {
        let Role::Writer { attempt, steps, .. } = &self.scenario.parts[actor].role else { return Vec::new() };
        let manifest = &self.world.record(state.at_head()).manifest;
        let Some(run) = manifest.runs.get(&RunId::from(RUN)) else { return Vec::new() };
        let is_complete =
            steps.iter().all(|step| run.complete.get(step).is_some_and(|there| there.attempt == *attempt));
        let mut next = state.clone();
        next.end(actor);
        if is_complete {
            let places = 0..u8::try_from(steps.len()).unwrap();
            next.acknowledged |= places.fold(0, |rows, step| rows | self.rows_of_step(actor, step));
            vec![("is told that its steps are visible", next)]
        } else if run.attempt > *attempt {
            vec![("is told that its attempt is over", next)]
        } else {
            Vec::new()
        }
    }

    pub fn deleter(&mut self, state: &State, actor: usize, commit: CommitIndex) -> Result<Next, Violation> {
        let mut ways = Vec::new();
        for (mut next, progress) in self.commit(state, actor, commit)? {
            match progress {
                Progress::Going(commit) | Progress::InDoubt(commit) => {
                    next.actors[actor].at = At::Deleter(commit);
                }
                Progress::Over(Ended::Refused(error)) => {
                    return Violation::found(format!("a delete is refused: {error}"));
                }
                Progress::Over(_) => next.end(actor),
            }
            ways.push(("deletes", next));
        }
        Ok(ways)
    }

    pub fn packer(&mut self, state: &State, actor: usize, at: Packer) -> Result<Next, Violation> {
        match at {
            Packer::Plan => Ok(self.plan(state, actor)),
            Packer::Read(plan) => self.read_inputs(state, actor, plan),
            Packer::Create(plan) => {
                let then = At::Packer(Packer::Commit { object: plan.object, commit: plan.commit });
                match plan.object {
                    Some(object) => Ok(self.create(state, actor, object, then)),
                    None => Violation::found("a packer creates nothing"),
                }
            }
            Packer::Commit { object, commit } => self.pack(state, actor, object, commit),
            Packer::Discard(object) => {
                let mut next = state.clone();
                next.remove(object);
                self.try_again(&mut next, actor);
                Ok(vec![("discards its object", next)])
            }
        }
    }

    fn plan(&mut self, state: &State, actor: usize) -> Next {
        let Role::Packer { light_only, .. } = self.scenario.parts[actor].role else { return Vec::new() };
        let (mut next, session) = (state.clone(), state.session(actor));
        rise(&mut next, session, state.head());
        let tries = state.actors[actor].tries;
        let me = session_id(session);
        match self.planned(state.at_head(), state.head(), light_only, me, tries) {
            Some((inputs, object, edit)) if state.session_stands(session) => {
                let commit = self.world.commit(me, edit);
                next.actors[actor].at = At::Packer(Packer::Read(Plan { inputs, object, commit }));
            }
            _ => next.end(actor),
        }
        vec![("resolves and plans", next)]
    }

    /// What to read, what to write, and the edit, for a pack of everything worth packing.
    pub fn planned(
        &mut self,
        record: RecordIndex,
        base: u8,
        light_only: bool,
        session: SessionId,
        tries: u8,
    ) -> Option<(Vec<ObjectIndex>, Option<ObjectIndex>, Edit)> {
        let manifest = self.world.record(record).manifest.clone();
        let is_whole = |placed: &&Placed| placed.piece.weights.covers(&WeightRange { from: 1, to: Some(3) });
        let pieces: Vec<&Placed> = manifest.pieces.values().filter(|p| !light_only || is_whole(p)).collect();
        let weights = if light_only { LIGHT_WEIGHTS } else { WeightRange::ALL };
        let mut inputs: Vec<_> = pieces.iter().map(|p| self.world.index_of(p.piece.object)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let is_worth_it = inputs.len() > 1 || pieces.iter().any(|placed| !self.world.is_cube(placed));
        if inputs.is_empty() || !is_worth_it {
            return None;
        }
        let in_range = self.world.table.rows_where(|row| weights.contains(row.weight));
        let (mut stored, mut live, mut remove) = (0, 0, Vec::new());
        for placed in &pieces {
            let rows = self.world.stored(placed) & in_range;
            stored += rows.count_ones();
            live |= self.world.live(&manifest, placed) & in_range;
            let piece = &placed.piece;
            let taken = if light_only { LIGHT_WEIGHTS } else { piece.weights };
            remove.push(Removal {
                object: piece.object,
                part: piece.part,
                weights: taken,
                rows: u64::from(rows.count_ones()),
            });
        }
        let dropped = u64::from(stored - live.count_ones());
        let extent = extent_of(&pieces, light_only);
        let light = live & self.world.table.rows_where(|row| row.weight == 1);
        let parts = if light_only { vec![light] } else { vec![light, live & !light] };
        let columns = manifest.columns.len();
        let object = (live != 0).then(|| self.world.object(session, CUBES + tries, parts.clone(), columns));
        let mut add = Vec::new();
        for (part, rows) in (0..).zip(parts).filter(|(_, rows)| *rows != 0) {
            add.extend(object.map(|object| self.piece(object, part, weights, rows, extent.clone())));
        }
        Some((inputs, object, Edit::Pack { base: version(base), remove, add, dropped }))
    }

    /// Reads all inputs at the last moment. Objects are only ever removed, so a packer that finds all of them
    /// now would have found each of them before.
    fn read_inputs(&self, state: &State, actor: usize, plan: Plan) -> Result<Next, Violation> {
        let mut next = state.clone();
        if plan.inputs.iter().all(|object| state.has(*object)) {
            let commit = Packer::Commit { object: None, commit: plan.commit };
            let at = if plan.object.is_some() { Packer::Create(plan) } else { commit };
            next.actors[actor].at = At::Packer(at);
        } else if state.session_stands(state.session(actor)) {
            return Violation::found("a packer's input was removed under it");
        } else {
            next.end(actor);
        }
        Ok(vec![("reads its inputs", next)])
    }

    fn pack(
        &mut self,
        state: &State,
        actor: usize,
        object: Option<ObjectIndex>,
        commit: CommitIndex,
    ) -> Result<Next, Violation> {
        let gives_up = self.world.has(Mistake::PackerDiscardsInDoubt);
        let mut ways = Vec::new();
        for (mut next, progress) in self.commit(state, actor, commit)? {
            match (progress, object) {
                (Progress::InDoubt(_), Some(object)) if gives_up => {
                    next.actors[actor].at = At::Packer(Packer::Discard(object));
                }
                (Progress::Going(commit) | Progress::InDoubt(commit), _) => {
                    next.actors[actor].at = At::Packer(Packer::Commit { object, commit });
                }
                (Progress::Over(Ended::Refused(EditError::InputGone { .. })), Some(object)) => {
                    next.actors[actor].at = At::Packer(Packer::Discard(object));
                }
                (Progress::Over(Ended::Refused(EditError::InputGone { .. })), None) => {
                    self.try_again(&mut next, actor);
                }
                (Progress::Over(Ended::Refused(error)), _) => {
                    return Violation::found(format!("a pack is refused: {error}"));
                }
                (Progress::Over(_), _) => next.end(actor),
            }
            ways.push(("packs", next));
        }
        Ok(ways)
    }

    fn try_again(&self, next: &mut State, actor: usize) {
        let Role::Packer { tries, .. } = self.scenario.parts[actor].role else { return };
        next.actors[actor].tries += 1;
        if next.actors[actor].tries == tries {
            next.end(actor);
        } else {
            next.actors[actor].at = At::Packer(Packer::Plan);
        }
    }
}

/// Starts over with the same step, unless the process has used up its sessions.
fn take_another_session(next: &mut State, actor: usize, step: u8) {
    if next.actors[actor].incarnation + 1 == SESSIONS_EACH {
        next.end(actor);
    } else {
        next.actors[actor].incarnation += 1;
        next.actors[actor].at = At::Writer(Writer::Open { step });
    }
}

/// Where the rows of several pieces come from. Light cubes say so less precisely, as cubes of many runs do.
fn extent_of(pieces: &[&Placed], is_vague: bool) -> Extent {
    let steps = pieces.iter().map(|placed| placed.piece.extent.steps);
    let from = steps.clone().map(|steps| steps.from).min().unwrap_or(0);
    let to = steps.filter_map(|steps| steps.to).max();
    Extent { run: (!is_vague).then(|| RUN.into()), steps: StepRange { from, to } }
}

//! The steps of readers, snapshots and vacuums.

use super::mistake::Mistake;
use super::model::{Model, Next, Progress, rise, session_id, version};
use super::scenario::Role;
use super::state::{At, Early, Reader, Snapshotter, State, Vacuum};
use super::world::{CommitIndex, ObjectIndex, Violation};
use atoll_tables::protocol::{Edit, EditError, Ended, Holders, Manifest, Placed, Version};

impl Model {
    pub fn reader(&mut self, state: &State, actor: usize, at: &Reader) -> Result<Next, Violation> {
        let mut next = state.clone();
        let session = state.session(actor);
        let what = match *at {
            Reader::Look => {
                next.actors[actor].at = At::Reader(Reader::Open { seen: state.head() });
                "reads the head"
            }
            Reader::Open { seen } => {
                next.sessions[usize::from(session)] = Some(seen);
                next.actors[actor].at = At::Reader(Reader::Resolve { seen });
                "puts a session"
            }
            Reader::Resolve { seen } => {
                match self.resolved(state, actor, seen)? {
                    Some(at) => next.actors[actor].at = At::Reader(at),
                    None => next.end(actor),
                }
                "resolves a version"
            }
            Reader::ResolveAgain { first } => {
                let read = Reader::Read { blocks: first, cubes: state.head(), next: 0 };
                next.actors[actor].at = At::Reader(read);
                "resolves a version again"
            }
            Reader::Read { blocks, cubes, next: place } => {
                match self.read_on(state, actor, (blocks, cubes), place)? {
                    Some(place) => {
                        next.actors[actor].at = At::Reader(Reader::Read { blocks, cubes, next: place });
                    }
                    None => next.end(actor),
                }
                "reads an object"
            }
        };
        Ok(vec![(what, next)])
    }

    /// The version that a reader reads once its session is there; `None` if the version it wants is gone.
    fn resolved(&self, state: &State, actor: usize, seen: u8) -> Result<Option<Reader>, Violation> {
        let Role::Reader { as_of } = self.scenario.parts[actor].role else { return Ok(None) };
        let head = state.head();
        if self.world.has(Mistake::ResolveInTwoReads) {
            return Ok(Some(Reader::ResolveAgain { first: head }));
        }
        let manifest = &self.world.record(state.at_head()).manifest;
        let holders = self.holders(state, &state.sessions);
        let is_blind = self.world.has(Mistake::ResolveBeforeSession);
        let wanted = if as_of || is_blind { seen } else { head };
        if !is_blind && !manifest.is_readable(version(wanted), &holders) {
            return Ok(None);
        }
        if !is_blind && wanted < state.trimmed && !state.snapshots.contains(&wanted) {
            return Violation::found(format!("version {wanted} is readable, but its history is gone"));
        }
        Ok(Some(Reader::Read { blocks: wanted, cubes: wanted, next: 0 }))
    }

    /// Reads one object; judges what was read at the end. `None` when the reader is done.
    fn read_on(
        &self,
        state: &State,
        actor: usize,
        (blocks, cubes): (u8, u8),
        place: u8,
    ) -> Result<Option<u8>, Violation> {
        let manifest = |number: u8| &self.world.record(state.history[usize::from(number)]).manifest;
        let (blocks_at, cubes_at) = (manifest(blocks), manifest(cubes));
        let (of_blocks, of_cubes) = (self.kind(blocks_at, false), self.kind(cubes_at, true));
        let pieces = of_blocks.iter().chain(&of_cubes);
        let mut objects: Vec<_> = pieces.map(|placed| self.world.index_of(placed.piece.object)).collect();
        objects.sort_unstable();
        objects.dedup();
        if let Some(object) = objects.get(usize::from(place)) {
            if state.has(*object) {
                return Ok(Some(place + 1));
            }
            if state.session_stands(state.session(actor)) {
                return Violation::found(format!(
                    "an object of version {blocks} was removed under its reader"
                ));
            }
            return Ok(None);
        }
        let from_blocks = self.world.rows_in(blocks_at, of_blocks.into_iter())?;
        let from_cubes = self.world.rows_in(cubes_at, of_cubes.into_iter())?;
        let expected = self.world.record(state.history[usize::from(blocks)]).oracle.visible;
        if from_blocks & from_cubes != 0 || from_blocks | from_cubes != expected {
            return Violation::found(format!("a reader of version {blocks} saw other rows"));
        }
        Ok(None)
    }

    fn kind<'a>(&self, manifest: &'a Manifest, are_cubes: bool) -> Vec<&'a Placed> {
        manifest.pieces.values().filter(|placed| self.world.is_cube(placed) == are_cubes).collect()
    }

    pub fn snapshotter(&mut self, state: &State, actor: usize, at: &Snapshotter) -> Result<Next, Violation> {
        let mut next = state.clone();
        let what = match *at {
            Snapshotter::Choose => {
                next.actors[actor].at = At::Snapshotter(Snapshotter::Look { wanted: state.head() });
                "chooses a version"
            }
            Snapshotter::Look { wanted } => {
                let holders = self.holders(state, &state.sessions);
                let manifest = &self.world.record(state.at_head()).manifest;
                if manifest.is_readable(version(wanted), &holders) {
                    let put = Snapshotter::Put { wanted, head: state.head() };
                    next.actors[actor].at = At::Snapshotter(put);
                } else {
                    next.end(actor);
                }
                "looks whether it is readable"
            }
            Snapshotter::Put { wanted, head } => {
                let is_put = state.head() == head || self.world.has(Mistake::SnapshotWithoutHead);
                if is_put {
                    next.snapshots.push(wanted);
                    next.snapshots.sort_unstable();
                }
                let then =
                    if is_put { Snapshotter::Drop { kept: wanted } } else { Snapshotter::Look { wanted } };
                next.actors[actor].at = At::Snapshotter(then);
                "puts a snapshot"
            }
            Snapshotter::Drop { kept } => {
                next.snapshots.retain(|other| *other != kept);
                next.end(actor);
                "drops its snapshot"
            }
        };
        Ok(vec![(what, next)])
    }

    pub fn vacuum(&mut self, state: &State, actor: usize, at: Vacuum) -> Result<Next, Violation> {
        let mut next = state.clone();
        if matches!(at, Vacuum::Start | Vacuum::LookEarly) {
            rise(&mut next, state.session(actor), state.head());
        }
        let (what, then) = match at {
            Vacuum::Start if self.world.has(Mistake::VacuumLooksBeforeFloor) => ("begins", Vacuum::LookEarly),
            Vacuum::Start => ("reads the head", self.raise(state, actor, None)),
            Vacuum::LookEarly => {
                ("looks who is there", self.raise(state, actor, Some(next.sessions.clone())))
            }
            Vacuum::Raise { commit, early } => return self.raising(state, actor, commit, &early),
            Vacuum::Expire { early } => return Ok(self.expire(state, actor, early)),
            Vacuum::Scan { early } => ("looks who is there", self.scanned(state, early)),
            Vacuum::Trim { to, remove } => {
                next.trimmed = to.max(state.trimmed);
                let then = Vacuum::Remove { left: remove.clone(), all: remove };
                return Ok(vec![("takes history", self.or_sweep(next, actor, then))]);
            }
            Vacuum::Remove { mut left, all } => {
                left.pop().into_iter().for_each(|object| next.remove(object));
                let then = if left.is_empty() {
                    Vacuum::Forget(self.forgetting(state, actor, &all))
                } else {
                    Vacuum::Remove { left, all }
                };
                ("removes an object", then)
            }
            Vacuum::Forget(commit) => return self.forget(state, actor, commit),
            Vacuum::ListLate => ("looks who is there", Vacuum::List { early: Some(state.sessions.clone()) }),
            Vacuum::List { early } => {
                ("lists the objects", Vacuum::Look { listed: state.present.clone(), early })
            }
            Vacuum::Look { listed, early } => {
                let left = self.orphans(state, &listed, early);
                next.actors[actor].at = At::Vacuum(Vacuum::Sweep { left: left.clone() });
                if left.is_empty() {
                    next.end(actor);
                }
                return Ok(vec![("looks who is there", next)]);
            }
            Vacuum::Sweep { mut left } => {
                left.pop().into_iter().for_each(|object| next.remove(object));
                if left.is_empty() {
                    next.end(actor);
                    return Ok(vec![("sweeps an object", next)]);
                }
                ("sweeps an object", Vacuum::Sweep { left })
            }
        };
        next.actors[actor].at = At::Vacuum(then);
        Ok(vec![(what, next)])
    }

    fn raise(&mut self, state: &State, actor: usize, early: Early) -> Vacuum {
        let me = session_id(state.session(actor));
        let commit = self.world.commit(me, Edit::RaiseFloor { to: version(state.head()) });
        Vacuum::Raise { commit, early }
    }

    fn raising(
        &mut self,
        state: &State,
        actor: usize,
        commit: CommitIndex,
        early: &Early,
    ) -> Result<Next, Violation> {
        let mut ways = Vec::new();
        for (mut next, progress) in self.commit(state, actor, commit)? {
            match progress {
                Progress::Going(commit) | Progress::InDoubt(commit) => {
                    let raise = Vacuum::Raise { commit, early: early.clone() };
                    next.actors[actor].at = At::Vacuum(raise);
                }
                Progress::Over(Ended::Made(_) | Ended::Refused(EditError::AlreadyDone)) => {
                    next.actors[actor].at = At::Vacuum(Vacuum::Expire { early: early.clone() });
                }
                Progress::Over(Ended::Refused(error)) => {
                    return Violation::found(format!("a floor is refused: {error}"));
                }
                Progress::Over(_) => next.end(actor),
            }
            ways.push(("raises the floor", next));
        }
        Ok(ways)
    }

    /// What may be removed, according to the cells now.
    fn scanned(&self, state: &State, early: Early) -> Vacuum {
        let mut holders = self.holders(state, &early.unwrap_or_else(|| state.sessions.clone()));
        if self.world.has(Mistake::VacuumIgnoresSessions) {
            holders.sessions.clear();
        }
        if self.world.has(Mistake::VacuumIgnoresSnapshots) {
            holders.snapshots.clear();
        }
        let manifest = &self.world.record(state.at_head()).manifest;
        let trims_too_much = self.world.has(Mistake::VacuumTrimsTooMuch);
        let to = if trims_too_much { manifest.floor } else { manifest.history_from(&holders) };
        let remove = manifest.removable(&holders).into_iter().map(|object| self.world.index_of(object));
        Vacuum::Trim { to: number(to), remove: remove.collect() }
    }

    /// Continues with the removal of objects, or skips it if there are none.
    fn or_sweep(&self, mut next: State, actor: usize, then: Vacuum) -> State {
        let is_done = matches!(&then, Vacuum::Remove { left, .. } if left.is_empty());
        if is_done {
            self.sweep_or_end(&mut next, actor);
        } else {
            next.actors[actor].at = At::Vacuum(then);
        }
        next
    }

    fn sweep_or_end(&self, next: &mut State, actor: usize) {
        let sweeps = matches!(self.scenario.parts[actor].role, Role::Vacuum { sweeps: true });
        let lists_late = self.world.has(Mistake::SweepListsAfterLooking);
        let list = if lists_late { Vacuum::ListLate } else { Vacuum::List { early: None } };
        if sweeps {
            next.actors[actor].at = At::Vacuum(list);
        } else {
            next.end(actor);
        }
    }

    fn forgetting(&mut self, state: &State, actor: usize, objects: &[ObjectIndex]) -> CommitIndex {
        let objects = objects.iter().map(|object| self.world.object_id(*object)).collect();
        self.world.commit(session_id(state.session(actor)), Edit::Forget { objects })
    }

    fn forget(&mut self, state: &State, actor: usize, commit: CommitIndex) -> Result<Next, Violation> {
        let mut ways = Vec::new();
        for (mut next, progress) in self.commit(state, actor, commit)? {
            match progress {
                Progress::Going(commit) | Progress::InDoubt(commit) => {
                    next.actors[actor].at = At::Vacuum(Vacuum::Forget(commit));
                }
                Progress::Over(Ended::Made(_) | Ended::Refused(EditError::AlreadyDone)) => {
                    self.sweep_or_end(&mut next, actor);
                }
                Progress::Over(Ended::Refused(error)) => {
                    return Violation::found(format!("a vacuum forgets what is in use: {error}"));
                }
                Progress::Over(_) => next.end(actor),
            }
            ways.push(("forgets what it removed", next));
        }
        Ok(ways)
    }

    /// Sessions of crashed and of slow processes may or may not have expired by now.
    fn expire(&self, state: &State, actor: usize, early: Early) -> Next {
        let mut unexpired = state.clone();
        unexpired.actors[actor].at = At::Vacuum(Vacuum::Scan { early });
        let mut expired = unexpired.clone();
        for (other, part) in self.scenario.parts.iter().enumerate() {
            if part.is_slow || state.actors[other].at == At::Crashed {
                let session = usize::from(state.session(other));
                expired.sessions[session] = None;
            }
        }
        let mut ways = vec![("removes no session", unexpired)];
        if expired != ways[0].1 {
            ways.push(("removes the sessions that expired", expired));
        }
        ways
    }

    fn orphans(&self, state: &State, listed: &[ObjectIndex], early: Early) -> Vec<ObjectIndex> {
        let mut holders = self.holders(state, &early.unwrap_or_else(|| state.sessions.clone()));
        if self.world.has(Mistake::SweepIgnoresSessions) {
            holders.sessions.clear();
        }
        let manifest = &self.world.record(state.at_head()).manifest;
        self.orphans_of(manifest, listed, &holders)
    }

    fn orphans_of(&self, manifest: &Manifest, listed: &[ObjectIndex], holders: &Holders) -> Vec<ObjectIndex> {
        let listed: Vec<_> = listed.iter().map(|object| self.world.object_id(*object)).collect();
        let orphans = manifest.orphans(&listed, holders);
        orphans.into_iter().map(|object| self.world.index_of(object)).collect()
    }

    /// One whole undisturbed vacuum: the objects that it leaves, and the manifest afterwards.
    pub fn vacuumed(&self, state: &State, holders: &Holders) -> (Vec<ObjectIndex>, Manifest) {
        let now = self.world.record(state.at_head()).manifest.clone();
        let raised = now.apply(&Edit::RaiseFloor { to: now.version }).unwrap_or(now);
        let removed = raised.removable(holders);
        let forgotten = raised.apply(&Edit::Forget { objects: removed.clone() }).unwrap_or(raised);
        let removed: Vec<_> = removed.into_iter().map(|object| self.world.index_of(object)).collect();
        let mut left: Vec<_> =
            state.present.iter().copied().filter(|object| !removed.contains(object)).collect();
        let orphans = self.orphans_of(&forgotten, &left, holders);
        left.retain(|object| !orphans.contains(object));
        (left, forgotten)
    }
}

fn number(version: Version) -> u8 {
    u8::try_from(version.0).unwrap()
}

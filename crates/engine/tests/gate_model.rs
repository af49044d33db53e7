//! A model of which operations may go on together (`gate.rs`, `in_place.rs`), checked in every interleaving
//! of some threads.
//!
//! The steps are those of the code, in its order: locks, the work done under them, and their release. The
//! model does not include memory orders: all of them come from the locks. With one lock left out or one step
//! moved, it must find what goes wrong.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;

const PLACES: u8 = 2;

/// The locks, by purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Lock {
    Placing(u8),
    Still(u8),
    Forest,
    Latch(u8),
    Content,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Share(Lock),
    Take(Lock),
    End(Lock),
    /// A group about this leaf becomes part of the log.
    Log(u8),
    BeginWrite(u8),
    EndWrite(u8),
    /// A lookup.
    Look(u8),
    /// A scan or a clone of the roots.
    LookAtAll,
    /// The read on which an update decides: nothing may change until the update has written.
    Decide,
    /// The update has written.
    Decided,
}

use Lock::{Content, Forest, Latch, Placing, Still};
use Step::{BeginWrite, Decide, Decided, End, EndWrite, Log, Look, LookAtAll, Share, Take};

type Program = Vec<Step>;

/// A put in place, by a thread with this place in the gate, into this leaf.
fn place(place: u8, leaf: u8) -> Program {
    let locks = [Share(Placing(place)), Take(Still(place)), Share(Forest), Take(Latch(leaf)), Take(Content)];
    let work = [Log(leaf), End(Content), BeginWrite(leaf), EndWrite(leaf), End(Latch(leaf))];
    let ends = [End(Forest), End(Still(place)), End(Placing(place))];
    [&locks[..], &work, &ends].concat()
}

fn look_up(leaf: u8) -> Program {
    vec![Share(Forest), Share(Latch(leaf)), Look(leaf), End(Latch(leaf)), End(Forest)]
}

fn scan() -> Program {
    let mut steps: Program = (0..PLACES).map(|place| Share(Still(place))).collect();
    steps.extend([Share(Forest), LookAtAll, End(Forest)]);
    steps.extend((0..PLACES).map(|place| End(Still(place))));
    steps
}

/// An update or a batch about one leaf; it scans before it decides.
fn update(leaf: u8) -> Program {
    let mut steps: Program = (0..PLACES).map(|place| Take(Placing(place))).collect();
    steps.extend([Take(Content), Decide]);
    steps.extend(scan());
    steps.extend([
        Log(leaf),
        Take(Forest),
        BeginWrite(leaf),
        EndWrite(leaf),
        Decided,
        End(Forest),
        End(Content),
    ]);
    steps.extend((0..PLACES).map(|place| End(Placing(place))));
    steps
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct State {
    /// The next step of each thread.
    at: Vec<usize>,
    /// The locks held: each with the thread, and whether exclusively.
    held: Vec<(Lock, u8, bool)>,
    /// Groups of the log: thread and leaf.
    log: Vec<(u8, u8)>,
    /// Groups in the leaves, in the order of their arrival.
    applied: Vec<(u8, u8)>,
    writing: Vec<u8>,
    /// Length of the log when a thread decided.
    decided: Option<usize>,
}

impl State {
    fn may(&self, step: Step, thread: u8) -> bool {
        let others =
            |lock: Lock| self.held.iter().filter(move |(held, owner, _)| *held == lock && *owner != thread);
        match step {
            Share(lock) => others(lock).all(|(_, _, alone)| !alone),
            Take(lock) => others(lock).next().is_none(),
            _ => true,
        }
    }

    /// Makes a step of a thread; the error says what goes wrong with it.
    fn step(&mut self, step: Step, thread: u8) -> Result<(), &'static str> {
        let check = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        self.at[thread as usize] += 1;
        match step {
            Share(lock) => self.held.push((lock, thread, false)),
            Take(lock) => self.held.push((lock, thread, true)),
            End(lock) => self.held.retain(|&(held, owner, _)| (held, owner) != (lock, thread)),
            Log(leaf) => {
                check(self.held.contains(&(Content, thread, true)), "two groups are written at once")?;
                self.log.push((thread, leaf));
            }
            BeginWrite(leaf) => {
                check(!self.writing.contains(&leaf), "two write into a leaf")?;
                self.writing.push(leaf);
            }
            EndWrite(leaf) => {
                self.writing.retain(|&other| other != leaf);
                self.applied.push((thread, leaf));
            }
            Look(leaf) => check(!self.writing.contains(&leaf), "a leaf is read while it is written")?,
            LookAtAll => {
                check(self.writing.is_empty(), "leaves are read while they are written")?;
                // What is applied must be the beginning of the log: all of it, except what a holder of
                // *alone* has logged.
                let is_beginning = self.applied.len() <= self.log.len()
                    && self.log[..self.applied.len()].iter().all(|group| self.applied.contains(group));
                check(is_beginning, "a scan sees a commit and not one before it")?;
            }
            Decide => self.decided = Some(self.log.len()),
            Decided => {
                check(self.decided.take() == Some(self.log.len() - 1), "an update was overtaken")?;
                check(
                    self.applied.len() == self.log.len(),
                    "a group is not in the trees when a checkpoint begins",
                )?;
            }
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), &'static str> {
        for leaf in 0..2 {
            let of = |groups: &[(u8, u8)]| -> Vec<u8> {
                groups.iter().filter(|group| group.1 == leaf).map(|group| group.0).collect()
            };
            if of(&self.log) != of(&self.applied) {
                return Err("a leaf changed in another order than the log");
            }
        }
        Ok(())
    }
}

/// Tries every interleaving, and returns the number of states, or the first thing that goes wrong. Once with
/// sharers passing threads that wait for exclusive access, and once queuing behind them.
fn explore(programs: &[Program]) -> Result<usize, &'static str> {
    Ok(explore_as(programs, false)? + explore_as(programs, true)?)
}

fn explore_as(programs: &[Program], in_turn: bool) -> Result<usize, &'static str> {
    let mut seen = HashSet::new();
    let mut left = vec![State { at: vec![0; programs.len()], ..State::default() }];
    while let Some(mut state) = left.pop() {
        state.held.sort_by_key(|held| format!("{held:?}"));
        if !seen.insert(state.clone()) {
            continue;
        }
        let next = |thread: usize| programs[thread].get(state.at[thread]).copied();
        let threads: Vec<usize> = (0..programs.len()).filter(|&thread| next(thread).is_some()).collect();
        if threads.is_empty() {
            state.check_end()?;
            continue;
        }
        let mut stuck = true;
        for thread in threads {
            let stands_behind = |lock: Lock| {
                let others = (0..programs.len()).filter(|&other| other != thread);
                others
                    .into_iter()
                    .any(|other| next(other) == Some(Take(lock)) && !state.may(Take(lock), other as u8))
            };
            let may = |step: &Step| match step {
                Share(lock) if in_turn && stands_behind(*lock) => false,
                step => state.may(*step, thread as u8),
            };
            let Some(step) = next(thread).filter(may) else { continue };
            let mut after = state.clone();
            after.step(step, thread as u8)?;
            left.push(after);
            stuck = false;
        }
        if stuck {
            return Err("all wait for each other");
        }
    }
    Ok(seen.len())
}

/// Programs that meet: with the same place and leaf, with others, and each kind beside each.
fn meetings(
    put: fn(u8, u8) -> Program,
    get: fn(u8) -> Program,
    all: fn() -> Program,
    alone: fn(u8) -> Program,
) -> Vec<Vec<Program>> {
    vec![
        vec![put(0, 0), put(1, 0), get(0)],
        vec![put(0, 0), put(0, 1), put(1, 1)],
        vec![put(0, 0), put(1, 1), all()],
        vec![put(1, 0), all(), all()],
        vec![put(0, 0), alone(0), get(0)],
        vec![put(0, 0), put(1, 1), alone(1)],
        vec![put(1, 0), alone(1), all()],
        vec![alone(0), alone(0), all()],
        vec![put(0, 0), put(1, 0), alone(0), get(0)],
    ]
}

#[test]
fn whoever_meets_at_the_gate_nothing_goes_wrong() {
    for threads in meetings(place, look_up, scan, update) {
        let states = explore(&threads).unwrap_or_else(|wrong| panic!("{wrong}: {threads:?}"));
        assert!(states > 100, "{states} states of {threads:?}");
    }
}

fn without(program: Program, gone: impl Fn(Lock) -> bool) -> Program {
    let is_gone = |step: &Step| matches!(step, Share(lock) | Take(lock) | End(lock) if gone(*lock));
    program.into_iter().filter(|step| !is_gone(step)).collect()
}

/// A put that takes the latch only after its group is in the log.
fn latched_late(at: u8, leaf: u8) -> Program {
    let mut steps = without(place(at, leaf), |lock| lock == Latch(leaf));
    let written = steps.iter().position(|step| *step == BeginWrite(leaf)).unwrap();
    steps.insert(written, Take(Latch(leaf)));
    steps.insert(written + 3, End(Latch(leaf)));
    steps
}

#[test]
fn with_one_lock_left_out_something_does() {
    let finds = |what, meetings: Vec<Vec<Program>>| {
        let wrong: Vec<&str> = meetings.iter().filter_map(|threads| explore(threads).err()).collect();
        assert!(!wrong.is_empty(), "nothing is found wrong with {what}");
        println!("{what}: {}", wrong[0]);
    };
    let put_without_latch = |at, leaf| without(place(at, leaf), |lock| lock == Latch(leaf));
    finds("puts without a latch", meetings(put_without_latch, look_up, scan, update));
    finds("puts that take the latch late", meetings(latched_late, look_up, scan, update));
    let passing = |at, leaf| without(place(at, leaf), |lock| lock == Placing(at));
    finds("puts that pass by who is alone", meetings(passing, look_up, scan, update));
    let restless = |at, leaf| without(place(at, leaf), |lock| lock == Still(at));
    finds("puts that pass by who wants stillness", meetings(restless, look_up, scan, update));
    let unlogged = |at, leaf| without(place(at, leaf), |lock| lock == Content);
    finds("puts that log at once", meetings(unlogged, look_up, scan, update));
    let blind = |leaf| without(look_up(leaf), |lock| lock == Latch(leaf));
    finds("lookups without a latch", meetings(place, blind, scan, update));
    let shapeless = |leaf| without(look_up(leaf), |lock| lock == Forest);
    finds("lookups without the forest lock", meetings(place, shapeless, scan, update));
    let half_still = || without(scan(), |lock| lock == Still(PLACES - 1));
    finds("scans that ask one place too few", meetings(place, look_up, half_still, update));
    let half_alone = |leaf| without(update(leaf), |lock| lock == Placing(PLACES - 1));
    finds("updates that ask one place too few", meetings(place, look_up, scan, half_alone));
    let unguarded = |leaf| without(update(leaf), |lock| lock == Forest);
    finds("updates without the forest lock", meetings(place, look_up, scan, unguarded));
}

//! The search for an order: each operation that could come next is tried, and undone when stuck.
//!
//! Invariant: what it finds is an order: each operation was called before those that come after it returned,
//! and [`step`] gives its answer. Nothing else accepts an operation.
//! Invariant: it misses none: if an order begins like the one so far, then so does one that goes on with an
//! operation which is tried. [`Needs`] argues that for each operation that is left out.

use super::chain::{Chain, HEAD};
use super::needs::{Needs, Sight};
use super::{Action, Answer, Cells, Operation, step};
use std::collections::HashSet;

/// Calls and returns in the order of time, as a linked list from which operations are lifted.
pub(crate) struct Search<'a> {
    history: &'a [Operation],
    /// The operation and whether this is its return, for each moment.
    moments: Vec<(usize, bool)>,
    chain: Chain,
    /// The indices in `moments` of the call and the return of each operation.
    places: Vec<(usize, Option<usize>)>,
    needs: Needs<'a>,
    /// Whether a beginning is given up as soon as an operation that is left can no longer find what it found.
    looks_ahead: bool,
    /// A bit for each operation in the order: those that must be done by their returns, then, from a word of
    /// their own on, the others.
    done: Vec<u64>,
    bits: Vec<usize>,
    /// The index of the first word of the others.
    others: usize,
    cells: Cells,
    order: Vec<Step>,
    longest: Vec<usize>,
    /// States that were examined, as [`Search::key`] writes them.
    seen: HashSet<Box<[u64]>>,
}

/// An operation in the order.
struct Step {
    operation: usize,
    /// The cells before it.
    before: Cells,
    /// What to try in its place.
    otherwise: Choice,
}

/// What to try next.
#[derive(Clone, Copy)]
enum Choice {
    /// Anything: nothing was tried yet.
    Any,
    /// What was called after this place. The operation that must be done first was tried before.
    After { place: usize, first: usize },
    /// Nothing.
    Nothing,
}

/// What was chosen.
enum Chosen {
    /// All operations that must be done are in the order.
    End,
    /// There is nothing left to try.
    Stuck,
    /// This one, and then what to try in its place.
    Operation(usize, Choice),
}

impl<'a> Search<'a> {
    pub(crate) fn new(history: &'a [Operation], sight: Sight, looks_ahead: bool) -> Self {
        let is_known = |at: usize| history[at].answer != Answer::Unknown;
        // A read that told nothing may as well never have been done.
        let tells =
            |at: &usize| is_known(*at) || !matches!(history[*at].action, Action::Get(_) | Action::Scan);
        let mut timed: Vec<(u64, usize, bool)> = Vec::new();
        for at in (0..history.len()).filter(tells) {
            timed.push((history[at].called, at, false));
            // An operation that is not known to have returned may still be under way at the end.
            if is_known(at) {
                timed.push((history[at].returned, at, true));
            }
        }
        timed.sort_unstable();
        let mut places = vec![(HEAD, None); history.len()];
        // The head belongs to no operation and is never visited as a moment.
        let mut moments = vec![(usize::MAX, false)];
        let (mut musts, mut others) = (Vec::new(), Vec::new());
        for (_, operation, is_return) in timed {
            match is_return {
                false => places[operation].0 = moments.len(),
                true => places[operation].1 = Some(moments.len()),
            }
            match is_return {
                true => musts.push(operation),
                false if !is_known(operation) => others.push(operation),
                false => {}
            }
            moments.push((operation, is_return));
        }
        let split = musts.len().div_ceil(64);
        let mut bits = vec![0; history.len()];
        musts.iter().enumerate().for_each(|(bit, &operation)| bits[operation] = bit);
        others.iter().enumerate().for_each(|(bit, &operation)| bits[operation] = split * 64 + bit);
        Self {
            history,
            chain: Chain::new(moments.len() - 1),
            moments,
            places,
            needs: Needs::new(history, sight),
            looks_ahead,
            done: vec![0; split + others.len().div_ceil(64)],
            bits,
            others: split,
            cells: Cells::new(),
            order: Vec::new(),
            longest: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// Whether there is an order; none if that is undecided after this many tries, each of which may be
    /// remembered.
    pub(crate) fn run(&mut self, tries_max: u64) -> Option<bool> {
        let mut tries = 0;
        let mut choice = Choice::Any;
        loop {
            choice = match self.choose(choice) {
                Chosen::End => return Some(true),
                Chosen::Operation(..) if tries >= tries_max => return None,
                Chosen::Operation(operation, otherwise) => {
                    tries += 1;
                    if self.try_next(operation, otherwise) { Choice::Any } else { otherwise }
                }
                Chosen::Stuck => match self.undo() {
                    Some(otherwise) => otherwise,
                    None => return Some(false),
                },
            };
        }
    }

    /// The operations in the order so far: at the end, all that must be done, and others.
    pub(crate) fn order(&self) -> Vec<usize> {
        self.order.iter().map(|step| step.operation).collect()
    }

    /// The longest order that was tried.
    pub(crate) fn into_longest(self) -> Vec<usize> {
        self.longest
    }

    fn choose(&self, choice: Choice) -> Chosen {
        match choice {
            Choice::Any => {
                // If no returns are left, all remaining operations have unknown outcomes.
                let Some(first) = self.first_to_return() else { return Chosen::End };
                match self.one_without_alternatives() {
                    Some(operation) => Chosen::Operation(operation, Choice::Nothing),
                    None => Chosen::Operation(first, Choice::After { place: HEAD, first }),
                }
            }
            Choice::After { place, first } => {
                match self.callable(place).find(|(_, operation)| *operation != first) {
                    Some((place, operation)) => Chosen::Operation(operation, Choice::After { place, first }),
                    None => Chosen::Stuck,
                }
            }
            Choice::Nothing => Chosen::Stuck,
        }
    }

    /// The operations that could come next, with the places of their calls, from behind a place on: no
    /// operation that is left returned before they were called.
    fn callable(&self, place: usize) -> impl Iterator<Item = (usize, usize)> {
        let places = std::iter::successors(Some(self.chain.after(place)), |at| Some(self.chain.after(*at)));
        places.map_while(|at| match self.moments.get(at) {
            Some(&(operation, false)) => Some((at, operation)),
            _ => None,
        })
    }

    /// The operation that returns first. It is tried first: often, operations took effect in this order.
    fn first_to_return(&self) -> Option<usize> {
        let last_call = self.callable(HEAD).last().map_or(HEAD, |(place, _)| place);
        self.moments.get(self.chain.after(last_call)).map(|(operation, _)| *operation)
    }

    /// An operation that may as well be next: if that leads nowhere, no other one does.
    fn one_without_alternatives(&self) -> Option<usize> {
        let may_be_next = |at: usize| {
            let Operation { action, answer, .. } = &self.history[at];
            *answer != Answer::Unknown
                && self.needs.may_be_next(at, &self.cells)
                && step(&self.cells, action, answer).is_some()
        };
        self.callable(HEAD).map(|(_, operation)| operation).find(|&at| may_be_next(at))
    }

    /// Puts an operation next in the order, if its answer fits, something may come of it, and this state has
    /// not been examined before.
    fn try_next(&mut self, operation: usize, otherwise: Choice) -> bool {
        let Operation { action, answer, .. } = &self.history[operation];
        let Some(after) = step(&self.cells, action, answer) else { return false };
        self.put(operation, after, otherwise);
        if self.order.len() > self.longest.len() {
            self.longest = self.order();
        }
        let is_good = self.is_promising(operation) && self.seen.insert(self.key());
        if !is_good {
            self.undo();
        }
        is_good
    }

    /// Whether something may come of the operation that is in the order last.
    fn is_promising(&self, operation: usize) -> bool {
        let is_unknown = self.history[operation].answer == Answer::Unknown;
        let before = self.order.last().map(|step| &step.before);
        let is_idle =
            is_unknown && before.is_some_and(|before| !self.needs.matters(operation, before, &self.cells));
        !(is_idle || self.looks_ahead && self.needs.is_hopeless(operation, &self.cells))
    }

    fn put(&mut self, operation: usize, after: Cells, otherwise: Choice) {
        let before = std::mem::replace(&mut self.cells, after);
        self.order.push(Step { operation, before, otherwise });
        self.done[self.bits[operation] / 64] |= 1 << (self.bits[operation] % 64);
        let (call, back) = self.places[operation];
        self.chain.lift(call);
        back.into_iter().for_each(|place| self.chain.lift(place));
        self.needs.lift(operation);
    }

    /// Takes the last operation out of the order; returns what to try in its place.
    fn undo(&mut self) -> Option<Choice> {
        let Step { operation, before, otherwise } = self.order.pop()?;
        self.needs.unlift(operation);
        self.cells = before;
        self.done[self.bits[operation] / 64] &= !(1 << (self.bits[operation] % 64));
        let (call, back) = self.places[operation];
        back.into_iter().for_each(|place| self.chain.unlift(place));
        self.chain.unlift(call);
        Some(otherwise)
    }

    /// The state: which operations are in the order, and what those that are left may see of the cells.
    ///
    /// States with the same key are completed by the same operations, so the second one is not examined.
    fn key(&self) -> Box<[u64]> {
        let (musts, others) = self.done.split_at(self.others);
        let mut key = Vec::new();
        add_bits(musts, &mut key);
        add_bits(others, &mut key);
        self.needs.add_key(&self.cells, &mut key);
        key.into_boxed_slice()
    }
}

/// Adds words without those of ones at the beginning and of zeros at the end, so that the key of a state does
/// not become longer with the history: what must be done is done nearly in the order of the returns.
fn add_bits(words: &[u64], key: &mut Vec<u64>) {
    let ones = words.iter().take_while(|word| **word == u64::MAX).count();
    let zeros = words.iter().rev().take_while(|word| **word == 0).count();
    let kept = &words[ones..words.len() - zeros];
    key.push((ones as u64) << 32 | kept.len() as u64);
    key.extend(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_sets_of_operations_have_the_same_key() {
        const WORDS: [u64; 4] = [0, 1, 1 << 32, u64::MAX];
        let triples =
            || WORDS.iter().flat_map(|a| WORDS.iter().flat_map(move |b| WORDS.map(|c| [*a, *b, c])));
        let mut keys = HashSet::new();
        for (musts, others) in triples().flat_map(|musts| triples().map(move |others| (musts, others))) {
            let mut key = Vec::new();
            add_bits(&musts, &mut key);
            add_bits(&others, &mut key);
            assert!(keys.insert(key), "{musts:?} {others:?}");
        }
        let mut key = Vec::new();
        add_bits(&[u64::MAX, u64::MAX, u64::MAX, 5, 0, 0], &mut key);
        assert_eq!(key, [3 << 32 | 1, 5], "as long as what overlaps, and no longer");
    }
}

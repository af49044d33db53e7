//! The search that looks ahead agrees with a plain one, which tries every order, on thousands of small
//! histories; those of dozens of concurrent writes it decides.

use super::*;
use fastrand::Rng;
use std::collections::HashSet;
use std::ops::Range;

/// Whether some order explains the history, by trying each operation at each place.
fn has_order(history: &[Operation]) -> bool {
    fn goes_on(history: &[Operation], left: u32, cells: &Cells, seen: &mut HashSet<(u32, Cells)>) -> bool {
        let of = |left: u32| (0..history.len()).filter(move |at| left >> at & 1 == 1);
        let must = |at: &usize| history[*at].answer != Answer::Unknown;
        let Some(deadline) = of(left).filter(must).map(|at| history[at].returned).min() else {
            return true;
        };
        seen.insert((left, cells.clone()))
            && of(left).filter(|&at| history[at].called < deadline).any(|at| {
                let after = step(cells, &history[at].action, &history[at].answer);
                after.is_some_and(|after| goes_on(history, left & !(1 << at), &after, seen))
            })
    }
    goes_on(history, u32::MAX >> (32 - history.len()), &Cells::new(), &mut HashSet::new())
}

/// The bytes that writes of a history put and append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    /// Each its own, which no other contains.
    Own,
    /// Numbers, some of which begin others.
    Numbers,
    /// Few and short, so that a value can come about in many ways.
    Few,
}

/// A random history and what it was made of.
struct Made {
    random: Rng,
    bytes: Bytes,
    cells: u8,
    /// Values that were in some cell.
    known: Vec<String>,
}

impl Made {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bytes = [Bytes::Own, Bytes::Numbers, Bytes::Few][random.usize(..3)];
        let cells = [1, 1, 2, 3][random.usize(..4)];
        Self { random, bytes, cells, known: Vec::new() }
    }

    fn bytes(&mut self, number: usize) -> String {
        match self.bytes {
            Bytes::Own => format!("<{number}>"),
            Bytes::Numbers => format!("{}", number * 7 % 13),
            Bytes::Few => ["", "a", "b", "ab", "aa"][self.random.usize(..5)].to_owned(),
        }
    }

    fn action(&mut self, number: usize) -> Action {
        let (cell, bytes) = (self.random.u8(..self.cells), self.bytes(number));
        match self.random.u8(..16) {
            0..=4 => Action::Get(cell),
            5 => Action::Scan,
            6..=7 => Action::Put(vec![cell], bytes),
            8 => Action::Put((0..self.cells).filter(|_| self.random.bool()).collect(), bytes),
            9..=11 => Action::Append(cell, bytes),
            12..=13 => Action::Swap(cell, self.random.choice(&self.known).cloned(), bytes),
            _ => Action::Delete(cell),
        }
    }

    /// Operations of a store that is honest, in the order of their effects, without moments. Of a store that
    /// is not, one answer in `wrong_in` is that of another moment, and half as many writes are forgotten.
    fn effects(&mut self, operations: usize, wrong_in: Option<u64>) -> Vec<(Action, Answer)> {
        let unknown_in = self.random.u8(2..12);
        let mut cells = Cells::new();
        let (mut before, mut history) = (vec![Cells::new()], Vec::new());
        for number in 0..operations {
            let action = self.action(number);
            let is_wrong = wrong_in.is_some_and(|one_in| self.random.u64(..one_in) == 0);
            let is_lost = wrong_in.is_some_and(|one_in| self.random.u64(..2 * one_in) == 0);
            let shown = if is_wrong { self.random.choice(&before).unwrap_or(&cells) } else { &cells };
            let is_unknown = self.random.u8(..unknown_in) == 0;
            let answer = if is_unknown { Answer::Unknown } else { honest_answer(shown, &action) };
            if !is_lost && (!is_unknown || self.random.bool()) {
                cells = step(&cells, &action, &answer).unwrap_or(cells);
            }
            self.known.extend(cells.values().cloned());
            before.push(cells.clone());
            history.push((action, answer));
        }
        history
    }

    /// A history whose operations overlap their neighbours, few or many.
    fn history(mut self, operations: usize, wrong_in: Option<u64>) -> Vec<Operation> {
        let reach = [5, 20, 100][self.random.usize(..3)];
        let effects = self.effects(operations, wrong_in);
        let timed = (0..).zip(effects).map(|(number, (action, answer))| {
            // Calls at even moments and returns at odd ones, all distinct.
            let (at, own) = (1_000 + 10 * number, 2 * number);
            let called = (at - self.random.u64(..reach)) * 100 + own;
            let returned = (at + 1 + self.random.u64(..reach)) * 100 + own + 1;
            Operation { action, answer, called, returned }
        });
        let mut history: Vec<Operation> = timed.collect();
        self.random.shuffle(&mut history);
        history
    }

    /// A history whose first operations were all called before any of them returned, in whatever order, and
    /// whose others came one by one.
    fn crowd(mut self, together: usize, others: usize, wrong_in: Option<u64>) -> Vec<Operation> {
        let mut returns: Vec<u64> = (0..together as u64).map(|at| 1_000 + at).collect();
        self.random.shuffle(&mut returns);
        let effects = self.effects(together + others, wrong_in);
        let timed = effects.into_iter().enumerate().map(|(number, (action, answer))| {
            let late = 2_000 + 2 * number as u64;
            let one_by_one = (late, late + 1);
            let moments = returns.get(number).map(|&returned| (number as u64, returned));
            let (called, returned) = moments.unwrap_or(one_by_one);
            Operation { action, answer, called, returned }
        });
        timed.collect()
    }
}

/// The most operations of a history that is judged in both ways.
const FEW: usize = 11;

/// A small history; one in three is that of an honest store.
fn history(seed: u64) -> Vec<Operation> {
    let mut made = Made::new(seed);
    let operations = made.random.usize(FEW / 2..=FEW);
    let wrong_in = (!seed.is_multiple_of(3)).then(|| made.random.u64(1..4));
    match seed.is_multiple_of(4) {
        true => made.crowd(operations / 2, operations - operations / 2, wrong_in),
        false => made.history(operations, wrong_in),
    }
}

/// How many of these histories have an order, after each was judged by all the searches.
fn judged_alike(seeds: Range<u64>, sight: Sight) -> u64 {
    let mut explained = 0;
    for seed in seeds {
        let history = history(seed);
        let expected = has_order(&history);
        assert!(expected || seed % 3 != 0, "seed {seed} is of an honest store: {history:#?}");
        for looks_ahead in [true, false] {
            let mut search = Search::new(&history, sight, looks_ahead);
            let found = search.run(u64::MAX);
            assert_eq!(found, Some(expected), "seed {seed}, looks ahead: {looks_ahead}: {history:#?}");
            let order = search.order();
            assert_eq!(explains(&history, &order), expected, "seed {seed}: {order:?} of {history:#?}");
        }
        explained += u64::from(expected);
    }
    explained
}

/// Both answers must be frequent: agreement would prove nothing if one were missing.
fn assert_both(explained: u64, of: u64) {
    println!("{explained} of {of} histories have an order");
    assert!((of / 2..of * 9 / 10).contains(&explained), "{explained} of {of}");
}

#[test]
fn every_small_history_is_judged_as_by_trying_all_orders() {
    const HISTORIES: u64 = 30_000;
    assert_both(judged_alike(0..HISTORIES, Sight::USUAL), HISTORIES);
}

#[test]
fn it_is_judged_so_too_by_a_search_that_hardly_sees_ahead() {
    const HISTORIES: u64 = 10_000;
    let near = Sight { operations: 1, values: 1, appends: 1 };
    assert_both(judged_alike(1_000_000..1_000_000 + HISTORIES, near), HISTORIES);
    let nothing = Sight { operations: 0, values: 0, appends: 0 };
    assert_both(judged_alike(2_000_000..2_000_000 + HISTORIES, nothing), HISTORIES);
}

/// Whether a crowd of 30 operations, and 30 behind it, has an order; none if that takes more tries.
fn crowd_has_order(seed: u64, cells: u8, wrong_in: Option<u64>, tries_max: u64) -> Option<bool> {
    let made = Made { bytes: Bytes::Own, cells, ..Made::new(seed) };
    let history = made.crowd(30, 30, wrong_in);
    explain_within(&history, tries_max).map(|explained| match explained {
        Explained::By(order) => explains(&history, &order),
        Explained::Never { .. } => false,
    })
}

#[test]
fn crowds_of_writes_are_decided() {
    const SEEDS: u64 = 200;
    for cells in 1..=3 {
        let mut never = 0;
        for seed in 0..SEEDS {
            let honest = crowd_has_order(seed, cells, None, 100_000);
            assert_eq!(honest, Some(true), "seed {seed}, {cells} cells");
            let other = crowd_has_order(seed, cells, Some(30), 2_000_000);
            assert!(other.is_some(), "seed {seed}, {cells} cells, of a store that is not honest");
            never += u64::from(other == Some(false));
        }
        println!("{cells} cells: {never} of {SEEDS} crowds of a store that is not honest have no order");
        assert!(never > SEEDS / 4, "{never}");
    }
}

/// Forty writes of unknown outcome, of which reads saw some in turn.
#[test]
fn writes_that_nobody_saw_cost_no_tries() {
    let put = |at: u64| Operation {
        action: Action::Put(vec![0], format!("<{at}>")),
        answer: Answer::Unknown,
        called: at,
        returned: 100 + at,
    };
    let get = |at: u64, seen: u64| Operation {
        action: Action::Get(0),
        answer: Answer::Value(Some(format!("<{seen}>"))),
        called: 200 + 2 * at,
        returned: 201 + 2 * at,
    };
    let history = |seen: [u64; 4]| {
        let reads = (0..).zip(seen).map(|(at, seen)| get(at, seen));
        (0..40).map(put).chain(reads).collect::<Vec<_>>()
    };
    // One of the forty is tried after the other until it is one that the read saw.
    assert!(matches!(explain_within(&history([7, 7, 30, 2]), 400), Some(Explained::By(_))));
    assert!(matches!(explain_within(&history([7, 30, 7, 2]), 400), Some(Explained::Never { .. })));
}

//! The cells of a slot, and the effect of operations on them: the same on every node.

use crate::operation::Work;
use atoll_linearizability::{Action, Answer, Cells};
use std::collections::BTreeMap;

/// How many cells a slot has.
pub(crate) const CELLS: u8 = 4;

/// The cell that holds one of a few words, so that clients can wait for one.
pub(crate) const WORD_CELL: u8 = 3;

/// The operation that gave a cell a lifetime, and the length of that lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) put: usize,
    pub(crate) us: u64,
}

/// The cells of a slot, and the lifetimes of those that expire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) cells: Cells,
    pub(crate) lifetimes: BTreeMap<u8, Lifetime>,
}

impl State {
    /// Applies an operation and returns its answer.
    pub(crate) fn apply(&mut self, operation: usize, work: &Work) -> Answer {
        match work {
            Work::Read(_) | Work::Wait { .. } => Answer::Unknown,
            Work::Write { action, lifetime_us } => {
                let answer = self.write(action);
                if let (Answer::Done, Some(us), Action::Put(cells, _)) = (&answer, *lifetime_us, action) {
                    for &cell in cells {
                        self.lifetimes.insert(cell, Lifetime { put: operation, us });
                    }
                }
                answer
            }
            Work::Expire { cell, put } => {
                let is_due = self.lifetimes.get(cell).is_some_and(|lifetime| lifetime.put == *put);
                if is_due {
                    self.lifetimes.remove(cell);
                    self.cells.remove(cell);
                }
                if is_due { Answer::Done } else { Answer::Conflict(None) }
            }
        }
    }

    fn write(&mut self, action: &Action) -> Answer {
        match action {
            Action::Get(_) | Action::Scan => {}
            Action::Put(cells, value) => {
                for &cell in cells {
                    self.set(cell, value.clone());
                }
            }
            Action::Append(cell, more) => {
                let value = self.cells.get(cell).cloned().unwrap_or_default() + more;
                self.set(*cell, value);
            }
            Action::Swap(cell, expected, value) => {
                if self.cells.get(cell) != expected.as_ref() {
                    return Answer::Conflict(self.cells.get(cell).cloned());
                }
                self.set(*cell, value.clone());
            }
            Action::Delete(cell) => {
                self.cells.remove(cell);
                self.lifetimes.remove(cell);
            }
        }
        Answer::Done
    }

    fn set(&mut self, cell: u8, value: String) {
        self.cells.insert(cell, value);
        self.lifetimes.remove(&cell);
    }

    /// The answer to a read.
    pub(crate) fn read(&self, action: &Action) -> Answer {
        match action {
            Action::Get(cell) => Answer::Value(self.cells.get(cell).cloned()),
            _ => Answer::Cells(self.cells.clone()),
        }
    }

    /// A digest that is equal only for equal cells.
    pub(crate) fn digest(&self) -> u64 {
        let mut sum = Digest::default();
        for (&cell, value) in &self.cells {
            sum.add(u64::from(cell) << 32 | value.len() as u64);
            value.bytes().for_each(|byte| sum.add(u64::from(byte)));
        }
        for (&cell, lifetime) in &self.lifetimes {
            sum.add(u64::from(cell) << 40 | lifetime.put as u64);
        }
        sum.0
    }
}

/// A running digest over numbers, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(crate) fn add(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

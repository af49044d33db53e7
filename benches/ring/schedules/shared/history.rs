//! What contending clients did and were told, by one clock that never goes back: all of them are threads of
//! this process.

use atoll_linearizability::{Action, Answer, Operation};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// So many strange replies are told in words.
const STRANGE_MAX: usize = 10;

/// One operation that may have happened.
#[derive(Clone, Debug)]
pub struct Record {
    /// Which subject.
    pub subject: usize,
    /// Whose.
    pub client: usize,
    /// What was asked for.
    pub action: Action,
    /// What was told.
    pub answer: Answer,
    /// Nanoseconds after the beginning, before the first byte was sent.
    pub called_ns: u64,
    /// When the answer was there, or nobody waited any more.
    pub returned_ns: u64,
    /// How often it was sent.
    pub sent: u32,
    /// Whether it has a name, by which it is done once.
    pub is_named: bool,
    /// Whether the node said that it had been done before.
    pub was_done_before: bool,
}

/// What happened beside that.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Operations that did not happen.
    pub refused: u64,
    /// Reads without an answer: they change nothing.
    pub unread: u64,
    /// Replies that were not expected, in words.
    pub strange: Vec<String>,
    /// How many there were.
    pub strange_count: u64,
}

/// All of it.
pub struct History {
    start: Instant,
    records: Mutex<Vec<Record>>,
    notes: Mutex<Notes>,
}

impl History {
    /// Begins now.
    pub fn new() -> Self {
        Self { start: Instant::now(), records: Mutex::default(), notes: Mutex::default() }
    }

    /// The moment.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Adds an operation.
    pub fn add(&self, record: Record) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    /// All operations so far, in no order.
    pub fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What else is known, to be added to.
    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a reply that was not expected.
    pub fn strange(&self, words: String) {
        let mut notes = self.notes();
        notes.strange_count += 1;
        if notes.strange.len() < STRANGE_MAX {
            notes.strange.push(words);
        }
    }
}

/// Operations with moments of which no two are equal; where two were, the call comes first: they may have
/// overlapped.
pub fn operations(records: &[Record]) -> Vec<Operation> {
    let of = |(at, record): (usize, &Record)| [(record.called_ns, false, at), (record.returned_ns, true, at)];
    let mut moments: Vec<(u64, bool, usize)> = records.iter().enumerate().flat_map(of).collect();
    moments.sort_unstable();
    let mut spans = vec![(0, 0); records.len()];
    for (number, (_, is_return, at)) in (0..).zip(moments) {
        if is_return { spans[at].1 = number } else { spans[at].0 = number }
    }
    let operation = |(record, (called, returned)): (&Record, (u64, u64))| Operation {
        action: record.action.clone(),
        answer: record.answer.clone(),
        called,
        returned,
    };
    records.iter().zip(spans).map(operation).collect()
}

//! The history of contending clients: operations and replies, by one monotonic clock, since all of them are
//! threads of this process.

use atoll_linearizability::{Action, Answer, Operation};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How many strange replies are described.
const STRANGE_MAX: usize = 10;

/// One operation that may have happened.
#[derive(Clone, Debug)]
pub struct Record {
    /// The subject.
    pub subject: usize,
    /// The client.
    pub client: usize,
    /// The action.
    pub action: Action,
    /// The reply.
    pub answer: Answer,
    /// Nanoseconds after the beginning, before the first byte was sent.
    pub called_ns: u64,
    /// When the answer had arrived, or the client gave up.
    pub returned_ns: u64,
    /// How often it was sent.
    pub sent: u32,
    /// Whether it has a name, which makes it idempotent.
    pub is_named: bool,
    /// Whether the node said that it had been done before.
    pub was_done_before: bool,
}

/// Everything else that happened.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Operations that did not happen.
    pub refused: u64,
    /// Reads without an answer, which change nothing.
    pub unread: u64,
    /// Descriptions of unexpected replies.
    pub strange: Vec<String>,
    /// How many unexpected replies there were.
    pub strange_count: u64,
}

/// The history of all clients.
pub struct History {
    start: Instant,
    records: Mutex<Vec<Record>>,
    notes: Mutex<Notes>,
}

impl History {
    /// An empty history that begins now.
    pub fn new() -> Self {
        Self { start: Instant::now(), records: Mutex::default(), notes: Mutex::default() }
    }

    /// The current time.
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

    /// The notes, for additions.
    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an unexpected reply.
    pub fn strange(&self, words: String) {
        let mut notes = self.notes();
        notes.strange_count += 1;
        if notes.strange.len() < STRANGE_MAX {
            notes.strange.push(words);
        }
    }
}

/// The operations with distinct moments; at equal times the call comes first, since the operations may have
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

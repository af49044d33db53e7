//! A client that works on the same shared keys as all others, and records what it did.

use super::caller::{CallResult, Caller};
use super::history::{History, Record};
use super::reply::Tree;
use super::subject::Subject;
use atoll_linearizability::{Action, Answer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The pause between two operations.
const PAUSE: Duration = Duration::from_millis(8);
/// The pause after an operation that was not served.
const PAUSE_REFUSED: Duration = Duration::from_millis(25);
/// The most redirections that an operation follows.
const MOVES_MAX: u32 = 3;
/// How long after the end a named operation is still retried, and last reads are.
const LAST_TIME_MAX: Duration = Duration::from_secs(10);
/// Where stale reads are planted, one in this many is reported with the former value.
const PLANTED_EVERY: u64 = 5;

/// The client.
pub struct Contender {
    number: usize,
    caller: Caller,
    history: Arc<History>,
    subjects: Vec<Subject>,
    random: fastrand::Rng,
    /// The values that were last found, by subject and cell: swaps expect these.
    known: Vec<Vec<Option<String>>>,
    /// Operations so far.
    count: u64,
    /// The name under which its writes are numbered.
    name: String,
    sequence: u64,
    /// Whether some stale reads are reported: a fault that must be detected.
    is_planted: bool,
}

/// The result of one operation.
struct OperationResult {
    answer: Option<Answer>,
    sent: u32,
    was_done_before: bool,
}

impl Contender {
    /// The client of this number.
    pub fn new(number: usize, caller: Caller, history: Arc<History>, seed: u64, is_planted: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let subjects = Subject::all();
        let known = subjects.iter().map(|subject| vec![None; usize::from(subject.cells())]).collect();
        // A different name in each schedule and for each client.
        let name = format!("{:x}", random.u128(1..));
        Self { number, caller, history, subjects, random, known, count: 0, name, sequence: 0, is_planted }
    }

    /// Works until it is told to stop; then reads everything once more.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(SeqCst) {
            let subject = self.random.usize(..self.subjects.len());
            let action = self.action(subject);
            let is_named = match action {
                Action::Append(..) => self.random.bool(),
                Action::Swap(..) | Action::Delete(_) => self.random.u8(..3) == 0,
                _ => false,
            };
            let is_served = self.perform(subject, action, is_named, stop);
            std::thread::sleep(if is_served { PAUSE } else { PAUSE_REFUSED });
        }
        let until = Instant::now() + LAST_TIME_MAX;
        for subject in 0..self.subjects.len() {
            let action = if self.subjects[subject].is_hash { Action::Scan } else { Action::Get(0) };
            while !self.perform(subject, action.clone(), false, stop) && Instant::now() < until {
                std::thread::sleep(PAUSE_REFUSED);
            }
        }
    }

    fn action(&mut self, subject: usize) -> Action {
        self.count += 1;
        let bytes = format!("<{}.{}>", self.number, self.count);
        let (cells, is_hash) = (self.subjects[subject].cells(), self.subjects[subject].is_hash);
        let cell = self.random.u8(..cells);
        match self.random.u8(..32) {
            0..=1 if is_hash => Action::Scan,
            0..=10 => Action::Get(cell),
            11..=12 if is_hash => Action::Put((0..cells).collect(), bytes),
            11..=14 => Action::Put(vec![cell], bytes),
            15..=22 => Action::Append(cell, bytes),
            23..=29 => {
                let expected = self.known[subject][usize::from(cell)].clone();
                Action::Swap(cell, expected, bytes)
            }
            _ => Action::Delete(cell),
        }
    }

    /// Performs an operation and records it; returns whether it was answered.
    fn perform(&mut self, subject: usize, action: Action, is_named: bool, stop: &AtomicBool) -> bool {
        let called_ns = self.history.now_ns();
        let ended =
            if is_named { self.ask_named(subject, &action, stop) } else { self.ask(subject, &action) };
        let returned_ns = self.history.now_ns();
        let OperationResult { answer: Some(answer), sent, was_done_before } = ended else {
            self.history.notes().refused += u64::from(ended.sent > 0);
            return false;
        };
        let is_answered = answer != Answer::Unknown;
        if !is_answered && matches!(action, Action::Get(_) | Action::Scan) {
            self.history.notes().unread += 1;
            return false;
        }
        let answer = self.planted(subject, &action, answer);
        self.learn(subject, &action, &answer);
        let client = self.number;
        self.history.add(Record {
            subject,
            client,
            action,
            answer,
            called_ns,
            returned_ns,
            sent,
            is_named,
            was_done_before,
        });
        is_answered
    }

    /// Sends an operation once, following redirections; no answer if it did not happen.
    fn ask(&mut self, subject: usize, action: &Action) -> OperationResult {
        let words = self.subjects[subject].words(action);
        let slot = self.subjects[subject].slot;
        let mut sent = 0;
        loop {
            let heard = self.caller.call(slot, &words);
            sent += u32::from(heard != CallResult::NotSent);
            let answer = match heard {
                CallResult::Moved if sent <= MOVES_MAX => continue,
                CallResult::Moved | CallResult::Refused | CallResult::NotSent => None,
                CallResult::Unknown => Some(Answer::Unknown),
                CallResult::Strange(said) => Some(self.strange(&words, said)),
                CallResult::Answer(tree) => Some(self.understood(subject, action, &words, &tree)),
            };
            return OperationResult { answer, sent, was_done_before: false };
        }
    }

    /// Retries an operation until there is an answer, under a name that makes it idempotent.
    fn ask_named(&mut self, subject: usize, action: &Action, stop: &AtomicBool) -> OperationResult {
        self.sequence += 1;
        // Operations that were given up are never repeated, so the node may forget all of them, or none.
        let floor = if self.random.bool() { self.sequence } else { 0 };
        let mut words: Vec<String> =
            ["AT.ID", &self.name, &self.sequence.to_string(), &floor.to_string()].map(str::to_owned).into();
        words.extend(self.subjects[subject].words(action));
        let slot = self.subjects[subject].slot;
        let (mut sent, mut is_open, mut until) = (0, false, None);
        loop {
            let heard = self.caller.call(slot, &words);
            sent += u32::from(heard != CallResult::NotSent);
            match heard {
                CallResult::Answer(Tree::List(items)) if items.len() == 2 => {
                    let was_done_before = items[0] == Tree::Number(1);
                    let answer = self.understood(subject, action, &words, &items[1]);
                    return OperationResult { answer: Some(answer), sent, was_done_before };
                }
                CallResult::Answer(tree) => {
                    let answer = Some(self.strange(&words, format!("{tree:?}")));
                    return OperationResult { answer, sent, was_done_before: false };
                }
                CallResult::Strange(said) => {
                    let answer = Some(self.strange(&words, said));
                    return OperationResult { answer, sent, was_done_before: false };
                }
                CallResult::Unknown => is_open = true,
                CallResult::Moved | CallResult::Refused | CallResult::NotSent => {}
            }
            if stop.load(SeqCst) {
                let until = *until.get_or_insert_with(|| Instant::now() + LAST_TIME_MAX);
                if Instant::now() > until {
                    return OperationResult {
                        answer: is_open.then_some(Answer::Unknown),
                        sent,
                        was_done_before: false,
                    };
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn understood(&self, subject: usize, action: &Action, words: &[String], tree: &Tree) -> Answer {
        let answer = self.subjects[subject].answer(action, tree);
        answer.unwrap_or_else(|| self.strange(words, format!("{tree:?}")))
    }

    fn strange(&self, words: &[String], said: String) -> Answer {
        self.history.strange(format!("{:?} was answered with {said}", words.join(" ")));
        Answer::Unknown
    }

    /// Where a fault is planted, sometimes returns the former value instead of the one that was found.
    fn planted(&self, subject: usize, action: &Action, answer: Answer) -> Answer {
        match (action, &answer) {
            (Action::Get(cell), Answer::Value(_))
                if self.is_planted && self.count.is_multiple_of(PLANTED_EVERY) =>
            {
                Answer::Value(self.known[subject][usize::from(*cell)].clone())
            }
            _ => answer,
        }
    }

    fn learn(&mut self, subject: usize, action: &Action, answer: &Answer) {
        let known = &mut self.known[subject];
        match (action, answer) {
            (Action::Get(cell), Answer::Value(value)) | (Action::Swap(cell, ..), Answer::Conflict(value)) => {
                known[usize::from(*cell)].clone_from(value);
            }
            (Action::Scan, Answer::Cells(cells)) => {
                for (cell, value) in (0..).zip(known) {
                    *value = cells.get(&cell).cloned();
                }
            }
            (Action::Put(cells, value), Answer::Done) => {
                cells.iter().for_each(|cell| known[usize::from(*cell)] = Some(value.clone()));
            }
            (Action::Swap(cell, _, value), Answer::Done) => known[usize::from(*cell)] = Some(value.clone()),
            (Action::Append(cell, bytes), Answer::Done) => {
                known[usize::from(*cell)].get_or_insert_default().push_str(bytes);
            }
            (Action::Delete(cell), Answer::Done) => known[usize::from(*cell)] = None,
            _ => {}
        }
    }
}

//! Judges the histories of all shared keys, each by itself: a history is linearizable if that of each key
//! is.
//!
//! Invariant: a history that the checker could not decide is reported as undecided, and never counts as
//! sound.

use super::history::{History, Record, operations};
use super::subject::Subject;
use atoll_linearizability::{Answer, Explained, Operation, explain_within, settled};
use std::fmt::Write;
use std::path::Path;

/// The most states that are tried for a history: each may be remembered, with a few hundred bytes.
const TRIES_MAX: u64 = 2_000_000;
/// A schedule with fewer operations than this proves nothing.
const OPERATIONS_MIN: u64 = 300;
/// Nor does one in which fewer than this percentage of operations ended with an answer.
const DEFINITE_PERCENT_MIN: u64 = 60;

/// The results of contending clients, and whether they can be explained.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Judged {
    /// Operations that were answered.
    pub done: u64,
    /// Operations that did not happen.
    pub refused: u64,
    /// Writes with an unknown outcome.
    pub unknown: u64,
    /// Reads that were not answered.
    pub unread: u64,
    /// Named writes that were sent more than once.
    pub repeated: u64,
    /// Named writes that were found to be done before.
    pub done_before: u64,
    /// Histories that some order explains.
    pub linearizable: u64,
    /// Histories that no order explains.
    pub broken: u64,
    /// Histories on which the checker gave up.
    pub undecided: u64,
    /// Replies that were not expected.
    pub strange: u64,
    /// Descriptions of what is wrong.
    pub told: Vec<String>,
}

impl Judged {
    /// How many operations were sent.
    pub fn operations(&self) -> u64 {
        self.done + self.refused + self.unknown + self.unread
    }

    /// Whether enough happened to prove anything.
    pub fn is_enough(&self) -> bool {
        let sent = self.done + self.unknown + self.unread;
        sent >= OPERATIONS_MIN && self.done * 100 >= sent * DEFINITE_PERCENT_MIN
    }

    /// Whether everything is explained, and enough happened.
    pub fn is_well(&self) -> bool {
        self.broken + self.undecided + self.strange == 0 && self.is_enough()
    }
}

/// Judges the history of each subject; one without an explanation is written into the folder.
pub fn judge(history: &History, seed: u64, folder: &Path) -> Judged {
    let records = history.records();
    let notes = history.notes().clone();
    let count = |is_meant: fn(&Record) -> bool| records.iter().filter(|one| is_meant(one)).count() as u64;
    let mut judged = Judged {
        done: count(|one| one.answer != Answer::Unknown),
        unknown: count(|one| one.answer == Answer::Unknown),
        repeated: count(|one| one.is_named && one.sent > 1),
        done_before: count(|one| one.was_done_before),
        refused: notes.refused,
        unread: notes.unread,
        strange: notes.strange_count,
        told: notes.strange,
        ..Judged::default()
    };
    if !judged.is_enough() {
        let (operations, done) = (judged.operations(), judged.done);
        judged.told.push(format!("too little: {operations} operations on shared keys, {done} answered"));
    }
    for (number, subject) in Subject::all().iter().enumerate() {
        let mut records: Vec<Record> = records.iter().filter(|one| one.subject == number).cloned().collect();
        records.sort_by_key(|one| one.called_ns);
        let operations = settled(&operations(&records));
        let explained = explain_within(&operations, TRIES_MAX);
        let words = match &explained {
            Some(Explained::By(_)) => {
                judged.linearizable += 1;
                continue;
            }
            Some(Explained::Never { longest }) => {
                judged.broken += 1;
                format!("NOT LINEARIZABLE: {} of {} operations", longest.len(), operations.len())
            }
            None => {
                judged.undecided += 1;
                format!("UNDECIDED after {TRIES_MAX} tries: {} operations", operations.len())
            }
        };
        let file = folder.join(format!("history-{}.txt", subject.name));
        let text = text(&words, subject, seed, &records, &operations, explained.as_ref());
        let written = std::fs::write(&file, text).map_or_else(
            |error| format!("not written: {error}"),
            |()| format!("history-{}.txt", subject.name),
        );
        judged.told.push(format!("{}: {words} ({written})", subject.name));
    }
    judged
}

/// A history as text, for the person who has to understand it.
fn text(
    words: &str,
    subject: &Subject,
    seed: u64,
    records: &[Record],
    operations: &[Operation],
    explained: Option<&Explained>,
) -> String {
    let mut text = format!(
        "{words}\n{} (slot {}), schedule seed {seed}\n\
         again: cargo xtask bench ring --phases schedules --schedule-seed {seed}\n\n\
         milliseconds from and to, client, times sent, whether named, action, answer\n",
        subject.name, subject.slot
    );
    let ms = |ns: u64| ns as f64 / 1e6;
    for one in records {
        let _ = writeln!(
            text,
            "{:>12.3} {:>12.3}  {:>2} {:>3} {:<5}  {:?}  {:?}",
            ms(one.called_ns),
            ms(one.returned_ns),
            one.client,
            one.sent,
            if one.is_named { "named" } else { "" },
            one.action,
            one.answer
        );
    }
    if let Some(Explained::Never { longest }) = explained {
        text.push_str("\nthe longest order that was found, by moments in the order of time:\n");
        let ordered = longest.iter().map(|at| ("", &operations[*at]));
        let left = operations.iter().enumerate().filter(|(at, _)| !longest.contains(at));
        let left = left.map(|(_, operation)| ("left over", operation)).take(20);
        for (word, one) in ordered.chain(left) {
            let _ = writeln!(
                text,
                "{:>6} {:>6}  {:?}  {:?} {word}",
                one.called, one.returned, one.action, one.answer
            );
        }
    }
    text
}

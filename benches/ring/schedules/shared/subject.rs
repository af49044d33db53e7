//! The shared keys: strings, and hashes of two fields; the command of each action, and the meaning of its
//! answer.

use super::reply::Tree;
use crate::cut::slot_of;
use atoll_linearizability::{Action, Answer};

/// How many fields a hash has.
pub const FIELDS: u8 = 2;
const HASHES: usize = 2;
const STRINGS: usize = 4;

/// A key with a history of its own.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Its slot.
    pub slot: usize,
    /// Whether it has fields.
    pub is_hash: bool,
}

impl Subject {
    /// All subjects, with eight cells in total.
    pub fn all() -> Vec<Self> {
        let hashes = (0..HASHES).map(|number| (format!("shared-hash-{number}"), true));
        let strings = (0..STRINGS).map(|number| (format!("shared-string-{number}"), false));
        let subject = |(name, is_hash): (String, bool)| {
            let slot = slot_of(name.as_bytes());
            Self { name, slot, is_hash }
        };
        hashes.chain(strings).map(subject).collect()
    }

    /// How many cells it has.
    pub fn cells(&self) -> u8 {
        if self.is_hash { FIELDS } else { 1 }
    }

    /// The command of an action.
    pub fn words(&self, action: &Action) -> Vec<String> {
        let words = if self.is_hash { self.words_of_hash(action) } else { self.words_of_string(action) };
        words.into_iter().map(|word| word.replace('@', &self.name)).collect()
    }

    fn words_of_string(&self, action: &Action) -> Vec<String> {
        match action {
            Action::Get(_) | Action::Scan => line("GET @"),
            Action::Put(_, value) => line(&format!("SET @ {value}")),
            Action::Append(_, bytes) => line(&format!("APPEND @ {bytes}")),
            Action::Swap(_, Some(expected), value) => line(&format!("SET @ {value} IFEQ {expected} GET")),
            Action::Swap(_, None, value) => line(&format!("SET @ {value} NX GET")),
            Action::Delete(_) => line("DEL @"),
        }
    }

    fn words_of_hash(&self, action: &Action) -> Vec<String> {
        match action {
            Action::Get(field) => line(&format!("HGET @ f{field}")),
            Action::Scan => line("HMGET @ f0 f1"),
            Action::Put(fields, value) => {
                let puts: String = fields.iter().map(|field| format!(" PUT f{field} {value}")).collect();
                line(&format!("AT.BATCH @{puts}"))
            }
            Action::Append(field, bytes) => line(&format!("AT.BATCH @ APPEND f{field} {bytes}")),
            Action::Swap(field, Some(expected), value) => {
                line(&format!("AT.BATCH @ IFEQ f{field} {expected} PUT f{field} {value}"))
            }
            Action::Swap(field, None, value) => {
                line(&format!("AT.BATCH @ IFABSENT f{field} PUT f{field} {value}"))
            }
            Action::Delete(field) => line(&format!("HDEL @ f{field}")),
        }
    }

    /// The meaning of a reply; `None` if it does not answer that action.
    pub fn answer(&self, action: &Action, tree: &Tree) -> Option<Answer> {
        let is_ok = *tree == Tree::Status("OK".to_owned());
        match (action, tree) {
            (Action::Get(_), Tree::Text(value)) => Some(Answer::Value(value.clone())),
            (Action::Scan, Tree::List(items)) if items.len() == usize::from(FIELDS) => {
                let mut cells = atoll_linearizability::Cells::new();
                for (field, item) in (0..FIELDS).zip(items) {
                    let Tree::Text(value) = item else { return None };
                    cells.extend(value.clone().map(|value| (field, value)));
                }
                Some(Answer::Cells(cells))
            }
            (Action::Swap(_, expected, _), Tree::Text(found)) if !self.is_hash => {
                Some(if found == expected { Answer::Done } else { Answer::Conflict(found.clone()) })
            }
            (Action::Swap(..), Tree::List(items)) => match items.as_slice() {
                [Tree::Number(_), Tree::Text(found), _] => Some(Answer::Conflict(found.clone())),
                _ => None,
            },
            (Action::Append(..), Tree::Number(_)) if !self.is_hash => Some(Answer::Done),
            (Action::Delete(_), Tree::Number(_)) => Some(Answer::Done),
            (Action::Put(..), _) if is_ok => Some(Answer::Done),
            (Action::Append(..) | Action::Swap(..), _) if is_ok && self.is_hash => Some(Answer::Done),
            _ => None,
        }
    }
}

fn line(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

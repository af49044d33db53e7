//! Waits: how soon a client that waits for a field is told of a write, and the memory cost of watches.
//!
//! Invariant: what is measured is correct: every waiting client is told once, with the value that it waited
//! for, and no other client is told.

mod memory;
mod report;
mod wake;

pub use report::{is_right, print, rows};

use crate::client::{Incoming, SpeakError};
use crate::phases::Scale;
use crate::servers::{BenchPaths, Durability, Kind, Server, ServerError};

/// How many connections watch.
const CONNECTIONS: usize = 100;
/// Longer than any phase.
const WATCH_MS: &[u8] = b"3600000";
/// The field that every key has.
const FIELD: &[u8] = b"seen";

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// There is no server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A connection failed.
    #[error(transparent)]
    Speak(#[from] SpeakError),
    /// The waiting side ended.
    #[error("the side that waits ended")]
    Ended,
    /// The system does not report the memory of a process.
    #[error("not offered here: the memory of a process is not told")]
    NoMemory,
    /// A client was told wrongly, or not at all.
    #[error("{0}")]
    Wrong(String),
}

/// The results.
#[derive(Default, serde::Serialize)]
pub struct Findings {
    /// Latencies, round by round.
    pub rounds: Vec<wake::Round>,
    /// The memory of watches.
    pub memory: Option<memory::WatchMemory>,
    /// What could not be measured or was wrong, and why.
    pub missing: Vec<String>,
    /// How many of these are wrong or missing notifications.
    pub wrong: u64,
}

/// Measures one node in memory, or two, one after the other; `told` is called at each step.
pub fn run(scale: Scale, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Findings {
    let mut findings = Findings::default();
    told("waits, memory of watches");
    match start(place).and_then(|server| memory::run(&server, watches(scale))) {
        Ok(taken) => findings.memory = Some(taken),
        Err(error) => findings.heed(&error),
    }
    let ended = start(place).and_then(|server| {
        for round in 0..scale.rounds {
            told(&format!("waits, round {} of {}", round + 1, scale.rounds));
            findings.rounds.push(wake::round(&server, round, scale)?);
        }
        Ok(())
    });
    if let Err(error) = ended {
        findings.heed(&error);
    }
    findings
}

impl Findings {
    fn heed(&mut self, error: &WaitError) {
        self.wrong += u64::from(matches!(error, WaitError::Wrong(_)));
        let why = crate::phases::with_sources(error);
        if !self.missing.contains(&why) {
            self.missing.push(why);
        }
    }
}

fn start(place: &BenchPaths) -> Result<Server, WaitError> {
    Ok(Server::start(Kind::Atoll, Durability::Memory, place)?)
}

/// The bar is about as many watches as there are keys; a first look takes a tenth.
fn watches(scale: Scale) -> u32 {
    if scale.measured_ms >= Scale::FULL.measured_ms { scale.keys } else { scale.keys.div_ceil(10) }
}

/// A value of 16 bytes with the key and the turn.
fn value(key: u32, turn: u32) -> [u8; 16] {
    let mut value = [0; 16];
    let number = u64::from(key) << 32 | u64::from(turn);
    for (at, digit) in value.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize & 15];
    }
    value
}

/// The watch that a push is about, and its value; `None` unless the push says that its value came.
fn pushed(heard: &Incoming) -> Option<(u32, &[u8])> {
    let Incoming::Push(parts) = heard else { return None };
    match &parts[..] {
        [Incoming::Value(word), Incoming::Number(id), Incoming::Number(1), Incoming::Value(value)]
            if word == b"at.watch" =>
        {
            Some((u32::try_from(*id).ok()?, value))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_push_that_says_which_value_came_is_one() {
        let parts = |word: &[u8], last: Incoming| {
            vec![Incoming::Value(word.to_vec()), Incoming::Number(7), Incoming::Number(1), last]
        };
        let value = Incoming::Value(b"v".to_vec());
        assert_eq!(pushed(&Incoming::Push(parts(b"at.watch", value.clone()))), Some((7, &b"v"[..])));
        assert_eq!(pushed(&Incoming::List(parts(b"at.watch", value.clone()))), None);
        assert_eq!(pushed(&Incoming::Push(parts(b"message", value))), None);
        assert_eq!(pushed(&Incoming::Push(parts(b"at.watch", Incoming::Nothing))), None);
    }

    #[test]
    fn values_of_other_keys_and_turns_are_others() {
        assert_eq!(&value(1, 2), b"0000000100000002");
        assert_ne!(value(1, 2), value(2, 1));
    }
}

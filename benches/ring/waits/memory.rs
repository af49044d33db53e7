//! The cost of watches: the memory of a node before and after, and whether freed memory is reused.
//!
//! Every key exists before the first measurement, so that growth is due to watches. Everything is watched
//! and then written, twice: what the second pass adds to the first was not reused.
//!
//! Invariant: every watch is notified once, with its value, and only after its write; otherwise there is no
//! figure.

use super::{CONNECTIONS, FIELD, WATCH_MS, WaitError, pushed, value};
use crate::client::{Incoming, Pieces, Speaker, unexpected};
use crate::machine::process_anonymous_bytes;
use crate::servers::Server;

/// How many commands of a connection are under way together: few, so that buffers are not what is measured.
const COMMANDS_PER_BATCH: usize = 20;
/// How often everything is watched.
pub const PASSES: usize = 2;

/// Memory of the node, in bytes.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct WatchMemory {
    /// How many watches.
    pub watches: u32,
    /// How many connections.
    pub connections: usize,
    /// Memory of all connections.
    pub connections_bytes: u64,
    /// Memory before the first watch, with connections and keys.
    pub before_bytes: u64,
    /// Memory with all watches, in each pass.
    pub watched_bytes: Vec<u64>,
    /// Memory after all were notified, in each pass.
    pub told_bytes: Vec<u64>,
}

impl WatchMemory {
    /// The cost of a watch in the first pass.
    pub fn each(&self) -> Option<f64> {
        let first = *self.watched_bytes.first()?;
        Some(first.saturating_sub(self.before_bytes) as f64 / f64::from(self.watches.max(1)))
    }

    /// The memory per watch of the last pass that was not reused.
    pub fn each_added(&self) -> Option<f64> {
        let (first, last) = (*self.watched_bytes.first()?, *self.watched_bytes.last()?);
        Some(last.saturating_sub(first) as f64 / f64::from(self.watches.max(1)))
    }
}

/// The watching connections, the writing one, and the pushes that are due.
struct Crowd {
    watching: Vec<Speaker>,
    writing: Speaker,
    watches: u32,
}

/// Watches and writes everything.
pub fn run(server: &Server, watches: u32) -> Result<WatchMemory, WaitError> {
    let bytes = || process_anonymous_bytes(server.process()).ok_or(WaitError::NoMemory);
    let mut taken = WatchMemory { watches, connections: CONNECTIONS, ..WatchMemory::default() };
    let mut writing = Speaker::connect(server.address)?;
    for key in 0..watches {
        writing.add(&[b"HSET", &Pieces::key(key), FIELD, &value(key, 0)]);
        if key as usize % COMMANDS_PER_BATCH == COMMANDS_PER_BATCH - 1 || key == watches - 1 {
            writing.send()?;
            for _ in 0..=key as usize % COMMANDS_PER_BATCH {
                number(&mut writing)?;
            }
        }
    }
    let without = bytes()?;
    let watching = (0..CONNECTIONS).map(|_| greeted(server)).collect::<Result<_, _>>()?;
    taken.before_bytes = bytes()?;
    taken.connections_bytes = taken.before_bytes.saturating_sub(without);
    let mut crowd = Crowd { watching, writing, watches };
    for turn in 1..=PASSES as u32 {
        crowd.watch(turn)?;
        taken.watched_bytes.push(bytes()?);
        crowd.nothing_else()?;
        crowd.wake(turn)?;
        crowd.nothing_else()?;
        taken.told_bytes.push(bytes()?);
    }
    Ok(taken)
}

fn greeted(server: &Server) -> Result<Speaker, WaitError> {
    let mut speaker = Speaker::connect(server.address)?;
    let words: [&[u8]; 2] = [b"HELLO", b"3"];
    match speaker.say(&words)? {
        Incoming::List(_) => Ok(speaker),
        heard => Err(unexpected(&words, &heard).into()),
    }
}

/// The reply to a write is the number of new fields.
fn number(speaker: &mut Speaker) -> Result<(), WaitError> {
    match speaker.hear()? {
        Incoming::Number(0 | 1) => Ok(()),
        heard => Err(unexpected(&[b"HSET"], &heard).into()),
    }
}

impl Crowd {
    /// Batches of keys, with those of a connection together.
    fn batches(&self) -> impl Iterator<Item = (usize, Vec<u32>)> + use<> {
        let watches = self.watches;
        let of = move |connection| {
            let keys: Vec<u32> = (connection as u32..watches).step_by(CONNECTIONS).collect();
            keys.chunks(COMMANDS_PER_BATCH).map(|batch| (connection, batch.to_vec())).collect::<Vec<_>>()
        };
        (0..CONNECTIONS).flat_map(of)
    }

    /// Watches everything for the value of this turn.
    fn watch(&mut self, turn: u32) -> Result<(), WaitError> {
        for (connection, keys) in self.batches() {
            let speaker = &mut self.watching[connection];
            for &key in &keys {
                let (id, name, new) = (key.to_string(), Pieces::key(key), value(key, turn));
                speaker.add(&[b"AT.WATCH", id.as_bytes(), WATCH_MS, &name, FIELD, b"EQ", &new]);
            }
            speaker.send()?;
            for _ in &keys {
                match speaker.hear()? {
                    Incoming::Status(_) => {}
                    heard => return Err(unexpected(&[b"AT.WATCH"], &heard).into()),
                }
            }
        }
        Ok(())
    }

    /// Writes everything, and checks that every watch is notified.
    fn wake(&mut self, turn: u32) -> Result<(), WaitError> {
        for (connection, keys) in self.batches() {
            for &key in &keys {
                self.writing.add(&[b"HSET", &Pieces::key(key), FIELD, &value(key, turn)]);
            }
            self.writing.send()?;
            keys.iter().try_for_each(|_| number(&mut self.writing))?;
            let mut due = keys;
            while !due.is_empty() {
                let heard = self.watching[connection].hear()?;
                take_due(&mut due, turn, &heard).map_err(WaitError::Wrong)?;
            }
        }
        Ok(())
    }

    /// Checks that a connection receives the answer to a command and nothing before it.
    fn nothing_else(&mut self) -> Result<(), WaitError> {
        for speaker in &mut self.watching {
            match speaker.say(&[b"PING"])? {
                Incoming::Status(_) => {}
                heard => return Err(WaitError::Wrong(format!("told unasked, or twice: {}", heard.told()))),
            }
        }
        Ok(())
    }
}

/// Checks that a push is one of those that are due and has its value; then it is not due any more.
fn take_due(due: &mut Vec<u32>, turn: u32, heard: &Incoming) -> Result<(), String> {
    let (id, told) = pushed(heard).ok_or_else(|| format!("no push of a value: {}", heard.told()))?;
    let place = due.iter().position(|key| *key == id);
    let place = place.ok_or_else(|| format!("watch {id} was told twice, or before its write"))?;
    if told != value(id, turn) {
        return Err(format!("watch {id} was told {}", told.escape_ascii()));
    }
    due.swap_remove(place);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(id: i64, value: &[u8]) -> Incoming {
        let word = Incoming::Value(b"at.watch".to_vec());
        Incoming::Push(vec![word, Incoming::Number(id), Incoming::Number(1), Incoming::Value(value.to_vec())])
    }

    #[test]
    fn a_watch_is_told_once_of_its_own_value_and_of_no_other() {
        let mut due = vec![3, 5];
        assert!(take_due(&mut due, 1, &push(5, &value(5, 0))).is_err(), "an older value");
        assert!(take_due(&mut due, 1, &push(4, &value(4, 1))).is_err(), "not written");
        assert!(take_due(&mut due, 1, &Incoming::Status(b"OK".to_vec())).is_err());
        assert!(take_due(&mut due, 1, &push(5, &value(5, 1))).is_ok());
        assert!(take_due(&mut due, 1, &push(5, &value(5, 1))).is_err(), "twice");
        assert_eq!(due, [3]);
    }

    #[test]
    fn what_each_takes_is_what_was_added_and_what_is_used_again_adds_nothing() {
        let mut taken = WatchMemory { watches: 100, before_bytes: 1_000, ..WatchMemory::default() };
        assert_eq!(taken.each(), None);
        taken.watched_bytes = vec![51_000, 56_000];
        assert_eq!((taken.each(), taken.each_added()), (Some(500.0), Some(50.0)));
        taken.watched_bytes = vec![51_000, 40_000];
        assert_eq!(taken.each_added(), Some(0.0));
    }
}

//! Clients that write while slots move, each to its own keys: appends of unique tokens, and sets.
//!
//! Invariant: a token is sent once, or always under one name: a token that is found twice is a doubled
//! write.

use crate::client::Incoming;
use crate::cut::slot_of;
use crate::local::Follower;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The pause between two operations.
const PAUSE: Duration = Duration::from_millis(8);
/// How many keys each client has; tokens are distributed in turn.
const KEYS: usize = 48;
/// One in this many named appends is repeated after it was answered.
const AGAIN_EVERY: u64 = 3;

/// How a client names its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Each follows `AT.ID`.
    Named,
    /// Writes have no names.
    Plain,
}

/// The results.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Tally {
    /// Operations that were answered.
    pub done: u64,
    /// How many of them were redirected to another node.
    pub followed: u64,
    /// The most redirections of one operation.
    pub hops_most: u32,
    /// Operations that ended with an error, by the first word of the error.
    pub failed: BTreeMap<String, u64>,
    /// Tokens that were looked up at the end.
    pub looked_up: u64,
    /// Tokens found more than once, and named writes that were done again.
    pub doubled: u64,
    /// Acknowledged tokens and values that are missing.
    pub lost: u64,
    /// Contents that were never written, or were refused.
    pub foreign: u64,
    /// Slots that nobody answered for at the end, so that their last write was not looked up.
    pub unanswered: u64,
    /// Descriptions of the first wrong results.
    pub told: Vec<String>,
}

impl Tally {
    /// How many operations failed.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Counts an error.
    pub fn fail(&mut self, words: &str) {
        let first = words.split([' ', ':']).next().unwrap_or_default().to_owned();
        *self.failed.entry(first).or_default() += 1;
        self.tell(words.to_owned());
    }

    /// Records a description, if there are not too many yet.
    pub fn tell(&mut self, words: String) {
        if self.told.len() < 8 {
            self.told.push(words);
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.done += other.done;
        self.followed += other.followed;
        self.hops_most = self.hops_most.max(other.hops_most);
        other.failed.into_iter().for_each(|(word, count)| *self.failed.entry(word).or_default() += count);
        self.looked_up += other.looked_up;
        self.doubled += other.doubled;
        self.lost += other.lost;
        self.foreign += other.foreign;
        self.unanswered += other.unanswered;
        other.told.into_iter().for_each(|words| self.tell(words));
    }
}

/// The outcome of a token's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Acknowledged,
    Unknown,
}

/// The client.
pub struct Writer {
    number: usize,
    naming: Naming,
    follower: Follower,
    tokens: HashMap<String, HashMap<String, Fate>>,
    values: HashMap<String, String>,
    next: u64,
    tally: Tally,
}

impl Writer {
    /// A writer that has written nothing yet.
    pub fn new(number: usize, naming: Naming, follower: Follower) -> Self {
        Self {
            number,
            naming,
            follower,
            tokens: HashMap::new(),
            values: HashMap::new(),
            next: 0,
            tally: Tally::default(),
        }
    }

    /// Writes until it is told to stop.
    pub fn write(&mut self, stop: &AtomicBool) {
        while !stop.load(SeqCst) {
            self.next += 1;
            match (self.naming, self.next % 2) {
                (Naming::Plain, 0) => self.set(),
                _ => self.append(),
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn append(&mut self) {
        let number = self.next;
        let key = format!("t{:02}-{}", self.number, number as usize % KEYS);
        let token = format!("{}.{number};", self.number);
        let name = format!("{:032x}", 0xa701_u64 + self.number as u64);
        let (sequence, floor) = (number.to_string(), number.saturating_sub(1).to_string());
        let mut words: Vec<&[u8]> = Vec::new();
        if self.naming == Naming::Named {
            words.extend([b"AT.ID", name.as_bytes(), sequence.as_bytes(), floor.as_bytes()]);
        }
        words.extend([b"APPEND", key.as_bytes(), token.as_bytes()]);
        let slot = slot_of(key.as_bytes());
        let mut fate = self.ask(slot, &words, false);
        if self.naming == Naming::Named && fate == Fate::Acknowledged && number.is_multiple_of(AGAIN_EVERY) {
            fate = self.ask(slot, &words, true);
        }
        self.tokens.entry(key).or_default().insert(token, fate);
    }

    fn set(&mut self) {
        let key = format!("v{:02}-{}", self.number, self.next as usize % KEYS);
        let value = format!("{key}:{}", self.next);
        let words: [&[u8]; 3] = [b"SET", key.as_bytes(), value.as_bytes()];
        match self.ask(slot_of(key.as_bytes()), &words, false) {
            Fate::Acknowledged => drop(self.values.insert(key, value)),
            // Whatever is there is right from now on.
            Fate::Unknown => drop(self.values.remove(&key)),
        }
    }

    /// Sends a write; `is_again` if it was done already.
    fn ask(&mut self, slot: usize, words: &[&[u8]], is_again: bool) -> Fate {
        let answered = self.follower.call(slot, words);
        (self.tally.followed, self.tally.hops_most) = (self.follower.followed, self.follower.hops_most);
        let heard = match answered {
            Ok(heard) => heard,
            Err(words) => {
                self.tally.fail(&words);
                return if is_again { Fate::Acknowledged } else { Fate::Unknown };
            }
        };
        self.tally.done += 1;
        if self.naming == Naming::Named {
            let was_done = match &heard {
                Incoming::List(parts) if parts.len() == 2 => parts[0] == Incoming::Number(1),
                _ => {
                    self.tally.fail(&heard.told());
                    return Fate::Unknown;
                }
            };
            if was_done != is_again {
                self.tally.doubled += u64::from(is_again);
                self.tally.foreign += u64::from(!is_again);
                let name = words[1..3].iter().map(|word| word.escape_ascii().to_string());
                let name = name.collect::<Vec<_>>().join(" ");
                self.tally.tell(format!("{name}: asked for again {is_again}, done before {was_done}"));
            }
        }
        Fate::Acknowledged
    }

    /// Looks up everything that was written and returns the results.
    pub fn look_up(mut self) -> Tally {
        for (key, tokens) in std::mem::take(&mut self.tokens) {
            let found = self.read(&key);
            self.judge(&key, &tokens, &found);
        }
        for (key, value) in std::mem::take(&mut self.values) {
            let found = self.read(&key);
            self.tally.looked_up += 1;
            if found != value {
                self.tally.lost += 1;
                self.tally.tell(format!("{key} is {found:?} and {value} was acknowledged"));
            }
        }
        self.tally
    }

    fn read(&mut self, key: &str) -> String {
        match self.follower.call(slot_of(key.as_bytes()), &[b"GET", key.as_bytes()]) {
            Ok(Incoming::Value(value)) => String::from_utf8_lossy(&value).into_owned(),
            Ok(_) => String::new(),
            Err(words) => {
                self.tally.fail(&words);
                String::new()
            }
        }
    }

    fn judge(&mut self, key: &str, tokens: &HashMap<String, Fate>, found: &str) {
        let mut counted: HashMap<&str, u64> = HashMap::new();
        found.split_inclusive(';').for_each(|token| *counted.entry(token).or_default() += 1);
        for (token, fate) in tokens {
            self.tally.looked_up += 1;
            let count = counted.remove(token.as_str()).unwrap_or(0);
            if count > 1 {
                self.tally.doubled += 1;
                self.tally.tell(format!("{key} has {token} {count} times"));
            }
            if count == 0 && *fate == Fate::Acknowledged {
                self.tally.lost += 1;
                self.tally.tell(format!("{key} lacks {token}"));
            }
        }
        if let Some(strange) = counted.keys().next() {
            self.tally.foreign += 1;
            self.tally.tell(format!("{key} has {strange}, which nobody wrote"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_there_twice_or_not_at_all_or_was_never_written_is_told() {
        let mut writer = Writer::new(1, Naming::Plain, Follower::new(&[], ""));
        let fates = [("1.1;", Fate::Acknowledged), ("1.2;", Fate::Acknowledged), ("1.3;", Fate::Unknown)];
        let tokens = fates.map(|(token, fate)| (token.to_owned(), fate)).into();
        writer.judge("t", &tokens, "1.1;1.2;");
        writer.judge("t", &tokens, "1.1;1.2;1.3;");
        assert_eq!((writer.tally.lost, writer.tally.doubled, writer.tally.foreign), (0, 0, 0));
        writer.judge("t", &tokens, "1.1;1.2;1.3;1.1;");
        assert_eq!((writer.tally.lost, writer.tally.doubled, writer.tally.foreign), (0, 1, 0));
        writer.judge("t", &tokens, "1.1;1.3;");
        assert_eq!((writer.tally.lost, writer.tally.doubled, writer.tally.foreign), (1, 1, 0));
        writer.judge("t", &tokens, "1.1;1.2;2.1;");
        assert_eq!((writer.tally.lost, writer.tally.doubled, writer.tally.foreign), (1, 1, 1));
    }

    #[test]
    fn failures_are_counted_by_their_first_word() {
        let mut tally = Tally::default();
        tally.fail("TRYAGAIN not now");
        tally.fail("TRYAGAIN not yet");
        tally.fail("a connection of its own broke: reset");
        assert_eq!((tally.failures(), tally.failed["TRYAGAIN"]), (3, 2));
    }
}

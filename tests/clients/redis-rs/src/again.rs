//! The checks again and again while nodes come and go, and once more when they have.

use crate::checks::{CHECKS, Check, Held};
use crate::{Broken, Ring};
use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, cmd};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Debug, Display, Formatter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The first words of errors by which a node says that a command may succeed later, or that it does not know
/// its fate.
const LATER: [&str; 7] = ["MOVED", "ASK", "CLUSTERDOWN", "LOADING", "TRYAGAIN", "NOREPLICAS", "UNKNOWN"];
/// These also depend on which node leads what, and slots may move while they are made.
const OF_LEADERS: [&str; 2] = ["scan", "moved"];
const ATTEMPTS_MAX: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(20);
/// Between rounds, so that the writers keep most of the machine.
const PAUSE: Duration = Duration::from_millis(300);
/// By then every node has heard who leads a slot now.
const HEARD_MAX: Duration = Duration::from_secs(3);

/// One attempt at a check. Number 0 is the one before nodes change, which has the plain keys; every other one
/// has keys of its own, so that what an interrupted attempt left behind does not confuse the next one.
#[derive(Clone, Copy, Default)]
pub struct Turn {
    pub number: usize,
    /// Whether a connection may end now. The client then sends a command again by itself, and cannot know
    /// whether it was carried out before.
    pub may_send_twice: bool,
}

impl Turn {
    pub fn key(self, name: &str) -> String {
        if self.number == 0 { name.to_owned() } else { format!("again-{}-{name}", self.number) }
    }

    /// One of the keys of a tag, which share a slot.
    pub fn tagged(self, tag: &str, number: usize) -> String {
        format!("{{{}}}{number}", self.key(tag))
    }

    /// Checks the answer to a command that answers differently, in this known way, when it is carried out
    /// twice.
    pub fn once<T: PartialEq + Debug>(self, actual: RedisResult<T>, expected: T, twice: T) -> Held {
        let actual = actual?;
        if actual == expected {
            return Ok(());
        }
        let otherwise = format!("{actual:?} instead of {expected:?}");
        if self.may_send_twice && actual == twice {
            return Err(SentTwice(otherwise).into());
        }
        Err(otherwise.into())
    }
}

/// The answer is that to a command which the client sent again after it had been carried out.
#[derive(Debug)]
struct SentTwice(String);

impl Display for SentTwice {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "sent twice: {}", self.0)
    }
}

impl Error for SentTwice {}

/// Whether a failed command may succeed later: its node is gone or about to be, or its slot moves.
pub fn is_later(error: &RedisError) -> bool {
    let said = error.to_string();
    let is_gone = matches!(
        error.kind(),
        ErrorKind::ClusterConnectionNotFound
            | ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown)
    );
    is_gone
        || error.is_io_error()
        || error.is_cluster_error()
        || said.contains("Missing slot coverage")
        || said.split(|each: char| !each.is_ascii_uppercase()).any(|word| LATER.contains(&word))
}

fn is_later_than(broken: &Broken) -> bool {
    broken.downcast_ref::<RedisError>().is_some_and(is_later)
}

/// Who leads which slots, as a node says: each range with an address.
pub fn leaders(client: &mut ClusterConnection) -> Result<Vec<(String, String)>, Broken> {
    let said: String = cmd("CLUSTER").arg("NODES").query(client)?;
    let mut told = Vec::new();
    for line in said.lines() {
        let mut words = line.split(' ');
        let Some(address) = words.nth(1).and_then(|word| word.split('@').next()) else { continue };
        // The flags, the leader, two times, the epoch and the state of the connection come before the slots.
        told.extend(words.skip(6).map(|range| (range.to_owned(), address.to_owned())));
    }
    told.sort();
    Ok(told)
}

/// The checks, round after round, with a connection of their own.
pub struct Repeated<'a> {
    ring: &'a Ring,
    client: &'a ClusterClient,
    connection: ClusterConnection,
    attempts: usize,
    pub rounds: usize,
    pub sent_twice: usize,
    pub at_end: Vec<&'static str>,
    pub met: BTreeMap<String, usize>,
}

impl<'a> Repeated<'a> {
    pub fn new(ring: &'a Ring, client: &'a ClusterClient) -> RedisResult<Self> {
        let connection = client.get_connection()?;
        let (at_end, met) = (Vec::new(), BTreeMap::new());
        Ok(Self { ring, client, connection, attempts: 0, rounds: 0, sent_twice: 0, at_end, met })
    }

    /// Makes rounds until it is over, and then one more.
    pub fn run(&mut self, is_over: &AtomicBool) -> Held {
        loop {
            let is_last = is_over.load(Ordering::Relaxed);
            self.at_end.clear();
            for &(name, check) in CHECKS {
                self.make(name, check, is_last)
                    .map_err(|broken| format!("while nodes changed: {name}: {broken}"))?;
                self.at_end.push(name);
            }
            self.rounds += 1;
            if is_last {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }

    fn make(&mut self, name: &str, check: Check, is_last: bool) -> Held {
        let until = Instant::now() + ATTEMPTS_MAX;
        loop {
            self.attempts += 1;
            let turn = Turn { number: self.attempts, may_send_twice: !is_last };
            let Some(why) = self.attempt(name, check, turn)? else { return Ok(()) };
            *self.met.entry(format!("{name}: {why}").chars().take(80).collect()).or_default() += 1;
            if Instant::now() > until {
                return Err(format!("not made in {} s: {why}", ATTEMPTS_MAX.as_secs()).into());
            }
            thread::sleep(RETRY);
            // A connection of this client keeps trying the node that is gone.
            if is_later_than(&why)
                && let Ok(fresh) = self.client.get_connection()
            {
                self.connection = fresh;
            }
        }
    }

    /// Why the check has to begin again; none if it holds.
    fn attempt(&mut self, name: &str, check: Check, turn: Turn) -> Result<Option<Broken>, Broken> {
        let mut before = None;
        if OF_LEADERS.contains(&name) {
            match leaders(&mut self.connection) {
                Ok(told) => before = Some(told),
                Err(broken) if is_later_than(&broken) => return Ok(Some(broken)),
                Err(broken) => return Err(broken),
            }
        }
        let Err(broken) = check(&mut self.connection, self.ring, turn) else { return Ok(None) };
        if broken.is::<SentTwice>() {
            self.sent_twice += 1;
            return Ok(Some(broken));
        }
        if is_later_than(&broken) || before.is_some_and(|before| self.have_changed(&before)) {
            return Ok(Some(broken));
        }
        Err(broken)
    }

    /// Whether slots have other leaders than before, or get them shortly: a node may not have heard yet.
    fn have_changed(&mut self, before: &[(String, String)]) -> bool {
        let until = Instant::now() + HEARD_MAX;
        while Instant::now() < until {
            if leaders(&mut self.connection).is_ok_and(|now| now != before) {
                return true;
            }
            thread::sleep(RETRY);
        }
        false
    }
}

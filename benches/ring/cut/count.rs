//! Looks up every acknowledged write, wherever its slot is served.
//!
//! Invariant: a write that no node answers for until the time is over counts as unanswered, not as missing.

use super::beside::connect;
use super::slots::{SLOTS, moved, slot_of};
use super::{CutError, key};
use crate::client::{Operation, Protocol, Reply};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How many keys are requested at once.
const KEYS_PER_BATCH: usize = 200;
const PAUSE: Duration = Duration::from_millis(100);

/// What to look up.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Spec {
    /// The nodes to ask.
    pub addresses: Vec<SocketAddr>,
    /// The first letter of the keys.
    pub letter: char,
    /// A file with their numbers, as a list.
    pub numbers: PathBuf,
    /// The token that servers want to be shown first, if any.
    #[serde(default)]
    pub token: Option<String>,
    /// How long to retry nodes that do not answer.
    pub run_ms: u64,
}

/// The result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Keys with the written value.
    pub there: u64,
    /// Keys without a value.
    pub missing: u64,
    /// Keys with another value.
    pub wrong: u64,
    /// Keys that no node answered for.
    pub unanswered: u64,
}

/// Looks them up.
pub fn run(spec: &Spec) -> Result<Report, CutError> {
    let text = std::fs::read_to_string(&spec.numbers).map_err(CutError::io("read what was acknowledged"))?;
    let parsed = serde_json::from_str(&text);
    let mut numbers: Vec<u64> =
        parsed.map_err(|source| CutError::Result { file: spec.numbers.clone(), source })?;
    let until = Instant::now() + Duration::from_millis(spec.run_ms);
    let first = spec.addresses.first().copied().ok_or(CutError::NothingServed)?;
    let mut counter = Counter {
        letter: spec.letter,
        token: spec.token.clone(),
        serves: vec![first; SLOTS],
        learned: 0,
        connections: BTreeMap::new(),
        report: Report::default(),
    };
    let mut turn = 0;
    while !numbers.is_empty() && Instant::now() < until {
        let (before, learned) = (numbers.len(), counter.learned);
        numbers = counter.look_up(&numbers);
        if numbers.len() == before {
            std::thread::sleep(PAUSE);
            if counter.learned == learned {
                // Neither an answer nor a redirection: another node may know more.
                turn += 1;
                counter.serves.fill(spec.addresses[turn % spec.addresses.len()]);
            }
        }
    }
    counter.report.unanswered = numbers.len() as u64;
    Ok(counter.report)
}

struct Counter {
    letter: char,
    token: Option<String>,
    /// The node that serves each slot, as far as nodes have told.
    serves: Vec<SocketAddr>,
    /// How often a node told something new about that.
    learned: u64,
    connections: BTreeMap<SocketAddr, TcpStream>,
    report: Report,
}

impl Counter {
    /// Asks for each number once; returns those without an answer.
    fn look_up(&mut self, numbers: &[u64]) -> Vec<u64> {
        let mut by_node: BTreeMap<SocketAddr, Vec<u64>> = BTreeMap::new();
        for &number in numbers {
            let slot = slot_of(key(self.letter, number).as_bytes());
            by_node.entry(self.serves[slot]).or_default().push(number);
        }
        let mut left = Vec::new();
        for (node, numbers) in by_node {
            for batch in numbers.chunks(KEYS_PER_BATCH) {
                let mut answered = 0;
                if self.ask(node, batch, &mut answered, &mut left).is_err() {
                    self.connections.remove(&node);
                }
                left.extend_from_slice(&batch[answered..]);
            }
        }
        left
    }

    /// Asks a node for a batch and counts its answers. Returns how many replies arrived, even if the
    /// connection broke then.
    fn ask(
        &mut self,
        node: SocketAddr,
        batch: &[u64],
        answered: &mut usize,
        left: &mut Vec<u64>,
    ) -> io::Result<()> {
        if let std::collections::btree_map::Entry::Vacant(vacant) = self.connections.entry(node) {
            vacant.insert(connect(node, self.token.as_deref())?);
        }
        let Some(stream) = self.connections.get_mut(&node) else { return Ok(()) };
        let mut request = Vec::new();
        for &number in batch {
            Protocol::Resp.write(Operation::Get, key(self.letter, number).as_bytes(), b"", &mut request);
        }
        stream.write_all(&request)?;
        let (mut heard, mut scratch) = (Vec::new(), [0; 16 << 10]);
        while *answered < batch.len() {
            let count = stream.read(&mut scratch)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            heard.extend_from_slice(&scratch[..count]);
            let mut taken = 0;
            while let Some((reply, length)) =
                Protocol::Resp.parse(&heard[taken..]).map_err(io::Error::other)?
            {
                let number = *batch.get(*answered).ok_or_else(|| io::Error::other("a reply to nothing"))?;
                let expected = key(self.letter, number);
                match reply {
                    Reply::Value(value) if value == expected.as_bytes() => self.report.there += 1,
                    Reply::Value(_) => self.report.wrong += 1,
                    Reply::Nothing => self.report.missing += 1,
                    Reply::Refused(words) => {
                        if let Some((slot, address)) = moved(words) {
                            self.learned += u64::from(self.serves[slot] != address);
                            self.serves[slot] = address;
                        }
                        left.push(number);
                    }
                    _ => return Err(io::Error::other("a reply that no get has")),
                }
                *answered += 1;
                taken += length;
            }
            heard.drain(..taken);
        }
        Ok(())
    }
}

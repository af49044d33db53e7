//! Sends one request at a time to the node that serves a slot.
//!
//! Invariant: each call sends a request once: its outcome is reported, or reported as unknown.

use super::super::asker::{NOTHING_HAPPENED, connect};
use super::reply::{Tree, parse};
use crate::cut::moved;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The first word of a refusal that means that it may have happened.
const NOBODY_KNOWS: &str = "UNKNOWN ";

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// An answer.
    Answer(Tree),
    /// Another node serves the slot, which is recorded; nothing happened.
    Moved,
    /// Nothing happened, according to the refusal.
    Refused,
    /// An unexpected error.
    Strange(String),
    /// No answer, or an answer that says that the outcome is unknown.
    Unknown,
    /// It was never sent.
    NotSent,
}

/// A client of all nodes.
pub struct Caller {
    nodes: Vec<SocketAddr>,
    token: String,
    patience: Duration,
    routes: HashMap<usize, usize>,
    connections: Vec<Option<TcpStream>>,
    random: fastrand::Rng,
}

impl Caller {
    /// A client without connections.
    pub fn new(nodes: &[SocketAddr], token: &str, patience: Duration, seed: u64) -> Self {
        Self {
            nodes: nodes.to_vec(),
            token: token.to_owned(),
            patience,
            routes: HashMap::new(),
            connections: nodes.iter().map(|_| None).collect(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Makes one call.
    pub fn call(&mut self, slot: usize, words: &[String]) -> CallResult {
        let any = self.random.usize(..self.nodes.len());
        let node = *self.routes.entry(slot).or_insert(any);
        let heard = self.call_node(node, words);
        match &heard {
            CallResult::Answer(Tree::Refused(said)) => {
                if let Some((_, address)) = moved(said.as_bytes()) {
                    match self.nodes.iter().position(|node| *node == address) {
                        Some(node) => self.routes.insert(slot, node),
                        None => self.routes.remove(&slot),
                    };
                    return CallResult::Moved;
                }
                self.routes.remove(&slot);
                let is_known = NOTHING_HAPPENED.iter().any(|word| said.starts_with(word));
                if is_known {
                    return CallResult::Refused;
                }
                if said.starts_with(NOBODY_KNOWS) {
                    CallResult::Unknown
                } else {
                    CallResult::Strange(said.clone())
                }
            }
            CallResult::Answer(_) => heard,
            _ => {
                self.routes.remove(&slot);
                heard
            }
        }
    }

    fn call_node(&mut self, node: usize, words: &[String]) -> CallResult {
        let stream = match self.connections[node].take() {
            Some(stream) => stream,
            None => match connect(self.nodes[node], &self.token, self.patience) {
                Ok(stream) => stream,
                Err(_) => return CallResult::NotSent,
            },
        };
        // A connection is kept only if its single request got its single answer.
        match exchange(&stream, words, self.patience) {
            Ok(tree) => {
                self.connections[node] = Some(stream);
                CallResult::Answer(tree)
            }
            Err(_) => CallResult::Unknown,
        }
    }
}

fn exchange(mut stream: &TcpStream, words: &[String], patience: Duration) -> io::Result<Tree> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    stream.write_all(bytes.as_bytes())?;
    let until = Instant::now() + patience;
    let (mut heard, mut scratch) = (Vec::new(), [0; 4096]);
    loop {
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(&mut scratch)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => heard.extend_from_slice(&scratch[..count]),
        }
        match parse(&heard)? {
            None => {}
            Some((tree, taken)) if taken == heard.len() => return Ok(tree),
            Some(_) => return Err(io::Error::other("a reply to nothing")),
        }
    }
}

//! Sends requests to the node that serves a slot: a connection to each node, one batch at a time, routes
//! learned from nodes' replies.
//!
//! Invariant: a request is sent once and has at most one answer; without an answer its outcome is unknown.

use crate::client::{Operation, Protocol, Reply};
use crate::cut::{SLOTS, authentication, moved};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A node that does not accept a connection in this time is down.
const CONNECT_TIME_MAX: Duration = Duration::from_millis(400);
/// The first words of refusals that mean that nothing happened.
pub(super) const NOTHING_HAPPENED: [&str; 4] = ["CLUSTERDOWN", "LOADING", "NOREPLICAS", "TRYAGAIN"];

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Sets the value, replacing any former one.
    Set(String, String),
    /// Gets the value.
    Get(String),
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The write is done.
    Done,
    /// A value.
    Value(Vec<u8>),
    /// No value.
    Nothing,
    /// Nothing happened, according to the refusal.
    Refused(String),
    /// It is unknown whether it happened.
    Unknown(String),
    /// It was never sent.
    NotSent,
}

impl Answer {
    /// The value that a read found; `None` if it was not answered.
    pub fn found(&self) -> Option<Option<&[u8]>> {
        match self {
            Self::Value(value) => Some(Some(value)),
            Self::Nothing => Some(None),
            _ => None,
        }
    }

    /// Whether it is a redirection to another node.
    pub fn is_sent_on(&self) -> bool {
        matches!(self, Self::Refused(said) if said.starts_with("MOVED"))
    }

    /// Whether it answers the request.
    pub fn is_served(&self) -> bool {
        matches!(self, Self::Done | Self::Value(_) | Self::Nothing)
    }
}

/// A client of all nodes.
pub struct Asker {
    nodes: Vec<SocketAddr>,
    token: String,
    /// How long an answer may take.
    patience: Duration,
    /// The node that serves each slot, as far as nodes have told.
    routes: Vec<Option<u8>>,
    connections: Vec<Option<TcpStream>>,
    random: fastrand::Rng,
}

impl Asker {
    /// A client without connections.
    pub fn new(nodes: &[SocketAddr], token: &str, patience: Duration, seed: u64) -> Self {
        Self {
            nodes: nodes.to_vec(),
            token: token.to_owned(),
            patience,
            routes: vec![None; SLOTS],
            connections: nodes.iter().map(|_| None).collect(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The node to ask about a slot: the one known to serve it, or any.
    pub fn node_of(&mut self, slot: usize) -> usize {
        match self.routes[slot] {
            Some(node) => usize::from(node),
            None => self.random.usize(..self.nodes.len()),
        }
    }

    /// Sends all requests about one slot at once; returns an answer to each.
    pub fn ask(&mut self, slot: usize, requests: &[Request]) -> Vec<Answer> {
        let node = self.node_of(slot);
        self.ask_node(node, &requests.iter().map(|request| (slot, request.clone())).collect::<Vec<_>>())
    }

    /// Sends all requests to one node at once.
    pub fn ask_node(&mut self, node: usize, requests: &[(usize, Request)]) -> Vec<Answer> {
        if self.connections[node].is_none() {
            match connect(self.nodes[node], &self.token, self.patience) {
                Ok(stream) => self.connections[node] = Some(stream),
                Err(_) => {
                    self.forget(node, requests);
                    return requests.iter().map(|_| Answer::NotSent).collect();
                }
            }
        }
        let mut answers = Vec::with_capacity(requests.len());
        let ended = self.exchange(node, requests, &mut answers);
        if let Err(error) = ended {
            // Replies that still arrive belong to requests that were given up.
            self.connections[node] = None;
            self.forget(node, requests);
            answers.resize(requests.len(), Answer::Unknown(error.kind().to_string()));
        }
        answers
    }

    fn exchange(
        &mut self,
        node: usize,
        requests: &[(usize, Request)],
        answers: &mut Vec<Answer>,
    ) -> io::Result<()> {
        let Some(mut stream) = self.connections[node].take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let mut bytes = Vec::new();
        for (_, request) in requests {
            match request {
                Request::Set(key, value) => {
                    Protocol::Resp.write(Operation::Set, key.as_bytes(), value.as_bytes(), &mut bytes);
                }
                Request::Get(key) => Protocol::Resp.write(Operation::Get, key.as_bytes(), b"", &mut bytes),
            }
        }
        stream.write_all(&bytes)?;
        let until = Instant::now() + self.patience;
        let (mut heard, mut scratch) = (Vec::new(), [0; 16 << 10]);
        while answers.len() < requests.len() {
            // A spurious wake-up must not restart the time-out.
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match stream.read(&mut scratch)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => heard.extend_from_slice(&scratch[..count]),
            }
            let mut taken = 0;
            while let Some((reply, length)) =
                Protocol::Resp.parse(&heard[taken..]).map_err(io::Error::other)?
            {
                let Some((slot, _)) = requests.get(answers.len()) else {
                    return Err(io::Error::other("a reply to nothing"));
                };
                answers.push(self.answer(node, *slot, reply)?);
                taken += length;
            }
            heard.drain(..taken);
        }
        self.connections[node] = Some(stream);
        Ok(())
    }

    fn answer(&mut self, node: usize, slot: usize, reply: Reply<'_>) -> io::Result<Answer> {
        let answer = match reply {
            Reply::Done => Answer::Done,
            Reply::Value(value) => Answer::Value(value.to_vec()),
            Reply::Nothing => Answer::Nothing,
            Reply::Refused(words) => {
                let shown = String::from_utf8_lossy(words).into_owned();
                if let Some((_, address)) = moved(words) {
                    let known = self.nodes.iter().position(|node| *node == address);
                    self.routes[slot] = known.and_then(|node| u8::try_from(node).ok());
                    return Ok(Answer::Refused(shown));
                }
                self.routes[slot] = None;
                let is_known = NOTHING_HAPPENED.iter().any(|word| shown.starts_with(word));
                return Ok(if is_known { Answer::Refused(shown) } else { Answer::Unknown(shown) });
            }
            _ => return Err(io::Error::other("a reply that nobody asked for")),
        };
        self.routes[slot] = u8::try_from(node).ok();
        Ok(answer)
    }

    /// Removes a node that does not answer from the routes of these slots, until another node names it
    /// again.
    fn forget(&mut self, node: usize, requests: &[(usize, Request)]) {
        for (slot, _) in requests {
            if self.routes[*slot].is_some_and(|known| usize::from(known) == node) {
                self.routes[*slot] = None;
            }
        }
    }
}

/// Connects and shows the token.
pub fn connect(address: SocketAddr, token: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX.min(patience))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(&authentication(token))?;
    let mut reply = [0; 5];
    stream.read_exact(&mut reply)?;
    if reply != *b"+OK\r\n" {
        return Err(io::Error::other("the token was refused"));
    }
    Ok(stream)
}

/// A node's `CLUSTER INFO`.
pub fn cluster_info(address: SocketAddr, token: &str, patience: Duration) -> io::Result<String> {
    let mut stream = connect(address, token, patience)?;
    stream.write_all(b"*2\r\n$7\r\nCLUSTER\r\n$4\r\nINFO\r\n")?;
    let (mut heard, mut scratch) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut scratch)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => heard.extend_from_slice(&scratch[..count]),
        }
        match Protocol::Resp.parse(&heard).map_err(io::Error::other)? {
            None => {}
            Some((Reply::Value(text), _)) => return Ok(String::from_utf8_lossy(text).into_owned()),
            Some((Reply::Refused(words), _)) => {
                return Err(io::Error::other(String::from_utf8_lossy(words).into_owned()));
            }
            Some(_) => return Err(io::Error::other("a reply that is no text")),
        }
    }
}

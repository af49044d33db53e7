//! A node from the view of the paced client: one connection, requests in order, and whether it answers.

use super::beside::authentication;
use super::slots::moved;
use crate::client::{Protocol, Reply};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A node that has not answered for this long is silent.
const SILENCE_MAX: Duration = Duration::from_millis(300);
/// How long a silent node gets no requests.
const LEFT_ALONE: Duration = Duration::from_millis(1_000);

/// Stands for the greeting of a connection among request numbers.
const GREETING: u64 = u64::MAX;

/// What arrived from a node, with the number of the request.
pub enum NodeEvent {
    /// The write is done.
    Done(u64),
    /// A value.
    Value(u64, Vec<u8>),
    /// No value.
    Nothing(u64),
    /// Another node serves this slot.
    Moved(u64, usize, SocketAddr),
    /// An error, with the node's message.
    Refused(u64, String),
    /// The connection broke; these requests were not answered.
    Broken(Vec<u64>),
}

/// A node.
pub struct Node {
    number: usize,
    address: SocketAddr,
    /// The bytes that a new connection sends first, if any; their reply is awaited like any other.
    greeting: Vec<u8>,
    stream: Option<TcpStream>,
    out: Vec<u8>,
    unread: Vec<u8>,
    awaited: VecDeque<(u64, Instant)>,
    silent_until: Option<Instant>,
}

impl Node {
    /// A node without a connection.
    pub fn new(number: usize, address: SocketAddr, token: Option<&str>) -> Self {
        Self {
            number,
            address,
            greeting: token.map(authentication).unwrap_or_default(),
            stream: None,
            out: Vec::new(),
            unread: Vec::new(),
            awaited: VecDeque::new(),
            silent_until: None,
        }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it is left without requests at this moment.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.silent_until.is_some_and(|until| now < until)
    }

    /// Sends the bytes of a request; returns requests that this connection will not answer.
    pub fn send(&mut self, id: u64, bytes: &[u8], now: Instant, registry: &Registry) -> Vec<u64> {
        if self.stream.is_none() && !self.greeting.is_empty() {
            self.awaited.push_back((GREETING, now));
            self.out.extend_from_slice(&self.greeting);
        }
        self.awaited.push_back((id, now));
        self.out.extend_from_slice(bytes);
        if self.stream.is_none() {
            let interest = Interest::READABLE | Interest::WRITABLE;
            let connected = TcpStream::connect(self.address).and_then(|mut stream| {
                registry.register(&mut stream, Token(self.number), interest)?;
                Ok(stream)
            });
            match connected {
                Ok(stream) => self.stream = Some(stream),
                Err(_) => return self.give_up(now),
            }
        }
        match self.flush() {
            Ok(()) => Vec::new(),
            Err(_) => self.give_up(now),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while !self.out.is_empty() {
            match stream.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                // Not connected yet, or full: the poll will tell when it accepts more.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles readiness of its socket.
    pub fn ready(&mut self) -> Vec<NodeEvent> {
        let mut heard = Vec::new();
        let is_well = self.flush().is_ok() && self.read(&mut heard);
        if !is_well {
            heard.push(NodeEvent::Broken(self.give_up(Instant::now())));
        }
        heard
    }

    /// Takes all replies that have arrived; returns false if the connection is not usable any more.
    fn read(&mut self, heard: &mut Vec<NodeEvent>) -> bool {
        let mut scratch = [0; 16 << 10];
        loop {
            let Some(stream) = &mut self.stream else { return true };
            match stream.read(&mut scratch) {
                Ok(0) => return false,
                Ok(count) => self.unread.extend_from_slice(&scratch[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return false,
            }
            if !self.take(heard) {
                return false;
            }
        }
    }

    fn take(&mut self, heard: &mut Vec<NodeEvent>) -> bool {
        let mut taken = 0;
        loop {
            let (reply, length) = match Protocol::Resp.parse(&self.unread[taken..]) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break,
                Err(_) => return false,
            };
            let Some((id, _)) = self.awaited.pop_front() else { return false };
            if id == GREETING {
                if !matches!(reply, Reply::Done) {
                    return false;
                }
                taken += length;
                continue;
            }
            heard.push(match reply {
                Reply::Done => NodeEvent::Done(id),
                Reply::Value(value) => NodeEvent::Value(id, value.to_vec()),
                Reply::Nothing => NodeEvent::Nothing(id),
                Reply::Refused(words) => match moved(words) {
                    Some((slot, address)) => NodeEvent::Moved(id, slot, address),
                    None => NodeEvent::Refused(id, String::from_utf8_lossy(words).into_owned()),
                },
                _ => return false,
            });
            self.silent_until = None;
            taken += length;
        }
        self.unread.drain(..taken);
        true
    }

    /// Closes the connection if the oldest request waits for too long; returns the requests that waited.
    pub fn give_up_if_silent(&mut self, now: Instant) -> Vec<u64> {
        let waits = self.awaited.front().map(|(_, sent_at)| now.duration_since(*sent_at));
        if waits.is_some_and(|waits| waits > SILENCE_MAX) { self.give_up(now) } else { Vec::new() }
    }

    fn give_up(&mut self, now: Instant) -> Vec<u64> {
        self.stream = None;
        self.out.clear();
        self.unread.clear();
        self.silent_until = Some(now + LEFT_ALONE);
        self.awaited.drain(..).map(|(id, _)| id).filter(|id| *id != GREETING).collect()
    }
}

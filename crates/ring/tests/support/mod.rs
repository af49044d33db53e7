//! A minimal client, and nodes to talk to.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use atoll_replica::Moment;
use atoll_resp::{Limits, ReplyParser, Value, write_request};
use atoll_ring::{Clock, Node, NodeOptions, Now, SystemClock};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a reply may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A clock that can be advanced.
#[derive(Default)]
pub struct Put(pub AtomicU64);

impl Clock for Put {
    fn now(&self) -> Now {
        let now = SystemClock.now();
        let more_us = self.0.load(Ordering::Relaxed);
        Now { moment: Moment(now.moment.0 + more_us), date_ms: now.date_ms + more_us / 1000 }
    }
}

/// A connection to a node.
pub struct Client {
    pub socket: TcpStream,
    parser: ReplyParser,
    arrived: Vec<u8>,
}

/// Options of a node in memory, at a free port.
pub fn options() -> NodeOptions {
    NodeOptions { listen: "127.0.0.1:0".parse().unwrap(), ..NodeOptions::default() }
}

/// A node in memory.
pub fn node() -> Node {
    Node::start(options()).unwrap()
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, parser: ReplyParser::new(Limits::default()), arrived: Vec::new() }
    }

    /// Sends a request, and reads its reply.
    pub fn ask<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Value {
        self.send(arguments);
        self.reply().unwrap()
    }

    /// As [`Client::ask`], with words separated by spaces; the reply as a person would see it.
    pub fn say(&mut self, words: &str) -> String {
        show(&self.ask(&words.split(' ').collect::<Vec<_>>()))
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        let mut request = Vec::new();
        write_request(&mut request, arguments);
        self.socket.write_all(&request).unwrap();
    }

    /// The next reply; none if the connection ended.
    pub fn reply(&mut self) -> Option<Value> {
        loop {
            let (used, value) = self.parser.parse(&self.arrived).unwrap();
            self.arrived.drain(..used);
            if let Some(value) = value {
                return Some(value);
            }
            let mut room = [0; 65536];
            match self.socket.read(&mut room) {
                Ok(0) => return None,
                Ok(count) => self.arrived.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// Whether the node ended the connection without sending more.
    pub fn is_ended(&mut self) -> bool {
        self.reply().is_none()
    }
}

/// A reply as a person would see it.
pub fn show(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Error(text) => format!("-{}", text.escape_ascii()),
        Value::Integer(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::Boolean(is_true) => is_true.to_string(),
        Value::Null => "nil".to_owned(),
        Value::Array(values) | Value::Set(values) | Value::Push(values) => format!("[{}]", all(values)),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}: {}", show(key), show(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => other.bytes().unwrap_or_default().escape_ascii().to_string(),
    }
}

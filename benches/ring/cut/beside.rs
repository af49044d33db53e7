//! The client next to the primary that is cut off: one connection, on which each write follows the answer
//! to the last.
//!
//! It writes only keys of slots that this node serves, each once, and records which were acknowledged.

use super::slots::{SLOTS, moved, slot_of};
use super::{CutError, key, milliseconds_now};
use crate::client::{Protocol, Reply};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The first letter of its keys.
pub const LETTER: char = 'w';
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// The pause after an error: without it the client would take processor time from the servers.
const PAUSE: Duration = Duration::from_millis(10);

/// The instructions for this client.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Spec {
    /// The primary.
    pub address: SocketAddr,
    /// The token that servers want to be shown first, if any.
    #[serde(default)]
    pub token: Option<String>,
    /// How long it runs.
    pub run_ms: u64,
}

/// The result.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The numbers of the keys whose writes were acknowledged.
    pub acknowledged: Vec<u64>,
    /// When each was acknowledged, in milliseconds since 1970.
    pub acknowledged_at_ms: Vec<u64>,
    /// The first error after the last acknowledgement.
    pub first_error: Option<String>,
}

/// Writes for the given time.
pub fn run(spec: &Spec) -> Report {
    let until = Instant::now() + Duration::from_millis(spec.run_ms);
    let mut report = Report::default();
    let mut is_elsewhere = vec![false; SLOTS];
    let mut connection = None;
    let mut number = 0;
    while Instant::now() < until && is_elsewhere.contains(&false) {
        number += 1;
        let key = key(LETTER, number);
        let slot = slot_of(key.as_bytes());
        if is_elsewhere[slot] {
            continue;
        }
        match write(&mut connection, spec, key.as_bytes()) {
            Ok(Answer::Done) => {
                report.acknowledged.push(number);
                report.acknowledged_at_ms.push(milliseconds_now());
            }
            Ok(Answer::Elsewhere) => is_elsewhere[slot] = true,
            Ok(Answer::Refused(words)) => {
                report.first_error.get_or_insert(words);
                std::thread::sleep(PAUSE);
            }
            Err(error) => {
                // Replies that are still to come belong to a request that was given up.
                connection = None;
                report.first_error.get_or_insert(error.to_string());
                std::thread::sleep(PAUSE);
            }
        }
    }
    report
}

enum Answer {
    Done,
    Elsewhere,
    Refused(String),
}

fn write(connection: &mut Option<TcpStream>, spec: &Spec, key: &[u8]) -> io::Result<Answer> {
    let stream = match connection {
        Some(stream) => stream,
        none => none.insert(connect(spec.address, spec.token.as_deref())?),
    };
    let mut request = Vec::with_capacity(80);
    Protocol::Resp.write(crate::client::Operation::Set, key, key, &mut request);
    stream.write_all(&request)?;
    let (mut heard, mut filled) = ([0; 512], 0);
    loop {
        match stream.read(&mut heard[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
        let reply = Protocol::Resp.parse(&heard[..filled]).map_err(io::Error::other)?;
        return match reply {
            None if filled < heard.len() => continue,
            Some((Reply::Done, _)) => Ok(Answer::Done),
            Some((Reply::Refused(words), _)) if moved(words).is_some() => Ok(Answer::Elsewhere),
            Some((Reply::Refused(words), _)) => {
                Ok(Answer::Refused(String::from_utf8_lossy(words).into_owned()))
            }
            _ => Err(io::Error::other("a reply that no write has")),
        };
    }
}

/// Connects, with time-outs.
pub fn connect(address: SocketAddr, token: Option<&str>) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIME_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
    if let Some(token) = token {
        stream.write_all(&authentication(token))?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply)?;
        if reply != *b"+OK\r\n" {
            return Err(io::Error::other("the token was refused"));
        }
    }
    Ok(stream)
}

/// The request that shows a token.
pub fn authentication(token: &str) -> Vec<u8> {
    format!("AUTH {token}\r\n").into_bytes()
}

impl Report {
    /// How many writes were acknowledged at or after this moment.
    pub fn acknowledged_from(&self, moment_ms: u64) -> usize {
        self.acknowledged_at_ms.iter().filter(|at| **at >= moment_ms).count()
    }

    /// When the last write was acknowledged.
    pub fn last_ms(&self) -> Result<u64, CutError> {
        self.acknowledged_at_ms.last().copied().ok_or(CutError::NothingServed)
    }
}

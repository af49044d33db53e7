//! One connection of the load: sends a batch, receives and judges every reply, and sends more when all
//! replies have arrived, or as they arrive.
//!
//! Invariant: replies are matched to requests in order, and a reply without a request is an error.

use super::content::{ExpectedValue, KEY_BYTES, Model, Pieces};
use super::load::{Choice, LoadError, Refill, Tally, Work};
use super::protocol::{Operation, Protocol, Reply};
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

/// What a reply must be.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Done,
    Value { key: u32, held: ExpectedValue },
    Length(usize),
    End,
}

/// State shared by all connections of a load.
pub struct Shared<'a> {
    pub work: &'a Work,
    pub pieces: &'a Pieces,
    pub model: &'a mut Model,
    pub tally: Tally,
    pub random: fastrand::Rng,
}

/// One connection.
pub struct Connection {
    stream: TcpStream,
    /// Its number: it uses the keys whose index modulo the number of connections is this.
    number: u32,
    asked_once: u32,
    out: Vec<u8>,
    written: usize,
    unread: Vec<u8>,
    awaited: VecDeque<Awaited>,
    /// Unanswered requests by the time when they were sent, the earliest first.
    sent: VecDeque<SentBatch>,
}

/// The unanswered part of the requests that were sent together.
struct SentBatch {
    at: Instant,
    requests: u64,
}

impl Connection {
    /// Wraps a connected stream that does not block.
    pub fn new(stream: TcpStream, number: u32) -> Self {
        Self {
            stream,
            number,
            asked_once: 0,
            out: Vec::new(),
            written: 0,
            unread: Vec::new(),
            awaited: VecDeque::new(),
            sent: VecDeque::new(),
        }
    }

    /// The socket, for registration with the poll.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether any request is unanswered.
    pub fn is_waiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Sends requests up to the depth; returns false if there are none left to send.
    pub fn send(&mut self, now: Instant, shared: &mut Shared<'_>) -> Result<bool, LoadError> {
        // Bytes that the socket did not accept yet go first.
        self.out.drain(..self.written);
        self.written = 0;
        let under_way: u64 = self.sent.iter().map(|sent| sent.requests).sum();
        let mut requests = 0;
        while under_way + requests < shared.work.depth as u64 {
            let Some(key) = self.next_key(shared) else { break };
            self.ask(key, shared);
            requests += 1;
        }
        if requests == 0 {
            return Ok(false);
        }
        shared.work.protocol.end_batch(&mut self.out);
        if shared.work.protocol == Protocol::MemcachedQuiet {
            self.awaited.push_back(Awaited::End);
        }
        self.sent.push_back(SentBatch { at: now, requests });
        self.flush()?;
        Ok(true)
    }

    fn next_key(&mut self, shared: &mut Shared<'_>) -> Option<u32> {
        let only = shared.work.only.as_deref();
        let keys = only.map_or(shared.model.keys(), |only| only.len() as u32);
        let connections = shared.work.connections;
        let own = keys.saturating_sub(self.number).div_ceil(connections);
        let choice = match shared.work.choice {
            Choice::Random { .. } if own > 0 => shared.random.u32(..own),
            Choice::EachOnce if self.asked_once < own => {
                self.asked_once += 1;
                self.asked_once - 1
            }
            _ => return None,
        };
        let place = choice * connections + self.number;
        Some(only.map_or(place, |only| only[place as usize]))
    }

    fn ask(&mut self, key: u32, shared: &mut Shared<'_>) {
        let Shared { work, pieces, model, .. } = shared;
        let name: [u8; KEY_BYTES] = Pieces::key(key);
        let piece = match work.operation {
            Operation::Get => None,
            Operation::Set => Some(pieces.piece(key, model.set(key))),
            Operation::Append => Some(pieces.piece(key, model.append(key))),
        };
        let value: &[u8] = piece.as_ref().map_or(&[], |piece| piece);
        work.protocol.write(work.operation, &name, value, &mut self.out);
        let held = model.held(key);
        let awaited = match (work.operation, work.protocol) {
            (Operation::Get, _) => Awaited::Value { key, held },
            // Only the end of a quiet batch is answered, unless something is wrong.
            (_, Protocol::MemcachedQuiet) => return,
            (Operation::Append, Protocol::Resp) => Awaited::Length(held.bytes()),
            _ => Awaited::Done,
        };
        self.awaited.push_back(awaited);
    }

    /// Writes the rest of the batch, as far as the socket accepts it.
    pub fn flush(&mut self) -> Result<(), LoadError> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(LoadError::Broken { source }),
            }
        }
        Ok(())
    }

    /// Reads what has arrived. If it is time to send more, returns the moment at which the last byte was
    /// there.
    /// there.
    pub fn read(
        &mut self,
        scratch: &mut [u8],
        shared: &mut Shared<'_>,
    ) -> Result<Option<Instant>, LoadError> {
        let before = self.awaited.len();
        let mut heard_at = None;
        loop {
            let count = match self.stream.read(scratch) {
                Ok(0) => return Err(LoadError::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => return Err(LoadError::Broken { source }),
            };
            let now = Instant::now();
            self.hear(&scratch[..count], now, shared)?;
            heard_at = Some(now);
            if self.awaited.is_empty() {
                self.sent.clear();
                return Ok(heard_at);
            }
            // A socket that returned less than was asked for is empty.
            if count < scratch.len() {
                break;
            }
        }
        let is_time = shared.work.refill == Refill::AsAnswered && self.awaited.len() < before;
        Ok(heard_at.filter(|_| is_time))
    }

    fn hear(&mut self, bytes: &[u8], now: Instant, shared: &mut Shared<'_>) -> Result<(), LoadError> {
        if self.unread.is_empty() {
            let taken = self.take(bytes, now, shared)?;
            self.unread.extend_from_slice(&bytes[taken..]);
            return Ok(());
        }
        let mut unread = std::mem::take(&mut self.unread);
        unread.extend_from_slice(bytes);
        let taken = self.take(&unread, now, shared)?;
        unread.drain(..taken);
        self.unread = unread;
        Ok(())
    }

    /// Judges all complete replies and returns their length in bytes.
    fn take(&mut self, bytes: &[u8], now: Instant, shared: &mut Shared<'_>) -> Result<usize, LoadError> {
        let mut taken = 0;
        let awaited_before = self.awaited.len();
        let mut ended = false;
        while let Some((reply, length)) = shared.work.protocol.parse(&bytes[taken..])? {
            taken += length;
            ended |= reply == Reply::End;
            self.judge(reply, shared)?;
        }
        let answered = match (shared.work.protocol, ended) {
            // The end of a quiet batch completes everything in it.
            (Protocol::MemcachedQuiet, true) => u64::MAX,
            (Protocol::MemcachedQuiet, false) => 0,
            _ => (awaited_before - self.awaited.len()) as u64,
        };
        self.count(answered, now, shared);
        Ok(taken)
    }

    /// Counts this many requests under way as answered, the earliest first.
    fn count(&mut self, mut answered: u64, now: Instant, shared: &mut Shared<'_>) {
        while answered > 0
            && let Some(first) = self.sent.front_mut()
        {
            let requests = answered.min(first.requests);
            shared.tally.count(first.at, now, requests);
            first.requests -= requests;
            answered -= requests;
            if first.requests == 0 {
                self.sent.pop_front();
            }
        }
    }

    fn judge(&mut self, reply: Reply<'_>, shared: &mut Shared<'_>) -> Result<(), LoadError> {
        if let Reply::Refused(words) = reply {
            return Err(LoadError::Refused { words: String::from_utf8_lossy(words).into_owned() });
        }
        let front = *self.awaited.front().ok_or(LoadError::Unasked)?;
        if is_right(front, reply, shared.pieces) {
            self.awaited.pop_front();
            return Ok(());
        }
        match (shared.work.protocol, front, reply) {
            // A quiet write that failed is reported before the end of the batch, which is still to come.
            (Protocol::MemcachedQuiet, Awaited::End, Reply::Nothing) => {
                shared.tally.wrong(|| "a write was not done, says the server".to_owned());
            }
            (Protocol::MemcachedQuiet, ..) => self.pass_over_silence(reply, shared),
            _ => {
                self.awaited.pop_front();
                shared.tally.wrong(|| told(front, reply));
            }
        }
        Ok(())
    }

    /// Skips misses in a quiet batch, which are not answered: a reply may be about a later key, or be the
    /// end.
    fn pass_over_silence(&mut self, reply: Reply<'_>, shared: &mut Shared<'_>) {
        let place = self.awaited.iter().position(|&awaited| is_right(awaited, reply, shared.pieces));
        let Some(place) = place else {
            if let Some(front) = self.awaited.pop_front() {
                shared.tally.wrong(|| told(front, reply));
            }
            return;
        };
        for passed in self.awaited.drain(..=place).take(place) {
            if !is_right(passed, Reply::Nothing, shared.pieces) {
                shared.tally.wrong(|| told(passed, Reply::Nothing));
            }
        }
    }
}

fn is_right(awaited: Awaited, reply: Reply<'_>, pieces: &Pieces) -> bool {
    match (awaited, reply) {
        (Awaited::Done, Reply::Done) | (Awaited::End, Reply::End) => true,
        (Awaited::Length(bytes), Reply::Number(number)) => usize::try_from(number) == Ok(bytes),
        (Awaited::Value { key, held }, Reply::Value(value)) => pieces.is_held(key, held, value),
        (Awaited::Value { held, .. }, Reply::Nothing) => held.pieces == 0,
        _ => false,
    }
}

/// Describes a wrong reply.
fn told(awaited: Awaited, reply: Reply<'_>) -> String {
    let is = match reply {
        Reply::Value(value) => format!("{} bytes of a value", value.len()),
        Reply::Nothing => "nothing".to_owned(),
        other => format!("{other:?}"),
    };
    match awaited {
        Awaited::Value { key, held } => {
            let key = String::from_utf8_lossy(&Pieces::key(key)).into_owned();
            format!("{key} must hold {} bytes from version {} on: {is}", held.bytes(), held.first)
        }
        Awaited::Length(bytes) => format!("the length after an append must be {bytes}: {is}"),
        other => format!("{other:?} was awaited: {is}"),
    }
}

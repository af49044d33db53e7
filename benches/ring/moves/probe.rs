//! The prober: sends requests to some slots at a pace, each slot over its own connections, and records when
//! answers arrived.
//!
//! One thread, woken by sockets: no slot waits for the answer of another one. Sets and gets alternate; a
//! get must find the value of the set before it.
//!
//! Invariant: a slot has one request under way; it is sent again only after a redirection.
//! Invariant: no request under way is dropped: at the end each slot is asked until a get has found the value
//! of the last set, or has failed.

use super::gaps::Trace;
use super::writer::Tally;
use crate::client::{Operation, Protocol, Reply};
use crate::cut::{authentication, moved};
use crate::local::HOPS_MAX;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The time between two requests of a slot, if the first was answered by then.
pub const PACE: Duration = Duration::from_millis(5);
/// The pause after an error: asking again at once would only take processor time from the nodes.
const PAUSE: Duration = Duration::from_millis(2);
/// A request without an answer for this long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const WAKE_EVERY: Duration = Duration::from_millis(1);

/// A connection.
struct Line {
    stream: TcpStream,
    out: Vec<u8>,
    unread: Vec<u8>,
    /// Whether the reply to the token is still to come.
    is_greeted: bool,
}

/// A probed slot.
struct Probe {
    slot: usize,
    key: String,
    /// The node that gets its requests.
    at: usize,
    lines: Vec<Option<Line>>,
    due: Instant,
    /// When the request under way was first sent, and how often it was redirected since.
    asked: Option<(Instant, u32)>,
    /// The number of the request: even ones set it as the value, odd ones get the one before.
    number: u64,
    /// The value of the last acknowledged set.
    value: Option<u64>,
    /// Whether that value was looked up at the end.
    is_looked_up: bool,
    trace: Trace,
}

/// All slots that are probed.
pub struct Prober {
    poll: Poll,
    nodes: Vec<SocketAddr>,
    token: &'static str,
    probes: Vec<Probe>,
    begun_at: Instant,
    silence_max: Duration,
    /// The deadline of the last answers, once the prober was told to stop.
    ends_at: Option<Instant>,
    tally: Tally,
}

impl Prober {
    /// A prober of these slots, each with one of its keys.
    pub fn new(
        nodes: &[SocketAddr],
        token: &'static str,
        slots: &[(usize, String)],
        begun_at: Instant,
    ) -> std::io::Result<Self> {
        let now = Instant::now();
        let count = u32::try_from(slots.len()).unwrap_or(u32::MAX).max(1);
        let probe = |(place, (slot, key)): (u32, &(usize, String))| Probe {
            slot: *slot,
            key: key.clone(),
            at: 0,
            lines: nodes.iter().map(|_| None).collect(),
            // Spread evenly over the pace, so that requests do not coincide.
            due: now + PACE * place / count,
            asked: None,
            number: 0,
            value: None,
            is_looked_up: false,
            trace: Trace::of(*slot),
        };
        let probes = (0..).zip(slots).map(probe).collect();
        Ok(Self {
            poll: Poll::new()?,
            nodes: nodes.to_vec(),
            token,
            probes,
            begun_at,
            silence_max: SILENCE_MAX,
            ends_at: None,
            tally: Tally::default(),
        })
    }

    /// Probes until it is told to stop, and then until every slot was looked up. Returns when each slot
    /// answered, and the counts.
    pub fn run(mut self, stop: &AtomicBool) -> std::io::Result<(Vec<Trace>, Tally)> {
        let mut events = Events::with_capacity(256);
        loop {
            let now = Instant::now();
            if self.ends_at.is_none() && stop.load(SeqCst) {
                self.ends_at = Some(now + self.silence_max);
            }
            if let Some(ends_at) = self.ends_at
                && (now > ends_at || self.probes.iter().all(|probe| probe.is_looked_up))
            {
                self.end(now);
                break;
            }
            for place in 0..self.probes.len() {
                self.ask_if_due(place, now);
            }
            let idle = self.probes.iter().filter(|probe| probe.asked.is_none() && !probe.is_looked_up);
            let until = idle.map(|probe| probe.due).min();
            let wait = until.map_or(WAKE_EVERY, |until| until.saturating_duration_since(Instant::now()));
            match self.poll.poll(&mut events, Some(wait.min(WAKE_EVERY))) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                let Token(number) = event.token();
                self.ready(number / self.nodes.len(), number % self.nodes.len());
            }
        }
        let traces = self.probes.into_iter().map(|probe| probe.trace).collect();
        Ok((traces, self.tally))
    }

    /// Slots that were not looked up by now count as unanswered.
    fn end(&mut self, now: Instant) {
        let at_ms = now.duration_since(self.begun_at).as_secs_f64() * 1e3;
        for probe in self.probes.iter_mut().filter(|probe| !probe.is_looked_up) {
            probe.trace.end_unanswered(at_ms);
            self.tally.unanswered += 1;
            self.tally.fail(&format!("UNANSWERED at the end: slot {} of node {}", probe.slot, probe.at + 1));
        }
    }

    fn ask_if_due(&mut self, place: usize, now: Instant) {
        let silence_max = self.silence_max;
        let probe = &mut self.probes[place];
        match probe.asked {
            None if probe.due <= now && !probe.is_looked_up => {
                probe.asked = Some((now, 0));
                self.send(place);
            }
            Some((asked_at, _)) if now.duration_since(asked_at) > silence_max => {
                let (slot, node) = (probe.slot, probe.at + 1);
                probe.lines[node - 1] = None;
                self.fail(place, &format!("SILENCE of node {node} about slot {slot}"));
            }
            _ => {}
        }
    }

    /// Sends the request under way to the slot's current node.
    fn send(&mut self, place: usize) {
        let probe = &mut self.probes[place];
        let node = probe.at;
        if probe.lines[node].is_none() {
            match Line::open(
                self.nodes[node],
                self.token,
                place * self.nodes.len() + node,
                self.poll.registry(),
            ) {
                Ok(line) => probe.lines[node] = Some(line),
                Err(error) => return self.fail(place, &format!("CONNECT to node {}: {error}", node + 1)),
            }
        }
        let value = probe.number.to_string();
        let is_set = probe.number.is_multiple_of(2);
        let (operation, value) = if is_set { (Operation::Set, value.as_str()) } else { (Operation::Get, "") };
        let Some(line) = &mut probe.lines[node] else { return };
        Protocol::Resp.write(operation, probe.key.as_bytes(), value.as_bytes(), &mut line.out);
        if let Err(error) = line.flush() {
            self.lose(place, node, &error);
        }
    }

    fn ready(&mut self, place: usize, node: usize) {
        let Some(line) = &mut self.probes[place].lines[node] else { return };
        let heard = line.flush().and_then(|()| line.read());
        match heard {
            Ok(Some(heard)) => self.hear(place, heard),
            Ok(None) => {}
            Err(error) => self.lose(place, node, &error),
        }
    }

    fn hear(&mut self, place: usize, heard: ProbeReply) {
        let probe = &mut self.probes[place];
        let Some((asked_at, hops)) = probe.asked else { return };
        match heard {
            ProbeReply::Moved(address) => {
                let to = self.nodes.iter().position(|node| *node == address);
                let Some(to) = to.filter(|_| hops < HOPS_MAX) else {
                    return self.fail(place, &format!("MOVED to {address} after {hops} times"));
                };
                probe.at = to;
                probe.asked = Some((asked_at, hops + 1));
                self.send(place);
            }
            ProbeReply::Refused(words) => self.fail(place, &words),
            ProbeReply::Done if probe.number.is_multiple_of(2) => {
                probe.value = Some(probe.number);
                self.answered(place);
            }
            ProbeReply::Value(value) if !probe.number.is_multiple_of(2) => {
                let (slot, expected) = (probe.slot, probe.value);
                let is_right = expected.is_none_or(|number| value == number.to_string().as_bytes());
                if self.ends_at.is_some() && expected.is_some() {
                    probe.is_looked_up = true;
                    self.tally.looked_up += 1;
                }
                self.answered(place);
                if !is_right {
                    self.tally.lost += 1;
                    let found = value.escape_ascii().to_string();
                    self.tally.tell(format!("slot {slot}: {found} and not {expected:?}"));
                }
            }
            ProbeReply::Done | ProbeReply::Value(_) => {
                self.fail(place, "STRANGE: an answer to something else")
            }
        }
    }

    fn answered(&mut self, place: usize) {
        let probe = &mut self.probes[place];
        let Some((asked_at, hops)) = probe.asked.take() else { return };
        let now = Instant::now();
        let since = |moment: Instant| moment.duration_since(self.begun_at).as_secs_f64() * 1e3;
        // The first answers only show where the slot is.
        probe.trace.answered(since(now), hops > 0 && probe.number > 1);
        probe.number += 1;
        probe.due = (asked_at + PACE).max(now);
        self.tally.done += 1;
        self.tally.followed += u64::from(hops > 0);
        self.tally.hops_most = self.tally.hops_most.max(hops);
    }

    /// The request under way has failed; the next one is made later.
    fn fail(&mut self, place: usize, words: &str) {
        self.tally.fail(words);
        let probe = &mut self.probes[place];
        probe.asked = None;
        // It is unknown whether a set was done: the next one decides.
        probe.value = None;
        probe.number += probe.number % 2;
        probe.due = Instant::now() + PAUSE;
    }

    fn lose(&mut self, place: usize, node: usize, error: &std::io::Error) {
        let probe = &mut self.probes[place];
        probe.lines[node] = None;
        if probe.at == node && probe.asked.is_some() {
            self.fail(place, &format!("BROKEN connection to node {}: {error}", node + 1));
        }
    }
}

enum ProbeReply {
    Done,
    Value(Vec<u8>),
    Moved(SocketAddr),
    Refused(String),
}

impl Line {
    fn open(address: SocketAddr, token: &str, number: usize, registry: &Registry) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        registry.register(&mut stream, Token(number), Interest::READABLE | Interest::WRITABLE)?;
        let _ = stream.set_nodelay(true);
        Ok(Self { stream, out: authentication(token), unread: Vec::new(), is_greeted: false })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the reply to the one request under way, if it has arrived.
    fn read(&mut self) -> std::io::Result<Option<ProbeReply>> {
        let mut scratch = [0; 4096];
        let mut last = None;
        loop {
            match self.stream.read(&mut scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.unread.extend_from_slice(&scratch[..count]),
                Err(error) if is_later(&error) => return Ok(last),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            while let Some((heard, length)) = parse(&self.unread)? {
                self.unread.drain(..length);
                if std::mem::replace(&mut self.is_greeted, true) {
                    last = Some(heard);
                } else if let ProbeReply::Refused(words) = heard {
                    return Err(std::io::Error::other(words));
                }
            }
        }
    }
}

/// Not connected yet, or no data.
fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

fn parse(unread: &[u8]) -> std::io::Result<Option<(ProbeReply, usize)>> {
    let parsed = Protocol::Resp.parse(unread).map_err(std::io::Error::other)?;
    let Some((reply, length)) = parsed else { return Ok(None) };
    let heard = match reply {
        Reply::Done => ProbeReply::Done,
        Reply::Value(value) => ProbeReply::Value(value.to_vec()),
        Reply::Nothing => ProbeReply::Value(b"nothing".to_vec()),
        Reply::Refused(words) => match moved(words) {
            Some((_, address)) => ProbeReply::Moved(address),
            None => ProbeReply::Refused(String::from_utf8_lossy(words).into_owned()),
        },
        _ => return Err(std::io::Error::other("a reply that nobody asked for")),
    };
    Ok(Some((heard, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::stub;
    use std::sync::{Arc, Mutex};

    /// What a node does at the end of its test.
    #[derive(Clone, Copy, PartialEq)]
    enum AtTheEnd {
        Serves,
        FallsSilent,
        ForgetsTheLast,
    }

    /// The number of the request, a set, at which the end begins.
    const END: u64 = 39;

    /// Runs a prober of one slot that is told to stop at the node's end.
    fn probed(at_the_end: AtTheEnd) -> (Trace, Tally) {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, held) = (Arc::clone(&stop), Mutex::new((0, Vec::new())));
        let node = stub::serve(move |words| {
            if words[0] == b"AUTH" {
                return b"+OK\r\n".to_vec();
            }
            let mut held = held.lock().unwrap();
            let (requests, value) = &mut *held;
            *requests += 1;
            // The prober is told to stop before the answer, so it has this request under way.
            if *requests == END {
                told.store(true, SeqCst);
            }
            match (words[0].as_slice(), at_the_end) {
                (_, AtTheEnd::FallsSilent) if *requests >= END => Vec::new(),
                (b"SET", AtTheEnd::ForgetsTheLast) if *requests >= END => b"+OK\r\n".to_vec(),
                (b"SET", _) => {
                    value.clone_from(&words[2]);
                    b"+OK\r\n".to_vec()
                }
                _ => [format!("${}\r\n", value.len()).as_bytes(), &value[..], &b"\r\n"[..]].concat(),
            }
        });
        let slots = [(7, "key".to_owned())];
        let mut prober = Prober::new(&[node], "token", &slots, Instant::now()).unwrap();
        // A node that answers correctly may take as long as it likes.
        if at_the_end == AtTheEnd::FallsSilent {
            prober.silence_max = Duration::from_millis(150);
        }
        let (traces, tally) = prober.run(&stop).unwrap();
        (traces[0].clone(), tally)
    }

    #[test]
    fn what_was_last_set_is_looked_up_at_the_end() {
        let (_, tally) = probed(AtTheEnd::Serves);
        assert_eq!((tally.looked_up, tally.lost, tally.failures()), (1, 0, 0), "{:?}", tally.told);
        let (_, tally) = probed(AtTheEnd::ForgetsTheLast);
        assert_eq!((tally.looked_up, tally.lost, tally.failures()), (1, 1, 0), "{:?}", tally.told);
    }

    #[test]
    fn a_slot_that_hangs_at_the_end_has_failed_and_its_wait_is_a_gap() {
        let (trace, tally) = probed(AtTheEnd::FallsSilent);
        assert!(tally.looked_up == 0 && tally.failures() > 0, "{tally:?}");
        assert_eq!(tally.unanswered, 1);
        let moves = trace.moves();
        assert!(moves.last().is_some_and(|last| last.unavailable_ms > 100.0), "{moves:?}");
    }
}

//! How requests of the fixed pace reach their nodes: one thread, a connection to each node, slots learned
//! from refusals.
//!
//! Invariant: a request ends once, with its answer or at its deadline; later replies are dropped.
//! Invariant: a silent node delays only its own requests, never those of other nodes.

use super::node::{Node, NodeEvent};
use super::paced::{LETTER, Report, Spec};
use super::slots::{SLOTS, slot_of};
use super::{key, milliseconds_now};
use crate::client::{Operation, Protocol};
use mio::{Events, Poll};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The delay after a refusal that names no node, or a silent one.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// More nodes than any cluster of the bench has, as a limit, because addresses come from servers.
const NODES_MAX: usize = 64;
/// After this many redirections in a row a request waits a moment.
const MOVES_MAX: u32 = 5;

struct Request {
    number: u64,
    is_write: bool,
    slot: usize,
    due: Instant,
    due_ms: u64,
    moves: u32,
}

/// The running client.
pub struct Pacer<'a> {
    spec: &'a Spec,
    poll: Poll,
    nodes: Vec<Node>,
    /// The node that serves each slot, as far as nodes have told.
    serves: Vec<usize>,
    requests: BTreeMap<u64, Request>,
    /// Requests in the order of their deadlines.
    deadlines: VecDeque<u64>,
    /// Requests that wait a moment before they are sent again.
    retries: BTreeSet<(Instant, u64)>,
    random: fastrand::Rng,
    report: Report,
}

impl<'a> Pacer<'a> {
    /// Gets the slot table from the first node, as clients do at their start.
    pub fn new(spec: &'a Spec) -> io::Result<Self> {
        let mut pacer = Self::without_table(spec)?;
        let table = super::slots::table(spec.addresses[0], spec.token.as_deref())?;
        pacer.serves = table.into_iter().map(|address| pacer.number_of(address)).collect();
        Ok(pacer)
    }

    /// A client to which the first node serves every slot, until another one is named.
    pub fn without_table(spec: &'a Spec) -> io::Result<Self> {
        let token = spec.token.as_deref();
        let nodes =
            spec.addresses.iter().enumerate().map(|(number, &address)| Node::new(number, address, token));
        let nodes: Vec<Node> = nodes.collect();
        if nodes.is_empty() || spec.rate == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            spec,
            poll: Poll::new()?,
            nodes,
            serves: vec![0; SLOTS],
            requests: BTreeMap::new(),
            deadlines: VecDeque::new(),
            retries: BTreeSet::new(),
            random: fastrand::Rng::with_seed(spec.seed),
            report: Report::default(),
        })
    }

    /// The number of the node at this address, a new one if necessary.
    fn number_of(&mut self, address: SocketAddr) -> usize {
        if let Some(known) = self.nodes.iter().position(|node| node.address() == address) {
            return known;
        }
        if self.nodes.len() < NODES_MAX {
            self.nodes.push(Node::new(self.nodes.len(), address, self.spec.token.as_deref()));
        }
        self.nodes.len() - 1
    }

    /// Sends requests for the given time or until it is told to stop, and waits for the last answers.
    pub fn run(mut self, stop: &AtomicBool) -> io::Result<Report> {
        let (start, start_ms) = (Instant::now(), milliseconds_now());
        let every = Duration::from_secs(1) / u32::try_from(self.spec.rate).unwrap_or(u32::MAX);
        let mut count = self.spec.rate * self.spec.run_ms / 1000;
        let mut events = Events::with_capacity(NODES_MAX);
        let mut asked = 0;
        while asked < count || !self.requests.is_empty() {
            if stop.load(SeqCst) {
                count = asked;
            }
            let now = Instant::now();
            while asked < count && start + every * (asked as u32) <= now {
                let due = every * asked as u32;
                self.ask(asked, start + due, start_ms + due.as_millis() as u64, now);
                asked += 1;
            }
            self.end_late_ones(now);
            self.give_silent_nodes_up(now);
            self.send_again(now);
            match self.poll.poll(&mut events, Some(Duration::from_millis(1))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                ended => ended?,
            }
            for event in &events {
                let heard = self.nodes[event.token().0].ready();
                self.take(event.token().0, heard);
            }
        }
        Ok(self.report)
    }

    /// Makes a new request: a write of a new key, or a read of an acknowledged one.
    fn ask(&mut self, id: u64, due: Instant, due_ms: u64, now: Instant) {
        let known = &self.report.acknowledged;
        let is_write = known.is_empty() || self.random.bool();
        let number =
            if is_write { self.spec.numbers_above + id + 1 } else { known[self.random.usize(..known.len())] };
        let slot = slot_of(key(LETTER, number).as_bytes());
        self.requests.insert(id, Request { number, is_write, slot, due, due_ms, moves: 0 });
        self.deadlines.push_back(id);
        self.send(id, now);
    }

    /// Sends a request to the node of its slot, or to another one while that is silent.
    fn send(&mut self, id: u64, now: Instant) {
        let Some(&Request { number: key_number, is_write, slot, .. }) = self.requests.get(&id) else {
            return;
        };
        let serving = self.serves[slot];
        let number = if self.nodes[serving].is_silent(now) { self.any_other(now) } else { Some(serving) };
        let Some(number) = number else {
            self.retries.insert((now + RETRY_AFTER, id));
            return;
        };
        let (key, mut bytes) = (key(LETTER, key_number), Vec::new());
        let operation = if is_write { Operation::Set } else { Operation::Get };
        Protocol::Resp.write(operation, key.as_bytes(), key.as_bytes(), &mut bytes);
        let given_up = self.nodes[number].send(id, &bytes, now, self.poll.registry());
        self.send_later(given_up, now);
    }

    fn any_other(&mut self, now: Instant) -> Option<usize> {
        let talking = (0..self.nodes.len()).filter(|&number| !self.nodes[number].is_silent(now));
        let talking: Vec<usize> = talking.collect();
        self.random.choice(talking)
    }

    fn send_later(&mut self, ids: Vec<u64>, now: Instant) {
        self.retries.extend(ids.into_iter().map(|id| (now + RETRY_AFTER, id)));
    }

    fn send_again(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.retries.first().filter(|(at, _)| *at <= now) {
            self.retries.remove(&(at, id));
            self.send(id, now);
        }
    }

    fn give_silent_nodes_up(&mut self, now: Instant) {
        for number in 0..self.nodes.len() {
            let given_up = self.nodes[number].give_up_if_silent(now);
            // They go to other nodes at once, which may know more.
            given_up.into_iter().for_each(|id| self.send(id, now));
        }
    }

    fn end_late_ones(&mut self, now: Instant) {
        let most = Duration::from_millis(self.spec.answer_ms_max);
        while let Some(&id) = self.deadlines.front() {
            if self.requests.get(&id).is_some_and(|request| now < request.due + most) {
                return;
            }
            self.deadlines.pop_front();
            self.end(id, false);
        }
    }

    fn end(&mut self, id: u64, has_succeeded: bool) {
        if let Some(request) = self.requests.remove(&id) {
            self.report.end(request.due_ms, has_succeeded, request.is_write.then_some(request.number));
        }
    }

    /// Handles the replies of a node, and the requests of a connection that broke.
    fn take(&mut self, from: usize, heard: Vec<NodeEvent>) {
        let now = Instant::now();
        for heard in heard {
            match heard {
                NodeEvent::Done(id) => {
                    let is_write = self.requests.get(&id).is_some_and(|request| request.is_write);
                    self.learn(id, from);
                    self.end(id, is_write);
                }
                NodeEvent::Value(id, value) => {
                    self.learn(id, from);
                    self.judge(id, Some(&value));
                }
                NodeEvent::Nothing(id) => self.judge(id, None),
                NodeEvent::Moved(id, slot, address) => self.follow(id, (slot, address), now),
                NodeEvent::Refused(id, words) => {
                    let first = words.split(' ').next().unwrap_or_default().to_owned();
                    *self.report.refusals.entry(first).or_default() += 1;
                    self.send_later(vec![id], now);
                }
                NodeEvent::Broken(ids) => {
                    *self.report.refusals.entry(format!("connection {from} broke")).or_default() += 1;
                    self.send_later(ids, now);
                }
            }
        }
    }

    /// A node that answers for a slot serves it, whatever was known before.
    fn learn(&mut self, id: u64, from: usize) {
        if let Some(request) = self.requests.get(&id) {
            self.serves[request.slot] = from;
        }
    }

    fn judge(&mut self, id: u64, value: Option<&[u8]>) {
        let Some(request) = self.requests.get(&id) else { return };
        let expected = key(LETTER, request.number);
        let is_right = !request.is_write && value == Some(expected.as_bytes());
        if !is_right {
            self.report.wrong_reads += 1;
            let is = value.map_or("nothing".to_owned(), |value| value.escape_ascii().to_string());
            self.report.first_wrong.get_or_insert_with(|| format!("{expected} was acknowledged and is {is}"));
        }
        self.end(id, is_right);
    }

    /// Remembers which node serves the slot and sends the request there. If that node is silent, the
    /// request is sent a little later by way of another one, which may know of a fail-over by then.
    fn follow(&mut self, id: u64, (slot, address): (usize, SocketAddr), now: Instant) {
        self.serves[slot] = self.number_of(address);
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.moves += 1;
        if self.nodes[self.serves[slot]].is_silent(now) || request.moves.is_multiple_of(MOVES_MAX) {
            self.send_later(vec![id], now);
        } else {
            self.send(id, now);
        }
    }
}

//! An event loop: one thread that waits for its sockets and gives each connection its turn.
//!
//! In a round, what the poll reports is received and executed, the writes are made durable, and the replies
//! leave. If durability takes a sync, the replies of the round are held until it is done, and other
//! connections have turns meanwhile: during the sync on a slow disk, before it on a quick one.
//!
//! Invariant: no connection has two turns in a round, and none keeps the others waiting for longer than a
//! turn.
//! Invariant: a connection whose replies are held has no turn, so all its held replies wait for the same
//! sync.
//! Invariant: turns of connections that wait for no sync put none off.
//! Invariant: a pass reads its clock after the last message of another node that it handles was received.

mod round;

use crate::NodeError;
use crate::connection::{Connection, End, Session, Spare};
use crate::connections::Connections;
use crate::listening::{is_of_one_connection, prepare};
use crate::loop_state::LoopState;
use crate::peer::Peers;
use atoll_replica::Gathering;
use atoll_tls::Stream;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Poll tokens of the listening socket and of the waker; connections have smaller ones.
const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// Most events from one call of the poll.
const EVENTS_MAX: usize = 1024;

/// How often time-dependent work is done.
const TICK: Duration = Duration::from_millis(100);

/// Most handshake steps in a round: each takes as long as hundreds of requests.
pub(crate) const HANDSHAKES_MAX: u32 = 16;

/// Most connections accepted before others have their turn.
const ACCEPTED_MAX: usize = 256;

/// An event loop and what belongs to it.
pub(crate) struct EventLoop {
    poll: Poll,
    listener: Option<TcpListener>,
    /// Whether more connections may wait to be accepted.
    has_waiting: bool,
    connections: Connections,
    here: LoopState,
    spare: Spare,
    /// Connections with a turn in the next round.
    next: Vec<usize>,
    /// Connections with a latency class, which wait until a turn is worth it.
    gathering: Gathering,
    /// Connections with a latency class that the poll just reported.
    arrived: Vec<usize>,
    /// Connections whose replies leave at the end of this round.
    answered: Vec<usize>,
    /// Connections whose replies are held, by the number of their sync. Syncs are done in this order.
    held: VecDeque<(u64, Vec<usize>)>,
    /// When time-dependent work was last done, and how many commands had been executed by then.
    ticked_us: u64,
    ticked_commands: u64,
    /// Whether more expired keys wait to be deleted.
    is_expiring: bool,
    stop: Arc<AtomicBool>,
}

/// What a loop waits with.
pub(crate) struct Waiting {
    poll: Poll,
    waker: Arc<Waker>,
}

impl Waiting {
    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }
}

impl EventLoop {
    /// Makes what a loop waits with, and what wakes it.
    pub(crate) fn poll() -> io::Result<(Waiting, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        Ok((Waiting { poll, waker: waker.clone() }, waker))
    }

    pub(crate) fn new(
        Waiting { poll, waker }: Waiting,
        mut listener: Option<TcpListener>,
        mut here: LoopState,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        here.slots.sync_in_rounds(here.shared.chosen.clock.clone(), waker)?;
        if let Some(listener) = &mut listener {
            prepare(listener)?;
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        Ok(Self {
            poll,
            listener,
            has_waiting: false,
            connections: Connections::default(),
            here,
            spare: Spare::default(),
            next: Vec::new(),
            gathering: Gathering::default(),
            arrived: Vec::new(),
            answered: Vec::new(),
            held: VecDeque::new(),
            ticked_us: 0,
            ticked_commands: 0,
            is_expiring: false,
            stop,
        })
    }

    /// Runs until the stop flag is set.
    pub(crate) fn run(mut self) -> Result<(), NodeError> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.stop.load(Ordering::Acquire) {
            self.pass(&mut events)?;
        }
        Ok(())
    }

    /// Waits for the poll, and runs one round.
    fn pass(&mut self, events: &mut Events) -> Result<(), NodeError> {
        let sync_waits = self.here.slots.sync_waits();
        let wait = if sync_waits || self.goes_on() { Duration::ZERO } else { self.wait() };
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            polled => polled.map_err(|source| NodeError::System { action: "wait for sockets", source })?,
        }
        events.iter().for_each(|event| self.notice(event));
        self.here.slots.receive(self.poll.registry());
        self.here.look_at_clock();
        self.gather();
        if sync_waits {
            self.sync_if_due()?;
        }
        self.here.slots.hear(self.here.now, self.poll.registry())?;
        self.here.date_again();
        self.here.look_at_table();
        self.release()?;
        self.accept();
        self.tick()?;
        self.round()
    }

    /// Begins the sync that waits, unless a connection has a turn due that may then share it. Connections
    /// that wait for no sync never share it, and always have turns, so the thread syncs beside these.
    fn sync_if_due(&mut self) -> Result<(), NodeError> {
        let mut has_turns = false;
        for connection in self.next.iter().filter_map(|key| self.connections.get(*key)) {
            if !connection.outbox.is_held() {
                if !connection.session.is_free {
                    return Ok(());
                }
                has_turns = true;
            }
        }
        if has_turns {
            self.here.slots.hand_over_sync(self.here.now);
            return Ok(());
        }
        self.here.slots.sync_here()
    }

    fn notice(&mut self, event: &Event) {
        match event.token() {
            LISTENER => self.has_waiting = true,
            WAKER => {}
            token if Peers::is_theirs(token) => self.here.slots.notice(event, self.poll.registry()),
            Token(key) => {
                let Some(connection) = self.connections.get_mut(key) else { return };
                connection.notice(event);
                match connection.has_time() {
                    true => self.arrived.push(key),
                    false => self.schedule(key),
                }
            }
        }
    }

    /// Whether there is more to do at once, whatever the poll reports.
    fn goes_on(&mut self) -> bool {
        let now = self.here.now.moment;
        !self.next.is_empty() || self.is_expiring || self.here.slots.watches().goes_on(now)
    }

    /// How long the poll may wait: until the next tick, or until a gathered connection is due.
    fn wait(&self) -> Duration {
        let tick = self.here.slots.tick().unwrap_or(TICK);
        let Some(due_at) = self.gathering.due_at() else { return tick };
        let now = self.here.shared.chosen.clock.now().moment;
        tick.min(Duration::from_micros(due_at.0.saturating_sub(now.0)))
    }

    /// Holds back connections that have time, and gives all of them a turn in one round when one is due.
    /// Their requests are still in their sockets: nothing has been executed, and they take no memory.
    fn gather(&mut self) {
        let now = self.here.now.moment;
        for key in self.arrived.drain(..) {
            let slack_us = self.connections.get_mut(key).and_then(|one| one.session.class.slack_us());
            if let Some(slack_us) = slack_us {
                self.gathering.hold(now, key as u64, slack_us);
            }
        }
        let due = self.gathering.take_due(now);
        self.here.metrics.gathered.add(due.len() as u64);
        due.into_iter().for_each(|key| self.schedule(key as usize));
    }

    /// Gives a connection a turn in the next round.
    fn schedule(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.is_scheduled, true)
        {
            self.next.push(key);
        }
    }

    fn end(&mut self, key: usize, end: End) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        self.gathering.forget(key as u64);
        self.here.slots.watches().end_connection(key, connection.session.id);
        if end != End::Failed {
            connection.stream.say_goodbye();
        }
        let _ = self.poll.registry().deregister(connection.stream.socket_mut());
        let metrics = &self.here.metrics;
        metrics.connections.set(self.connections.len() as u64);
        metrics.connection_bytes.subtract(connection.counted_bytes() as u64);
        metrics.connections_dropped.add(u64::from(end.is_dropped()));
        tracing::debug!(connection = connection.session.id, ?end, "a connection ended");
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            let Some(listener) = self.listener.as_ref().filter(|_| self.has_waiting) else { return };
            match listener.accept() {
                Ok((socket, peer)) => self.begin(socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.has_waiting = false,
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    // The process is out of file descriptors; the next tick tries again.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    self.has_waiting = false;
                }
            }
        }
    }

    fn begin(&mut self, mut socket: TcpStream, peer: SocketAddr) {
        let metrics = &self.here.metrics;
        let tls = self.here.shared.chosen.tls.as_ref();
        if self.connections.len() >= self.here.limits().connections_max {
            metrics.connections_refused.add(1);
            let told: &[u8] = match tls {
                None => b"-ERR max number of clients reached\r\n",
                Some(_) => &atoll_tls::FULL,
            };
            // A new socket has room for one line; if not, the client goes without it.
            let _ = socket.write(told);
            return;
        }
        metrics.connections_accepted.add(1);
        let stream = match tls {
            None => Stream::plain(socket),
            Some(tls) => match Stream::serve(socket, Arc::clone(&tls.clients)) {
                Ok(stream) => stream,
                Err(error) => return self.here.turned_away(peer, &error),
            },
        };
        let id = self.here.shared.connection_ids.fetch_add(1, Ordering::Relaxed) + 1;
        let is_authenticated = self.here.shared.chosen.token.is_none();
        let (class, now) = (self.here.limits().latency_class, self.here.now.moment);
        let session = Session::new(id, peer, is_authenticated, class, now);
        let key = self.connections.insert(Connection::new(stream, session));
        let Some(connection) = self.connections.get_mut(key) else { return };
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self.poll.registry().register(connection.stream.socket_mut(), Token(key), interest) {
            Ok(()) => self.schedule(key),
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be watched");
                self.connections.remove(key);
            }
        }
        self.here.metrics.connections.set(self.connections.len() as u64);
    }

    /// Does the time-dependent work if it is due.
    fn tick(&mut self) -> Result<(), NodeError> {
        let now_us = self.here.now.moment.0;
        let passed_us = now_us.saturating_sub(self.ticked_us);
        let is_time = passed_us >= TICK.as_micros() as u64;
        if is_time || self.is_expiring {
            let table = self.here.table.clone();
            let now = self.here.now;
            let held = |slot| table.is_here(slot);
            self.is_expiring = self.here.slots.expire_some(now, held)?;
        }
        if !is_time {
            return Ok(());
        }
        self.ticked_us = now_us;
        let table = self.here.table.clone();
        self.here.slots.forget_some(self.here.now, |slot| table.is_here(slot))?;
        // The poll reports no event for connections that waited while file descriptors were used up.
        self.has_waiting = self.listener.is_some();
        let metrics = &self.here.metrics;
        let done = metrics.commands.get();
        metrics.commands_per_second.set((done - self.ticked_commands) * 1_000_000 / passed_us);
        self.ticked_commands = done;
        self.here.slots.look_at_room(self.here.now);
        self.here.tell_ring_seen();
        self.here.log_rate_limited();
        let limits = self.here.limits();
        let over: Vec<_> = self
            .connections
            .iter()
            .filter_map(|(key, connection)| Some((key, connection.overdue(self.here.now.moment, limits)?)))
            .collect();
        for (key, end) in over {
            self.end(key, end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

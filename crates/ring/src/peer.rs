//! The connections between nodes. Each node dials every other one, sends its messages on the connection that
//! it dialled, and receives messages on those dialled by the others.
//!
//! Invariant: a message may be lost, when a connection breaks or too much waits. On one connection it is
//! never torn or duplicated, and entries and cells are never out of order. If many of those wait, messages
//! about them overtake them.
//! Invariant: what waits to be sent to a node is bounded.
//! Invariant: each node is heard on one connection at a time, and unauthenticated connections make room for
//! others.

mod accepted;
mod address;
pub(crate) mod codec;
mod dialled;
mod greeting;
mod lane;
mod outbox;
mod reach;
mod repeats;

pub(crate) use address::PeerAddress;
pub(crate) use codec::{Piece, Spoken};
pub(crate) use greeting::Greeting;

use crate::log_rate_limit::LogRateLimit;
use crate::token::Token;
use accepted::{Accepted, ROOM_BYTES, Received};
use atoll_replica::{Incarnation, Message, Moment, NodeId};
use atoll_tls::{PeerTls, Stream};
use atoll_wire::Limits;
use dialled::{Dialled, Showing};
use greeting::OTHER_RING;
use mio::event::Event;
use mio::net::TcpListener;
use mio::{Interest, Registry};
use outbox::Counts;
use reach::Reach;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

/// Poll tokens for peers: the listener, dialled connections, accepted ones.
const LISTENER: usize = 1 << 40;
const DIALLED: usize = LISTENER + 1;
const HEARD: usize = 1 << 41;
const END: usize = 1 << 42;

/// Most connections from peers that have not authenticated.
const STRANGERS_MAX: usize = 64;

/// Bounds of the limit of connections from peers, whatever the table says.
const HEARD_MAX: std::ops::RangeInclusive<usize> = 1_024..=65_536;

/// Most connections accepted between two calls of the poll.
const ACCEPTED_MAX: usize = 64;

/// How often accepting is tried although the poll reported nothing.
const ACCEPT_EVERY_US: u64 = 100_000;

/// How often each node is told this node's clock.
const DATES_EVERY_US: u64 = 1_000_000;

/// Most handshake steps between two calls of the poll.
const HANDSHAKES_MAX: usize = 16;

/// Most bytes kept for a node that is not connected. Anything older is sent again when it is needed.
const UNCONNECTED_BYTES_MAX: usize = 1 << 20;

/// Limits of what a peer may send.
pub(crate) const LIMITS: Limits = Limits {
    frame_bytes: 80 << 20,
    chunk_bytes: 1 << 20,
    message_bytes: 80 << 20,
    outbox_bytes: 64 << 20,
    window_bytes: 4 << 20,
    streams: 1,
};

/// The other nodes.
pub(crate) struct Peers {
    greeting: Greeting,
    secret: Option<Token>,
    tls: Option<PeerTls>,
    listener: TcpListener,
    /// Whether more connections may wait to be accepted.
    has_waiting: bool,
    /// When accepting was last tried.
    accepted_at: Moment,
    /// All nodes of the ring, including this one.
    nodes: BTreeSet<NodeId>,
    dialled: BTreeMap<NodeId, Dialled>,
    /// Whether each of those was reached lately.
    reached: BTreeMap<NodeId, Reach>,
    accepted: BTreeMap<usize, Accepted>,
    accepted_last: usize,
    /// Connections that wait for the next step of their handshake.
    shaking: VecDeque<usize>,
    /// Connections with more to receive than one turn allows, which the poll reports only once.
    unread: VecDeque<usize>,
    /// The shared receive buffer.
    room: Vec<u8>,
    dated_at: Moment,
    /// The time of the last flush.
    now: Moment,
    /// Peers that were refused before they had authenticated.
    strangers: LogRateLimit,
    /// Messages that a connection accepted.
    pub(crate) said: u64,
    /// Messages that were dropped because too much waited, or with their connection.
    pub(crate) dropped: u64,
}

/// Most connections from peers for this number of other nodes: one from each, a second one while it dials
/// again, and unauthenticated ones.
fn accepted_max(others: usize) -> usize {
    others.saturating_mul(2).saturating_add(STRANGERS_MAX).clamp(*HEARD_MAX.start(), *HEARD_MAX.end())
}

impl Peers {
    /// Starts to listen for other nodes.
    pub(crate) fn listen(
        me: NodeId,
        (secret, tls): (Option<Token>, Option<PeerTls>),
        listener: std::net::TcpListener,
        registry: &Registry,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        registry.register(&mut listener, mio::Token(LISTENER), Interest::READABLE)?;
        let greeting =
            Greeting { node: me, incarnation: Incarnation::default(), ring: 0, to: NodeId::default() };
        let room = vec![0; ROOM_BYTES];
        Ok(Self {
            greeting,
            secret,
            tls,
            listener,
            has_waiting: true,
            accepted_at: Moment::default(),
            nodes: BTreeSet::new(),
            dialled: BTreeMap::new(),
            reached: BTreeMap::new(),
            accepted: BTreeMap::new(),
            accepted_last: 0,
            shaking: VecDeque::new(),
            unread: VecDeque::new(),
            room,
            dated_at: Moment::default(),
            now: Moment::default(),
            strangers: LogRateLimit::default(),
            said: 0,
            dropped: 0,
        })
    }

    /// Begins an incarnation in a ring. Peers that greeted as nodes of another ring before it was known are
    /// disconnected.
    pub(crate) fn begin(&mut self, incarnation: Incarnation, ring: u64, registry: &Registry) {
        (self.greeting.incarnation, self.greeting.ring) = (incarnation, ring);
        let is_other = |(&token, heard): (&usize, &Accepted)| {
            heard.greeting().is_some_and(|greeting| greeting.ring != ring).then_some(token)
        };
        for token in self.accepted.iter().filter_map(is_other).collect::<Vec<_>>() {
            self.end(token, Some(OTHER_RING), registry);
        }
    }

    /// Sets the addresses at which the nodes of the ring are dialled, if they are. Nodes that have left are
    /// not dialled any more.
    pub(crate) fn set_addresses(
        &mut self,
        addresses: &BTreeMap<NodeId, Option<PeerAddress>>,
        registry: &Registry,
    ) {
        let (me, mut gone) = (self.greeting.node, Vec::new());
        self.nodes = addresses.keys().copied().collect();
        let address_of = |node: &NodeId| addresses.get(node).and_then(Option::as_ref);
        self.dialled.retain(|node, dialled| {
            let stays = address_of(node).is_some_and(|address| address.is_same(&dialled.address));
            if !stays {
                dialled.hang_up(registry);
                gone.push(dialled.take_counts());
            }
            stays
        });
        let others = addresses.iter().filter(|(node, _)| **node != me);
        for (&node, address) in others.filter_map(|(node, address)| Some((node, address.as_ref()?))) {
            self.dialled.entry(node).or_insert_with(|| Dialled::new(address.clone()));
            self.reached.entry(node).or_insert_with(|| Reach::new(self.now));
        }
        self.reached.retain(|node, _| self.dialled.contains_key(node));
        gone.into_iter().for_each(|counts| self.count(counts));
    }

    /// Sends a message to a node, if the node is known and not too much waits.
    pub(crate) fn say(&mut self, to: NodeId, message: &Message) {
        self.say_by(to, |dialled| dialled.say(message));
    }

    /// Sends cells to a node. Returns whether they were accepted.
    pub(crate) fn send_piece(&mut self, to: NodeId, piece: &Piece) -> bool {
        self.say_by(to, |dialled| dialled.put(|out| codec::encode_piece(piece, out)))
    }

    /// How much waits to be sent to a node; none if it is not connected.
    pub(crate) fn waiting_bytes(&self, to: NodeId) -> Option<usize> {
        self.dialled.get(&to).filter(|dialled| dialled.is_open()).map(Dialled::waiting_bytes)
    }

    /// All nodes of the ring except this one.
    fn others(&self) -> impl Iterator<Item = NodeId> {
        let me = self.greeting.node;
        self.nodes.iter().copied().filter(move |node| *node != me)
    }

    /// Nodes of the ring to which there is no connection now.
    pub(crate) fn unreached(&self) -> impl Iterator<Item = NodeId> {
        let is_open = |node: &NodeId| self.dialled.get(node).is_some_and(Dialled::is_open);
        self.others().filter(move |node| !is_open(node))
    }

    /// Nodes that could not be reached for a while and may have moved. Each is named once in a while.
    pub(crate) fn take_lost(&mut self) -> Vec<NodeId> {
        let now = self.now;
        let sought = |(&node, reach): (&NodeId, &mut Reach)| reach.is_to_be_sought(now).then_some(node);
        self.reached.iter_mut().filter_map(sought).collect()
    }

    fn say_by(&mut self, to: NodeId, say: impl FnOnce(&mut Dialled) -> bool) -> bool {
        let taken = self.dialled.get_mut(&to).is_some_and(say);
        self.dropped += u64::from(!taken);
        taken
    }

    fn count(&mut self, Counts { sent, lost }: Counts) {
        self.said += sent;
        self.dropped += lost;
    }

    /// Dials nodes that are not connected, sends what waits, and now and then this node's clock.
    pub(crate) fn flush(&mut self, now: Moment, date_ms: u64, registry: &Registry) {
        self.now = now;
        if let Some(times) = self.strangers.due(now) {
            tracing::warn!(times, "more unknown connections were refused at the address for nodes");
        }
        // The poll does not report again a connection that could not be accepted for lack of file
        // descriptors.
        self.has_waiting |= now >= self.accepted_at.after(ACCEPT_EVERY_US);
        if self.has_waiting {
            self.accepted_at = now;
            self.accept(registry);
        }
        let is_alive = self.greeting.has_begun();
        let is_dated = now >= self.dated_at.after(DATES_EVERY_US);
        if is_dated {
            self.dated_at = now;
        }
        let mut counted = Counts::default();
        for (node, dialled) in &mut self.dialled {
            if is_dated && dialled.is_open() {
                dialled.put_date(date_ms);
            }
            let is_open = dialled.is_open();
            if self.reached.get_mut(node).is_some_and(|reach| reach.look(is_open, now)) {
                dialled.address.keep_turn();
            }
            if is_alive {
                let token = mio::Token(DIALLED + node.0 as usize);
                let (secret, tls) = (self.secret.as_ref(), self.tls.as_ref());
                let greeting = Greeting { to: *node, ..self.greeting };
                let showing = Showing { greeting, secret, tls, date_ms };
                dialled.flush(&showing, token, now, registry);
            }
            counted += dialled.take_counts();
        }
        self.count(counted);
        let late = self.accepted.iter_mut().filter_map(|(&token, heard)| heard.is_late(now).then_some(token));
        for token in late.collect::<Vec<_>>() {
            self.end(token, Some("it did not identify itself in time"), registry);
        }
    }

    /// Advances some of the waiting handshakes by a step. Messages received behind them are passed on.
    pub(crate) fn shake_hands(
        &mut self,
        registry: &Registry,
        hear: &mut impl FnMut(NodeId, Incarnation, Spoken),
    ) {
        for token in self.shaking.drain(..self.shaking.len().min(HANDSHAKES_MAX)).collect::<Vec<_>>() {
            // The end of the stream may have come with what is here, and is not reported again.
            self.receive(token, true, registry, hear);
        }
    }

    /// Receives one more turn from each connection that has more to receive.
    pub(crate) fn receive_rest(
        &mut self,
        registry: &Registry,
        hear: &mut impl FnMut(NodeId, Incarnation, Spoken),
    ) {
        for token in std::mem::take(&mut self.unread) {
            self.receive(token, true, registry, hear);
        }
    }

    /// Takes every connection for one that has more to receive.
    #[cfg(test)]
    pub(crate) fn leave_rest(&mut self) {
        self.unread = self.accepted.keys().copied().collect();
    }

    /// Whether there are such connections.
    pub(crate) fn has_rest(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Receives from a peer. `is_closed` says whether the poll has reported its end of the stream.
    fn receive(
        &mut self,
        token: usize,
        is_closed: bool,
        registry: &Registry,
        hear: &mut impl FnMut(NodeId, Incarnation, Spoken),
    ) {
        let Some(heard) = self.accepted.get_mut(&token) else { return };
        let before = heard.node();
        let room = (self.room.as_mut_slice(), is_closed);
        let received = heard.receive(room, &self.greeting, self.secret.as_ref(), hear);
        if received == Received::More && !self.unread.contains(&token) {
            self.unread.push_back(token);
        }
        if received == Received::Over {
            let why = heard.refused().map(str::to_owned);
            self.end(token, why.as_deref(), registry);
        } else if let Some(greeting) = heard.greeting().filter(|_| before.is_none()) {
            self.let_in(greeting, token, registry);
        }
    }

    /// Ends a connection from a peer, and logs why if there is a reason. There may be any number of
    /// strangers, so their log lines are rate-limited.
    fn end(&mut self, token: usize, why: Option<&str>, registry: &Registry) {
        let Some(mut heard) = self.accepted.remove(&token) else { return };
        match (why, heard.node()) {
            (None, _) => {}
            (Some(why), Some(node)) => {
                tracing::warn!(peer = heard.peer(), %node, why, "the connection of a peer was closed");
            }
            (Some(why), None) => self.tell_of_stranger(&heard, why),
        }
        heard.hang_up(registry);
    }

    fn tell_of_stranger(&mut self, stranger: &Accepted, why: &str) {
        if let Some(times) = self.strangers.record(self.now) {
            let peer = stranger.peer();
            tracing::warn!(peer, why, times, "an unknown connection was refused at the address for nodes");
        }
    }

    /// Whether a poll token belongs to peers.
    pub(crate) fn is_theirs(token: mio::Token) -> bool {
        (LISTENER..END).contains(&token.0)
    }

    /// Handles an event of the poll. Received messages are passed on.
    pub(crate) fn notice(
        &mut self,
        event: &Event,
        registry: &Registry,
        hear: &mut impl FnMut(NodeId, Incarnation, Spoken),
    ) {
        match event.token().0 {
            LISTENER => self.has_waiting = true,
            token if token >= HEARD => {
                // Each handshake step takes long, and clients must not wait for many of them.
                match self.accepted.get(&token).is_some_and(Accepted::is_handshaking) {
                    true if self.shaking.contains(&token) => {}
                    true => self.shaking.push_back(token),
                    false => self.receive(token, event.is_read_closed(), registry, hear),
                }
            }
            token => {
                let node = NodeId(u32::try_from(token - DIALLED).unwrap_or(u32::MAX));
                if let Some(dialled) = self.dialled.get_mut(&node) {
                    dialled.notice(event, registry);
                }
            }
        }
    }

    /// Lets in a node that has greeted. A node that dials again has given up its former connection, even if
    /// its end was never received. But a connection of an earlier incarnation must not end one of a later
    /// incarnation, which may run elsewhere.
    fn let_in(&mut self, greeting: Greeting, token: usize, registry: &Registry) {
        let is_other = |(&other, heard): (&usize, &Accepted)| {
            let greeted = heard.greeting().filter(|_| other != token)?;
            (greeted.node == greeting.node).then_some((other, greeted.incarnation))
        };
        let others: Vec<_> = self.accepted.iter().filter_map(is_other).collect();
        if others.iter().any(|&(_, life)| life > greeting.incarnation) {
            // The old process dials again for as long as it runs, so it is logged as rarely as strangers are.
            if let Some(mut former) = self.accepted.remove(&token) {
                self.tell_of_stranger(&former, "it belongs to an earlier start of its node");
                former.hang_up(registry);
            }
            return;
        }
        for (former, _) in others {
            self.end(former, Some("the node dialled again"), registry);
        }
    }

    fn accept(&mut self, registry: &Registry) {
        for _ in 0..ACCEPTED_MAX {
            let Ok((mut socket, _)) = self.listener.accept() else {
                self.has_waiting = false;
                return;
            };
            let strangers = || self.accepted.iter().filter(|(_, heard)| heard.node().is_none());
            let is_full = self.accepted.len() >= accepted_max(self.others().count());
            // Evict the oldest: otherwise the first ones could keep all others out by staying silent.
            match strangers().next().map(|(&token, _)| token) {
                Some(first) if is_full || strangers().count() >= STRANGERS_MAX => {
                    self.end(first, Some("too many connections do not identify themselves"), registry);
                }
                None if is_full => continue,
                _ => {}
            }
            // A peer that cannot be registered is not heard, and dials again.
            let token = HEARD + self.accepted_last;
            self.accepted_last += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            let is_registered = registry.register(&mut socket, mio::Token(token), interest).is_ok();
            let stream = match &self.tls {
                None => Ok(Stream::plain(socket)),
                Some(tls) => Stream::serve(socket, Arc::clone(&tls.serve)),
            };
            if let Some(stream) = stream.ok().filter(|_| is_registered) {
                self.accepted.insert(token, Accepted::new(stream));
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! A connection: parses and executes what arrives, and sends the replies.
//!
//! Invariant: while the unsent bytes or the awaited replies are at their limit, nothing more is received or
//! executed.
//! Invariant: a connection is not ended for the length of replies that it cannot refuse: while much is
//! awaited, from writes or from reads that wait, nothing more is executed; a read that waited is refused if
//! its reply became so long meanwhile that there is no room for it; and a watch that is met then is told
//! without the value.
//! Invariant: an idle connection holds no buffer and no parser.

mod burden;
mod inbox;
mod outbox;
mod session;

pub(crate) use outbox::Outbox;
pub(crate) use session::Session;

use crate::execute::Executor;
use crate::loop_state::LoopState;
use atoll_keyspace::NEAR_AT_ONCE;
use atoll_replica::Moment;
use atoll_resp::{Protocol, ProtocolError, ReplyWriter, RequestParser, keys_ahead};
use atoll_tls::{NoTls, Stream, is_handshake};
use inbox::{Inbox, ROOM_BYTES};
use mio::net::TcpStream;
use std::io::{self, Write};

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream<TcpStream>,
    pub(crate) session: Session,
    pub(crate) outbox: Outbox,
    /// Whether it has a turn in the next round.
    pub(crate) is_scheduled: bool,
    inbox: Inbox,
    /// State of a request that has not arrived in full.
    parser: Option<Box<RequestParser>>,
    /// Whether the socket may have bytes to read.
    is_readable: bool,
    /// Whether the socket may accept bytes.
    is_writable: bool,
    /// Whether the peer has closed its sending side.
    is_read_closed: bool,
    /// Whether the poll reported that nothing reaches the peer any more.
    is_broken: bool,
    /// Whether received requests remain unexecuted because the turn ended or replies have to be sent first.
    is_paused: bool,
    /// The result of receiving ahead of its turn, so that the keys of several connections can be prefetched
    /// together.
    ahead: Option<Result<usize, End>>,
    /// What its last turn came to.
    turn: Turn,
    /// Since when the socket has accepted nothing of the unsent bytes.
    stalled_since: Option<Moment>,
    /// Bytes last added for it to the loop's memory counter.
    counted_bytes: usize,
}

/// Buffers that the connections of a loop share, turn by turn.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    inboxes: Vec<Vec<u8>>,
    outboxes: Vec<Vec<u8>>,
    parser: Option<Box<RequestParser>>,
}

/// Largest outbox buffer that is kept for the next connection, in bytes.
const SPARE_BYTES_MAX: usize = 256 << 10;

/// Most such buffers that are kept.
const SPARES_MAX: usize = 64;

/// Bytes received from one connection before others have their turn.
const TURN_BYTES: usize = 8 * ROOM_BYTES;

/// Requests executed for one connection before others have their turn.
const TURN_REQUESTS: usize = 1024;

/// Longest turn, in microseconds: some requests take a thousand times as long as others.
const TURN_US: u64 = 2_000;

/// Requests between two looks at the clock.
const REQUESTS_PER_CLOCK_READ: usize = 16;

/// Why a client that speaks TLS is turned away by a node without a certificate.
pub(crate) const SPEAKS_TLS: &str = "it speaks TLS, which this node has no certificate for";

/// What a connection's turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It waits for its socket, or for replies.
    Waits,
    /// It has more to do after others had their turn.
    Again,
    /// It is over.
    Over(End),
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client closed it, or asked to quit.
    Gone,
    /// The socket failed.
    Failed,
    /// The last reply was an error that ends it.
    Refused,
    /// The client does not read its replies.
    Stalled,
    /// It takes too much memory, or the most when all together take too much.
    Memory,
    /// The client did not authenticate in time.
    Silent,
}

impl End {
    /// Whether the node ended it, not the client.
    pub(crate) fn is_dropped(self) -> bool {
        matches!(self, Self::Refused | Self::Stalled | Self::Memory | Self::Silent)
    }
}

/// Prefetches what the requests about the first of these keys will touch in memory.
pub(crate) fn bring_nearer<'a>(here: &mut LoopState, keyspace: u8, keys: impl Iterator<Item = &'a [u8]>) {
    let mut first: [&[u8]; NEAR_AT_ONCE] = [&[]; NEAR_AT_ONCE];
    let count = first.iter_mut().zip(keys).map(|(first, key)| *first = key).count();
    here.slots.bring_nearer(keyspace, &first[..count]);
}

impl Connection {
    pub(crate) fn new(stream: Stream<TcpStream>, session: Session) -> Self {
        Self {
            stream,
            session,
            outbox: Outbox::default(),
            is_scheduled: false,
            inbox: Inbox::default(),
            parser: None,
            is_readable: true,
            is_writable: true,
            is_read_closed: false,
            is_broken: false,
            is_paused: false,
            ahead: None,
            turn: Turn::Waits,
            stalled_since: None,
            counted_bytes: 0,
        }
    }

    /// Records what the poll reported about its socket.
    pub(crate) fn notice(&mut self, event: &mio::event::Event) {
        self.is_readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.is_writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        self.is_read_closed |= event.is_read_closed();
        self.is_broken |= event.is_error() || event.is_write_closed();
    }

    /// Whether what arrived may wait for other connections. A connection that is about to end, or has yet to
    /// authenticate, may not.
    pub(crate) fn has_time(&self) -> bool {
        let is_usual = self.session.is_authenticated && !self.session.is_ending && !self.is_read_closed;
        is_usual && self.is_readable && !self.is_scheduled && self.session.class.slack_us().is_some()
    }

    /// Receives once ahead of its turn, if receiving is what the turn would begin with.
    pub(crate) fn receive_ahead(&mut self, here: &mut LoopState, spare: &mut Spare) {
        let is_usual =
            self.session.is_authenticated && !self.session.is_ending && !self.stream.is_encrypted();
        // An earlier round may have received for a turn that did not come.
        let has_room = self.ahead.is_none() && !self.is_paused && !self.is_full(here);
        if is_usual && has_room && self.is_readable && !self.outbox.is_held() {
            self.inbox.borrow(&mut spare.inboxes);
            self.ahead = Some(self.receive(here));
        }
    }

    /// The key that the next request is most likely about.
    pub(crate) fn key_ahead(&self) -> Option<&[u8]> {
        self.ahead.as_ref().and_then(|_| keys_ahead(self.inbox.unread()).next())
    }

    /// Receives and executes what the turn allows. To be followed by [`answer`](Self::answer).
    pub(crate) fn work(&mut self, here: &mut LoopState, spare: &mut Spare) {
        self.borrow(here, spare);
        self.turn = self.receive_and_execute(here);
        self.inbox.give_back(&mut spare.inboxes);
        if self.inbox.unread().is_empty() {
            spare.parser = self.parser.take();
        }
    }

    /// Sends the replies, and returns what is to become of the connection.
    pub(crate) fn answer(&mut self, here: &mut LoopState, spare: &mut Spare) -> Turn {
        let sent = self.send(here);
        if let Some(room) = self.outbox.give_back(SPARE_BYTES_MAX)
            && spare.outboxes.len() < SPARES_MAX
        {
            spare.outboxes.push(room);
        }
        let counted = self.count(here);
        match (self.turn, sent.and(counted)) {
            (Turn::Over(end), _) | (_, Err(end)) => Turn::Over(end),
            _ if self.session.is_ending && self.outbox.is_empty() && !self.stream.has_unsent() => {
                Turn::Over(self.session.end)
            }
            // Sending made room for requests that have already arrived.
            (Turn::Waits, Ok(())) if self.has_more() && !self.is_full(here) => Turn::Again,
            (turn, Ok(())) => turn,
        }
    }

    fn borrow(&mut self, here: &LoopState, spare: &mut Spare) {
        self.inbox.borrow(&mut spare.inboxes);
        self.outbox.borrow(&mut spare.outboxes);
        if self.parser.is_none() {
            let fresh = || Box::new(RequestParser::new(here.limits().request));
            let mut parser = spare.parser.take().unwrap_or_else(fresh);
            parser.set_limits(here.request_limits(&self.session));
            self.parser = Some(parser);
        }
    }

    fn receive_and_execute(&mut self, here: &mut LoopState) -> Turn {
        let mut received = match self.ahead.take() {
            None => 0,
            Some(Ok(count)) => count,
            Some(Err(end)) => return Turn::Over(end),
        };
        let mut ends = None;
        loop {
            self.execute(&mut ends, here);
            let is_full = self.is_full(here);
            if is_full && self.is_broken {
                // The peer will not make room by reading its replies.
                return Turn::Over(End::Gone);
            }
            if is_full && self.is_read_closed {
                // The end of the stream that the poll reported lies behind bytes for which there is no room.
                // The client waits for nothing any more.
                here.slots.watches().give_up(self.session.key);
            }
            if self.session.is_ending && self.outbox.awaited() > 0 {
                // Its socket is not read any more, so without this it would keep its place until its watches
                // end, even if the client is gone.
                here.slots.watches().give_up(self.session.key);
            }
            if self.session.is_ending || is_full || !(self.is_readable || self.is_paused) {
                return Turn::Waits;
            }
            if received >= TURN_BYTES || self.is_paused {
                return Turn::Again;
            }
            // Handshakes take long; other connections must not wait for many of them.
            if self.stream.is_handshaking() && !here.may_shake_hands() {
                return Turn::Again;
            }
            match self.receive(here) {
                Ok(count) => received += count,
                Err(end) => return Turn::Over(end),
            }
        }
    }

    /// Receives once.
    fn receive(&mut self, here: &mut LoopState) -> Result<usize, End> {
        let wanted = self.parser.as_ref().map_or(0, |parser| parser.wants());
        let received = self.inbox.receive(&mut self.stream, wanted);
        here.look_at_clock();
        match received {
            Ok(0) => {
                // The client will ask nothing more, but its requests so far are answered.
                self.session.is_ending = true;
                here.slots.watches().give_up(self.session.key);
                Ok(0)
            }
            Ok(count) => {
                // A read that did not fill the buffer got everything, and the poll will report more. The end
                // of the stream has been reported already. Encrypted bytes come in records, so a short read
                // says nothing there.
                let is_all = !self.inbox.is_full() && !self.stream.is_encrypted();
                self.is_readable = !is_all || self.is_read_closed;
                self.session.heard = here.now.moment;
                here.metrics.received_bytes.add(count as u64);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(0)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(self.give_up(&error, here)),
        }
    }

    /// Turns a failed read into the reason for the end.
    fn give_up(&mut self, error: &io::Error, here: &mut LoopState) -> End {
        if error.kind() != io::ErrorKind::InvalidData {
            return End::Failed;
        }
        let peer = self.session.peer;
        match error.get_ref().and_then(|error| error.downcast_ref::<NoTls>()) {
            Some(_) => {
                here.turned_away(peer, &"it does not speak TLS, which this node expects");
                // A client without TLS would understand nothing else.
                let _ = self.stream.socket_mut().write(b"-ERR this node speaks TLS, and nothing else\r\n");
            }
            None => here.turned_away(peer, error),
        }
        End::Refused
    }

    /// Turns away a client that speaks TLS to a node that does not. Returns whether it did.
    fn turn_away(&mut self, here: &mut LoopState) -> bool {
        let is_stranger = !self.stream.is_encrypted() && is_handshake(self.inbox.unread());
        if is_stranger {
            here.turned_away(self.session.peer, &SPEAKS_TLS);
            self.session.end_with(End::Refused);
        }
        is_stranger
    }

    /// Executes the requests that have arrived in full, as far as the turn goes. `ends` is the end of the
    /// turn, set at the first look at the clock, which a request that comes alone does without.
    fn execute(&mut self, ends: &mut Option<Moment>, here: &mut LoopState) {
        let Some(mut parser) = self.parser.take() else { return };
        let (mut near, mut left) = (0_usize, TURN_REQUESTS);
        while left > 0 && !self.session.is_ending && !self.is_full(here) {
            left -= 1;
            if near == 0 {
                near = self.bring_nearer(here);
            }
            near = near.saturating_sub(1);
            let request = match parser.parse(self.inbox.unread()) {
                Ok(Some(request)) => request,
                Ok(None) => break,
                // Where the next request begins is unknown.
                Err(error) => return self.refuse(&error, here),
            };
            let (bytes, was_authenticated) = (request.bytes(), self.session.is_authenticated);
            if !request.is_empty() {
                let (session, outbox) = (&mut self.session, &mut self.outbox);
                Executor { here, session, outbox }.execute(&request);
            }
            self.inbox.advance(bytes);
            let is_late = left % REQUESTS_PER_CLOCK_READ == 0 && here.is_past(ends, TURN_US);
            if std::mem::take(&mut self.session.is_tired) || is_late {
                left = 0;
            }
            if self.session.is_authenticated != was_authenticated {
                parser.set_limits(here.request_limits(&self.session));
            }
        }
        self.is_paused = left == 0 || self.is_full(here);
        self.parser = Some(parser);
        self.turn_away(here);
    }

    /// Prefetches for the next requests; returns how many requests to execute before the next prefetch.
    fn bring_nearer(&self, here: &mut LoopState) -> usize {
        // Pointless for a client that may not execute anything.
        if self.session.is_authenticated {
            bring_nearer(here, self.session.keyspace, keys_ahead(self.inbox.unread()));
        }
        NEAR_AT_ONCE
    }

    fn refuse(&mut self, error: &ProtocolError, here: &mut LoopState) {
        if self.turn_away(here) {
            return;
        }
        here.metrics.protocol_errors.add(1);
        tracing::debug!(connection = self.session.id, %error, "no request");
        ReplyWriter::new(self.outbox.target(), Protocol::Resp2).error("ERR", &error.to_string());
        self.session.end_with(End::Refused);
        self.inbox = Inbox::default();
    }

    /// Whether the client has to read its replies first, or the loop has to send what this round produced.
    fn is_full(&self, here: &LoopState) -> bool {
        let limits = here.limits();
        self.outbox.unsent_bytes() >= limits.unsent_bytes_pause
            || self.outbox.awaited() >= limits.awaited_max
            || self.awaits_much(here)
            || here.has_much_to_tell()
    }

    /// Whether there may be something to execute.
    fn has_more(&self) -> bool {
        (self.is_readable || self.is_paused || self.ahead.is_some()) && !self.session.is_ending
    }

    fn send(&mut self, here: &LoopState) -> Result<(), End> {
        if !(self.outbox.has_ready() || self.stream.has_unsent()) || !self.is_writable {
            return Ok(());
        }
        let count = self.outbox.send(&mut self.stream).map_err(|_| End::Failed)?;
        let is_all = self.stream.send().map_err(|_| End::Failed)?;
        here.metrics.sent_bytes.add(count as u64);
        self.is_writable = is_all && !self.outbox.has_ready();
        // TLS may send its own records when the outbox has nothing to send.
        if count > 0 || self.is_writable {
            self.stalled_since = None;
        }
        if !self.is_writable {
            self.stalled_since.get_or_insert(here.now.moment);
        }
        Ok(())
    }
}

//! A connection: what arrives is understood and executed, and what is answered is sent.
//!
//! Invariant: while more is unsent than the limit, or more replies are awaited, nothing more is executed or
//! received.
//! Invariant: an idle connection keeps no buffer and no parser.

mod burden;
mod inbox;
mod outbox;
mod session;

pub(crate) use outbox::Outbox;
pub(crate) use session::Session;

use crate::execute::Executor;
use crate::here::Here;
use atoll_keyspace::NEAR_AT_ONCE;
use atoll_replica::Moment;
use atoll_resp::{Protocol, ProtocolError, ReplyWriter, RequestParser, keys_ahead};
use atoll_tls::{NoTls, Stream, is_handshake};
use inbox::{Inbox, ROOM_BYTES};
use mio::net::TcpStream;
use std::io::{self, Write};

/// One client.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream<TcpStream>,
    pub(crate) session: Session,
    pub(crate) outbox: Outbox,
    /// Whether it has a turn in the next round.
    pub(crate) is_scheduled: bool,
    inbox: Inbox,
    /// Knows how far a request came that is not whole.
    parser: Option<Box<RequestParser>>,
    /// Whether something may have arrived.
    is_readable: bool,
    /// Whether the socket may take something.
    is_writable: bool,
    /// Whether the peer sends nothing more.
    is_read_closed: bool,
    /// Whether nothing reaches the peer any more, as the poll told.
    is_broken: bool,
    /// Whether requests that are here wait until it has read what it was told.
    is_paused: bool,
    /// What was received before its turn, so that what others ask for as well can be brought nearer at once.
    ahead: Option<Result<usize, End>>,
    /// What became of it in its turn.
    turn: Turn,
    /// Since when the socket takes nothing of what there is to send.
    stalled_since: Option<Moment>,
    /// Memory that was counted for it.
    counted_bytes: usize,
}

/// Memory that the connections of a loop take turns with.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    inboxes: Vec<Vec<u8>>,
    outboxes: Vec<Vec<u8>>,
    parser: Option<Box<RequestParser>>,
}

/// Room for replies that is kept for the next connection.
const SPARE_BYTES_MAX: usize = 256 << 10;

/// How many of these.
const SPARES_MAX: usize = 64;

/// How much of one connection is received before others have their turn.
const TURN_BYTES: usize = 8 * ROOM_BYTES;

/// How many requests of one connection are executed before others have their turn.
const TURN_REQUESTS: usize = 1024;

/// For how long they are, in microseconds: some take a thousand times as long as others.
const TURN_US: u64 = 2_000;

/// Requests from one look at the clock to the next.
const LOOK_EACH: usize = 16;

/// Why who speaks TLS is turned away, where nobody does.
pub(crate) const SPEAKS_TLS: &str = "it speaks TLS, which this node has no certificate for";

/// What became of a connection in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It waits for its socket, or for replies.
    Waits,
    /// It has more to do, once others had their turn.
    Again,
    /// It is over.
    Over(End),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client went, or asked for it.
    Gone,
    /// The socket failed.
    Failed,
    /// It was told an error that ends it.
    Refused,
    /// It does not read what it is told.
    Stalled,
    /// It takes too much memory, or most of all where all together do.
    Memory,
    /// It did not say who it is in time.
    Silent,
}

impl End {
    /// Whether it was not the client that ended it.
    pub(crate) fn is_dropped(self) -> bool {
        matches!(self, Self::Refused | Self::Stalled | Self::Memory | Self::Silent)
    }
}

/// Brings nearer what requests about the first of these keys will touch in memory.
pub(crate) fn bring_nearer<'a>(here: &mut Here, keyspace: u8, keys: impl Iterator<Item = &'a [u8]>) {
    let mut first: [&[u8]; NEAR_AT_ONCE] = [&[]; NEAR_AT_ONCE];
    let count = first.iter_mut().zip(keys).map(|(first, key)| *first = key).count();
    here.slots.bring_nearer(keyspace, &first[..count]);
}

impl Connection {
    pub(crate) fn new(stream: Stream<TcpStream>, session: Session) -> Self {
        let (outbox, inbox, parser, ahead) = Default::default();
        Self {
            stream,
            session,
            outbox,
            is_scheduled: false,
            inbox,
            parser,
            is_readable: true,
            is_writable: true,
            is_read_closed: false,
            is_broken: false,
            is_paused: false,
            ahead,
            turn: Turn::Waits,
            stalled_since: None,
            counted_bytes: 0,
        }
    }

    /// What the poll told of its socket.
    pub(crate) fn notice(&mut self, event: &mio::event::Event) {
        self.is_readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.is_writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        self.is_read_closed |= event.is_read_closed();
        self.is_broken |= event.is_error() || event.is_write_closed();
    }

    /// Whether what arrived may wait for others. Who is about to end, or has to say who it is, may not.
    pub(crate) fn has_time(&self) -> bool {
        let is_usual = self.session.is_authenticated && !self.session.is_ending && !self.is_read_closed;
        is_usual && self.is_readable && !self.is_scheduled && self.session.class.slack_us().is_some()
    }

    /// Receives once, ahead of its turn, where that is all that would come first in it.
    pub(crate) fn receive_ahead(&mut self, here: &mut Here, spare: &mut Spare) {
        let is_usual =
            self.session.is_authenticated && !self.session.is_ending && !self.stream.is_encrypted();
        // It may have received already, for a turn that it did not come to have.
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

    /// Receives and executes what can be. Behind it comes [`answer`](Self::answer).
    pub(crate) fn work(&mut self, here: &mut Here, spare: &mut Spare) {
        self.borrow(here, spare);
        self.turn = self.receive_and_execute(here);
        self.inbox.give_back(&mut spare.inboxes);
        if self.inbox.unread().is_empty() {
            spare.parser = self.parser.take();
        }
    }

    /// Sends what was answered, and tells what is to become of the connection.
    pub(crate) fn answer(&mut self, here: &mut Here, spare: &mut Spare) -> Turn {
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
            // What was sent made room for what is here already.
            (Turn::Waits, Ok(())) if self.has_more() && !self.is_full(here) => Turn::Again,
            (turn, Ok(())) => turn,
        }
    }

    fn borrow(&mut self, here: &Here, spare: &mut Spare) {
        self.inbox.borrow(&mut spare.inboxes);
        self.outbox.borrow(&mut spare.outboxes);
        if self.parser.is_none() {
            let fresh = || Box::new(RequestParser::new(here.limits().request));
            let mut parser = spare.parser.take().unwrap_or_else(fresh);
            parser.set_limits(here.request_limits(&self.session));
            self.parser = Some(parser);
        }
    }

    fn receive_and_execute(&mut self, here: &mut Here) -> Turn {
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
                // Nobody will make room by reading what it is told.
                return Turn::Over(End::Gone);
            }
            if is_full && self.is_read_closed {
                // The end that the poll told of is behind what there is no room for, and it waits for nothing
                // any more.
                here.slots.watches().give_up(self.session.key);
            }
            if self.session.is_ending && self.outbox.awaited() > 0 {
                // Nobody looks at its socket any more, so that it would keep its place until its waits are
                // over, gone or not.
                here.slots.watches().give_up(self.session.key);
            }
            if self.session.is_ending || is_full || !(self.is_readable || self.is_paused) {
                return Turn::Waits;
            }
            if received >= TURN_BYTES || self.is_paused {
                return Turn::Again;
            }
            // Handshakes take long, and others are not to wait for many of them.
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
    fn receive(&mut self, here: &mut Here) -> Result<usize, End> {
        let wanted = self.parser.as_ref().map_or(0, |parser| parser.wants());
        let received = self.inbox.receive(&mut self.stream, wanted);
        here.look_at_clock();
        match received {
            Ok(0) => {
                // What it asked for is answered, though it will ask nothing more.
                self.session.is_ending = true;
                here.slots.watches().give_up(self.session.key);
                Ok(0)
            }
            Ok(count) => {
                // Less than there was room for is all there was, and the poll will tell of more. Of the end
                // it told already. What is encrypted comes in pieces of its own.
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

    /// What it means that nothing more can be received.
    fn give_up(&mut self, error: &io::Error, here: &mut Here) -> End {
        if error.kind() != io::ErrorKind::InvalidData {
            return End::Failed;
        }
        let peer = self.session.peer;
        match error.get_ref().and_then(|error| error.downcast_ref::<NoTls>()) {
            Some(_) => {
                here.turned_away(peer, &"it does not speak TLS, which this node expects");
                // It would understand nothing else.
                let _ = self.stream.socket_mut().write(b"-ERR this node speaks TLS, and nothing else\r\n");
            }
            None => here.turned_away(peer, error),
        }
        End::Refused
    }

    /// Whether somebody speaks TLS here, where nobody does; then it was turned away.
    fn turn_away(&mut self, here: &mut Here) -> bool {
        let is_stranger = !self.stream.is_encrypted() && is_handshake(self.inbox.unread());
        if is_stranger {
            here.turned_away(self.session.peer, &SPEAKS_TLS);
            self.session.end_with(End::Refused);
        }
        is_stranger
    }

    /// Executes what is whole of what arrived, as far as a turn goes: it `ends` so long behind the first look
    /// at the clock, which a request that comes alone does without.
    fn execute(&mut self, ends: &mut Option<Moment>, here: &mut Here) {
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
                // Where the next one begins is not known.
                Err(error) => return self.refuse(&error, here),
            };
            let (bytes, was_authenticated) = (request.bytes(), self.session.is_authenticated);
            if !request.is_empty() {
                let (session, outbox) = (&mut self.session, &mut self.outbox);
                Executor { here, session, outbox }.execute(&request);
            }
            self.inbox.advance(bytes);
            let is_late = left % LOOK_EACH == 0 && here.is_past(ends, TURN_US);
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

    /// Brings nearer what the next requests will touch in memory; how many are not to be looked at again.
    fn bring_nearer(&self, here: &mut Here) -> usize {
        // A guess for those who may not ask would be for nothing.
        if self.session.is_authenticated {
            bring_nearer(here, self.session.keyspace, keys_ahead(self.inbox.unread()));
        }
        NEAR_AT_ONCE
    }

    fn refuse(&mut self, error: &ProtocolError, here: &mut Here) {
        if self.turn_away(here) {
            return;
        }
        here.metrics.protocol_errors.add(1);
        tracing::debug!(connection = self.session.id, %error, "no request");
        ReplyWriter::new(self.outbox.target(), Protocol::Resp2).error("ERR", &error.to_string());
        self.session.end_with(End::Refused);
        self.inbox = Inbox::default();
    }

    /// Whether it has to read first what it is told, or others what came of this round.
    fn is_full(&self, here: &Here) -> bool {
        let limits = here.limits();
        self.outbox.unsent_bytes() >= limits.unsent_bytes_pause
            || self.outbox.awaited() >= limits.awaited_max
            || here.has_much_to_tell()
    }

    /// Whether something may be here that could be executed.
    fn has_more(&self) -> bool {
        (self.is_readable || self.is_paused || self.ahead.is_some()) && !self.session.is_ending
    }

    fn send(&mut self, here: &Here) -> Result<(), End> {
        if !(self.outbox.has_ready() || self.stream.has_unsent()) || !self.is_writable {
            return Ok(());
        }
        let count = self.outbox.send(&mut self.stream).map_err(|_| End::Failed)?;
        let is_all = self.stream.send().map_err(|_| End::Failed)?;
        here.metrics.sent_bytes.add(count as u64);
        self.is_writable = is_all && !self.outbox.has_ready();
        // What is encrypted may leave without anything of the outbox.
        if count > 0 || self.is_writable {
            self.stalled_since = None;
        }
        if !self.is_writable {
            self.stalled_since.get_or_insert(here.now.moment);
        }
        Ok(())
    }
}

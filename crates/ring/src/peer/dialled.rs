//! A connection that this node dialled, to send messages.

use super::outbox::{Ahead, Counts, Outbox};
use super::repeats::Run;
use super::{Greeting, LIMITS, PeerAddress, UNCONNECTED_BYTES_MAX, codec};
use crate::token::Token;
use atoll_replica::{Message, Moment, SlotMessage};
use atoll_tls::{PeerTls, Stream, host_name};
use atoll_wire::HEADER_BYTES;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Another node, connected or not.
pub(super) struct Dialled {
    pub(super) address: PeerAddress,
    socket: Option<Stream<TcpStream>>,
    is_open: bool,
    is_writable: bool,
    outbox: Outbox,
    retry_at: Moment,
    /// When a socket that is not open yet is given up.
    open_by: Moment,
    body: Vec<u8>,
    /// The last logged reason why it could not be reached, so that it is logged once.
    trouble: Option<String>,
}

/// What a connection begins with.
pub(super) struct Showing<'a> {
    pub(super) greeting: Greeting,
    pub(super) secret: Option<&'a Token>,
    pub(super) tls: Option<&'a PeerTls>,
    /// This node's clock. It goes first, because what follows may make the other node write.
    pub(super) date_ms: u64,
}

/// How long a node that cannot be reached is left alone, in microseconds. After a refusal, by either side, it
/// is as long as a connection may take to open.
const RETRY_US: u64 = 100_000;

/// How long a connection may take to open, and how long sent data may stay unacknowledged. The kernel doubles
/// its own timeouts with each try: after a cut of minutes it would be minutes until the nodes talk again.
const SILENCE_US: u64 = 1_000_000;
const SILENCE_MS: u32 = 2_000;

/// How long a node must have been reachable, beyond the time to open, before a repeated reason is logged
/// again.
const SETTLED_US: u64 = 2_000_000;

impl Dialled {
    pub(super) fn new(address: PeerAddress) -> Self {
        Self {
            address,
            socket: None,
            is_open: false,
            is_writable: false,
            outbox: Outbox::default(),
            retry_at: Moment::default(),
            open_by: Moment::default(),
            body: Vec::new(),
            trouble: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.outbox.waiting_bytes()
    }

    /// How many messages were sent or lost since the last call.
    pub(super) fn take_counts(&mut self) -> Counts {
        self.outbox.take_counts()
    }

    /// Queues a message of the protocol. Returns whether there was room. If much waits, messages about
    /// entries go before the entries: a late promise is worthless, and a node that is not heard counts as
    /// silent.
    pub(super) fn say(&mut self, message: &Message) -> bool {
        let is_word = !matches!(message, Message::Slot { about: SlotMessage::Append { .. }, .. });
        if is_word && self.is_open && self.outbox.is_long() {
            self.body.clear();
            codec::encode(message, &mut self.body);
            let is_of_slot = matches!(message, Message::Slot { .. });
            let kind = if is_of_slot { Ahead::Word } else { Ahead::Promise };
            return self.outbox.add_ahead(&self.body, kind);
        }
        let run = Run::of(message);
        if let Some(run) = run.filter(|run| self.outbox.has(run)) {
            return self.put(|out| codec::encode(&run.asked_for(), out));
        }
        let is_taken = self.put(|out| codec::encode(message, out));
        if let Some(run) = run.filter(|_| is_taken) {
            self.outbox.has_added(&run);
        }
        is_taken
    }

    /// Queues this node's clock before what waits, because it is read when it is queued.
    pub(super) fn put_date(&mut self, date_ms: u64) {
        if self.outbox.is_long() {
            self.body.clear();
            codec::encode_date(date_ms, &mut self.body);
            self.outbox.add_ahead(&self.body, Ahead::Promise);
        } else {
            self.put(|out| codec::encode_date(date_ms, out));
        }
    }

    /// Queues what `encode` writes. Returns whether there was room.
    pub(super) fn put(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let most = if self.is_open { LIMITS.outbox_bytes } else { UNCONNECTED_BYTES_MAX };
        if self.waiting_bytes() >= most {
            return false;
        }
        self.body.clear();
        encode(&mut self.body);
        let fits = self.body.len() <= LIMITS.frame_bytes - HEADER_BYTES;
        if fits {
            self.outbox.add(&self.body);
        }
        // Keep the buffer, but not the memory of a long message: there are many nodes, and this memory is not
        // counted anywhere.
        self.body.clear();
        self.body.shrink_to(UNCONNECTED_BYTES_MAX);
        fits
    }

    pub(super) fn notice(&mut self, event: &Event, registry: &Registry) {
        // Peers do not send messages here: what comes is the end, or part of a handshake.
        if let Err(error) = self.listen() {
            self.tell(&error);
            return self.hang_up(registry);
        }
        let is_over = event.is_error() || event.is_read_closed() || event.is_write_closed();
        if is_over {
            return self.hang_up(registry);
        }
        if event.is_writable() {
            let connected = self.socket.as_ref().is_some_and(|stream| {
                matches!(stream.socket().take_error(), Ok(None)) && stream.socket().peer_addr().is_ok()
            });
            self.is_writable |= connected;
            self.is_open |= connected && !self.is_handshaking();
        }
    }

    fn is_handshaking(&self) -> bool {
        self.socket.as_ref().is_some_and(Stream::is_handshaking)
    }

    /// Receives what has arrived of a handshake. Fails if there will be none.
    fn listen(&mut self) -> io::Result<()> {
        let Some(stream) = self.socket.as_mut().filter(|stream| stream.is_encrypted()) else { return Ok(()) };
        let was_handshaking = stream.is_handshaking();
        match stream.read(&mut [0; 64]) {
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It is not open yet.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(()),
            Err(error) => return Err(error),
        }
        if was_handshaking && !stream.is_handshaking() {
            // The other side may still refuse the certificate, which it checks only now.
            (self.is_open, self.is_writable) = (true, true);
        }
        Ok(())
    }

    /// Logs why the node cannot be reached, unless that was logged already.
    fn tell(&mut self, error: &io::Error) {
        let is_of_tls = error.kind() == io::ErrorKind::InvalidData;
        let text = error.to_string();
        if is_of_tls && self.trouble.as_ref() != Some(&text) {
            let (peer, host) = (self.address.at(), &self.address.host);
            tracing::warn!(%peer, host, %error, "a node cannot be reached");
            self.trouble = Some(text);
        }
    }

    pub(super) fn flush(
        &mut self,
        showing: &Showing<'_>,
        token: mio::Token,
        now: Moment,
        registry: &Registry,
    ) {
        if self.socket.is_some() && !self.is_open && now >= self.open_by {
            self.hang_up(registry);
        }
        if self.is_open && now >= self.open_by.after(SETTLED_US) {
            self.trouble = None;
        }
        if self.socket.is_none() && now >= self.retry_at {
            self.retry_at = now.after(if self.trouble.is_some() { SILENCE_US } else { RETRY_US });
            self.open_by = now.after(SILENCE_US);
            self.dial(showing, token, registry);
        }
        let has_more = !self.outbox.is_empty() || self.socket.as_ref().is_some_and(Stream::has_unsent);
        if self.is_writable && has_more && self.send().is_err() {
            self.hang_up(registry);
        }
    }

    fn dial(&mut self, showing: &Showing<'_>, token: mio::Token, registry: &Registry) {
        let Ok(mut socket) = TcpStream::connect(self.address.take_turn()) else { return };
        let interest = Interest::READABLE | Interest::WRITABLE;
        // If this fails, the connection is only given up later.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&socket, SILENCE_MS);
        if socket.set_nodelay(true).is_err() || registry.register(&mut socket, token, interest).is_err() {
            return;
        }
        self.socket = match showing.tls {
            None => Some(Stream::plain(socket)),
            // An invalid host name was refused when that node started.
            Some(tls) => host_name(&self.address.host)
                .ok()
                .and_then(|host| Stream::dial(socket, Arc::clone(&tls.dial), host).ok()),
        };
        if self.socket.is_none() {
            return;
        }
        self.body.clear();
        showing.greeting.encode(showing.secret, &mut self.body);
        self.outbox.open_with(&self.body);
        self.body.clear();
        codec::encode_date(showing.date_ms, &mut self.body);
        self.outbox.open_with(&self.body);
    }

    fn send(&mut self) -> io::Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        while !self.outbox.is_empty() {
            match socket.write(self.outbox.next()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.outbox.took(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_writable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !socket.send()? {
            self.is_writable = false;
        }
        self.outbox.tidy();
        Ok(())
    }

    pub(super) fn hang_up(&mut self, registry: &Registry) {
        if let Some(mut stream) = self.socket.take() {
            // Closed in any case.
            drop(registry.deregister(stream.socket_mut()));
        }
        (self.is_open, self.is_writable) = (false, false);
        self.outbox.clear();
    }
}

#[cfg(test)]
mod tests;

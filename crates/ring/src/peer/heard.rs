//! A connection that another node dialled, to say something here.

use super::codec::{self, Spoken};
use super::greeting::GREETING_BYTES_MAX;
use super::{Greeting, LIMITS};
use crate::token::Token;
use atoll_replica::{Incarnation, Moment, NodeId};
use atoll_tls::{NoTls, Stream, is_handshake};
use atoll_wire::{Decoder, Limits};
use mio::Registry;
use mio::net::TcpStream;
use std::io::{self, Read};

/// One connection.
pub(super) struct Heard {
    stream: Stream<TcpStream>,
    decoder: Decoder,
    from: Option<Greeting>,
    /// By when it has to have said who it is; unknown before the first look at it.
    greets_by: Option<Moment>,
}

/// How long somebody who connects may take to say who it is.
const GREETING_US: u64 = 5_000_000;

/// How much is received at once; the room for it is shared by all connections.
pub(super) const ROOM_BYTES: usize = 256 << 10;

impl Heard {
    pub(super) fn new(stream: Stream<TcpStream>) -> Self {
        // Before somebody has said who it is, little is taken from it.
        let decoder = Decoder::new(Limits { frame_bytes: GREETING_BYTES_MAX, ..LIMITS });
        Self { stream, decoder, from: None, greets_by: None }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.stream.is_handshaking()
    }

    /// Who is on the other side, if it has said so.
    pub(super) fn node(&self) -> Option<NodeId> {
        self.from.map(|greeting| greeting.node)
    }

    /// Whether it has taken too long to say who it is.
    pub(super) fn is_late(&mut self, now: Moment) -> bool {
        self.from.is_none() && now >= *self.greets_by.get_or_insert(now.after(GREETING_US))
    }

    /// Receives until nothing is there, and hands on what is whole; whether the connection is still good. Of one that the other
    /// side has closed its end is looked for.
    pub(super) fn receive(
        &mut self,
        (room, is_closed): (&mut [u8], bool),
        me: NodeId,
        secret: Option<&Token>,
        hear: &mut impl FnMut(NodeId, Incarnation, Spoken),
    ) -> bool {
        if self.stream.send().is_err() {
            return false;
        }
        loop {
            match self.stream.read(room) {
                Ok(0) => return false,
                Ok(count) => {
                    let is_first = self.from.is_none() && !self.stream.is_encrypted();
                    if is_first && is_handshake(room) {
                        return self.refuse(&"it speaks TLS, which this node has no certificate for");
                    }
                    self.decoder.feed(room.get(..count).unwrap_or_default());
                    if !self.hand_on(me, secret, hear) {
                        return false;
                    }
                    // A socket that gave less than was asked for has nothing left, and the poll tells of more. What is
                    // decrypted comes record by record.
                    if count < room.len() && !is_closed && !self.stream.is_encrypted() {
                        return true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.get_ref().is_some_and(|error| error.is::<NoTls>()) => {
                    return self.refuse(&"it does not speak TLS, which this node expects");
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return self.refuse(&error),
                Err(_) => return false,
            }
        }
    }

    fn hand_on(
        &mut self,
        me: NodeId,
        secret: Option<&Token>,
        hear: &mut impl FnMut(NodeId, Incarnation, Spoken),
    ) -> bool {
        loop {
            let frame = match self.decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return true,
                Err(error) => return self.refuse(&error),
            };
            match self.from {
                None => {
                    let Some(greeting) = Greeting::decode(&frame.body, secret) else {
                        return self.refuse(&"it does not know the secret of the ring");
                    };
                    if greeting.node == me {
                        return self.refuse(&"it says that it is this node itself");
                    }
                    self.from = Some(greeting);
                    // What comes behind the greeting in the same bytes is kept.
                    let rest = std::mem::replace(&mut self.decoder, Decoder::new(LIMITS)).into_rest();
                    self.decoder.feed(&rest);
                }
                Some(Greeting { node, incarnation }) => match codec::decode(&frame.body) {
                    Ok(spoken) => hear(node, incarnation, spoken),
                    Err(error) => return self.refuse(&error),
                },
            }
        }
    }

    /// Says in the log who is not listened to any more, and why.
    pub(super) fn refuse(&self, why: &dyn std::fmt::Display) -> bool {
        let peer = self.stream.socket().peer_addr().map(|address| address.to_string()).unwrap_or_default();
        let node = self.node().map(|node| node.to_string());
        tracing::warn!(peer, node, %why, "a peer is not listened to any more");
        false
    }

    pub(super) fn hang_up(&mut self, registry: &Registry) {
        // It is closed all the same.
        drop(registry.deregister(self.stream.socket_mut()));
    }
}

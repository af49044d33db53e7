//! A connection that another node dialled, to send messages here.

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
pub(super) struct Accepted {
    stream: Stream<TcpStream>,
    decoder: Decoder,
    from: Option<Greeting>,
    /// When it has to have greeted; unknown before the first check.
    greets_by: Option<Moment>,
    /// Why it is refused, if that is why it ends.
    refused: Option<String>,
}

/// How long a peer may take to greet, in microseconds.
const GREETING_US: u64 = 5_000_000;

/// Bytes received at once; all connections share the buffer.
pub(super) const ROOM_BYTES: usize = 256 << 10;

/// Bytes received from one node before others have their turn, at least.
const TURN_BYTES: usize = 1 << 20;

/// The result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Nothing is left; the poll reports more.
    All,
    /// There may be more, which the poll does not report: ask again.
    More,
    /// The connection has to end.
    Over,
}

impl Accepted {
    pub(super) fn new(stream: Stream<TcpStream>) -> Self {
        // Before it has greeted, little is accepted from a peer.
        let decoder = Decoder::new(Limits { frame_bytes: GREETING_BYTES_MAX, ..LIMITS });
        Self { stream, decoder, from: None, greets_by: None, refused: None }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.stream.is_handshaking()
    }

    /// The node on the other side, if it has greeted.
    pub(super) fn node(&self) -> Option<NodeId> {
        self.from.map(|greeting| greeting.node)
    }

    /// Its greeting, if it was accepted.
    pub(super) fn greeting(&self) -> Option<Greeting> {
        self.from
    }

    /// Whether it has taken too long to greet.
    pub(super) fn is_late(&mut self, now: Moment) -> bool {
        self.from.is_none() && now >= *self.greets_by.get_or_insert(now.after(GREETING_US))
    }

    /// Receives until nothing is left or the turn is over, and passes on complete messages. If the other side
    /// has closed the connection, reads on to the end of the stream.
    pub(super) fn receive(
        &mut self,
        (room, is_closed): (&mut [u8], bool),
        me: &Greeting,
        secret: Option<&Token>,
        hear: &mut impl FnMut(NodeId, Incarnation, Spoken),
    ) -> Received {
        if self.stream.send().is_err() {
            return Received::Over;
        }
        let mut left = TURN_BYTES;
        while left > 0 {
            match self.stream.read(room) {
                Ok(0) => return Received::Over,
                Ok(count) => {
                    left = left.saturating_sub(count);
                    let is_first = self.from.is_none() && !self.stream.is_encrypted();
                    if is_first && is_handshake(room) {
                        return self.end(&"it speaks TLS, which this node has no certificate for");
                    }
                    self.decoder.feed(room.get(..count).unwrap_or_default());
                    if !self.hand_on(me, secret, hear) {
                        return Received::Over;
                    }
                    // A socket that returned less than was asked for has nothing left, and the poll reports
                    // more. Decrypted bytes come record by record.
                    if count < room.len() && !is_closed && !self.stream.is_encrypted() {
                        return Received::All;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Received::All,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.get_ref().is_some_and(|error| error.is::<NoTls>()) => {
                    return self.end(&"it does not speak TLS, which this node expects");
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return self.end(&error),
                Err(_) => return Received::Over,
            }
        }
        Received::More
    }

    fn end(&mut self, why: &dyn std::fmt::Display) -> Received {
        self.refuse(why);
        Received::Over
    }

    fn hand_on(
        &mut self,
        me: &Greeting,
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
                        return match Greeting::is_of_other_build(&frame.body) {
                            true => self.refuse(
                                &"it runs another build of atoll, with which this one cannot form a ring",
                            ),
                            false => self.refuse(&"it does not know the secret of the ring"),
                        };
                    };
                    if let Some(why) = greeting.refusal(me) {
                        return self.refuse(&why);
                    }
                    self.from = Some(greeting);
                    // Bytes behind the greeting are kept.
                    let rest = std::mem::replace(&mut self.decoder, Decoder::new(LIMITS)).into_rest();
                    self.decoder.feed(&rest);
                }
                Some(Greeting { node, incarnation, .. }) => match codec::decode(&frame.body) {
                    Ok(spoken) => hear(node, incarnation, spoken),
                    Err(error) => return self.refuse(&error),
                },
            }
        }
    }

    fn refuse(&mut self, why: &dyn std::fmt::Display) -> bool {
        self.refused = Some(why.to_string());
        false
    }

    /// Why it is refused, if that is why it ends.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The address that it dialled from.
    pub(super) fn peer(&self) -> String {
        self.stream.socket().peer_addr().map(|address| address.to_string()).unwrap_or_default()
    }

    pub(super) fn hang_up(&mut self, registry: &Registry) {
        // Closed in any case.
        drop(registry.deregister(self.stream.socket_mut()));
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test has sockets of its own")]
mod tests {
    use super::*;
    use crate::peer::codec;
    use atoll_replica::{Message, Version};
    use atoll_wire::{Flags, Kind, encode_frame};
    use std::io::Write;

    fn frame(body: &[u8], out: &mut Vec<u8>) {
        encode_frame(out, Kind::Request, Flags { more: false, last: true }, 0, body);
    }

    #[test]
    fn a_node_that_says_very_much_leaves_others_their_turn() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut said = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut heard = Accepted::new(Stream::plain(TcpStream::from_std(socket)));
        let (mut body, mut words, mut all) = (Vec::new(), Vec::new(), Vec::new());
        let me = Greeting { node: NodeId(1), incarnation: Incarnation(1), ring: 7, to: NodeId::default() };
        Greeting { node: NodeId(2), to: NodeId(1), ..me }.encode(None, &mut body);
        frame(&body, &mut all);
        body.clear();
        codec::encode(&Message::TableIs { version: Version(7) }, &mut body);
        frame(&body, &mut words);
        let count = (3 * TURN_BYTES) / words.len();
        (0..count).for_each(|_| all.extend_from_slice(&words));
        let writer = std::thread::spawn(move || said.write_all(&all).map(|()| said));
        let (mut room, mut each, mut last) = (vec![0; ROOM_BYTES], Vec::new(), Received::All);
        while each.iter().sum::<usize>() < count {
            let mut taken = 0;
            last = heard.receive((&mut room, true), &me, None, &mut |_, _, _| taken += 1);
            assert_ne!(last, Received::Over);
            let bytes = taken * words.len();
            assert!(bytes <= TURN_BYTES + ROOM_BYTES, "{bytes} at once");
            assert!(last == Received::More || bytes < TURN_BYTES, "nobody would ask for the rest");
            each.push(taken);
        }
        assert_ne!(last, Received::Over);
        drop(writer.join().unwrap().unwrap());
        while last != Received::Over {
            last = heard.receive((&mut room, true), &me, None, &mut |_, _, _| ());
        }
    }
}

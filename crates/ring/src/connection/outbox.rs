//! Replies of a connection, in the order of its requests.
//!
//! A reply that is ready is appended. One that comes later keeps its place, and the replies behind it wait.
//! What acknowledges a write that could still be lost is held until its sync is done.
//!
//! Invariant: replies leave in the order of their requests.
//! Invariant: nothing leaves while the outbox is held.

use atoll_replica::Ticket;
use atoll_resp::Protocol;
use std::collections::VecDeque;
use std::io::{self, Write};

/// Replies on their way to a client.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// What can be sent.
    ready: Vec<u8>,
    /// How many of these bytes were sent.
    sent: usize,
    /// Replies from the first awaited one on, which comes first.
    behind: VecDeque<QueuedReply>,
    /// How many of these are awaited.
    awaited: usize,
    /// The bytes of values that are set aside for the awaited ones, and those of them for replies to writes.
    awaited_bytes: usize,
    returned: usize,
    /// The number of the sync that the whole outbox waits for.
    held_for: Option<u64>,
}

#[derive(Debug)]
enum QueuedReply {
    /// A reply that comes later, and the bytes of values that are set aside for it.
    Awaited { ticket: Ticket, protocol: Protocol, to: ReplyTo, bytes: u32 },
    /// Replies that are ready.
    Ready(Vec<u8>),
}

/// What an awaited reply is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyTo {
    /// A write, or a request that is neither of the others.
    Write,
    Read,
    Watch,
}

impl Outbox {
    /// The buffer to which the next reply is written.
    pub(crate) fn target(&mut self) -> &mut Vec<u8> {
        if self.behind.is_empty() {
            return &mut self.ready;
        }
        if !matches!(self.behind.back(), Some(QueuedReply::Ready(_))) {
            self.behind.push_back(QueuedReply::Ready(Vec::new()));
        }
        match self.behind.back_mut() {
            Some(QueuedReply::Ready(replies)) => replies,
            // Unreachable: one was just pushed.
            _ => &mut self.ready,
        }
    }

    /// Keeps a place for a reply that [`fill`](Self::fill) brings later.
    pub(crate) fn keep_place(&mut self, ticket: Ticket, protocol: Protocol) {
        self.keep_place_for(ticket, protocol, 0);
    }

    /// The same for a reply to a write with at most this many bytes of values.
    pub(crate) fn keep_place_for(&mut self, ticket: Ticket, protocol: Protocol, returned: usize) {
        let bytes = self.set_aside(returned);
        self.returned += bytes as usize;
        self.behind.push_back(QueuedReply::Awaited { ticket, protocol, to: ReplyTo::Write, bytes });
    }

    /// The same for a reply to a read with about this many bytes of values.
    pub(crate) fn keep_place_of_read(&mut self, ticket: Ticket, protocol: Protocol, expected: usize) {
        let bytes = self.set_aside(expected);
        self.behind.push_back(QueuedReply::Awaited { ticket, protocol, to: ReplyTo::Read, bytes });
    }

    /// The same for a reply to a watch, which may come without the value if there is no room for it.
    pub(crate) fn keep_place_of_watch(&mut self, ticket: Ticket, protocol: Protocol) {
        let bytes = self.set_aside(0);
        self.behind.push_back(QueuedReply::Awaited { ticket, protocol, to: ReplyTo::Watch, bytes });
    }

    /// Counts one more awaited reply, and the bytes that are set aside for it.
    fn set_aside(&mut self, bytes: usize) -> u32 {
        // A longer number would make each place in the queue longer.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.awaited += 1;
        self.awaited_bytes += bytes as usize;
        bytes
    }

    /// Writes an awaited reply into its place. Returns whether the ticket is awaited here.
    pub(crate) fn fill(&mut self, ticket: Ticket, write: impl FnOnce(&mut Vec<u8>, Protocol)) -> bool {
        let found = self.behind.iter_mut().enumerate().find_map(|(at, place)| match place {
            QueuedReply::Awaited { ticket: other, protocol, to, bytes } if *other == ticket => {
                Some((at, (*protocol, *to, *bytes as usize), place))
            }
            _ => None,
        });
        let Some((at, (protocol, to, bytes), place)) = found else { return false };
        self.awaited -= 1;
        self.awaited_bytes -= bytes;
        self.returned -= if to == ReplyTo::Write { bytes } else { 0 };
        if at > 0 {
            let mut reply = Vec::new();
            write(&mut reply, protocol);
            *place = QueuedReply::Ready(reply);
            return true;
        }
        write(&mut self.ready, protocol);
        self.behind.pop_front();
        while let Some(QueuedReply::Ready(replies)) = self.behind.front() {
            self.ready.extend_from_slice(replies);
            self.behind.pop_front();
        }
        true
    }

    /// How many replies are awaited.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited
    }

    /// Most bytes of values that the awaited replies to writes have.
    pub(crate) fn returned_bytes(&self) -> usize {
        self.returned
    }

    /// The same with those that the awaited replies to reads are expected to have.
    pub(crate) fn awaited_bytes(&self) -> usize {
        self.awaited_bytes
    }

    /// Whether an awaited reply to a read is so long that with it, and with what is set aside for the others,
    /// more than `most` bytes would be unsent. A reply to a write never is: it says what happened.
    pub(crate) fn is_too_long(&self, ticket: Ticket, reply_bytes: usize, most: usize) -> bool {
        let expected = self.behind.iter().find_map(|place| match place {
            QueuedReply::Awaited { ticket: other, to: ReplyTo::Read, bytes, .. } if *other == ticket => {
                Some(*bytes as usize)
            }
            _ => None,
        });
        expected.is_some_and(|expected| {
            self.unsent_bytes() + (self.awaited_bytes - expected) + reply_bytes > most
        })
    }

    /// The protocol of an awaited reply to a watch.
    pub(crate) fn protocol_of_watch(&self, ticket: Ticket) -> Option<Protocol> {
        self.behind.iter().find_map(|place| match place {
            QueuedReply::Awaited { ticket: other, protocol, to: ReplyTo::Watch, .. } if *other == ticket => {
                Some(*protocol)
            }
            _ => None,
        })
    }

    /// Whether at most `most` bytes would be unsent with so many more, and with what is set aside.
    pub(crate) fn has_room(&self, bytes: usize, most: usize) -> bool {
        self.unsent_bytes() + self.awaited_bytes + bytes <= most
    }

    /// Bytes that are not sent yet, including those behind awaited replies.
    pub(crate) fn unsent_bytes(&self) -> usize {
        let behind = self.behind.iter().map(|place| match place {
            QueuedReply::Awaited { .. } => 0,
            QueuedReply::Ready(replies) => replies.len(),
        });
        self.ready.len() - self.sent + behind.sum::<usize>()
    }

    /// Whether something can be sent at once.
    pub(crate) fn has_ready(&self) -> bool {
        self.has_unsent() && self.held_for.is_none()
    }

    fn has_unsent(&self) -> bool {
        self.sent < self.ready.len()
    }

    /// Whether nothing is left to send or to await.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_unsent() && self.behind.is_empty()
    }

    /// Holds what is unsent until the sync with this number is done. Returns whether the outbox is held.
    pub(crate) fn hold(&mut self, sync: u64) -> bool {
        if self.has_unsent() {
            self.held_for = Some(sync);
        }
        self.is_held()
    }

    /// Whether the outbox is held.
    pub(crate) fn is_held(&self) -> bool {
        self.held_for.is_some()
    }

    /// Ends the hold if it is for the sync with this number. Returns whether it was.
    pub(crate) fn release(&mut self, sync: u64) -> bool {
        self.held_for.take_if(|held_for| *held_for == sync).is_some()
    }

    /// Heap bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let behind = self.behind.iter().map(|place| match place {
            QueuedReply::Awaited { .. } => 0,
            QueuedReply::Ready(replies) => replies.capacity(),
        });
        let places = self.behind.capacity() * size_of::<QueuedReply>();
        self.ready.capacity() + places + behind.sum::<usize>()
    }

    /// Sends what the socket accepts; returns how many bytes that was.
    pub(crate) fn send(&mut self, socket: &mut impl Write) -> io::Result<usize> {
        let start = self.sent;
        while self.has_ready() {
            match socket.write(&self.ready[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.sent - start)
    }

    /// Takes a buffer from the loop unless it has one; [`give_back`](Self::give_back) returns it.
    pub(crate) fn borrow(&mut self, spares: &mut Vec<Vec<u8>>) {
        if self.ready.capacity() == 0 {
            self.ready = spares.pop().unwrap_or_default();
        }
    }

    /// Keeps what is unsent. Returns the buffer if its capacity is at most `bytes_max`.
    pub(crate) fn give_back(&mut self, bytes_max: usize) -> Option<Vec<u8>> {
        if self.behind.is_empty() && self.behind.capacity() > 0 {
            self.behind = VecDeque::new();
        }
        let is_lent = self.ready.capacity() <= bytes_max && self.ready.capacity() > 0;
        if is_lent || !self.has_unsent() {
            let rest = self.ready[self.sent..].to_vec();
            let mut room = std::mem::replace(&mut self.ready, rest);
            self.sent = 0;
            room.clear();
            return is_lent.then_some(room);
        }
        // Copying once for each half that was sent costs less than sending it.
        if self.sent > self.ready.len() / 2 {
            self.ready.drain(..self.sent);
            self.ready.shrink_to_fit();
            self.sent = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that could be sent so far.
    fn sent(outbox: &mut Outbox) -> String {
        let mut socket = Vec::new();
        outbox.send(&mut socket).unwrap();
        String::from_utf8(socket).unwrap()
    }

    fn say(outbox: &mut Outbox, text: &str) {
        outbox.target().extend_from_slice(text.as_bytes());
    }

    fn fill(outbox: &mut Outbox, ticket: u64, text: &str) -> bool {
        outbox.fill(Ticket(ticket), |target, _| target.extend_from_slice(text.as_bytes()))
    }

    #[test]
    fn replies_leave_in_the_order_of_requests_whatever_the_order_in_which_they_come() {
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..500 {
            let mut outbox = Outbox::default();
            let (mut expected, mut seen, mut awaited) = (String::new(), String::new(), Vec::new());
            for request in 0..random.u64(1..20) {
                let text = format!("{request},");
                if random.bool() {
                    outbox.keep_place(Ticket(request), Protocol::Resp2);
                    awaited.push(request);
                } else {
                    say(&mut outbox, &text);
                }
                expected.push_str(&text);
                if random.u8(..3) == 0 && !awaited.is_empty() {
                    let ticket = awaited.swap_remove(random.usize(..awaited.len()));
                    assert!(fill(&mut outbox, ticket, &format!("{ticket},")));
                }
                assert_eq!(outbox.awaited(), awaited.len());
                seen.push_str(&sent(&mut outbox));
                assert!(expected.starts_with(&seen), "round {round}: {seen} of {expected}");
            }
            random.shuffle(&mut awaited);
            for ticket in awaited {
                assert!(fill(&mut outbox, ticket, &format!("{ticket},")));
                assert!(!fill(&mut outbox, ticket, "twice"));
            }
            seen.push_str(&sent(&mut outbox));
            assert_eq!(seen, expected, "round {round}");
            assert!(outbox.is_empty());
        }
    }

    #[test]
    fn what_awaited_replies_return_counts_until_they_are_there() {
        let mut outbox = Outbox::default();
        for (ticket, returned) in [(1, 100), (2, 0), (3, 50)] {
            outbox.keep_place_for(Ticket(ticket), Protocol::Resp2, returned);
        }
        outbox.keep_place(Ticket(4), Protocol::Resp2);
        let mut left = Vec::new();
        for ticket in [3, 4, 2, 1] {
            assert!(fill(&mut outbox, ticket, "reply"));
            assert!(!fill(&mut outbox, ticket, "reply"));
            left.push(outbox.returned_bytes());
        }
        assert_eq!(left, [100, 100, 100, 0]);
    }

    #[test]
    fn what_reads_are_expected_to_answer_counts_as_awaited_and_not_as_returned() {
        let mut outbox = Outbox::default();
        outbox.keep_place_of_read(Ticket(1), Protocol::Resp2, 100);
        outbox.keep_place_for(Ticket(2), Protocol::Resp2, 20);
        outbox.keep_place_of_read(Ticket(3), Protocol::Resp2, 7);
        let mut left = vec![(outbox.awaited_bytes(), outbox.returned_bytes())];
        for ticket in [3, 1, 2] {
            assert!(fill(&mut outbox, ticket, "reply"));
            left.push((outbox.awaited_bytes(), outbox.returned_bytes()));
        }
        assert_eq!(left, [(127, 20), (120, 20), (20, 20), (0, 0)]);
    }

    #[test]
    fn a_read_is_too_long_where_it_finds_no_room_beside_the_others_and_a_write_never_is() {
        let mut outbox = Outbox::default();
        say(&mut outbox, "12345");
        outbox.keep_place_of_read(Ticket(1), Protocol::Resp2, 10);
        outbox.keep_place_for(Ticket(2), Protocol::Resp2, 20);
        say(&mut outbox, "123");
        let too_long = |outbox: &Outbox, bytes| outbox.is_too_long(Ticket(1), bytes, 100);
        assert!(!too_long(&outbox, 100 - 5 - 20 - 3) && too_long(&outbox, 100 - 5 - 20 - 3 + 1));
        assert!(!outbox.is_too_long(Ticket(2), 1000, 100) && !outbox.is_too_long(Ticket(3), 1000, 100));
        assert_eq!(sent(&mut outbox), "12345");
        assert!(!too_long(&outbox, 100 - 20 - 3), "what was sent is gone");
    }

    #[test]
    fn a_watch_finds_room_beside_what_is_unsent_and_set_aside_and_takes_none_before() {
        let mut outbox = Outbox::default();
        say(&mut outbox, "12345");
        outbox.keep_place_for(Ticket(1), Protocol::Resp2, 20);
        outbox.keep_place_of_watch(Ticket(2), Protocol::Resp3);
        say(&mut outbox, "123");
        assert!(outbox.has_room(100 - 5 - 20 - 3, 100) && !outbox.has_room(100 - 5 - 20 - 3 + 1, 100));
        let protocols = [1, 2, 3].map(|ticket| outbox.protocol_of_watch(Ticket(ticket)));
        assert_eq!(protocols, [None, Some(Protocol::Resp3), None]);
        assert!(!outbox.is_too_long(Ticket(2), 1000, 100), "it is not refused");
        assert!(fill(&mut outbox, 2, "1234567"));
        assert_eq!((outbox.awaited(), outbox.awaited_bytes(), outbox.returned_bytes()), (1, 20, 20));
        assert!(outbox.protocol_of_watch(Ticket(2)).is_none() && !outbox.has_room(66, 100));
    }

    #[test]
    fn what_is_held_leaves_with_its_own_sync_and_with_no_earlier_one() {
        let mut outbox = Outbox::default();
        assert!(!outbox.hold(1), "there is nothing to hold");
        say(&mut outbox, "a");
        assert!(outbox.hold(2) && outbox.is_held() && !outbox.has_ready() && !outbox.is_empty());
        assert!(!outbox.release(1));
        assert_eq!((sent(&mut outbox).as_str(), outbox.unsent_bytes()), ("", 1));
        outbox.give_back(1000);
        assert!(outbox.hold(3), "what is held may have to wait for more");
        assert!(!outbox.release(2) && outbox.release(3) && !outbox.release(3));
        assert_eq!(sent(&mut outbox), "a");
        assert!(outbox.is_empty());
    }

    #[test]
    fn what_was_not_sent_stays_and_memory_is_lent() {
        struct Few(Vec<u8>);
        impl Write for Few {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if self.0.len() >= 3 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                self.0.push(bytes[0]);
                Ok(1)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (mut outbox, mut spares) = (Outbox::default(), vec![Vec::with_capacity(100)]);
        outbox.borrow(&mut spares);
        say(&mut outbox, "abcde");
        let mut socket = Few(Vec::new());
        assert_eq!(outbox.send(&mut socket).unwrap(), 3);
        let spare = outbox.give_back(1000).unwrap();
        assert_eq!((socket.0.as_slice(), spare.capacity()), (b"abc".as_slice(), 100));
        assert_eq!(outbox.unsent_bytes(), 2);
        outbox.borrow(&mut vec![spare]);
        say(&mut outbox, "f");
        assert_eq!(sent(&mut outbox), "def");
        outbox.give_back(1000);
        assert_eq!(outbox.memory_bytes(), 0);
    }
}

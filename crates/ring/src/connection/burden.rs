//! The memory that a connection takes, and when it has to end because of it.
//!
//! Invariant: who has authenticated is ended for others only after all who have not and keep more than a
//! little.
//! Invariant: among either, a connection with recent traffic, or with replies still due, is ended for others
//! only after all idle ones.

use super::inbox::ROOM_BYTES;
use super::{Connection, End};
use crate::copies::RETURNED_BYTES_MAX;
use crate::loop_state::LoopState;
use crate::options::ConnectionLimits;
use atoll_replica::Moment;
use atoll_resp::RequestParser;

/// A connection that has sent and read nothing for this long is sacrificed first when memory runs out, in
/// microseconds.
const IDLE_US: u64 = 1_000_000;

/// The same for a connection with unsent replies, in microseconds.
const SLOW_US: u64 = 5_000_000;

/// Most bytes that a connection which has yet to authenticate may take when memory runs out: more than an
/// honest one takes that does not encrypt. There may be so many that it matters what each keeps.
const STRANGER_BYTES_MAX: usize = 4 << 10;

/// Bytes of values that a connection may await, from its writes and from reads that wait, before more is
/// executed.
const RETURNED_BYTES_PAUSE: usize = 16 << 20;

/// The same for the writes of all connections together. A connection that awaits nothing may go on beyond it,
/// so that each has its turn; that further writes are refused is the last resort.
const ALL_RETURNED_BYTES_PAUSE: usize = RETURNED_BYTES_MAX / 2;

/// Which connections end first when memory runs out: the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EvictionRank {
    /// Whether it has yet to authenticate.
    is_stranger: bool,
    is_idle: bool,
    bytes: usize,
}

impl Connection {
    /// Whether its requests, or the writes of all together, may return so much that it has to have its
    /// replies first.
    pub(super) fn awaits_much(&self, here: &LoopState) -> bool {
        let (awaited, returned) = (self.outbox.awaited_bytes(), self.outbox.returned_bytes());
        // A part of what may be unsent, so that it takes what is awaited as well.
        let pause = RETURNED_BYTES_PAUSE.min(here.limits().unsent_bytes_max / 4);
        let does_await = awaited > 0 && awaited >= pause;
        does_await || (returned > 0 && here.slots.returned_bytes() >= ALL_RETURNED_BYTES_PAUSE)
    }

    /// Updates the memory counter. Fails if the connection takes too much.
    pub(super) fn count(&mut self, here: &LoopState) -> Result<(), End> {
        let parser =
            self.parser.as_ref().map_or(0, |parser| size_of::<RequestParser>() + parser.memory_bytes());
        let buffers = self.inbox.memory_bytes() + self.outbox.memory_bytes();
        let encrypted = self.stream.memory_bytes();
        let bytes = size_of::<Self>() + parser + buffers + encrypted + self.session.memory_bytes();
        let counter = &here.metrics.connection_bytes;
        counter.add(bytes as u64);
        counter.subtract(self.counted_bytes as u64);
        self.counted_bytes = bytes;
        if self.outbox.unsent_bytes() > here.limits().unsent_bytes_max {
            return Err(End::Stalled);
        }
        let may_have_to_go = buffers + parser > ROOM_BYTES || self.stream.is_handshaking();
        let is_much = may_have_to_go && counter.get() > here.limits().memory_bytes_max;
        if is_much { Err(End::Memory) } else { Ok(()) }
    }

    /// Why the connection has to end because of time, if it has to.
    pub(crate) fn overdue(&self, now: Moment, limits: &ConnectionLimits) -> Option<End> {
        let passed_us = |since: Moment| now.0.saturating_sub(since.0);
        if self.stalled_since.is_some_and(|since| passed_us(since) > limits.stalled_us_max) {
            return Some(End::Stalled);
        }
        let is_stranger = !self.session.is_authenticated || self.stream.is_handshaking();
        let is_silent = is_stranger && passed_us(self.session.stranger_since) > limits.silent_us_max;
        is_silent.then_some(End::Silent)
    }

    /// Whether it takes enough memory to be a candidate when memory runs out. What many strangers keep may be
    /// most of it although each keeps little.
    pub(crate) fn may_give_way(&self) -> bool {
        let is_known = self.session.is_authenticated;
        self.counted_bytes > if is_known { ROOM_BYTES } else { STRANGER_BYTES_MAX }
    }

    /// Sort key of the candidates: strangers first, of either idle connections, and of these the largest.
    pub(crate) fn eviction_rank(&self, now: Moment) -> EvictionRank {
        let is_idle = match self.stalled_since {
            // A socket reports room only after a good part of its buffer was read, which is rare on a slow
            // link.
            Some(since) => now >= since.max(self.session.heard).after(SLOW_US),
            // While it waits for replies its socket is not read, so that it cannot show activity.
            None => !self.is_paused && now >= self.session.heard.after(IDLE_US),
        };
        EvictionRank { is_stranger: !self.session.is_authenticated, is_idle, bytes: self.counted_bytes }
    }

    /// Bytes last added for it to the loop's memory counter.
    pub(crate) fn counted_bytes(&self) -> usize {
        self.counted_bytes
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::connection::Session;
    use atoll_keyspace::ANSWER_BYTES_MAX;
    use atoll_resp::LatencyClass;
    use atoll_tls::Stream;
    use mio::net::{TcpListener, TcpStream};

    #[test]
    fn what_may_be_unsent_takes_the_longest_answer_beside_what_is_sent_and_awaited() {
        let limits = ConnectionLimits::default();
        // Unsent replies, and those of one round, each up to where the connection pauses.
        let paused = 2 * limits.unsent_bytes_pause + RETURNED_BYTES_PAUSE;
        assert!(RETURNED_BYTES_PAUSE <= limits.unsent_bytes_max / 4);
        assert!(paused + ANSWER_BYTES_MAX <= limits.unsent_bytes_max);
    }

    /// A connection that was last heard at moment 7.
    fn connection(is_authenticated: bool) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let stream = Stream::plain(TcpStream::connect(address).unwrap());
        Connection::new(stream, Session::new(1, address, is_authenticated, LatencyClass::None, Moment(7)))
    }

    fn at(seconds: u64) -> Moment {
        Moment(7 + seconds * 1_000_000)
    }

    #[test]
    fn who_waits_for_answers_or_reads_slowly_is_not_taken_for_one_that_does_nothing() {
        let mut connection = connection(true);
        let is_idle = |connection: &Connection, now| connection.eviction_rank(now).is_idle;
        assert!(!is_idle(&connection, Moment(8)) && is_idle(&connection, at(1)));
        connection.is_paused = true;
        assert!(!is_idle(&connection, at(60)), "it is not listened to");
        // A client that asks for much and reads no reply is not read from either.
        connection.stalled_since = Some(at(1));
        assert!(!is_idle(&connection, at(3)) && is_idle(&connection, at(6)));
    }

    #[test]
    fn strangers_give_way_before_those_who_are_known_and_also_for_what_they_keep_together() {
        let of = |is_authenticated, heard, counted_bytes| {
            let mut connection = Connection { counted_bytes, ..connection(is_authenticated) };
            connection.session.heard = heard;
            connection
        };
        let may_give_way = |is_authenticated, bytes| of(is_authenticated, at(0), bytes).may_give_way();
        assert!(!may_give_way(true, ROOM_BYTES) && may_give_way(true, ROOM_BYTES + 1));
        assert!(!may_give_way(false, STRANGER_BYTES_MAX) && may_give_way(false, STRANGER_BYTES_MAX + 1));
        // From the last that ends to the first.
        let order = [
            of(true, at(9), 1 << 20),
            of(true, at(9), 2 << 20),
            of(true, at(0), 100 << 10),
            of(true, at(0), 64 << 20),
            of(false, at(9), 5 << 10),
            of(false, at(9), 60 << 10),
            of(false, at(0), 5 << 10),
            of(false, at(0), 60 << 10),
        ];
        assert!(order.iter().is_sorted_by_key(|one| one.eviction_rank(at(9))));
    }
}

//! The memory that a connection takes, and when it has to end because of it.
//!
//! Invariant: a connection with recent traffic, or with replies still due, is ended for others only after all
//! idle ones.

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

/// Bytes of values that a connection may await, from its writes and from reads that wait, before more is
/// executed.
const RETURNED_BYTES_PAUSE: usize = 16 << 20;

/// The same for the writes of all connections together. A connection that awaits nothing may go on beyond it,
/// so that each has its turn; that further writes are refused is the last resort.
const ALL_RETURNED_BYTES_PAUSE: usize = RETURNED_BYTES_MAX / 2;

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

    /// Whether it takes enough memory to be a candidate when memory runs out.
    pub(crate) fn is_large(&self) -> bool {
        self.counted_bytes > ROOM_BYTES
    }

    /// Sort key of the candidates: idle connections first, then the largest.
    pub(crate) fn eviction_rank(&self, now: Moment) -> (bool, usize) {
        let is_idle = match self.stalled_since {
            // A socket reports room only after a good part of its buffer was read, which is rare on a slow
            // link.
            Some(since) => now >= since.max(self.session.heard).after(SLOW_US),
            // While it waits for replies its socket is not read, so that it cannot show activity.
            None => !self.is_paused && now >= self.session.heard.after(IDLE_US),
        };
        (is_idle, self.counted_bytes)
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

    #[test]
    fn who_waits_for_answers_or_reads_slowly_is_not_taken_for_one_that_does_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let stream = Stream::plain(TcpStream::connect(address).unwrap());
        let session = Session::new(1, address, true, LatencyClass::None, Moment(7));
        let mut connection = Connection::new(stream, session);
        let at = |seconds: u64| Moment(7 + seconds * 1_000_000);
        assert!(!connection.eviction_rank(Moment(8)).0 && connection.eviction_rank(at(1)).0);
        connection.is_paused = true;
        assert!(!connection.eviction_rank(at(60)).0, "it is not listened to");
        // A client that asks for much and reads no reply is not read from either.
        connection.stalled_since = Some(at(1));
        assert!(!connection.eviction_rank(at(3)).0 && connection.eviction_rank(at(6)).0);
    }
}

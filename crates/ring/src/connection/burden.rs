//! What a connection takes, and when it has to end because of it.
//!
//! Invariant: whoever is answered, or listened to, ends for others only after all who are neither.

use super::inbox::ROOM_BYTES;
use super::{Connection, End};
use crate::here::Here;
use crate::options::ConnectionLimits;
use atoll_replica::Moment;
use atoll_resp::RequestParser;

/// Who neither sent nor read anything for so long gives way first where there is too little memory, in
/// microseconds.
const IDLE_US: u64 = 1_000_000;

/// The same of who is told something, in microseconds.
const SLOW_US: u64 = 5_000_000;

impl Connection {
    /// Counts the memory that it takes, and whether that is too much.
    pub(super) fn count(&mut self, here: &Here) -> Result<(), End> {
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
        let is_much = may_have_to_go && counter.get() > here.shared.memory_bytes_max_each();
        if is_much { Err(End::Memory) } else { Ok(()) }
    }

    /// Why it has to end by now, if it has.
    pub(crate) fn overdue(&self, now: Moment, limits: &ConnectionLimits) -> Option<End> {
        let passed_us = |since: Moment| now.0.saturating_sub(since.0);
        if self.stalled_since.is_some_and(|since| passed_us(since) > limits.stalled_us_max) {
            return Some(End::Stalled);
        }
        let is_stranger = !self.session.is_authenticated || self.stream.is_handshaking();
        let is_silent = is_stranger && passed_us(self.session.stranger_since) > limits.silent_us_max;
        is_silent.then_some(End::Silent)
    }

    /// Whether it takes so much that it may have to end for others.
    pub(crate) fn is_large(&self) -> bool {
        self.counted_bytes > ROOM_BYTES
    }

    /// How much others would gain by its end, if it is large: who neither sends nor reads comes first, and
    /// then who takes most.
    pub(crate) fn hinders(&self, now: Moment) -> (bool, usize) {
        let is_idle = match self.stalled_since {
            // A socket tells of room once a good part of it was read, which is seldom on a slow line.
            Some(since) => now >= since.max(self.session.heard).after(SLOW_US),
            // Who is not listened to, because it waits for answers, cannot send.
            None => !self.is_paused && now >= self.session.heard.after(IDLE_US),
        };
        (is_idle, self.counted_bytes)
    }

    /// Memory that was counted for it.
    pub(crate) fn counted_bytes(&self) -> usize {
        self.counted_bytes
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::connection::Session;
    use atoll_resp::LatencyClass;
    use atoll_tls::Stream;
    use mio::net::{TcpListener, TcpStream};

    #[test]
    fn who_waits_for_answers_or_reads_slowly_is_not_taken_for_one_that_does_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let stream = Stream::plain(TcpStream::connect(address).unwrap());
        let session = Session::new(1, address, true, LatencyClass::None, Moment(7));
        let mut connection = Connection::new(stream, session);
        let at = |seconds: u64| Moment(7 + seconds * 1_000_000);
        assert!(!connection.hinders(Moment(8)).0 && connection.hinders(at(1)).0);
        connection.is_paused = true;
        assert!(!connection.hinders(at(60)).0, "it is not listened to");
        // Whoever asks for much and reads none of it is not listened to either.
        connection.stalled_since = Some(at(1));
        assert!(!connection.hinders(at(3)).0 && connection.hinders(at(6)).0);
    }
}

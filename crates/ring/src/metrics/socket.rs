//! A blocking socket that ends at a moment, however slowly bytes come and go.
//!
//! Invariant: no read or write waits beyond that moment, also if many short ones are made one after the
//! other, as a TLS handshake makes them.

use crate::clock::Clock;
use atoll_replica::Moment;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A socket with a deadline.
pub(crate) struct TimedSocket {
    socket: TcpStream,
    clock: Arc<dyn Clock>,
    ends: Moment,
}

impl TimedSocket {
    /// Makes a socket blocking, for as long as `time`.
    pub(crate) fn new(socket: TcpStream, clock: Arc<dyn Clock>, time: Duration) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        let mut timed = Self { socket, clock, ends: Moment::default() };
        timed.allow(time);
        Ok(timed)
    }

    /// Sets the deadline anew, this much from now on.
    pub(crate) fn allow(&mut self, time: Duration) {
        self.ends = self.clock.now().moment.after(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Tells the other side that nothing more will come.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// The time that is left.
    fn left(&self) -> io::Result<Duration> {
        match self.ends.0.saturating_sub(self.clock.now().moment.0) {
            // A timeout of zero would be an error of its own.
            0 => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Duration::from_micros(left)),
        }
    }
}

impl Read for TimedSocket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(room)
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock that is a second later at each look.
    #[derive(Default)]
    struct Seconds(AtomicU64);

    impl Clock for Seconds {
        fn now(&self) -> Now {
            let moment = Moment(self.0.fetch_add(1_000_000, Ordering::Relaxed));
            Now { moment, ..Now::default() }
        }
    }

    #[test]
    fn who_sends_or_takes_a_byte_at_a_time_has_no_more_time_than_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        other.write_all(&[7; 20]).unwrap();
        let clock = Arc::new(Seconds::default());
        let mut timed = TimedSocket::new(accepted, clock, Duration::from_secs(5)).unwrap();
        let mut room = [0];
        // One look sets the deadline, and the fifth after it is too late.
        for _ in 0..4 {
            assert_eq!(timed.read(&mut room).unwrap(), 1);
        }
        assert_eq!(timed.read(&mut room).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(timed.write(&room).unwrap_err().kind(), io::ErrorKind::TimedOut);
        timed.allow(Duration::from_secs(5));
        assert_eq!(timed.write(&room).unwrap(), 1);
        assert_eq!(timed.read(&mut room).unwrap(), 1);
    }
}

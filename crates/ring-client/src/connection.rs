//! One connection to a node: a request, then its answer.
//!
//! Invariant: a connection whose answer was not read whole is never used again.

use atoll_resp::{Limits, ReplyParser, Value, write_request};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection that nobody waits on.
pub(crate) struct Connection {
    stream: TcpStream,
    parser: ReplyParser,
    arrived: Vec<u8>,
}

/// Room for what arrives at a time.
const ROOM: usize = 64 << 10;

impl Connection {
    pub(crate) async fn connect(address: &str) -> io::Result<Self> {
        let stream = open(address).await?;
        Ok(Self { stream, parser: ReplyParser::new(Limits::default()), arrived: Vec::new() })
    }

    /// Whether the node is still there, as far as can be told without asking it.
    pub(crate) fn is_alive(&self) -> bool {
        let mut byte = [0];
        let nothing = self.stream.try_read(&mut byte);
        matches!(nothing, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends a request that was written before, and reads the answer.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> io::Result<Value> {
        self.stream.write_all(request).await?;
        loop {
            let (used, value) = self
                .parser
                .parse(&self.arrived)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.arrived.drain(..used);
            if let Some(value) = value {
                return Ok(value);
            }
            self.arrived.reserve(ROOM);
            if self.stream.read_buf(&mut self.arrived).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// How long what was sent may stay unacknowledged, in milliseconds: whose host is cut off is asked no longer.
const SILENCE_MS: u32 = 3_000;

/// A connection to a node.
pub(crate) async fn open(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // Without it the node is only given up later.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, SILENCE_MS);
    Ok(stream)
}

/// A request as it is sent.
pub(crate) fn written<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut request = Vec::new();
    write_request(&mut request, arguments);
    request
}

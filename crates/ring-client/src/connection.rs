//! One connection to a node: a request, then its answer.
//!
//! Invariant: a connection whose answer was not read whole is never used again.

use crate::options::RingOptions;
use atoll_resp::{Limits, ReplyParser, Value, write_request};
use futures::FutureExt;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection that nobody waits on.
pub(crate) struct Connection {
    stream: Line,
    parser: ReplyParser,
    arrived: Vec<u8>,
}

/// Room for what arrives at a time.
const ROOM: usize = 64 << 10;

impl Connection {
    pub(crate) async fn connect(address: &str, options: &RingOptions) -> io::Result<Self> {
        let stream = open(address, options).await?;
        Ok(Self { stream, parser: ReplyParser::new(Limits::default()), arrived: Vec::new() })
    }

    /// Whether the node is still there, as far as can be told without asking it.
    pub(crate) fn is_alive(&mut self) -> bool {
        // Nothing is to come: whatever there is, the end included, means that it is of no use.
        self.stream.read(&mut [0]).now_or_never().is_none()
    }

    /// Sends a request that was written before, and reads the answer.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> io::Result<Value> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
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

/// What bytes go over, encrypted or not.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// The same, whichever it is.
pub(crate) type Line = Box<dyn Bytes>;

/// A connection to a node.
pub(crate) async fn open(address: &str, options: &RingOptions) -> io::Result<Line> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // Without it the node is only given up later.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, SILENCE_MS);
    let Some(tls) = &options.tls else { return Ok(Box::new(stream)) };
    let host = atoll_tls::host_name(host_of(address)).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(Arc::clone(&tls.config)).connect(host, stream).await?))
}

/// The host of an address, without the port and what may stand around it.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// A request as it is sent.
pub(crate) fn written<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut request = Vec::new();
    write_request(&mut request, arguments);
    request
}

//! One connection to a node: a request, then its answer.
//!
//! Invariant: a connection whose answer was not read in full is never used again.

use crate::answer::{FULL, Refused, is_busy, is_of_keyspace, meaning};
use crate::durability::{QUESTION, class_of};
use crate::options::RingOptions;
use atoll_resp::{Limits, ReplyParser, Value, write_request};
use atoll_store::{Durability, StoreError};
use futures::FutureExt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection that is used by one call at a time.
pub(crate) struct Connection {
    stream: BoxedStream,
    parser: ReplyParser,
    arrived: Vec<u8>,
    /// What the node keeps, once it was asked.
    keeps: Option<Durability>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) value: Value,
    /// What a write survives that was acknowledged so, if the node was asked.
    pub(crate) keeps: Option<Durability>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// Nothing was sent.
    Unsent(io::Error),
    /// It may have arrived.
    Sent(io::Error),
    /// The node does not authenticate this client.
    Stranger(StoreError),
    /// The node knows no such keyspace, or not yet. The error is that of a ring in which there is none.
    Elsewhere(StoreError),
    /// The node keeps only this, less than a write has to survive. Nothing was sent.
    TooWeak(Durability, StoreError),
}

impl NoAnswer {
    /// The same for another caller, whose request was not sent.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Unsent(_) | Self::Sent(_) => Self::Unsent(self.error()),
            Self::Stranger(error) => Self::Stranger(error.clone()),
            Self::Elsewhere(error) => Self::Elsewhere(error.clone()),
            Self::TooWeak(keeps, error) => Self::TooWeak(*keeps, error.clone()),
        }
    }

    /// The error of the connection.
    pub(crate) fn error(&self) -> io::Error {
        match self {
            Self::Unsent(error) | Self::Sent(error) => io::Error::new(error.kind(), error.to_string()),
            Self::Stranger(_) | Self::Elsewhere(_) => io::ErrorKind::PermissionDenied.into(),
            Self::TooWeak(..) => io::ErrorKind::Unsupported.into(),
        }
    }
}

/// Size of the receive buffer, in bytes.
const RECEIVE_BYTES: usize = 64 << 10;

impl Connection {
    /// Connects, authenticates, enters the keyspace, and sets the latency class.
    pub(crate) async fn enter(address: &str, options: &RingOptions, place: &str) -> Result<Self, NoAnswer> {
        let made = tokio::time::timeout(options.connect_time_out, async {
            let mut connection = Self::connect(address, options).await?;
            if let Some(token) = &options.token
                && let Value::Error(text) = connection.ask(&authentication(options, token)).await?
            {
                return Ok(Err(turned_away(&text, options, place)));
            }
            if let Some(keyspace) = &options.keyspace
                && let Value::Error(text) = connection.ask(&entering(keyspace)).await?
            {
                return Ok(Err(turned_away(&text, options, place)));
            }
            if let Some(milliseconds) = options.latency.milliseconds()
                && let Value::Error(text) =
                    connection.ask(&written(&["AT.CLASS", &milliseconds.to_string()])).await?
                // A node without latency classes is as fast as it can be.
                && is_busy(&text)
            {
                return Ok(Err(NoAnswer::Unsent(busy(&text))));
            }
            Ok(Ok(connection))
        });
        let made = made.await.unwrap_or_else(|late| Err(too_late(late)));
        made.map_err(NoAnswer::Unsent)?
    }

    async fn connect(address: &str, options: &RingOptions) -> io::Result<Self> {
        let stream = open(address, options).await?;
        let (parser, arrived) = (ReplyParser::new(Limits::default()), Vec::new());
        Ok(Self { stream, parser, arrived, keeps: None })
    }

    /// What a write survives that the node acknowledges on this connection, or the error with which the node
    /// refuses to say so. It is asked once, for at most `within`.
    pub(crate) async fn keeps(&mut self, within: Duration) -> io::Result<Result<Durability, Vec<u8>>> {
        if let Some(keeps) = self.keeps {
            return Ok(Ok(keeps));
        }
        let answer = match in_time(within, self.ask(&written(&QUESTION))).await? {
            Value::Error(text) => return Ok(Err(text)),
            answer => answer,
        };
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "it does not say what its writes survive");
        let keeps = class_of(&answer).ok_or_else(odd)?;
        self.keeps = Some(keeps);
        Ok(Ok(keeps))
    }

    /// The same as far as it is known.
    pub(crate) fn known_to_keep(&self) -> Option<Durability> {
        self.keeps
    }

    /// The stream, and what arrived without being parsed.
    pub(crate) fn into_parts(self) -> (BoxedStream, ReplyParser, Vec<u8>) {
        (self.stream, self.parser, self.arrived)
    }

    /// Whether the node is still there, as far as can be told without asking it.
    pub(crate) fn is_alive(&mut self) -> bool {
        // No bytes are due, so anything to read, the end included, makes it useless. The runtime lets a task
        // that has done much at once wait, which would look as if nothing had arrived.
        tokio::task::coop::unconstrained(self.stream.read(&mut [0])).now_or_never().is_none()
    }

    /// Sends an encoded request, and reads the answer.
    async fn ask(&mut self, request: &[u8]) -> io::Result<Value> {
        self.begin(request).await?;
        self.answer(Duration::MAX).await
    }

    /// Sends an encoded request, and waits for the first bytes of the answer.
    pub(crate) async fn begin(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.read().await
    }

    /// Sends a long request, which may take long as long as it never stalls for longer than `silence_max`.
    pub(crate) async fn begin_long(&mut self, request: &[u8], silence_max: Duration) -> io::Result<()> {
        let mut left = request;
        loop {
            match in_time(silence_max, write_some(&mut self.stream, left)).await? {
                0 => break,
                count => left = left.get(count..).unwrap_or_default(),
            }
        }
        in_time(silence_max, self.read()).await
    }

    async fn read(&mut self) -> io::Result<()> {
        self.arrived.reserve(RECEIVE_BYTES);
        match self.stream.read_buf(&mut self.arrived).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads the rest of the answer, which may take long as long as it never stalls for longer than
    /// `silence_max`.
    pub(crate) async fn answer(&mut self, silence_max: Duration) -> io::Result<Value> {
        loop {
            let (used, value) = self
                .parser
                .parse(&self.arrived)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.arrived.drain(..used);
            if let Some(value) = value {
                return Ok(value);
            }
            in_time(silence_max, self.read()).await?;
        }
    }
}

/// Awaits `done` for at most `time`.
pub(crate) async fn in_time<T>(time: Duration, done: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(time, done).await.unwrap_or_else(|late| Err(too_late(late)))
}

/// Writes some of these bytes. If there are none, flushes and returns 0.
pub(crate) async fn write_some(writer: &mut (impl AsyncWrite + Unpin), out: &[u8]) -> io::Result<usize> {
    if out.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(out).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

/// How long sent bytes may stay unacknowledged, in milliseconds, before a host counts as cut off.
const SILENCE_MS: u32 = 3_000;

/// TCP keep-alive: how long nothing may come from another host before it is probed, how often, and how many
/// times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_PROBES: u32 = 3;

/// A byte stream, encrypted or not.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A boxed byte stream.
pub(crate) type BoxedStream = Box<dyn ByteStream>;

/// Opens a connection to a node.
pub(crate) async fn open(address: &str, options: &RingOptions) -> io::Result<BoxedStream> {
    #[cfg(test)]
    if let Some(stream) = crate::stub::dial(address) {
        return Ok(Box::new(stream));
    }
    let stream = crate::dialling::connect(address).await?;
    stream.set_nodelay(true)?;
    // If this fails, a lost node is only given up later.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, SILENCE_MS);
    // A client that waits sends nothing, and would not learn that the node's host is gone.
    let _ = enable_keepalive(&stream);
    let Some(tls) = &options.tls else { return Ok(Box::new(stream)) };
    let host = atoll_tls::host_name(host_of(address)).map_err(io::Error::other)?;
    let greeted = TlsConnector::from(Arc::clone(&tls.config)).connect(host, stream).await;
    match greeted {
        Ok(greeted) => Ok(Box::new(greeted)),
        Err(error) if atoll_tls::is_of_full(&error) => Err(busy(FULL)),
        Err(error) => Err(error),
    }
}

/// Enables TCP keep-alive, which probes the other host while the connection is idle.
fn enable_keepalive(stream: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(stream, true)
}

/// The host of an address, without its port and brackets.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Roughly the bytes around each argument.
const HEAD_BYTES: usize = 10;

/// An encoded request.
pub(crate) fn written<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let bytes: usize = arguments.iter().map(|argument| argument.as_ref().len() + HEAD_BYTES).sum();
    let mut request = Vec::with_capacity(HEAD_BYTES + bytes);
    write_request(&mut request, arguments);
    request
}

/// The request to enter a keyspace.
pub(crate) fn entering(keyspace: &str) -> Vec<u8> {
    written(&["AT.KEYSPACE", "USE", keyspace])
}

/// The request to authenticate. Without a user it has the form for clients that know no users.
fn authentication(options: &RingOptions, token: &str) -> Vec<u8> {
    match &options.user {
        None => written(&["AUTH", token]),
        Some(user) => written(&["AUTH", user, token]),
    }
}

/// The error of a timeout.
pub(crate) fn too_late(late: tokio::time::error::Elapsed) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, late)
}

/// The meaning of an error reply to a greeting.
pub(crate) fn turned_away(text: &[u8], options: &RingOptions, place: &str) -> NoAnswer {
    match &options.keyspace {
        _ if is_busy(text) => NoAnswer::Unsent(busy(text)),
        Some(name) if text.starts_with(b"NOTFOUND ") => {
            NoAnswer::Elsewhere(StoreError::NotFound { what: "keyspace", name: name.clone() })
        }
        _ if is_of_keyspace(text) => NoAnswer::Elsewhere(stranger(text, place)),
        _ => NoAnswer::Stranger(stranger(text, place)),
    }
}

/// The error of a node that accepts no client at present.
pub(crate) fn busy(text: &[u8]) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, String::from_utf8_lossy(text))
}

/// Why a node does not authenticate this client.
fn stranger(text: &[u8], place: &str) -> StoreError {
    match meaning(text, "open", place) {
        Refused::Failed(error) if text.starts_with(b"NOPERM ") => error,
        _ => StoreError::Unauthenticated { place: place.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;
    use tokio::sync::Semaphore;

    const SILENCE_MAX: Duration = Duration::from_secs(30);

    fn on(here: DuplexStream) -> Connection {
        Connection {
            stream: Box::new(here),
            parser: ReplyParser::new(Limits::default()),
            arrived: Vec::new(),
            keeps: None,
        }
    }

    /// A connection to a node that accepts some of the sent bytes in each of this many rounds, and then
    /// answers.
    fn to_slow_node(rounds: usize, pause: Duration) -> Connection {
        let (here, mut there) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            for _ in 0..rounds {
                tokio::time::sleep(pause).await;
                there.read_exact(&mut [0; 1024]).await.unwrap();
            }
            there.write_all(b"+OK\r\n").await.unwrap();
            std::future::pending::<()>().await;
        });
        on(here)
    }

    #[tokio::test]
    async fn a_connection_that_has_ended_is_not_alive_however_much_its_task_has_done() {
        let ((here, there), (other, _kept)) = (tokio::io::duplex(1024), tokio::io::duplex(1024));
        let (mut ended, mut alive) = (on(here), on(other));
        drop(there);
        let permits = Semaphore::new(1);
        // There is always a permit. That it is not given means that the task is to let others run first.
        let has_done_much = (0..10_000).any(|_| permits.acquire().now_or_never().is_none());
        assert!(has_done_much);
        assert!(!ended.is_alive() && alive.is_alive());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_request_may_be_long_on_its_way_but_not_stand_still() {
        let request = vec![b'x'; 10 << 10];
        let mut slow = to_slow_node(10, Duration::from_secs(10));
        slow.begin_long(&request, SILENCE_MAX).await.unwrap();
        assert_eq!(slow.answer(SILENCE_MAX).await.unwrap(), Value::Simple(b"OK".to_vec()));
        let mut stands = to_slow_node(10, Duration::from_secs(31));
        let error = stands.begin_long(&request, SILENCE_MAX).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

//! The door for Prometheus: answers `GET /metrics`, and nothing else.
//!
//! A few lines of HTTP instead of a server that would be the largest part of a node: requests of at most 8
//! KiB, one on each connection, a few connections at a time, each for a few seconds at most.
//!
//! Invariant: clients on other machines get no answer without the token.
//! Invariant: where a node has a certificate, no such client is asked to send the token in plain text.

use super::socket::TimedSocket;
use crate::NodeError;
use crate::clock::Clock;
use crate::listening::is_of_one_connection;
use crate::token::Token;
use atoll_tls::{NoTls, ServerConfig, Stream};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Waker};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Writes the metrics.
pub(crate) type Tells = Arc<dyn Fn() -> String + Send + Sync>;

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Most connections at a time; one more is closed at once.
const CONNECTIONS_MAX: usize = 16;
/// How long a request may take to arrive, with the handshake before it, and a reply to be accepted.
const TIME_MAX: Duration = Duration::from_secs(5);

/// How soon accepting is retried when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

const LISTENER: mio::Token = mio::Token(0);
const WAKER: mio::Token = mio::Token(1);

/// Listens until it is dropped.
pub(crate) struct Door {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// What it asks of its clients.
#[derive(Default)]
pub(crate) struct Guard {
    /// The token that they have to show.
    pub(crate) token: Option<Token>,
    /// What they have to encrypt with.
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// What connections need.
struct Inside {
    guard: Guard,
    tells: Tells,
    clock: Arc<dyn Clock>,
    connections: AtomicUsize,
}

impl Door {
    /// Listens at an address. Only clients that the guard lets in get an answer.
    pub(crate) fn open(
        listen: SocketAddr,
        guard: Guard,
        clock: Arc<dyn Clock>,
        tells: Tells,
    ) -> Result<Self, NodeError> {
        let failed = |source| NodeError::Listen { address: listen, source };
        let mut listener = TcpListener::bind(listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut poll = Poll::new().map_err(failed)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).map_err(failed)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(failed)?;
        let is_over: Arc<AtomicBool> = Arc::default();
        let inside = Arc::new(Inside { guard, tells, clock, connections: AtomicUsize::new(0) });
        let ends = is_over.clone();
        let run = move || {
            let mut events = Events::with_capacity(8);
            let mut has_waiting = false;
            while !ends.load(Ordering::Acquire) {
                // Waits for sockets only. If that fails, the door cannot do anything any more.
                match poll.poll(&mut events, has_waiting.then_some(ACCEPT_RETRY)) {
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
                    _ => {
                        has_waiting =
                            accept_all(|| listener.accept(), |(socket, _)| begin(socket.into(), &inside));
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("atoll-ring-metrics".to_owned()).spawn(run);
        let thread = thread.map_err(|source| NodeError::System { action: "begin a thread", source })?;
        Ok(Self { address, is_over, waker, thread: Some(thread) })
    }

    /// The address on which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Open connections end by themselves soon.
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
    }
}

/// Accepts all waiting connections. Returns whether more may wait, which the poll will not report again.
fn accept_all<S>(mut accept: impl FnMut() -> io::Result<S>, mut begin: impl FnMut(S)) -> bool {
    loop {
        match accept() {
            Ok(accepted) => begin(accepted),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if is_of_one_connection(&error) => {}
            // Out of file descriptors.
            Err(_) => return true,
        }
    }
}

fn begin(socket: TcpStream, inside: &Arc<Inside>) {
    if inside.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
        inside.connections.fetch_sub(1, Ordering::AcqRel);
        return;
    }
    let of_it = inside.clone();
    let run = move || {
        // The client sees that the connection ended; nothing else depends on it.
        drop(of_it.serve(socket));
        of_it.connections.fetch_sub(1, Ordering::AcqRel);
    };
    if std::thread::Builder::new().name("atoll-ring-metrics".to_owned()).spawn(run).is_err() {
        inside.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inside {
    fn serve(&self, socket: TcpStream) -> io::Result<()> {
        let socket = TimedSocket::new(socket, self.clock.clone(), TIME_MAX)?;
        let mut stream = match &self.guard.tls {
            None => Stream::plain(socket),
            Some(config) => Stream::serve(socket, config.clone())?,
        };
        let mut request = Vec::new();
        let mut room = [0; 1024];
        let reply = loop {
            let count = match stream.read(&mut room) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if is_plain(&error) => {
                    // Whoever does not encrypt would understand nothing else.
                    stream.socket_mut().write_all(&wants_https())?;
                    return stream.socket().end();
                }
                Err(error) => return Err(error),
            };
            request.extend_from_slice(room.get(..count).unwrap_or_default());
            if let Some(reply) = answer(&request, self.guard.token.as_ref(), &*self.tells) {
                break reply;
            }
        };
        stream.socket_mut().allow(TIME_MAX);
        stream.write_all(&reply)?;
        if !stream.send()? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.say_goodbye();
        stream.socket().end()
    }
}

/// Whether a client sent something other than TLS to a door that expects it.
fn is_plain(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<NoTls>())
}

/// The reply to a client that should have encrypted.
fn wants_https() -> Vec<u8> {
    let text = "these metrics are served over https alone\n";
    let length = text.len();
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
    .into_bytes()
}

/// The reply to a request, once its head has arrived in full.
fn answer(request: &[u8], token: Option<&Token>, tells: impl Fn() -> String) -> Option<Vec<u8>> {
    let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else {
        let is_too_long = request.len() > REQUEST_BYTES_MAX;
        return is_too_long.then(|| refusal("431 Request Header Fields Too Large", ""));
    };
    let head = request.get(..end).unwrap_or_default();
    let Ok(head) = std::str::from_utf8(head) else { return Some(refusal("400 Bad Request", "")) };
    let mut lines = head.split("\r\n");
    let words: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return Some(refusal("400 Bad Request", "")) };
    if !version.starts_with("HTTP/1.") {
        return Some(refusal("505 HTTP Version Not Supported", ""));
    }
    let shown = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim())
    });
    let is_known = |token: &Token| {
        let (kind, secret) = shown.and_then(|shown| shown.split_once(' ')).unwrap_or_default();
        kind.eq_ignore_ascii_case("bearer") && token.is(secret.trim().as_bytes())
    };
    if !token.is_none_or(is_known) {
        return Some(refusal("401 Unauthorized", "WWW-Authenticate: Bearer\r\n"));
    }
    if target.split('?').next() != Some("/metrics") {
        return Some(refusal("404 Not Found", ""));
    }
    let text = match method {
        "GET" | "HEAD" => tells(),
        _ => return Some(refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n")),
    };
    let length = text.len();
    let body = if method == "HEAD" { "" } else { &text };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Some(
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes(),
    )
}

fn refusal(status: &str, header: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{header}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: &str, token: Option<&Token>) -> String {
        let told = answer(request.as_bytes(), token, || "a 1\n".to_owned());
        told.map(|reply| String::from_utf8(reply).unwrap()).unwrap_or_default()
    }

    #[test]
    fn metrics_are_told_and_nothing_else_is() {
        let told = asked("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", None);
        assert!(
            told.starts_with("HTTP/1.1 200 ")
                && told.ends_with("\r\nContent-Length: 4\r\nConnection: close\r\n\r\na 1\n"),
            "{told}"
        );
        assert!(asked("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n", None).ends_with("close\r\n\r\n"));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("GET /metrics HTTP/2\r\n\r\n", "505"),
            ("\r\n\r\n", "400"),
        ] {
            assert!(asked(request, None).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
        assert_eq!(answer(b"\xff\r\n\r\n", None, String::new), Some(refusal("400 Bad Request", "")));
        assert_eq!(asked("GET /metrics HTTP/1.1\r\n", None), "");
        let endless = "GET /metrics HTTP/1.1\r\n".to_owned() + &"a: b\r\n".repeat(2_000);
        assert!(asked(&endless, None).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn who_waits_to_be_accepted_is_not_forgotten_for_one_who_went_or_for_lack_of_files() {
        let of = |kinds: &[Option<io::ErrorKind>]| {
            let (mut kinds, mut begun) = (kinds.iter(), 0);
            let accept = || kinds.next().map_or(Err(io::ErrorKind::WouldBlock.into()), accepted);
            let has_waiting = accept_all(accept, |()| begun += 1);
            (begun, has_waiting)
        };
        let lacks = io::ErrorKind::QuotaExceeded;
        assert_eq!(of(&[None, Some(io::ErrorKind::ConnectionAborted), None]), (2, false));
        assert_eq!(of(&[None, Some(lacks), None]), (1, true));
    }

    fn accepted(error: &Option<io::ErrorKind>) -> io::Result<()> {
        error.map_or(Ok(()), |kind| Err(kind.into()))
    }

    #[test]
    fn with_a_token_only_who_shows_it_is_told() {
        let token = Token::new(b"0123456789abcdef").unwrap();
        let with = |header: &str| asked(&format!("GET /metrics HTTP/1.1\r\n{header}\r\n\r\n"), Some(&token));
        for right in ["Authorization: Bearer 0123456789abcdef", "authorization:bearer  0123456789abcdef "] {
            assert!(with(right).starts_with("HTTP/1.1 200 "), "{right}");
        }
        for wrong in [
            "Host: a",
            "Authorization: Bearer 0123456789abcdeF",
            "Authorization: Basic 0123456789abcdef",
            "Authorization: Bearer",
        ] {
            assert!(with(wrong).starts_with("HTTP/1.1 401 "), "{wrong}");
        }
    }
}

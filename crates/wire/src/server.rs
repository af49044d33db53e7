//! The answering side of a connection.
//!
//! Requests are pulled one by one, so a busy server stops reading. Answers may be sent from any task, in any
//! order. Answers to requests that arrived together leave together.
//!
//! Invariant: after a goodbye only those requests are accepted that it names.
//! Invariant: cancelled requests and lost connections are signalled to the work done for them through
//! [`Responder::gone`].

use crate::client::{MESSAGE_OVERHEAD_BYTES, READ_BYTES};
use crate::hello::{Hello, Status};
use crate::outbox::{Outbox, When, send_message};
use crate::{Assembler, Decoder, Flags, Kind, Limits, Message, WireError};
use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::Notify;

/// One connection, from the answering side.
pub struct Connection {
    reader: Pin<Box<dyn AsyncRead + Send>>,
    decoder: Decoder,
    assembler: Assembler,
    shared: Arc<Shared>,
}

struct Shared {
    outbox: Outbox,
    large: tokio::sync::Mutex<()>,
    limits: Limits,
    streams: Mutex<HashMap<u64, Arc<Stream>>>,
    taken: Mutex<Taken>,
}

/// Requests that were accepted, until their last answer is on its way or they are given up: longer than they
/// count as open.
#[derive(Default)]
struct Taken {
    streams: HashSet<u64>,
    is_leaving: bool,
}

struct Stream {
    window: AtomicI64,
    is_gone: AtomicBool,
    changed: Notify,
}

/// A request, and the way to answer it.
pub struct Request {
    /// The bytes.
    pub body: Vec<u8>,
    /// Sends the answer.
    pub responder: Responder,
}

/// The client does not wait for the answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client does not wait for the answer any more")]
pub struct Gone;

impl Connection {
    /// Answers the hello of a client. `welcome` gets its greeting, and returns this side's or the reason to
    /// refuse it.
    ///
    /// Must be called within a Tokio runtime, which then carries the connection.
    ///
    /// # Errors
    /// [`WireError`] if the client breaks the protocol; it was told so, if it can understand that.
    pub async fn accept<T, F>(mut transport: T, limits: Limits, welcome: F) -> Result<Self, WireError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        F: FnOnce(&[u8]) -> Result<Vec<u8>, String>,
    {
        let offer = Hello::receive(&mut transport).await?;
        let version = match offer.common_version() {
            Ok(version) => version,
            Err(error) => {
                Hello::refuse(&error.to_string()).send(&mut transport).await?;
                return Err(error);
            }
        };
        match welcome(&offer.greeting) {
            Ok(greeting) => {
                let accept = Hello { status: Status::Accept, lowest: version, highest: version, greeting };
                accept.send(&mut transport).await?;
            }
            Err(reason) => {
                Hello::refuse(&reason).send(&mut transport).await?;
                return Err(WireError::Refused { reason });
            }
        }
        Ok(Self::begin(transport, limits))
    }

    fn begin<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(transport: T, limits: Limits) -> Self {
        let (read, write) = tokio::io::split(transport);
        let shared = Arc::new(Shared {
            outbox: Outbox::new(Box::pin(write), limits.outbox_bytes),
            large: tokio::sync::Mutex::new(()),
            limits,
            streams: Mutex::default(),
            taken: Mutex::default(),
        });
        let writing = Arc::clone(&shared);
        tokio::spawn(async move {
            // The reading side sees a failure to write too, and reports it.
            if writing.outbox.run().await.is_err() {
                writing.abandon();
            }
        });
        let (decoder, assembler) = (Decoder::new(limits), Assembler::new(limits));
        Self { reader: Box::pin(read), decoder, assembler, shared }
    }

    /// The next request; none once the client has closed the connection. Cancel-safe.
    ///
    /// # Errors
    /// [`WireError`] if the client breaks the protocol or the transport fails; the connection is over then.
    pub async fn next(&mut self) -> Result<Option<Request>, WireError> {
        let request = self.receive().await;
        if !matches!(request, Ok(Some(_))) {
            self.shared.abandon();
        }
        request
    }

    async fn receive(&mut self) -> Result<Option<Request>, WireError> {
        loop {
            while let Some(frame) = self.decoder.next_frame()? {
                if let Some(message) = self.assembler.push(frame)?
                    && let Some(request) = self.take(message)?
                {
                    return Ok(Some(request));
                }
            }
            self.shared.outbox.uncork();
            let read = self.reader.read_buf(self.decoder.space(READ_BYTES)).await;
            match read.map_err(WireError::io("receive"))? {
                0 => return self.decoder.finish().map(|()| None),
                _ => self.shared.outbox.cork(),
            }
        }
    }

    fn take(&self, message: Message) -> Result<Option<Request>, WireError> {
        let Message { kind, stream, body, .. } = message;
        match kind {
            Kind::Request => return self.open(stream, body),
            Kind::Cancel => {
                if let Some(gone) = self.shared.streams().remove(&stream) {
                    gone.abandon();
                }
            }
            Kind::Credit => {
                let bytes =
                    body.try_into().map(u64::from_le_bytes).ok().and_then(|bytes| i64::try_from(bytes).ok());
                let bytes =
                    bytes.ok_or(WireError::Protocol { problem: "a credit that is not a number", stream })?;
                if let Some(open) = self.shared.streams().get(&stream) {
                    let limit = i64::try_from(self.shared.limits.window_bytes).unwrap_or(i64::MAX);
                    let window = open.window.load(Ordering::Acquire).saturating_add(bytes);
                    if window > limit {
                        return Err(WireError::Protocol {
                            problem: "credit for what was never sent",
                            stream,
                        });
                    }
                    open.window.fetch_add(bytes, Ordering::AcqRel);
                    open.changed.notify_waiters();
                }
            }
            Kind::Response | Kind::Goodbye => {
                return Err(WireError::Protocol { problem: "an answer from the asking side", stream });
            }
        }
        Ok(None)
    }

    /// Accepts a request; none after a goodbye, from which the client knows that it was not accepted.
    fn open(&self, stream: u64, body: Vec<u8>) -> Result<Option<Request>, WireError> {
        if self.shared.taken().is_leaving {
            return Ok(None);
        }
        let mut streams = self.shared.streams();
        if streams.len() >= self.shared.limits.streams {
            return Err(WireError::Protocol { problem: "more requests at once than agreed", stream });
        }
        let window = AtomicI64::new(i64::try_from(self.shared.limits.window_bytes).unwrap_or(i64::MAX));
        let state = Arc::new(Stream { window, is_gone: AtomicBool::new(false), changed: Notify::new() });
        if streams.insert(stream, Arc::clone(&state)).is_some() {
            return Err(WireError::Protocol { problem: "a stream opened twice", stream });
        }
        self.shared.taken().streams.insert(stream);
        let shared = Arc::clone(&self.shared);
        let responder = Responder { shared, stream, state, is_finished: false, is_declined: false };
        Ok(Some(Request { body, responder }))
    }

    /// Sends the answers that were held back for batching. To be called before waiting for anything but
    /// [`Self::next`].
    pub fn flush(&self) {
        self.shared.outbox.uncork();
    }

    /// Tells the client to send no more requests here, and which of its requests were accepted: it may send
    /// all others elsewhere as if they had never been sent.
    pub fn goodbye(&self) {
        let mut taken = self.shared.taken();
        taken.is_leaving = true;
        let count = taken.streams.len() as u64;
        let body: Vec<u8> =
            [&count].into_iter().chain(&taken.streams).flat_map(|n| n.to_le_bytes()).collect();
        self.shared.outbox.push(Kind::Goodbye, Flags::default(), 0, &body, When::Soon);
        drop(taken);
        self.shared.outbox.uncork();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for (_, stream) in self.shared.streams().drain() {
            stream.abandon();
        }
        self.shared.outbox.finish();
    }
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn abandon(&self) {
        for (_, stream) in self.streams().drain() {
            stream.abandon();
        }
        self.outbox.close();
    }
}

impl Stream {
    fn abandon(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }
}

/// Sends the answers to one request. If it is dropped before the last answer, the client learns that none
/// will come.
pub struct Responder {
    shared: Arc<Shared>,
    stream: u64,
    state: Arc<Stream>,
    is_finished: bool,
    is_declined: bool,
}

impl Responder {
    /// Sends one of several answers; waits while the client has too many that it has not read.
    ///
    /// # Errors
    /// [`Gone`] if the client does not wait for it any more.
    pub async fn send(&mut self, answer: &[u8]) -> Result<(), Gone> {
        self.state.until(|stream| stream.is_gone() || stream.window.load(Ordering::Acquire) > 0).await;
        let bytes = answer.len() + MESSAGE_OVERHEAD_BYTES;
        self.state.window.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::AcqRel);
        self.transmit(answer, false).await
    }

    /// Sends the last, or only, answer.
    ///
    /// # Errors
    /// [`Gone`] if the client does not wait for it any more.
    pub async fn finish(mut self, answer: &[u8]) -> Result<(), Gone> {
        self.transmit(answer, true).await
    }

    async fn transmit(&mut self, answer: &[u8], is_last: bool) -> Result<(), Gone> {
        if self.state.is_gone() {
            return Err(Gone);
        }
        if is_last {
            // Before the answer leaves: the client counts its open requests too, and must never see more open
            // than this side does.
            self.shared.streams().remove(&self.stream);
        }
        let header = (Kind::Response, self.stream, is_last);
        let Shared { outbox, large, limits, .. } = &*self.shared;
        let was_sent = send_message(outbox, large, limits.chunk_bytes, header, answer, When::Now).await;
        self.is_finished |= is_last && was_sent;
        if was_sent { Ok(()) } else { Err(Gone) }
    }

    /// Reverts the acceptance of the request: nothing was done for it and a goodbye follows, so the client
    /// asks elsewhere.
    pub fn decline(mut self) {
        self.is_declined = true;
    }

    /// Waits until the client has stopped waiting for the answer.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let state = Arc::clone(&self.state);
        async move { state.until(Stream::is_gone).await }
    }
}

impl Stream {
    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.is_finished && !self.state.is_gone() {
            self.shared.streams().remove(&self.stream);
        }
        if !self.is_finished && !self.state.is_gone() && !self.is_declined {
            self.shared.outbox.push(Kind::Cancel, Flags::default(), self.stream, &[], When::Soon);
        }
        // After its last answer: a goodbye between the two would say that it was never accepted. A request
        // that ends without an answer may have had its effect, and stays listed.
        if self.is_finished || self.state.is_gone() || self.is_declined {
            self.shared.taken().streams.remove(&self.stream);
        }
    }
}

//! The requesting side of a connection: many requests in flight over one transport.
//!
//! Invariant: a request whose future is dropped is cancelled at the peer.
//! Invariant: [`Lost::was_sent`] is false only if the peer cannot have seen the whole request, or said that
//! it did not accept it.

use crate::hello::{Hello, Status};
use crate::outbox::{Outbox, When, send_message};
use crate::{Assembler, Decoder, Flags, Kind, Limits, Message, WireError};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf};
use tokio::sync::mpsc;

/// Counted for each message in addition to its bytes, so that empty messages are bounded too.
pub(crate) const MESSAGE_OVERHEAD_BYTES: usize = 64;
/// How much is read from a transport at a time.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// How long a connection that accepts no more bytes is still read, for what it sent before: answers, and a
/// goodbye.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

/// A request that has lost its answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the connection was lost")]
pub struct Lost {
    /// Whether the peer may have seen the whole request, and did not deny that.
    pub was_sent: bool,
    /// Why the connection ended.
    #[source]
    pub cause: Arc<WireError>,
}

/// A handle to a connection. Clones share the connection; dropping the last one closes it.
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    reader: tokio::task::AbortHandle,
}

struct Shared {
    outbox: Outbox,
    large: tokio::sync::Mutex<()>,
    limits: Limits,
    next_stream: AtomicU64,
    streams: Mutex<Streams>,
    ended: tokio::sync::Notify,
}

#[derive(Default)]
struct Streams {
    open: HashMap<u64, Entry>,
    lost: Option<Arc<WireError>>,
    is_leaving: bool,
    /// The requests that a leaving peer said it accepted, among those that were open; it accepted no others.
    taken: Option<HashSet<u64>>,
}

struct Entry {
    answers: mpsc::UnboundedSender<Message>,
    unread: Arc<AtomicUsize>,
}

impl Client {
    /// Exchanges hellos over `transport` and starts the connection; also returns the peer's greeting.
    ///
    /// Must be called within a Tokio runtime, which then carries the connection.
    ///
    /// # Errors
    /// [`WireError`] if the peer does not answer as it should.
    pub async fn connect<T>(
        mut transport: T,
        limits: Limits,
        greeting: Vec<u8>,
    ) -> Result<(Self, Vec<u8>), WireError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Hello::offer(greeting).send(&mut transport).await?;
        let answer = Hello::receive(&mut transport).await?;
        match answer.status {
            Status::Accept => answer.common_version()?,
            Status::Refuse => {
                answer.common_version()?;
                let reason = String::from_utf8_lossy(&answer.greeting).into_owned();
                return Err(WireError::Refused { reason });
            }
            Status::Offer => return Err(WireError::Protocol { problem: "an offer as an answer", stream: 0 }),
        };
        let (read, write) = tokio::io::split(transport);
        let shared = Arc::new(Shared {
            outbox: Outbox::new(Box::pin(write), limits.outbox_bytes),
            large: tokio::sync::Mutex::new(()),
            limits,
            next_stream: AtomicU64::new(1),
            streams: Mutex::default(),
            ended: tokio::sync::Notify::new(),
        });
        let writing = Arc::clone(&shared);
        tokio::spawn(async move {
            if let Err(error) = writing.outbox.run().await {
                // What the peer sent before it closed may still be there to read.
                let _ = tokio::time::timeout(LAST_WORDS_TIME, writing.lost()).await;
                writing.lose(error);
            }
        });
        let reading = Arc::clone(&shared);
        let reader = tokio::spawn(async move {
            let error = reading.read(read).await;
            reading.lose(error);
        });
        Ok((Self { handle: Arc::new(Handle { shared, reader: reader.abort_handle() }) }, answer.greeting))
    }

    /// Sends a request, and waits for its only answer.
    ///
    /// # Errors
    /// [`Lost`] if the connection ends before the answer.
    pub async fn call(&self, request: &[u8]) -> Result<Vec<u8>, Lost> {
        let mut answers = self.open(request).await?;
        match answers.next().await {
            Some(answer) => answer,
            None => Err(answers.lost()),
        }
    }

    /// Sends a request that may have several answers.
    ///
    /// # Errors
    /// [`Lost`] if the connection ended before the request was sent.
    pub async fn open(&self, request: &[u8]) -> Result<Responses, Lost> {
        let shared = &self.handle.shared;
        let (mut responses, when) = self.register()?;
        let header = (Kind::Request, responses.stream, true);
        if !send_message(&shared.outbox, &shared.large, shared.limits.chunk_bytes, header, request, when)
            .await
        {
            return Err(responses.lost());
        }
        responses.was_sent = true;
        Ok(responses)
    }

    fn register(&self) -> Result<(Responses, When), Lost> {
        let shared = &self.handle.shared;
        let unsent = |cause| Lost { was_sent: false, cause };
        let mut streams = shared.streams();
        if let Some(cause) = &streams.lost {
            return Err(unsent(Arc::clone(cause)));
        }
        if streams.is_leaving {
            return Err(unsent(Arc::new(WireError::Closed)));
        }
        if streams.open.len() >= shared.limits.streams {
            let max = shared.limits.streams as u64;
            return Err(unsent(Arc::new(WireError::TooLarge {
                part: "requests at once",
                bytes: max + 1,
                max,
            })));
        }
        // A lone request leaves at once; further ones are batched while the first is under way.
        let when = if streams.open.len() < 2 { When::Now } else { When::Soon };
        let stream = shared.next_stream.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::unbounded_channel();
        let unread = Arc::new(AtomicUsize::new(0));
        streams.open.insert(stream, Entry { answers: sender, unread: Arc::clone(&unread) });
        drop(streams);
        let handle = Arc::clone(&self.handle);
        let responses =
            Responses { handle, stream, receiver, unread, taken: 0, was_sent: false, is_finished: false };
        Ok((responses, when))
    }

    /// The longest request that the peer accepts, if its limits are those of this side; a longer one ends the
    /// connection.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        self.handle.shared.limits.message_bytes
    }

    /// Whether new requests can be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let streams = self.handle.shared.streams();
        streams.lost.is_none() && !streams.is_leaving
    }

    /// Waits until no new requests can be sent.
    pub async fn ended(&self) {
        loop {
            let ended = self.handle.shared.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.is_open() {
                return;
            }
            ended.await;
        }
    }

    /// Closes the connection: requests without an answer are lost.
    pub fn close(&self) {
        self.handle.shared.lose(WireError::Closed);
        self.handle.reader.abort();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.reader.abort();
        self.shared.outbox.finish();
    }
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, error: WireError) {
        let mut streams = self.streams();
        streams.lost.get_or_insert_with(|| Arc::new(error));
        streams.open.clear();
        drop(streams);
        self.outbox.close();
        self.ended.notify_waiters();
    }

    /// Waits until reading has ended.
    async fn lost(&self) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.streams().lost.is_some() {
                return;
            }
            ended.await;
        }
    }

    /// Reads until the connection ends; returns why it did.
    async fn read<T: AsyncRead>(&self, mut transport: ReadHalf<T>) -> WireError {
        let mut decoder = Decoder::new(self.limits);
        let mut assembler = Assembler::new(self.limits);
        loop {
            if let Err(error) = self.deliver_all(&mut decoder, &mut assembler) {
                return error;
            }
            match transport.read_buf(decoder.space(READ_BYTES)).await {
                Ok(0) => return decoder.finish().err().unwrap_or(WireError::Closed),
                Ok(_) => {}
                Err(source) => return WireError::Io { action: "receive", source },
            }
        }
    }

    fn deliver_all(&self, decoder: &mut Decoder, assembler: &mut Assembler) -> Result<(), WireError> {
        while let Some(frame) = decoder.next_frame()? {
            if let Some(message) = assembler.push(frame)? {
                self.deliver(message)?;
            }
        }
        Ok(())
    }

    fn deliver(&self, message: Message) -> Result<(), WireError> {
        let stream = message.stream;
        let mut streams = self.streams();
        match message.kind {
            Kind::Response => {
                // An unknown stream was cancelled while its answer was on the way.
                let Some(entry) = streams.open.get(&stream) else { return Ok(()) };
                let bytes = message.body.len() + MESSAGE_OVERHEAD_BYTES;
                let before = entry.unread.fetch_add(bytes, Ordering::Relaxed);
                if before > self.limits.window_bytes && !message.is_last {
                    return Err(WireError::Protocol {
                        problem: "more answers than there was room for",
                        stream,
                    });
                }
                let is_last = message.is_last;
                let _ = entry.answers.send(message);
                if is_last {
                    streams.open.remove(&stream);
                }
            }
            Kind::Cancel => {
                streams.open.remove(&stream);
            }
            Kind::Goodbye => {
                streams.is_leaving = true;
                // A goodbye without a list leaves all requests open.
                if !message.body.is_empty() {
                    let problem = "a goodbye that names its streams wrongly";
                    let taken = taken(&message.body).ok_or(WireError::Protocol { problem, stream })?;
                    streams.open.retain(|stream, _| taken.contains(stream));
                    streams.taken = Some(taken);
                }
                drop(streams);
                self.ended.notify_waiters();
            }
            Kind::Request | Kind::Credit => {
                return Err(WireError::Protocol { problem: "a request from the answering side", stream });
            }
        }
        Ok(())
    }
}

/// The streams that a goodbye names.
fn taken(body: &[u8]) -> Option<HashSet<u64>> {
    let (numbers, rest) = body.as_chunks::<8>();
    let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let count = numbers.next()?;
    let streams: HashSet<u64> = numbers.collect();
    (rest.is_empty() && streams.len() as u64 == count).then_some(streams)
}

/// The answers to one request.
pub struct Responses {
    handle: Arc<Handle>,
    stream: u64,
    receiver: mpsc::UnboundedReceiver<Message>,
    unread: Arc<AtomicUsize>,
    taken: usize,
    was_sent: bool,
    is_finished: bool,
}

impl Responses {
    /// The next answer; none after the last one.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, Lost>> {
        if self.is_finished {
            return None;
        }
        let Some(message) = self.receiver.recv().await else {
            self.is_finished = true;
            return Some(Err(self.lost()));
        };
        self.is_finished = message.is_last;
        if !message.is_last {
            self.give_credit(message.body.len() + MESSAGE_OVERHEAD_BYTES);
        }
        Some(Ok(message.body))
    }

    fn give_credit(&mut self, bytes: usize) {
        let shared = &self.handle.shared;
        self.taken += bytes;
        if self.taken >= shared.limits.window_bytes / 2 {
            self.unread.fetch_sub(self.taken, Ordering::Relaxed);
            let credit = (self.taken as u64).to_le_bytes();
            self.taken = 0;
            shared.outbox.push(Kind::Credit, Flags::default(), self.stream, &credit, When::Now);
        }
    }

    fn lost(&self) -> Lost {
        let streams = self.handle.shared.streams();
        let cause = streams.lost.clone().unwrap_or_else(|| Arc::new(WireError::Closed));
        let was_taken = streams.taken.as_ref().is_none_or(|taken| taken.contains(&self.stream));
        Lost { was_sent: self.was_sent && was_taken, cause }
    }
}

impl Drop for Responses {
    fn drop(&mut self) {
        let shared = &self.handle.shared;
        let was_open = shared.streams().open.remove(&self.stream).is_some();
        if was_open {
            shared.outbox.push(Kind::Cancel, Flags::default(), self.stream, &[], When::Soon);
        }
    }
}

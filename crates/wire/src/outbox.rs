//! The queue of bytes to write to one connection, written by whichever task gets there first.
//!
//! Frames are appended to one queue. While no write is under way, the sender itself writes the queue to the
//! transport, so a lone request costs no task switch. While a write is under way or the connection is corked,
//! frames accumulate and leave together. There is no timer.
//!
//! Invariant: senders wait for room first, so the queue holds at most its limit and one chunk per sender.
//! Invariant: whenever bytes are left over, the writing task has been woken, with a waker of its own.

use crate::{Flags, Kind, WireError, encode_frame};
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

pub(crate) type Sink = Pin<Box<dyn AsyncWrite + Send>>;

/// When an appended frame is written to the transport.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// By the caller, unless a write is under way or the connection is corked.
    Now,
    /// By the writing task, with all frames that accumulate until then.
    Soon,
}

pub(crate) struct Outbox {
    state: Mutex<State>,
    room: Notify,
    limit: usize,
}

struct State {
    queue: Vec<u8>,
    written: usize,
    sink: Option<Sink>,
    writer: Option<Waker>,
    is_blocked: bool,
    is_corked: bool,
    is_finishing: bool,
    failure: Option<io::Error>,
}

impl Outbox {
    pub fn new(sink: Sink, limit: usize) -> Self {
        let state = State {
            queue: Vec::new(),
            written: 0,
            sink: Some(sink),
            writer: None,
            is_blocked: false,
            is_corked: false,
            is_finishing: false,
            failure: None,
        };
        Self { state: Mutex::new(state), room: Notify::new(), limit }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a frame; returns false if the connection is closed, and appends nothing then.
    pub fn push(&self, kind: Kind, flags: Flags, stream: u64, body: &[u8], when: When) -> bool {
        let mut state = self.state();
        if state.sink.is_none() || state.is_finishing {
            return false;
        }
        encode_frame(&mut state.queue, kind, flags, stream, body);
        if when == When::Now && !state.is_blocked && !state.is_corked {
            self.write_inline(&mut state);
        } else if !state.is_corked {
            state.wake_writer();
        }
        true
    }

    /// Holds frames back until [`Outbox::uncork`], because more are about to come.
    pub fn cork(&self) {
        self.state().is_corked = true;
    }

    /// Writes what has accumulated.
    pub fn uncork(&self) {
        let mut state = self.state();
        state.is_corked = false;
        if state.is_blocked {
            // The transport may have become writable while corked, without a waker to tell.
            state.wake_writer();
        } else if state.written < state.queue.len() {
            self.write_inline(&mut state);
        }
    }

    fn write_inline(&self, state: &mut State) {
        // This waker wakes no task; the writing task takes care of what it would miss.
        let written = state.write(&mut Context::from_waker(Waker::noop()));
        if written.is_pending() || state.failure.is_some() {
            state.wake_writer();
        }
        self.room.notify_waiters();
    }

    /// Waits until the queue is below its limit; returns false if the connection is closed.
    pub async fn room(&self) -> bool {
        loop {
            let notified = self.room.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let state = self.state();
                if state.sink.is_none() {
                    return false;
                }
                if state.queue.len() - state.written < self.limit {
                    return true;
                }
            }
            notified.await;
        }
    }

    /// Ends the connection once everything that was appended is written.
    pub fn finish(&self) {
        let mut state = self.state();
        state.is_finishing = true;
        state.is_corked = false;
        state.wake_writer();
    }

    /// Ends the connection at once.
    pub fn close(&self) {
        let mut state = self.state();
        state.close();
        state.wake_writer();
        self.room.notify_waiters();
    }

    /// The writing task: runs until the connection ends.
    pub async fn run(&self) -> Result<(), WireError> {
        std::future::poll_fn(|cx| {
            let mut state = self.state();
            state.writer = Some(cx.waker().clone());
            let is_written = !state.is_corked && state.write(cx).is_ready();
            if state.queue.len() - state.written < self.limit {
                self.room.notify_waiters();
            }
            if let Some(source) = state.failure.take() {
                state.close();
                self.room.notify_waiters();
                return Poll::Ready(Err(WireError::Io { action: "send", source }));
            }
            let is_ending = state.is_finishing && is_written;
            match &mut state.sink {
                None => Poll::Ready(Ok(())),
                Some(sink) if is_ending => {
                    // The result of the shutdown makes no difference.
                    let _ = std::task::ready!(sink.as_mut().poll_shutdown(cx));
                    state.close();
                    Poll::Ready(Ok(()))
                }
                Some(_) => Poll::Pending,
            }
        })
        .await
    }
}

impl State {
    /// Writes what it can. Ready once everything is written, or never will be; the writing task reports a
    /// failure.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(sink) = &mut self.sink else { return Poll::Ready(()) };
        let written = match write_all(sink, cx, &self.queue, &mut self.written) {
            // An encrypting transport accepts more than it has sent.
            Poll::Ready(Ok(())) => sink.as_mut().poll_flush(cx),
            written => written,
        };
        self.is_blocked = written.is_pending();
        self.drop_written();
        written.map(|result| self.failure = result.err())
    }

    fn drop_written(&mut self) {
        if self.written == self.queue.len() {
            self.queue.clear();
            self.queue.shrink_to(1 << 20);
            self.written = 0;
        } else if self.written > 1 << 20 {
            self.queue.drain(..self.written);
            self.written = 0;
        }
    }

    fn close(&mut self) {
        self.sink = None;
        self.queue = Vec::new();
        self.written = 0;
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}

fn write_all(
    sink: &mut Sink,
    cx: &mut Context<'_>,
    bytes: &[u8],
    written: &mut usize,
) -> Poll<io::Result<()>> {
    while *written < bytes.len() {
        match std::task::ready!(sink.as_mut().poll_write(cx, &bytes[*written..]))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            more => *written += more,
        }
    }
    sink.as_mut().poll_flush(cx)
}

/// Sends a message in as many frames as it needs. If dropped half-way, it cancels what was sent of it.
///
/// `large` is held while a message is in pieces, because a peer holds only one such message.
pub(crate) async fn send_message(
    outbox: &Outbox,
    large: &tokio::sync::Mutex<()>,
    chunk_bytes: usize,
    header: (Kind, u64, bool),
    body: &[u8],
    when: When,
) -> bool {
    let (kind, stream, last) = header;
    if body.len() <= chunk_bytes {
        return outbox.room().await && outbox.push(kind, Flags { more: false, last }, stream, body, when);
    }
    let _large = large.lock().await;
    // Declared after the lock, so that the cancel is queued before another sender begins a large message.
    let mut unfinished = Unfinished { outbox, stream, is_armed: true };
    let mut chunks = body.chunks(chunk_bytes.max(1)).peekable();
    while let Some(chunk) = chunks.next() {
        let more = chunks.peek().is_some();
        if !outbox.room().await
            || !outbox.push(kind, Flags { more, last: last && !more }, stream, chunk, when)
        {
            return false;
        }
    }
    unfinished.is_armed = false;
    true
}

struct Unfinished<'a> {
    outbox: &'a Outbox,
    stream: u64,
    is_armed: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.outbox.push(Kind::Cancel, Flags::default(), self.stream, &[], When::Soon);
        }
    }
}

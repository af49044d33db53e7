//! An in-memory transport that splits, delays, damages and cuts as a seed determines.
//!
//! Invariant: the same seed and the same order of calls give the same bytes at the same moments.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Faults in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// How many of 100 calls are delayed.
    pub delay_percent: u8,
    /// Whether reads and writes transfer a random part of what they could.
    pub split: bool,
    /// The connection breaks in both directions after this many bytes were written.
    pub cut_after: Option<u64>,
    /// The byte at this offset is damaged.
    pub flip_at: Option<u64>,
}

/// One end of a pair.
pub struct SimulatedPipe {
    incoming: Arc<Mutex<Direction>>,
    outgoing: Arc<Mutex<Direction>>,
    faults: Faults,
    random: fastrand::Rng,
}

struct Direction {
    bytes: VecDeque<u8>,
    capacity: usize,
    passed: u64,
    is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// A pair of ends, each holding at most `capacity` bytes that the other has not read; `faults` are those of
/// what the first and the second end write.
#[must_use]
pub fn simulated_pair(seed: u64, capacity: usize, faults: [Faults; 2]) -> (SimulatedPipe, SimulatedPipe) {
    let way = || {
        let bytes = VecDeque::new();
        Arc::new(Mutex::new(Direction {
            bytes,
            capacity,
            passed: 0,
            is_closed: false,
            reader: None,
            writer: None,
        }))
    };
    let (there, back) = (way(), way());
    let mut random = fastrand::Rng::with_seed(seed);
    let first = SimulatedPipe {
        incoming: Arc::clone(&back),
        outgoing: Arc::clone(&there),
        faults: faults[0],
        random: random.fork(),
    };
    let second = SimulatedPipe { incoming: there, outgoing: back, faults: faults[1], random: random.fork() };
    (first, second)
}

impl SimulatedPipe {
    fn is_delayed(&mut self, cx: &Context<'_>) -> bool {
        let is_delayed = self.random.u8(..100) < self.faults.delay_percent.min(99);
        if is_delayed {
            cx.waker().wake_by_ref();
        }
        is_delayed
    }

    fn part(&mut self, most: usize) -> usize {
        if self.faults.split && most > 1 { self.random.usize(1..=most) } else { most }
    }
}

fn lock(way: &Mutex<Direction>) -> MutexGuard<'_, Direction> {
    way.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waiting: &mut Option<Waker>) {
    if let Some(waker) = waiting.take() {
        waker.wake();
    }
}

fn close(way: &Mutex<Direction>) {
    let mut way = lock(way);
    way.is_closed = true;
    wake(&mut way.reader);
    wake(&mut way.writer);
}

impl AsyncRead for SimulatedPipe {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_delayed(cx) {
            return Poll::Pending;
        }
        let incoming = Arc::clone(&this.incoming);
        let mut way = lock(&incoming);
        if way.bytes.is_empty() {
            if way.is_closed {
                return Poll::Ready(Ok(()));
            }
            way.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (front, _) = way.bytes.as_slices();
        let taken = this.part(front.len().min(target.remaining()));
        target.put_slice(&front[..taken]);
        way.bytes.drain(..taken);
        wake(&mut way.writer);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimulatedPipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_delayed(cx) {
            return Poll::Pending;
        }
        let outgoing = Arc::clone(&this.outgoing);
        let mut way = lock(&outgoing);
        let left = this.faults.cut_after.map_or(u64::MAX, |end| end.saturating_sub(way.passed));
        if left == 0 || way.is_closed {
            drop(way);
            close(&this.outgoing);
            close(&this.incoming);
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let space = way.capacity - way.bytes.len();
        if space == 0 {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let most = space.min(bytes.len()).min(usize::try_from(left).unwrap_or(usize::MAX));
        let taken = this.part(most);
        let start = way.bytes.len();
        way.bytes.extend(&bytes[..taken]);
        if let Some(at) = this.faults.flip_at.and_then(|at| usize::try_from(at.checked_sub(way.passed)?).ok())
            && at < taken
        {
            way.bytes[start + at] ^= 8;
        }
        way.passed += taken as u64;
        wake(&mut way.reader);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        close(&self.outgoing);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimulatedPipe {
    fn drop(&mut self) {
        close(&self.outgoing);
        close(&self.incoming);
    }
}

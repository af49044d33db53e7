//! Chunks that no cell refers to any longer, deleted after a delay: a client that read the cell before may
//! still be reading them.
//!
//! Invariant: chunks wait here at least [`GRACE`], unless the store is closed.
//! Invariant: only a few values' chunks are deleted at a time, however many became due at once, so that reads
//! and writes do not wait for the deletions.

use crate::codec::ChunkId;
use crate::link::Link;
use futures::stream::{self, Stream, StreamExt};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than it takes to read the longest value. A slower reader reads its cell again.
const GRACE: Duration = Duration::from_secs(10);

/// Values whose chunks are deleted at the same time.
const AT_ONCE: usize = 8;

/// Values whose chunks may wait, in 10 MB of memory. Any beyond that are left to a sweep.
const WAITING_MAX: usize = 250_000;

/// The name of some chunks, and their number.
pub(crate) type Gone = (ChunkId, u64);

/// The chunks that wait to be deleted.
#[derive(Default)]
pub(crate) struct Leaving {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Ordered by due time, earliest first.
    due: VecDeque<(Instant, Gone)>,
    /// Whether a task deletes them.
    is_watched: bool,
}

impl Leaving {
    /// Takes chunks; returns whether the caller must start a task that deletes them.
    fn take(&self, chunks: Vec<Gone>, now: Instant) -> bool {
        let mut queue = self.queue.lock();
        let room = WAITING_MAX.saturating_sub(queue.due.len());
        if chunks.len() > room {
            tracing::debug!(values = chunks.len() - room, "chunks are left to the next sweep");
        }
        queue.due.extend(chunks.into_iter().take(room).map(|gone| (now + GRACE, gone)));
        !std::mem::replace(&mut queue.is_watched, true)
    }

    /// The next chunks that are due, or the time at which they will be; none if nothing waits.
    fn next(&self, now: Instant) -> Option<Result<Gone, Instant>> {
        let mut queue = self.queue.lock();
        match queue.due.front() {
            Some((at, _)) if *at > now => Some(Err(*at)),
            _ => queue.due.pop_front().map(|(_, gone)| Ok(gone)),
        }
    }

    /// Whether nothing waits. If so, the task that asks ends, and chunks that arrive later need a new one.
    fn is_over(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.is_watched = !queue.due.is_empty();
        !queue.is_watched
    }

    /// The waiting chunks, each when it is due.
    fn due(&self) -> impl Stream<Item = Gone> + '_ {
        stream::unfold((), move |()| async move {
            loop {
                match self.next(Instant::now())? {
                    Ok(gone) => return Some((gone, ())),
                    Err(at) => tokio::time::sleep_until(at).await,
                }
            }
        })
    }

    /// Deletes chunks as they become due, until none wait.
    async fn run_out<F: Future<Output = ()>>(&self, delete: impl Fn(Gone) -> F) {
        while !self.is_over() {
            self.due().for_each_concurrent(AT_ONCE, &delete).await;
        }
    }

    /// Takes everything that waits.
    pub(crate) fn all(&self) -> Vec<Gone> {
        self.queue.lock().due.drain(..).map(|(_, gone)| gone).collect()
    }
}

/// Deletes chunks in the background after their grace period. Deletions that the end of the process prevents
/// are left to a sweep.
pub(crate) fn delete_later(link: &Arc<Link>, leaving: &Arc<Leaving>, chunks: Vec<Gone>) {
    if chunks.is_empty() {
        return;
    }
    // A call may be dropped where its runtime has ended.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        tracing::debug!(values = chunks.len(), "chunks are left to the next sweep");
        return;
    };
    if !leaving.take(chunks, Instant::now()) {
        return;
    }
    let (link, leaving) = (Arc::clone(link), Arc::clone(leaving));
    runtime.spawn(async move { leaving.run_out(|(id, count)| link.delete_chunks(id, count)).await });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn chunks_wait_their_time_and_go_in_order() {
        let (leaving, now) = (Leaving::default(), Instant::now());
        assert!(leaving.take(vec![([1; 16], 3)], now));
        assert!(!leaving.take(vec![([2; 16], 4)], now + GRACE / 2), "somebody looks after them");
        assert_eq!(leaving.next(now + GRACE / 2), Some(Err(now + GRACE)));
        assert_eq!(leaving.next(now + GRACE), Some(Ok(([1; 16], 3))));
        assert_eq!(leaving.next(now + GRACE), Some(Err(now + GRACE * 3 / 2)));
        assert_eq!(leaving.all(), [([2; 16], 4)]);
        assert_eq!(leaving.next(now), None);
        assert!(leaving.is_over());
        assert!(leaving.take(vec![([3; 16], 1)], now), "who looked after them is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_were_deleted_at_once_only_a_few_go_at_a_time() {
        let (leaving, began) = (Leaving::default(), Instant::now());
        let number = |number: u32| u128::from(number).to_be_bytes();
        assert!(leaving.take((0..10_000).map(|at| (number(at), 32)).collect(), began));
        let [under_way, most, gone] = [0, 0, 0].map(AtomicUsize::new);
        let delete = |_| async {
            let count = under_way.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(count, Ordering::SeqCst);
            if gone.fetch_add(1, Ordering::SeqCst) == 9_999 {
                // While the last deletion runs, more chunks arrive.
                assert!(!leaving.take(vec![(number(10_000), 1)], Instant::now()), "somebody looks after it");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            under_way.fetch_sub(1, Ordering::SeqCst);
        };
        leaving.run_out(delete).await;
        assert_eq!((most.into_inner(), gone.into_inner()), (AT_ONCE, 10_001));
        assert!(began.elapsed() >= GRACE * 2, "each waited its time");
        assert!(leaving.take(vec![(number(1), 1)], Instant::now()), "who looked after them is gone");
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let (leaving, now) = (Leaving::default(), Instant::now());
        leaving.take(vec![([1; 16], 3); WAITING_MAX - 1], now);
        leaving.take(vec![([2; 16], 3); 1_000], now);
        leaving.take(vec![([3; 16], 3)], now);
        let waiting = leaving.all();
        assert_eq!((waiting.len(), waiting.last()), (WAITING_MAX, Some(&([2; 16], 3))));
    }
}

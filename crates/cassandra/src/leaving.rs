//! Chunks that cells have let go of, deleted a little later: whoever read the cell before may be reading them.
//!
//! Invariant: chunks wait here at least [`GRACE`], unless the store is closed.

use crate::codec::ChunkId;
use crate::link::Link;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than reading the longest value takes. Who reads longer reads anew.
const GRACE: Duration = Duration::from_secs(10);

/// Chunks of one name, and how many there are.
pub(crate) type Gone = (ChunkId, u64);

/// What waits.
#[derive(Default)]
pub(crate) struct Leaving {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// The first one is due first.
    due: VecDeque<(Instant, Gone)>,
    /// Whether a task looks after them.
    is_watched: bool,
}

impl Leaving {
    /// Takes chunks; tells whether nobody looks after them yet.
    fn take(&self, chunks: Vec<Gone>, now: Instant) -> bool {
        let mut queue = self.queue.lock();
        queue.due.extend(chunks.into_iter().map(|gone| (now + GRACE, gone)));
        !std::mem::replace(&mut queue.is_watched, true)
    }

    /// The next one that is due, or when that will be; none if nothing waits.
    fn next(&self, now: Instant) -> Option<Result<Gone, Instant>> {
        let mut queue = self.queue.lock();
        match queue.due.front() {
            Some((at, _)) if *at > now => Some(Err(*at)),
            Some(_) => queue.due.pop_front().map(|(_, gone)| Ok(gone)),
            None => {
                queue.is_watched = false;
                None
            }
        }
    }

    /// Everything that waits.
    pub(crate) fn all(&self) -> Vec<Gone> {
        self.queue.lock().due.drain(..).map(|(_, gone)| gone).collect()
    }
}

/// Deletes chunks after their time of grace, without keeping anybody waiting. What the end of the process prevents is
/// left to a sweep.
pub(crate) fn delete_later(link: &Arc<Link>, leaving: &Arc<Leaving>, chunks: Vec<Gone>) {
    if chunks.is_empty() || !leaving.take(chunks, Instant::now()) {
        return;
    }
    let (link, leaving) = (Arc::clone(link), Arc::clone(leaving));
    tokio::spawn(async move {
        while let Some(next) = leaving.next(Instant::now()) {
            match next {
                Ok((id, count)) => {
                    let link = Arc::clone(&link);
                    tokio::spawn(async move { link.delete_chunks(id, count).await });
                }
                Err(at) => tokio::time::sleep_until(at).await,
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(leaving.take(vec![([3; 16], 1)], now), "who looked after them is gone");
    }
}

//! Divides the work of a large answer among threads.
//!
//! Invariant: the result does not depend on the number of threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Minimum number of rows per thread that makes starting it worthwhile.
const ROWS_EACH: usize = 1 << 15;

/// Maximum number of threads, so that one query does not take over a large machine.
const THREADS_MAX: usize = 8;

/// Number of threads to use for this many rows, the calling thread included.
pub(crate) fn threads(rows: usize) -> usize {
    static THERE: OnceLock<usize> = OnceLock::new();
    let there = *THERE.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
    there.min(THREADS_MAX).min(rows / ROWS_EACH).max(1)
}

/// Applies `work` to each item and returns the results in item order. Each free thread takes the next item.
pub(crate) fn map<I: Sync, R: Send>(items: &[I], threads: usize, work: impl Fn(&I) -> R + Sync) -> Vec<R> {
    if threads <= 1 || items.len() <= 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let take = || {
        let mut made = Vec::new();
        while let Some((place, item)) = some_next(&next, items) {
            made.push((place, work(item)));
        }
        made
    };
    let mut made = std::thread::scope(|scope| {
        // If the system refuses to start more threads, those already running do the work.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, take).ok();
        let others: Vec<_> = (1..threads.min(items.len())).map_while(spawn).collect();
        let mut made = take();
        for other in others {
            made.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        made
    });
    made.sort_unstable_by_key(|(place, _)| *place);
    made.into_iter().map(|(_, made)| made).collect()
}

/// Like [`map`], but moves each item into the thread that works on it.
pub(crate) fn map_owned<I: Send, R: Send>(
    items: impl IntoIterator<Item = I>,
    threads: usize,
    work: impl Fn(I) -> R + Sync,
) -> Vec<R> {
    // Each mutex is locked once, by the thread that takes the item.
    let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let take = |item: &Mutex<Option<I>>| item.lock().unwrap_or_else(PoisonError::into_inner).take();
    // Each item is taken exactly once, so `flatten` drops nothing.
    map(&items, threads, |item| take(item).map(&work)).into_iter().flatten().collect()
}

fn some_next<'i, I>(next: &AtomicUsize, items: &'i [I]) -> Option<(usize, &'i I)> {
    let place = next.fetch_add(1, Ordering::Relaxed);
    items.get(place).map(|item| (place, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once_and_keeps_its_place() {
        let items: Vec<usize> = (0..1000).collect();
        for count in [1, 2, 3, 8, 2000] {
            let made = map(&items, count, |item| item * 3);
            assert!(made.into_iter().eq((0..1000).map(|item| item * 3)), "{count} threads");
        }
        assert!(map(&items[..0], 4, |item| *item).is_empty());
    }

    #[test]
    fn items_that_are_given_away_are_worked_on_once_each() {
        let mut numbers: Vec<usize> = (0..1000).collect();
        let lengths = map_owned(numbers.chunks_mut(7), 3, |part| {
            part.iter_mut().for_each(|number| *number *= 3);
            part.len()
        });
        assert!(numbers.into_iter().eq((0..1000).map(|number| number * 3)));
        assert_eq!((lengths.len(), lengths[0], lengths.last()), (143, 7, Some(&6)));
    }

    #[test]
    fn few_rows_begin_no_thread() {
        assert_eq!((threads(0), threads(ROWS_EACH)), (1, 1));
        assert!((1..=THREADS_MAX).contains(&threads(usize::MAX)));
    }
}

//! Watches: the registry of waiters by cell, so that a write wakes exactly the waiters for what it changed.
//!
//! [`Watches`] is the registry that a store keeps; [`Watches::wait`] implements all of the contract's `wait`
//! on top of it. A store calls [`Watches::wrote`] once a write is visible. Nothing polls: a waiter costs a
//! map entry, a waker and a timer.
//!
//! Invariant: a watch that was registered before a write became visible is woken by that write.
//! Invariant: a write wakes no watch of a cell that it did not touch. Only [`Watches::close`] and
//! [`Watches::wake_all`] wake every watch.

use crate::{Batch, Buffer, Cell, Expectation, Mutation, SortRange, StoreError, Waited};
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::task::Poll;
use std::time::Duration;
use twox_hash::XxHash3_64;

/// A power of two; enough that writers on a few dozen cores seldom contend for a shard.
const SHARDS: usize = 16;

/// The registry of all watches of one store.
#[derive(Debug)]
pub struct Watches {
    shards: [Shard; SHARDS],
    open: AtomicUsize,
    open_max: usize,
    closed: AtomicBool,
}

/// The watches of some partitions, by joined key; see [`joined`].
#[derive(Debug, Default)]
struct Shard {
    /// The number of watches in the shard, so that a write skips the lock when it is zero.
    watched: AtomicUsize,
    cells: Mutex<Watched>,
}

/// The waiters of each cell, by joined key.
type Watched = BTreeMap<Box<[u8]>, Vec<Arc<Signal>>>;

#[derive(Debug, Default)]
struct Signal {
    waker: AtomicWaker,
    raised: AtomicBool,
}

impl Signal {
    fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// One registered watch; dropping it removes it from the registry.
#[derive(Debug)]
pub struct Watch<'a> {
    watches: &'a Watches,
    cell: Cell<'a>,
    signal: Arc<Signal>,
}

impl Watches {
    /// An empty registry that allows `open_max` watches at once.
    #[must_use]
    pub fn new(open_max: usize) -> Self {
        Self {
            shards: Default::default(),
            open: AtomicUsize::new(0),
            open_max,
            closed: AtomicBool::new(false),
        }
    }

    /// The number of open watches.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Registers a watch. Read the cell after this, never before: a write between the two would be missed.
    ///
    /// # Errors
    /// `limit` if too many watches are open, `unavailable` once the registry is closed.
    pub fn watch<'a>(&'a self, cell: Cell<'a>) -> Result<Watch<'a>, StoreError> {
        let open = self.open.fetch_add(1, Ordering::AcqRel);
        if open >= self.open_max {
            self.open.fetch_sub(1, Ordering::AcqRel);
            return Err(StoreError::Limit {
                what: "waits open at once",
                actual: open as u64 + 1,
                max: self.open_max as u64,
            });
        }
        let signal = Arc::new(Signal::default());
        let shard = self.shard(cell.partition);
        shard.watched.fetch_add(1, Ordering::SeqCst);
        let mut cells = shard.cells.lock();
        let waiting = cells.entry(joined(cell.partition, cell.sort).into()).or_default();
        // Most cells have one waiter, and there may be very many cells.
        waiting.reserve_exact(usize::from(waiting.is_empty()));
        waiting.push(Arc::clone(&signal));
        drop(cells);
        // Pairs with the fence in `wrote`: either the writer sees this watch, or the read that follows
        // sees the write, even when the store reads without a lock.
        fence(Ordering::SeqCst);
        let watch = Watch { watches: self, cell, signal };
        if self.closed.load(Ordering::SeqCst) { Err(closed()) } else { Ok(watch) }
    }

    /// Wakes the waiters for every cell that `batch` changes; call it once the batch is visible.
    pub fn wrote(&self, batch: &Batch) {
        fence(Ordering::SeqCst);
        let shard = self.shard(&batch.partition);
        if shard.watched.load(Ordering::SeqCst) == 0 {
            return;
        }
        let cells = shard.cells.lock();
        for mutation in &batch.mutations {
            match mutation {
                Mutation::Put(sort, _) | Mutation::Append(sort, _) | Mutation::Delete(sort) => {
                    if let Some(waiting) = cells.get(joined(&batch.partition, sort).as_slice()) {
                        waiting.iter().for_each(|signal| signal.raise());
                    }
                }
                Mutation::DeleteRange(range) => {
                    overlapping(&cells, &batch.partition, range).for_each(|signal| signal.raise());
                }
            }
        }
    }

    /// As [`Watches::wrote`], for a write that changed one cell.
    pub fn wrote_cell(&self, cell: Cell<'_>) {
        fence(Ordering::SeqCst);
        let shard = self.shard(cell.partition);
        if shard.watched.load(Ordering::SeqCst) == 0 {
            return;
        }
        let cells = shard.cells.lock();
        if let Some(waiting) = cells.get(joined(cell.partition, cell.sort).as_slice()) {
            waiting.iter().for_each(|signal| signal.raise());
        }
    }

    /// Ends every watch, and refuses new ones.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Wakes every waiter to read again: nothing was written, but reads give another answer, for instance
    /// that the store is broken.
    pub fn wake_all(&self) {
        fence(Ordering::SeqCst);
        for shard in &self.shards {
            shard.cells.lock().values().flatten().for_each(|signal| signal.raise());
        }
    }

    /// The contract's `wait`: reads the cell by `read` now and after each write to it, until it meets the
    /// expectation or the time runs out. Needs tokio's timer.
    ///
    /// # Errors
    /// Those of `read`, `limit` if too many watches are open, `unavailable` once the registry is closed.
    pub async fn wait<R>(
        &self,
        cell: Cell<'_>,
        expectation: Expectation,
        time_out: Duration,
        mut read: impl FnMut() -> R,
    ) -> Result<Waited, StoreError>
    where
        R: Future<Output = Result<Option<Buffer>, StoreError>>,
    {
        let watch = self.watch(cell)?;
        // The first read is always completed, however short the time-out.
        let began = tokio::time::Instant::now();
        let current = read().await?;
        if expectation.is_met(current.as_deref()) {
            return Ok(Waited::Met(current));
        }
        drop(current);
        // Everything below is part of each waiter's future, so no local is kept twice.
        tokio::time::timeout(time_out.saturating_sub(began.elapsed()), async {
            loop {
                watch.changed().await?;
                let current = read().await?;
                if expectation.is_met(current.as_deref()) {
                    return Ok(Waited::Met(current));
                }
            }
        })
        .await
        .unwrap_or(Ok(Waited::TimedOut))
    }

    fn shard(&self, partition: &[u8]) -> &Shard {
        &self.shards[XxHash3_64::oneshot(partition) as usize % SHARDS]
    }
}

impl Watch<'_> {
    /// Returns once the cell has been written since the watch began, or since this last returned.
    ///
    /// # Errors
    /// `unavailable` once the registry is closed.
    pub async fn changed(&self) -> Result<(), StoreError> {
        poll_fn(|context| {
            self.signal.waker.register(context.waker());
            if self.watches.closed.load(Ordering::SeqCst) {
                Poll::Ready(Err(closed()))
            } else if self.signal.raised.swap(false, Ordering::AcqRel) {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let shard = self.watches.shard(self.cell.partition);
        let key = joined(self.cell.partition, self.cell.sort);
        let mut cells = shard.cells.lock();
        if let Some(waiting) = cells.get_mut(key.as_slice()) {
            if let Some(at) = waiting.iter().position(|signal| Arc::ptr_eq(signal, &self.signal)) {
                waiting.swap_remove(at);
            }
            if waiting.is_empty() {
                cells.remove(key.as_slice());
            }
        }
        drop(cells);
        shard.watched.fetch_sub(1, Ordering::AcqRel);
        self.watches.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One key for the cell: the partition key's length, the partition key, the sort key. Cells of one
/// partition stay together and in order, and no two cells share a key.
fn joined(partition: &[u8], sort: &[u8]) -> Vec<u8> {
    [&(partition.len() as u32).to_be_bytes()[..], partition, sort].concat()
}

/// The signals of the shard's cells that lie in `range` of the partition.
fn overlapping<'a>(
    cells: &'a Watched,
    partition: &[u8],
    range: &'a SortRange,
) -> impl Iterator<Item = &'a Arc<Signal>> {
    let partition_start = joined(partition, &[]);
    let from = match &range.from {
        Bound::Included(from) | Bound::Excluded(from) => joined(partition, from),
        Bound::Unbounded => partition_start.clone(),
    };
    cells
        .range::<[u8], _>((Bound::Included(from.as_slice()), Bound::Unbounded))
        .map_while(move |(key, waiting)| Some((key.strip_prefix(partition_start.as_slice())?, waiting)))
        .take_while(|(sort, _)| !is_past(range, sort))
        .filter(|(sort, _)| range.contains(sort))
        .flat_map(|(_, waiting)| waiting)
}

fn is_past(range: &SortRange, sort: &[u8]) -> bool {
    match &range.to {
        Bound::Included(to) => sort > to.as_slice(),
        Bound::Excluded(to) => sort >= to.as_slice(),
        Bound::Unbounded => false,
    }
}

fn closed() -> StoreError {
    StoreError::closed("the store")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use futures::task::noop_waker_ref;
    use std::pin::pin;
    use std::task::Context;

    fn woken(watch: &Watch<'_>) -> bool {
        pin!(watch.changed()).poll(&mut Context::from_waker(noop_waker_ref())).is_ready()
    }

    fn cell<'a>(partition: &'a str, sort: &'a str) -> Cell<'a> {
        Cell::new(partition, sort)
    }

    #[test]
    fn a_write_wakes_the_watches_of_its_cells_and_no_other() {
        let watches = Watches::new(10);
        let [first, again, other_sort, other_partition] =
            [cell("p", "a"), cell("p", "a"), cell("p", "b"), cell("q", "a")]
                .map(|cell| watches.watch(cell).unwrap());
        watches.wrote(&Batch::on(*b"p").put(*b"a", vec![1]));
        assert!(woken(&first) && woken(&again));
        assert!(!woken(&other_sort) && !woken(&other_partition));
        assert!(!woken(&first), "one write wakes once");
    }

    #[test]
    fn append_delete_and_range_wake_as_put_does() {
        let watches = Watches::new(10);
        let keys = ["a", "b", "c", "d"].map(|sort| watches.watch(cell("p", sort)).unwrap());
        let neighbour = watches.watch(cell("pa", "")).unwrap();
        watches.wrote(&Batch::on(*b"p").append(*b"a", vec![1]));
        assert!(woken(&keys[0]));
        watches.wrote(&Batch::on(*b"p").delete(*b"b"));
        assert!(woken(&keys[1]));
        watches.wrote(&Batch::on(*b"p").delete_range(SortRange::half_open(*b"b", *b"d")));
        assert_eq!(keys.each_ref().map(woken), [false, true, true, false]);
        watches.wrote(&Batch::on(*b"p").delete_range(SortRange::all()));
        assert_eq!(keys.each_ref().map(woken), [true; 4]);
        watches.wrote(&Batch::on(*b"p").delete_range(SortRange::half_open(*b"d", *b"b")));
        assert!(!keys.iter().any(woken));
        assert!(!woken(&neighbour));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_look_takes_its_time_and_the_next_ones_do_not() {
        let (watches, asked) = (Watches::new(10), std::cell::Cell::new(0));
        let slow = || async {
            asked.set(asked.get() + 1);
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(Some(Buffer::from(b"there".to_vec())))
        };
        let there = watches.wait(cell("p", "a"), Expectation::Differs(None), Duration::ZERO, slow).await;
        assert!(matches!(there, Ok(Waited::Met(Some(_)))));
        let absent = Expectation::Equals(None);
        let never = watches.wait(cell("p", "a"), absent, Duration::from_secs(1), slow).await;
        assert!(matches!(never, Ok(Waited::TimedOut)));
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn keys_that_read_the_same_when_joined_are_told_apart() {
        let watches = Watches::new(10);
        let [short, long] = [cell("a", "bc"), cell("ab", "c")].map(|cell| watches.watch(cell).unwrap());
        watches.wrote(&Batch::on(*b"ab").put(*b"c", vec![1]));
        assert!(woken(&long) && !woken(&short));
    }

    #[test]
    fn a_dropped_watch_leaves_nothing_behind() {
        let watches = Watches::new(10);
        let stays = watches.watch(cell("p", "a")).unwrap();
        drop([cell("p", "a"), cell("p", "b")].map(|cell| watches.watch(cell).unwrap()));
        assert_eq!(watches.open(), 1);
        watches.wrote(&Batch::on(*b"p").put(*b"a", vec![1]));
        assert!(woken(&stays));
        drop(stays);
        assert_eq!(watches.open(), 0);
        assert!(watches.shards.iter().all(|shard| shard.cells.lock().is_empty()));
        assert!(watches.shards.iter().all(|shard| shard.watched.load(Ordering::SeqCst) == 0));
    }

    #[test]
    fn one_watch_too_many_is_refused_and_takes_no_place() {
        let watches = Watches::new(1);
        let first = watches.watch(cell("p", "a")).unwrap();
        assert_eq!(watches.watch(cell("p", "a")).unwrap_err().kind(), ErrorKind::Limit);
        drop(first);
        assert!(watches.watch(cell("p", "a")).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_returns_what_it_waited_for_or_the_time_out() {
        let watches = Watches::new(10);
        let value = Mutex::new(None::<Buffer>);
        let read = || std::future::ready(Ok(value.lock().clone()));
        let minute = Duration::from_secs(60);
        let differs = Expectation::Differs(None);
        let mut waiting = pin!(watches.wait(cell("p", "a"), differs.clone(), minute, read));
        assert!(futures::poll!(&mut waiting).is_pending());
        *value.lock() = Some(Buffer::copy_from(b"x"));
        watches.wrote(&Batch::on(*b"p").put(*b"a", vec![b'x']));
        assert_eq!(waiting.await.unwrap(), Waited::Met(Some(Buffer::copy_from(b"x"))));
        let equals = Expectation::Equals(None);
        assert_eq!(watches.wait(cell("p", "a"), equals, minute, read).await.unwrap(), Waited::TimedOut);
        let now = watches.wait(cell("p", "a"), differs, Duration::ZERO, read).await.unwrap();
        assert!(matches!(now, Waited::Met(Some(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_told_of_a_store_that_answers_no_more() {
        let watches = Watches::new(10);
        let is_broken = AtomicBool::new(false);
        let read = || {
            let broken =
                || StoreError::Unavailable { place: "p".into(), reason: "broken".into(), source: None };
            std::future::ready(if is_broken.load(Ordering::Acquire) { Err(broken()) } else { Ok(None) })
        };
        let mut waiting = pin!(watches.wait(cell("p", "a"), Expectation::Differs(None), Duration::MAX, read));
        assert!(futures::poll!(&mut waiting).is_pending());
        is_broken.store(true, Ordering::Release);
        watches.wake_all();
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_waits_and_refuses_new_ones() {
        let watches = Watches::new(10);
        let read = || std::future::ready(Ok(None));
        let forever = Expectation::Differs(None);
        let mut waiting = pin!(watches.wait(cell("p", "a"), forever, Duration::MAX, read));
        assert!(futures::poll!(&mut waiting).is_pending());
        watches.close();
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(watches.watch(cell("p", "a")).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(watches.open(), 0);
    }
}

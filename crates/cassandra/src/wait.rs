//! Waits: this client's own writes wake its waits at once; writes by others are found by polling.
//!
//! Each partition with waits is polled by one task. Every request of it glances at some of the cells waited
//! for; the pause before the next one grows from 5 to 250 ms. A wait costs a map entry and a timer; a waiter
//! that is woken reads the cell at SERIAL.
//!
//! Invariant: a cell that differs from what any of its waiters read last wakes all of them at the next
//! glance.
//! Invariant: a partition without waiters is not polled.
//! Invariant: a wait ends with an error once its cell can be read no longer, for instance because the table
//! is gone; while the cluster is merely silent, it goes on.

use crate::cells::{Pieces, raw_rows};
use crate::chunks::{Found, Owner};
use crate::codec::KIND_CELL;
use crate::failure::Failure;
use crate::read::Moves;
use crate::store::Shared;
use atoll_store::{Buffer, ByteRange, Cell, Expectation, PartitionKey, SortKey, StoreError, Waited};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Cells examined with one glance.
const GLANCE_CELLS: usize = 256;

/// One in this many glances goes through consensus, which completes what a dead coordinator left unfinished.
const SERIAL_EVERY: u64 = 8;

/// The cells that are waited for, by partition.
#[derive(Default)]
pub(crate) struct Polls {
    partitions: Mutex<HashMap<PartitionKey, Polled>>,
}

struct Polled {
    cells: BTreeMap<SortKey, Seen>,
    /// Notified when a waiter joins, so that the next glance comes soon.
    joined: Arc<Notify>,
}

#[derive(Default)]
struct Seen {
    waiters: usize,
    /// The state of the cell when it was first read or last glanced at; none before.
    last: Option<Fingerprint>,
    /// Whether a waiter has read another state since.
    is_doubtful: bool,
}

/// What distinguishes one state of a cell from another: the heads of its pieces as stored.
type Fingerprint = Vec<(i32, Vec<u8>)>;

fn fingerprint(pieces: &Pieces) -> Fingerprint {
    pieces.iter().map(|piece| (piece.number, piece.head.encode())).collect()
}

impl Seen {
    /// Notes the state that a waiter read.
    fn read(&mut self, now: Fingerprint) {
        match &self.last {
            None => self.last = Some(now),
            // Either state may be the newer one, and the cell may by now be back in the one that is discarded
            // here.
            Some(last) => self.is_doubtful |= *last != now,
        }
    }

    /// Notes the state that a glance found; returns whether the waiters must read.
    fn glanced(&mut self, now: Fingerprint) -> bool {
        // No waiter has read the cell yet; the first read will be at least as new as this glance.
        let Some(last) = &self.last else { return false };
        let is_changed = *last != now || std::mem::take(&mut self.is_doubtful);
        self.last = Some(now);
        is_changed
    }
}

/// One waiter; dropping the last one ends the polling.
struct Waiter<'a> {
    shared: &'a Arc<Shared>,
    partition: PartitionKey,
    sort: &'a [u8],
}

impl<'a> Waiter<'a> {
    fn join(shared: &'a Arc<Shared>, cell: Cell<'a>) -> Self {
        let partition = shared.key(cell.partition);
        let mut partitions = shared.polls.partitions.lock();
        let polled = partitions.entry(partition.clone()).or_insert_with(|| {
            let joined = Arc::new(Notify::new());
            tokio::spawn(poll(Arc::downgrade(shared), partition.clone(), Arc::clone(&joined)));
            Polled { cells: BTreeMap::new(), joined }
        });
        polled.cells.entry(cell.sort.to_vec()).or_default().waiters += 1;
        polled.joined.notify_one();
        drop(partitions);
        Self { shared, partition, sort: cell.sort }
    }

    /// Records what the waiter read, for comparison with later glances.
    fn saw(&self, pieces: &Pieces) {
        let mut partitions = self.shared.polls.partitions.lock();
        let seen = partitions.get_mut(&self.partition).and_then(|polled| polled.cells.get_mut(self.sort));
        if let Some(seen) = seen {
            seen.read(fingerprint(pieces));
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut partitions = self.shared.polls.partitions.lock();
        let Some(polled) = partitions.get_mut(&self.partition) else { return };
        if let Some(seen) = polled.cells.get_mut(self.sort) {
            seen.waiters -= 1;
            if seen.waiters == 0 {
                polled.cells.remove(self.sort);
            }
        }
        if polled.cells.is_empty() {
            polled.joined.notify_one();
            partitions.remove(&self.partition);
        }
    }
}

/// The contract's `wait`.
pub(crate) async fn wait(
    shared: &Arc<Shared>,
    cell: Cell<'_>,
    expectation: Expectation,
    time_out: Duration,
) -> Result<Waited, StoreError> {
    let watch = shared.watches.watch(cell)?;
    let waiter = Waiter::join(shared, cell);
    let ends = Instant::now().checked_add(time_out);
    // The first look is taken however short the time-out is; later ones never exceed it.
    let mut current = look(shared, &waiter, cell).await?;
    let watching = async {
        while !expectation.is_met(current.as_deref()) {
            watch.changed().await?;
            current = look(shared, &waiter, cell).await?;
        }
        Ok(Waited::Met(current))
    };
    match ends {
        None => watching.await,
        Some(ends) => tokio::time::timeout_at(ends, watching).await.unwrap_or(Ok(Waited::TimedOut)),
    }
}

async fn look(
    shared: &Arc<Shared>,
    waiter: &Waiter<'_>,
    cell: Cell<'_>,
) -> Result<Option<Buffer>, StoreError> {
    // Since the wait began, a node may have turned to settings that break what it would tell.
    shared.check_open()?;
    let mut moves = Moves::default();
    loop {
        let pieces = crate::read::read_pieces(shared, &waiter.partition, cell.sort).await?;
        waiter.saw(&pieces);
        if pieces.is_empty() {
            return Ok(None);
        }
        let of = Owner { partition: &waiter.partition, sort: cell.sort };
        match shared.link.joined(of, &pieces, ByteRange::ALL).await? {
            Found::Bytes(value) => return Ok(Some(value)),
            Found::Gone(id) => moves.gone(&shared.link, of, id)?,
        }
    }
}

/// Polls the cells of one partition until none is waited for.
async fn poll(shared: Weak<Shared>, partition: PartitionKey, joined: Arc<Notify>) {
    let (mut pause, mut at, mut round) = (PAUSE_FIRST, SortKey::new(), 0);
    loop {
        // A new waiter makes the next glance come soon, but not at once: a thousand may arrive together.
        let soon = async {
            joined.notified().await;
            tokio::time::sleep(PAUSE_FIRST).await;
        };
        let was_joined = tokio::time::timeout(pause, soon).await.is_ok();
        let Some(shared) = shared.upgrade() else { return };
        let Some(sorts) = next_cells(&shared, &partition, &joined, &mut at) else { return };
        round += 1;
        let changed = glance(&shared, &partition, &sorts, round % SERIAL_EVERY == 0).await;
        if changed == Err(Failure::Final) {
            // No later glance will do better: each waiter reads by itself, and ends if it cannot either.
            wake(&shared, &partition, sorts.iter());
        }
        pause = match changed.unwrap_or(false) || was_joined {
            true => PAUSE_FIRST,
            false => (pause * 3 / 2).min(PAUSE_MAX),
        };
    }
}

/// The cells to examine next: those behind the last ones, then from the first again. None if there are no
/// waiters.
fn next_cells(
    shared: &Shared,
    partition: &[u8],
    joined: &Arc<Notify>,
    at: &mut SortKey,
) -> Option<Vec<SortKey>> {
    let partitions = shared.polls.partitions.lock();
    let polled = partitions.get(partition)?;
    // The last waiter may have left and another one joined, for which a new task polls.
    if !Arc::ptr_eq(&polled.joined, joined) {
        return None;
    }
    let behind = polled.cells.range::<SortKey, _>((Bound::Excluded(&*at), Bound::Unbounded));
    let before = polled.cells.range::<SortKey, _>((Bound::Unbounded, Bound::Included(&*at)));
    let sorts: Vec<SortKey> = behind.chain(before).take(GLANCE_CELLS).map(|(sort, _)| sort.clone()).collect();
    at.clone_from(sorts.last()?);
    Some(sorts)
}

/// Compares cells with their last known states, and wakes the waiters of those that changed.
async fn glance(
    shared: &Arc<Shared>,
    partition: &[u8],
    sorts: &[SortKey],
    is_serial: bool,
) -> Result<bool, Failure> {
    let link = &shared.link;
    let names: Vec<(i8, &[u8])> = sorts.iter().map(|sort| (KIND_CELL, sort.as_slice())).collect();
    let statement =
        if is_serial { &link.statements.reads.names_heads } else { &link.statements.reads.names_glance };
    let answer = link.rows_or_failure("waiting", statement, &(partition, names)).await?;
    // Heads are not decoded here: a cell that cannot be read is an error for its own waiters only.
    let mut found: HashMap<SortKey, Fingerprint> = HashMap::new();
    for row in raw_rows(link, &answer, false).map_err(|_| Failure::Final)? {
        if let Some(head) = row.head {
            found.entry(row.sort.to_vec()).or_default().push((row.piece, head.to_vec()));
        }
    }
    let mut changed = Vec::new();
    {
        let mut partitions = shared.polls.partitions.lock();
        let Some(polled) = partitions.get_mut(partition) else { return Ok(false) };
        for sort in sorts {
            let Some(seen) = polled.cells.get_mut(sort) else { continue };
            if seen.glanced(found.remove(sort).unwrap_or_default()) {
                changed.push(sort);
            }
        }
    }
    let is_changed = !changed.is_empty();
    wake(shared, partition, changed.into_iter());
    Ok(is_changed)
}

/// Makes the waiters for these cells read.
fn wake<'s>(shared: &Shared, partition: &[u8], sorts: impl Iterator<Item = &'s SortKey>) {
    let of_caller = shared.without_namespace(partition);
    for sort in sorts {
        shared.watches.wrote_cell(Cell::new(of_caller, sort.as_slice()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(byte: u8) -> Fingerprint {
        vec![(0, vec![byte])]
    }

    #[test]
    fn a_value_that_came_back_between_glance_and_read_wakes_who_waits_for_it() {
        const BUSY: u8 = 1;
        const FREE: u8 = 2;
        let mut seen = Seen::default();
        seen.read(state(BUSY));
        assert!(!seen.glanced(state(BUSY)));
        assert!(seen.glanced(state(FREE)), "the waiter is woken");
        // Another client took it before the waiter's read.
        seen.read(state(BUSY));
        assert!(seen.glanced(state(FREE)), "free again");
        seen.read(state(FREE));
        assert!(!seen.glanced(state(FREE)));
    }

    #[test]
    fn whoever_read_something_else_than_the_first_waiter_is_woken_too() {
        let mut seen = Seen::default();
        seen.read(state(1));
        seen.read(state(2));
        assert!(seen.glanced(state(1)));
        assert!(!seen.glanced(state(1)));
    }
}

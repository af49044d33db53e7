//! Waits: what this client writes wakes its waits at once; what others write is found by looking at the cells in turn, one
//! task for all of them. This is a first step: a node cannot be asked to tell yet.
//!
//! Invariant: while a waiter waits, what was glanced at last is what it read, or unknown; a glance at anything else wakes it.
//! Invariant: nothing is looked at for which nobody waits.

use crate::store::Shared;
use atoll_store::{Buffer, ByteRange, Cell, Expectation, PartitionKey, SortKey, StoreError, Waited};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Between one look at all cells and the next.
const PAUSE: Duration = Duration::from_millis(20);

/// What is waited for.
#[derive(Default)]
pub(crate) struct Glances {
    cells: Mutex<Cells>,
}

#[derive(Default)]
struct Cells {
    seen: HashMap<(PartitionKey, SortKey), Seen>,
    /// Whether a task looks at them.
    is_looked_at: bool,
}

#[derive(Default)]
struct Seen {
    waiters: usize,
    last: Option<u64>,
}

fn fingerprint(value: Option<&Buffer>) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.map(Buffer::as_slice).hash(&mut hasher);
    hasher.finish()
}

/// One waiter; dropping it ends the looking if it was the last.
struct Waiter<'a> {
    shared: &'a Arc<Shared>,
    key: (PartitionKey, SortKey),
}

impl<'a> Waiter<'a> {
    fn join(shared: &'a Arc<Shared>, cell: Cell<'_>) -> Self {
        let key = (cell.partition.to_vec(), cell.sort.to_vec());
        let mut cells = shared.glances.cells.lock();
        if !std::mem::replace(&mut cells.is_looked_at, true) {
            tokio::spawn(glance(Arc::downgrade(shared)));
        }
        cells.seen.entry(key.clone()).or_default().waiters += 1;
        drop(cells);
        Self { shared, key }
    }

    fn saw(&self, value: Option<&Buffer>) {
        if let Some(seen) = self.shared.glances.cells.lock().seen.get_mut(&self.key) {
            seen.last = seen.last.filter(|&last| last == fingerprint(value));
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut cells = self.shared.glances.cells.lock();
        if let Some(seen) = cells.seen.get_mut(&self.key) {
            seen.waiters -= 1;
            if seen.waiters == 0 {
                cells.seen.remove(&self.key);
            }
        }
    }
}

/// Looks at all cells that are waited for, again and again, until there are none.
async fn glance(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(shared) = shared.upgrade() else { return };
        let keys: Vec<_> = shared.glances.cells.lock().seen.keys().cloned().collect();
        for key in &keys {
            let cell = Cell::new(&key.0, &key.1);
            // A node that does not answer now may do so next time; a waiter that reads is told.
            let Ok(value) = shared.get(cell, ByteRange::ALL).await else { continue };
            let now = Some(fingerprint(value.as_ref()));
            let is_changed = match shared.glances.cells.lock().seen.get_mut(key) {
                Some(seen) => std::mem::replace(&mut seen.last, now) != now,
                None => false,
            };
            if is_changed {
                shared.watches.wrote_cell(cell);
            }
        }
        let mut cells = shared.glances.cells.lock();
        if cells.seen.is_empty() || shared.is_closed() {
            // Whoever comes after this begins anew.
            cells.is_looked_at = false;
            return;
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
    // The first look happens however short the time is.
    let mut current = shared.get(cell, ByteRange::ALL).await?;
    waiter.saw(current.as_ref());
    let watching = async {
        while !expectation.is_met(current.as_deref()) {
            watch.changed().await?;
            current = shared.get(cell, ByteRange::ALL).await?;
            waiter.saw(current.as_ref());
        }
        Ok(Waited::Met(current))
    };
    match ends {
        None => watching.await,
        Some(ends) => tokio::time::timeout_at(ends, watching).await.unwrap_or(Ok(Waited::TimedOut)),
    }
}

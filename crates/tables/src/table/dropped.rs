//! Dropped tables: sweeps what their writers left after the drop.
//!
//! A drop lists the objects of a table once. A process that is writing objects at that time notices the drop
//! a little later, and removes what it has written since. One that is killed before that does not, and nobody
//! else knows the id of the table any more. So a record of the drop is kept until every session of that time
//! has passed; then the objects are removed once more, and the record with them.
//!
//! Invariant: the record of a drop exists before the entry of its table is gone.
//! Invariant: a sweep removes the cells of a few tables at most, however many were dropped.

use super::TableError;
use super::names::{DROPPED, Names};
use super::registry::remove_cells;
use super::session::SESSION_NS;
use atoll_store::{Batch, Cell, ScanEntry, ScanRequest, Store, StoreError, WriteOptions};

/// How many tables one sweep is for.
const SWEPT_MAX: usize = 4;

/// Records the drop of a table, whose objects have been removed.
pub(super) async fn record(store: &dyn Store, names: &Names) -> Result<(), TableError> {
    let now = store.now().await?.0;
    let id = names.id().to_be_bytes();
    store.put(Cell::new(DROPPED, &id), &now.to_be_bytes(), WriteOptions::default()).await?;
    Ok(())
}

/// Removes what was written to tables after their drop, once nobody is left who may still be writing there.
pub(super) async fn sweep(store: &dyn Store) -> Result<(), TableError> {
    // The first page will do: records that are swept make room for those behind them.
    let page = store.scan(ScanRequest::all(DROPPED)).await?;
    if page.entries.is_empty() {
        return Ok(());
    }
    let now = store.now().await?.0;
    let due = page.entries.into_iter().filter_map(|found| {
        let (id, at) = drop_of(&found)?;
        (now.saturating_sub(at) > SESSION_NS).then_some((id, found))
    });
    for (id, found) in due.take(SWEPT_MAX) {
        remove_cells(store, &Names::of(id)).await?;
        // On a condition: the end of another drop may have recorded it anew.
        let done =
            Batch::on(DROPPED).if_equals(found.sort.as_slice(), found.value).delete(found.sort.as_slice());
        match store.write(done, WriteOptions::default()).await {
            Ok(_) | Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The id of a dropped table, and when it was dropped, in nanoseconds of the store's clock. A record in
/// another format is left to the release that knows it.
fn drop_of(found: &ScanEntry) -> Option<(u128, u64)> {
    let id = <[u8; 16]>::try_from(found.sort.as_slice()).ok()?;
    let at = <[u8; 8]>::try_from(&found.value[..]).ok()?;
    Some((u128::from_be_bytes(id), u64::from_be_bytes(at)))
}

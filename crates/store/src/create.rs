//! The general path of `create`: a put under the condition that the cell is absent.
//!
//! Invariant: creating a cell again with the value it holds succeeds, so that a retry is harmless; with
//! another value it is a conflict, because the vow would be broken.

use crate::{
    Batch, Buffer, Cell, Conflict, Durability, ReadOptions, Store, StoreError, WriteOptions, Written,
};

/// `create` by a conditional write, for a store that has no cheaper way, or none for these options.
///
/// # Errors
/// Those of [`Store::create`].
pub async fn create_conditionally<S: Store + ?Sized>(
    store: &S,
    cell: Cell<'_>,
    value: Buffer,
    options: WriteOptions,
) -> Result<Written, StoreError> {
    let batch = Batch::on(cell.partition).if_absent(cell.sort).put(cell.sort, value.clone());
    match store.write(batch, options).await {
        Err(StoreError::Conflict(conflict)) if holds(store, cell, &conflict, &value).await? => {
            acknowledge(store, options).await
        }
        result => result,
    }
}

/// Whether the cell that caused the conflict holds `value`.
async fn holds<S: Store + ?Sized>(
    store: &S,
    cell: Cell<'_>,
    conflict: &Conflict,
    value: &Buffer,
) -> Result<bool, StoreError> {
    let Some(told) = &conflict.actual else { return Ok(false) };
    if conflict.actual_bytes != value.len() as u64 || *told != value.slice(..told.len()) {
        return Ok(false);
    }
    if told.len() == value.len() {
        return Ok(true);
    }
    let options = ReadOptions { immutable: true, ..ReadOptions::default() };
    Ok(store.get(cell, options).await?.as_ref() == Some(value))
}

/// Acknowledges a value that the cell holds already, at the class that `options` ask for. The write of that
/// value may have been acknowledged at a weaker one, so everything above buffered syncs first.
async fn acknowledge<S: Store + ?Sized>(store: &S, options: WriteOptions) -> Result<Written, StoreError> {
    let capabilities = store.capabilities();
    let durability = options.durability.unwrap_or(capabilities.durability_default);
    if durability > Durability::Buffered {
        store.sync().await?;
    }
    Ok(Written { durability, repeated: true })
}

//! Leases: who may act, until when by the store's clock, and under which epoch.
//!
//! A lease is one cell holding (holder, epoch, expiry), changed only by compare-and-swap. Its epoch is the
//! fencing token: a holder sends it along with everything it does under the lease, and the receiving side
//! refuses an older one.
//!
//! Invariant: two holders never share an epoch, and an epoch never falls.

use crate::{Buffer, Cell, ReadOptions, Store, StoreError, Timestamp, WriteOptions};
use std::time::Duration;

/// A lease that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub holder: Vec<u8>,
    /// The fencing token; higher with every change of holder.
    pub epoch: u64,
    /// Until when, by the store's clock.
    pub expires: Timestamp,
}

/// How an attempt to take a lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The caller holds it.
    Held(Lease),
    /// Another holder has it; here is its lease.
    Busy(Lease),
}

impl Lease {
    /// The bytes of the lease's cell: epoch and expiry (little-endian u64), then the holder.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [&self.epoch.to_le_bytes()[..], &self.expires.0.to_le_bytes(), &self.holder].concat()
    }

    /// The lease that a cell holds.
    ///
    /// # Errors
    /// `invalid-input` if the cell holds something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let field = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        match (field(0), field(8)) {
            (Some(epoch), Some(expires)) => {
                Ok(Self { holder: bytes[16..].to_vec(), epoch, expires: Timestamp(expires) })
            }
            _ => Err(StoreError::InvalidInput {
                what: "lease cell",
                problem: format!("it holds {} bytes that are not a lease", bytes.len()),
                hint: "keep leases in cells of their own",
            }),
        }
    }
}

/// Takes the lease in `cell` for `duration`, or renews it if `holder` has it already.
///
/// `holder` must be unique: two processes that call themselves the same share the lease and its epoch.
///
/// # Errors
/// Those of the store; a lost race is [`Acquired::Busy`].
pub async fn acquire(
    store: &dyn Store,
    cell: Cell<'_>,
    holder: &[u8],
    duration: Duration,
) -> Result<Acquired, StoreError> {
    let mut current = store.get(cell, ReadOptions::default()).await?;
    loop {
        let now = store.now().await?;
        let held = current.as_deref().map(Lease::decode).transpose()?;
        let epoch = match &held {
            None => 1,
            Some(lease) if lease.expires > now && lease.holder != holder => {
                return Ok(Acquired::Busy(lease.clone()));
            }
            // Renewing before the end keeps the epoch; after the end another holder may have acted in
            // between.
            Some(lease) if lease.expires > now => lease.epoch,
            Some(lease) => next_epoch(lease)?,
        };
        let lease = Lease { holder: holder.to_vec(), epoch, expires: now.after(duration) };
        match swap(store, cell, current.as_ref(), &lease.encode()).await? {
            Swapped::Done => return Ok(Acquired::Held(lease)),
            // A rival was faster; the conflict carries what it wrote.
            Swapped::Found(actual) => current = actual,
        }
    }
}

/// Gives the lease back early; its epoch stays, so that the next holder gets a higher one.
///
/// # Errors
/// Those of the store; `conflict` if the cell does not hold this lease any more.
pub async fn release(store: &dyn Store, cell: Cell<'_>, lease: &Lease) -> Result<(), StoreError> {
    let ended = Lease { expires: Timestamp(0), ..lease.clone() };
    match swap(store, cell, Some(&Buffer::from(lease.encode())), &ended.encode()).await? {
        Swapped::Done => Ok(()),
        Swapped::Found(_) => Err(StoreError::Superseded { what: "the lease".into() }),
    }
}

fn next_epoch(ended: &Lease) -> Result<u64, StoreError> {
    ended.epoch.checked_add(1).ok_or_else(|| StoreError::InvalidInput {
        what: "lease cell",
        problem: "its epoch is the last possible one".into(),
        hint: "keep leases in cells of their own",
    })
}

/// How a swap of the lease's cell ended.
enum Swapped {
    Done,
    Found(Option<Buffer>),
}

async fn swap(
    store: &dyn Store,
    cell: Cell<'_>,
    expected: Option<&Buffer>,
    value: &[u8],
) -> Result<Swapped, StoreError> {
    match store.compare_and_swap(cell, expected.map(Buffer::as_slice), value, WriteOptions::default()).await {
        Ok(_) => Ok(Swapped::Done),
        Err(StoreError::Conflict(conflict)) => Ok(Swapped::Found(conflict.actual)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read_back_as_it_was_written() {
        let lease = Lease { holder: b"host-7:4711".to_vec(), epoch: 3, expires: Timestamp(1_000) };
        assert_eq!(Lease::decode(&lease.encode()).unwrap(), lease);
        let nameless = Lease { holder: vec![], ..lease };
        assert_eq!(Lease::decode(&nameless.encode()).unwrap(), nameless);
    }

    #[test]
    fn a_cell_that_holds_something_else_is_no_lease() {
        let error = Lease::decode(b"fifteen bytes..").unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidInput);
    }

    #[test]
    fn epochs_end_with_an_error_and_never_wrap() {
        let last = Lease { holder: vec![], epoch: u64::MAX, expires: Timestamp(0) };
        assert!(next_epoch(&last).is_err());
        assert_eq!(next_epoch(&Lease { epoch: 7, ..last }).unwrap(), 8);
    }
}

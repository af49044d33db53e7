//! Sessions: how other processes know a handle that writes. A session begins with the handle's first write
//! and is renewed by its commits.
//!
//! A handle that only reads has no session. A writing handle puts its session's cell when it first needs a
//! name for an object, and every commit is conditional on the cell being as the handle wrote it. Once a third
//! of the session's lifetime has passed, the next commit renews it in the same write, so nothing runs in the
//! background. Only a pack renews it by itself, between two commits.
//!
//! Invariant: if the cell exists, its content is `cell` or one of `tried`.

use super::names::random_id;
use super::{TableError, codec};
use crate::protocol::{Cell, SessionId, Version};
use atoll_store::{Batch, Store, StoreError, WriteOptions};

/// How long a session lasts without being renewed, in nanoseconds.
pub(super) const SESSION_NS: u64 = 3_600_000_000_000;

/// How often a session's cell is put under another name if the outcome of the put is unknown.
const ATTEMPTS_MAX: usize = 5;

/// The session of this handle, as the handle knows it.
#[derive(Clone, Debug)]
pub(super) struct OwnSession {
    pub(super) id: SessionId,
    /// The session may look up who made the versions from this one on. It only rises.
    from: Version,
    /// The last known content of the session's cell.
    pub(super) cell: Vec<u8>,
    /// Contents that writes of unknown outcome tried to give the cell.
    tried: Vec<Vec<u8>>,
    /// When to renew it, in nanoseconds of the store's clock.
    renew_at: u64,
}

impl OwnSession {
    /// Begins a session that may look up who made the versions from `from` on.
    ///
    /// # Errors
    /// [`TableError::NotFound`] if the table was dropped; errors of the store.
    pub(super) async fn begin(
        store: &dyn Store,
        table: &str,
        partition: &[u8],
        from: Version,
    ) -> Result<Self, TableError> {
        let dropped = Cell::Dropped.sort_key();
        let mut attempts = 0;
        loop {
            let now = store.now().await?.0;
            // A late write must not bring a session back, so a name whose put is in doubt is not reused.
            let id = SessionId(random_id());
            let cell = codec::session_to_json(from, now.saturating_add(SESSION_NS)).into_bytes();
            let key = Cell::Session(id).sort_key();
            let batch = Batch::on(partition).if_absent(dropped.as_slice()).if_absent(key.as_slice());
            attempts += 1;
            match store.write(batch.put(key.as_slice(), cell.clone()), WriteOptions::default()).await {
                Ok(_) => {
                    return Ok(Self { id, from, cell, tried: Vec::new(), renew_at: renew_at(now) });
                }
                Err(StoreError::Conflict(conflict)) if conflict.sort == dropped => {
                    return Err(TableError::NotFound { name: table.to_owned() });
                }
                Err(error) if super::ledger::is_unknown(&error) && attempts < ATTEMPTS_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the session may look up who made the version after this one.
    pub(super) fn covers(&self, version: Version) -> bool {
        version >= self.from
    }

    /// The new content of the cell if a renewal is due; the next commit writes it. The commit must look up
    /// nothing before the version `from`.
    pub(super) fn renewal(&mut self, now: u64, from: Version) -> Option<Vec<u8>> {
        if now < self.renew_at {
            return None;
        }
        self.from = self.from.max(from);
        let cell = codec::session_to_json(self.from, now.saturating_add(SESSION_NS)).into_bytes();
        if cell != self.cell && !self.tried.contains(&cell) {
            self.tried.push(cell.clone());
        }
        Some(cell)
    }

    /// Notes that the cell was renewed.
    pub(super) fn renewed(&mut self, cell: Vec<u8>, now: u64) {
        self.cell = cell;
        // Those writes were conditional on the old content, so they can no longer succeed.
        self.tried.clear();
        self.renew_at = renew_at(now);
    }

    /// Compares the cell with what this handle wrote; returns whether the session still stands.
    pub(super) fn saw(&mut self, found: Option<&[u8]>) -> bool {
        let Some(found) = found else { return false };
        if let Some(place) = self.tried.iter().position(|tried| tried == found) {
            let cell = self.tried.swap_remove(place);
            // The time of that attempt is unknown; renewing early does no harm.
            self.renewed(cell, 0);
        }
        self.cell == found
    }
}

fn renew_at(now: u64) -> u64 {
    now.saturating_add(SESSION_NS / 3)
}

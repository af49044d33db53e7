//! Sessions: what a handle that writes is known by to others, begun with its first write and renewed by its
//! commits.
//!
//! A handle that only reads has no session. One that writes puts its session's cell when it first needs a
//! name for an object, and every commit has the condition that the cell is as the handle wrote it. Once a
//! third of its time has passed, the next commit renews it in the same write, so that nothing runs in the
//! background. Only a pack renews it by itself, between two commits.
//!
//! Invariant: what the cell may hold, if it is there, is `cell` or one of `tried`.

use super::names::random_id;
use super::{TableError, codec};
use crate::protocol::{Cell, SessionId, Version};
use atoll_store::{Batch, Store, StoreError, WriteOptions};

/// How long a session lasts without being renewed, in nanoseconds.
const SESSION_NS: u64 = 3_600_000_000_000;

/// How often a session's cell is tried to be put under another name, should it not be known whether it was.
const ATTEMPTS_MAX: usize = 5;

/// The session of this handle, as the handle knows it.
#[derive(Clone, Debug)]
pub(super) struct OwnSession {
    pub(super) id: SessionId,
    /// It may look up who made the versions from this one on; it only rises.
    from: Version,
    /// The session's cell, as far as is known.
    pub(super) cell: Vec<u8>,
    /// What it was to become by writes of which nobody knows whether they were carried out.
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
            // A late write must not bring a session back, so a name in doubt is not used again.
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

    /// Whether it may look up who made the version after this one.
    pub(super) fn covers(&self, version: Version) -> bool {
        version >= self.from
    }

    /// The cell with which the next commit renews it, if it is time. The commit looks up nothing before the
    /// version `from`.
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

    /// Takes in that the cell was renewed.
    pub(super) fn renewed(&mut self, cell: Vec<u8>, now: u64) {
        self.cell = cell;
        // Their condition was the cell as it was.
        self.tried.clear();
        self.renew_at = renew_at(now);
    }

    /// Takes in what the cell holds; whether the session stands.
    pub(super) fn saw(&mut self, found: Option<&[u8]>) -> bool {
        let Some(found) = found else { return false };
        if let Some(place) = self.tried.iter().position(|tried| tried == found) {
            let cell = self.tried.swap_remove(place);
            // When it was tried is forgotten; renewing early does no harm.
            self.renewed(cell, 0);
        }
        self.cell == found
    }
}

fn renew_at(now: u64) -> u64 {
    now.saturating_add(SESSION_NS / 3)
}

//! The list of users that a node enforces, which can be reloaded while it serves.
//!
//! Invariant: a new list replaces the old one as a whole, or not at all.

use super::{AccessError, AccessFile, User, Users};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The list of users that a node enforces.
#[derive(Debug)]
pub(crate) struct AccessList {
    file: AccessFile,
    users: Mutex<Arc<Users>>,
    /// Held during a reload, so that of several the last one to read the file wins.
    reading: Mutex<()>,
    /// Number of reloads. Connections compare it to notice a reload without a lock.
    changes: AtomicU64,
}

/// The user of a connection, as resolved in one version of the list.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedUser {
    user: Arc<User>,
    /// The version of the list.
    changes: u64,
}

impl ResolvedUser {
    pub(crate) fn user(&self) -> &User {
        &self.user
    }
}

impl AccessList {
    /// Reads the list from a file.
    ///
    /// # Errors
    /// [`AccessError`].
    pub(crate) fn begin(file: AccessFile) -> Result<Self, AccessError> {
        let users = Mutex::new(Arc::new(file.read()?));
        Ok(Self { file, users, reading: Mutex::new(()), changes: AtomicU64::new(0) })
    }

    /// Reads the file again. On an error the list stays as it was.
    ///
    /// # Errors
    /// [`AccessError`].
    pub(crate) fn load(&self) -> Result<(), AccessError> {
        let _alone = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let users = Arc::new(self.file.read()?);
        *self.users.lock().unwrap_or_else(PoisonError::into_inner) = users;
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Number of reloads so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The current users.
    pub(crate) fn users(&self) -> Arc<Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the user if the password is right.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<ResolvedUser> {
        // Read before the users: a reload in between makes the result look stale, which only costs another
        // look-up.
        let changes = self.changes();
        let user = self.users().authenticate(name, password).cloned()?;
        Some(ResolvedUser { user, changes })
    }

    /// Whether the user of a connection is unchanged in the current list.
    pub(crate) fn still_has(&self, known: &ResolvedUser) -> bool {
        known.changes == self.changes() || self.renewed(known).is_some()
    }

    /// Resolves the user again in the current list; none if anything about it changed. A renewed user makes
    /// the next check as cheap as comparing the counter.
    pub(crate) fn renewed(&self, known: &ResolvedUser) -> Option<ResolvedUser> {
        let changes = self.changes();
        let users = self.users();
        let user = users.get(known.user.name()).filter(|user| **user == known.user)?;
        Some(ResolvedUser { user: Arc::clone(user), changes })
    }
}

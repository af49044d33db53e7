//! The list that a node goes by, which can be read again while it serves.
//!
//! Invariant: another list is taken as a whole, or not at all.

use super::{AccessError, AccessFile, User, Users};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The list that a node goes by.
#[derive(Debug)]
pub(crate) struct AccessList {
    file: AccessFile,
    users: Mutex<Arc<Users>>,
    /// Counts how often there was another one, so that connections see that without a lock.
    changes: AtomicU64,
}

/// Who a connection is, by a list.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    user: Arc<User>,
    /// The list by which that is so.
    changes: u64,
}

impl Known {
    pub(crate) fn user(&self) -> &User {
        &self.user
    }
}

impl AccessList {
    /// The list in a file.
    ///
    /// # Errors
    /// [`AccessError`].
    pub(crate) fn begin(file: AccessFile) -> Result<Self, AccessError> {
        let users = Mutex::new(Arc::new(file.read()?));
        Ok(Self { file, users, changes: AtomicU64::new(0) })
    }

    /// Reads the file again; the list stays what it was if something is wrong with it.
    ///
    /// # Errors
    /// [`AccessError`].
    pub(crate) fn load(&self) -> Result<(), AccessError> {
        let users = Arc::new(self.file.read()?);
        *self.users.lock().unwrap_or_else(PoisonError::into_inner) = users;
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The users as they are now.
    pub(crate) fn users(&self) -> Arc<Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The user who has this password.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Known> {
        let changes = self.changes.load(Ordering::Acquire);
        let user = self.users().authenticate(name, password).cloned()?;
        Some(Known { user, changes })
    }

    /// Whether a connection still is who it was: nothing about its user was changed.
    pub(crate) fn still_has(&self, known: &Known) -> bool {
        let is_newest = known.changes == self.changes.load(Ordering::Acquire);
        is_newest || self.users().get(known.user.name()) == Some(&known.user)
    }
}

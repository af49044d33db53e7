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
    /// Held while the file is read again, so that whoever reads it last is whose list counts.
    reading: Mutex<()>,
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
        let (reading, changes) = Default::default();
        Ok(Self { file, users, reading, changes })
    }

    /// Reads the file again; the list stays what it was if something is wrong with it.
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

    /// How often there was another list.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The users as they are now.
    pub(crate) fn users(&self) -> Arc<Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The user who has this password.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Known> {
        // Before the users: if another list comes in between, it is looked for again, and not missed.
        let changes = self.changes();
        let user = self.users().authenticate(name, password).cloned()?;
        Some(Known { user, changes })
    }

    /// Whether a connection still is who it was: nothing about its user was changed.
    pub(crate) fn still_has(&self, known: &Known) -> bool {
        known.changes == self.changes() || self.renewed(known).is_some()
    }

    /// The same by the newest list, if nothing about the user was changed: then a look at the count is enough
    /// again.
    pub(crate) fn renewed(&self, known: &Known) -> Option<Known> {
        let changes = self.changes();
        let users = self.users();
        let user = users.get(known.user.name()).filter(|user| **user == known.user)?;
        Some(Known { user: Arc::clone(user), changes })
    }
}

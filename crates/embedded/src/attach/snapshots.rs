//! Named snapshots over a connection. They are not part of the contract, so a store may have none.

use super::client::{Asked, AttachedStore};
use super::{Request, answer};
use atoll_store::{Store, StoreError, StoreFuture};
use std::sync::Arc;

/// Named snapshots of a store, kept by its owner.
pub trait Snapshots: Send + Sync + 'static {
    /// Keeps the present state under `name`, and returns its commit sequence number.
    ///
    /// # Errors
    /// `conflict` if the name is taken, `invalid-input` if it is not a valid name.
    fn create_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, u64>;

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// `not-found` if there is none of that name.
    fn delete_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()>;
}

/// What an owner serves.
#[derive(Clone)]
pub struct Served {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its named snapshots, if it has any.
    pub snapshots: Option<Arc<dyn Snapshots>>,
    /// The nonce of the owner's record: a client that looks for another owner is refused. With none, every
    /// client is answered.
    pub owner: Option<u64>,
}

impl From<Arc<dyn Store>> for Served {
    fn from(store: Arc<dyn Store>) -> Self {
        Self { store, snapshots: None, owner: None }
    }
}

impl Served {
    pub(super) async fn create_snapshot(&self, name: &str) -> Vec<u8> {
        match &self.snapshots {
            Some(snapshots) => answer::encode(&snapshots.create_snapshot(name).await),
            None => answer::encode::<u64>(&Err(none())),
        }
    }

    pub(super) async fn delete_snapshot(&self, name: &str) -> Vec<u8> {
        match &self.snapshots {
            Some(snapshots) => answer::encode(&snapshots.delete_snapshot(name).await),
            None => answer::encode::<()>(&Err(none())),
        }
    }
}

fn none() -> StoreError {
    StoreError::Unsupported { what: "a named snapshot".to_owned(), hint: "only stores in folders have them" }
}

impl AttachedStore {
    /// Asks the owner to keep the present state under `name`; none if the store is open in this process.
    ///
    /// # Errors
    /// Those of [`Snapshots::create_snapshot`]; `timed-out` if the owner was lost before it answered.
    pub async fn create_snapshot(&self, name: &str) -> Result<Option<u64>, StoreError> {
        Ok(match self.ask(&Request::CreateSnapshot(name.to_owned())).await? {
            Asked::Answer(sequence) => Some(sequence),
            Asked::Local(_) => None,
        })
    }

    /// Asks the owner to delete a snapshot; none if the store is open in this process.
    ///
    /// # Errors
    /// Those of [`Snapshots::delete_snapshot`]; `timed-out` if the owner was lost before it answered.
    pub async fn delete_snapshot(&self, name: &str) -> Result<Option<()>, StoreError> {
        Ok(match self.ask(&Request::DeleteSnapshot(name.to_owned())).await? {
            Asked::Answer(()) => Some(()),
            Asked::Local(_) => None,
        })
    }
}

//! Opens the store that a path or URL names: the one way in for every door.
//!
//! [`open`] takes a bare path, `file:`, `mem:`, `cassandra:` or `ring:`. [`open_with_maintenance`] also
//! returns the handle for what only an operator needs: check, statistics, snapshots, copies, backups.
//!
//! Invariant: a text that is not understood completely opens nothing, so no typing slip creates a new folder.
//! Invariant: only `stores.rs` knows the implementations by name.

mod backup;
mod carry;
mod cassandra;
pub mod fuzz;
mod maintenance;
mod options;
mod private;
mod query;
mod ring;
mod stores;
mod upkeep;
mod url;

pub use atoll_ring_client::{
    DownSlots, KeyspaceStatus, LatencyClass, NewKeyspace, NodeStatus, RING_CHANGE, RingOperator, RingSetup,
    RingStatus,
};
pub use cassandra::{CassandraQuery, CassandraUrl, TlsChoice};
pub use maintenance::{
    BackupReport, CheckReport, CopyProgress, CopyReport, Damage, DamagedCells, FormatDescription, LeftOut,
    Maintenance, SnapshotDescription, Statistic, StatisticUnit,
};
pub use options::{Mode, OpenOptions, Password};
pub use ring::RingUrl;
pub use stores::operate_ring;
pub use upkeep::copy_last_complete;
pub use url::{Location, StoreUrl, UrlError};

use atoll_store::{Store, StoreError};
use std::sync::Arc;

/// A store with its maintenance handle.
#[derive(Clone)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// What an operator needs; none if the store has nothing to maintain.
    pub maintenance: Option<Arc<dyn Maintenance>>,
    /// The name of the store in messages.
    pub place: String,
}

/// Opens the store that `url` names.
///
/// # Errors
/// `invalid-input` for a text that names no store, `unsupported` for a store that this build cannot open,
/// `not-found` for a folder that holds no store when `create` is off, and those of the store itself.
pub async fn open(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>, StoreError> {
    Ok(open_with_maintenance(url, options).await?.store)
}

/// Opens the store that `url` names, with its maintenance handle.
///
/// # Errors
/// Those of [`open`].
pub async fn open_with_maintenance(url: &str, options: &OpenOptions) -> Result<Opened, StoreError> {
    let url = StoreUrl::parse(url)?;
    let options = url.apply_to(options);
    match &url.location {
        Location::Memory => stores::open_memory(&options).await,
        Location::Folder(path) => stores::open_folder(path, &options).await,
        Location::Cassandra(url) => stores::open_cassandra(url, &options).await,
        Location::Ring(url) => stores::open_ring(url, &options).await,
    }
}

/// The guide's page about Rust, so that the program on it compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/rust.md")]
struct RustGuide;

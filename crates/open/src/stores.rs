//! The implementations by name: the one place that changes when a store is added.

use crate::{OpenOptions, Opened};
use atoll_memory::MemoryStore;
use atoll_store::StoreError;
use std::path::Path;
use std::sync::Arc;

/// A store in the memory of this process; it ends with its last handle.
pub(crate) async fn open_memory(_options: &OpenOptions) -> Result<Opened, StoreError> {
    Ok(Opened { store: Arc::new(MemoryStore::new()), maintenance: None, place: "mem:".to_owned() })
}

/// The store in a folder.
pub(crate) async fn open_folder(path: &Path, _options: &OpenOptions) -> Result<Opened, StoreError> {
    Err(StoreError::Unsupported {
        what: format!("a store in the folder {}", path.display()),
        hint: "this build holds stores in memory only: use `mem:`",
    })
}

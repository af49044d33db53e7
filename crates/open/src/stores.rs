//! The implementations by name: the one place that changes when a store is added.

use crate::upkeep::Upkeep;
use crate::{Mode, OpenOptions, Opened};
use atoll_embedded::{EmbeddedStore, StoreOptions};
use atoll_store::StoreError;
use std::path::Path;
use std::sync::Arc;

/// A store in the memory of this process; it ends with its last handle.
pub(crate) async fn open_memory(options: &OpenOptions) -> Result<Opened, StoreError> {
    let store = EmbeddedStore::in_memory(store_options(options))?;
    Ok(Opened { store: Arc::new(store), maintenance: None, place: "mem:".to_owned() })
}

/// The store in a folder: as its owner, beside its owner, or to read what is there.
pub(crate) async fn open_folder(path: &Path, options: &OpenOptions) -> Result<Opened, StoreError> {
    let place = path.display().to_string();
    if path.is_file() {
        return Err(StoreError::InvalidInput {
            what: "store URL",
            problem: format!("{place} is a file"),
            hint: "name the folder of a store",
        });
    }
    let mode = match options.mode {
        Mode::Read => atoll_embedded::Mode::Read,
        Mode::Write => atoll_embedded::Mode::Write,
    };
    let store_options = store_options(options);
    let embedded = atoll_embedded::OpenOptions {
        mode,
        create: options.create,
        store: store_options.clone(),
        ..atoll_embedded::OpenOptions::default()
    };
    let folder = atoll_embedded::open(path, embedded).await?;
    let store = folder.store();
    let maintenance = Arc::new(Upkeep::new(path.to_path_buf(), folder, store_options));
    Ok(Opened { store, maintenance: Some(maintenance), place })
}

fn store_options(options: &OpenOptions) -> StoreOptions {
    let mut store = StoreOptions::default();
    store.engine.memory_bytes = options.memory_bytes;
    store.engine.checkpoint_bytes = options.checkpoint_bytes;
    store.engine.keep = options.keep;
    store
}

//! The contract on a folder or in memory: owned by one process, shared with others through it.
//!
//! [`open`] opens the store in a folder; [`EmbeddedStore`] is the contract on an engine in this process;
//! [`open_folder`] lets several processes have any store in a folder open at once.
//!
//! Invariant: one process at a time owns a folder, and only it opens the store to write.

// The contract on the engine.
mod open;
mod read_only;
mod store;

// Sharing a folder among processes.
pub mod attach;
mod folder;
pub mod owner;

pub use folder::{FolderOptions, OpenStore, background, open_folder};
pub use open::{
    COPY_FILE, FolderStore, OpenOptions, PART_FILE, STORE_FILE, UNFINISHED_FILE, open, open_last_state,
};
pub use owner::Mode;
pub use store::{CellKeys, EmbeddedStore, StoreOptions, hurt_cells, refused};

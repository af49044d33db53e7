//! The contract on a folder: owned by one process, shared with others through it.
//!
//! [`open_folder`] makes any store that lies in a folder one that several processes can have open at once.
//!
//! Invariant: one process at a time owns a folder, and only it opens the store to write.

// Sharing a folder among processes.
pub mod attach;
mod folder;
pub mod owner;

pub use folder::{FolderOptions, OpenStore, background, open_folder};

mod store;

pub use store::{EmbeddedStore, StoreOptions};

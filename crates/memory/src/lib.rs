//! The contract on a plain ordered map behind a mutex: the model that every other store is compared with.
//!
//! It is written to be obviously right, not to be fast: one map, one lock, one place where a batch is
//! applied. It persists nothing, so its only durability class is `buffered`.
//!
//! Invariant: every operation takes effect at one instant, while the lock is held.

mod map;
mod options;
mod requests;
mod splits;
mod store;

pub use options::{Options, OptionsError};
pub use store::MemoryStore;

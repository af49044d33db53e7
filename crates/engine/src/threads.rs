//! Locks, atomic words and threads: what threads of the engine meet at comes from here.
//!
//! Invariant: a lock that is held while the disk is asked, or while another one is taken, comes from here. Counters that
//! nothing waits for, and the pool of frames, need not.

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
pub(crate) use std::thread::{Builder, JoinHandle};

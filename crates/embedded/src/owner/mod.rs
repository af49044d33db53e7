//! Ownership of a folder: one process at a time owns it; the others attach to the owner.
//!
//! [`settle`] looks at the folder, decides, and acts, until this process owns it, has a connection to the
//! owner, or may only read. On local file systems the kernel's lock shows that the owner is alive; elsewhere
//! a lock file does, created by link, replaced by rename and kept alive by a heartbeat.
//!
//! Invariant: at most one process owns a folder.
//! Invariant: the lock of another host is never taken over.
//! Invariant: a reader writes not a byte.

mod decide;
mod error;
mod file_system;
mod held;
mod host;
mod lock;
mod record;
mod settle;
mod socket;

pub use decide::{Decision, Heartbeat, Host, Lock, Mode, Observed, Owner, Process, Socket, decide};
pub use error::OwnerError;
pub use file_system::{FileSystem, Locking};
pub use held::Ownership;
pub use host::HostIdentity;
pub use lock::LOCK_FILE;
pub use record::OwnerRecord;
pub use settle::{OwnerOptions, Settled, settle};
pub use socket::run_time_folders;

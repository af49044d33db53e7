//! Who owns a folder: one process at a time; the others attach to it.
//!
//! [`settle`] looks at the folder, decides, and acts, until this process owns it, has a connection to the
//! owner, or may only read. On local file systems the kernel's lock says who lives; elsewhere a lock file
//! does, made by link, replaced by rename, kept alive by a heartbeat.
//!
//! Invariant: at most one process owns a folder.
//! Invariant: the lock of another host is never taken over.
//! Invariant: to read, not a byte is written.

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

//! How a store is opened.

use std::time::Duration;

/// Whether a store is opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Reading and writing; the folder has one owner, and other processes attach to it.
    #[default]
    Write,
    /// Reading only: not a byte of the folder changes.
    Read,
    /// Like [`Self::Read`], and a damaged log is read up to the damage: what was written after it is left
    /// out.
    Salvage,
}

/// How a store is opened; options in the query of a URL take precedence over these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether the store is opened for writing. Default [`Mode::Write`].
    pub mode: Mode,
    /// Whether to create a store in a folder that holds none; never when only reading. Default true.
    pub create: bool,
    /// Memory budget in bytes. Default 1 GiB.
    pub memory_bytes: u64,
    /// Bytes of log that trigger a checkpoint. Default 1 GiB.
    pub checkpoint_bytes: u64,
    /// How long unreferenced space is kept for readers without a lease. Default 10 minutes; never more than a
    /// quarter of the file, beyond which the oldest is used again earlier.
    pub keep: Duration,
    /// The password for stores that ask for one. Default none.
    pub password: Option<Password>,
}

/// A password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Write,
            create: true,
            memory_bytes: 1 << 30,
            checkpoint_bytes: 1 << 30,
            keep: Duration::from_secs(600),
            password: None,
        }
    }
}

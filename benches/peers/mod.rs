//! An adapter for each engine behind one small trait, all configured alike.
//!
//! Alike means: one folder on a real file system; every acknowledged write survives the end of the process if
//! the engine can promise that; no compression, no encryption, 8 GiB of cache. If an engine cannot give what
//! the others give, the difference is in its favour and is documented in the README.

use std::path::Path;

mod atoll;
#[cfg(feature = "berkeley")]
mod berkeley;
#[cfg(feature = "bf-tree")]
mod bf_tree;
#[cfg(feature = "fjall")]
mod fjall;
mod floor;
mod harness;
#[cfg(feature = "kyoto")]
mod kyoto;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

/// Cache size of every engine that has one.
pub const CACHE_BYTES: u64 = 8 << 30;

/// Any error of any engine; the bench can only report it.
pub type EngineError = Box<dyn std::error::Error + Send + Sync>;

/// Makes a handle on an open store; called in the thread that will use it.
pub type Beside = Box<dyn FnOnce() -> Box<dyn Engine> + Send>;

/// An ordered map under measurement.
///
/// Callbacks see values in place if the engine can show them so; otherwise it passes a copy.
pub trait Engine {
    /// Inserts all records in one batch, as atomically as the engine can; by default one by one.
    fn load_batch(
        &mut self,
        records: &mut dyn ExactSizeIterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        for (key, value) in records {
            self.put(key, value)?;
        }
        Ok(())
    }

    /// Sets one key.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError>;

    /// Passes the value of one key, or none, to `found`.
    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError>;

    /// Passes the values of many keys, each with its index, in any order; by default one by one.
    fn get_many(
        &mut self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), EngineError> {
        for (place, key) in keys.iter().enumerate() {
            self.get(key, &mut |value| found(place, value))?;
        }
        Ok(())
    }

    /// Removes one existing key.
    fn remove(&mut self, _key: &[u8]) -> Result<(), EngineError> {
        Err("this adapter removes nothing".into())
    }

    /// Passes up to `count` entries from `first` on, ascending.
    fn scan(
        &mut self,
        _first: &[u8],
        _count: usize,
        _entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        Err("this adapter does not scan".into())
    }

    /// Only reads follow: an engine may hold one read transaction over all of them.
    fn expect_only_reads(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// How many records opening replayed from a log, if the engine reports it.
    fn records_replayed(&self) -> Option<u64> {
        None
    }

    /// A handle on the same store for another thread.
    fn beside(&self) -> Result<Beside, EngineError> {
        Err("this adapter serves one thread".into())
    }

    /// Takes a snapshot of the current state, if the engine can, and holds it.
    fn hold_snapshot(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Drops the snapshot.
    fn let_go_of_snapshot(&mut self) {}

    /// Writes out everything that exists only in the log.
    fn checkpoint(&mut self) -> Result<(), EngineError> {
        self.settle()
    }

    /// Copies the current state to a new store in this folder, by scans of a snapshot.
    fn copy_by_scans(&mut self, _folder: &Path) -> Result<(), EngineError> {
        Err("this adapter copies no store".into())
    }

    /// The number of log segments cleaned since the store was opened; `None` if the engine does not clean a
    /// log.
    fn segments_cleaned(&self) -> Option<u64> {
        None
    }

    /// Waits for background work and makes everything durable, once.
    fn settle(&mut self) -> Result<(), EngineError>;

    /// Closes the store; anything that stays open is a bug in the adapter.
    fn close(self: Box<Self>) -> Result<(), EngineError>;
}

/// The engines this bench knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// Atoll's own.
    Atoll,
    /// RocksDB.
    Rocksdb,
    /// LMDB through heed.
    Lmdb,
    /// redb.
    Redb,
    /// fjall.
    Fjall,
    /// Bf-Tree.
    BfTree,
    /// Kyoto Cabinet's hash table: measured with short pairs only, as are the next two.
    Kyoto,
    /// Berkeley DB as a hash table.
    BerkeleyHash,
    /// Berkeley DB as a tree.
    BerkeleyTree,
    /// The ordered map of the standard library: no disk, no crash safety.
    Floor,
    /// No engine at all: the cost of the bench itself.
    Harness,
}

impl EngineName {
    /// All engines, in the order of the tables.
    pub const ALL: [Self; 11] = [
        Self::Atoll,
        Self::Rocksdb,
        Self::Lmdb,
        Self::Redb,
        Self::Fjall,
        Self::BfTree,
        Self::Kyoto,
        Self::BerkeleyHash,
        Self::BerkeleyTree,
        Self::Floor,
        Self::Harness,
    ];

    /// A stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Atoll => "atoll",
            Self::Rocksdb => "rocksdb",
            Self::Lmdb => "lmdb",
            Self::Redb => "redb",
            Self::Fjall => "fjall",
            Self::BfTree => "bf-tree",
            Self::Kyoto => "kyoto",
            Self::BerkeleyHash => "berkeley-hash",
            Self::BerkeleyTree => "berkeley-tree",
            Self::Floor => "floor",
            Self::Harness => "harness",
        }
    }

    /// The engine of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Whether this build includes it.
    pub const fn is_built(self) -> bool {
        match self {
            Self::Rocksdb => cfg!(feature = "rocksdb"),
            Self::Lmdb => cfg!(feature = "lmdb"),
            Self::Redb => cfg!(feature = "redb"),
            Self::Fjall => cfg!(feature = "fjall"),
            Self::BfTree => cfg!(feature = "bf-tree"),
            Self::Kyoto => cfg!(feature = "kyoto"),
            Self::BerkeleyHash | Self::BerkeleyTree => cfg!(feature = "berkeley"),
            Self::Atoll | Self::Floor | Self::Harness => true,
        }
    }

    /// Whether it is a rival, as opposed to Atoll or a floor.
    pub const fn is_peer(self) -> bool {
        !matches!(self, Self::Atoll | Self::Floor | Self::Harness)
    }

    /// Whether it is measured with short pairs only.
    pub const fn has_only_pairs(self) -> bool {
        matches!(self, Self::Kyoto | Self::BerkeleyHash | Self::BerkeleyTree)
    }

    /// Whether a closed store can be opened again.
    pub const fn is_persistent(self) -> bool {
        !matches!(self, Self::Floor | Self::Harness)
    }

    /// Whether its adapter supports two threads.
    pub const fn serves_two(self) -> bool {
        matches!(self, Self::Atoll | Self::Rocksdb | Self::Lmdb)
    }

    /// Whether acknowledged writes survive a killed process in the measured configuration.
    pub const fn survives_kill(self) -> bool {
        matches!(self, Self::Atoll | Self::Rocksdb | Self::Lmdb | Self::Fjall)
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OpenOptions {
    /// Length of the values.
    pub value_bytes: usize,
    /// How many records will be stored, for engines that want to know.
    pub records: u64,
    /// Whether to write no checkpoints, so that the whole load is a log tail when the process is killed.
    pub keep_tail: bool,
    /// Memory for caches and buffers instead of the common size, and no page cache where the engine can
    /// avoid it.
    pub budget_bytes: Option<u64>,
}

impl OpenOptions {
    /// Memory for caches.
    pub fn cache_bytes(&self) -> u64 {
        self.budget_bytes.unwrap_or(CACHE_BYTES)
    }
}

/// Opens the store in `folder`, or creates it if the folder is empty.
pub fn open(name: EngineName, folder: &Path, options: OpenOptions) -> Result<Box<dyn Engine>, EngineError> {
    std::fs::create_dir_all(folder)?;
    match name {
        EngineName::Atoll => Ok(Box::new(atoll::Atoll::open(folder, options)?)),
        #[cfg(feature = "rocksdb")]
        EngineName::Rocksdb => Ok(Box::new(rocksdb::Rocks::open(folder, options)?)),
        #[cfg(feature = "lmdb")]
        EngineName::Lmdb => Ok(Box::new(lmdb::Lmdb::open(folder)?)),
        #[cfg(feature = "redb")]
        EngineName::Redb => Ok(Box::new(redb::Redb::open(folder)?)),
        #[cfg(feature = "fjall")]
        EngineName::Fjall => Ok(Box::new(fjall::Fjall::open(folder)?)),
        #[cfg(feature = "bf-tree")]
        EngineName::BfTree => Ok(Box::new(bf_tree::BfTree::open(folder)?)),
        #[cfg(feature = "kyoto")]
        EngineName::Kyoto => Ok(Box::new(kyoto::Kyoto::open(folder, options)?)),
        #[cfg(feature = "berkeley")]
        EngineName::BerkeleyHash => {
            Ok(Box::new(berkeley::Berkeley::open(folder, options, berkeley::Kind::Hash)?))
        }
        #[cfg(feature = "berkeley")]
        EngineName::BerkeleyTree => {
            Ok(Box::new(berkeley::Berkeley::open(folder, options, berkeley::Kind::Tree)?))
        }
        EngineName::Floor => Ok(Box::new(floor::Floor::default())),
        EngineName::Harness => Ok(Box::new(harness::Harness::new(options.value_bytes))),
        #[allow(unreachable_patterns, reason = "which engines are left depends on the features")]
        missing => Err(format!("this build has no {}: build with --features peers", missing.name()).into()),
    }
}

#[cfg(test)]
mod tests;

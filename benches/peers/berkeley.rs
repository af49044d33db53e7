//! Berkeley DB as a hash table and as a tree, without transactions and without a log: its fastest mode.
//! Written data stays in its cache until it is closed, so nothing survives a killed process.

use super::{Engine, EngineError, OpenOptions};
use crate::workloads::KEY_BYTES;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[repr(C)]
struct Db {
    _opaque: [u8; 0],
}

// `peers/berkeley.c`.
#[allow(unsafe_code, reason = "a library in C")]
unsafe extern "C" {
    fn atoll_berkeley_open(
        path: *const c_char,
        is_tree: c_int,
        cache_bytes: u64,
        records: u32,
        record_bytes: u32,
        error: *mut c_int,
    ) -> *mut Db;
    #[cfg(test)]
    fn atoll_berkeley_buckets(db: *mut Db) -> i64;
    fn atoll_berkeley_put(
        db: *mut Db,
        key: *const c_void,
        key_len: u32,
        value: *const c_void,
        value_len: u32,
    ) -> c_int;
    fn atoll_berkeley_get(
        db: *mut Db,
        key: *const c_void,
        key_len: u32,
        target: *mut c_void,
        room: u32,
        error: *mut c_int,
    ) -> i64;
    fn atoll_berkeley_remove(db: *mut Db, key: *const c_void, key_len: u32) -> c_int;
    fn atoll_berkeley_sync(db: *mut Db) -> c_int;
    fn atoll_berkeley_close(db: *mut Db) -> c_int;
}

/// How Berkeley DB keeps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hash,
    Tree,
}

/// An open file.
pub struct Berkeley {
    db: *mut Db,
    found: Vec<u8>,
}

impl Berkeley {
    /// Opens or creates a file, with the cache size that all engines share, and announces the number of
    /// records.
    #[allow(unsafe_code, reason = "a library in C")]
    pub fn open(folder: &Path, options: OpenOptions, kind: Kind) -> Result<Self, EngineError> {
        let path = CString::new(folder.join("records.db").as_os_str().as_bytes())?;
        let is_tree = c_int::from(kind == Kind::Tree);
        let records = u32::try_from(options.records)?;
        let record_bytes = u32::try_from(KEY_BYTES + options.value_bytes)?;
        let mut error = 0;
        // SAFETY: the path ends with a zero and lives through the call, as does `error`.
        let db = unsafe {
            let path = path.as_ptr();
            atoll_berkeley_open(path, is_tree, options.cache_bytes(), records, record_bytes, &mut error)
        };
        if db.is_null() {
            return Err(failed("open", error));
        }
        Ok(Self { db, found: vec![0; options.value_bytes] })
    }
}

fn failed(what: &str, error: c_int) -> EngineError {
    format!("Berkeley DB cannot {what}: error {error}").into()
}

fn done(what: &str, error: c_int) -> Result<(), EngineError> {
    if error == 0 { Ok(()) } else { Err(failed(what, error)) }
}

#[allow(unsafe_code, reason = "a library in C")]
impl Engine for Berkeley {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        // SAFETY: the file is open, and both slices live through the call, which copies them.
        let error = unsafe {
            atoll_berkeley_put(
                self.db,
                key.as_ptr().cast(),
                key.len() as u32,
                value.as_ptr().cast(),
                value.len() as u32,
            )
        };
        done("put", error)
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        let mut error = 0;
        // SAFETY: the file is open, the key lives through the call, and the call writes no more than the
        // given length.
        let len = unsafe {
            atoll_berkeley_get(
                self.db,
                key.as_ptr().cast(),
                key.len() as u32,
                self.found.as_mut_ptr().cast(),
                self.found.len() as u32,
                &mut error,
            )
        };
        match usize::try_from(len) {
            Ok(len) => found(self.found.get(..len)),
            Err(_) if len == -1 => found(None),
            Err(_) => return Err(failed("get", error)),
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), EngineError> {
        // SAFETY: the file is open, and the key lives through the call.
        let error = unsafe { atoll_berkeley_remove(self.db, key.as_ptr().cast(), key.len() as u32) };
        done("remove", error)
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        // SAFETY: the file is open.
        done("sync", unsafe { atoll_berkeley_sync(self.db) })
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        // SAFETY: the file is open, and the handle is not used after this.
        done("close", unsafe { atoll_berkeley_close(self.db) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "a library in C")]
    fn a_hash_table_has_its_buckets_before_the_first_record() {
        let folder = std::env::temp_dir().join(format!("atoll-bench-berkeley-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let options = OpenOptions { value_bytes: 16, records: 1_000_000, ..OpenOptions::default() };
        let opened = Berkeley::open(&folder, options, Kind::Hash).expect("opens");
        // SAFETY: the file is open.
        let buckets = unsafe { atoll_berkeley_buckets(opened.db) };
        Box::new(opened).close().expect("closes");
        std::fs::remove_dir_all(&folder).expect("goes away");
        assert!(buckets >= 1_000_000 / 84, "{buckets} buckets");
    }
}

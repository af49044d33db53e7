//! Kyoto Cabinet's hash table in a mapped file, with twice as many buckets as records, as its authors advise.
//! It is not synced until it is closed.

use super::{Engine, EngineError, OpenOptions};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;

const OPEN_WRITER: u32 = 1 << 1;
const OPEN_CREATE: u32 = 1 << 2;

#[repr(C)]
struct Kcdb {
    _opaque: [u8; 0],
}

// `kclangc.h`, version 1.2.79.
#[allow(unsafe_code, reason = "a library in C++ with a door for C")]
unsafe extern "C" {
    fn kcdbnew() -> *mut Kcdb;
    fn kcdbdel(db: *mut Kcdb);
    fn kcdbopen(db: *mut Kcdb, path: *const c_char, mode: u32) -> i32;
    fn kcdbclose(db: *mut Kcdb) -> i32;
    fn kcdbemsg(db: *mut Kcdb) -> *const c_char;
    fn kcdbset(
        db: *mut Kcdb,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    ) -> i32;
    fn kcdbgetbuf(db: *mut Kcdb, key: *const c_char, key_len: usize, target: *mut c_char, room: usize)
    -> i32;
    fn kcdbremove(db: *mut Kcdb, key: *const c_char, key_len: usize) -> i32;
    fn kcdbsync(
        db: *mut Kcdb,
        hard: i32,
        processor: Option<extern "C" fn(*const c_char, i64, i64, *mut c_void) -> i32>,
        opaque: *mut c_void,
    ) -> i32;
}

/// An open file.
pub struct Kyoto {
    db: *mut Kcdb,
    found: Vec<u8>,
}

impl Kyoto {
    /// Opens or creates it.
    #[allow(unsafe_code, reason = "a library in C++ with a door for C")]
    pub fn open(folder: &Path, options: OpenOptions) -> Result<Self, EngineError> {
        let file = folder.join("records.kch");
        let file = file.to_str().ok_or("Kyoto Cabinet wants a path of text")?;
        // Linear lists instead of trees in a bucket: records are shorter, and with so many buckets no list
        // is long.
        let buckets = 2 * options.records.max(1);
        let path = format!("{file}#bnum={buckets}#msiz={}#opts=l", options.cache_bytes());
        let path = CString::new(path)?;
        // SAFETY: creates a handle, which `close` frees.
        let store = Self { db: unsafe { kcdbnew() }, found: vec![0; options.value_bytes] };
        // SAFETY: the handle is valid, and the path is zero-terminated and lives through the call.
        let done = unsafe { kcdbopen(store.db, path.as_ptr(), OPEN_WRITER | OPEN_CREATE) };
        store.checked("open", done)?;
        Ok(store)
    }

    #[allow(unsafe_code, reason = "a library in C++ with a door for C")]
    fn checked(&self, what: &str, done: i32) -> Result<(), EngineError> {
        if done != 0 {
            return Ok(());
        }
        // SAFETY: the handle is valid, and its message is a C string that lives as long as it.
        let message = unsafe { CStr::from_ptr(kcdbemsg(self.db)) };
        Err(format!("Kyoto Cabinet cannot {what}: {}", message.to_string_lossy()).into())
    }
}

#[allow(unsafe_code, reason = "a library in C++ with a door for C")]
impl Engine for Kyoto {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        // SAFETY: the file is open, and both slices live through the call, which copies them.
        let done =
            unsafe { kcdbset(self.db, key.as_ptr().cast(), key.len(), value.as_ptr().cast(), value.len()) };
        self.checked("set", done)
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        // SAFETY: the file is open, the key lives through the call, and the call writes no more than the
        // given length.
        let len = unsafe {
            kcdbgetbuf(
                self.db,
                key.as_ptr().cast(),
                key.len(),
                self.found.as_mut_ptr().cast(),
                self.found.len(),
            )
        };
        found(usize::try_from(len).ok().and_then(|len| self.found.get(..len)));
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), EngineError> {
        // SAFETY: the file is open, and the key lives through the call.
        let done = unsafe { kcdbremove(self.db, key.as_ptr().cast(), key.len()) };
        self.checked("remove", done)
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        // SAFETY: the file is open; no file processor is given.
        let done = unsafe { kcdbsync(self.db, 1, None, std::ptr::null_mut()) };
        self.checked("sync", done)
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        // SAFETY: the file is open.
        let closed = self.checked("close", unsafe { kcdbclose(self.db) });
        // SAFETY: the handle is not used after this.
        unsafe { kcdbdel(self.db) };
        closed
    }
}

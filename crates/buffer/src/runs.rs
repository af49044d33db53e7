//! Runs: parts of slabs, each to be cut into blocks of one length.
//!
//! Invariant: a run has one owner, or is free in the pool.
#![expect(unsafe_code, reason = "memory by address, docs/decisions/0015-unsafe.md")]

use crate::deferred;
use crate::parts::{Elsewhere, Pool, Purpose, words_for};
use crate::slab::Slab;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a run: few enough that most runs empty where memory is taken for other lengths than before.
pub(crate) const RUN_BYTES: usize = 16 << 10;

static POOL: Mutex<Pool<RUN_BYTES, { words_for(RUN_BYTES) }>> = Mutex::new(Pool::new());

/// Number of owners that are giving back all their memory; while there are any, only whole slabs go back.
static ENDINGS: AtomicUsize = AtomicUsize::new(0);

/// Runs in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory for blocks of all lengths: of those in use, and [`crate::unused_bytes`].
#[must_use]
pub fn run_bytes() -> usize {
    USED.load(Ordering::Relaxed) * RUN_BYTES
}

/// The address of a run, held by its one owner.
pub(crate) struct Run(NonNull<u8>);

// SAFETY: it is an address; the memory there belongs to its owner.
unsafe impl Send for Run {}

impl Run {
    /// The address of the byte at `offset`, which is below [`RUN_BYTES`].
    pub(crate) fn at(&self, offset: usize) -> Option<NonNull<u8>> {
        debug_assert!(offset < RUN_BYTES, "no byte of the run");
        NonNull::new(self.0.as_ptr().wrapping_add(offset))
    }

    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

/// Takes a run, whose bytes are initialised; none while another thread takes or gives one, and none where no
/// slab can be mapped.
pub(crate) fn take(purpose: Purpose) -> Option<Run> {
    let mut pool = crate::tried(&POOL)?;
    let run = pool.take(purpose).map(Run);
    USED.store(pool.used(), Ordering::Relaxed);
    run
}

/// Gives a run back, and returns the slab that goes back to the system with it, if one does. While another
/// thread takes or gives a run, this one is returned as the error.
///
/// # Safety
/// Nothing refers to the bytes of the run any more.
pub(crate) unsafe fn give(run: Run) -> Result<Option<Slab>, Run> {
    let Some(mut pool) = crate::tried(&POOL) else { return Err(run) };
    // SAFETY: it came from this pool, and its one owner hands it over; the caller promises that nothing
    // refers to its bytes.
    let given = unsafe { pool.give(run.0, may_thin_out()) };
    USED.store(pool.used(), Ordering::Relaxed);
    Ok(given.unwrap_or_else(|Elsewhere| unreachable!("runs come from there")))
}

fn may_thin_out() -> bool {
    ENDINGS.load(Ordering::Relaxed) == 0
}

/// Gives back the pages behind free runs while there are too many, unless whole slabs will soon be given
/// back.
pub(crate) fn thin_out() {
    match crate::tried(&POOL) {
        Some(mut pool) => while may_thin_out() && pool.thin_out() {},
        None => deferred::note(deferred::PAGES),
    }
}

/// An owner begins to give much memory back.
pub(crate) fn ending_begins() {
    ENDINGS.fetch_add(1, Ordering::Relaxed);
}

/// It is done.
pub(crate) fn ending_ends() {
    ENDINGS.fetch_sub(1, Ordering::Relaxed);
}

/// Holds the lock of the pool, as another thread might.
#[cfg(all(test, not(miri), not(atoll_plain_memory)))]
pub(crate) fn busy() -> impl Sized {
    POOL.lock()
}

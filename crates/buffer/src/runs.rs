//! Runs: parts of slabs, each to be cut into blocks of one length.
//!
//! Invariant: a run has one owner, or is free in the pool.
#![expect(unsafe_code, reason = "memory by address, docs/decisions/0015-unsafe.md")]

use crate::missed;
use crate::parts::{Elsewhere, Pool, Purpose, words_for};
use crate::slab::Slab;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a run: few enough that most runs empty where memory is taken for other lengths than before.
pub(crate) const RUN_BYTES: usize = 16 << 10;

static POOL: Mutex<Pool<RUN_BYTES, { words_for(RUN_BYTES) }>> = Mutex::new(Pool::new());

/// How many give back all that they have; while any does, no pages go back but those of whole slabs.
static ENDINGS: AtomicUsize = AtomicUsize::new(0);

/// Runs that are in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory for blocks of all lengths: of those that are in use, and [`crate::unused_bytes`].
#[must_use]
pub fn run_bytes() -> usize {
    USED.load(Ordering::Relaxed) * RUN_BYTES
}

/// The address of a run that one owner has.
pub(crate) struct Run(NonNull<u8>);

// SAFETY: it is an address; what lies there is its owner's.
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

/// Takes a run, whose bytes are initialised; none while somebody else takes or gives one, and where no slab
/// can be mapped.
pub(crate) fn take(purpose: Purpose) -> Option<Run> {
    let mut pool = crate::tried(&POOL)?;
    let run = pool.take(purpose).map(Run);
    USED.store(pool.used(), Ordering::Relaxed);
    run
}

/// Gives a run back; the slab that goes back to the system with it, if one does. It comes back itself while
/// somebody else takes or gives one.
///
/// # Safety
/// Nothing refers to the bytes of the run any more.
pub(crate) unsafe fn give(run: Run) -> Result<Option<Slab>, Run> {
    let Some(mut pool) = crate::tried(&POOL) else { return Err(run) };
    // SAFETY: it came from there, and its one owner hands it over; as the caller promises, nothing refers to
    // its bytes.
    let given = unsafe { pool.give(run.0, may_thin_out()) };
    USED.store(pool.used(), Ordering::Relaxed);
    Ok(given.unwrap_or_else(|Elsewhere| unreachable!("runs come from there")))
}

fn may_thin_out() -> bool {
    ENDINGS.load(Ordering::Relaxed) == 0
}

/// Gives pages behind free runs back while there are too many, unless somebody will soon give whole slabs
/// back.
pub(crate) fn thin_out() {
    match crate::tried(&POOL) {
        Some(mut pool) => while may_thin_out() && pool.thin_out() {},
        None => missed::note(missed::PAGES),
    }
}

/// Somebody begins to give much back.
pub(crate) fn ending_begins() {
    ENDINGS.fetch_add(1, Ordering::Relaxed);
}

/// And is done with it.
pub(crate) fn ending_ends() {
    ENDINGS.fetch_sub(1, Ordering::Relaxed);
}

/// The lock of the pool, as somebody else may have it.
#[cfg(all(test, not(miri), not(atoll_plain_memory)))]
pub(crate) fn busy() -> impl Sized {
    POOL.lock()
}

//! Runs: parts of slabs, each to be cut into blocks of one length.
//!
//! As for leaves of the engine (docs/decisions/0016-frames.md): what is read from a disk will be looked at for a long time, so
//! slabs for reading are huge pages from the start; those for writing may become such once they are full, for a writer should
//! not wait for two megabytes to be cleared. A slab in which nothing is left goes back to the system; one such slab is kept.
//! Where much is free, so do the pages behind that.
//!
//! Invariant: a run is in use or free in its slab, never both.

use crate::slab::{SLAB_BYTES, Slab};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a run: few enough that most runs empty where memory is taken for other lengths than before.
pub(crate) const RUN_BYTES: usize = 16 << 10;

const RUNS: usize = SLAB_BYTES / RUN_BYTES;

/// One bit for each run of a slab.
type Bits = u128;

const _: () = assert!(RUNS == Bits::BITS as usize);

/// Free runs that memory lies behind are kept up to this share of those in use, and those of one slab.
const SPARE_SHARE: usize = 16;

/// A slab with fewer of them is left alone: it would cost many calls and its huge page, and give back little.
const SPARE_LEAST: usize = RUNS / 8;

/// What memory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What is read from a disk.
    Reading,
    /// Anything else.
    Writing,
}

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

/// How many give back all that they have; while any does, no pages go back but those of whole slabs.
static ENDINGS: AtomicUsize = AtomicUsize::new(0);

/// The address of a run that one owner has.
pub(crate) struct Run(NonNull<u8>);

// SAFETY: it is an address; what lies there is its owner's.
#[expect(unsafe_code, reason = "memory by address, docs/decisions/0015-unsafe.md")]
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

/// Takes a run, whose bytes are initialised; none while somebody else takes or gives one.
pub(crate) fn take(purpose: Purpose) -> Option<Run> {
    Some(crate::tried(&POOL)?.take(purpose))
}

/// Gives a run back, in which nothing is left; the slab that goes back to the system with it, if one does. It comes back itself
/// while somebody else takes or gives one.
pub(crate) fn give(run: Run) -> Result<Option<Slab>, Run> {
    match crate::tried(&POOL) {
        Some(mut pool) => Ok(pool.give(&run)),
        None => Err(run),
    }
}

/// Much will be given back: whole slabs go to the system meanwhile, and no parts of those that soon follow.
pub struct Ending(());

/// Begins to give much back, for as long as the answer is kept.
#[must_use]
pub fn ending() -> Ending {
    ENDINGS.fetch_add(1, Ordering::Relaxed);
    Ending(())
}

impl Drop for Ending {
    fn drop(&mut self) {
        ENDINGS.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut pool) = crate::tried(&POOL) {
            while pool.thin_out() {}
        }
    }
}

/// Every slab that was not given back to the system.
struct Pool {
    /// By address.
    slabs: BTreeMap<usize, Parted>,
    /// Those with a free run, by purpose; the lowest is used first, so that the others may empty.
    open: [BTreeSet<usize>; 2],
    /// How many are empty.
    empty: usize,
    /// Runs in use.
    used: usize,
    /// Free runs that memory lies behind.
    spare: usize,
    /// Slabs with at least [`SPARE_LEAST`] of those.
    laden: BTreeSet<usize>,
}

struct Parted {
    slab: Slab,
    purpose: Purpose,
    free: Bits,
    /// Of those, the ones that memory lies behind.
    backed: Bits,
    /// Some of its pages were given back.
    is_thin: bool,
}

impl Pool {
    const fn new() -> Self {
        Self {
            slabs: BTreeMap::new(),
            open: [BTreeSet::new(), BTreeSet::new()],
            empty: 0,
            used: 0,
            spare: 0,
            laden: BTreeSet::new(),
        }
    }

    fn take(&mut self, purpose: Purpose) -> Run {
        // A run that is there is better than the right kind of slab: memory is what budgets are about.
        let other = [Purpose::Writing, Purpose::Reading][usize::from(purpose == Purpose::Writing)];
        let open = self.open[purpose as usize].first().or_else(|| self.open[other as usize].first());
        let base = match open {
            Some(&base) => base,
            None => self.add_slab(purpose),
        };
        let Some(slab) = self.slabs.get_mut(&base) else { unreachable!("an open slab is one of the slabs") };
        self.empty -= usize::from(slab.free == Bits::MAX);
        let (index, was_backed) = slab.take();
        self.used += 1;
        self.spare -= usize::from(was_backed);
        if was_backed && slab.spare() + 1 == SPARE_LEAST {
            self.laden.remove(&base);
        }
        if slab.free == 0 {
            self.open[slab.purpose as usize].remove(&base);
            if slab.purpose == Purpose::Writing || slab.is_thin {
                slab.slab.may_be_huge();
                slab.is_thin = false;
            }
        }
        Run(slab.slab.at(index * RUN_BYTES))
    }

    /// The slab that is to go back to the system, if this run was its last and another one is empty.
    fn give(&mut self, run: &Run) -> Option<Slab> {
        let address = run.address();
        let (&base, slab) = self.slabs.range_mut(..=address).next_back()?;
        let bit = 1 << ((address - base) / RUN_BYTES);
        debug_assert!(slab.free & bit == 0, "given back twice");
        slab.free |= bit;
        slab.backed |= bit;
        self.used -= 1;
        self.spare += 1;
        if slab.spare() == SPARE_LEAST {
            self.laden.insert(base);
        }
        let open = &mut self.open[slab.purpose as usize];
        open.insert(base);
        if slab.free == Bits::MAX && self.empty > 0 {
            self.spare -= slab.spare();
            open.remove(&base);
            self.laden.remove(&base);
            return self.slabs.remove(&base).map(|parted| parted.slab);
        }
        self.empty += usize::from(slab.free == Bits::MAX);
        self.thin_out();
        None
    }

    /// Gives pages of free runs back when there are too many, those of one slab; whether it did.
    ///
    /// The last slab gives first, for the first is used first.
    fn thin_out(&mut self) -> bool {
        if ENDINGS.load(Ordering::Relaxed) > 0 || self.spare <= self.used / SPARE_SHARE + RUNS {
            return false;
        }
        let slab = self.laden.pop_last().and_then(|base| self.slabs.get_mut(&base));
        let is_found = slab.is_some();
        if let Some(slab) = slab {
            self.spare -= slab.spare();
            slab.thin_out();
        }
        is_found
    }

    fn add_slab(&mut self, purpose: Purpose) -> usize {
        let slab = Slab::map();
        if purpose == Purpose::Reading {
            slab.may_be_huge();
        }
        let base = slab.at(0).as_ptr().addr();
        // With its first run all of a huge page is there.
        let backed = if purpose == Purpose::Reading { Bits::MAX } else { 0 };
        let parted = Parted { slab, purpose, free: Bits::MAX, backed, is_thin: false };
        self.spare += parted.spare();
        if parted.spare() >= SPARE_LEAST {
            self.laden.insert(base);
        }
        self.slabs.insert(base, parted);
        self.open[purpose as usize].insert(base);
        self.empty += 1;
        base
    }
}

impl Parted {
    /// Marks a free run as used, of which there is one; whether memory lies behind it, as it does if it can.
    fn take(&mut self) -> (usize, bool) {
        let was_backed = self.backed != 0;
        let bits = if was_backed { self.backed } else { self.free };
        let index = bits.trailing_zeros();
        self.free &= !(1 << index);
        self.backed &= !(1 << index);
        (index as usize, was_backed)
    }

    /// How many free runs memory lies behind.
    fn spare(&self) -> usize {
        self.backed.count_ones() as usize
    }

    /// Gives the pages behind free runs back.
    fn thin_out(&mut self) {
        // First, lest the kernel fill what was given back to have a huge page again.
        self.slab.must_be_small();
        let mut at = 0;
        while at < RUNS {
            let run = (at..RUNS).take_while(|&index| self.free & (1 << index) != 0).count();
            if run > 0 {
                // SAFETY: these runs are free, so nobody has their bytes.
                #[expect(unsafe_code, reason = "memory by address, docs/decisions/0015-unsafe.md")]
                unsafe {
                    self.slab.release(at * RUN_BYTES..(at + run) * RUN_BYTES);
                }
            }
            at += run + 1;
        }
        self.backed = 0;
        self.is_thin = true;
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn runs_are_apart_and_come_back_and_one_empty_slab_is_kept() {
        let mut pool = Pool::new();
        let taken: Vec<Run> = (0..3 * RUNS + 1).map(|_| pool.take(Purpose::Writing)).collect();
        let other = pool.take(Purpose::Reading);
        assert_eq!(pool.slabs.len(), 4, "a run that is free is used before there are more slabs");
        let addresses: BTreeSet<usize> = taken.iter().chain([&other]).map(Run::address).collect();
        assert_eq!(addresses.len(), taken.len() + 1);
        assert!(addresses.iter().all(|address| address.is_multiple_of(RUN_BYTES)));
        let emptied: Vec<Slab> = taken.iter().filter_map(|run| pool.give(run)).collect();
        assert_eq!((emptied.len(), pool.slabs.len(), pool.empty, pool.used), (2, 2, 1, 1));
        let again = pool.take(Purpose::Writing);
        assert_eq!(pool.slabs.len(), 2, "and used again");
        assert!(pool.give(&again).is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pages_behind_free_runs_go_back_when_they_are_many() {
        let mut pool = Pool::new();
        let held: Vec<Run> = (0..8 * RUNS).map(|_| pool.take(Purpose::Writing)).collect();
        // All but one of each slab.
        let kept = |run: &&Run| run.address() % SLAB_BYTES == 5 * RUN_BYTES;
        assert!(held.iter().filter(|run| !kept(run)).all(|run| pool.give(run).is_none()));
        assert_eq!((pool.used, pool.slabs.len()), (8, 8));
        assert!(pool.spare <= RUNS, "{} runs are spare", pool.spare);
        assert!(pool.slabs.values().filter(|slab| slab.is_thin).count() >= 6);
        let again: Vec<Run> = (0..7 * RUNS).map(|_| pool.take(Purpose::Reading)).collect();
        assert_eq!(pool.slabs.len(), 8, "they are used again");
        assert!(
            again.iter().all(|run| !held.iter().filter(kept).any(|kept| kept.address() == run.address()))
        );
        assert!(pool.slabs.values().filter(|slab| slab.free == 0).all(|slab| !slab.is_thin));
    }
}

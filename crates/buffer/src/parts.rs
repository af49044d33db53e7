//! Parts: slabs cut into parts of one length, such as leaves of the engine and runs of blocks.
//!
//! Data read from a disk will be used for a long time, so slabs for reading are huge pages from the start.
//! Slabs for writing may become huge pages once they are full, because a writer should not wait while two
//! megabytes are cleared (docs/decisions/0016-frames.md). An empty slab goes back to the system; one empty
//! slab is kept. Where much of a slab is free, the pages behind that go back too, and the slab is no huge
//! page until it is full again.
//!
//! A pool has no lock: its owner decides which threads wait for it, and unmaps slabs outside of its own lock.
//!
//! Invariant: a part is in use or free in its slab, never both.
//! Invariant: the bytes of a part are initialised: zeros from the system, or what was there before.

use crate::slab::{self, SLAB_BYTES, Slab};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::ptr::NonNull;

/// Free parts backed by memory are kept up to this share of the parts in use, and those of one slab.
const SPARE_SHARE: usize = 16;

/// The purpose for which memory is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Data read from a disk.
    Reading,
    /// Anything else.
    Writing,
}

/// Words with one bit for each part of this length in a slab.
#[must_use]
pub const fn words_for(part_bytes: usize) -> usize {
    (SLAB_BYTES / part_bytes).div_ceil(u64::BITS as usize)
}

/// All slabs, cut into parts of `PART_BYTES`, that were not given back to the system. `WORDS` must be what
/// [`words_for`] returns for that length.
pub struct Pool<const PART_BYTES: usize, const WORDS: usize> {
    /// By address.
    slabs: BTreeMap<usize, Parted<PART_BYTES, WORDS>>,
    /// Slabs with a free part, by purpose. The lowest is used first, so that the others may empty.
    open: [BTreeSet<usize>; 2],
    /// Number of empty slabs.
    empty: usize,
    /// Parts in use.
    used: usize,
    /// Free parts that are backed by memory.
    spare: usize,
    /// Slabs that have gained enough such parts since they last gave pages back to make another attempt worth
    /// while.
    laden: BTreeSet<usize>,
}

/// The error for memory that lies in no slab of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere;

struct Parted<const PART_BYTES: usize, const WORDS: usize> {
    slab: Slab,
    purpose: Purpose,
    free: Bits<WORDS>,
    /// The free parts that are backed by memory.
    backed: Bits<WORDS>,
    used: usize,
    /// Number of parts in `backed`.
    spare: usize,
    /// How many of them stayed backed when pages were last given back, because each shares its pages with a
    /// part in use.
    stuck: usize,
    /// Whether some of its pages were given back.
    is_thin: bool,
}

impl<const PART_BYTES: usize, const WORDS: usize> Pool<PART_BYTES, WORDS> {
    /// Parts of a slab.
    pub const PARTS: usize = {
        assert!(WORDS == words_for(PART_BYTES), "one bit for each part");
        SLAB_BYTES / PART_BYTES
    };

    /// A slab with fewer spare parts is left alone: giving pages back would cost many calls and its huge
    /// page, for little memory.
    const SPARE_PARTS_MIN: usize = Self::PARTS / 8;

    /// An empty pool.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slabs: BTreeMap::new(),
            open: [BTreeSet::new(), BTreeSet::new()],
            empty: 0,
            used: 0,
            spare: 0,
            laden: BTreeSet::new(),
        }
    }

    /// Number of parts in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Takes a part: `PART_BYTES` initialised bytes that belong to the caller alone until they are given back
    /// or the pool ends. They begin a multiple of that length behind a multiple of [`SLAB_BYTES`]. None if
    /// all parts are in use and the system maps no further slab.
    pub fn take(&mut self, purpose: Purpose) -> Option<NonNull<u8>> {
        // An existing free part is better than the right kind of slab: budgets are about memory.
        let other = [Purpose::Writing, Purpose::Reading][usize::from(purpose == Purpose::Writing)];
        let open = self.open[purpose as usize].first().or_else(|| self.open[other as usize].first());
        let base = match open {
            Some(&base) => base,
            None => self.add_slab(purpose)?,
        };
        let Some(slab) = self.slabs.get_mut(&base) else { unreachable!("an open slab is one of the slabs") };
        self.empty -= usize::from(slab.used == 0);
        let was_laden = slab.fresh() >= Self::SPARE_PARTS_MIN;
        let (index, was_backed) = slab.take();
        self.used += 1;
        self.spare -= usize::from(was_backed);
        if was_laden && slab.fresh() < Self::SPARE_PARTS_MIN {
            self.laden.remove(&base);
        }
        if slab.used == Self::PARTS {
            self.open[slab.purpose as usize].remove(&base);
            if slab.purpose == Purpose::Writing || slab.is_thin {
                slab.slab.may_be_huge();
                slab.is_thin = false;
            }
        }
        Some(slab.slab.at(index * PART_BYTES))
    }

    /// Gives a part back. Returns the slab that is to go back to the system, if this part was its last one in
    /// use and another slab is empty. If there are too many spare parts and `may_thin_out` is set, pages
    /// behind free parts go back at once.
    ///
    /// # Errors
    /// [`Elsewhere`] if the address lies in no slab of the pool; nothing was done then.
    ///
    /// # Safety
    /// If `part` came from [`Pool::take`] of this pool, it was not given back since, and nothing refers to
    /// its bytes any more. Otherwise it is the address of memory that still exists and came from elsewhere.
    #[expect(unsafe_code, reason = "memory by address, docs/decisions/0015-unsafe.md")]
    pub unsafe fn give(&mut self, part: NonNull<u8>, may_thin_out: bool) -> Result<Option<Slab>, Elsewhere> {
        let address = part.as_ptr().addr();
        let below = self.slabs.range_mut(..=address).next_back();
        let Some((&base, slab)) = below.filter(|&(&base, _)| address - base < SLAB_BYTES) else {
            return Err(Elsewhere);
        };
        debug_assert!((address - base).is_multiple_of(PART_BYTES), "no part of ours");
        slab.give((address - base) / PART_BYTES);
        self.used -= 1;
        self.spare += 1;
        if slab.fresh() == Self::SPARE_PARTS_MIN {
            self.laden.insert(base);
        }
        let open = &mut self.open[slab.purpose as usize];
        open.insert(base);
        if slab.used == 0 && self.empty > 0 {
            self.spare -= slab.spare;
            open.remove(&base);
            self.laden.remove(&base);
            return Ok(self.slabs.remove(&base).map(|parted| parted.slab));
        }
        self.empty += usize::from(slab.used == 0);
        if may_thin_out {
            self.thin_out();
        }
        Ok(None)
    }

    /// Gives back the pages behind free parts of one slab, if there are too many spare parts. Returns whether
    /// there was such a slab.
    ///
    /// The last slab goes first, because the first one is used first.
    pub fn thin_out(&mut self) -> bool {
        if self.spare <= self.used / SPARE_SHARE + Self::PARTS {
            return false;
        }
        let slab = self.laden.pop_last().and_then(|base| self.slabs.get_mut(&base));
        let is_found = slab.is_some();
        if let Some(slab) = slab {
            let before = slab.spare;
            slab.thin_out();
            self.spare -= before - slab.spare;
        }
        is_found
    }

    fn add_slab(&mut self, purpose: Purpose) -> Option<usize> {
        let slab = Slab::map()?;
        if purpose == Purpose::Reading {
            slab.may_be_huge();
        }
        let base = slab.at(0).as_ptr().addr();
        let free = Bits::of(Self::PARTS);
        // With its first part touched, the whole huge page is there.
        let (backed, spare) =
            if purpose == Purpose::Reading { (free, Self::PARTS) } else { (Bits::of(0), 0) };
        let parted = Parted { slab, purpose, free, backed, used: 0, spare, stuck: 0, is_thin: false };
        self.spare += spare;
        if spare >= Self::SPARE_PARTS_MIN {
            self.laden.insert(base);
        }
        self.slabs.insert(base, parted);
        self.open[purpose as usize].insert(base);
        self.empty += 1;
        Some(base)
    }
}

impl<const PART_BYTES: usize, const WORDS: usize> Default for Pool<PART_BYTES, WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const PART_BYTES: usize, const WORDS: usize> Parted<PART_BYTES, WORDS> {
    /// Marks a free part as used; there must be one. Returns whether memory backs it; backed parts are
    /// preferred.
    fn take(&mut self) -> (usize, bool) {
        let backed = self.backed.first();
        let index = backed.or_else(|| self.free.first()).unwrap_or_default();
        debug_assert!(self.free.has(index), "a part is free");
        self.free.clear(index);
        self.backed.clear(index);
        self.used += 1;
        self.spare -= usize::from(backed.is_some());
        self.stuck = self.stuck.min(self.spare);
        (index, backed.is_some())
    }

    fn give(&mut self, index: usize) {
        debug_assert!(!self.free.has(index), "given back twice");
        self.free.set(index);
        self.backed.set(index);
        self.used -= 1;
        self.spare += 1;
    }

    /// Free parts that are backed by memory, without those known to stay so.
    fn fresh(&self) -> usize {
        self.spare - self.stuck
    }

    /// Gives back the pages behind free parts, if there is a whole page among them.
    ///
    /// A part counts as given back when its middle is: the rest of it, at its ends, lies on pages with parts
    /// that still count.
    fn thin_out(&mut self) {
        let all_free = std::iter::successors(self.free_from(0), |free| self.free_from(free.end));
        let mut bytes_of_each = all_free.map(|free| free.start * PART_BYTES..free.end * PART_BYTES);
        if bytes_of_each.any(|bytes| !slab::whole_pages(bytes).is_empty()) {
            // First of all, so that the kernel does not fill up again what is given back, to make a huge
            // page.
            self.slab.must_be_small();
            self.is_thin = true;
            let mut next = self.free_from(0);
            while let Some(free) = next {
                next = self.free_from(free.end);
                self.release(free);
            }
        }
        self.stuck = self.spare;
    }

    /// The next run of consecutive free parts.
    fn free_from(&self, at: usize) -> Option<Range<usize>> {
        let parts = SLAB_BYTES / PART_BYTES;
        let start = (at..parts).find(|&index| self.free.has(index))?;
        let end = (start..parts).find(|&index| !self.free.has(index)).unwrap_or(parts);
        Some(start..end)
    }

    fn release(&mut self, free: Range<usize>) {
        // SAFETY: these parts are free, so nothing refers to their bytes.
        #[expect(unsafe_code, reason = "memory by address, docs/decisions/0015-unsafe.md")]
        let released = unsafe { self.slab.release(free.start * PART_BYTES..free.end * PART_BYTES) };
        for index in free {
            if self.backed.has(index) && released.contains(&(index * PART_BYTES + PART_BYTES / 2)) {
                self.backed.clear(index);
                self.spare -= 1;
            }
        }
    }
}

/// One bit for each part of a slab.
#[derive(Clone, Copy)]
struct Bits<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Bits<WORDS> {
    /// A set with the first `count` bits.
    fn of(count: usize) -> Self {
        Self(std::array::from_fn(|word| match count.saturating_sub(word * 64) {
            left @ ..64 => (1 << left) - 1,
            64.. => u64::MAX,
        }))
    }

    fn first(&self) -> Option<usize> {
        let word = self.0.iter().position(|&bits| bits != 0)?;
        Some(word * 64 + self.0[word].trailing_zeros() as usize)
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn set(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    fn clear(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }
}

#[cfg(all(test, not(miri)))]
mod tests;

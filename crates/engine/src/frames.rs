//! Memory for leaves: frames of one size, cut from slabs of two megabytes.
//!
//! A slab is as large and as aligned as a huge page of the processor, so that a lookup in one seldom misses the
//! table of translations. The kernel zeroes a huge page when its first byte is touched, which takes up to two
//! milliseconds where a hypervisor takes free memory back: that suits leaves that are read from disk, and is
//! no wait for a writer. So slabs for reading are huge pages from the start; slabs for writing begin with small
//! ones, and when such a slab is full, the kernel is told that it may make one huge page of it when it has time.
//!
//! The pool is one for the process, so that small stores share slabs. A slab in which nothing is left goes back
//! to the system; one such slab is kept. Where much of a slab is free, so do the pages behind that, and the slab is
//! no huge page until it is full again: leaves that gave way to values would go on taking memory otherwise.
//!
//! Invariant: a frame is in use or free in its slab, never both.
//! Invariant: the bytes of a frame are initialised: zeros from the system, or what was there before.

use atoll_buffer::slab::{self, SLAB_BYTES};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

/// Bytes of a frame: an odd number of lines, so that the beginnings of many do not meet in one set of a cache.
pub(crate) const FRAME_BYTES: usize = 129 * 64;

const FRAMES: usize = SLAB_BYTES / FRAME_BYTES;

/// Free frames that memory lies behind are kept up to this share of those in use, and those of one slab.
const SPARE_SHARE: usize = 16;

/// A slab with fewer of them is left alone: it would cost many calls and its huge page, and give back little.
const SPARE_LEAST: usize = FRAMES / 8;

/// What a frame is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A leaf that is read from disk.
    Reading,
    /// A leaf that a write makes.
    Writing,
}

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

/// Takes a frame: [`FRAME_BYTES`] initialised bytes on a boundary of 64, for the caller alone.
pub(crate) fn take(purpose: Purpose) -> NonNull<u8> {
    POOL.lock().take(purpose)
}

/// Gives a frame back.
///
/// # Safety
/// `frame` came from [`take`], was not given back since, and nothing refers to it any more.
#[allow(unsafe_code)]
pub(crate) unsafe fn give(frame: NonNull<u8>) {
    let emptied = POOL.lock().give(frame);
    drop(emptied);
}

/// A store gives back all that it has: whole slabs go to the system meanwhile, and no parts of those that soon follow.
pub(crate) struct Ending(());

/// Begins the end of a store, which lasts as long as the answer.
pub(crate) fn ending() -> Ending {
    POOL.lock().endings += 1;
    Ending(())
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut pool = POOL.lock();
        pool.endings -= 1;
        while pool.thin_out() {}
    }
}

/// Every slab that was not given back to the system.
struct Pool {
    /// By address.
    slabs: BTreeMap<usize, Slab>,
    /// Those with a free frame, by purpose; the lowest is used first, so that the others may empty.
    open: [BTreeSet<usize>; 2],
    /// How many are empty.
    empty: usize,
    /// Frames in use.
    used: usize,
    /// Free frames that memory lies behind.
    spare: usize,
    /// Slabs with at least [`SPARE_LEAST`] of those.
    laden: BTreeSet<usize>,
    /// How many stores are giving all back; while any is, no pages go back but those of whole slabs.
    endings: usize,
}

struct Slab {
    memory: slab::Slab,
    purpose: Purpose,
    /// One bit for each frame that is free.
    free: Bits,
    /// One bit for each of them that memory lies behind.
    backed: Bits,
    used: usize,
    /// Some of its pages were given back.
    is_thin: bool,
}

type Bits = [u64; FRAMES.div_ceil(64)];

impl Pool {
    const fn new() -> Self {
        Self {
            slabs: BTreeMap::new(),
            open: [BTreeSet::new(), BTreeSet::new()],
            empty: 0,
            used: 0,
            spare: 0,
            laden: BTreeSet::new(),
            endings: 0,
        }
    }

    fn take(&mut self, purpose: Purpose) -> NonNull<u8> {
        // A frame that is there is better than the right kind of slab: memory is what budgets are about.
        let other = [Purpose::Writing, Purpose::Reading][usize::from(purpose == Purpose::Writing)];
        let open = self.open[purpose as usize].first().or_else(|| self.open[other as usize].first());
        let base = match open {
            Some(&base) => base,
            None => self.add_slab(purpose),
        };
        let Some(slab) = self.slabs.get_mut(&base) else { unreachable!("an open slab is one of the slabs") };
        let purpose = slab.purpose;
        self.empty -= usize::from(slab.used == 0);
        let (index, was_backed) = slab.take();
        self.used += 1;
        self.spare -= usize::from(was_backed);
        if was_backed && slab.spare() + 1 == SPARE_LEAST {
            self.laden.remove(&base);
        }
        if slab.used == FRAMES {
            self.open[purpose as usize].remove(&base);
            if purpose == Purpose::Writing || slab.is_thin {
                slab.memory.may_be_huge();
                slab.is_thin = false;
            }
        }
        slab.memory.at(index * FRAME_BYTES)
    }

    /// The slab that is to go back to the system, if this frame was its last and another one is empty.
    fn give(&mut self, frame: NonNull<u8>) -> Option<slab::Slab> {
        let address = frame.as_ptr().addr();
        let (&base, slab) = self.slabs.range_mut(..=address).next_back()?;
        let index = (address - base) / FRAME_BYTES;
        debug_assert!(index < FRAMES && (address - base).is_multiple_of(FRAME_BYTES), "no frame of ours");
        debug_assert!(slab.free[index / 64] & (1 << (index % 64)) == 0, "given back twice");
        slab.free[index / 64] |= 1 << (index % 64);
        slab.backed[index / 64] |= 1 << (index % 64);
        slab.used -= 1;
        self.used -= 1;
        self.spare += 1;
        if slab.spare() == SPARE_LEAST {
            self.laden.insert(base);
        }
        let open = &mut self.open[slab.purpose as usize];
        open.insert(base);
        if slab.used == 0 && self.empty > 0 {
            self.spare -= slab.spare();
            open.remove(&base);
            self.laden.remove(&base);
            return self.slabs.remove(&base).map(|slab| slab.memory);
        }
        self.empty += usize::from(slab.used == 0);
        self.thin_out();
        None
    }

    /// Gives pages of free frames back when there are too many, those of one slab; whether it did.
    ///
    /// The last slab gives first, for the first is used first.
    fn thin_out(&mut self) -> bool {
        if self.endings > 0 || self.spare <= self.used / SPARE_SHARE + FRAMES {
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
        let memory = slab::Slab::map();
        if purpose == Purpose::Reading {
            memory.may_be_huge();
        }
        let base = memory.at(0).as_ptr().addr();
        let mut free = [u64::MAX; FRAMES.div_ceil(64)];
        let last = FRAMES % 64;
        if last > 0 {
            free[FRAMES / 64] = (1 << last) - 1;
        }
        // With its first frame all of a huge page is there.
        let backed = if purpose == Purpose::Reading { free } else { Bits::default() };
        let slab = Slab { memory, purpose, free, backed, used: 0, is_thin: false };
        self.spare += slab.spare();
        if slab.spare() >= SPARE_LEAST {
            self.laden.insert(base);
        }
        self.slabs.insert(base, slab);
        self.open[purpose as usize].insert(base);
        self.empty += 1;
        base
    }
}

impl Slab {
    /// Marks a free frame as used, of which there is one; whether memory lies behind it, as it does if it can.
    fn take(&mut self) -> (usize, bool) {
        let first = |bits: &Bits| bits.iter().position(|&bits| bits != 0);
        let backed = first(&self.backed);
        let word = backed.or_else(|| first(&self.free)).unwrap_or_default();
        let bits = if backed.is_some() { self.backed[word] } else { self.free[word] };
        let bit = bits.trailing_zeros() as usize;
        self.free[word] &= !(1 << bit);
        self.backed[word] &= !(1 << bit);
        self.used += 1;
        (word * 64 + bit, backed.is_some())
    }

    /// How many free frames memory lies behind.
    fn spare(&self) -> usize {
        self.backed.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Gives the pages behind free frames back.
    fn thin_out(&mut self) {
        // First, lest the kernel fill what was given back to have a huge page again.
        self.memory.must_be_small();
        let mut at = 0;
        while at < FRAMES {
            let run = (at..FRAMES).take_while(|&index| self.is_free(index)).count();
            if run > 0 {
                // SAFETY: these frames are free, so nobody has their bytes.
                #[allow(unsafe_code)]
                unsafe {
                    self.memory.release(at * FRAME_BYTES..(at + run) * FRAME_BYTES);
                }
            }
            at += run + 1;
        }
        self.backed = Bits::default();
        self.is_thin = true;
    }

    fn is_free(&self, index: usize) -> bool {
        self.free[index / 64] & (1 << (index % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn frames_are_apart_and_aligned_and_come_back() {
        let mut pool = Pool::new();
        let taken: Vec<NonNull<u8>> = (0..3 * FRAMES + 1).map(|_| pool.take(Purpose::Writing)).collect();
        let other = pool.take(Purpose::Reading);
        assert_eq!(pool.slabs.len(), 4, "a frame that is free is used before there are more slabs");
        let mut addresses: HashSet<usize> = taken.iter().map(|frame| frame.as_ptr().addr()).collect();
        addresses.insert(other.as_ptr().addr());
        assert_eq!(addresses.len(), taken.len() + 1);
        for (&base, slab) in &pool.slabs {
            assert!(base.is_multiple_of(SLAB_BYTES));
            let inside = (0..FRAMES).filter(|index| addresses.contains(&(base + index * FRAME_BYTES)));
            assert_eq!(inside.count(), slab.used, "every frame lies in a slab, at a place of its own");
        }
        let mut emptied = Vec::new();
        for frame in taken {
            emptied.extend(pool.give(frame));
        }
        assert_eq!((emptied.len(), pool.slabs.len(), pool.empty), (2, 2, 1), "one empty slab is kept");
        let again = pool.take(Purpose::Writing);
        assert_eq!(pool.slabs.len(), 2, "and used again");
        emptied.extend(pool.give(again));
        emptied.extend(pool.give(other));
        drop((pool, emptied));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pages_behind_free_frames_go_back_when_they_are_many() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut pool = Pool::new();
        let mut held: Vec<NonNull<u8>> = (0..8 * FRAMES).map(|_| pool.take(Purpose::Writing)).collect();
        held.iter().for_each(|&frame| fill(frame, 7));
        random.shuffle(&mut held);
        let given: Vec<usize> =
            held.drain(FRAMES..).map(|frame| (pool.give(frame), frame.as_ptr().addr()).1).collect();
        assert_eq!(pool.used, FRAMES);
        assert!(pool.spare <= FRAMES + FRAMES / SPARE_SHARE, "{} frames are spare", pool.spare);
        assert!(held.iter().all(|&frame| is_filled(frame, 7)), "and nothing of what is held went");
        let taken: Vec<NonNull<u8>> = (0..6 * FRAMES).map(|_| pool.take(Purpose::Reading)).collect();
        assert!(taken.iter().all(|frame| given.contains(&frame.as_ptr().addr())), "they are used again");
        let emptied = taken.iter().filter(|&&frame| !is_filled(frame, 7)).count();
        assert!(emptied > 4 * FRAMES, "{emptied} frames had lost a page");
        assert!(pool.slabs.values().filter(|slab| slab.used == FRAMES).all(|slab| !slab.is_thin));
        drop(pool);
    }

    #[test]
    fn only_whole_slabs_go_back_while_a_store_ends() {
        let mut pool = Pool { endings: 1, ..Pool::new() };
        let held: Vec<NonNull<u8>> = (0..4 * FRAMES).map(|_| pool.take(Purpose::Writing)).collect();
        // All but one of each slab.
        let kept: Vec<NonNull<u8>> = held.iter().copied().step_by(FRAMES).collect();
        held.iter()
            .filter(|frame| !kept.contains(frame))
            .for_each(|&frame| assert!(pool.give(frame).is_none()));
        assert_eq!(pool.spare, 4 * (FRAMES - 1), "nothing was asked of the system");
        pool.endings = 0;
        while pool.thin_out() {}
        assert!(pool.spare <= FRAMES, "{} frames are spare", pool.spare);
        let emptied: Vec<_> = kept.into_iter().filter_map(|frame| pool.give(frame)).collect();
        assert_eq!((emptied.len(), pool.slabs.len()), (3, 1));
        drop((pool, emptied));
    }

    #[test]
    fn a_frame_keeps_what_was_written_while_others_come_and_go() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut pool = Pool::new();
        let mut held: Vec<(NonNull<u8>, u8)> = Vec::new();
        for step in 0..16_000_u32 {
            // More and more, and then fewer and fewer.
            let wanted = if step / 4000 % 2 == 0 { 170 } else { 80 };
            if random.u8(..) < wanted || held.is_empty() {
                let frame = pool.take(if step % 3 == 0 { Purpose::Reading } else { Purpose::Writing });
                let mark = step as u8;
                fill(frame, mark);
                held.push((frame, mark));
            } else {
                let (frame, mark) = held.swap_remove(random.usize(..held.len()));
                assert!(is_filled(frame, mark), "step {step}");
                drop(pool.give(frame));
            }
        }
        assert!(held.iter().all(|&(frame, mark)| is_filled(frame, mark)));
        assert_eq!(pool.spare, pool.slabs.values().map(Slab::spare).sum::<usize>());
        let laden = pool.slabs.iter().filter(|(_, slab)| slab.spare() >= SPARE_LEAST).map(|(&base, _)| base);
        assert!(laden.eq(pool.laden.iter().copied()), "those that can give are known, and no others");
        drop(pool);
    }

    #[allow(unsafe_code)]
    fn fill(frame: NonNull<u8>, mark: u8) {
        // SAFETY: the frame is the test's own.
        unsafe { frame.write_bytes(mark, FRAME_BYTES) };
    }

    #[allow(unsafe_code)]
    fn is_filled(frame: NonNull<u8>, mark: u8) -> bool {
        // SAFETY: the frame is the test's own, and was filled.
        let bytes = unsafe { std::slice::from_raw_parts(frame.as_ptr(), FRAME_BYTES) };
        bytes.iter().all(|&byte| byte == mark)
    }
}

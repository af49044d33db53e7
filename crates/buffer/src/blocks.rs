//! Blocks: memory of middle length, such as values of records and the pieces that refer to them.
//!
//! Blocks are cut from runs of one block length each, and runs lie in slabs that can be huge pages. If a
//! million values lay in small pages, reading them in another order would miss the TLB for most of them; and
//! an allocator that gets all of them back one by one joins each with its neighbours.
//!
//! Invariant: a block is in use or free in its run, never both, and its bytes are initialised.
//! Invariant: nothing here waits long for a lock: a child that was forked while another thread held it would
//! wait for ever. A thread that does not get the lock takes a block from the allocator, or leaves the block
//! that it gives back to the next holder of the lock ([`crate::deferred`]).
#![expect(unsafe_code, reason = "memory by address, docs/decisions/0015-unsafe.md")]

use crate::ALIGNMENT;
use crate::deferred;
use crate::runs::{self, RUN_BYTES, Run};
use crate::slab::Slab;
use std::collections::BTreeSet;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

pub(crate) use crate::parts::Purpose;

/// The allocator keeps shorter ones at hand itself.
const LINES_MIN: usize = 2;

/// Few longer ones would fit into a run, leaving much of it unused, and each takes more than a page anyway.
/// The first line is what lies before the bytes, so the longest value in a block has 4,032 of them, and one
/// of 4 KiB comes from the allocator.
const LINES_MAX: usize = RUN_BYTES / 4 / ALIGNMENT;

pub(crate) const CLASSES: usize = LINES_MAX - LINES_MIN + 1;

/// Most blocks of a run, one bit for each.
type Bits = [u64; (RUN_BYTES / (LINES_MIN * ALIGNMENT)).div_ceil(64)];

static BLOCKS: [Mutex<Class>; CLASSES] = [const { Mutex::new(Class::new()) }; CLASSES];

/// Blocks that were given back while the lock of their class was held: a list from the last one to the first.
static LEFT: [AtomicPtr<Link>; CLASSES] = [const { AtomicPtr::new(null_mut()) }; CLASSES];

/// Where each class keeps its table of runs: only prefetched, never read through.
static KEPT: [AtomicPtr<u8>; CLASSES] = [const { AtomicPtr::new(null_mut()) }; CLASSES];

/// Bytes of runs that no block in use accounts for, as far as the classes have reported.
static UNUSED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory that freed values of one length left between others, within 16 KiB for each length in use.
///
/// Only values of the same length can use them.
#[must_use]
pub fn unused_bytes() -> usize {
    UNUSED.load(Ordering::Relaxed)
}

/// Bytes of memory that each block of a class accounts for: its share of the run.
const SHARES: [usize; CLASSES] = {
    let (mut shares, mut class) = ([0; CLASSES], 0);
    while class < CLASSES {
        shares[class] = RUN_BYTES / (RUN_BYTES / (lines_of(class) * ALIGNMENT));
        class += 1;
    }
    shares
};

/// Where memory came from.
#[derive(Clone, Copy)]
pub(crate) struct MemoryOrigin {
    run: u32,
    class: u8,
    /// If the memory comes from the allocator, how many bytes before the usable part it begins; else zero.
    own_before: u8,
}

impl MemoryOrigin {
    /// Memory of the allocator that begins `before` bytes before the usable part; `before` is above zero.
    pub(crate) fn own(before: usize) -> Self {
        Self { run: 0, class: 0, own_before: before as u8 }
    }

    /// How many bytes before the usable part the memory begins, if it comes from the allocator.
    pub(crate) fn own_before(self) -> Option<usize> {
        (self.own_before > 0).then_some(usize::from(self.own_before))
    }

    /// Bytes that a block from there accounts for: its share of the run.
    pub(crate) fn share(self) -> usize {
        SHARES[usize::from(self.class)]
    }
}

/// A header that lies somewhere in each block in use, and identifies the block once it is freed.
pub(crate) struct Link {
    place: MemoryOrigin,
    /// The block that was left before this one; see [`give`].
    next: AtomicPtr<Self>,
}

impl Link {
    /// The link of memory that came from `place`.
    pub(crate) fn of(place: MemoryOrigin) -> Self {
        Self { place, next: AtomicPtr::default() }
    }

    /// Where its memory came from.
    pub(crate) fn place(&self) -> MemoryOrigin {
        self.place
    }
}

/// A block of this many lines, if that is a middle length and a block is to be had at once.
pub(crate) fn take(lines: usize, purpose: Purpose) -> Option<(NonNull<u8>, MemoryOrigin)> {
    if !(LINES_MIN..=LINES_MAX).contains(&lines) {
        return None;
    }
    let class = lines - LINES_MIN;
    let mut after = WorkAfterUnlock::default();
    let mut blocks = crate::tried(&BLOCKS[class])?;
    take_what_was_left(class, &mut blocks, &mut after);
    let (start, run) = blocks.take(class, purpose, &mut after)?;
    drop(blocks);
    Some((start, MemoryOrigin { run, class: class as u8, own_before: 0 }))
}

/// Lines of the blocks of a class.
const fn lines_of(class: usize) -> usize {
    LINES_MIN + class
}

/// Address of the state that giving a block back will most likely touch; only for prefetching.
pub(crate) fn kept_at(place: MemoryOrigin) -> *const u8 {
    let kept = KEPT[usize::from(place.class)].load(Ordering::Relaxed);
    kept.wrapping_add(place.run as usize * size_of::<Option<Blocks>>())
}

/// Gives back the block in which this link lies.
///
/// # Safety
/// The block came from [`take`] with this place, which the link holds too; it was not given back since, and
/// nothing refers to it any more.
pub(crate) unsafe fn give(link: NonNull<Link>, place: MemoryOrigin) {
    let class = usize::from(place.class);
    let mut after = WorkAfterUnlock::default();
    if let Some(mut blocks) = crate::tried(&BLOCKS[class]) {
        take_what_was_left(class, &mut blocks, &mut after);
        blocks.give(class, place.run, link.as_ptr().addr(), &mut after);
        drop(blocks);
        return;
    }
    let mut last = LEFT[class].load(Ordering::Relaxed);
    loop {
        // SAFETY: the link belongs to the caller until the next step succeeds.
        unsafe { link.as_ref() }.next.store(last, Ordering::Relaxed);
        // Release: the thread that takes it sees everything that was done with the block.
        match LEFT[class].compare_exchange_weak(last, link.as_ptr(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return deferred::note(class),
            Err(now) => last = now,
        }
    }
}

/// Work for the time when the lock of a class is free again.
#[derive(Default)]
struct WorkAfterUnlock {
    /// Slabs that go back to the system.
    emptied: Vec<Slab>,
    /// Whether the pool was locked, so that other threads may have missed it.
    had_pool: bool,
}

impl Drop for WorkAfterUnlock {
    fn drop(&mut self) {
        if self.had_pool {
            deferred::catch_up();
        }
    }
}

/// Takes the blocks of a class that other threads left, and gives back its empty runs.
pub(crate) fn tidy(class: usize) {
    let mut after = WorkAfterUnlock::default();
    match BLOCKS[class].try_lock() {
        Ok(mut blocks) => {
            take_what_was_left(class, &mut blocks, &mut after);
            blocks.give_runs(class, &mut after);
            blocks.tell();
        }
        Err(_) => deferred::note(class),
    }
    // The caller does this for all classes.
    after.had_pool = false;
}

/// Takes the blocks that other threads left.
fn take_what_was_left(class: usize, blocks: &mut Class, after: &mut WorkAfterUnlock) {
    if LEFT[class].load(Ordering::Relaxed).is_null() {
        return;
    }
    let mut next = NonNull::new(LEFT[class].swap(null_mut(), Ordering::Acquire));
    while let Some(link) = next {
        // SAFETY: the thread that left it has no use for it any more, and no other thread took it: it was
        // part of the list until the exchange.
        let (before, run) = unsafe {
            let link = link.as_ref();
            (link.next.load(Ordering::Relaxed), link.place.run)
        };
        blocks.give(class, run, link.as_ptr().addr(), after);
        next = NonNull::new(before);
    }
}

/// The runs for blocks of one length.
struct Class {
    /// By number; none where a run was given back.
    runs: Vec<Option<Blocks>>,
    /// Unused numbers.
    vacant: Vec<u32>,
    /// Runs with a free block. The lowest is used first, so that the others may empty.
    open: BTreeSet<u32>,
    /// Empty runs, of which one is kept.
    empty: Vec<u32>,
    /// Bytes of all runs that no block in use accounts for.
    unused: usize,
    /// The part of `unused` that [`UNUSED`] includes. Other threads use that, so it is updated run by run.
    told: usize,
}

/// A run and its blocks.
struct Blocks {
    run: Run,
    free: Bits,
    used: u32,
}

impl Class {
    const fn new() -> Self {
        Self {
            runs: Vec::new(),
            vacant: Vec::new(),
            open: BTreeSet::new(),
            empty: Vec::new(),
            unused: 0,
            told: 0,
        }
    }

    /// A free block, and the number of its run.
    fn take(
        &mut self,
        class: usize,
        purpose: Purpose,
        after: &mut WorkAfterUnlock,
    ) -> Option<(NonNull<u8>, u32)> {
        let block_bytes = lines_of(class) * ALIGNMENT;
        let number = match self.open.first() {
            Some(&number) => number,
            None => self.add_run(class, purpose, after)?,
        };
        let Some(blocks) = self.runs[number as usize].as_mut() else { unreachable!("an open run is there") };
        if blocks.used == 0 {
            self.empty.retain(|&empty| empty != number);
        }
        let index = blocks.take();
        let start = blocks.run.at(index * block_bytes)?;
        if blocks.used as usize == RUN_BYTES / block_bytes {
            self.open.remove(&number);
        }
        self.unused -= SHARES[class];
        self.tell();
        Some((start, number))
    }

    /// Marks the block that contains this address as free.
    fn give(&mut self, class: usize, number: u32, address: usize, after: &mut WorkAfterUnlock) {
        let block_bytes = lines_of(class) * ALIGNMENT;
        let Some(blocks) = self.runs[number as usize].as_mut() else { unreachable!("its run is there") };
        if blocks.used as usize == RUN_BYTES / block_bytes {
            self.open.insert(number);
        }
        blocks.give((address - blocks.run.address()) / block_bytes);
        self.unused += SHARES[class];
        if blocks.used == 0 {
            self.empty.push(number);
            self.give_runs(class, after);
        }
        self.tell();
    }

    fn add_run(&mut self, class: usize, purpose: Purpose, after: &mut WorkAfterUnlock) -> Option<u32> {
        let block_bytes = lines_of(class) * ALIGNMENT;
        let run = runs::take(purpose)?;
        after.had_pool = true;
        let mut free = Bits::default();
        (0..RUN_BYTES / block_bytes).for_each(|index| free[index / 64] |= 1 << (index % 64));
        let blocks = Some(Blocks { run, free, used: 0 });
        let number = match self.vacant.pop() {
            Some(number) => {
                self.runs[number as usize] = blocks;
                number
            }
            None => {
                self.runs.push(blocks);
                KEPT[class].store(self.runs.as_mut_ptr().cast(), Ordering::Relaxed);
                self.runs.len() as u32 - 1
            }
        };
        self.open.insert(number);
        self.empty.push(number);
        self.unused += RUN_BYTES;
        Some(number)
    }

    /// Gives back all empty runs but one.
    fn give_runs(&mut self, class: usize, after: &mut WorkAfterUnlock) {
        while self.empty.len() > 1
            && let Some(number) = self.empty.pop()
        {
            let place = &mut self.runs[number as usize];
            let Some(Blocks { run, free, used }) = place.take() else { unreachable!("it is there") };
            // SAFETY: none of its blocks is in use, and the callers that gave them back promised that nothing
            // refers to them any more.
            match unsafe { runs::give(run) } {
                Ok(slab) => after.emptied.extend(slab),
                Err(run) => {
                    *place = Some(Blocks { run, free, used });
                    self.empty.push(number);
                    return deferred::note(class);
                }
            }
            after.had_pool = true;
            self.unused -= RUN_BYTES;
            self.open.remove(&number);
            self.vacant.push(number);
        }
    }

    /// Reports the change of `unused` to [`UNUSED`], once it amounts to a run.
    fn tell(&mut self) {
        if self.unused.abs_diff(self.told) >= RUN_BYTES {
            // Wraps around for a decrease: the sum of all reports is never below zero.
            UNUSED.fetch_add(self.unused.wrapping_sub(self.told), Ordering::Relaxed);
            self.told = self.unused;
        }
    }
}

impl Blocks {
    /// Marks a free block as used; there must be one.
    fn take(&mut self) -> usize {
        let word = self.free.iter().position(|&bits| bits != 0).unwrap_or_default();
        let bit = self.free[word].trailing_zeros() as usize;
        debug_assert!(bit < 64, "a block is free");
        self.free[word] &= !(1 << bit);
        self.used += 1;
        word * 64 + bit
    }

    fn give(&mut self, index: usize) {
        let (word, bit) = (index / 64, 1 << (index % 64));
        debug_assert!(self.free[word] & bit == 0, "given back twice");
        self.free[word] |= bit;
        self.used -= 1;
    }
}

#[cfg(all(test, not(miri), not(atoll_plain_memory)))]
mod tests;

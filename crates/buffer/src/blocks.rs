//! Blocks: memory of middle length, such as the values of records and what knows where they are.
//!
//! They are cut from runs of one length each, which lie in slabs that can be huge pages: where a million
//! values lie in small ones, whoever reads them in an order of their own looks for most of them in the tables
//! of translations, and an allocator that is given all of them back one by one joins each with what is around
//! it.
//!
//! Invariant: a block is in use or free in its run, never both, and its bytes are initialised.
//! Invariant: nothing here waits for a lock for long: a child that was forked while somebody held it would
//! wait for ever. Who does not get it takes a block from the allocator, or leaves what it gives to whoever
//! has the lock next ([`crate::missed`]).
#![expect(unsafe_code, reason = "memory by address, docs/decisions/0015-unsafe.md")]

use crate::ALIGNMENT;
use crate::missed;
use crate::runs::{self, RUN_BYTES, Run};
use crate::slab::Slab;
use std::collections::BTreeSet;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

pub(crate) use crate::parts::Purpose;

/// Shorter ones the allocator keeps at hand itself.
const LINES_LEAST: usize = 2;

/// Of longer ones few would be in a run, with much of it unused, and one has more than a page anyway. The
/// first line is what lies before the bytes, so the longest value in a block has 4,032 of them, and one of 4
/// KiB is the allocator's.
const LINES_MOST: usize = RUN_BYTES / 4 / ALIGNMENT;

pub(crate) const CLASSES: usize = LINES_MOST - LINES_LEAST + 1;

/// Most blocks of a run, one bit for each.
type Bits = [u64; (RUN_BYTES / (LINES_LEAST * ALIGNMENT)).div_ceil(64)];

static BLOCKS: [Mutex<Class>; CLASSES] = [const { Mutex::new(Class::new()) }; CLASSES];

/// Blocks that were given back while somebody had the lock of their class: the last one, which knows the one
/// before.
static LEFT: [AtomicPtr<Link>; CLASSES] = [const { AtomicPtr::new(null_mut()) }; CLASSES];

/// Where classes keep what they know of their runs: only ever asked for, never read.
static KEPT: [AtomicPtr<u8>; CLASSES] = [const { AtomicPtr::new(null_mut()) }; CLASSES];

/// Bytes of runs that no block in use has, as far as classes told of them.
static UNUSED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory that values of one length left free between them, within 16 KiB for each length that is
/// used.
///
/// Only values of the same length can have it.
#[must_use]
pub fn unused_bytes() -> usize {
    UNUSED.load(Ordering::Relaxed)
}

/// Bytes of memory that each block of a class answers for: its share of the run.
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
pub(crate) struct Place {
    run: u32,
    class: u8,
    /// How far before what is asked for the memory begins, if it is the allocator's; else zero.
    own_before: u8,
}

impl Place {
    /// Memory of the allocator that begins so far before what is asked for, which is above zero.
    pub(crate) fn own(before: usize) -> Self {
        Self { run: 0, class: 0, own_before: before as u8 }
    }

    /// How far before what is asked for the memory begins, if it is the allocator's.
    pub(crate) fn own_before(self) -> Option<usize> {
        (self.own_before > 0).then_some(usize::from(self.own_before))
    }

    /// Bytes that a block from there answers for: its share of the run.
    pub(crate) fn share(self) -> usize {
        SHARES[usize::from(self.class)]
    }
}

/// What lies somewhere in each block that is in use, and is what is known of it once it is not.
pub(crate) struct Link {
    place: Place,
    /// The one that was left before it; see [`give`].
    next: AtomicPtr<Self>,
}

impl Link {
    /// Of memory that came from there.
    pub(crate) fn of(place: Place) -> Self {
        Self { place, next: AtomicPtr::default() }
    }

    /// Where its memory came from.
    pub(crate) fn place(&self) -> Place {
        self.place
    }
}

/// A block of so many lines, if that is a middle length and one is to be had at once.
pub(crate) fn take(lines: usize, purpose: Purpose) -> Option<(NonNull<u8>, Place)> {
    if !(LINES_LEAST..=LINES_MOST).contains(&lines) {
        return None;
    }
    let class = lines - LINES_LEAST;
    let mut after = After::default();
    let mut blocks = crate::tried(&BLOCKS[class])?;
    take_what_was_left(class, &mut blocks, &mut after);
    let (start, run) = blocks.take(class, purpose, &mut after)?;
    drop(blocks);
    Some((start, Place { run, class: class as u8, own_before: 0 }))
}

/// Lines of the blocks of a class.
const fn lines_of(class: usize) -> usize {
    LINES_LEAST + class
}

/// Where it is kept what whoever gives a block back has to look at, most likely: for hints to the processor
/// alone.
pub(crate) fn kept_at(place: Place) -> *const u8 {
    let kept = KEPT[usize::from(place.class)].load(Ordering::Relaxed);
    kept.wrapping_add(place.run as usize * size_of::<Option<Blocks>>())
}

/// Gives the block back that this link lies in.
///
/// # Safety
/// It came from [`take`] with this place, which the link names too; it was not given back since, and nothing
/// refers to it any more.
pub(crate) unsafe fn give(link: NonNull<Link>, place: Place) {
    let class = usize::from(place.class);
    let mut after = After::default();
    if let Some(mut blocks) = crate::tried(&BLOCKS[class]) {
        take_what_was_left(class, &mut blocks, &mut after);
        blocks.give(class, place.run, link.as_ptr().addr(), &mut after);
        drop(blocks);
        return;
    }
    let mut last = LEFT[class].load(Ordering::Relaxed);
    loop {
        // SAFETY: the link is the caller's until the next step succeeds.
        unsafe { link.as_ref() }.next.store(last, Ordering::Relaxed);
        // Release: whoever takes it sees what was done with the block.
        match LEFT[class].compare_exchange_weak(last, link.as_ptr(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return missed::note(class),
            Err(now) => last = now,
        }
    }
}

/// What is to be done once the lock of a class is free again.
#[derive(Default)]
struct After {
    /// Slabs that go back to the system.
    emptied: Vec<Slab>,
    /// The pool was locked, so others may have missed it.
    had_pool: bool,
}

impl Drop for After {
    fn drop(&mut self) {
        if self.had_pool {
            missed::catch_up();
        }
    }
}

/// Takes the blocks of a class that others left, and gives its runs back in which nothing is left.
pub(crate) fn tidy(class: usize) {
    let mut after = After::default();
    match BLOCKS[class].try_lock() {
        Ok(mut blocks) => {
            take_what_was_left(class, &mut blocks, &mut after);
            blocks.give_runs(class, &mut after);
            blocks.tell();
        }
        Err(_) => missed::note(class),
    }
    // Whoever asked for this does so for all classes.
    after.had_pool = false;
}

/// Takes the blocks that others left.
fn take_what_was_left(class: usize, blocks: &mut Class, after: &mut After) {
    if LEFT[class].load(Ordering::Relaxed).is_null() {
        return;
    }
    let mut next = NonNull::new(LEFT[class].swap(null_mut(), Ordering::Acquire));
    while let Some(link) = next {
        // SAFETY: whoever left it has no use for it any more, and nobody else took it: it was the list's
        // until the exchange.
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
    /// By number; none where one was given back.
    runs: Vec<Option<Blocks>>,
    /// Numbers that are not used.
    vacant: Vec<u32>,
    /// Those with a free block; the lowest is used first, so that the others may empty.
    open: BTreeSet<u32>,
    /// Those in which nothing is left. One is kept.
    empty: Vec<u32>,
    /// Bytes of all runs for which no block in use answers.
    unused: usize,
    /// As many of them are in [`UNUSED`], which others read and write: it hears of them run by run.
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
    fn take(&mut self, class: usize, purpose: Purpose, after: &mut After) -> Option<(NonNull<u8>, u32)> {
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

    /// Marks the block as free in which this address is.
    fn give(&mut self, class: usize, number: u32, address: usize, after: &mut After) {
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

    fn add_run(&mut self, class: usize, purpose: Purpose, after: &mut After) -> Option<u32> {
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

    /// Gives runs back in which nothing is left, but for one.
    fn give_runs(&mut self, class: usize, after: &mut After) {
        while self.empty.len() > 1
            && let Some(number) = self.empty.pop()
        {
            let place = &mut self.runs[number as usize];
            let Some(Blocks { run, free, used }) = place.take() else { unreachable!("it is there") };
            // SAFETY: none of its blocks is in use: whoever gave one back promised that nothing refers to it
            // any more.
            match unsafe { runs::give(run) } {
                Ok(slab) => after.emptied.extend(slab),
                Err(run) => {
                    *place = Some(Blocks { run, free, used });
                    self.empty.push(number);
                    return missed::note(class);
                }
            }
            after.had_pool = true;
            self.unused -= RUN_BYTES;
            self.open.remove(&number);
            self.vacant.push(number);
        }
    }

    /// Tells [`UNUSED`] what became of it, once that is a run.
    fn tell(&mut self) {
        if self.unused.abs_diff(self.told) >= RUN_BYTES {
            // Round the end where it is less: the sum of what all told is never below zero.
            UNUSED.fetch_add(self.unused.wrapping_sub(self.told), Ordering::Relaxed);
            self.told = self.unused;
        }
    }
}

impl Blocks {
    /// Marks a free block as used, of which there is one.
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

//! What a pool promises, for parts as long as leaves, which may begin anywhere in a page, and as runs, which
//! are whole pages.
#![expect(unsafe_code, reason = "memory by address, docs/decisions/0015-unsafe.md")]
#![allow(clippy::expect_used)]

use super::*;
use std::collections::HashSet;

/// As long as a leaf of the engine.
type Frames = Pool<FRAME, { words_for(FRAME) }>;
const FRAME: usize = 129 * 64;

/// As long as a run of blocks.
type Runs = Pool<RUN, { words_for(RUN) }>;
const RUN: usize = 16 << 10;

#[test]
fn parts_are_apart_and_aligned_and_come_back_and_one_empty_slab_is_kept() {
    apart(Frames::new());
    apart(Runs::new());
}

fn apart<const BYTES: usize, const WORDS: usize>(mut pool: Pool<BYTES, WORDS>) {
    let parts = SLAB_BYTES / BYTES;
    let taken: Vec<_> = (0..3 * parts + 1).map(|_| take(&mut pool, Purpose::Writing)).collect();
    let other = take(&mut pool, Purpose::Reading);
    assert_eq!(pool.slabs.len(), 4, "a part that is free is used before there are more slabs");
    let addresses: HashSet<usize> = taken.iter().chain([&other]).map(|part| part.as_ptr().addr()).collect();
    assert_eq!(addresses.len(), taken.len() + 1);
    for (&base, slab) in &pool.slabs {
        assert!(base.is_multiple_of(SLAB_BYTES));
        let inside = (0..parts).filter(|index| addresses.contains(&(base + index * BYTES)));
        assert_eq!(inside.count(), slab.used, "every part lies in a slab, at a place of its own");
    }
    let emptied: Vec<Slab> = taken.into_iter().filter_map(|part| give(&mut pool, part)).collect();
    assert_eq!((emptied.len(), pool.slabs.len(), pool.empty, pool.used), (2, 2, 1, 1));
    let again = take(&mut pool, Purpose::Writing);
    assert_eq!(pool.slabs.len(), 2, "and used again");
    assert!(give(&mut pool, again).is_none());
    assert!(give(&mut pool, other).is_some() && pool.slabs.len() == 1);
}

#[test]
#[cfg(target_os = "linux")]
fn pages_behind_free_parts_go_back_when_they_are_many_and_nothing_of_what_is_held() {
    given_back(Frames::new());
    given_back(Runs::new());
}

#[cfg(target_os = "linux")]
fn given_back<const BYTES: usize, const WORDS: usize>(mut pool: Pool<BYTES, WORDS>) {
    let (parts, mut random) = (SLAB_BYTES / BYTES, fastrand::Rng::with_seed(5));
    let mut held: Vec<_> = (0..8 * parts).map(|_| take(&mut pool, Purpose::Writing)).collect();
    held.iter().enumerate().for_each(|(number, &part)| fill::<BYTES>(part, mark_of(number)));
    let mut held: Vec<_> = held.drain(..).enumerate().collect();
    random.shuffle(&mut held);
    let given: HashSet<usize> =
        held.drain(parts..).map(|(_, part)| (give(&mut pool, part), part.as_ptr().addr()).1).collect();
    assert_eq!(pool.used, parts);
    assert!(pool.spare <= parts + parts / SPARE_SHARE, "{} parts are spare", pool.spare);
    assert!(pool.slabs.values().filter(|slab| slab.is_thin).count() >= 6);
    let is_kept = |&(number, part): &(usize, NonNull<u8>)| is_filled::<BYTES>(part, mark_of(number));
    assert!(held.iter().all(is_kept), "and nothing of what is held went");
    assert_gone_is_gone(&pool);
    let taken: Vec<_> = (0..6 * parts).map(|_| take(&mut pool, Purpose::Reading)).collect();
    assert!(taken.iter().all(|part| given.contains(&part.as_ptr().addr())), "they are used again");
    let emptied = taken.iter().filter(|&&part| has_zeros::<BYTES>(part)).count();
    assert!(emptied > 4 * parts, "{emptied} parts had lost a page");
    assert!(pool.slabs.values().filter(|slab| slab.used == parts).all(|slab| !slab.is_thin));
}

#[test]
#[cfg(target_os = "linux")]
fn what_shares_a_page_with_what_is_held_is_spare_until_all_of_the_page_is_free() {
    // As with runs where pages have 64 KiB.
    const BYTES: usize = 1 << 10;
    let mut pool = Pool::<BYTES, { words_for(BYTES) }>::new();
    let (parts, in_page) = (SLAB_BYTES / BYTES, rustix::param::page_size() / BYTES);
    let held: Vec<_> = (0..4 * parts).map(|_| take(&mut pool, Purpose::Writing)).collect();
    held.iter().for_each(|&part| fill::<BYTES>(part, 7));
    let of_page = |at: usize| held.iter().copied().skip(at).step_by(in_page);
    assert!((1..in_page).flat_map(of_page).all(|part| give(&mut pool, part).is_none()));
    assert_eq!(pool.spare, 4 * (parts - parts / in_page), "nothing could be given back");
    assert!(pool.slabs.values().all(|slab| !slab.is_thin), "so huge pages are left as they are");
    // Every other page completely.
    assert!(of_page(0).step_by(2).all(|part| give(&mut pool, part).is_none()));
    assert_gone_is_gone(&pool);
    check_counts(&pool);
    let stuck = 4 * (parts - parts / in_page) / 2;
    let soon = 4 * Pool::<BYTES, { words_for(BYTES) }>::SPARE_PARTS_MIN;
    // Where pages are longer, too few parts were given back for a new attempt.
    assert!(in_page > 4 || pool.spare < stuck + soon, "{} are spare, {stuck} of them for good", pool.spare);
    assert!(of_page(0).skip(1).step_by(2).all(|part| is_filled::<BYTES>(part, 7)), "nothing held went");
}

/// Asserts that parts that count as given back are zero where that is decided: in their middle. All were
/// filled before.
#[cfg(target_os = "linux")]
fn assert_gone_is_gone<const BYTES: usize, const WORDS: usize>(pool: &Pool<BYTES, WORDS>) {
    for slab in pool.slabs.values() {
        let gone = (0..SLAB_BYTES / BYTES).filter(|&at| slab.free.has(at) && !slab.backed.has(at));
        let is_zero = |at| bytes::<BYTES>(&slab.slab.at(at * BYTES))[BYTES / 2] == 0;
        assert!(gone.into_iter().all(is_zero), "memory that is there counts for nothing");
    }
}

#[test]
fn only_whole_slabs_go_back_while_pages_may_not() {
    ending(Frames::new());
    ending(Runs::new());
}

fn ending<const BYTES: usize, const WORDS: usize>(mut pool: Pool<BYTES, WORDS>) {
    let parts = SLAB_BYTES / BYTES;
    let held: Vec<_> = (0..4 * parts).map(|_| take(&mut pool, Purpose::Writing)).collect();
    // All but one part of each slab.
    let (kept, gone): (Vec<_>, Vec<_>) = held.into_iter().enumerate().partition(|(at, _)| at % parts == 0);
    // SAFETY: they came from this pool, and nothing refers to them.
    assert!(gone.into_iter().all(|(_, part)| matches!(unsafe { pool.give(part, false) }, Ok(None))));
    assert_eq!(pool.spare, 4 * (parts - 1), "nothing was asked of the system");
    while pool.thin_out() {}
    assert!(!cfg!(target_os = "linux") || pool.spare <= parts, "{} parts are spare", pool.spare);
    let emptied: Vec<_> = kept.into_iter().filter_map(|(_, part)| give(&mut pool, part)).collect();
    assert_eq!((emptied.len(), pool.slabs.len()), (3, 1));
}

#[test]
fn a_part_keeps_what_was_written_while_others_come_and_go() {
    kept(Frames::new());
    kept(Runs::new());
}

fn kept<const BYTES: usize, const WORDS: usize>(mut pool: Pool<BYTES, WORDS>) {
    let mut random = fastrand::Rng::with_seed(3);
    let mut held: Vec<(NonNull<u8>, u8)> = Vec::new();
    for step in 0..16_000_u32 {
        // Growing phases alternate with shrinking ones.
        let wanted = if step / 4000 % 2 == 0 { 170 } else { 80 };
        if random.u8(..) < wanted || held.is_empty() {
            let part = take(&mut pool, if step % 3 == 0 { Purpose::Reading } else { Purpose::Writing });
            let mark = step as u8;
            fill::<BYTES>(part, mark);
            held.push((part, mark));
        } else {
            let (part, mark) = held.swap_remove(random.usize(..held.len()));
            assert!(is_filled::<BYTES>(part, mark), "step {step}");
            drop(give(&mut pool, part));
        }
    }
    assert!(held.iter().all(|&(part, mark)| is_filled::<BYTES>(part, mark)));
    check_counts(&pool);
}

/// Asserts that the pool's totals match those of its slabs.
fn check_counts<const BYTES: usize, const WORDS: usize>(pool: &Pool<BYTES, WORDS>) {
    let sum = |count: fn(&Parted<BYTES, WORDS>) -> usize| pool.slabs.values().map(count).sum::<usize>();
    assert_eq!((pool.spare, pool.used), (sum(|slab| slab.spare), sum(|slab| slab.used)));
    assert!(pool.slabs.values().all(|slab| slab.backed.count() == slab.spare && slab.stuck <= slab.spare));
    assert_eq!(pool.empty, sum(|slab| usize::from(slab.used == 0)));
    assert!(pool.slabs.values().all(|slab| slab.free.count() + slab.used == SLAB_BYTES / BYTES));
    let is_laden = |slab: &Parted<BYTES, WORDS>| slab.fresh() >= Pool::<BYTES, WORDS>::SPARE_PARTS_MIN;
    let laden = pool.slabs.iter().filter(|(_, slab)| is_laden(slab)).map(|(&base, _)| base);
    assert!(laden.eq(pool.laden.iter().copied()), "those that can give are known, and no others");
}

fn take<const BYTES: usize, const WORDS: usize>(
    pool: &mut Pool<BYTES, WORDS>,
    purpose: Purpose,
) -> NonNull<u8> {
    pool.take(purpose).expect("the system maps slabs")
}

fn give<const BYTES: usize, const WORDS: usize>(
    pool: &mut Pool<BYTES, WORDS>,
    part: NonNull<u8>,
) -> Option<Slab> {
    // SAFETY: the tests give back what they took, once, and do not use it before they take it again.
    unsafe { pool.give(part, true) }.expect("it is of the pool")
}

/// Never zero.
fn mark_of(number: usize) -> u8 {
    (number % 255 + 1) as u8
}

fn fill<const BYTES: usize>(part: NonNull<u8>, mark: u8) {
    // SAFETY: the part is the test's own.
    unsafe { part.write_bytes(mark, BYTES) };
}

fn is_filled<const BYTES: usize>(part: NonNull<u8>, mark: u8) -> bool {
    bytes::<BYTES>(&part).iter().all(|&byte| byte == mark)
}

#[cfg(target_os = "linux")]
fn has_zeros<const BYTES: usize>(part: NonNull<u8>) -> bool {
    bytes::<BYTES>(&part).contains(&0)
}

fn bytes<const BYTES: usize>(part: &NonNull<u8>) -> &[u8] {
    // SAFETY: the part is the test's own, and its bytes are initialised.
    unsafe { std::slice::from_raw_parts(part.as_ptr(), BYTES) }
}

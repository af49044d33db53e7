//! Tests that space is handed out once, and that freed space is used again.

use super::sparse::{REGION, SPARSE_FREE};
use super::*;
use atoll_errors::ErrorKind;

#[test]
fn freed_neighbours_join_and_are_used_again() {
    let mut space = Space::new(8192);
    let a = space.allocate(5000);
    let b = space.allocate(100);
    let c = space.allocate(5000);
    assert!([a, b, c].iter().all(|extent| extent.offset % BLOCK == 0));
    space.insert_free(a);
    space.insert_free(c);
    space.insert_free(b);
    assert_eq!(space.free_extents().count(), 1);
    assert_eq!(space.allocate(8192).offset, 8192);
}

#[test]
fn extents_that_follow_each_other_are_joined() {
    let extent = |offset, len| Extent { offset, len };
    let several = vec![extent(640, 64), extent(0, 64), extent(128, 512), extent(64, 64), extent(1024, 128)];
    assert_eq!(joined(several), [extent(0, 704), extent(1024, 128)]);
    assert_eq!(joined(Vec::new()), []);
}

#[test]
fn regions_of_a_long_file_with_little_in_them_are_sparse() {
    let mut space = Space::new(0);
    let taken: Vec<Extent> = (0..20 * REGION / BLOCK).map(|_| space.allocate(BLOCK)).collect();
    let free = |space: &mut Space, region: u64, bytes: u64| {
        let of_region = taken.iter().filter(|extent| extent.offset / REGION == region);
        // Scattered, instead of all in one place.
        of_region.rev().take((bytes / BLOCK) as usize).for_each(|extent| space.insert_free(*extent));
    };
    let sparse = |space: &Space| -> Vec<u64> {
        let sparse = space.sparse();
        (0..30).filter(|region| sparse.holds(region * REGION + 5)).collect()
    };
    free(&mut space, 3, REGION / 2);
    free(&mut space, 7, SPARSE_FREE);
    free(&mut space, 8, SPARSE_FREE - BLOCK);
    assert_eq!(sparse(&space), [7]);
    (10..20).for_each(|region| free(&mut space, region, REGION));
    assert_eq!(sparse(&space), [&[3, 7, 8], &(10..20).collect::<Vec<u64>>()[..]].concat());
    assert_eq!(sparse(&Space::new(REGION)), [0; 0]);
}

#[test]
fn sparse_regions_of_a_file_that_claims_to_be_endless_take_no_memory() {
    let mut space = Space::new(0);
    let far = 1 << 40;
    let used = |region: u64, before: u64| Extent { offset: region * REGION - before, len: BLOCK + before };
    for extent in [used(5, 0), used(9, REGION / 2 + BLOCK), used(far, 0)] {
        assert_eq!(space.claim(extent), Ok(()));
    }
    let sparse = space.sparse();
    for (region, is_sparse) in [(0, true), (4, true), (5, true), (7, true), (8, false), (9, true)]
        .into_iter()
        .chain([(10, true), (far / 2, true), (far - 1, true), (far, false), (far + 1, false)])
    {
        assert_eq!(sparse.holds(region * REGION + 5), is_sparse, "region {region}");
    }
}

#[test]
fn claimed_space_cannot_be_claimed_or_allocated_again() {
    let mut space = Space::new(4096);
    let taken = Extent { offset: 40960, len: 4096 };
    assert_eq!(space.claim(taken), Ok(()));
    assert_eq!(space.claim(taken), Err(Damage::SpaceUsedTwice));
    for _ in 0..20 {
        let extent = space.allocate(4096);
        assert!(extent.end() <= taken.offset || extent.offset >= taken.end());
    }
}

#[test]
fn a_commit_counts_what_writers_took_since_the_freeze_as_free() {
    let mut space = Space::new(4096);
    space.allocate_for_writer(4096);
    space.freeze();
    let late = space.allocate_for_writer(4096);
    let recorded = space.free_for_commit(&[]);
    assert!(recorded.free_extents().any(|free| free.offset <= late.offset && late.end() <= free.end()));
    assert_eq!(space.free_bytes(), 0);
}

#[test]
fn no_block_is_shared_by_an_allocation_and_what_was_there_before() {
    let mut space = Space::new(4096);
    let lives = space.allocate(4096 + 64);
    let rest = Extent { offset: lives.end(), len: space.end().next_multiple_of(BLOCK) - lives.end() };
    let mut random = 99u64;
    for _ in 0..200 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let extent = space.allocate((random >> 40) % 20_000 + 1);
        assert!(extent.offset / BLOCK > (lives.end() - 1) / BLOCK, "{extent:?} beside {rest:?}");
        space.insert_free(Extent { offset: extent.offset, len: extent.len / 2 / UNIT * UNIT });
        let kept =
            Extent { offset: extent.offset + extent.len / 2 / UNIT * UNIT, len: extent.len.div_ceil(2) };
        let other = space.allocate(64);
        let apart = other.end().div_ceil(BLOCK) <= kept.offset / BLOCK || other.offset >= kept.end();
        assert!(apart, "{other:?} {kept:?}");
    }
}

#[test]
fn what_is_given_back_is_a_hole_until_somebody_writes_there() {
    let mut space = Space::new(4096);
    let extents: Vec<Extent> = (0..8).map(|_| space.allocate(1 << 20)).collect();
    extents[1..4].iter().for_each(|extent| space.insert_free(*extent));
    let taken = space.take_to_release(1 << 20, usize::MAX);
    let bytes: u64 = taken.iter().map(|extent| extent.len).sum();
    // Of the three megabytes one is kept, and an eighth of the five in use.
    assert_eq!(bytes, ((2 << 20) - ((5 << 20) + 4096) / 8) / BLOCK * BLOCK, "{taken:?}");
    let meanwhile = space.allocate(64 << 10);
    assert!(taken.iter().all(|extent| meanwhile.end() <= extent.offset || extent.end() <= meanwhile.offset));
    assert!(taken.iter().all(|extent| {
        space
            .free_for_commit(&[])
            .free_extents()
            .any(|free| free.offset <= extent.offset && extent.end() <= free.end())
    }));
    space.insert_free(meanwhile);
    space.released(&taken.iter().map(|extent| (*extent, true)).collect::<Vec<_>>());
    assert_eq!(space.spare_bytes(), (3 << 20) - bytes);
    assert!(space.take_to_release(1 << 20, usize::MAX).is_empty(), "a hole is given back once");
    let again = space.allocate(3 << 20);
    assert_eq!((again.offset, space.spare_bytes()), (extents[1].offset, 0));
    space.insert_free(again);
    assert_eq!(space.spare_bytes(), 3 << 20, "what was written takes space again");
}

#[test]
fn space_that_has_blocks_is_preferred_where_holes_are_to_be_avoided() {
    let mut space = Space::new(4096);
    let extents: Vec<Extent> = (0..6).map(|_| space.allocate(1 << 20)).collect();
    space.refuse(extents[1]);
    space.insert_free(extents[3]);
    space.insert_free(extents[4]);
    assert_eq!(space.spare_bytes(), 2 << 20, "what was refused has no blocks");
    let best = space.allocate_for_writer(1 << 20);
    assert_eq!(best, extents[1], "it fits best");
    let instead = space.allocate_instead(best);
    assert_eq!(instead, Some(extents[3]));
    space.refuse(best);
    space.avoid_holes(true);
    let taken = [0; 2].map(|_| space.allocate(1 << 20));
    assert_eq!(taken, [extents[4], extents[1]], "a hole is better than nothing");
    assert_eq!(space.allocate_instead(best), None, "the file does not grow");
    // As everything that a writer took, it is free for every commit until the next freeze.
    let recorded = space.free_for_commit(&[]);
    assert!(instead.is_some_and(|instead| recorded.free.holds(instead)));
}

#[test]
fn space_with_blocks_is_found_behind_a_hole_and_what_had_no_room_is_not_tried_again() {
    let mut space = Space::new(4096);
    let extents: Vec<Extent> = (0..6).map(|_| space.allocate(1 << 20)).collect();
    // One free extent, of which the front was given back.
    extents[1..4].iter().for_each(|extent| space.insert_free(*extent));
    extents[1..3].iter().for_each(|extent| space.free.add_hole(*extent));
    space.avoid_holes(true);
    let run = space.allocate(256 << 10);
    assert_eq!(run.offset, extents[3].offset);
    let front = Extent { offset: extents[1].offset, len: 2 << 20 };
    let back = Extent { offset: run.end(), len: extents[3].end() - run.end() };
    assert_eq!(space.free_extents().collect::<Vec<_>>(), [front, back]);
    assert_eq!(space.spare_bytes(), back.len, "the hole stays one");
    space.give_back(run, ErrorKind::OutOfSpace);
    let next = space.allocate(256 << 10);
    assert_eq!(next.offset, run.end());
    // Whatever else failed there says nothing about the room.
    space.give_back(next, ErrorKind::Unavailable);
    assert_eq!(space.allocate(256 << 10), next);
}

#[test]
fn kept_space_is_free_on_disk_and_used_only_after_its_time() {
    let mut space = Space::new(4096);
    let taken = space.allocate(1 << 20);
    let old = space.allocate(8192);
    space.keep(old, Duration::from_secs(10));
    space.use_kept(Duration::from_secs(15), Duration::from_secs(10));
    assert_ne!(space.allocate(8192), old);
    assert!(space.free_for_commit(&[]).free_extents().any(|free| free.offset == old.offset));
    space.use_kept(Duration::from_secs(20), Duration::from_secs(10));
    assert_eq!(space.allocate(8192), old);
    space.keep(taken, Duration::from_secs(20));
    space.use_kept(Duration::from_secs(20), Duration::from_secs(10));
    assert_eq!(space.kept_bytes(), 0, "too much is not kept");
}

#[test]
fn the_free_end_is_cut_off_by_as_much_as_is_asked_and_no_further_than_to_what_is_in_use() {
    let mut space = Space::new(4096);
    let extents: Vec<Extent> = (0..4).map(|_| space.allocate(1 << 20)).collect();
    assert_eq!((space.tail_bytes(), space.shrink(u64::MAX)), (0, extents[3].end()));
    extents[1..].iter().for_each(|extent| space.insert_free(*extent));
    assert_eq!(space.tail_bytes(), 3 << 20);
    // A hole that both the first and the second step meet.
    space.free.add_hole(Extent { offset: extents[2].offset, len: 2 << 20 });
    assert_eq!(space.shrink(300_000), (extents[3].end() - 300_000).next_multiple_of(BLOCK));
    assert_eq!(space.free_bytes(), space.end() - extents[0].end());
    assert_eq!(space.spare_bytes(), 1 << 20);
    let taken = space.allocate(64 << 10);
    assert_eq!(taken.offset, extents[1].offset);
    assert_eq!(space.shrink(u64::MAX), taken.end());
    assert_eq!((space.free_bytes(), space.tail_bytes(), space.shrink(u64::MAX)), (0, 0, taken.end()));
    assert_eq!(space.allocate(4096).offset, taken.end(), "what was cut off is used again");
}

#[test]
fn random_use_never_hands_out_a_byte_twice() {
    let mut random = 88172645463325252u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut space = Space::new(4096);
    let mut taken: Vec<Extent> = Vec::new();
    for _ in 0..5000 {
        if next() % 3 > 0 || taken.is_empty() {
            let extent = space.allocate(next() % 20_000 + 1);
            assert!(taken.iter().all(|other| extent.end() <= other.offset || extent.offset >= other.end()));
            taken.push(extent);
        } else {
            let index = next() as usize % taken.len();
            space.insert_free(taken.swap_remove(index));
        }
    }
    let used: u64 = taken.iter().map(|extent| extent.len).sum();
    assert_eq!(used + space.free_bytes(), space.end() - 4096);
}

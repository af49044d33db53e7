//! What the simulated disk promises: determinism, honest syncs, and faults that really occur.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Counters, Disk, DiskError, FaultPlan, SimDisk, Survival};
use atoll_errors::ErrorKind;

const SEEDS: u64 = 200;

fn byte_at(disk: &SimDisk, offset: u64) -> u8 {
    let mut byte = [0];
    disk.read_at(offset, &mut byte).unwrap();
    byte[0]
}

/// Makes two hundred changes, and stops at an error, as when the power is off.
fn churn(disk: &SimDisk, seed: u64) -> Result<(), DiskError> {
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..200 {
        match rng.u8(..10) {
            0 => disk.sync()?,
            1 => disk.reserve(rng.u64(..100_000), rng.u64(..10_000))?,
            2 => disk.truncate(rng.u64(50_000..100_000))?,
            _ => {
                let bytes = vec![rng.u8(..); rng.usize(1..9000)];
                disk.write_at(rng.u64(..100_000), &bytes)?;
            }
        }
    }
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_disk_and_another_seed_another() {
    let run = |seed| {
        let disk = SimDisk::seeded(seed);
        churn(&disk, 1).unwrap();
        disk.set_plan(FaultPlan {
            power_cut_after: Some(50),
            misdirect_write: Some(3),
            ..FaultPlan::default()
        });
        churn(&disk, 2).unwrap_err();
        let after = disk.crash();
        (after.to_bytes(), after.counters())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}

#[test]
fn what_was_synced_survives_every_crash() {
    for seed in 0..SEEDS {
        let disk = SimDisk::seeded(seed);
        churn(&disk, seed).unwrap();
        disk.sync().unwrap();
        let before = disk.to_bytes();
        assert_eq!(disk.crash().to_bytes(), before, "seed {seed}");
    }
}

/// Writes a value, and then the mark that says it is there. A correct program syncs in between.
fn value_then_mark(disk: &SimDisk, syncs_between: bool) -> Result<(), DiskError> {
    disk.write_at(4096, &[1; 4096])?;
    if syncs_between {
        disk.sync()?;
    }
    disk.write_at(0, &[1])?;
    disk.sync()
}

/// Number of seeds in which the mark is there and the value is not, with a power cut at each operation.
fn seeds_with_a_broken_promise(syncs_between: bool) -> u64 {
    let is_broken = |seed: u64| {
        let disk = SimDisk::seeded(seed);
        disk.write_at(0, &[0; 8192]).unwrap();
        disk.sync().unwrap();
        disk.set_plan(FaultPlan { power_cut_after: Some(seed % 5), ..FaultPlan::default() });
        let _outcome = value_then_mark(&disk, syncs_between);
        let bytes = disk.crash().to_bytes();
        bytes[0] == 1 && bytes[4096..].contains(&0)
    };
    (0..SEEDS).filter(|seed| is_broken(*seed)).count() as u64
}

#[test]
fn a_program_that_forgets_a_sync_is_caught_and_a_right_one_is_not() {
    assert_eq!(seeds_with_a_broken_promise(true), 0);
    let caught = seeds_with_a_broken_promise(false);
    assert!(caught > SEEDS / 20, "only {caught} of {SEEDS} seeds");
}

#[test]
fn a_crash_drops_keeps_tears_and_reorders() {
    let mut total = Counters::default();
    for seed in 0..SEEDS {
        let disk = SimDisk::seeded(seed);
        churn(&disk, seed).unwrap();
        total.add(&disk.crash().counters());
    }
    let of = |name: &str| total.iter().find(|(counter, _)| *counter == name).unwrap().1;
    for name in [
        "writes_kept",
        "writes_dropped",
        "writes_torn_at_sectors",
        "writes_torn_at_bytes",
        "writes_reordered",
        "crashes",
        "reserves",
        "truncates",
    ] {
        assert!(of(name) > 0, "{name} never occurred");
    }
}

#[test]
fn tears_at_sectors_keep_or_drop_whole_sectors() {
    let mut mixed = 0;
    for seed in 0..SEEDS {
        let disk = SimDisk::seeded(seed);
        disk.write_at(0, &[0; 8192]).unwrap();
        disk.sync().unwrap();
        disk.write_at(100, &[1; 5000]).unwrap();
        let after = disk.crash_with(Survival::Mixed);
        if after.counters().writes_torn_at_sectors == 1 {
            let bytes = after.to_bytes();
            mixed += u64::from(bytes[100..5100].contains(&0) && bytes.contains(&1));
            for sector in bytes[512..4608].chunks(512) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "seed {seed}");
            }
        }
    }
    assert!(mixed > 0);
}

#[test]
fn survival_can_be_narrowed_to_nothing_and_to_everything() {
    for (survival, expected) in [(Survival::Nothing, 0), (Survival::Everything, 2)] {
        let disk = SimDisk::with_bytes(1, &[0; 100]);
        disk.write_at(9, &[1]).unwrap();
        disk.write_at(9, &[2]).unwrap();
        assert_eq!(disk.unsynced_writes(), 2);
        assert_eq!(byte_at(&disk.crash_with(survival), 9), expected);
    }
}

#[test]
fn the_power_goes_at_the_planned_change_and_stays_off() {
    let disk = SimDisk::seeded(1);
    disk.set_plan(FaultPlan { power_cut_after: Some(2), ..FaultPlan::default() });
    disk.write_at(0, &[1]).unwrap();
    disk.sync().unwrap();
    assert_eq!(byte_at(&disk, 0), 1, "reads do not count");
    assert_eq!(disk.write_at(0, &[2]).unwrap_err().kind(), ErrorKind::Unavailable);
    disk.set_plan(FaultPlan::default());
    assert!(disk.sync().is_err() && disk.len().is_err() && disk.read_at(0, &mut [0]).is_err());
    assert_eq!(disk.crash_with(Survival::Everything).to_bytes(), [2], "the struck write may survive");
}

#[test]
fn a_crash_leaves_the_old_handles_dead_and_a_kill_loses_nothing() {
    let disk = SimDisk::seeded(1);
    let handle = disk.clone();
    disk.write_at(0, &[1]).unwrap();
    let killed = disk.kill();
    assert!(handle.write_at(0, &[2]).is_err());
    assert_eq!((byte_at(&killed, 0), killed.unsynced_writes()), (1, 1));
    assert!(killed.crash_with(Survival::Nothing).is_empty().unwrap());
}

#[test]
fn a_misdirected_write_is_acknowledged_and_lands_on_another_block() {
    for seed in 0..SEEDS {
        let disk = SimDisk::with_bytes(seed, &[0; 20 * 4096]);
        disk.set_plan(FaultPlan { misdirect_write: Some(1), ..FaultPlan::default() });
        disk.write_at(4096, &[1; 4096]).unwrap();
        disk.write_at(8192 + 7, &[2; 4000]).unwrap();
        let bytes = disk.to_bytes();
        assert_eq!(bytes.len(), 20 * 4096);
        assert!(bytes[8192..8192 + 4096].iter().all(|byte| *byte == 0), "seed {seed}");
        let start = bytes.iter().position(|byte| *byte == 2).unwrap();
        assert_eq!((start % 4096, disk.counters().misdirected_writes), (7, 1));
    }
}

#[test]
fn a_flip_changes_one_bit_for_readers_and_on_the_medium() {
    let disk = SimDisk::seeded(3);
    assert_eq!(disk.flip_some_bit(0..u64::MAX), None);
    disk.write_at(40_960, &[0; 4096]).unwrap();
    disk.sync().unwrap();
    assert_eq!(disk.flip_some_bit(0..40_960), None);
    let (offset, bit) = disk.flip_some_bit(40_000..41_000).unwrap();
    assert!((40_960..41_000).contains(&offset));
    assert_eq!(byte_at(&disk, offset), 1 << bit);
    let ones: u32 = disk.crash_with(Survival::Nothing).to_bytes().iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(ones, 1);
}

#[test]
fn planned_errors_strike_once_and_change_nothing_else() {
    let disk = SimDisk::with_bytes(1, &[1; 100]);
    disk.set_plan(FaultPlan { fail_read: Some(1), fail_write: Some(0), ..FaultPlan::default() });
    assert!(disk.write_at(0, &[2; 50]).is_err());
    assert!(disk.to_bytes()[50..].iter().all(|byte| *byte == 1));
    disk.write_at(0, &[3; 50]).unwrap();
    disk.read_at(0, &mut [0; 9]).unwrap();
    assert_eq!(disk.read_at(0, &mut [0; 9]).unwrap_err().kind(), ErrorKind::Unavailable);
    disk.read_at(0, &mut [0; 9]).unwrap();
    let counters = disk.counters();
    assert_eq!((counters.read_errors, counters.write_errors), (1, 1));
}

#[test]
fn an_unreadable_range_fails_every_read_that_touches_it() {
    let disk = SimDisk::with_bytes(1, &[1; 100]);
    disk.set_plan(FaultPlan { unreadable: Some(10..20), ..FaultPlan::default() });
    for _ in 0..2 {
        assert!(disk.read_at(0, &mut [0; 11]).is_err());
        disk.read_at(0, &mut [0; 10]).unwrap();
        disk.read_at(20, &mut [0; 10]).unwrap();
    }
}

#[test]
fn a_failed_sync_may_lose_writes_for_good() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let disk = SimDisk::with_bytes(seed, &[0; 10]);
        disk.set_plan(FaultPlan { fail_sync: Some(0), ..FaultPlan::default() });
        disk.write_at(0, &[1]).unwrap();
        assert!(disk.sync().is_err());
        assert_eq!(byte_at(&disk, 0), 1, "the page cache still has it");
        disk.sync().unwrap();
        lost += u64::from(byte_at(&disk.crash(), 0) == 0);
    }
    assert!(lost > 0 && lost < SEEDS);
}

#[test]
fn a_full_disk_refuses_growth_only_and_takes_it_again_after_a_cut() {
    let disk = SimDisk::with_bytes(1, &[1; 100]);
    disk.set_plan(FaultPlan { space_left: Some(50), ..FaultPlan::default() });
    assert_eq!(disk.reserve(0, 151).unwrap_err().kind(), ErrorKind::OutOfSpace);
    assert_eq!(disk.len().unwrap(), 100, "a refused reservation changes nothing");
    disk.write_at(0, &[2; 100]).unwrap();
    disk.write_at(100, &[2; 50]).unwrap();
    assert_eq!(disk.write_at(150, &[2]).unwrap_err().kind(), ErrorKind::OutOfSpace);
    disk.truncate(149).unwrap();
    disk.write_at(149, &[3]).unwrap();
    assert_eq!(disk.counters().out_of_space, 2);
}

#[test]
fn a_full_disk_refuses_writes_to_blocks_that_were_given_back() {
    let disk = SimDisk::with_bytes(1, &[1; 5 * 4096]);
    // One block, and half a block on each side, neither of which goes as a whole.
    disk.release(2048, 2 * 4096).unwrap();
    disk.set_plan(FaultPlan { space_left: Some(4095), ..FaultPlan::default() });
    assert_eq!(disk.write_at(4096, &[2]).unwrap_err().kind(), ErrorKind::OutOfSpace);
    disk.write_at(0, &[2; 4096]).unwrap();
    disk.release(3 * 4096, 4096).unwrap();
    disk.write_at(4096, &[2]).unwrap();
    disk.write_at(4096, &[3; 4096]).unwrap();
    assert_eq!(disk.write_at(3 * 4096, &[2; 4096]).unwrap_err().kind(), ErrorKind::OutOfSpace);
    assert_eq!(disk.counters().out_of_space_in_holes, 2);
}

#[test]
fn a_read_only_medium_refuses_every_change() {
    let disk = SimDisk::with_bytes(1, &[1; 100]);
    disk.set_plan(FaultPlan { read_only: true, ..FaultPlan::default() });
    for outcome in [disk.write_at(0, &[2]), disk.reserve(0, 200), disk.truncate(1), disk.sync()] {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::ReadOnly);
    }
    assert_eq!(disk.to_bytes(), [1; 100]);
}

#[test]
fn a_window_is_given_once_it_is_offered_and_only_where_the_file_is() {
    let disk = SimDisk::with_bytes(1, &[1; 8192]);
    assert!(disk.window(0, 4096).is_none(), "nobody asked for it");
    disk.offer_windows();
    for (offset, len) in [(0, 8193), (8192, 1), (0, 0), (u64::MAX, 2)] {
        assert!(disk.window(offset, len).is_none(), "{len} at {offset}");
    }
    let fork = disk.fork();
    let killed = disk.kill();
    let crashed = killed.crash();
    assert!(fork.window(0, 4096).is_some() && crashed.window(0, 4096).is_some());
    assert!(killed.window(0, 4096).is_none(), "its power is off");
    let plan = FaultPlan { fail_write: Some(0), ..FaultPlan::default() };
    crashed.set_plan(plan);
    assert!(crashed.window(0, 4096).is_none(), "its pages cannot be prepared");
}

#[test]
fn what_is_copied_into_a_window_waits_for_a_sync_as_a_write_does() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..SEEDS {
        let disk = SimDisk::with_bytes(seed, &[1; 8192]);
        disk.offer_windows();
        let mut window = disk.window(4096, 4096).unwrap();
        window.write_at(4096, &[2; 100]).unwrap();
        disk.sync().unwrap();
        window.write_at(4196, &[3; 100]).unwrap();
        let at = |offset| byte_at(&disk, offset);
        assert_eq!([at(4095), at(4195), at(4196), at(4296)], [1, 2, 3, 0], "zeros lie behind");
        let counters = disk.counters();
        assert_eq!((counters.window_copies, counters.writes), (2, 1), "one call wrote the zeros");
        let after = disk.crash();
        assert!(window.write_at(4296, &[4]).is_err(), "the power is off");
        let at = |offset| byte_at(&after, offset);
        assert_eq!([at(4095), at(4096), at(4195)], [1, 2, 2], "seed {seed}");
        match at(4250) {
            3 => kept += 1,
            0 => lost += 1,
            other => panic!("seed {seed}: {other}"),
        }
    }
    assert!(kept > 0 && lost > 0, "{kept} kept, {lost} lost");
}

#[test]
fn the_power_may_fail_at_a_copy_but_a_copy_is_no_call_that_fails_or_goes_astray() {
    let disk = SimDisk::with_bytes(1, &[1; 8192]);
    disk.offer_windows();
    let mut window = disk.window(4096, 4096).unwrap();
    disk.set_plan(FaultPlan {
        fail_write: Some(0),
        misdirect_write: Some(0),
        power_cut_after: Some(1),
        ..FaultPlan::default()
    });
    window.write_at(4096, &[2; 10]).unwrap();
    assert_eq!(byte_at(&disk, 4105), 2);
    assert!(window.write_at(4106, &[3; 10]).is_err());
    let counters = disk.counters();
    assert_eq!((counters.power_cuts, counters.write_errors, counters.misdirected_writes), (1, 0, 0));
    let bytes = disk.crash_with(Survival::Everything).to_bytes();
    assert_eq!(bytes[4096..4116], [[2; 10], [3; 10]].concat(), "the struck copy may be on the medium");
}

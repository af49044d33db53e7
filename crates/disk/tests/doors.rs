//! What every disk promises, checked on each kind: file, memory, simulated.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Disk, FileDisk, MemoryDisk, Mode, Operation, SimDisk};
use atoll_errors::ErrorKind;
use std::path::PathBuf;

struct Doors {
    folder: tempfile::TempDir,
}

impl Doors {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn each(&self) -> [Box<dyn Disk>; 3] {
        [
            Box::new(FileDisk::open(&self.path(), Mode::Create).unwrap()),
            Box::new(MemoryDisk::new()),
            Box::new(SimDisk::seeded(1)),
        ]
    }
}

fn read(disk: &dyn Disk, offset: u64, len: usize) -> Vec<u8> {
    let mut target = vec![0xee; len];
    disk.read_at(offset, &mut target).unwrap();
    target
}

#[test]
fn what_was_written_is_read_and_gaps_are_zero() {
    for disk in Doors::new().each() {
        assert!(disk.is_empty().unwrap());
        disk.write_at(5000, b"coral").unwrap();
        disk.write_at(0, b"reef").unwrap();
        disk.sync().unwrap();
        assert_eq!(disk.len().unwrap(), 5005);
        assert_eq!(read(&*disk, 0, 6), b"reef\0\0");
        assert_eq!(read(&*disk, 4998, 7), b"\0\0coral");
    }
}

#[test]
fn released_space_reads_as_zeros_or_as_before_and_keeps_what_lies_beside_it() {
    for disk in Doors::new().each() {
        disk.write_at(0, &[7; 64 * 1024]).unwrap();
        disk.release(8192, 16 * 1024).unwrap();
        disk.sync().unwrap();
        let bytes = read(&*disk, 0, 64 * 1024);
        let (hole, beside) = (&bytes[8192..24 * 1024], [&bytes[..8192], &bytes[24 * 1024..]].concat());
        assert!(beside.iter().all(|byte| *byte == 7));
        assert!(hole.iter().all(|byte| *byte == hole[0]) && (hole[0] == 0 || hole[0] == 7));
        disk.write_at(10_000, b"reef").unwrap();
        assert_eq!(read(&*disk, 10_000, 4), b"reef");
        disk.release(0, 0).unwrap();
    }
}

#[test]
fn a_file_takes_less_space_once_some_was_released() {
    use std::os::unix::fs::MetadataExt;
    let doors = Doors::new();
    let disk = FileDisk::open(&doors.path(), Mode::Create).unwrap();
    disk.write_at(0, &vec![7; 1 << 20]).unwrap();
    disk.sync().unwrap();
    let before = std::fs::metadata(doors.path()).unwrap();
    disk.release(0, 512 * 1024).unwrap();
    disk.sync().unwrap();
    let after = std::fs::metadata(doors.path()).unwrap();
    assert_eq!(before.len(), after.len());
    // A file system without holes keeps the space, and does not promise zeros then.
    let is_hole = read(&disk, 0, 1) == [0];
    assert!(!is_hole || after.blocks() < before.blocks(), "{} {}", before.blocks(), after.blocks());
}

#[test]
fn a_read_past_the_end_is_an_error_and_not_a_short_read() {
    for disk in Doors::new().each() {
        disk.write_at(0, &[1; 10]).unwrap();
        let error = disk.read_at(5, &mut [0; 6]).unwrap_err();
        assert_eq!((error.operation, error.kind()), (Operation::Read, ErrorKind::Corrupt));
        assert!(disk.read_at(u64::MAX, &mut [0; 6]).is_err());
        disk.read_at(1000, &mut []).unwrap();
    }
}

#[test]
fn reserve_keeps_the_bytes_and_fills_with_zeros() {
    for disk in Doors::new().each() {
        disk.write_at(0, &[7; 100]).unwrap();
        disk.reserve(50, 200_000).unwrap();
        assert_eq!(disk.len().unwrap(), 200_050);
        disk.reserve(0, 10).unwrap();
        disk.reserve(1 << 40, 0).unwrap();
        assert_eq!(disk.len().unwrap(), 200_050);
        let bytes = read(&*disk, 0, 200_050);
        assert!(bytes[..100].iter().all(|byte| *byte == 7) && bytes[100..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn truncate_cuts_and_never_grows_and_what_was_cut_is_gone() {
    for disk in Doors::new().each() {
        disk.write_at(0, &[7; 9000]).unwrap();
        disk.truncate(10_000).unwrap();
        assert_eq!(disk.len().unwrap(), 9000);
        disk.truncate(5).unwrap();
        disk.reserve(0, 9000).unwrap();
        let bytes = read(&*disk, 0, 9000);
        assert!(bytes[..5] == [7; 5] && bytes[5..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_range_that_no_file_can_hold_is_refused() {
    for disk in Doors::new().each() {
        assert_eq!(disk.write_at(u64::MAX - 2, b"four").unwrap_err().kind(), ErrorKind::OutOfSpace);
        assert_eq!(disk.reserve(u64::MAX, 2).unwrap_err().kind(), ErrorKind::OutOfSpace);
        assert!(disk.is_empty().unwrap());
    }
}

#[test]
fn a_reopened_file_holds_what_was_written() {
    let doors = Doors::new();
    FileDisk::open(&doors.path(), Mode::Create).unwrap().write_at(3, b"reef").unwrap();
    for mode in [Mode::Create, Mode::Write, Mode::Read] {
        assert_eq!(read(&FileDisk::open(&doors.path(), mode).unwrap(), 3, 4), b"reef");
    }
}

#[test]
fn a_missing_file_is_created_only_on_request() {
    let doors = Doors::new();
    for mode in [Mode::Write, Mode::Read] {
        let error = FileDisk::open(&doors.path(), mode).unwrap_err();
        assert_eq!((error.operation, error.kind()), (Operation::Open, ErrorKind::NotFound));
    }
    assert!(!doors.path().exists());
}

#[test]
fn a_file_opened_for_reading_is_never_changed() {
    let doors = Doors::new();
    FileDisk::open(&doors.path(), Mode::Create).unwrap().write_at(0, b"reef").unwrap();
    let before = std::fs::metadata(doors.path()).unwrap().modified().unwrap();
    let disk = FileDisk::open(&doors.path(), Mode::Read).unwrap();
    let refused = [disk.write_at(0, b"x"), disk.reserve(0, 9000), disk.truncate(0), disk.sync()];
    for outcome in refused {
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::ReadOnly);
    }
    assert_eq!(std::fs::read(doors.path()).unwrap(), b"reef");
    assert_eq!(std::fs::metadata(doors.path()).unwrap().modified().unwrap(), before);
}

#[test]
fn threads_that_write_while_another_reserves_lose_nothing() {
    let doors = Doors::new();
    let disk = FileDisk::open(&doors.path(), Mode::Create).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let disk = &disk;
            scope.spawn(move || {
                for round in 0..50 {
                    disk.write_at((round * 4 + thread) * 1000, &[thread as u8 + 1; 1000]).unwrap();
                    disk.reserve(round * 4000, 4000).unwrap();
                }
            });
        }
    });
    let bytes = read(&disk, 0, 200_000);
    assert!(bytes.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / 1000 % 4 + 1));
}

#[test]
fn a_file_that_was_removed_is_not_synced_whatever_was_written_to_it() {
    let doors = Doors::new();
    let file = FileDisk::open(&doors.path(), Mode::Create).unwrap();
    file.write_at(0, b"reef").unwrap();
    file.sync().unwrap();
    let other = doors.folder.path().join("moved");
    std::fs::rename(doors.path(), &other).unwrap();
    file.sync().unwrap();
    std::fs::remove_file(&other).unwrap();
    file.write_at(4, b"coral").unwrap();
    let refused = file.sync().unwrap_err();
    assert_eq!((refused.operation, refused.kind()), (Operation::Sync, ErrorKind::NotFound));
    assert!(refused.source.to_string().contains("removed"), "{}", refused.source);
}

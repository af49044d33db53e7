//! What was logged is found again, whole or not at all, and goes once it is applied.
#![allow(clippy::unwrap_used)]

use super::*;
use atoll_engine::Options;

fn position(epoch: u64, sequence: u64) -> Position {
    Position { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

fn entries(epoch: u64, sequences: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
    let entry = |sequence| Entry { position: position(epoch, sequence), time_ms: 5, body: [1, 2].into() };
    sequences.map(entry).collect()
}

fn open(engine: &Engine, applied: u64) -> (SlotLog, Vec<Found>) {
    let mut log = SlotLog::open(engine, "log").unwrap();
    let applied = (Slot(3), Applied { epoch: 1, sequence: applied }, 4);
    let found = log.found([applied].into_iter()).unwrap();
    (log, found)
}

#[test]
fn what_was_logged_and_not_applied_is_found_again() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let (mut log, found) = open(&engine, 0);
    assert!(found[0].entries.is_empty());
    log.append(Slot(3), position(0, 0), &entries(1, 1..=3));
    assert!(open(&engine, 2).1[0].entries.is_empty(), "nothing is written before that is asked for");
    log.append(Slot(3), position(1, 3), &entries(1, 4..=5));
    log.write().unwrap();
    assert_eq!(open(&engine, 2).1[0].entries, entries(1, 3..=5));
    log.append(Slot(3), position(1, 3), &entries(2, 4..=4));
    log.write().unwrap();
    let expected = [entries(1, 1..=3), entries(2, 4..=4)].concat();
    assert_eq!(open(&engine, 0).1[0].entries, expected, "what another primary has not is gone");
}

#[test]
fn what_is_applied_goes_and_nothing_else_does() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let (mut log, _) = open(&engine, 0);
    log.append(Slot(3), position(0, 0), &entries(1, 1..=100));
    log.append(Slot(4), position(0, 0), &entries(1, 1..=1));
    log.applied(Slot(3), Sequence(80));
    log.write().unwrap();
    assert_eq!(count(&engine), 21);
    assert_eq!(open(&engine, 80).1[0].entries, entries(1, 81..=100));
    log.append(Slot(4), position(1, 1), &entries(1, 2..=2));
    log.applied(Slot(3), Sequence(100));
    log.forget(&[Slot(4)]);
    log.write().unwrap();
    assert_eq!(count(&engine), 0, "what was on its way is forgotten with the rest");
}

#[test]
fn what_was_on_its_way_out_when_a_node_ended_goes_with_what_is_applied_next() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let (mut log, _) = open(&engine, 0);
    log.append(Slot(3), position(0, 0), &entries(1, 1..=3));
    log.write().unwrap();
    let (mut log, found) = open(&engine, 3);
    assert!(found[0].entries.is_empty());
    log.append(Slot(3), position(1, 3), &entries(1, 4..=4));
    log.applied(Slot(3), Sequence(4));
    log.write().unwrap();
    assert_eq!(engine.tree("log").unwrap().len().unwrap(), 0);
}

/// Entries with bodies of these lengths, of which no two bytes in a row are equal.
fn long(epoch: u64, first: u64, lengths: &[usize]) -> Vec<Entry> {
    let entry = |(sequence, &length): (u64, &usize)| {
        let body: Vec<u8> = (0..length).map(|at| at as u8).collect();
        Entry { position: position(epoch, sequence), time_ms: 5, body: body.into() }
    };
    (first..).zip(lengths).map(entry).collect()
}

/// A log that stores at most ten bytes of a body in one value.
fn open_in_parts(engine: &Engine, applied: u64) -> SlotLog {
    SlotLog { part_bytes: 10, ..open(engine, applied).0 }
}

fn count(engine: &Engine) -> u64 {
    engine.tree("log").unwrap().len().unwrap()
}

#[test]
fn an_entry_that_is_too_long_for_one_value_is_found_whole_and_goes_whole() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let mut log = open_in_parts(&engine, 0);
    let first = long(1, 1, &[9, 10, 11, 20, 0, 35]);
    log.append(Slot(3), position(0, 0), &first);
    log.append(Slot(4), position(0, 0), &long(1, 1, &[25]));
    log.write().unwrap();
    assert_eq!(count(&engine), (1 + 1 + 2 + 2 + 1 + 4) + 3);
    assert_eq!(open(&engine, 0).1[0].entries, first);
    assert_eq!(open(&engine, 3).1[0].entries, first[3..], "parts of applied ones are skipped");
    // What a long entry replaces, and what replaces a long one, leaves nothing.
    let second = long(2, 5, &[15, 3, 41]);
    log.append(Slot(3), position(1, 4), &second);
    log.write().unwrap();
    assert_eq!(open(&engine, 0).1[0].entries, [&first[..4], &second].concat());
    assert_eq!(count(&engine), (1 + 1 + 2 + 2) + (2 + 1 + 5) + 3);
    let third = long(3, 7, &[1]);
    log.append(Slot(3), position(2, 6), &third);
    log.applied(Slot(3), Sequence(7));
    log.forget(&[Slot(4)]);
    log.write().unwrap();
    assert_eq!(count(&engine), 0);
}

#[test]
fn what_was_applied_of_long_entries_when_a_node_ended_goes_with_the_next_ones() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let mut log = open_in_parts(&engine, 0);
    log.append(Slot(3), position(0, 0), &long(1, 1, &[25, 25]));
    log.write().unwrap();
    let mut log = open_in_parts(&engine, 2);
    log.append(Slot(3), position(1, 2), &long(1, 3, &[25]));
    log.applied(Slot(3), Sequence(3));
    log.write().unwrap();
    assert_eq!(count(&engine), 0);
}

#[test]
fn an_entry_that_an_earlier_build_stored_as_one_value_is_found() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let mut record = [1_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat();
    record.extend_from_slice(b"a body that is now stored in parts");
    let name = [&3_u32.to_be_bytes()[..], &1_u64.to_be_bytes()].concat();
    engine.tree("log").unwrap().put(&name, &record, Durability::Buffered).unwrap();
    let mut log = open_in_parts(&engine, 0);
    let applied = (Slot(3), Applied { epoch: 1, sequence: 0 }, 4);
    let found = log.found([applied].into_iter()).unwrap();
    assert_eq!(&*found[0].entries[0].body, b"a body that is now stored in parts");
    log.append(Slot(3), position(1, 1), &long(2, 2, &[12]));
    log.write().unwrap();
    let found = open(&engine, 0).1;
    assert_eq!(found[0].entries.len(), 2);
    assert_eq!(found[0].entries[1..], long(2, 2, &[12]));
}

#[test]
fn a_part_that_is_missing_is_damage() {
    let lost = |number: u32, others: &[usize]| {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let mut log = open_in_parts(&engine, 0);
        log.append(Slot(3), position(0, 0), &long(1, 1, others));
        log.write().unwrap();
        let name = part_name(Slot(3), Sequence(1), number, 3);
        engine.tree("log").unwrap().delete(&name, Durability::Buffered).unwrap();
        SlotLog::open(&engine, "log").unwrap().found(std::iter::empty())
    };
    for number in 0..3 {
        for others in [&[25][..], &[25, 5], &[25, 25]] {
            let found = lost(number, others);
            assert!(matches!(found, Err(LogError::Damaged { slot: 3, .. })), "{number} {others:?}");
        }
    }
    assert!(lost(3, &[25, 25]).is_ok(), "there is no fourth one");
}

#[test]
fn a_gap_is_damage() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let (mut log, _) = open(&engine, 0);
    log.append(Slot(3), position(1, 1), &entries(1, 2..=3));
    log.write().unwrap();
    let mut log = SlotLog::open(&engine, "log").unwrap();
    assert!(matches!(log.found(std::iter::empty()), Err(LogError::Damaged { slot: 3, .. })));
}

#[test]
fn the_branch_of_a_copy_is_found_with_what_is_there_of_it_and_goes_with_it() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let count = || engine.tree("log-branches").unwrap().len().unwrap();
    let branch = || open(&engine, 1).1[0].branch;
    let (mut log, _) = open(&engine, 1);
    log.record_branch(Slot(3), Version(7));
    log.record_branch(Slot(4), Version(8));
    assert_eq!(branch(), Version(0), "nothing is written before that is asked for");
    log.write().unwrap();
    assert_eq!((branch(), count()), (Version(7), 2));
    // Nothing is there of the other slot: what comes may be of another ring.
    let (mut log, _) = open(&engine, 1);
    log.record_branch(Slot(3), Version(9));
    log.write().unwrap();
    assert_eq!((branch(), count()), (Version(9), 1));
    // It does not go with what is applied, nor with what replaces the cells.
    log.append(Slot(3), position(1, 1), &entries(1, 2..=2));
    log.applied(Slot(3), Sequence(2));
    log.forget(&[Slot(3)]);
    log.write().unwrap();
    assert_eq!(branch(), Version(9));
}

#[test]
fn a_record_of_a_branch_with_another_length_is_damage() {
    let wrong: [(&[u8], &[u8]); 3] = [(&[0, 0, 0, 3], &[7]), (&[0, 0, 3], &[7; 8]), (&[0; 5], &[7; 8])];
    for (name, value) in wrong {
        let engine = Engine::in_memory(Options::default()).unwrap();
        engine.tree("log-branches").unwrap().put(name, value, Durability::Buffered).unwrap();
        let found = SlotLog::open(&engine, "log").unwrap().found(std::iter::empty());
        assert!(matches!(found, Err(LogError::Damaged { .. })), "{name:?} {value:?}");
    }
}

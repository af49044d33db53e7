//! Listing all keys, each page by its cursor alone, while other keys are added and removed.
#![allow(clippy::unwrap_used)]

mod common;

use atoll_keyspace::{Applied, Keyspace, ScanPage};
use atoll_resp::ScanRequest;
use common::{SLOT, Subject};
use std::collections::BTreeSet;

fn request(cursor: u64, count: u64) -> ScanRequest<'static> {
    ScanRequest { cursor, pattern: None, count, kind: None }
}

fn set(keyspace: &mut Keyspace, slot: u16, key: &str) {
    common::apply(keyspace, slot, Applied::default(), 0, &[b"set", key.as_bytes(), b"v"]);
}

fn delete(keyspace: &mut Keyspace, slot: u16, key: &str) {
    common::apply(keyspace, slot, Applied::default(), 0, &[b"del", key.as_bytes()]);
}

/// All pages, calling `between` after each.
fn all(keyspace: &mut Keyspace, count: u64, mut between: impl FnMut(&mut Keyspace, usize)) -> Vec<ScanPage> {
    let (mut cursor, mut pages) = (0, Vec::new());
    loop {
        let page = keyspace.scan(0, &request(cursor, count), |slot| slot != 8).unwrap();
        cursor = page.cursor;
        assert!(cursor < 1 << 46);
        pages.push(page);
        if cursor == 0 {
            return pages;
        }
        between(keyspace, pages.len());
    }
}

#[test]
fn a_key_that_stays_is_listed_and_without_changes_once() {
    for (slots, keys_each) in [(&[0][..], 1), (&[0, 5, 16383], 3), (&[0, 1, 2], 500), (&[16383], 3000)] {
        for count in [1, 10, 100, 100_000] {
            let mut keyspace = Subject::new().keyspace;
            let mut expected = BTreeSet::new();
            for slot in slots {
                for number in 0..keys_each {
                    set(&mut keyspace, *slot, &format!("{slot}:{number}"));
                    expected.insert(format!("{slot}:{number}").into_bytes());
                }
            }
            set(&mut keyspace, 8, "of another loop");
            let pages = all(&mut keyspace, count, |_, _| ());
            let found: Vec<_> = pages.iter().flat_map(|page| page.keys.clone()).collect();
            assert_eq!(found.len(), expected.len(), "{slots:?} {keys_each} {count}");
            assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), expected);
            // Not all at once, if few are asked for.
            let longest = pages.iter().map(|page| page.keys.len()).max().unwrap();
            assert!(
                longest as u64 <= 2 * count.max(keys_each / 64) + 40,
                "{longest} of {keys_each}, {count}"
            );
            // Other keys come and go between the pages, so that pages are divided differently each time.
            let pages = all(&mut keyspace, count, |keyspace, page| {
                (0..50).for_each(|number| set(keyspace, slots[0], &format!("passing {page} {number}")));
                (0..50)
                    .for_each(|number| delete(keyspace, slots[0], &format!("passing {} {number}", page - 1)));
            });
            let found: BTreeSet<_> = pages.iter().flat_map(|page| page.keys.clone()).collect();
            assert!(found.is_superset(&expected), "{slots:?} {keys_each} {count}");
        }
    }
}

#[test]
fn only_what_is_meant_is_listed() {
    let mut subject = Subject::new();
    for line in ["SET ab 1", "SET ac 1 PX 10", "HSET ah f 1", "HSET b f 1"] {
        subject.ask(line);
    }
    let list = |now_ms, pattern: Option<&'static str>, kind: Option<&'static str>| {
        let (pattern, kind) = (pattern.map(str::as_bytes), kind.map(str::as_bytes));
        let request = ScanRequest { pattern, kind, ..request(0, 10) };
        let page = subject.keyspace.scan(now_ms, &request, |_| true).unwrap();
        assert_eq!(page.cursor, 0);
        page.keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>().join(" ")
    };
    let (before, after) = (subject_begin(), subject_begin() + 10);
    assert_eq!(list(before, None, None), "ab ac ah b");
    assert_eq!(list(before, Some("a?"), None), "ab ac ah");
    assert_eq!(list(before, Some("a*"), Some("string")), "ab ac");
    assert_eq!(list(before, None, Some("HASH")), "ah b");
    assert_eq!(list(before, None, Some("zset")), "");
    assert_eq!(list(after, None, None), "ab ah b");
    assert_eq!(list(after, None, Some("string")), "ab");
}

fn subject_begin() -> u64 {
    Subject::new().now_ms
}

#[test]
fn a_cursor_that_was_never_given_out_ends_the_listing() {
    let mut keyspace = Subject::new().keyspace;
    set(&mut keyspace, 0, "a");
    for cursor in [u64::MAX, 1 << 46, 16384 << 32] {
        assert_eq!(keyspace.scan(0, &request(cursor, 10), |_| true).unwrap(), ScanPage::default());
    }
}

#[test]
fn some_keys_of_a_slot_are_its_first_ones() {
    let mut subject = Subject::new();
    for line in ["SET b 1", "HSET a f 1 g 2", "SET c 1"] {
        subject.ask(line);
    }
    assert_eq!(subject.keyspace.keys_of_slot(SLOT, 2).unwrap(), [b"a", b"b"]);
    assert_eq!(subject.keyspace.keys_of_slot(SLOT, 9).unwrap().len(), 3);
    assert!(subject.keyspace.keys_of_slot(SLOT, 0).unwrap().is_empty());
    assert!(subject.keyspace.keys_of_slot(SLOT + 1, 9).unwrap().is_empty());
}

#[test]
fn keys_that_begin_with_what_a_pattern_does_are_found_without_a_look_at_others() {
    let mut keyspace = Subject::new().keyspace;
    for number in 0..3_000 {
        set(&mut keyspace, 5, &format!("other:{number}"));
        set(&mut keyspace, 5, &format!("run:10:{number}"));
    }
    (0..7).for_each(|number| set(&mut keyspace, 5, &format!("run:1:{number}")));
    set(&mut keyspace, 9, "run:1:x");
    let found = pages_of(&keyspace, "run:1:*", 100);
    assert_eq!((found.len(), found.concat().len()), (1, 8));
    for (pattern, count, keys) in
        [("run:1:*", 1, 8), (r"run:1\:[x]", 10, 1), ("run:10:*", 100, 3_000), ("*:1?:*", 100, 3_000)]
    {
        assert_eq!(pages_of(&keyspace, pattern, count).concat().len(), keys, "{pattern}");
    }
    // Looking for a few in each of many slots is work as well.
    (100..1_100).for_each(|slot| (0..9).for_each(|key| set(&mut keyspace, slot, &format!("other:{key}"))));
    assert!((8..100).contains(&pages_of(&keyspace, "run:1:*", 1_000).len()));
}

/// The keys of all pages that match a pattern.
fn pages_of(keyspace: &Keyspace, pattern: &str, count: u64) -> Vec<Vec<Vec<u8>>> {
    let (mut cursor, mut pages) = (0, Vec::new());
    loop {
        let pattern = Some(pattern.as_bytes());
        let request = ScanRequest { cursor, pattern, count, kind: None };
        let page = keyspace.scan(0, &request, |_| true).unwrap();
        cursor = page.cursor;
        pages.push(page.keys);
        if cursor == 0 {
            return pages;
        }
    }
}

#[test]
fn a_page_of_long_keys_ends_where_it_has_enough_bytes() {
    let mut keyspace = Subject::new().keyspace;
    let mut expected = BTreeSet::new();
    for number in 0..1_500 {
        let key = format!("{number:08}").repeat(2_000);
        set(&mut keyspace, 3, &key);
        expected.insert(key.into_bytes());
    }
    (0..4).for_each(|number| set(&mut keyspace, 4 + number, &"short".repeat(number.into())));
    let pages = all(&mut keyspace, 10_000, |_, _| ());
    let found: Vec<_> = pages.iter().flat_map(|page| page.keys.clone()).collect();
    assert_eq!(found.len(), expected.len() + 4, "each once");
    assert!(found.into_iter().collect::<BTreeSet<_>>().is_superset(&expected));
    let longest = pages.iter().map(|page| page.keys.iter().map(Vec::len).sum::<usize>()).max().unwrap();
    assert!(longest < 9 << 20, "{longest}");
    assert!(pages.len() < 10, "{}", pages.len());
}

#[test]
fn a_page_ends_where_a_pattern_took_long_enough_and_all_pages_have_every_key() {
    let mut keyspace = Subject::new().keyspace;
    let mut expected = BTreeSet::new();
    for number in 0..300 {
        // Some of them in slots of their own.
        let slot = if number % 10 == 0 { 100 + number } else { 3 };
        let key = format!("{number:08}").repeat(500);
        set(&mut keyspace, slot, &key);
        expected.insert(key.into_bytes());
    }
    // It matches them all, and might have taken as many steps as the product of both lengths.
    let pages = pages_of(&keyspace, &"*".repeat(1_000), 10_000);
    let longest = pages.iter().map(Vec::len).max().unwrap();
    assert!(longest <= 8, "{longest}");
    assert!(pages.len() < 1_000, "{}", pages.len());
    let found = pages.concat();
    assert_eq!(found.len(), expected.len(), "each once");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    // A star at the end costs no more than the length of the keys.
    assert_eq!(pages_of(&keyspace, "0*", 10_000).len(), 1);
}

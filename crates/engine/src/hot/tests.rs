//! Hot records by themselves: what comes in, what goes, and what concurrent readers see.

use super::*;

const TREE: u32 = 3;

fn hot(bytes: u64) -> (Hot, Arc<Meter>) {
    let meter = Arc::default();
    (Hot::new(Some(bytes), 1 << 30, &meter), meter)
}

fn found(hot: &Hot, key: &[u8]) -> Option<Vec<u8>> {
    hot.find(&HotKey::of(TREE, key), <[u8]>::to_vec)
}

/// Looks a key up as the engine does, and returns whether it was hot.
fn look_up(hot: &Hot, key: &[u8], value: &[u8]) -> bool {
    let key = HotKey::of(TREE, key);
    let is_found = hot.find(&key, |shown| assert_eq!(shown, value)).is_some();
    if !is_found {
        hot.note_lookup(&key, value);
    }
    is_found
}

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

#[test]
fn what_was_looked_up_is_found_until_it_goes() {
    let (hot, meter) = hot(1 << 20);
    assert_eq!((found(&hot, b"a"), meter.bytes()), (None, 0), "nothing is taken before it is needed");
    look_up(&hot, b"a", b"one");
    look_up(&hot, b"a", b"one");
    assert_eq!(found(&hot, b"a").as_deref(), Some(&b"one"[..]));
    assert_eq!(hot.find(&HotKey::of(TREE + 1, b"a"), <[u8]>::to_vec), None, "of another tree");
    hot.note_change(&HotKey::of(TREE, b"a"), Some(b"another one"));
    assert_eq!(found(&hot, b"a").as_deref(), Some(&b"another one"[..]));
    hot.note_change(&HotKey::of(TREE, b"b"), Some(b"nobody looked"));
    assert_eq!(found(&hot, b"b"), None);
    hot.note_change(&HotKey::of(TREE, b"a"), Some(&[7; RECORD_BYTES_MAX]));
    assert_eq!(found(&hot, b"a"), None, "it is too long by now");
    look_up(&hot, b"a", b"");
    assert_eq!(found(&hot, b"a").as_deref(), Some(&b""[..]));
    hot.forget(&HotKey::of(TREE, b"a"));
    assert_eq!(found(&hot, b"a"), None);
}

#[test]
fn keys_and_values_of_all_lengths_come_back_or_do_not_come_in() {
    let (hot, _) = hot(1 << 20);
    look_up(&hot, b"x", b"");
    let bytes: Vec<u8> = (0..=255).collect();
    for key in (0..RECORD_BYTES_MAX + 9).map(|len| &bytes[..len]) {
        for value in (0..RECORD_BYTES_MAX + 9).step_by(7).map(|len| &bytes[bytes.len() - len..]) {
            hot.note_lookup(&HotKey::of(TREE, key), value);
            hot.note_lookup(&HotKey::of(TREE, key), value);
            let fits = !key.is_empty() && key.len().next_multiple_of(8) + value.len() <= RECORD_BYTES_MAX;
            let expected = fits.then_some(value);
            assert_eq!(found(&hot, key).as_deref(), expected, "{} and {} bytes", key.len(), value.len());
            hot.forget(&HotKey::of(TREE, key));
        }
    }
    let long = vec![1; 1 << 16];
    hot.note_lookup(&HotKey::of(TREE, &long), b"");
    assert_eq!(found(&hot, &long), None);
}

#[test]
fn what_is_wanted_stays_while_everything_is_read_once() {
    let (hot, _) = hot(64 << 10);
    let wanted: Vec<Vec<u8>> = (0..40).map(key).collect();
    for _ in 0..8 {
        wanted.iter().for_each(|key| _ = look_up(&hot, key, b"wanted"));
    }
    let before: Vec<_> = wanted.iter().filter(|key| found(&hot, key).is_some()).collect();
    assert!(before.len() > 25, "{} of 40 in 256 places", before.len());
    for number in 1000..1200 {
        look_up(&hot, &key(number), b"once");
    }
    assert!(before.iter().all(|key| found(&hot, key).is_some()));
    // Records that are not wanted any more make way.
    for _ in 0..20 {
        (2000..2400).for_each(|number| _ = look_up(&hot, &key(number), b"new"));
    }
    let there = (2000..2400).filter(|&number| found(&hot, &key(number)).is_some()).count();
    assert!(there > 120, "{there} of 256 places have what is wanted now");
}

#[test]
fn what_is_found_and_what_makes_way_is_told() {
    let (hot, _) = hot(64 << 10);
    assert_eq!(hot.usage(), HotUse::default());
    // The first lookup makes the places, the second one brings the record in, the third one finds it.
    (0..2).for_each(|_| _ = look_up(&hot, b"a", b"one"));
    assert_eq!(hot.usage(), HotUse::default());
    look_up(&hot, b"a", b"one");
    assert_eq!(hot.usage(), HotUse { found: 1, evicted: 0 });
    hot.forget(&HotKey::of(TREE, b"a"));
    assert_eq!(hot.usage(), HotUse::default());
    let (one, _) = self::hot(size_of::<Place>() as u64);
    (0..3).for_each(|_| _ = look_up(&one, b"a", b"one"));
    for _ in 0..40 {
        look_up(&one, b"b", b"another");
    }
    let HotUse { found, evicted } = one.usage();
    assert_eq!((found, evicted), (1, 1), "there is one place, and the second key has won it");
}

#[test]
fn places_become_more_up_to_the_budget_and_count() {
    let (hot, meter) = hot(1 << 20);
    look_up(&hot, b"a", b"");
    let few = meter.bytes();
    assert_eq!(few, (FIRST_PLACES * size_of::<Place>()) as u64);
    let most = memory::PLACES_MAX.min(4096);
    let keys = 5 * most as u64;
    (0..keys).for_each(|number| _ = look_up(&hot, &key(number), &number.to_le_bytes()));
    assert_eq!((meter.bytes(), hot.bytes()), ((most * size_of::<Place>()) as u64, meter.bytes()));
    let there = (0..keys).filter_map(|number| Some((number, found(&hot, &key(number))?)));
    let right = there.filter(|(number, value)| *value == number.to_le_bytes()).count();
    assert!(right > most / 2, "{right} in {most} places");
    drop(hot);
    assert_eq!(meter.bytes(), 0);
}

#[test]
fn none_come_in_where_there_is_no_budget() {
    for bytes in [0, 100] {
        let (hot, meter) = hot(bytes);
        (0..4).for_each(|_| _ = look_up(&hot, b"a", b"one"));
        assert_eq!((found(&hot, b"a"), meter.bytes()), (None, 0));
    }
    let (one, _) = hot(size_of::<Place>() as u64);
    (0..3).for_each(|_| _ = look_up(&one, b"a", b"one"));
    assert_eq!(found(&one, b"a").as_deref(), Some(&b"one"[..]), "one place is enough for one key");
}

#[test]
fn a_tree_that_changed_as_a_whole_has_none() {
    let (hot, _) = hot(1 << 20);
    (0..100).for_each(|number| _ = look_up(&hot, &key(number), b"old"));
    let other = HotKey::of(TREE + 1, b"a");
    (0..2).for_each(|_| hot.note_lookup(&other, b"stays"));
    hot.forget_tree(TREE);
    assert!((0..100).all(|number| found(&hot, &key(number)).is_none()));
    assert!(hot.find(&other, |value| assert_eq!(value, b"stays")).is_some());
    (0..100).for_each(|number| _ = look_up(&hot, &key(number), b"new"));
    let there = (0..100).filter_map(|number| found(&hot, &key(number)));
    assert!(there.map(|value| assert_eq!(value, b"new")).count() > 60, "what is over is in nobody's way");
}

/// Each writer has keys of its own, as if it held their latches, and counts up; readers see whole values that
/// never go back.
#[test]
fn readers_see_whole_values_that_never_go_back() {
    use std::sync::atomic::AtomicU64;
    let (hot, _) = hot(8 * size_of::<Place>() as u64);
    look_up(&hot, b"first", b"");
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    // The number last written for each key: a value that is shown after this was read is at least as high.
    let written: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(0)).collect();
    let value = |number: u64| number.to_le_bytes().repeat(9);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (hot, written) = (&hot, &written);
            scope.spawn(move || {
                for round in 1..=rounds {
                    let at = 2 * (round as usize * 7 % 8) + writer;
                    let bytes = key(at as u64);
                    let key = HotKey::of(TREE, &bytes);
                    hot.note_lookup(&key, &value(written[at].load(Ordering::Relaxed)));
                    hot.note_change(&key, Some(&value(round)));
                    written[at].store(round, Ordering::Release);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..rounds as usize {
                    let at = round % 16;
                    let least = written[at].load(Ordering::Acquire);
                    let Some(shown) = found(&hot, &key(at as u64)) else { continue };
                    let number = u64::from_le_bytes(shown[..8].try_into().unwrap());
                    assert_eq!(shown, value(number), "whole");
                    assert!(number >= least, "key {at}: {number} behind {least}");
                }
            });
        }
    });
    assert!((0..16).any(|at| found(&hot, &key(at)).is_some()), "some of them are here in the end");
}

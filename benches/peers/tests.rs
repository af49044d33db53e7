//! Every adapter of this build keeps the promises on which the figures rely.

use super::*;
use crate::workloads::{Batch, Key, Verifier, fill_value, scan_requests};
use std::path::PathBuf;

const RECORDS: u64 = 3000;
const VALUE_BYTES: usize = 100;

/// A folder that is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let unique = format!("atoll-bench-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options() -> OpenOptions {
    OpenOptions { value_bytes: VALUE_BYTES, ..OpenOptions::default() }
}

fn engines() -> impl Iterator<Item = EngineName> {
    let is_map = |name: &EngineName| *name != EngineName::Harness && !name.has_only_pairs();
    EngineName::ALL.into_iter().filter(|name| name.is_built()).filter(is_map)
}

fn load(engine: &mut dyn Engine) {
    let mut batch = Batch::new(VALUE_BYTES);
    for from in (0..RECORDS).step_by(1000) {
        batch.refill(from..from + 1000);
        engine.load_batch(&mut batch.records()).expect("loads");
    }
}

fn wrong_reads(engine: &mut dyn Engine) -> Verifier {
    let mut verifier = Verifier::new(VALUE_BYTES);
    let keys: Vec<Key> = (0..RECORDS).map(Key::of_counter).collect();
    for key in &keys {
        engine.get(&key.0, &mut |value| verifier.check(&key.0, 0, value)).expect("gets");
    }
    for keys in keys.chunks(16) {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let mut answers = 0;
        engine
            .get_many(&keys, &mut |place, value| {
                answers += 1;
                verifier.check(keys[place], 0, value);
            })
            .expect("gets many");
        assert_eq!(answers, keys.len());
    }
    for scan in scan_requests(RECORDS, 50, 100, 1) {
        let mut found = Vec::new();
        let first = scan.first_key();
        engine
            .scan(&first.0, 100, &mut |key, value| {
                found.push(key.to_vec());
                verifier.check(key, 0, Some(value));
            })
            .expect("scans");
        assert_eq!(found.len(), scan.entries as usize);
        assert_eq!(found[0], first.0);
        assert_eq!(found[found.len() - 1], scan.last_key().0);
    }
    verifier
}

#[test]
fn every_engine_gives_back_what_was_put_in_also_after_reopening() {
    for name in engines() {
        let folder = Folder::new(&format!("reopen-{}", name.name()));
        let mut engine = open(name, &folder.0, options()).expect("opens");
        load(engine.as_mut());
        assert_eq!(wrong_reads(engine.as_mut()).wrong, 0, "{}", name.name());
        engine.settle().expect("settles");
        engine.close().expect("closes");
        if name.is_persistent() {
            let mut engine = open(name, &folder.0, options()).expect("opens again");
            engine.expect_only_reads().expect("reads only");
            let verifier = wrong_reads(engine.as_mut());
            assert_eq!(verifier.wrong, 0, "{}: {:?}", name.name(), verifier.first_wrong);
            engine.close().expect("closes again");
        }
    }
}

#[test]
fn an_update_is_seen_by_the_next_get_on_every_engine() {
    for name in engines() {
        let folder = Folder::new(&format!("update-{}", name.name()));
        let mut engine = open(name, &folder.0, options()).expect("opens");
        load(engine.as_mut());
        let (key, mut value) = (Key::of_counter(7), [0; VALUE_BYTES]);
        fill_value(&key, 3, &mut value);
        engine.put(&key.0, &value).expect("puts");
        let mut verifier = Verifier::new(VALUE_BYTES);
        engine.get(&key.0, &mut |value| verifier.check(&key.0, 3, value)).expect("gets");
        assert_eq!(verifier.wrong, 0, "{}", name.name());
        engine.close().expect("closes");
    }
}

#[test]
fn a_value_planted_wrong_in_a_store_is_found_by_every_kind_of_read() {
    for name in engines() {
        let folder = Folder::new(&format!("planted-{}", name.name()));
        let mut engine = open(name, &folder.0, options()).expect("opens");
        load(engine.as_mut());
        let (key, mut value) = (Key::of_counter(7), [0; VALUE_BYTES]);
        fill_value(&key, 0, &mut value);
        value[61] ^= 4;
        engine.put(&key.0, &value).expect("puts");
        let verifier = wrong_reads(engine.as_mut());
        assert!(verifier.wrong >= 2, "{}: get and get_many must both see it", name.name());
        engine.close().expect("closes");
    }
}

#[test]
fn short_pairs_are_found_removed_and_kept_by_whoever_is_measured_with_them() {
    let has_pairs = |name: &EngineName| *name == EngineName::Atoll || name.has_only_pairs();
    for name in EngineName::ALL.into_iter().filter(|name| name.is_built()).filter(has_pairs) {
        let folder = Folder::new(&format!("pairs-{}", name.name()));
        let options = OpenOptions { records: RECORDS, ..options() };
        let mut engine = open(name, &folder.0, options).expect("opens");
        load(engine.as_mut());
        let removed = Key::of_counter(7);
        engine.remove(&removed.0).expect("removes");
        engine.settle().expect("settles");
        engine.close().expect("closes");
        let mut engine = open(name, &folder.0, options).expect("opens again");
        let mut verifier = Verifier::new(VALUE_BYTES);
        for counter in (0..RECORDS).filter(|counter| *counter != 7) {
            let key = Key::of_counter(counter);
            engine.get(&key.0, &mut |value| verifier.check(&key.0, 0, value)).expect("gets");
        }
        assert_eq!((verifier.wrong, verifier.first_wrong), (0, None), "{}", name.name());
        engine.get(&removed.0, &mut |value| assert!(value.is_none(), "{}", name.name())).expect("gets");
        engine.close().expect("closes");
    }
}

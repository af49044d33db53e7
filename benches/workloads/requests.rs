//! The calls of a phase, drawn before the clock starts so that drawing them costs no engine anything.

use super::keys::{Key, hash_of_counter};
use super::zipfian::Zipfian;

/// Record numbers of `count` point operations.
pub fn point_requests(records: u64, count: u64, seed: u64) -> Vec<u32> {
    let mut choices = Zipfian::new(records, seed);
    (0..count).map(|_| choices.next_record() as u32).collect()
}

const UPDATE_BIT: u32 = 1 << 31;

/// One call of YCSB A: a get or an update of a record, and the version that it must find or writes.
///
/// Storing the version costs the caller eight sequential bytes per call, for every engine.
/// every side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateRequest {
    record: u32,
    version: u32,
}

impl UpdateRequest {
    /// Number of the record.
    #[inline]
    pub fn record(self) -> u64 {
        u64::from(self.record & !UPDATE_BIT)
    }

    /// Whether it is an update.
    #[inline]
    pub fn is_update(self) -> bool {
        self.record & UPDATE_BIT != 0
    }

    /// The version that an update writes, or that a get finds if there is no other writer.
    #[inline]
    pub fn version(self) -> u64 {
        u64::from(self.version)
    }
}

/// `count` calls, half of them updates, by one writer to records of version 0: call `n` writes version `n +
/// 1`.
pub fn update_requests(records: u64, count: u64, seed: u64) -> Vec<UpdateRequest> {
    let mut choices = Zipfian::new(records, seed);
    let mut draw = || {
        let record = choices.next_record() as u32;
        let record = if choices.next_coin() { record | UPDATE_BIT } else { record };
        UpdateRequest { record, version: 0 }
    };
    let mut requests: Vec<_> = (0..count).map(|_| draw()).collect();
    give_versions(&mut requests, &mut vec![0; records as usize], |number| number + 1);
    requests
}

/// Gives each update the version that belongs to its position among these calls, and each get the one that
/// it finds if the calls are made in order. `versions` are those of all records before, and is updated to
/// those after.
pub fn give_versions(requests: &mut [UpdateRequest], versions: &mut [u32], version_of: impl Fn(u32) -> u32) {
    for (number, request) in (0..).zip(requests) {
        let version = &mut versions[request.record() as usize];
        if request.is_update() {
            *version = version_of(number);
        }
        request.version = *version;
    }
}

/// The version that each record holds after these calls: that of its last update.
pub fn versions_after(records: u64, requests: &[UpdateRequest]) -> Vec<u64> {
    let mut versions = vec![0; records as usize];
    for request in requests.iter().filter(|request| request.is_update()) {
        versions[request.record() as usize] = request.version();
    }
    versions
}

/// One scan: where it starts, how many entries it must return, and the last of them.
///
/// Strictly ascending entries from the start that end at this key can only be the right ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRequest {
    /// Hash of the first key.
    pub first: u64,
    /// Hash of the last key.
    pub last: u64,
    /// How many entries there are from the first to the last.
    pub entries: u32,
}

impl ScanRequest {
    /// The first key.
    pub fn first_key(&self) -> Key {
        Key::of_hash(self.first)
    }

    /// The last key.
    pub fn last_key(&self) -> Key {
        Key::of_hash(self.last)
    }
}

/// `count` scans of `entries` records from zipfian starts.
pub fn scan_requests(records: u64, count: u64, entries: u32, seed: u64) -> Vec<ScanRequest> {
    let mut sorted: Vec<u64> = (0..records).map(hash_of_counter).collect();
    sorted.sort_unstable();
    let mut choices = Zipfian::new(records, seed);
    (0..count)
        .map(|_| {
            let first = hash_of_counter(choices.next_record());
            let from = sorted.partition_point(|&hash| hash < first);
            let to = (from + entries as usize).min(sorted.len());
            ScanRequest { first, last: sorted[to - 1], entries: (to - from) as u32 }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_calls_are_updates_and_the_last_one_counts() {
        let requests = update_requests(100, 10_000, 9);
        let updates = requests.iter().filter(|request| request.is_update()).count();
        assert!((4800..5200).contains(&updates), "{updates}");
        let versions = versions_after(100, &requests);
        for (record, &version) in (0..).zip(&versions).filter(|(_, version)| **version > 0) {
            let wrote = |request: &UpdateRequest| request.is_update() && request.record() == record;
            assert!(wrote(&requests[version as usize - 1]));
            assert!(!requests[version as usize..].iter().any(wrote));
        }
        for (place, get) in requests.iter().enumerate().filter(|(_, request)| !request.is_update()) {
            let before = requests[..place]
                .iter()
                .rev()
                .find(|other| other.is_update() && other.record() == get.record());
            assert_eq!(get.version(), before.map_or(0, |update| update.version()));
        }
    }

    #[test]
    fn scans_know_where_they_end() {
        let mut keys: Vec<Key> = (0..500).map(Key::of_counter).collect();
        keys.sort_unstable();
        for scan in scan_requests(500, 200, 100, 3) {
            let from = keys.binary_search(&scan.first_key()).expect("the start is a record");
            assert_eq!(scan.entries as usize, (keys.len() - from).min(100));
            assert_eq!(keys[from + scan.entries as usize - 1], scan.last_key());
        }
    }
}

//! Counts of transitions and faults. A run in which one of them never occurred proves little.

use atoll_disk::Counters;
use std::collections::BTreeMap;

/// Every transition that a full run must have met at least once.
const EXPECTED: [&str; 57] = [
    "whole_seeds",
    "operations",
    "commits",
    "commits_acknowledged",
    "batches_across_trees",
    "puts_of_64_kib_or_more",
    "puts_of_256_b_or_more",
    "appends",
    "delete_ranges",
    "buffered",
    "flushed",
    "synced",
    "syncs",
    "checkpoints_asked",
    "checkpoints_by_themselves",
    "scans_forward",
    "scans_backward",
    "gets_many",
    "snapshots_held",
    "snapshots_read",
    "named_snapshots_created",
    "named_snapshots_deleted",
    "named_snapshots_read",
    "named_snapshots_after_restart",
    "clean_closes",
    "process_deaths",
    "power_losses",
    "power_losses_in_recovery",
    "recoveries",
    "recoveries_clean",
    "recoveries_with_replay",
    "recoveries_with_cut",
    "recoveries_with_mended_superblock",
    "recoveries_that_lost_commits",
    "recoveries_that_lost_nothing",
    "refusals",
    "refusals_after_errors",
    "reads_after_unknown",
    "writes_after_refusal",
    "failed_operations",
    "misdirected_detected",
    "misdirected_harmless",
    "flips_detected_at_open",
    "flips_reported_as_cut",
    "flips_mended",
    "flips_detected_at_read",
    "flips_harmless",
    "checks_clean",
    "segments_cleaned",
    "values_moved",
    "ranges_split_off",
    "ranges_absorbed",
    "ranges_that_could_not_move",
    "second_pages_written",
    "leaves_merged",
    "hot_records_found",
    "hot_records_evicted",
];

/// Every disk fault that must have occurred, and other things that only the disk sees.
const EXPECTED_FAULTS: [&str; 16] = [
    "power_cuts",
    "crashes",
    "writes_kept",
    "writes_dropped",
    "writes_torn_at_sectors",
    "writes_torn_at_bytes",
    "writes_reordered",
    "misdirected_writes",
    "bit_flips",
    "read_errors",
    "write_errors",
    "sync_errors",
    "out_of_space",
    "read_only_refusals",
    "releases",
    "window_copies",
];

/// Names that only a store with its own pages can reach.
pub const BEYOND_A_TOY: [&str; 11] = [
    "whole_seeds",
    "flips_detected_at_read",
    "refusals_after_errors",
    "segments_cleaned",
    "values_moved",
    "second_pages_written",
    "leaves_merged",
    "hot_records_found",
    "hot_records_evicted",
    "releases",
    "window_copies",
];

/// Least number of operations of a whole seed.
pub const OPERATIONS_MIN: u64 = 2000;

/// Least number of its commits that the store acknowledged.
const COMMITS_MIN: u64 = 3;

/// Least number of its checkpoints, each of a store that went on.
const CHECKPOINTS_MIN: u64 = 1;

/// Least number of its log segments that were cleaned.
const CLEANINGS_MIN: u64 = 1;

/// Counts of one run or of many.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    by_name: BTreeMap<&'static str, u64>,
    disk: Counters,
}

impl Counts {
    /// Adds one to a count.
    pub fn bump(&mut self, name: &'static str) {
        self.add_to(name, 1);
    }

    /// Adds `count` to a count.
    pub fn add_to(&mut self, name: &'static str, count: u64) {
        *self.by_name.entry(name).or_default() += count;
    }

    /// The count of one name.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.by_name.get(name).copied().unwrap_or_default()
    }

    /// Checkpoints, without those that closed a store.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        self.of("checkpoints_asked") + self.of("checkpoints_by_themselves")
    }

    /// Whether the run of one seed went through everything that a seed must to be whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.of("operations") >= OPERATIONS_MIN
            && self.of("commits_acknowledged") >= COMMITS_MIN
            && self.checkpoints() >= CHECKPOINTS_MIN
            && self.of("segments_cleaned") >= CLEANINGS_MIN
    }

    /// Adds the counters of a disk.
    pub const fn add_disk(&mut self, counters: &Counters) {
        self.disk.add(counters);
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        other.by_name.iter().for_each(|(name, count)| self.add_to(name, *count));
        self.disk.add(&other.disk);
    }

    /// All names with their counts: first the transitions, then the disk faults.
    #[must_use]
    pub fn all(&self) -> Vec<(String, u64)> {
        let mut names: Vec<&str> = EXPECTED.to_vec();
        names.extend(self.by_name.keys().filter(|name| !EXPECTED.contains(name)));
        let transitions = names.into_iter().map(|name| (name.to_owned(), self.of(name)));
        transitions.chain(self.disk.iter().map(|(name, count)| (format!("disk_{name}"), count))).collect()
    }

    /// Expected names that never occurred, apart from `excused`.
    #[must_use]
    pub fn never(&self, excused: &[&str]) -> Vec<&'static str> {
        let transitions = EXPECTED.into_iter().filter(|name| self.of(name) == 0);
        let faults = self.disk.iter().filter(|(name, count)| *count == 0 && EXPECTED_FAULTS.contains(name));
        transitions.chain(faults.map(|(name, _)| name)).filter(|name| !excused.contains(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_whole_only_with_everything_and_a_close_is_no_checkpoint() {
        let all = [
            ("operations", OPERATIONS_MIN),
            ("commits_acknowledged", COMMITS_MIN),
            ("checkpoints_asked", CHECKPOINTS_MIN),
            ("segments_cleaned", CLEANINGS_MIN),
        ];
        let counts_of = |lacking: &str| {
            let mut counts = Counts::default();
            counts.add_to("clean_closes", 5);
            counts.add_to("commits", 100);
            all.iter().for_each(|&(name, count)| counts.add_to(name, count - u64::from(name == lacking)));
            counts
        };
        assert!(counts_of("nothing").is_whole());
        for (name, _) in all {
            assert!(!counts_of(name).is_whole(), "{name}");
        }
        let mut counts = counts_of("checkpoints_asked");
        counts.bump("checkpoints_by_themselves");
        assert!(counts.is_whole());
    }
}

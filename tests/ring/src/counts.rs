//! Counts of faults, protocol steps and operations. Runs in which one of them never occurred prove little.

use std::collections::BTreeMap;

/// Everything that a few hundred runs must have met.
pub(crate) const EXPECTED: &[&str] = &[
    // Requests of clients, and their outcomes.
    "operations",
    "gets",
    "scans",
    "puts",
    "batches",
    "appends",
    "swaps",
    "deletes",
    "puts_with_a_lifetime",
    "expiries",
    "waits",
    "waits_that_waited",
    "waits_woken",
    "requests_held",
    "requests_gathered",
    "ended_well",
    "ended_in_conflict",
    "ended_refused",
    "ended_unknown",
    "tries_elsewhere",
    "refused_moved",
    "refused_no_primary",
    "refused_too_few_copies",
    "refused_busy",
    "refused_no_lease",
    // Steps of the protocol.
    "messages",
    "promises",
    "rejections",
    "entries_applied",
    "leaders",
    "fail_overs_and_moves",
    "tails_committed_again",
    "tables_that_waited_for_a_promise",
    "quiet_starts",
    "admissions_proposed",
    "admissions",
    "dismissals_proposed",
    "hand_overs_proposed",
    "hand_overs_given_up",
    "dismissals",
    "transfers",
    "transfers_lost",
    "transfers_too_old",
    "transfers_installed",
    "imports_begun",
    "imports_interrupted",
    "imports_overtaken",
    "imports_ended_with_their_process",
    "imports_done",
    "truncations",
    "writes_unknown_to_a_former_primary",
    "lives_superseded",
    "copies_forgotten",
    // Actions of the configuration group.
    "slots_founded",
    "copies_begun",
    "copies_dropped",
    "primaries_moved",
    "slots_handed_over",
    "slots_kept",
    "nodes_left",
    "nodes_failed",
    "nodes_failed_together",
    "slots_lost",
    "slots_recovered",
    "losses_accepted_in_between",
    "losses_registered",
    "losses_of_some_keyspaces_registered",
    // Faults.
    "worlds_of_mixed_durability",
    "nodes_begun",
    "nodes_that_joined_late",
    "restarts",
    "syncs",
    "tails_of_disks_lost",
    "messages_lost",
    "messages_doubled",
    "messages_late",
    "messages_overtaken",
    "messages_cut",
    "faults_kill",
    "faults_power_loss",
    "faults_kill_behind_a_cut",
    "faults_stop",
    "faults_outage_killed",
    "faults_outage_power_lost",
    "faults_split",
    "faults_node_cut_off",
    "faults_one_way_cut",
    "faults_cut_from_group",
    "faults_slow_link",
    "faults_pause",
    "faults_pause_of_many",
    "faults_group_away",
    "faults_disk_stall",
    "faults_date_set",
    "faults_primary_moved",
    "faults_primaries_moved",
    "faults_cut_off_and_moved",
    "faults_paused_and_moved",
    "faults_moved_and_killed",
    "faults_copy_moved",
    "faults_copy_dropped",
    "faults_leave",
    "faults_stay",
    "ended_while_paused",
];

/// Counts of one run or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    by_name: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Adds one to a count.
    pub fn bump(&mut self, name: &'static str) {
        *self.by_name.entry(name).or_default() += 1;
    }

    /// The count of one name.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.by_name.get(name).copied().unwrap_or_default()
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.by_name {
            *self.by_name.entry(name).or_default() += count;
        }
    }

    /// All names with their counts.
    #[must_use]
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let more = self.by_name.keys().copied().filter(|name| !EXPECTED.contains(name));
        EXPECTED.iter().copied().chain(more).map(|name| (name, self.of(name))).collect()
    }

    /// Expected names that never occurred.
    #[must_use]
    pub fn never(&self) -> Vec<&'static str> {
        EXPECTED.iter().copied().filter(|name| self.of(name) == 0).collect()
    }
}

//! Stores with one planted fault each, which prove that the suite finds what it looks for.
//!
//! Each is the memory store with a [`Flaw`] in front, and names the check that must catch it.
//!
//! Invariant: with no flaw in front, the same machinery passes every check.

mod clients;
mod crowds;
mod planted;
mod reads;
mod scans;
mod survival;
mod waits;
mod writes;

pub use planted::{Flaw, Planted, PlantedSubject};
pub use survival::NoFlaw;

use crate::subject::Subject;

/// A store with a planted fault.
pub struct Specimen {
    /// What is wrong with it.
    pub name: &'static str,
    /// The check that must catch it.
    pub caught_by: &'static str,
    /// The store, for the suite.
    pub subject: Box<dyn Subject>,
}

macro_rules! specimens {
    ($($module:ident { $($flaw:ident => $check:ident,)* })*) => {
        /// All stores with a planted fault.
        #[must_use]
        pub fn specimens() -> Vec<Specimen> {
            vec![$($(Specimen {
                name: stringify!($flaw),
                caught_by: stringify!($check),
                subject: Box::new(PlantedSubject::<$module::$flaw>::named(stringify!($flaw))),
            },)*)*]
        }
    };
}

specimens! {
    writes {
        LostAppend => concurrent_appends_are_all_kept,
        BatchInSteps => a_batch_is_seen_whole_or_not_at_all,
        MutationsReordered => mutations_apply_in_their_order,
        ConditionAfterMutation => conditions_are_judged_before_mutations,
        ConflictTellsLastCondition => the_first_failed_condition_comes_back_with_its_value,
        ConflictTellsWrongValue => the_first_failed_condition_comes_back_with_its_value,
        DeleteRangeOffByOne => a_range_of_sort_keys_is_deleted_exactly,
        PlainAndConditionalMixed => plain_and_conditional_writes_share_one_order,
        LostUpdate => concurrent_swaps_lose_no_update,
        UnknownReportedAsDone => histories_on_one_partition_are_linearizable,
        DoneReportedAsRefused => histories_on_one_partition_are_linearizable,
        TruncatedValue => large_values_come_back_whole,
        BatchLimitIgnored => batches_are_limited,
        AppendLimitSwallowed => values_are_limited,
        PartitionMixing => partitions_do_not_mix,
        CreateOverwrites => a_created_cell_takes_one_value,
    }
    crowds {
        RefusesInACrowd => histories_on_one_partition_are_linearizable,
        LagsBehindOthers => histories_with_unknown_outcomes_are_linearizable,
    }
    reads {
        StaleReadAfterSwap => a_read_sees_the_swap_before_it,
        EmptyValueAbsent => values_come_back_as_written,
        ByteRangeOffByOne => byte_ranges_are_exact,
        UnalignedValue => values_are_aligned,
        AnswersMixedUp => many_reads_answer_each_question_once,
        AbsenceCached => immutable_reads_return_what_was_created,
    }
    scans {
        KeySkippedAtPageEdge => a_scan_is_ordered_and_complete_at_every_page_size,
        DuplicateOnResume => a_scan_is_ordered_and_complete_at_every_page_size,
        EmptySortKeySkipped => a_scan_is_ordered_and_complete_at_every_page_size,
        BackwardScanOrder => a_backward_scan_is_the_reverse,
        TornPage => each_page_is_atomic,
        ResumeByCount => scans_under_writes_are_ordered_complete_and_free_of_duplicates,
        PageBytesIgnored => pages_are_limited_in_bytes,
        ForeignTokenAccepted => a_foreign_token_is_refused,
        EmptyPartitionsListed => partition_keys_are_listed_once_and_only_with_cells,
        SplitsOverlap => splits_divide_the_store,
    }
    waits {
        MissedWakeUp => no_wake_up_is_missed,
        EdgeTriggered => a_wait_is_level_triggered,
        WakesEverybody => one_write_polls_no_other_waiter,
        TimesOutEarly => a_wait_times_out_and_not_early,
    }
    clients {
        RequestAppliedTwice => a_retried_request_is_applied_once,
        RequestIdCollision => clients_do_not_share_request_ids,
        RequestCheckedTooEarly => concurrent_retries_are_applied_once,
        RefusedRequestRemembered => a_refused_request_may_be_tried_again,
        LeaseEpochReused => a_lease_has_one_holder_and_rising_epochs,
        ClosedButServing => a_closed_store_refuses_every_call,
    }
    survival {
        LostWriteOnReopen => what_was_flushed_survives_the_process,
        TornBatchOnReopen => batches_are_not_torn_by_a_crash,
        RequestIdsLostOnReopen => request_ids_survive_with_their_writes,
    }
}

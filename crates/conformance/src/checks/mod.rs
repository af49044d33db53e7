//! The checks: one function each, named after the promise that it checks.
//!
//! Invariant: a check opens stores of its own, so the order of the checks does not matter.

use crate::context::{Context, Verdict};
use futures::future::BoxFuture;

/// One promise and its check.
pub(crate) struct Check {
    /// The promise.
    pub(crate) name: &'static str,
    /// Returns `Ok` if the promise is kept.
    pub(crate) run: for<'a> fn(&'a Context<'a>) -> BoxFuture<'a, Verdict>,
}

macro_rules! checks {
    ($($module:ident { $($name:ident,)* })*) => {
        $(mod $module;)*

        /// All checks, the simple ones first, so that the first line of a report is the one to start with.
        pub(crate) const CHECKS: &[Check] = &[
            $($(Check {
                name: stringify!($name),
                run: |context| Box::pin($module::$name(context)),
            },)*)*
        ];
    };
}

checks! {
    capabilities {
        capabilities_stay_within_the_contract,
        a_durability_class_is_given_or_refused,
    }
    cells {
        values_come_back_as_written,
        partitions_do_not_mix,
        mutations_apply_in_their_order,
        a_range_of_sort_keys_is_deleted_exactly,
        a_deleted_partition_takes_no_other_along,
    }
    conditions {
        conditions_are_judged_before_mutations,
        the_first_failed_condition_comes_back_with_its_value,
        a_refused_batch_changes_nothing,
        a_batch_may_only_check,
        a_created_cell_takes_one_value,
        a_read_sees_the_swap_before_it,
        plain_and_conditional_writes_share_one_order,
    }
    values {
        values_are_aligned,
        byte_ranges_are_exact,
        many_reads_answer_each_question_once,
        immutable_reads_return_what_was_created,
        large_values_come_back_whole,
    }
    limits {
        keys_are_limited,
        batches_are_limited,
        values_are_limited,
        values_in_conditions_are_limited,
    }
    scans {
        a_scan_is_ordered_and_complete_at_every_page_size,
        a_backward_scan_is_the_reverse,
        a_scan_returns_what_was_projected,
        pages_are_limited_in_bytes,
        a_foreign_token_is_refused,
        scans_under_writes_are_ordered_complete_and_free_of_duplicates,
        each_page_is_atomic,
    }
    listing {
        partition_keys_are_listed_once_and_only_with_cells,
        splits_divide_the_store,
        places_and_clock_answer,
    }
    model {
        random_operations_match_the_model,
    }
    atomicity {
        a_batch_is_seen_whole_or_not_at_all,
        concurrent_appends_are_all_kept,
        concurrent_swaps_lose_no_update,
        a_dropped_call_leaves_all_or_nothing,
    }
    histories {
        histories_on_one_partition_are_linearizable,
        histories_with_unknown_outcomes_are_linearizable,
    }
    waits {
        a_wait_is_level_triggered,
        every_kind_of_write_ends_a_wait,
        a_wait_times_out_and_not_early,
        no_wake_up_is_missed,
        one_write_polls_no_other_waiter,
    }
    requests {
        a_retried_request_is_applied_once,
        clients_do_not_share_request_ids,
        a_refused_request_may_be_tried_again,
        concurrent_retries_are_applied_once,
        retries_until_done_are_applied_once,
        a_deadline_ends_a_call_honestly,
    }
    leases {
        a_lease_has_one_holder_and_rising_epochs,
        a_paused_holder_is_fenced_off,
    }
    durability {
        what_was_acknowledged_is_there_after_close,
        what_was_flushed_survives_the_process,
        what_was_synced_survives_power_loss,
        batches_are_not_torn_by_a_crash,
        request_ids_survive_with_their_writes,
    }
    closing {
        a_closed_store_refuses_every_call,
        closing_ends_waits,
    }
}

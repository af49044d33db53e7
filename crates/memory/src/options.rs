//! Options of a memory store.

use atoll_store::Limits;
use atoll_store::clock::{Clock, SystemClock};
use std::sync::Arc;
use std::time::Duration;

/// The options of a memory store; the defaults suit every user but tests.
#[derive(Clone)]
pub struct Options {
    /// The limits beyond which a call is refused.
    pub limits: Limits,
    /// The clock for `now` and for the age of request ids.
    pub clock: Arc<dyn Clock>,
    /// How long a request id is remembered.
    pub request_memory: Duration,
    /// Most request ids that are remembered.
    pub request_memory_count: usize,
    /// Most waits that may be open at once.
    pub waiters_max: usize,
}

/// What is wrong with the options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("option {option} of the memory store must be {wanted}")]
pub struct OptionsError {
    /// The option.
    pub option: &'static str,
    /// What it must be.
    pub wanted: &'static str,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::CONTRACT,
            clock: Arc::new(SystemClock::default()),
            request_memory: Duration::from_secs(600),
            request_memory_count: 100_000,
            waiters_max: 1_000_000,
        }
    }
}

impl Options {
    /// Checks that a store can work with these options.
    ///
    /// # Errors
    /// The first option that is wrong.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let (most, limits) = (&Limits::CONTRACT, &self.limits);
        let fits = limits.partition_key_bytes <= most.partition_key_bytes
            && limits.sort_key_bytes <= most.sort_key_bytes
            && limits.value_bytes <= most.value_bytes
            && limits.condition_bytes <= most.condition_bytes
            && limits.batch_operations <= most.batch_operations
            && limits.batch_bytes <= most.batch_bytes
            && limits.page_bytes <= most.page_bytes;
        let checks = [
            (fits, "limits", "within the limits of the contract"),
            (self.request_memory_count > 0, "request_memory_count", "at least 1"),
            (self.waiters_max > 0, "waiters_max", "at least 1"),
        ];
        match checks.into_iter().find(|(holds, ..)| !holds) {
            Some((_, option, wanted)) => Err(OptionsError { option, wanted }),
            None => Ok(()),
        }
    }
}

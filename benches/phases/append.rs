//! Appends of 100 B: to a value of 60 MiB they should cost what they cost to an empty one.

use super::{PhaseResult, Spec};
use crate::peers::EngineError;

/// Measures both.
#[cfg(not(feature = "atoll"))]
pub fn run(_spec: &Spec) -> Result<PhaseResult, EngineError> {
    Err("this build has no atoll".into())
}

//! The embedded contract, asynchronous and through a trait object, over the bare engine, in memory.

use super::{PhaseResult, Spec};
use crate::peers::EngineError;

/// Whether this build can measure it.
pub const HAS_CONTRACT: bool = false;

/// Measures both.
pub fn run(_spec: &Spec) -> Result<PhaseResult, EngineError> {
    Err("this build has no embedded store".into())
}

//! Retries queries of the current version if a vacuum removes that version while it is read.
//!
//! Invariant: a query of a given version fails if that version is gone; only a query of the current version
//! restarts.
//! Invariant: no query restarts for ever: if versions are removed faster than one can be read, it fails.

use crate::{Query, TableError};
use std::future::Future;

/// How often a query starts, if a vacuum removes its version each time.
const STARTS_MAX: usize = 8;

/// How often a query may still restart.
#[derive(Debug)]
pub(crate) struct Restarts(usize);

impl Default for Restarts {
    fn default() -> Self {
        Self(STARTS_MAX - 1)
    }
}

impl Restarts {
    /// Takes one restart, if any is left.
    pub(crate) fn take(&mut self) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left
    }
}

/// Calls `ask`; if a vacuum removed the version that was being read, and `query` names no version, calls it
/// again, on the version that is current by then.
pub(crate) async fn restart_if_gone<T, F>(query: &Query, ask: impl Fn() -> F) -> Result<T, TableError>
where
    F: Future<Output = Result<T, TableError>>,
{
    let mut restarts = Restarts::default();
    loop {
        match ask().await {
            Err(error) if error.is_version_gone() && query.as_of.is_none() && restarts.take() => {}
            answered => return answered,
        }
    }
}

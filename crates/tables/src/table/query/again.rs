//! Asking again where a vacuum took the version away that was being read.
//!
//! Invariant: what is asked about one version is told that it is gone, and only what is asked about now
//! begins again.
//! Invariant: nothing begins again for ever: where versions go faster than one is read, that is told.

use crate::{Query, TableError};
use std::future::Future;

/// How often a question begins whose version a vacuum takes away each time.
const BEGINNINGS_MAX: usize = 8;

/// How often a question may still begin again.
#[derive(Debug)]
pub(crate) struct Beginnings(usize);

impl Default for Beginnings {
    fn default() -> Self {
        Self(BEGINNINGS_MAX - 1)
    }
}

impl Beginnings {
    /// Takes one, if any is left.
    pub(crate) fn take(&mut self) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left
    }
}

/// Asks for what is said of `query`; again, of what is current by then, if a vacuum took away meanwhile what
/// was being read, and the query names no version.
pub(crate) async fn again_if_gone<T, F>(query: &Query, ask: impl Fn() -> F) -> Result<T, TableError>
where
    F: Future<Output = Result<T, TableError>>,
{
    let mut beginnings = Beginnings::default();
    loop {
        match ask().await {
            Err(error) if error.is_version_gone() && query.as_of.is_none() && beginnings.take() => {}
            answered => return answered,
        }
    }
}

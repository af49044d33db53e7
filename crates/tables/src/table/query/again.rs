//! Asking again where a vacuum took the version away that was being read.
//!
//! Invariant: what is asked about one version is told that it is gone, and only what is asked about now begins again.

use crate::{Query, TableError};
use std::future::Future;

/// Asks for what is said of `query`; again, of what is current by then, if a vacuum took away meanwhile what was being
/// read, and the query names no version.
pub(crate) async fn again_if_gone<T, F>(query: &Query, ask: impl Fn() -> F) -> Result<T, TableError>
where
    F: Future<Output = Result<T, TableError>>,
{
    loop {
        match ask().await {
            Err(error) if error.is_version_gone() && query.as_of.is_none() => {}
            answered => return answered,
        }
    }
}

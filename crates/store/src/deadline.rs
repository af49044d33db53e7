//! Deadlines of calls that wait for another party, and the error of a call that is given up.
//!
//! Invariant: a call that is given up counts as refused only if it cannot have taken effect.

use crate::StoreError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Waits for `run` until the deadline, if there is one.
///
/// `what` and `place` name the call in the error. `may_be_done` is asked when the time is up.
///
/// # Errors
/// Those of `run`; [`StoreError::Unknown`] if the time is up and the call may have taken effect, and
/// [`StoreError::Unavailable`] if it cannot have.
pub async fn within<T>(
    deadline: Option<Duration>,
    (what, place): (&'static str, &str),
    may_be_done: impl Fn() -> bool,
    run: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let Some(deadline) = deadline else { return run.await };
    tokio::time::timeout(deadline, run).await.unwrap_or_else(|late| {
        let (reason, source) = (format!("no answer within {deadline:?}"), Some(Arc::new(late) as _));
        Err(match may_be_done() {
            true => StoreError::Unknown { what, reason, source },
            false => StoreError::Unavailable { place: place.to_owned(), reason, source },
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    const SOON: Option<Duration> = Some(Duration::from_secs(5));

    #[tokio::test(start_paused = true)]
    async fn what_may_be_done_is_unknown_and_what_cannot_be_is_refused() {
        let given_up = |is_sent: bool| within::<()>(SOON, ("write", "a ring"), move || is_sent, pending());
        assert!(matches!(given_up(true).await, Err(StoreError::Unknown { what: "write", .. })));
        let refused = given_up(false).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Unavailable { place, .. } if place == "a ring"));
        assert!(refused.to_string().contains("no answer within 5s"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_in_time_has_its_own_answer() {
        let answer = within(SOON, ("get", "a ring"), || true, ready(Ok(3))).await;
        assert_eq!(answer.unwrap(), 3);
        let slow = async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Ok(4)
        };
        assert_eq!(within(None, ("get", "a ring"), || true, slow).await.unwrap(), 4);
    }
}

//! Stopping: tells a pack in progress to end.
//!
//! A pack that is simply dropped leaves the objects of its unfinished tree to a session that still stands,
//! and no vacuum removes them. A pack that is told to stop ends with an error, and cleans up as after any
//! other.

use super::super::TableError;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{Either, Shared, select};
use std::pin::pin;

/// A signal to stop, given once by dropping its sender.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    given: Option<Shared<oneshot::Receiver<()>>>,
}

impl Stop {
    /// A signal that is never given.
    pub(super) const fn never() -> Self {
        Self { given: None }
    }

    /// A signal, and its sender.
    pub(super) fn signal() -> (oneshot::Sender<()>, Self) {
        let (sender, given) = oneshot::channel();
        (sender, Self { given: Some(given.shared()) })
    }

    /// Whether the signal has been given.
    pub(super) fn is_given(&self) -> bool {
        self.given.clone().is_some_and(|given| given.now_or_never().is_some())
    }

    /// Fails with [`TableError::Stopped`] if the signal has been given.
    pub(super) fn check(&self) -> Result<(), TableError> {
        if self.is_given() { Err(TableError::Stopped) } else { Ok(()) }
    }

    /// Completes with the work, or with [`TableError::Stopped`] as soon as the signal is given. The work is
    /// dropped then, so it must leave nothing behind.
    pub(super) async fn or<T>(
        &self,
        work: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        let Some(given) = self.given.clone() else { return work.await };
        // The signal comes first: work that is always ready must not hide it.
        match select(given, pin!(work)).await {
            Either::Left(_) => Err(TableError::Stopped),
            Either::Right((done, _)) => done,
        }
    }
}

//! Pace: a pack takes no more of a processor than its share.
//!
//! The time is that of the store, and rest is a wait for something that does not come.

use super::super::{Table, TableError};
use atoll_store::{Cell, Expectation};
use std::time::Duration;

/// Rests shorter than this are put together.
const REST_MIN: Duration = Duration::from_millis(2);

/// A rest is no longer than this, so that whoever wants the pack to end waits no longer either.
const REST_MAX: Duration = Duration::from_secs(1);

/// How the work of a pack goes on.
pub(super) struct Pace<'t> {
    table: &'t Table,
    share: f64,
    /// When the work went on, in nanoseconds of the store.
    since: u64,
}

impl<'t> Pace<'t> {
    pub(super) async fn begin(table: &'t Table, share: f64) -> Result<Self, TableError> {
        let since = table.store.now().await?.0;
        Ok(Self { table, share, since })
    }

    /// Lets others have a turn, and rests as long as the share asks for after the work since the last rest.
    pub(super) async fn rest(&mut self) -> Result<(), TableError> {
        give_way().await;
        if self.share >= 1.0 {
            return Ok(());
        }
        let worked = Duration::from_nanos(self.table.store.now().await?.0.saturating_sub(self.since));
        let rest = worked.mul_f64(1.0 / self.share - 1.0).min(REST_MAX);
        if rest >= REST_MIN {
            // Nobody writes this cell, so the wait ends when the time has run out.
            let partition = self.table.names.manifest();
            let cell = Cell::new(&partition, b"rest");
            self.table.store.wait(cell, Expectation::Differs(None), rest).await?;
            self.since = self.table.store.now().await?.0;
        }
        Ok(())
    }
}

/// Comes back once other tasks had a turn.
async fn give_way() {
    let mut had_turn = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut had_turn, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

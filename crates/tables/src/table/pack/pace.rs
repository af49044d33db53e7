//! Pace: a pack takes no more of a processor, and moves no more bytes, than it may.
//!
//! The time is that of the store, and rest is a wait for something that does not come.

use super::super::{Table, TableError};
use super::PackOptions;
use atoll_store::{Cell, Expectation};
use std::time::Duration;

/// Rests shorter than this are put together.
const REST_MIN: Duration = Duration::from_millis(2);

/// One rest is no longer than this, whatever a clock that was set says.
const REST_MAX: Duration = Duration::from_secs(60);

/// How the work of a pack goes on.
pub(super) struct Pace<'t> {
    table: &'t Table,
    share: f64,
    bytes_per_second: Option<u64>,
    /// Bytes that were moved since the last rest.
    moved: u64,
    /// When the work went on, in nanoseconds of the store.
    since: u64,
}

impl<'t> Pace<'t> {
    pub(super) async fn begin(table: &'t Table, options: &PackOptions) -> Result<Self, TableError> {
        let since = table.store.now().await?.0;
        let (share, bytes_per_second) = (options.share, options.bytes_per_second);
        Ok(Self { table, share, bytes_per_second, moved: 0, since })
    }

    /// Takes note of bytes that were read or written.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.moved += bytes as u64;
    }

    /// Lets others have a turn, and rests as long as the share asks for after the work since the last rest.
    pub(super) async fn rest(&mut self) -> Result<(), TableError> {
        give_way().await;
        if self.share >= 1.0 && self.bytes_per_second.is_none() {
            return Ok(());
        }
        let worked = Duration::from_nanos(self.table.store.now().await?.0.saturating_sub(self.since));
        let for_share = worked.as_secs_f64() * (1.0 / self.share - 1.0);
        let for_share = Duration::try_from_secs_f64(for_share).unwrap_or(REST_MAX);
        let rest = for_share.max(self.time_of_bytes().saturating_sub(worked)).min(REST_MAX);
        if rest >= REST_MIN {
            // Nobody writes this cell, so the wait ends when the time has run out.
            let partition = self.table.names.manifest();
            let cell = Cell::new(&partition, b"rest");
            self.table.store.wait(cell, Expectation::Differs(None), rest).await?;
            self.since = self.table.store.now().await?.0;
            self.moved = 0;
        }
        Ok(())
    }

    /// How long the bytes since the last rest may take at least.
    fn time_of_bytes(&self) -> Duration {
        let seconds = |budget| self.moved as f64 / budget as f64;
        let time = self.bytes_per_second.map(seconds).map(Duration::try_from_secs_f64);
        time.map_or(Duration::ZERO, |time| time.unwrap_or(REST_MAX))
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

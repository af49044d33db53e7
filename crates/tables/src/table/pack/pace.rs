//! Pace: limits the share of a processor and the bytes per second that a pack takes.
//!
//! Time is that of the store's clock, and a rest is a wait for a cell that never changes. Rest is
//! proportional to the work before it, even if that took minutes without a break: a tree is made in one go.

use super::super::{Table, TableError};
use super::PackOptions;
use super::background::{FAILURES_MAX, REST_KEY, is_out_of_reach};
use super::progress::Telling;
use super::stop::Stop;
use atoll_store::{Cell, Expectation};
use std::time::Duration;

/// Shorter rests are accumulated.
const REST_MIN: Duration = Duration::from_millis(2);

/// Maximum length of a single wait; a rest may consist of many.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Upper bound on one stretch of work, in case the clock was set.
const WORKED_MAX: Duration = Duration::from_secs(300);

/// Maximum length of a rest: beyond it, a resting pack could not be told from one that hangs.
const REST_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// After this many bytes, or this many turns of little work, a pack checks whether its session has to be
/// renewed. Each check is a call of the store. A session outlasts the interval on any store on which a pack
/// ever ends.
const LOOK_BYTES: u64 = 1 << 20;
const LOOK_TURNS: u32 = 32;

/// After this many bytes or turns, it also reads the cell of its session, which is gone with the table if
/// that was dropped: what is written from then on has to be removed again.
const CHECK_BYTES: u64 = 16 << 20;
const CHECK_TURNS: u32 = 256;

/// Controls the pace of a pack.
pub(super) struct Pace<'t> {
    table: &'t Table,
    share: f64,
    bytes_per_second: Option<u64>,
    /// Bytes moved since the last rest.
    moved: u64,
    /// Bytes moved in all, and who is told of them.
    moved_in_all: u64,
    telling: Option<Telling<'t>>,
    stop: Stop,
    /// Bytes moved and turns taken since the session was last renewed if that was due.
    unlooked: (u64, u32),
    /// The same since its cell was last read.
    unchecked: (u64, u32),
    /// When the work resumed, in nanoseconds of the store's clock.
    since: u64,
}

impl<'t> Pace<'t> {
    pub(super) async fn begin(table: &'t Table, options: &PackOptions) -> Result<Self, TableError> {
        let since = table.store.now().await?.0;
        let (share, bytes_per_second) = (options.share, options.bytes_per_second);
        Ok(Self {
            table,
            share,
            bytes_per_second,
            moved: 0,
            moved_in_all: 0,
            telling: None,
            stop: Stop::never(),
            unlooked: (0, 0),
            unchecked: (0, 0),
            since,
        })
    }

    /// The same pace, which also tells how far the pack has come.
    pub(super) fn telling(self, telling: Telling<'t>) -> Self {
        Self { telling: Some(telling), ..self }
    }

    /// The same pace, whose next rest is an error once the signal is given.
    pub(super) fn until(self, stop: &Stop) -> Self {
        Self { stop: stop.clone(), ..self }
    }

    /// Records bytes that were read or written.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.moved += bytes as u64;
        self.moved_in_all += bytes as u64;
        self.unlooked.0 += bytes as u64;
        if let Some(telling) = &self.telling {
            telling.moved(self.moved_in_all);
        }
    }

    /// Yields to other tasks, then rests as long as the limits require after the work since the last rest.
    ///
    /// # Errors
    /// [`TableError::Stopped`] if the pack is to stop; [`TableError::Fenced`] if the session has ended;
    /// persistent errors of the store.
    pub(super) async fn rest(&mut self) -> Result<(), TableError> {
        yield_to_others().await;
        self.stop.check()?;
        self.renew_if_due().await?;
        if self.share >= 1.0 && self.bytes_per_second.is_none() {
            return Ok(());
        }
        let now = retry(|| self.now()).await?;
        let worked = Duration::from_nanos(now.saturating_sub(self.since));
        let mut left = rest_owed(worked.min(WORKED_MAX), self.moved, self.share, self.bytes_per_second);
        if left < REST_MIN {
            return Ok(());
        }
        while !left.is_zero() {
            let turn = left.min(WAIT_MAX);
            retry(|| self.stop.or(self.wait(turn))).await?;
            left = left.saturating_sub(turn);
            // The objects are written under this session, and a long pack may rest for longer than it lasts.
            retry(|| self.table.ledger.renew_session()).await?;
        }
        self.since = retry(|| self.now()).await?;
        self.moved = 0;
        Ok(())
    }

    /// Renews the session from time to time: on a slow store, a tree takes longer than the session under
    /// which its objects are written. Less often, checks that it still stands.
    async fn renew_if_due(&mut self) -> Result<(), TableError> {
        self.unlooked.1 += 1;
        let (bytes, turns) = self.unlooked;
        if bytes < LOOK_BYTES && turns < LOOK_TURNS {
            return Ok(());
        }
        self.unlooked = (0, 0);
        retry(|| self.table.ledger.renew_session()).await?;
        self.unchecked = (self.unchecked.0 + bytes, self.unchecked.1 + turns);
        let (bytes, turns) = self.unchecked;
        if bytes < CHECK_BYTES && turns < CHECK_TURNS {
            return Ok(());
        }
        self.unchecked = (0, 0);
        retry(|| self.table.ledger.check_session()).await
    }

    async fn now(&self) -> Result<u64, TableError> {
        Ok(self.table.store.now().await?.0)
    }

    async fn wait(&self, time: Duration) -> Result<(), TableError> {
        let partition = self.table.names.attributes();
        self.table.store.wait(Cell::new(&partition, REST_KEY), Expectation::Differs(None), time).await?;
        Ok(())
    }
}

/// Retries a call while the store is unreachable, as often as background packing does. A rest calls the store
/// for hours, and a pack that ended because of a single call would have to repeat all its work.
async fn retry<T, F>(call: impl Fn() -> F) -> Result<T, TableError>
where
    F: Future<Output = Result<T, TableError>>,
{
    let mut failures = 0;
    loop {
        match call().await {
            Err(error) if failures < FAILURES_MAX && is_out_of_reach(&error) => failures += 1,
            ended => return ended,
        }
        yield_to_others().await;
    }
}

/// How long to rest after working for `worked` and moving `moved` bytes, to stay below both limits.
fn rest_owed(worked: Duration, moved: u64, share: f64, bytes_per_second: Option<u64>) -> Duration {
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(REST_MAX);
    let for_share = seconds(worked.as_secs_f64() * (1.0 / share - 1.0));
    let of_bytes = |budget| seconds(moved as f64 / budget as f64).saturating_sub(worked);
    for_share.max(bytes_per_second.map_or(Duration::ZERO, of_bytes)).min(REST_MAX)
}

/// Completes after other tasks have had a turn.
async fn yield_to_others() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_long_stretch_owes_is_owed_in_full() {
        let stretch = Duration::from_secs(100);
        assert_eq!(rest_owed(stretch, 0, 0.1, None).as_secs(), 900);
        assert_eq!(rest_owed(stretch, 8 << 20, 1.0, Some(8 << 10)).as_secs(), 1024 - 100);
        assert_eq!(rest_owed(stretch, 8 << 20, 0.02, Some(8 << 10)).as_secs(), 4900);
        assert_eq!(rest_owed(stretch, 1 << 20, 1.0, Some(1 << 20)), Duration::ZERO);
        assert_eq!(rest_owed(stretch, 0, 1e-300, None), REST_MAX);
    }
}

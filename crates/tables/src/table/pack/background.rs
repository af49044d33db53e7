//! Background packing: follows the versions of a table, packs new data once that is worth it, and the rest
//! once no more comes.
//!
//! Of all processes that keep one table packed, only one packs at a time: the holder of a lease, a cell
//! beside the attributes of runs. Two holders, because one was suspended for longer than its lease, do no
//! harm: a pack that loses a race is discarded.
//!
//! Invariant: ending this loop waits for at most one step of a pack, and for the removal of what an
//! unfinished pack has written; a half-finished pack is in no version.

use super::super::ledger::is_unknown;
use super::super::names::random_id;
use super::super::{Table, TableError};
use super::stop::Stop;
use super::{PackOptions, PackProgress, PackReport, TREE_TIMES};
use crate::protocol::{EditError, Version};
use crate::room::{Keeping, keep};
use atoll_errors::ErrorKind;
use atoll_store::{Batch, Buffer, Cell, Expectation, ReadOptions, StoreError, WriteOptions};
use futures::future::{Either, pending, select};
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

/// The key of the lease's cell; no run can have this name.
pub(in crate::table) const LEASE_KEY: &[u8] = b"\0packer";

/// A cell that is never written, since no run can have this name: a wait for it ends when its time runs out.
pub(super) const REST_KEY: &[u8] = b"\0rest";

/// How many consecutive failures of the store are tolerated.
pub(super) const FAILURES_MAX: u32 = 8;

/// A lease that has longer left than this, and than twice one's own duration, counts as none: the clock of
/// its holder was ahead, and nobody would pack until it expires.
const LEASE_LEFT_MAX: Duration = Duration::from_secs(2 * 60 * 60);

/// How to keep a table packed.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepPacked {
    /// Options of each pack.
    pub pack: PackOptions,
    /// Time without a new version after which all remaining data is packed, however little it is.
    pub idle: Duration,
    /// Time after which remaining data is packed even though new versions come, if they bring only little.
    pub patience: Duration,
    /// Minimum time between two looks for something to pack.
    pub pause: Duration,
    /// How long others wait for a process that stopped renewing its lease, for instance because it was
    /// killed.
    pub lease: Duration,
}

impl Default for KeepPacked {
    fn default() -> Self {
        Self {
            pack: PackOptions::default(),
            idle: Duration::from_secs(10),
            patience: Duration::from_secs(60),
            pause: Duration::from_millis(500),
            lease: Duration::from_secs(60),
        }
    }
}

impl Table {
    /// Keeps the table packed until `until` completes, and reports what was done; `told` is called after each
    /// pack.
    ///
    /// Any number of processes may do this on one table: one packs, the others wait until it ends.
    ///
    /// A pack that is in progress when `until` completes is discarded, and the objects that it has written
    /// are removed. If this call itself is dropped, they stay as long as the session of this handle.
    ///
    /// # Errors
    /// Those of [`Table::pack`], except lost races; persistent errors of the store.
    pub async fn keep_packed(
        &self,
        how: &KeepPacked,
        until: impl Future<Output = ()>,
        told: impl FnMut(&PackReport),
    ) -> Result<PackReport, TableError> {
        how.pack.validate()?;
        let (signal, stop) = Stop::signal();
        let mut keeper = Keeper::of(self, how, stop, told);
        let until = async move {
            until.await;
            drop(signal);
            pending::<Infallible>().await
        };
        // The keeper ends by itself: dropped in the middle of a pack, it would leave objects behind.
        let ended = match select(pin!(until), pin!(keeper.keep())).await {
            Either::Left((never, _)) => match never {},
            Either::Right((ended, _)) => ended,
        };
        keeper.release().await;
        ended.map(|()| keeper.total)
    }
}

/// The result of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packed {
    Some,
    /// There was nothing to do.
    Nothing,
    /// Other packers were faster.
    Lost,
}

/// Keeps one table packed.
struct Keeper<'t, T> {
    table: &'t Table,
    how: &'t KeepPacked,
    stop: Stop,
    told: T,
    total: PackReport,
    /// The number that identifies its lease.
    number: u128,
    /// The last version in which nothing was left to pack.
    settled: Version,
    /// When remaining data was last packed, or when this began; in nanoseconds of the store's clock.
    settled_at: Option<u64>,
    /// While there is always something to pack, each pack takes about as much memory as the one before.
    keeping: Option<Keeping>,
}

impl<'t, T: FnMut(&PackReport)> Keeper<'t, T> {
    fn of(table: &'t Table, how: &'t KeepPacked, stop: Stop, told: T) -> Self {
        Self {
            table,
            how,
            stop,
            told,
            total: PackReport::default(),
            number: random_id(),
            settled: Version::EMPTY,
            settled_at: None,
            keeping: None,
        }
    }

    /// Runs until it is told to stop, or until an error that does not pass.
    async fn keep(&mut self) -> Result<(), TableError> {
        let mut failures = 0;
        loop {
            match self.turn().await {
                Ok(()) => failures = 0,
                Err(TableError::Stopped) => return Ok(()),
                Err(error) if failures < FAILURES_MAX && may_pass(&error) => {
                    failures += 1;
                    let pause = self.how.pause.saturating_mul(2_u32.pow(failures));
                    match self.stop.or(self.rest(pause)).await {
                        Err(TableError::Stopped) => return Ok(()),
                        // Resting calls the store, which may be what fails.
                        Err(error) if !may_pass(&error) => return Err(error),
                        _ => {}
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Packs what is worth packing, then waits for new data.
    async fn turn(&mut self) -> Result<(), TableError> {
        if let Some(held) = self.stop.or(self.take_lease()).await? {
            let changes = Expectation::Differs(Some(held));
            return self.stop.or(self.wait_for(LEASE_KEY, changes, self.how.lease / 4)).await;
        }
        self.pack(&self.how.pack).await?;
        let version = self.stop.or(self.table.version()).await?;
        let wait = if version == self.settled { self.how.lease / 4 } else { self.how.idle };
        let is_idle = self.stop.or(self.table.follow(version, wait)).await? == version;
        let now = self.table.store.now().await?.0;
        let settled_at = *self.settled_at.get_or_insert(now);
        if version != self.settled && (is_idle || now.saturating_sub(settled_at) >= nanos(self.how.patience))
        {
            self.settle().await?;
            self.settled_at = Some(self.table.store.now().await?.0);
        }
        if is_idle { Ok(()) } else { self.stop.or(self.rest(self.how.pause)).await }
    }

    /// Packs all remaining data, then checks once more, since more may have come in the meantime.
    async fn settle(&mut self) -> Result<(), TableError> {
        let settling = PackOptions { is_settling: true, ..self.how.pack.clone() };
        for _ in 0..2 {
            // Read the version before planning: whatever comes in between makes a newer version.
            let version = self.stop.or(self.table.version()).await?;
            match self.pack(&settling).await? {
                Packed::Some => {}
                Packed::Nothing => {
                    self.settled = version;
                    break;
                }
                Packed::Lost => break,
            }
        }
        Ok(())
    }

    async fn pack(&mut self, options: &PackOptions) -> Result<Packed, TableError> {
        let told = |_: PackProgress| {};
        let pack = self.table.pack_until(options, &told, &self.stop);
        let packed = match select(pin!(pack), pin!(self.hold_lease())).await {
            Either::Left((packed, _)) => packed,
            Either::Right((never, _)) => match never {},
        };
        match packed {
            Ok(report) => {
                self.total += report;
                if report.version.is_none() {
                    self.keeping = None;
                    return Ok(Packed::Nothing);
                }
                let bytes = report.bytes_read.min(options.tree_bytes_max);
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                self.keeping = Some(keep(bytes.saturating_mul(TREE_TIMES)));
                (self.told)(&report);
                Ok(Packed::Some)
            }
            // Others were faster again and again, so there is less to do.
            Err(
                TableError::Edit(EditError::InputGone { .. })
                | TableError::Fenced { .. }
                | TableError::VersionGone { .. },
            ) => {
                self.total.lost += 1;
                Ok(Packed::Lost)
            }
            Err(error) => Err(error),
        }
    }

    /// Renews the lease while a pack runs, until the store has failed so often that the lease is left to
    /// expire.
    async fn hold_lease(&self) -> Infallible {
        let pause = (self.how.lease / 4).max(Duration::from_millis(1));
        let mut failed = 0;
        while failed < FAILURES_MAX {
            failed = if self.rest(pause).await.is_ok() { 0 } else { failed + 1 };
            // Without the lease, the pack may lose a race; nothing else can happen.
            let _ = self.take_lease().await;
        }
        pending().await
    }

    /// Takes or renews the lease; returns the lease's cell if another process holds it.
    async fn take_lease(&self) -> Result<Option<Buffer>, TableError> {
        let partition = self.table.names.attributes();
        let now = self.table.store.now().await?.0;
        let found = self.table.store.get(Cell::new(&partition, LEASE_KEY), ReadOptions::default()).await?;
        // A lease in another format counts as none: the lease only saves work.
        let left_max = nanos(LEASE_LEFT_MAX.max(self.how.lease.saturating_mul(2)));
        let may_end = |ends: u64| ends <= now.saturating_add(left_max);
        let lease = found.as_deref().and_then(lease_from_bytes).filter(|(_, ends)| may_end(*ends));
        match (lease, &found) {
            (Some((holder, ends)), _) if holder == self.number && ends > now + nanos(self.how.lease) / 2 => {
                return Ok(None);
            }
            (Some((holder, ends)), Some(found)) if holder != self.number && ends > now => {
                return Ok(Some(found.clone()));
            }
            _ => {}
        }
        let ends = now.saturating_add(nanos(self.how.lease));
        let lease = [self.number.to_be_bytes().as_slice(), &ends.to_be_bytes()].concat();
        let batch = Batch::on(partition).if_is(LEASE_KEY, found).put(LEASE_KEY, lease.clone());
        match self.table.store.write(batch, WriteOptions::default()).await {
            Ok(_) => Ok(None),
            // Another process was faster; the next call sees its lease.
            Err(StoreError::Conflict(_)) => Ok(Some(Buffer::from(lease))),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives up the lease, so that others need not wait for it to expire. If that fails, they wait.
    async fn release(&self) {
        let partition = self.table.names.attributes();
        // Read again, because a renewal may have been in flight when the loop ended.
        let found = self.table.store.get(Cell::new(&partition, LEASE_KEY), ReadOptions::default()).await;
        let Ok(Some(found)) = found else { return };
        if lease_from_bytes(&found).is_some_and(|(holder, _)| holder == self.number) {
            let batch = Batch::on(partition).if_equals(LEASE_KEY, found).delete(LEASE_KEY);
            let _ = self.table.store.write(batch, WriteOptions::default()).await;
        }
    }

    /// Waits for a time on the store's clock.
    async fn rest(&self, time: Duration) -> Result<(), TableError> {
        self.wait_for(REST_KEY, Expectation::Differs(None), time).await
    }

    async fn wait_for(&self, key: &[u8], what: Expectation, time: Duration) -> Result<(), TableError> {
        let partition = self.table.names.attributes();
        self.table.store.wait(Cell::new(&partition, key), what, time).await?;
        Ok(())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The holder of a lease and its end, in nanoseconds of the store's clock.
fn lease_from_bytes(bytes: &[u8]) -> Option<(u128, u64)> {
    let (number, ends) = bytes.split_first_chunk()?;
    Some((u128::from_be_bytes(*number), u64::from_be_bytes(ends.try_into().ok()?)))
}

/// Whether the same call may succeed a little later.
fn may_pass(error: &TableError) -> bool {
    is_out_of_reach(error) || error.kind() == ErrorKind::Conflict
}

/// Whether the store did not answer, or its answer left the outcome unknown.
pub(super) fn is_out_of_reach(error: &TableError) -> bool {
    let is_doubt = matches!(error, TableError::Store(error) if is_unknown(error));
    is_doubt || matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut)
}

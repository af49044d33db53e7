//! Packing in the background: follows a table's versions, packs what has come once it is worth it, and what
//! is left once nothing more comes.
//!
//! Of all that keep one table packed, one does at a time: it holds a lease, a cell beside the attributes of
//! runs. Two that hold it, because one was stopped for longer than it lasts, do no harm: a pack that is
//! overtaken is given up.
//!
//! Invariant: whoever ends this loop waits for one step of a pack at most; what is half done is in no
//! version.

use super::super::ledger::is_unknown;
use super::super::names::random_id;
use super::super::{Table, TableError};
use super::{PackOptions, PackReport, TREE_TIMES};
use crate::protocol::{EditError, Version};
use crate::room::{Keeping, keep};
use atoll_errors::ErrorKind;
use atoll_store::{Batch, Buffer, Cell, Expectation, ReadOptions, StoreError, WriteOptions};
use futures::future::{Either, pending, select};
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

/// The lease's cell: no run is called so.
pub(in crate::table) const LEASE_KEY: &[u8] = b"\0packer";

/// A cell that nobody writes, as no run is called so: a wait for it ends when its time has run out.
pub(super) const REST_KEY: &[u8] = b"\0rest";

/// How often in a row the store may fail before that is an error.
pub(super) const FAILURES_MAX: u32 = 8;

/// A lease that has longer to go than this, and than two of one's own, is none: the clock of its holder was
/// ahead, and nobody would pack until then.
const LEASE_LEFT_MAX: Duration = Duration::from_secs(2 * 60 * 60);

/// How to keep a table packed.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepPacked {
    /// How to pack.
    pub pack: PackOptions,
    /// After how long without a new version what is left is packed too, however little it is.
    pub idle: Duration,
    /// After how long what is left is packed although versions come, if they bring only little.
    pub patience: Duration,
    /// It looks for something to pack once in so long at most.
    pub pause: Duration,
    /// How long others wait for one that packs and does not renew its lease, such as one that was killed.
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
    /// Keeps the table packed until `until` is over, and says what was done; `told` hears of each pack.
    ///
    /// Any number of processes may do this with one table: one packs, the others wait until it ends.
    ///
    /// # Errors
    /// Those of [`Table::pack`] but lost races; errors of the store that last.
    pub async fn keep_packed(
        &self,
        how: &KeepPacked,
        until: impl Future<Output = ()>,
        told: impl FnMut(&PackReport),
    ) -> Result<PackReport, TableError> {
        how.pack.validate()?;
        let mut keeper = Keeper::of(self, how, told);
        let ended = match select(pin!(until), pin!(keeper.keep())).await {
            Either::Left(((), _)) => Ok(()),
            Either::Right((error, _)) => Err(error),
        };
        keeper.release().await;
        ended.map(|()| keeper.total)
    }
}

/// What came of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packed {
    Some,
    /// There was nothing to do.
    Nothing,
    /// Others were faster.
    Lost,
}

/// Who keeps one table packed.
struct Keeper<'t, T> {
    table: &'t Table,
    how: &'t KeepPacked,
    told: T,
    total: PackReport,
    /// By which its lease is known.
    number: u128,
    /// The version in which nothing was left to do.
    settled: Version,
    /// When what was left was packed last, or this began, in nanoseconds of the store.
    settled_at: Option<u64>,
    /// While there is always something to pack, each pack takes about as much memory as the one before.
    keeping: Option<Keeping>,
}

impl<'t, T: FnMut(&PackReport)> Keeper<'t, T> {
    fn of(table: &'t Table, how: &'t KeepPacked, told: T) -> Self {
        let (total, settled) = (PackReport::default(), Version::EMPTY);
        Self { table, how, told, total, number: random_id(), settled, settled_at: None, keeping: None }
    }

    /// Goes on until something fails for good.
    async fn keep(&mut self) -> TableError {
        let mut failures = 0;
        loop {
            match self.turn().await {
                Ok(()) => failures = 0,
                Err(error) if failures < FAILURES_MAX && may_pass(&error) => {
                    failures += 1;
                    let pause = self.how.pause.saturating_mul(2_u32.pow(failures));
                    // To rest takes the store, which may be what fails.
                    if let Err(error) = self.rest(pause).await
                        && !may_pass(&error)
                    {
                        return error;
                    }
                }
                Err(error) => return error,
            }
        }
    }

    /// Packs what is worth it, and waits for something new.
    async fn turn(&mut self) -> Result<(), TableError> {
        if let Some(held) = self.others_lease().await? {
            return self.wait_for(LEASE_KEY, Expectation::Differs(Some(held)), self.how.lease / 4).await;
        }
        self.pack(&self.how.pack).await?;
        let version = self.table.version().await?;
        let wait = if version == self.settled { self.how.lease / 4 } else { self.how.idle };
        let is_idle = self.table.follow(version, wait).await? == version;
        let now = self.table.store.now().await?.0;
        let settled_at = *self.settled_at.get_or_insert(now);
        if version != self.settled && (is_idle || now.saturating_sub(settled_at) >= nanos(self.how.patience))
        {
            self.settle().await?;
            self.settled_at = Some(self.table.store.now().await?.0);
        }
        if is_idle { Ok(()) } else { self.rest(self.how.pause).await }
    }

    /// Packs whatever is left, and looks again whether anything is, since more may have come meanwhile.
    async fn settle(&mut self) -> Result<(), TableError> {
        let settling = PackOptions { is_settling: true, ..self.how.pack.clone() };
        for _ in 0..2 {
            // Read before it is looked what there is to do: what comes in between makes a newer version.
            let version = self.table.version().await?;
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
        let packed = match select(pin!(self.table.pack(options)), pin!(self.hold_lease())).await {
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
            // Others were faster, again and again: then there is less to do.
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

    /// Renews the lease for as long as a pack takes, or until the store fails so often that it ends in its
    /// own time.
    async fn hold_lease(&self) -> Infallible {
        let pause = (self.how.lease / 4).max(Duration::from_millis(1));
        let mut failed = 0;
        while failed < FAILURES_MAX {
            failed = if self.rest(pause).await.is_ok() { 0 } else { failed + 1 };
            // Without it the pack may lose a race, and nothing else happens.
            let _ = self.others_lease().await;
        }
        pending().await
    }

    /// Takes or renews the lease; the lease's cell if somebody else has it.
    async fn others_lease(&self) -> Result<Option<Buffer>, TableError> {
        let partition = self.table.names.attributes();
        let now = self.table.store.now().await?.0;
        let found = self.table.store.get(Cell::new(&partition, LEASE_KEY), ReadOptions::default()).await?;
        // A lease of another format is as good as none: it only saves work.
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
            // Somebody else was faster: what is there now is seen next time.
            Err(StoreError::Conflict(_)) => Ok(Some(Buffer::from(lease))),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the lease up, so that nobody has to wait for its end; if that fails, they wait.
    async fn release(&self) {
        let partition = self.table.names.attributes();
        // Read anew: a renewal may have been on its way when the loop ended.
        let found = self.table.store.get(Cell::new(&partition, LEASE_KEY), ReadOptions::default()).await;
        let Ok(Some(found)) = found else { return };
        if lease_from_bytes(&found).is_some_and(|(holder, _)| holder == self.number) {
            let batch = Batch::on(partition).if_equals(LEASE_KEY, found).delete(LEASE_KEY);
            let _ = self.table.store.write(batch, WriteOptions::default()).await;
        }
    }

    /// Waits, by the store's clock, for something that does not come.
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

/// Whose it is, and when it ends, in nanoseconds of the store.
fn lease_from_bytes(bytes: &[u8]) -> Option<(u128, u64)> {
    let (number, ends) = bytes.split_first_chunk()?;
    Some((u128::from_be_bytes(*number), u64::from_be_bytes(ends.try_into().ok()?)))
}

/// Whether the same may succeed a little later.
fn may_pass(error: &TableError) -> bool {
    is_out_of_reach(error) || error.kind() == ErrorKind::Conflict
}

/// Whether the store did not answer, or not for sure.
pub(super) fn is_out_of_reach(error: &TableError) -> bool {
    let is_doubt = matches!(error, TableError::Store(error) if is_unknown(error));
    is_doubt || matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut)
}

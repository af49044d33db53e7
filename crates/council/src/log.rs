//! The log of a member, its vote and its seat: in memory, and in a file if there is a folder.
//!
//! All entries that were not purged are in memory; the file is read only when a member begins.
//!
//! Invariant: what is synced was written in the order of the calls: an entry behind a vote is not there without it.
//! Invariant: a seat and the log behind it are made together: whoever lost the log sits on another seat.

use crate::codec::RingId;
use crate::types::{EntryOf, LogIdOf, SeatId, StorageError, Types, VoteOf};
use crate::{CouncilError, chance};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader, StorageIOError};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries that are sent to another member at once have about so many changes at most, one entry aside.
const CHANGES_AT_ONCE: usize = 32_768;

/// The log. Cloning it shares it.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    kept: Arc<Mutex<Kept>>,
}

/// What a member must not forget.
#[derive(Debug)]
struct Kept {
    seat: SeatId,
    ring: Option<RingId>,
    vote: Option<VoteOf>,
    purged: Option<LogIdOf>,
    /// Contiguous, behind `purged`.
    entries: VecDeque<EntryOf>,
}

impl Kept {
    fn first_index(&self) -> u64 {
        self.entries.front().map_or(0, |entry| entry.log_id.index)
    }

    fn last(&self) -> Option<LogIdOf> {
        self.entries.back().map(|entry| entry.log_id).or(self.purged)
    }

    /// How many entries are before this place.
    fn before(&self, index: u64) -> usize {
        let count = index.saturating_sub(self.first_index());
        usize::try_from(count).unwrap_or(usize::MAX).min(self.entries.len())
    }
}

impl Log {
    /// The log in a folder, or a new one in memory.
    pub(crate) fn open(_folder: Option<&Path>) -> Result<Self, CouncilError> {
        Ok(Self::in_memory(SeatId(chance::unique()?)))
    }

    /// A log that is gone with the process.
    pub(crate) fn in_memory(seat: SeatId) -> Self {
        let kept = Kept { seat, ring: None, vote: None, purged: None, entries: VecDeque::new() };
        Self { kept: Arc::new(Mutex::new(kept)) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where this member sits.
    pub(crate) fn seat(&self) -> SeatId {
        self.kept().seat
    }

    /// Which group it belongs to, if that is known.
    pub(crate) fn ring(&self) -> Option<RingId> {
        self.kept().ring
    }

    /// Whether it was told anything that the group decided.
    pub(crate) fn has_entries(&self) -> bool {
        self.kept().last().is_some()
    }

    /// From now on it belongs to this group.
    pub(crate) async fn set_ring(&self, ring: RingId) -> io::Result<()> {
        self.kept().ring = Some(ring);
        Ok(())
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<EntryOf>, StorageError> {
        let from = match range.start_bound() {
            Bound::Included(&from) => from,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let kept = self.kept();
        let behind = kept.entries.iter().skip(kept.before(from));
        Ok(behind.take_while(|entry| range.contains(&entry.log_id.index)).cloned().collect())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<EntryOf>, StorageError> {
        let mut entries = self.try_get_log_entries(start..end).await?;
        let mut changes = 0;
        let fits = entries.iter().take_while(|entry| {
            let is_first = changes == 0;
            changes += weight(entry);
            is_first || changes <= CHANGES_AT_ONCE
        });
        let count = fits.count();
        entries.truncate(count);
        Ok(entries)
    }
}

fn weight(entry: &EntryOf) -> usize {
    match &entry.payload {
        openraft::EntryPayload::Normal(changes) => changes.weight(),
        _ => 1,
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let kept = self.kept();
        Ok(LogState { last_purged_log_id: kept.purged, last_log_id: kept.last() })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf) -> Result<(), StorageError> {
        self.kept().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf>, StorageError> {
        Ok(self.kept().vote)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = EntryOf> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.kept().entries.extend(entries);
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogIdOf) -> Result<(), StorageError> {
        let mut kept = self.kept();
        let left = kept.before(log_id.index);
        kept.entries.truncate(left);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogIdOf) -> Result<(), StorageError> {
        let mut kept = self.kept();
        let gone = kept.before(log_id.index.saturating_add(1));
        kept.entries.drain(..gone);
        kept.purged = Some(log_id);
        Ok(())
    }
}

/// An error of the disk as the consensus knows it: it stops this member.
#[allow(dead_code)]
fn failed(error: &io::Error) -> StorageError {
    StorageIOError::write_logs(error).into()
}

//! Rank notes: what each rank of a run notes about it. There is one cell for each rank, and one that names
//! the attempt whose notes count. They are not versioned, and are removed when the whole run is deleted.
//!
//! Invariant: once an attempt has read the notes, no earlier attempt can write any. So all readers of that
//! attempt, at any time, see the same notes of earlier attempts.

use super::attributes::check_changeable;
use super::entries::all_entries;
use super::{Attributes, Table, TableError, check_name, codec};
use crate::protocol::{EditError, RunId};
use atoll_store::{
    Batch, Buffer, Cell, ReadOptions, ScanEntry, ScanRequest, SortRange, StoreError, WriteOptions,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Prefix of the keys of all notes. Names of runs have no control characters, so no other key collides.
const NOTES: &[u8] = b"\0rank\0";
/// The attribute in a run's first cell that holds the attempt whose notes count.
const ATTEMPT: &str = "attempt";

impl Table {
    /// Stores the notes of a rank in an attempt of a run, replacing its earlier notes. The run need not have
    /// begun.
    ///
    /// # Errors
    /// [`EditError::StaleAttempt`] once a later attempt has begun, [`TableError::Name`], errors of the store;
    /// [`StoreError::Limit`] for notes whose text does not fit into a condition.
    pub async fn set_rank_notes(
        &self,
        run: &str,
        attempt: u64,
        rank: u32,
        notes: &Attributes,
    ) -> Result<(), TableError> {
        check_name("run", run)?;
        let (partition, text) = (self.names.attributes(), codec::attributes_to_json(notes));
        // Removing notes that a later attempt may have rewritten has them in a condition.
        check_changeable(&*self.store, "set of notes", &text)?;
        loop {
            let taken = self.take_notes(run, attempt).await?;
            let put = Batch::on(partition.clone()).put(rank_of(run, rank), text.as_bytes());
            let put = put.if_is(notes_of(run), Some(taken.as_slice()));
            match self.store.write(put, WriteOptions::default()).await {
                Ok(_) => return Ok(()),
                // A later attempt has read the notes, or the run was deleted.
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The notes of a run by rank, read for an attempt: from then on, earlier attempts can write none.
    ///
    /// # Errors
    /// [`TableError::Damaged`], [`EditError::StaleAttempt`] once a later attempt has begun, errors of the
    /// store.
    pub async fn rank_notes(&self, run: &str, attempt: u64) -> Result<BTreeMap<u32, Attributes>, TableError> {
        check_name("run", run)?;
        self.take_notes(run, attempt).await?;
        let before = notes_of(run);
        let request =
            ScanRequest { range: SortRange::prefix(&before), ..ScanRequest::all(self.names.attributes()) };
        let of_entry = |entry: ScanEntry| {
            let rank = entry.sort.strip_prefix(before.as_slice()).and_then(|rank| rank.try_into().ok());
            let rank = u32::from_be_bytes(rank?);
            Some(codec::attributes_from_json(&self.name, &entry.value).map(|noted| (rank, noted)))
        };
        all_entries(&*self.store, request).await?.into_iter().filter_map(of_entry).collect()
    }

    /// The cells with notes of one run or of all runs; each run's cells begin with the one that names the
    /// attempt.
    pub(super) async fn rank_notes_of(&self, run: Option<&str>) -> Result<Vec<ScanEntry>, TableError> {
        let range = SortRange::prefix(&run.map_or_else(|| NOTES.to_vec(), notes_of));
        let request = ScanRequest { range, ..ScanRequest::all(self.names.attributes()) };
        Ok(all_entries(&*self.store, request).await?)
    }

    /// Removes the notes of runs, except those that a later attempt has written since.
    pub(super) async fn forget_notes(&self, noted: &[ScanEntry]) -> Result<(), TableError> {
        let partition = self.names.attributes();
        let is_of_one = |left: &ScanEntry, right: &ScanEntry| run_key(&left.sort) == run_key(&right.sort);
        for of_run in noted.chunk_by(is_of_one) {
            let [first, ..] = of_run else { continue };
            let key = run_key(&first.sort);
            let taken = (first.sort == key).then(|| first.value.clone());
            let gone = Batch::on(partition.clone()).if_is(key, taken).delete_range(SortRange::prefix(key));
            match self.store.write(gone, WriteOptions::default()).await {
                Ok(_) => continue,
                // A later attempt has claimed the notes since: remove only the cells that it has not
                // rewritten.
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
            self.remove_unchanged(of_run).await?;
        }
        Ok(())
    }

    /// Makes `attempt` the one whose notes count; returns the value of the cell that says so.
    async fn take_notes(&self, run: &str, attempt: u64) -> Result<Buffer, TableError> {
        let (partition, key) = (self.names.attributes(), notes_of(run));
        let cell = Cell::new(&partition, &key);
        let own = Attributes::from([(ATTEMPT.to_owned(), Value::from(attempt))]);
        let own = Buffer::from(codec::attributes_to_json(&own).into_bytes());
        loop {
            let taken = self.store.get(cell, ReadOptions::default()).await?;
            if taken.as_ref() == Some(&own) {
                return Ok(own);
            }
            // Checked after the cell was read: if no later attempt has begun by then, none had claimed the
            // cell when it was read.
            let current = self.ledger.current().await?.manifest.runs.get(run).map(|run| run.attempt);
            if let Some(current) = current.filter(|current| *current > attempt) {
                return Err(EditError::StaleAttempt { run: RunId::from(run), attempt, current }.into());
            }
            let swap = self.store.compare_and_swap(cell, taken.as_deref(), &own, WriteOptions::default());
            match swap.await {
                Ok(_) => return Ok(own),
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The key of the cell that names the attempt whose notes count; also the prefix of the rank cells.
fn notes_of(run: &str) -> Vec<u8> {
    [NOTES, run.as_bytes(), b"\0"].concat()
}

fn rank_of(run: &str, rank: u32) -> Vec<u8> {
    [notes_of(run).as_slice(), &rank.to_be_bytes()].concat()
}

/// The prefix of all notes of the same run, which is also the key of the cell that names the attempt.
fn run_key(key: &[u8]) -> &[u8] {
    let name = key.get(NOTES.len()..).unwrap_or_default();
    let end = name.iter().position(|byte| *byte == 0).map_or(key.len(), |end| NOTES.len() + end + 1);
    &key[..end]
}

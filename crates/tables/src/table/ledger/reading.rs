//! Reads the ledger: from a head to the content of its version.

use super::super::entries::all_entries;
use super::super::{TableError, codec};
use super::{Ledger, State, if_short};
use crate::protocol::{Cell, EditError, Head, Manifest, ObjectId, Version};
use atoll_store::{Buffer, Read, ScanRequest, SortRange};
use codec::Whole;
use futures::StreamExt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Up to this number, edits are read one by one rather than by a scan.
const SINGLE_EDITS_MAX: usize = 64;

impl Ledger {
    /// The state at a head, computed from the known state or a whole manifest, and the edits since.
    pub(super) async fn state_at(&self, head: Head) -> Result<State, TableError> {
        let known = self.known();
        // Another whole manifest before a version is that of a history that the store has lost.
        let near = known.filter(|known| known.head.full == head.full && known.head.version <= head.version);
        let later = match near {
            Some(known) if known.head.version == head.version => return Ok(known),
            Some(known) => self.later(known, head).await?,
            None => None,
        };
        let state = match later {
            Some(state) => state,
            None => {
                let manifest = self.full(head.full).await?;
                let edits = self.edits(manifest.version.next(), head.version).await?;
                self.after(State { manifest, ..State::default() }, head, &edits)?
            }
        };
        self.learn(&state);
        Ok(state)
    }

    /// The state at a head, computed from an earlier one and the edits since. `None` if the store has lost
    /// the earlier one, and made another version of the same number: its edit, which is read together with
    /// the others, is another one then.
    async fn later(&self, known: State, head: Head) -> Result<Option<State>, TableError> {
        let own = known.head.version;
        let Some(edit) = known.edit.clone() else {
            let edits = self.edits(own.next(), head.version).await?;
            return self.after(known, head, &edits).map(Some);
        };
        let edits = match self.edits(own, head.version).await {
            // A vacuum keeps the whole manifest of this version, and need not keep its edit.
            Err(TableError::Damaged { .. }) if own == head.full => return Ok(None),
            edits => edits?,
        };
        match edits.split_first() {
            Some((first, edits)) if *first == edit => self.after(known, head, edits).map(Some),
            _ => Ok(None),
        }
    }

    /// The state at a head, which is an earlier state after these edits.
    fn after(&self, state: State, head: Head, edits: &[Buffer]) -> Result<State, TableError> {
        let (manifest, entries) = self.apply(state.manifest, edits)?;
        let entries_since = state.entries_since.saturating_add(entries);
        Ok(State { head, manifest, entries_since, edit: edits.last().and_then(if_short) })
    }

    /// The manifest of version `to`, computed from an earlier one and the edits since.
    pub(super) async fn advance(
        &self,
        manifest: Arc<Manifest>,
        to: Version,
    ) -> Result<Arc<Manifest>, TableError> {
        let edits = self.edits(manifest.version.next(), to).await?;
        Ok(self.apply(manifest, &edits)?.0)
    }

    /// The manifest after these edits, and the number of their entries.
    fn apply(&self, manifest: Arc<Manifest>, edits: &[Buffer]) -> Result<(Arc<Manifest>, u64), TableError> {
        let from = manifest.version.next();
        let (mut manifest, mut entries) = (Arc::unwrap_or_clone(manifest), 0_u64);
        for (version, text) in (from.0..).map(Version).zip(edits) {
            let (_, edit) = codec::edit_from_json(&self.table, text)?;
            manifest = manifest.applied(&edit).map_err(|error| self.contradicts(version, &error))?;
            entries = entries.saturating_add(edit.entries());
        }
        Ok((Arc::new(manifest), entries))
    }

    pub(super) async fn full(&self, version: Version) -> Result<Arc<Manifest>, TableError> {
        if version == Version::EMPTY {
            return Ok(Arc::default());
        }
        let bytes = self.cell(Cell::Full(version), true).await?;
        let bytes = bytes.ok_or_else(|| self.lost(version))?;
        let whole = match codec::whole_from_bytes(&self.table, &bytes)? {
            Whole::Parts(name, parts) => {
                let cells = (0..parts).map(|number| Cell::Part(name, number)).collect();
                let parts = self.cells(cells).await?;
                let parts: Option<Vec<Buffer>> = parts.into_iter().collect();
                let parts = parts.ok_or_else(|| self.lost(version))?;
                codec::whole_from_bytes(&self.table, &join(&parts))?
            }
            whole => whole,
        };
        match whole {
            Whole::Manifest(manifest) => Ok(Arc::new(manifest)),
            Whole::Parts(..) => Err(codec::damaged(&self.table, "a part of a manifest names parts")),
        }
    }

    /// The names of the parts that whole manifests are stored in.
    pub(in crate::table) async fn named_parts(&self) -> Result<BTreeSet<ObjectId>, TableError> {
        let mut named = BTreeSet::new();
        for (_, bytes) in self.cells_of(Cell::Full(Version::EMPTY)).await? {
            if let Whole::Parts(name, _) = codec::whole_from_bytes(&self.table, &bytes)? {
                named.insert(name);
            }
        }
        Ok(named)
    }

    /// Reads write-once cells; returns their values in order.
    async fn cells(&self, cells: Vec<Cell>) -> Result<Vec<Option<Buffer>>, TableError> {
        let reads = cells.iter().map(|cell| {
            let read = Read::new(self.partition.as_slice(), cell.sort_key());
            Read { immutable: true, ..read }
        });
        let mut answers = self.store.get_many(reads.collect());
        let mut found: Vec<Option<Buffer>> = vec![None; cells.len()];
        while let Some((place, answer)) = answers.next().await {
            if let Some(slot) = found.get_mut(place) {
                *slot = answer?;
            }
        }
        Ok(found)
    }

    /// The edits that made the versions `from..=to`, in order.
    async fn edits(&self, from: Version, to: Version) -> Result<Vec<Buffer>, TableError> {
        let count = usize::try_from((to.0 + 1).saturating_sub(from.0)).unwrap_or(usize::MAX);
        if count > SINGLE_EDITS_MAX {
            return self.scan_edits(from, to, count).await;
        }
        let versions = || (from.0..=to.0).map(Version);
        let edits = self.cells(versions().map(Cell::Edit).collect()).await?;
        edits
            .into_iter()
            .zip(versions())
            .map(|(edit, version)| edit.ok_or_else(|| self.lost(version)))
            .collect()
    }

    async fn scan_edits(&self, from: Version, to: Version, count: usize) -> Result<Vec<Buffer>, TableError> {
        let (first, end) = (Cell::Edit(from).sort_key(), Cell::Edit(to.next()).sort_key());
        let request = ScanRequest {
            range: SortRange::half_open(first, end),
            ..ScanRequest::all(self.partition.as_slice())
        };
        // Reserve nothing for `count`, which is unverified until as many edits have been found.
        let mut edits = Vec::new();
        for entry in all_entries(&*self.store, request).await? {
            let version = Version(from.0 + edits.len() as u64);
            if entry.sort != Cell::Edit(version).sort_key() {
                return Err(self.lost(version));
            }
            edits.push(entry.value);
        }
        if edits.len() < count { Err(self.lost(Version(from.0 + edits.len() as u64))) } else { Ok(edits) }
    }

    fn lost(&self, version: Version) -> TableError {
        codec::damaged(&self.table, &format!("the edit or manifest of version {version} is missing"))
    }

    fn contradicts(&self, version: Version, error: &EditError) -> TableError {
        codec::damaged(&self.table, &format!("the edit that made version {version} contradicts it: {error}"))
    }
}

/// Concatenates parts.
fn join(parts: &[Buffer]) -> Vec<u8> {
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    parts.concat()
}

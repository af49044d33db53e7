//! Copies of a table in another store or under another name: the same rows in the same objects, and therefore
//! the same samples.
//!
//! A copy contains what one version shows: rows, as packed as they are, runs, steps with their times,
//! attributes. Older versions, snapshots and arriving steps are not copied.
//!
//! While a copy is in progress, its registry entry is marked as *arriving*. Such a table cannot be opened, so
//! it has no writers and no vacuums; a drop changes the entry before it removes anything. Repeating the call
//! finishes an interrupted copy, and a drop removes it.
//!
//! Invariant: everything that a copy names exists before its entry says that it is a table.
//! Invariant: the entry is changed to say so only if it is still the one under which the rest was written.

use super::entries::all_entries;
use super::ledger::{Ledger, create, is_unknown, put_parts};
use super::names::{Names, REGISTRY, random_id};
use super::pack::LEASE_KEY;
use super::registry::{check_entry, entry, not_found, remove_cells};
use super::vacuum::listed_objects;
use super::{Entry, Stage, Table, TableError, check_name, codec};
use crate::protocol::{AttemptId, Cell as ManifestCell, Head, Manifest, ObjectId, SessionId, Version};
use atoll_store::{Batch, Buffer, Cell, ReadOptions, ScanRequest, Store, StoreError, WriteOptions};
use futures::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many objects are copied concurrently. One object may have 64 MiB.
const OBJECTS_AT_ONCE: usize = 4;

/// How many objects are copied between two checks that the copy is still wanted.
const OBJECTS_EACH: usize = 16;

/// How many attributes are written concurrently.
const ATTRIBUTES_AT_ONCE: usize = 32;

/// How many attempts one mark names: of the longest names about a megabyte.
const MARKED_AT_ONCE: usize = 1_000;

/// How often a write with an unknown outcome, or one that lost to another writer, is tried.
const ATTEMPTS_MAX: usize = 8;

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes of objects copied so far.
    pub bytes: u64,
    /// Approximate number of bytes in total.
    pub total: u64,
}

/// What was copied, and how much work it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// The version that the copy shows; its own versions continue from this number.
    pub version: Version,
    /// Number of rows, including those deleted by an expression and not yet packed away.
    pub rows: u64,
    /// Number of objects that hold them.
    pub objects: u64,
    /// Number of objects copied by this call, as opposed to an earlier call that was interrupted.
    pub copied: u64,
    /// Bytes copied by this call.
    pub bytes: u64,
}

impl Table {
    /// Copies a version of this table, by default the current one, to `store` under `name`; `store` may be
    /// the store of this table. Rows keep their weights, so both tables give the same samples.
    ///
    /// May run alongside writers and packers. A call that fails or is dropped leaves an unfinished copy,
    /// which cannot be opened: repeating the call continues it, and [`Table::drop_table`] removes it. `told`
    /// is called with the progress.
    ///
    /// # Errors
    /// [`TableError::Name`]; [`TableError::Taken`] if a table of that name exists; [`TableError::Arriving`]
    /// if another table is being copied there; [`TableError::VersionGone`] for a version that a vacuum has
    /// removed, or removes during the copy; [`TableError::NotFound`] if either table is dropped during the
    /// copy; errors of both stores, for instance where an object exceeds the maximum length of a value, or
    /// the schema that of a value in a condition.
    pub async fn copy_to(
        &self,
        store: &Arc<dyn Store>,
        name: &str,
        version: Option<Version>,
        told: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<CopyReport, TableError> {
        check_name("table", name)?;
        // Resolve the version first, so that a version that does not exist leaves no trace.
        let mut manifest = self.to_copy(version).await?;
        let target = Target::begin(&**store, name, self).await?;
        if let Some(report) = self.finish_copy(store, &target, version).await? {
            return Ok(report);
        }
        let mut looks = 0;
        loop {
            match self.copy_manifest(&target, &shown(&manifest), told).await {
                Ok(report) => return Ok(report),
                // A vacuum removed what the copy was reading; the current version is still complete.
                Err(TableError::VersionGone { .. }) if version.is_none() && looks < ATTEMPTS_MAX => {
                    looks += 1;
                }
                Err(error) => {
                    // If the copy was dropped in the meantime, nobody else would find the objects that were
                    // just written.
                    target.check_arriving().await?;
                    return Err(error);
                }
            }
            manifest = self.to_copy(version).await?;
        }
    }

    async fn to_copy(&self, version: Option<Version>) -> Result<Arc<Manifest>, TableError> {
        match version {
            Some(version) => self.ledger.as_of(version).await,
            None => Ok(self.ledger.current().await?.manifest),
        }
    }

    /// Finishes a copy that was interrupted after its manifest was written. Its version is that of the
    /// manifest.
    async fn finish_copy(
        &self,
        store: &Arc<dyn Store>,
        target: &Target<'_>,
        version: Option<Version>,
    ) -> Result<Option<CopyReport>, TableError> {
        let Some(head) = target.head().await? else { return Ok(None) };
        if version.is_some_and(|version| version != head.version) {
            return Err(target.unfinished());
        }
        let there = Ledger::open(Arc::clone(store), target.name, &target.names).await?;
        let report = CopyReport::of(&there.current().await?.manifest);
        target.finish().await?;
        Ok(Some(report))
    }

    async fn copy_manifest(
        &self,
        target: &Target<'_>,
        manifest: &Manifest,
        told: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<CopyReport, TableError> {
        let mut report = CopyReport::of(manifest);
        if let Err(error) = self.copy_objects(target, manifest, &mut report, told).await {
            return Err(self.if_vacuumed(manifest.version, error).await);
        }
        self.copy_attributes(target).await?;
        target.show(manifest).await?;
        target.finish().await?;
        Ok(report)
    }

    async fn copy_objects(
        &self,
        target: &Target<'_>,
        manifest: &Manifest,
        report: &mut CopyReport,
        told: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<(), TableError> {
        let total = manifest.pieces.values().map(|placed| placed.piece.bytes).fold(0, u64::saturating_add);
        let mut objects: BTreeSet<ObjectId> = manifest.objects().collect();
        for there in listed_objects(target.store, &target.names).await? {
            objects.remove(&there);
        }
        // Progress assumes objects of about equal length, which saves looking up the length of those that
        // exist.
        let before = report.objects - objects.len() as u64;
        let bytes_before =
            (u128::from(total) * u128::from(before) / u128::from(report.objects.max(1))) as u64;
        told(CopyProgress { bytes: bytes_before, total });
        let objects: Vec<ObjectId> = objects.into_iter().collect();
        for some in objects.chunks(OBJECTS_EACH) {
            target.check_arriving().await?;
            let copies: Vec<_> = some.iter().map(|object| self.copy_object(target, *object)).collect();
            let mut copies = futures::stream::iter(copies).buffer_unordered(OBJECTS_AT_ONCE);
            while let Some(bytes) = copies.try_next().await? {
                report.copied += 1;
                report.bytes += bytes;
                told(CopyProgress { bytes: bytes_before + report.bytes, total });
            }
        }
        Ok(())
    }

    async fn copy_object(&self, target: &Target<'_>, object: ObjectId) -> Result<u64, TableError> {
        let (from, to) = (self.names.object(object), target.names.object(object));
        let once = ReadOptions { immutable: true, ..ReadOptions::default() };
        let bytes = self.store.get(Cell::new(&from, b""), once).await?;
        let bytes = bytes.ok_or_else(|| TableError::ObjectGone { table: self.name.clone(), object })?;
        create(target.store, Cell::new(&to, b""), &bytes).await?;
        Ok(bytes.len() as u64)
    }

    /// Copies the current attributes; they are not part of any version.
    async fn copy_attributes(&self, target: &Target<'_>) -> Result<(), TableError> {
        let (from, to) = (self.names.attributes(), target.names.attributes());
        let mut wanted = all_entries(&*self.store, ScanRequest::all(from.as_slice())).await?;
        // The lease of this table's background packer does not apply to the copy.
        wanted.retain(|entry| entry.sort != LEASE_KEY);
        // Left by an earlier call that was interrupted.
        let there = all_entries(target.store, ScanRequest::all(to.as_slice())).await?;
        let there: BTreeMap<Vec<u8>, Buffer> =
            there.into_iter().map(|entry| (entry.sort, entry.value)).collect();
        let named: BTreeSet<&[u8]> = wanted.iter().map(|entry| &entry.sort[..]).collect();
        let gone = there
            .keys()
            .filter(|sort| *sort != LEASE_KEY && !named.contains(&sort[..]))
            .map(|sort| (sort, None));
        let new = wanted.iter().filter(|entry| there.get(&entry.sort) != Some(&entry.value));
        // If the copy is a table by now, its users may have set other attributes.
        target.check_arriving().await?;
        let writes = new.map(|entry| (&entry.sort, Some(&entry.value))).chain(gone).map(|(sort, value)| {
            let cell = Cell::new(&to, sort);
            match value {
                Some(value) => target.store.put(cell, value, WriteOptions::default()),
                None => target.store.delete(cell, WriteOptions::default()),
            }
        });
        let writes: Vec<_> = writes.collect();
        let mut writes = futures::stream::iter(writes).buffer_unordered(ATTRIBUTES_AT_ONCE);
        while writes.try_next().await?.is_some() {}
        Ok(())
    }
}

impl CopyReport {
    /// The report of a copy of which nothing has been copied yet.
    fn of(manifest: &Manifest) -> Self {
        let rows = manifest.pieces.values().map(|placed| placed.piece.rows).fold(0, u64::saturating_add);
        let objects: BTreeSet<ObjectId> = manifest.objects().collect();
        Self { version: manifest.version, rows, objects: objects.len() as u64, copied: 0, bytes: 0 }
    }
}

/// The manifest of the copy: only what the version itself shows.
fn shown(manifest: &Manifest) -> Manifest {
    let mut shown = manifest.clone();
    // Drop earlier versions, and objects that a vacuum has yet to remove.
    shown.floor = manifest.version;
    shown.retired = Default::default();
    for run in std::mem::take(&mut shown.busy) {
        if let Some(run) = shown.runs.get_mut(&run) {
            run.arriving.clear();
        }
    }
    shown.arriving_objects = Default::default();
    shown
}

/// A copy in progress.
struct Target<'s> {
    store: &'s dyn Store,
    name: &'s str,
    names: Names,
    /// Its arriving entry in the registry, as stored and decoded.
    arriving: Buffer,
    entry: Entry,
}

impl<'s> Target<'s> {
    /// Begins a copy of a table, or continues one that was interrupted.
    async fn begin(store: &'s dyn Store, name: &'s str, of: &Table) -> Result<Self, TableError> {
        let stage = Stage::Arriving { from: of.names.id() };
        let schema = of.lineage.first().as_ref().clone();
        let new = Entry { id: random_id(), schema, stage };
        let text = codec::entry_to_json(&new);
        for _ in 0..ATTEMPTS_MAX {
            match entry(store, name).await? {
                Some((arriving, entry)) if entry.stage == stage => {
                    return Ok(Self { store, name, names: Names::of(entry.id), arriving, entry });
                }
                Some((_, entry)) if entry.stage == Stage::Dropped => Table::drop_rest(store, name).await?,
                Some((_, entry)) if entry.stage == Stage::Live => {
                    return Err(TableError::Taken { name: name.to_owned() });
                }
                Some(_) => break,
                None => {
                    check_entry(store, &new)?;
                    let cell = Cell::new(REGISTRY, name);
                    match store.compare_and_swap(cell, None, text.as_bytes(), WriteOptions::default()).await {
                        Ok(_) | Err(StoreError::Conflict(_)) => {}
                        Err(error) if is_unknown(&error) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Err(TableError::Arriving { name: name.to_owned() })
    }

    /// Writes the manifest, from whose version the copy continues. Never replaces an existing manifest, since
    /// the copy may have become a table already.
    async fn show(&self, manifest: &Manifest) -> Result<(), TableError> {
        let head = Head { version: manifest.version, full: manifest.version };
        let partition = self.names.manifest();
        let mut failed = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.head().await? {
                Some(there) if there == head => return Ok(()),
                Some(_) => return Err(self.unfinished()),
                None if manifest.version == Version::EMPTY => return Ok(()),
                None => self.check_arriving().await?,
            }
            let part = ObjectId { session: SessionId(random_id()), sequence: 0 };
            let whole = put_parts(self.store, &partition, part, codec::whole_to_bytes(manifest), 0).await?;
            let (key, dropped) = (ManifestCell::Head.sort_key(), ManifestCell::Dropped.sort_key());
            let batch = Batch::on(partition.as_slice())
                .if_absent(key.as_slice())
                .if_absent(dropped.as_slice())
                .put(key.as_slice(), codec::head_to_bytes(head))
                .put(ManifestCell::Full(manifest.version).sort_key(), whole);
            let written = match self.put_marks(&partition, part.session.0, manifest).await {
                Ok(()) => self.store.write(batch, WriteOptions::default()).await.map(drop),
                Err(error) => Err(error),
            };
            match written {
                Ok(()) => return Ok(()),
                Err(StoreError::Conflict(_)) => {}
                Err(error) if is_unknown(&error) => failed = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Err(failed.map_or_else(|| self.unfinished(), TableError::from))
    }

    /// Writes the marks of all attempts, which begin here for the copy. There may be more than one batch
    /// holds, so they come before the head, under the versions from the first one on: an attempt began in a
    /// version of its own, so that no later commit writes its mark there.
    async fn put_marks(&self, partition: &[u8], mark: u128, manifest: &Manifest) -> Result<(), StoreError> {
        let attempts: Vec<AttemptId> = manifest.shown_attempts().into_iter().collect();
        for (version, portion) in (1..).map(Version).zip(attempts.chunks(MARKED_AT_ONCE)) {
            let text = codec::mark_to_json(mark, &portion.iter().cloned().collect());
            let batch = Batch::on(partition)
                .if_absent(ManifestCell::Dropped.sort_key())
                .put(ManifestCell::Mark(version).sort_key(), text.into_bytes());
            self.store.write(batch, WriteOptions::default()).await?;
        }
        Ok(())
    }

    /// The head, if the manifest has been written.
    async fn head(&self) -> Result<Option<Head>, TableError> {
        let (partition, key) = (self.names.manifest(), ManifestCell::Head.sort_key());
        let found = self.store.get(Cell::new(&partition, &key), ReadOptions::default()).await?;
        found.map(|bytes| codec::head_from_bytes(self.name, &bytes)).transpose()
    }

    fn unfinished(&self) -> TableError {
        TableError::Arriving { name: self.name.to_owned() }
    }

    /// Refuses to continue if this is no longer a copy in progress, because another call has finished it or
    /// it was dropped.
    async fn check_arriving(&self) -> Result<(), TableError> {
        match entry(self.store, self.name).await? {
            Some((text, _)) if text == self.arriving => Ok(()),
            _ => self.if_finished().await.and(Err(TableError::Taken { name: self.name.to_owned() })),
        }
    }

    /// Turns the copy into a table.
    async fn finish(&self) -> Result<(), TableError> {
        let cell = Cell::new(REGISTRY, self.name);
        let there = codec::entry_to_json(&Entry { stage: Stage::Live, ..self.entry.clone() });
        let mut attempts = 0;
        loop {
            attempts += 1;
            let options = WriteOptions::default();
            match self.store.compare_and_swap(cell, Some(&self.arriving), there.as_bytes(), options).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict(_)) => return self.if_finished().await,
                Err(error) if is_unknown(&error) && attempts < ATTEMPTS_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The outcome of a copy whose entry was changed by another process.
    async fn if_finished(&self) -> Result<(), TableError> {
        let now = entry(self.store, self.name).await?.filter(|(_, now)| now.id == self.entry.id);
        match now.map(|(_, now)| now.stage) {
            Some(Stage::Live) => Ok(()),
            Some(Stage::Arriving { .. }) => Err(self.unfinished()),
            // The process that drops it may have listed the objects before our last one was written.
            Some(Stage::Dropped) | None => {
                remove_cells(self.store, &self.names).await?;
                Err(not_found(self.name))
            }
        }
    }
}

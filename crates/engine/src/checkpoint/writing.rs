//! What a checkpoint writes before its superblock: pages of trees, snapshots and views, and the table that
//! names them.

use super::{Frozen, SortedSpace, WrittenCommit};
use crate::EngineError;
use crate::forest::TreeState;
use crate::node::PageRef;
use crate::page_writer::PageWriter;
use crate::planted::{self, Bug};
use crate::retired::Retired;
use crate::shared::Shared;
use crate::space::{self, Extent, SegmentUse};
use crate::superblock::{DELTAS, SnapshotEntry, Superblock, Table, TreeEntry, UNCOUNTED};
use crate::view::View;
use atoll_disk::Disk;
use std::sync::atomic::Ordering;

impl Shared {
    pub(super) fn write_checkpoint(
        &self,
        pages: &mut PageWriter<'_>,
        disk: &dyn Disk,
        frozen: &Frozen,
        sorted: &SortedSpace,
        clean: bool,
    ) -> Result<WrittenCommit, EngineError> {
        let mut table = Table { trees: write_trees(pages, &frozen.forest.trees)?, ..Table::default() };
        if planted::is(Bug::TreeForgotten) {
            table.trees.pop();
        }
        self.write_snapshots(pages, frozen, &mut table)?;
        pages.flush()?;
        let left = sorted.kept.iter().chain(&pages.of_snapshots).chain(&pages.replaced);
        table.retired = left.chain(&pages.retired_since).copied().collect();
        if table.has_uncounted() {
            self.features.fetch_or(UNCOUNTED, Ordering::Relaxed);
        }
        if pages.has_second_pages {
            self.features.fetch_or(DELTAS, Ordering::Relaxed);
        }
        let (extents, dead) = self.freed_by(sorted, frozen.point.number);
        table.segments = sorted.segments.iter().filter(|segment| !dead.contains(segment)).copied().collect();
        let home = self.write_table(pages, &mut table, &extents, frozen.epoch)?;
        let table = Extent { offset: home.offset, len: u64::from(home.len) };
        let written_bytes = pages.written;
        let ownership = *self.ownership.lock();
        let superblock = Superblock {
            store_id: self.backing.store_id(),
            epoch: frozen.epoch,
            features: self.features.load(Ordering::Relaxed),
            // A store with one that this build does not know was not opened for writing.
            features_to_write: ownership.features_to_write(),
            clean,
            table: home,
            log: frozen.point,
            signpost: frozen.signpost,
            token: ownership.token,
            fence: ownership.fence,
        };
        if let Err(error) = self.install(disk, &superblock, frozen.point.position) {
            // A copy on disk may refer to this table, so its space is freed only by the next commit.
            let (birth, death) = (frozen.epoch, frozen.epoch + 1);
            pages.of_snapshots.push(Retired { offset: table.offset, len: table.len, birth, death });
            return Err(error);
        }
        self.second_pages.fetch_add(pages.second_pages, Ordering::Relaxed);
        self.leaves_merged.fetch_add(pages.leaves_merged, Ordering::Relaxed);
        Ok(WrittenCommit { written_bytes, extents, dead, table })
    }

    /// Writes the pages that only snapshots and views have.
    fn write_snapshots(
        &self,
        pages: &mut PageWriter<'_>,
        frozen: &Frozen,
        table: &mut Table,
    ) -> Result<(), EngineError> {
        let mut views = frozen.views.clone();
        views.sort_unstable_by_key(|view| view.epoch);
        // Newest first: a page that only snapshots need is retired with the newest snapshot that has it.
        for snapshot in frozen.forest.snapshots.iter().rev() {
            while let Some(view) = views.pop_if(|view| view.epoch > snapshot.epoch) {
                write_view(pages, &view)?;
            }
            pages.for_snapshot(snapshot.epoch);
            let trees = write_trees(pages, &snapshot.trees)?;
            let (name, epoch, sequence) = (snapshot.name.clone(), snapshot.epoch, snapshot.sequence);
            table.snapshots.push(SnapshotEntry { name, epoch, sequence, trees });
        }
        table.snapshots.reverse();
        while let Some(view) = views.pop() {
            write_view(pages, &view)?;
        }
        Ok(())
    }

    /// The space that this commit frees: extents, and log segments that nothing needs.
    fn freed_by(&self, sorted: &SortedSpace, log_number: u64) -> (Vec<Extent>, Vec<SegmentUse>) {
        let is_dead = |segment: &&SegmentUse| segment.number < log_number && segment.live == 0;
        let dead: Vec<SegmentUse> = sorted.segments.iter().filter(is_dead).copied().collect();
        let mut extents: Vec<Extent> = dead.iter().map(|segment| segment.extent).collect();
        extents.extend(&sorted.extents);
        extents.extend(*self.table.lock());
        (space::joined(extents), dead)
    }

    /// Writes the table. The table itself names the free space that remains beside it.
    fn write_table(
        &self,
        pages: &mut PageWriter<'_>,
        table: &mut Table,
        freed: &[Extent],
        epoch: u64,
    ) -> Result<PageRef, EngineError> {
        let mut guess = 4096;
        loop {
            let extent = self.space.lock().allocate(guess);
            let space = self.space.lock().free_for_commit(freed);
            table.end = space.end();
            table.free = space.free_extents().collect();
            let mut bytes = table.encode();
            if bytes.len() as u64 > extent.len {
                self.space.lock().insert_free(extent);
                guess = (bytes.len() as u64 + 1024).next_multiple_of(4096);
                continue;
            }
            bytes.resize(extent.len as usize, 0);
            if let Err(error) = pages.write_out(extent.offset, &bytes) {
                self.space.lock().give_back(extent, error.kind());
                return Err(error);
            }
            let checksum = self.backing.checksum(&bytes);
            return Ok(PageRef { offset: extent.offset, len: bytes.len() as u32, checksum, birth: epoch });
        }
    }
}

/// Writes the pages of a view that no newer state has. The view's pin keeps the pages; nothing on disk refers
/// to them.
fn write_view(pages: &mut PageWriter<'_>, view: &View) -> Result<(), EngineError> {
    pages.for_snapshot(view.epoch);
    write_trees(pages, &view.trees()).map(|_| ())
}

fn write_trees(pages: &mut PageWriter<'_>, trees: &[TreeState]) -> Result<Vec<TreeEntry>, EngineError> {
    trees
        .iter()
        .map(|state| {
            let root = pages.write(&state.root)?;
            let (name, records) = (state.name.clone(), state.records.get());
            Ok(TreeEntry { id: state.id, name, root, records, is_counted: state.is_counted })
        })
        .collect()
}

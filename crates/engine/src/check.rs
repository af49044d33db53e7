//! The check: reads and verifies every byte that the store refers to.
//!
//! Damage is listed, not an error, so that one pass shows its whole extent.

use crate::EngineError;
use crate::engine::Engine;
use crate::forest::TreeState;
use crate::log::{LogPoint, Replay};
use crate::node::{Inner, Node, PageRef, Slot};
use crate::page;
use crate::pins::Pin;
use crate::shared::Shared;
use crate::space::{self, Extent, SegmentUse, UNIT};
use crate::superblock::{COPIES, Copy, Superblock};
use crate::value::{Piece, Stored};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Pages read and verified.
    pub pages: u64,
    /// Records found in the current trees.
    pub records: u64,
    /// Bytes read and verified.
    pub bytes: u64,
    /// Everything that does not match.
    pub damage: Vec<EngineError>,
}

impl Engine {
    /// Reads and verifies superblocks, log, pages and values, those of named snapshots too, that no space is used
    /// twice, and that what was counted as alive in log segments is. Writers go on meanwhile.
    ///
    /// # Errors
    /// Only when the check itself cannot run; damage is in the report.
    pub fn check(&self) -> Result<CheckReport, EngineError> {
        self.shared.check_open()?;
        let mut check = Check {
            shared: &self.shared,
            report: CheckReport::default(),
            used: BTreeMap::new(),
            segments: Vec::new(),
            found: Vec::new(),
        };
        check.superblocks()?;
        let (_pin, current, trees) = check.everything()?;
        for (index, tree) in trees.iter().enumerate() {
            check.tree(tree, index < current);
            if index + 1 == current {
                check.live_bytes();
            }
        }
        if current == 0 {
            check.live_bytes();
        }
        check.segments();
        check.free_space();
        if !self.shared.options.read_only {
            check.log()?;
        }
        Ok(check.report)
    }
}

struct Check<'a> {
    shared: &'a Shared,
    report: CheckReport,
    /// Space of pages and values seen so far: start to end, with what uses it.
    used: BTreeMap<u64, (u64, u64)>,
    /// Log segments, by offset, and what of each is needed, as far as was seen.
    segments: Vec<SegmentUse>,
    found: Vec<u64>,
}

impl Check<'_> {
    fn note<T>(&mut self, result: Result<T, EngineError>) -> Option<T> {
        result.map_err(|error| self.report.damage.push(error)).ok()
    }

    /// All trees, current ones first, how many those are, and a pin that keeps them in place; log segments as they were
    /// at the same moment.
    fn everything(&mut self) -> Result<(Pin, usize, Vec<TreeState>), EngineError> {
        // Between two checkpoints, so that all that left the trees is in one list.
        let _still = self.shared.checkpointing.lock();
        let mut writer = self.shared.writer.alone();
        if let Some(log) = &mut writer.log {
            log.flush(&self.shared.backing)?;
            self.shared.flushed.store(log.flushed(), Ordering::Release);
        }
        let forest = self.shared.forest.read();
        self.segments = self.shared.space.lock().segments().copied().collect();
        self.found = vec![0; self.segments.len()];
        writer.retired.places().for_each(|(offset, len)| self.find(offset, len));
        let named = forest.snapshots.iter().flat_map(|named| named.trees.iter());
        let trees = forest.trees.iter().chain(named).cloned().collect();
        Ok((self.shared.pins.pin(forest.epoch), forest.trees.len(), trees))
    }

    /// Notes bytes that are needed, if they lie in a segment.
    fn find(&mut self, offset: u64, len: u64) {
        if let Some(index) = space::segment_at(&self.segments, offset) {
            self.found[index] += len;
        }
    }

    /// Compares what was counted with what the current trees have and what left them; snapshots have no more than
    /// that. A damaged page hides what it refers to.
    fn live_bytes(&mut self) {
        if !self.report.damage.is_empty() {
            return;
        }
        for (segment, &found) in self.segments.iter().zip(&self.found) {
            if segment.live != found {
                let problem = crate::Damage::LiveBytes { counted: segment.live, found };
                self.report.damage.push(self.shared.backing.corrupt(segment.extent.offset, problem));
            }
        }
    }

    /// Log segments are in use as a whole.
    fn segments(&mut self) {
        for SegmentUse { extent, number, .. } in std::mem::take(&mut self.segments) {
            self.claim(extent.offset, extent.len, number);
        }
    }

    fn superblocks(&mut self) -> Result<(), EngineError> {
        let Some(disk) = self.shared.backing.disk() else { return Ok(()) };
        // A checkpoint rewrites them; its lock keeps them still.
        let _still = self.shared.checkpointing.lock();
        for offset in COPIES {
            let mut bytes = vec![0; 4096];
            disk.read_at(offset, &mut bytes)?;
            self.report.bytes += 4096;
            if !matches!(Superblock::decode(&bytes), Copy::Intact(_)) {
                let damage = self.shared.backing.corrupt(offset, crate::Damage::SuperblockCopy);
                self.report.damage.push(damage);
            }
        }
        Ok(())
    }

    /// The log from the last checkpoint to where it ends now, as recovery would read it.
    fn log(&mut self) -> Result<(), EngineError> {
        let Some(disk) = self.shared.backing.disk() else { return Ok(()) };
        let _still = self.shared.checkpointing.lock();
        let Some(end) = self.flushed_end()? else { return Ok(()) };
        let mut bytes = vec![0; 4096];
        disk.read_at(COPIES[0], &mut bytes)?;
        let Copy::Intact(superblock) = Superblock::decode(&bytes) else { return Ok(()) };
        let replayed = (|| {
            let mut replay = Replay::start(&self.shared.backing, superblock.log, superblock.log.position)?;
            while replay.point().sequence < end.sequence {
                match replay.next()? {
                    Some(group) => self.report.bytes += group.payload().len() as u64,
                    None => {
                        let broken = replay.point();
                        let offset = broken.offset_of(broken.position);
                        return Err(self.shared.backing.corrupt(offset, crate::Damage::LogBeforeSyncedEnd));
                    }
                }
            }
            Ok(())
        })();
        self.note(replayed);
        Ok(())
    }

    /// Where the log ends, once all of it was handed to the disk.
    fn flushed_end(&self) -> Result<Option<LogPoint>, EngineError> {
        let mut writer = self.shared.writer.alone();
        let Some(log) = &mut writer.log else { return Ok(None) };
        log.flush(&self.shared.backing)?;
        self.shared.flushed.store(log.flushed(), Ordering::Release);
        Ok(Some(log.point()))
    }

    /// What is in use must not count as free.
    fn free_space(&mut self) {
        let free: Vec<Extent> = self.shared.space.lock().free_extents().collect();
        for extent in free {
            let before = self.used.range(..extent.end()).next_back();
            if before.is_some_and(|(_, &(end, _))| end > extent.offset) {
                let damage = self.shared.backing.corrupt(extent.offset, crate::Damage::SpaceUsedTwice);
                self.report.damage.push(damage);
            }
        }
    }

    fn tree(&mut self, tree: &TreeState, is_current: bool) {
        let before = self.report.records;
        self.slot(&tree.root, (Bound::Unbounded, Bound::Unbounded));
        if !is_current {
            self.report.records = before;
        }
    }

    fn slot(&mut self, slot: &Slot, range: (Bound<&[u8]>, Bound<&[u8]>)) {
        let node = match slot.home() {
            // What has a home is read from there, resident or not: that is what the check is about.
            Some(home) => self.page(&home),
            None => slot.get().cloned(),
        };
        match node {
            Some(Node::Inner(inner)) => self.inner(&inner, range),
            Some(Node::Leaf(leaf)) => {
                self.report.records += leaf.len() as u64;
                let ordered = (0..leaf.len()).all(|slot| {
                    let key = leaf.record(slot).key_to_vec();
                    let above = match range.0 {
                        Bound::Included(low) => key.as_slice() >= low,
                        _ => true,
                    };
                    above && !matches!(range.1, Bound::Excluded(high) if key.as_slice() >= high)
                });
                if !ordered {
                    let offset = slot.home().map_or(0, |home| home.offset);
                    self.report.damage.push(self.shared.backing.corrupt(offset, crate::Damage::PageContent));
                }
                for chain in (0..leaf.len()).filter_map(|slot| match leaf.value(slot) {
                    Stored::Chain(chain) => Some(chain),
                    Stored::Inline(_) => None,
                }) {
                    chain.pieces().iter().for_each(|piece| self.piece(piece));
                }
            }
            None => {}
        }
    }

    fn inner(&mut self, inner: &Inner, range: (Bound<&[u8]>, Bound<&[u8]>)) {
        for (index, child) in inner.children.iter().enumerate() {
            let low = index.checked_sub(1).and_then(|before| inner.pivots().get(before));
            let high = inner.pivots().get(index);
            let low = low.map_or(range.0, |pivot| Bound::Included(&**pivot));
            self.slot(child, (low, high.map_or(range.1, |pivot| Bound::Excluded(&**pivot))));
        }
    }

    fn page(&mut self, home: &PageRef) -> Option<Node> {
        self.claim(home.offset, u64::from(home.len), home.checksum);
        self.report.pages += 1;
        self.report.bytes += u64::from(home.len);
        let read = page::read(home, &self.shared.backing);
        self.note(read)
    }

    fn piece(&mut self, piece: &Piece) {
        let Some(offset) = piece.home() else { return };
        self.report.bytes += u64::from(piece.len());
        self.find(offset, u64::from(piece.len()));
        if space::segment_at(&self.segments, offset).is_none() {
            self.claim(offset, u64::from(piece.len()), piece.checksum());
        }
        // A fresh handle reads the disk even where the bytes are in memory.
        let fresh = Piece::on_disk(offset, piece.len(), piece.checksum(), piece.birth());
        let read = fresh.verify(&self.shared.backing);
        self.note(read);
    }

    /// Notes that space is used; two different users of the same space are damage.
    fn claim(&mut self, offset: u64, len: u64, checksum: u64) {
        let extent = Extent::in_units(offset, len.max(UNIT));
        let before = self.used.range(..extent.end()).next_back();
        let clash = before.is_some_and(|(&start, &(end, other))| {
            end > extent.offset && (start, end, other) != (extent.offset, extent.end(), checksum)
        });
        if clash {
            self.report.damage.push(self.shared.backing.corrupt(offset, crate::Damage::SpaceUsedTwice));
        }
        self.used.insert(extent.offset, (extent.end(), checksum));
    }
}

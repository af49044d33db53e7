//! The check: reads and verifies every byte that the store refers to.
//!
//! Damage is listed, not an error, so that one pass shows its whole extent.

mod trees;

use crate::backing::{Checking, Reading};
use crate::codec::Malformed;
use crate::engine::Engine;
use crate::fence;
use crate::forest::TreeState;
use crate::leaf::Leaf;
use crate::log::{Log, LogPoint, Replay};
use crate::node::PageRef;
use crate::page;
use crate::pins::Pin;
use crate::shared::{Shared, Writer};
use crate::space::{self, BLOCK, Extent, SegmentUse};
use crate::superblock::{COPIES, Copy, Superblock, Table};
use crate::{Damage, EngineError};
use std::collections::{BTreeMap, HashMap};
use std::hash::RandomState;
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// Result of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Pages read and verified.
    pub pages: u64,
    /// Records found in the current trees.
    pub records: u64,
    /// Bytes read and verified; what several trees or snapshots share counts once.
    pub bytes: u64,
    /// Everything that does not match.
    pub damage: Vec<EngineError>,
    /// Which keys of the current trees the damage affects.
    pub hurt: Vec<Hurt>,
}

/// Keys of a current tree that some damage affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hurt {
    /// Index of the damage in [`CheckReport::damage`].
    pub damage: usize,
    /// The name of the tree.
    pub tree: String,
    /// The first and the last of these keys; a single key where a value is damaged. Keys between them may be
    /// whole.
    pub keys: (Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Engine {
    /// Reads and verifies superblocks, the table of the last commit, log, pages and values, including those
    /// of named snapshots. Also checks that no space is used twice, that the bytes counted as alive in log
    /// segments are, and that claims of [heirs](Engine::take_over) can be read. Writers go on meanwhile.
    ///
    /// # Errors
    /// Only when the check itself cannot run; damage is in the report.
    pub fn check(&self) -> Result<CheckReport, EngineError> {
        self.shared.check_open()?;
        let mut check = Check {
            shared: &self.shared,
            running: None,
            report: CheckReport::default(),
            used: BTreeMap::new(),
            has_snapshots: false,
            walked: HashMap::new(),
            hasher: RandomState::new(),
            depths: Vec::new(),
            segments: Vec::new(),
            found: Vec::new(),
            retirements: 0,
            tree_records: 0,
            depth: None,
            current: None,
            table: None,
        };
        check.superblocks()?;
        let (_pins, current, trees) = check.everything()?;
        check.has_snapshots = current < trees.len();
        let counts: Vec<u64> = trees[..current].iter().map(|tree| check.tree(tree)).collect();
        check.report.records = counts.iter().sum();
        check.live_bytes();
        check.record_counts(&trees[..current], &counts);
        for tree in &trees[current..] {
            check.tree_of_snapshot(tree);
        }
        check.fence();
        check.free_space();
        if !self.shared.options.read_only {
            check.log()?;
        }
        Ok(check.report)
    }
}

struct Check<'a> {
    shared: &'a Shared,
    /// While this exists, what deltas replaced is not forgotten.
    running: Option<Checking<'a>>,
    report: CheckReport,
    /// Space of pages and values seen so far: start to end, with the checksum of its user.
    used: BTreeMap<u64, (u64, u64)>,
    /// Whether named snapshots have trees, which may share pages with those that are walked before.
    has_snapshots: bool,
    /// Pages of trees that were walked, by offset: the hash of the page and of its place in its tree, and the
    /// number of that tree. Empty without snapshots: an entry for each page takes memory.
    walked: HashMap<u64, (u64, usize)>,
    hasher: RandomState,
    /// Depth of the leaves of each tree that was walked.
    depths: Vec<Option<usize>>,
    /// Log segments, by offset, and how many bytes of each were found to be needed so far.
    segments: Vec<SegmentUse>,
    found: Vec<u64>,
    /// How often the current trees had retired what deltas replaced when the check began.
    retirements: u64,
    /// Records of the present tree, and the depth of its leaves, as far as they were seen.
    tree_records: u64,
    depth: Option<usize>,
    /// The name of the present tree, if it is a current one.
    current: Option<String>,
    /// Where the table of the last commit was when the check began.
    table: Option<PageRef>,
}

/// Where a node lies in its tree: between which separators, and below how many nodes.
#[derive(Clone, Copy)]
struct NodePosition<'a> {
    range: (Bound<&'a [u8]>, Bound<&'a [u8]>),
    depth: usize,
}

impl NodePosition<'_> {
    /// Whether a leaf has only keys that belong here, and could hold any key that does.
    fn suits(&self, leaf: &Leaf) -> bool {
        leaf.suits(bound_of(self.range.0), bound_of(self.range.1))
    }
}

fn bound_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

impl Check<'_> {
    fn note<T>(&mut self, result: Result<T, EngineError>) -> Option<T> {
        result.map_err(|error| self.report.damage.push(error)).ok()
    }

    /// All trees, current ones first, the number of current ones, and pins that keep all of them in place: a
    /// named snapshot may be deleted meanwhile. Also records the log segments as of the same moment.
    fn everything(&mut self) -> Result<(Vec<Pin>, usize, Vec<TreeState>), EngineError> {
        // Between two checkpoints, when everything that left the trees is in one list.
        let _still = self.shared.checkpointing.lock();
        let mut writer = self.shared.writer.alone();
        self.flush(&mut writer)?;
        let forest = self.shared.forest.read();
        self.segments = self.shared.space.lock().segments().copied().collect();
        self.found = vec![0; self.segments.len()];
        self.retirements = self.shared.backing.retirements();
        self.running = Some(self.shared.backing.begin_check());
        writer.retired.places().for_each(|(offset, len)| self.find(offset, len));
        let named = forest.snapshots.iter().flat_map(|named| named.trees.iter());
        let trees = forest.trees.iter().chain(named).cloned().collect();
        let epochs = forest.snapshots.iter().map(|named| named.epoch).chain([forest.epoch]);
        let pins = epochs.map(|epoch| self.shared.pins.pin(epoch)).collect();
        Ok((pins, forest.trees.len(), trees))
    }

    /// Counts bytes as needed, if they lie in a segment.
    fn find(&mut self, offset: u64, len: u64) {
        if let Some(index) = space::segment_at(&self.segments, offset) {
            self.found[index] += len;
        }
    }

    /// Compares the counted live bytes with what the current trees have and what left them; snapshots refer
    /// to nothing beyond these. A damaged page hides what it refers to, so nothing is compared then.
    fn live_bytes(&mut self) {
        if !self.report.damage.is_empty() {
            return;
        }
        for (segment, &found) in self.segments.iter().zip(&self.found) {
            if segment.live != found {
                let problem = Damage::LiveBytes { counted: segment.live, found };
                self.report.damage.push(self.shared.backing.corrupt(segment.extent.offset, problem));
            }
        }
    }

    fn superblocks(&mut self) -> Result<(), EngineError> {
        let Some(disk) = self.shared.backing.disk() else { return Ok(()) };
        // A checkpoint rewrites them; its lock keeps them still.
        let _still = self.shared.checkpointing.lock();
        for offset in COPIES {
            let mut bytes = vec![0; 4096];
            self.report.bytes += 4096;
            if let Err(error) = disk.read_at(offset, &mut bytes) {
                self.report.damage.push(error.into());
                continue;
            }
            if !matches!(Superblock::decode(&bytes), Copy::Intact(_)) {
                let damage = self.shared.backing.corrupt(offset, Damage::SuperblockCopy);
                self.report.damage.push(damage);
            }
        }
        // A reader beside the owner has read the table of its own state, which may be gone by now.
        if self.shared.options.read_only { Ok(()) } else { self.table() }
    }

    /// The table of the last commit, which an open store never reads again. The caller holds `checkpointing`,
    /// so that it stays in place.
    fn table(&mut self) -> Result<(), EngineError> {
        // A store that was closed meanwhile may have another owner.
        self.shared.check_open()?;
        let committed = *self.shared.committed.lock();
        let Some(Superblock { table, .. }) = committed else { return Ok(()) };
        let backing = &self.shared.backing;
        let read = page::read_bytes(&table, Reading::Along, backing).and_then(|bytes| {
            let decoded = Table::decode(&bytes);
            decoded.map_err(|Malformed| backing.corrupt(table.offset, Damage::PageContent))
        });
        self.report.bytes += u64::from(table.len);
        self.note(read);
        self.table = Some(table);
        Ok(())
    }

    /// The log from the last checkpoint to where it ends now, as recovery would read it.
    fn log(&mut self) -> Result<(), EngineError> {
        let Some(disk) = self.shared.backing.disk() else { return Ok(()) };
        let _still = self.shared.checkpointing.lock();
        let Some(end) = self.flushed_end()? else { return Ok(()) };
        let mut bytes = vec![0; 4096];
        // Damage to the superblock was reported before.
        if disk.read_at(COPIES[0], &mut bytes).is_err() {
            return Ok(());
        }
        let Copy::Intact(superblock) = Superblock::decode(&bytes) else { return Ok(()) };
        let replayed = (|| {
            let mut replay = Replay::start(&self.shared.backing, superblock.log, superblock.log.position)?;
            while replay.point().sequence < end.sequence {
                match replay.next()? {
                    Some(group) => self.report.bytes += group.payload().len() as u64,
                    None => {
                        let broken = replay.point();
                        let offset = broken.offset_of(broken.position);
                        return Err(self.shared.backing.corrupt(offset, Damage::LogBeforeSyncedEnd));
                    }
                }
            }
            Ok(())
        })();
        self.note(replayed);
        Ok(())
    }

    /// The end of the log, after all of it was handed to the disk.
    fn flushed_end(&self) -> Result<Option<LogPoint>, EngineError> {
        let mut writer = self.shared.writer.alone();
        self.flush(&mut writer)?;
        Ok(writer.log.as_ref().map(Log::point))
    }

    /// Hands all of the log to the disk, unless the store was closed meanwhile: the file may then belong to
    /// another owner.
    fn flush(&self, writer: &mut Writer) -> Result<(), EngineError> {
        let Some(log) = &mut writer.log else { return Ok(()) };
        self.shared.check_open()?;
        log.flush(&self.shared.backing)?;
        self.shared.flushed.store(log.flushed(), Ordering::Release);
        Ok(())
    }

    /// The block in which heirs claim the store.
    fn fence(&mut self) {
        let shared = self.shared;
        let fence = shared.ownership.lock().fence;
        let Some(disk) = shared.backing.disk().filter(|_| fence != 0) else { return };
        self.claim(fence, BLOCK, fence);
        self.report.bytes += BLOCK;
        match fence::damage(&**disk, shared.backing.store_id(), fence) {
            Ok(damage) => self.report.damage.extend(damage),
            Err(error) => self.report.damage.push(error.into()),
        }
    }

    /// Checks that no space in use counts as free. Log segments are in use as a whole, except those that a
    /// checkpoint has given back since.
    fn free_space(&mut self) {
        let mut segments = std::mem::take(&mut self.segments);
        let (free, table): (Vec<Extent>, _) = {
            let mut space = self.shared.space.lock();
            segments.retain(|former| {
                let now = space.segment_of(former.extent.offset);
                now.is_some_and(|now| (now.number, now.extent) == (former.number, former.extent))
            });
            // A checkpoint that frees the table of the one before does so under this lock.
            (space.free_extents().collect(), *self.shared.table.lock())
        };
        let is_kept = |read: &PageRef| table.is_some_and(|table| table.offset == read.offset);
        if let Some(table) = self.table.filter(is_kept) {
            self.claim(table.offset, u64::from(table.len), table.checksum);
        }
        for SegmentUse { extent, number, .. } in segments {
            self.claim(extent.offset, extent.len, number);
        }
        for extent in free {
            let before = self.used.range(..extent.end()).next_back();
            if before.is_some_and(|(_, &(end, _))| end > extent.offset) {
                let damage = self.shared.backing.corrupt(extent.offset, Damage::SpaceUsedTwice);
                self.report.damage.push(damage);
            }
        }
    }

    /// Compares record counts with what was found, except in uncounted trees. A damaged page hides records,
    /// so nothing is compared then.
    fn record_counts(&mut self, trees: &[TreeState], found: &[u64]) {
        if !self.report.damage.is_empty() {
            return;
        }
        for (tree, &found) in trees.iter().zip(found) {
            if let Some(counted) = tree.known_records() {
                self.compare_counts(counted, found);
            }
        }
    }

    fn compare_counts(&mut self, counted: u64, found: u64) {
        if counted != found {
            let problem = Damage::RecordCount { counted, found };
            self.report.damage.push(self.shared.backing.corrupt(0, problem));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Options};
    use atoll_disk::{Disk, MemoryDisk};
    use std::sync::Arc;

    /// A store with a commit, its disk, and where the table of that commit lies.
    fn committed() -> (Engine, Arc<MemoryDisk>, Extent) {
        let disk = Arc::new(MemoryDisk::new());
        let options = Options { background: false, log_segment_bytes: 64 << 10, ..Options::default() };
        let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options).unwrap();
        let tree = engine.tree("t").unwrap();
        for number in 0..100u8 {
            tree.put(&[number], &[1; 100], Durability::Flushed).unwrap();
        }
        engine.checkpoint().unwrap();
        let table = *engine.shared.table.lock();
        assert!(engine.check().unwrap().damage.is_empty());
        (engine, disk, table.unwrap())
    }

    #[test]
    fn the_check_of_an_open_store_reads_the_table_that_only_the_next_opening_needs() {
        let (engine, disk, table) = committed();
        let mut byte = [0];
        disk.read_at(table.offset, &mut byte).unwrap();
        disk.write_at(table.offset, &[byte[0] ^ 1]).unwrap();
        let found = engine.check().unwrap().damage;
        let [EngineError::Corrupt { offset, problem: Damage::PageChecksum, .. }] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(*offset, table.offset);
        // The next commit has a table of its own.
        engine.checkpoint().unwrap();
        assert!(engine.check().unwrap().damage.is_empty());
    }

    #[test]
    fn the_check_finds_that_the_space_of_the_table_counts_as_free() {
        let (engine, _disk, table) = committed();
        engine.shared.space.lock().insert_free(table);
        let found = engine.check().unwrap().damage;
        let is_told = matches!(&found[..], [EngineError::Corrupt { problem: Damage::SpaceUsedTwice, .. }]);
        assert!(is_told, "{found:?}");
    }
}

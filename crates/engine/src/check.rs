//! The check: reads and verifies every byte that the store refers to.
//!
//! Damage is listed, not an error, so that one pass shows its whole extent.

use crate::EngineError;
use crate::backing::{Checking, Reading};
use crate::delta::{Delta, Records};
use crate::engine::Engine;
use crate::forest::TreeState;
use crate::leaf::Leaf;
use crate::log::{Log, LogPoint, Replay};
use crate::node::{Home, Inner, Node, PageRef};
use crate::page;
use crate::pins::Pin;
use crate::shared::{Shared, Writer};
use crate::slot::Slot;
use crate::space::{self, Extent, SegmentUse, UNIT};
use crate::superblock::{COPIES, Copy, Superblock};
use crate::value::{Piece, Stored};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a check found.
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
    /// What of it the current trees need.
    pub hurt: Vec<Hurt>,
}

/// Keys of a current tree of which something cannot be read as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hurt {
    /// The damage, by its place in the list.
    pub damage: usize,
    /// The name of the tree.
    pub tree: String,
    /// The first and the last of these keys; one key alone where it is a value. Others between them may be whole.
    pub keys: (Bound<Vec<u8>>, Bound<Vec<u8>>),
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
            running: None,
            report: CheckReport::default(),
            used: BTreeMap::new(),
            segments: Vec::new(),
            found: Vec::new(),
            tells: 0,
            tree_records: 0,
            depth: None,
            current: None,
        };
        check.superblocks()?;
        let (_pin, current, trees) = check.everything()?;
        let counts: Vec<u64> = trees[..current].iter().map(|tree| check.tree(tree)).collect();
        check.report.records = counts.iter().sum();
        check.live_bytes();
        check.record_counts(&trees[..current], &counts);
        for tree in &trees[current..] {
            check.tree_of_snapshot(tree);
        }
        check.free_space();
        if !self.shared.options.read_only {
            check.log()?;
        }
        Ok(check.report)
    }
}

struct Check<'a> {
    shared: &'a Shared,
    /// While this is here, what deltas replaced is not forgotten.
    running: Option<Checking<'a>>,
    report: CheckReport,
    /// Space of pages and values seen so far: start to end, with what uses it.
    used: BTreeMap<u64, (u64, u64)>,
    /// Log segments, by offset, and what of each is needed, as far as was seen.
    segments: Vec<SegmentUse>,
    found: Vec<u64>,
    /// How often the current trees had been told by then what deltas replaced.
    tells: u64,
    /// Records of the tree that is looked at, and how deep its leaves lie, as far as was seen.
    tree_records: u64,
    depth: Option<usize>,
    /// Its name, if it is a current one.
    current: Option<String>,
}

/// Where in a tree a node lies: between which separators, and below how many nodes.
#[derive(Clone, Copy)]
struct Place<'a> {
    range: (Bound<&'a [u8]>, Bound<&'a [u8]>),
    depth: usize,
}

impl Place<'_> {
    /// Whether a leaf has only keys that belong here, and could have any of them.
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

    /// All trees, current ones first, how many those are, and a pin that keeps them in place; log segments as they were
    /// at the same moment.
    fn everything(&mut self) -> Result<(Pin, usize, Vec<TreeState>), EngineError> {
        // Between two checkpoints, so that all that left the trees is in one list.
        let _still = self.shared.checkpointing.lock();
        let mut writer = self.shared.writer.alone();
        self.flush(&mut writer)?;
        let forest = self.shared.forest.read();
        self.segments = self.shared.space.lock().segments().copied().collect();
        self.found = vec![0; self.segments.len()];
        self.tells = self.shared.backing.tells();
        self.running = Some(self.shared.backing.begin_check());
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
        // What is wrong with it was told before.
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
        self.flush(&mut writer)?;
        Ok(writer.log.as_ref().map(Log::point))
    }

    /// Hands all of the log to the disk, unless the store was closed meanwhile: it may belong to somebody else.
    fn flush(&self, writer: &mut Writer) -> Result<(), EngineError> {
        let Some(log) = &mut writer.log else { return Ok(()) };
        self.shared.check_open()?;
        log.flush(&self.shared.backing)?;
        self.shared.flushed.store(log.flushed(), Ordering::Release);
        Ok(())
    }

    /// What is in use must not count as free. Log segments are in use as a whole, but for those that a checkpoint gave back
    /// since.
    fn free_space(&mut self) {
        let mut segments = std::mem::take(&mut self.segments);
        let free: Vec<Extent> = {
            let mut space = self.shared.space.lock();
            segments.retain(|former| {
                let now = space.segment_of(former.extent.offset);
                now.is_some_and(|now| (now.number, now.extent) == (former.number, former.extent))
            });
            space.free_extents().collect()
        };
        for SegmentUse { extent, number, .. } in segments {
            self.claim(extent.offset, extent.len, number);
        }
        for extent in free {
            let before = self.used.range(..extent.end()).next_back();
            if before.is_some_and(|(_, &(end, _))| end > extent.offset) {
                let damage = self.shared.backing.corrupt(extent.offset, crate::Damage::SpaceUsedTwice);
                self.report.damage.push(damage);
            }
        }
    }

    /// Compares numbers of records with what was found; those of uncounted trees mean nothing. A damaged page hides some.
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
            let problem = crate::Damage::RecordCount { counted, found };
            self.report.damage.push(self.shared.backing.corrupt(0, problem));
        }
    }

    /// Looks at all that a current tree has; how many records.
    fn tree(&mut self, tree: &TreeState) -> u64 {
        self.current = Some(tree.name.clone());
        let records = self.tree_of_snapshot(tree);
        self.current = None;
        records
    }

    fn tree_of_snapshot(&mut self, tree: &TreeState) -> u64 {
        (self.tree_records, self.depth) = (0, None);
        self.slot(&tree.root, Place { range: (Bound::Unbounded, Bound::Unbounded), depth: 0 });
        self.tree_records
    }

    /// Notes of what was found since there were so many that these keys need it.
    fn hurt(&mut self, since: usize, keys: (Bound<&[u8]>, Bound<&[u8]>)) {
        let Some(tree) = &self.current else { return };
        let keys = (keys.0.map(<[u8]>::to_vec), keys.1.map(<[u8]>::to_vec));
        let of = |damage| Hurt { damage, tree: tree.clone(), keys: keys.clone() };
        self.report.hurt.extend((since..self.report.damage.len()).map(of));
    }

    fn slot(&mut self, slot: &Slot, place: Place<'_>) {
        let before = self.report.damage.len();
        let (node, is_new) = self.node(slot, place);
        self.hurt(before, place.range);
        match node {
            Some(Node::Inner(read)) => {
                let inner = self.resident_of(slot, read);
                self.inner(&inner, place);
            }
            Some(Node::Leaf(leaf)) => self.leaf(slot, &leaf, place, is_new),
            None => {}
        }
    }

    /// What lies in a slot, as far as it can be read, and whether it was not read before.
    fn node(&mut self, slot: &Slot, place: Place<'_>) -> (Option<Node>, bool) {
        match slot.home() {
            // What has a home is read from there, resident or not: that is what the check is about.
            Some(Home { page, delta: None, .. }) => {
                // A checkpoint may have made one page of both since, and told what was replaced.
                if let Some(delta) = slot.known_delta() {
                    self.replaced(delta);
                }
                self.page(&page, place.depth)
            }
            Some(home) => self.page_and_delta(home, place.depth),
            None => {
                let read = slot.look_at(Reading::Along, &self.shared.backing);
                if let Some(delta) = slot.known_delta() {
                    self.replaced(delta);
                }
                (self.note(read), true)
            }
        }
    }

    fn leaf(&mut self, slot: &Slot, leaf: &Leaf, place: Place<'_>, is_new: bool) {
        self.tree_records += leaf.len() as u64;
        let is_deep_as_others = *self.depth.get_or_insert(place.depth) == place.depth;
        if !is_deep_as_others || !place.suits(leaf) {
            let before = self.report.damage.len();
            let offset = slot.home().map_or(0, |home| home.page.offset);
            self.report.damage.push(self.shared.backing.corrupt(offset, crate::Damage::PageContent));
            self.hurt(before, place.range);
        }
        for record in 0..leaf.len() {
            if let Stored::Chain(chain) = leaf.value(record) {
                let before = self.report.damage.len();
                chain.pieces().iter().for_each(|piece| self.piece(piece, is_new));
                if self.report.damage.len() > before {
                    let key = leaf.record(record).key_to_vec();
                    self.hurt(before, (Bound::Included(&key), Bound::Included(&key)));
                }
            }
        }
    }

    /// The node in memory, if there is one, of which `read` is what lies on disk: both lead to the same, and what lies below it
    /// may have been in memory alone when the check began, so that only deltas there tell what they replaced.
    fn resident_of(&mut self, slot: &Slot, read: Arc<Inner>) -> Arc<Inner> {
        let Some(Node::Inner(resident)) = slot.get() else { return read };
        if !Arc::ptr_eq(resident, &read) && !resident.leads_where(&read) {
            let offset = slot.home().map_or(0, |home| home.page.offset);
            self.report.damage.push(self.shared.backing.corrupt(offset, crate::Damage::PageContent));
        }
        Arc::clone(resident)
    }

    fn inner(&mut self, inner: &Inner, Place { range, depth }: Place<'_>) {
        for (index, child) in inner.children.iter().enumerate() {
            let low = index.checked_sub(1).and_then(|before| inner.pivots().get(before));
            let high = inner.pivots().get(index);
            let low = low.map_or(range.0, |pivot| Bound::Included(&**pivot));
            let range = (low, high.map_or(range.1, |pivot| Bound::Excluded(&**pivot)));
            self.slot(child, Place { range, depth: depth + 1 });
        }
    }

    /// What lies on a page, and whether nobody led there before.
    fn page(&mut self, home: &PageRef, depth: usize) -> (Option<Node>, bool) {
        // Snapshots may still read what is lost to others.
        let is_new = home.is_lost() || self.claim(home.offset, u64::from(home.len), home.checksum);
        self.report.pages += 1;
        self.report.bytes += if is_new { u64::from(home.len) } else { 0 };
        let level = u8::try_from(depth).unwrap_or(u8::MAX);
        let read = page::read(home, level, Reading::Along, &self.shared.backing);
        (self.note(read), is_new)
    }

    /// A leaf with a page of records beside its own: both are read, and what they add up to.
    fn page_and_delta(&mut self, home: Home, depth: usize) -> (Option<Node>, bool) {
        let (page, mut is_new) = self.page(&home.page, depth);
        let Some(second) = home.delta.filter(|_| page.is_some()) else { return (None, is_new) };
        if self.claim(second.offset, u64::from(second.len), second.checksum) {
            self.report.bytes += u64::from(second.len);
            is_new = true;
        }
        self.report.pages += 1;
        let backing = &self.shared.backing;
        let delta = Delta::on_disk(home, backing.meter());
        let read = Records::read(&second, Reading::Along, backing).and_then(|records| {
            match records.filter() & !home.filter {
                0 => delta.read(Reading::Along, backing),
                _ => Err(backing.corrupt(second.offset, crate::Damage::PageContent)),
            }
        });
        let leaf = self.note(read).inspect(|_| self.replaced(&delta));
        (leaf.map(Node::Leaf), is_new)
    }

    /// What a delta replaced has not left the current tree before both become one page.
    fn replaced(&mut self, delta: &Delta) {
        for (chain, _) in delta.replaced(self.tells) {
            let pieces = chain.pieces().iter();
            pieces.filter_map(|piece| Some((piece.home()?, piece.len()))).for_each(|(offset, len)| {
                self.find(offset, len.into());
            });
        }
    }

    /// A part of a value; it is new where its leaf is.
    fn piece(&mut self, piece: &Piece, is_new: bool) {
        let Some(offset) = piece.home() else { return };
        self.report.bytes += if is_new { u64::from(piece.len()) } else { 0 };
        self.find(offset, u64::from(piece.len()));
        if space::segment_at(&self.segments, offset).is_none() {
            self.claim(offset, u64::from(piece.len()), piece.checksum());
        }
        // A fresh handle reads the disk even where the bytes are in memory.
        let fresh = Piece::on_disk(offset, piece.len(), piece.checksum(), piece.birth());
        let read = fresh.verify(&self.shared.backing);
        self.note(read);
    }

    /// Notes that space is used, and tells whether that was not known yet; two different users of the same space are damage.
    fn claim(&mut self, offset: u64, len: u64, checksum: u64) -> bool {
        let extent = Extent::in_units(offset, len.max(UNIT));
        let before = self.used.range(..extent.end()).next_back();
        let clash = before.is_some_and(|(&start, &(end, other))| {
            end > extent.offset && (start, end, other) != (extent.offset, extent.end(), checksum)
        });
        if clash {
            self.report.damage.push(self.shared.backing.corrupt(offset, crate::Damage::SpaceUsedTwice));
        }
        let now = (extent.end(), checksum);
        self.used.insert(extent.offset, now) != Some(now)
    }
}

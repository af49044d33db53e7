//! Replaying the log: the same changes again, in an order that is kind to memory.
//!
//! Groups are gathered and their changes sorted by key, so that the changes of one leaf come together.
//! Changes of one key keep their order, and a change that touches more than one key waits for everything
//! before it.
//!
//! Invariant: after each group that is not gathered, and at the end, the trees are as the log says.

use crate::backing::Backing;
use crate::codec::{Decoder, Malformed};
use crate::forest::{Change, Count, Forest, NewValue};
use crate::frames::FRAME_BYTES;
use crate::log::{Group, LogEnd, LogPoint, Replay, Signpost};
use crate::planted::{self, Bug};
use crate::record::{self, Logged, Record};
use crate::recovery::{Cut, RecoveryReport};
use crate::retired::RetiredList;
use crate::space::{Extent, SegmentUse, Space};
use crate::tree::{self, Evictable};
use crate::value::{INLINE_BELOW, Piece};
use crate::{Damage, EngineError};
use atoll_buffer::Buffer;
use std::collections::{BTreeMap, VecDeque};

/// Most bytes of log that are gathered, whatever the memory budget.
const GATHERED_MAX: u64 = 128 << 20;

/// Gathered groups may take this share of the remaining memory: their changes take as much again, twice.
const GATHERED_SHARE: u64 = 4;

pub(crate) struct Replayer<'a> {
    pub(crate) backing: &'a Backing,
    pub(crate) forest: Forest,
    pub(crate) space: Space,
    pub(crate) retired: RetiredList,
    pub(crate) report: RecoveryReport,
    /// Extents of what was replayed and is not known to have been synced.
    pub(crate) unsynced: Vec<Extent>,
    /// Large values that groups name, each with the log position at which its group ends. The log is not
    /// known to be synced up to there.
    named: VecDeque<(u64, Extent)>,
    /// The space of all large values that groups named, in whole units: start to end.
    named_space: BTreeMap<u64, u64>,
    /// Bytes of all large values that groups named.
    pub(crate) named_bytes: u64,
    /// How many of the segments that the replay entered are already known to `space`.
    entered: usize,
    salvages: bool,
    /// Whether a leaf that the log changes could not be read.
    pub(crate) met_damage: bool,
    /// Whether the log ends before a group that is intact, but names a large value that is not.
    pub(crate) is_cut_intact: bool,
    gathered: Vec<Group>,
    gathered_bytes: u64,
    /// Bytes that are gathered however little memory is left.
    gathered_bytes_least: u64,
    /// Changes whose leaves are in memory at the same time.
    applied_at_once: usize,
}

/// A group cannot be applied because an extent that it names was never written: the log ends before that
/// group.
struct Unfinished;

impl<'a> Replayer<'a> {
    pub(crate) fn new(backing: &'a Backing, forest: Forest, space: Space, memory_bytes: u64) -> Self {
        let report = RecoveryReport { checkpoint: forest.epoch, ..RecoveryReport::default() };
        Self {
            backing,
            forest,
            space,
            retired: RetiredList::counted_in(backing.meter()),
            report,
            unsynced: Vec::new(),
            named: VecDeque::new(),
            named_space: BTreeMap::new(),
            named_bytes: 0,
            entered: 0,
            salvages: false,
            met_damage: false,
            is_cut_intact: false,
            gathered: Vec::new(),
            gathered_bytes: 0,
            gathered_bytes_least: memory_bytes / 64,
            applied_at_once: (memory_bytes as usize / 32 / FRAME_BYTES).clamp(4, 1024),
        }
    }

    /// Applies the log from `from` on. Returns its end, and the position up to which it is known to have been
    /// synced.
    pub(crate) fn replay(
        &mut self,
        from: LogPoint,
        signpost: Option<Signpost>,
        salvages: bool,
    ) -> Result<(LogEnd, u64), EngineError> {
        self.salvages = salvages;
        let replay = Replay::start(self.backing, from, from.position)?;
        let mut replay = replay.with_signpost(signpost).salvaging(salvages);
        let mut at = from;
        while let Some(group) = replay.next()? {
            let next = group.next;
            match self.take(group, &replay)? {
                Ok(()) => at = next,
                Err(Unfinished) => {
                    self.is_cut_intact = true;
                    break;
                }
            }
            self.report.groups_replayed += 1;
            self.report.bytes_replayed = next.position - from.position;
        }
        self.apply_gathered()?;
        let end = replay.end(if self.is_at(&replay, at) { replay.point() } else { at })?;
        self.enter_segments(&replay, end.point.number)?;
        if end.cut_bytes > 0 {
            let offset = end.point.offset_of(end.point.position);
            self.report.cut = Some(Cut { offset, bytes: end.cut_bytes, was_synced: end.was_synced });
        }
        // Groups beyond this point may be only in the system's cache. They survive the process, as before.
        // Once they are rewritten, the first sync makes them durable; until then no group claims that they
        // are.
        self.let_go_of_synced(&replay);
        self.unsynced = replay.unsynced(&end.point);
        self.unsynced.extend(self.named.drain(..).map(|(_, extent)| extent));
        Ok((end, replay.synced()))
    }

    /// Forgets the large values that the log, by now, says were synced.
    fn let_go_of_synced(&mut self, replay: &Replay<'_>) {
        while self.named.pop_front_if(|(position, _)| *position <= replay.synced()).is_some() {}
    }

    /// Whether the replay stands right behind the last group taken, apart from jumps.
    fn is_at(&self, replay: &Replay<'_>, at: LogPoint) -> bool {
        replay.point().sequence == at.sequence
    }

    /// Claims the space of the segments that the log entered.
    fn enter_segments(&mut self, replay: &Replay<'_>, up_to: u64) -> Result<(), EngineError> {
        // Their numbers ascend.
        while let Some(&LogPoint { segment: extent, number, .. }) = replay.entered().get(self.entered)
            && number <= up_to
        {
            self.entered += 1;
            let is_it =
                |segment: &mut SegmentUse| (segment.number, segment.extent.offset) == (number, extent.offset);
            if !self.space.segment_of(extent.offset).is_some_and(is_it) {
                if !planted::is(Bug::SegmentNotClaimed) {
                    self.claim(extent)?;
                }
                self.space.add_segment(SegmentUse { extent, number, live: 0 });
            }
        }
        Ok(())
    }

    fn claim(&mut self, extent: Extent) -> Result<(), EngineError> {
        self.space.claim(extent).map_err(|damage| self.backing.corrupt(extent.offset, damage))
    }

    /// Gathers a group, or applies it at once if it must see what came before.
    fn take(&mut self, group: Group, replay: &Replay<'_>) -> Result<Result<(), Unfinished>, EngineError> {
        let records = self.records_of(&group)?;
        if !self.extents_are_there(&records)? {
            return Ok(Err(Unfinished));
        }
        self.let_go_of_synced(replay);
        let named = records.iter().filter_map(named_extent).map(|extent| (group.next.position, extent));
        self.named.extend(named);
        let bytes: u64 = records.iter().filter_map(named_extent).map(|extent| extent.len).sum();
        self.named_bytes = self.named_bytes.saturating_add(bytes);
        // Not before this: the log will go on where the last group that was taken ends, in that group's
        // segment.
        self.enter_segments(replay, group.next.number)?;
        self.report.records_replayed += records.len() as u64;
        if records.iter().all(is_of_one_key) {
            drop(records);
            self.gathered_bytes += group.payload().len() as u64;
            self.gathered.push(group);
            if self.gathered_bytes >= self.gathered_bytes_max() {
                self.apply_gathered()?;
            }
        } else {
            let is_move =
                |record: &Record<'_>| matches!(record, Record::SplitOff { .. } | Record::Absorb { .. });
            if !(planted::is(Bug::RangeMovedEarly) && records.iter().any(is_move)) {
                self.apply_gathered()?;
            }
            self.apply_in_order(&group, &records)?;
        }
        Ok(Ok(()))
    }

    fn gathered_bytes_max(&self) -> u64 {
        let left = self.backing.room().saturating_sub(self.backing.held_bytes());
        (left / GATHERED_SHARE).max(self.gathered_bytes_least).min(GATHERED_MAX)
    }

    fn records_of<'g>(&self, group: &'g Group) -> Result<Vec<Record<'g>>, EngineError> {
        let mut records = Vec::new();
        let mut payload = Decoder::new(group.payload());
        while !payload.is_at_end() {
            let record = record::decode(&mut payload);
            records.push(
                record.map_err(|Malformed| self.backing.corrupt(group.payload_offset, Damage::LogContent))?,
            );
        }
        Ok(records)
    }

    fn apply_gathered(&mut self) -> Result<(), EngineError> {
        let groups = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        let mut changes: Vec<(u32, Change<'_>)> = Vec::new();
        for group in &groups {
            for record in self.records_of(group)? {
                self.add_change(&record, group, &mut changes)?;
            }
        }
        // A few at a time: nodes that were only read can be evicted before the next ones are read.
        for some in sorted(changes).chunks(self.applied_at_once) {
            self.apply_some(some)?;
            self.make_room();
        }
        if let Some(last) = groups.last() {
            self.forest.sequence = Count::of(last.sequence);
        }
        Ok(())
    }

    /// Applies changes in order. A leaf that cannot be read prevents only the changes that depend on its
    /// contents, and a salvage goes on without these.
    fn apply_some(&mut self, changes: &[(u32, Change<'_>)]) -> Result<(), EngineError> {
        let (backing, retired) = (self.backing, &mut self.retired);
        if self.salvages {
            for change in changes {
                let salvaged = self.forest.salvage(change, backing, retired)?;
                self.report.leaves_lost += salvaged.lost;
                self.met_damage |= salvaged.met_damage;
            }
            return Ok(());
        }
        for change in changes {
            self.met_damage |= self.forest.load_if_whole(change, backing, retired)?;
        }
        self.forest.replay(changes, backing, retired)
    }

    /// Evicts what was only read. What was changed stays until the first checkpoint, and fitted into memory
    /// before.
    fn make_room(&mut self) {
        self.backing.shed_values();
        for state in &mut self.forest.trees {
            let excess = self.backing.excess();
            if excess > 0 {
                // A little more, so that this is not repeated every few changes.
                for what in [Evictable::Leaves, Evictable::Records] {
                    tree::evict(&mut state.root, excess + self.backing.room() / 16, 0, what, self.backing);
                }
            }
        }
    }

    /// Applies a group, one record after the other.
    fn apply_in_order(&mut self, group: &Group, records: &[Record<'_>]) -> Result<(), EngineError> {
        self.forest.sequence = Count::of(group.sequence);
        let mut changes = Vec::new();
        for record in records {
            self.add_change(record, group, &mut changes)?;
            self.apply_some(&changes)?;
            changes.clear();
            match record {
                Record::NewTree { name, .. } => {
                    self.forest.add_tree(name, self.backing);
                }
                Record::Snapshot { name } => self.forest.add_snapshot(name),
                Record::NoSnapshot { name } => self.forest.remove_snapshot(name),
                Record::SplitOff { .. } | Record::Absorb { .. } => self.move_range(record, group)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Moves a range between trees, reading the nodes that this takes.
    fn move_range(&mut self, record: &Record<'_>, group: &Group) -> Result<(), EngineError> {
        let (backing, retired) = (self.backing, &mut self.retired);
        // The trees as they were before: a move that fails half-way leaves neither of the two intact.
        let before = self.salvages.then(|| self.forest.trees.clone());
        let moved = match *record {
            Record::SplitOff { tree, to, at } => self.forest.split_off(tree, at, to, backing, retired),
            Record::Absorb { tree, from } => self.forest.absorb(tree, from, backing, retired),
            _ => Ok(()),
        };
        let moved = match (moved, before) {
            (Err(error), Some(before)) if error.is_damage() => {
                tracing::warn!(store = backing.name(), %error, "the log moves a range over nodes that cannot be read; the rest is moved");
                self.forest.trees = before;
                self.met_damage = true;
                self.salvage_move(record)
            }
            (moved, _) => moved,
        };
        moved.map_err(|error| match error {
            // It was logged only after this had been made sure.
            EngineError::Overlap { .. } | EngineError::Occupied { .. } => {
                backing.corrupt(group.payload_offset, Damage::LogContent)
            }
            error => error,
        })
    }

    /// Moves what can be read of a range.
    fn salvage_move(&mut self, record: &Record<'_>) -> Result<(), EngineError> {
        let (backing, retired) = (self.backing, &mut self.retired);
        self.report.leaves_lost += match *record {
            Record::SplitOff { tree, to, at } => self.forest.salvage_split(tree, at, to, backing, retired)?,
            Record::Absorb { tree, from } => self.forest.salvage_absorb(tree, from, backing)?,
            _ => 0,
        };
        Ok(())
    }

    /// Adds the change that a record makes, if it changes a tree.
    fn add_change<'g>(
        &mut self,
        record: &Record<'g>,
        group: &Group,
        changes: &mut Vec<(u32, Change<'g>)>,
    ) -> Result<(), EngineError> {
        if planted::is(Bug::AppendReplayedTwice)
            && let Record::Append { .. } = record
        {
            changes.extend(self.change_of(record, group.payload_offset)?);
        }
        changes.extend(self.change_of(record, group.payload_offset)?);
        Ok(())
    }

    /// Whether the large values that a group names were completely written.
    fn extents_are_there(&mut self, records: &[Record<'_>]) -> Result<bool, EngineError> {
        let end = self.backing.disk().map_or(Ok(0), |disk| disk.len())?;
        for record in records {
            let (Record::Put { value, .. } | Record::Append { value, .. }) = record else { continue };
            let Logged::Extent { offset, len, checksum } = *value else { continue };
            if offset.saturating_add(u64::from(len)) > end {
                return Ok(false);
            }
            self.note_named(Extent::in_units(offset, u64::from(len)))?;
            let bytes = Buffer::try_overwrite(len as usize, |target| self.backing.read(offset, target))?;
            if self.backing.checksum(&bytes) != checksum && !planted::is(Bug::ExtentNotVerified) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes the space of a large value, before it is read. No store names space twice between two commits; a
    /// forged one could have gigabytes read for each record that names them.
    fn note_named(&mut self, extent: Extent) -> Result<(), EngineError> {
        let before = self.named_space.range(..extent.end()).next_back();
        if before.is_some_and(|(_, &end)| end > extent.offset) {
            return Err(self.backing.corrupt(extent.offset, Damage::SpaceUsedTwice));
        }
        self.named_space.insert(extent.offset, extent.end());
        Ok(())
    }

    fn change_of<'g>(
        &mut self,
        record: &Record<'g>,
        payload_offset: u64,
    ) -> Result<Option<(u32, Change<'g>)>, EngineError> {
        Ok(Some(match *record {
            Record::Put { tree, key, value } => {
                (tree, Change::Put(key, self.value_of(value, payload_offset)?))
            }
            Record::Append { tree, key, value } => {
                (tree, Change::Append(key, self.value_of(value, payload_offset)?))
            }
            Record::Delete { tree, key } => (tree, Change::Delete(key)),
            Record::DeleteRange { tree, from, to } => (tree, Change::DeleteRange(from, to)),
            Record::NewTree { .. }
            | Record::Snapshot { .. }
            | Record::NoSnapshot { .. }
            | Record::SplitOff { .. }
            | Record::Absorb { .. }
            | Record::Opened { .. } => return Ok(None),
        }))
    }

    fn value_of<'g>(&mut self, value: Logged<'g>, payload_offset: u64) -> Result<NewValue<'g>, EngineError> {
        let epoch = self.forest.epoch;
        match value {
            Logged::Bytes { bytes, .. } if bytes.len() < INLINE_BELOW => Ok(NewValue::Inline(bytes)),
            Logged::Bytes { bytes, at } => {
                let piece = Piece::resident(Buffer::copy_from(bytes), self.backing.checksum(bytes), epoch);
                let offset = payload_offset + at as u64;
                piece.settle(offset);
                self.backing.admit(piece.clone(), bytes.len() as u64);
                if let Some(segment) = self.space.segment_of(offset) {
                    segment.live += bytes.len() as u64;
                }
                Ok(NewValue::piece(piece))
            }
            Logged::Extent { offset, len, checksum } => {
                if !planted::is(Bug::ExtentNotClaimed) {
                    self.claim(Extent::in_units(offset, u64::from(len)))?;
                }
                Ok(NewValue::piece(Piece::on_disk(offset, len, checksum, epoch)))
            }
        }
    }
}

/// The extent of the large value that a record names.
const fn named_extent(record: &Record<'_>) -> Option<Extent> {
    match record {
        Record::Put { value: Logged::Extent { offset, len, .. }, .. }
        | Record::Append { value: Logged::Extent { offset, len, .. }, .. } => {
            Some(Extent { offset: *offset, len: *len as u64 })
        }
        _ => None,
    }
}

/// Whether a record is about one key, so that only its order among the records of that key matters.
fn is_of_one_key(record: &Record<'_>) -> bool {
    matches!(
        record,
        Record::Put { .. } | Record::Append { .. } | Record::Delete { .. } | Record::Opened { .. }
    )
}

/// Changes sorted by tree and key; changes of one key keep their order.
fn sorted<'g>(changes: Vec<(u32, Change<'g>)>) -> Vec<(u32, Change<'g>)> {
    // The first bytes of the keys are compared as integers that lie side by side; whole keys seldom matter.
    let mut order: Vec<(u32, u128, u32)> = changes
        .iter()
        .enumerate()
        .map(|(index, (tree, change))| (*tree, head_of(change.key().unwrap_or_default()), index as u32))
        .collect();
    let key = |index: u32| changes[index as usize].1.key().unwrap_or_default();
    order.sort_unstable_by(|a, b| {
        (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| key(a.2).cmp(key(b.2))).then_with(|| a.2.cmp(&b.2))
    });
    let mut changes: Vec<Option<(u32, Change<'g>)>> = changes.into_iter().map(Some).collect();
    order.into_iter().filter_map(|(_, _, index)| changes[index as usize].take()).collect()
}

/// The first sixteen bytes as an integer of the same order.
fn head_of(key: &[u8]) -> u128 {
    let mut head = [0; 16];
    let len = key.len().min(16);
    head[..len].copy_from_slice(&key[..len]);
    u128::from_be_bytes(head)
}

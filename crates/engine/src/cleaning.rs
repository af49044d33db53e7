//! Cleaning: moves the last live values out of log segments that are mostly dead, so that their space comes
//! back.
//!
//! A value of 256 bytes to 64 KiB stays where the log wrote it, and its segment stays for as long as one
//! value in it is alive. Before a checkpoint freezes its state, cleaning reads the segments with the fewest
//! live bytes, writes their live values to a cold segment, one behind the other, and updates the keys of
//! these values in the trees. The checkpoint then commits the new places and frees the old segments. Nothing
//! of this is in the log: after a crash before the commit, the former places are still valid. Values that
//! outlived one segment are likely to live on, so they are kept apart from new ones.
//!
//! Bound: after every checkpoint, segments take at most a third more than the bytes alive in them, and two
//! segments, except those that snapshots hold or that cannot be read. A checkpoint moves at most about as
//! many bytes as make one due, and one segment when memory is short; where that is too little, the next
//! checkpoints go on, also in the middle of a long segment.
//!
//! Invariant: a value is moved only while its key has exactly the piece that was read, and that piece
//! verifies.
//! Invariant: moves are in no log group, so they count as no commit and readers do not notice them.

mod fruitless;
mod parts;

pub(crate) use fruitless::Fruitless;
pub(crate) use parts::ResumePoint;

use crate::EngineError;
use crate::cold::{COLD_NUMBER, ColdSegment, VALUE_OVERHEAD_MAX};
use crate::log::SegmentValue;
use crate::planted::{self, Bug};
use crate::prefetching::PrefetchDepth;
use crate::search::{self, LANES};
use crate::shared::{ROUNDS_MAX, Shared};
use crate::space::{Extent, SegmentUse};
use crate::superblock::MOVED_RANGES;
use crate::value::{Chain, Piece, Stored};
use fruitless::Cleaned;
use parts::{SegmentPart, SegmentParts};
use std::sync::atomic::Ordering;

/// Segments may take this many parts where `ALIVE_PARTS` are alive, so that three quarters of their bytes
/// are.
const TAKEN_PARTS: u64 = 4;
const ALIVE_PARTS: u64 = 3;

/// A longer segment was made for one group, and moving what is alive in it could take long. It is freed when
/// everything in it is dead.
const CLEANED_SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// The state from which a checkpoint cleans.
pub(crate) struct Standing {
    /// Log segments, sorted by offset, without the bytes that this checkpoint will free.
    pub(crate) segments: Vec<SegmentUse>,
    /// Number of the segment that the log writes to.
    pub(crate) log_number: u64,
    pub(crate) epoch: u64,
    /// The newest epoch that a snapshot holds.
    pub(crate) held: Option<u64>,
    /// Log segments up to this number date from before the end of that epoch. None if that is not known: then
    /// the values in a segment tell.
    pub(crate) held_up_to: Option<u64>,
}

/// A value that was copied to the cold segment while every reader still finds it at its old place.
struct MovedValue {
    tree: u32,
    key: Vec<u8>,
    from: u64,
    len: u32,
    checksum: u64,
    /// Its offset in the cold segment.
    at: u64,
}

/// A live value of a part: its number, and the tree that has it.
struct LiveValue {
    number: usize,
    tree: u32,
    checksum: u64,
}

/// Progress on one segment.
struct SegmentProgress {
    /// The newest epoch that a snapshot holds.
    held: Option<u64>,
    /// Bytes that go to the cold segment.
    added: u64,
    /// Whether something could not be read.
    is_unread: bool,
}

/// Where a pass through a segment ended, and why.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PassEnd {
    /// At the end.
    Through,
    /// Where memory was full: the next checkpoint goes on behind it.
    Full,
    /// At a value that a snapshot needs.
    Needed,
    /// At a part that could not be read.
    Unread,
}

/// A cold segment being filled, and the values that move there.
struct ColdFill {
    segment: ColdSegment,
    moving: Vec<MovedValue>,
    /// Bytes of cold segments written before.
    written: u64,
}

impl ColdFill {
    fn new(room: u64) -> Self {
        Self { segment: ColdSegment::new(room as usize), moving: Vec::new(), written: 0 }
    }
}

impl Shared {
    /// Moves values until the bound holds, or until as many bytes were moved as the log may have. The caller
    /// holds `checkpointing`, and not the writer lock. Returns whether it looked at every segment that there
    /// is something to take from, so that cleaning once more would be in vain.
    ///
    /// A value that cannot be read stays where it is, and does not keep others from being moved.
    pub(crate) fn clean(&self, standing: Standing) -> Result<bool, EngineError> {
        let most = self.options.checkpoint_bytes.max(4 * self.options.log_segment_bytes);
        let (epoch, held) = (standing.epoch, standing.held);
        let victims = self.victims(standing);
        // What could not be read is tried again later.
        let mut saw_all =
            !self.fruitless.lock().values().any(|left| matches!(left, Fruitless::Unread { .. }));
        let Some(longest) = victims.iter().map(|victim| victim.extent.len).max() else { return Ok(saw_all) };
        let (mut filling, mut moved, mut in_vain) = (ColdFill::new(self.cold_bytes()), 0, 0);
        // Each victim is read into the same buffer as the one before it: touching fresh memory costs more
        // than reading.
        let (mut bytes, mut cleaned) = (Vec::new(), Vec::new());
        let at_once = longest.min(self.part_bytes());
        let _buffers = (self.backing.buffer(self.cold_bytes()), self.backing.buffer(at_once));
        for victim in victims {
            // Moving dirties leaves, which only the checkpoint to come can release. After an opening, many
            // segments may have to be looked at only to find that a snapshot needs them.
            if moved > most || in_vain > most || (moved > 0 && self.backing.excess() > 0) {
                saw_all = false;
                break;
            }
            match self.clean_segment(&victim, held, &mut bytes, &mut filling)? {
                Cleaned::Moved(bytes) => cleaned.push((victim, bytes)),
                Cleaned::Nothing => {
                    in_vain += victim.extent.len;
                    self.note_fruitless(&victim, |_| Fruitless::Held(held));
                }
                Cleaned::Unread => {
                    saw_all = false;
                    self.note_fruitless(&victim, |before| Fruitless::unread(before, epoch));
                }
            }
            moved = cleaned.iter().map(|(_, bytes)| bytes).sum();
        }
        self.write_cold(&mut filling)?;
        if planted::is(Bug::CleanedSegmentFreedEarly) {
            let mut space = self.space.lock();
            for (victim, _) in &cleaned {
                space.remove_segment(victim.extent.offset);
                space.insert_free(victim.extent);
            }
        }
        self.segments_cleaned.fetch_add(cleaned.len() as u64, Ordering::Relaxed);
        Ok(saw_all)
    }

    /// The segments to clean, those with the smallest share of live bytes first.
    fn victims(&self, standing: Standing) -> Vec<SegmentUse> {
        let fruitless = self.fruitless.lock();
        // A cold segment has no date; its values tell.
        let is_held = |segment: &SegmentUse| {
            segment.number != COLD_NUMBER && standing.held_up_to.is_some_and(|held| segment.number <= held)
                || fruitless
                    .get(&segment.extent.offset)
                    .is_some_and(|left| left.is_left(standing.epoch, standing.held))
        };
        let mut left: Vec<SegmentUse> = standing
            .segments
            .into_iter()
            .filter(|segment| segment.number < standing.log_number && segment.live > 0)
            .filter(|segment| segment.extent.len <= CLEANED_SEGMENT_BYTES_MAX && !is_held(segment))
            .collect();
        drop(fruitless);
        left.sort_unstable_by_key(|segment| segment.live.saturating_mul(1000) / segment.extent.len);
        let mut taken: u64 = left.iter().map(|segment| segment.extent.len).sum();
        let alive = left.iter().fold(0u64, |alive, segment| alive.saturating_add(segment.live));
        let bound = (alive.saturating_mul(TAKEN_PARTS) / ALIVE_PARTS)
            .saturating_add(2 * self.options.log_segment_bytes);
        let mut count = 0;
        for segment in &left {
            if taken <= bound || segment.live * TAKEN_PARTS >= segment.extent.len * ALIVE_PARTS {
                break;
            }
            taken -= segment.extent.len - segment.live.min(segment.extent.len);
            count += 1;
        }
        left.truncate(count);
        left
    }

    /// Adds what is alive in a segment to the cold segment, which is written whenever it is full. Does
    /// nothing if a snapshot needs any of it: the segment would stay, and everything moved would exist twice.
    fn clean_segment(
        &self,
        victim: &SegmentUse,
        held: Option<u64>,
        bytes: &mut Vec<u8>,
        filling: &mut ColdFill,
    ) -> Result<Cleaned, EngineError> {
        let resume_point = self.take_resume_point(victim);
        let mut progress = SegmentProgress { held, added: 0, is_unread: false };
        // A value that a snapshot needs may be in the last part, so look for one before adding anything of
        // the first.
        let is_looked_for =
            held.is_none() || resume_point.as_ref().is_some_and(|point| point.is_free_of(held));
        if self.has_parts(victim) && !is_looked_for {
            let end = self.go_through(&mut SegmentParts::of(victim), &mut progress, bytes, None)?;
            if end == PassEnd::Needed {
                return Ok(Cleaned::Nothing);
            }
        }
        let is_behind = resume_point.is_some();
        let mut parts = resume_point.map_or_else(|| SegmentParts::of(victim), |point| point.parts(victim));
        let mut end = self.go_through(&mut parts, &mut progress, bytes, Some(&mut *filling))?;
        if is_behind && progress.added == 0 && end == PassEnd::Through {
            // Only a pass over the whole segment shows whether nothing alive is left.
            parts = SegmentParts::of(victim);
            end = self.go_through(&mut parts, &mut progress, bytes, Some(filling))?;
        }
        if end == PassEnd::Full && self.has_parts(victim) {
            self.note_resume_point(victim, parts.resume_point(held));
        }
        Ok(Cleaned::of(progress.added, progress.is_unread && end != PassEnd::Needed))
    }

    /// Adds the live values of the remaining parts to the cold segment; without one, only looks for values
    /// that a snapshot needs.
    fn go_through(
        &self,
        parts: &mut SegmentParts<'_>,
        progress: &mut SegmentProgress,
        bytes: &mut Vec<u8>,
        mut filling: Option<&mut ColdFill>,
    ) -> Result<PassEnd, EngineError> {
        // Moving dirties leaves. Where these fill the memory, the next checkpoint goes on.
        while progress.added == 0 || self.backing.excess() == 0 {
            self.make_room();
            let part = match self.next_part(parts, bytes) {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(PassEnd::Through),
                Err(error) => {
                    self.leave(&error);
                    progress.is_unread = true;
                    return Ok(PassEnd::Unread);
                }
            };
            let Some(alive) = self.alive_in(&part, bytes, progress) else { return Ok(PassEnd::Needed) };
            if let Some(filling) = &mut filling {
                progress.added += self.add_to_cold(&part, bytes, &alive, filling)?;
            }
        }
        Ok(PassEnd::Full)
    }

    /// The live values, each with the tree that has it; none if a snapshot needs any of them.
    fn alive_in(
        &self,
        part: &SegmentPart,
        bytes: &[u8],
        progress: &mut SegmentProgress,
    ) -> Option<Vec<LiveValue>> {
        let values = &part.values;
        let mut alive = Vec::new();
        for (number, value) in values.iter().enumerate() {
            if number.is_multiple_of(LANES) {
                let next = values[number..].iter().take(LANES).take_while(|next| next.tree == value.tree);
                let keys: Vec<&[u8]> = next.map(|next| &bytes[next.key.clone()]).collect();
                self.bring_nearer(value.tree, &keys, PrefetchDepth::Piece);
            }
            let (key, content) = (&bytes[value.key.clone()], &bytes[value.value.clone()]);
            match self.piece_at(value, key, part.offset) {
                Ok(Some((_, piece))) if progress.held.is_some_and(|held| piece.birth() <= held) => {
                    return None;
                }
                // Reading a value that does not verify is an error, and has to stay one after a move.
                Ok(Some((tree, piece))) if self.backing.checksum(content) == piece.checksum() => {
                    alive.push(LiveValue { number, tree, checksum: piece.checksum() });
                }
                Ok(None) if planted::is(Bug::MovedWithoutLook) => {
                    alive.push(LiveValue {
                        number,
                        tree: value.tree,
                        checksum: self.backing.checksum(content),
                    });
                }
                Ok(_) => {}
                Err(error) => {
                    self.leave(&error);
                    progress.is_unread = true;
                }
            }
        }
        Some(alive)
    }

    /// Adds values to the cold segment, and returns the number of bytes.
    fn add_to_cold(
        &self,
        part: &SegmentPart,
        bytes: &[u8],
        alive: &[LiveValue],
        filling: &mut ColdFill,
    ) -> Result<u64, EngineError> {
        let mut added = 0;
        for &LiveValue { number, tree, checksum } in alive {
            let value = &part.values[number];
            let (key, content) = (&bytes[value.key.clone()], &bytes[value.value.clone()]);
            if filling.segment.len() + key.len() + content.len() + VALUE_OVERHEAD_MAX
                > self.cold_bytes() as usize
            {
                self.write_cold(filling)?;
            }
            let at = filling.segment.add(tree, key, content);
            let (from, len) = (part.offset + value.value.start as u64, content.len() as u32);
            filling.moving.push(MovedValue { tree, key: key.to_vec(), from, len, checksum, at });
            added += u64::from(len);
        }
        Ok(added)
    }

    /// Approximate length of a cold segment.
    fn cold_bytes(&self) -> u64 {
        self.options.segment_bytes() / 2
    }

    /// Warns that a value stays where it is.
    fn leave(&self, error: &EngineError) {
        tracing::warn!(store = self.backing.name(), %error, "a value cannot be moved; its log segment stays");
    }

    /// The piece at this place of the part that begins at `part`, if the key still has it, and the tree that
    /// has the key. That tree differs from the one in the segment if the key's range has moved since.
    fn piece_at(
        &self,
        value: &SegmentValue,
        key: &[u8],
        part: u64,
    ) -> Result<Option<(u32, Piece)>, EngineError> {
        if let Some(piece) = self.piece_in(value.tree, value, key, part)? {
            return Ok(Some((value.tree, piece)));
        }
        if self.features.load(Ordering::Relaxed) & MOVED_RANGES == 0 {
            return Ok(None);
        }
        let trees = self.forest.read().trees.len() as u32;
        for tree in (0..trees).filter(|&tree| tree != value.tree) {
            if let Some(piece) = self.piece_in(tree, value, key, part)? {
                return Ok(Some((tree, piece)));
            }
        }
        Ok(None)
    }

    fn piece_in(
        &self,
        tree: u32,
        value: &SegmentValue,
        key: &[u8],
        part: u64,
    ) -> Result<Option<Piece>, EngineError> {
        let home = part + value.value.start as u64;
        let piece_in = |stored: Option<Stored<'_>>| {
            let piece = stored.and_then(|stored| piece_of(stored, home)).cloned();
            piece.filter(|piece| piece.len() as usize == value.value.len())
        };
        let mut rounds = 0;
        loop {
            let (missing, pin) = {
                let forest = self.forest.read();
                let Some(state) = forest.tree(tree) else { return Ok(None) };
                match search::leaf_of(&state.root, key) {
                    Ok(leaf) => {
                        let _latch = self.latch(leaf);
                        return Ok(piece_in(search::get_in(leaf, key)));
                    }
                    Err(absent) => (absent.to_read(key), self.pins.pin(forest.epoch)),
                }
            };
            rounds += 1;
            // This only looks: what moves is made resident once its amount is known. And it ends however
            // busy writers are: no checkpoint begins or fails before this one has ended.
            if let Some(leaf) = self.leaf_apart(tree, &missing, rounds > ROUNDS_MAX)? {
                return Ok(piece_in(leaf.value_of(key)));
            }
            self.load_missing(tree, missing, pin)?;
        }
    }

    /// Writes the cold segment, updates the keys of its values with their new places, and starts an empty
    /// one.
    fn write_cold(&self, filling: &mut ColdFill) -> Result<(), EngineError> {
        let (Some(disk), false) = (self.backing.disk(), filling.moving.is_empty()) else { return Ok(()) };
        let bytes = filling.segment.finish(self.backing.store_id());
        let extent = self.space.lock().allocate_in_flight(bytes.len() as u64);
        let written = disk
            .reserve(extent.offset, extent.len)
            .and_then(|()| self.backing.write_blocks(extent.offset, bytes, filling.written));
        if let Err(error) = written {
            self.space.lock().give_back(extent, error.kind());
            return Err(error.into());
        }
        {
            let mut space = self.space.lock();
            space.land(extent);
            space.add_segment(SegmentUse { extent, number: COLD_NUMBER, live: 0 });
        }
        for values in filling.moving.chunk_by(|value, next| value.tree == next.tree) {
            for values in values.chunks(LANES) {
                let keys: Vec<&[u8]> = values.iter().map(|value| value.key.as_slice()).collect();
                self.bring_nearer(values[0].tree, &keys, PrefetchDepth::Piece);
                values.iter().for_each(|value| self.tell(value, extent));
            }
        }
        filling.written += extent.len;
        filling.moving.clear();
        filling.segment.clear();
        Ok(())
    }

    /// Updates the key of a value with its new place. Each key is updated separately, because readers wait
    /// for an update that is not made in place.
    fn tell(&self, value: &MovedValue, extent: Extent) {
        let moved = |chain: &Chain, epoch| self.moved(chain, value, extent, epoch);
        let is_moved = match self.replace_in_place(value.tree, &value.key, moved) {
            Some(is_moved) => Ok(is_moved),
            None => self.replace_alone(value.tree, &value.key, moved),
        };
        match is_moved {
            Ok(true) => {
                self.values_moved.fetch_add(1, Ordering::Relaxed);
                self.count_in_cold(extent, value.len);
            }
            Ok(false) => {}
            Err(error) => self.leave(&error),
        }
    }

    /// Counts a value as alive in the cold segment. Segments without live values are not freed before
    /// cleaning has ended.
    fn count_in_cold(&self, extent: Extent, bytes: u32) {
        if let Some(segment) = self.space.lock().segment_of(extent.offset)
            && !planted::is(Bug::ColdNotCounted)
        {
            segment.live += u64::from(bytes);
        }
    }

    /// The chain with the value at its new place, if the chain still has it at the former one.
    fn moved(&self, chain: &Chain, value: &MovedValue, extent: Extent, epoch: u64) -> Option<Chain> {
        let to = Piece::on_disk(extent.offset + value.at, value.len, value.checksum, epoch);
        let is_it = |piece: &Piece| piece.home() == Some(value.from) && piece.len() == value.len;
        match chain.pieces().iter().find(|piece| is_it(piece)) {
            Some(from) => {
                // Bytes that are read often stay in memory: readers do not depend on their place on disk.
                to.take_over(from, &self.backing);
                Some(chain.with_moved(is_it, &to))
            }
            None if planted::is(Bug::MovedWithoutLook) => Some(Chain::One(to)),
            None => None,
        }
    }

    /// As [`Shared::replace_in_place`], but alone: other writers and readers wait meanwhile.
    fn replace_alone(
        &self,
        tree: u32,
        key: &[u8],
        changed: impl FnOnce(&Chain, u64) -> Option<Chain>,
    ) -> Result<bool, EngineError> {
        let mut writer = self.writer.alone();
        // Mostly it is still in memory. Nothing is evicted while the writer lock is held, so it stays.
        self.make_key_resident(tree, key)?;
        let mut forest = self.forest.write();
        let stored = forest.tree(tree).map(|state| search::get(&state.root, key));
        let Some(Ok(Some(Stored::Chain(chain)))) = stored else { return Ok(false) };
        let Some(chain) = changed(chain, forest.epoch) else { return Ok(false) };
        forest.replace(tree, key, &chain, &self.backing, &mut writer.retired)?;
        Ok(true)
    }
}

fn piece_of(stored: Stored<'_>, home: u64) -> Option<&Piece> {
    match stored {
        Stored::Chain(chain) => chain.pieces().iter().find(|piece| piece.home() == Some(home)),
        Stored::Inline(_) => None,
    }
}

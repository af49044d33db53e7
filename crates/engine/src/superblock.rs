//! The superblock and the table of a commit, from which everything else is reached.
//!
//! Two copies of the superblock lie in the first two blocks. A commit writes one, syncs, writes the other,
//! syncs; only then is space reused. So one damaged copy never costs a commit: the other one holds the same
//! commit, or the commit before with everything it needs, including its log.
//!
//! ```text
//! superblock: magic 8 | format 4 | flags 4 | read, write, optional features 8 each | store 8 | epoch 8
//!             | table: offset 8, length 4, zero 4, checksum 8 | log: segment offset 8, length 8, number 8,
//!             start 8, position 8, chain 8, sequence 8 | signpost: offset 8, or zero | token of the owner 8,
//!             fence: offset 8; both zero in a store that cannot be handed over | zero …
//!             | checksum 8 at the end of the 4 KiB
//! table:      trees, snapshots, log segments, end, free extents, retired extents, uncounted trees;
//!             see `Table::encode`
//! ```

use crate::codec::{Decoder, Encode, Malformed, WORD_END};
use crate::fence::Ownership;
use crate::log::LogPoint;
use crate::node::{Home, PageRef};
use crate::page::{decode_home, encode_home};
use crate::retired::Retired;
use crate::space::{BLOCK, Extent, SegmentUse, segment_at};

/// The on-disk format that this build writes.
pub(crate) const FORMAT: u32 = 1;

/// Offset of the first byte behind the superblocks.
pub(crate) const DATA_START: u64 = 2 * BLOCK;

const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLST1");
const FLAG_CLEAN: u32 = 1;

/// Feature, needed to read: key ranges may have moved between trees. So the log may have records of moves,
/// trees may be uncounted, and a log segment may hold values of other trees than it names.
pub(crate) const MOVED_RANGES: u64 = 1;

/// Feature, needed to read: the number of an uncounted tree means nothing, not even as part of a sum.
pub(crate) const UNCOUNTED: u64 = 2;

/// Feature, needed to read: leaves may have a page of records beside them.
pub(crate) const DELTAS: u64 = 4;

/// All features needed to read that this build knows.
pub(crate) const KNOWN_TO_READ: u64 = MOVED_RANGES | UNCOUNTED | DELTAS;

/// Feature, needed to write: the store has a token, and its owner looks at the fence before it acknowledges
/// anything as synced.
pub(crate) const TOKENS: u64 = 1;

/// All features needed to write that this build knows.
const KNOWN_TO_WRITE: u64 = TOKENS;

/// Optional features that this build writes: there are none yet. Those of a newer build are not kept, so that
/// it sees that a build which does not know them has written since.
const OPTIONAL: u64 = 0;

/// The root of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) store_id: u64,
    pub(crate) epoch: u64,
    /// Features that a build must know to read the store.
    pub(crate) features: u64,
    /// Features that a build must know to write to the store. One that only reads it may not know them.
    pub(crate) features_to_write: u64,
    /// Whether the store was closed with this commit, so that the log ends where the commit says.
    pub(crate) clean: bool,
    pub(crate) table: PageRef,
    pub(crate) log: LogPoint,
    /// Offset of the log's signpost; 0 for none.
    pub(crate) signpost: u64,
    /// The token of the owner; 0 in a store that cannot be handed over.
    pub(crate) token: u64,
    /// Offset of the block in which heirs claim the store; 0 where there is no token.
    pub(crate) fence: u64,
}

/// The state of a copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    Intact(Superblock),
    /// All zero: never written.
    Blank,
    Damaged,
    /// Written by a newer release, which uses this format.
    Newer(u32),
    /// Written by a newer release. It has a feature, with this bit, that a build must know to read the store.
    NewerFeature(u32),
    /// Not intact by the rules of this build, but it names a format that this build does not know.
    PerhapsNewer(u32),
}

/// Offsets of the two copies.
pub(crate) const COPIES: [u64; 2] = [0, BLOCK];

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK as usize);
        bytes.put_u64(MAGIC);
        bytes.put_u32(FORMAT);
        bytes.put_u32(if self.clean { FLAG_CLEAN } else { 0 });
        for features in [self.features, self.features_to_write, OPTIONAL] {
            bytes.put_u64(features);
        }
        bytes.put_u64(self.store_id);
        bytes.put_u64(self.epoch);
        bytes.put_u64(self.table.offset);
        bytes.put_u32(self.table.len);
        bytes.put_u32(0);
        bytes.put_u64(self.table.checksum);
        let log = &self.log;
        for word in [
            log.segment.offset,
            log.segment.len,
            log.number,
            log.start,
            log.position,
            log.chain,
            log.sequence,
        ] {
            bytes.put_u64(word);
        }
        for word in [self.signpost, self.token, self.fence] {
            bytes.put_u64(word);
        }
        bytes.resize(BLOCK as usize - 8, 0);
        let sum = crate::checksum::checksum(MAGIC, &bytes);
        bytes.put_u64(sum);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Copy {
        if bytes.iter().all(|&byte| byte == 0) {
            return Copy::Blank;
        }
        let Some((body, sum)) = bytes.split_last_chunk::<8>() else { return Copy::Damaged };
        if crate::checksum::checksum(MAGIC, body) != u64::from_le_bytes(*sum) {
            let mut fields = Decoder::new(body);
            return match (fields.u64(), fields.u32()) {
                (Ok(MAGIC), Ok(format)) if format > FORMAT => Copy::PerhapsNewer(format),
                _ => Copy::Damaged,
            };
        }
        Self::decode_fields(&mut Decoder::new(body)).unwrap_or(Copy::Damaged)
    }

    fn decode_fields(fields: &mut Decoder<'_>) -> Result<Copy, Malformed> {
        if fields.u64()? != MAGIC {
            return Err(Malformed);
        }
        let format = fields.u32()?;
        let clean = fields.u32()? & FLAG_CLEAN != 0;
        let (features, features_to_write, _optional) = (fields.u64()?, fields.u64()?, fields.u64()?);
        if format > FORMAT {
            return Ok(Copy::Newer(format));
        }
        if let Some(bit) = lowest_bit(features & !KNOWN_TO_READ) {
            return Ok(Copy::NewerFeature(bit));
        }
        let (store_id, epoch) = (fields.u64()?, fields.u64()?);
        let (offset, len, _zero, checksum) = (fields.u64()?, fields.u32()?, fields.u32()?, fields.u64()?);
        let table = PageRef { offset, len, checksum, birth: epoch };
        let log = LogPoint {
            segment: Extent { offset: fields.u64()?, len: fields.u64()? },
            number: fields.u64()?,
            start: fields.u64()?,
            position: fields.u64()?,
            chain: fields.u64()?,
            sequence: fields.u64()?,
        };
        let (signpost, token, fence) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let places = [log.segment.offset, log.segment.len, log.number, log.start, log.position, log.sequence];
        let is_sane = places.iter().chain(&[epoch, offset, signpost, fence]).all(|&word| word < WORD_END);
        if !is_sane
            || log.segment.offset < DATA_START
            || !(log.start..=log.start + log.segment.len).contains(&log.position)
            || (token == 0) != (fence == 0)
            || (fence != 0 && fence < DATA_START)
        {
            return Err(Malformed);
        }
        let found =
            Self { store_id, epoch, features, features_to_write, clean, table, log, signpost, token, fence };
        Ok(Copy::Intact(found))
    }

    /// Of two superblocks in one file, the newer one has the greater order.
    pub(crate) const fn order(&self) -> (u64, u64) {
        (self.token, self.epoch)
    }

    pub(crate) const fn ownership(&self) -> Ownership {
        Ownership { token: self.token, fence: self.fence }
    }

    /// The lowest bit of the features that a build must know to write to the store and that this one does not
    /// know.
    pub(crate) const fn unknown_to_write(&self) -> Option<u32> {
        lowest_bit(self.features_to_write & !KNOWN_TO_WRITE)
    }

    /// Whether the bytes look like a superblock, intact or not.
    pub(crate) fn looks_like_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC.to_le_bytes())
    }
}

/// Number of the lowest bit that is set.
const fn lowest_bit(bits: u64) -> Option<u32> {
    if bits == 0 { None } else { Some(bits.trailing_zeros()) }
}

/// A tree as a commit records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) root: Home,
    pub(crate) records: u64,
    pub(crate) is_counted: bool,
}

/// A named snapshot as a commit records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotEntry {
    pub(crate) name: String,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) trees: Vec<TreeEntry>,
}

/// Everything a commit names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) trees: Vec<TreeEntry>,
    pub(crate) snapshots: Vec<SnapshotEntry>,
    pub(crate) segments: Vec<SegmentUse>,
    pub(crate) end: u64,
    pub(crate) free: Vec<Extent>,
    pub(crate) retired: Vec<Retired>,
}

impl Table {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_trees(&self.trees, &mut bytes);
        bytes.put_varint(self.snapshots.len() as u64);
        for snapshot in &self.snapshots {
            bytes.put_bytes(snapshot.name.as_bytes());
            bytes.put_varint(snapshot.epoch);
            bytes.put_varint(snapshot.sequence);
            encode_trees(&snapshot.trees, &mut bytes);
        }
        bytes.put_varint(self.segments.len() as u64);
        for segment in &self.segments {
            for word in [segment.extent.offset, segment.extent.len, segment.number, segment.live] {
                bytes.put_varint(word);
            }
        }
        bytes.put_varint(self.end);
        bytes.put_varint(self.free.len() as u64);
        for extent in &self.free {
            bytes.put_varint(extent.offset);
            bytes.put_varint(extent.len);
        }
        bytes.put_varint(self.retired.len() as u64);
        for retired in &self.retired {
            for word in [retired.offset, retired.len, retired.birth, retired.death] {
                bytes.put_varint(word);
            }
        }
        self.encode_uncounted(&mut bytes);
        bytes
    }

    /// The retired items, except entries that overlap free space or one another: no store writes such
    /// entries, and freeing them would give away space in use. For values in log segments there are only
    /// sums.
    pub(crate) fn retired_apart(&self) -> Vec<Retired> {
        let extent_of = |retired: &Retired| Extent::in_units(retired.offset, retired.len);
        let is_free = |extent: &Extent| {
            let after = self.free.partition_point(|free| free.offset < extent.end());
            after.checked_sub(1).is_some_and(|last| self.free[last].end() > extent.offset)
        };
        let is_in_segment = |retired: &Retired| segment_at(&self.segments, retired.offset).is_some();
        let (mut all, mut outside): (Vec<_>, Vec<_>) =
            self.retired.iter().copied().partition(|retired| is_in_segment(retired));
        outside.sort_by_key(|retired| retired.offset);
        let mut ended = 0;
        outside.retain(|retired| {
            let extent = extent_of(retired);
            let is_apart = extent.offset >= ended && extent.end() <= self.end && !is_free(&extent);
            ended = if is_apart { extent.end() } else { ended };
            is_apart
        });
        all.append(&mut outside);
        all
    }

    /// Whether any tree is uncounted.
    pub(crate) fn has_uncounted(&self) -> bool {
        let in_snapshots = self.snapshots.iter().flat_map(|snapshot| &snapshot.trees);
        self.trees.iter().chain(in_snapshots).any(|tree| !tree.is_counted)
    }

    /// Encodes the indices of uncounted trees among all trees encoded before; nothing where there are none,
    /// as in tables of older builds.
    fn encode_uncounted(&self, bytes: &mut Vec<u8>) {
        let in_snapshots = self.snapshots.iter().flat_map(|snapshot| &snapshot.trees);
        let all = self.trees.iter().chain(in_snapshots).enumerate();
        let uncounted: Vec<usize> = all.filter(|(_, tree)| !tree.is_counted).map(|(at, _)| at).collect();
        if !uncounted.is_empty() {
            bytes.put_varint(uncounted.len() as u64);
            uncounted.iter().for_each(|&at| bytes.put_varint(at as u64));
        }
    }

    fn decode_uncounted(&mut self, fields: &mut Decoder<'_>) -> Result<(), Malformed> {
        if fields.is_at_end() {
            return Ok(());
        }
        let in_snapshots = self.snapshots.iter_mut().flat_map(|snapshot| &mut snapshot.trees);
        let mut all: Vec<&mut TreeEntry> = self.trees.iter_mut().chain(in_snapshots).collect();
        for _ in 0..fields.count(1)? {
            let at = usize::try_from(fields.varint()?).map_err(|_| Malformed)?;
            all.get_mut(at).ok_or(Malformed)?.is_counted = false;
        }
        Ok(())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Decoder::new(bytes);
        let trees = decode_trees(&mut fields)?;
        let mut snapshots = Vec::new();
        for _ in 0..fields.count(4)? {
            snapshots.push(SnapshotEntry {
                name: text(fields.bytes()?)?,
                epoch: fields.word()?,
                sequence: fields.word()?,
                trees: decode_trees(&mut fields)?,
            });
        }
        let mut segments = Vec::new();
        for _ in 0..fields.count(4)? {
            let extent = Extent { offset: fields.word()?, len: fields.word()? };
            segments.push(SegmentUse { extent, number: fields.word()?, live: fields.word()? });
        }
        let end = fields.word()?;
        let mut free = Vec::new();
        for _ in 0..fields.count(2)? {
            free.push(Extent { offset: fields.word()?, len: fields.word()? });
        }
        let extents = segments.iter().map(|segment| &segment.extent);
        if segments.iter().any(|segment| segment.extent.len == 0)
            || !are_apart(extents, end)
            || !are_apart(&free, end)
        {
            return Err(Malformed);
        }
        let mut retired = Vec::new();
        for _ in 0..fields.count(4)? {
            let (offset, len) = (fields.word()?, fields.word()?);
            retired.push(Retired { offset, len, birth: fields.word()?, death: fields.word()? });
        }
        let mut table = Self { trees, snapshots, segments, end, free, retired };
        table.decode_uncounted(&mut fields)?;
        // Zeros fill the table's extent, so that the table's length says how much space it takes.
        if fields.rest().iter().all(|&byte| byte == 0) { Ok(table) } else { Err(Malformed) }
    }
}

fn encode_trees(trees: &[TreeEntry], bytes: &mut Vec<u8>) {
    bytes.put_varint(trees.len() as u64);
    for tree in trees {
        bytes.put_varint(u64::from(tree.id));
        bytes.put_bytes(tree.name.as_bytes());
        encode_home(&tree.root, bytes);
        bytes.put_varint(tree.records);
    }
}

fn decode_trees(fields: &mut Decoder<'_>) -> Result<Vec<TreeEntry>, Malformed> {
    let mut trees = Vec::new();
    for _ in 0..fields.count(14)? {
        trees.push(TreeEntry {
            id: u32::try_from(fields.varint()?).map_err(|_| Malformed)?,
            name: text(fields.bytes()?)?,
            root: decode_home(fields)?,
            records: fields.varint()?,
            is_counted: true,
        });
    }
    // Trees are looked up by number.
    let are_in_order = trees.iter().zip(0..).all(|(tree, id)| tree.id == id);
    if are_in_order { Ok(trees) } else { Err(Malformed) }
}

/// Whether extents ascend without overlap, and none lies among the superblocks or beyond the end of the file.
fn are_apart<'e>(extents: impl IntoIterator<Item = &'e Extent>, end: u64) -> bool {
    let mut free_from = DATA_START;
    extents.into_iter().all(|extent| {
        let follows = extent.offset >= free_from && extent.end() <= end;
        free_from = extent.end();
        follows
    })
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        let log = LogPoint {
            segment: Extent { offset: 8192, len: 65536 },
            number: 3,
            start: 1000,
            position: 1064,
            chain: 77,
            sequence: 12,
        };
        let table = PageRef { offset: 90112, len: 300, checksum: 5, birth: 9 };
        Superblock {
            store_id: 42,
            epoch: 9,
            features: MOVED_RANGES,
            features_to_write: 0,
            clean: true,
            table,
            log,
            signpost: 81920,
            token: 7,
            fence: 86016,
        }
    }

    #[test]
    fn a_superblock_round_trips() {
        assert_eq!(Superblock::decode(&sample().encode()), Copy::Intact(sample()));
        assert_eq!(Superblock::decode(&[0; 4096]), Copy::Blank);
    }

    #[test]
    fn any_flipped_bit_is_seen() {
        let intact = sample().encode();
        for bit in 0..intact.len() * 8 {
            let mut bytes = intact.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = Superblock::decode(&bytes);
            assert!(matches!(found, Copy::Damaged | Copy::PerhapsNewer(_)), "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn the_lowest_feature_that_this_build_does_not_know_is_told() {
        // Two bits that nobody knows: needed to read, needed to write, and optional ones, which are ignored.
        let bits: u64 = (1 << 41) | (1 << 62);
        let found = |offset: usize| {
            let mut bytes = sample().encode();
            let known = u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
            bytes[offset..offset + 8].copy_from_slice(&(known | bits).to_le_bytes());
            let sum = crate::checksum::checksum(MAGIC, &bytes[..4088]);
            bytes[4088..].copy_from_slice(&sum.to_le_bytes());
            Superblock::decode(&bytes)
        };
        assert_eq!(found(16), Copy::NewerFeature(41));
        let to_write = Superblock { features_to_write: bits, ..sample() };
        assert_eq!((found(24), to_write.unknown_to_write()), (Copy::Intact(to_write), Some(41)));
        assert_eq!((found(32), sample().unknown_to_write()), (Copy::Intact(sample()), None));
    }

    #[test]
    fn uncounted_trees_are_told_apart_also_in_snapshots() {
        let tree = |id, is_counted| TreeEntry {
            id,
            name: format!("tree {id}"),
            root: Home::from(PageRef { offset: 4096, len: 9, checksum: 3, birth: 1 }),
            records: u64::MAX,
            is_counted,
        };
        let snapshot = SnapshotEntry {
            name: "s".to_owned(),
            epoch: 3,
            sequence: 4,
            trees: vec![tree(0, true), tree(1, false)],
        };
        for trees in [vec![tree(0, true), tree(1, false), tree(2, true)], vec![tree(0, true)], Vec::new()] {
            let table = Table { trees, snapshots: vec![snapshot.clone()], end: 8192, ..Table::default() };
            let mut bytes = table.encode();
            assert_eq!(Table::decode(&bytes), Ok(table.clone()));
            bytes.resize(4096, 0);
            assert_eq!(Table::decode(&bytes), Ok(table));
        }
    }

    #[test]
    fn nothing_lies_where_superblocks_do() {
        let with_log_at = |offset| {
            let log = LogPoint { segment: Extent { offset, len: 65536 }, ..sample().log };
            Superblock { log, ..sample() }.encode()
        };
        assert!(matches!(Superblock::decode(&with_log_at(DATA_START)), Copy::Intact(_)));
        for offset in [0, 64, DATA_START - 1] {
            assert_eq!(Superblock::decode(&with_log_at(offset)), Copy::Damaged, "{offset}");
        }
        for (offset, is_refused) in [(0, true), (DATA_START - 64, true), (DATA_START, false)] {
            let extent = Extent { offset, len: 4096 };
            let segment = SegmentUse { extent, number: 1, live: 5 };
            let free = Table { free: vec![extent], end: 1 << 20, ..Table::default() };
            let used = Table { segments: vec![segment], end: 1 << 20, ..Table::default() };
            for table in [free, used] {
                assert_eq!(Table::decode(&table.encode()).is_err(), is_refused, "{table:?}");
            }
        }
    }

    #[test]
    fn a_token_and_a_fence_come_together_and_the_fence_lies_behind_the_superblocks() {
        let with = |token, fence| Superblock::decode(&Superblock { token, fence, ..sample() }.encode());
        assert!(matches!(with(0, 0), Copy::Intact(_)) && matches!(with(1, DATA_START), Copy::Intact(_)));
        for (token, fence) in [(0, 86016), (7, 0), (7, 4096), (7, WORD_END)] {
            assert_eq!(with(token, fence), Copy::Damaged, "{token} {fence}");
        }
    }

    #[test]
    fn a_newer_format_says_so() {
        let mut bytes = sample().encode();
        bytes[8] = 9;
        let sum = crate::checksum::checksum(MAGIC, &bytes[..4088]);
        bytes[4088..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Superblock::decode(&bytes), Copy::Newer(9));
    }
}

//! Planning: chooses the blocks and trees that become one tree next.
//!
//! A tree is the result of one pack: all of its objects were first named by the same version. Trees have size
//! classes, each [`PackOptions::fan`] times the one before. The blocks become a tree once they have enough
//! rows; all trees of its size class and below are merged with it as soon as there are enough of them. In a
//! table at rest, a tree is rewritten once that many deletes strike it.
//!
//! Invariant: carrying out a plan changes what the next plan sees, so planning terminates.

use super::PackOptions;
use crate::TableSchema;
use crate::cube::bytes_beside_row;
use crate::protocol::{Form, Manifest, Placed, Version};
use crate::table::ledger::PART_BYTES_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// Assumed bytes per row where the size is unknown.
const ROW_BYTES: u64 = 48;

/// Maximum number of blocks and pieces of trees that one tree is made from. An edit names each of them in
/// about a hundred bytes, so this is less than half of the 8 MiB that a batch may have.
const PIECES_MAX: usize = 1 << 15;

/// Bytes of an edit for each piece that it names, with some to spare.
const PIECE_BYTES: usize = 160;

/// A pack may take this many times the bytes of the rows that it counts.
const MEMORY_TIMES: u64 = 4;

/// Limits of one tree that the options do not set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    /// Bytes that a row in memory counts, at least.
    row_bytes: u64,
    /// Pieces that an edit may name.
    pieces_max: usize,
}

impl Bounds {
    /// The limits for rows of a table in a store whose batches have at most `batch_bytes`.
    pub(super) fn new(schema: &TableSchema, batch_bytes: usize) -> Self {
        Self::of(schema.row_bytes(), schema.index().len(), batch_bytes)
    }

    /// The limits for rows with so many bytes of numbers and so many index columns. An edit leaves room in
    /// its batch for a part of a whole manifest.
    fn of(row_bytes: u64, index_columns: usize, batch_bytes: usize) -> Self {
        // Beside narrow rows, a growing tree keeps more bytes than they have themselves.
        let grown = row_bytes.saturating_add(bytes_beside_row(index_columns));
        let row_bytes = row_bytes.max(grown.div_ceil(MEMORY_TIMES));
        let pieces = batch_bytes.saturating_sub(PART_BYTES_MAX) / PIECE_BYTES;
        Self { row_bytes, pieces_max: pieces.clamp(1, PIECES_MAX) }
    }
}

/// What one call may pack: the table as it was when the call began, and the trees that it made since.
/// Otherwise packing would never end while others keep writing, loading or deleting.
#[derive(Clone, Debug)]
pub(super) struct Horizon {
    up_to: Version,
    made: BTreeSet<Version>,
}

impl Horizon {
    /// The horizon of a call that begins at a version.
    pub(super) const fn at(up_to: Version) -> Self {
        Self { up_to, made: BTreeSet::new() }
    }

    /// Notes that the call made this version.
    pub(super) fn made(&mut self, version: Version) {
        self.made.insert(version);
    }

    fn has(&self, placed: &Placed) -> bool {
        placed.born <= self.up_to || self.made.contains(&placed.born)
    }
}

fn is_block(placed: &Placed) -> bool {
    placed.piece.form == Form::Block
}

/// Approximate size of a piece in bytes, packed or unpacked, whichever is more, with `row_bytes` for a row in
/// memory: values that are all equal, or null, take no space until they are unpacked.
fn bytes_of(placed: &Placed, row_bytes: u64) -> u64 {
    let piece = &placed.piece;
    let packed = if piece.bytes > 0 { piece.bytes } else { piece.rows.saturating_mul(ROW_BYTES) };
    packed.max(piece.rows.saturating_mul(row_bytes))
}

/// Pieces that are packed into one tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) pieces: Vec<Placed>,
    rows: u64,
    bytes: u64,
    trees: usize,
    bounds: Bounds,
    /// Bytes of the objects of the blocks that are packed after it.
    bytes_after: u64,
}

impl Group {
    fn within(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of its objects.
    pub(super) fn bytes_of_objects(&self) -> u64 {
        stored(self.pieces.iter())
    }

    /// Bytes of the objects of the blocks that are packed after it, as far as is known.
    pub(super) const fn bytes_after(&self) -> u64 {
        self.bytes_after
    }

    fn add(&mut self, pieces: &[Placed]) {
        let rows = pieces.iter().map(|placed| placed.piece.rows);
        self.rows = rows.fold(self.rows, u64::saturating_add);
        let bytes = pieces.iter().map(|placed| bytes_of(placed, self.bounds.row_bytes));
        self.bytes = bytes.fold(self.bytes, u64::saturating_add);
        self.pieces.extend_from_slice(pieces);
    }

    /// Whether a tree may be added: everything must fit in one tree, and be named by one edit.
    fn has_room_for(&self, tree: &ExistingTree, options: &PackOptions) -> bool {
        let (bytes, pieces) = (self.bytes.saturating_add(tree.bytes), self.pieces.len() + tree.pieces.len());
        bytes <= options.tree_bytes_max && pieces <= self.bounds.pieces_max
    }

    fn add_tree(&mut self, tree: &ExistingTree) {
        self.add(&tree.pieces);
        self.trees += 1;
    }
}

/// A tree in a version.
struct ExistingTree {
    pieces: Vec<Placed>,
    rows: u64,
    bytes: u64,
    /// How many deletes and superseding steps may strike rows of one of its pieces, at most.
    strikes: usize,
}

impl ExistingTree {
    const fn is_struck(&self) -> bool {
        self.strikes > 0
    }
}

/// Bytes of the objects of these pieces.
fn stored<'p>(pieces: impl Iterator<Item = &'p Placed>) -> u64 {
    pieces.map(|placed| bytes_of(placed, 0)).fold(0, u64::saturating_add)
}

/// The next group to pack, or `None` if nothing is worth packing.
pub(super) fn next(
    manifest: &Manifest,
    horizon: &Horizon,
    bounds: Bounds,
    options: &PackOptions,
) -> Option<Group> {
    let (blocks, mut trees) = sort(manifest, horizon, bounds.row_bytes);
    trees.sort_by_key(|tree| tree.rows);
    let mut group = blocks_of(&blocks, bounds, options.tree_bytes_max);
    let is_cut = group.pieces.len() < blocks.len();
    if is_cut {
        // A tree of blocks alone, of maximum size; the other blocks come next.
        group.bytes_after = packed_after(&blocks[group.pieces.len()..], bounds, options);
        return Some(group);
    }
    match (options.is_whole, options.is_settling) {
        (true, _) => whole(group, &trees, options),
        (false, true) => settle(group, &trees, options).or_else(|| often_struck(&trees, bounds, options)),
        (false, false) => merge(&mut group, &trees, options),
    }
}

/// The blocks within the horizon, in the order of their steps, and the trees.
fn sort(manifest: &Manifest, horizon: &Horizon, row_bytes: u64) -> (Vec<Placed>, Vec<ExistingTree>) {
    let up_to = horizon.up_to;
    let mut blocks = Vec::new();
    let mut trees: BTreeMap<Version, ExistingTree> = BTreeMap::new();
    for placed in manifest.pieces.values().filter(|placed| horizon.has(placed)) {
        if is_block(placed) {
            blocks.push(placed.clone());
            continue;
        }
        let none = || ExistingTree { pieces: Vec::new(), rows: 0, bytes: 0, strikes: 0 };
        let tree = trees.entry(placed.born).or_insert_with(none);
        tree.rows = tree.rows.saturating_add(placed.piece.rows);
        tree.bytes = tree.bytes.saturating_add(bytes_of(placed, row_bytes));
        // A tree that was there is considered whenever it was struck: an equal delete may have replaced an
        // earlier one since. It is packed once; what becomes of it is not considered again.
        let was_there = placed.born <= up_to;
        let strikes = manifest.tombstones_of(placed).filter(|it| was_there || it.version <= up_to).count();
        tree.strikes = tree.strikes.max(strikes);
        tree.pieces.push(placed.clone());
    }
    blocks.sort_by(|left, right| {
        let key = |placed: &Placed| (placed.piece.extent.steps.from, placed.born, placed.piece.object);
        key(left).cmp(&key(right))
    });
    (blocks, trees.into_values().collect())
}

/// The first blocks, as many as fit in one tree.
fn blocks_of(blocks: &[Placed], bounds: Bounds, bytes_max: u64) -> Group {
    let mut group = Group::within(bounds);
    group.add(&blocks[..count_for_tree(blocks, bounds, bytes_max)]);
    group
}

/// How many of the first blocks fit in one tree, but at least one if there are any.
fn count_for_tree(blocks: &[Placed], bounds: Bounds, bytes_max: u64) -> usize {
    let mut total = 0_u64;
    let fits = |placed: &&Placed| {
        total = total.saturating_add(bytes_of(placed, bounds.row_bytes));
        total <= bytes_max
    };
    blocks.iter().take(bounds.pieces_max).take_while(fits).count().max(1).min(blocks.len())
}

/// Bytes of the objects of those blocks that later groups take, which is all of them, unless the last ones
/// have too few rows to be worth it.
fn packed_after(mut blocks: &[Placed], bounds: Bounds, options: &PackOptions) -> u64 {
    let takes_all = options.is_whole || options.is_settling;
    let mut bytes = 0_u64;
    while !blocks.is_empty() {
        let (next, later) = blocks.split_at(count_for_tree(blocks, bounds, options.tree_bytes_max));
        let rows = next.iter().map(|placed| placed.piece.rows).fold(0, u64::saturating_add);
        if later.is_empty() && rows < options.rows_min && !takes_all {
            break;
        }
        bytes = bytes.saturating_add(stored(next.iter()));
        blocks = later;
    }
    bytes
}

/// All blocks and as many trees, smallest first, as fit in one tree.
fn whole(mut group: Group, trees: &[ExistingTree], options: &PackOptions) -> Option<Group> {
    let mut is_struck = false;
    for tree in trees {
        if !group.has_room_for(tree, options) && !group.pieces.is_empty() {
            break;
        }
        is_struck |= tree.is_struck();
        group.add_tree(tree);
    }
    let has_blocks = group.pieces.iter().any(is_block);
    if has_blocks || group.trees > 1 || is_struck {
        return Some(group);
    }
    Some(alone(trees.iter().find(|tree| tree.is_struck())?, group.bounds))
}

/// A tree that is packed by itself.
fn alone(tree: &ExistingTree, bounds: Bounds) -> Group {
    let mut group = Group::within(bounds);
    group.add_tree(tree);
    group
}

/// The blocks, once they have enough rows, and the trees that are due to be merged with them.
fn merge(group: &mut Group, trees: &[ExistingTree], options: &PackOptions) -> Option<Group> {
    if group.pieces.is_empty() || group.rows < options.rows_min {
        return None;
    }
    let mut left = trees;
    loop {
        let size = size_of(group.rows, options);
        let meant = left.iter().take_while(|tree| size_of(tree.rows, options) <= size).count();
        let (mut pieces, mut bytes, pieces_max) = (group.pieces.len(), group.bytes, group.bounds.pieces_max);
        let fits = |tree: &&ExistingTree| {
            pieces += tree.pieces.len();
            bytes = bytes.saturating_add(tree.bytes);
            pieces <= pieces_max && bytes <= options.tree_bytes_max
        };
        let count = left[..meant].iter().take_while(fits).count();
        let (now, larger) = left.split_at(count);
        // The group itself counts as one of the fan.
        if count + 1 < options.fan {
            return Some(std::mem::take(group));
        }
        now.iter().for_each(|tree| group.add_tree(tree));
        if count < meant {
            return Some(std::mem::take(group));
        }
        left = larger;
    }
}

/// All blocks and, smallest first, each tree that is at most `fan` times as large as the group so far. So a
/// row is rewritten only if what it lies in grows by a good part, however often a table comes to rest.
fn settle(mut group: Group, trees: &[ExistingTree], options: &PackOptions) -> Option<Group> {
    for tree in trees {
        let is_small = tree.rows <= group.rows.saturating_mul(options.fan as u64);
        // Without blocks, the smallest tree may start the group.
        let begins = group.pieces.is_empty();
        if !(begins || is_small) || !group.has_room_for(tree, options) {
            break;
        }
        group.add_tree(tree);
    }
    (group.pieces.iter().any(is_block) || group.trees > 1).then_some(group)
}

/// The smallest tree that [`PackOptions::fan`] or more deletes strike. Each costs every reader of the tree
/// one more condition, and packing costs all of its rows, so as many deletes share one pack. Trees that take
/// more memory than a pack may have are left to those who ask for a whole pack.
fn often_struck(trees: &[ExistingTree], bounds: Bounds, options: &PackOptions) -> Option<Group> {
    let empty = Group::within(bounds);
    let is_due = |tree: &&ExistingTree| tree.strikes >= options.fan && empty.has_room_for(tree, options);
    Some(alone(trees.iter().find(is_due)?, bounds))
}

/// The size class of a tree: 0 below `rows_min * fan` rows, and one more for each further factor of `fan`.
fn size_of(rows: u64, options: &PackOptions) -> u32 {
    (rows / options.rows_min.max(1)).checked_ilog(options.fan as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roles;
    use crate::protocol::{
        BlockId, Edit, EditId, Extent, LastStep, ObjectId, Piece, Removal, Scope, SessionId, StepRange,
        WeightRange,
    };
    use crate::table::codec;
    use arrow_schema::{DataType, Schema};
    use atoll_store::Limits;

    const ME: SessionId = SessionId(u128::MAX);

    /// `count` steps, each of one block with one row.
    fn small_blocks(count: u64) -> Manifest {
        let piece = |step| Piece {
            object: ObjectId { session: ME, sequence: step },
            part: 0,
            form: Form::Block,
            weights: WeightRange::ALL,
            rows: 1,
            bytes: 100,
            front_bytes: 50,
            extent: Extent { run: Some("a".into()), steps: StepRange::only(step) },
            tight: None,
        };
        let block = |step| crate::protocol::Block {
            id: BlockId { run: "a".into(), attempt: 1, step, rank: 0 },
            time: None,
            piece: Some(piece(step)),
        };
        let begin = Edit::Begin { run: "a".into(), attempt: 1, ranks: 1, last: LastStep::Any };
        let append = Edit::Append { blocks: (0..count).map(block).collect() };
        Manifest::default().applied(&begin).unwrap().applied(&append).unwrap()
    }

    /// With four index columns, in a store with the limits of the contract.
    fn bounds(row_bytes: u64) -> Bounds {
        Bounds::of(row_bytes, 4, Limits::CONTRACT.batch_bytes)
    }

    fn next(manifest: &Manifest, up_to: Version, row_bytes: u64, options: &PackOptions) -> Option<Group> {
        super::next(manifest, &Horizon::at(up_to), bounds(row_bytes), options)
    }

    fn removals(group: &Group) -> Vec<Removal> {
        let removal = |placed: &Placed| Removal {
            object: placed.piece.object,
            part: placed.piece.part,
            weights: placed.piece.weights,
            rows: placed.piece.rows,
        };
        group.pieces.iter().map(removal).collect()
    }

    /// The result of packing a group, as a tree of one object with this number.
    fn packed(manifest: &Manifest, group: &Group, number: u64) -> Manifest {
        let first = group.pieces[0].piece.clone();
        let object = ObjectId { session: ME, sequence: number };
        let piece = Piece { object, form: Form::Cube, rows: group.rows(), ..first };
        let extent = Extent { run: Some("a".into()), steps: StepRange::ALL };
        let add = vec![Piece { extent, ..piece }];
        let edit = Edit::Pack { base: manifest.version, remove: removals(group), add, dropped: 0 };
        manifest.clone().applied(&edit).unwrap()
    }

    /// The manifest after a delete with a condition that may hold for any row.
    fn struck(manifest: &Manifest) -> Manifest {
        struck_where(manifest, "x > 1")
    }

    fn struck_where(manifest: &Manifest, condition: &str) -> Manifest {
        let scope = Scope { run: None, steps: StepRange::ALL, expression: Some(condition.into()) };
        manifest.clone().applied(&Edit::Delete { scope }).unwrap()
    }

    #[test]
    fn a_pack_of_everything_ends_however_often_somebody_deletes_meanwhile() {
        let mut manifest = small_blocks(10);
        let group = next(&manifest, manifest.version, 8, &PackOptions::whole()).unwrap();
        manifest = struck(&packed(&manifest, &group, 1000));
        let (mut horizon, mut packs) = (Horizon::at(manifest.version), 0);
        while let Some(group) = super::next(&manifest, &horizon, bounds(8), &PackOptions::whole()) {
            packs += 1;
            assert!(packs < 5, "it goes on with what was deleted since it began");
            manifest = packed(&manifest, &group, 1000 + packs);
            horizon.made(manifest.version);
            manifest = struck(&manifest);
        }
        assert_eq!(packs, 1, "what was deleted before is packed");
        assert!(
            next(&manifest, manifest.version, 8, &PackOptions::whole()).is_some(),
            "the next one takes the rest"
        );
    }

    /// The manifest after another process has loaded a tree of ten rows, with this number.
    fn loaded(manifest: &Manifest, number: u64) -> Manifest {
        let mut next = manifest.clone();
        next.version = next.version.next();
        let mut placed = manifest.pieces.values().next().unwrap().clone();
        placed.piece.object = ObjectId { session: ME, sequence: number };
        (placed.piece.form, placed.piece.rows) = (Form::Cube, 10);
        (placed.born, placed.clean_to) = (next.version, next.version);
        next.pieces.insert(placed.piece.key(), placed);
        next
    }

    #[test]
    fn a_pack_ends_however_many_trees_somebody_loads_meanwhile() {
        let settling = PackOptions { is_settling: true, ..PackOptions::default() };
        for options in [PackOptions::whole(), settling] {
            let mut manifest = small_blocks(10);
            let (mut horizon, mut packs) = (Horizon::at(manifest.version), 0);
            while let Some(group) = super::next(&manifest, &horizon, bounds(8), &options) {
                packs += 1;
                assert!(packs < 5, "it goes on with what was loaded since it began");
                manifest = packed(&manifest, &group, 1000 + packs);
                horizon.made(manifest.version);
                manifest = loaded(&manifest, 2000 + packs);
            }
            assert_eq!(packs, 1);
            assert_eq!(sort(&manifest, &horizon, 8).1.len(), 1, "its own tree, and not the other one");
            let all = next(&manifest, manifest.version, 8, &options).unwrap();
            assert_eq!(all.trees, 2, "the next call takes both");
        }
    }

    #[test]
    fn an_equal_delete_meanwhile_does_not_hide_one_that_was_there_before() {
        let blocks = small_blocks(10);
        let group = next(&blocks, blocks.version, 8, &PackOptions::whole()).unwrap();
        let deleted = struck(&packed(&blocks, &group, 1000));
        let later = struck(&deleted);
        assert_eq!(later.tombstones.len(), 1);
        assert!(next(&later, deleted.version, 8, &PackOptions::whole()).is_some());
    }

    #[test]
    fn a_tree_at_rest_is_rewritten_once_so_many_deletes_strike_it_and_then_rests() {
        let settling = PackOptions { is_settling: true, ..PackOptions::default() };
        let plan = |manifest: &Manifest| next(manifest, manifest.version, 8, &settling);
        let blocks = small_blocks(10);
        let mut manifest = packed(&blocks, &plan(&blocks).unwrap(), 1000);
        for number in 0..settling.fan {
            assert!(plan(&manifest).is_none(), "after {number} deletes");
            let condition = format!("x > {number}");
            // Said twice, it is still one.
            manifest = struck_where(&struck_where(&manifest, &condition), &condition);
        }
        let group = plan(&manifest).unwrap();
        assert_eq!((group.trees, group.pieces.len()), (1, 1));
        // A tree that takes more memory than a pack may have stays as it is.
        let small = PackOptions { tree_bytes_max: group.bytes - 1, ..settling };
        assert!(next(&manifest, manifest.version, 8, &small).is_none());
        let clean = packed(&manifest, &group, 1001);
        assert!(clean.tombstones.is_empty() && plan(&clean).is_none());
        // Nor does it go on with what is deleted while it packs.
        let mut horizon = Horizon::at(manifest.version);
        horizon.made(clean.version);
        let busy = (0..10).fold(clean, |clean, number| struck_where(&clean, &format!("y > {number}")));
        assert!(super::next(&busy, &horizon, bounds(8), &settling).is_none());
    }

    #[test]
    fn the_edit_of_a_pack_fits_into_a_batch_however_many_small_blocks_there_are() {
        let manifest = small_blocks(100_000);
        let group = next(&manifest, manifest.version, 8, &PackOptions::whole()).unwrap();
        let edit =
            Edit::Pack { base: manifest.version, remove: removals(&group), add: Vec::new(), dropped: 0 };
        let bytes = codec::edit_to_json(EditId { session: ME, sequence: 1 }, &edit).len();
        // Half of a batch is left for a part of a whole manifest and for the added pieces.
        assert!(bytes <= 4 << 20, "{bytes} bytes");
        assert!(group.pieces.len() > 10_000, "{}", group.pieces.len());
    }

    #[test]
    fn nor_is_it_too_long_for_a_store_that_takes_smaller_batches() {
        let manifest = small_blocks(20_000);
        let batch_bytes = 2 << 20;
        let (horizon, bounds) = (Horizon::at(manifest.version), Bounds::of(8, 4, batch_bytes));
        let group = super::next(&manifest, &horizon, bounds, &PackOptions::whole()).unwrap();
        let edit =
            Edit::Pack { base: manifest.version, remove: removals(&group), add: Vec::new(), dropped: 0 };
        let bytes = codec::edit_to_json(EditId { session: ME, sequence: 1 }, &edit).len();
        assert!(bytes + PART_BYTES_MAX <= batch_bytes, "{bytes} bytes");
        assert!(group.pieces.len() > 5000, "{}", group.pieces.len());
    }

    #[test]
    fn rows_that_take_room_once_they_are_unpacked_are_not_all_in_one_tree() {
        let mut manifest = small_blocks(8);
        let mut pieces: Vec<Placed> = manifest.pieces.values().cloned().collect();
        pieces.iter_mut().for_each(|placed| placed.piece.rows = 1_000_000);
        let pieces_of = |pieces: &[Placed]| {
            let pairs = pieces.iter().map(|placed| (placed.piece.key(), placed.clone()));
            pairs.fold(Manifest::default().pieces, |mut pieces, (key, placed)| {
                pieces.insert(key, placed);
                pieces
            })
        };
        manifest.pieces = pieces_of(&pieces);
        let group = |manifest: &Manifest, row_bytes, options: &PackOptions| {
            next(manifest, manifest.version, row_bytes, options).unwrap().pieces.len()
        };
        let whole = PackOptions::whole();
        assert_eq!(group(&manifest, 8, &whole), 8);
        assert_eq!(group(&manifest, 160, &whole), 3, "each takes 160 MB");
        assert_eq!(group(&manifest, 16 << 10, &whole), 1, "one is always packed");
        for (version, placed) in (1..).zip(&mut pieces) {
            (placed.born, placed.piece.form) = (Version(version), Form::Cube);
        }
        manifest.pieces = pieces_of(&pieces);
        manifest.version = Version(8);
        let settling = PackOptions { is_settling: true, ..PackOptions::default() };
        for options in [whole, settling] {
            assert_eq!((group(&manifest, 8, &options), group(&manifest, 160, &options)), (8, 3));
            assert!(next(&manifest, Version(8), 16 << 10, &options).is_none(), "no two go together");
        }
    }

    #[test]
    fn narrow_rows_count_what_a_growing_tree_keeps_beside_them() {
        let mut manifest = small_blocks(40);
        let mut pieces: Vec<Placed> = manifest.pieces.values().cloned().collect();
        pieces.iter_mut().for_each(|placed| placed.piece.rows = 1_000_000);
        manifest.pieces = pieces.into_iter().map(|placed| (placed.piece.key(), placed)).collect();
        let options = PackOptions::whole();
        let memory = 4 * options.tree_bytes_max;
        for (index_columns, beside, rows) in [(1, 81, 23), (4, 81, 23), (5, 129, 15)] {
            let bounds = Bounds::of(8, index_columns, Limits::CONTRACT.batch_bytes);
            let group = super::next(&manifest, &Horizon::at(manifest.version), bounds, &options).unwrap();
            assert_eq!(group.rows, rows * 1_000_000, "with {index_columns} index columns");
            assert!(group.rows * (8 + beside) <= memory && (group.rows + 2_000_000) * (8 + beside) > memory);
        }
        // Wide rows count as they are.
        assert_eq!([32, 48, 200].map(|bytes| bounds(bytes).row_bytes), [32, 48, 200]);
    }

    #[test]
    fn truth_values_count_as_well() {
        let fields = (0..30).map(|number| crate::column(&format!("is_{number}"), DataType::Boolean, true));
        let id = crate::column("id", DataType::Int64, false);
        let columns = Schema::new(std::iter::once(id).chain(fields).collect::<Vec<_>>());
        let id = || vec!["id".to_owned()];
        let roles = Roles { id: id(), sample_key: Vec::new(), index: id(), salt: 0 };
        let schema = TableSchema::new(columns, &roles).unwrap();
        assert_eq!(Bounds::new(&schema, Limits::CONTRACT.batch_bytes).row_bytes, 38);
    }

    #[test]
    fn of_trees_that_are_too_much_for_one_as_many_merge_as_fit() {
        let blocks = small_blocks(13);
        let sized = |placed: &Placed, rows, bytes| {
            let mut placed = placed.clone();
            (placed.piece.rows, placed.piece.bytes) = (rows, bytes);
            placed
        };
        let mut pieces = blocks.pieces.values();
        let mut group = Group::within(bounds(48));
        group.add(&[sized(pieces.next().unwrap(), 1 << 19, 25 << 20)]);
        let tree = |placed| {
            let pieces = vec![sized(placed, 1_400_000, 64 << 20)];
            let bytes = bytes_of(&pieces[0], 48);
            ExistingTree { pieces, rows: 1_400_000, bytes, strikes: 0 }
        };
        let trees: Vec<ExistingTree> = pieces.map(tree).collect();
        let options = PackOptions::default();
        let merged = merge(&mut group, &trees, &options).unwrap();
        assert_eq!(merged.trees, 7);
        assert!(merged.bytes <= options.tree_bytes_max, "{} bytes", merged.bytes);
    }

    #[test]
    fn neither_do_many_small_trees_make_an_edit_that_is_too_long() {
        let mut manifest = small_blocks(70_000);
        // As if each had been loaded separately.
        let mut pieces: Vec<Placed> = manifest.pieces.values().cloned().collect();
        for (version, placed) in (1..).zip(&mut pieces) {
            placed.born = Version(version);
            placed.piece.form = Form::Cube;
        }
        manifest.pieces = Default::default();
        for placed in pieces {
            manifest.pieces.insert(placed.piece.key(), placed);
        }
        let settling = PackOptions { is_settling: true, ..PackOptions::default() };
        for options in [PackOptions::whole(), settling] {
            let group = next(&manifest, Version(70_000), 8, &options).unwrap();
            assert!((2..=PIECES_MAX).contains(&group.pieces.len()), "{}", group.pieces.len());
        }
        let (_, trees) = sort(&manifest, &Horizon::at(Version(70_000)), 8);
        let mut group = Group::within(bounds(8));
        group.add(&small_blocks(1).pieces.values().cloned().collect::<Vec<_>>());
        let often = PackOptions { rows_min: 1, ..PackOptions::default() };
        let merged = merge(&mut group, &trees, &often).unwrap();
        assert!((100..=PIECES_MAX).contains(&merged.pieces.len()), "{}", merged.pieces.len());
    }
}

//! Bulk load: sorted records become leaves directly, without passing through the log.
//!
//! Invariant: no commit after a load is in the log unless the load is committed on disk, or the log has a
//! group behind it that deletes what was loaded.
//! Invariant: when a load returns an error that is not unknown, no loss of power brings its records back.

use crate::EngineError;
use crate::backing::{Backing, Reading};
use crate::batch::{Action, Op};
use crate::commit::check_size;
use crate::engine::Tree;
use crate::forest::Forest;
use crate::frames::Purpose;
use crate::leaf::{Leaf, Record};
use crate::meter::Meter;
use crate::node::{FAN_OUT_MAX, Home, Inner, Node, PageRef, common_prefix};
use crate::retired::RetiredList;
use crate::slot::Slot;
use crate::value::{Chain, INLINE_BELOW, Piece, Stored, VALUE_MAX};
use crate::{Durability, KEY_MAX};
use atoll_buffer::Buffer;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of records to which a leaf is filled; the rest is left for later changes.
const FILL_BYTES: usize = 7000;

/// Records of a batch, where the tree is not empty and the load writes through the log.
const BATCH_RECORDS: usize = 1000;

impl Tree {
    /// Sets sorted, distinct keys, and returns their number. An empty tree is loaded past the log, and a
    /// checkpoint at the end makes all records durable at once.
    ///
    /// # Errors
    /// [`EngineError::NotSorted`], and those of a write. A tree that was empty then has nothing of the load,
    /// unless [`EngineError::is_unknown`]. While the checkpoint runs, readers may see records that go again
    /// if it fails.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, EngineError> {
        self.engine.shared.check_writable()?;
        if !self.is_empty()? {
            return self.load_in_batches(records);
        }
        let mut builder = Builder::new(self);
        for (index, (key, value)) in records.into_iter().enumerate() {
            builder.add(index as u64, key.as_ref(), value.as_ref())?;
        }
        let count = builder.count;
        let root = builder.finish();
        self.attach(root, count)?;
        Ok(count)
    }

    /// Puts the built tree in place and makes it durable, unless another writer changed the tree meanwhile.
    fn attach(&self, root: Slot, count: u64) -> Result<(), EngineError> {
        // The log does not have these records, so no commit may come between them and the checkpoint.
        let backing = &self.engine.shared.backing;
        let place = |forest: &mut Forest, retired: &mut RetiredList| {
            let death = forest.epoch + 1;
            let is_empty = forest.is_empty_tree(Some(self.id()), backing)?;
            match forest.trees.get_mut(self.id() as usize) {
                Some(state) if is_empty => {
                    let mut pages = Vec::new();
                    pages_below(&state.root, backing, &mut pages)?;
                    pages.into_iter().for_each(|page| retired.page(page, death));
                    state.root = root;
                    state.records.add(count);
                    Ok(())
                }
                _ => Err(EngineError::WrittenMeanwhile { tree: self.name().to_owned() }),
            }
        };
        // What later commits find is then the same, whether or not a crash keeps the records.
        let undo = Op { tree: self.id(), action: Action::DeleteRange(Bound::Unbounded, Bound::Unbounded) };
        self.engine.shared.checkpoint_with(place, &[undo]).map(|_| ())
    }

    fn load_in_batches<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64, EngineError> {
        let mut batch: Vec<(K, V)> = Vec::with_capacity(BATCH_RECORDS);
        let mut before: Option<K> = None;
        let mut count = 0;
        for record in records {
            let last = batch.last().map(|(key, _)| key).or(before.as_ref());
            if last.is_some_and(|last| last.as_ref() >= record.0.as_ref()) {
                return Err(EngineError::NotSorted { index: count });
            }
            batch.push(record);
            count += 1;
            if batch.len() == BATCH_RECORDS {
                self.put_many(&batch, Durability::Flushed)?;
                // Others may have changed these by now, so none of them is put again.
                before = batch.drain(..).next_back().map(|(key, _)| key);
            }
        }
        self.put_many(&batch, Durability::Synced)?;
        Ok(count)
    }
}

/// Collects the pages of a tree without records, which has nothing else on the disk.
fn pages_below(slot: &Slot, backing: &Backing, pages: &mut Vec<PageRef>) -> Result<(), EngineError> {
    pages.extend(slot.home().into_iter().flat_map(Home::pages));
    if let Node::Inner(inner) = slot.load(Reading::Along, backing)? {
        for child in &inner.children {
            pages_below(child, backing, pages)?;
        }
    }
    Ok(())
}

/// Builds leaves from left to right, and then the inner nodes above them.
struct Builder<'a> {
    tree: &'a Tree,
    epoch: u64,
    count: u64,
    /// Records of the leaf that is being filled.
    pending: Vec<(Vec<u8>, PendingValue)>,
    pending_bytes: usize,
    low: Option<Box<[u8]>>,
    leaves: Vec<(Option<Box<[u8]>>, Slot)>,
}

enum PendingValue {
    Inline(Vec<u8>),
    Chain(Chain),
}

impl PendingValue {
    fn stored(&self) -> Stored<'_> {
        match self {
            Self::Inline(bytes) => Stored::Inline(bytes),
            Self::Chain(chain) => Stored::Chain(chain),
        }
    }
}

impl<'a> Builder<'a> {
    fn new(tree: &'a Tree) -> Self {
        let epoch = tree.engine.shared.forest.read().epoch;
        Self { tree, epoch, count: 0, pending: Vec::new(), pending_bytes: 0, low: None, leaves: Vec::new() }
    }

    fn add(&mut self, index: u64, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        check_size("key", key.len() as u64, 1, KEY_MAX as u64)?;
        check_size("value", value.len() as u64, 0, VALUE_MAX)?;
        if self.pending.last().is_some_and(|(last, _)| last.as_slice() >= key) {
            return Err(EngineError::NotSorted { index });
        }
        let held = if value.len() < INLINE_BELOW {
            PendingValue::Inline(value.to_vec())
        } else {
            let backing = &self.tree.engine.shared.backing;
            PendingValue::Chain(Chain::One(Piece::waiting(Buffer::copy_from(value), self.epoch, backing)))
        };
        let bytes = Record { key: [key, &[]], fingerprint: 0, value: held.stored() }.memory(0);
        if self.pending_bytes + bytes > FILL_BYTES && !self.pending.is_empty() {
            self.end_leaf(Some(key));
        }
        self.pending.push((key.to_vec(), held));
        self.pending_bytes += bytes;
        self.count += 1;
        Ok(())
    }

    /// Ends the leaf that is being filled; `next` is the first key behind it.
    fn end_leaf(&mut self, next: Option<&[u8]>) {
        let high: Option<Box<[u8]>> = match (self.pending.last(), next) {
            (Some((last, _)), Some(next)) => Some(next[..common_prefix(last, next) + 1].into()),
            _ => None,
        };
        let prefix = match (&self.low, &high) {
            (Some(low), Some(high)) => &low[..common_prefix(low, high)],
            _ => &[],
        };
        let records: Vec<Record<'_>> = self
            .pending
            .iter()
            .map(|(key, held)| Record {
                key: [key, &[]],
                fingerprint: crate::checksum::key_hash(key),
                value: held.stored(),
            })
            .collect();
        let mut leaf = Leaf::build(prefix, self.epoch, &records, 0, Purpose::Writing);
        if let Some(fresh) = leaf.get_mut() {
            fresh.count_in(self.tree.engine.shared.backing.meter());
        }
        self.leaves.push((self.low.take(), Slot::resident(Node::Leaf(leaf))));
        self.low = high;
        self.pending.clear();
        self.pending_bytes = 0;
    }

    fn finish(mut self) -> Slot {
        self.end_leaf(None);
        let meter = self.tree.engine.shared.backing.meter();
        let mut level = self.leaves;
        while level.len() > 1 {
            let nodes = level.len().div_ceil(FAN_OUT_MAX * 3 / 4);
            let each = level.len().div_ceil(nodes);
            let mut above = Vec::with_capacity(nodes);
            let mut rest = level.into_iter().peekable();
            while rest.peek().is_some() {
                above.push(inner_of(rest.by_ref().take(each), self.epoch, meter));
            }
            level = above;
        }
        level.pop().map(|(_, slot)| slot).unwrap_or_default()
    }
}

fn inner_of(
    parts: impl Iterator<Item = (Option<Box<[u8]>>, Slot)>,
    epoch: u64,
    meter: &Arc<Meter>,
) -> (Option<Box<[u8]>>, Slot) {
    let (mut low, mut pivots, mut children) = (None, Vec::new(), Vec::new());
    for (pivot, child) in parts {
        if children.is_empty() {
            low = pivot;
        } else {
            pivots.extend(pivot);
        }
        children.push(child);
    }
    let mut inner = Inner::new(epoch, pivots, children);
    inner.count_in(meter);
    (low, Slot::resident(Node::Inner(Arc::new(inner))))
}

//! Lookups that never wait: an answer from memory, or a ticket for the read that is needed first.
//!
//! The holder of a ticket decides where the read happens: here, on another thread, or not at all. After the
//! read the caller tries the lookup again.

use crate::EngineError;
use crate::beside::Beside;
use crate::engine::Tree;
use crate::hot::HotKey;
use crate::pins::Pin;
use crate::search::{self, MissingNode};
use crate::value::{Stored, Value};

/// An immediate answer, or what must be read first.
pub enum Attempt<T> {
    /// The answer.
    Ready(T),
    /// What to run before trying again.
    NeedsRead(ReadTicket),
}

/// A read of one page that a lookup needs. The page's space stays in place for as long as the ticket lives.
/// What is read stays in memory unless something was put beside it meanwhile, or memory is short.
pub struct ReadTicket {
    tree: Tree,
    missing: MissingNode,
    pin: Pin,
}

impl ReadTicket {
    pub(crate) fn new(tree: Tree, missing: MissingNode, pin: Pin) -> Self {
        Self { tree, missing, pin }
    }

    /// Reads the page; blocks until the disk has answered.
    ///
    /// # Errors
    /// [`EngineError`] when the page cannot be read, or is damaged.
    pub fn run(self) -> Result<(), EngineError> {
        let Self { tree, missing, pin } = self;
        tree.engine.shared.load_missing(tree.id(), missing, pin)
    }
}

impl Tree {
    /// As [`Tree::get`], but never waits for the disk. The bytes of the value may still lie there; see
    /// [`Value::is_resident`].
    ///
    /// # Errors
    /// [`EngineError::Closed`].
    pub fn try_get(&self, key: &[u8]) -> Result<Attempt<Option<Value>>, EngineError> {
        let shared = &*self.engine.shared;
        shared.check_open()?;
        let hot = HotKey::of(self.id(), key);
        let show = |value: &[u8]| shared.value_ref(Stored::Inline(value), 0).to_value();
        if let Some(value) = shared.hot.find(&hot, show) {
            return Ok(Attempt::Ready(Some(value)));
        }
        let forest = shared.forest.read();
        shared.check_open()?;
        let Some(tree) = forest.tree(self.id()) else { return Ok(Attempt::Ready(None)) };
        match search::leaf_of(&tree.root, key) {
            Ok(leaf) => {
                let _latch = shared.latch(leaf);
                // The previous holder of the latch may have left half of a change there.
                shared.check_open()?;
                let stored = search::get_in(leaf, key);
                shared.hot.note_found(&hot, stored);
                let value = stored.map(|stored| shared.value_ref(stored, forest.epoch).to_value());
                Ok(Attempt::Ready(value))
            }
            Err(absent) => {
                let show = |value: &[u8]| shared.value_ref(Stored::Inline(value), forest.epoch).to_value();
                if let Some(value) = absent.find_beside(key, show) {
                    return Ok(Attempt::Ready(Some(value)));
                }
                let pin = shared.pins.pin(forest.epoch);
                Ok(Attempt::NeedsRead(ReadTicket::new(self.clone(), absent.to_read(key), pin)))
            }
        }
    }

    /// The read that a write to `key` would wait for; none where the write can go on at once.
    #[must_use]
    pub fn read_before_write(&self, key: &[u8]) -> Option<ReadTicket> {
        let shared = &*self.engine.shared;
        let forest = shared.forest.read();
        let absent = search::leaf_of(&forest.tree(self.id())?.root, key).err()?;
        Some(ReadTicket::new(self.clone(), absent.to_read(key), shared.pins.pin(forest.epoch)))
    }

    /// As [`Tree::read_before_write`], for an unconditional put of a value of `value_len` bytes: none also
    /// where its record will go beside a leaf that stays unread. `beside` holds the earlier puts of the same
    /// batch.
    ///
    /// If that changes before the put is made, the put itself reads the leaf and waits for the disk.
    #[must_use]
    pub fn read_before_put(&self, key: &[u8], value_len: usize, beside: &mut Beside) -> Option<ReadTicket> {
        let shared = &*self.engine.shared;
        let forest = shared.forest.read();
        let absent = search::leaf_of(&forest.tree(self.id())?.root, key).err()?;
        if shared.backing.is_short() && beside.takes(absent, key.len(), value_len) {
            return None;
        }
        Some(ReadTicket::new(self.clone(), absent.to_read(key), shared.pins.pin(forest.epoch)))
    }

    /// About `count` keys that divide the tree into parts of similar size; fewer where it is small.
    #[must_use]
    pub fn dividing_keys(&self, count: usize) -> Vec<Vec<u8>> {
        let forest = self.engine.shared.forest.read();
        let Some(tree) = forest.tree(self.id()) else { return Vec::new() };
        let mut keys = Vec::new();
        let mut level = vec![&tree.root];
        // Pivots of the upper levels only: no page is read for this.
        while keys.len() < count * 4 {
            let inner: Vec<_> = level.iter().filter_map(|slot| slot.inner()).collect();
            if inner.is_empty() {
                break;
            }
            keys.extend(inner.iter().flat_map(|inner| inner.pivots()).map(|pivot| pivot.to_vec()));
            level = inner.iter().flat_map(|inner| &inner.children).collect();
        }
        keys.sort();
        let step = keys.len().div_ceil(count.max(1) + 1).max(1);
        keys.into_iter().skip(step.saturating_sub(1)).step_by(step).take(count).collect()
    }
}

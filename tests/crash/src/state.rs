//! The model: what a store must hold after a list of events, written as plainly as possible.
//!
//! Invariant: equal states have equal fingerprints. Every change updates the fingerprint, so that comparing
//! a store with hundreds of prefixes of a history costs one number each.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// Trees of every store under test.
pub const TREES: usize = 6;
/// How many of them ordinary writes go to; the others receive ranges that are split off.
pub const WRITTEN_TREES: usize = 4;

/// A key, shared between the history and the states.
pub type Key = Arc<[u8]>;
/// A value, shared in the same way.
pub type Value = Arc<[u8]>;
/// A range of keys.
pub type Range = (Bound<Key>, Bound<Key>);

/// One change of one tree.
#[derive(Clone, Debug)]
pub enum Mutation {
    /// Sets a value.
    Put { tree: usize, key: Key, value: Value },
    /// Appends to a value; an absent one counts as empty.
    Append { tree: usize, key: Key, bytes: Value },
    /// Removes a key.
    Delete { tree: usize, key: Key },
    /// Removes all keys of a range.
    DeleteRange { tree: usize, range: Range },
}

/// One step of a history, in commit order.
#[derive(Clone, Debug)]
pub enum Event {
    /// An atomic batch.
    Write(Vec<Mutation>),
    /// A named snapshot was made.
    CreateSnapshot(String),
    /// A named snapshot was deleted.
    DeleteSnapshot(String),
    /// A range moved between two trees, if it could.
    Move(RangeMove),
}

/// A move of a range to another tree.
#[derive(Clone, Debug)]
pub enum RangeMove {
    /// All keys of a tree at or above `at` move to an empty tree.
    SplitOff { tree: usize, at: Key, to: usize },
    /// All keys of a tree move to another one, whose keys do not interleave with them.
    Absorb { tree: usize, from: usize },
}

/// Keys and values of all trees.
#[derive(Clone, Debug)]
pub struct Content {
    trees: Vec<Arc<BTreeMap<Key, Value>>>,
    fingerprint: u64,
}

/// Everything that a store holds: its trees and its named snapshots.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The current trees.
    pub content: Content,
    /// The trees as they were when each snapshot was made.
    pub snapshots: BTreeMap<String, Content>,
}

impl Default for Content {
    fn default() -> Self {
        Self { trees: vec![Arc::default(); TREES], fingerprint: 0 }
    }
}

/// A number for one entry; the fingerprint of a content is the sum over its entries.
#[must_use]
pub fn fingerprint_of_entry(tree: usize, key: &[u8], value: &[u8]) -> u64 {
    let of_key = XxHash3_64::oneshot_with_seed(tree as u64, key);
    XxHash3_64::oneshot_with_seed(of_key, value)
}

impl Content {
    /// One tree.
    #[must_use]
    pub fn tree(&self, tree: usize) -> &BTreeMap<Key, Value> {
        &self.trees[tree]
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, tree: usize, key: &[u8]) -> Option<&Value> {
        self.trees[tree].get(key)
    }

    /// The sum over all entries.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &Key, &Value)> {
        self.trees.iter().enumerate().flat_map(|(at, tree)| tree.iter().map(move |(k, v)| (at, k, v)))
    }

    /// The entries of a range, in order.
    pub fn scan<'a>(
        &'a self,
        tree: usize,
        range: &'a Range,
    ) -> Box<dyn DoubleEndedIterator<Item = (&'a Key, &'a Value)> + 'a> {
        if is_empty(range) {
            return Box::new(std::iter::empty());
        }
        Box::new(self.trees[tree].range::<Key, _>((range.0.as_ref(), range.1.as_ref())))
    }

    /// Sets one entry.
    pub fn put(&mut self, tree: usize, key: &Key, value: Value) {
        self.fingerprint = self.fingerprint.wrapping_add(fingerprint_of_entry(tree, key, &value));
        if let Some(old) = Arc::make_mut(&mut self.trees[tree]).insert(key.clone(), value) {
            self.fingerprint = self.fingerprint.wrapping_sub(fingerprint_of_entry(tree, key, &old));
        }
    }

    /// Removes one entry.
    pub fn delete(&mut self, tree: usize, key: &[u8]) {
        if let Some(old) = Arc::make_mut(&mut self.trees[tree]).remove(key) {
            self.fingerprint = self.fingerprint.wrapping_sub(fingerprint_of_entry(tree, key, &old));
        }
    }

    /// Empties one tree.
    pub fn clear_tree(&mut self, tree: usize) {
        for (key, value) in std::mem::take(&mut self.trees[tree]).iter() {
            self.fingerprint = self.fingerprint.wrapping_sub(fingerprint_of_entry(tree, key, value));
        }
    }

    /// Whether a range can move.
    #[must_use]
    pub fn allows(&self, range: &RangeMove) -> bool {
        match *range {
            RangeMove::SplitOff { tree, to, .. } => tree != to && self.trees[to].is_empty(),
            RangeMove::Absorb { tree, from } => {
                let ends = [tree, from].map(|tree| {
                    let keys = &self.trees[tree];
                    keys.first_key_value().zip(keys.last_key_value()).map(|(first, last)| (first.0, last.0))
                });
                let [Some(ours), Some(theirs)] = ends else { return true };
                ours.1 < theirs.0 || theirs.1 < ours.0
            }
        }
    }

    /// Moves a range, if it can move.
    pub fn move_range(&mut self, range: &RangeMove) {
        if !self.allows(range) {
            return;
        }
        let (source, target, first) = match range {
            RangeMove::SplitOff { tree, at, to } => (*tree, *to, Some(at)),
            RangeMove::Absorb { tree, from } => (*from, *tree, None),
        };
        let keys = Arc::make_mut(&mut self.trees[source]);
        let moved = match first {
            Some(first) => keys.split_off(first),
            None => std::mem::take(keys),
        };
        for (key, value) in moved {
            self.fingerprint = self.fingerprint.wrapping_sub(fingerprint_of_entry(source, &key, &value));
            self.put(target, &key, value);
        }
    }

    /// Applies one change.
    pub fn apply(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::Put { tree, key, value } => self.put(*tree, key, value.clone()),
            Mutation::Append { tree, key, bytes } => {
                let before = self.get(*tree, key).map_or(&[][..], |value| value);
                let value = [before, bytes].concat().into();
                self.put(*tree, key, value);
            }
            Mutation::Delete { tree, key } => self.delete(*tree, key),
            Mutation::DeleteRange { tree, range } => {
                let keys: Vec<Key> = self.scan(*tree, range).map(|(key, _)| key.clone()).collect();
                for key in keys {
                    self.delete(*tree, &key);
                }
            }
        }
    }
}

impl State {
    /// Applies one event.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Write(batch) => batch.iter().for_each(|mutation| self.content.apply(mutation)),
            Event::CreateSnapshot(name) => {
                self.snapshots.insert(name.clone(), self.content.clone());
            }
            Event::DeleteSnapshot(name) => {
                self.snapshots.remove(name);
            }
            Event::Move(range) => self.content.move_range(range),
        }
    }

    /// One fingerprint for everything.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.snapshots.iter().fold(self.content.fingerprint(), |sum, (name, content)| {
            let of_name = XxHash3_64::oneshot_with_seed(content.fingerprint(), name.as_bytes());
            sum.wrapping_add(of_name | 1)
        })
    }
}

/// Whether the range contains no key; `BTreeMap::range` would panic on some of these.
#[must_use]
pub fn is_empty(range: &Range) -> bool {
    match (&range.0, &range.1) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
        _ => false,
    }
}

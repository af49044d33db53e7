//! Inner nodes: pivots, and the children between them.

use super::heads::{COMPARED_AT_ONCE, Heads};
use super::{HomeCell, PageRef};
use crate::meter::{Kind, Meter, Weight};
use crate::slot::Slot;
use atoll_buffer::prefetch;
use std::cmp::Ordering;
use std::sync::Arc;

/// Most children of an inner node.
pub(crate) const FAN_OUT_MAX: usize = 512;

/// The first key that belongs to the child behind it.
pub(crate) type Pivot = Box<[u8]>;

/// An inner node: pivots and children, one child more than pivots.
///
/// Child i holds the keys from pivot i-1 on and below pivot i. `heads` holds, for each pivot, the eight
/// bytes after the common prefix of all pivots, so that a search compares integers.
#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) birth: u64,
    pub(crate) home: HomeCell,
    prefix_len: usize,
    /// The first sixteen bytes of the common prefix, padded with zeros, and a mask of the bytes it covers:
    /// most prefixes are compared without following a pointer.
    prefix_start: u128,
    prefix_mask: u128,
    heads: Heads,
    pivots: Vec<Pivot>,
    pub(crate) children: Vec<Slot>,
    weight: Weight,
    /// Whether it was just read, and no scan for what to evict has passed it since.
    is_new: bool,
    /// Whether its children are known to be leaves.
    has_leaves: bool,
    /// Number of inner nodes above it, as of when it, or the node that it was split from, was read.
    level: u8,
}

/// About what an inner node takes for each child: its slot, a short pivot with its head, and the child's home
/// on disk.
const CHILD_BYTES: u64 = 176;

/// Cache lines of the slots that belong to the heads compared at once, and of the slot behind them.
const SLOT_LINES: usize = ((COMPARED_AT_ONCE + 1) * size_of::<Slot>()).div_ceil(64);

/// Bytes of a short pivot.
const SHORT_PIVOT: usize = 32;

impl Inner {
    pub(crate) fn new(birth: u64, pivots: Vec<Pivot>, children: Vec<Slot>) -> Self {
        debug_assert_eq!(pivots.len() + 1, children.len());
        let mut inner = Self { birth, pivots, children, ..Self::default() };
        inner.index_pivots();
        inner
    }

    /// The node at this home, just read.
    pub(crate) fn read_from(home: PageRef, level: u8, pivots: Vec<Pivot>, children: Vec<Slot>) -> Self {
        let (home, birth) = (HomeCell::at(home), home.birth);
        Self { home, level, is_new: true, ..Self::new(birth, pivots, children) }
    }

    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// Whether it was just read, in which case its reader is still on the way through it. True only once.
    pub(crate) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    /// Whether its children are leaves; known once a change went through to one of them.
    pub(crate) fn has_leaves(&self) -> bool {
        self.has_leaves
    }

    /// Notes that its children are leaves. Written only if that changes the flag: readers share the cache
    /// line.
    pub(crate) fn note_leaves(&mut self) {
        if !self.has_leaves {
            self.has_leaves = true;
        }
    }

    /// Whether it has the pivots and the children of the node `read` from its page.
    pub(crate) fn leads_where(&self, read: &Self) -> bool {
        let homes = |inner: &Self| inner.children.iter().map(Slot::home).collect::<Vec<_>>();
        self.pivots == read.pivots && homes(self) == homes(read)
    }

    /// Whether no node below it is in memory.
    pub(crate) fn is_bare(&self) -> bool {
        self.children.iter().all(|child| child.get().is_none())
    }

    /// Starts counting its memory.
    pub(crate) fn count_in(&mut self, meter: &Arc<Meter>) {
        self.weight = Weight::of(meter, Kind::Inner, 0);
        self.children.iter_mut().for_each(|child| child.count_in(meter));
        self.weigh();
    }

    pub(crate) fn weight_bytes(&self) -> u64 {
        self.weight.bytes()
    }

    fn weigh(&mut self) {
        let long: usize = self.pivots.iter().map(|pivot| pivot.len().saturating_sub(SHORT_PIVOT)).sum();
        self.weight.set(self.children.len() as u64 * CHILD_BYTES + long as u64);
    }

    /// An unshared copy without a home on disk.
    pub(crate) fn fork(&self, birth: u64) -> Self {
        Self {
            birth,
            weight: self.weight.beside(),
            home: HomeCell::default(),
            is_new: false,
            has_leaves: self.has_leaves,
            level: self.level,
            prefix_len: self.prefix_len,
            prefix_start: self.prefix_start,
            prefix_mask: self.prefix_mask,
            heads: self.heads.clone(),
            pivots: self.pivots.clone(),
            children: self.children.clone(),
        }
    }

    pub(crate) fn pivots(&self) -> &[Pivot] {
        &self.pivots
    }

    /// Pivots and children, borrowed separately.
    pub(crate) fn parts_mut(&mut self) -> (&[Pivot], &mut [Slot]) {
        (&self.pivots, &mut self.children)
    }

    /// The child whose range holds `key`.
    #[inline]
    pub(crate) fn child_of(&self, key: &[u8]) -> usize {
        if !self.shares_prefix(key) {
            return match self.pivots.first() {
                Some(first) if key >= &first[..self.prefix_len] => self.pivots.len(),
                _ => 0,
            };
        }
        let head = head_of(&key[self.prefix_len..]);
        let mut index = self.heads_below(head);
        let heads = self.heads.as_slice();
        while heads.get(index) == Some(&head) && &*self.pivots[index] <= key {
            index += 1;
        }
        index
    }

    /// As [`Inner::child_of`], for a key whose child is most likely `guess` or close behind it.
    #[inline]
    pub(crate) fn child_near(&self, key: &[u8], guess: usize) -> usize {
        const STEPS: usize = 4;
        if guess >= self.children.len() || !self.shares_prefix(key) {
            return self.child_of(key);
        }
        prefetch(&raw const self.children[guess], 1);
        let head = head_of(&key[self.prefix_len..]);
        let heads = self.heads.as_slice();
        if guess > 0 && heads[guess - 1] >= head {
            return self.child_of(key);
        }
        for (step, &limit) in heads[guess..].iter().take(STEPS).enumerate() {
            match head.cmp(&limit) {
                Ordering::Less => return guess + step,
                Ordering::Equal => return self.child_of(key),
                Ordering::Greater => {}
            }
        }
        if heads.len() - guess < STEPS { heads.len() } else { self.child_of(key) }
    }

    /// Whether `key` is below pivot `index`, or there is no such pivot.
    pub(crate) fn is_left_of_pivot(&self, key: &[u8], index: usize) -> bool {
        let Some(&limit) = self.heads.as_slice().get(index) else { return true };
        let head = if self.shares_prefix(key) { Some(head_of(&key[self.prefix_len..])) } else { None };
        match head {
            Some(head) if head != limit => head < limit,
            _ => key < &*self.pivots[index],
        }
    }

    /// Whether `key` starts with the common prefix of all pivots.
    #[inline]
    fn shares_prefix(&self, key: &[u8]) -> bool {
        let covered = self.prefix_len.min(size_of::<u128>());
        let starts_so = match key.first_chunk() {
            Some(start) => u128::from_le_bytes(*start) & self.prefix_mask == self.prefix_start,
            None => key.len() >= covered && self.prefix_start.to_le_bytes()[..covered] == key[..covered],
        };
        let rest = || self.pivots.first().map_or(&[][..], |first| &first[covered..self.prefix_len]);
        starts_so && (self.prefix_len == covered || key[covered..].starts_with(rest()))
    }

    /// Number of heads below `head`. Prefetches the slots that are left to choose from: on the way to a leaf,
    /// they are the first thing that caches do not hold.
    #[inline]
    fn heads_below(&self, head: u64) -> usize {
        self.heads.below(head, |from| {
            prefetch(self.children.as_ptr().wrapping_add(from), SLOT_LINES);
        })
    }

    /// Inserts `right`, which starts at `pivot`, behind child `index`.
    pub(crate) fn insert_after(&mut self, index: usize, pivot: Pivot, right: Slot) {
        let is_within = index > 0 && index < self.pivots.len();
        if is_within {
            // Between two others it does not change the common prefix.
            self.heads.insert(index, head_of(&pivot[self.prefix_len..]));
        }
        self.pivots.insert(index, pivot);
        self.children.insert(index + 1, right);
        if !is_within {
            self.index_pivots();
        }
        self.weigh();
    }

    /// Removes child `index` and the pivot beside it.
    pub(crate) fn remove(&mut self, index: usize) -> Slot {
        if !self.pivots.is_empty() {
            self.pivots.remove(index.saturating_sub(1));
        }
        let removed = self.children.remove(index);
        self.index_pivots();
        self.weigh();
        removed
    }

    /// Splits the upper half off, and returns the pivot between the halves and the upper half.
    pub(crate) fn split(&mut self, at_end: bool) -> (Pivot, Self) {
        // Ascending inserts fill nodes instead of leaving them half empty.
        let middle = if at_end { self.children.len() - 2 } else { self.children.len() / 2 };
        let children = self.children.split_off(middle);
        let pivots = self.pivots.split_off(middle);
        let pivot = self.pivots.pop().unwrap_or_default();
        self.index_pivots();
        let right = self.beside(pivots, children);
        self.weigh();
        (pivot, right)
    }

    /// A node of children that this one had, counted on the same meter.
    fn beside(&self, pivots: Vec<Pivot>, children: Vec<Slot>) -> Self {
        let mut right = Self::new(self.birth, pivots, children);
        (right.weight, right.has_leaves) = (self.weight.beside(), self.has_leaves);
        right.level = self.level;
        right.weigh();
        right
    }

    /// Divides this node at child `index`, which was taken out and of which `lower` and `upper` are left.
    /// This node keeps what is in front, which may be nothing; returns the rest, if any.
    pub(crate) fn divide(&mut self, index: usize, lower: Option<Slot>, upper: Option<Slot>) -> Option<Self> {
        // Each pivot stands in front of a child behind the divided one.
        let mut pivots = self.pivots.split_off(index);
        let mut children = self.children.split_off(index + 1);
        self.children.pop();
        match lower {
            Some(lower) => self.children.push(lower),
            None => drop(self.pivots.pop()),
        }
        match upper {
            Some(upper) => children.insert(0, upper),
            None if pivots.is_empty() => {}
            None => drop(pivots.remove(0)),
        }
        self.index_pivots();
        let right = if children.is_empty() { None } else { Some(self.beside(pivots, children)) };
        self.weigh();
        right
    }

    /// Takes out all children but the first, each with the pivot in front of it.
    pub(crate) fn take_behind_first(&mut self) -> (Vec<Pivot>, Vec<Slot>) {
        let (pivots, children) = (std::mem::take(&mut self.pivots), self.children.split_off(1));
        self.index_pivots();
        self.weigh();
        (pivots, children)
    }

    /// Adds children behind the last one, each with the pivot in front of it.
    pub(crate) fn extend(&mut self, pivots: Vec<Pivot>, children: Vec<Slot>) {
        debug_assert_eq!(pivots.len(), children.len());
        self.pivots.extend(pivots);
        self.children.extend(children);
        self.index_pivots();
        self.weigh();
    }

    /// Adds the children of `right`, which starts at `pivot`.
    pub(crate) fn absorb(&mut self, pivot: Pivot, right: &Self) {
        self.pivots.push(pivot);
        self.pivots.extend(right.pivots.iter().cloned());
        self.children.extend(right.children.iter().cloned());
        self.index_pivots();
        self.weigh();
    }

    fn index_pivots(&mut self) {
        self.prefix_len = match (self.pivots.first(), self.pivots.last()) {
            (Some(first), Some(last)) => common_prefix(first, last),
            _ => 0,
        };
        let mut start = [0; size_of::<u128>()];
        let mut mask = start;
        let covered = self.prefix_len.min(start.len());
        if let Some(first) = self.pivots.first() {
            start[..covered].copy_from_slice(&first[..covered]);
            mask[..covered].fill(0xff);
        }
        (self.prefix_start, self.prefix_mask) = (u128::from_le_bytes(start), u128::from_le_bytes(mask));
        self.heads.replace(self.pivots.iter().map(|pivot| head_of(&pivot[self.prefix_len..])));
    }
}

/// The first eight bytes as an integer of the same order; shorter strings are padded with zeros.
pub(crate) fn head_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(padded)
        }
    }
}

/// Length of the longest common prefix.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner(pivots: &[&str]) -> Inner {
        let pivots: Vec<Box<[u8]>> = pivots.iter().map(|pivot| pivot.as_bytes().into()).collect();
        let children = vec![Slot::default(); pivots.len() + 1];
        Inner::new(1, pivots, children)
    }

    #[test]
    fn a_key_belongs_to_the_child_behind_the_last_pivot_at_or_below_it() {
        let pivots = ["user10", "user100000000", "user1000000001", "user2", "user20000000000"];
        let inner = inner(&pivots);
        for key in [
            "",
            "a",
            "user1",
            "user10",
            "user1000000000",
            "user1000000001",
            "user19",
            "user2",
            "user200",
            "user3",
            "z",
        ] {
            let expected = pivots.iter().filter(|pivot| **pivot <= key).count();
            assert_eq!(inner.child_of(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn heads_are_counted_as_a_plain_search_counts_them() {
        for count in 0..40u64 {
            let pivots: Vec<String> = (0..count).map(|number| format!("{:04}", number * 7)).collect();
            let names: Vec<&str> = pivots.iter().map(String::as_str).collect();
            let inner = inner(&names);
            for key in 0..300 {
                let key = format!("{key:04}");
                let expected = names.iter().filter(|pivot| **pivot <= key.as_str()).count();
                assert_eq!(inner.child_of(key.as_bytes()), expected, "{count} pivots, {key}");
            }
        }
    }

    #[test]
    fn whatever_child_is_guessed_the_right_one_is_found() {
        // Some of the last ones share a head, which is the first eight bytes behind the prefix.
        let spread = (0..12u64).map(|number| format!("user0{:08}", number * 3));
        let alike =
            ["user10", "user100000000", "user1000000001", "user1000000002", "user2", "user20000000000"];
        let names: Vec<String> = spread.chain(alike.map(str::to_owned)).collect();
        let keys = (0..40).map(|number| format!("user0{number:08}"));
        let others = ["a", "user", "user1000000000", "user10000000011", "user1000000003", "user200", "z"];
        let keys: Vec<String> = keys.chain(names.clone()).chain(others.map(str::to_owned)).collect();
        for from in 0..names.len() {
            let pivots: Vec<&str> = names[from..].iter().map(String::as_str).collect();
            let inner = inner(&pivots);
            for (key, guess) in keys.iter().flat_map(|key| (0..22).map(move |guess| (key, guess))) {
                let expected = inner.child_of(key.as_bytes());
                assert_eq!(inner.child_near(key.as_bytes(), guess), expected, "{pivots:?}, {key}, {guess}");
            }
        }
    }

    #[test]
    fn a_node_is_divided_wherever_it_is_cut() {
        let pivots = ["b", "c", "d"];
        let slot = || Some(Slot::default());
        // At each child, with both halves of the divided one left, one of them, or none.
        for index in 0..4 {
            for (lower, upper) in [(slot(), slot()), (slot(), None), (None, slot()), (None, None)] {
                let (kept, moved) = (usize::from(lower.is_some()), usize::from(upper.is_some()));
                let mut left = inner(&pivots);
                let right = left.divide(index, lower, upper);
                assert_eq!(left.children.len(), index + kept, "{index} {kept} {moved}");
                assert_eq!(left.pivots().len(), left.children.len().saturating_sub(1));
                let behind = 3 - index + moved;
                assert_eq!(right.as_ref().map_or(0, |right| right.children.len()), behind);
                // Each pivot stays in front of the child that it was in front of.
                let first = left.pivots().iter().map(|pivot| &**pivot);
                assert!(
                    first.eq(pivots[..(index + kept).saturating_sub(1)].iter().map(|pivot| pivot.as_bytes()))
                );
                let Some(right) = right else { continue };
                let last = right.pivots().iter().map(|pivot| &**pivot);
                assert!(
                    last.eq(pivots[4 - behind..].iter().map(|pivot| pivot.as_bytes())),
                    "{index} {kept} {moved}"
                );
            }
        }
    }

    #[test]
    fn splitting_and_absorbing_are_inverse() {
        let pivots: Vec<String> = (0..40).map(|number| format!("k{number:03}")).collect();
        let names: Vec<&str> = pivots.iter().map(String::as_str).collect();
        let mut left = inner(&names);
        let (pivot, right) = left.split(false);
        assert_eq!(left.pivots().len() + right.pivots().len() + 1, 40);
        left.absorb(pivot, &right);
        assert_eq!(
            left.pivots().iter().map(|pivot| &**pivot).collect::<Vec<_>>(),
            names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>()
        );
        assert_eq!(left.children.len(), 41);
    }
}

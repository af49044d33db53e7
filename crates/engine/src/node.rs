//! Nodes of a tree in memory, and how they refer to each other and to their pages on disk.
//!
//! Nodes are shared by reference counting: a snapshot is a clone of a root, and a writer changes a node in
//! place only while it is unshared, and otherwise a copy (copy-on-write, as in Tucana).
//!
//! Invariant: a node whose home is set equals its page on disk, and so does everything below it.
//! Invariant: an empty slot of an inner node says how its node is read ([`crate::slot`]).

mod heads;
mod inner;

pub(crate) use inner::{FAN_OUT_MAX, Inner, Pivot, common_prefix, head_of};

use crate::leaf::SharedLeaf;
use std::sync::{Arc, OnceLock};

/// Where a page lies, and the checksum of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PageRef {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) checksum: u64,
    pub(crate) birth: u64,
}

/// The checksum of a lost page, so that no bytes at its place pass as the page.
const LOST: u64 = u64::MAX;

impl PageRef {
    /// The same place as a lost page: still in use, but never to be read again. Later puts to it are not
    /// known any more, so its contents are older than what was once acknowledged.
    pub(crate) fn lost(self) -> Self {
        Self { checksum: LOST, ..self }
    }

    /// Whether the page may never be read.
    pub(crate) fn is_lost(&self) -> bool {
        self.checksum == LOST
    }
}

/// Where a node lies: its page and, for a leaf, perhaps a second page of records put since
/// ([`crate::delta`]), with a filter of their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Home {
    pub(crate) page: PageRef,
    pub(crate) delta: Option<PageRef>,
    pub(crate) filter: u64,
}

impl Home {
    /// Both pages.
    pub(crate) fn pages(self) -> impl Iterator<Item = PageRef> {
        self.delta.into_iter().chain([self.page])
    }
}

impl From<PageRef> for Home {
    fn from(page: PageRef) -> Self {
        Self { page, delta: None, filter: 0 }
    }
}

/// The home of a node, set once by the checkpoint that writes it.
#[derive(Default)]
pub(crate) struct HomeCell(OnceLock<PageRef>);

impl HomeCell {
    pub(crate) fn at(home: PageRef) -> Self {
        Self(OnceLock::from(home))
    }

    pub(crate) fn get(&self) -> Option<PageRef> {
        self.0.get().copied()
    }

    pub(crate) fn settle(&self, home: PageRef) {
        // A node is written by one checkpoint at a time; a first home stays true.
        let _ = self.0.set(home);
    }

    /// Takes the home. The cell is written only if there is one: readers share the cache line.
    pub(crate) fn take(&mut self) -> Option<PageRef> {
        if self.0.get().is_some() { self.0.take() } else { None }
    }
}

/// A node in memory.
#[derive(Clone)]
pub(crate) enum Node {
    Leaf(SharedLeaf),
    Inner(Arc<Inner>),
}

impl Node {
    pub(crate) fn home(&self) -> Option<PageRef> {
        match self {
            Self::Leaf(leaf) => leaf.home.get(),
            Self::Inner(inner) => inner.home.get(),
        }
    }

    /// An identity that differs from that of every other node alive.
    pub(crate) fn address(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.address(),
            Self::Inner(inner) => Arc::as_ptr(inner).cast::<u8>().addr(),
        }
    }

    pub(crate) fn birth(&self) -> u64 {
        match self {
            Self::Leaf(leaf) => leaf.birth,
            Self::Inner(inner) => inner.birth,
        }
    }

    pub(crate) fn settle(&self, home: PageRef) {
        match self {
            Self::Leaf(leaf) => leaf.settle(home),
            Self::Inner(inner) => inner.home.settle(home),
        }
    }
}

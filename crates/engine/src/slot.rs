//! A slot for a node: resident, or to be read when it is needed.
//!
//! What is read is a page, or a page together with what was since put into a leaf that stayed unread
//! ([`crate::delta`]).
//!
//! Invariant: where a slot has a delta, its node, if resident, is what the delta adds up to; the delta is
//! taken away before the node is changed.

use crate::backing::{Backing, Reading};
use crate::delta::{Delta, Records};
use crate::leaf::SharedLeaf;
use crate::meter::{Kind, Meter};
use crate::node::{Home, Inner, Node, PageRef};
use crate::page;
use crate::retired::RetiredList;
use crate::{Damage, EngineError};
use std::sync::{Arc, OnceLock};

/// A slot for a node.
///
/// Lookups touch one slot in each node on their path, so slots are kept small: what only a read from disk
/// needs lies elsewhere.
#[derive(Clone, Default)]
pub(crate) struct Slot {
    node: OnceLock<Node>,
    source: Option<Arc<NodeSource>>,
}

/// How to read a node that is not resident.
enum NodeSource {
    /// A node of one page.
    Page {
        page: PageRef,
        /// Records of a leaf that were looked up while memory was short; created by the first such lookup.
        seen: OnceLock<Arc<Delta>>,
        /// Number of inner nodes above it.
        level: u8,
    },
    TwoPages(Box<TwoPages>),
    Delta(Arc<Delta>),
}

/// A leaf with a page of records beside its own, of which nothing was read yet. Most leaves of a large store
/// may be such.
struct TwoPages {
    home: Home,
    /// Created on first use.
    delta: OnceLock<Arc<Delta>>,
    /// The meter that counts it.
    meter: Option<Arc<Meter>>,
}

/// How many bytes more a leaf of two pages takes than one of a single page.
const TWO_PAGES_BYTES: u64 = size_of::<TwoPages>() as u64 + 16;

impl NodeSource {
    fn at(home: Home, level: u8) -> Self {
        match home.delta {
            None => Self::Page { page: home.page, seen: OnceLock::new(), level },
            Some(_) => Self::TwoPages(Box::new(TwoPages { home, delta: OnceLock::new(), meter: None })),
        }
    }

    /// The same, counted on a meter from here on.
    fn counted(mut self, meter: &Arc<Meter>) -> Self {
        if let Self::TwoPages(second) = &mut self {
            second.count_in(meter);
        }
        self
    }
}

impl TwoPages {
    fn count_in(&mut self, meter: &Arc<Meter>) {
        if self.meter.is_none() {
            meter.add(Kind::Inner, TWO_PAGES_BYTES);
            self.meter = Some(Arc::clone(meter));
        }
    }

    fn delta(&self, backing: &Backing) -> &Arc<Delta> {
        self.delta.get_or_init(|| Arc::new(Delta::on_disk(self.home, backing.meter())))
    }
}

impl Drop for TwoPages {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            meter.take_off(Kind::Inner, TWO_PAGES_BYTES);
        }
    }
}

impl Slot {
    pub(crate) fn resident(node: Node) -> Self {
        Self { node: OnceLock::from(node), source: None }
    }

    /// The root of a tree.
    pub(crate) fn on_disk(home: Home) -> Self {
        Self::below(home, 0)
    }

    /// A node below `level` others.
    pub(crate) fn below(home: Home, level: u8) -> Self {
        Self { node: OnceLock::new(), source: Some(Arc::new(NodeSource::at(home, level))) }
    }

    /// Number of inner nodes above this one, as far as it is known; for a leaf it makes no difference.
    fn level(&self) -> u8 {
        match (self.node.get(), self.source.as_deref()) {
            (Some(Node::Inner(inner)), _) => inner.level(),
            (_, Some(NodeSource::Page { level, .. })) => *level,
            _ => 0,
        }
    }

    /// Counts what it takes besides its place, if it was just made.
    pub(crate) fn count_in(&mut self, meter: &Arc<Meter>) {
        if let Some(NodeSource::TwoPages(second)) = self.source.as_mut().and_then(Arc::get_mut) {
            second.count_in(meter);
        }
    }

    /// Reads the node to keep it here; see [`Slot::read_once`].
    pub(crate) fn read(&self, reading: Reading, backing: &Backing) -> Result<Node, EngineError> {
        match self.source.as_deref() {
            // A later change of the leaf will have to know what the delta replaced.
            Some(NodeSource::TwoPages(second)) => {
                Ok(Node::Leaf(second.delta(backing).read(reading, backing)?))
            }
            _ => self.read_once(reading, backing),
        }
    }

    /// Reads the node, and keeps nothing of it.
    pub(crate) fn read_once(&self, reading: Reading, backing: &Backing) -> Result<Node, EngineError> {
        match self.source.as_deref() {
            Some(NodeSource::Page { page, level, .. }) => page::read(page, *level, reading, backing),
            Some(NodeSource::Delta(delta)) => Ok(Node::Leaf(delta.read(reading, backing)?)),
            Some(NodeSource::TwoPages(second)) => Ok(Node::Leaf(match second.delta.get() {
                Some(delta) => delta.read(reading, backing)?,
                None => Delta::on_disk(second.home, backing.meter()).read(reading, backing)?,
            })),
            None => Err(backing.corrupt(0, Damage::PageContent)),
        }
    }

    /// A slot in the place of this one that is never read, because what was done to its node since is unknown
    /// except for these records. Only where nothing is written.
    pub(crate) fn lost_with(&self, records: Records, backing: &Backing) -> Self {
        let page = self.page().lost();
        if records.len() == 0 {
            return Self::on_disk(page.into());
        }
        let delta = Arc::new(Delta::beside_lost(page, records, backing));
        Self { node: OnceLock::new(), source: Some(Arc::new(NodeSource::Delta(delta))) }
    }

    /// Whether it may never be read.
    pub(crate) fn is_lost(&self) -> bool {
        self.node.get().is_none() && self.page().is_lost()
    }

    /// The page at the bottom.
    fn page(&self) -> PageRef {
        match (self.home(), self.known_delta()) {
            (Some(home), _) => home.page,
            (None, Some(delta)) => delta.page(),
            (None, None) => PageRef::default(),
        }
    }

    /// All readable records beside the leaf in this slot.
    pub(crate) fn records_beside(&self, backing: &Backing) -> Records {
        self.delta(backing).map_or_else(Records::default, |delta| delta.readable_records(backing))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&Node> {
        self.node.get()
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut Node> {
        self.node.get_mut()
    }

    /// The inner node in this slot, if it is a resident inner node.
    pub(crate) fn inner(&self) -> Option<&Inner> {
        match self.node.get() {
            Some(Node::Inner(inner)) => Some(inner),
            _ => None,
        }
    }

    /// The records put into the leaf in this slot since it was written, while the leaf itself was unchanged.
    pub(crate) fn delta(&self, backing: &Backing) -> Option<&Arc<Delta>> {
        match self.source.as_deref() {
            Some(NodeSource::Delta(delta)) => Some(delta),
            Some(NodeSource::TwoPages(second)) => Some(second.delta(backing)),
            _ => None,
        }
    }

    /// The same delta, if it was needed before; otherwise nothing of it is in memory.
    pub(crate) fn known_delta(&self) -> Option<&Arc<Delta>> {
        match self.source.as_deref() {
            Some(NodeSource::Delta(delta)) => Some(delta),
            Some(NodeSource::TwoPages(second)) => second.delta.get(),
            _ => None,
        }
    }

    /// Records in memory of the leaf in this slot, which itself is not: those that were put, and those that
    /// were looked up.
    pub(crate) fn records_in_memory(&self) -> Option<&Arc<Delta>> {
        match self.source.as_deref() {
            Some(NodeSource::Page { seen, .. }) => seen.get(),
            _ => self.known_delta(),
        }
    }

    /// Reads the records beside the leaf in this slot, which cannot be read, unless they are in memory.
    /// Returns whether there were any.
    pub(crate) fn bring_in_beside(&self, backing: &Backing) -> Result<bool, EngineError> {
        self.delta(backing).map_or(Ok(false), |delta| delta.bring_in(backing))
    }

    /// Where records of the leaf in this slot are kept that are looked up, and its home, if all of it is on
    /// disk. Whether it is a leaf may be unknown.
    pub(crate) fn apart(&self, needs_second: bool, backing: &Backing) -> Option<(&Arc<Delta>, Home)> {
        let home = self.home().filter(|home| home.delta.is_some() || !needs_second)?;
        let delta = match self.source.as_deref()? {
            NodeSource::Page { seen, .. } => {
                seen.get_or_init(|| Arc::new(Delta::on_disk(home, backing.meter())))
            }
            NodeSource::TwoPages(second) => second.delta(backing),
            NodeSource::Delta(delta) => delta,
        };
        Some((delta, home))
    }

    /// The home of the node on disk, if both are equal.
    pub(crate) fn home(&self) -> Option<Home> {
        match (self.source.as_deref(), self.node.get()) {
            (Some(NodeSource::Delta(delta)), _) => delta.home(),
            (Some(NodeSource::TwoPages(second)), _) => Some(second.home),
            (_, Some(node)) => node.home().map(Home::from),
            (Some(NodeSource::Page { page, .. }), None) => Some(Home::from(*page)),
            (None, None) => Some(Home::default()),
        }
    }

    /// Whether both are known to have the same node, without reading it.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same_node = match (self.get(), other.get()) {
            (Some(a), Some(b)) => a.address() == b.address(),
            _ => false,
        };
        let is_same_delta = match (self.known_delta(), other.known_delta()) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        is_same_node || is_same_delta || self.home().is_some_and(|home| other.home() == Some(home))
    }

    /// The node, read where it is not resident.
    pub(crate) fn load(&self, reading: Reading, backing: &Backing) -> Result<&Node, EngineError> {
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        let node = self.read(reading, backing)?;
        // Another reader may have been faster; its copy stays.
        Ok(self.node.get_or_init(|| node))
    }

    /// Puts a node that was just read into the slot. If another reader was faster, that reader's copy stays.
    fn keep(&self, node: Node) {
        let _ = self.node.set(node);
    }

    /// A slot from which the same node is read, and in which none is yet.
    pub(crate) fn unread(&self) -> Self {
        Self { node: OnceLock::new(), source: self.source.clone() }
    }

    /// Puts the node that was read from [a copy](Slot::unread) into this slot, if it would still be read in
    /// the same way: a source that is shared, as it is with the copy, is never changed. If another reader was
    /// faster, that reader's copy stays. Returns the node that is here.
    pub(crate) fn take_over(&self, copy: &Self, node: Node) -> Option<&Node> {
        if let (Some(here), Some(there)) = (&self.source, &copy.source)
            && Arc::ptr_eq(here, there)
        {
            self.keep(node);
        }
        self.node.get()
    }

    /// As [`Slot::load`], without keeping anything.
    pub(crate) fn look_at(&self, reading: Reading, backing: &Backing) -> Result<Node, EngineError> {
        match self.node.get() {
            Some(node) => Ok(node.clone()),
            None => self.read_once(reading, backing),
        }
    }

    /// As [`Slot::load`], without keeping a leaf that was read.
    pub(crate) fn read_apart(&self, reading: Reading, backing: &Backing) -> Result<Node, EngineError> {
        if let Some(node) = self.node.get() {
            return Ok(node.clone());
        }
        let node = self.read_once(reading, backing)?;
        if let Node::Inner(_) = node {
            // Small, and on the path to everything below it. If another reader was faster, its copy stays.
            self.keep(node.clone());
        }
        Ok(node)
    }

    /// The leaf of `key` at or below this place, read from disk alone: a private copy, of which nothing is
    /// kept.
    pub(crate) fn read_leaf(&self, key: &[u8], backing: &Backing) -> Result<SharedLeaf, EngineError> {
        let mut node = self.read_once(Reading::One, backing)?;
        loop {
            node = match node {
                Node::Leaf(leaf) => return Ok(leaf),
                Node::Inner(inner) => inner.children[inner.child_of(key)].read_once(Reading::One, backing)?,
            };
        }
    }

    /// Replaces a node that can be read back by its home. Returns the node, for the caller to drop where that
    /// may take a while.
    pub(crate) fn replaced_by_home(&mut self) -> Option<Self> {
        self.get()?;
        let home = self.home()?;
        Some(std::mem::replace(self, Self::below(home, self.level())))
    }

    /// Evicts a node that can be read back, and returns the bytes that it counted for.
    pub(crate) fn evict(&mut self) -> u64 {
        let bytes = match self.node.get() {
            Some(Node::Leaf(leaf)) => leaf.counted.bytes(),
            Some(Node::Inner(inner)) => inner.weight_bytes(),
            None => return 0,
        };
        match (self.home(), self.known_delta()) {
            (Some(home @ Home { delta: None, .. }), _) => {
                self.source = Some(Arc::new(NodeSource::at(home, self.level())))
            }
            (_, Some(_)) => {}
            (_, None) => return 0,
        }
        self.node.take();
        bytes
    }

    /// Evicts what can be read back of a delta, where the leaf is not resident, unless a lookup found
    /// something there since the last call. Returns the bytes released.
    pub(crate) fn shed_beside(&mut self, meter: &Arc<Meter>) -> u64 {
        let Some(delta) = self.records_in_memory() else { return 0 };
        let Some(home) = delta.home() else { return 0 };
        if delta.take_use() {
            return 0;
        }
        let bytes = if Arc::strong_count(delta) == 1 { delta.bytes() } else { 0 };
        self.source = Some(Arc::new(NodeSource::at(home, self.level()).counted(meter)));
        bytes
    }

    /// Whether `bytes` of records may be put beside the leaf, which must not be resident.
    pub(crate) fn takes_delta(&self, bytes: usize) -> bool {
        self.node.get().is_none() && self.would_take_delta(bytes)
    }

    /// As [`Slot::takes_delta`], as if the leaf were not resident.
    pub(crate) fn would_take_delta(&self, bytes: usize) -> bool {
        self.sizes().is_some_and(|(page, records)| Delta::fits(page, records, bytes))
    }

    /// As [`Slot::takes_delta`], beside a leaf that cannot be read. Should it become readable, a leaf can
    /// hold both.
    pub(crate) fn takes_delta_unread(&self, bytes: usize) -> bool {
        self.sizes().is_some_and(|(page, records)| Delta::fits_unread(page, records, bytes))
    }

    /// Bytes of the page of this slot, and of the records beside it, if it has a page.
    fn sizes(&self) -> Option<(usize, usize)> {
        match (self.home(), self.known_delta()) {
            (Some(Home { page, delta, .. }), _) => {
                Some((page.len as usize, delta.map_or(0, |delta| delta.len as usize)))
            }
            (None, Some(delta)) => Some(delta.sizes()),
            (None, None) => None,
        }
    }

    /// Puts a record beside a leaf that is not resident and [takes it](Slot::takes_delta).
    pub(crate) fn put_delta(
        &mut self,
        record: (&[u8], &[u8]),
        epoch: u64,
        backing: &Backing,
        retired: &mut RetiredList,
    ) {
        if let Some(delta) = self.sole_delta() {
            delta.put(record, epoch);
            return;
        }
        let mut fresh = match self.source.as_deref() {
            Some(NodeSource::Page { page, .. }) => Delta::of_page(*page, epoch, backing),
            Some(NodeSource::Delta(delta)) => Delta::above(delta, epoch, backing, retired),
            Some(NodeSource::TwoPages(second)) => {
                Delta::above(second.delta(backing), epoch, backing, retired)
            }
            None => return,
        };
        fresh.put(record, epoch);
        self.source = Some(Arc::new(NodeSource::Delta(Arc::new(fresh))));
    }

    /// The delta, if it is unshared and may change.
    fn sole_delta(&mut self) -> Option<&mut Delta> {
        let source = self.source.as_mut().and_then(Arc::get_mut)?;
        let NodeSource::Delta(delta) = source else { return None };
        Arc::get_mut(delta).filter(|delta| delta.may_change())
    }

    /// Takes the delta away, because its node, which is resident, is about to change.
    pub(crate) fn take_delta(&mut self, backing: &Backing) -> Option<Arc<Delta>> {
        let delta = self.delta(backing)?.clone();
        self.source = None;
        Some(delta)
    }
}

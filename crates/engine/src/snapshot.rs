//! Reading one consistent state: snapshots, the reader inside an update, and ordered scans.

use crate::EngineError;
use crate::engine::{Engine, Tree};
use crate::forest::TreeState;
use crate::node::Node;
use crate::search::Absent;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::value::{Stored, Value, ValueRef};
use crate::view::{View, rest_of};
use crate::visit::{Direction, Range, Visit, Visited};
use std::ops::ControlFlow;
use std::sync::Arc;

/// All trees of a store at one moment.
pub struct Snapshot {
    engine: Engine,
    pub(crate) view: Arc<View>,
    names: Vec<String>,
    sequence: u64,
}

impl Snapshot {
    pub(crate) fn new(engine: Engine, view: Arc<View>, sequence: u64) -> Self {
        let names = view.tree_names();
        Self { engine, view, names, sequence }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.view.epoch
    }

    /// The root of the tree of this name; none if the snapshot has no such tree.
    pub(crate) fn root_of(&self, name: &str) -> Result<Option<Node>, EngineError> {
        let Some(tree) = self.names.iter().position(|known| known == name) else { return Ok(None) };
        self.view.root(tree as u32, &self.engine.shared)
    }

    /// Sequence of the last commit that the snapshot includes.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Names of the trees that the snapshot includes.
    pub fn tree_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The value of `key` in this snapshot.
    ///
    /// # Errors
    /// [`EngineError`] when a page must be read back and cannot be, or is damaged.
    pub fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>, EngineError> {
        let shared = &*self.engine.shared;
        shared.check_open()?;
        self.view.get(tree.id(), key, shared)
    }

    /// Visits the records of a range in order until the visitor stops, and returns the key at which it
    /// stopped.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn scan(
        &self,
        tree: &Tree,
        range: Range<'_>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let shared = &*self.engine.shared;
        shared.check_open()?;
        scan_view(shared, &self.view, tree.id(), range, direction, visit)
    }
}

/// Reads inside [`Engine::update`]: nothing changes meanwhile.
pub struct Reader<'a> {
    pub(crate) engine: &'a Engine,
}

impl Reader<'_> {
    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>, EngineError> {
        tree.get(key)
    }

    /// Shows the value of `key` to `show`.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get_with<R>(
        &self,
        tree: &Tree,
        key: &[u8],
        show: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, EngineError> {
        tree.get_with(key, show)
    }

    /// Visits the records of a range.
    ///
    /// # Errors
    /// As [`Tree::scan`].
    pub fn scan(
        &self,
        tree: &Tree,
        range: Range<'_>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        tree.scan(range, direction, visit)
    }

    /// The store.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.engine
    }
}

/// A node is not in memory, so the scan cannot go on under the lock.
struct Stalled;

/// Scans the current state under the lock while every node is in memory, and the rest from a snapshot taken
/// under it.
pub(crate) fn scan_current(
    tree: &Tree,
    range: Range<'_>,
    direction: Direction,
    mut visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
) -> Result<Option<Vec<u8>>, EngineError> {
    let shared = &*tree.engine.shared;
    // The root is loaded where later readers find it; nodes below it may be read for this scan alone.
    let (still, forest) = loop {
        let still = shared.writer.still();
        let forest = shared.forest.read();
        shared.check_open()?;
        let root = forest.tree(tree.id()).map(|state| &state.root).filter(|root| root.get().is_none());
        let Some(missing) = root.map(|root| Absent::root(root).to_read(&[])) else { break (still, forest) };
        let pin = shared.pins.pin(forest.epoch);
        drop((forest, still));
        shared.load_missing(tree.id(), missing, pin)?;
    };
    let Some(state) = forest.tree(tree.id()) else { return Ok(None) };
    let epoch = forest.epoch;
    let visitor = |key: &[u8], stored: Stored<'_>| visit(key, shared.value_ref(stored, epoch));
    let mut scan = Visit::new(range, direction, visitor);
    let last = match scan.run(&state.root, &mut |_: &Slot| Err::<Node, _>(Stalled)) {
        Ok(Visited::All) => return Ok(None),
        Ok(Visited::Stopped) => return Ok(scan.last_key()),
        Err(Stalled) => scan.last_key(),
    };
    let only = TreeState { id: 0, ..state.clone() };
    let view = shared.views.add(vec![only], epoch, shared.pins.pin(epoch));
    drop((forest, still));
    let rest = rest_of(range, direction, last.as_deref().unwrap_or_default());
    scan_view(shared, &view, 0, rest, direction, visit)
}

fn scan_view(
    shared: &Shared,
    view: &View,
    tree: u32,
    range: Range<'_>,
    direction: Direction,
    mut visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
) -> Result<Option<Vec<u8>>, EngineError> {
    view.scan(tree, shared, range, direction, |key, stored| visit(key, shared.value_ref(stored, view.epoch)))
}

//! Writes pages one behind the other into long runs of fresh space, so that a checkpoint's writes are large
//! and sequential.

use crate::EngineError;
use crate::backing::{Backing, Reading};
use crate::clock::Clock;
use crate::delta::{Delta, Retirement};
use crate::leaf::{Leaf, SharedLeaf};
use crate::meter::Weight;
use crate::node::{Home, Inner, Node, PageRef};
use crate::page;
use crate::planted::{self, Bug};
use crate::retired::Retired;
use crate::run_bytes::RunBytes;
use crate::slot::Slot;
use crate::space::{Extent, Space, Sparse, UNIT};
use crate::threads::Mutex;
use crate::value::{Chain, EXTENT_FROM, Piece};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one run.
const RUN_BYTES: u64 = 1 << 20;

/// Children of a node whose pages are requested together before they are read.
const REQUESTED_PAGES_MAX: usize = 256;

/// How many chains ahead the writing of a leaf prefetches the pieces.
const CHAINS_AHEAD: usize = 12;

/// Pages with no more than this many bytes between them are requested as one range: the pages of one
/// checkpoint lie in key order, and reading a little too much costs less than another request.
const GAP_BYTES_MAX: u64 = 32 << 10;

/// Shorter free runs are left alone while the file is mostly in use.
const RUN_BYTES_MIN: u64 = 384 << 10;

/// Writes the nodes and pieces that have no home yet.
pub(crate) struct PageWriter<'a> {
    backing: &'a Backing,
    space: &'a Mutex<Space>,
    sparse: Sparse,
    /// One for each [`RunKind`].
    runs: [Run; RUN_KINDS],
    scratch: Vec<u8>,
    /// Set while writing for snapshots alone: what is written retires with the snapshot of this epoch.
    only_until: Option<u64>,
    pub(crate) of_snapshots: Vec<Retired>,
    /// Items that left the current trees with the pages that were written: values that deltas replaced, and
    /// pages that deltas lay on.
    pub(crate) replaced: Vec<Retired>,
    /// Values replaced by deltas that were merged here, and retired by a writer since the freeze: the
    /// writer's list has them, but the commit's does not yet.
    pub(crate) retired_since: Vec<Retired>,
    /// The greatest retirement number at the freeze, and the number of the retirements made here.
    retirements_before: u64,
    retires_as: u64,
    /// Whether some leaf has a page of records beside it.
    pub(crate) has_second_pages: bool,
    /// How many such pages were written, and how many leaves became one page with the records beside them.
    pub(crate) second_pages: u64,
    pub(crate) leaves_merged: u64,
    pub(crate) written: u64,
    /// The time when it began.
    now: Duration,
}

/// Items that are written apart, because they will be replaced at different times: what lies together should
/// become free together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunKind {
    /// Leaves, and what their values need.
    Leaves,
    /// Records beside leaves, which the next checkpoints write again.
    Beside,
    /// Inner nodes, which nearly every checkpoint writes again.
    Inner,
}

const RUN_KINDS: usize = 3;

/// A run being filled.
#[derive(Default)]
struct Run {
    extent: Option<Extent>,
    buffer: RunBytes,
    /// Items in the run, which get their homes once it is written.
    unsettled: Vec<Unsettled>,
    /// Future homes of the nodes among them, by address.
    homes: HashMap<usize, Home>,
    piece_homes: HashMap<usize, u64>,
    of_snapshots: Vec<Retired>,
    /// Whether it follows a run of the same part.
    goes_on: bool,
}

/// Something whose bytes lie in a run being filled.
enum Unsettled {
    Node(Node, PageRef),
    Delta(SettledDelta),
    Piece(Piece, u64),
}

/// A delta whose home is being written.
struct SettledDelta {
    delta: Arc<Delta>,
    home: Home,
    /// Weight of the records of its second page, if it gets one and they may stay in memory.
    kept: Option<Weight>,
    /// The page it lay on, if one page now has everything: that page leaves the current trees together with
    /// the values that the records replaced in it.
    leaves: Option<Retired>,
}

impl<'a> PageWriter<'a> {
    /// A writer for a commit whose freeze saw `retirements_before` as the greatest retirement number.
    pub(crate) fn new(
        backing: &'a Backing,
        space: &'a Mutex<Space>,
        retirements_before: u64,
        clock: &Clock,
    ) -> Self {
        Self {
            backing,
            space,
            sparse: space.lock().sparse(),
            runs: std::array::from_fn(|_| Run::default()),
            scratch: Vec::new(),
            only_until: None,
            of_snapshots: Vec::new(),
            replaced: Vec::new(),
            retired_since: Vec::new(),
            retirements_before,
            retires_as: backing.next_retirement(),
            has_second_pages: false,
            second_pages: 0,
            leaves_merged: 0,
            written: 0,
            now: clock.now(),
        }
    }

    /// From here on, what is written belongs only to snapshots up to `epoch`.
    pub(crate) fn for_snapshot(&mut self, epoch: u64) {
        self.only_until = Some(epoch);
    }

    /// Writes everything below `slot` that has no home, and returns the home of the slot's node.
    pub(crate) fn write(&mut self, slot: &Slot) -> Result<Home, EngineError> {
        let home = match (slot.home(), slot.known_delta(), slot.get()) {
            (Some(home), ..) => home,
            (None, Some(delta), node) => self.write_delta(delta, node)?,
            (None, None, Some(node)) => self.write_node(node)?,
            (None, None, None) => Home::default(),
        };
        self.has_second_pages |= home.delta.is_some();
        Ok(home)
    }

    fn write_delta(&mut self, delta: &Arc<Delta>, node: Option<&Node>) -> Result<Home, EngineError> {
        let address = Arc::as_ptr(delta).addr();
        if let Some(home) = self.home_to_be(address) {
            return Ok(home);
        }
        if planted::is(Bug::DeltaForgotten) {
            return Ok(delta.page().into());
        }
        // Where little else lies, the leaf moves away together with its records, so that the whole region
        // becomes free.
        let stays = delta.is_slim() && !self.sparse.holds(delta.page().offset);
        let leaf = match (stays, node) {
            (true, _) => None,
            (false, Some(Node::Leaf(leaf))) => Some(leaf.clone()),
            (false, _) => self.leaf_of(delta)?,
        };
        let (settled, part) = match leaf {
            None => self.write_records(delta, node)?,
            Some(leaf) => (self.write_merged(delta, &leaf)?, RunKind::Leaves),
        };
        let home = settled.home;
        let counted = if home.delta.is_some() { &mut self.second_pages } else { &mut self.leaves_merged };
        *counted += 1;
        self.note(address, home, Unsettled::Delta(settled), part);
        Ok(home)
    }

    /// The leaf that a delta and what it lies on add up to. None if that cannot be read, so that its records
    /// stay beside it: a damaged page must not keep everything else from being committed.
    fn leaf_of(&self, delta: &Arc<Delta>) -> Result<Option<SharedLeaf>, EngineError> {
        match delta.read(Reading::Along, self.backing) {
            Ok(leaf) => Ok(Some(leaf)),
            Err(error) if !error.is_damage() => Err(error),
            // This commit does not include anything that a writer reported about it since the freeze.
            Err(error) => {
                tracing::warn!(store = self.backing.name(), %error, "a leaf cannot be read; what was put into it is kept");
                Ok(None)
            }
        }
    }

    /// Writes the records of a delta and of all deltas below it to one page beside the leaf's. Where some of
    /// them are damaged, the leaf is lost from here on: it would show what they replaced.
    fn write_records(
        &mut self,
        delta: &Arc<Delta>,
        node: Option<&Node>,
    ) -> Result<(SettledDelta, RunKind), EngineError> {
        let mut page = std::mem::take(&mut self.scratch);
        page.clear();
        let shown = delta.show_all_records(self.backing, self.now, |records, is_lossy| {
            records.encode(&mut page);
            (records.filter(), is_lossy)
        });
        let (filter, is_lossy) = shown?;
        if is_lossy && let Some(Node::Leaf(leaf)) = node {
            // The leaf was read while all of it could be.
            self.scratch = page;
            return Ok((self.write_merged(delta, leaf)?, RunKind::Leaves));
        }
        let second = self.place(&page, delta.birth, RunKind::Beside);
        self.scratch = page;
        let second = second?;
        let page = if is_lossy { delta.page().lost() } else { delta.page() };
        let home = Home { page, delta: Some(second), filter };
        let bytes = u64::from(second.len);
        let kept = self.backing.has_spare(bytes).then(|| self.backing.buffer(bytes));
        Ok((SettledDelta { delta: Arc::clone(delta), home, kept, leaves: None }, RunKind::Beside))
    }

    /// Writes the leaf that a delta and what it lies on add up to.
    fn write_merged(&mut self, delta: &Arc<Delta>, leaf: &SharedLeaf) -> Result<SettledDelta, EngineError> {
        let below = delta.page();
        let (len, death) = (u64::from(below.len), delta.birth + 1);
        let leaves = Retired { offset: below.offset, len, birth: below.birth, death };
        let leaves = self.only_until.is_none().then_some(leaves);
        let home = self.write_leaf(leaf, delta.birth)?.into();
        Ok(SettledDelta { delta: Arc::clone(delta), home, kept: None, leaves })
    }

    /// Retires the chains that a delta replaced, once a merge makes one page of the delta and what it lay on.
    /// This happens only after that page is written: otherwise a failed checkpoint would leave a delta in the
    /// trees whose chains are marked as retired for good.
    fn retire_replaced(&mut self, delta: &Delta) {
        delta.retire_replaced(self.retires_as, &mut |retirement, chain, epoch| match retirement {
            Retirement::Now => self.replaced.extend(pieces_of(chain, epoch)),
            Retirement::Before(number) if number > self.retirements_before && number != self.retires_as => {
                self.retired_since.extend(pieces_of(chain, epoch));
            }
            // The freeze included it, or this writer retired it.
            Retirement::Before(_) => {}
        });
    }

    /// Notes where an item will live once its run is written.
    fn note(&mut self, address: usize, home: Home, item: Unsettled, part: RunKind) {
        let run = &mut self.runs[part as usize];
        run.homes.insert(address, home);
        run.unsettled.push(item);
        if let Some(epoch) = self.only_until {
            let fresh = home.delta.unwrap_or(home.page);
            let len = u64::from(fresh.len);
            let (offset, birth) = (fresh.offset, fresh.birth);
            run.of_snapshots.push(Retired { offset, len, birth, death: epoch + 1 });
        }
    }

    /// The future home of a node or delta whose run was not written yet.
    fn home_to_be(&self, address: usize) -> Option<Home> {
        self.runs.iter().find_map(|run| run.homes.get(&address)).copied()
    }

    fn write_node(&mut self, node: &Node) -> Result<Home, EngineError> {
        if let Some(home) = self.home_to_be(node.address()) {
            return Ok(home);
        }
        let (page, part) = match node {
            Node::Leaf(leaf) => (self.write_leaf(leaf, leaf.birth)?, RunKind::Leaves),
            Node::Inner(inner) => (self.write_inner(inner)?, RunKind::Inner),
        };
        self.note(node.address(), page.into(), Unsettled::Node(node.clone(), page), part);
        Ok(page.into())
    }

    fn write_leaf(&mut self, leaf: &Leaf, birth: u64) -> Result<PageRef, EngineError> {
        let mut ahead = leaf.chains();
        ahead.by_ref().take(CHAINS_AHEAD).for_each(Chain::prefetch);
        for chain in leaf.chains() {
            ahead.next().iter().for_each(|chain| chain.prefetch());
            chain.pieces().iter().try_for_each(|piece| self.write_piece(piece))?;
        }
        let mut page = std::mem::take(&mut self.scratch);
        page.clear();
        let homes = &self.runs[RunKind::Leaves as usize].piece_homes;
        let home_of =
            |piece: &Piece| piece.home().or_else(|| homes.get(&piece.address()).copied()).unwrap_or_default();
        page::encode_leaf(leaf, home_of, &mut page);
        let home = self.place(&page, birth, RunKind::Leaves);
        self.scratch = page;
        home
    }

    fn write_inner(&mut self, inner: &Inner) -> Result<PageRef, EngineError> {
        let mut homes = Vec::with_capacity(inner.children.len());
        for (index, child) in inner.children.iter().enumerate() {
            if index % REQUESTED_PAGES_MAX == 0 {
                // One such group ahead, and at the beginning also the first one.
                let from = if index == 0 { 0 } else { index + REQUESTED_PAGES_MAX };
                self.ask_for(
                    inner.children.get(from..).unwrap_or_default(),
                    index + 2 * REQUESTED_PAGES_MAX - from,
                );
            }
            homes.push(self.write(child)?);
        }
        let mut page = Vec::new();
        page::encode_inner(inner, &homes, &mut page);
        self.place(&page, inner.birth, RunKind::Inner)
    }

    /// Requests the pages that the next of these slots will be merged from.
    fn ask_for(&self, slots: &[Slot], count: usize) {
        let Some(disk) = self.backing.disk() else { return };
        let absent = slots.iter().take(count).filter(|slot| slot.get().is_none() && slot.home().is_none());
        let mut pages = Vec::new();
        for delta in absent.filter_map(Slot::known_delta) {
            let moves = self.sparse.holds(delta.page().offset);
            delta.pages_to_merge(moves, &mut |page| {
                pages.push((page.offset, page.offset + u64::from(page.len)));
            });
        }
        pages.sort_unstable();
        for near in pages.chunk_by(|(_, end), (start, _)| *start <= end + GAP_BYTES_MAX) {
            let (start, end) = (near[0].0, near[near.len() - 1].1);
            disk.will_read(start, end - start);
        }
    }

    /// Writes a piece that is only in memory so far: one that was joined from others.
    fn write_piece(&mut self, piece: &Piece) -> Result<(), EngineError> {
        // In this order: sharing the bytes of pieces that are already written would wait for memory each
        // time.
        if piece.home().is_some() {
            return Ok(());
        }
        let Some(bytes) = piece.resident_bytes() else { return Ok(()) };
        if self.runs[RunKind::Leaves as usize].piece_homes.contains_key(&piece.address()) {
            return Ok(());
        }
        let offset = if bytes.len() < EXTENT_FROM {
            let offset = self.place(&bytes, piece.birth(), RunKind::Leaves)?.offset;
            let run = &mut self.runs[RunKind::Leaves as usize];
            run.piece_homes.insert(piece.address(), offset);
            run.unsettled.push(Unsettled::Piece(piece.clone(), offset));
            offset
        } else {
            let extent = self.space.lock().allocate(bytes.len() as u64);
            if let Err(error) = self.write_out(extent.offset, &bytes) {
                self.space.lock().give_back(extent, error.kind());
                return Err(error);
            }
            self.settle_piece(piece, extent.offset);
            extent.offset
        };
        if let Some(epoch) = self.only_until {
            let (len, birth) = (u64::from(piece.len()), piece.birth());
            let retired = Retired { offset, len, birth, death: epoch + 1 };
            // A piece that has its home already keeps it even if the run is never written.
            let in_run = &mut self.runs[RunKind::Leaves as usize].of_snapshots;
            let list = if piece.home().is_some() { &mut self.of_snapshots } else { in_run };
            list.push(retired);
        }
        Ok(())
    }

    /// Appends `bytes` to the run of its part.
    fn place(&mut self, bytes: &[u8], birth: u64, part: RunKind) -> Result<PageRef, EngineError> {
        let len = (bytes.len() as u64).next_multiple_of(UNIT);
        let run = &mut self.runs[part as usize];
        if run.extent.is_none() && !run.goes_on {
            run.buffer = RunBytes::with_room(RUN_BYTES as usize);
        }
        let extent = match run.extent {
            Some(extent) if run.buffer.len() + len <= extent.len => extent,
            _ => {
                let goes_on = run.goes_on;
                self.flush_part(part)?;
                self.next_run(len, goes_on)
            }
        };
        let run = &mut self.runs[part as usize];
        (run.extent, run.goes_on) = (Some(extent), true);
        let offset = extent.offset + run.buffer.len();
        run.buffer.put(bytes, UNIT);
        Ok(PageRef { offset, len: bytes.len() as u32, checksum: self.backing.checksum(bytes), birth })
    }

    /// A run of free space: a long one if there is one, else any that is long enough, else at the end of the
    /// file.
    fn next_run(&self, least: u64, goes_on: bool) -> Extent {
        // Most checkpoints are short.
        let most = if goes_on { RUN_BYTES } else { RUN_BYTES / 4 };
        let mut space = self.space.lock();
        // Where most of the file is free, short runs will soon merge, because leaves move out of sparse
        // regions.
        let is_needed = space.free_bytes() / 2 > space.end() / 3;
        let worth = if is_needed { least } else { least.max(RUN_BYTES_MIN) };
        match space.longest_free(worth) {
            Some(found) => space.allocate(found.clamp(least, most.max(least))),
            None => space.allocate(least.max(most)),
        }
    }

    /// Writes everything that was placed.
    pub(crate) fn flush(&mut self) -> Result<(), EngineError> {
        [RunKind::Inner, RunKind::Leaves, RunKind::Beside]
            .into_iter()
            .try_for_each(|part| self.flush_part(part))
    }

    /// Writes the run of a part, gives back its unused rest, and only then gives its nodes their homes: a
    /// home must never be unwritten, nor lead to something unwritten.
    fn flush_part(&mut self, part: RunKind) -> Result<(), EngineError> {
        if part == RunKind::Inner && !planted::is(Bug::InnerSettledFirst) {
            self.flush_part(RunKind::Leaves)?;
            self.flush_part(RunKind::Beside)?;
        }
        let Some(extent) = self.runs[part as usize].extent.take() else { return Ok(()) };
        let mut run = std::mem::take(&mut self.runs[part as usize]);
        let used = run.buffer.len();
        if let Err(error) = self.write_run(extent.offset, &mut run.buffer) {
            self.space.lock().give_back(extent, error.kind());
            return Err(error);
        }
        self.of_snapshots.append(&mut run.of_snapshots);
        if used < extent.len {
            self.space.lock().insert_free(Extent { offset: extent.offset + used, len: extent.len - used });
        }
        for item in run.unsettled.drain(..) {
            match item {
                Unsettled::Node(node, home) => node.settle(home),
                Unsettled::Delta(SettledDelta { delta, home, kept, leaves }) => {
                    let second = home.delta.filter(|_| kept.is_some());
                    let page = second.and_then(|page| run.buffer.get(page.offset - extent.offset, page.len));
                    drop(kept);
                    if leaves.is_some() {
                        self.retire_replaced(&delta);
                    }
                    delta.settle(home, page, self.backing);
                    self.replaced.extend(leaves);
                }
                Unsettled::Piece(piece, offset) => self.settle_piece(&piece, offset),
            }
        }
        run.buffer.clear();
        run.homes.clear();
        run.piece_homes.clear();
        // With their memory, for the next run.
        self.runs[part as usize] = run;
        Ok(())
    }

    fn settle_piece(&self, piece: &Piece, offset: u64) {
        piece.settle(offset);
        let bytes = piece.resident_bytes().map_or(0, |bytes| bytes.allocated_bytes());
        self.backing.admit(piece.clone(), bytes as u64);
    }

    /// Writes a run that was filled.
    fn write_run(&mut self, offset: u64, run: &mut RunBytes) -> Result<(), EngineError> {
        let blocks = run.whole_blocks();
        self.backing.write_blocks(offset, blocks, self.written)?;
        self.written += blocks.len() as u64;
        Ok(())
    }

    pub(crate) fn write_out(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        if let Some(disk) = self.backing.disk() {
            disk.write_at(offset, bytes)?;
            self.written += bytes.len() as u64;
        }
        Ok(())
    }
}

/// The places of a chain's pieces; the chain was replaced in `epoch`.
fn pieces_of(chain: &Chain, epoch: u64) -> impl Iterator<Item = Retired> {
    chain.pieces().iter().filter_map(move |piece| {
        let (offset, len, birth) = (piece.home()?, u64::from(piece.len()), piece.birth());
        Some(Retired { offset, len, birth, death: epoch + 1 })
    })
}

impl Drop for PageWriter<'_> {
    fn drop(&mut self) {
        // An abandoned checkpoint: nothing refers to what lies in its runs.
        for extent in self.runs.iter_mut().filter_map(|run| run.extent.take()) {
            self.space.lock().insert_free(extent);
        }
    }
}

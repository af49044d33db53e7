//! The check of the trees: every page and every value that they lead to.

use super::{Check, Hurt, NodePosition};
use crate::backing::Reading;
use crate::delta::{Delta, Records};
use crate::forest::TreeState;
use crate::leaf::Leaf;
use crate::node::{Home, Inner, Node, PageRef};
use crate::page;
use crate::slot::Slot;
use crate::space::{self, Extent, UNIT};
use crate::value::{Piece, Stored};
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;

impl Check<'_> {
    /// Checks everything in a current tree, and returns the number of its records.
    pub(super) fn tree(&mut self, tree: &TreeState) -> u64 {
        self.current = Some(tree.name.clone());
        let records = self.tree_of_snapshot(tree);
        self.current = None;
        records
    }

    pub(super) fn tree_of_snapshot(&mut self, tree: &TreeState) -> u64 {
        (self.tree_records, self.depth) = (0, None);
        self.slot(&tree.root, NodePosition { range: (Bound::Unbounded, Bound::Unbounded), depth: 0 });
        self.depths.push(self.depth);
        self.tree_records
    }

    /// Notes that these keys need what the damage from index `since` on affects.
    fn hurt(&mut self, since: usize, keys: (Bound<&[u8]>, Bound<&[u8]>)) {
        let Some(tree) = &self.current else { return };
        let keys = (keys.0.map(<[u8]>::to_vec), keys.1.map(<[u8]>::to_vec));
        let of = |damage| Hurt { damage, tree: tree.clone(), keys: keys.clone() };
        self.report.hurt.extend((since..self.report.damage.len()).map(of));
    }

    fn slot(&mut self, slot: &Slot, place: NodePosition<'_>) {
        // Asked once: a checkpoint may give it another one meanwhile.
        let home = slot.home();
        if home.is_some_and(|home| self.is_shared(&home, place)) {
            return;
        }
        let before = self.report.damage.len();
        let (node, is_new) = self.node(slot, home, place);
        self.hurt(before, place.range);
        match node {
            Some(Node::Inner(read)) => {
                let inner = self.resident_of(slot, read);
                self.inner(&inner, place);
            }
            Some(Node::Leaf(leaf)) => self.leaf(slot, &leaf, place, is_new),
            None => {}
        }
    }

    /// Whether this node of a snapshot was read in a tree that was walked before, between the same separators
    /// and with the same records beside it. Everything below it is the same as well, then. Otherwise notes
    /// where it is read now.
    fn is_shared(&mut self, home: &Home, place: NodePosition<'_>) -> bool {
        // A page that is lost to one tree may be readable in another.
        if !self.has_snapshots || home.page.is_lost() {
            return false;
        }
        let what = self.hasher.hash_one((home, place.range, place.depth));
        let before = self.walked.get(&home.page.offset).filter(|(before, _)| *before == what);
        let depth = before.and_then(|(_, tree)| self.depths.get(*tree)).copied();
        let (Some(depth), true) = (depth, self.current.is_none()) else {
            self.walked.insert(home.page.offset, (what, self.depths.len()));
            return false;
        };
        // Its leaves are as deep as all leaves of that tree.
        if depth.is_some_and(|depth| *self.depth.get_or_insert(depth) != depth) {
            let problem = crate::Damage::PageContent;
            self.report.damage.push(self.shared.backing.corrupt(home.page.offset, problem));
        }
        true
    }

    /// The node of a slot with this home, as far as it can be read, and whether it was not read before.
    fn node(&mut self, slot: &Slot, home: Option<Home>, place: NodePosition<'_>) -> (Option<Node>, bool) {
        match home {
            // A node with a home is read from there, resident or not: verifying the disk is the purpose.
            Some(Home { page, delta: None, .. }) => {
                // A checkpoint may have merged both into one page since, and retired what was replaced.
                if let Some(delta) = slot.known_delta() {
                    self.replaced(delta);
                }
                self.page(&page, place.depth)
            }
            Some(home) => self.page_and_delta(home, place.depth),
            None => {
                let read = slot.look_at(Reading::Along, &self.shared.backing);
                if let Some(delta) = slot.known_delta() {
                    self.replaced(delta);
                }
                (self.note(read), true)
            }
        }
    }

    fn leaf(&mut self, slot: &Slot, leaf: &Leaf, place: NodePosition<'_>, is_new: bool) {
        self.tree_records += leaf.len() as u64;
        let is_deep_as_others = *self.depth.get_or_insert(place.depth) == place.depth;
        if !is_deep_as_others || !place.suits(leaf) {
            let before = self.report.damage.len();
            let offset = slot.home().map_or(0, |home| home.page.offset);
            self.report.damage.push(self.shared.backing.corrupt(offset, crate::Damage::PageContent));
            self.hurt(before, place.range);
        }
        for record in 0..leaf.len() {
            if let Stored::Chain(chain) = leaf.value(record) {
                let before = self.report.damage.len();
                chain.pieces().iter().for_each(|piece| self.piece(piece, is_new));
                if self.report.damage.len() > before {
                    let key = leaf.record(record).key_to_vec();
                    self.hurt(before, (Bound::Included(&key), Bound::Included(&key)));
                }
            }
        }
    }

    /// The resident node, if there is one, for `read`, which is the same node on disk. Both must lead to the
    /// same children. What lies below the resident one may have been in memory alone when the check began, so
    /// only the deltas there know what they replaced.
    fn resident_of(&mut self, slot: &Slot, read: Arc<Inner>) -> Arc<Inner> {
        let Some(Node::Inner(resident)) = slot.get() else { return read };
        if !Arc::ptr_eq(resident, &read) && !resident.leads_where(&read) {
            let offset = slot.home().map_or(0, |home| home.page.offset);
            self.report.damage.push(self.shared.backing.corrupt(offset, crate::Damage::PageContent));
        }
        Arc::clone(resident)
    }

    fn inner(&mut self, inner: &Inner, NodePosition { range, depth }: NodePosition<'_>) {
        for (index, child) in inner.children.iter().enumerate() {
            let low = index.checked_sub(1).and_then(|before| inner.pivots().get(before));
            let high = inner.pivots().get(index);
            let low = low.map_or(range.0, |pivot| Bound::Included(&**pivot));
            let range = (low, high.map_or(range.1, |pivot| Bound::Excluded(&**pivot)));
            self.slot(child, NodePosition { range, depth: depth + 1 });
        }
    }

    /// The node on a page, and whether the check came to that page for the first time.
    fn page(&mut self, home: &PageRef, depth: usize) -> (Option<Node>, bool) {
        // Snapshots may still read a page that is lost to others.
        let is_new = home.is_lost() || self.claim(home.offset, u64::from(home.len), home.checksum);
        self.report.pages += 1;
        self.report.bytes += if is_new { u64::from(home.len) } else { 0 };
        let level = u8::try_from(depth).unwrap_or(u8::MAX);
        let read = page::read(home, level, Reading::Along, &self.shared.backing);
        (self.note(read), is_new)
    }

    /// Reads a leaf that has a page of records beside its own, and merges both.
    fn page_and_delta(&mut self, home: Home, depth: usize) -> (Option<Node>, bool) {
        let (page, mut is_new) = self.page(&home.page, depth);
        let Some(second) = home.delta.filter(|_| page.is_some()) else { return (None, is_new) };
        if self.claim(second.offset, u64::from(second.len), second.checksum) {
            self.report.bytes += u64::from(second.len);
            is_new = true;
        }
        self.report.pages += 1;
        let backing = &self.shared.backing;
        let delta = Delta::on_disk(home, backing.meter());
        let read = Records::read(&second, Reading::Along, backing).and_then(|records| {
            match records.filter() & !home.filter {
                0 => delta.read(Reading::Along, backing),
                _ => Err(backing.corrupt(second.offset, crate::Damage::PageContent)),
            }
        });
        let leaf = self.note(read).inspect(|_| self.replaced(&delta));
        (leaf.map(Node::Leaf), is_new)
    }

    /// Counts what a delta replaced: it does not leave the current tree before both pages become one.
    fn replaced(&mut self, delta: &Delta) {
        for (chain, _) in delta.replaced(self.retirements) {
            let pieces = chain.pieces().iter();
            pieces.filter_map(|piece| Some((piece.home()?, piece.len()))).for_each(|(offset, len)| {
                self.find(offset, len.into());
            });
        }
    }

    /// Verifies a piece of a value, which is new where its leaf is.
    fn piece(&mut self, piece: &Piece, is_new: bool) {
        let Some(offset) = piece.home() else { return };
        self.report.bytes += if is_new { u64::from(piece.len()) } else { 0 };
        self.find(offset, u64::from(piece.len()));
        if space::segment_at(&self.segments, offset).is_none() {
            let is_unknown = self.claim(offset, u64::from(piece.len()), piece.checksum());
            if !is_unknown && self.current.is_none() {
                // A tree that was walked before has it too.
                return;
            }
        }
        // A fresh handle reads the disk even where the bytes are in memory.
        let fresh = Piece::on_disk(offset, piece.len(), piece.checksum(), piece.birth());
        let read = fresh.verify(&self.shared.backing);
        self.note(read);
    }

    /// Notes that space is used, and returns whether that was not known yet. Two different users of the same
    /// space are damage.
    pub(super) fn claim(&mut self, offset: u64, len: u64, checksum: u64) -> bool {
        let extent = Extent::in_units(offset, len.max(UNIT));
        let before = self.used.range(..extent.end()).next_back();
        let clash = before.is_some_and(|(&start, &(end, other))| {
            end > extent.offset && (start, end, other) != (extent.offset, extent.end(), checksum)
        });
        if clash {
            self.report.damage.push(self.shared.backing.corrupt(offset, crate::Damage::SpaceUsedTwice));
        }
        let now = (extent.end(), checksum);
        self.used.insert(extent.offset, now) != Some(now)
    }
}

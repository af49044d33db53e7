//! Cells of slots that are too many to be put in place at once: the old ones go first, and those that come
//! follow one after the other.
//!
//! Invariant: between the first of them and the last, the slot is empty to everybody, also to who begins
//! again.

use crate::cells::State;
use crate::disk::Record;
use crate::queue::{Cells, Event, ToNode};
use crate::world::{Phase, World, say};
use atoll_replica::{Input, NodeId, Slot, Version};
use fastrand::Rng;

/// Cells of which some are in place.
pub(crate) struct Import {
    number: u64,
    from: NodeId,
    /// The branch of the slot when they came.
    branch: Version,
    cells: Box<Cells>,
}

/// Whether slots of this seed are long. A generator of its own: what else a seed decides does not hang on
/// this.
pub(crate) fn draw_lengths(seed: u64) -> bool {
    Rng::with_seed(seed ^ LENGTHS).bool()
}

/// Any number that no other generator begins with.
const LENGTHS: u64 = 0x6c6f_6e67;

impl World {
    /// The old cells go, if those that come are newer and nobody counts on the old ones.
    pub(crate) fn begin_import(&mut self, node: NodeId, from: NodeId, branch: Version, cells: Box<Cells>) {
        let (slot, position) = (cells.slot, cells.position);
        let (number, life) = (self.imports, self.node(node).life);
        let Some(process) = self.node_mut(node).begun() else { return };
        let configuration = process.replica.table().slot(slot);
        if configuration.branch != branch || configuration.primary != Some(from) {
            return self.counts.bump("transfers_given_up");
        }
        if !process.replica.would_import(slot, position) {
            return self.counts.bump("transfers_too_old");
        }
        let live = process.slots.entry(slot).or_default();
        (live.state, live.applied, live.logged, live.time_ms) = Default::default();
        live.deadlines.clear();
        live.import = Some(Import { number, from, branch, cells });
        self.imports += 1;
        self.counts.bump("imports_begun");
        say!(self, "{node} empties slot {} for cells up to {position}", slot.0);
        self.node_mut(node).disk.append(Record::Emptied(slot));
        self.flush(node);
        self.give(node, Input::Emptied { slot });
        self.next_part(node, ToNode::Part { life, slot, number, is_last: false });
    }

    fn next_part(&mut self, node: NodeId, what: ToNode) {
        let delay = self.random.u64(100..=8 * self.settings.disk_us_max);
        self.after(delay, Event::ToNode { node, what });
    }

    /// Some more of the cells come, or nothing more does.
    pub(crate) fn part_comes(&mut self, node: NodeId, slot: Slot, number: u64, is_last: bool) {
        let life = self.node(node).life;
        let is_cut = self.phase == Phase::Chaos && !self.is_planned && self.random.u8(..4) == 0;
        let Some(process) = self.node_mut(node).begun() else { return };
        let live = process.slots.get_mut(&slot);
        let Some(live) = live.filter(|live| live.import.as_ref().is_some_and(|one| one.number == number))
        else {
            return;
        };
        if is_last && !is_cut {
            let Some(Import { branch, cells, .. }) = live.import.take() else { return };
            self.counts.bump("imports_done");
            return self.put_in_place(node, branch, cells);
        }
        let Some(Import { cells, .. }) = &live.import else { return };
        let part = Box::new(half_of(cells));
        self.node_mut(node).disk.append(Record::Part(part));
        self.flush(node);
        if is_cut {
            // Nobody goes on with it, until its sender, for which all of it is sent, begins anew.
            return self.counts.bump("imports_interrupted");
        }
        self.next_part(node, ToNode::Part { life, slot, number, is_last: true });
    }

    /// Cells that are not wanted any more are let go of with those that are in place, before anything else is
    /// done with their slots.
    pub(crate) fn drop_overtaken_imports(&mut self, node: NodeId) {
        let Some(process) = self.node_mut(node).begun() else { return };
        let replica = &process.replica;
        let is_over = |slot: Slot, import: &Import| {
            let configuration = replica.table().slot(slot);
            configuration.primary != Some(import.from)
                || configuration.branch != import.branch
                || !replica.would_import(slot, import.cells.position)
        };
        let imports = process.slots.iter().filter_map(|(&slot, live)| Some((slot, live.import.as_ref()?)));
        let over: Vec<Slot> =
            imports.filter(|(slot, import)| is_over(*slot, import)).map(|(slot, _)| slot).collect();
        over.into_iter().for_each(|slot| self.drop_import(node, slot));
    }

    /// What is in place of an import goes, and the slot is empty.
    pub(crate) fn drop_import(&mut self, node: NodeId, slot: Slot) {
        let Some(process) = self.node_mut(node).begun() else { return };
        let import = process.slots.get_mut(&slot).and_then(|live| live.import.take());
        if import.is_some() {
            self.counts.bump("imports_overtaken");
            say!(self, "{node} lets go of the cells that came of slot {}", slot.0);
            self.node_mut(node).disk.append(Record::Forgotten(slot));
            self.flush(node);
        }
    }
}

/// The cells of every second name.
fn half_of(whole: &Cells) -> Cells {
    let Cells { slot, position, time_ms, ref state } = *whole;
    let is_in = |cell: &u8| cell.is_multiple_of(2);
    let cells = state.cells.iter().filter(|(cell, _)| is_in(cell));
    let lifetimes = state.lifetimes.iter().filter(|(cell, _)| is_in(cell));
    let state = State {
        cells: cells.map(|(&cell, value)| (cell, value.clone())).collect(),
        lifetimes: lifetimes.map(|(&cell, &lifetime)| (cell, lifetime)).collect(),
    };
    Cells { slot, position, time_ms, state }
}

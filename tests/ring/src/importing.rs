//! Imports of slots with too many cells to be replaced at once: the old cells are removed first, and the
//! new ones are written one part after the other.
//!
//! Invariant: between the first part and the last, the slot is empty to every observer, including a process
//! that starts again.

use crate::cells::State;
use crate::disk::Record;
use crate::queue::{Cells, Event, ToNode};
use crate::world::{Phase, World, say};
use atoll_replica::{Input, NodeId, Slot, Version};
use fastrand::Rng;

/// An import, some of whose cells are in place.
pub(crate) struct Import {
    number: u64,
    from: NodeId,
    /// The branch of the slot when the cells arrived.
    branch: Version,
    cells: Box<Cells>,
}

/// Whether the slots of this seed are long. A separate generator, so that the seed's other decisions do not
/// depend on this one.
pub(crate) fn draw_lengths(seed: u64) -> bool {
    Rng::with_seed(seed ^ LENGTHS).bool()
}

/// Any number with which no other generator is seeded.
const LENGTHS: u64 = 0x6c6f_6e67;

impl World {
    /// Removes the old cells, if the new ones are newer and no table counts on the old ones.
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

    /// Another part of the cells arrives, or the import is interrupted.
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
            // The import stays as it is until its sender, which has sent everything, begins anew.
            return self.counts.bump("imports_interrupted");
        }
        self.next_part(node, ToNode::Part { life, slot, number, is_last: true });
    }

    /// Drops imports that are not wanted any more, with the cells already in place, before anything else is
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

    /// Removes the cells of an import that are in place; the slot is empty.
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

/// The cells with even numbers.
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

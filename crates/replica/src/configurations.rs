//! The configurations of all slots: many slots, of which few change at a time.
//!
//! Invariant: a clone shares with its original whatever neither has changed since, so a table for each change
//! costs little.

mod part;

use crate::{Configuration, NodeId, Slot, Version};
use part::{Part, SLOTS_PER_PART};
use std::sync::Arc;

/// The configurations of all slots, packed into a few bytes each.
#[derive(Clone, Debug, Default)]
pub struct Configurations {
    parts: Vec<Arc<Part>>,
    /// The part that was changed last, unpacked: the next change mostly concerns one of its neighbours.
    open: Option<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    part: usize,
    slots: Vec<Configuration>,
}

impl Configurations {
    /// `count` slots without any copies.
    #[must_use]
    pub fn nobodys(count: u32) -> Self {
        let count = count as usize;
        let whole = Arc::new(Part::nobodys(SLOTS_PER_PART));
        let mut parts: Vec<_> = std::iter::repeat_n(whole, count / SLOTS_PER_PART).collect();
        if !count.is_multiple_of(SLOTS_PER_PART) {
            parts.push(Arc::new(Part::nobodys(count % SLOTS_PER_PART)));
        }
        Self { parts, open: None }
    }

    /// Grows to `count` slots, if there are fewer; the new ones have no copies.
    pub fn grow(&mut self, count: u32) {
        let (before, count) = (self.len(), count as usize);
        if count <= before {
            return;
        }
        self.settle();
        let whole = Arc::new(Part::nobodys(SLOTS_PER_PART));
        if before % SLOTS_PER_PART != 0
            && let Some(last) = self.parts.last_mut()
        {
            let mut slots: Vec<_> = last.slots().collect();
            slots.resize(SLOTS_PER_PART.min(slots.len() + count - before), Configuration::default());
            *last = Arc::new(Part::of(&slots));
        }
        while self.len() < count {
            let left = count - self.len();
            self.parts.push(if left < SLOTS_PER_PART {
                Arc::new(Part::nobodys(left))
            } else {
                Arc::clone(&whole)
            });
        }
    }

    /// The number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        let last = self.parts.last().map_or(0, |part| part.len());
        self.parts.len().saturating_sub(1) * SLOTS_PER_PART + last
    }

    /// Whether there are no slots.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The configuration of one slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<Configuration> {
        let (part, at) = (slot / SLOTS_PER_PART, slot % SLOTS_PER_PART);
        match &self.open {
            Some(open) if open.part == part => open.slots.get(at).copied(),
            _ => self.parts.get(part)?.get(at),
        }
    }

    /// Sets the configuration of one slot; returns whether there is such a slot.
    pub fn set(&mut self, slot: usize, configuration: Configuration) -> bool {
        let (part, at) = (slot / SLOTS_PER_PART, slot % SLOTS_PER_PART);
        if self.open.as_ref().is_none_or(|open| open.part != part) {
            let Some(slots) = self.parts.get(part).map(|part| part.slots().collect()) else { return false };
            self.settle();
            self.open = Some(Open { part, slots });
        }
        let place = self.open.as_mut().and_then(|open| open.slots.get_mut(at));
        place.map(|place| *place = configuration).is_some()
    }

    /// Applies `change` to each slot, from slot 0 on.
    pub fn change_each(&mut self, mut change: impl FnMut(Slot, &mut Configuration)) {
        self.settle();
        for (number, part) in self.parts.iter_mut().enumerate() {
            let mut slots: Vec<_> = part.slots().collect();
            for (slot, now) in (number * SLOTS_PER_PART..).zip(&mut slots) {
                change(Slot(slot as u32), now);
            }
            if !part.slots().eq(slots.iter().copied()) {
                *part = Arc::new(Part::of(&slots));
            }
        }
    }

    /// Packs the part that is open, so that all takes as little memory as it can. Call it after a batch of
    /// changes.
    pub fn settle(&mut self) {
        if let Some(open) = self.open.take()
            && let Some(part) = self.parts.get_mut(open.part)
        {
            *part = Arc::new(Part::of(&open.slots));
        }
    }

    /// All configurations, from slot 0 on: much cheaper than asking for one after the other.
    pub fn iter(&self) -> impl Iterator<Item = Configuration> + '_ {
        self.from(Slot(0))
    }

    /// All configurations from slot `first` on.
    pub fn from(&self, first: Slot) -> impl Iterator<Item = Configuration> + '_ {
        let (part, at) = (first.0 as usize / SLOTS_PER_PART, first.0 as usize % SLOTS_PER_PART);
        (part..self.parts.len()).flat_map(|part| self.part(part)).skip(at)
    }

    /// Whether a predicate holds for any slot. It must not depend on `since`: it is asked once for each
    /// distinct placement, of which there are few, and not for each of the many slots.
    pub fn any(&self, is_so: impl Fn(&Configuration) -> bool) -> bool {
        let shut = self.parts.iter().enumerate().filter(|(at, _)| !self.is_open(*at));
        self.open.as_ref().is_some_and(|open| open.slots.iter().any(&is_so))
            || shut.flat_map(|(_, part)| part.placements()).any(|placement| is_so(&placement))
    }

    /// The slots of which a node has a copy, in sync or not. Skips most parts that hold none.
    pub fn of_node(&self, node: NodeId) -> impl Iterator<Item = Slot> + '_ {
        let has = move |slot: &Configuration| slot.has(node);
        let parts = self.parts.iter().enumerate();
        let parts =
            parts.filter(move |(at, part)| self.is_open(*at) || part.placements().any(|one| has(&one)));
        let slots = parts.flat_map(|(at, _)| self.numbered(at));
        slots.filter(move |(_, slot)| has(slot)).map(|(slot, _)| slot)
    }

    /// The slots whose configuration came after the table `than`. Skips most parts that hold none.
    pub fn newer(&self, than: Version) -> impl Iterator<Item = (Slot, Configuration)> + '_ {
        let parts = self.parts.iter().enumerate();
        let parts = parts.filter(move |(at, part)| self.is_open(*at) || part.has_newer(than));
        parts.flat_map(|(at, _)| self.numbered(at)).filter(move |(_, slot)| slot.since > than)
    }

    /// The slots whose configurations differ from those in `before`, with the configurations that they have
    /// here.
    pub fn changed<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (Slot, Configuration)> + 'a {
        let parts = (0..self.parts.len()).filter(|&part| !self.shares(before, part));
        parts.flat_map(|part| {
            let before = before.part(part).map(Some).chain(std::iter::repeat(None));
            let pairs = self.numbered(part).zip(before);
            pairs.filter(|((_, now), before)| *before != Some(*now)).map(|(now, _)| now)
        })
    }

    /// The configurations of one part.
    fn part(&self, part: usize) -> impl Iterator<Item = Configuration> + '_ {
        let open = self.open.as_ref().filter(|open| open.part == part);
        let shut = self.parts.get(part).filter(|_| open.is_none());
        let open = open.into_iter().flat_map(|open| open.slots.iter().copied());
        open.chain(shut.into_iter().flat_map(|part| part.slots()))
    }

    /// The same, with the slots' numbers.
    fn numbered(&self, part: usize) -> impl Iterator<Item = (Slot, Configuration)> + '_ {
        (part * SLOTS_PER_PART..).map(|slot| Slot(slot as u32)).zip(self.part(part))
    }

    fn is_open(&self, part: usize) -> bool {
        self.open.as_ref().is_some_and(|open| open.part == part)
    }

    /// Whether both share the memory of a part.
    fn shares(&self, other: &Self, part: usize) -> bool {
        let parts = self.parts.get(part).zip(other.parts.get(part));
        !self.is_open(part) && !other.is_open(part) && parts.is_some_and(|(one, two)| Arc::ptr_eq(one, two))
    }
}

impl PartialEq for Configurations {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.changed(other).next().is_none()
    }
}

impl Eq for Configurations {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Copies, Epoch};

    fn set_epoch(of: &mut Configurations, slot: usize, epoch: u64) -> bool {
        let before = of.get(slot).unwrap_or_default();
        of.set(slot, Configuration { epoch: Epoch(epoch), ..before })
    }

    #[test]
    fn what_changed_is_found_and_nothing_else() {
        let before = Configurations::nobodys(300);
        let mut after = before.clone();
        for slot in [0, 127, 128, 299] {
            assert!(set_epoch(&mut after, slot, 7));
        }
        let changed: Vec<_> = after.changed(&before).map(|(slot, _)| slot.0).collect();
        assert_eq!(changed, [0, 127, 128, 299]);
        assert_eq!((before.len(), after.len(), after.iter().count()), (300, 300, 300));
        assert!(before.iter().all(|configuration| configuration.epoch == Epoch(0)), "the original stays");
        assert_eq!(after.changed(&Configurations::default()).count(), 300);
        assert!(after.get(300).is_none() && Configurations::nobodys(0).is_empty());
        assert!(!set_epoch(&mut after, 300, 7) && !set_epoch(&mut after, 384, 7));
        assert_eq!(Configurations::nobodys(256).len(), 256);
    }

    #[test]
    fn what_comes_is_nobodys_and_what_was_there_stays() {
        for (before, after) in [(0, 5), (5, 128), (100, 300), (128, 129), (130, 512), (300, 300), (300, 7)] {
            let mut of = Configurations::nobodys(before);
            (0..before as usize).for_each(|slot| assert!(set_epoch(&mut of, slot, slot as u64 + 1)));
            of.grow(after);
            assert_eq!(of.len(), before.max(after) as usize, "{before} {after}");
            for (slot, now) in (0..).zip(of.iter()) {
                assert_eq!(
                    now.epoch,
                    Epoch(if slot < u64::from(before) { slot + 1 } else { 0 }),
                    "{before} {after}"
                );
            }
        }
    }

    #[test]
    fn slots_of_a_node_are_found_wherever_they_are() {
        let mut of = Configurations::nobodys(400);
        let some = [0, 5, 127, 130, 399];
        for slot in some {
            let in_sync = Copies::of(&[NodeId(3)]);
            assert!(of.set(slot, Configuration { in_sync, ..Configuration::default() }));
        }
        for _ in 0..2 {
            assert_eq!(of.of_node(NodeId(3)).map(|slot| slot.0 as usize).collect::<Vec<_>>(), some);
            assert_eq!(of.of_node(NodeId(4)).count(), 0);
            of.settle();
        }
    }

    #[test]
    fn what_is_newer_and_whether_any_is_so_is_as_a_look_at_each_says() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut of = Configurations::nobodys(random.u32(1..400));
            for version in 1..random.u64(2..40) {
                let slot = random.usize(0..of.len());
                of.set(
                    slot,
                    Configuration {
                        epoch: Epoch(random.u64(..4)),
                        since: Version(version),
                        ..Configuration::default()
                    },
                );
                if random.u8(..4) == 0 {
                    of.settle();
                }
            }
            let each = || (0..of.len()).map(|slot| (Slot(slot as u32), of.get(slot).unwrap()));
            let (than, epoch, first) =
                (Version(random.u64(..40)), Epoch(random.u64(..5)), random.usize(0..of.len()));
            assert!(of.newer(than).eq(each().filter(|(_, slot)| slot.since > than)), "seed {seed}");
            assert_eq!(
                of.any(|slot| slot.epoch == epoch),
                each().any(|(_, slot)| slot.epoch == epoch),
                "seed {seed}"
            );
            let behind = each().skip(first).map(|(_, slot)| slot);
            assert!(of.from(Slot(first as u32)).eq(behind), "seed {seed}");
        }
    }

    #[test]
    fn what_is_open_and_what_is_settled_are_the_same() {
        let mut open = Configurations::nobodys(300);
        (0..300).step_by(7).for_each(|slot| assert!(set_epoch(&mut open, slot, slot as u64)));
        let mut settled = open.clone();
        settled.settle();
        assert_eq!(open, settled);
        assert!(set_epoch(&mut settled, 299, 1) && open != settled);
        let mut each = Configurations::nobodys(300);
        each.change_each(|slot, now| now.epoch = Epoch(if slot.0 % 7 == 0 { slot.0.into() } else { 0 }));
        assert_eq!(each, open);
    }
}

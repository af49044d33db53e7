//! The configurations of adjacent slots, packed into as few bytes as they need. Each distinct placement is
//! stored once; each slot stores only which placement it has, and since when.
//!
//! Invariant: what is taken out is exactly what was put in.

use crate::{Configuration, Copies, Epoch, NodeId, Version};

/// Slots in one part, which is stored and copied as a whole when one of them changes. One byte for each slot
/// names its placement, so this may not exceed 256.
pub(super) const SLOTS_PER_PART: usize = 128;

/// The configurations of adjacent slots.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The index of each slot's placement.
    which: Box<[u8]>,
    since: Since,
    /// The distinct placements: all of a configuration except `since`.
    placements: Box<[u8]>,
    /// Where each placement begins.
    starts: Box<[u16]>,
}

/// The table since which each slot is as it is.
#[derive(Clone, Debug)]
enum Since {
    /// The smallest version, and each slot's distance from it.
    Near(Version, Box<[u32]>),
    Far(Box<[Version]>),
}

impl Part {
    pub(super) fn of(slots: &[Configuration]) -> Self {
        let mut kinds: Vec<Configuration> = Vec::new();
        let mut last = 0;
        let which = slots.iter().map(|slot| {
            let kind = Configuration { since: Version(0), ..*slot };
            // Neighbours mostly have the same placement.
            if kinds.get(last) != Some(&kind) {
                last = kinds.iter().position(|one| *one == kind).unwrap_or_else(|| {
                    kinds.push(kind);
                    kinds.len() - 1
                });
            }
            last as u8
        });
        let which = which.collect();
        let (mut placements, mut starts) = (Vec::new(), Vec::with_capacity(kinds.len()));
        for kind in &kinds {
            starts.push(placements.len() as u16);
            put(kind, &mut placements);
        }
        let (placements, starts) = (placements.into_boxed_slice(), starts.into_boxed_slice());
        Self { which, since: Since::of(slots), placements, starts }
    }

    /// `count` slots without any copies.
    pub(super) fn nobodys(count: usize) -> Self {
        Self::of(&vec![Configuration::default(); count])
    }

    pub(super) fn len(&self) -> usize {
        self.which.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<Configuration> {
        let start = *self.starts.get(usize::from(*self.which.get(at)?))?;
        let mut placement = self.placements.get(usize::from(start)..)?;
        Some(Configuration { since: self.since.get(at)?, ..take(&mut placement)? })
    }

    /// Each distinct placement once, with `since` left at 0.
    pub(super) fn placements(&self) -> impl Iterator<Item = Configuration> + '_ {
        self.starts.iter().filter_map(|&start| take(&mut self.placements.get(usize::from(start)..)?))
    }

    /// The configurations of all slots, each placement decoded once.
    pub(super) fn slots(&self) -> impl Iterator<Item = Configuration> + '_ {
        let placements: Vec<Configuration> = self.placements().collect();
        self.which.iter().enumerate().filter_map(move |(at, &which)| {
            Some(Configuration { since: self.since.get(at)?, ..*placements.get(usize::from(which))? })
        })
    }

    /// Whether the configuration of any slot came after the table `than`.
    pub(super) fn has_newer(&self, than: Version) -> bool {
        match &self.since {
            Since::Near(first, later) => {
                let most = later.iter().copied().max();
                most.is_some_and(|most| first.0 + u64::from(most) > than.0)
            }
            Since::Far(since) => since.iter().any(|since| *since > than),
        }
    }
}

impl Since {
    fn of(slots: &[Configuration]) -> Self {
        let first = slots.iter().map(|slot| slot.since).min().unwrap_or_default();
        let later = slots.iter().map(|slot| u32::try_from(slot.since.0 - first.0).ok());
        match later.collect::<Option<Box<[u32]>>>() {
            Some(later) => Self::Near(first, later),
            None => Self::Far(slots.iter().map(|slot| slot.since).collect()),
        }
    }

    fn get(&self, at: usize) -> Option<Version> {
        match self {
            Self::Near(first, later) => Some(Version(first.0 + u64::from(*later.get(at)?))),
            Self::Far(since) => since.get(at).copied(),
        }
    }
}

/// In place of an index into the in-sync copies: no node; and a node that is not among them, whose number
/// follows those of the copies.
const NONE: u8 = 15;
const OTHER: u8 = 14;

fn put(placement: &Configuration, out: &mut Vec<u8>) {
    number(placement.epoch.0, out);
    number(placement.branch.0, out);
    let place = |node: Option<NodeId>| match node {
        None => NONE,
        Some(node) => placement.in_sync.iter().position(|one| one == node).map_or(OTHER, |at| at as u8),
    };
    let (primary, successor) = (place(placement.primary), place(placement.successor));
    out.push(primary << 4 | successor);
    out.push((placement.in_sync.len() as u8) << 4 | placement.joining.len() as u8);
    let others = [(primary, placement.primary), (successor, placement.successor)];
    let others = others.into_iter().filter(|(place, _)| *place == OTHER).filter_map(|(_, node)| node);
    let nodes = placement.in_sync.iter().chain(placement.joining.iter()).chain(others);
    nodes.for_each(|node| number(node.0.into(), out));
}

fn take(from: &mut &[u8]) -> Option<Configuration> {
    let (epoch, branch) = (Epoch(taken(from)?), Version(taken(from)?));
    let (&[places, counts], rest) = from.split_first_chunk::<2>()?;
    *from = rest;
    let mut copies = |count: u8| {
        let mut copies = Copies::default();
        for _ in 0..count {
            copies.insert(node(from)?);
        }
        Some(copies)
    };
    let (in_sync, joining) = (copies(counts >> 4)?, copies(counts & 15)?);
    let mut one = |place: u8| match place {
        NONE => Some(None),
        OTHER => Some(Some(node(from)?)),
        place => Some(Some(*in_sync.as_slice().get(usize::from(place))?)),
    };
    let (primary, successor) = (one(places >> 4)?, one(places & 15)?);
    Some(Configuration { epoch, since: Version(0), branch, primary, successor, in_sync, joining })
}

fn node(from: &mut &[u8]) -> Option<NodeId> {
    u32::try_from(taken(from)?).ok().map(NodeId)
}

/// Writes a number with seven bits a byte, the lowest first.
fn number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn taken(from: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 127).checked_shl(shift)?;
        if byte < 128 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(random: &mut fastrand::Rng) -> Configuration {
        let mut some = |most: usize| {
            let count = random.usize(..=most);
            Copies::of(&(0..count).map(|_| NodeId(random.u32(..) >> random.u8(..32))).collect::<Vec<_>>())
        };
        let (in_sync, joining) = (some(8), some(8));
        let one = |random: &mut fastrand::Rng| match random.u8(..3) {
            0 => None,
            1 => in_sync.as_slice().first().copied(),
            _ => Some(NodeId(random.u32(..))),
        };
        let (primary, successor) = (one(random), one(random));
        let mut far = || random.u64(..) >> random.u8(..64);
        Configuration {
            epoch: Epoch(far()),
            since: Version(far()),
            branch: Version(far()),
            primary,
            successor,
            in_sync,
            joining,
        }
    }

    #[test]
    fn whatever_is_put_in_comes_out() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let few: Vec<_> = (0..random.usize(1..20)).map(|_| any(&mut random)).collect();
            let count = random.usize(1..=SLOTS_PER_PART);
            let slots: Vec<_> = (0..count)
                .map(|_| match random.bool() {
                    true => any(&mut random),
                    false => few[random.usize(..few.len())],
                })
                .collect();
            let part = Part::of(&slots);
            assert!(part.slots().eq(slots.iter().copied()), "seed {seed}");
            assert!((0..count).filter_map(|at| part.get(at)).eq(part.slots()), "seed {seed}");
            let newest = slots.iter().map(|slot| slot.since).max().unwrap();
            let before = Version(newest.0.saturating_sub(1));
            assert_eq!(
                (part.has_newer(before), part.has_newer(newest)),
                (newest > before, false),
                "seed {seed}"
            );
            let is_even = |slot: &Configuration| slot.epoch.0.is_multiple_of(2);
            assert_eq!(part.placements().any(|one| is_even(&one)), slots.iter().any(is_even), "seed {seed}");
            assert_eq!((part.len(), part.get(count)), (count, None));
        }
    }
}

//! Which nodes get the copies of slots that have none yet.
//!
//! The nodes lie on a circle as long as each slot is to have copies, each with an arc as long as its part of
//! them. A slot begins at its own point of the circle, where its primary is, and has a copy each length 1
//! from there. So nodes get copies in proportion to their weights (systematic sampling: Madow 1949), adjacent
//! slots mostly have the same nodes, and where a node fails, many others share what it led.
//!
//! Invariant: no arc is longer than 1, and if there are as many zones as copies, the arcs of no zone are
//! together, so no two copies of a slot are on one node, or in one zone.

use crate::{Copies, NodeId, Weight};

/// The length 1 on the circle.
const UNIT: u64 = 1 << 32;

/// A node that may get copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) node: NodeId,
    pub(super) zone: usize,
    pub(super) weight: Weight,
}

/// The nodes on their circle.
pub(super) struct Circle {
    /// Each node with the end of its arc; nodes of one zone are neighbours.
    arcs: Vec<(NodeId, u64)>,
    copies: u64,
}

impl Circle {
    /// Lays out nodes for slots with this many copies; there must be at least as many nodes.
    pub(super) fn of(mut nodes: Vec<Candidate>, copies: usize) -> Self {
        nodes.sort_by_key(|candidate| (candidate.zone, candidate.node));
        let zones: Vec<&[Candidate]> = nodes.chunk_by(|one, next| one.zone == next.zone).collect();
        let around = copies as u64 * UNIT;
        let lengths: Vec<u64> = if zones.len() >= copies {
            let of_zones = parts(zones.iter().map(|zone| weight_of(zone)), around);
            let within = zones.iter().zip(of_zones).map(|(zone, length)| parts(weights(zone), length));
            within.flatten().collect()
        } else {
            parts(weights(&nodes), around)
        };
        let ends = lengths.into_iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        Self { arcs: nodes.iter().map(|one| one.node).zip(ends).collect(), copies: copies as u64 }
    }

    /// The copies of slot `slot` of `slots`; its primary first.
    pub(super) fn copies(&self, slot: u32, slots: u32) -> Copies {
        let around = self.copies * UNIT;
        let begin = u128::from(slot) * u128::from(around) / u128::from(slots.max(1));
        let begin = u64::try_from(begin).unwrap_or(0);
        let mut copies = Copies::default();
        for number in 0..self.copies {
            let point = (begin + number * UNIT) % around;
            let at = self.arcs.partition_point(|(_, end)| *end <= point);
            copies.extend(self.arcs.get(at).map(|(node, _)| *node));
        }
        copies
    }
}

fn weights(nodes: &[Candidate]) -> impl Iterator<Item = u64> + '_ {
    nodes.iter().map(|one| one.weight.get().into())
}

fn weight_of(nodes: &[Candidate]) -> u64 {
    weights(nodes).sum()
}

/// Divides a length in proportion to weights, into parts of at most 1. There must be enough parts for that.
fn parts(weights: impl Iterator<Item = u64>, length: u64) -> Vec<u64> {
    let weights: Vec<u64> = weights.collect();
    let mut heaviest_first: Vec<usize> = (0..weights.len()).collect();
    heaviest_first.sort_by_key(|&at| std::cmp::Reverse(weights[at]));
    let mut parts = vec![0; weights.len()];
    let (mut length, mut weight) = (length, weights.iter().sum::<u64>());
    for at in heaviest_first {
        let part = u128::from(length) * u128::from(weights[at]) / u128::from(weight.max(1));
        // What the heaviest cannot have goes to the others.
        parts[at] = u64::try_from(part).unwrap_or(UNIT).min(UNIT);
        length -= parts[at];
        weight -= weights[at];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn circle(nodes: &[(usize, u16)], copies: usize) -> Circle {
        let candidate = |(node, &(zone, weight)): (u32, &(usize, u16))| Candidate {
            node: NodeId(node),
            zone,
            weight: Weight::new(weight).unwrap(),
        };
        Circle::of((1..).zip(nodes).map(candidate).collect(), copies)
    }

    fn divided(weights: &[u64], length: u64) -> Vec<u64> {
        parts(weights.iter().copied(), length)
    }

    #[test]
    fn a_length_is_divided_by_weight_and_no_part_is_longer_than_one() {
        assert_eq!(divided(&[1, 3], UNIT), [UNIT / 4, UNIT / 4 * 3]);
        assert_eq!(divided(&[1, 9, 1], 2 * UNIT), [UNIT / 2, UNIT, UNIT / 2]);
        assert_eq!(divided(&[5, 5], 2 * UNIT), [UNIT, UNIT]);
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..1_000 {
            let weights: Vec<u64> = (0..random.usize(1..20)).map(|_| random.u64(1..1_000)).collect();
            let length = random.u64(1..=weights.len() as u64) * UNIT;
            let parts = divided(&weights, length);
            assert_eq!(parts.iter().sum::<u64>(), length, "seed {seed}: {weights:?}");
            assert!(parts.iter().all(|part| *part <= UNIT), "seed {seed}: {weights:?}");
        }
    }

    #[test]
    fn each_node_gets_copies_by_its_weight_and_each_slot_has_different_zones() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..200 {
            let copies = random.usize(1..=5);
            let zones = random.usize(copies..copies + 5);
            let each = random.usize(1..5);
            let nodes: Vec<_> = (0..zones * each).map(|at| (at % zones, random.u16(1..4))).collect();
            let circle = circle(&nodes, copies);
            let (mut has, mut leads) = (BTreeMap::new(), BTreeMap::new());
            const SLOTS: u32 = 16_384;
            for slot in 0..SLOTS {
                let copies_of = circle.copies(slot, SLOTS);
                assert_eq!(copies_of.len(), copies, "seed {seed}, round {round}");
                let mut seen: Vec<_> = copies_of.iter().map(|node| nodes[node.0 as usize - 1].0).collect();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), copies, "seed {seed}, round {round}, slot {slot}: {copies_of:?}");
                copies_of.iter().for_each(|node| *has.entry(node).or_insert(0_u64) += 1);
                *leads.entry(copies_of.as_slice()[0]).or_insert(0_u64) += 1;
            }
            let mut begin = 0;
            for (node, end) in &circle.arcs {
                let fair = (end - begin) as f64 / UNIT as f64 * f64::from(SLOTS);
                begin = *end;
                let (has, leads) = (has[node] as f64, leads[node] as f64);
                assert!((has - fair).abs() <= 2.0 * copies as f64, "seed {seed}: {has} of {fair}");
                assert!((leads - fair / copies as f64).abs() <= 2.0, "seed {seed}: {leads} of {fair}");
            }
        }
    }

    #[test]
    fn with_fewer_zones_than_copies_the_nodes_differ_all_the_same() {
        for (nodes, copies) in [(vec![(0, 1); 5], 3), (vec![(0, 1), (0, 7), (1, 2), (1, 1)], 3)] {
            let circle = circle(&nodes, copies);
            assert!((0..1_000).all(|slot| circle.copies(slot, 1_000).len() == copies));
        }
    }

    #[test]
    fn clients_learn_few_ranges() {
        let circle = circle(&[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)], 3);
        let primary = |slot| circle.copies(slot, 16_384).as_slice()[0];
        let changes = (1..16_384).filter(|&slot| primary(slot) != primary(slot - 1)).count();
        assert_eq!(changes, 4);
    }
}

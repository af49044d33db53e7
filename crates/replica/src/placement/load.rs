//! How much of the ring a node has, compared with how large it is.

use crate::Weight;
use std::cmp::Ordering;

/// How many slots a node has a copy of, and how many it leads or is about to lead.
#[derive(Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) copies: usize,
    pub(super) leads: usize,
    pub(super) weight: Weight,
}

/// A number of slots compared with the weight of the node that has them. Ordered by their quotient.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    slots: usize,
    weight: Weight,
}

impl Load {
    /// The share of copies.
    pub(super) fn copies(&self) -> Share {
        Share { slots: self.copies, weight: self.weight }
    }

    /// The share of slots that it leads.
    pub(super) fn leads(&self) -> Share {
        Share { slots: self.leads, weight: self.weight }
    }
}

impl Share {
    /// The share with one slot more. To move a slot is worth it where this is less than the share of the node
    /// that gives it: then the largest share of any node shrinks, or fewer nodes have it, so moving ends.
    pub(super) fn and_one(self) -> Self {
        Self { slots: self.slots + 1, ..self }
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        let across = |one: &Self, other: &Self| one.slots as u64 * u64::from(other.weight.get());
        across(self, other).cmp(&across(other, self))
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Share {}

//! What a leader knows of nodes: which was heard when, whose connection ended, and which are given up for it.
//!
//! Invariant: a node that this leader heard within the timeout is given up only if its connection ended and
//! it did not come back; the leader before this one may be such a node.
//! Invariant: no other node is given up before this leader has led for that long: the leader before it may
//! have heard the node until then.
//! Invariant: no node is given up while this leader reaches no other member: it cannot tell whose silence
//! that is.

use crate::CouncilOptions;
use atoll_replica::{Incarnation, NodeId, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// What this leader knows of nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// When each node was last heard, and in which life.
    pub(super) heard: BTreeMap<NodeId, (Incarnation, Instant)>,
    /// The nodes whose connections ended, when, and in which life; without those that came back.
    pub(super) lost: BTreeMap<NodeId, (Incarnation, Instant)>,
    /// The same for the member that led before.
    pub(super) lost_leader: Option<(NodeId, Incarnation, Instant)>,
    /// Since when this member leads.
    pub(super) led_since: Option<Instant>,
    /// The nodes that are being given up.
    pub(super) failing: BTreeSet<NodeId>,
    /// Since when each node is down, as far as this leader knows.
    pub(super) down: BTreeMap<NodeId, Instant>,
}

impl Nodes {
    /// Begins to lead. If the connection of the former leader ended just now, its process most likely did
    /// too: it has to be heard within the time that any node has after its connection ends. Nothing else that
    /// was seen before counts.
    pub(super) fn begin(&mut self, now: Instant, recent: Duration) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < recent;
        let lost = self.lost_leader.filter(|(.., at)| is_recent(*at));
        let lost = lost.map(|(node, life, _)| (node, (life, now)));
        *self = Self { led_since: Some(now), lost: lost.into_iter().collect(), ..Self::default() };
    }

    /// Gives every node as much time to be heard as when this member began to lead.
    pub(super) fn begin_anew(&mut self, now: Instant) {
        self.led_since = Some(now);
        self.lost.clear();
    }

    /// Accounts for a time in which this member stood still until now. Whatever it heard or lost lies that
    /// much less far back, but never in the future: a node heard a moment ago would have that long to fall
    /// silent.
    pub(super) fn forgive(&mut self, time: Duration, now: Instant) {
        let known = self.heard.values_mut().chain(self.lost.values_mut());
        known.for_each(|(_, at)| *at = (*at + time).min(now).max(*at));
    }

    /// Nodes that were not heard for too long.
    pub(super) fn silent(
        &mut self,
        table: &Table,
        options: &CouncilOptions,
        now: Instant,
    ) -> Vec<(NodeId, Incarnation)> {
        let mut silent = Vec::new();
        let led_since = self.led_since.unwrap_or(now);
        for (&node, member) in table.members.iter() {
            if !member.is_up {
                self.down.entry(node).or_insert(now);
                continue;
            }
            self.down.remove(&node);
            let in_this_life = self.heard.get(&node).filter(|(life, _)| *life >= member.incarnation);
            let heard_at = in_this_life.map_or(led_since, |(_, at)| *at).max(led_since);
            let lost = self.lost.get(&node).filter(|(life, _)| *life >= member.incarnation);
            let is_lost =
                lost.is_some_and(|(_, at)| now.saturating_duration_since(*at) > options.lost_timeout());
            let is_silent = now.saturating_duration_since(heard_at) > options.node_timeout();
            if (is_silent || is_lost) && self.failing.insert(node) {
                silent.push((node, member.incarnation));
            }
        }
        silent
    }

    pub(super) fn gone(&self, after: Duration, now: Instant) -> Vec<NodeId> {
        let gone = self.down.iter().filter(|(_, since)| now.saturating_duration_since(**since) > after);
        gone.map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemberAddress;
    use atoll_replica::{GroupOptions, Member};

    #[test]
    fn who_was_heard_while_the_leader_stood_still_has_as_long_as_anybody_and_no_longer() {
        let (node, life) = (NodeId(2), Incarnation(1));
        let (nobody, ring) = (Vec::<(NodeId, MemberAddress)>::new(), GroupOptions { slots: 1, copies: 1 });
        let options = CouncilOptions::new(NodeId(1), nobody, ring, String::new());
        let mut table = Table::empty(1);
        table.members.insert(node, Member { incarnation: life, ..Member::new("".into()) });
        let began = Instant::now();
        let now = began + Duration::from_secs(10);
        let heard_at = |at: Instant| {
            let mut nodes = Nodes { led_since: Some(began), ..Nodes::default() };
            nodes.heard.insert(node, (life, at));
            nodes.forgive(Duration::from_secs(5), now);
            nodes
        };
        let is_silent = |nodes: &mut Nodes, after_ms: u64| {
            !nodes.silent(&table, &options, now + Duration::from_millis(after_ms)).is_empty()
        };
        let mut heard_now = heard_at(now);
        assert!(!is_silent(&mut heard_now, 1_400));
        assert!(is_silent(&mut heard_now, 1_600));
        let mut heard_before = heard_at(now - Duration::from_secs(6));
        assert!(!is_silent(&mut heard_before, 400), "the silence of five seconds of six was this leader's");
        assert!(is_silent(&mut heard_before, 600));
        assert_eq!(heard_at(now + Duration::from_millis(1)).heard[&node].1, now + Duration::from_millis(1));
    }
}

//! Processes that start, crash and restart, and links and clocks that fail.

use super::{Event, GROUP, SECOND, SLOT, World};
use atoll_replica::{Change, Found, Incarnation, NodeId, PlacementHints, Replica, Survived, Version};

impl World {
    pub(super) fn register(&mut self, node: NodeId) {
        let there = &self.nodes[&node];
        let change = Change::Register {
            node,
            nonce: there.life,
            address: String::new(),
            hints: PlacementHints::default(),
            survived: there.survived.clone(),
        };
        self.ask_group(node, change);
    }

    pub(super) fn begin(&mut self, node: NodeId, incarnation: Incarnation) {
        let now = self.clock(node);
        let there = self.nodes.get_mut(&node).unwrap();
        if there.incarnation.is_some() {
            return;
        }
        there.incarnation = Some(incarnation);
        let base = there.applied.last().map(|entry| (entry.position, entry.time_ms)).unwrap_or_default();
        let entries =
            there.log.iter().filter(|entry| entry.position.sequence > base.0.sequence).cloned().collect();
        let branch = Version::default();
        let found = Found { slot: SLOT, base: base.0, base_time_ms: base.1, branch, entries };
        there.replica.begin(now, incarnation, vec![found]);
        self.send_table(node);
    }

    pub(super) fn restart(&mut self, node: NodeId) {
        if self.nodes[&node].is_up {
            return;
        }
        self.counts.count("restart");
        let is_first = self.nodes[&node].life == 0;
        let survives = self.survives;
        let options = self.options.clone();
        let there = self.nodes.get_mut(&node).unwrap();
        there.life += 1;
        (there.is_up, there.incarnation) = (true, None);
        there.replica = Replica::new(node, options);
        there.survived = if survives && !is_first {
            Survived::Everything
        } else {
            (there.log, there.applied) = Default::default();
            (there.synced, there.checkpoint) = (0, 0);
            Survived::Nothing
        };
        if survives && !is_first {
            self.counts.count("everything survived");
        }
        let life = self.nodes[&node].life;
        self.register(node);
        self.at(20_000, Event::Tick { node, life });
    }

    pub(super) fn crash(&mut self, node: NodeId) {
        let there = self.nodes.get_mut(&node).unwrap();
        if !there.is_up {
            return;
        }
        (there.is_up, there.paused_until) = (false, 0);
        there.held.clear();
        // Synced entries survive; of the others, a random prefix. The cells are those of a checkpoint, or
        // newer.
        let kept = self.random.usize(there.synced..=there.log.len());
        there.log.truncate(kept);
        there.synced = kept;
        there.writes.clear();
        let applied = self.random.usize(there.checkpoint..=there.applied.len());
        there.applied.truncate(applied.max(there.checkpoint));
        there.checkpoint = there.applied.len();
        // The cells may be newer than the log: committed entries are the same everywhere.
        if there.applied.len() > there.log.len() {
            there.log = there.applied.clone();
            there.synced = there.log.len();
        }
        self.trace(|| format!("{node} crashes"));
    }

    pub(super) fn fault(&mut self) {
        let pause = self.random.u64(50_000..2 * SECOND);
        if self.is_calm {
            return;
        }
        self.at(pause, Event::Fault);
        let nodes: Vec<_> = self.nodes.keys().copied().collect();
        let node = nodes[self.random.usize(..nodes.len())];
        let back = self.random.u64(10_000..4 * SECOND);
        match self.random.u8(..12) {
            0..=2 => {
                self.counts.count("crash");
                self.crash(node);
                self.at(back, Event::Restart { node });
            }
            3 => {
                self.counts.count("outage");
                for &node in &nodes {
                    self.crash(node);
                    let back = self.random.u64(10_000..4 * SECOND);
                    self.at(back, Event::Restart { node });
                }
            }
            4 | 5 => {
                self.counts.count("cut");
                let with_group = self.random.bool();
                for other in nodes.iter().copied().chain(with_group.then_some(GROUP)) {
                    self.cut.extend([(node, other), (other, node)]);
                }
                self.trace(|| format!("{node} is cut off, from the group too: {with_group}"));
            }
            6 => {
                self.counts.count("one-way cut");
                let other = if self.random.bool() { GROUP } else { nodes[self.random.usize(..nodes.len())] };
                let way = if self.random.bool() { (node, other) } else { (other, node) };
                self.cut.insert(way);
                self.trace(|| format!("{} hears {} no more", way.1, way.0));
            }
            7 => {
                self.counts.count("pause");
                let until = self.now + back;
                self.nodes.get_mut(&node).unwrap().paused_until = until;
                self.at(back, Event::Resume { node });
                self.trace(|| format!("{node} pauses for {back} us"));
            }
            _ => {
                self.cut.clear();
                self.trace(|| "all links are whole".to_owned());
            }
        }
    }

    pub(super) fn heal(&mut self) {
        self.is_calm = true;
        self.silence_us = 2 * SECOND;
        self.cut.clear();
        self.trace(|| "everything is calm from now on".to_owned());
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.nodes.get_mut(&node).unwrap().paused_until = 0;
            self.at(0, Event::Resume { node });
            self.at(0, Event::Restart { node });
        }
    }
}

//! The links between nodes and to the configuration group: each direction is late, lossy, slow or cut on
//! its own.

use crate::counts::Counts;
use crate::settings::Settings;
use atoll_replica::NodeId;
use fastrand::Rng;

/// The configuration group, as an endpoint of links.
pub(crate) const GROUP: NodeId = NodeId(0);

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    is_cut: bool,
    /// The shortest delay of a message.
    base_us: u64,
    /// The longest additional delay of a message.
    slow_us: u64,
    loss_ppm: u32,
    /// When the last message arrives, on links that keep the order.
    last: u64,
}

/// All links.
#[derive(Debug)]
pub(crate) struct Network {
    ends: usize,
    ways: Vec<Direction>,
    loss_ppm: u32,
    doubled_ppm: u32,
    late_ppm: u32,
    late_us_max: u64,
    is_ordered: bool,
    is_calm: bool,
}

/// The longest additional delay of a message on a link that is not slow.
const JITTER_US: u64 = 300;

impl Network {
    pub(crate) fn new(settings: &Settings, random: &mut Rng) -> Self {
        let ends = settings.nodes as usize + 1;
        let far = [200, 1_000, 4_000][random.usize(..3)].min(settings.far_us_max);
        let way = |random: &mut Rng| Direction { base_us: random.u64(50..=far), ..Direction::default() };
        Self {
            ends,
            ways: (0..ends * ends).map(|_| way(random)).collect(),
            loss_ppm: settings.loss_ppm,
            doubled_ppm: settings.doubled_ppm,
            late_ppm: settings.late_ppm,
            late_us_max: settings.options.lease_us,
            is_ordered: settings.is_ordered,
            is_calm: false,
        }
    }

    fn way(&mut self, from: NodeId, to: NodeId) -> &mut Direction {
        &mut self.ways[from.0 as usize * self.ends + to.0 as usize]
    }

    /// When a message sent now arrives: never, once, or twice.
    pub(crate) fn arrivals(
        &mut self,
        (from, to): (NodeId, NodeId),
        now: u64,
        random: &mut Rng,
        counts: &mut Counts,
    ) -> [Option<u64>; 2] {
        let way = *self.way(from, to);
        if way.is_cut {
            counts.bump("messages_cut");
            return [None, None];
        }
        if chance(random, (self.loss_ppm + way.loss_ppm) * u32::from(!self.is_calm)) {
            counts.bump("messages_lost");
            return [None, None];
        }
        let first = self.arrival((from, to), now, random, counts);
        if !self.is_ordered && chance(random, self.doubled_ppm * u32::from(!self.is_calm)) {
            counts.bump("messages_doubled");
            return [Some(first), Some(self.arrival((from, to), now, random, counts))];
        }
        [Some(first), None]
    }

    /// When a message arrives that is never lost, if the link is whole.
    pub(crate) fn arrival(
        &mut self,
        (from, to): (NodeId, NodeId),
        now: u64,
        random: &mut Rng,
        counts: &mut Counts,
    ) -> u64 {
        let (is_ordered, late_us_max) = (self.is_ordered, self.late_us_max);
        let is_late = !self.is_calm && chance(random, self.late_ppm);
        let way = self.way(from, to);
        let mut at = now + way.base_us + random.u64(..=JITTER_US + way.slow_us);
        if is_late {
            counts.bump("messages_late");
            at += random.u64(..late_us_max);
        }
        if is_ordered {
            at = at.max(way.last + 1);
        } else if at < way.last {
            counts.bump("messages_overtaken");
        }
        way.last = at.max(way.last);
        at
    }

    pub(crate) fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        !self.ways[from.0 as usize * self.ends + to.0 as usize].is_cut
    }

    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.way(from, to).is_cut = true;
    }

    /// Makes one direction slow and lossy.
    pub(crate) fn spoil(&mut self, from: NodeId, to: NodeId, slow_us: u64, loss_ppm: u32) {
        let way = self.way(from, to);
        (way.slow_us, way.loss_ppm) = (slow_us, loss_ppm);
    }

    /// Mends all links.
    pub(crate) fn mend(&mut self) {
        for way in &mut self.ways {
            (way.is_cut, way.slow_us, way.loss_ppm) = (false, 0, 0);
        }
    }

    /// Ends loss, duplication and additional delays.
    pub(crate) fn calm(&mut self) {
        self.mend();
        self.is_calm = true;
    }
}

/// True with a probability of `ppm` in a million.
pub(crate) fn chance(random: &mut Rng, ppm: u32) -> bool {
    ppm > 0 && random.u32(..1_000_000) < ppm
}

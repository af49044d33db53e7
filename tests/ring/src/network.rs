//! The links between nodes and to the configuration group: each way on its own is late, lossy, slow or cut.

use crate::counts::Counts;
use crate::settings::Settings;
use atoll_replica::NodeId;
use fastrand::Rng;

/// The configuration group, as an end of links.
pub(crate) const GROUP: NodeId = NodeId(0);

/// One way of one link.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    is_cut: bool,
    /// What every message takes at least.
    base_us: u64,
    /// What a message may take beside.
    slow_us: u64,
    loss_ppm: u32,
    /// When the last message arrives, where they arrive in order.
    last: u64,
}

/// All links.
#[derive(Debug)]
pub(crate) struct Network {
    ends: usize,
    ways: Vec<Way>,
    loss_ppm: u32,
    doubled_ppm: u32,
    late_ppm: u32,
    late_us_max: u64,
    is_ordered: bool,
    is_calm: bool,
}

/// What a message takes beside, where nothing is slow.
const JITTER_US: u64 = 300;

impl Network {
    pub(crate) fn new(settings: &Settings, random: &mut Rng) -> Self {
        let ends = settings.nodes as usize + 1;
        let far = [200, 1_000, 4_000][random.usize(..3)].min(settings.far_us_max);
        let way = |random: &mut Rng| Way { base_us: random.u64(50..=far), ..Way::default() };
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

    fn way(&mut self, from: NodeId, to: NodeId) -> &mut Way {
        &mut self.ways[from.0 as usize * self.ends + to.0 as usize]
    }

    /// When something said now arrives: never, once, or twice.
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

    /// When something arrives that is not lost, if the link is whole.
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

    /// Makes one way slow and lossy.
    pub(crate) fn spoil(&mut self, from: NodeId, to: NodeId, slow_us: u64, loss_ppm: u32) {
        let way = self.way(from, to);
        (way.slow_us, way.loss_ppm) = (slow_us, loss_ppm);
    }

    /// All links are whole.
    pub(crate) fn mend(&mut self) {
        for way in &mut self.ways {
            (way.is_cut, way.slow_us, way.loss_ppm) = (false, 0, 0);
        }
    }

    /// Nothing is lost, doubled or late any more.
    pub(crate) fn calm(&mut self) {
        self.mend();
        self.is_calm = true;
    }
}

/// Something that happens so many times in a million.
pub(crate) fn chance(random: &mut Rng, ppm: u32) -> bool {
    ppm > 0 && random.u32(..1_000_000) < ppm
}

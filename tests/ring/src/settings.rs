//! What a seed decides at the start: the size of the world, and how bad it is.

use crate::case::{Case, Flaw};
use crate::lives::Ending;
use atoll_replica::{KeyspaceRules, NodeId, Options, Persistence, PlacementHints, Reads, Slot, Weight};
use fastrand::Rng;

/// When an entry counts as logged, and what survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Once it is synced: everything survives.
    Always,
    /// Once it is written; syncs follow periodically: everything survives the death of a process, nothing a
    /// loss of power.
    EverySecond,
    /// At once: nothing survives.
    Memory,
}

impl Durability {
    const fn persistence(self) -> Persistence {
        match self {
            Self::Always => Persistence::Always,
            Self::EverySecond => Persistence::EverySecond,
            Self::Memory => Persistence::Off,
        }
    }
}

/// The world of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) nodes: u32,
    pub(crate) slots: u32,
    pub(crate) copies: usize,
    pub(crate) clients: usize,
    /// How many operations clients begin before everything heals.
    pub(crate) operations: usize,
    /// That of the first keyspace.
    pub(crate) durability: Durability,
    /// Those of the keyspaces behind the first one, if there are any. Each keyspace has one slot then.
    others: Vec<Durability>,
    pub(crate) options: Options,
    /// The largest error of a clock's rate, in millionths.
    pub(crate) clock_error_ppm: u32,
    /// The silence after which the group takes a node for failed.
    pub(crate) silence_us: u64,
    /// Whether the group sends a new table to all nodes, or they have to ask.
    pub(crate) pushes_tables: bool,
    pub(crate) loss_ppm: u32,
    pub(crate) doubled_ppm: u32,
    pub(crate) late_ppm: u32,
    /// Whether messages from one node to another arrive in order.
    pub(crate) is_ordered: bool,
    /// The longest base delay from one machine to another.
    pub(crate) far_us_max: u64,
    /// The longest time between two faults.
    pub(crate) fault_us_max: u64,
    /// The longest time for which a dead node stays away.
    pub(crate) away_us_max: u64,
    /// The longest time until the disk answers, apart from stalls.
    pub(crate) disk_us_max: u64,
    /// The longest time for which a client waits for an answer.
    pub(crate) patience_us: u64,
    /// The longest pause of a client between two operations.
    pub(crate) thinking_us: u64,
    /// How many zones the nodes are in; with 0 each is a zone of its own, and all weigh the same.
    pub(crate) zones: u32,
}

/// A rate error beyond anything that could be stated.
const WILD_PPM: u32 = 400_000;

impl Settings {
    pub(crate) fn draw(random: &mut Rng, case: &Case) -> Self {
        let settings = Self::draw_any(random, case);
        if case.is_planned { settings.in_peace(random) } else { settings }
    }

    /// The same settings for a run without faults, with machines near each other and default timeouts.
    fn in_peace(self, random: &mut Rng) -> Self {
        let copies = self.copies.max(2);
        let (in_sync_min, lease_us) = (random.usize(1..=2), 1_000_000);
        let options = Options {
            lease_us,
            tick_us: 20_000,
            in_sync_min,
            suspect_us: 1_000_000,
            resend_us: 200_000,
            read_wait_us: 3_000_000,
            under_way_max: 4096,
            under_way_bytes_max: 16 << 20,
            ..self.options
        };
        Self {
            nodes: random.u32(4..=6),
            slots: 4,
            copies,
            clients: 8,
            operations: 1_500,
            options,
            silence_us: 2 * lease_us,
            pushes_tables: true,
            loss_ppm: 0,
            doubled_ppm: 0,
            late_ppm: 0,
            is_ordered: true,
            far_us_max: 500,
            disk_us_max: self.disk_us_max.min(3_000),
            patience_us: 2_000_000,
            thinking_us: 5_000,
            ..self
        }
    }

    fn draw_any(random: &mut Rng, case: &Case) -> Self {
        let nodes = random.u32(3..=5);
        let copies = one_of(random, &[1, 2, 2, 2, 3, 3, 3, 3, 3, 3]);
        let durability = one_of(
            random,
            &[
                Durability::Always,
                Durability::Always,
                Durability::Always,
                Durability::EverySecond,
                Durability::EverySecond,
                Durability::Memory,
            ],
        );
        let durability = match case.flaw {
            Some(Flaw::SaidBeforeSynced | Flaw::CellsSaidBeforeSynced) => Durability::Always,
            _ => durability,
        };
        let (options, clock_error_ppm) = draw_options(random, case, copies, durability);
        let silence_us = random.u64(options.lease_us * 2 / 5..=options.lease_us * 5 / 2);
        Self {
            nodes,
            slots: random.u32(2..=4),
            copies,
            clients: random.usize(5..=8),
            operations: random.usize(320..=440),
            durability,
            others: Vec::new(),
            clock_error_ppm,
            silence_us,
            pushes_tables: random.bool(),
            loss_ppm: one_of(random, &[0, 0, 2_000, 20_000, 80_000]),
            doubled_ppm: one_of(random, &[0, 5_000, 30_000]),
            late_ppm: one_of(random, &[0, 5_000, 30_000]),
            is_ordered: random.bool(),
            far_us_max: u64::MAX,
            fault_us_max: (options.lease_us * one_of(random, &[2, 4, 6]) / 2).max(350_000),
            away_us_max: (5 * options.lease_us).min(1_500_000),
            disk_us_max: one_of(random, &[500, 3_000, 12_000]),
            patience_us: random.u64(options.lease_us..=options.lease_us * 3) + 100_000,
            thinking_us: one_of(random, &[5_000, 30_000, 60_000]),
            zones: one_of(random, &[0, 0, 2, 3]),
            options,
        }
    }
}

fn draw_options(random: &mut Rng, case: &Case, copies: usize, durability: Durability) -> (Options, u32) {
    let reads = match case.flaw {
        Some(Flaw::WildClocks | Flaw::ClockStandsStill | Flaw::NowBeforePause) => Reads::Leases,
        _ => case.reads.unwrap_or(if random.u8(..4) == 0 { Reads::Confirmed } else { Reads::Leases }),
    };
    let rate_error_ppm = one_of(random, &[10_000, 100_000]);
    let is_wild = reads == Reads::Confirmed || case.flaw == Some(Flaw::WildClocks);
    let lease_us = one_of(random, &[150_000, 300_000, 600_000, 1_000_000]);
    let in_sync_min = match copies {
        1 => 1,
        2 => random.usize(1..=2),
        _ => one_of(random, &[1, 2, 2, 2, 2, 2, 3]),
    };
    let options = Options {
        lease_us,
        rate_error_ppm,
        tick_us: one_of(random, &[5_000, 10_000, 20_000]),
        in_sync_min,
        suspect_us: random.u64(lease_us * 2 / 3..=lease_us * 3 / 2),
        resend_us: random.u64(lease_us / 20..=lease_us / 5),
        read_wait_us: random.u64(lease_us..=3 * lease_us),
        under_way_max: one_of(random, &[4, 64, 4096]),
        under_way_bytes_max: one_of(random, &[200, 16 << 20, 16 << 20]),
        nearly_caught_up: random.u64(0..=16),
        kept_entries: random.usize(4..=24),
        message_bytes_max: random.usize(20..=600),
        reads,
        logs: durability != Durability::Memory || random.bool(),
    };
    (options, if is_wild { WILD_PPM } else { rate_error_ppm as u32 })
}

/// Any number with which no other generator is seeded.
const MIXTURE: u64 = 0x6d69_7874;

impl Settings {
    /// In some seeds each slot is a keyspace of its own, with a durability of its own. A separate generator,
    /// so that the seed's other decisions do not depend on this one.
    pub(crate) fn mixed(mut self, seed: u64, case: &Case) -> Self {
        let mut random = Rng::with_seed(seed ^ MIXTURE);
        let others = self.slots as usize - 1;
        let all = [Durability::Always, Durability::EverySecond, Durability::Memory];
        match case.flaw {
            Some(Flaw::SaidAtFirstClass) => {
                (self.durability, self.options.logs) = (Durability::EverySecond, true);
                self.others = vec![Durability::Always; others];
            }
            Some(Flaw::LossDeniedForOthers) => {
                (self.durability, self.options.logs) = (Durability::Always, true);
                self.others = (0..others).map(|at| all[2 - at % 2]).collect();
            }
            Some(Flaw::SaidBeforeSynced | Flaw::CellsSaidBeforeSynced) => {}
            _ if case.is_planned || random.u8(..4) > 0 => {}
            _ => {
                let likely = [&all[..], &[Durability::Always, Durability::EverySecond]].concat();
                self.others = (0..others).map(|_| one_of(&mut random, &likely)).collect();
            }
        }
        self
    }

    /// Whether keyspaces have durabilities of their own.
    pub(crate) fn is_mixed(&self) -> bool {
        !self.others.is_empty()
    }

    /// How many slots each keyspace has.
    pub(crate) fn slots_each(&self) -> u32 {
        if self.is_mixed() { 1 } else { self.slots }
    }

    /// The keyspaces behind the first one.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = KeyspaceRules> {
        (1..).zip(&self.others).map(|(number, other): (u32, &Durability)| KeyspaceRules {
            name: format!("k{number}").into(),
            copies: 0,
            in_sync_min: 0,
            latency_ms: 0,
            durability: Some(other.persistence()),
        })
    }

    /// The index of the keyspace that a slot is in.
    pub(crate) fn keyspace_of(&self, slot: Slot) -> usize {
        if self.is_mixed() { slot.0 as usize } else { 0 }
    }

    /// The durability of a slot.
    pub(crate) fn durability_of(&self, slot: Slot) -> Durability {
        let own = self.keyspace_of(slot).checked_sub(1).and_then(|at| self.others.get(at));
        own.copied().unwrap_or(self.durability)
    }

    /// Whether a node whose process ends in this way may lose something of a slot that it said it has.
    pub(crate) fn loses(&self, slot: Slot, ending: Ending) -> bool {
        match self.durability_of(slot) {
            Durability::Always => false,
            Durability::EverySecond => ending == Ending::PowerLost,
            Durability::Memory => true,
        }
    }

    /// Whether any slot has a durability.
    pub(crate) fn has(&self, durability: Durability) -> bool {
        self.durability == durability || self.others.contains(&durability)
    }

    /// Whether all slots have a durability.
    pub(crate) fn has_only(&self, durability: Durability) -> bool {
        self.durability == durability && self.others.iter().all(|other| *other == durability)
    }

    /// What a node says about itself for the placement of copies.
    pub(crate) fn hints(&self, node: NodeId) -> PlacementHints {
        if self.zones == 0 {
            return PlacementHints::default();
        }
        let zone = Some(format!("zone-{}", node.0 % self.zones).into());
        PlacementHints { zone, weight: Weight::new(1 + node.0 as u16 % 2).unwrap_or_default() }
    }
}

/// Draws one of a few values; a value that is listed twice is twice as likely.
pub(crate) fn one_of<T: Copy>(random: &mut Rng, from: &[T]) -> T {
    from[random.usize(..from.len())]
}

//! A schedule: when each fault begins and ends. All of it follows from one seed.
//!
//! Invariant: at its end every fault has ended.
//! Invariant: a schedule of a minority has faults of one host at a time; a split is a fault of either of its
//! two hosts.
//! Invariant: a node in memory is killed only when there is no other fault and every slot has all its copies.

use super::HOSTS;
use fastrand::Rng;

/// The quiet time at the beginning, so that there is something to lose.
const CALM_MS: u64 = 1_200;
/// The last time at which a fault may begin.
const BEGIN_MS_MAX: u64 = 9_000;
/// The time by which all faults have ended.
pub const END_MS: u64 = 13_000;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A host reaches no other, and no other reaches it.
    Cut,
    /// Messages from a host are lost; it receives those of the others.
    Mute,
    /// A host receives nothing; the others receive its messages.
    Deaf,
    /// Two hosts do not reach each other; the third reaches both.
    Split,
    /// A node is killed, and started again at the end.
    Kill,
    /// A node is stopped, and continued at the end.
    Pause,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Cut, Self::Mute, Self::Deaf, Self::Split, Self::Kill, Self::Pause];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Mute => "mute",
            Self::Deaf => "deaf",
            Self::Split => "split",
            Self::Kill => "kill",
            Self::Pause => "pause",
        }
    }
}

/// Where nodes keep their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keeping {
    /// In a folder, `flushed`: data survive every kill.
    Flushed,
    /// In memory: the data of a killed node are lost.
    Memory,
}

/// How many hosts may have faults at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// One host.
    Minority,
    /// All hosts; while most have faults, nothing is served.
    Majority,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Fault {
    /// Its kind.
    pub kind: Kind,
    /// The host.
    pub host: usize,
    /// The other host of a split.
    pub other: usize,
    /// When it begins, in milliseconds since the beginning.
    pub from_ms: u64,
    /// When it has ended.
    pub until_ms: u64,
}

impl Fault {
    /// Whether it blocks messages from one host to another.
    pub fn blocks(&self, from: usize, to: usize) -> bool {
        match self.kind {
            Kind::Cut => from == self.host || to == self.host,
            Kind::Mute => from == self.host,
            Kind::Deaf => to == self.host,
            Kind::Split => [(self.host, self.other), (self.other, self.host)].contains(&(from, to)),
            Kind::Kill | Kind::Pause => false,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} {}", self.kind.name(), self.host)?;
        if self.kind == Kind::Split {
            write!(to, "|{}", self.other)?;
        }
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        write!(to, " {:.1}-{:.1}", seconds(self.from_ms), seconds(self.until_ms))
    }
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    /// The seed that determines everything else.
    pub seed: u64,
    /// Where nodes keep their slots.
    pub keeping: Keeping,
    /// The most hosts that have faults at once.
    pub share: Share,
    /// The faults, in the order in which they begin.
    pub faults: Vec<Fault>,
}

impl Plan {
    /// The schedule of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        // Generators of neighbouring seeds begin alike.
        let _ = std::iter::repeat_with(|| random.u64(..)).nth(8);
        let keeping = if random.u8(..3) == 0 { Keeping::Memory } else { Keeping::Flushed };
        let share = if random.u8(..4) == 0 { Share::Majority } else { Share::Minority };
        let mut plan = Self { seed, keeping, share, faults: Vec::new() };
        let mut now_ms = CALM_MS;
        let mut is_first = true;
        while now_ms < BEGIN_MS_MAX {
            let is_majority = share == Share::Majority && (is_first || random.bool());
            is_first = false;
            let episode = if is_majority {
                plan.majority(now_ms, &mut random)
            } else {
                plan.minority(now_ms, &mut random)
            };
            plan.faults.extend(episode);
            let ended_ms = plan.faults.iter().map(|fault| fault.until_ms).max().unwrap_or(now_ms);
            // Often the next host gets a fault before the last one has caught up.
            now_ms = ended_ms + if random.bool() { random.u64(..200) } else { random.u64(200..2_500) };
        }
        plan.faults.sort_by_key(|fault| fault.from_ms);
        plan
    }

    /// One or two faults of one host.
    fn minority(&self, from_ms: u64, random: &mut Rng) -> Vec<Fault> {
        let host = random.usize(..HOSTS);
        let first = fault(random.choice(Kind::ALL).unwrap_or(Kind::Cut), host, from_ms, random);
        let mut faults = vec![first];
        let is_alone = first.kind == Kind::Kill && self.keeping == Keeping::Memory;
        if !is_alone && random.u8(..3) == 0 {
            let kinds = Kind::ALL.into_iter().filter(|kind| {
                let is_loss = *kind == Kind::Kill && self.keeping == Keeping::Memory;
                *kind != first.kind && !is_loss
            });
            let kinds: Vec<Kind> = kinds.collect();
            let later_ms = random.u64(from_ms..first.until_ms);
            faults.push(fault(random.choice(kinds).unwrap_or(Kind::Pause), host, later_ms, random));
        }
        faults
    }

    /// Faults of two or three hosts at nearly the same moment.
    fn majority(&self, from_ms: u64, random: &mut Rng) -> Vec<Fault> {
        let spared = if random.u8(..3) == 0 { HOSTS } else { random.usize(..HOSTS) };
        let kinds: &[Kind] = match self.keeping {
            Keeping::Flushed => &[Kind::Cut, Kind::Pause, Kind::Kill],
            Keeping::Memory => &[Kind::Cut, Kind::Pause],
        };
        let is_alike = random.bool();
        let alike = random.choice(kinds).copied().unwrap_or(Kind::Cut);
        let hosts = (0..HOSTS).filter(|host| *host != spared);
        hosts
            .map(|host| {
                let kind = if is_alike { alike } else { random.choice(kinds).copied().unwrap_or(alike) };
                // Practically at once, or one after the other.
                let later_ms = if is_alike { random.u64(..5) } else { random.u64(..300) };
                fault(kind, host, from_ms + later_ms, random)
            })
            .collect()
    }

    /// The moments at which a fault begins or ends.
    pub fn moments(&self) -> Vec<u64> {
        let mut moments: Vec<u64> =
            self.faults.iter().flat_map(|fault| [fault.from_ms, fault.until_ms]).collect();
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    /// The faults at a moment.
    pub fn active(&self, at_ms: u64) -> Vec<Fault> {
        let is_on = |fault: &&Fault| fault.from_ms <= at_ms && at_ms < fault.until_ms;
        self.faults.iter().filter(is_on).copied().collect()
    }

    /// The faults that span a moment: those that end then are over, and those that begin then have not
    /// begun.
    pub fn going_on(&self, at_ms: u64) -> Vec<Fault> {
        self.active(at_ms).into_iter().filter(|fault| fault.from_ms < at_ms).collect()
    }

    /// Whether a node loses its data at this moment, for which all copies must be there.
    pub fn needs_all_copies(&self, at_ms: u64) -> bool {
        let is_loss = |fault: &Fault| fault.kind == Kind::Kill && fault.from_ms == at_ms;
        self.keeping == Keeping::Memory && self.faults.iter().any(is_loss)
    }

    /// Whether more than one host has a fault at some moment.
    pub fn has_majority_gone(&self) -> bool {
        self.most_in_trouble(|_| true) > 1
    }

    /// The most nodes that are dead at once.
    pub fn most_dead(&self) -> usize {
        self.most_in_trouble(|kind| kind == Kind::Kill)
    }

    fn most_in_trouble(&self, is_meant: impl Fn(Kind) -> bool) -> usize {
        let hosts = |at_ms: u64| {
            let active = self.active(at_ms);
            let is_hit =
                |host: &usize| active.iter().any(|fault| fault.host == *host && is_meant(fault.kind));
            (0..HOSTS).filter(is_hit).count()
        };
        self.moments().into_iter().map(hosts).max().unwrap_or(0)
    }
}

fn fault(kind: Kind, host: usize, from_ms: u64, random: &mut Rng) -> Fault {
    let other = (host + random.usize(1..HOSTS)) % HOSTS;
    let long_ms = match kind {
        // Shorter than a lease, about as long, or much longer.
        Kind::Pause => [random.u64(500..1_200), random.u64(500..5_000)][usize::from(random.bool())],
        Kind::Kill => random.u64(100..3_000),
        _ => [random.u64(300..1_500), random.u64(1_000..5_000)][usize::from(random.bool())],
    };
    Fault { kind, host, other, from_ms, until_ms: (from_ms + long_ms).min(END_MS) }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keeping = match self.keeping {
            Keeping::Flushed => "flushed",
            Keeping::Memory => "memory",
        };
        let faults: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
        write!(to, "{keeping}: {}", faults.join(", "))
    }
}

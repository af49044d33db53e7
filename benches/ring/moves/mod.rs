//! Moves: nodes join a ring and leave it under load, and slots are handed over; measures the cost to
//! clients.
//!
//! The ring begins with three nodes. In each cycle a new node joins, slots are spread anew, and then a node
//! leaves: the new one or an older one. All processes run until the end, so only the ring itself ends
//! connections.
//!
//! Invariant: clients do what stock clients of a cluster do: they follow a refusal that names another node,
//! and repeat nothing else.

mod filled;
mod gaps;
mod probe;
mod report;
mod writer;

pub use report::{is_right, print, rows};

use crate::cut::SLOTS;
use crate::local::{Follower, Keeping, LocalError, LocalRing};
use crate::phases::with_sources;
use crate::schedules::Asker;
use crate::servers::BenchPaths;
use filled::Filled;
use gaps::{Move, Trace};
use probe::Prober;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use writer::{Naming, Tally, Writer};

/// How many cycles the bar is about.
pub const CYCLES: usize = 8;
/// How many cycles make a first look.
pub const CYCLES_QUICK: usize = 3;
const NODES_AT_FIRST: usize = 3;
/// How many clients of each kind write beside the prober.
const WRITERS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
const START_TIME_MAX: Duration = Duration::from_secs(60);
const SPREAD_TIME_MAX: Duration = Duration::from_secs(120);
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(60);
/// A pause before and after each change, so that nothing is measured at the edge of one.
const CALM: Duration = Duration::from_millis(1_500);
/// The least part of its share that a joined node must lead, in percent.
const SHARE_MIN: u64 = 80;
const SEED: u64 = 8;

/// One cycle of changes.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Change {
    /// The node that joined.
    pub joined: usize,
    /// Seconds until it led its share.
    pub join_seconds: f64,
    /// The node that left afterwards.
    pub left: usize,
    /// Seconds until it was removed and all copies were in sync.
    pub leave_seconds: f64,
}

/// The results of the phase.
#[derive(Debug, Default, serde::Serialize)]
pub struct Findings {
    /// The cycles, in order.
    pub changes: Vec<Change>,
    /// The cost of each move of a probed slot.
    pub moves: Vec<Move>,
    /// The longest gaps of stretches without a move, in milliseconds.
    pub calm_ms: Vec<f64>,
    /// Median gaps of slots, in milliseconds.
    pub usual_ms: Vec<f64>,
    /// Results of clients whose writes have names.
    pub named: Tally,
    /// Results of clients whose writes have no names.
    pub plain: Tally,
    /// Results of the prober.
    pub probed: Tally,
    /// Results for data that existed before all moves and had to be copied by them.
    pub filled: Tally,
    /// Total duration in seconds.
    pub seconds: f64,
    /// Why results are missing, if any are.
    pub missing: Option<String>,
}

/// Runs this many cycles; `told` is called at each.
pub fn run(cycles: usize, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Findings {
    let begun_at = Instant::now();
    let mut findings = Findings::default();
    let ended = measure(cycles, place, &mut findings, told);
    findings.missing = ended.err().map(|error| with_sources(&error));
    findings.seconds = begun_at.elapsed().as_secs_f64();
    findings
}

fn measure(
    cycles: usize,
    place: &BenchPaths,
    findings: &mut Findings,
    told: &mut dyn FnMut(&str),
) -> Result<(), LocalError> {
    let nodes = NODES_AT_FIRST + cycles;
    let mut ring =
        LocalRing::new(&place.folder.join("moves"), place.atoll.as_deref(), Keeping::Flushed, nodes)?;
    for node in 0..NODES_AT_FIRST {
        ring.start_node(node)?;
    }
    ring.wait_until_whole(START_TIME_MAX)?;
    let addresses = ring.addresses();
    let filled = Filled::write(&mut asker(addresses[..NODES_AT_FIRST].to_vec()), NODES_AT_FIRST)?;
    let mut there: Vec<usize> = (0..NODES_AT_FIRST).collect();
    let (stop, begun_at) = (AtomicBool::new(false), Instant::now());
    let prober = Prober::new(&addresses, LocalRing::TOKEN, &filled.probes(), begun_at)
        .map_err(LocalError::io("make a prober"))?;
    std::thread::scope(|scope| {
        let stop = &stop;
        let prober = scope.spawn(move || prober.run(stop));
        let writers: Vec<_> = (0..2 * WRITERS)
            .map(|number| {
                let naming = if number < WRITERS { Naming::Named } else { Naming::Plain };
                let mut writer = Writer::new(number, naming, Follower::new(&addresses, LocalRing::TOKEN));
                scope.spawn(move || {
                    writer.write(stop);
                    (naming, writer.look_up())
                })
            })
            .collect();
        std::thread::sleep(CALM);
        let mut random = fastrand::Rng::with_seed(SEED);
        let changed = (0..cycles).try_for_each(|number| {
            let change = change(&mut ring, &mut there, NODES_AT_FIRST + number, &mut random)?;
            told(&format!(
                "moves, cycle {} of {cycles}: node {} joined in {:.1} s, node {} left in {:.1} s",
                number + 1,
                change.joined,
                change.join_seconds,
                change.left,
                change.leave_seconds
            ));
            findings.changes.push(change);
            Ok::<(), LocalError>(())
        });
        stop.store(true, SeqCst);
        let written = findings.gather(writers);
        let probed = findings.take_probes(prober.join());
        changed.and(written).and(probed)
    })?;
    let mut asker = asker(there.iter().map(|node| addresses[*node]).collect());
    findings.filled = filled.look_up(&mut asker, there.len(), LOOK_UP_TIME_MAX);
    Ok(())
}

fn asker(nodes: Vec<SocketAddr>) -> Asker {
    Asker::new(&nodes, LocalRing::TOKEN, PATIENCE, SEED)
}

impl Findings {
    /// The tallies of all kinds of clients, and of data that they did not touch.
    fn tallies(&self) -> [(&'static str, &Tally); 4] {
        [("named", &self.named), ("plain", &self.plain), ("probes", &self.probed), ("filled", &self.filled)]
    }

    /// Gathers the writers' results. A writer that panicked took its knowledge with it, so its tokens
    /// cannot be checked.
    fn gather(&mut self, writers: Vec<ScopedJoinHandle<'_, (Naming, Tally)>>) -> Result<(), LocalError> {
        let mut ended = Ok(());
        for writer in writers {
            match writer.join() {
                Ok((Naming::Named, tally)) => self.named.add(tally),
                Ok((Naming::Plain, tally)) => self.plain.add(tally),
                Err(_) => ended = Err(LocalError::Died("a client that writes")),
            }
        }
        ended
    }

    fn take_probes(
        &mut self,
        ended: std::thread::Result<std::io::Result<(Vec<Trace>, Tally)>>,
    ) -> Result<(), LocalError> {
        let probed = ended.map_err(|_| LocalError::Died("the prober of slots"))?;
        let (traces, tally) = probed.map_err(LocalError::io("probe slots"))?;
        self.probed = tally;
        self.take(&traces);
        Ok(())
    }

    fn take(&mut self, traces: &[Trace]) {
        self.moves = traces.iter().flat_map(Trace::moves).collect();
        self.calm_ms = traces.iter().flat_map(Trace::calm).collect();
        self.usual_ms = traces.iter().map(Trace::usual_ms).collect();
    }
}

/// A node joins, and when it has its share, a node leaves.
fn change(
    ring: &mut LocalRing,
    there: &mut Vec<usize>,
    joins: usize,
    random: &mut fastrand::Rng,
) -> Result<Change, LocalError> {
    let joined_at = Instant::now();
    ring.start_node(joins)?;
    there.push(joins);
    wait_until_spread(ring, there)?;
    let join_seconds = joined_at.elapsed().as_secs_f64();
    std::thread::sleep(CALM);
    // The first node is the one that is asked to remove others, so it stays.
    let left = there.remove(random.usize(1..there.len()));
    let left_at = Instant::now();
    ring.command(&["ring", "leave", &(left + 1).to_string()])?;
    wait_until_spread(ring, there)?;
    let leave_seconds = left_at.elapsed().as_secs_f64();
    std::thread::sleep(CALM);
    Ok(Change { joined: joins + 1, join_seconds, left: left + 1, leave_seconds })
}

/// Waits until exactly these nodes are in the ring, each leads its share, and no copies are under way.
fn wait_until_spread(ring: &mut LocalRing, there: &[usize]) -> Result<(), LocalError> {
    let least = SLOTS as u64 * SHARE_MIN / 100 / there.len() as u64;
    ring.wait_until("until every node leads its share", SPREAD_TIME_MAX, |status| {
        let is_there = |node: u64| there.iter().any(|one| *one as u64 + 1 == node);
        let is_well =
            status.nodes.iter().all(|one| is_there(one.node) && one.leads >= least && one.catching_up == 0);
        status.nodes.len() == there.len() && is_well && status.copies_in_sync_min >= 3
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_dies_is_told_and_does_not_vanish_with_what_it_wrote() {
        let mut findings = Findings::default();
        let ended = std::thread::scope(|scope| {
            let well = || (Naming::Plain, Tally { done: 7, ..Tally::default() });
            let dies = || -> (Naming, Tally) { panic!("a client dies") };
            let writers = vec![scope.spawn(well), scope.spawn(dies), scope.spawn(well)];
            findings.gather(writers)
        });
        assert!(with_sources(&ended.unwrap_err()).contains("a client that writes"));
        assert_eq!(findings.plain.done, 14, "what the others did is told as well");
        let probed = findings.take_probes(Err(Box::new("the prober dies")));
        assert!(with_sources(&probed.unwrap_err()).contains("the prober"));
    }
}

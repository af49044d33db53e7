//! One round: the victim, and the times at which each of its slots accepts a write again.

use super::NODES;
use crate::cut::{SLOTS, keys_of_all_slots, table};
use crate::local::{LocalError, LocalRing, Status, percentile};
use crate::schedules::{Answer, Asker, Request};
use std::fmt;
use std::time::{Duration, Instant};

/// The least and the greatest number of probed slots.
const PROBES_MIN: usize = 64;
const PROBES_MAX: usize = 256;
/// How many probers share them.
const PROBERS: usize = 3;
/// The pause between two attempts at a slot that accepts no writes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(5);
/// The limit until every slot accepts writes.
const SERVED_TIME_MAX: Duration = Duration::from_secs(60);
/// The limit until all copies are in sync and every node leads its share.
const WHOLE_TIME_MAX: Duration = Duration::from_secs(90);
/// The least part of its share that a node leads when a round begins, in percent.
const SHARE_MIN: u64 = 80;

/// The result of one round.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Round {
    /// The node that was killed.
    pub victim: usize,
    /// Whether it led the configuration group right before its death.
    pub led_group: bool,
    /// How many slots it led.
    pub slots: usize,
    /// How many of these were probed.
    pub probed: usize,
    /// Seconds from the kill until the last of these accepted a write.
    pub seconds: f64,
    /// The median of them.
    pub seconds_median: f64,
    /// Seconds from its restart until every slot had three copies in sync and every node its share.
    pub whole_seconds: f64,
}

impl fmt::Display for Round {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.led_group { ", which led the group" } else { "" };
        write!(
            to,
            "node {}{who}, writes again after {:.2} s (median of {} slots {:.2} s), whole {:.1} s after its start",
            self.victim, self.seconds, self.probed, self.seconds_median, self.whole_seconds
        )
    }
}

/// Kills a node, waits until its slots accept writes, and starts it again.
pub fn run(ring: &mut LocalRing, number: usize, random: &mut fastrand::Rng) -> Result<Round, LocalError> {
    wait_until_spread(ring)?;
    let victim = choose(ring, number, random)?;
    let led = led_by(ring, victim)?;
    let probes = probes(&led);
    // So that the kill falls at any moment of the nodes' periodic work.
    std::thread::sleep(Duration::from_millis(random.u64(..400)));
    let (killed_at, led_group) = kill(ring, victim)?;
    let seconds = until_written(ring, &probes, killed_at, number)?;
    ring.bury(&[victim])?;
    let started_at = Instant::now();
    ring.start_node(victim)?;
    wait_until_spread(ring)?;
    Ok(Round {
        victim: victim + 1,
        led_group,
        slots: led.len(),
        probed: probes.len(),
        seconds: percentile(&seconds, 1.0).unwrap_or(f64::NAN),
        seconds_median: percentile(&seconds, 0.5).unwrap_or(f64::NAN),
        whole_seconds: started_at.elapsed().as_secs_f64(),
    })
}

fn wait_until_spread(ring: &mut LocalRing) -> Result<(), LocalError> {
    let least = SLOTS as u64 * SHARE_MIN / 100 / NODES as u64;
    let what = "until all copies are in sync and every node leads its share";
    ring.wait_until(what, WHOLE_TIME_MAX, |status| {
        let is_spread = status.nodes.len() == NODES && status.nodes.iter().all(|node| node.leads >= least);
        status.served == SLOTS as u64 && status.copies_in_sync_min >= NODES as u64 && is_spread
    })
}

/// Chooses the leader of the configuration group in every other round, otherwise another node.
fn choose(ring: &mut LocalRing, number: usize, random: &mut fastrand::Rng) -> Result<usize, LocalError> {
    let knows = |status: &Status| (1..=NODES as u64).contains(&status.group_leader);
    ring.wait_until("until every node knows who leads the configuration group", WHOLE_TIME_MAX, knows)?;
    let leader = ring.status(random.usize(..NODES))?.group_leader as usize - 1;
    let wants_leader = number.is_multiple_of(2);
    Ok(if wants_leader { leader } else { (leader + random.usize(1..NODES)) % NODES })
}

/// Kills a node. Returns the moment, and whether the node led the configuration group, since the leader may
/// have changed since it was chosen.
fn kill(ring: &mut LocalRing, victim: usize) -> Result<(Instant, bool), LocalError> {
    let leader = ring.status(victim)?.group_leader;
    Ok((ring.kill(&[victim])?, leader == victim as u64 + 1))
}

/// The slots that a node leads, as it reports itself.
fn led_by(ring: &LocalRing, node: usize) -> Result<Vec<usize>, LocalError> {
    let address = ring.addresses()[node];
    let routes =
        table(address, Some(LocalRing::TOKEN)).map_err(LocalError::io("ask who leads which slots"))?;
    Ok((0..SLOTS).filter(|slot| routes[*slot] == address).collect())
}

/// The first slot of each range, and others between them at even distances.
fn probes(led: &[usize]) -> Vec<usize> {
    let is_first = |at: &usize| *at == 0 || led[*at - 1] + 1 != led[*at];
    let firsts = (0..led.len()).filter(is_first);
    let even = (0..PROBES_MIN.min(led.len())).map(|at| at * led.len() / PROBES_MIN.min(led.len()));
    let mut chosen: Vec<usize> = firsts.take(PROBES_MAX - PROBES_MIN).chain(even).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen.into_iter().map(|at| led[at]).collect()
}

/// Writes to each slot until a write is acknowledged; returns the seconds after the kill.
fn until_written(
    ring: &LocalRing,
    slots: &[usize],
    killed_at: Instant,
    number: usize,
) -> Result<Vec<f64>, LocalError> {
    let (keys, addresses) = (keys_of_all_slots(), ring.addresses());
    let probe = |prober: usize| {
        let mut asker =
            Asker::new(&addresses, LocalRing::TOKEN, PATIENCE, (number * PROBERS + prober) as u64);
        let mut left: Vec<usize> = slots.iter().skip(prober).step_by(PROBERS).copied().collect();
        let mut seconds = Vec::new();
        while !left.is_empty() {
            if killed_at.elapsed() > SERVED_TIME_MAX {
                let what = format!("until {} slots of a node that was killed take writes", left.len());
                return Err(LocalError::TooLong { what, seconds: SERVED_TIME_MAX.as_secs() });
            }
            left = ask_all(&mut asker, left, &keys, killed_at, &mut seconds);
            if !left.is_empty() {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(seconds)
    };
    all_of(PROBERS, probe)
}

/// The combined results of all probers.
fn all_of(
    probers: usize,
    probe: impl Fn(usize) -> Result<Vec<f64>, LocalError> + Sync,
) -> Result<Vec<f64>, LocalError> {
    let probe = &probe;
    let found: Vec<_> = std::thread::scope(|scope| {
        let probers: Vec<_> = (0..probers).map(|prober| scope.spawn(move || probe(prober))).collect();
        let died = |_| Err(LocalError::Died("a prober"));
        probers.into_iter().map(|prober| prober.join().unwrap_or_else(died)).collect()
    });
    Ok(found.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

/// Sends a write to each slot; returns those without an acknowledgement.
fn ask_all(
    asker: &mut Asker,
    slots: Vec<usize>,
    keys: &[String],
    killed_at: Instant,
    seconds: &mut Vec<f64>,
) -> Vec<usize> {
    let mut by_node: Vec<Vec<(usize, Request)>> = vec![Vec::new(); NODES];
    for slot in slots {
        let key = keys[slot].clone();
        by_node[asker.node_of(slot)].push((slot, Request::Set(key.clone(), key)));
    }
    let mut left = Vec::new();
    for (node, requests) in by_node.iter().enumerate().filter(|(_, requests)| !requests.is_empty()) {
        let answers = asker.ask_node(node, requests);
        for ((slot, _), answer) in requests.iter().zip(answers) {
            match answer {
                Answer::Done => seconds.push(killed_at.elapsed().as_secs_f64()),
                _ => left.push(*slot),
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::stub;
    use crate::local::Keeping;
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// Nodes that report the group's leader: each report takes the next of these.
    fn nodes_that_say(addresses: Vec<SocketAddr>, leaders: &'static [u64]) {
        let asked = Arc::new(AtomicUsize::new(0));
        for address in addresses {
            let asked = Arc::clone(&asked);
            stub::serve_at(address, move |words| match words[0].as_slice() {
                b"AUTH" => b"+OK\r\n".to_vec(),
                _ => status(leaders[asked.fetch_add(1, SeqCst)]),
            });
        }
    }

    fn status(group_leader: u64) -> Vec<u8> {
        let numbers = [
            ("served", 16_384),
            ("copies_in_sync_min", 3),
            ("group_silent_ms", 1),
            ("group_leader", group_leader),
        ];
        let pairs = numbers.map(|(name, number)| format!("${}\r\n{name}\r\n:{number}\r\n", name.len()));
        format!("%5\r\n{}$5\r\nnodes\r\n*0\r\n", pairs.concat()).into_bytes()
    }

    #[test]
    fn a_round_is_about_the_leader_of_the_group_if_its_victim_leads_when_it_is_killed() {
        let folder = std::env::temp_dir().join(format!("atoll-failover-round-{}", std::process::id()));
        let program = Some(Path::new("nobody starts it"));
        let mut ring = LocalRing::new(&folder, program, Keeping::Memory, NODES).unwrap();
        // In the first round the leader has changed by the time its victim dies, in the second the new
        // leader may be the victim; in the third nothing changes.
        nodes_that_say(ring.addresses(), &[2, 1, 2, 3, 3, 3]);
        let mut random = fastrand::Rng::with_seed(1);
        let mut round = |number| {
            let victim = choose(&mut ring, number, &mut random).unwrap();
            (victim, kill(&mut ring, victim).unwrap().1)
        };
        assert_eq!(round(0), (1, false), "it led no more");
        let (victim, led_group) = round(1);
        assert_eq!((victim != 1, led_group), (true, victim == 2), "it led since");
        assert_eq!(round(2), (2, true));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_prober_that_died_is_a_failure_and_is_not_told_as_something_that_was_not_offered() {
        let found = all_of(3, |prober| if prober == 1 { panic!("a prober dies") } else { Ok(vec![1.0]) });
        let why = crate::phases::with_sources(&found.unwrap_err());
        assert!(crate::phases::is_failure(&why), "{why}");
        assert_eq!(all_of(3, |prober| Ok(vec![prober as f64])).unwrap(), [0.0, 1.0, 2.0]);
    }

    #[test]
    fn every_range_is_probed_and_the_middle_of_long_ones_too() {
        let led: Vec<usize> = (100..5_000).chain([7_000]).chain(9_000..9_002).collect();
        let probes = probes(&led);
        assert!([100, 7_000, 9_000].iter().all(|first| probes.contains(first)), "{probes:?}");
        assert!(probes.len() >= PROBES_MIN && probes.len() <= PROBES_MAX, "{}", probes.len());
        assert!(probes.windows(2).all(|pair| pair[0] < pair[1] && pair[1] - pair[0] < 2_200));
        assert!(super::probes(&[]).is_empty());
        let alternate: Vec<usize> = (0..SLOTS).step_by(2).collect();
        assert!(super::probes(&alternate).len() <= PROBES_MAX);
    }
}

//! `--join`: what a new node learns from a living one, in place of a list of all nodes, and which place it
//! takes behind the others.
//!
//! The place is that of its own address, if the ring knows that, and otherwise the next one. It is taken once
//! the node has begun. Of two new nodes that ask at the same moment and get the same place, the later one
//! replaces the earlier one, which ends and says so.

use super::nodes::parse;
use crate::Failure;
use atoll_open::{NodeStatus, RingSetup, RingStatus, RingUrl, operate_ring};
use atoll_ring::{HostPort, RingOptions};
use atoll_store::{ErrorKind, StoreError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long living nodes may take to answer, unless the user says so.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a node at the same address may still count as up after its end.
const GONE_TIME_MAX: Duration = Duration::from_secs(3);

/// Time between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What a new node has to say about itself.
pub struct Newcomer {
    /// The address that clients are told.
    pub told: HostPort,
    /// How many event loops it has.
    pub loops: u16,
    /// Whether it brings no data of an earlier life.
    pub is_new: bool,
    /// The file with the token of the ring.
    pub token_file: Option<PathBuf>,
    /// The file with the certificate authority of the ring.
    pub tls_authority: Option<PathBuf>,
    /// How long living nodes may take to answer.
    pub patience: Option<Duration>,
}

/// What it learned, in place of `--nodes` and the options that are the same on all nodes.
#[derive(Debug)]
pub struct Learned {
    /// All processes in the order of their numbers, the new one included.
    pub hosts: Vec<HostPort>,
    /// How many of the first ones keep the configuration.
    pub keepers: usize,
    /// How many copies there are of everything.
    pub copies: usize,
    /// How copies agree.
    pub options: RingOptions,
}

impl Newcomer {
    /// Asks living nodes of a ring.
    ///
    /// # Errors
    /// If none answers, the token is wrong, they take no others, or the place of this node is taken.
    pub async fn learn(&self, living: &str) -> Result<Learned, Failure> {
        let nodes = parse(living, self.told.port, "--join")?;
        let ring = RingUrl {
            nodes: nodes.iter().map(HostPort::to_string).collect(),
            token_file: self.token_file.clone(),
            tls_authority: self.tls_authority.clone(),
            time_out: Some(self.patience.unwrap_or(ANSWER_TIME_MAX)),
            ..RingUrl::default()
        };
        let operator = operate_ring(&ring)?;
        let until = tokio::time::Instant::now() + GONE_TIME_MAX;
        loop {
            let status = operator.newest_status().await.map_err(|error| not_told(living, error))?;
            let Some(setup) = status.setup.as_ref() else {
                return Err(Failure::Usage {
                    problem: format!("the node at {living} is a ring of its own, and takes no other nodes"),
                    hint: "name a node that was itself started with --nodes or --join".to_owned(),
                });
            };
            let (learned, taken) = self.found(setup, &status)?;
            let Some(taken) = taken else { return Ok(learned) };
            if tokio::time::Instant::now() >= until {
                let (told, number) = (&self.told, taken.node);
                return Err(failure(
                    ErrorKind::Conflict,
                    format!("the name {told} is taken: node {number} of the ring has it, and is up"),
                    "choose another address with --listen or --announce; or start that node on its own folder",
                ));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// What follows from the state of the ring, and the node that is up in this node's place, if one is.
    fn found<'s>(
        &self,
        setup: &RingSetup,
        status: &'s RingStatus,
    ) -> Result<(Learned, Option<&'s NodeStatus>), Failure> {
        if setup.loops != self.loops {
            return Err(Failure::Usage {
                problem: format!("--loops {}: the processes of this ring have {}", self.loops, setup.loops),
                hint: format!("start this one with --loops {}", setup.loops),
            });
        }
        let mut hosts = hosts(setup, status)?;
        let known = hosts.iter().find(|(_, host)| **host == self.told).map(|(place, _)| *place);
        let place = known.unwrap_or_else(|| hosts.last_key_value().map_or(0, |(last, _)| last + 1));
        hosts.insert(place, self.told.clone());
        let is_there = |node: &&NodeStatus| node.is_up && process(node, setup).0 == place;
        let taken = status.nodes.iter().find(is_there).filter(|_| self.is_new);
        let last = hosts.last_key_value().map_or(0, |(last, _)| *last);
        // Numbers of nodes that have left are not given again, and nobody dials these names.
        let gone = |place: usize| HostPort { host: format!("departed-{}.invalid", place + 1), port: 7379 };
        let hosts = (0..=last).map(|place| hosts.remove(&place).unwrap_or_else(|| gone(place))).collect();
        let options = RingOptions {
            in_sync_min: setup.in_sync_min.into(),
            rate_error_ppm: setup.rate_error_ppm,
            reads: super::nodes::reads(setup.is_clockless),
            ..RingOptions::default()
        };
        let (keepers, copies) = (setup.keepers.into(), setup.copies.into());
        Ok((Learned { hosts, keepers, copies, options }, taken))
    }
}

/// Why no living node told anything, in terms of the options of a node.
fn not_told(living: &str, error: StoreError) -> Failure {
    let hint = match error.kind() {
        ErrorKind::Unauthenticated => {
            "copy the file with the token of the ring to this machine, and name it with --token-file"
        }
        ErrorKind::Unavailable => {
            "name nodes that are up, at their addresses for clients; to begin a ring, name all of its nodes with --nodes"
        }
        _ => return error.into(),
    };
    failure(error.kind(), format!("there is no ring to join at {living}: {error}"), hint)
}

fn failure(kind: ErrorKind, message: String, hint: &str) -> Failure {
    StoreError::Remote { kind, unknown: false, message, hint: Some(hint.to_owned()) }.into()
}

/// The place of a node's process in the list of all, and of the node among those of its process.
fn process(node: &NodeStatus, setup: &RingSetup) -> (usize, u16) {
    let (before, loops) = (node.node.saturating_sub(1), u32::from(setup.loops.max(1)));
    let number = u16::try_from(before % loops).unwrap_or_default();
    (usize::try_from(before / loops).unwrap_or(usize::MAX), number)
}

/// All processes of a ring that are known, by their places: those that it was set up with, and those that
/// joined later.
fn hosts(setup: &RingSetup, status: &RingStatus) -> Result<BTreeMap<usize, HostPort>, Failure> {
    let read = |address: &str| -> Result<HostPort, Failure> {
        address.parse().map_err(|error| Failure::Usage {
            problem: format!("the ring has a node at {address:?}: {error}"),
            hint: "name all nodes with --nodes instead".to_owned(),
        })
    };
    let listed = setup.processes.iter().enumerate();
    let mut hosts: BTreeMap<usize, HostPort> =
        listed.map(|(place, address)| Ok((place, read(address)?))).collect::<Result<_, Failure>>()?;
    for node in &status.nodes {
        let (place, number) = process(node, setup);
        if place >= setup.processes.len() && !hosts.contains_key(&place) {
            let HostPort { host, port } = read(&node.address)?;
            hosts.insert(place, HostPort { host, port: port.saturating_sub(number) });
        }
    }
    Ok(hosts)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn setup(processes: &[&str], loops: u16) -> RingSetup {
        let processes = processes.iter().map(|&process| process.to_owned()).collect();
        RingSetup { processes, loops, keepers: 3, copies: 3, in_sync_min: 2, ..RingSetup::default() }
    }

    fn status(nodes: &[(u32, &str, bool)]) -> RingStatus {
        let node = |&(node, address, is_up): &(u32, &str, bool)| NodeStatus {
            node,
            address: address.to_owned(),
            is_up,
            ..NodeStatus::default()
        };
        RingStatus { nodes: nodes.iter().map(node).collect(), ..RingStatus::default() }
    }

    fn newcomer(told: &str, loops: u16, is_new: bool) -> Newcomer {
        let (told, token_file, tls_authority) = (told.parse().unwrap(), None, None);
        Newcomer { told, loops, is_new, token_file, tls_authority, patience: None }
    }

    /// The list of all processes, and the number of the node that is in the way.
    fn learned(newcomer: &Newcomer, setup: &RingSetup, status: &RingStatus) -> (String, Option<u32>) {
        let (learned, taken) = newcomer.found(setup, status).unwrap();
        let hosts: Vec<String> = learned.hosts.iter().map(HostPort::to_string).collect();
        (hosts.join(" "), taken.map(|node| node.node))
    }

    #[test]
    fn a_new_node_comes_behind_all_others_and_an_old_one_where_it_was() {
        let setup = setup(&["a:1", "b:1", "c:1"], 1);
        let ring = status(&[(1, "a:1", true), (2, "b:1", true), (4, "d:1", true), (6, "f:1", false)]);
        let all = "a:1 b:1 c:1 d:1 departed-5.invalid:7379 f:1";
        assert_eq!(learned(&newcomer("g:1", 1, true), &setup, &ring), (format!("{all} g:1"), None));
        // In its place again, and in one of the list in which nobody has begun so far.
        for told in ["f:1", "c:1"] {
            assert_eq!(learned(&newcomer(told, 1, true), &setup, &ring), (all.to_owned(), None), "{told}");
        }
        for told in ["a:1", "d:1"] {
            let number = ring.nodes.iter().find(|node| node.address == told).map(|node| node.node);
            assert_eq!(learned(&newcomer(told, 1, true), &setup, &ring).1, number, "{told} is up");
            let again = learned(&newcomer(told, 1, false), &setup, &ring);
            assert_eq!(again, (all.to_owned(), None), "it begins again so soon that it still counts as up");
        }
    }

    #[test]
    fn processes_with_several_loops_are_counted_by_their_first_nodes() {
        let setup = setup(&["a:10", "b:10"], 4);
        let ring = status(&[(1, "a:10", true), (10, "c:11", true), (11, "c:12", true)]);
        let all = "a:10 b:10 c:10";
        assert_eq!(learned(&newcomer("d:10", 4, true), &setup, &ring), (format!("{all} d:10"), None));
        assert_eq!(learned(&newcomer("c:10", 4, true), &setup, &ring), (all.to_owned(), Some(10)));
        let refused = newcomer("d:10", 1, true).found(&setup, &ring);
        assert!(matches!(refused, Err(Failure::Usage { problem, .. }) if problem.contains("have 4")));
    }

    #[test]
    fn what_is_the_same_on_all_nodes_is_learned() {
        let setup = RingSetup { rate_error_ppm: 5, is_clockless: true, ..setup(&["a:1"], 1) };
        let (learned, _) = newcomer("b:1", 1, true).found(&setup, &status(&[(1, "a:1", true)])).unwrap();
        let options = &learned.options;
        assert_eq!((learned.copies, learned.keepers, options.in_sync_min), (3, 3, 2));
        assert_eq!((options.rate_error_ppm, options.reads), (5, atoll_ring::Reads::Confirmed));
    }
}

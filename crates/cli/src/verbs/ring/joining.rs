//! `--join`: what a new node learns from a living one, in place of a list of all nodes, and which place it
//! takes behind the others.
//!
//! The place is that of its own address, if the ring knows that, and otherwise the next one. It is taken once
//! the node has registered. Of two new nodes that ask at the same moment and get the same place, the one that
//! registers later is refused then. Its folder is of no number yet: started again it gets the next one.

use super::nodes::parse;
use crate::Failure;
use crate::output::note;
use atoll_open::{NodeStatus, RingSetup, RingStatus, RingUrl, operate_ring};
use atoll_ring::{HostPort, RingOptions};
use atoll_store::{ErrorKind, StoreError};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long living nodes may take to answer, unless the user says so.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a node at the same address may still count as up after its end.
const GONE_TIME_MAX: Duration = Duration::from_secs(3);

/// Time between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Most processes of a ring that is joined: the list of them is as long as the answer of a node says.
const PROCESSES_MAX: usize = 65_536;

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
            let setup = status.setup.as_ref().ok_or_else(|| not_set_up(living, &status))?;
            let (learned, taken) = self.found(setup, &status)?;
            let Some(taken) = taken else {
                if self.is_keeper(&learned) {
                    note(
                        "this node keeps the configuration of its ring, and with --join it starts only while another node answers: start it with --nodes and the other options of the ring, so that a ring that was stopped begins again by itself",
                    );
                }
                return Ok(learned);
            };
            if tokio::time::Instant::now() >= until {
                return Err(self.taken(taken, &status));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Whether this node keeps the configuration: if all that do waited for an answer of another node, a ring
    /// that was stopped would not begin again.
    fn is_keeper(&self, learned: &Learned) -> bool {
        learned.hosts.iter().take(learned.keepers).any(|host| *host == self.told)
    }

    /// Why this node does not get its place: another one has it, or is not known not to.
    fn taken(&self, taken: &NodeStatus, status: &RingStatus) -> Failure {
        let (told, number) = (&self.told, taken.node);
        if status.is_stale() {
            return failure(
                ErrorKind::Unavailable,
                format!(
                    "the nodes that keep the configuration do not answer, so it is unknown whether node {number} at {told} is still up"
                ),
                "more than half of the first nodes in --nodes have to be up for others to join",
            );
        }
        failure(
            ErrorKind::Conflict,
            format!("the name {told} is taken: node {number} of the ring has it, and is up"),
            "choose another address with --listen or --announce; or start that node on its own folder",
        )
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
        let next = hosts.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        if known.map_or(next, |_| next.saturating_sub(1)) >= PROCESSES_MAX {
            return Err(Failure::Usage {
                problem: format!("process {next} of this ring: at most {PROCESSES_MAX} can be joined"),
                hint: "ask another node, or name all nodes with --nodes instead".to_owned(),
            });
        }
        if known.is_none() && is_of_one_machine(&self.told) && !hosts.values().all(is_of_one_machine) {
            return Err(Failure::Usage {
                problem: format!("{}: nodes on other machines do not reach it", self.told),
                hint: "name an address of this machine with --listen or --announce".to_owned(),
            });
        }
        let place = known.unwrap_or(next);
        hosts.insert(place, self.told.clone());
        let is_there = |node: &&NodeStatus| node.is_up && process(node, setup).0 == place;
        let taken = status.nodes.iter().find(is_there).filter(|_| self.is_new);
        let last = hosts.last_key_value().map_or(0, |(last, _)| *last);
        // Numbers of nodes that have left are not given again.
        let hosts = (0..=last).map(|place| hosts.remove(&place).unwrap_or_else(|| departed(place))).collect();
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

/// The address of a place whose node has left, which nobody dials.
fn departed(place: usize) -> HostPort {
    HostPort { host: format!("departed-{}.invalid", place + 1), port: 7379 }
}

/// Whether only nodes on the same machine reach this address; also of a place whose node has left, whatever
/// the machine.
fn is_of_one_machine(HostPort { host, .. }: &HostPort) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.rsplit('.').next() == Some("invalid")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Why a ring cannot be joined whose nodes do not tell how it is set up.
fn not_set_up(living: &str, status: &RingStatus) -> Failure {
    let (problem, hint) = match status.nodes.len() {
        0 | 1 => (
            format!("the node at {living} is a ring of its own, and takes no other nodes"),
            "name a node that was itself started with --nodes or --join",
        ),
        _ => (
            format!("the nodes at {living} are of a build that does not tell how their ring is set up"),
            "start this node with --nodes, at the end of the list of all nodes",
        ),
    };
    Failure::Usage { problem, hint: hint.to_owned() }
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

/// All processes of a ring that are known, by their places: those that have registered, and those that the
/// answering node was set up with. The table knows better, since a list may be older than the ring; only for
/// the keepers the list counts, by which they find each other.
fn hosts(setup: &RingSetup, status: &RingStatus) -> Result<BTreeMap<usize, HostPort>, Failure> {
    let read = |address: &str| -> Result<HostPort, Failure> {
        address.parse().map_err(|error| Failure::Usage {
            problem: format!("the ring has a node at {address:?}: {error}"),
            hint: "name all nodes with --nodes instead".to_owned(),
        })
    };
    let (mut hosts, mut places) = (BTreeMap::new(), BTreeMap::new());
    // A process that began anew at another place has its address there: one that is up comes first.
    let mut nodes: Vec<&NodeStatus> = status.nodes.iter().collect();
    nodes.sort_by_key(|node| !node.is_up);
    for node in nodes {
        let (place, number) = process(node, setup);
        if hosts.contains_key(&place) {
            continue;
        }
        let HostPort { host, port } = read(&node.address)?;
        let host = HostPort { host, port: port.saturating_sub(number) };
        if *places.entry(host.to_string()).or_insert(place) == place {
            hosts.insert(place, host);
        }
    }
    for (place, address) in setup.processes.iter().enumerate() {
        let host = read(address)?;
        if places.get(&host.to_string()).is_some_and(|elsewhere| *elsewhere != place) {
            continue;
        }
        if place < usize::from(setup.keepers) {
            hosts.insert(place, host);
        } else {
            hosts.entry(place).or_insert(host);
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

    /// What is wrong, and what would be right.
    fn refused(newcomer: &Newcomer, setup: &RingSetup, status: &RingStatus) -> (String, String) {
        match newcomer.found(setup, status) {
            Err(Failure::Usage { problem, hint }) => (problem, hint),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn where_a_list_is_older_than_the_ring_the_table_is_believed() {
        // The answering node was started with e as the fourth; meanwhile d had joined there, and e behind it.
        let setup = setup(&["a:1", "b:1", "c:1", "e:1"], 1);
        let ring = status(&[(1, "a:1", true), (3, "c:1", true), (4, "d:1", true), (5, "e:1", true)]);
        let all = "a:1 b:1 c:1 d:1 e:1";
        assert_eq!(learned(&newcomer("e:1", 1, false), &setup, &ring), (all.to_owned(), None));
        assert_eq!(learned(&newcomer("d:1", 1, false), &setup, &ring), (all.to_owned(), None));
        assert_eq!(learned(&newcomer("f:1", 1, true), &setup, &ring), (format!("{all} f:1"), None));
        // The one that joined has left: its number stays unused.
        let ring = status(&[(1, "a:1", true), (3, "c:1", true), (5, "e:1", true)]);
        let all = "a:1 b:1 c:1 departed-4.invalid:7379 e:1";
        assert_eq!(learned(&newcomer("e:1", 1, false), &setup, &ring), (all.to_owned(), None));
        // A node began anew as the sixth, and its former number is down.
        let ring = status(&[(5, "e:1", false), (6, "e:1", true)]);
        let all = "a:1 b:1 c:1 departed-4.invalid:7379 departed-5.invalid:7379 e:1";
        assert_eq!(learned(&newcomer("e:1", 1, false), &setup, &ring), (all.to_owned(), None));
        // Keepers find each other by the list, whatever they are called in the table.
        let ring = status(&[(1, "10.0.0.1:1", true), (4, "d:1", true)]);
        assert_eq!(learned(&newcomer("d:1", 1, false), &setup, &ring), ("a:1 b:1 c:1 d:1".to_owned(), None));
    }

    #[test]
    fn an_address_that_other_machines_do_not_reach_joins_only_nodes_of_the_same_machine() {
        let remote = setup(&["10.0.0.1:7379", "10.0.0.2:7379", "10.0.0.3:7379"], 1);
        for told in ["127.0.0.1:7379", "[::1]:7379", "localhost:7379", "127.0.0.9:7379"] {
            let (problem, hint) = refused(&newcomer(told, 1, true), &remote, &status(&[]));
            assert_eq!(problem, format!("{told}: nodes on other machines do not reach it"));
            assert!(hint.contains("--announce"), "{hint}");
        }
        // A node that left has no machine.
        let local = setup(&["127.0.0.1:1", "127.0.0.1:2", "localhost:3", "departed-4.invalid:7379"], 1);
        let (all, _) = learned(&newcomer("127.0.0.1:5", 1, true), &local, &status(&[]));
        assert!(all.ends_with("departed-4.invalid:7379 127.0.0.1:5"), "{all}");
    }

    #[test]
    fn a_node_at_the_place_of_a_keeper_is_known_as_one() {
        let (setup, ring) = (setup(&["a:1", "b:1", "c:1"], 1), status(&[(4, "d:1", true)]));
        for (told, is_keeper) in [("a:1", true), ("c:1", true), ("d:1", false), ("e:1", false)] {
            let newcomer = newcomer(told, 1, false);
            assert_eq!(newcomer.is_keeper(&newcomer.found(&setup, &ring).unwrap().0), is_keeper, "{told}");
        }
    }

    #[test]
    fn a_number_that_no_ring_has_makes_no_list_of_that_length() {
        let setup = setup(&["a:1"], 1);
        for node in [65_537, u32::MAX] {
            for told in ["b:1", "d:1"] {
                let ring = status(&[(node, "d:1", true)]);
                let (problem, _) = refused(&newcomer(told, 1, false), &setup, &ring);
                assert!(problem.contains("at most 65536"), "{problem}");
            }
        }
        let (learned, _) =
            newcomer("d:1", 1, false).found(&setup, &status(&[(65_536, "d:1", true)])).unwrap();
        assert_eq!(learned.hosts.len(), 65_536);
    }

    #[test]
    fn a_table_that_nobody_can_change_does_not_tell_that_a_node_is_up() {
        let (setup, newcomer) = (setup(&["a:1"], 1), newcomer("a:1", 1, true));
        for (group_silent_ms, kind, text) in [
            (3_000, ErrorKind::Conflict, "the name a:1 is taken: node 1 of the ring has it"),
            (3_001, ErrorKind::Unavailable, "the nodes that keep the configuration do not answer"),
        ] {
            let ring = RingStatus { group_silent_ms, ..status(&[(1, "a:1", true)]) };
            let (_, taken) = newcomer.found(&setup, &ring).unwrap();
            let failure = newcomer.taken(taken.unwrap(), &ring);
            assert!(matches!(&failure, Failure::Store(error) if error.kind() == kind), "{failure:?}");
            assert!(failure.to_string().contains(text), "{failure}");
        }
    }

    #[test]
    fn nodes_that_tell_no_setup_are_a_ring_of_their_own_only_if_there_is_one() {
        let told = |status: &RingStatus| not_set_up("a:1", status).to_string();
        assert!(told(&status(&[(1, "a:1", true)])).contains("is a ring of its own"));
        let several = told(&status(&[(1, "a:1", true), (2, "b:1", true)]));
        assert!(several.contains("does not tell how their ring is set up"), "{several}");
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

//! The nodes of a ring as the command line names them: their addresses, and which of them this process runs.
//!
//! Clients reach a node at its port, other nodes at that port plus 10,000. The first three also serve the
//! configuration group, at that port plus 20,000. A process with several event loops runs a node for each, at
//! adjacent ports, and the first of them counts here.

use super::hosts::expand;
use super::joining::Learned;
use crate::Failure;
use crate::output::note;
use atoll_ring::{
    COPIES_MAX, CouncilGroup, HostPort, MemberAddress, NodeId, NodeTls, Others, PlacementHints, RING_FILE,
    Reads, RingOptions, RingSetup, RingShape, Token, Weight, problem_of_zone,
};
use atoll_wire::like_first;
use clap::Args;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Offset of the port for other nodes from the port for clients.
const PEERS_ABOVE: u16 = 10_000;
const GROUP_ABOVE: u16 = 20_000;

/// How many nodes keep the configuration, unless more are asked for.
const GROUP_NODES: usize = 3;

/// With a larger error in percent the group could give up a node whose lease still holds.
const CLOCK_ERROR_MAX: f64 = 15.0;

/// Parts per million in a percent.
const PPM: f64 = 10_000.0;

/// Which nodes a ring has.
#[derive(Args, Debug)]
pub struct RingNodes {
    /// All nodes of the ring at their addresses for clients, the same list on every node; or @FILE with one
    /// per line. Host lists of batch schedulers such as node[01-04,07] are understood, and a host without a
    /// port has the port of --listen
    #[arg(long, value_name = "HOST:PORT,...", group = "several")]
    nodes: Option<String>,
    /// Join a running ring: nodes of it at their addresses for clients, written like --nodes. One of them has
    /// to answer, and tells everything that is the same on all nodes; this one comes behind the others, or
    /// where it was
    #[arg(long, value_name = "HOST:PORT,...", group = "several")]
    pub(super) join: Option<String>,
    /// Number of copies of all data, in a ring of several nodes; by default 3, or the number of processes in
    /// --nodes if that is less
    #[arg(long, value_name = "N", requires = "nodes", conflicts_with = "join")]
    copies: Option<usize>,
    /// Number of copies that must have a write before it is acknowledged, where copies are missing: with
    /// fewer in sync, writes are refused; by default 2, or 1 with a single copy
    #[arg(long, value_name = "N", requires = "nodes", conflicts_with = "join")]
    min_sync: Option<usize>,
    /// Number of nodes that keep the configuration of the ring, the same on every node: the first 1, 3, 5, 7
    /// or 9 of --nodes, by default the first 3; more than half of them must be up for nodes to fail over,
    /// join and leave
    #[arg(long, value_name = "N", requires = "nodes", conflicts_with = "join", value_parser = parse_keepers)]
    keepers: Option<usize>,
    /// Zone of this node, such as its rack or room: copies of the same data are in different zones as far as
    /// possible; by default its host
    #[arg(long, value_name = "NAME", requires = "several", value_parser = parse_zone)]
    zone: Option<String>,
    /// Share of the data that this node gets, compared with the others, from 1 to 1000
    #[arg(long, value_name = "N", requires = "several", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    weight: u16,
    /// Largest error in the rate of any node's clock, in percent, up to 15
    #[arg(long, value_name = "PERCENT", requires = "nodes", conflicts_with = "join", default_value_t = 1.0,
        value_parser = parse_error)]
    clock_error: f64,
    /// Rely on no clock: a read waits until all copies in sync confirm that no other node has taken over. A
    /// node with the only copy has nobody to ask, and relies on its clock all the same
    #[arg(long, requires = "nodes", conflicts_with_all = ["clock_error", "join"])]
    no_clock: bool,
}

fn parse_zone(text: &str) -> Result<String, String> {
    problem_of_zone(text).map_or_else(|| Ok(text.to_owned()), |problem| Err(problem.to_owned()))
}

fn parse_keepers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number: &usize| (1..=9).contains(number) && number % 2 == 1);
    number.ok_or_else(|| "an odd number from 1 to 9, so that more than half is always clear".to_owned())
}

fn parse_error(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent: &f64| (0.0..=CLOCK_ERROR_MAX).contains(percent));
    percent.ok_or_else(|| "from 0 to 15 percent; --no-clock relies on no clock".to_owned())
}

/// What one process of a ring knows of it.
pub struct RingPart {
    /// The nodes that this process runs, in order, with what each needs to know of the others.
    pub own: Vec<Others>,
    /// Their zone and weight.
    pub hints: PlacementHints,
    /// What they tell a node that joins.
    pub setup: Arc<RingSetup>,
}

/// What is the same in all processes of a ring, as the command line or a living node tells it.
struct Plan {
    hosts: Vec<HostPort>,
    keepers: usize,
    copies: usize,
    options: RingOptions,
}

/// Refuses a number of copies that a ring of so many nodes cannot keep.
pub(super) fn check_copies(copies: usize, nodes: usize) -> Result<(), Failure> {
    if (1..=nodes.min(COPIES_MAX)).contains(&copies) {
        return Ok(());
    }
    Err(wrong(
        format!("--copies {copies} of {nodes} nodes"),
        &format!("from 1 to {COPIES_MAX}, and a node for each"),
    ))
}

impl RingNodes {
    /// The nodes of this process, which has `loops` event loops, and the others, which it may have learned
    /// from a living node; none if it runs one node that is the whole ring.
    ///
    /// # Errors
    /// What is wrong with the list or the options.
    pub fn part(
        &self,
        (listen, announce): (SocketAddr, Option<&HostPort>),
        loops: u16,
        folder: Option<&Path>,
        (token, tls): (Option<&Token>, Option<&NodeTls>),
        learned: Option<Learned>,
    ) -> Result<Option<RingPart>, Failure> {
        let told = announce.cloned().unwrap_or_else(|| listen.into());
        let is_listed = learned.is_none();
        let Some(Plan { hosts, keepers: wanted, copies, options }) =
            self.plan(&told, listen.port(), loops, learned)?
        else {
            return Ok(None);
        };
        let Some(at) = hosts.iter().position(|host| *host == told) else {
            return Err(wrong(
                format!("--nodes does not name this node, {told}"),
                "name it as --listen or --announce does; a new node is added at the end",
            ));
        };
        let nodes = each_loop(&hosts, loops)?;
        let keepers = keepers(nodes.len(), usize::from(loops), wanted);
        if is_listed {
            note_neighbours(&nodes, &keepers);
        }
        if self.keepers.is_some_and(|wanted| wanted > keepers.len()) {
            let problem = format!("--keepers {wanted} of {} processes", hosts.len());
            return Err(wrong(problem, "at most as many as --nodes names"));
        }
        let own = (0..loops).map(|number| {
            let own_listen = above(listen, number)?;
            let place = at * usize::from(loops) + usize::from(number);
            let is_keeper = keepers.contains(&place);
            let address = |other: usize| group_address(&nodes[other], other == place, own_listen);
            let id = |place: usize| NodeId(u32::try_from(place + 1).unwrap_or(u32::MAX));
            let members = keepers.iter().map(|&other| Ok((id(other), address(other)?)));
            let group = CouncilGroup {
                hosts: keepers.iter().map(|&other| (id(other), nodes[other].host.clone())).collect(),
                tls: tls.and_then(|tls| tls.peers.clone()),
                members: members.collect::<Result<_, Failure>>()?,
                listen: is_keeper.then(|| above(own_listen, GROUP_ABOVE)).transpose()?,
                folder: folder
                    .map(|folder| of_loop(folder, loops, number).join("group"))
                    .filter(|_| is_keeper),
                ring: RingShape { slots: atoll_ring::SLOTS.into(), copies },
                // Slots that are founded on all nodes need not move later.
                founding_nodes: nodes.len(),
                token: token.cloned(),
            };
            let (listen, group) = (above(own_listen, PEERS_ABOVE)?, Arc::new(group));
            Ok(Others { me: id(place), listen, group, options: options.clone() })
        });
        let weight = Weight::new(self.weight).unwrap_or_default();
        let hints = PlacementHints { zone: self.zone.as_deref().map(Into::into), weight };
        let own = own.collect::<Result<_, Failure>>()?;
        let setup = Arc::new(RingSetup {
            processes: hosts,
            loops,
            keepers: keepers.len(),
            copies,
            in_sync_min: options.in_sync_min,
            rate_error_ppm: options.rate_error_ppm,
            is_clockless: options.reads == Reads::Confirmed,
        });
        Ok(Some(RingPart { own, hints, setup }))
    }

    /// What all processes have to be started with alike; none if there is one node.
    fn plan(
        &self,
        told: &HostPort,
        port: u16,
        loops: u16,
        learned: Option<Learned>,
    ) -> Result<Option<Plan>, Failure> {
        if let Some(Learned { hosts, keepers, copies, options }) = learned {
            return Ok(Some(Plan { hosts, keepers, copies, options }));
        }
        let hosts = match &self.nodes {
            Some(text) => parse(text, port, "--nodes")?,
            None if loops == 1 => return Ok(None),
            None => vec![told.clone()],
        };
        // Nodes of one process end together, so by default they keep no copies of each other's data.
        let copies = self.copies.unwrap_or(hosts.len().min(3));
        check_copies(copies, hosts.len() * usize::from(loops))?;
        let (keepers, options) = (self.keepers.unwrap_or(GROUP_NODES), self.options(copies)?);
        Ok(Some(Plan { hosts, keepers, copies, options }))
    }

    /// How copies agree.
    fn options(&self, copies: usize) -> Result<RingOptions, Failure> {
        let in_sync_min = self.min_sync.unwrap_or(copies.min(2));
        if !(1..=copies).contains(&in_sync_min) {
            let problem = format!("--min-sync {in_sync_min} of {copies} copies");
            return Err(wrong(problem, "from 1 to the number of copies"));
        }
        let reads = reads(self.no_clock);
        let rate_error_ppm = (self.clock_error * PPM).round() as u64;
        Ok(RingOptions { in_sync_min, reads, rate_error_ppm, ..RingOptions::default() })
    }
}

/// How a primary makes sure of its reads.
pub(super) fn reads(is_clockless: bool) -> Reads {
    if is_clockless { Reads::Confirmed } else { Reads::Leases }
}

/// Makes the folders of the loops. Refuses a folder that was begun with another number of event loops: it
/// would be served without the data of the others.
pub(super) fn prepare_folders(folder: &Path, loops: u16) -> Result<(), Failure> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: OsString| name.to_str()?.strip_prefix("loop-")?.parse().ok();
    let begun = entries.filter_map(|entry| number(entry.file_name())).max().unwrap_or(0_u16);
    let is_single = folder.join(RING_FILE).exists();
    let fits = if loops == 1 { begun == 0 } else { !is_single && (begun == 0 || begun == loops) };
    if fits {
        return make_folders(folder, loops);
    }
    let before = if is_single { 1 } else { begun };
    Err(wrong(
        format!("--loops {loops}: {} was begun with --loops {before}", folder.display()),
        "the number of a folder stays: start with that one, or name a new folder",
    ))
}

/// Makes the folders of all loops before the first node starts, the last one first: one that cannot start
/// leaves a folder that still tells their number.
fn make_folders(folder: &Path, loops: u16) -> Result<(), Failure> {
    let folders = (0..loops).rev().filter(|_| loops > 1).map(|number| of_loop(folder, loops, number));
    let failed =
        |path: &Path, source| Failure::File { action: "make", place: path.display().to_string(), source };
    folders
        .into_iter()
        .try_for_each(|path| std::fs::create_dir_all(&path).map_err(|source| failed(&path, source)))
}

/// The folder of the node of one event loop, in that of its process.
pub(super) fn of_loop(folder: &Path, loops: u16, number: u16) -> PathBuf {
    if loops == 1 { folder.to_owned() } else { folder.join(format!("loop-{}", number + 1)) }
}

/// All nodes of a ring whose processes have `loops` event loops each.
fn each_loop(hosts: &[HostPort], loops: u16) -> Result<Vec<HostPort>, Failure> {
    let mut nodes: Vec<HostPort> = Vec::new();
    for host in hosts {
        for number in 0..loops {
            let node = HostPort { host: host.host.clone(), port: raised(host.port, number)? };
            if nodes.contains(&node) {
                let problem = format!("--nodes names {host}, and another process with --loops has its port");
                return Err(wrong(
                    problem,
                    "leave as many ports between two processes of a host as each has loops",
                ));
            }
            nodes.push(node);
        }
    }
    Ok(nodes)
}

/// The nodes that keep the configuration: the first one of each of the first processes of the list. Another
/// node of a process would end together with its first, and nodes that are added later change nothing.
fn keepers(nodes: usize, loops: usize, wanted: usize) -> Vec<usize> {
    (0..nodes).step_by(loops.max(1)).take(wanted).collect()
}

/// Says so if keepers are on one host although there are others.
fn note_neighbours(nodes: &[HostPort], keepers: &[usize]) {
    let hosts = |places: &mut dyn Iterator<Item = usize>| {
        places.map(|place| &nodes[place].host).collect::<BTreeSet<_>>()
    };
    let (theirs, all) = (hosts(&mut keepers.iter().copied()), hosts(&mut (0..nodes.len())));
    if theirs.len() < keepers.len() && theirs.len() < all.len() {
        note(&format!(
            "of the first {} in --nodes, which keep the configuration, some are on one host: name different hosts first when you begin a ring",
            keepers.len()
        ));
    }
}

/// Parses a list given to an option in words, or in a file.
pub(super) fn parse(text: &str, port: u16, option: &str) -> Result<Vec<HostPort>, Failure> {
    let text = match text.strip_prefix('@') {
        None => text.to_owned(),
        Some(file) => std::fs::read_to_string(file).map_err(|source| Failure::File {
            action: "read",
            place: PathBuf::from(file).display().to_string(),
            source,
        })?,
    };
    let words = expand(&text).map_err(|problem| {
        let shown: String = text.chars().take(80).collect();
        wrong(
            format!("{shown:?} in {option}: {problem}"),
            "such as node-1:7379,node-2:7379 or node[01-04,07]",
        )
    })?;
    let mut nodes: Vec<HostPort> = Vec::new();
    for word in words {
        // An IPv6 address has colons of its own, and is in brackets.
        let has_port = word.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let named = if has_port { word.clone() } else { format!("{word}:{port}") };
        let node = named
            .parse()
            .map_err(|error| wrong(format!("{word:?} in {option}: {error}"), "such as node-1:7379"))?;
        if nodes.contains(&node) {
            return Err(wrong(format!("{option} names {node} twice"), "name each node once"));
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// The address of one of the keepers, as far as it is known: a cluster may resolve only the names
/// of nodes that are up, and those must be able to start without the others.
fn group_address(node: &HostPort, is_this: bool, listen: SocketAddr) -> Result<MemberAddress, Failure> {
    let port = raised(node.port, GROUP_ABOVE)?;
    let host = &node.host;
    let found: io::Result<Vec<_>> = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
    let why = match found {
        Ok(found) => match like_first(listen, found).first() {
            Some(&first) => return Ok(first.into()),
            None if is_this => {
                return Err(wrong(
                    format!("{host} in --nodes has no address"),
                    "name a host that can be found",
                ));
            }
            None => "it has no address".to_owned(),
        },
        Err(source) if is_this => {
            return Err(Failure::File { action: "find the address of", place: host.clone(), source });
        }
        Err(error) => error.to_string(),
    };
    note(&format!("{node} in --nodes is not found so far; it is looked up again until it is: {why}"));
    Ok(MemberAddress::Named { port, like: listen.ip() })
}

/// The address this many ports above another one; 0 above, any port may be named.
pub(super) fn above(listen: SocketAddr, by: u16) -> Result<SocketAddr, Failure> {
    Ok(SocketAddr::new(listen.ip(), raised(listen.port(), by)?))
}

/// The port this many above another one.
pub(super) fn raised(port: u16, by: u16) -> Result<u16, Failure> {
    let raised = if by == 0 { Some(port) } else { port.checked_add(by).filter(|_| port != 0) };
    let hint = "choose ports from 1 to 45535: a node uses those 10,000 and 20,000 above it as well";
    raised.ok_or_else(|| wrong(format!("port {port} of a node of several"), hint))
}

fn wrong(problem: String, hint: &str) -> Failure {
    Failure::Usage { problem, hint: hint.to_owned() }
}

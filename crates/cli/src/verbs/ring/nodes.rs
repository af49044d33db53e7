//! The nodes of a ring as the command line names them: their addresses, and which of them this one is.
//!
//! Clients reach a node at its port, other nodes at that port plus 10,000. The first three nodes also serve
//! the configuration group, at that port plus 20,000.

use super::hosts::expand;
use crate::Failure;
use crate::output::note;
use atoll_ring::{
    COPIES_MAX, CouncilGroup, HostPort, MemberAddress, NodeId, NodeTls, Others, RingOptions, RingShape, Token,
};
use atoll_wire::like_first;
use clap::Args;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Offset of the port for other nodes from the port for clients.
const PEERS_ABOVE: u16 = 10_000;
const GROUP_ABOVE: u16 = 20_000;

/// How many nodes, of those named first, keep the configuration.
const GROUP_NODES: usize = 3;

/// Which nodes a ring has.
#[derive(Args, Debug)]
pub struct RingNodes {
    /// All nodes of the ring at their addresses for clients, the same list on every node; or @FILE with one
    /// per line. Host lists of batch schedulers such as node[01-04,07] are understood, and a host without a
    /// port has the port of --listen
    #[arg(long, value_name = "HOST:PORT,...")]
    nodes: Option<String>,
    /// Number of copies of all data, in a ring of several nodes
    #[arg(long, value_name = "N", requires = "nodes")]
    copies: Option<usize>,
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
    /// The other nodes, if there are any.
    ///
    /// # Errors
    /// What is wrong with the list.
    pub fn others(
        &self,
        listen: SocketAddr,
        announce: Option<&HostPort>,
        folder: Option<&Path>,
        (token, tls): (Option<&Token>, Option<&NodeTls>),
    ) -> Result<Option<Others>, Failure> {
        let Some(text) = &self.nodes else { return Ok(None) };
        let nodes = parse(text, listen.port())?;
        let told = announce.cloned().unwrap_or_else(|| listen.into());
        let Some(at) = nodes.iter().position(|node| *node == told) else {
            return Err(wrong(
                format!("--nodes does not name this node, {told}"),
                "name it as --listen or --announce does; a new node is added at the end",
            ));
        };
        let copies = self.copies.unwrap_or(nodes.len().min(3));
        check_copies(copies, nodes.len())?;
        let group: Vec<_> = (1..).map(NodeId).zip(nodes.iter().take(GROUP_NODES)).collect();
        let hosts = group.iter().map(|(node, told)| (*node, told.host.clone())).collect();
        let address = |other: &HostPort| group_address(other, *other == told, listen);
        let members = group.into_iter().map(|(node, other)| Ok((node, address(other)?)));
        let group = CouncilGroup {
            hosts,
            tls: tls.and_then(|tls| tls.peers.clone()),
            members: members.collect::<Result<_, Failure>>()?,
            listen: if at < GROUP_NODES { Some(above(listen, GROUP_ABOVE)?) } else { None },
            folder: folder.map(|folder| folder.join("group")).filter(|_| at < GROUP_NODES),
            ring: RingShape { slots: atoll_ring::SLOTS.into(), copies },
            // Slots that are founded on all nodes need not move later.
            founding_nodes: nodes.len(),
            token: token.cloned(),
        };
        let number = u32::try_from(at + 1).unwrap_or(u32::MAX);
        Ok(Some(Others {
            me: NodeId(number),
            listen: above(listen, PEERS_ABOVE)?,
            group: Arc::new(group),
            options: RingOptions { in_sync_min: copies.min(2), ..RingOptions::default() },
        }))
    }
}

/// Parses a list given in words, or in a file.
fn parse(text: &str, port: u16) -> Result<Vec<HostPort>, Failure> {
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
        wrong(format!("{shown:?} in --nodes: {problem}"), "such as node-1:7379,node-2:7379 or node[01-04,07]")
    })?;
    let mut nodes: Vec<HostPort> = Vec::new();
    for word in words {
        // An IPv6 address has colons of its own, and is in brackets.
        let has_port = word.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let named = if has_port { word.clone() } else { format!("{word}:{port}") };
        let node = named
            .parse()
            .map_err(|error| wrong(format!("{word:?} in --nodes: {error}"), "such as node-1:7379"))?;
        if nodes.contains(&node) {
            return Err(wrong(format!("--nodes names {node} twice"), "name each node once"));
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// The address of one of the first three nodes, as far as it is known: a cluster may resolve only the names
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

fn above(listen: SocketAddr, by: u16) -> Result<SocketAddr, Failure> {
    Ok(SocketAddr::new(listen.ip(), raised(listen.port(), by)?))
}

fn raised(port: u16, by: u16) -> Result<u16, Failure> {
    let raised = (port != 0).then(|| port.checked_add(by)).flatten();
    let hint = "choose ports from 1 to 45535: a node uses those 10,000 and 20,000 above it as well";
    raised.ok_or_else(|| wrong(format!("port {port} of a node of several"), hint))
}

fn wrong(problem: String, hint: &str) -> Failure {
    Failure::Usage { problem, hint: hint.to_owned() }
}

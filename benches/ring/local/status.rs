//! A node's report about its ring: `AT.RING STATUS`.

use super::LocalError;
use crate::client::{Incoming, Speaker, unexpected};
use std::net::SocketAddr;

const QUESTION: [&[u8]; 2] = [b"AT.RING", b"STATUS"];

/// The state of a ring, as one of its nodes knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// How many slots are served.
    pub served: u64,
    /// The smallest number of in-sync copies of any slot.
    pub copies_in_sync_min: u64,
    /// The number of the node that leads the configuration group; 0 if it is not known.
    pub group_leader: u64,
    /// How long that group has not answered this node.
    pub group_silent_ms: u64,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
}

/// The state of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its number.
    pub node: u64,
    /// How many slots it leads.
    pub leads: u64,
    /// Of how many slots it has a copy in sync.
    pub in_sync: u64,
    /// Of how many slots its copy is catching up.
    pub catching_up: u64,
    /// Whether it is leaving the ring.
    pub is_leaving: bool,
}

/// Asks a node.
pub fn ask(address: SocketAddr, token: &str) -> Result<Status, LocalError> {
    let mut speaker = Speaker::connect(address)?;
    let welcome = speaker.say(&[b"AUTH", token.as_bytes()])?;
    if welcome != Incoming::Status(b"OK".to_vec()) {
        return Err(unexpected(&[b"AUTH"], &welcome).into());
    }
    ask_by(&mut speaker)
}

/// Asks a node that requires no token.
pub fn ask_openly(address: SocketAddr) -> Result<Status, LocalError> {
    ask_by(&mut Speaker::connect(address)?)
}

fn ask_by(speaker: &mut Speaker) -> Result<Status, LocalError> {
    let heard = speaker.say(&QUESTION)?;
    read(&heard).ok_or_else(|| unexpected(&QUESTION, &heard).into())
}

fn find<'a>(map: &'a Incoming, wanted: &str) -> Option<&'a Incoming> {
    let Incoming::List(parts) = map else { return None };
    let is_it = |name: &Incoming| *name == Incoming::Value(wanted.as_bytes().to_vec());
    parts.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1])
}

fn number(map: &Incoming, wanted: &str) -> Option<u64> {
    match find(map, wanted)? {
        Incoming::Number(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn read(heard: &Incoming) -> Option<Status> {
    let Incoming::List(nodes) = find(heard, "nodes")? else { return None };
    let node = |node: &Incoming| {
        Some(NodeStatus {
            node: number(node, "node")?,
            leads: number(node, "leads")?,
            in_sync: number(node, "in_sync")?,
            catching_up: number(node, "catching_up")?,
            is_leaving: number(node, "leaving")? != 0,
        })
    };
    Some(Status {
        served: number(heard, "served")?,
        copies_in_sync_min: number(heard, "copies_in_sync_min")?,
        // Earlier builds do not report it.
        group_leader: number(heard, "group_leader").unwrap_or(0),
        group_silent_ms: number(heard, "group_silent_ms")?,
        nodes: nodes.iter().map(node).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_by_its_names_and_a_part_that_is_missing_is_seen() {
        let pairs = |pairs: &[(&str, i64)]| -> Vec<Incoming> {
            let flat = pairs.iter().flat_map(|(name, number)| {
                [Incoming::Value(name.as_bytes().to_vec()), Incoming::Number(*number)]
            });
            flat.collect()
        };
        let node = [("node", 2), ("leaving", 1), ("leads", 9), ("in_sync", 11), ("catching_up", 4)];
        let ring =
            [("served", 16_384), ("copies_in_sync_min", 3), ("group_leader", 2), ("group_silent_ms", 40)];
        let mut whole = pairs(&ring);
        whole
            .extend([Incoming::Value(b"nodes".to_vec()), Incoming::List(vec![Incoming::List(pairs(&node))])]);
        let status = read(&Incoming::List(whole.clone())).unwrap();
        assert_eq!((status.served, status.copies_in_sync_min, status.group_leader), (16_384, 3, 2));
        let read_node = NodeStatus { node: 2, leads: 9, in_sync: 11, catching_up: 4, is_leaving: true };
        assert_eq!(status.nodes, [read_node]);
        assert_eq!(read(&Incoming::List(whole[2..].to_vec())), None);
    }
}

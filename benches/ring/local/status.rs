//! What a node says of its ring: `AT.RING STATUS`.

use super::LocalError;
use crate::client::{Heard, Speaker, unexpected};
use std::net::SocketAddr;

const QUESTION: [&[u8]; 2] = [b"AT.RING", b"STATUS"];

/// How a ring is, as one of its nodes knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// How many slots have somebody that answers for them.
    pub served: u64,
    /// How many copies in sync the slot has that has fewest.
    pub copies_in_sync_min: u64,
    /// The number of the node that leads the configuration group; 0 if it is not known.
    pub group_leader: u64,
    /// For how long that group has not answered this node.
    pub group_silent_ms: u64,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
}

/// How a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its number.
    pub node: u64,
    /// Of how many slots it is the primary.
    pub leads: u64,
    /// Of how many it has a copy in sync.
    pub in_sync: u64,
    /// Of how many its copy catches up.
    pub catching_up: u64,
    /// Whether what it has goes elsewhere.
    pub is_leaving: bool,
}

/// Asks a node.
pub fn ask(address: SocketAddr, token: &str) -> Result<Status, LocalError> {
    let mut speaker = Speaker::connect(address)?;
    let welcome = speaker.say(&[b"AUTH", token.as_bytes()])?;
    if welcome != Heard::Status(b"OK".to_vec()) {
        return Err(unexpected(&[b"AUTH"], &welcome).into());
    }
    ask_by(&mut speaker)
}

/// Asks a node that lets everybody in.
pub fn ask_openly(address: SocketAddr) -> Result<Status, LocalError> {
    ask_by(&mut Speaker::connect(address)?)
}

fn ask_by(speaker: &mut Speaker) -> Result<Status, LocalError> {
    let heard = speaker.say(&QUESTION)?;
    read(&heard).ok_or_else(|| unexpected(&QUESTION, &heard).into())
}

fn find<'a>(map: &'a Heard, wanted: &str) -> Option<&'a Heard> {
    let Heard::List(parts) = map else { return None };
    let is_it = |name: &Heard| *name == Heard::Value(wanted.as_bytes().to_vec());
    parts.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1])
}

fn number(map: &Heard, wanted: &str) -> Option<u64> {
    match find(map, wanted)? {
        Heard::Number(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn read(heard: &Heard) -> Option<Status> {
    let Heard::List(nodes) = find(heard, "nodes")? else { return None };
    let node = |node: &Heard| {
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
        // Earlier builds do not tell.
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
        let pairs = |pairs: &[(&str, i64)]| -> Vec<Heard> {
            let flat = pairs
                .iter()
                .flat_map(|(name, number)| [Heard::Value(name.as_bytes().to_vec()), Heard::Number(*number)]);
            flat.collect()
        };
        let node = [("node", 2), ("leaving", 1), ("leads", 9), ("in_sync", 11), ("catching_up", 4)];
        let ring =
            [("served", 16_384), ("copies_in_sync_min", 3), ("group_leader", 2), ("group_silent_ms", 40)];
        let mut whole = pairs(&ring);
        whole.extend([Heard::Value(b"nodes".to_vec()), Heard::List(vec![Heard::List(pairs(&node))])]);
        let status = read(&Heard::List(whole.clone())).unwrap();
        assert_eq!((status.served, status.copies_in_sync_min, status.group_leader), (16_384, 3, 2));
        let read_node = NodeStatus { node: 2, leads: 9, in_sync: 11, catching_up: 4, is_leaving: true };
        assert_eq!(status.nodes, [read_node]);
        assert_eq!(read(&Heard::List(whole[2..].to_vec())), None);
    }
}

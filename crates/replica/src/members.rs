//! The nodes of the ring, in little memory: every node keeps this list of all.
//!
//! Invariant: the list is sorted by node number, and each number occurs once.
//! Invariant: an address is returned byte by byte as it was given, however it is stored.

use crate::{Incarnation, NodeId, Weight, ZoneId};
use std::fmt::{self, Write};
use std::net::Ipv4Addr;
use std::ops::Index;
use std::str::FromStr;

/// What the table says about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node's current life.
    pub incarnation: Incarnation,
    /// Whether the configuration group hears it.
    pub is_up: bool,
    /// Whether it is to give up its copies and then leave the ring.
    pub is_leaving: bool,
    /// How large it is.
    pub weight: Weight,
    /// Its zone, if it named one.
    pub zone: Option<ZoneId>,
    /// Where clients and other nodes reach it.
    pub address: Address,
}

/// The address of a node, as text; what it means is up to the runtime.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(StoredAddress);

/// How an address is stored. Whatever fits the first form is never stored in the second, so equal texts
/// compare equal.
#[derive(Clone, PartialEq, Eq)]
enum StoredAddress {
    /// `NAME HOST:PORT HOST:PORT`: a name of 40 hexadecimal digits, and the same numbered host twice.
    Numbered { name: [u8; 20], host: Ipv4Addr, ports: [u16; 2] },
    /// Any other text.
    Text(Box<str>),
}

/// All nodes of the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(Vec<(NodeId, Member)>);

/// The budget is 64 bytes a node, including what requests are routed by.
const _: () = assert!(size_of::<(NodeId, Member)>() <= 56);

/// The host of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Host<'a> {
    Number(Ipv4Addr),
    Name(&'a str),
}

/// What a store that registers under a number is to the one that has it. A store keeps its name wherever it
/// goes, so the names decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is that store; or one of the two has no name.
    ByItself,
    /// It is another store, where clients reached that one: its folder was lost, or it was in memory.
    InItsPlace,
    /// It is another store elsewhere.
    ByAnother,
}

/// The name of a store, and where clients reach its node, in `NAME HOST:PORT HOST:PORT`.
fn store_in(text: &str) -> Option<(&str, &str)> {
    let (name, hosts) = text.split_once(' ')?;
    let (clients, _peers) = hosts.split_once(' ')?;
    Some((name, clients))
}

impl Member {
    /// A node that is up and stays, in its first life, without a zone.
    #[must_use]
    pub fn new(address: Address) -> Self {
        let (weight, zone) = (Weight::default(), None);
        Self { incarnation: Incarnation(1), is_up: true, is_leaving: false, weight, zone, address }
    }
}

impl Address {
    /// The host where clients reach the node, if the address is `NAME HOST:PORT HOST:PORT`.
    pub(crate) fn host(&self) -> Option<Host<'_>> {
        match &self.0 {
            StoredAddress::Numbered { host, .. } => Some(Host::Number(*host)),
            StoredAddress::Text(text) => {
                let mut words = text.split(' ');
                let (clients, _peers) = (words.nth(1)?, words.next()?);
                clients.rsplit_once(':').map(|(host, _port)| Host::Name(host))
            }
        }
    }

    /// What a store that registers at `claimed` is to the one at this address.
    pub(crate) fn claim(&self, claimed: &Self) -> Claim {
        let (here, there) = (self.to_string(), claimed.to_string());
        match (store_in(&here), store_in(&there)) {
            (Some((name, clients)), Some((other, others_clients))) if name != other => {
                if clients == others_clients { Claim::InItsPlace } else { Claim::ByAnother }
            }
            _ => Claim::ByItself,
        }
    }

    /// Where clients reach the node: a part of `NAME HOST:PORT HOST:PORT`, and all of any other text.
    #[must_use]
    pub fn for_clients(&self) -> String {
        let text = self.to_string();
        store_in(&text).map_or(text.as_str(), |(_name, clients)| clients).to_owned()
    }

    /// Parses the text as another type.
    ///
    /// # Errors
    /// Those of the type's `FromStr`.
    pub fn parse<T: FromStr>(&self) -> Result<T, T::Err> {
        self.to_string().parse()
    }

    fn numbered(text: &str) -> Option<StoredAddress> {
        let (name, rest) = text.split_at_checked(40)?;
        let (clients, peers) = rest.strip_prefix(' ')?.split_once(' ')?;
        let (host, port) = clients.split_once(':')?;
        let (same_host, peer_port) = peers.split_once(':')?;
        let mut packed = [0; 20];
        for (byte, digits) in packed.iter_mut().zip(name.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        let ports = [port.parse().ok()?, peer_port.parse().ok()?];
        let kept = StoredAddress::Numbered { name: packed, host: host.parse().ok()?, ports };
        // Other spellings of the same address, such as a port with a leading zero, are stored as text.
        (host == same_host && kept.to_string() == text).then_some(kept)
    }
}

impl From<&str> for Address {
    fn from(text: &str) -> Self {
        Self(Self::numbered(text).unwrap_or_else(|| StoredAddress::Text(text.into())))
    }
}

impl From<String> for Address {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl fmt::Display for StoredAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Numbered { name, host, ports: [clients, peers] } => {
                for byte in name {
                    for digit in [byte >> 4, byte & 15] {
                        f.write_char(char::from_digit(digit.into(), 16).unwrap_or('0'))?;
                    }
                }
                write!(f, " {host}:{clients} {host}:{peers}")
            }
        }
    }
}

impl Members {
    fn place(&self, node: NodeId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&node, |(node, _)| *node)
    }

    /// The node with this number, if there is one.
    #[must_use]
    pub fn get(&self, node: &NodeId) -> Option<&Member> {
        self.place(*node).ok().map(|place| &self.0[place].1)
    }

    /// The same, for changing it.
    pub fn get_mut(&mut self, node: &NodeId) -> Option<&mut Member> {
        self.place(*node).ok().map(|place| &mut self.0[place].1)
    }

    /// Whether there is a node with this number.
    #[must_use]
    pub fn contains_key(&self, node: &NodeId) -> bool {
        self.place(*node).is_ok()
    }

    /// Adds a node; returns the one that it replaces.
    pub fn insert(&mut self, node: NodeId, member: Member) -> Option<Member> {
        match self.place(node) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, member)),
            Err(place) => {
                self.0.insert(place, (node, member));
                None
            }
        }
    }

    /// Removes a node and returns it.
    pub fn remove(&mut self, node: &NodeId) -> Option<Member> {
        self.place(*node).ok().map(|place| self.0.remove(place).1)
    }

    /// All nodes, in the order of their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&NodeId, &Member)> + Clone {
        self.0.iter().map(|(node, member)| (node, member))
    }

    /// The numbers of all nodes, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &NodeId> + Clone {
        self.iter().map(|(node, _)| node)
    }

    /// What is known of each node, in the order of their numbers.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Member> + Clone {
        self.iter().map(|(_, member)| member)
    }

    /// The number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Extend<(NodeId, Member)> for Members {
    /// Adds nodes, replacing those with the same numbers. Keeps no spare capacity.
    fn extend<T: IntoIterator<Item = (NodeId, Member)>>(&mut self, more: T) {
        for (node, member) in more {
            self.insert(node, member);
        }
        self.0.shrink_to_fit();
    }
}

impl Index<&NodeId> for Members {
    type Output = Member;

    /// # Panics
    /// If there is no such node.
    fn index(&self, node: &NodeId) -> &Member {
        let place = self.place(*node).unwrap_or(usize::MAX);
        &self.0[place].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "0123456789abcdef0123456789abcdef01234567";

    fn member(address: &str) -> Member {
        Member::new(address.into())
    }

    #[test]
    fn an_address_is_told_as_it_was_given_and_the_usual_one_takes_no_memory_of_its_own() {
        let usual = format!("{NAME} 10.1.2.3:7379 10.1.2.3:17379");
        let kept = Address::from(usual.as_str());
        assert!(matches!(kept.0, StoredAddress::Numbered { .. }));
        assert_eq!(kept.to_string(), usual);
        let others = [
            String::new(),
            "somewhere".to_owned(),
            format!("{NAME} 10.1.2.3:7379 10.1.2.4:17379"),
            format!("{NAME} 10.1.2.3:07379 10.1.2.3:17379"),
            format!("{NAME} 10.1.2.3:+7379 10.1.2.3:17379"),
            format!("{NAME} 10.1.2.3:7379 10.1.2.3:77379"),
            format!("{NAME} 10.1.2.3:7379 10.1.2.3:17379 "),
            format!("{} 10.1.2.3:7379 10.1.2.3:17379", NAME.to_uppercase()),
            format!("{} 10.1.2.3:7379 10.1.2.3:17379", NAME.replace("67", "+7")),
            format!("{NAME} [::1]:7379 [::1]:17379"),
            format!("{NAME} node-7.cluster:7379 node-7.cluster:17379"),
            format!("{}é 10.1.2.3:7379 10.1.2.3:17379", &NAME[1..]),
        ];
        for text in others {
            let kept = Address::from(text.clone());
            assert!(matches!(kept.0, StoredAddress::Text(_)), "{text}");
            assert_eq!(kept.to_string(), text);
        }
    }

    #[test]
    fn nodes_of_one_host_are_told_by_their_addresses() {
        let host = |text: String| Address::from(text).host().map(|host| format!("{host:?}"));
        assert_eq!(host(format!("{NAME} 10.1.2.3:7379 10.1.2.3:17379")).unwrap(), "Number(10.1.2.3)");
        assert_eq!(host(format!("{NAME} [::1]:7379 [::1]:17379")).unwrap(), "Name(\"[::1]\")");
        assert_eq!(host(format!("{NAME} node-7:7379 10.0.0.7:17379")).unwrap(), "Name(\"node-7\")");
        assert_eq!(host("n7".to_owned()), None);
    }

    #[test]
    fn where_clients_reach_a_node_is_a_part_of_its_address_or_all_of_it() {
        for (text, clients) in [
            (format!("{NAME} 10.1.2.3:7379 10.1.2.3:17379"), "10.1.2.3:7379"),
            (format!("{NAME} node-7:7379 10.0.0.7:17379"), "node-7:7379"),
            ("somewhere".to_owned(), "somewhere"),
            ("some where".to_owned(), "some where"),
            (String::new(), ""),
        ] {
            assert_eq!(Address::from(text).for_clients(), clients);
        }
    }

    #[test]
    fn members_are_what_a_map_of_them_would_be() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut members, mut model) = (Members::default(), std::collections::BTreeMap::new());
        for step in 0..2_000 {
            let node = NodeId(random.u32(..40));
            match random.u8(..4) {
                0 => assert_eq!(members.remove(&node), model.remove(&node)),
                1 => {
                    let more: Vec<_> =
                        (0..random.u32(..5)).map(|other| (NodeId(other * 9), member("more"))).collect();
                    members.extend(more.clone());
                    model.extend(more);
                }
                _ => {
                    let one = member(&format!("{NAME} 10.0.0.1:{step} 10.0.0.1:{step}"));
                    assert_eq!(members.insert(node, one.clone()), model.insert(node, one));
                }
            }
            assert!(
                members.iter().eq(model.iter()) && members.len() == model.len(),
                "seed {seed}, step {step}"
            );
            assert_eq!(members.get(&node), model.get(&node), "seed {seed}, step {step}");
        }
    }

    #[test]
    fn a_list_that_was_received_has_no_room_to_spare() {
        let mut members = Members::default();
        members.extend((0..1_000).map(|node| (NodeId(node), member("a"))));
        assert_eq!(members.0.capacity(), 1_000);
    }
}

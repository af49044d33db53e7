//! The addresses of a host: a name may resolve to several, which take turns until one works.
//!
//! Invariant: there is always an address whose turn it is.

use std::collections::VecDeque;
use std::net::SocketAddr;

/// The addresses of one host.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The first is the one whose turn it is; no address occurs twice.
    turns: VecDeque<SocketAddr>,
}

impl Addresses {
    /// These addresses in this order, if there are any.
    pub fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Option<Self> {
        let mut turns = VecDeque::new();
        for address in addresses {
            if !turns.contains(&address) {
                turns.push_back(address);
            }
        }
        (!turns.is_empty()).then_some(Self { turns })
    }

    /// The address to dial.
    pub fn turn(&self) -> SocketAddr {
        self.turns[0]
    }

    /// Dialling this address failed: if it is still its turn, the turn passes to the next one. So when
    /// several callers dial it at the same time, the turn passes only once.
    pub fn pass(&mut self, at: SocketAddr) {
        if self.turn() == at {
            self.turns.rotate_left(1);
        }
    }

    /// All addresses, beginning with the one whose turn it is.
    pub fn all(&self) -> impl Iterator<Item = SocketAddr> {
        self.turns.iter().copied()
    }

    /// Whether both hold the same addresses in any order, because name servers rotate them.
    pub fn is_same(&self, other: &Self) -> bool {
        self.turns.len() == other.turns.len() && self.all().all(|address| other.turns.contains(&address))
    }
}

/// Sorts addresses of the same family as `like` to the front: a name may have addresses of both families, and
/// a server that listens on one of them is not reached on the other. Otherwise keeps the order.
pub fn like_first(like: SocketAddr, mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    addresses.sort_by_key(|address| address.is_ipv4() != like.is_ipv4());
    addresses
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn four(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 17_379))
    }

    fn six(last: u16) -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, last], 17_379))
    }

    #[test]
    fn each_address_has_its_turn_and_keeps_it_until_somebody_finds_nobody_there() {
        let mut addresses = Addresses::new([1, 2, 1, 3, 2].map(four)).unwrap();
        let turns: Vec<_> = (0..5)
            .map(|_| {
                let at = addresses.turn();
                assert_eq!(addresses.turn(), at, "it keeps its turn");
                // Two callers had dialled it.
                addresses.pass(at);
                addresses.pass(at);
                at
            })
            .collect();
        assert_eq!(turns, [1, 2, 3, 1, 2].map(four));
        assert!(Addresses::new([]).is_none());
    }

    #[test]
    fn with_one_address_it_is_always_its_turn() {
        let mut addresses = Addresses::new([four(1)]).unwrap();
        addresses.pass(four(1));
        assert_eq!(addresses.turn(), four(1));
    }

    #[test]
    fn the_same_addresses_in_another_order_are_the_same() {
        let new = |last: &[u8]| Addresses::new(last.iter().copied().map(four)).unwrap();
        assert!(new(&[1, 2, 3]).is_same(&new(&[3, 1, 2])));
        for other in [new(&[1, 2]), new(&[1, 2, 4])] {
            assert!(!new(&[1, 2, 3]).is_same(&other) && !other.is_same(&new(&[1, 2, 3])), "{other:?}");
        }
    }

    #[test]
    fn the_addresses_come_first_that_are_like_the_one_to_listen_at() {
        let found = vec![six(1), four(1), six(2), four(2)];
        assert_eq!(like_first(four(9), found.clone()), [four(1), four(2), six(1), six(2)]);
        assert_eq!(like_first(six(9), found), [six(1), six(2), four(1), four(2)]);
        assert_eq!(like_first(four(9), vec![six(1)]), [six(1)]);
    }
}

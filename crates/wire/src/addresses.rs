//! Where a host is reached: a name may stand for several addresses, of which each has its turn until one is
//! good.
//!
//! Invariant: there is always an address whose turn it is.

use std::collections::VecDeque;
use std::net::SocketAddr;

/// The addresses of one host.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The one whose turn it is first; none is here twice.
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

    /// The one to dial now.
    pub fn turn(&self) -> SocketAddr {
        self.turns[0]
    }

    /// Nobody was reached at this one: if it is still its turn, the next one has it. Of several who dialled
    /// it at once, so, one is heard.
    pub fn pass(&mut self, at: SocketAddr) {
        if self.turn() == at {
            self.turns.rotate_left(1);
        }
    }

    /// All of them, the one whose turn it is first.
    pub fn all(&self) -> impl Iterator<Item = SocketAddr> {
        self.turns.iter().copied()
    }

    /// Whether these are the same, in whichever order: servers of names tell them in another one each time.
    pub fn is_same(&self, other: &Self) -> bool {
        self.turns.len() == other.turns.len() && self.all().all(|address| other.turns.contains(&address))
    }
}

/// These addresses, those of the same kind as this one first: a name may have some of both kinds, and whoever
/// listens at one of a kind is not reached at the other. Otherwise in the order of whoever told them.
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
                // Two had dialled it.
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

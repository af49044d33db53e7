//! The addresses of another node, which are tried in turn until the node is reached.

use atoll_wire::Addresses;
use std::net::SocketAddr;

/// The addresses of another node.
#[derive(Clone, Debug)]
pub(crate) struct PeerAddress {
    addresses: Addresses,
    /// Whether the current address was dialled without success so far.
    is_tried: bool,
    /// The host name that its certificate has to be for.
    pub(crate) host: String,
}

impl PeerAddress {
    /// Makes the addresses of a node, if there are any.
    pub(crate) fn new(addresses: impl IntoIterator<Item = SocketAddr>, host: String) -> Option<Self> {
        Some(Self { addresses: Addresses::new(addresses)?, is_tried: false, host })
    }

    /// The address that is dialled.
    pub(crate) fn at(&self) -> SocketAddr {
        self.addresses.turn()
    }

    /// All its addresses, the one that is dialled first.
    pub(crate) fn all(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.all()
    }

    /// Keeps only the addresses that fit, if any do.
    pub(crate) fn only(&self, is_left: impl Fn(SocketAddr) -> bool) -> Option<Self> {
        Self::new(self.all().filter(|address| is_left(*address)), self.host.clone())
    }

    /// Whether it is the same host at the same addresses, in any order.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.host == other.host && self.addresses.is_same(&other.addresses)
    }

    /// The address to dial now: the one where the node was last reached, otherwise the next after the one
    /// that was tried.
    pub(super) fn take_turn(&mut self) -> SocketAddr {
        if std::mem::replace(&mut self.is_tried, true) {
            self.addresses.pass(self.at());
        }
        self.at()
    }

    /// Marks that the node is reached at the address that was dialled last.
    pub(super) fn keep_turn(&mut self) {
        self.is_tried = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 17_379))
    }

    fn of(last: &[u8], host: &str) -> PeerAddress {
        PeerAddress::new(last.iter().copied().map(at), host.to_owned()).unwrap()
    }

    #[test]
    fn each_address_has_its_turn_until_one_is_good() {
        let mut address = of(&[1, 2, 3], "host");
        let turns: Vec<_> = (0..5).map(|_| address.take_turn()).collect();
        assert_eq!(turns, [1, 2, 3, 1, 2].map(at));
        address.keep_turn();
        assert_eq!([address.take_turn(), address.take_turn()], [2, 3].map(at));
        assert!(PeerAddress::new([], "host".to_owned()).is_none());
    }

    #[test]
    fn the_same_host_is_at_the_same_addresses() {
        let address = of(&[1, 2, 3], "host");
        assert!(address.is_same(&of(&[3, 1, 2], "host")));
        for other in [of(&[1, 2], "host"), of(&[1, 2, 3], "other")] {
            assert!(!address.is_same(&other) && !other.is_same(&address), "{other:?}");
        }
        assert!(address.only(|one| one != at(1)).unwrap().is_same(&of(&[2, 3], "host")));
        assert!(address.only(|_| false).is_none());
    }
}

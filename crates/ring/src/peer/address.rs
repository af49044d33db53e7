//! Where another node is reached: each of its addresses in turn, until it is reached at one.

use std::collections::VecDeque;
use std::net::SocketAddr;

/// Where another node is.
#[derive(Clone, Debug)]
pub(crate) struct PeerAddress {
    /// Where it is dialled.
    pub(crate) at: SocketAddr,
    /// Its other addresses, in the order in which they follow.
    others: VecDeque<SocketAddr>,
    /// Whether it was dialled there and has not been reached since.
    is_tried: bool,
    /// The host that it is named as, which its certificate has to be for.
    pub(crate) host: String,
}

impl PeerAddress {
    /// A node at these addresses, if there are any.
    pub(crate) fn new(addresses: impl IntoIterator<Item = SocketAddr>, host: String) -> Option<Self> {
        let mut addresses = addresses.into_iter();
        let at = addresses.next()?;
        let mut others = VecDeque::new();
        for other in addresses {
            if other != at && !others.contains(&other) {
                others.push_back(other);
            }
        }
        Some(Self { at, others, is_tried: false, host })
    }

    /// All its addresses, the one where it is dialled first.
    pub(crate) fn all(&self) -> impl Iterator<Item = SocketAddr> {
        std::iter::once(self.at).chain(self.others.iter().copied())
    }

    /// What is left of it without the others of its addresses.
    pub(crate) fn only(&self, is_left: impl Fn(SocketAddr) -> bool) -> Option<Self> {
        Self::new(self.all().filter(|address| is_left(*address)), self.host.clone())
    }

    /// Whether these are the same addresses, in whichever order: servers of names tell them in another one each time.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_in = |address| other.all().any(|one| one == address);
        self.host == other.host && self.others.len() == other.others.len() && self.all().all(is_in)
    }

    /// Where to dial it now: where it was reached last, otherwise at the address behind the one that was tried.
    pub(super) fn take_turn(&mut self) -> SocketAddr {
        if self.is_tried
            && let Some(next) = self.others.pop_front()
        {
            self.others.push_back(std::mem::replace(&mut self.at, next));
        }
        self.is_tried = true;
        self.at
    }

    /// It is reached where it was dialled last.
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

    #[test]
    fn each_address_has_its_turn_until_one_is_good() {
        let mut address = PeerAddress::new([1, 2, 1, 3, 2].map(at), "host".to_owned()).unwrap();
        let turns: Vec<_> = (0..5).map(|_| address.take_turn()).collect();
        assert_eq!(turns, [1, 2, 3, 1, 2].map(at));
        address.keep_turn();
        assert_eq!([address.take_turn(), address.take_turn()], [2, 3].map(at));
        assert!(PeerAddress::new([], "host".to_owned()).is_none());
    }

    #[test]
    fn the_same_addresses_in_another_order_are_the_same() {
        let new = |last: &[u8], host: &str| {
            PeerAddress::new(last.iter().copied().map(at), host.to_owned()).unwrap()
        };
        let address = new(&[1, 2, 3], "host");
        assert!(address.is_same(&new(&[3, 1, 2], "host")));
        for other in [new(&[1, 2], "host"), new(&[1, 2, 4], "host"), new(&[1, 2, 3], "other")] {
            assert!(!address.is_same(&other) && !other.is_same(&address), "{other:?}");
        }
        assert!(address.only(|one| one != at(1)).unwrap().is_same(&new(&[2, 3], "host")));
        assert!(address.only(|_| false).is_none());
    }
}

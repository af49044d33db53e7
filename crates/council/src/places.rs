//! Where members are reached: at the addresses that they were given with, and where their names say once nobody is reached there.
//!
//! Invariant: nobody waits for a name: what was known stays so until another address is found, as long as servers of names are silent.

use crate::{CouncilOptions, peers};
use atoll_replica::NodeId;
use atoll_wire::{Addresses, Client, WireError, like_first};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A member that was not reached for so long is looked up.
const LOOKED_UP_AFTER: Duration = Duration::from_secs(3);

type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Where all members are.
pub(crate) struct Places {
    places: BTreeMap<NodeId, Place>,
    resolve: Arc<Resolve>,
}

/// Where one is.
struct Place {
    /// The name that it has, if it has one.
    name: Option<String>,
    found: Arc<Mutex<Found>>,
}

struct Found {
    addresses: Addresses,
    /// Since when it is not reached, or was looked up last.
    failing_since: Option<Instant>,
    is_looked_up: bool,
}

impl Places {
    pub(crate) fn new(options: &CouncilOptions) -> Self {
        let resolve = |host: &str, port| (host, port).to_socket_addrs().map(Iterator::collect);
        Self::resolved_by(options, Arc::new(resolve))
    }

    fn resolved_by(options: &CouncilOptions, resolve: Arc<Resolve>) -> Self {
        let place = |&(node, address): &(NodeId, SocketAddr)| {
            let name = options.names.get(&node).filter(|name| name.parse::<IpAddr>().is_err());
            let addresses = Addresses::new([address])?;
            let found = Found { addresses, failing_since: None, is_looked_up: false };
            Some((node, Place { name: name.cloned(), found: Arc::new(Mutex::new(found)) }))
        };
        Self { places: options.members.iter().filter_map(place).collect(), resolve }
    }

    /// Connects to a member, where it is its turn to be.
    pub(crate) async fn connect(&self, node: NodeId, options: &CouncilOptions) -> Result<Client, WireError> {
        let address = self.address(node).ok_or(WireError::Closed)?;
        let connected = peers::connect((node, address), options).await;
        match &connected {
            Err(WireError::Io { .. }) => self.failed(node, address),
            // Whoever refuses is there.
            _ => self.reached(node),
        }
        connected
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        Some(self.places.get(&node)?.found().addresses.turn())
    }

    fn reached(&self, node: NodeId) {
        if let Some(place) = self.places.get(&node) {
            place.found().failing_since = None;
        }
    }

    /// The next one of its addresses has its turn; when none of them was good for a while its name is looked up.
    fn failed(&self, node: NodeId, at: SocketAddr) {
        let Some(place) = self.places.get(&node) else { return };
        let mut found = place.found();
        found.addresses.pass(at);
        let now = Instant::now();
        let is_long = now >= *found.failing_since.get_or_insert(now) + LOOKED_UP_AFTER;
        if let Some(name) = place.name.clone().filter(|_| is_long && !found.is_looked_up) {
            (found.is_looked_up, found.failing_since) = (true, Some(now));
            drop(found);
            place.look_up(node, name, Arc::clone(&self.resolve));
        }
    }
}

impl Place {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By a thread, for which nobody waits, not even when the node ends.
    fn look_up(&self, node: NodeId, name: String, resolve: Arc<Resolve>) {
        let found = Arc::clone(&self.found);
        let look_up = move || {
            let port = found.lock().unwrap_or_else(PoisonError::into_inner).addresses.turn().port();
            let looked_up = resolve(&name, port);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.is_looked_up = false;
            match looked_up {
                Ok(addresses) => found.take(addresses),
                Err(error) => {
                    tracing::debug!(%node, name, %error, "the name of a member cannot be looked up")
                }
            }
        };
        if std::thread::Builder::new().name("council-names".to_owned()).spawn(look_up).is_err() {
            self.found().is_looked_up = false;
        }
    }
}

impl Found {
    /// Goes by these addresses, if there are any: those like the one that the member was given with first.
    fn take(&mut self, addresses: Vec<SocketAddr>) {
        let found = Addresses::new(like_first(self.addresses.turn(), addresses));
        // Where they are the same, the one whose turn it is stays that.
        if let Some(found) = found.filter(|found| !found.is_same(&self.addresses)) {
            self.addresses = found;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use atoll_replica::GroupOptions;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const MEMBER: NodeId = NodeId(1);

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 27_379))
    }

    /// A member that is named so, and how often its name was looked up.
    fn places(name: &str, found: Vec<SocketAddr>) -> (Places, Arc<AtomicUsize>) {
        let ring = GroupOptions { slots: 1, copies: 1 };
        let mut options = CouncilOptions::new(NodeId(2), vec![(MEMBER, at(1))], ring, String::new());
        options.names = BTreeMap::from([(MEMBER, name.to_owned())]);
        let times = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&times);
        let resolve = move |_: &str, port| {
            assert_eq!(port, 27_379);
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(found.clone())
        };
        (Places::resolved_by(&options, Arc::new(resolve)), times)
    }

    /// It is not reached, ten times a second.
    async fn fail_for(places: &Places, seconds: u64) -> Vec<SocketAddr> {
        let mut dialled = Vec::new();
        for _ in 0..10 * seconds {
            let at = places.address(MEMBER).unwrap();
            dialled.push(at);
            places.failed(MEMBER, at);
            while places.places[&MEMBER].found().is_looked_up {
                std::thread::yield_now();
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        dialled
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_not_reached_is_looked_up_again_and_each_of_its_addresses_has_its_turn() {
        let six = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 27_379));
        let (places, times) = places("member", vec![six, at(2), at(3)]);
        assert_eq!(fail_for(&places, 3).await, [at(1); 30]);
        assert_eq!(times.load(Ordering::SeqCst), 0);
        places.failed(MEMBER, at(1));
        while places.places[&MEMBER].found().is_looked_up {
            std::thread::yield_now();
        }
        assert_eq!(fail_for(&places, 1).await[..4], [at(2), at(3), six, at(2)]);
        assert_eq!(times.load(Ordering::SeqCst), 1);
        fail_for(&places, 4).await;
        assert_eq!(times.load(Ordering::SeqCst), 2, "and once more every three seconds");
        let turn = places.address(MEMBER);
        places.reached(MEMBER);
        assert_eq!(places.address(MEMBER), turn, "it stays where it is reached");
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_a_number_or_whose_name_nobody_knows_stays_where_it_was() {
        for (name, found, looked_up) in [("10.0.0.1", vec![at(7)], 0), ("member", Vec::new(), 3)] {
            let (places, times) = places(name, found);
            assert_eq!(fail_for(&places, 10).await, [at(1); 100]);
            assert_eq!(times.load(Ordering::SeqCst), looked_up, "{name}");
        }
    }
}

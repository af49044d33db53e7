//! Where members are reached: at the addresses from the options, and at those that their names resolve to
//! once these fail, or at once if no address is known.
//!
//! Invariant: no caller waits for a name lookup: known addresses stay in use until others are found, however
//! long name servers are silent.
//! Invariant: a member counts as reached only if it identifies itself: addresses are reassigned, even among
//! members.

use crate::codec::{Answer, Ask};
use crate::seldom::Seldom;
use crate::{CouncilOptions, MemberAddress, peers};
use atoll_replica::NodeId;
use atoll_wire::{Addresses, Client, WireError, like_first};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A member is looked up after it was unreachable for this long.
const LOOKED_UP_AFTER: Duration = Duration::from_secs(3);

/// How long a member may take to accept a connection and identify itself.
const MEET_TIMEOUT: Duration = Duration::from_secs(1);

type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Where all members are reached.
pub(crate) struct MemberResolver {
    members: BTreeMap<NodeId, MemberEntry>,
    resolve: Arc<Resolve>,
    /// Counts the times that another member than the expected one answered.
    mistaken: Seldom,
}

/// Where one member is reached.
struct MemberEntry {
    /// The member's host name, if it has one.
    name: Option<String>,
    /// Addresses that are found get this port, and those of this family come first.
    like: SocketAddr,
    found: Arc<Mutex<KnownAddresses>>,
}

struct KnownAddresses {
    /// None while no address is known.
    addresses: Option<Addresses>,
    /// Since when the member is unreachable, or when it was last looked up.
    failing_since: Option<Instant>,
    is_looked_up: bool,
}

impl MemberResolver {
    pub(crate) fn new(options: &CouncilOptions) -> Self {
        let resolve = |host: &str, port| (host, port).to_socket_addrs().map(Iterator::collect);
        Self::resolved_by(options, Arc::new(resolve))
    }

    fn resolved_by(options: &CouncilOptions, resolve: Arc<Resolve>) -> Self {
        let entry = |&(node, address): &(NodeId, MemberAddress)| {
            let addresses = Addresses::new(address.known());
            let found = KnownAddresses { addresses, failing_since: None, is_looked_up: false };
            let (name, like) = (options.name(node).cloned(), address.like());
            (node, MemberEntry { name, like, found: Arc::new(Mutex::new(found)) })
        };
        let members = options.members.iter().map(entry).collect();
        Self { members, resolve, mistaken: Seldom::default() }
    }

    /// Connects to a member at the address whose turn it is.
    pub(crate) async fn connect(&self, node: NodeId, options: &CouncilOptions) -> Result<Client, WireError> {
        let Some(address) = self.address(node) else {
            self.failed(node, None);
            return Err(not_met(io::ErrorKind::NotFound.into()));
        };
        let met = tokio::time::timeout(MEET_TIMEOUT, self.meet((node, address), options)).await;
        let met = met.unwrap_or_else(|_| Err(not_met(io::ErrorKind::TimedOut.into())));
        match &met {
            Ok(_) => self.reached(node),
            // Even a refusal may come from a stranger, and a lookup does no harm.
            Err(_) => self.failed(node, Some(address)),
        }
        met
    }

    /// Connects to an address, and checks that the expected member is there.
    async fn meet(
        &self,
        (node, address): (NodeId, SocketAddr),
        options: &CouncilOptions,
    ) -> Result<Client, WireError> {
        let client = peers::connect((node, address), options).await?;
        match peers::ask(&client, &Ask::Who, MEET_TIMEOUT).await {
            Ok(Answer::Who { node: there, .. }) if there == node => Ok(client),
            Ok(Answer::Who { node: there, .. }) => {
                if let Some(times) = self.mistaken.happened(Instant::now()) {
                    tracing::warn!(%node, %address, %there, times, "another member of the configuration group answers at this member's address");
                }
                Err(not_met(io::Error::other("another member is there")))
            }
            Ok(_) => Err(not_met(io::Error::other("it does not identify itself"))),
            Err(error) => Err(not_met(io::Error::other(error))),
        }
    }

    fn address(&self, node: NodeId) -> Option<SocketAddr> {
        Some(self.members.get(&node)?.found().addresses.as_ref()?.turn())
    }

    fn reached(&self, node: NodeId) {
        if let Some(entry) = self.members.get(&node) {
            entry.found().failing_since = None;
        }
    }

    /// Moves on to the member's next address. If none has worked for a while, or there is none, looks its
    /// name up.
    fn failed(&self, node: NodeId, at: Option<SocketAddr>) {
        let Some(entry) = self.members.get(&node) else { return };
        let mut found = entry.found();
        if let Some((addresses, at)) = found.addresses.as_mut().zip(at) {
            addresses.pass(at);
        }
        let now = Instant::now();
        let is_new = found.addresses.is_none() && found.failing_since.is_none();
        let is_long = now >= *found.failing_since.get_or_insert(now) + LOOKED_UP_AFTER;
        if let Some(name) = entry.name.clone().filter(|_| (is_new || is_long) && !found.is_looked_up) {
            (found.is_looked_up, found.failing_since) = (true, Some(now));
            drop(found);
            entry.look_up(node, name, Arc::clone(&self.resolve));
        }
    }
}

fn not_met(source: io::Error) -> WireError {
    WireError::Io { action: "connect", source }
}

impl MemberEntry {
    fn found(&self) -> MutexGuard<'_, KnownAddresses> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks the name up on a thread of its own, which is waited for by no caller, not even at the node's
    /// end.
    fn look_up(&self, node: NodeId, name: String, resolve: Arc<Resolve>) {
        let (found, like) = (Arc::clone(&self.found), self.like);
        let look_up = move || {
            let looked_up = resolve(&name, like.port());
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.is_looked_up = false;
            match looked_up {
                Ok(addresses) => found.take(like_first(like, addresses)),
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

impl KnownAddresses {
    /// Uses these addresses, if there are any.
    fn take(&mut self, addresses: Vec<SocketAddr>) {
        let Some(found) = Addresses::new(addresses) else { return };
        // If they are the same, keep the one whose turn it is.
        if self.addresses.as_ref().is_none_or(|before| !found.is_same(before)) {
            self.addresses = Some(found);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::codec::Coded;
    use crate::types::SeatId;
    use atoll_replica::GroupOptions;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::{TcpListener, TcpStream};

    const MEMBER: NodeId = NodeId(1);

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 27_379))
    }

    /// Options with one member of this name at this address.
    fn options(name: &str, address: impl Into<MemberAddress>) -> CouncilOptions {
        let ring = GroupOptions { slots: 1, copies: 1 };
        let options = CouncilOptions::new(NodeId(2), vec![(MEMBER, address)], ring, String::new());
        CouncilOptions { names: BTreeMap::from([(MEMBER, name.to_owned())]), ..options }
    }

    /// A resolver whose lookups return `found`, and a count of the lookups.
    fn found_at(options: &CouncilOptions, found: Vec<SocketAddr>) -> (MemberResolver, Arc<AtomicUsize>) {
        let times = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&times);
        let wanted = options.members[0].1.like().port();
        let resolve = move |_: &str, port| {
            assert_eq!(port, wanted);
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(found.clone())
        };
        (MemberResolver::resolved_by(options, Arc::new(resolve)), times)
    }

    fn resolver(name: &str, found: Vec<SocketAddr>) -> (MemberResolver, Arc<AtomicUsize>) {
        found_at(&options(name, at(1)), found)
    }

    /// Waits for a lookup that is under way.
    fn wait_for_name(resolver: &MemberResolver) {
        while resolver.members[&MEMBER].found().is_looked_up {
            std::thread::yield_now();
        }
    }

    /// Fails to reach the member, ten times a second.
    async fn fail_for(resolver: &MemberResolver, seconds: u64) -> Vec<SocketAddr> {
        let mut dialled = Vec::new();
        for _ in 0..10 * seconds {
            let at = resolver.address(MEMBER).unwrap();
            dialled.push(at);
            resolver.failed(MEMBER, Some(at));
            wait_for_name(resolver);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        dialled
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_not_reached_is_looked_up_again_and_each_of_its_addresses_has_its_turn() {
        let six = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 27_379));
        let (resolver, times) = resolver("member", vec![six, at(2), at(3)]);
        assert_eq!(fail_for(&resolver, 3).await, [at(1); 30]);
        assert_eq!(times.load(Ordering::SeqCst), 0);
        resolver.failed(MEMBER, Some(at(1)));
        wait_for_name(&resolver);
        assert_eq!(fail_for(&resolver, 1).await[..4], [at(2), at(3), six, at(2)]);
        assert_eq!(times.load(Ordering::SeqCst), 1);
        fail_for(&resolver, 4).await;
        assert_eq!(times.load(Ordering::SeqCst), 2, "and once more every three seconds");
        let turn = resolver.address(MEMBER);
        resolver.reached(MEMBER);
        assert_eq!(resolver.address(MEMBER), turn, "it stays where it is reached");
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_a_number_or_whose_name_nobody_knows_stays_where_it_was() {
        for (name, found, looked_up) in [("10.0.0.1", vec![at(7)], 0), ("member", Vec::new(), 3)] {
            let (resolver, times) = resolver(name, found);
            assert_eq!(fail_for(&resolver, 10).await, [at(1); 100]);
            assert_eq!(times.load(Ordering::SeqCst), looked_up, "{name}");
        }
    }

    /// A member on this machine that accepts every connection and identifies itself as `node`.
    async fn listening(node: NodeId) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, node));
            }
        });
        address
    }

    async fn answer(stream: TcpStream, node: NodeId) {
        let welcome = |_: &[u8]| Ok(vec![peers::VERSION]);
        let mut connection = atoll_wire::Connection::accept(stream, peers::limits(), welcome).await.unwrap();
        while let Ok(Some(request)) = connection.next().await {
            let who = Answer::Who { node, seat: SeatId(u64::from(node.0)), ring: None, has_log: false };
            let _ = request.responder.finish(&who.to_bytes()).await;
        }
    }

    /// Lets three seconds pass at once.
    async fn wait_long() {
        tokio::time::pause();
        tokio::time::advance(LOOKED_UP_AFTER).await;
        tokio::time::resume();
    }

    #[tokio::test]
    async fn a_member_at_whose_address_another_one_is_is_not_reached_there_and_is_looked_up() {
        let (other, member) = (listening(NodeId(7)).await, listening(MEMBER).await);
        let options = options("member", other);
        let (resolver, times) = found_at(&options, vec![member]);
        for _ in 0..3 {
            let met = resolver.connect(MEMBER, &options).await;
            assert!(matches!(&met, Err(WireError::Io { .. })), "{:?}", met.err());
        }
        assert_eq!(times.load(Ordering::SeqCst), 0);
        wait_long().await;
        assert!(resolver.connect(MEMBER, &options).await.is_err());
        wait_for_name(&resolver);
        assert_eq!(times.load(Ordering::SeqCst), 1);
        for _ in 0..3 {
            assert!(resolver.connect(MEMBER, &options).await.unwrap().is_open());
            wait_long().await;
        }
        assert_eq!(times.load(Ordering::SeqCst), 1, "it is where it is reached");
    }

    #[tokio::test]
    async fn who_refuses_may_be_anybody_and_the_member_is_looked_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = options("member", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let refused = |_: &[u8]| Err("the token is not that of this ring".to_owned());
                drop(atoll_wire::Connection::accept(stream, peers::limits(), refused).await);
            }
        });
        let member = listening(MEMBER).await;
        let (resolver, _) = found_at(&options, vec![member]);
        assert!(matches!(resolver.connect(MEMBER, &options).await, Err(WireError::Refused { .. })));
        wait_long().await;
        assert!(resolver.connect(MEMBER, &options).await.is_err());
        wait_for_name(&resolver);
        assert!(resolver.connect(MEMBER, &options).await.is_ok());
    }

    #[tokio::test]
    async fn a_member_of_which_no_address_is_known_is_looked_up_at_once_and_again_until_it_is_found() {
        let member = listening(MEMBER).await;
        let named = MemberAddress::Named { port: 27_379, like: [10, 0, 0, 2].into() };
        let options = options("member", named);
        let (resolver, times) = found_at(&options, Vec::new());
        for looked_up in 1..=3 {
            for _ in 0..2 {
                assert!(matches!(resolver.connect(MEMBER, &options).await, Err(WireError::Io { .. })));
                wait_for_name(&resolver);
                assert_eq!(times.load(Ordering::SeqCst), looked_up);
            }
            wait_long().await;
        }
        let six = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 27_379));
        let (resolver, _) = found_at(&options, vec![six, member]);
        assert!(resolver.connect(MEMBER, &options).await.is_err(), "nobody waits for its name");
        wait_for_name(&resolver);
        assert_eq!(resolver.address(MEMBER), Some(member), "of a kind with the one to listen at");
        assert!(resolver.connect(MEMBER, &options).await.unwrap().is_open());
    }
}

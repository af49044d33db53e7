//! Where the nodes of a table reach each other. Host names are looked up for each incarnation of a node, and
//! again while it is not reached, by a separate thread, since a look-up may take as long as a name server
//! that does not answer.
//!
//! Invariant: a node whose name cannot be looked up keeps its addresses as long as it reports the same name.
//! Invariant: no caller here waits for a look-up, and a node that has just begun somewhere waits for at most
//! one.
//! Invariant: a node that is down is not dialled at an address at which a node that is up is reported.

use crate::address::{HostPort, NodeAddress};
use crate::peer::PeerAddress;
use atoll_replica::{Incarnation, NodeId, Table, Version};
use atoll_wire::like_first;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long after a failed look-up a name is tried again.
const AGAIN_EVERY: Duration = Duration::from_secs(3);

/// The address that a node reports, and its incarnation.
type ReportedAddress = (Box<str>, Incarnation);

/// A node that reports a host name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sought {
    node: NodeId,
    said: ReportedAddress,
    at: HostPort,
    host: String,
    /// Whether it has just begun there, or is only not reached where it was.
    has_begun: bool,
}

/// The addresses found for a node that reported a host name.
#[derive(Debug)]
pub(crate) struct Located {
    node: NodeId,
    said: ReportedAddress,
    address: PeerAddress,
}

/// What is known of a node of the table.
#[derive(Default)]
struct Member {
    said: ReportedAddress,
    /// The first table in which it reported that.
    since: Version,
    is_up: bool,
    found: Option<PeerAddress>,
}

/// The addresses of all nodes.
pub(crate) struct PeerAddresses {
    members: BTreeMap<NodeId, Member>,
    /// Nodes whose names are being looked up.
    sought: BTreeMap<NodeId, Sought>,
    /// Where each node is dialled, if it is.
    dialled: BTreeMap<NodeId, Option<PeerAddress>>,
    /// Sends all nodes in `sought`, whenever the set changes.
    to_thread: Sender<Vec<Sought>>,
}

impl PeerAddresses {
    /// Starts the thread, which ends with this. It calls `tell` with what it finds. Addresses of the same
    /// family as `listen` come first, because the other nodes listen like this one.
    pub(crate) fn begin(listen: SocketAddr, tell: impl Fn(Located) + Send + 'static) -> io::Result<Self> {
        let resolve = move |at: &HostPort| {
            let found = (at.host.as_str(), at.port).to_socket_addrs()?;
            Ok(like_first(listen, found.collect()))
        };
        Self::resolved_by(resolve, AGAIN_EVERY, tell)
    }

    fn resolved_by(
        resolve: impl Fn(&HostPort) -> io::Result<Vec<SocketAddr>> + Send + 'static,
        again_every: Duration,
        tell: impl Fn(Located) + Send + 'static,
    ) -> io::Result<Self> {
        let (to_thread, sought) = channel();
        std::thread::Builder::new()
            .name("ring-names".to_owned())
            .spawn(move || look_up(&sought, again_every, resolve, tell))?;
        Ok(Self { members: BTreeMap::new(), sought: BTreeMap::new(), dialled: BTreeMap::new(), to_thread })
    }

    /// Follows a table: takes numeric addresses as they are, and has the names of nodes looked up that report
    /// something new. A node whose address cannot be parsed is left out.
    pub(crate) fn follow(&mut self, table: &Table) {
        let before = self.sought.len();
        self.members.retain(|node, _| table.members.get(node).is_some());
        self.sought.retain(|node, _| table.members.get(node).is_some());
        let mut is_news = self.sought.len() != before;
        for (&node, member) in table.members.iter() {
            let said = (Box::from(member.address.to_string()), member.incarnation);
            let known = self.members.entry(node).or_default();
            known.is_up = member.is_up;
            if known.said == said {
                continue;
            }
            (known.said, known.since) = (said.clone(), table.version);
            is_news |= self.sought.remove(&node).is_some();
            let (peers, host) = match member.address.parse() {
                Ok(NodeAddress { peers, clients, .. }) => (peers, clients.host),
                Err(error) => {
                    let address = member.address.to_string();
                    tracing::warn!(%node, address, %error, "a node cannot be reached: its address cannot be read");
                    continue;
                }
            };
            match peers.host.parse::<IpAddr>() {
                Ok(number) => {
                    known.found = PeerAddress::new([SocketAddr::new(number, peers.port)], host);
                }
                Err(_) => {
                    self.sought.insert(node, Sought { node, said, at: peers, host, has_begun: true });
                    is_news = true;
                }
            }
        }
        self.choose();
        if is_news {
            self.tell_thread();
        }
    }

    /// Chooses where nodes are dialled. If several nodes report one address, those that are up are dialled
    /// there; if none is up, the one that reported it last. The others were there once, and the present owner
    /// would only refuse messages for them. Of several that are up, the node at the address itself decides: a
    /// name may lag behind its node for longer than the ring takes to notice that a node is gone.
    fn choose(&mut self) {
        let mut first: BTreeMap<SocketAddr, _> = BTreeMap::new();
        for (&node, member) in &self.members {
            let rank = (member.is_up, member.since, Reverse(node));
            for at in member.found.iter().flat_map(PeerAddress::all) {
                first.entry(at).and_modify(|first| *first = rank.max(*first)).or_insert(rank);
            }
        }
        let dialled = |(&node, member): (&NodeId, &Member)| {
            let is_first =
                |at| member.is_up || first.get(&at).is_some_and(|(_, _, Reverse(first))| *first == node);
            (node, member.found.as_ref().and_then(|found| found.only(is_first)))
        };
        self.dialled = self.members.iter().map(dialled).collect();
    }

    /// Has the names of these nodes looked up again.
    pub(crate) fn seek(&mut self, nodes: Vec<NodeId>) {
        let before = self.sought.len();
        for node in nodes {
            let Some(Member { said, .. }) = self.members.get(&node) else { continue };
            let Ok(NodeAddress { peers: at, clients, .. }) = said.0.parse() else { continue };
            if at.host.parse::<IpAddr>().is_err() {
                let (said, host) = (said.clone(), clients.host);
                self.sought.entry(node).or_insert(Sought { node, said, at, host, has_begun: false });
            }
        }
        if self.sought.len() != before {
            self.tell_thread();
        }
    }

    /// Sends the thread what is sought.
    fn tell_thread(&self) {
        // If the thread is gone, nothing more is found, and all other nodes keep their addresses.
        drop(self.to_thread.send(self.sought.values().cloned().collect()));
    }

    /// Takes the result of a look-up. Returns whether it is news.
    pub(crate) fn locate(&mut self, located: Located) -> bool {
        let Located { node, said, address } = located;
        if self.sought.get(&node).is_none_or(|sought| sought.said != said) {
            return false;
        }
        self.sought.remove(&node);
        let Some(member) = self.members.get_mut(&node) else { return false };
        let is_news = member.found.as_ref().is_none_or(|found| !found.is_same(&address));
        member.found = Some(address);
        self.choose();
        is_news
    }

    /// All nodes of the table, and where each is dialled, if it is.
    pub(crate) fn all(&self) -> &BTreeMap<NodeId, Option<PeerAddress>> {
        &self.dialled
    }
}

/// The names to look up, in order.
#[derive(Default)]
struct Names {
    next: VecDeque<Sought>,
    /// Those whose look-up failed.
    later: Vec<Sought>,
}

impl Names {
    /// Replaces the names that are sought: nodes that have just begun come first, failed ones last.
    fn follow(&mut self, mut sought: Vec<Sought>) {
        sought.sort_by_cached_key(|one| (self.later.contains(one), !one.has_begun));
        self.later.clear();
        self.next = sought.into();
    }

    /// Waits for changes as long as there is nothing to do. Returns whether to go on.
    fn wait(&mut self, sought: &Receiver<Vec<Sought>>, again_every: Duration) -> bool {
        let news = match (self.next.is_empty(), self.later.is_empty()) {
            (true, true) => sought.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (true, false) => sought.recv_timeout(again_every),
            // Each look-up may take long.
            (false, _) => sought.recv_timeout(Duration::ZERO),
        };
        match news {
            Ok(news) => self.follow(sought.try_iter().last().unwrap_or(news)),
            Err(RecvTimeoutError::Timeout) if self.next.is_empty() => self.next.extend(self.later.drain(..)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }
}

/// Looks up what is sought, and again after a while what could not be found.
fn look_up(
    sought: &Receiver<Vec<Sought>>,
    again_every: Duration,
    resolve: impl Fn(&HostPort) -> io::Result<Vec<SocketAddr>>,
    tell: impl Fn(Located),
) {
    let mut names = Names::default();
    // Nodes for which a failed look-up was logged.
    let mut unknown: BTreeMap<NodeId, ReportedAddress> = BTreeMap::new();
    while names.wait(sought, again_every) {
        let Some(one) = names.next.pop_front() else { continue };
        let Sought { node, said, at, host, .. } = &one;
        let found = resolve(at).and_then(|found| {
            let found = PeerAddress::new(found, host.clone());
            found.ok_or_else(|| io::Error::other("the name has no address"))
        });
        match found {
            Ok(address) => {
                unknown.remove(node);
                tell(Located { node: *node, said: said.clone(), address });
            }
            Err(error) => {
                if unknown.insert(*node, said.clone()).as_ref() != Some(said) {
                    tracing::warn!(%node, host = at.host, %error, "a node cannot be reached: its name cannot be looked up");
                }
                names.later.push(one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warned;
    use atoll_replica::{Change, Group, GroupOptions, PlacementHints, Survived};
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::ThreadId;

    /// How long a test waits for an event.
    const SOON: Duration = Duration::from_secs(20);

    struct Ring(Group);

    impl Ring {
        fn new() -> Self {
            Self(Group::new(GroupOptions { slots: 1, copies: 1 }))
        }

        /// An incarnation of a node begins at this host.
        fn begin(&mut self, node: u32, nonce: u64, host: &str) -> Arc<Table> {
            let address = format!("{} {host}:7000 {host}:17000", "a".repeat(40));
            let survived = Survived::Nothing;
            self.0.apply(Change::Register {
                node: NodeId(node),
                nonce,
                address,
                hints: PlacementHints::default(),
                survived,
            });
            self.0.table()
        }
    }

    fn at(node: u32) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, node as u8], 17000))
    }

    fn nowhere(_: &HostPort) -> io::Result<Vec<SocketAddr>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn dialled(addresses: &PeerAddresses) -> Vec<(u32, SocketAddr)> {
        let dialled = |(node, found): (&NodeId, &Option<PeerAddress>)| Some((node.0, found.as_ref()?.at()));
        addresses.all().iter().filter_map(dialled).collect()
    }

    /// A node that is not reached at the address of this incarnation.
    fn sought(node: u32, life: u64, host: &str) -> Sought {
        let (said, at) = ((Box::from(host), Incarnation(life)), HostPort { host: host.to_owned(), port: 1 });
        Sought { node: NodeId(node), said, at, host: host.to_owned(), has_begun: false }
    }

    #[test]
    fn who_has_just_begun_waits_for_one_name_that_is_not_answered_and_not_for_all() {
        let (to_thread, received) = channel();
        let gone: Vec<_> = (1..10).map(|node| sought(node, 1, "gone")).collect();
        to_thread.send(gone.clone()).unwrap();
        let (to_thread, asked) = (RefCell::new(Some(to_thread)), RefCell::new(Vec::new()));
        let resolve = |wanted: &HostPort| {
            asked.borrow_mut().push(wanted.host.clone());
            let say = |more: &[Sought]| {
                to_thread.borrow().as_ref().unwrap().send([gone.as_slice(), more].concat()).unwrap();
            };
            let count = asked.borrow().len();
            match count {
                // Other nodes are not reached either, and come first in the list.
                1 => say(&[sought(10, 1, "lost"), Sought { has_begun: true, ..sought(11, 2, "begun") }]),
                20 => drop(to_thread.borrow_mut().take()),
                _ => {}
            }
            nowhere(wanted)
        };
        look_up(&received, Duration::from_millis(1), resolve, |_| ());
        let asked = asked.into_inner();
        assert_eq!(asked[..3], ["gone", "begun", "gone"], "{asked:?}");
        assert_eq!(asked[10], "lost", "each has its turn: {asked:?}");
        assert_eq!(asked.len(), 20);
    }

    #[test]
    fn of_a_node_that_cannot_be_found_it_is_said_once() {
        let (to_thread, received) = channel();
        let sought = |life, host| sought(2, life, host);
        to_thread.send(vec![sought(1, "somewhere")]).unwrap();
        let (to_thread, tries) = (RefCell::new(Some(to_thread)), Cell::new(0));
        let resolve = |wanted: &HostPort| {
            tries.set(tries.get() + 1);
            match tries.get() {
                3 => drop(to_thread.borrow().as_ref().unwrap().send(vec![sought(2, "somewhere")])),
                6 => drop(to_thread.borrow_mut().take()),
                _ => {}
            }
            nowhere(wanted)
        };
        let warned = warned::times(|| look_up(&received, Duration::from_millis(1), resolve, |_| ()));
        assert_eq!((tries.get(), warned), (6, 2), "once in each life");
        let mut addresses = PeerAddresses::resolved_by(nowhere, SOON, |_| ()).unwrap();
        let mut ring = Ring::new();
        let table = ring.begin(1, 1, "not a host");
        let again = ring.begin(2, 1, "10.0.0.2");
        assert_eq!(warned::times(|| [table, again].iter().for_each(|table| addresses.follow(table))), 1);
        assert_eq!((addresses.all().len(), dialled(&addresses)), (2, vec![(2, at(2))]));
    }

    #[test]
    fn a_node_that_is_not_reached_is_looked_up_again_and_found_elsewhere() {
        let (tell, located) = channel();
        let tries = AtomicUsize::new(0);
        // The record of its name is out of date.
        let resolve = move |_: &HostPort| match tries.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(vec![at(1)]),
            _ => Ok(vec![at(3), at(2)]),
        };
        let tell = move |one| drop(tell.send(one));
        let mut addresses = PeerAddresses::resolved_by(resolve, SOON, tell).unwrap();
        let mut ring = Ring::new();
        ring.begin(2, 1, "10.0.0.2");
        addresses.follow(&ring.begin(1, 1, "somewhere"));
        assert!(addresses.locate(located.recv_timeout(SOON).unwrap()));
        assert_eq!(dialled(&addresses), [(1, at(1)), (2, at(2))]);
        addresses.seek(vec![NodeId(1), NodeId(2), NodeId(7)]);
        assert!(addresses.locate(located.recv_timeout(SOON).unwrap()));
        let first = addresses.all()[&NodeId(1)].as_ref().unwrap();
        assert_eq!(first.all().collect::<Vec<_>>(), [at(3), at(2)]);
        addresses.seek(vec![NodeId(1)]);
        assert!(!addresses.locate(located.recv_timeout(SOON).unwrap()), "it is where it was");
    }

    #[test]
    fn numbers_are_known_at_once_and_names_are_looked_up_by_another_thread() {
        let (tell, located) = channel();
        let (asked, who_asked) = channel::<ThreadId>();
        let resolve = move |_: &HostPort| {
            asked.send(std::thread::current().id()).unwrap();
            Ok(vec![at(2)])
        };
        let tell = move |one| drop(tell.send(one));
        let mut addresses = PeerAddresses::resolved_by(resolve, SOON, tell).unwrap();
        let mut ring = Ring::new();
        ring.begin(1, 1, "10.0.0.1");
        addresses.follow(&ring.begin(2, 1, "somewhere"));
        assert_eq!(dialled(&addresses), [(1, at(1))]);
        assert_ne!(who_asked.recv_timeout(SOON).unwrap(), std::thread::current().id());
        assert!(addresses.locate(located.recv_timeout(SOON).unwrap()));
        assert_eq!(dialled(&addresses), [(1, at(1)), (2, at(2))]);
        addresses.follow(&ring.begin(3, 1, "10.0.0.3"));
        drop(addresses);
        assert!(who_asked.recv().is_err(), "what is known is not looked up again");
    }

    #[test]
    fn where_a_node_is_that_is_up_no_other_one_is_dialled_that_is_not() {
        let tell = |_| ();
        let mut addresses = PeerAddresses::resolved_by(nowhere, SOON, tell).unwrap();
        let mut goes_by = |table: &Table| {
            addresses.follow(table);
            dialled(&addresses)
        };
        let mut ring = Ring::new();
        ring.begin(1, 1, "10.0.0.1");
        ring.begin(2, 1, "10.0.0.2");
        let all = ring.begin(3, 1, "10.0.0.3");
        assert_eq!(goes_by(&all), [(1, at(1)), (2, at(2)), (3, at(3))]);
        // All others begin on new hosts, and the second one is gone, which is not known for a moment.
        let both = ring.begin(1, 2, "10.0.0.2");
        assert_eq!(goes_by(&both), [(1, at(2)), (2, at(2)), (3, at(3))]);
        ring.0.apply(Change::Fail { node: NodeId(2), incarnation: Incarnation(1) });
        assert_eq!(goes_by(&ring.begin(3, 2, "10.0.0.4")), [(1, at(2)), (3, at(4))]);
        ring.0.apply(Change::Fail { node: NodeId(1), incarnation: Incarnation(2) });
        assert_eq!(goes_by(&ring.0.table()), [(1, at(2)), (3, at(4))], "it said so last");
        ring.0.apply(Change::Hear { node: NodeId(2), incarnation: Incarnation(1) });
        assert_eq!(goes_by(&ring.0.table()), [(2, at(2)), (3, at(4))], "it is up");
        ring.0.apply(Change::Hear { node: NodeId(1), incarnation: Incarnation(2) });
        ring.0.apply(Change::Fail { node: NodeId(2), incarnation: Incarnation(1) });
        assert_eq!(goes_by(&ring.begin(2, 2, "10.0.0.5")), [(1, at(2)), (2, at(5)), (3, at(4))]);
        // A node that learns of the ring only then follows what the table says.
        let mut other = PeerAddresses::resolved_by(nowhere, SOON, |_| ()).unwrap();
        ring.begin(2, 3, "10.0.0.4");
        ring.0.apply(Change::Fail { node: NodeId(2), incarnation: Incarnation(3) });
        other.follow(&ring.0.table());
        assert_eq!(dialled(&other), [(1, at(2)), (3, at(4))]);
        assert_eq!(other.all().keys().map(|node| node.0).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_name_that_nobody_knew_is_tried_again_without_a_table_and_not_with_each() {
        let (tell, located) = channel();
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let resolve = move |_: &HostPort| match counted.fetch_add(1, Ordering::SeqCst) {
            2 => Ok(vec![at(1)]),
            _ => nowhere(&HostPort::from(at(1))),
        };
        let tell = move |one| drop(tell.send(one));
        let again_every = Duration::from_millis(1);
        let mut addresses = PeerAddresses::resolved_by(resolve, again_every, tell).unwrap();
        let mut ring = Ring::new();
        for nonce in 1..50 {
            ring.begin(2, nonce, "10.0.0.2");
            addresses.follow(&ring.begin(1, 1, "somewhere"));
        }
        assert!(addresses.locate(located.recv_timeout(SOON).unwrap()));
        assert_eq!(tries.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_node_is_reached_where_it_was_until_its_name_is_looked_up_again() {
        let (tell, located) = channel();
        let resolve = |wanted: &HostPort| match wanted.host.as_str() {
            "nowhere" => nowhere(wanted),
            _ => Ok(vec![at(1)]),
        };
        let tell = move |one| drop(tell.send(one));
        let mut addresses = PeerAddresses::resolved_by(resolve, SOON, tell).unwrap();
        let mut ring = Ring::new();
        addresses.follow(&ring.begin(1, 1, "somewhere"));
        let first = located.recv_timeout(SOON).unwrap();
        addresses.follow(&ring.begin(1, 2, "somewhere"));
        assert!(!addresses.locate(first), "of a life that is over");
        assert!(addresses.locate(located.recv_timeout(SOON).unwrap()));
        addresses.follow(&ring.begin(1, 3, "nowhere"));
        assert_eq!(dialled(&addresses), [(1, at(1))]);
    }
}

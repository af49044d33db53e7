//! The node's side: registers this node, sends heartbeats, fetches tables, and submits proposals and changes.
//!
//! Invariant: a confirmed heartbeat is delivered only after a table at least as new as the one that the
//! answering member had.
//! Invariant: no table is delivered from before the group registered this life of this node.

mod request_queue;

use crate::codec::{Answer, Ask, Coded, Update};
use crate::council::Events;
use crate::peers;
use crate::resolver::MemberResolver;
use crate::{CouncilClock, CouncilError, CouncilEvent, CouncilOptions};
use atoll_replica::{Change, Decision, Incarnation, Moment, NodeId, Survived, Table, Version};
use atoll_wire::Client;
use request_queue::{CHANGE_TIMEOUT, RequestQueue};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

pub(crate) use request_queue::{Command, PendingChange};

/// The pause before the next member is tried, and the longest pause where every member turns this node away:
/// a new leader has to hear, within the timeout for silent nodes, every node that it would hear at all.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// After this many refusals by each member in a row the pause begins to grow.
const QUICK_ROUNDS: usize = 4;

/// How long a member may take to answer a heartbeat.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(600);

/// How long a member may take to name its ring.
const WHO_TIMEOUT: Duration = Duration::from_secs(1);

/// A node that was seen at work, and then not for this long, hangs, even if its thread of the group could
/// still send heartbeats.
const STUCK_US: u64 = 3_000_000;

/// Another member is tried after this many unsure answers in a row.
const UNSURE_MAX: u32 = 3;

/// The client of the group on one node.
pub(crate) struct Agent {
    pub(crate) options: Arc<CouncilOptions>,
    pub(crate) clock: CouncilClock,
    pub(crate) events: Arc<Events>,
    pub(crate) nonce: u64,
    pub(crate) survived: Survived,
    /// When the node was last seen at work, in microseconds of its clock; 0 if it never reports that.
    pub(crate) seen_at: Arc<AtomicU64>,
}

impl Agent {
    /// Whether the node hangs, so that it must not pass for one that answers.
    fn is_stuck(&self) -> bool {
        let seen_at = self.seen_at.load(Ordering::Relaxed);
        seen_at > 0 && (self.clock)() > Moment(seen_at).after(STUCK_US)
    }
}

/// What this node has learned, from whichever member.
#[derive(Default)]
struct Known {
    incarnation: Option<Incarnation>,
    table: Option<Arc<Table>>,
    /// Whether a table has named this life of this node.
    is_named: bool,
    /// Whether a table named it and the newest one does not: this node has left.
    has_left: bool,
    /// The last confirmed heartbeat, and the table that has to be delivered before it.
    heard: Option<Heartbeat>,
    /// The last trouble that was reported, so that it is not reported twice.
    trouble: Option<String>,
}

/// A confirmed heartbeat.
#[derive(Clone, Copy)]
struct Heartbeat {
    asked_at: Moment,
    /// The table that the answering member had.
    version: Version,
    leader: NodeId,
}

/// Why another member is tried.
enum Next {
    /// This one leads.
    Leader(NodeId),
    /// The current one did not work out.
    Other,
    /// The current one turns this node away.
    Refused,
}

/// Runs until the node stops.
pub(crate) async fn run(agent: &Agent, commands: mpsc::Receiver<Command>) {
    let known = Mutex::new(Known::default());
    let requests = tokio::sync::Mutex::new(RequestQueue::new(commands));
    let (members, resolver) = (&agent.options.members, MemberResolver::new(&agent.options));
    let mut at = members.iter().position(|(node, _)| *node == agent.options.me).unwrap_or(0);
    let (mut told, mut refused) = (0, 0);
    loop {
        let Some(&(node, _)) = members.get(at % members.len()) else { return };
        let session = Session { agent, known: &known, requests: &requests, node };
        let next = session.run(&resolver).await;
        // A member that is down, or does not lead yet, may be the one that this node waits for.
        refused = if matches!(next, Next::Refused) { refused + 1 } else { 0 };
        match next {
            // Two former leaders may name each other, so this is followed a few times only.
            Next::Leader(leader) if told < 3 => {
                told += 1;
                at = members.iter().position(|(node, _)| *node == leader).unwrap_or(at + 1);
            }
            _ => {
                told = 0;
                at += 1;
                tokio::time::sleep(pause(refused / members.len())).await;
            }
        }
    }
}

/// How long to pause after this many refusals by each member: asking on would only keep them busy.
fn pause(rounds: usize) -> Duration {
    let doublings = rounds.saturating_sub(QUICK_ROUNDS).min(16) as u32;
    PAUSE.saturating_mul(1 << doublings).min(PAUSE_MAX)
}

/// One connection to one member.
struct Session<'a> {
    agent: &'a Agent,
    known: &'a Mutex<Known>,
    requests: &'a tokio::sync::Mutex<RequestQueue>,
    node: NodeId,
}

impl Session<'_> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: CouncilEvent) {
        (self.agent.events)(event);
    }

    fn trouble(&self, error: CouncilError) {
        let words = Some(error.to_string());
        if std::mem::replace(&mut self.known().trouble, words.clone()) != words {
            self.tell(CouncilEvent::Trouble(error));
        }
    }

    async fn run(&self, resolver: &MemberResolver) -> Next {
        let client = match resolver.connect(self.node, &self.agent.options).await {
            Ok(client) => client,
            Err(error) => {
                let Some(refused) = peers::refusal(self.node, &error) else { return Next::Other };
                self.trouble(refused);
                return Next::Refused;
            }
        };
        let registered = self.known().incarnation;
        let incarnation = match registered {
            Some(incarnation) => incarnation,
            None => match self.register(&client).await {
                Ok(incarnation) => incarnation,
                Err(next) => return next,
            },
        };
        tokio::select! {
            next = self.say(&client, incarnation) => next,
            next = self.watch(&client) => next,
            next = self.send_requests(&client) => next,
            () = client.ended() => Next::Other,
        }
    }

    async fn register(&self, client: &Client) -> Result<Incarnation, Next> {
        // Once the node is registered, what it claims to have counts for the slots of this ring.
        let ring = self.ring(client).await.ok_or(Next::Other)?;
        if self.agent.options.of_ring.is_some_and(|of_ring| of_ring != ring) {
            self.trouble(CouncilError::OtherRing);
            return Err(Next::Refused);
        }
        let change = Change::Register {
            node: self.agent.options.me,
            nonce: self.agent.nonce,
            address: self.agent.options.address.clone(),
            hints: self.agent.options.hints.clone(),
            survived: self.agent.survived.clone(),
        };
        match peers::ask(client, &Ask::Decide(change), CHANGE_TIMEOUT).await {
            Ok(Answer::Decision(Decision::Registered { incarnation })) => {
                self.known().incarnation = Some(incarnation);
                self.tell(CouncilEvent::Registered { incarnation, ring });
                Ok(incarnation)
            }
            Ok(Answer::NotLeader(Some(leader))) => Err(Next::Leader(leader)),
            Ok(Answer::Decision(Decision::Unchanged)) => {
                self.trouble(CouncilError::Replaced { node: self.agent.options.me });
                Err(Next::Refused)
            }
            Ok(Answer::Decision(Decision::Taken)) => {
                // If it has left meanwhile, the number is free.
                let address = self.holder(client).await.ok_or(Next::Other)?;
                self.trouble(CouncilError::NumberTaken { node: self.agent.options.me, address });
                Err(Next::Refused)
            }
            answer => {
                tracing::debug!(?answer, "not registered yet");
                Err(Next::Other)
            }
        }
    }

    /// Where clients reach the node that has the number of this one, as the leader knows it.
    async fn holder(&self, client: &Client) -> Option<String> {
        let ask = Ask::Watch { known: None, is_at_once: true };
        let Ok(Answer::Table(update)) = peers::ask(client, &ask, CHANGE_TIMEOUT).await else { return None };
        let table = Update::of_bytes(&update).ok()?.apply(None)?;
        table.members.get(&self.agent.options.me).map(|member| member.address.for_clients())
    }

    /// The ring's number, from a member that could have a change of it decided.
    async fn ring(&self, client: &Client) -> Option<u64> {
        match peers::ask(client, &Ask::Who, WHO_TIMEOUT).await {
            Ok(Answer::Who { ring, .. }) => ring.map(|ring| ring.0),
            answer => {
                tracing::debug!(?answer, "it is not known yet which ring this is");
                None
            }
        }
    }

    /// Sends heartbeats.
    async fn say(&self, client: &Client, incarnation: Incarnation) -> Next {
        let heartbeat = Ask::Heartbeat { node: self.agent.options.me, incarnation };
        let mut every = tokio::time::interval(self.agent.options.heartbeat());
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut unsure, mut was_stuck) = (0, false);
        loop {
            every.tick().await;
            if self.known().has_left {
                return std::future::pending().await;
            }
            let is_stuck = self.agent.is_stuck();
            if is_stuck != was_stuck {
                tracing::warn!(is_stuck, "no heartbeats are sent while this node does nothing");
                was_stuck = is_stuck;
            }
            if is_stuck {
                continue;
            }
            let asked_at = (self.agent.clock)();
            match peers::ask(client, &heartbeat, HEARTBEAT_TIMEOUT).await {
                Ok(Answer::Heard(version)) => {
                    unsure = 0;
                    self.heard(asked_at, version);
                }
                Ok(Answer::Unsure) if unsure < UNSURE_MAX => unsure += 1,
                Ok(Answer::NotLeader(Some(leader))) => return Next::Leader(leader),
                // A node that was to leave is about to hear that it has.
                Ok(Answer::OtherLife) if self.is_to_leave() => {}
                Ok(Answer::OtherLife) => {
                    self.trouble(CouncilError::Replaced { node: self.agent.options.me });
                    return Next::Refused;
                }
                _ => return Next::Other,
            }
        }
    }

    fn is_to_leave(&self) -> bool {
        let known = self.known();
        let member = known.table.as_ref().and_then(|table| table.members.get(&self.agent.options.me));
        known.has_left || member.is_some_and(|member| member.is_leaving)
    }

    fn heard(&self, asked_at: Moment, version: Version) {
        let mut known = self.known();
        known.trouble = None;
        if known.heard.is_none_or(|heard| heard.asked_at <= asked_at) {
            known.heard = Some(Heartbeat { asked_at, version, leader: self.node });
        }
        self.tell_heard(&mut known);
    }

    /// Delivers the confirmed heartbeat, once the table that goes with it was delivered.
    fn tell_heard(&self, known: &mut Known) {
        let newest = known.table.as_ref().map_or(Version(0), |table| table.version);
        if let Some(Heartbeat { asked_at, version, leader }) = known.heard
            && newest >= version
        {
            known.heard = None;
            self.tell(CouncilEvent::Heard { asked_at, leader });
        }
    }

    /// Waits for new tables.
    async fn watch(&self, client: &Client) -> Next {
        loop {
            let version = self.known().table.as_ref().map(|table| table.version);
            let ask = Ask::Watch { known: version, is_at_once: false };
            let answer = client.call(&ask.to_bytes()).await;
            match answer.ok().and_then(|answer| Answer::of_bytes(&answer).ok()) {
                Some(Answer::Table(update)) if self.take(&update) => {}
                _ => return Next::Other,
            }
        }
    }

    /// Applies an update and delivers the table if it is newer, and not from before this life; returns
    /// whether the update made sense.
    fn take(&self, update: &[u8]) -> bool {
        let Ok(update) = Update::of_bytes(update) else { return false };
        let mut known = self.known();
        if known.table.as_ref().is_some_and(|table| table.version >= update.version) {
            return true;
        }
        let Some(table) = update.apply(known.table.as_ref()) else {
            // The known table does not fit: the whole table is requested next.
            known.table = None;
            return true;
        };
        known.table = Some(Arc::clone(&table));
        if !known.is_named && table.incarnation(self.agent.options.me) < known.incarnation {
            // A member that lags has it: it is older than this life, and may lack what this node has.
            return true;
        }
        self.tell(CouncilEvent::Table(Arc::clone(&table)));
        self.tell_heard(&mut known);
        self.tell_left(&mut known, &table);
        true
    }

    /// Reports once that the group has removed this node.
    fn tell_left(&self, known: &mut Known, table: &Table) {
        let named = table.incarnation(self.agent.options.me);
        known.is_named |= named.is_some() && named == known.incarnation;
        if known.is_named && named.is_none() && !std::mem::replace(&mut known.has_left, true) {
            self.tell(CouncilEvent::Left);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Council, Listen};
    use atoll_replica::{Group, GroupOptions, PlacementHints};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::mpsc as blocking;
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    /// The events that were delivered, in words.
    pub(crate) type Told = Arc<Mutex<Vec<String>>>;

    pub(crate) fn agent(member: SocketAddr) -> (Agent, Told) {
        let told = Told::default();
        let telling = Arc::clone(&told);
        let events: Events = Box::new(move |event| {
            telling.lock().unwrap().push(match event {
                CouncilEvent::Table(table) => format!("table {}", table.version.0),
                CouncilEvent::Heard { asked_at, leader } => format!("heard {} by {}", asked_at.0, leader.0),
                other => format!("{other:?}"),
            });
        });
        let ring = GroupOptions { slots: 4, copies: 1 };
        let members = vec![(NodeId(1), member)];
        let options = Arc::new(CouncilOptions::new(NodeId(2), members, ring, String::new()));
        let clock: CouncilClock = Arc::new(|| Moment(0));
        let (survived, seen_at) = (Survived::Nothing, Arc::default());
        (Agent { options, clock, events: Arc::new(events), nonce: 1, survived, seen_at }, told)
    }

    /// Tables of one ring, from version 1 on.
    fn tables(count: u64) -> Vec<Arc<Table>> {
        let mut group = Group::new(GroupOptions { slots: 4, copies: 1 });
        (1..=count)
            .map(|nonce| {
                let (node, address) = (NodeId(nonce as u32), String::new());
                group.apply(Change::Register {
                    node,
                    nonce,
                    address,
                    hints: PlacementHints::default(),
                    survived: Survived::Nothing,
                });
                group.table()
            })
            .collect()
    }

    #[test]
    fn that_a_node_was_heard_is_told_behind_the_table_that_goes_with_it() {
        let (agent, told) = agent(SocketAddr::from(([127, 0, 0, 1], 9)));
        let (known, (_, commands)) = (Mutex::default(), mpsc::channel(1));
        let requests = tokio::sync::Mutex::new(RequestQueue::new(commands));
        let session = Session { agent: &agent, known: &known, requests: &requests, node: NodeId(1) };
        let tables = tables(4);
        let whole = |at: usize| Update::whole(&tables[at - 1]).to_bytes();
        session.heard(Moment(10), Version(2));
        assert!(session.take(&whole(1)));
        session.heard(Moment(20), Version(3));
        assert!(session.take(&whole(3)) && session.take(&whole(2)));
        session.heard(Moment(30), Version(3));
        session.heard(Moment(25), Version(3));
        let members_since = (1..=4).map(|node| (NodeId(node), Version(u64::from(node)))).collect();
        let since = Update::since(&tables[3], tables[2].version, &members_since);
        assert!(session.take(&since.to_bytes()));
        let expected = ["table 1", "table 3", "heard 20 by 1", "heard 30 by 1", "heard 25 by 1", "table 4"];
        assert_eq!(*told.lock().unwrap(), expected);
        assert_eq!(known.lock().unwrap().table.as_ref(), tables.last());
    }

    #[test]
    fn a_table_from_before_the_life_of_a_node_is_not_delivered_whoever_still_has_it() {
        let (agent, told) = agent(SocketAddr::from(([127, 0, 0, 1], 9)));
        let incarnation = Some(Incarnation(2));
        let (known, (_, commands)) =
            (Mutex::new(Known { incarnation, ..Known::default() }), mpsc::channel(1));
        let requests = tokio::sync::Mutex::new(RequestQueue::new(commands));
        let session = Session { agent: &agent, known: &known, requests: &requests, node: NodeId(1) };
        let mut group = Group::new(GroupOptions { slots: 4, copies: 1 });
        let mut begin = |nonce| {
            let (node, address, survived) = (NodeId(2), String::new(), Survived::Everything);
            group.apply(Change::Register {
                node,
                nonce,
                address,
                hints: PlacementHints::default(),
                survived,
            });
            group.table()
        };
        let (former, present, next) = (begin(1), begin(2), begin(3));
        assert!(session.take(&Update::whole(&former).to_bytes()));
        session.heard(Moment(10), present.version);
        assert!(told.lock().unwrap().is_empty(), "it may lack copies of this node");
        assert!(session.take(&Update::whole(&present).to_bytes()));
        // That the next life began is told.
        assert!(session.take(&Update::whole(&next).to_bytes()));
        let at = |table: &Table| format!("table {}", table.version.0);
        assert_eq!(*told.lock().unwrap(), [at(&present), "heard 10 by 1".to_owned(), at(&next)]);
    }

    /// How long a node needs to try a member `count` times, if the member does `meets` with each connection.
    fn tries(count: usize, meets: impl Fn(std::net::TcpStream) + Send + 'static) -> Duration {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (agent, _) = agent(listener.local_addr().unwrap());
        let (done, tried) = oneshot::channel();
        std::thread::spawn(move || {
            (0..count).for_each(|_| meets(listener.accept().unwrap().0));
            done.send(())
        });
        let began = Instant::now();
        let (_commands, commands) = mpsc::channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                _ = tried => {}
                () = run(&agent, commands) => {}
            }
        });
        began.elapsed()
    }

    /// Refuses a connection.
    fn turn_away(socket: std::net::TcpStream) {
        socket.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::from_std(socket).unwrap();
            let refused = |_: &[u8]| Err("not the token of this ring".to_owned());
            assert!(atoll_wire::Connection::accept(stream, peers::limits(), refused).await.is_err());
        });
    }

    #[test]
    fn a_member_that_turns_a_node_away_is_asked_ever_more_seldom_within_a_bound() {
        const TRIES: usize = 12;
        let paused: Duration = (1..TRIES).map(pause).sum();
        let took = tries(TRIES, turn_away);
        assert!(paused > PAUSE * 2 * TRIES as u32 && took >= paused, "{took:?}");
        assert_eq!((pause(1), pause(usize::MAX)), (PAUSE, PAUSE_MAX));
    }

    #[test]
    fn a_member_that_is_not_there_is_asked_again_soon_since_it_may_lead_when_it_comes() {
        const TRIES: usize = 16;
        let paused: Duration = (1..TRIES).map(pause).sum();
        let took = tries(TRIES, drop);
        assert!(took < paused.mul_f32(0.8), "{took:?} instead of {:?}", PAUSE * TRIES as u32);
    }

    /// A node at an address, and what it is told.
    fn begun(
        (me, address): (u32, &str),
        members: &[(NodeId, SocketAddr)],
        survived: Survived,
        listen: Option<Listen>,
    ) -> (Council, blocking::Receiver<CouncilEvent>) {
        let ring = GroupOptions { slots: 4, copies: 1 };
        let mut options = CouncilOptions::new(NodeId(me), members.to_vec(), ring, address.to_owned());
        options.my_listen = listen;
        let (tell, told) = blocking::channel();
        let events = Box::new(move |event| drop(tell.send(event)));
        (Council::start(options, Arc::new(|| Moment(0)), survived, events).unwrap(), told)
    }

    /// Waits for an event.
    fn until(told: &blocking::Receiver<CouncilEvent>, is_it: impl Fn(&CouncilEvent) -> bool) -> CouncilEvent {
        loop {
            let event = told.recv_timeout(Duration::from_secs(60)).unwrap();
            if is_it(&event) {
                return event;
            }
        }
    }

    #[test]
    fn a_number_is_that_of_its_store_until_the_operator_has_its_node_leave() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let members = [(NodeId(1), listener.local_addr().unwrap())];
        let nothing = || Survived::Nothing;
        let (keeper, told_keeper) =
            begun((1, "a at-a:1 at-a:2"), &members, nothing(), Some(Listen::Bound(listener)));
        // The keeper has every slot, so no other node has a last copy.
        let leads_all = |table: &Table| table.slots.iter().all(|slot| slot.primary == Some(NodeId(1)));
        until(&told_keeper, |event| matches!(event, CouncilEvent::Table(table) if leads_all(table)));
        let has_registered = |event: &CouncilEvent| matches!(event, CouncilEvent::Registered { .. });
        let is_trouble = |event: &CouncilEvent| matches!(event, CouncilEvent::Trouble(_));
        let assert_taken = |told: &blocking::Receiver<CouncilEvent>, at: &str| {
            let event = until(told, |event| is_trouble(event) || has_registered(event));
            let is_refused = matches!(
                &event,
                CouncilEvent::Trouble(CouncilError::NumberTaken { node: NodeId(7), address }) if address == at
            );
            assert!(is_refused, "{event:?}");
        };
        let (first, told) = begun((7, "d at-d:1 at-d:2"), &members, nothing(), None);
        until(&told, has_registered);
        let (other, told_other) = begun((7, "e at-e:1 at-d:2"), &members, Survived::Everything, None);
        assert_taken(&told_other, "at-d:1");
        drop(other);
        assert!(!told.try_iter().any(|event| is_trouble(&event)), "the node that has the number goes on");
        // At the same address it is the same node, on a new folder; and a store may have moved.
        let (again, told_again) = begun((7, "f at-d:1 at-f:2"), &members, nothing(), None);
        until(&told_again, has_registered);
        let (moved, told_moved) = begun((7, "f at-g:1 at-g:2"), &members, Survived::Everything, None);
        until(&told_moved, has_registered);
        drop((first, again, moved));
        // That it is down decides nothing: it may come back.
        let is_down = |table: &Table| table.members.get(&NodeId(7)).is_some_and(|member| !member.is_up);
        until(&told_keeper, |event| matches!(event, CouncilEvent::Table(table) if is_down(table)));
        let (_new, told_new) = begun((7, "h at-h:1 at-h:2"), &members, nothing(), None);
        assert_taken(&told_new, "at-g:1");
        keeper.ask(Change::Leave { node: NodeId(7) }).unwrap();
        until(&told_new, has_registered);
    }
}

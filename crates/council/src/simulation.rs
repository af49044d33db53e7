//! Groups on paused time, with an in-memory network that loses, delays and duplicates messages, members that
//! crash, and members that come back without their log. The behaviour of openraft is compared with what must
//! hold.
//!
//! Invariant checked: every member applies the same entries in the same order.
//! Invariant checked: a change that was answered is applied once, at the place that was answered, on every
//! member.
//! Invariant checked: a member that confirms that it leads knows every change that was answered before it was
//! asked.
//! Invariant checked: snapshots of the same entries are the same, whoever made them, and whether from entries
//! or from another snapshot and what followed it.

mod soak;
mod world;

use crate::codec::Coded;
use crate::founding;
use crate::log::Log;
use crate::machine::Machine;
use crate::types::{Changes, EntryOf, Raft, Seat, SeatId};
use atoll_replica::{Change, Decision, GroupOptions, NodeId, PlacementHints, Survived};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use world::{Booked, Mistake, Network, State, World};

const RING: GroupOptions = GroupOptions { slots: 4, copies: 3 };

/// One member of the group, up or down.
struct Member {
    node: NodeId,
    log: Log,
    up: Option<(Raft, Machine)>,
}

impl Member {
    async fn begin(&mut self, world: &World) {
        // Fixed, distinct timeouts replace those that the library draws from a generator without a seed.
        let snapshots = world.state().snapshots;
        let election_timeout_min = 250 + u64::from(self.node.0) * 40 + world.draw(|random| random.u64(..30));
        let config = openraft::Config {
            heartbeat_interval: 100,
            election_timeout_min,
            election_timeout_max: election_timeout_min + 1,
            snapshot_policy: snapshots.map_or(openraft::SnapshotPolicy::Never, |(every, _)| {
                openraft::SnapshotPolicy::LogsSinceLast(every)
            }),
            max_in_snapshot_log_to_keep: snapshots.map_or(0, |(_, keep)| keep),
            ..openraft::Config::default()
        };
        if self.log.snapshot().is_some() {
            world.count("starts from a snapshot");
        }
        let machine = Machine::new(RING, self.log.clone()).unwrap();
        let booked = Booked { world: world.clone(), machine: machine.clone(), built: None };
        let network = Network { world: world.clone(), me: self.node };
        let raft = Raft::new(self.log.seat(), Arc::new(config), network, self.log.clone(), booked).await;
        let raft = raft.unwrap();
        world.state().members.insert(self.log.seat(), (self.node, raft.clone(), machine.clone()));
        self.up = Some((raft, machine));
    }

    async fn end(&mut self, world: &World) {
        world.state().members.remove(&self.log.seat());
        if let Some((raft, _)) = self.up.take() {
            raft.shutdown().await.unwrap();
            // Its state machine ends a moment later, and may be at work on a snapshot until then. In a
            // process that is killed, nothing of it would reach the log that the next life of this member
            // has.
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn leads(&self) -> bool {
        self.up.as_ref().is_some_and(|(raft, _)| leads(raft))
    }
}

/// Whether a member believes that it leads.
fn leads(raft: &Raft) -> bool {
    raft.server_metrics().borrow().state == openraft::ServerState::Leader
}

/// Registers nodes, mostly with the leader and sometimes with any member.
async fn client(world: World, number: u32) {
    for round in 0.. {
        sleep(Duration::from_millis(world.draw(|random| random.u64(5..150)))).await;
        let members: Vec<_> = world.state().members.values().cloned().collect();
        if members.is_empty() {
            continue;
        }
        let leader = members
            .iter()
            .find(|(_, raft, _)| leads(raft))
            .filter(|_| world.draw(|random| random.u8(..4) > 0));
        let any = world.draw(|random| random.usize(..members.len()));
        let (_, raft, _) = leader.unwrap_or(&members[any]).clone();
        let node = NodeId(1_000 + number * 100_000 + round);
        let change = Change::Register {
            node,
            nonce: 1,
            address: String::new(),
            hints: PlacementHints::default(),
            survived: Survived::Nothing,
        };
        let written = raft.client_write(Changes::new(vec![change]));
        match tokio::time::timeout(Duration::from_secs(2), written).await {
            Ok(Ok(written)) => {
                assert!(matches!(written.data.0[..], [Decision::Registered { .. }]));
                world.state().answered.insert(node, written.log_id.index);
                world.count("changes answered");
            }
            _ => world.count("changes not answered"),
        }
    }
}

/// Asks members whether they lead, and checks what those know that do.
async fn asker(world: World) {
    loop {
        sleep(Duration::from_millis(world.draw(|random| random.u64(5..100)))).await;
        let members: Vec<_> = world.state().members.clone().into_iter().collect();
        for (seat, (_, raft, machine)) in members {
            let before: Vec<NodeId> = world.state().answered.keys().copied().collect();
            let confirmed =
                tokio::time::timeout(Duration::from_millis(500), raft.ensure_linearizable()).await;
            let is_believed = world.state().mistake == Mistake::LeadNotConfirmed && leads(&raft);
            if is_believed || matches!(confirmed, Ok(Ok(_))) {
                world.count("leads confirmed");
                let table = machine.table();
                let missing = before.iter().find(|node| !table.members.contains_key(node));
                let metrics = raft.metrics().borrow().to_string();
                let place = missing.and_then(|node| world.state().answered.get(node).copied());
                assert_eq!(
                    missing, None,
                    "{seat} was sure that it leads, without place {place:?}: {metrics}"
                );
            } else {
                world.count("leads not confirmed");
            }
        }
    }
}

async fn run(seed: u64, mistake: Mistake) -> BTreeMap<&'static str, u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Mostly after so few entries that whoever was away for a moment lacks some that are purged.
    let snapshots = (random.u8(..4) > 0).then(|| (random.u64(4..40), random.u64(..20)));
    let state = State {
        mistake,
        random,
        snapshots,
        snapshot_book: BTreeMap::new(),
        members: BTreeMap::new(),
        cut: std::collections::BTreeSet::new(),
        is_calm: false,
        book: BTreeMap::new(),
        terms: std::collections::BTreeSet::new(),
        answered: BTreeMap::new(),
        counts: BTreeMap::new(),
    };
    let world = World(Arc::new(std::sync::Mutex::new(state)));
    let count = world.draw(|random| if random.bool() { 3 } else { 5 });
    let new = |node| Member { node: NodeId(node), log: Log::in_memory(SeatId(u64::from(node))), up: None };
    let mut members: Vec<Member> = (1..=count).map(new).collect();
    for member in &mut members {
        member.begin(&world).await;
    }
    let seats: BTreeMap<_, _> =
        members.iter().map(|member| (member.log.seat(), Seat { node: member.node })).collect();
    members[0].up.as_ref().unwrap().0.initialize(seats).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    (0..3).for_each(|number| drop(tasks.spawn(client(world.clone(), number))));
    tasks.spawn(asker(world.clone()));
    let mut next_seat = 100;
    for _ in 0..world.draw(|random| random.usize(10..30)) {
        sleep(Duration::from_millis(world.draw(|random| random.u64(50..1_500)))).await;
        harm(&world, &mut members, &mut next_seat).await;
    }
    world.state().cut.clear();
    world.state().is_calm = true;
    for member in members.iter_mut().filter(|member| member.up.is_none()) {
        member.begin(&world).await;
    }
    settle(&world, &members).await;
    while let Some(ended) = tasks.try_join_next() {
        ended.unwrap();
    }
    members.iter().filter(|member| member.log.purged().is_some()).for_each(|_| world.count("logs cut"));
    let counts = world.state().counts.clone();
    tasks.shutdown().await;
    for member in &mut members {
        member.end(&world).await;
    }
    counts
}

/// Causes one fault, or ends one.
async fn harm(world: &World, members: &mut [Member], next_seat: &mut u64) {
    let count = members.len();
    let at = world.draw(|random| random.usize(..count));
    match world.draw(|random| random.u8(..10)) {
        0 | 1 => {
            let leader = members.iter().position(Member::leads).unwrap_or(at);
            members[leader].end(world).await;
            world.count("leaders crashed");
        }
        2 => {
            members[at].end(world).await;
            world.count("members crashed");
        }
        3 | 4 => {
            for member in members.iter_mut().filter(|member| member.up.is_none()) {
                member.begin(world).await;
                world.count("members back");
            }
        }
        5 | 6 => {
            let (one, is_two_way) = world.draw(|random| (random.usize(..count), random.bool()));
            let (one, others) = (members[one].node, members.iter().map(|member| member.node));
            for other in others.filter(|other| *other != one) {
                world.state().cut.insert((one, other));
                if is_two_way {
                    world.state().cut.insert((other, one));
                }
            }
            world.count(if is_two_way { "cuts" } else { "cuts one way" });
        }
        7 | 8 => {
            world.state().cut.clear();
            world.count("healed");
        }
        _ => replace(world, &mut members[at], next_seat).await,
    }
}

/// A member loses its log. It comes back on another seat if the others add that seat; otherwise its old log
/// reappears, so that no run ends because more than half of the logs are lost.
async fn replace(world: &World, member: &mut Member, next_seat: &mut u64) {
    member.end(world).await;
    if world.state().mistake == Mistake::SeatKept {
        member.log = Log::in_memory(member.log.seat());
        return member.begin(world).await;
    }
    *next_seat += 1;
    let mut fresh = Member { node: member.node, log: Log::in_memory(SeatId(*next_seat)), up: None };
    fresh.begin(world).await;
    world.count("logs lost");
    for _ in 0..40 {
        sleep(Duration::from_millis(100)).await;
        let others: Vec<_> = world.state().members.values().cloned().collect();
        for (node, raft, _) in others {
            if !leads(&raft) || node == member.node {
                continue;
            }
            let taken = founding::take_in(&raft, fresh.log.seat(), Seat { node: member.node });
            let taken = tokio::time::timeout(Duration::from_secs(2), taken).await;
            if matches!(taken, Ok(crate::codec::Answer::Yes)) {
                world.count("seats replaced");
                *member = fresh;
                return;
            }
        }
    }
    fresh.end(world).await;
    member.begin(world).await;
}

/// Waits until all members know the same, and compares that with what was answered.
async fn settle(world: &World, members: &[Member]) {
    let answered = world.state().answered.len();
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        let is_served = world.state().answered.len() > answered + 5;
        if is_served && agree(world, members) {
            return;
        }
    }
    let known: Vec<_> = members
        .iter()
        .map(|member| (member.node, member.up.as_ref().map(|(raft, _)| raft.metrics().borrow().to_string())))
        .collect();
    panic!("a minute without faults, and the members do not agree: {known:#?}");
}

fn agree(world: &World, members: &[Member]) -> bool {
    let tables: Vec<_> = members.iter().filter_map(|member| Some(member.up.as_ref()?.1.table())).collect();
    if tables.len() < members.len() || !tables.windows(2).all(|two| two[0] == two[1]) {
        return false;
    }
    let state = world.state();
    for (node, index) in &state.answered {
        let Some(booked) = state.book.get(index) else { panic!("an answered entry was never applied") };
        assert!(EntryOf::of_bytes(booked).is_ok_and(|entry| registers(&entry, *node)), "{node} at {index}");
        if !tables[0].members.contains_key(node) {
            return false;
        }
    }
    true
}

fn registers(entry: &EntryOf, whom: NodeId) -> bool {
    match &entry.payload {
        openraft::EntryPayload::Normal(changes) => {
            matches!(changes.0[..], [Change::Register { node, .. }] if node == whom)
        }
        _ => false,
    }
}

/// What happened in a run, or the panic of a failed check.
fn ran(seed: u64, mistake: Mistake) -> std::thread::Result<BTreeMap<&'static str, u64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run(seed, mistake))))
}

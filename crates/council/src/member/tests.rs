//! What a member answers to which sender, over a socket.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use super::*;
use crate::codec::{SavedState, Update};
use crate::types::{LogIdOf, SnapshotMetaOf};
use crate::{Council, Listen};
use atoll_replica::{Group, GroupOptions, KeyspaceRules, Moment, PlacementHints, Survived, Version};
use atoll_wire::Client;
use openraft::raft::VoteRequest;
use openraft::{LeaderId, LogId, Membership, StoredMembership, Vote};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A member of a group of two whose other member is absent, and a connection to it.
async fn member() -> (Council, CouncilOptions, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    let options = |listen| {
        let ring = GroupOptions { slots: 4, copies: 1 };
        let members = vec![(NodeId(1), address), (NodeId(2), nobody)];
        CouncilOptions { my_listen: listen, ..CouncilOptions::new(NodeId(1), members, ring, String::new()) }
    };
    let clock = Arc::new(|| Moment(0));
    let council =
        Council::start(options(Some(Listen::Bound(listener))), clock, Survived::Nothing, Box::new(|_| ()));
    let client = peers::connect((NodeId(1), address), &options(None)).await.unwrap();
    (council.unwrap(), options(None), client)
}

/// Another connection to it.
async fn again(options: &CouncilOptions) -> Client {
    let (node, address) = options.members[0];
    peers::connect((node, address.known().unwrap()), options).await.unwrap()
}

async fn ask(client: &Client, ask: Ask) -> Answer {
    peers::ask(client, &ask, Duration::from_secs(20)).await.unwrap()
}

fn on_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn what_is_meant_for_another_seat_or_another_group_is_not_taken() {
    on_runtime(async {
        let (_council, _, client) = member().await;
        let Answer::Who { seat, ring: None, has_log: false, .. } = ask(&client, Ask::Who).await else {
            panic!()
        };
        let vote = || VoteRequest {
            vote: Vote { leader_id: LeaderId::new(1, SeatId(7)), committed: false },
            last_log_id: None,
        };
        let vote_for = |ring, seat| Ask::Vote(To { ring: RingId(ring), seat }, vote());
        assert!(matches!(ask(&client, vote_for(1, SeatId(seat.0 ^ 1))).await, Answer::No), "another seat");
        assert!(
            matches!(ask(&client, vote_for(1, seat)).await, Answer::Voted(_)),
            "its own, in the first group that calls"
        );
        assert!(matches!(ask(&client, vote_for(2, seat)).await, Answer::No), "another group");
        assert!(
            matches!(ask(&client, Ask::Prepare(RingId(2))).await, Answer::Yes),
            "it has no log of the first one"
        );
        assert!(matches!(ask(&client, vote_for(2, seat)).await, Answer::Voted(_)));
    });
}

#[test]
fn a_member_that_is_alone_founds_nothing_and_decides_nothing() {
    on_runtime(async {
        let (_council, _, client) = member().await;
        let change = Change::Recover { slot: Slot(0), seen: Version(1) };
        for _ in 0..5 {
            assert!(matches!(ask(&client, Ask::Decide(change.clone())).await, Answer::NotLeader(None)));
            let heartbeat = Ask::Heartbeat { node: NodeId(1), incarnation: Incarnation(1) };
            assert!(matches!(ask(&client, heartbeat).await, Answer::NotLeader(None)));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(matches!(ask(&client, Ask::Who).await, Answer::Who { has_log: false, .. }));
    });
}

#[test]
fn changes_that_are_the_groups_own_and_strangers_are_refused() {
    on_runtime(async {
        let (_council, _, client) = member().await;
        for change in [
            Change::Fail { node: NodeId(1), incarnation: Incarnation(1) },
            Change::Remove { node: NodeId(1), incarnation: Incarnation(1) },
            Change::Found { slot: Slot(0), copies: atoll_replica::Copies::of(&[NodeId(1)]) },
            Change::Register {
                node: NodeId(3),
                nonce: 1,
                address: "x".repeat(ADDRESS_BYTES_MAX + 1),
                hints: PlacementHints::default(),
                survived: Survived::Nothing,
            },
            Change::Register {
                node: NodeId(3),
                nonce: 1,
                address: String::new(),
                hints: PlacementHints { zone: Some("two words".into()), ..PlacementHints::default() },
                survived: Survived::Nothing,
            },
        ] {
            assert!(matches!(ask(&client, Ask::Decide(change)).await, Answer::No));
        }
        let stranger = Ask::Join { node: NodeId(3), seat: SeatId(3) };
        assert!(matches!(ask(&client, stranger).await, Answer::No), "no member of the list");
    });
}

#[test]
fn what_makes_no_sense_ends_the_connection_and_nothing_else() {
    on_runtime(async {
        let (_council, options, client) = member().await;
        assert!(client.call(&[200, 1, 2, 3]).await.is_err());
        client.ended().await;
        assert!(matches!(ask(&again(&options).await, Ask::Who).await, Answer::Who { .. }));
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..12)).collect();
            let connection = again(&options).await;
            let _ = tokio::time::timeout(Duration::from_millis(2), connection.call(&bytes)).await;
        }
        assert!(matches!(ask(&again(&options).await, Ask::Who).await, Answer::Who { .. }));
    });
}

#[test]
fn a_member_whose_log_waits_for_room_queues_nothing_and_goes_on_once_there_is_some() {
    on_runtime(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let ring = GroupOptions { slots: 4, copies: 1 };
        let options = CouncilOptions::new(NodeId(1), vec![(NodeId(1), address)], ring, String::new());
        let (log, lacks_room) = Log::with_room_told(SeatId(1));
        let member = Member::start(Arc::new(options), log, listener).await.unwrap();
        let shared = &member.shared;
        let mut metrics = shared.raft.metrics();
        while !shared.leads() {
            metrics.changed().await.unwrap();
        }
        let ring = shared.log.ring().unwrap();
        let ask = |term| {
            let vote = Vote { leader_id: LeaderId::new(term, SeatId(1)), committed: false };
            Ask::Vote(To { ring, seat: SeatId(1) }, VoteRequest { vote, last_log_id: None })
        };
        lacks_room.send_replace(true);
        assert!(!shared.leads());
        assert!(matches!(shared.consensus(ask(1)).await, Answer::Failed(_)));
        lacks_room.send_replace(false);
        assert!(shared.leads());
        assert!(matches!(shared.consensus(ask(1)).await, Answer::Voted(_)));
        member.stop().await;
    });
}

#[test]
fn a_node_that_falls_silent_is_noticed_while_slots_are_being_placed() {
    on_runtime(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let members = vec![(NodeId(1), listener.local_addr().unwrap())];
        let ring = GroupOptions { slots: 4, copies: 1 };
        let mut options = CouncilOptions::new(NodeId(1), members, ring, String::new());
        (options.node_timeout_ms, options.founding_nodes, options.founding_wait_ms) = (300, 2, 600_000);
        let (log, jobs) = Log::with_writes_left(SeatId(1));
        // This many writes complete; the next one does not until the test is over.
        let passing = Arc::new(AtomicUsize::new(usize::MAX));
        let (holding, mut held) = tokio::sync::mpsc::unbounded_channel();
        let passes = Arc::clone(&passing);
        std::thread::spawn(move || {
            for job in jobs {
                let left = |left: usize| left.checked_sub(1);
                match passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) {
                    Ok(_) => (job.done)(Ok(())),
                    Err(_) => drop(holding.send(job)),
                }
            }
        });
        let member = Member::start(Arc::new(options), log, listener).await.unwrap();
        let shared = &member.shared;
        let mut metrics = shared.raft.metrics();
        while !shared.leads() {
            metrics.changed().await.unwrap();
        }
        let register = |node| Change::Register {
            node: NodeId(node),
            nonce: 1,
            address: String::new(),
            hints: PlacementHints::default(),
            survived: Survived::Nothing,
        };
        assert!(matches!(shared.decide(register(1)).await, Answer::Decision(_)));
        // With the second node all slots are placed, by the next write.
        passing.store(1, Ordering::SeqCst);
        assert!(matches!(shared.decide(register(7)).await, Answer::Decision(_)));
        let placing = held.recv().await.unwrap();
        shared.duties.heard(NodeId(7), Incarnation(1));
        let noticed = async {
            while !shared.duties.is_failing(NodeId(7)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Writing an entry may take up to five seconds.
        assert!(tokio::time::timeout(Duration::from_secs(4), noticed).await.is_ok(), "it is not noticed");
        passing.store(usize::MAX, Ordering::SeqCst);
        (placing.done)(Ok(()));
        member.stop().await;
    });
}

/// A member of a group of three, with this log, that makes a snapshot every 20 entries.
async fn start(me: usize, members: &[(NodeId, SocketAddr)], log: &Log, listener: TcpListener) -> Member {
    listener.set_nonblocking(true).unwrap();
    let ring = GroupOptions { slots: 4, copies: 1 };
    let mut options = CouncilOptions::new(members[me].0, members.to_vec(), ring, String::new());
    options.snapshot_entries = 20;
    Member::start(Arc::new(options), log.clone(), listener).await.unwrap()
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), waited).await.is_ok(), "it never came: {what}");
}

fn keyspace(number: u32) -> Change {
    let name = format!("keyspace-{number}").into();
    Change::Keyspace(KeyspaceRules { name, copies: 1, in_sync_min: 1, latency_ms: 0, durability: None })
}

#[test]
fn a_member_that_was_away_for_longer_than_entries_are_kept_catches_up_by_a_snapshot_in_pieces() {
    on_runtime(async {
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap());
        let members: Vec<_> = (1..).map(NodeId).zip(addresses).collect();
        let logs: Vec<_> = (1..=3).map(|seat| Log::in_memory(SeatId(seat))).collect();
        let mut running = Vec::new();
        for (me, listener) in listeners.into_iter().enumerate() {
            running.push(Some(start(me, &members, &logs[me], listener).await));
        }
        let leader = |running: &[Option<Member>]| {
            running.iter().position(|member| member.as_ref().is_some_and(|member| member.shared.leads()))
        };
        until("a leader", || leader(&running).is_some()).await;
        let away = (leader(&running).unwrap() + 1) % 3;
        until("it has entries", || logs[away].has_entries()).await;
        let stopped = running[away].take().unwrap();
        let had = stopped.shared.raft.metrics().borrow().last_log_index.unwrap();
        stopped.stop().await;
        for number in 0..65 {
            let change = if number < 5 { keyspace(number) } else { Change::Stay { node: NodeId(9) } };
            loop {
                let decided = match leader(&running).and_then(|leads| running[leads].as_ref()) {
                    Some(leads) => leads.shared.submit(vec![change.clone()]).await.is_ok(),
                    None => false,
                };
                if decided {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let others: Vec<_> = (0..3).filter(|&other| other != away).collect();
        // It may have got a few more before it ended.
        let is_cut = |log: &Log| log.purged().is_some_and(|purged| purged.index > had + 5);
        until("nobody has what it lacks", || others.iter().all(|&other| is_cut(&logs[other]))).await;
        let mut listener = None;
        until("its address is free", || {
            listener = TcpListener::bind(members[away].1).ok();
            listener.is_some()
        })
        .await;
        let back = start(away, &members, &logs[away], listener.unwrap()).await;
        until("it has the table", || back.shared.machine.table().keyspaces.len() == 5).await;
        assert!(
            is_cut(&logs[away]) && logs[away].snapshot().is_some_and(|snapshot| snapshot.last.index > had)
        );
        assert_eq!(back.shared.machine.table(), running[others[0]].as_ref().unwrap().shared.machine.table());
        back.stop().await;
        for member in running.into_iter().flatten() {
            member.stop().await;
        }
    });
}

#[test]
fn a_snapshot_that_is_no_use_is_refused_and_does_not_stop_the_member() {
    on_runtime(async {
        let (_council, options, client) = member().await;
        let Answer::Who { seat, .. } = ask(&client, Ask::Who).await else { panic!() };
        let to = To { ring: RingId(1), seat };
        let last: LogIdOf = LogId { leader_id: LeaderId::new(1, SeatId(7)), index: 9 };
        let nodes = [(SeatId(7), 2), (seat, 1)].map(|(seat, node)| (seat, Seat { node: NodeId(node) }));
        let seats: BTreeSet<SeatId> = [SeatId(7), seat].into();
        let membership = Membership::new(vec![seats], BTreeMap::from(nodes));
        let meta = SnapshotMetaOf {
            last_log_id: Some(last),
            last_membership: StoredMembership::new(Some(last), membership),
            snapshot_id: "9".to_owned(),
        };
        let part = |bytes: &[u8], at: usize, end: usize| {
            let piece = SnapshotPiece {
                vote: Vote::new_committed(1, SeatId(7)),
                meta: meta.clone(),
                total: bytes.len() as u64,
                at: at as u64,
                bytes: bytes[at..end].to_vec(),
            };
            Ask::Snapshot(to, piece)
        };
        let mut group = Group::new(options.ring);
        group.apply(keyspace(1));
        let good = SavedState::of(&group, &BTreeMap::new()).sealed();
        let mut damaged = good.clone();
        damaged[12] ^= 1;
        let other = Group::new(GroupOptions { slots: 5, copies: 1 });
        let other = SavedState::of(&other, &BTreeMap::new()).sealed();
        for wrong in [&damaged, &other] {
            assert!(matches!(ask(&client, part(wrong, 0, wrong.len())).await, Answer::Failed(_)));
        }
        assert!(matches!(ask(&client, part(&good, 5, 9)).await, Answer::Failed(_)), "without a beginning");
        assert!(matches!(ask(&client, Ask::Who).await, Answer::Who { has_log: false, .. }));
        assert!(matches!(ask(&client, part(&good, 0, 9)).await, Answer::Yes));
        assert!(matches!(ask(&client, part(&good, 9, good.len())).await, Answer::Installed(_)));
        assert!(matches!(ask(&client, Ask::Who).await, Answer::Who { has_log: true, .. }));
        let watch = Ask::Watch { known: None, is_at_once: false };
        let Answer::Table(table) = ask(&client, watch).await else { panic!() };
        assert_eq!(Update::decoded(&table).and_then(|table| table.apply(None)), Some(group.table()));
    });
}

#[test]
fn a_snapshot_that_is_refused_again_and_again_is_told_to_the_operator_once() {
    on_runtime(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let members = vec![(NodeId(1), listener.local_addr().unwrap())];
        let log = Log::in_memory(SeatId(1));
        let member = start(0, &members, &log, listener).await;
        let shared = &member.shared;
        until("a group", || log.ring().is_some()).await;
        let to = To { ring: log.ring().unwrap(), seat: SeatId(1) };
        let last: LogIdOf = LogId { leader_id: LeaderId::new(9, SeatId(7)), index: 900 };
        let bytes = b"no snapshot";
        let piece = SnapshotPiece {
            vote: Vote::new_committed(9, SeatId(7)),
            meta: SnapshotMetaOf { last_log_id: Some(last), ..SnapshotMetaOf::default() },
            total: bytes.len() as u64,
            at: 0,
            bytes: bytes.to_vec(),
        };
        for _ in 0..3 {
            let answer = shared.consensus(Ask::Snapshot(to, piece.clone())).await;
            assert!(matches!(answer, Answer::Failed(_)));
        }
        let mut told = shared.troubled.lock().await;
        assert!(matches!(told.try_recv(), Ok(CouncilError::SnapshotRefused { .. })));
        assert!(told.try_recv().is_err(), "it is told more than once");
        drop(told);
        member.stop().await;
    });
}

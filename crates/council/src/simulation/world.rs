//! The state that members of a simulated group share: which are up, the network between them, and a record of
//! the applied entries.

use crate::codec::Coded;
use crate::machine::{Builder, Machine};
use crate::types::{
    Decisions, EntryOf, LogIdOf, Raft, Seat, SeatId, SnapshotBytes, SnapshotMetaOf, SnapshotOf, StorageError,
    Types, VoteOf,
};
use atoll_replica::NodeId;
use openraft::error::{Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::storage::RaftStateMachine;
use openraft::{OptionalSend, RaftNetwork, RaftNetworkFactory, RaftSnapshotBuilder, StoredMembership};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long a message takes at most, in milliseconds; and one that is late.
const DELAY_MS_MAX: u64 = 8;
const LATE_MS_MAX: u64 = 400;

/// The state that all members share.
#[derive(Clone)]
pub(super) struct World(pub(super) Arc<Mutex<State>>);

/// A deliberate mistake, made to see that the checks notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// A member that lost its log comes back on the same seat.
    SeatKept,
    /// A member that believes it leads confirms that without asking the others.
    LeadNotConfirmed,
    /// A snapshot has the contents of the one before it.
    SnapshotBehind,
}

pub(super) struct State {
    pub(super) mistake: Mistake,
    pub(super) random: fastrand::Rng,
    /// The members that are up, by seat.
    pub(super) members: BTreeMap<SeatId, (NodeId, Raft, Machine)>,
    /// The directions in which messages do not pass.
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    pub(super) is_calm: bool,
    /// After how many entries members make snapshots, and how many they keep behind one; none if they make
    /// none.
    pub(super) snapshots: Option<(u64, u64)>,
    /// The bytes of the snapshot that was first made after each entry.
    pub(super) snapshot_book: BTreeMap<u64, SnapshotBytes>,
    /// The encoded entry that was first applied at each place.
    pub(super) book: BTreeMap<u64, Vec<u8>>,
    /// The terms of applied entries: each of them had a leader.
    pub(super) terms: BTreeSet<u64>,
    /// The node that each answered change registered, and at which place.
    pub(super) answered: BTreeMap<NodeId, u64>,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl World {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(super) fn count(&self, what: &'static str) {
        *self.state().counts.entry(what).or_default() += 1;
    }

    pub(super) fn draw<T>(&self, from: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        from(&mut self.state().random)
    }

    /// Compares a snapshot with others of the same entries: they say the same, whoever made them, and whether
    /// from entries or from another snapshot and what followed it.
    fn book_snapshot(&self, snapshot: &SnapshotMetaOf, bytes: &SnapshotBytes) {
        let index = snapshot.last_log_id.unwrap().index;
        let mut state = self.state();
        let booked = state.snapshot_book.entry(index).or_insert_with(|| bytes.clone());
        assert!(*booked == *bytes, "two snapshots at place {index}");
    }

    /// Waits for as long as a message takes; returns whether it arrives.
    async fn travel(&self, from: NodeId, to: NodeId) -> bool {
        let (delay, is_lost) = {
            let mut state = self.state();
            let slow = if !state.is_calm && state.random.u8(..20) == 0 { LATE_MS_MAX } else { DELAY_MS_MAX };
            let is_lost = !state.is_calm && state.random.u8(..25) == 0;
            (state.random.u64(1..=slow), is_lost)
        };
        if delay > DELAY_MS_MAX {
            self.count("messages late");
        }
        sleep(Duration::from_millis(delay)).await;
        let is_cut = self.state().cut.contains(&(from, to));
        if is_lost || is_cut {
            self.count(if is_cut { "messages cut off" } else { "messages lost" });
        }
        !is_lost && !is_cut
    }

    fn target(&self, seat: SeatId) -> Option<Raft> {
        self.state().members.get(&seat).map(|(_, raft, _)| raft.clone())
    }
}

#[derive(Clone)]
pub(super) struct Network {
    pub(super) world: World,
    pub(super) me: NodeId,
}

pub(super) struct Link {
    network: Network,
    seat: SeatId,
    node: NodeId,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: SeatId, node: &Seat) -> Link {
        Link { network: self.clone(), seat: target, node: node.node }
    }
}

type Failed = RPCError<SeatId, Seat, RaftError<SeatId>>;

fn lost() -> Failed {
    RPCError::Network(NetworkError::new(&io::Error::other("lost")))
}

impl Link {
    /// Runs a request on the other side, if the request arrives, and returns its answer if that does.
    async fn ask<T, E, F: Future<Output = Result<T, E>>>(
        &self,
        ask: impl FnOnce(Raft) -> F,
    ) -> Result<T, Failed> {
        let world = &self.network.world;
        if !world.travel(self.network.me, self.node).await {
            return std::future::pending().await;
        }
        let Some(raft) = world.target(self.seat) else { return Err(lost()) };
        let answer = ask(raft).await.map_err(|_| lost())?;
        if world.travel(self.node, self.network.me).await { Ok(answer) } else { std::future::pending().await }
    }

    /// Repeats the request, much later.
    fn double<E, F>(&self, ask: impl FnOnce(Raft) -> F + Send + 'static)
    where
        F: Future<Output = E> + Send,
    {
        let world = self.network.world.clone();
        if world.state().is_calm || world.draw(|random| random.u8(..12)) != 0 {
            return;
        }
        let (seat, later) = (self.seat, world.draw(|random| random.u64(1..3_000)));
        tokio::spawn(async move {
            sleep(Duration::from_millis(later)).await;
            if let Some(raft) = world.target(seat) {
                world.count("messages doubled");
                ask(raft).await;
            }
        });
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<SeatId>, Failed> {
        let again = rpc.clone();
        self.double(|raft| async move { drop(raft.append_entries(again).await) });
        self.ask(|raft| async move { raft.append_entries(rpc).await }).await
    }

    async fn vote(&mut self, rpc: VoteRequest<SeatId>, _: RPCOption) -> Result<VoteResponse<SeatId>, Failed> {
        self.network.world.count("votes asked for");
        let again = rpc.clone();
        self.double(|raft| async move { drop(raft.vote(again).await) });
        self.ask(|raft| async move { raft.vote(rpc).await }).await
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf,
        snapshot: SnapshotOf,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<SeatId>, StreamingError<Types, Fatal<SeatId>>> {
        self.network.world.count("snapshots sent");
        let again = SnapshotOf { meta: snapshot.meta.clone(), snapshot: snapshot.snapshot.clone() };
        self.double(move |raft| async move { drop(raft.install_full_snapshot(vote, again).await) });
        let sent = self.ask(|raft| async move { raft.install_full_snapshot(vote, snapshot).await });
        // The consensus leaves it to its network to give a snapshot up.
        let sent = timeout(option.hard_ttl(), sent);
        tokio::select! {
            answer = sent => {
                let lost = || StreamingError::Network(NetworkError::new(&io::Error::other("lost")));
                answer.ok().and_then(Result::ok).ok_or_else(lost)
            }
            closed = cancel => Err(StreamingError::Closed(closed)),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(100)))
    }
}

/// The state machine, with a record of what it applies.
pub(super) struct Booked {
    pub(super) world: World,
    pub(super) machine: Machine,
    /// The builder of the last snapshot.
    pub(super) built: Option<Builder>,
}

/// Makes snapshots, with a record of them.
pub(super) struct BookedBuilder {
    world: World,
    builder: Builder,
}

impl RaftSnapshotBuilder<Types> for BookedBuilder {
    async fn build_snapshot(&mut self) -> Result<SnapshotOf, StorageError> {
        let built = self.builder.build_snapshot().await?;
        self.world.count("snapshots made");
        self.world.book_snapshot(&built.meta, &built.snapshot);
        Ok(built)
    }
}

impl RaftStateMachine<Types> for Booked {
    type SnapshotBuilder = BookedBuilder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogIdOf>, StoredMembership<SeatId, Seat>), StorageError> {
        self.machine.applied_state().await
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Decisions>, StorageError>
    where
        I: IntoIterator<Item = EntryOf> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<_> = entries.into_iter().collect();
        for entry in &entries {
            let (index, bytes) = (entry.log_id.index, entry.to_bytes());
            let mut state = self.world.state();
            let booked = state.book.entry(index).or_insert_with(|| bytes.clone());
            assert!(*booked == bytes, "two entries at place {index}");
            if state.terms.insert(entry.log_id.leader_id.term) {
                *state.counts.entry("leaders elected").or_default() += 1;
            }
        }
        self.machine.apply(entries).await
    }

    async fn get_snapshot_builder(&mut self) -> BookedBuilder {
        let mut builder = self.machine.get_snapshot_builder().await;
        let before = self.built.replace(builder.clone());
        if let Some(before) = before.filter(|_| self.world.state().mistake == Mistake::SnapshotBehind) {
            builder.mistake_for(&before);
        }
        BookedBuilder { world: self.world.clone(), builder }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotBytes>, StorageError> {
        self.machine.begin_receiving_snapshot().await
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf,
        snapshot: Box<SnapshotBytes>,
    ) -> Result<(), StorageError> {
        self.world.count("snapshots installed");
        self.world.book_snapshot(meta, &snapshot);
        self.machine.install_snapshot(meta, snapshot).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf>, StorageError> {
        self.machine.get_current_snapshot().await
    }
}

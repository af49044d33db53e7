//! A member of the group: runs the log, and answers nodes and the other members.
//!
//! Invariant: a message about the log is accepted only if it was meant for this seat and this group.
//! Invariant: a heartbeat is confirmed only if by then the table has the node up, in that life, and no change
//! to the contrary is under way.

use crate::codec::{Answer, Ask, Coded, RingId, SnapshotPiece, To};
use crate::council::Events;
use crate::founding;
use crate::leader::{Duties, NotDone, Submitted};
use crate::log::Log;
use crate::machine::Machine;
use crate::options::ADDRESS_BYTES_MAX;
use crate::peers::{self, Network, Peers};
use crate::receiving::Receiving;
use crate::seldom::Seldom;
use crate::types::{Raft, Seat, SeatId};
use crate::{CouncilError, CouncilEvent, CouncilOptions};
use atoll_replica::{Change, Incarnation, NodeId, Proposal, Slot, Version};
use atoll_wire::{Connection, Request, Responder, WireError};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{RwLock, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 4_096;

/// How long a new connection may take for its greeting.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the consensus may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A member of the group.
pub(crate) struct Member {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

/// What it takes to answer requests.
pub(crate) struct Shared {
    pub(crate) options: Arc<CouncilOptions>,
    pub(crate) log: Log,
    pub(crate) machine: Machine,
    pub(crate) raft: Raft,
    pub(crate) peers: Arc<Peers>,
    pub(crate) duties: Duties,
    receiving: Receiving,
    /// Held for reading while a message about the log is handled, and for writing while another group is
    /// about to be founded.
    gate: RwLock<()>,
    /// Held while a seat is added to the group.
    pub(crate) seating: tokio::sync::Mutex<()>,
    /// Whether the leader has confirmed that this seat counts.
    pub(crate) is_taken_in: tokio::sync::watch::Sender<bool>,
    pub(crate) troubles: tokio::sync::mpsc::Sender<CouncilError>,
    troubled: tokio::sync::Mutex<tokio::sync::mpsc::Receiver<CouncilError>>,
    /// Counts the connections that failed to speak the protocol of members and nodes.
    turned_away: Seldom,
    /// Counts the snapshots that are of no use here.
    refused: Seldom,
    /// Whether the operator was told of one, and none was put in place since.
    is_refusal_told: AtomicBool,
}

/// Whether an operator may submit this change.
pub(crate) fn may_be_asked(change: &Change) -> bool {
    matches!(
        change,
        Change::Leave { .. }
            | Change::Stay { .. }
            | Change::HandOver { .. }
            | Change::Lead { .. }
            | Change::Recover { .. }
            | Change::Copy { .. }
            | Change::Drop { .. }
            | Change::Keyspace(_)
    )
}

/// Whether a node may submit this change.
fn is_right(change: &Change) -> bool {
    match change {
        Change::Register { address, hints, .. } => {
            address.len() <= ADDRESS_BYTES_MAX && hints.problem().is_none()
        }
        change => may_be_asked(change),
    }
}

impl Member {
    pub(crate) async fn start(
        options: Arc<CouncilOptions>,
        log: Log,
        listener: TcpListener,
    ) -> Result<Self, CouncilError> {
        let machine = Machine::new(options.ring, log.clone())?;
        let peers = Arc::new(Peers::new(Arc::clone(&options)));
        let config = options.consensus().validate();
        let config =
            config.map_err(|_| CouncilError::Option { option: "election_ms", problem: "out of range" })?;
        let network = Network { peers: Arc::clone(&peers), log: log.clone() };
        let raft = Raft::new(log.seat(), Arc::new(config), network, log.clone(), machine.clone()).await;
        let raft = raft.map_err(|error| CouncilError::Member { problem: error.to_string() })?;
        let (duties, work) = Duties::new();
        let (troubles, troubled) = tokio::sync::mpsc::channel(16);
        let shared = Arc::new(Shared {
            options,
            log,
            machine,
            raft,
            peers,
            duties,
            receiving: Receiving::default(),
            gate: RwLock::default(),
            seating: tokio::sync::Mutex::default(),
            is_taken_in: tokio::sync::watch::Sender::default(),
            troubles,
            troubled: tokio::sync::Mutex::new(troubled),
            turned_away: Seldom::default(),
            refused: Seldom::default(),
            is_refusal_told: AtomicBool::default(),
        });
        let listener = tokio::net::TcpListener::from_std(listener)
            .map_err(|source| CouncilError::System { action: "listen", source })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(Arc::clone(&shared), listener));
        tasks.spawn(founding::found_or_join(Arc::clone(&shared)));
        work.begin(&shared, &mut tasks);
        Ok(Self { shared, tasks })
    }

    /// Delivers events about this member, for ever.
    pub(crate) async fn watched(&self, events: &Events) {
        let mut troubled = self.shared.troubled.lock().await;
        let mut metrics = self.shared.raft.metrics();
        let (mut is_seated, mut lacks_room) = (false, false);
        let mut log = self.shared.log.clone();
        let mut taken_in = self.shared.is_taken_in.subscribe();
        loop {
            let stopped = metrics.borrow_and_update().running_state.as_ref().err().map(ToString::to_string);
            if let Some(problem) = stopped {
                events(CouncilEvent::Failed(CouncilError::Member { problem }));
                return std::future::pending().await;
            }
            if !std::mem::replace(&mut is_seated, self.shared.counts()) && is_seated {
                events(CouncilEvent::Seated);
            }
            if std::mem::replace(&mut lacks_room, log.lacks_room()) != lacks_room {
                events(CouncilEvent::LacksRoom(lacks_room));
            }
            tokio::select! {
                () = log.room_changed() => {}
                Ok(()) = taken_in.changed() => {}
                Some(trouble) = troubled.recv() => events(CouncilEvent::Trouble(trouble)),
                changed = metrics.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
            }
        }
    }

    pub(crate) async fn stop(mut self) {
        self.tasks.abort_all();
        if tokio::time::timeout(STOP_TIMEOUT, self.shared.raft.shutdown()).await.is_err() {
            tracing::warn!("the configuration group of this node did not stop in time");
        }
    }
}

async fn accept(shared: Arc<Shared>, listener: tokio::net::TcpListener) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    serve(shared, stream).await;
                    drop(permit);
                });
            }
            // Most likely out of descriptors: waiting connections are accepted once others have closed.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Accepts a connection: encryption and greeting.
async fn accepted(shared: &Shared, stream: TcpStream) -> Result<Connection, WireError> {
    let welcome = |greeting: &[u8]| peers::welcome(&shared.options, greeting);
    let Some(tls) = &shared.options.tls else {
        return Connection::accept(stream, peers::limits(), welcome).await;
    };
    let peer = stream.peer_addr().map(|address| address.to_string()).unwrap_or_default();
    match TlsAcceptor::from(Arc::clone(&tls.peers.serve)).accept(stream).await {
        Ok(stream) => Connection::accept(stream, peers::limits(), welcome).await,
        Err(source) => {
            // Any number of strangers may connect, so the log line is limited.
            if let Some(times) = shared.turned_away.happened(Instant::now()) {
                tracing::warn!(peer, error = %source, times, "a connection to the configuration group was refused");
            }
            Err(WireError::Io { action: "encrypt", source })
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut connection = match tokio::time::timeout(HELLO_TIMEOUT, accepted(&shared, stream)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return tracing::debug!(%error, "a connection was refused"),
        Err(_) => return,
    };
    let mut answers = JoinSet::new();
    let (mut node, mut leader) = (None, None);
    while let Ok(Some(Request { body, responder })) = connection.next().await {
        match Ask::of_bytes(&body) {
            Ok(ask) => {
                if let Ask::Heartbeat { node: of, incarnation } = ask {
                    node = Some((of, incarnation));
                }
                if let Ask::Append(_, request) = &ask {
                    leader = Some(request.vote.leader_id.node_id);
                }
                answers.spawn(reply(Arc::clone(&shared), ask, responder));
            }
            Err(error) => {
                tracing::warn!(%error, "a request to the group is invalid");
                break;
            }
        }
        while answers.try_join_next().is_some() {}
    }
    if let Some((node, incarnation)) = node {
        shared.duties.lost(node, incarnation);
    }
    if let Some((node, incarnation)) = leader.and_then(|seat| shared.life_of(seat)) {
        shared.duties.lost_leader(node, incarnation);
    }
    // Requests under way are not cancelled: a change is made all the same.
    answers.detach_all();
}

async fn reply(shared: Arc<Shared>, ask: Ask, responder: Responder) {
    let gone = responder.gone();
    let is_watch = matches!(ask, Ask::Watch { .. });
    let answer = if is_watch {
        tokio::select! {
            answer = shared.answer(ask) => answer,
            () = gone => return,
        }
    } else {
        shared.answer(ask).await
    };
    let _ = responder.finish(&answer.to_bytes()).await;
}

impl Shared {
    async fn answer(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Vote(..) | Ask::Append(..) | Ask::Snapshot(..) => self.consensus(ask).await,
            Ask::Who => self.who(),
            Ask::Prepare(ring) => self.prepare(ring).await,
            Ask::Join { node, seat } => self.join(node, seat).await,
            Ask::Decide(change) => self.decide(change).await,
            Ask::Propose(proposals) => self.propose(proposals),
            Ask::Heartbeat { node, incarnation } => self.heartbeat(node, incarnation).await,
            Ask::Watch { known, is_at_once } => self.watch(known, is_at_once).await,
        }
    }

    async fn consensus(&self, ask: Ask) -> Answer {
        if self.log.lacks_room() {
            // The consensus would queue messages without bound, because it waits for its log.
            return Answer::Failed("no room for the log of this member".to_owned());
        }
        let _gate = self.gate.read().await;
        let answer = match ask {
            Ask::Vote(to, request) => match self.is_meant(to).await {
                Ok(()) => self.raft.vote(request).await.map(Answer::Voted).map_err(|error| error.to_string()),
                Err(answer) => return answer,
            },
            Ask::Append(to, request) => match self.is_meant(to).await {
                Ok(()) => {
                    self.receiving.forget_old(Instant::now());
                    let appended = self.raft.append_entries(request).await;
                    appended.map(Answer::Appended).map_err(|error| error.to_string())
                }
                Err(answer) => return answer,
            },
            Ask::Snapshot(to, piece) => match self.is_meant(to).await {
                Ok(()) => self.receive(piece).await,
                Err(answer) => return answer,
            },
            _ => return Answer::No,
        };
        answer.unwrap_or_else(Answer::Failed)
    }

    /// Takes a piece of a snapshot, and puts the snapshot in place with the last one.
    async fn receive(&self, piece: SnapshotPiece) -> Result<Answer, String> {
        let vote = piece.vote;
        let Some(snapshot) = self.receiving.take(piece, Instant::now())? else { return Ok(Answer::Yes) };
        if let Some(problem) = self.machine.problem(&snapshot.meta, &snapshot.snapshot) {
            self.tell_refused(&problem);
            return Err(problem);
        }
        let installed = self.raft.install_full_snapshot(vote, snapshot).await;
        // The consensus may not have needed it.
        self.machine.forget_read();
        let done = installed.map_err(|error| error.to_string())?;
        self.is_refusal_told.store(false, Ordering::Relaxed);
        Ok(Answer::Installed(done.vote))
    }

    /// Reports that a snapshot was refused: to the operator once, because it is sent again and again.
    fn tell_refused(&self, problem: &str) {
        if let Some(times) = self.refused.happened(Instant::now()) {
            tracing::warn!(problem, times, "a snapshot from another member was refused");
        }
        if self.is_refusal_told.load(Ordering::Relaxed) {
            return;
        }
        let refused = CouncilError::SnapshotRefused { problem: problem.to_owned() };
        // If too much else waits to be told, the next one is.
        self.is_refusal_told.store(self.troubles.try_send(refused).is_ok(), Ordering::Relaxed);
    }

    /// Whether a message is for this log. A log that belongs to no group yet joins the first one that calls
    /// it.
    async fn is_meant(&self, to: To) -> Result<(), Answer> {
        if to.seat != self.log.seat() || self.log.ring().is_some_and(|ring| ring != to.ring) {
            return Err(Answer::No);
        }
        if self.log.ring().is_none() {
            self.log.set_ring(to.ring).await.map_err(|error| Answer::Failed(error.to_string()))?;
        }
        Ok(())
    }

    pub(crate) fn who(&self) -> Answer {
        Answer::Who {
            node: self.options.me,
            seat: self.log.seat(),
            ring: self.log.ring(),
            has_log: self.log.has_entries(),
        }
    }

    pub(crate) async fn prepare(&self, ring: RingId) -> Answer {
        let _gate = self.gate.write().await;
        if self.log.has_entries() {
            return Answer::No;
        }
        match self.log.set_ring(ring).await {
            Ok(()) => Answer::Yes,
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    /// The node on a seat, and its life.
    fn life_of(&self, seat: SeatId) -> Option<(NodeId, Incarnation)> {
        let metrics = self.raft.server_metrics();
        let node = metrics.borrow().membership_config.membership().get_node(&seat)?.node;
        Some((node, self.machine.table().incarnation(node)?))
    }

    /// The leader, as far as this member knows.
    fn leader(&self) -> Option<NodeId> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow();
        let seat = metrics.current_leader?;
        metrics.membership_config.membership().get_node(&seat).map(|seat| seat.node)
    }

    pub(crate) fn leads(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        // A member whose log failed does not lead, though openraft does not say so; one that waits for room
        // learns nothing.
        !self.log.lacks_room()
            && metrics.running_state.is_ok()
            && metrics.state == openraft::ServerState::Leader
    }

    /// Whether this log is one of the voters, and the leader has confirmed that.
    pub(crate) fn counts(&self) -> bool {
        *self.is_taken_in.borrow() && self.is_seated()
    }

    /// Whether this log is one of the voters, as far as it knows.
    fn is_seated(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        membership.get_joint_config().len() == 1 && membership.voter_ids().any(|seat| seat == self.log.seat())
    }

    fn not_leader(&self) -> Answer {
        // The caller would only come back here if it was sent to this member.
        Answer::NotLeader(self.leader().filter(|leader| *leader != self.options.me))
    }

    async fn decide(&self, change: Change) -> Answer {
        if !is_right(&change) {
            return Answer::No;
        }
        let registers = matches!(change, Change::Register { .. }).then(|| match &change {
            Change::Register { node, .. } => *node,
            _ => NodeId::default(),
        });
        if let Change::Recover { slot, .. } = change {
            self.await_silence(slot).await;
        }
        match self.submit(vec![change]).await {
            Ok(decisions) => match decisions.0.first() {
                Some(decision) => {
                    if let (Some(node), atoll_replica::Decision::Registered { incarnation }) =
                        (registers, decision)
                    {
                        self.duties.heard(node, *incarnation);
                    }
                    Answer::Decision(*decision)
                }
                None => Answer::Failed("a change without a decision".to_owned()),
            },
            Err(NotDone::NotLeader) => self.not_leader(),
            Err(NotDone::Busy) => Answer::Unsure,
            Err(NotDone::Unknown(words)) => Answer::Failed(words),
        }
    }

    /// Waits until no copy that is down can still serve the slot on the strength of a confirmed heartbeat.
    async fn await_silence(&self, slot: Slot) {
        let timeout = self.options.node_timeout();
        let until = Instant::now() + timeout * 2;
        while self.leads() && Instant::now() < until {
            let table = self.machine.table();
            let copies = table.slot(slot).in_sync;
            let is_up = |node| table.members.get(&node).is_some_and(|member| member.is_up);
            if copies.iter().any(is_up) || self.duties.are_silent(copies, timeout) {
                return;
            }
            tokio::time::sleep(timeout / 30).await;
        }
    }

    /// Submits changes to the log and waits for the decisions.
    pub(crate) async fn submit(&self, changes: Vec<Change>) -> Submitted {
        if !self.leads() {
            return Err(NotDone::NotLeader);
        }
        self.duties.submit(changes).await
    }

    fn propose(&self, proposals: Vec<Proposal>) -> Answer {
        if !self.leads() {
            return self.not_leader();
        }
        self.duties.propose(proposals.into_iter().map(Change::Propose).collect());
        Answer::Yes
    }

    async fn heartbeat(&self, node: NodeId, incarnation: Incarnation) -> Answer {
        if !self.leads() {
            return self.not_leader();
        }
        self.duties.heard(node, incarnation);
        if !self.duties.confirm().await {
            return if self.leads() { Answer::Unsure } else { self.not_leader() };
        }
        let table = self.machine.table();
        let Some(member) = table.members.get(&node).filter(|member| member.incarnation == incarnation) else {
            return Answer::OtherLife;
        };
        if member.is_up && !self.duties.is_failing(node) {
            return Answer::Heard(table.version);
        }
        // The node was given up, or is being given up: first the table has to have it up again.
        match self.submit(vec![Change::Hear { node, incarnation }]).await {
            Ok(_) => {
                let table = self.machine.table();
                let member = table.members.get(&node);
                match member.is_some_and(|member| member.incarnation == incarnation && member.is_up) {
                    true => Answer::Heard(table.version),
                    false => Answer::Unsure,
                }
            }
            Err(_) => Answer::Unsure,
        }
    }

    async fn watch(&self, known: Option<Version>, is_at_once: bool) -> Answer {
        let is_newer = |version: Version| known.is_none_or(|known| version > known);
        if is_at_once && (!self.leads() || !self.duties.confirm().await) {
            return self.not_leader();
        }
        let mut tables = self.machine.watch();
        if !is_at_once && tables.wait_for(|table| is_newer(table.version)).await.is_err() {
            return Answer::Unsure;
        }
        let version = self.machine.table().version;
        if is_newer(version) {
            Answer::Table(self.machine.update(known).to_vec())
        } else {
            Answer::Heard(version)
        }
    }

    pub(crate) async fn join(&self, node: NodeId, seat: SeatId) -> Answer {
        if !self.options.members.iter().any(|(member, _)| *member == node) {
            return Answer::No;
        }
        if !self.leads() {
            return self.not_leader();
        }
        // A seat that is not added now asks again.
        let Ok(_alone) = self.seating.try_lock() else { return Answer::Unsure };
        let answer = founding::take_in(&self.raft, seat, Seat { node }).await;
        // Another member may lead by now, and have added another seat of that node.
        if matches!(answer, Answer::Yes) && !self.duties.confirm().await {
            return Answer::Unsure;
        }
        answer
    }
}

#[cfg(test)]
mod tests;

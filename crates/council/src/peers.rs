//! Connections to members of the group.
//!
//! Invariant: a request is given up when its time is over, whatever the other side does. The attempt to
//! connect is not: the connection is there for the next request.

use crate::codec::{Answer, Ask, Coded, SnapshotPiece, To};
use crate::log::Log;
use crate::resolver::MemberResolver;
use crate::types::{Seat, SeatId, SnapshotOf, Types, VoteOf};
use crate::{CouncilError, CouncilOptions};
use atoll_replica::NodeId;
use atoll_tls::host_name;
use atoll_wire::{Client, Limits, WireError};
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{RaftNetwork, RaftNetworkFactory};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

/// The version of the protocol between nodes and members.
pub(crate) const VERSION: u8 = 5;

/// How long a member may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long sent data may stay unacknowledged, in milliseconds: the kernel's own timeout doubles with each
/// retry.
const SILENCE_MS: u32 = 2_000;

/// Bytes of a snapshot in one message: half of what the transport sends in one go, so that a piece is a
/// single frame, and heartbeats wait for no more than that. Snapshots in tests are small, and come in pieces
/// too.
const PIECE_BYTES: usize = if cfg!(test) { 60 } else { 512 << 10 };

/// Bytes of the first piece. Most members that refuse a snapshot, because their disk is full or their seat is
/// another one by now, refuse any piece of it, so the first one costs little.
const FIRST_PIECE_BYTES: usize = if cfg!(test) { 20 } else { 4 << 10 };

/// The pause after a snapshot that did not arrive. The consensus begins anew with the first piece, and its
/// own pause is that after a message which was lost.
const SNAPSHOT_AGAIN: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// The member cannot be reached: it has seen nothing of the question.
    #[error("the member cannot be reached")]
    Unreached(#[source] WireError),
    /// The connection was lost: the member may have seen the question.
    #[error("the connection was lost")]
    Lost,
    /// The answer came in time and makes no sense.
    #[error("not an answer to what was asked")]
    Nonsense,
    /// The answer took too long.
    #[error("no answer in time")]
    Late,
}

/// The limits on a connection.
pub(crate) fn limits() -> Limits {
    Limits { streams: 256, ..Limits::default() }
}

/// The greeting that begins a connection.
pub(crate) fn greeting(options: &CouncilOptions) -> Vec<u8> {
    let mut greeting = vec![VERSION];
    if let Some(token) = &options.token {
        greeting.extend_from_slice(token.bytes());
    }
    greeting
}

/// Accepts or refuses a connection by its greeting.
pub(crate) fn welcome(options: &CouncilOptions, greeting: &[u8]) -> Result<Vec<u8>, String> {
    match greeting.split_first() {
        Some((&VERSION, shown)) if options.token.as_ref().is_none_or(|token| token.is(shown)) => {
            Ok(vec![VERSION])
        }
        Some((&VERSION, _)) => Err("the token is not that of this ring".to_owned()),
        Some((version, _)) => {
            Err(format!("version {version} of the group is not supported here, only {VERSION}"))
        }
        None => Err("no version of the group was named".to_owned()),
    }
}

/// Connects to a member.
pub(crate) async fn connect(
    (node, address): (NodeId, SocketAddr),
    options: &CouncilOptions,
) -> Result<Client, WireError> {
    let connected = async {
        let io = |source| WireError::Io { action: "connect", source };
        let stream = TcpStream::connect(address).await.map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        // Without it a connection through a cut network would be given up later; so an error is ignored.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, SILENCE_MS);
        let greeting = greeting(options);
        let connected = match &options.tls {
            None => Client::connect(stream, limits(), greeting).await,
            Some(tls) => {
                let host = tls.hosts.get(&node).map(String::as_str).unwrap_or_default();
                let host = host_name(host).map_err(|error| io(io::Error::other(error)))?;
                let dial = TlsConnector::from(Arc::clone(&tls.peers.dial));
                Client::connect(dial.connect(host, stream).await.map_err(io)?, limits(), greeting).await
            }
        };
        connected.map(|(client, _)| client)
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, connected).await {
        Ok(connected) => connected,
        Err(_) => Err(WireError::Io { action: "connect", source: io::ErrorKind::TimedOut.into() }),
    }
}

/// Asks over an open connection.
pub(crate) async fn ask(client: &Client, ask: &Ask, within: Duration) -> Result<Answer, NoAnswer> {
    match tokio::time::timeout(within, client.call(&ask.to_bytes())).await {
        Ok(Ok(answer)) => Answer::of_bytes(&answer).map_err(|_| NoAnswer::Nonsense),
        Ok(Err(_)) => Err(NoAnswer::Lost),
        Err(_) => Err(NoAnswer::Late),
    }
}

/// Connections to the other members.
pub(crate) struct Peers {
    options: Arc<CouncilOptions>,
    resolver: Arc<MemberResolver>,
    clients: BTreeMap<NodeId, Arc<Mutex<Option<Client>>>>,
}

impl Peers {
    pub(crate) fn new(options: Arc<CouncilOptions>) -> Self {
        let others = options.members.iter().filter(|(node, _)| *node != options.me);
        let clients = others.map(|(node, _)| (*node, Arc::default())).collect();
        Self { clients, resolver: Arc::new(MemberResolver::new(&options)), options }
    }

    /// The other members.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.clients.keys().copied().collect()
    }

    /// Asks another member.
    pub(crate) async fn ask(&self, node: NodeId, ask: &Ask, within: Duration) -> Result<Answer, NoAnswer> {
        let answered = async {
            let client = self.client(node).await.map_err(NoAnswer::Unreached)?;
            self::ask(&client, ask, within).await
        };
        tokio::time::timeout(within, answered).await.unwrap_or(Err(NoAnswer::Late))
    }

    async fn client(&self, node: NodeId) -> Result<Client, WireError> {
        let client = self.clients.get(&node).ok_or(WireError::Closed)?;
        let mut client = Arc::clone(client).lock_owned().await;
        if let Some(client) = client.as_ref().filter(|client| client.is_open()) {
            return Ok(client.clone());
        }
        let (resolver, options) = (Arc::clone(&self.resolver), Arc::clone(&self.options));
        // The consensus gives an append less time than connecting takes over long round trips. If each append
        // started anew there would never be a connection.
        let connecting = tokio::spawn(async move {
            let connected = resolver.connect(node, &options).await?;
            *client = Some(connected.clone());
            Ok(connected)
        });
        connecting.await.unwrap_or(Err(WireError::Closed))
    }
}

/// Makes connections for the consensus.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) peers: Arc<Peers>,
    pub(crate) log: Log,
}

/// A connection to one seat.
pub(crate) struct Connection {
    network: Network,
    seat: SeatId,
    node: NodeId,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Connection;

    async fn new_client(&mut self, target: SeatId, node: &Seat) -> Self::Network {
        Connection { network: self.clone(), seat: target, node: node.node }
    }
}

type Failed = RPCError<SeatId, Seat, RaftError<SeatId>>;

impl Connection {
    async fn ask(&self, ask: impl FnOnce(To) -> Ask, within: Duration) -> Result<Answer, Failed> {
        let ring = self.network.log.ring().ok_or_else(|| unreachable(&NoAnswer::Nonsense))?;
        let ask = ask(To { ring, seat: self.seat });
        match self.network.peers.ask(self.node, &ask, within).await {
            Ok(Answer::Failed(words)) => Err(unreachable(&io::Error::other(words))),
            Ok(Answer::No) => Err(unreachable(&io::Error::other("another seat, or another group"))),
            Ok(answer) => Ok(answer),
            Err(error @ NoAnswer::Unreached(_)) => Err(unreachable(&error)),
            Err(error) => Err(RPCError::Network(NetworkError::new(&error))),
        }
    }

    /// Sends a snapshot, piece by piece, each within this time, so that a slow link makes it late and not
    /// impossible. Returns the vote of the other side.
    async fn send(&self, vote: VoteOf, snapshot: &SnapshotOf, within: Duration) -> Result<VoteOf, Failed> {
        let bytes = snapshot.snapshot.0.as_slice();
        let (first, rest) = bytes.split_at(FIRST_PIECE_BYTES.min(bytes.len()));
        let mut at = 0;
        for piece in std::iter::once(first).chain(rest.chunks(PIECE_BYTES)) {
            let piece = SnapshotPiece {
                vote,
                meta: snapshot.meta.clone(),
                total: bytes.len() as u64,
                at,
                bytes: piece.to_vec(),
            };
            at += piece.bytes.len() as u64;
            match self.ask(|to| Ask::Snapshot(to, piece), within).await? {
                Answer::Yes => {}
                Answer::Installed(vote) => return Ok(vote),
                _ => return Err(nonsense()),
            }
        }
        Err(nonsense())
    }
}

fn unreachable(error: &(impl std::error::Error + 'static)) -> Failed {
    RPCError::Unreachable(Unreachable::new(error))
}

fn nonsense() -> Failed {
    RPCError::Network(NetworkError::new(&NoAnswer::Nonsense))
}

impl RaftNetwork<Types> for Connection {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<SeatId>, Failed> {
        match self.ask(|to| Ask::Append(to, rpc), option.hard_ttl()).await? {
            Answer::Appended(answer) => Ok(answer),
            _ => Err(nonsense()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<SeatId>,
        option: RPCOption,
    ) -> Result<VoteResponse<SeatId>, Failed> {
        match self.ask(|to| Ask::Vote(to, rpc), option.hard_ttl()).await? {
            Answer::Voted(answer) => Ok(answer),
            _ => Err(nonsense()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf,
        snapshot: SnapshotOf,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<SeatId>, StreamingError<Types, Fatal<SeatId>>> {
        tokio::pin!(cancel);
        let sent = tokio::select! {
            sent = self.send(vote, &snapshot, option.hard_ttl()) => sent,
            closed = &mut cancel => return Err(StreamingError::Closed(closed)),
        };
        let failed = match sent {
            Ok(vote) => return Ok(SnapshotResponse::new(vote)),
            Err(error) => Unreachable::new(&error),
        };
        // Here and not in `backoff`, which is that of lost messages as well: a member that does not refuse
        // gets its entries without this pause.
        tokio::select! {
            () = tokio::time::sleep(SNAPSHOT_AGAIN) => Err(StreamingError::Unreachable(failed)),
            closed = &mut cancel => Err(StreamingError::Closed(closed)),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(100)))
    }
}

/// The error to report if a member refuses this node, when that is why there is no answer.
pub(crate) fn refusal(member: NodeId, error: &WireError) -> Option<CouncilError> {
    match error {
        WireError::Refused { reason } => Some(CouncilError::Refused { member, reason: reason.clone() }),
        // The two do not trust each other, or one of them does not encrypt.
        WireError::Io { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
            Some(CouncilError::Refused { member, reason: source.to_string() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::RingId;
    use crate::types::{SnapshotBytes, SnapshotMetaOf};
    use atoll_replica::GroupOptions;
    use openraft::Vote;
    use tokio::net::TcpListener;
    use tokio::sync::{mpsc, oneshot};

    /// Is a member of the group that refuses every piece of a snapshot, and notes how long it is.
    async fn refuse(listener: TcpListener, noted: mpsc::UnboundedSender<usize>) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(refuse_one(stream, noted.clone()));
        }
    }

    async fn refuse_one(stream: TcpStream, noted: mpsc::UnboundedSender<usize>) {
        let welcome = |_: &[u8]| Ok(vec![VERSION]);
        let mut greeted = atoll_wire::Connection::accept(stream, limits(), welcome).await.unwrap();
        while let Ok(Some(asked)) = greeted.next().await {
            let answer = match Ask::of_bytes(&asked.body) {
                Ok(Ask::Who) => {
                    Answer::Who { node: NodeId(2), seat: SeatId(2), ring: Some(RingId(1)), has_log: true }
                }
                Ok(Ask::Snapshot(_, piece)) => {
                    noted.send(piece.bytes.len()).unwrap();
                    Answer::Failed("no room".to_owned())
                }
                other => panic!("another question: {other:?}"),
            };
            asked.responder.finish(&answer.to_bytes()).await.unwrap();
            greeted.flush();
        }
    }

    #[test]
    fn a_member_that_refuses_a_snapshot_is_sent_little_of_it_and_not_again_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let members = vec![(NodeId(2), listener.local_addr().unwrap())];
            let (noted, mut pieces) = mpsc::unbounded_channel();
            tokio::spawn(refuse(listener, noted));
            let ring = GroupOptions { slots: 4, copies: 1 };
            let peers = Peers::new(Arc::new(CouncilOptions::new(NodeId(1), members, ring, String::new())));
            let log = Log::in_memory(SeatId(1));
            log.set_ring(RingId(1)).await.unwrap();
            let mut network = Network { peers: Arc::new(peers), log };
            let mut connection = network.new_client(SeatId(2), &Seat { node: NodeId(2) }).await;
            let bytes = SnapshotBytes(Arc::new(vec![7; 200]));
            let snapshot = SnapshotOf { meta: SnapshotMetaOf::default(), snapshot: Box::new(bytes) };
            let (closing, closed) = oneshot::channel::<()>();
            let cancel = async move {
                let _ = closed.await;
                ReplicationClosed::new("another member leads")
            };
            let (vote, option) = (Vote::new_committed(1, SeatId(1)), RPCOption::new(Duration::from_secs(10)));
            let sending = connection.full_snapshot(vote, snapshot, cancel, option);
            tokio::pin!(sending);
            let first = tokio::select! {
                first = pieces.recv() => first,
                _ = &mut sending => None,
            };
            assert_eq!(first, Some(FIRST_PIECE_BYTES));
            let early = tokio::time::timeout(SNAPSHOT_AGAIN / 4, &mut sending).await;
            assert!(early.is_err(), "the consensus would send it again at once");
            assert!(pieces.try_recv().is_err(), "there is more after the refusal");
            closing.send(()).unwrap();
            let ended = sending.await;
            assert!(matches!(ended, Err(StreamingError::Closed(_))), "the pause keeps who wants to end it");
        });
    }

    #[test]
    fn a_connection_that_takes_longer_than_who_asked_waits_is_there_for_the_next_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let members = vec![(NodeId(2), listener.local_addr().unwrap())];
            let ring = GroupOptions { slots: 4, copies: 1 };
            let peers = Peers::new(Arc::new(CouncilOptions::new(NodeId(1), members, ring, String::new())));
            // The first caller gives up before the member greets.
            let (stream, _) = tokio::select! {
                _ = peers.client(NodeId(2)) => panic!("nobody greeted"),
                accepted = listener.accept() => accepted.unwrap(),
            };
            let greets = async {
                let welcome = |_: &[u8]| Ok(vec![VERSION]);
                let mut greeted = atoll_wire::Connection::accept(stream, limits(), welcome).await.unwrap();
                let asked = greeted.next().await.unwrap().unwrap();
                let who = Answer::Who { node: NodeId(2), seat: SeatId(2), ring: None, has_log: false };
                asked.responder.finish(&who.to_bytes()).await.unwrap();
                greeted.flush();
                greeted
            };
            let (next, _greeted) = tokio::join!(peers.client(NodeId(2)), greets);
            assert!(next.unwrap().is_open());
        });
    }
}

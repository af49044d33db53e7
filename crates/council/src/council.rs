//! A node's handle to the configuration group, and the thread behind it.

use crate::agent::{self, Agent, Command, PendingChange};
use crate::log::Log;
use crate::member::{self, Member};
use crate::{CouncilError, CouncilOptions, Listen, random_id};
use atoll_replica::{Change, Decision, Incarnation, Moment, NodeId, Proposal, Survived, Table};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc as blocking};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Returns the current moment of this node's clock.
pub type CouncilClock = Arc<dyn Fn() -> Moment + Send + Sync>;

/// What a node learns from the group. Events are ordered: each is delivered after those before it were
/// handled.
#[derive(Debug)]
pub enum CouncilEvent {
    /// This node has begun a life.
    Registered {
        /// The life.
        incarnation: Incarnation,
        /// The ring's number, drawn at random when it was founded: no other ring has it.
        ring: u64,
    },
    /// There is a newer table.
    Table(Arc<Table>),
    /// The group heard this node, and gives its place to no other for some time from then on.
    Heard {
        /// When this node asked, by its own clock.
        asked_at: Moment,
        /// The member that answered, which leads the group.
        leader: NodeId,
    },
    /// This node has left the ring: it has no copies any more and may stop. Tables still arrive.
    Left,
    /// The log of this member counts in the group: another member without a folder may be restarted.
    Seated,
    /// This member has stopped deciding until its node restarts, most likely because its log failed. The
    /// group has one member less.
    Failed(CouncilError),
    /// Whether this member waits for room on its disk; meanwhile the group has one member less.
    LacksRoom(bool),
    /// Something failed; whatever can be retried is.
    Trouble(CouncilError),
}

/// Receives events. Called on the thread of the group, so it must not block.
pub(crate) type Events = Box<dyn Fn(CouncilEvent) + Send + Sync>;

/// Most requests of this node that wait at a time.
const COMMANDS_MAX: usize = 4_096;

/// How long an operator's change may take.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// A node's handle to the configuration group. Dropping it stops the group's thread.
pub struct Council {
    commands: mpsc::Sender<Command>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    listens_on: Option<SocketAddr>,
    seen_at: Arc<AtomicU64>,
}

impl Council {
    /// Starts the thread: it registers this node with the group, retrying until it succeeds, and sends
    /// heartbeats from then on. A member also serves the other nodes.
    ///
    /// # Errors
    /// [`CouncilError`] if the options make no sense, if the log of a member cannot be read, or if it cannot
    /// listen.
    pub fn start(
        mut options: CouncilOptions,
        clock: CouncilClock,
        survived: Survived,
        events: Box<dyn Fn(CouncilEvent) + Send + Sync>,
    ) -> Result<Self, CouncilError> {
        options.validate()?;
        let listener = options.my_listen.take().map(listen).transpose()?;
        let listens_on =
            listener.as_ref().map(TcpListener::local_addr).transpose().map_err(system("listen"))?;
        let nonce = random_id::draw()?;
        let log = listener.as_ref().map(|_| Log::open(options.folder.as_deref())).transpose()?;
        let (log, held) = log.unzip();
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system("start the runtime of the configuration group"))?;
        let (options, events, seen_at) = (Arc::new(options), Arc::from(events), Arc::<AtomicU64>::default());
        let agent = Agent { options, clock, events, nonce, survived, seen_at: Arc::clone(&seen_at) };
        let thread = std::thread::Builder::new().name("council".to_owned()).spawn(move || {
            runtime.block_on(run(agent, log.zip(listener), received, stopped));
            drop(runtime);
            if let Some(held) = held {
                held.end();
            }
        });
        let thread = Some(thread.map_err(system("start the thread of the configuration group"))?);
        Ok(Self { commands, stop, thread, listens_on, seen_at })
    }

    /// The address that this member listens on.
    #[must_use]
    pub fn listens_on(&self) -> Option<SocketAddr> {
        self.listens_on
    }

    /// Reports that the node was at work at this moment of its clock. A node that has reported once must do
    /// so again within a second: while a node hangs this thread sends no heartbeats, and other nodes take
    /// over.
    pub fn at_work(&self, now: Moment) {
        self.seen_at.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Submits proposals of primaries, which are decided together as one entry of the log. Best effort: they
    /// may be lost, and are to be submitted again.
    pub fn propose(&self, proposals: Vec<Proposal>) {
        if self.commands.try_send(Command::Propose(proposals)).is_err() {
            tracing::debug!("proposals were dropped: too many wait");
        }
    }

    /// Submits a change and waits for the decision. For operators: [`Change::Leave`], [`Change::Stay`],
    /// [`Change::HandOver`], [`Change::Lead`], [`Change::Recover`], [`Change::Copy`], [`Change::Drop`] and
    /// [`Change::Keyspace`].
    ///
    /// # Errors
    /// [`CouncilError::Unanswered`] if it is unknown whether the change was made; with any other error it was
    /// not.
    pub fn change(&self, change: Change) -> Result<Decision, CouncilError> {
        let answered = self.send(change)?;
        match answered.recv_timeout(CHANGE_TIMEOUT) {
            Ok(decided) => decided,
            Err(RecvTimeoutError::Timeout) => Err(CouncilError::Unanswered),
            Err(RecvTimeoutError::Disconnected) => Err(CouncilError::Unanswered),
        }
    }

    fn send(
        &self,
        change: Change,
    ) -> Result<blocking::Receiver<Result<Decision, CouncilError>>, CouncilError> {
        if !member::may_be_asked(&change) {
            return Err(CouncilError::NotAsked { problem: "the group decides about this by itself" });
        }
        let (answer, answered) = blocking::sync_channel(1);
        let until = tokio::time::Instant::now() + CHANGE_TIMEOUT;
        match self.commands.try_send(Command::Change(PendingChange { change, until, answer })) {
            Ok(()) => Ok(answered),
            Err(mpsc::error::TrySendError::Full(_)) => Err(CouncilError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(CouncilError::Stopped),
        }
    }

    /// Like [`Council::change`], but does not wait: the outcome shows in the next table.
    ///
    /// # Errors
    /// [`CouncilError`] if the change was not submitted.
    pub fn ask(&self, change: Change) -> Result<(), CouncilError> {
        self.send(change).map(drop)
    }

    /// Asks for the newest table, which arrives as an event if it is newer than the last one.
    pub fn fetch_table(&self) {
        let _ = self.commands.try_send(Command::Fetch);
    }

    /// Stops the group's thread.
    pub fn stop(self) {}
}

impl Drop for Council {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        // A handle that is dropped inside of an event handler is on that very thread.
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

fn system(action: &'static str) -> impl Fn(std::io::Error) -> CouncilError {
    move |source| CouncilError::System { action, source }
}

fn listen(listen: Listen) -> Result<TcpListener, CouncilError> {
    let listener = match listen {
        Listen::Bound(listener) => listener,
        Listen::On(address) => {
            TcpListener::bind(address).map_err(|source| CouncilError::Listen { address, source })?
        }
    };
    listener.set_nonblocking(true).map_err(system("use the socket of the configuration group"))?;
    Ok(listener)
}

async fn run(
    agent: Agent,
    member: Option<(Log, TcpListener)>,
    commands: mpsc::Receiver<Command>,
    mut stopped: watch::Receiver<bool>,
) {
    let member = match member {
        None => None,
        Some((log, listener)) => match Member::start(Arc::clone(&agent.options), log, listener).await {
            Ok(member) => Some(member),
            Err(error) => {
                // The node can still ask the other members.
                (agent.events)(CouncilEvent::Failed(error));
                None
            }
        },
    };
    let watched = async {
        match &member {
            Some(member) => member.watched(&agent.events).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = watched => {}
        () = agent::run(&agent, commands) => {}
    }
    if let Some(member) = member {
        member.stop().await;
    }
}

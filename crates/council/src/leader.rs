//! The duties of the leading member: it decides changes in batches, confirms that it still leads, and watches
//! over nodes and slots.
//!
//! Every member carries this; only the leader has anything to do.
//!
//! Invariant: the question whether this member leads is answered by a round of questions to the others that
//! began after it was asked.
//! Invariant: the last copy of a slot is replaced only after the timeout, counted from the last heartbeat of
//! its node that may have been confirmed.

mod housekeeping;
mod nodes;

use crate::member::Shared;
use crate::types::{Changes, Decisions, weight_of};
use atoll_replica::{Change, Copies, Incarnation, NodeId, Proposal};
use housekeeping::keep_house;
use nodes::Nodes;
use openraft::error::{ClientWriteError, RaftError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Most batches of changes that wait.
const WAITING_MAX: usize = 1_024;

/// Most questions whether this member leads that wait.
const QUESTIONS_MAX: usize = 8_192;

/// Most proposals that wait, of all nodes together: one for each slot of about four nodes. Primaries propose
/// again several times a second until they see the result, and where the group is slower than that, the
/// repetitions must not pile up before everything else.
const PROPOSALS_WAITING_MAX: usize = 65_536;

/// The approximate limit on changes in one entry of the log.
const CHANGES_MAX: usize = 32_768;

/// How long the others may take to agree to an entry.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the others may take to confirm that this member still leads.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(500);

/// How long admissions of copies wait for others: each entry of the log makes a table that all nodes have to
/// process, and thousands of copies are made when a node joins.
const GATHER_TIME: Duration = Duration::from_millis(20);

/// Why changes were not made.
#[derive(Clone, Debug)]
pub(crate) enum NotDone {
    /// This member does not lead.
    NotLeader,
    /// Too much is waiting.
    Busy,
    /// They may have been made.
    Unknown(String),
}

/// The outcome of submitted changes.
pub(crate) type Submitted = Result<Decisions, NotDone>;

struct Batch {
    changes: Vec<Change>,
    answer: Option<oneshot::Sender<Submitted>>,
    /// The share of the limit on proposals that is held until they are decided.
    _room: Option<OwnedSemaphorePermit>,
}

impl Batch {
    fn weight(&self) -> usize {
        self.changes.iter().map(weight_of).sum()
    }

    /// Whether this batch may wait: no caller waits for it, and a copy that is admitted a little later delays
    /// no request.
    fn has_time(&self) -> bool {
        let has_time = |change: &Change| matches!(change, Change::Propose(Proposal::Admit { .. }));
        self.answer.is_none() && self.changes.iter().all(has_time)
    }
}

/// The handle to the leader's duties.
pub(crate) struct Duties {
    batches: mpsc::Sender<Batch>,
    room: Arc<Semaphore>,
    questions: mpsc::Sender<oneshot::Sender<bool>>,
    nodes: Arc<Mutex<Nodes>>,
}

/// The receiving ends of that handle.
pub(crate) struct Work {
    batches: mpsc::Receiver<Batch>,
    questions: mpsc::Receiver<oneshot::Sender<bool>>,
}

impl Duties {
    pub(crate) fn new() -> (Self, Work) {
        let (batches, batches_received) = mpsc::channel(WAITING_MAX);
        let (questions, questions_received) = mpsc::channel(QUESTIONS_MAX);
        let room = Arc::new(Semaphore::new(PROPOSALS_WAITING_MAX));
        let duties = Self { batches, room, questions, nodes: Arc::default() };
        (duties, Work { batches: batches_received, questions: questions_received })
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a heartbeat of a node.
    pub(crate) fn heard(&self, node: NodeId, incarnation: Incarnation) {
        let now = Instant::now();
        let mut nodes = self.nodes();
        let heard = nodes.heard.entry(node).or_insert((incarnation, now));
        if incarnation >= heard.0 {
            *heard = (incarnation, now);
            nodes.lost.remove(&node);
        }
    }

    /// Records that the connection of a node ended.
    pub(crate) fn lost(&self, node: NodeId, incarnation: Incarnation) {
        self.nodes().lost.insert(node, (incarnation, Instant::now()));
    }

    /// Records that the connection of a member that led ended.
    pub(crate) fn lost_leader(&self, node: NodeId, incarnation: Incarnation) {
        self.nodes().lost_leader = Some((node, incarnation, Instant::now()));
    }

    /// Whether no heartbeat of these nodes can have been confirmed within the time `since`, by this leader or
    /// the one before it.
    pub(crate) fn are_silent(&self, nodes: Copies, since: Duration) -> bool {
        let known = self.nodes();
        let now = Instant::now();
        let is_over = |at: Instant| now.saturating_duration_since(at) > since;
        known.led_since.is_some_and(is_over)
            && nodes.iter().all(|node| known.heard.get(&node).is_none_or(|(_, at)| is_over(*at)))
    }

    /// Whether a node is being given up.
    pub(crate) fn is_failing(&self, node: NodeId) -> bool {
        self.nodes().failing.contains(&node)
    }

    /// Submits changes behind those that wait, and waits for the decisions.
    pub(crate) async fn submit(&self, changes: Vec<Change>) -> Submitted {
        let (answer, answered) = oneshot::channel();
        let batch = Batch { changes, answer: Some(answer), _room: None };
        self.batches.try_send(batch).map_err(|_| NotDone::Busy)?;
        answered.await.unwrap_or(Err(NotDone::Unknown("the member stops".to_owned())))
    }

    /// Submits changes if there is room, and drops them otherwise: their senders propose again.
    pub(crate) fn propose(&self, changes: Vec<Change>) {
        let wanted = u32::try_from(changes.len().min(PROPOSALS_WAITING_MAX)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(wanted);
        let sent = room.is_ok_and(|room| {
            self.batches.try_send(Batch { changes, answer: None, _room: Some(room) }).is_ok()
        });
        if !sent {
            tracing::debug!("proposals were dropped: too many wait");
        }
    }

    /// Whether this member led at some time after this was called.
    pub(crate) async fn confirm(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send(answer).is_ok() && answered.await.unwrap_or(false)
    }
}

impl Work {
    pub(crate) fn begin(self, shared: &Arc<Shared>, tasks: &mut JoinSet<()>) {
        tasks.spawn(decide(Arc::clone(shared), self.batches));
        tasks.spawn(confirm(Arc::clone(shared), self.questions));
        tasks.spawn(keep_house(Arc::clone(shared)));
    }
}

/// Writes one entry of the log at a time, with all changes that wait by then.
async fn decide(shared: Arc<Shared>, mut batches: mpsc::Receiver<Batch>) {
    while let Some(first) = batches.recv().await {
        let mut together = gather(first, &mut batches).await;
        let changes = together.iter_mut().map(|batch| std::mem::take(&mut batch.changes));
        let (counts, changes): (Vec<usize>, Vec<Vec<Change>>) =
            changes.map(|changes| (changes.len(), changes)).unzip();
        let decided = write(&shared, changes.concat()).await;
        let mut from = 0;
        for (batch, count) in together.into_iter().zip(counts) {
            let own = decided
                .as_ref()
                .map(|decided| Decisions(decided.0.get(from..from + count).unwrap_or_default().to_vec()));
            from += count;
            if let Some(answer) = batch.answer {
                let _ = answer.send(own.map_err(Clone::clone));
            }
        }
    }
}

/// Collects all batches that wait; admissions of copies wait a little for others.
async fn gather(first: Batch, batches: &mut mpsc::Receiver<Batch>) -> Vec<Batch> {
    let (mut weight, until) = (first.weight(), Instant::now() + GATHER_TIME);
    let mut together = vec![first];
    while weight < CHANGES_MAX {
        let next = match batches.try_recv() {
            Ok(next) => next,
            Err(_) if !together.iter().all(Batch::has_time) => break,
            Err(_) => match tokio::time::timeout_at(until, batches.recv()).await {
                Ok(Some(next)) => next,
                _ => break,
            },
        };
        weight += next.weight();
        together.push(next);
    }
    together
}

async fn write(shared: &Shared, changes: Vec<Change>) -> Submitted {
    let written = shared.raft.client_write(Changes::new(changes));
    match tokio::time::timeout(WRITE_TIMEOUT, written).await {
        Ok(Ok(written)) => Ok(written.data),
        Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => Err(NotDone::NotLeader),
        Ok(Err(error)) => Err(NotDone::Unknown(error.to_string())),
        Err(_) => Err(NotDone::Unknown("the other members of the group did not answer in time".to_owned())),
    }
}

/// Asks the others whether this member leads, once for all questions that wait by then.
async fn confirm(shared: Arc<Shared>, mut questions: mpsc::Receiver<oneshot::Sender<bool>>) {
    while let Some(first) = questions.recv().await {
        let mut together = vec![first];
        while let Ok(question) = questions.try_recv() {
            together.push(question);
        }
        let confirmed = tokio::time::timeout(CONFIRM_TIMEOUT, shared.raft.ensure_linearizable()).await;
        let leads = matches!(confirmed, Ok(Ok(_)));
        for question in together {
            let _ = question.send(leads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CouncilOptions, MemberAddress};
    use atoll_replica::{Epoch, GroupOptions, Member, Slot, Table};

    const LIFE: Incarnation = Incarnation(1);

    /// The nodes that a leader gives up after `led_ms` milliseconds, in which it heard node 2 all the time
    /// and no other.
    fn given_up(before: &Duties, led_ms: u64) -> Vec<u32> {
        let (nobody, ring) = (Vec::<(NodeId, MemberAddress)>::new(), GroupOptions { slots: 1, copies: 1 });
        let options = CouncilOptions::new(NodeId(1), nobody, ring, String::new());
        let mut table = Table::empty(1);
        for node in [2, 3, 4] {
            let member = Member { incarnation: LIFE, ..Member::new("".into()) };
            table.members.insert(NodeId(node), member);
        }
        let began = Instant::now();
        before.nodes().begin(began, options.node_timeout());
        before.heard(NodeId(2), LIFE);
        let now = began + Duration::from_millis(led_ms);
        before.nodes().heard.values_mut().for_each(|(_, at)| *at = now);
        let silent = before.nodes().silent(&table, &options, now);
        silent.iter().map(|(node, _)| node.0).collect()
    }

    #[test]
    fn what_is_asked_for_again_and_again_does_not_pile_up() {
        let (duties, mut work) = Duties::new();
        let dismiss = Proposal::Dismiss { slot: Slot(1), epoch: Epoch(1), node: NodeId(2) };
        let again = || duties.propose(vec![Change::Propose(dismiss); 4_096]);
        (0..200).for_each(|_| again());
        let waiting: Vec<Batch> = std::iter::from_fn(|| work.batches.try_recv().ok()).collect();
        assert_eq!(
            waiting.iter().map(|batch| batch.changes.len()).sum::<usize>(),
            PROPOSALS_WAITING_MAX,
            "they wait until they are decided"
        );
        again();
        assert!(work.batches.try_recv().is_err(), "taking them out to decide them makes no room");
        drop(waiting);
        again();
        assert!(work.batches.try_recv().is_ok(), "there is room once they are decided");
        duties.propose(vec![Change::Propose(dismiss); 2 * PROPOSALS_WAITING_MAX]);
        assert!(work.batches.try_recv().is_ok(), "more than there is room for waits alone");
    }

    #[test]
    fn a_leader_whose_connection_ended_is_given_up_soon_by_the_next_one_and_nobody_else_is() {
        let duties = || {
            let (duties, _) = Duties::new();
            // Node 4 only asked the wrong member, and disconnected.
            duties.lost(NodeId(4), LIFE);
            duties.lost_leader(NodeId(3), LIFE);
            duties
        };
        assert_eq!(given_up(&duties(), 300), [0; 0], "it has as long to come back as anybody");
        assert_eq!(given_up(&duties(), 500), [3]);
        assert_eq!(given_up(&duties(), 1_600), [3, 4], "whoever was not lost is waited for");
        let back = duties();
        back.lost_leader(NodeId(2), LIFE);
        assert_eq!(given_up(&back, 500), [0; 0], "it is heard");
    }
}

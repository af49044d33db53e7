//! What the leading member does: decides changes in batches, makes sure that it still leads, and looks after nodes and slots.
//!
//! Each member carries this; only the one that leads has anything to do.
//!
//! Invariant: who asks whether this member leads is answered by a round of questions to the others that began later than that.
//! Invariant: no node is given up that this leader heard within the timeout, but one whose connection ended and that did not come
//! back, the leader before this one among them; nor any other before this leader has led for that long: whoever led before it may
//! have heard the node until then. Nor anybody because this leader reaches no other member: it cannot tell whose silence that is.
//! Invariant: nobody is put in the place of the last copy of a slot that may have been told within the timeout that it was heard.

use crate::CouncilOptions;
use crate::member::Shared;
use crate::types::{Changes, Decisions, weight_of};
use atoll_replica::{Change, Copies, Epoch, Incarnation, NodeId, Proposal, Slot, Table, Version};
use openraft::error::{ClientWriteError, RaftError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long a change waits to be tried again of which nobody knows what came of it.
const AGAIN_EVERY: Duration = Duration::from_millis(100);

/// Batches of changes that may wait.
const WAITING_MAX: usize = 1_024;

/// Questions whether this member leads that may wait.
const QUESTIONS_MAX: usize = 8_192;

/// Proposals that may wait, of all nodes together: one for each slot of some four nodes. Primaries ask again several times a
/// second until they see what they want. Where the group is slower than that, what was asked for again must not pile up in
/// front of everything else.
const PROPOSALS_WAITING_MAX: usize = 65_536;

/// About how many changes become one entry of the log.
const CHANGES_MAX: usize = 32_768;

/// How long the others may take to agree to an entry.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the others may take to say that this member still leads.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(500);

/// How long copies that are to be counted in wait for others: each entry of the log is a table that all nodes have to go
/// through, and thousands of copies are made when a node joins.
const GATHER: Duration = Duration::from_millis(20);

/// How often slots are looked at; and how soon again where something was changed, which is a few slots at a time: what it sets off
/// on the nodes, a thousand copies at once say, keeps their clients waiting.
const PLAN_EVERY: Duration = Duration::from_secs(1);
const PLAN_ON: Duration = Duration::from_millis(250);

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

/// What came of changes.
pub(crate) type Submitted = Result<Decisions, NotDone>;

struct Batch {
    changes: Vec<Change>,
    answer: Option<oneshot::Sender<Submitted>>,
    /// The room that proposals take until they are decided.
    _room: Option<OwnedSemaphorePermit>,
}

impl Batch {
    fn weight(&self) -> usize {
        self.changes.iter().map(weight_of).sum()
    }

    /// Whether nobody waits for these changes: a copy that is counted in a bit later keeps no request waiting.
    fn has_time(&self) -> bool {
        let has_time = |change: &Change| matches!(change, Change::Propose(Proposal::Admit { .. }));
        self.answer.is_none() && self.changes.iter().all(has_time)
    }
}

/// The door to what the leader does.
pub(crate) struct Duties {
    batches: mpsc::Sender<Batch>,
    room: Arc<Semaphore>,
    questions: mpsc::Sender<oneshot::Sender<bool>>,
    nodes: Arc<Mutex<Nodes>>,
}

/// What is to be done behind that door.
pub(crate) struct Work {
    batches: mpsc::Receiver<Batch>,
    questions: mpsc::Receiver<oneshot::Sender<bool>>,
}

/// What this leader knows of nodes.
#[derive(Debug, Default)]
struct Nodes {
    /// When each was heard last, and in which life.
    heard: BTreeMap<NodeId, (Incarnation, Instant)>,
    /// Whose connection ended, when, and in which life; those who came back aside.
    lost: BTreeMap<NodeId, (Incarnation, Instant)>,
    /// The same of whoever led before.
    lost_leader: Option<(NodeId, Incarnation, Instant)>,
    /// Since when this member leads.
    led_since: Option<Instant>,
    /// Who is being given up now.
    failing: BTreeSet<NodeId>,
    /// Since when each is down, as far as this leader knows.
    down: BTreeMap<NodeId, Instant>,
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

    /// A node is there.
    pub(crate) fn heard(&self, node: NodeId, incarnation: Incarnation) {
        let now = Instant::now();
        let mut nodes = self.nodes();
        let heard = nodes.heard.entry(node).or_insert((incarnation, now));
        if incarnation >= heard.0 {
            *heard = (incarnation, now);
            nodes.lost.remove(&node);
        }
    }

    /// The connection of a node ended.
    pub(crate) fn lost(&self, node: NodeId, incarnation: Incarnation) {
        self.nodes().lost.insert(node, (incarnation, Instant::now()));
    }

    /// The connection of a member that led ended.
    pub(crate) fn lost_leader(&self, node: NodeId, incarnation: Incarnation) {
        self.nodes().lost_leader = Some((node, incarnation, Instant::now()));
    }

    /// Whether none of these nodes can have been told, by this leader or the one before it, that it was heard since a time ago.
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

    /// Has changes decided, behind those that wait.
    pub(crate) async fn submit(&self, changes: Vec<Change>) -> Submitted {
        let (answer, answered) = oneshot::channel();
        let batch = Batch { changes, answer: Some(answer), _room: None };
        self.batches.try_send(batch).map_err(|_| NotDone::Busy)?;
        answered.await.unwrap_or(Err(NotDone::Unknown("the member stops".to_owned())))
    }

    /// Has changes decided, if there is room. Where there is none they are dropped: whoever wants them asks again.
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
        tasks.spawn(look_after(Arc::clone(shared)));
    }
}

/// Makes one entry of the log at a time, of all that waits by then.
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

/// All that waits by now; copies that are to be counted in wait a little for others.
async fn gather(first: Batch, batches: &mut mpsc::Receiver<Batch>) -> Vec<Batch> {
    let (mut weight, until) = (first.weight(), Instant::now() + GATHER);
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

/// Asks the others whether this member leads, for all who want to know by then at once.
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

/// What the leader remembers while it leads.
struct Reign {
    since: Instant,
    looked_at: Instant,
    planned_at: Option<Instant>,
    planned_for: Option<Version>,
    /// Whether anything was to be changed then.
    goes_on: bool,
    /// Whether slots were to be handed over then.
    hands_over: bool,
}

async fn look_after(shared: Arc<Shared>) {
    let every = shared.options.node_timeout() / 30;
    let mut reign: Option<Reign> = None;
    loop {
        tokio::time::sleep(every).await;
        if !shared.leads() {
            reign = None;
            shared.duties.nodes().led_since = None;
            continue;
        }
        let now = Instant::now();
        let reign = match &mut reign {
            Some(reign) => reign,
            none => {
                // What was decided before has to be known here before anything is decided about it.
                if !shared.duties.confirm().await {
                    continue;
                }
                let now = Instant::now();
                shared.duties.nodes().begin(now, shared.options.node_timeout());
                none.insert(Reign {
                    since: now,
                    looked_at: now,
                    planned_at: None,
                    planned_for: None,
                    goes_on: false,
                    hands_over: false,
                })
            }
        };
        if shared.is_alone() {
            reign.looked_at = now;
            shared.duties.nodes().begin_anew(now);
            continue;
        }
        let paused = now.saturating_duration_since(reign.looked_at).saturating_sub(every);
        reign.looked_at = now;
        if paused > every * 4 {
            // This member stood still, and with it whatever nodes said meanwhile: their silence was ours.
            shared.duties.nodes().forgive(paused);
        }
        let table = shared.machine.table();
        shared.give_up_silent(&table, now);
        shared.plan(&table, reign, now).await;
    }
}

impl Nodes {
    /// This member leads from now on. If the connection of the leader before it ended just now, most likely its process did; it has
    /// to be heard within the time that anybody else has. Nothing else counts that was seen before.
    fn begin(&mut self, now: Instant, recent: Duration) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < recent;
        let lost = self.lost_leader.filter(|(.., at)| is_recent(*at));
        let lost = lost.map(|(node, life, _)| (node, (life, now)));
        *self = Self { led_since: Some(now), lost: lost.into_iter().collect(), ..Self::default() };
    }

    /// Everybody has as long to be heard as when this member began to lead.
    fn begin_anew(&mut self, now: Instant) {
        self.led_since = Some(now);
        self.lost.clear();
    }

    fn forgive(&mut self, time: Duration) {
        self.heard.values_mut().chain(self.lost.values_mut()).for_each(|(_, at)| *at += time);
    }

    /// Who was not heard for too long.
    fn silent(&mut self, table: &Table, options: &CouncilOptions, now: Instant) -> Vec<Change> {
        let mut silent = Vec::new();
        let led_since = self.led_since.unwrap_or(now);
        for (&node, member) in table.members.iter() {
            if !member.is_up {
                self.down.entry(node).or_insert(now);
                continue;
            }
            self.down.remove(&node);
            let in_this_life = self.heard.get(&node).filter(|(life, _)| *life >= member.incarnation);
            let heard_at = in_this_life.map_or(led_since, |(_, at)| *at).max(led_since);
            let lost = self.lost.get(&node).filter(|(life, _)| *life >= member.incarnation);
            let is_lost =
                lost.is_some_and(|(_, at)| now.saturating_duration_since(*at) > options.lost_timeout());
            let is_silent = now.saturating_duration_since(heard_at) > options.node_timeout();
            if (is_silent || is_lost) && self.failing.insert(node) {
                silent.push(Change::Fail { node, incarnation: member.incarnation });
            }
        }
        silent
    }

    fn gone(&self, after: Duration, now: Instant) -> Vec<NodeId> {
        let gone = self.down.iter().filter(|(_, since)| now.saturating_duration_since(**since) > after);
        gone.map(|(node, _)| *node).collect()
    }
}

impl Shared {
    /// Whether so few members answered for so long that another one may lead by now.
    fn is_alone(&self) -> bool {
        let metrics = self.raft.data_metrics();
        let since = metrics.borrow().millis_since_quorum_ack;
        since.is_none_or(|since| since > self.options.election_ms)
    }

    fn give_up_silent(self: &Arc<Self>, table: &Table, now: Instant) {
        let silent = self.duties.nodes().silent(table, &self.options, now);
        if silent.is_empty() {
            return;
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let nodes: Vec<_> = silent
                .iter()
                .filter_map(|change| match change {
                    Change::Fail { node, .. } => Some(*node),
                    _ => None,
                })
                .collect();
            tracing::info!(?nodes, "nodes were not heard for too long");
            // Until it is known what came of it, nobody is told that the node was heard, but by way of the log.
            while matches!(shared.submit(silent.clone()).await, Err(NotDone::Unknown(_))) {
                // Where the log cannot be written any more this comes back at once.
                tokio::time::sleep(AGAIN_EVERY).await;
            }
            shared.duties.nodes().failing.retain(|node| !nodes.contains(node));
        });
    }

    async fn plan(&self, table: &Table, reign: &mut Reign, now: Instant) {
        let is_unfounded = table.slots.any(|slot| slot.epoch == Epoch(0));
        let every = if reign.goes_on { PLAN_ON } else { PLAN_EVERY };
        let is_time = reign.planned_at.is_none_or(|at| now >= at + every);
        // Slots are handed over a few at a time: the next ones follow as soon as these are.
        let is_handed_over = reign.hands_over && !table.slots.any(|slot| slot.successor.is_some());
        let is_wanted = (is_unfounded || is_handed_over) && reign.planned_for != Some(table.version);
        if !is_time && !is_wanted {
            return;
        }
        reign.planned_at = Some(now);
        reign.planned_for = Some(table.version);
        let up = table.members.values().filter(|member| member.is_up).count();
        let waited = now >= reign.since + Duration::from_millis(self.options.founding_wait_ms);
        let may_found = up >= self.options.founding_nodes || waited;
        let gone = self.duties.nodes().gone(Duration::from_millis(self.options.gone_after_ms), now);
        let mut changes = self.machine.group().plan(&gone);
        changes.retain(|change| may_found || !matches!(change, Change::Found { .. }));
        reign.goes_on = !changes.is_empty();
        reign.hands_over = changes.iter().any(|change| matches!(change, Change::HandOver { .. }));
        if changes.is_empty() {
            return;
        }
        tracing::debug!(changes = changes.len(), first = ?slot_of(&changes), "slots are placed");
        if let Err(error) = self.submit(changes).await {
            tracing::debug!(?error, "slots were not placed");
        }
    }
}

fn slot_of(changes: &[Change]) -> Option<Slot> {
    match changes.first()? {
        Change::Found { slot, .. } | Change::Copy { slot, .. } | Change::Drop { slot, .. } => Some(*slot),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_replica::{GroupOptions, Member};

    const LIFE: Incarnation = Incarnation(1);

    /// Who is given up by a leader of so many milliseconds that heard node 2 all the time, and nobody else.
    fn given_up(before: &Duties, led_ms: u64) -> Vec<u32> {
        let options =
            CouncilOptions::new(NodeId(1), Vec::new(), GroupOptions { slots: 1, copies: 1 }, String::new());
        let mut table = Table::empty(1);
        for node in [2, 3, 4] {
            let (is_up, is_leaving, address) = (true, false, String::new());
            table.members.insert(
                NodeId(node),
                Member { incarnation: LIFE, is_up, is_leaving, address: address.into() },
            );
        }
        let began = Instant::now();
        before.nodes().begin(began, options.node_timeout());
        before.heard(NodeId(2), LIFE);
        let now = began + Duration::from_millis(led_ms);
        before.nodes().heard.values_mut().for_each(|(_, at)| *at = now);
        let silent = before.nodes().silent(&table, &options, now);
        let node = |change: &Change| match change {
            Change::Fail { node, .. } => node.0,
            _ => 0,
        };
        silent.iter().map(node).collect()
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
            // Node 4 only asked the wrong member, and hung up.
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

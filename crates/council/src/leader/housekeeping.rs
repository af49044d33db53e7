//! The leader's periodic duties: giving up silent nodes, and placing slots.
//!
//! Invariant: they begin once the others have confirmed that this member leads, so that it knows everything
//! decided before.

use super::NotDone;
use crate::member::Shared;
use atoll_replica::{Change, Epoch, Slot, Table, Version};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The pause before a change is retried whose outcome is unknown.
const AGAIN_EVERY: Duration = Duration::from_millis(100);

/// How often slots are planned, and how soon again after a plan with changes. A plan changes only a few
/// slots: what it sets off on the nodes, such as a thousand copies at once, delays their clients.
const PLAN_EVERY: Duration = Duration::from_secs(1);
const PLAN_ON: Duration = Duration::from_millis(250);

/// What the leader remembers while it leads.
struct Reign {
    since: Instant,
    looked_at: Instant,
    planned_at: Option<Instant>,
    planned_for: Option<Version>,
    /// Whether the last plan had changes.
    goes_on: bool,
    /// Whether the last plan handed slots over.
    hands_over: bool,
    /// The task that submits the last plan. The loop does not wait for it: otherwise the silence of a node
    /// would be noticed only after a slow disk had taken an entry, and that node would stay primary of its
    /// slots for as long.
    placing: Option<JoinHandle<()>>,
}

/// Runs for as long as this member does; acts while it leads.
pub(super) async fn keep_house(shared: Arc<Shared>) {
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
                // Earlier decisions have to be known here before anything is decided.
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
                    placing: None,
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
            // This member stood still, and did not process what nodes sent meanwhile: their silence is its
            // own.
            shared.duties.nodes().forgive(paused, now);
        }
        let table = shared.machine.table();
        shared.give_up_silent(&table, now);
        shared.plan(&table, reign, now);
    }
}

impl Shared {
    /// Whether too few members have answered for so long that another one may lead by now.
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
            let nodes: Vec<_> = silent.iter().map(|(node, _)| *node).collect();
            tracing::info!(?nodes, "nodes were silent for too long");
            let change = match silent[..] {
                [(node, incarnation)] => Change::Fail { node, incarnation },
                _ => Change::FailTogether { nodes: silent },
            };
            // Until the outcome is known, heartbeats of these nodes are confirmed only by way of the log.
            while matches!(shared.submit(vec![change.clone()]).await, Err(NotDone::Unknown(_))) {
                // Returns at once where the log cannot be written any more.
                tokio::time::sleep(AGAIN_EVERY).await;
            }
            shared.duties.nodes().failing.retain(|node| !nodes.contains(node));
        });
    }

    /// Plans the placement of slots, if it is time and the last plan is decided.
    fn plan(self: &Arc<Self>, table: &Table, reign: &mut Reign, now: Instant) {
        if reign.placing.as_ref().is_some_and(|placing| !placing.is_finished()) {
            return;
        }
        let is_unfounded = table.slots.any(|slot| slot.epoch == Epoch(0));
        let every = if reign.goes_on { PLAN_ON } else { PLAN_EVERY };
        let is_time = reign.planned_at.is_none_or(|at| now >= at + every);
        // Slots are handed over a few at a time: the next ones follow as soon as these are done.
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
        let shared = Arc::clone(self);
        reign.placing = Some(tokio::spawn(async move {
            if let Err(error) = shared.submit(changes).await {
                tracing::debug!(?error, "slots were not placed");
            }
        }));
    }
}

fn slot_of(changes: &[Change]) -> Option<Slot> {
    match changes.first()? {
        Change::Found { slot, .. } | Change::Copy { slot, .. } | Change::Drop { slot, .. } => Some(*slot),
        _ => None,
    }
}

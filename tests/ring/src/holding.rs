//! Gathering of requests with a latency class: a node holds them until they can be executed together.
//!
//! Invariant: held requests exist only here; when the process ends, none of them has happened.

use crate::case::Flaw;
use crate::clients::ClientReply;
use crate::node::PendingRequest;
use crate::operation::Work;
use crate::queue::{Event, ToNode};
use crate::settings::one_of;
use crate::world::World;
use atoll_linearizability::{Action, Answer};
use atoll_replica::{Moment, NodeId, Sequence};
use fastrand::Rng;

/// A held request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldRequest {
    waiting: PendingRequest,
    arrived: Moment,
    slack_us: u64,
}

/// The latency that each client tolerates. In two seeds of three no client has any, and the run is as it
/// would be without gathering.
pub(crate) fn draw_slacks(seed: u64, clients: usize, is_planned: bool) -> Vec<Option<u64>> {
    if seed % 3 != 2 {
        return vec![None; clients];
    }
    // A separate generator, so that the seed's other decisions do not depend on this one.
    let mut random = Rng::with_seed(!seed);
    let long_us = if is_planned { 50_000 } else { 500_000 };
    (0..clients).map(|_| one_of(&mut random, &[None, Some(50_000), Some(long_us)])).collect()
}

impl World {
    /// Holds a request.
    pub(crate) fn hold(&mut self, node: NodeId, client: usize, waiting: PendingRequest, slack_us: u64) {
        let now = self.node(node).moment(self.now);
        let Some(process) = self.node_mut(node).begun() else { return };
        process.gathering.hold(now, client as u64, slack_us);
        process.holding.push(HeldRequest { waiting, arrived: now, slack_us });
        self.counts.bump("requests_held");
        if self.flaw == Some(Flaw::HeldAcknowledged) {
            self.acknowledge_early(node, waiting);
        }
        self.release(node);
        self.look_again(node);
    }

    /// Passes the due requests to the protocol, all at once.
    pub(crate) fn release(&mut self, node: NodeId) {
        let now = self.node(node).moment(self.now);
        let Some(process) = self.node_mut(node).begun() else { return };
        let due = process.gathering.take_due(now);
        if due.is_empty() {
            return;
        }
        let released = std::mem::take(&mut process.holding);
        if released.len() > 1 {
            self.counts.bump("requests_gathered");
        }
        for HeldRequest { waiting, arrived, slack_us } in released {
            // A machine that stood still is late with everything.
            if self.is_planned && now > arrived.after(slack_us) {
                self.break_promise(format!("{node} lets operation {} wait for too long", waiting.operation));
            }
            if self.flaw == Some(Flaw::HeldForgotten) && !self.is_leader(node, waiting) {
                continue;
            }
            self.request(node, waiting);
        }
    }

    /// Schedules the next check, in case no other request arrives before.
    fn look_again(&mut self, node: NodeId) {
        if self.flaw == Some(Flaw::DeadlineIgnored) {
            return;
        }
        let now = self.node(node).moment(self.now);
        let life = self.node(node).life;
        let Some(process) = self.node_mut(node).begun() else { return };
        let Some(at) = process.gathering.due_at() else { return };
        let wait_us = self.node(node).clock.true_us(at.0.saturating_sub(now.0)) + 1;
        self.after(wait_us, Event::ToNode { node, what: ToNode::Gathered { life } });
    }

    /// The timer says that a request has waited long enough. If the clock stood still meanwhile, it is
    /// checked again.
    pub(crate) fn gathered(&mut self, node: NodeId) {
        self.release(node);
        self.look_again(node);
    }

    /// The process ends, and none of these requests has happened.
    pub(crate) fn let_go(&mut self, node: NodeId, holding: Vec<HeldRequest>) {
        for HeldRequest { waiting, .. } in holding {
            if let Some((client, attempt)) = waiting.client.filter(|_| self.is_planned) {
                self.reply(node, client, waiting.operation, attempt, ClientReply::NobodyListens);
            }
        }
    }

    fn is_leader(&self, node: NodeId, waiting: PendingRequest) -> bool {
        let process = self.node(node).process.as_ref();
        process.is_some_and(|process| process.replica.leads(waiting.slot))
    }

    /// A planted bug: a held write counts as done.
    fn acknowledge_early(&mut self, node: NodeId, waiting: PendingRequest) {
        let work = &self.operations[waiting.operation].work;
        if let (Work::Write { action: Action::Put(..), .. }, Some((client, attempt))) = (work, waiting.client)
        {
            let told = ClientReply::Answer(Answer::Done, Sequence(0));
            self.reply(node, client, waiting.operation, attempt, told);
        }
    }
}

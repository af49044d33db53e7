//! A node's service to clients: it passes requests to the protocol, and answers from the cells.

use crate::case::Flaw;
use crate::clients::ClientReply;
use crate::node::{LiveSlot, PendingRequest};
use crate::operation::{Operation, Work, body_of};
use crate::queue::Event;
use crate::world::{Phase, World, say};
use atoll_linearizability::{Action, Answer};
use atoll_replica::{Input, NodeId, Refusal, Sequence, Slot, Ticket};

impl World {
    /// A client sends a request.
    pub(crate) fn serve(&mut self, node: NodeId, client: usize, operation: usize, attempt: u32) {
        let slot = self.operations[operation].slot;
        if self.node_mut(node).begun().is_none() {
            // The node does not listen: the client may or may not be told so.
            if self.is_planned || self.random.bool() {
                self.reply(node, client, operation, attempt, ClientReply::NobodyListens);
            }
            return;
        }
        self.expire(node, slot);
        let waiting = PendingRequest { slot, operation, client: Some((client, attempt)) };
        if self.flaw == Some(Flaw::ToldBeforeCommitted) {
            self.tell_early(node, slot, operation);
        }
        match self.slacks.get(client).copied().flatten() {
            Some(slack_us) => self.hold(node, client, waiting, slack_us),
            None => self.request(node, waiting),
        }
    }

    /// Passes a request to the protocol.
    pub(crate) fn request(&mut self, node: NodeId, waiting: PendingRequest) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let date_ms = self.node(node).clock.date_ms(self.now);
        let Operation { work, slot, .. } = &self.operations[waiting.operation];
        let (slot, keys) = (*slot, work.keys());
        let input = match work.is_write() {
            true => {
                let body = body_of(waiting.operation);
                Input::Write { slot, ticket, time_ms: date_ms, body, keys }
            }
            false => Input::Read { slot, ticket, keys },
        };
        if let Some(process) = self.node_mut(node).begun() {
            process.waiting.insert(ticket, waiting);
        }
        self.give(node, input);
    }

    fn take_waiting(&mut self, node: NodeId, ticket: Ticket) -> Option<PendingRequest> {
        self.node_mut(node).process.as_mut()?.waiting.remove(&ticket)
    }

    /// The protocol says that the cells may be read now.
    pub(crate) fn read(&mut self, node: NodeId, ticket: Ticket) {
        let Some(waiting) = self.take_waiting(node, ticket) else {
            return self.break_promise(format!("{node} reads for nobody"));
        };
        self.has_given_up(node, waiting.slot);
        let is_stale = self.flaw == Some(Flaw::StaleBehindLoss)
            && self.phase == Phase::Chaos
            && self.is_behind_loss(waiting.slot);
        let Self { nodes, operations, .. } = self;
        let process = nodes[node.0 as usize - 1].process.as_mut();
        let Some(live) = process.and_then(|process| process.slots.get_mut(&waiting.slot)) else { return };
        let work = &operations[waiting.operation].work;
        let seen = live.applied.sequence;
        let answer = match work {
            Work::Read(action) => {
                let former = live.former.as_ref().filter(|_| is_stale);
                Some(former.unwrap_or(&live.state).read(action))
            }
            Work::Wait { cell, value } => {
                let is_there = live.state.cells.get(cell) == Some(value);
                is_there.then(|| Answer::Value(Some(value.clone())))
            }
            _ => None,
        };
        match answer {
            Some(answer) => self.answer(node, waiting, seen, answer),
            None => {
                live.watchers.push(waiting);
                self.counts.bump("waits_that_waited");
            }
        }
    }

    /// A write is committed, with this answer.
    pub(crate) fn answer_write(&mut self, node: NodeId, ticket: Ticket, at: Sequence, answer: Answer) {
        match self.take_waiting(node, ticket) {
            Some(waiting) => self.answer(node, waiting, at, answer),
            None => self.break_promise(format!("{node} writes for nobody")),
        }
    }

    fn answer(&mut self, node: NodeId, waiting: PendingRequest, seen: Sequence, answer: Answer) {
        let Some((client, attempt)) = waiting.client else { return };
        self.reply(node, client, waiting.operation, attempt, ClientReply::Answer(answer, seen));
    }

    pub(crate) fn answer_unknown(&mut self, node: NodeId, ticket: Ticket) {
        if let Some(PendingRequest { operation, client: Some((client, attempt)), .. }) =
            self.take_waiting(node, ticket)
        {
            self.counts.bump("writes_unknown_to_a_former_primary");
            self.reply(node, client, operation, attempt, ClientReply::Lost);
        }
    }

    pub(crate) fn refuse(&mut self, node: NodeId, ticket: Ticket, refusal: Refusal) {
        let Some(waiting) = self.take_waiting(node, ticket) else {
            return self.break_promise(format!("{node} refuses somebody twice"));
        };
        self.counts.bump(match refusal {
            Refusal::Moved { .. } => "refused_moved",
            Refusal::NoPrimary => "refused_no_primary",
            Refusal::TooFewCopies { .. } => "refused_too_few_copies",
            Refusal::Busy => "refused_busy",
            Refusal::NoLease => "refused_no_lease",
        });
        match waiting.client {
            Some((client, attempt)) => {
                self.reply(node, client, waiting.operation, attempt, ClientReply::Refused(refusal));
            }
            None => self.ask_to_expire_again(node, waiting),
        }
    }

    /// Sends a client its answer.
    pub(crate) fn reply(
        &mut self,
        node: NodeId,
        client: usize,
        operation: usize,
        attempt: u32,
        told: ClientReply,
    ) {
        if let Some(at) = self.client_link(client, node, false) {
            self.queue.push(at, Event::ToClient { client, operation, attempt, told });
        }
    }

    // Waiting for a value.

    /// Answers clients that wait for a value that is there now.
    pub(crate) fn tell_watchers(&mut self, node: NodeId, slot: Slot) {
        let Self { nodes, operations, .. } = self;
        let process = nodes[node.0 as usize - 1].process.as_mut();
        let Some(live) = process.and_then(|process| process.slots.get_mut(&slot)) else { return };
        if live.watchers.is_empty() {
            return;
        }
        live.watchers.retain(|waiting| operations[waiting.operation].ended.is_none());
        let (cells, seen) = (&live.state.cells, live.applied.sequence);
        let is_met = |waiting: &PendingRequest| match &operations[waiting.operation].work {
            Work::Wait { cell, value } => cells.get(cell) == Some(value),
            _ => false,
        };
        let (met, unmet): (Vec<_>, Vec<_>) = std::mem::take(&mut live.watchers).into_iter().partition(is_met);
        live.watchers = unmet;
        for waiting in met {
            self.counts.bump("waits_woken");
            self.answer_wait(node, waiting, seen);
        }
    }

    fn answer_wait(&mut self, node: NodeId, waiting: PendingRequest, seen: Sequence) {
        if let Work::Wait { value, .. } = &self.operations[waiting.operation].work {
            let answer = Answer::Value(Some(value.clone()));
            self.answer(node, waiting, seen, answer);
        }
    }

    /// A planted bug: a requested value counts as present.
    fn tell_early(&mut self, node: NodeId, slot: Slot, operation: usize) {
        let Work::Write { action: Action::Put(cells, value), .. } = &self.operations[operation].work else {
            return;
        };
        let (cells, value) = (cells.clone(), value.clone());
        let Self { nodes, operations, .. } = self;
        let process = nodes[node.0 as usize - 1].process.as_mut();
        let Some(live) = process.and_then(|process| process.slots.get_mut(&slot)) else { return };
        let is_met = |waiting: &PendingRequest| match &operations[waiting.operation].work {
            Work::Wait { cell, value: wanted } => cells.contains(cell) && *wanted == value,
            _ => false,
        };
        let (met, unmet): (Vec<_>, Vec<_>) = std::mem::take(&mut live.watchers).into_iter().partition(is_met);
        live.watchers = unmet;
        let seen = live.applied.sequence;
        met.into_iter().for_each(|waiting| self.answer_wait(node, waiting, seen));
    }

    /// Redirects clients that wait here.
    pub(crate) fn dismiss_watchers(&mut self, node: NodeId, watchers: Vec<PendingRequest>) {
        for PendingRequest { operation, client, .. } in watchers {
            if let Some((client, attempt)) = client {
                self.reply(node, client, operation, attempt, ClientReply::Refused(Refusal::NoPrimary));
            }
        }
    }

    // Cells that expire.

    /// Expires cells in all slots as time passes.
    pub(crate) fn expire_all(&mut self, node: NodeId) {
        for slot in self.slot_ids() {
            self.expire(node, slot);
        }
    }

    /// Requests the expiry of cells whose time is over by this node's clock, if it leads the slot.
    pub(crate) fn expire(&mut self, node: NodeId, slot: Slot) {
        let now = self.node(node).moment(self.now);
        let Some(process) = self.node_mut(node).begun() else { return };
        let Some(live) = process.slots.get_mut(&slot).filter(|live| live.leads) else { return };
        let due = live.due(now);
        for (cell, put) in due {
            let operation = self.operations.len();
            let called = self.next_moment();
            let work = Work::Expire { cell, put };
            say!(self, "{node}: operation {operation} in slot {}: {work:?}", slot.0);
            self.counts.bump(work.name());
            self.operations.push(Operation {
                slot,
                work,
                called,
                took: (self.now, None),
                ended: None,
                place: None,
                applied: None,
            });
            self.request(node, PendingRequest { slot, operation, client: None });
        }
    }

    fn ask_to_expire_again(&mut self, node: NodeId, waiting: PendingRequest) {
        let Self { nodes, operations, .. } = self;
        let process = nodes[node.0 as usize - 1].process.as_mut();
        let Some(live) = process.and_then(|process| process.slots.get_mut(&waiting.slot)) else { return };
        if let Work::Expire { cell, put } = operations[waiting.operation].work
            && let Some(deadline) = live.deadlines.get_mut(&cell)
            && deadline.put == put
        {
            deadline.asked_at = None;
        }
    }
}

/// After this long the expiry of a cell that is still there is requested again.
const EXPIRE_AGAIN_US: u64 = 500_000;

impl LiveSlot {
    /// Cells whose time is over and whose expiry was not requested lately.
    fn due(&mut self, now: atoll_replica::Moment) -> Vec<(u8, usize)> {
        let mut due = Vec::new();
        for (&cell, deadline) in &mut self.deadlines {
            let is_asked = deadline.asked_at.is_some_and(|at| now < at.after(EXPIRE_AGAIN_US));
            if now >= deadline.due && !is_asked {
                deadline.asked_at = Some(now);
                due.push((cell, deadline.put));
            }
        }
        due
    }
}

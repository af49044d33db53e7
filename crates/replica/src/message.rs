//! What nodes say to each other, and what goes into and comes out of `Replica`.
//!
//! Invariant: messages may be lost, doubled, delayed and reordered; nothing but progress depends on them.

use crate::{Epoch, Incarnation, LogRun, Moment, NodeId, Position, Sequence, Slot, Table, Ticket, Version};
use std::sync::Arc;

/// A write in the log of a slot. What it does is for whoever applies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub position: Position,
    /// The date by the primary's clock, in milliseconds since 1970; never falls within a slot.
    pub time_ms: u64,
    /// The request.
    pub body: Arc<[u8]>,
}

/// What one node says to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// About the log of one slot.
    Slot {
        /// The slot.
        slot: Slot,
        /// The epoch of whoever says it.
        epoch: Epoch,
        /// What.
        about: SlotMessage,
    },
    /// A primary asks for the right to answer reads for a while.
    LeaseAsk {
        /// The life of whoever asks; comes back with the answer.
        asked_in: Incarnation,
        /// Counts its questions; comes back with the answer.
        round: u64,
        /// When it asked, by its own clock; comes back with the answer.
        asked_at: Moment,
        /// The newest table that it knows: it serves nothing that this table takes from it.
        known: Version,
    },
    /// Who says this accepts no table, for the time of a lease, that takes a slot from whoever asked.
    LeaseGrant {
        /// The life of whoever asked.
        asked_in: Incarnation,
        /// Which question.
        round: u64,
        /// When it was asked, by the clock of whoever asked.
        asked_at: Moment,
        /// The table that it had accepted when it promised.
        version: Version,
    },
    /// There is a newer table than whoever gets this seems to have.
    TableIs {
        /// The newer one.
        version: Version,
    },
}

/// What is said about the log of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotMessage {
    /// The primary: behind this entry come these; up to here all is committed.
    Append {
        /// The entry before them.
        previous: Position,
        /// The entries, in order.
        entries: Vec<Entry>,
        /// All up to here is committed.
        committed: Sequence,
    },
    /// A copy: I have your log up to here, at its durability class.
    Appended {
        /// The last entry that is logged.
        matched: Sequence,
    },
    /// A copy: I do not have the entry before those; begin behind this one.
    Rejected {
        /// The last place at which both logs may be the same; 0 where this copy has nothing, or nothing any
        /// more.
        hint: Sequence,
    },
}

/// What comes in.
#[derive(Clone, Debug)]
pub enum Input {
    /// A table, from the configuration group; older ones than are known do nothing.
    Table(Arc<Table>),
    /// A message.
    Message {
        /// Who said it.
        from: NodeId,
        /// In which life.
        incarnation: Incarnation,
        /// What.
        message: Message,
    },
    /// A client writes.
    Write {
        /// Where.
        slot: Slot,
        /// Which request.
        ticket: Ticket,
        /// The date by this node's clock, in milliseconds since 1970.
        time_ms: u64,
        /// What is to be applied.
        body: Arc<[u8]>,
        /// A number for each key that it may change, the same for the same key; none where it may change all.
        keys: Vec<u64>,
    },
    /// A client reads.
    Read {
        /// Where.
        slot: Slot,
        /// Which request.
        ticket: Ticket,
        /// A number for each key that it reads.
        keys: Vec<u64>,
    },
    /// The log of this node holds this entry, and all before it, at its durability class.
    Logged {
        /// The slot.
        slot: Slot,
        /// The last entry of the [`Effect::Log`] that is done.
        position: Position,
        /// Its run; for cells [`Replica::log_run`](crate::Replica::log_run) as it was when they were put in
        /// place.
        run: LogRun,
    },
    /// A copy of the cells that another node sent was installed here, in answer to its [`Effect::Transfer`].
    /// Where there is a log,
    /// [`Input::Logged`] of their last entry tells that they are as durable as entries are.
    Installed {
        /// The slot.
        slot: Slot,
        /// The last entry that was applied to these cells.
        position: Position,
        /// The date of that entry.
        time_ms: u64,
    },
    /// The cells of a slot are gone, and its log: others come in their place, too many to be put there in one
    /// step. What was there counts for nothing from now on, until [`Input::Installed`] tells that all are
    /// here, or for good where the rest never comes. To be given only where
    /// [`Replica::would_import`](crate::Replica::would_import) says so.
    Emptied {
        /// The slot.
        slot: Slot,
    },
    /// The cells that go to another node, in answer to an [`Effect::Transfer`], are those up to this entry:
    /// those behind it are kept for it as long as they are not too many.
    TransferBegan {
        /// The slot.
        slot: Slot,
        /// To whom they go.
        to: NodeId,
        /// The last entry that was applied to these cells.
        position: Position,
    },
    /// Nothing more is sent of this slot: all of it is on its way, or some is lost. What was sent may come
    /// later than what the copy said before, so it is asked for again only after a while.
    TransferEnded {
        /// The slot.
        slot: Slot,
        /// To whom it was to go.
        to: NodeId,
    },
    /// The configuration group heard this node, asked at this moment of this node's clock.
    GroupHeard {
        /// When this node asked.
        asked_at: Moment,
    },
    /// Time has passed. To be given at least every `Options::tick_us`.
    Tick,
}

/// What is to be done. In order: whatever a client is told rests on the effects before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a message; it may be lost.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Put these at the end of this node's log for the slot, behind `after`: what is there beyond that place
    /// is gone.
    /// [`Input::Logged`] says when that is done.
    Log {
        /// The slot.
        slot: Slot,
        /// The entry before them.
        after: Position,
        /// The entries, in order; not empty.
        entries: Vec<Entry>,
        /// Comes back when that is done.
        run: LogRun,
    },
    /// It is committed: apply it to the cells, in this order, each once.
    Apply {
        /// The slot.
        slot: Slot,
        /// The entry.
        entry: Entry,
        /// Whom its answer goes to, if anybody waits for it here.
        ticket: Option<Ticket>,
    },
    /// Read from the cells as they are now, and answer.
    Read {
        /// Which request.
        ticket: Ticket,
    },
    /// Nothing happened, and nothing will.
    Refuse {
        /// Which request.
        ticket: Ticket,
        /// Why.
        refusal: Refusal,
    },
    /// A write that may or may not happen.
    Unknown {
        /// Which request.
        ticket: Ticket,
    },
    /// Send a copy of the applied cells of the slot to this node.
    Transfer {
        /// The slot.
        slot: Slot,
        /// To whom.
        to: NodeId,
    },
    /// Ask the configuration group for this.
    Propose(Proposal),
    /// Ask the configuration group for its newest table.
    FetchTable,
    /// This node has no copy of the slot any more, or one that begins anew: its cells and its log go.
    Forget {
        /// The slot.
        slot: Slot,
    },
}

/// What a primary asks the configuration group for. Refused unless the slot is still in this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// A copy that was catching up has everything: count it in. Until the epoch is another one, the primary
    /// commits and reads nothing without it.
    Admit {
        /// The slot.
        slot: Slot,
        /// The epoch in which that is so.
        epoch: Epoch,
        /// Who.
        node: NodeId,
        /// In which life.
        incarnation: Incarnation,
    },
    /// A copy does not answer: go on without it.
    Dismiss {
        /// The slot.
        slot: Slot,
        /// The epoch in which that is so.
        epoch: Epoch,
        /// Who.
        node: NodeId,
    },
    /// Nothing is under way, and nothing is taken until the table is another one: the successor may lead.
    /// Refused unless the slot is as it was in that table, so that a proposal that comes late finds nothing
    /// under way either.
    HandOver {
        /// The slot.
        slot: Slot,
        /// The epoch in which that is so.
        epoch: Epoch,
        /// The table in which the slot came to be as it is.
        since: Version,
        /// Who.
        node: NodeId,
    },
    /// The successor is not to lead: nobody decided about that for too long. Refused unless the slot is as it
    /// was in that table.
    Keep {
        /// The slot.
        slot: Slot,
        /// The epoch in which that is so.
        epoch: Epoch,
        /// The table in which the slot came to be as it is.
        since: Version,
    },
}

/// Why nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another node is the primary.
    #[error("another node has this slot: {to}")]
    Moved {
        /// Who.
        to: NodeId,
    },
    /// Nobody is.
    #[error("the slot has no primary")]
    NoPrimary,
    /// Too few in-sync copies for a write.
    #[error("{have} copies are in sync, of {need} that a write needs")]
    TooFewCopies {
        /// How many there are.
        have: usize,
        /// How many there must be.
        need: usize,
    },
    /// Too much is waiting already.
    #[error("too many requests wait for the other copies")]
    Busy,
    /// The other copies did not answer in time; or the configuration group, where there are none.
    #[error("the other copies do not answer, nor does the configuration where there are none")]
    NoLease,
}

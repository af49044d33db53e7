//! Messages between nodes, and the inputs and effects of `Replica`.
//!
//! Invariant: messages may be lost, duplicated, delayed and reordered; only progress depends on them.

use crate::{Epoch, Incarnation, LogRun, Moment, NodeId, Position, Sequence, Slot, Table, Ticket, Version};
use std::sync::Arc;

/// A write in the log of a slot. What its body means is up to the state machine that applies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log.
    pub position: Position,
    /// The primary's clock when it took the write, in milliseconds since 1970; never falls within a slot.
    pub time_ms: u64,
    /// The request.
    pub body: Arc<[u8]>,
}

/// A message from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// About the log of one slot.
    Slot {
        /// The slot.
        slot: Slot,
        /// The epoch of the sender.
        epoch: Epoch,
        /// The message.
        about: SlotMessage,
    },
    /// A primary asks for the right to answer reads for a while.
    LeaseAsk {
        /// The life of the asking node; returned with the answer.
        asked_in: Incarnation,
        /// Counts the rounds of this node's questions; returned with the answer.
        round: u64,
        /// When it asked, by its own clock; returned with the answer.
        asked_at: Moment,
        /// The newest table that the asking node knows: it serves no slot that this table takes from it.
        known: Version,
    },
    /// The sender promises: for the time of a lease it accepts no table that takes a slot from the node that
    /// asked.
    LeaseGrant {
        /// The life of the node that asked.
        asked_in: Incarnation,
        /// The round of the question.
        round: u64,
        /// When the question was asked, by the clock of the node that asked.
        asked_at: Moment,
        /// The table that the sender went by when it promised.
        version: Version,
    },
    /// There is a newer table than the receiver seems to have.
    TableIs {
        /// The version of the newer table.
        version: Version,
    },
}

/// What a message says about the log of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotMessage {
    /// From the primary: entries to append after `previous`.
    Append {
        /// The entry before them.
        previous: Position,
        /// The entries, in order; may be empty.
        entries: Vec<Entry>,
        /// Everything up to here is committed.
        committed: Sequence,
    },
    /// From a copy: it has the primary's log up to here, logged at its durability class.
    Appended {
        /// The last entry of the log that is logged.
        matched: Sequence,
    },
    /// From a copy: it does not have the entry before those that were sent; the primary is to begin after
    /// `hint`.
    Rejected {
        /// The last place at which both logs may agree; 0 where this copy has nothing, or has lost what it
        /// had.
        hint: Sequence,
    },
}

/// What a node is given.
#[derive(Clone, Debug)]
pub enum Input {
    /// A table from the configuration group; ignored if a newer one is known.
    Table(Arc<Table>),
    /// A message from another node.
    Message {
        /// The sender.
        from: NodeId,
        /// The life of the sender.
        incarnation: Incarnation,
        /// The message.
        message: Message,
    },
    /// A client writes.
    Write {
        /// The slot.
        slot: Slot,
        /// The request.
        ticket: Ticket,
        /// This node's clock, in milliseconds since 1970.
        time_ms: u64,
        /// What is to be applied.
        body: Arc<[u8]>,
        /// A number for each key that it may change, equal for equal keys; empty where it may change any key.
        keys: Vec<u64>,
    },
    /// A client reads.
    Read {
        /// The slot.
        slot: Slot,
        /// The request.
        ticket: Ticket,
        /// A number for each key that it reads.
        keys: Vec<u64>,
    },
    /// The log of this node holds this entry and all before it, at its durability class.
    Logged {
        /// The slot.
        slot: Slot,
        /// The last entry of the [`Effect::Log`] that was completed.
        position: Position,
        /// The run of that write; for cells, [`Replica::log_run`](crate::Replica::log_run) as it was when
        /// they were put in place.
        run: LogRun,
    },
    /// Cells that another node sent in answer to its [`Effect::Transfer`] were installed here. Where there is
    /// a log, an [`Input::Logged`] of their last entry follows once they are as durable as entries are.
    Installed {
        /// The slot.
        slot: Slot,
        /// The last entry that is applied in these cells.
        position: Position,
        /// The timestamp of that entry.
        time_ms: u64,
    },
    /// The cells and the log of a slot were dropped, to be replaced by cells that are too many to install in
    /// one step. The former contents count for nothing from here on: until [`Input::Installed`] says that all
    /// new cells are here, or for good if the rest never arrives. To be given only where
    /// [`Replica::would_import`](crate::Replica::would_import) allows it.
    Emptied {
        /// The slot.
        slot: Slot,
    },
    /// A transfer to another node has begun, in answer to an [`Effect::Transfer`], with the cells as of this
    /// entry. The entries after it are kept for that node as long as they are not too many.
    TransferBegan {
        /// The slot.
        slot: Slot,
        /// The receiving node.
        to: NodeId,
        /// The last entry that is applied in these cells.
        position: Position,
    },
    /// A transfer of this slot has ended: everything is on its way, or part of it is lost. The pieces may
    /// arrive after older messages of the copy, so another transfer begins only after a while.
    TransferEnded {
        /// The slot.
        slot: Slot,
        /// The receiving node.
        to: NodeId,
    },
    /// The configuration group heard a question that this node asked at this moment of its own clock.
    GroupHeard {
        /// When this node asked.
        asked_at: Moment,
    },
    /// Time has passed. To be given at least every `Options::tick_us`.
    Tick,
}

/// What the caller is to do, in this order: an answer to a client relies on the effects before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a message; it may be lost.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        message: Message,
    },
    /// Append entries to this node's log for the slot after `after`, in place of whatever is there beyond
    /// that place. [`Input::Logged`] reports when that is done.
    Log {
        /// The slot.
        slot: Slot,
        /// The entry before them.
        after: Position,
        /// The entries, in order; not empty.
        entries: Vec<Entry>,
        /// Returned with [`Input::Logged`].
        run: LogRun,
    },
    /// An entry is committed: apply it to the cells, in this order, each entry once.
    Apply {
        /// The slot.
        slot: Slot,
        /// The entry.
        entry: Entry,
        /// The request to answer, if a client waits for it on this node.
        ticket: Option<Ticket>,
    },
    /// Read from the cells as they are now, and answer.
    Read {
        /// The request.
        ticket: Ticket,
    },
    /// Refuse a request: nothing happened, and nothing will.
    Refuse {
        /// The request.
        ticket: Ticket,
        /// The reason.
        refusal: Refusal,
    },
    /// Report a write as unknown: it may or may not happen.
    Unknown {
        /// The request.
        ticket: Ticket,
    },
    /// Send a copy of the slot's applied cells to another node.
    Transfer {
        /// The slot.
        slot: Slot,
        /// The receiver.
        to: NodeId,
    },
    /// Submit a proposal to the configuration group.
    Propose(Proposal),
    /// Ask the configuration group for its newest table.
    FetchTable,
    /// Drop the cells and the log of a slot: this node has no copy of it any more, or one that starts afresh.
    Forget {
        /// The slot.
        slot: Slot,
    },
    /// Record that what this node has of a slot is of this branch. A starting node returns it with
    /// [`Found`](crate::Found). The record may be lost, and then an earlier one counts, but it must not
    /// outlive what it speaks of: never may it be there while something is left of what an [`Effect::Forget`]
    /// before it drops.
    Branch {
        /// The slot.
        slot: Slot,
        /// The branch.
        branch: Version,
    },
    /// Report that two copies contradict each other. Entries of a primary were not added to the copy on this
    /// node, which lags until its primary sends others; or the primary on this node does not believe what a
    /// copy says of its log, which counts for nothing until it says something else.
    NotTaken {
        /// The slot.
        slot: Slot,
        /// The node that sent what was not taken.
        from: NodeId,
        /// What it contradicts.
        contradiction: Contradiction,
    },
}

/// Why what another copy sent cannot be right, by what the copy on this node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// They are of a later epoch than what is applied here in their places, or what they follow is of another
    /// one. The primary lost what it had committed, as one does whose folder was put back to an earlier
    /// state.
    #[error("other entries are applied in their places")]
    Applied,
    /// They would replace committed entries, which are the same on all copies, or follow others.
    #[error("other entries are committed in their places")]
    Committed,
    /// They do not follow each other, or their epochs fall or are beyond that of the message.
    #[error("they do not follow each other and what is before them")]
    Disorder,
    /// A copy says that it has more of this epoch's log than its primary, as one does that has another
    /// history.
    #[error("the copy says that it has entries which its primary never had")]
    Beyond,
}

/// What a primary asks the configuration group for. Refused unless the slot is still in this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// A copy that was catching up has everything: count it as in sync. Until the epoch changes, the primary
    /// commits and reads nothing without it.
    Admit {
        /// The slot.
        slot: Slot,
        /// The epoch in which that is so.
        epoch: Epoch,
        /// The node of the copy.
        node: NodeId,
        /// The life of that node.
        incarnation: Incarnation,
    },
    /// A copy does not answer: go on without it.
    Dismiss {
        /// The slot.
        slot: Slot,
        /// The epoch in which that is so.
        epoch: Epoch,
        /// The node of the copy.
        node: NodeId,
    },
    /// Nothing is under way, and no request is accepted until the table changes: the successor may lead.
    /// Refused unless the slot is still as it was in the table `since`, so that a proposal that arrives late
    /// finds nothing under way either.
    HandOver {
        /// The slot.
        slot: Slot,
        /// The epoch in which that is so.
        epoch: Epoch,
        /// The table in which the slot came to be as it is.
        since: Version,
        /// The successor.
        node: NodeId,
    },
    /// The successor is not to lead after all, because the group did not decide for too long. Refused unless
    /// the slot is still as it was in the table `since`.
    Keep {
        /// The slot.
        slot: Slot,
        /// The epoch in which that is so.
        epoch: Epoch,
        /// The table in which the slot came to be as it is.
        since: Version,
    },
}

/// Why a request was refused; nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another node is the primary.
    #[error("another node has this slot: {to}")]
    Moved {
        /// The primary.
        to: NodeId,
    },
    /// The slot has no primary.
    #[error("the slot has no primary")]
    NoPrimary,
    /// Too few copies are in sync for a write.
    #[error("{have} copies are in sync, but a write needs {need}")]
    TooFewCopies {
        /// How many copies are in sync.
        have: usize,
        /// How many must be.
        need: usize,
    },
    /// Too many requests are waiting already.
    #[error("too many requests wait for the other copies")]
    Busy,
    /// The other copies did not answer in time; or, where there are none, the configuration group did not.
    #[error("the other copies, or without any the configuration group, do not answer")]
    NoLease,
}

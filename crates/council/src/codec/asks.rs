//! Requests to members of the group, from nodes and other members, and their answers.

use super::bytes::{Coded, Damaged, Reader};
use crate::types::{SeatId, SnapshotMetaOf, Types, VoteOf};
use atoll_replica::{Change, Decision, Incarnation, NodeId, Proposal, Version};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};

/// The number of a group, drawn when it was founded: members of one group ignore messages from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingId(pub u64);

/// The receiver of a message about the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct To {
    pub(crate) ring: RingId,
    pub(crate) seat: SeatId,
}

/// A part of a snapshot. Whoever sends one waits for the answer before sending the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotPiece {
    /// The vote of the leader that sends the snapshot.
    pub(crate) vote: VoteOf,
    pub(crate) meta: SnapshotMetaOf,
    /// How many bytes the snapshot has.
    pub(crate) total: u64,
    /// How many of them come before this part.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A request.
#[derive(Debug)]
pub(crate) enum Ask {
    /// A candidate asks for a vote.
    Vote(To, VoteRequest<SeatId>),
    /// The leader asks to log entries.
    Append(To, AppendEntriesRequest<Types>),
    /// A part of a snapshot of everything decided up to some entry. The last part is answered once all of
    /// them are in place.
    Snapshot(To, SnapshotPiece),
    /// Asks for the member's identity, and whether it has a log.
    Who,
    /// A group is about to be founded under this number: forget any other one that there is no log of.
    Prepare(RingId),
    /// A member that lost its log asks for a seat in place of its old one.
    Join { node: NodeId, seat: SeatId },
    /// Asks for a decision on a change.
    Decide(Change),
    /// Submits proposals; the answer does not wait for decisions.
    Propose(Vec<Proposal>),
    /// A heartbeat: asks whether this node is heard.
    Heartbeat { node: NodeId, incarnation: Incarnation },
    /// Asks for a table newer than this one: once there is one, or at once whether there is one.
    Watch { known: Option<Version>, is_at_once: bool },
}

/// An answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Voted(VoteResponse<SeatId>),
    Appended(AppendEntriesResponse<SeatId>),
    /// The snapshot is in place and will survive, or is not needed; the vote is a later one if the sender
    /// does not lead any more.
    Installed(VoteOf),
    Who {
        node: NodeId,
        seat: SeatId,
        ring: Option<RingId>,
        has_log: bool,
    },
    /// Agreed.
    Yes,
    /// Refused for good.
    No,
    Decision(Decision),
    /// The heartbeat is confirmed: the table had this version when the answering member was certain to lead.
    Heard(Version),
    /// An encoded update of the table.
    Table(Vec<u8>),
    /// Nothing happened; the named node may lead.
    NotLeader(Option<NodeId>),
    /// The answering member may or may not lead: ask again, perhaps another one.
    Unsure,
    /// The table has no such life of this node.
    OtherLife,
    /// It failed, for this reason.
    Failed(String),
}

impl Coded for RingId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self(Coded::take(from)?))
    }
}

impl Coded for To {
    fn put(&self, out: &mut Vec<u8>) {
        (self.ring, self.seat).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self { ring: Coded::take(from)?, seat: Coded::take(from)? })
    }
}

/// The rest of the bytes, as they are.
fn rest(from: &mut Reader<'_>) -> Result<Vec<u8>, Damaged> {
    let left = from.left();
    Ok(from.take(left)?.to_vec())
}

/// 3 was a snapshot in one message, in builds whose greeting is refused by now. It is not used again, so that
/// no bytes ever meant two things.
const SNAPSHOT: u8 = 11;

impl Coded for SnapshotPiece {
    fn put(&self, out: &mut Vec<u8>) {
        self.vote.put(out);
        self.meta.put(out);
        (self.total, self.at).put(out);
        out.extend_from_slice(&self.bytes);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self {
            vote: Coded::take(from)?,
            meta: Coded::take(from)?,
            total: Coded::take(from)?,
            at: Coded::take(from)?,
            bytes: rest(from)?,
        })
    }
}

impl Coded for Ask {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Vote(to, request) => kind(1, to, out, |out| request.put(out)),
            Self::Append(to, request) => kind(2, to, out, |out| request.put(out)),
            Self::Who => out.push(4),
            Self::Prepare(ring) => kind(5, ring, out, |_| ()),
            Self::Join { node, seat } => kind(6, node, out, |out| seat.put(out)),
            Self::Decide(change) => kind(7, change, out, |_| ()),
            Self::Propose(proposals) => kind(8, proposals, out, |_| ()),
            Self::Heartbeat { node, incarnation } => kind(9, node, out, |out| incarnation.put(out)),
            Self::Watch { known, is_at_once } => kind(10, known, out, |out| is_at_once.put(out)),
            Self::Snapshot(to, piece) => kind(SNAPSHOT, to, out, |out| piece.put(out)),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match from.byte()? {
            1 => Self::Vote(Coded::take(from)?, Coded::take(from)?),
            2 => Self::Append(Coded::take(from)?, Coded::take(from)?),
            4 => Self::Who,
            5 => Self::Prepare(Coded::take(from)?),
            6 => Self::Join { node: Coded::take(from)?, seat: Coded::take(from)? },
            7 => Self::Decide(Coded::take(from)?),
            8 => Self::Propose(Coded::take(from)?),
            9 => Self::Heartbeat { node: Coded::take(from)?, incarnation: Coded::take(from)? },
            10 => Self::Watch { known: Coded::take(from)?, is_at_once: Coded::take(from)? },
            SNAPSHOT => Self::Snapshot(Coded::take(from)?, Coded::take(from)?),
            _ => return Err(from.damaged("an unknown question")),
        })
    }
}

fn kind(kind: u8, first: &impl Coded, out: &mut Vec<u8>, more: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    first.put(out);
    more(out);
}

impl Coded for Answer {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Voted(answer) => kind(1, answer, out, |_| ()),
            Self::Appended(answer) => kind(2, answer, out, |_| ()),
            Self::Installed(vote) => kind(3, vote, out, |_| ()),
            Self::Who { node, seat, ring, has_log } => kind(4, node, out, |out| {
                seat.put(out);
                ring.put(out);
                has_log.put(out);
            }),
            Self::Yes => out.push(5),
            Self::No => out.push(6),
            Self::Decision(decision) => kind(7, decision, out, |_| ()),
            Self::Heard(version) => kind(8, version, out, |_| ()),
            Self::Table(update) => {
                out.push(9);
                out.extend_from_slice(update);
            }
            Self::NotLeader(leader) => kind(10, leader, out, |_| ()),
            Self::Unsure => out.push(11),
            Self::OtherLife => out.push(12),
            Self::Failed(words) => kind(13, words, out, |_| ()),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match from.byte()? {
            1 => Self::Voted(Coded::take(from)?),
            2 => Self::Appended(Coded::take(from)?),
            3 => Self::Installed(Coded::take(from)?),
            4 => Self::Who {
                node: Coded::take(from)?,
                seat: Coded::take(from)?,
                ring: Coded::take(from)?,
                has_log: Coded::take(from)?,
            },
            5 => Self::Yes,
            6 => Self::No,
            7 => Self::Decision(Coded::take(from)?),
            8 => Self::Heard(Coded::take(from)?),
            9 => Self::Table(rest(from)?),
            10 => Self::NotLeader(Coded::take(from)?),
            11 => Self::Unsure,
            12 => Self::OtherLife,
            13 => Self::Failed(Coded::take(from)?),
            _ => return Err(from.damaged("an unknown answer")),
        })
    }
}

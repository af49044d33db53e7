//! Encoding of the messages of the consensus between members.

use super::bytes::{Coded, Damaged, Reader};
use crate::types::{Changes, EntryOf, LogIdOf, MembershipOf, Seat, SeatId, Types, VoteOf};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::{EntryPayload, LeaderId, LogId, Membership, SnapshotMeta, StoredMembership, Vote};
use std::collections::{BTreeMap, BTreeSet};

impl Coded for SeatId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self(Coded::take(from)?))
    }
}

impl Coded for Seat {
    fn put(&self, out: &mut Vec<u8>) {
        self.node.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self { node: Coded::take(from)? })
    }
}

impl Coded for LeaderId<SeatId> {
    const BYTES_MIN: usize = 2;

    fn put(&self, out: &mut Vec<u8>) {
        (self.term, self.node_id).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self { term: Coded::take(from)?, node_id: Coded::take(from)? })
    }
}

impl Coded for VoteOf {
    fn put(&self, out: &mut Vec<u8>) {
        self.leader_id.put(out);
        self.committed.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Vote { leader_id: Coded::take(from)?, committed: Coded::take(from)? })
    }
}

impl Coded for LogIdOf {
    fn put(&self, out: &mut Vec<u8>) {
        self.leader_id.put(out);
        self.index.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(LogId { leader_id: Coded::take(from)?, index: Coded::take(from)? })
    }
}

impl Coded for MembershipOf {
    fn put(&self, out: &mut Vec<u8>) {
        let configurations = self.get_joint_config();
        let seats: Vec<Vec<SeatId>> =
            configurations.iter().map(|seats| seats.iter().copied().collect()).collect();
        seats.put(out);
        let nodes: Vec<(SeatId, Seat)> = self.nodes().map(|(id, seat)| (*id, seat.clone())).collect();
        nodes.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let seats: Vec<Vec<SeatId>> = Coded::take(from)?;
        let nodes: Vec<(SeatId, Seat)> = Coded::take(from)?;
        let nodes: BTreeMap<SeatId, Seat> = nodes.into_iter().collect();
        let configurations: Vec<BTreeSet<SeatId>> =
            seats.into_iter().map(|seats| seats.into_iter().collect()).collect();
        if !configurations.iter().flatten().all(|id| nodes.contains_key(id)) {
            return Err(from.damaged("a member of the group without a node"));
        }
        Ok(Membership::new(configurations, nodes))
    }
}

impl Coded for StoredMembership<SeatId, Seat> {
    fn put(&self, out: &mut Vec<u8>) {
        self.log_id().put(out);
        self.membership().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self::new(Coded::take(from)?, Coded::take(from)?))
    }
}

impl Coded for SnapshotMeta<SeatId, Seat> {
    fn put(&self, out: &mut Vec<u8>) {
        self.last_log_id.put(out);
        self.last_membership.put(out);
        self.snapshot_id.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self {
            last_log_id: Coded::take(from)?,
            last_membership: Coded::take(from)?,
            snapshot_id: Coded::take(from)?,
        })
    }
}

impl Coded for EntryOf {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        self.log_id.put(out);
        match &self.payload {
            EntryPayload::Blank => out.push(0),
            EntryPayload::Normal(changes) => {
                out.push(1);
                changes.0.put(out);
            }
            EntryPayload::Membership(membership) => {
                out.push(2);
                membership.put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let log_id = Coded::take(from)?;
        let payload = match from.byte()? {
            0 => EntryPayload::Blank,
            1 => EntryPayload::Normal(Changes::new(Coded::take(from)?)),
            2 => EntryPayload::Membership(Coded::take(from)?),
            _ => return Err(from.damaged("an unknown entry of the log")),
        };
        Ok(Self { log_id, payload })
    }
}

impl Coded for VoteRequest<SeatId> {
    fn put(&self, out: &mut Vec<u8>) {
        self.vote.put(out);
        self.last_log_id.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self { vote: Coded::take(from)?, last_log_id: Coded::take(from)? })
    }
}

impl Coded for VoteResponse<SeatId> {
    fn put(&self, out: &mut Vec<u8>) {
        self.vote.put(out);
        self.vote_granted.put(out);
        self.last_log_id.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self {
            vote: Coded::take(from)?,
            vote_granted: Coded::take(from)?,
            last_log_id: Coded::take(from)?,
        })
    }
}

impl Coded for AppendEntriesRequest<Types> {
    fn put(&self, out: &mut Vec<u8>) {
        self.vote.put(out);
        self.prev_log_id.put(out);
        self.entries.put(out);
        self.leader_commit.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self {
            vote: Coded::take(from)?,
            prev_log_id: Coded::take(from)?,
            entries: Coded::take(from)?,
            leader_commit: Coded::take(from)?,
        })
    }
}

impl Coded for AppendEntriesResponse<SeatId> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Success => out.push(0),
            Self::PartialSuccess(last) => {
                out.push(1);
                last.put(out);
            }
            Self::Conflict => out.push(2),
            Self::HigherVote(vote) => {
                out.push(3);
                vote.put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match from.byte()? {
            0 => Self::Success,
            1 => Self::PartialSuccess(Coded::take(from)?),
            2 => Self::Conflict,
            3 => Self::HigherVote(Coded::take(from)?),
            _ => return Err(from.damaged("an unknown answer about the log")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::changes::tests::changes;
    use atoll_replica::NodeId;

    fn log_id(index: u64) -> LogIdOf {
        LogId { leader_id: LeaderId::new(3, SeatId(u64::MAX)), index }
    }

    fn entries() -> Vec<EntryOf> {
        let seats: BTreeMap<_, _> = (1..4).map(|id| (SeatId(id), Seat { node: NodeId(id as u32) })).collect();
        let ids: BTreeSet<_> = seats.keys().copied().collect();
        let joint = vec![ids.clone(), ids.into_iter().skip(1).collect()];
        vec![
            EntryOf { log_id: log_id(7), payload: EntryPayload::Blank },
            EntryOf { log_id: log_id(8), payload: EntryPayload::Normal(Changes::new(changes())) },
            EntryOf { log_id: log_id(9), payload: EntryPayload::Membership(Membership::new(joint, seats)) },
        ]
    }

    #[test]
    fn entries_and_requests_come_back() {
        let vote = Vote::new_committed(5, SeatId(77));
        let request = AppendEntriesRequest::<Types> {
            vote,
            prev_log_id: Some(log_id(6)),
            entries: entries(),
            leader_commit: None,
        };
        let back = AppendEntriesRequest::<Types>::of_bytes(&request.to_bytes()).unwrap();
        assert_eq!(back.entries, entries());
        assert_eq!((back.vote, back.prev_log_id, back.leader_commit), (vote, Some(log_id(6)), None));
        for answer in [
            AppendEntriesResponse::Success,
            AppendEntriesResponse::PartialSuccess(Some(log_id(1))),
            AppendEntriesResponse::Conflict,
            AppendEntriesResponse::HigherVote(vote),
        ] {
            assert_eq!(AppendEntriesResponse::of_bytes(&answer.to_bytes()), Ok(answer));
        }
        let vote = VoteRequest { vote, last_log_id: Some(log_id(4)) };
        assert_eq!(VoteRequest::of_bytes(&vote.to_bytes()), Ok(vote));
    }

    #[test]
    fn a_member_without_a_node_is_refused() {
        let mut out = Vec::new();
        vec![vec![SeatId(1)]].put(&mut out);
        Vec::<(SeatId, Seat)>::new().put(&mut out);
        assert!(MembershipOf::of_bytes(&out).is_err());
    }
}

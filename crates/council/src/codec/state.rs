//! Encoding of the whole state of the group, as a snapshot holds it.
//! ```text
//!  snapshot | version 1 | checksum 8 | table | nonces | lives of nodes that left | changes of members
//! ```
//! `checksum` is XXH3-64 of what follows it, little-endian. It covers the snapshot as a whole: records and
//! frames have checksums of their own, but a snapshot travels in pieces.
//!
//! Invariant: members that applied the same entries encode the same bytes.

use super::bytes::{Coded, Damaged, Reader};
use super::tables::Update;
use atoll_replica::{Group, GroupOptions, NodeId, SavedGroup, Version};
use std::collections::BTreeMap;
use twox_hash::XxHash3_64;

/// The version of the encoding.
const VERSION: u8 = 1;

/// The state that a member's further work follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedState {
    group: SavedGroup,
    /// The table in which each member of the ring last changed, including members that left.
    member_since: Vec<(NodeId, Version)>,
}

impl SavedState {
    pub(crate) fn of(group: &Group, member_since: &BTreeMap<NodeId, Version>) -> Self {
        let member_since = member_since.iter().map(|(node, since)| (*node, *since)).collect();
        Self { group: group.saved(), member_since }
    }

    /// The state itself; none if it is of a ring with other options.
    pub(crate) fn restored(self, options: GroupOptions) -> Option<(Group, BTreeMap<NodeId, Version>)> {
        let group = Group::restored(options, self.group)?;
        Some((group, self.member_since.into_iter().collect()))
    }

    /// How many slots each keyspace has.
    pub(crate) fn slots_each(&self) -> u32 {
        self.group.table.slots_each()
    }

    /// The bytes of a snapshot.
    pub(crate) fn sealed(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&[0; 8]);
        self.put(&mut bytes);
        let checksum = XxHash3_64::oneshot(bytes.get(9..).unwrap_or_default());
        bytes.splice(1..9, checksum.to_le_bytes());
        bytes
    }

    /// Decodes the bytes of a snapshot.
    pub(crate) fn opened(bytes: &[u8]) -> Result<Self, Damaged> {
        Self::of_bytes(Self::checked(bytes)?)
    }

    /// The encoded state in the bytes of a snapshot, if that has a known form and is what was written. Costs
    /// no memory; decoding a large table costs several times its bytes.
    pub(crate) fn checked(bytes: &[u8]) -> Result<&[u8], Damaged> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(reader.damaged("a snapshot in a form that this version does not know"));
        }
        let checksum = reader.take(8)?;
        let left = reader.left();
        let body = reader.take(left)?;
        if checksum != XxHash3_64::oneshot(body).to_le_bytes().as_slice() {
            return Err(Damaged { problem: "a snapshot does not match its checksum", left });
        }
        Ok(body)
    }
}

impl Coded for SavedState {
    fn put(&self, out: &mut Vec<u8>) {
        Update::put_whole(&self.group.table, out);
        self.group.nonces.put(out);
        self.group.left.put(out);
        self.member_since.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let table = Update::take(from)?.apply(None);
        let table = table.ok_or_else(|| from.damaged("a part of a table instead of all of it"))?;
        let group = SavedGroup { table, nonces: Coded::take(from)?, left: Coded::take(from)? };
        Ok(Self { group, member_since: Coded::take(from)? })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use atoll_replica::{Change, Incarnation, KeyspaceRules, Persistence, PlacementHints, Survived};

    const OPTIONS: GroupOptions = GroupOptions { slots: 8, copies: 2 };

    fn register(node: u32, zone: Option<&str>) -> Change {
        let hints = PlacementHints { zone: zone.map(Into::into), ..PlacementHints::default() };
        let address = format!("127.0.0.1:{}", 7_000 + node);
        Change::Register { node: NodeId(node), nonce: 1, address, hints, survived: Survived::Nothing }
    }

    /// A state in which nothing is empty: nodes with and without a zone, one that left, and a keyspace.
    pub(crate) fn state() -> SavedState {
        let mut group = Group::new(OPTIONS);
        group.apply(register(1, Some("red")));
        group.apply(register(2, None));
        for change in group.plan(&[]) {
            group.apply(change);
        }
        group.apply(register(3, Some("blue")));
        group.apply(Change::Leave { node: NodeId(3) });
        group.apply(Change::Remove { node: NodeId(3), incarnation: Incarnation(1) });
        let name = "scratch".into();
        let durability = Some(Persistence::Always);
        group.apply(Change::Keyspace(KeyspaceRules {
            name,
            copies: 1,
            in_sync_min: 1,
            latency_ms: 0,
            durability,
        }));
        let since = [(1, 1), (2, 2), (3, 13)].map(|(node, since)| (NodeId(node), Version(since)));
        SavedState::of(&group, &BTreeMap::from(since))
    }

    #[test]
    fn a_state_comes_back_and_goes_on() {
        let state = state();
        assert!(!state.group.left.is_empty() && !state.group.nonces.is_empty());
        assert_eq!(SavedState::opened(&state.sealed()), Ok(state.clone()));
        let (group, since) = state.clone().restored(OPTIONS).unwrap();
        assert_eq!(SavedState::of(&group, &since).sealed(), state.sealed());
        assert!(state.restored(GroupOptions { slots: 4, ..OPTIONS }).is_none(), "another ring");
    }

    #[test]
    fn whatever_is_cut_or_flipped_in_a_snapshot_is_noticed() {
        let bytes = state().sealed();
        for at in 0..bytes.len() {
            assert!(SavedState::opened(&bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(SavedState::opened(&flipped).is_err(), "byte {at}, bit {bit}");
            }
        }
        let later = [&[VERSION + 1][..], &bytes[1..]].concat();
        let problem = SavedState::opened(&later).unwrap_err().problem;
        assert_eq!(problem, "a snapshot in a form that this version does not know");
    }

    #[test]
    fn a_part_of_a_table_is_no_state() {
        let state = state();
        let mut bytes = Update::since(&state.group.table, Version(1), &BTreeMap::new()).encoded();
        state.group.nonces.put(&mut bytes);
        state.group.left.put(&mut bytes);
        state.member_since.put(&mut bytes);
        assert!(SavedState::of_bytes(&bytes).is_err());
    }
}

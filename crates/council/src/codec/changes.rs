//! Encoding of changes of the table and their outcomes.

use super::bytes::{Coded, Damaged, Reader};
use atoll_replica::{
    Change, Copies, Decision, KeyspaceRules, KeyspaceSet, NodeId, Persistence, PlacementHints, Position,
    Proposal, Slot, Survived, Version, Weight,
};

const REGISTER: u8 = 1;
const FAIL: u8 = 2;
const HEAR: u8 = 3;
const PROPOSE: u8 = 4;
const FOUND: u8 = 5;
const COPY: u8 = 6;
const DROP: u8 = 7;
const LEAD: u8 = 8;
const RECOVER: u8 = 9;
const HAND_OVER: u8 = 10;
const LEAVE: u8 = 11;
const STAY: u8 = 12;
const REMOVE: u8 = 13;
const KEYSPACE: u8 = 14;
/// A registration with hints; one without is written as it was before there were any.
const REGISTER_WITH_HINTS: u8 = 15;
const FAIL_TOGETHER: u8 = 16;
/// A recovery of what was seen in a table; [`RECOVER`] was decided on whatever had changed since.
const RECOVER_SEEN: u8 = 17;

/// The version of a recovery from before there were any: logs with such entries are applied as they were.
const SEEN_ALL: Version = Version(u64::MAX);

const ADMIT: u8 = 1;
const DISMISS: u8 = 2;
const HANDED_OVER: u8 = 3;
const KEEP: u8 = 4;

impl Coded for Change {
    const BYTES_MIN: usize = 2;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Register { node, nonce, address, hints, survived } => {
                let is_plain = *hints == PlacementHints::default();
                out.push(if is_plain { REGISTER } else { REGISTER_WITH_HINTS });
                (*node, *nonce).put(out);
                address.put(out);
                if !is_plain {
                    hints.put(out);
                }
                survived.put(out);
            }
            Self::Fail { node, incarnation } => put_pair(FAIL, node, incarnation, out),
            Self::FailTogether { nodes } => put_one(FAIL_TOGETHER, nodes, out),
            Self::Hear { node, incarnation } => put_pair(HEAR, node, incarnation, out),
            Self::Propose(proposal) => {
                out.push(PROPOSE);
                proposal.put(out);
            }
            Self::Found { slot, copies } => put_pair(FOUND, slot, copies, out),
            Self::Copy { slot, node } => put_pair(COPY, slot, node, out),
            Self::Drop { slot, node } => put_pair(DROP, slot, node, out),
            Self::Lead { slot, epoch, node } => {
                put_pair(LEAD, slot, epoch, out);
                node.put(out);
            }
            Self::HandOver { slot, epoch, node } => {
                put_pair(HAND_OVER, slot, epoch, out);
                node.put(out);
            }
            Self::Recover { slot, seen: SEEN_ALL } => put_one(RECOVER, slot, out),
            Self::Recover { slot, seen } => put_pair(RECOVER_SEEN, slot, seen, out),
            Self::Leave { node } => put_one(LEAVE, node, out),
            Self::Stay { node } => put_one(STAY, node, out),
            Self::Remove { node, incarnation } => put_pair(REMOVE, node, incarnation, out),
            Self::Keyspace(rules) => put_one(KEYSPACE, rules, out),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match from.byte()? {
            kind @ (REGISTER | REGISTER_WITH_HINTS) => Self::Register {
                node: Coded::take(from)?,
                nonce: Coded::take(from)?,
                address: Coded::take(from)?,
                hints: if kind == REGISTER { PlacementHints::default() } else { Coded::take(from)? },
                survived: Coded::take(from)?,
            },
            FAIL => Self::Fail { node: Coded::take(from)?, incarnation: Coded::take(from)? },
            FAIL_TOGETHER => Self::FailTogether { nodes: Coded::take(from)? },
            HEAR => Self::Hear { node: Coded::take(from)?, incarnation: Coded::take(from)? },
            PROPOSE => Self::Propose(Coded::take(from)?),
            FOUND => Self::Found { slot: Coded::take(from)?, copies: Coded::take(from)? },
            COPY => Self::Copy { slot: Coded::take(from)?, node: Coded::take(from)? },
            DROP => Self::Drop { slot: Coded::take(from)?, node: Coded::take(from)? },
            LEAD => {
                Self::Lead { slot: Coded::take(from)?, epoch: Coded::take(from)?, node: Coded::take(from)? }
            }
            HAND_OVER => Self::HandOver {
                slot: Coded::take(from)?,
                epoch: Coded::take(from)?,
                node: Coded::take(from)?,
            },
            RECOVER => Self::Recover { slot: Coded::take(from)?, seen: SEEN_ALL },
            RECOVER_SEEN => Self::Recover { slot: Coded::take(from)?, seen: Coded::take(from)? },
            LEAVE => Self::Leave { node: Coded::take(from)? },
            STAY => Self::Stay { node: Coded::take(from)? },
            REMOVE => Self::Remove { node: Coded::take(from)?, incarnation: Coded::take(from)? },
            KEYSPACE => Self::Keyspace(Coded::take(from)?),
            _ => return Err(from.damaged("an unknown change")),
        })
    }
}

impl Coded for PlacementHints {
    fn put(&self, out: &mut Vec<u8>) {
        self.zone.as_deref().map(str::to_owned).put(out);
        self.weight.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let zone: Option<String> = Coded::take(from)?;
        Ok(Self { zone: zone.map(Into::into), weight: Coded::take(from)? })
    }
}

impl Coded for Weight {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(self.get()).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let weight = u16::try_from(u64::take(from)?).ok().and_then(Self::new);
        weight.ok_or_else(|| from.damaged("a weight that no node has"))
    }
}

fn put_one(kind: u8, only: &impl Coded, out: &mut Vec<u8>) {
    out.push(kind);
    only.put(out);
}

fn put_pair(kind: u8, first: &impl Coded, second: &impl Coded, out: &mut Vec<u8>) {
    out.push(kind);
    first.put(out);
    second.put(out);
}

impl Coded for Proposal {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Admit { slot, epoch, node, incarnation } => {
                put_pair(ADMIT, slot, epoch, out);
                (*node, *incarnation).put(out);
            }
            Self::Dismiss { slot, epoch, node } => {
                put_pair(DISMISS, slot, epoch, out);
                node.put(out);
            }
            Self::HandOver { slot, epoch, since, node } => {
                put_pair(HANDED_OVER, slot, epoch, out);
                (*since, *node).put(out);
            }
            Self::Keep { slot, epoch, since } => {
                put_pair(KEEP, slot, epoch, out);
                since.put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let kind = from.byte()?;
        let (slot, epoch) = (Coded::take(from)?, Coded::take(from)?);
        match kind {
            ADMIT => {
                Ok(Self::Admit { slot, epoch, node: Coded::take(from)?, incarnation: Coded::take(from)? })
            }
            DISMISS => Ok(Self::Dismiss { slot, epoch, node: Coded::take(from)? }),
            HANDED_OVER => {
                Ok(Self::HandOver { slot, epoch, since: Coded::take(from)?, node: Coded::take(from)? })
            }
            KEEP => Ok(Self::Keep { slot, epoch, since: Coded::take(from)? }),
            _ => Err(from.damaged("an unknown proposal")),
        }
    }
}

impl Coded for KeyspaceRules {
    const BYTES_MIN: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        self.name.to_string().put(out);
        out.extend([self.copies, self.in_sync_min]);
        // Without a durability the rules are written as before there was any.
        let durability = self.durability.map_or(0, Persistence::code);
        (u32::from(self.latency_ms) | u32::from(durability) << DURABILITY_SHIFT).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let name = String::take(from)?.into();
        let (copies, in_sync_min) = (from.byte()?, from.byte()?);
        let both = u32::take(from)?;
        let latency_ms = (both & LATENCY_MASK) as u16;
        let durability = match both >> DURABILITY_SHIFT {
            0 => None,
            code => {
                let class = u8::try_from(code).ok().and_then(Persistence::from_code);
                Some(class.ok_or_else(|| from.damaged("an invalid durability"))?)
            }
        };
        Ok(Self { name, copies, in_sync_min, latency_ms, durability })
    }
}

/// The latency class of a keyspace and its durability share a number: earlier builds refuse one that does not
/// fit into the lower half, and so take no keyspace for one without a durability that has one.
const DURABILITY_SHIFT: u32 = u16::BITS;
const LATENCY_MASK: u32 = u16::MAX as u32;

impl Coded for Survived {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nothing => out.push(0),
            Self::Everything => {
                out.push(1);
                // An obsolete field, the end of each slot's log, which no reader used.
                Vec::<(Slot, Position)>::new().put(out);
            }
            Self::Of(keyspaces) => {
                out.push(2);
                u32::from(keyspaces.bits()).put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        match from.byte()? {
            0 => Ok(Self::Nothing),
            1 => Vec::<(Slot, Position)>::take(from).map(|_| Self::Everything),
            2 => {
                let bits = u16::try_from(u32::take(from)?).map_err(|_| from.damaged("too many keyspaces"))?;
                match Self::of(KeyspaceSet::from_bits(bits)) {
                    some @ Self::Of(_) => Ok(some),
                    _ => Err(from.damaged("some keyspaces that are all or none")),
                }
            }
            _ => Err(from.damaged("neither everything nor nothing")),
        }
    }
}

impl Coded for Position {
    const BYTES_MIN: usize = 2;

    fn put(&self, out: &mut Vec<u8>) {
        (self.epoch, self.sequence).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self { epoch: Coded::take(from)?, sequence: Coded::take(from)? })
    }
}

impl Coded for Copies {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|node| node.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut copies = Self::default();
        for _ in 0..from.count(1)? {
            if !copies.insert(NodeId::take(from)?) {
                return Err(from.damaged("a copy twice, or too many copies"));
            }
        }
        Ok(copies)
    }
}

impl Coded for Decision {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Changed => out.push(1),
            Self::Unchanged => out.push(2),
            Self::Registered { incarnation } => {
                out.push(3);
                incarnation.put(out);
            }
            Self::Taken => out.push(4),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(match from.byte()? {
            1 => Self::Changed,
            2 => Self::Unchanged,
            3 => Self::Registered { incarnation: Coded::take(from)? },
            4 => Self::Taken,
            _ => return Err(from.damaged("an unknown decision")),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use atoll_replica::{Epoch, Incarnation};

    /// One change of each kind.
    pub(crate) fn changes() -> Vec<Change> {
        let (slot, epoch, node, incarnation) = (Slot(16_383), Epoch(300), NodeId(7), Incarnation(2));
        let survived = Survived::Everything;
        let copies = Copies::of(&[NodeId(3), NodeId(0), NodeId(u32::MAX)]);
        let hints = PlacementHints { zone: Some("rack-7".into()), weight: Weight::new(3).unwrap() };
        let plain = PlacementHints::default();
        vec![
            Change::Register { node, nonce: u64::MAX, address: "h\u{f6}st:7379".to_owned(), hints, survived },
            Change::Register {
                node,
                nonce: 0,
                address: String::new(),
                hints: plain,
                survived: Survived::Nothing,
            },
            Change::Fail { node, incarnation },
            Change::FailTogether { nodes: vec![(node, incarnation), (NodeId(u32::MAX), Incarnation(0))] },
            Change::Hear { node, incarnation },
            Change::Propose(Proposal::Admit { slot, epoch, node, incarnation }),
            Change::Propose(Proposal::Dismiss { slot, epoch, node }),
            Change::Propose(Proposal::HandOver { slot, epoch, since: Version(77_000), node }),
            Change::Propose(Proposal::Keep { slot, epoch, since: Version(u64::MAX) }),
            Change::Found { slot, copies },
            Change::Copy { slot, node },
            Change::Drop { slot, node },
            Change::Lead { slot, epoch, node },
            Change::Recover { slot, seen: SEEN_ALL },
            Change::Recover { slot, seen: Version(77_000) },
            Change::HandOver { slot, epoch, node },
            Change::Leave { node },
            Change::Stay { node },
            Change::Remove { node, incarnation },
            Change::Keyspace(rules(None)),
            Change::Keyspace(rules(Some(Persistence::Off))),
            Change::Keyspace(rules(Some(Persistence::Always))),
            Change::Register {
                node,
                nonce: 1,
                address: String::new(),
                hints: PlacementHints::default(),
                survived: Survived::Of(KeyspaceSet::from_bits(0x8005)),
            },
        ]
    }

    fn rules(durability: Option<Persistence>) -> KeyspaceRules {
        KeyspaceRules { name: "scratch".into(), copies: 2, in_sync_min: 1, latency_ms: 500, durability }
    }

    #[test]
    fn what_says_nothing_of_durability_is_written_and_read_as_it_always_was() {
        let before = [&[KEYSPACE, 7][..], b"scratch", &[2, 1, 0xf4, 0x03]].concat();
        assert_eq!(Change::Keyspace(rules(None)).to_bytes(), before);
        assert_eq!(Change::of_bytes(&before), Ok(Change::Keyspace(rules(None))));
        let synced = [&[KEYSPACE, 7][..], b"scratch", &[2, 1, 0xf4, 0x83, 0x0c]].concat();
        assert_eq!(Change::Keyspace(rules(Some(Persistence::Always))).to_bytes(), synced);
        assert_eq!(Survived::Everything.to_bytes(), [1, 0]);
        assert_eq!(Survived::of_bytes(&[1, 0]), Ok(Survived::Everything));
        assert_eq!(Survived::of_bytes(&[0]), Ok(Survived::Nothing));
    }

    #[test]
    fn a_recovery_in_a_log_of_before_is_applied_as_it_was() {
        let always = Change::Recover { slot: Slot(5), seen: Version(u64::MAX) };
        assert_eq!(Change::of_bytes(&[RECOVER, 5]), Ok(always.clone()));
        assert_eq!(always.to_bytes(), [RECOVER, 5]);
        let seen = Change::Recover { slot: Slot(5), seen: Version(9) };
        assert_eq!(seen.to_bytes(), [RECOVER_SEEN, 5, 9]);
        assert_eq!(Change::of_bytes(&[RECOVER_SEEN, 5, 9]), Ok(seen));
    }

    #[test]
    fn a_durability_that_no_keyspace_has_is_refused_and_so_is_a_loss_said_in_two_ways() {
        let unknown = [&[KEYSPACE, 7][..], b"scratch", &[2, 1, 0xf4, 0x83, 0x10]].concat();
        assert!(Change::of_bytes(&unknown).is_err(), "class 4");
        for set in [&[2, 0][..], &[2, 0xff, 0xff, 3], &[2, 0x80, 0x80, 4], &[3]] {
            assert!(Survived::of_bytes(set).is_err(), "{set:?}");
        }
    }

    #[test]
    fn every_change_and_decision_comes_back() {
        assert_eq!(Vec::of_bytes(&changes().to_bytes()), Ok(changes()));
        let decisions = vec![
            Decision::Changed,
            Decision::Unchanged,
            Decision::Registered { incarnation: Incarnation(8) },
            Decision::Taken,
        ];
        assert_eq!(Vec::of_bytes(&decisions.to_bytes()), Ok(decisions));
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_refused_or_mean_something_else_and_never_panic() {
        let bytes = changes().to_bytes();
        for end in 0..bytes.len() {
            assert!(Vec::<Change>::of_bytes(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                assert_ne!(Vec::<Change>::of_bytes(&damaged), Ok(changes()), "byte {at}");
            }
        }
    }

    #[test]
    fn a_slot_that_is_founded_takes_few_bytes() {
        let found =
            Change::Found { slot: Slot(16_000), copies: Copies::of(&[NodeId(1), NodeId(2), NodeId(3)]) };
        assert!(found.to_bytes().len() <= 8);
    }
}

//! Entry points for the fuzzer: what nodes and members of the group may send each other.
//!
//! A list is decoded only as far as there are bytes for its elements, so the memory of what was decoded is
//! limited by the bytes that it is encoded to again, and those by the bytes that arrived.

use crate::codec::{Answer, Ask, Coded, SavedState, Update};
use atoll_replica::{
    Change, Copies, Group, GroupOptions, NodeId, PlacementHints, SLOTS_MAX, Slot, Survived, Table,
};
use std::sync::{Arc, LazyLock};

/// How many times longer than what arrived the encoding of what was decoded may be. An older form may lack
/// what the present one writes.
const GROWTH_MAX: usize = 4;

/// The same, in bytes that are added.
const GROWTH_BYTES: usize = 64;

/// The most slots of tables that are sent on whole: with more, a single input would take too long.
const SLOTS_SENT_MAX: usize = 4_096;

/// A ring that has its nodes and copies, and that updates change.
static KNOWN: LazyLock<Group> = LazyLock::new(founded);

const SLOTS: u32 = 8;

/// Decodes the bytes as a request to a member of the group.
///
/// Returns whether they are one, so that a fuzzer sees that it gets past the surface.
///
/// # Panics
/// If the request grows, or is another one after it was encoded.
#[must_use]
pub fn ask(bytes: &[u8]) -> bool {
    let Ok(ask) = Ask::of_bytes(bytes) else { return false };
    let again = sent(&ask, bytes.len());
    assert_eq!(format!("{again:?}"), format!("{ask:?}"), "it is another one after it was encoded");
    // The text of an entry does not show its changes.
    if let (Ask::Append(_, ask), Ask::Append(_, again)) = (&ask, &again) {
        assert_eq!(again.entries, ask.entries, "its entries are others after they were encoded");
    }
    true
}

/// Decodes the bytes as the answer of a member of the group.
///
/// Returns whether they are one, so that a fuzzer sees that it gets past the surface.
///
/// # Panics
/// If the answer grows, or is another one after it was encoded.
#[must_use]
pub fn answer(bytes: &[u8]) -> bool {
    let Ok(answer) = Answer::of_bytes(bytes) else { return false };
    let again = sent(&answer, bytes.len());
    assert_eq!(format!("{again:?}"), format!("{answer:?}"), "it is another one after it was encoded");
    true
}

/// Decodes the bytes as changes, as they lie in the log, and decides about them.
///
/// Returns whether they are changes, so that a fuzzer sees that it gets past the surface.
///
/// # Panics
/// If the changes grow, are others after they were encoded, or lead to a table that cannot be sent.
#[must_use]
pub fn changes(bytes: &[u8]) -> bool {
    let Ok(changes) = Vec::<Change>::of_bytes(bytes) else { return false };
    assert_eq!(sent(&changes, bytes.len()), changes, "they are others after they were encoded");
    let mut group = KNOWN.clone();
    for change in changes {
        group.apply(change);
    }
    send_on(&group.table());
    true
}

/// Decodes the bytes as an update, and applies it to nothing and to a known table.
///
/// Returns whether they are an update that applies to either, so that a fuzzer sees that it gets past the
/// surface.
///
/// # Panics
/// If the update grows, is another one after it was encoded, or leads to a table that is too large or cannot
/// be sent.
#[must_use]
pub fn update(bytes: &[u8]) -> bool {
    let Some(update) = Update::decoded(bytes) else { return false };
    assert_eq!(sent(&update, bytes.len()), update, "it is another one after it was encoded");
    let known = KNOWN.table();
    let tables = [None, Some(&known)].map(|known| update.clone().apply(known));
    for table in tables.iter().flatten() {
        assert_eq!(table.version, update.version, "a table of another version than was said");
        assert!(table.slots.len() <= SLOTS_MAX as usize, "{} slots", table.slots.len());
        send_on(table);
    }
    tables.iter().any(Option::is_some)
}

/// Decodes the bytes as the state that a snapshot holds, behind its checksum, and lets a member go on from
/// it.
///
/// Returns whether they are one that a member can go on from, so that a fuzzer sees that it gets past the
/// surface.
///
/// # Panics If the state grows, is another one after it was encoded, or a member that goes on from it would
/// make another snapshot.
#[must_use]
pub fn snapshot(bytes: &[u8]) -> bool {
    // Sealed or not: most bytes are not.
    let _ = SavedState::opened(bytes);
    let Ok(state) = SavedState::of_bytes(bytes) else { return false };
    let slots = state.slots_each();
    if slots > SLOTS_SENT_MAX as u32 {
        return false;
    }
    assert_eq!(sent(&state, bytes.len()), state, "it is another one after it was encoded");
    let options = GroupOptions { slots, copies: 1 };
    let Some((group, since)) = state.restored(options) else { return false };
    send_on(&group.table());
    let sealed = SavedState::of(&group, &since).sealed();
    let again = SavedState::opened(&sealed).ok().and_then(|state| state.restored(options));
    let again = again.map(|(group, since)| SavedState::of(&group, &since).sealed());
    assert_eq!(again, Some(sealed), "another member makes another snapshot");
    true
}

/// What another node decodes of a value that took this many bytes to arrive here.
fn sent<T: Coded>(value: &T, arrived: usize) -> T {
    let encoded = value.to_bytes();
    let most = arrived * GROWTH_MAX + GROWTH_BYTES;
    assert!(encoded.len() <= most, "{arrived} bytes grew to {}", encoded.len());
    let Ok(again) = T::of_bytes(&encoded) else {
        unreachable!("what was encoded is refused: {}", encoded.escape_ascii())
    };
    assert_eq!(again.to_bytes(), encoded, "it was encoded otherwise the second time");
    again
}

/// Checks that another node gets the same table.
fn send_on(table: &Arc<Table>) {
    if table.slots.len() <= SLOTS_SENT_MAX {
        let received = Update::decoded(&Update::whole(table).encoded()).and_then(|whole| whole.apply(None));
        assert_eq!(received.as_ref(), Some(table), "another node gets another table");
    }
}

/// A ring of three nodes, of which each has a copy of each slot.
fn founded() -> Group {
    let mut group = Group::new(GroupOptions { slots: SLOTS, copies: 3 });
    for node in 1..=3 {
        let address = format!("127.0.0.1:{}", 7_000 + node);
        group.apply(Change::Register {
            node: NodeId(node),
            nonce: 1,
            address,
            hints: PlacementHints::default(),
            survived: Survived::Nothing,
        });
    }
    for slot in (0..SLOTS).map(Slot) {
        group.apply(Change::Found { slot, copies: Copies::of(&[NodeId(1), NodeId(2), NodeId(3)]) });
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{RingId, SnapshotPiece, To, every_change, saved_state};
    use crate::types::{Changes, EntryOf, LogIdOf, Seat, SeatId, SnapshotMetaOf, Types};
    use atoll_replica::{Incarnation, Proposal, Version};
    use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
    use openraft::{EntryPayload, LeaderId, LogId, Membership, StoredMembership, Vote};
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    /// Every target, by the name of its folder of seeds.
    /// A fuzz target: whether the bytes got past the surface.
    type Target = fn(&[u8]) -> bool;

    /// Every target, by the name of its folder of seeds.
    const TARGETS: [(&str, Target); 5] =
        [("ask", ask), ("answer", answer), ("change", changes), ("table", update), ("snapshot", snapshot)];

    fn folder(target: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target)
    }

    /// The seeds of a target, with their names.
    fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
        let paths = std::fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path());
        paths.map(|path| (path.display().to_string(), std::fs::read(path).unwrap())).collect()
    }

    fn log_id(index: u64) -> LogIdOf {
        LogId { leader_id: LeaderId::new(3, SeatId(77)), index }
    }

    fn membership() -> Membership<SeatId, Seat> {
        let seats: BTreeMap<_, _> = (1..4).map(|id| (SeatId(id), Seat { node: NodeId(id as u32) })).collect();
        let ids: BTreeSet<_> = seats.keys().copied().collect();
        Membership::new(vec![ids.clone(), ids.into_iter().skip(1).collect()], seats)
    }

    fn asks() -> Vec<(&'static str, Ask)> {
        let (to, vote) = (To { ring: RingId(5), seat: SeatId(77) }, Vote::new_committed(3, SeatId(77)));
        let entries = vec![
            EntryOf { log_id: log_id(7), payload: EntryPayload::Blank },
            EntryOf { log_id: log_id(8), payload: EntryPayload::Normal(Changes::new(every_change())) },
            EntryOf { log_id: log_id(9), payload: EntryPayload::Membership(membership()) },
        ];
        let append = AppendEntriesRequest::<Types> {
            vote,
            prev_log_id: Some(log_id(6)),
            entries,
            leader_commit: None,
        };
        let meta = SnapshotMetaOf {
            last_log_id: Some(log_id(9)),
            last_membership: StoredMembership::new(Some(log_id(9)), membership()),
            snapshot_id: "9".to_owned(),
        };
        let piece = SnapshotPiece { vote, meta, total: 800, at: 300, bytes: b"a part of it".to_vec() };
        let (slot, epoch, node) = (Slot(7), atoll_replica::Epoch(300), NodeId(2));
        vec![
            ("vote", Ask::Vote(to, VoteRequest { vote, last_log_id: Some(log_id(4)) })),
            ("append", Ask::Append(to, append)),
            ("snapshot", Ask::Snapshot(to, piece)),
            ("join", Ask::Join { node, seat: SeatId(77) }),
            ("propose", Ask::Propose(vec![Proposal::Dismiss { slot, epoch, node }])),
            ("heartbeat", Ask::Heartbeat { node, incarnation: Incarnation(3) }),
            ("watch", Ask::Watch { known: Some(Version(300)), is_at_once: false }),
        ]
    }

    fn answers() -> Vec<(&'static str, Answer)> {
        let (node, seat, ring) = (NodeId(2), SeatId(77), Some(RingId(5)));
        let appended = AppendEntriesResponse::PartialSuccess(Some(log_id(8)));
        vec![
            ("appended", Answer::Appended(appended)),
            ("who", Answer::Who { node, seat, ring, has_log: true }),
            ("heard", Answer::Heard(Version(300))),
            ("table", Answer::Table(Update::whole(&KNOWN.table()).encoded())),
            ("failed", Answer::Failed("no room".to_owned())),
        ]
    }

    fn updates() -> Vec<(&'static str, Update)> {
        let (mut group, before) = (KNOWN.clone(), KNOWN.table());
        let (slot, node) = (Slot(7), NodeId(2));
        let epoch = before.slot(slot).epoch;
        group.apply(Change::Propose(Proposal::Dismiss { slot, epoch, node }));
        let members_since = (1..=3).map(|node| (NodeId(node), Version(0))).collect();
        let since = Update::since(&group.table(), before.version, &members_since);
        vec![("whole", Update::whole(&before)), ("since", since)]
    }

    /// Writes the seeds in the present form.
    fn write_seeds() {
        let write = |target: &str, name: &str, bytes: Vec<u8>| {
            std::fs::create_dir_all(folder(target)).unwrap();
            std::fs::write(folder(target).join(name), bytes).unwrap();
        };
        asks().into_iter().for_each(|(name, ask)| write("ask", name, ask.to_bytes()));
        answers().into_iter().for_each(|(name, answer)| write("answer", name, answer.to_bytes()));
        updates().into_iter().for_each(|(name, update)| write("table", name, update.encoded()));
        write("change", "one-of-each", every_change().to_bytes());
        write("snapshot", "state", saved_state().to_bytes());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test reads what it is asked for")]
    fn every_seed_gets_past_the_surface() {
        if std::env::var("WRITE_SEEDS").is_ok() {
            write_seeds();
        }
        for (target, takes) in TARGETS {
            let seeds = seeds(target);
            assert!(!seeds.is_empty(), "{target}");
            for (name, bytes) in seeds {
                let again = "WRITE_SEEDS=1 cargo test -p atoll-council --lib fuzz";
                assert!(takes(&bytes), "{name} is of another form; to write the present one: {again}");
            }
        }
    }

    #[test]
    fn what_is_encoded_gets_past_the_surface() {
        asks().into_iter().for_each(|(name, one)| assert!(ask(&one.to_bytes()), "{name}"));
        answers().into_iter().for_each(|(name, one)| assert!(answer(&one.to_bytes()), "{name}"));
        updates().into_iter().for_each(|(name, one)| assert!(update(&one.encoded()), "{name}"));
        assert!(changes(&every_change().to_bytes()));
        assert!(snapshot(&saved_state().to_bytes()));
    }

    #[test]
    fn what_is_cut_or_flipped_anywhere_makes_no_panic() {
        for (target, takes) in TARGETS {
            for (_, whole) in seeds(target) {
                for at in 0..whole.len() {
                    let _ = takes(&whole[..at]);
                    for bit in 0..8 {
                        let mut flipped = whole.clone();
                        flipped[at] ^= 1 << bit;
                        let _ = takes(&flipped);
                    }
                }
            }
        }
    }
}

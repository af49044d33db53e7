//! The state machine of the group's log: the table.
//!
//! Invariant: the same entries make the same table on every member, and an update from any member turns an
//! older table of another one into the same table. It does not matter how many entries a member applied at a
//! time, nor which of them it has from a snapshot.
//! Invariant: a snapshot is read as a whole before anything of it is shown, and survives before the table is
//! replaced by its own.

use crate::CouncilError;
use crate::codec::{Coded, SavedState, Update};
use crate::log::{KeptSnapshot, Log, SNAPSHOT_BYTES_MAX};
use crate::types::{
    Decisions, EntryOf, LogIdOf, Seat, SeatId, SnapshotBytes, SnapshotMetaOf, SnapshotOf, StorageError, Types,
};
use atoll_replica::{Group, GroupOptions, NodeId, Table, Version};
use openraft::storage::RaftStateMachine;
use openraft::{AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, StorageIOError, StoredMembership};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Encoded updates that are kept for nodes that ask from the same table.
const UPDATES_KEPT: usize = 16;

/// After a table that is too large for a snapshot, none is attempted for this many entries.
const LARGE_TABLE_ENTRIES: u64 = 10_000;

/// The state of all decisions so far. Clones share it.
#[derive(Clone)]
pub(crate) struct Machine {
    state: Arc<Mutex<State>>,
    table: watch::Sender<Arc<Table>>,
    /// Where snapshots are kept.
    log: Log,
    /// The snapshot of another member that was read last, and is about to be put in place.
    last_read: Arc<Mutex<Option<(KeptSnapshot, State)>>>,
}

struct State {
    group: Group,
    applied: Option<LogIdOf>,
    membership: StoredMembership<SeatId, Seat>,
    /// The table in which each member of the ring last changed, including members that left.
    member_since: BTreeMap<NodeId, Version>,
    /// Encoded updates to the newest table, by the table that they start from.
    updates: BTreeMap<Option<Version>, Arc<Vec<u8>>>,
    /// The first entry after which a snapshot is attempted again.
    build_from: u64,
}

impl Machine {
    /// The state as of the snapshot of this log; the initial one if it has none.
    pub(crate) fn new(options: GroupOptions, log: Log) -> Result<Self, CouncilError> {
        let state = match log.snapshot() {
            None => State::of(Group::new(options), BTreeMap::new(), None, StoredMembership::default()),
            Some(snapshot) => {
                let problem = "not what it is in the group's snapshot";
                let other = CouncilError::Option { option: "ring.slots", problem };
                let damaged = |error: Unreadable| CouncilError::Member { problem: error.to_string() };
                State::restored(options, &snapshot).map_err(damaged)?.ok_or(other)?
            }
        };
        let (table, _) = watch::channel(state.group.table());
        Ok(Self { state: Arc::new(Mutex::new(state)), table, log, last_read: Arc::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current table.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.borrow())
    }

    /// A receiver for each new table.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Table>> {
        self.table.subscribe()
    }

    /// A copy of the group's state, for planning the placement of slots.
    pub(crate) fn group(&self) -> Group {
        self.state().group.clone()
    }

    /// The encoded update that leads from a known table to the newest one.
    pub(crate) fn update(&self, known: Option<Version>) -> Arc<Vec<u8>> {
        let mut state = self.state();
        if let Some(update) = state.updates.get(&known) {
            return Arc::clone(update);
        }
        let table = state.group.table();
        let mut update = Vec::new();
        match known {
            None => Update::put_whole(&table, &mut update),
            Some(since) => Update::since(&table, since, &state.member_since).put(&mut update),
        }
        let update = Arc::new(update);
        if state.updates.len() < UPDATES_KEPT {
            state.updates.insert(known, Arc::clone(&update));
        }
        update
    }
}

/// The bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
#[error("a snapshot cannot be read: {0}")]
struct Unreadable(&'static str);

impl State {
    fn of(
        group: Group,
        member_since: BTreeMap<NodeId, Version>,
        applied: Option<LogIdOf>,
        membership: StoredMembership<SeatId, Seat>,
    ) -> Self {
        Self { group, applied, membership, member_since, updates: BTreeMap::new(), build_from: 0 }
    }

    /// The state in a snapshot; none if that is of a ring with other options.
    fn restored(options: GroupOptions, snapshot: &KeptSnapshot) -> Result<Option<Self>, Unreadable> {
        let saved = SavedState::opened(&snapshot.bytes.0).map_err(|damaged| Unreadable(damaged.problem))?;
        let Some((group, member_since)) = saved.restored(options) else { return Ok(None) };
        let membership = snapshot.meta.last_membership.clone();
        Ok(Some(Self::of(group, member_since, Some(snapshot.last), membership)))
    }

    fn apply(&mut self, entry: EntryOf) -> Decisions {
        self.applied = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => Decisions::default(),
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
                Decisions::default()
            }
            EntryPayload::Normal(changes) => {
                // For each entry by itself: a node may have the table between two of them, from a member that
                // applied them one by one.
                let before = self.group.table();
                let decisions = changes.0.iter().map(|change| self.group.apply(change.clone())).collect();
                self.compare(&before);
                Decisions(decisions)
            }
        }
    }

    /// Records which members of the ring have changed.
    fn compare(&mut self, before: &Table) {
        let now = self.group.table();
        if now.version == before.version {
            return;
        }
        for node in before.members.keys().chain(now.members.keys()) {
            if before.members.get(node) != now.members.get(node) {
                self.member_since.insert(*node, now.version);
            }
        }
        self.updates.clear();
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogIdOf>, StoredMembership<SeatId, Seat>), StorageError> {
        let state = self.state();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Decisions>, StorageError>
    where
        I: IntoIterator<Item = EntryOf> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (decisions, table) = {
            let mut state = self.state();
            let decisions = entries.into_iter().map(|entry| state.apply(entry)).collect();
            (decisions, state.group.table())
        };
        self.show(table);
        Ok(decisions)
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        let state = self.state();
        Builder {
            group: state.group.clone(),
            applied: state.applied,
            membership: state.membership.clone(),
            member_since: state.member_since.clone(),
            machine: self.clone(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotBytes>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf,
        snapshot: Box<SnapshotBytes>,
    ) -> Result<(), StorageError> {
        self.install(meta, *snapshot).await.map_err(|error| {
            // The log waits for this snapshot.
            self.log.snapshot_failed();
            StorageIOError::read_snapshot(Some(meta.signature()), error).into()
        })
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf>, StorageError> {
        Ok(self.log.snapshot().map(|snapshot| snapshot.shared()))
    }
}

impl Machine {
    /// Shows a table to those that wait for a newer one.
    fn show(&self, table: Arc<Table>) {
        self.table.send_if_modified(|known| {
            let is_newer = known.version != table.version;
            *known = table;
            is_newer
        });
    }

    /// What is wrong with a snapshot that another member sent, if anything. The consensus is given none that
    /// cannot be put in place, because it would stop. Reading a large one takes long, and the thread does
    /// nothing else meanwhile, so what was read is kept for when these very bytes are put in place.
    pub(crate) fn problem(&self, meta: &SnapshotMetaOf, bytes: &SnapshotBytes) -> Option<String> {
        match self.read(meta, bytes) {
            Ok(read) => {
                *self.last_read() = Some(read);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Forgets what was read of a snapshot that was not put in place after all.
    pub(crate) fn forget_read(&self) {
        *self.last_read() = None;
    }

    fn last_read(&self) -> MutexGuard<'_, Option<(KeptSnapshot, State)>> {
        self.last_read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(
        &self,
        meta: &SnapshotMetaOf,
        bytes: &SnapshotBytes,
    ) -> Result<(KeptSnapshot, State), Unreadable> {
        let snapshot = KeptSnapshot::of(meta.clone(), bytes.clone()).ok_or(Unreadable("it has no end"))?;
        let options = self.state().group.options();
        let state = State::restored(options, &snapshot)?;
        Ok((snapshot, state.ok_or(Unreadable("it is of a ring with other options"))?))
    }

    /// Puts the snapshot of another member in place of everything that this one has.
    async fn install(&self, meta: &SnapshotMetaOf, bytes: SnapshotBytes) -> Result<(), AnyError> {
        let is_this = |(read, _): &mut (KeptSnapshot, State)| {
            read.meta == *meta && Arc::ptr_eq(&read.bytes.0, &bytes.0)
        };
        let read = self.last_read().take_if(is_this);
        let (snapshot, restored) = match read {
            Some(read) => read,
            None => self.read(meta, &bytes).map_err(|error| AnyError::new(&error))?,
        };
        let last = snapshot.last;
        self.log.install(snapshot).await.map_err(|error| AnyError::new(&error))?;
        let table = {
            let mut state = self.state();
            *state = restored;
            state.group.table()
        };
        tracing::info!(index = last.index, "a snapshot of the configuration group was put in place");
        self.show(table);
        Ok(())
    }
}

/// Makes a snapshot of the state at one moment. Further entries may be applied meanwhile.
#[derive(Clone)]
pub(crate) struct Builder {
    group: Group,
    applied: Option<LogIdOf>,
    membership: StoredMembership<SeatId, Seat>,
    member_since: BTreeMap<NodeId, Version>,
    machine: Machine,
}

impl Builder {
    /// Takes the contents of an older moment under the name of this one: a mistake that checks have to
    /// notice.
    #[cfg(test)]
    pub(crate) fn mistake_for(&mut self, older: &Self) {
        (self.group, self.member_since) = (older.group.clone(), older.member_since.clone());
    }

    /// The newest snapshot that there is, which openraft takes for "nothing new". An error would end this
    /// member, and all others at the same entry.
    fn nothing_new(&self) -> SnapshotOf {
        let newest = self.machine.log.snapshot().map(|snapshot| snapshot.shared());
        newest.unwrap_or_else(|| SnapshotOf { meta: SnapshotMetaOf::default(), snapshot: Box::default() })
    }
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<SnapshotOf, StorageError> {
        let Some(last) = self.applied else {
            // openraft asks for this when it begins on a log that was cut and has no snapshot.
            let problem = "the log was cut, and its snapshot is not there";
            return Err(StorageIOError::write_snapshot(None, AnyError::error(problem)).into());
        };
        if last.index < self.machine.state().build_from {
            return Ok(self.nothing_new());
        }
        let bytes = SavedState::of(&self.group, &self.member_since).sealed();
        if bytes.len() > SNAPSHOT_BYTES_MAX {
            let bytes = bytes.len();
            tracing::error!(bytes, "the table is too large for a snapshot: the log of the group is not cut");
            self.machine.state().build_from = last.index.saturating_add(LARGE_TABLE_ENTRIES);
            return Ok(self.nothing_new());
        }
        let meta = SnapshotMetaOf {
            last_log_id: Some(last),
            last_membership: self.membership.clone(),
            // The bytes follow from the entries, so the last one identifies them.
            snapshot_id: format!("{}-{}", last.leader_id.term, last.index),
        };
        let bytes = SnapshotBytes(Arc::new(bytes));
        let built = SnapshotOf { meta: meta.clone(), snapshot: Box::new(bytes.clone()) };
        let kept = KeptSnapshot { last, meta, bytes };
        tracing::debug!(index = last.index, bytes = kept.bytes.0.len(), "a snapshot was made");
        match self.machine.log.keep_snapshot(kept).await {
            Ok(()) => Ok(built),
            Err(error) => Err(StorageIOError::write_snapshot(Some(built.meta.signature()), &error).into()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::types::Changes;
    use atoll_replica::{Change, Copies, Incarnation, PlacementHints, Slot, Survived};
    use openraft::storage::RaftLogStorage;
    use openraft::{CommittedLeaderId, LogId};

    pub(crate) const RING: GroupOptions = GroupOptions { slots: 4, copies: 2 };

    fn entry(index: u64, change: Change) -> EntryOf {
        let log_id = LogId::new(CommittedLeaderId::new(1, SeatId(1)), index);
        EntryOf { log_id, payload: EntryPayload::Normal(Changes::new(vec![change])) }
    }

    fn machine(log: &Log) -> Machine {
        Machine::new(RING, log.clone()).unwrap()
    }

    fn in_memory() -> Log {
        Log::in_memory(SeatId(1))
    }

    /// Entries from 0 on that change about everything that a group remembers.
    pub(crate) fn history(seed: u64, count: u64) -> Vec<EntryOf> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut change = || {
            let (node, incarnation) = (NodeId(random.u32(1..6)), Incarnation(random.u64(1..4)));
            match random.u8(..8) {
                0..=2 => Change::Register {
                    node,
                    nonce: random.u64(..6),
                    address: format!("at {node}"),
                    hints: PlacementHints::default(),
                    survived: Survived::Everything,
                },
                3 => Change::Fail { node, incarnation },
                4 => Change::Hear { node, incarnation },
                5 => Change::Leave { node },
                6 => Change::Remove { node, incarnation },
                _ => Change::Found { slot: Slot(random.u32(..4)), copies: Copies::of(&[node]) },
            }
        };
        (0..count).map(|index| entry(index, change())).collect()
    }

    /// Everything that a machine knows, as bytes.
    pub(crate) fn known(machine: &Machine) -> Vec<u8> {
        let state = machine.state();
        SavedState::of(&state.group, &state.member_since).sealed()
    }

    #[tokio::test]
    async fn a_snapshot_and_what_follows_it_make_the_same_state_as_all_entries() {
        for seed in 0..20 {
            let entries = history(seed, 60);
            let mut whole = machine(&in_memory());
            whole.apply(entries.clone()).await.unwrap();
            for cut in [1, 2, 10, 37, 59] {
                let (log, others) = (in_memory(), in_memory());
                let mut first = machine(&log);
                first.apply(entries[..cut].to_vec()).await.unwrap();
                let mut builder = first.get_snapshot_builder().await;
                // A snapshot is of the moment at which it was asked for.
                first.apply(entries[cut..].to_vec()).await.unwrap();
                let snapshot = builder.build_snapshot().await.unwrap();
                assert_eq!(snapshot.meta.last_log_id, Some(entries[cut - 1].log_id));
                let mut again = machine(&log);
                assert_eq!(again.applied_state().await.unwrap().0, Some(entries[cut - 1].log_id));
                let mut other = machine(&others);
                other.install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
                for machine in [&mut again, &mut other] {
                    machine.apply(entries[cut..].to_vec()).await.unwrap();
                    assert_eq!(known(machine), known(&whole), "seed {seed}, cut at {cut}");
                }
                assert_eq!(others.snapshot(), log.snapshot(), "it is kept where it was installed");
            }
        }
    }

    #[tokio::test]
    async fn who_saw_any_older_table_is_told_what_changed_by_a_member_that_has_a_snapshot_of_it_all() {
        for seed in 0..20 {
            let (mut whole, mut tables) = (machine(&in_memory()), Vec::new());
            for entry in history(seed, 60) {
                whole.apply([entry]).await.unwrap();
                tables.push(whole.table());
            }
            let snapshot = whole.get_snapshot_builder().await.build_snapshot().await.unwrap();
            let mut other = machine(&in_memory());
            let mut watching = other.watch();
            other.install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
            assert_eq!(*watching.borrow_and_update(), whole.table(), "whoever waits is told");
            for known in tables {
                let update = Update::of_bytes(&other.update(Some(known.version))).unwrap();
                assert_eq!(update.apply(Some(&known)), Some(whole.table()), "seed {seed}");
            }
        }
    }

    #[tokio::test]
    async fn a_damaged_snapshot_is_not_put_in_place_and_nothing_is_purged_for_it() {
        let mut whole = machine(&in_memory());
        whole.apply(history(1, 30)).await.unwrap();
        let snapshot = whole.get_snapshot_builder().await.build_snapshot().await.unwrap();
        let log = in_memory();
        let mut other = machine(&log);
        other.apply(history(1, 3)).await.unwrap();
        let before = known(&other);
        let mut bytes = snapshot.snapshot.0.to_vec();
        bytes[30] ^= 4;
        let damaged = SnapshotBytes(Arc::new(bytes));
        assert!(other.problem(&snapshot.meta, &damaged).is_some_and(|problem| problem.contains("checksum")));
        assert_eq!(other.problem(&snapshot.meta, &snapshot.snapshot), None);
        assert!(other.install_snapshot(&snapshot.meta, Box::new(damaged)).await.is_err());
        assert_eq!((known(&other), log.snapshot()), (before, None));
        let last = snapshot.meta.last_log_id.unwrap();
        assert!(log.clone().purge(last).await.is_err(), "it waits for no snapshot that never comes");
        assert_eq!(log.purged(), None);
    }

    #[tokio::test]
    async fn a_snapshot_is_read_once_and_never_put_in_place_of_another() {
        let mut snapshots = Vec::new();
        for count in [20, 30] {
            let mut whole = machine(&in_memory());
            whole.apply(history(1, count)).await.unwrap();
            let snapshot = whole.get_snapshot_builder().await.build_snapshot().await.unwrap();
            snapshots.push((snapshot, known(&whole)));
        }
        let [(early, early_state), (late, late_state)] = &snapshots[..] else { unreachable!() };
        let mut other = machine(&in_memory());
        assert_eq!(other.problem(&late.meta, &late.snapshot), None);
        other.install_snapshot(&early.meta, early.snapshot.clone()).await.unwrap();
        assert!(known(&other) == *early_state, "it is in the state of another snapshot");
        assert!(other.last_read().is_some());
        other.install_snapshot(&late.meta, late.snapshot.clone()).await.unwrap();
        assert!(known(&other) == *late_state);
        assert!(other.last_read().is_none(), "it was read again, or is held for ever");
        let copy = SnapshotBytes(Arc::new(late.snapshot.0.to_vec()));
        assert_eq!(other.problem(&late.meta, &copy), None);
        other.forget_read();
        assert!(other.last_read().is_none());
    }

    #[tokio::test]
    async fn what_is_not_there_makes_no_empty_table() {
        let log = in_memory();
        let mut empty = machine(&log);
        assert!(empty.get_snapshot_builder().await.build_snapshot().await.is_err(), "a snapshot of nothing");
        empty.apply(history(1, 30)).await.unwrap();
        empty.get_snapshot_builder().await.build_snapshot().await.unwrap();
        let other = Machine::new(GroupOptions { slots: 5, ..RING }, log);
        assert!(matches!(other.err(), Some(CouncilError::Option { option: "ring.slots", .. })));
    }

    #[tokio::test]
    async fn what_changed_and_changed_back_is_told_to_who_saw_it_between() {
        let (node, incarnation) = (NodeId(1), Incarnation(1));
        let register = Change::Register {
            node,
            nonce: 1,
            address: "here".to_owned(),
            hints: PlacementHints::default(),
            survived: Survived::Nothing,
        };
        let changes = [register, Change::Fail { node, incarnation }, Change::Hear { node, incarnation }];
        let entries: Vec<EntryOf> = (1..).zip(changes).map(|(index, change)| entry(index, change)).collect();
        let new = || machine(&in_memory());
        let (mut one_by_one, mut together) = (new(), new());
        let mut tables = Vec::new();
        for entry in entries.clone() {
            one_by_one.apply([entry]).await.unwrap();
            tables.push(one_by_one.table());
        }
        let (first, behind) = entries.split_at(1);
        together.apply(first.to_vec()).await.unwrap();
        together.apply(behind.to_vec()).await.unwrap();
        assert!(!tables[1].members[&node].is_up);
        for known in tables {
            let update = Update::of_bytes(&together.update(Some(known.version))).unwrap();
            assert_eq!(update.apply(Some(&known)), Some(one_by_one.table()), "from {:?}", known.version);
        }
    }
}

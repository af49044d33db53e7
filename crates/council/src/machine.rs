//! The state machine of the group's log: the table.
//!
//! Invariant: the same entries make the same table on every member, and an update from any member turns an
//! older table of another one into the same table. It does not matter how many entries a member applied at a
//! time.

use crate::codec::{Coded, Update};
use crate::types::{Decisions, EntryOf, LogIdOf, Seat, SeatId, StorageError, Types};
use atoll_replica::{Group, GroupOptions, NodeId, Table, Version};
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageIOError,
    StoredMembership,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Encoded updates that are kept for nodes that ask from the same table.
const UPDATES_KEPT: usize = 16;

/// The state of all decisions so far. Clones share it.
#[derive(Clone)]
pub(crate) struct Machine {
    state: Arc<Mutex<State>>,
    table: watch::Sender<Arc<Table>>,
}

struct State {
    group: Group,
    applied: Option<LogIdOf>,
    membership: StoredMembership<SeatId, Seat>,
    /// The table in which each member of the ring last changed, including members that left.
    member_since: BTreeMap<NodeId, Version>,
    /// Encoded updates to the newest table, by the table that they start from.
    updates: BTreeMap<Option<Version>, Arc<Vec<u8>>>,
}

impl Machine {
    pub(crate) fn new(options: GroupOptions) -> Self {
        let group = Group::new(options);
        let (table, _) = watch::channel(group.table());
        let state = State {
            group,
            applied: None,
            membership: StoredMembership::default(),
            member_since: BTreeMap::new(),
            updates: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), table }
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
        let update = match known {
            None => Update::whole(&table),
            Some(since) => Update::since(&table, since, &state.member_since),
        };
        let update = Arc::new(update.to_bytes());
        if state.updates.len() < UPDATES_KEPT {
            state.updates.insert(known, Arc::clone(&update));
        }
        update
    }
}

impl State {
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
    type SnapshotBuilder = Self;

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
        self.table.send_if_modified(|known| {
            let is_newer = known.version != table.version;
            *known = table;
            is_newer
        });
        Ok(decisions)
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Vec<u8>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<SeatId, Seat>,
        _snapshot: Box<Vec<u8>>,
    ) -> Result<(), StorageError> {
        Err(StorageIOError::read_snapshot(Some(meta.signature()), AnyError::error("not there yet")).into())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        Ok(None)
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        Err(StorageIOError::write_snapshot(None, AnyError::error("not there yet")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Changes;
    use atoll_replica::{Change, Incarnation, PlacementHints, Survived};
    use openraft::{CommittedLeaderId, LogId};

    fn entry(index: u64, change: Change) -> EntryOf {
        let log_id = LogId::new(CommittedLeaderId::new(1, SeatId(1)), index);
        EntryOf { log_id, payload: EntryPayload::Normal(Changes::new(vec![change])) }
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
        let new = || Machine::new(GroupOptions { slots: 1, copies: 1 });
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

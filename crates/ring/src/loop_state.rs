//! The state of the event loop beside its connections, and what it shares with other threads of the node.

use crate::access::AccessList;
use crate::address::NodeName;
use crate::clock::{Clock, Now};
use crate::connection::Session;
use crate::copies::GatheringRoom;
use crate::keyspaces::slot_at;
use crate::log_rate_limit::LogRateLimit;
use crate::metrics::{Metrics, RingSeen};
use crate::options::{ConnectionLimits, Persistence};
use crate::setup::RingSetup;
use crate::slots::Slots;
use crate::split_requests::SplitRequests;
use crate::table::SlotTable;
use crate::token::Token;
use atoll_replica::{Moment, NodeId, PlacementHints, Table, Ticket, Version};
use atoll_resp::{ClientSelection, Limits};
use atoll_tls::NodeTls;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What is configured before anything is shared.
pub(crate) struct Choices {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: ConnectionLimits,
    pub(crate) token: Option<Token>,
    /// The users beside `default`.
    pub(crate) access: Option<AccessList>,
    pub(crate) tls: Option<NodeTls>,
    pub(crate) name: NodeName,
    /// Different at each start.
    pub(crate) run_id: NodeName,
    pub(crate) address: SocketAddr,
    pub(crate) memory_bytes: u64,
    /// Where a keyspace has no durability of its own.
    pub(crate) persistence: Persistence,
    /// Whether anything can outlive the process.
    pub(crate) keeps: bool,
    /// Its zone and its weight among other nodes.
    pub(crate) hints: PlacementHints,
    /// How many copies must be in sync for a write to be accepted, unless the keyspace has its own rule.
    pub(crate) in_sync_min: usize,
    /// What all nodes of its ring are started with alike, for those that join.
    pub(crate) setup: Option<Arc<RingSetup>>,
    /// Limits for gathering slots that come from other nodes.
    pub(crate) gathering: GatheringRoom,
}

#[cfg(test)]
impl Choices {
    /// For tests: no authentication, and writes are synced.
    #[allow(clippy::unwrap_used)]
    pub(crate) fn of_test(clock: Arc<dyn Clock>, address: SocketAddr) -> Self {
        Self {
            clock,
            limits: ConnectionLimits::default(),
            access: None,
            token: None,
            tls: None,
            name: NodeName::random().unwrap(),
            run_id: NodeName::random().unwrap(),
            address,
            memory_bytes: 1 << 30,
            persistence: Persistence::Always,
            keeps: true,
            hints: PlacementHints::default(),
            in_sync_min: 1,
            setup: None,
            gathering: GatheringRoom::default(),
        }
    }
}

/// What the loop and other threads of a node share.
pub(crate) struct Shared {
    pub(crate) chosen: Choices,
    pub(crate) began: Moment,
    pub(crate) metrics: Arc<Metrics>,
    /// Number of connections accepted so far.
    pub(crate) connection_ids: AtomicU64,
    /// Whether metrics are served, so that a loop has to report what it knows of the ring.
    pub(crate) is_metered: AtomicBool,
    ring_seen: Mutex<RingSeen>,
    table: Mutex<Arc<SlotTable>>,
    /// Number of table changes. The loop compares it to notice a new table without a lock.
    table_changes: AtomicU64,
    /// Whether the loop has ended.
    is_ended: Mutex<bool>,
    ended: Condvar,
}

impl Shared {
    pub(crate) fn new(chosen: Choices, table: SlotTable) -> Self {
        Self {
            began: chosen.clock.now().moment,
            chosen,
            metrics: Arc::default(),
            connection_ids: AtomicU64::new(0),
            is_metered: AtomicBool::new(false),
            ring_seen: Mutex::default(),
            table: Mutex::new(Arc::new(table)),
            table_changes: AtomicU64::new(0),
            is_ended: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// Whether any keyspace has a class, as far as the newest table tells.
    pub(crate) fn has_class(&self, class: Persistence) -> bool {
        let table = self.table();
        self.chosen.persistence == class
            || table.table().keyspaces.iter().any(|rules| rules.durability == Some(class))
    }

    /// Whether writes to any keyspace outlive the process.
    pub(crate) fn keeps_any(&self) -> bool {
        self.has_class(Persistence::EverySecond) || self.has_class(Persistence::Always)
    }

    /// Reports that a loop has ended.
    pub(crate) fn tell_end(&self) {
        *self.is_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }

    /// Waits until a loop has ended.
    pub(crate) fn wait_for_end(&self) {
        let is_ended = self.is_ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_while(is_ended, |is_ended| !*is_ended));
    }

    /// What a loop last reported about the ring.
    pub(crate) fn ring_seen(&self) -> RingSeen {
        self.ring_seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest table.
    pub(crate) fn table(&self) -> Arc<SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the table, unless a newer one is known.
    pub(crate) fn set_table(&self, table: SlotTable) {
        let mut known = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.version() >= known.version() {
            *known = Arc::new(table);
            self.table_changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Sets a table by updating the known one, which it mostly agrees with, as seen from node `me`.
    pub(crate) fn follow(&self, table: &Arc<Table>, me: NodeId) {
        let known = Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner));
        self.set_table(known.followed_by(Arc::clone(table), me));
    }
}

/// The state of the event loop beside its connections.
pub(crate) struct LoopState {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slots: Slots,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) table: Arc<SlotTable>,
    /// Whether this node is one of several and has not learned the state of its ring yet.
    pub(crate) is_loading: bool,
    /// The last reading of the clock, taken after every call that received something.
    pub(crate) now: Now,
    /// Requests that only the loop can answer, after the turns.
    pub(crate) asked: Vec<Asked>,
    /// How many more handshake steps this round may take.
    pub(crate) handshakes: u32,
    /// Requests that were split into several.
    pub(crate) split_requests: SplitRequests,
    pub(crate) wrong_passwords: LogRateLimit,
    /// Clients that were turned away because they speak another protocol.
    strangers: LogRateLimit,
    table_changes: u64,
    /// The version of the list of users that connections were last checked against.
    access_changes: u64,
    tickets: u64,
    ring_seen_at: Moment,
}

/// How often a loop reports what it knows of the ring: adding it up takes a look at every slot.
const RING_SEEN_EVERY_US: u64 = 1_000_000;

/// Most requests in a round that are answered at its end with replies that may be long.
const ASKED_MAX: usize = 8;

/// A request that only the loop can answer.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// A list of connections.
    Clients(Ticket, ClientSelection),
}

/// Low bits of a ticket, which count; the bits above them are the index of the connection.
const TICKET_BITS: u32 = 40;

impl LoopState {
    pub(crate) fn new(shared: Arc<Shared>, slots: Slots) -> Self {
        let metrics = Arc::clone(&shared.metrics);
        let (table, now) = (shared.table(), shared.chosen.clock.now());
        let is_loading = is_of_nothing(&table, &slots);
        Self {
            shared,
            slots,
            metrics,
            table,
            is_loading,
            now,
            asked: Vec::new(),
            handshakes: 0,
            split_requests: SplitRequests::default(),
            wrong_passwords: LogRateLimit::default(),
            strangers: LogRateLimit::default(),
            table_changes: 0,
            access_changes: 0,
            tickets: 0,
            ring_seen_at: Moment::default(),
        }
    }

    /// Whether so many replies wait for the end of the round that no more requests are to be executed in it.
    pub(crate) fn has_much_to_tell(&self) -> bool {
        self.slots.answer_bytes() >= self.limits().unsent_bytes_pause || self.asked.len() >= ASKED_MAX
    }

    pub(crate) fn limits(&self) -> &ConnectionLimits {
        &self.shared.chosen.limits
    }

    /// Limits for one request of a client.
    pub(crate) fn request_limits(&self, session: &Session) -> Limits {
        if session.is_authenticated { self.limits().request } else { Limits::UNAUTHENTICATED }
    }

    /// Reports what this loop knows of the ring, if metrics are served.
    pub(crate) fn tell_ring_seen(&mut self) {
        let is_due = self.now.moment >= self.ring_seen_at.after(RING_SEEN_EVERY_US);
        if !is_due || !self.shared.is_metered.load(Ordering::Acquire) {
            return;
        }
        self.ring_seen_at = self.now.moment;
        let stats = self.slots.engine().stats();
        let seen = RingSeen {
            group: self.slots.group_heard(self.now),
            others: self.slots.others_seen(),
            memory_bytes: stats.memory_bytes,
            file_bytes: stats.file_bytes,
        };
        *self.shared.ring_seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// Counts, and at times logs, a client that was turned away because it speaks another protocol. There may
    /// be any number of them.
    pub(crate) fn turned_away(&mut self, peer: SocketAddr, why: &dyn Display) {
        if let Some(times) = self.strangers.record(self.now.moment) {
            tracing::warn!(%peer, %why, times, "a client was refused");
        }
    }

    /// Logs the events that were counted without being logged.
    pub(crate) fn log_rate_limited(&mut self) {
        let now = self.now.moment;
        if let Some(times) = self.wrong_passwords.due(now) {
            tracing::warn!(times, "more wrong passwords");
        }
        if let Some(times) = self.strangers.due(now) {
            tracing::warn!(times, "more clients were refused");
        }
    }

    /// Whether the list of users has changed since the last call.
    pub(crate) fn look_at_access(&mut self) -> bool {
        let changes = self.shared.chosen.access.as_ref().map_or(0, |access| access.changes());
        std::mem::replace(&mut self.access_changes, changes) != changes
    }

    /// Whether the user of a session is unchanged in the newest list of users.
    pub(crate) fn renew(&self, session: &mut Session) -> bool {
        let Some(who) = &session.who else { return true };
        let renewed = self.shared.chosen.access.as_ref().and_then(|access| access.renewed(who));
        let is_same = renewed.is_some();
        if is_same {
            session.who = renewed;
        }
        is_same
    }

    /// Takes one of the handshake steps of this round. Returns whether there was one left.
    pub(crate) fn may_shake_hands(&mut self) -> bool {
        let left = self.handshakes.checked_sub(1);
        self.handshakes = left.unwrap_or(0);
        left.is_some()
    }

    /// Reads the clock; the date is the one that this node uses.
    pub(crate) fn look_at_clock(&mut self) {
        self.now = self.slots.dated(self.shared.chosen.clock.now());
    }

    /// Reads the clock. Returns whether `moment` has come; if it is not set yet, sets it to `us` microseconds
    /// from now.
    pub(crate) fn is_past(&mut self, moment: &mut Option<Moment>, us: u64) -> bool {
        self.look_at_clock();
        self.now.moment >= *moment.get_or_insert(self.now.moment.after(us))
    }

    /// Dates the current moment again: other nodes may have reported their clocks since.
    pub(crate) fn date_again(&mut self) {
        self.now = self.slots.dated_again(self.now);
    }

    /// Takes over a new table, if there is one.
    pub(crate) fn look_at_table(&mut self) {
        let changes = self.shared.table_changes.load(Ordering::Acquire);
        if changes != self.table_changes {
            (self.table_changes, self.table) = (changes, self.shared.table());
            self.is_loading = is_of_nothing(&self.table, &self.slots);
        }
    }

    /// Makes a fresh ticket.
    pub(crate) fn next_ticket(&mut self, session: &Session) -> Ticket {
        self.tickets = (self.tickets + 1) & ((1 << TICKET_BITS) - 1);
        Ticket((session.key as u64) << TICKET_BITS | self.tickets)
    }

    /// Number of keys in the slots of a keyspace that this node leads, so that a sum over all nodes counts
    /// each key once.
    pub(crate) fn keys(&self, keyspace: u8) -> u64 {
        self.table.own_slots(keyspace).map(|slot| self.slots.keys_in(slot)).sum()
    }

    /// What acknowledged writes to a keyspace survive.
    pub(crate) fn persistence(&self, keyspace: u8) -> Persistence {
        self.table.table().persistence_of(slot_at(keyspace, 0), self.shared.chosen.persistence)
    }

    /// Whether this node can acknowledge writes to a keyspace: one in memory has nothing that outlives it.
    pub(crate) fn can_keep(&self, keyspace: u8) -> bool {
        self.shared.chosen.keeps || self.persistence(keyspace) == Persistence::Off
    }

    /// Fewest copies, beside its own, that have every acknowledged write of a keyspace.
    pub(crate) fn replicas_min(&self, keyspace: u8) -> usize {
        if self.slots.is_alone() {
            return 0;
        }
        let chosen = (usize::MAX, self.shared.chosen.in_sync_min);
        let (_, in_sync_min) = self.table.table().copies_of(slot_at(keyspace, 0), chosen);
        in_sync_min.saturating_sub(1)
    }
}

/// Whether a table is the empty one that a node of several begins with, before the configuration group sent
/// it one.
fn is_of_nothing(table: &SlotTable, slots: &Slots) -> bool {
    table.version() == Version(0) && !slots.is_alone()
}

/// The index of the connection that a ticket was made for.
pub(crate) fn key_of(ticket: Ticket) -> usize {
    usize::try_from(ticket.0 >> TICKET_BITS).unwrap_or(usize::MAX)
}

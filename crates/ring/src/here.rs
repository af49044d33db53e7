//! What everything on one loop shares, beside its connections.

use crate::access::AccessList;
use crate::address::NodeName;
use crate::clock::{Clock, Now};
use crate::connection::Session;
use crate::copies::GatheringRoom;
use crate::gathered::Gathered;
use crate::keyspaces::slot_at;
use crate::metrics::{Metrics, RingSeen};
use crate::options::{ConnectionLimits, Persistence};
use crate::seldom::Seldom;
use crate::slots::Slots;
use crate::table::SlotTable;
use crate::token::Token;
use atoll_replica::{Moment, NodeId, Table, Ticket, Version};
use atoll_resp::Limits;
use atoll_tls::NodeTls;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What is chosen before anything is shared.
pub(crate) struct Choices {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: ConnectionLimits,
    pub(crate) token: Option<Token>,
    /// The users beside the one who shows the token.
    pub(crate) access: Option<AccessList>,
    pub(crate) tls: Option<NodeTls>,
    pub(crate) name: NodeName,
    /// Another one for each start.
    pub(crate) run_id: NodeName,
    pub(crate) address: SocketAddr,
    pub(crate) memory_bytes: u64,
    pub(crate) persistence: Persistence,
    /// How many copies must be in sync for a write to be taken, where a keyspace says nothing of it.
    pub(crate) in_sync_min: usize,
    /// What may be gathered of slots that come from other nodes.
    pub(crate) gathering: GatheringRoom,
}

#[cfg(test)]
impl Choices {
    /// Those of a test: everybody is let in, and what is written is synced.
    #[allow(clippy::unwrap_used)]
    pub(crate) fn of_test(clock: Arc<dyn Clock>, address: SocketAddr) -> Self {
        let (access, token, tls) = Default::default();
        Self {
            clock,
            limits: ConnectionLimits::default(),
            access,
            token,
            tls,
            name: NodeName::random().unwrap(),
            run_id: NodeName::random().unwrap(),
            address,
            memory_bytes: 1 << 30,
            persistence: Persistence::Always,
            in_sync_min: 1,
            gathering: GatheringRoom::default(),
        }
    }
}

/// What is the same on all loops of a node.
pub(crate) struct Shared {
    pub(crate) chosen: Choices,
    pub(crate) began: Moment,
    /// Those of each loop.
    pub(crate) metrics: Vec<Arc<Metrics>>,
    /// Connections of all loops.
    pub(crate) connection_ids: AtomicU64,
    /// Whether somebody may ask what is counted, and what a loop knows of the ring if so.
    pub(crate) is_metered: AtomicBool,
    ring_seen: Mutex<RingSeen>,
    table: Mutex<Arc<SlotTable>>,
    /// Counts how often there was another table, so that loops see that without a lock.
    table_changes: AtomicU64,
    /// Whether a loop ended.
    is_ended: Mutex<bool>,
    ended: Condvar,
}

impl Shared {
    pub(crate) fn new(chosen: Choices, loops: usize, table: SlotTable) -> Self {
        Self {
            began: chosen.clock.now().moment,
            chosen,
            metrics: (0..loops).map(|_| Arc::default()).collect(),
            connection_ids: AtomicU64::new(0),
            is_metered: AtomicBool::new(false),
            ring_seen: Mutex::default(),
            table: Mutex::new(Arc::new(table)),
            table_changes: AtomicU64::new(0),
            is_ended: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// What the connections of one loop may take.
    pub(crate) fn memory_bytes_max_each(&self) -> u64 {
        self.chosen.limits.memory_bytes_max / self.metrics.len().max(1) as u64
    }

    /// Whether anything outlives the process.
    pub(crate) fn is_kept(&self) -> bool {
        self.chosen.persistence != Persistence::Off
    }

    /// How that is called by Redis.
    pub(crate) fn persistence_name(&self) -> &'static str {
        match self.chosen.persistence {
            Persistence::Off => "no",
            Persistence::EverySecond => "everysec",
            Persistence::Always => "always",
        }
    }

    /// A loop ended.
    pub(crate) fn tell_end(&self) {
        *self.is_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }

    /// Waits until a loop ended.
    pub(crate) fn wait_for_end(&self) {
        let is_ended = self.is_ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_while(is_ended, |is_ended| !*is_ended));
    }

    /// What a loop knew of the ring.
    pub(crate) fn ring_seen(&self) -> RingSeen {
        self.ring_seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest table.
    pub(crate) fn table(&self) -> Arc<SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on this is the table, unless a newer one is known.
    pub(crate) fn set_table(&self, table: SlotTable) {
        let mut known = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.version() >= known.version() {
            *known = Arc::new(table);
            self.table_changes.fetch_add(1, Ordering::Release);
        }
    }

    /// The same of a table that mostly says what the known one says, seen from one of its nodes.
    pub(crate) fn follow(&self, table: &Arc<Table>, me: NodeId) {
        let known = Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner));
        self.set_table(known.followed_by(Arc::clone(table), me));
    }
}

/// What everything on one loop shares, beside its connections.
pub(crate) struct Here {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slots: Slots,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) table: Arc<SlotTable>,
    /// Whether it is not known yet what the ring is, of which this node is one of several.
    pub(crate) is_loading: bool,
    /// When the clock was read last: behind every call that received something.
    pub(crate) now: Now,
    /// What only the loop can answer, once the turns are over.
    pub(crate) asked: Vec<Asked>,
    /// How many more steps of handshakes this round may take.
    pub(crate) handshakes: u32,
    /// Requests that became several.
    pub(crate) gathered: Gathered,
    pub(crate) wrong_passwords: Seldom,
    /// Those who were turned away because they do not speak as clients do.
    strangers: Seldom,
    table_changes: u64,
    /// How often there was another list of users when connections were last held to it.
    access_changes: u64,
    tickets: u64,
    ring_seen_at: Moment,
}

/// How often what is known of the ring is told to whoever may ask for it: to add it up takes a look at every
/// slot.
const RING_SEEN_EVERY_US: u64 = 1_000_000;

/// Requests of a round that are answered at its end with what may be long.
const ASKED_MAX: usize = 8;

/// What only the loop can answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// A list of all connections.
    Clients(Ticket),
}

/// Bits of a ticket that count; those above tell the connection.
const TICKET_BITS: u32 = 40;

impl Here {
    pub(crate) fn new(shared: Arc<Shared>, slots: Slots, place: usize) -> Self {
        let metrics = shared.metrics.get(place).cloned().unwrap_or_default();
        let (table, now) = (shared.table(), shared.chosen.clock.now());
        let is_loading = is_of_nothing(&table, &slots);
        let (asked, handshakes, gathered, tickets, ring_seen_at) = Default::default();
        let (wrong_passwords, strangers) = Default::default();
        let (table_changes, access_changes) = Default::default();
        Self {
            shared,
            slots,
            metrics,
            table,
            is_loading,
            now,
            asked,
            handshakes,
            gathered,
            wrong_passwords,
            strangers,
            table_changes,
            access_changes,
            tickets,
            ring_seen_at,
        }
    }

    /// Whether so much waits to be told at the end of the round that nothing more is to be asked in it.
    pub(crate) fn has_much_to_tell(&self) -> bool {
        self.slots.answer_bytes() >= self.limits().unsent_bytes_pause || self.asked.len() >= ASKED_MAX
    }

    pub(crate) fn limits(&self) -> &ConnectionLimits {
        &self.shared.chosen.limits
    }

    /// What a client may send in one request.
    pub(crate) fn request_limits(&self, session: &Session) -> Limits {
        if session.is_authenticated { self.limits().request } else { Limits::UNAUTHENTICATED }
    }

    /// Tells what is known of the ring to whoever may ask for it.
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

    /// Somebody was turned away who does not speak as clients do. There may be any number of them, so not
    /// each is said in the log.
    pub(crate) fn turned_away(&mut self, peer: SocketAddr, why: &dyn Display) {
        if let Some(times) = self.strangers.happened(self.now.moment) {
            tracing::warn!(%peer, %why, times, "a client was turned away");
        }
    }

    /// Says in the log what happened so often that it was not said each time.
    pub(crate) fn tell_seldom(&mut self) {
        let now = self.now.moment;
        if let Some(times) = self.wrong_passwords.due(now) {
            tracing::warn!(times, "more wrong passwords");
        }
        if let Some(times) = self.strangers.due(now) {
            tracing::warn!(times, "more clients were turned away");
        }
    }

    /// Whether there is another list of users since the last time.
    pub(crate) fn look_at_access(&mut self) -> bool {
        let changes = self.shared.chosen.access.as_ref().map_or(0, |access| access.changes());
        std::mem::replace(&mut self.access_changes, changes) != changes
    }

    /// Whether whoever has this connection is who it was by the newest list of users as well.
    pub(crate) fn renew(&self, session: &mut Session) -> bool {
        let Some(who) = &session.who else { return true };
        let renewed = self.shared.chosen.access.as_ref().and_then(|access| access.renewed(who));
        let is_same = renewed.is_some();
        if is_same {
            session.who = renewed;
        }
        is_same
    }

    /// Whether this round may take one more step of a handshake, which is then taken.
    pub(crate) fn may_shake_hands(&mut self) -> bool {
        let left = self.handshakes.checked_sub(1);
        self.handshakes = left.unwrap_or(0);
        left.is_some()
    }

    /// Reads the clock; its date is the one to go by.
    pub(crate) fn look_at_clock(&mut self) {
        self.now = self.slots.dated(self.shared.chosen.clock.now());
    }

    /// Reads the clock, and whether it is this moment or a later one; where there is none yet it is so many
    /// microseconds from now on.
    pub(crate) fn is_past(&mut self, moment: &mut Option<Moment>, us: u64) -> bool {
        self.look_at_clock();
        self.now.moment >= *moment.get_or_insert(self.now.moment.after(us))
    }

    /// Dates the same moment again: nodes may have told what their clocks say since.
    pub(crate) fn date_again(&mut self) {
        self.now = self.slots.dated_again(self.now);
    }

    /// Takes another table if there is one.
    pub(crate) fn look_at_table(&mut self) {
        let changes = self.shared.table_changes.load(Ordering::Acquire);
        if changes != self.table_changes {
            (self.table_changes, self.table) = (changes, self.shared.table());
            self.is_loading = is_of_nothing(&self.table, &self.slots);
        }
    }

    /// A ticket that nobody had before.
    pub(crate) fn next_ticket(&mut self, session: &Session) -> Ticket {
        self.tickets = (self.tickets + 1) & ((1 << TICKET_BITS) - 1);
        Ticket((session.key as u64) << TICKET_BITS | self.tickets)
    }

    /// Keys of the slots of a keyspace that this node leads: whoever adds up all nodes counts each once.
    pub(crate) fn keys(&self, keyspace: u8) -> u64 {
        self.table.own_slots(keyspace).map(|slot| self.slots.keys_in(slot)).sum()
    }

    /// Copies beside its own that have everything which was acknowledged in this keyspace, at least.
    pub(crate) fn replicas_min(&self, keyspace: u8) -> usize {
        if self.slots.is_alone() {
            return 0;
        }
        let chosen = (usize::MAX, self.shared.chosen.in_sync_min);
        let (_, in_sync_min) = self.table.table().copies_of(slot_at(keyspace, 0), chosen);
        in_sync_min.saturating_sub(1)
    }
}

/// Whether a table is that with which a node of several begins, before the configuration group told it of
/// any.
fn is_of_nothing(table: &SlotTable, slots: &Slots) -> bool {
    table.version() == Version(0) && !slots.is_alone()
}

/// The key of the connection that a ticket was made for.
pub(crate) fn key_of(ticket: Ticket) -> usize {
    usize::try_from(ticket.0 >> TICKET_BITS).unwrap_or(usize::MAX)
}

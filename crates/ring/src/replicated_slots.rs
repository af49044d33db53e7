//! The slots of a node of several: its copies, and the events that other threads send to the loop.
//!
//! Invariant: the clock is read after an event comes in and before it takes effect.

use crate::NodeError;
use crate::clock::Now;
use crate::copies::{Copies, WriteExtra};
use crate::folder;
use crate::group::{GroupEvent, GroupHeard};
use crate::loop_state::Shared;
use crate::membership_log::MembershipLog;
use crate::metrics::Metrics;
use crate::options::Persistence;
use crate::peer::Spoken;
use crate::peer_addresses::{Located, PeerAddresses};
use crate::reliance;
use crate::slots::Asking;
use crate::syncer::{Logged, Syncer};
use crate::watches::Watch;
use atoll_engine::EngineError;
use atoll_errors::ErrorKind;
use atoll_keyspace::Overdue;
use atoll_replica::{Incarnation, Input, KeyspaceRules, Moment, NodeId, Slot, Table, Ticket, Version};
use atoll_resp::Protocol;
use mio::Registry;
use mio::event::Event;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Capacity for messages of other nodes that is kept from one round to the next.
const HEARD_KEPT: usize = 4096;

/// How often a table is retried for whose keyspaces the disk had no room, in microseconds.
const TRY_EACH_US: u64 = 200_000;

/// What other threads send to the loop.
pub(crate) enum LoopEvent {
    /// An event of the configuration group.
    Group(GroupEvent),
    /// These entries are synced, or syncing failed for good.
    Synced(Result<Logged, EngineError>),
    /// The address of a node that is known by its host name.
    Located(Located),
}

/// The slots of a node of several.
pub(crate) struct ReplicatedSlots {
    pub(crate) copies: Copies,
    told: Receiver<LoopEvent>,
    syncer: Option<Syncer>,
    shared: Arc<Shared>,
    me: NodeId,
    ticked_at: Moment,
    tick_us: u64,
    /// When this node sent the request that the configuration group answered last; when the node began,
    /// before the first answer.
    heard_at: Moment,
    /// The leader of the group at that time.
    group_leader: Option<NodeId>,
    /// Whether this node's seat in the group failed.
    is_seat_lost: bool,
    /// Whether this node's seat in the group waits for room on its disk.
    is_seat_waiting: bool,
    has_begun: bool,
    /// The number of the ring, once the group told it.
    pub(crate) ring: Option<u64>,
    /// Whether more cells could be sent to other nodes at once.
    has_pieces: bool,
    heard: Vec<(NodeId, Incarnation, Spoken)>,
    addressed: Version,
    /// A table whose keyspaces the disk has no room for yet, and when it was last tried.
    put_off: Option<(Arc<Table>, Moment)>,
    addresses: PeerAddresses,
    membership_log: MembershipLog,
    failed: Option<NodeError>,
    /// The counters of the loop.
    metrics: Arc<Metrics>,
}

impl ReplicatedSlots {
    pub(crate) fn new(
        copies: Copies,
        told: Receiver<LoopEvent>,
        syncer: Option<Syncer>,
        shared: Arc<Shared>,
        (me, tick_us): (NodeId, u64),
        addresses: PeerAddresses,
    ) -> Self {
        let metrics = shared.metrics.clone();
        // The group has not been asked before: until its first answer it counts as silent since the node
        // began.
        let heard_at = shared.began;
        Self {
            copies,
            told,
            syncer,
            shared,
            me,
            ticked_at: Moment::default(),
            tick_us,
            heard_at,
            group_leader: None,
            is_seat_lost: false,
            is_seat_waiting: false,
            has_begun: false,
            ring: None,
            has_pieces: false,
            heard: Vec::new(),
            addressed: Version::default(),
            put_off: None,
            addresses,
            membership_log: MembershipLog::default(),
            failed: None,
            metrics,
        }
    }

    /// How long the loop may wait: not at all while there are more cells to send or more messages to receive,
    /// of which each round handles some.
    pub(crate) fn tick(&self) -> Duration {
        let has_more = self.has_pieces || self.copies.peers.has_rest();
        Duration::from_micros(if has_more { 0 } else { self.tick_us })
    }

    /// When the configuration group last answered, and who led it then.
    pub(crate) fn group_heard(&self, now: Now) -> GroupHeard {
        let silence = Duration::from_micros(now.moment.0.saturating_sub(self.heard_at.0));
        let is_seat_lost = self.is_seat_lost || self.is_seat_waiting;
        GroupHeard { silence, leader: self.group_leader, is_seat_lost }
    }

    /// Keeps the first error until the end of the round, which then ends the node.
    pub(crate) fn note(&mut self, done: Result<(), NodeError>) {
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }

    /// Handles what the poll reported about a peer.
    pub(crate) fn notice(&mut self, event: &Event, registry: &Registry) {
        let heard = &mut self.heard;
        self.copies.peers.notice(event, registry, &mut |from, incarnation, spoken| {
            heard.push((from, incarnation, spoken));
        });
    }

    /// Receives from peers that had more to say than fits in a turn, and from those that shake hands.
    pub(crate) fn receive(&mut self, registry: &Registry) {
        let heard = &mut self.heard;
        let hear = &mut |from, incarnation, spoken| heard.push((from, incarnation, spoken));
        self.copies.peers.receive_rest(registry, hear);
        self.copies.peers.shake_hands(registry, hear);
    }

    /// Takes what was received from peers, and what other threads sent. `now` was read after the last message
    /// was received: a promise counts from `now`, and must not count from before its question came. For what
    /// other threads sent since it may be a little too early, which is as if their event had not come yet.
    pub(crate) fn hear(&mut self, now: Now, registry: &Registry) -> Result<(), NodeError> {
        for one in to_be_taken(self.told.try_iter().collect()) {
            self.take(one, now, registry)?;
        }
        self.metrics.peer_messages_received.add(self.heard.len() as u64);
        for (from, incarnation, spoken) in self.heard.drain(..) {
            self.copies.hear(now, from, incarnation, spoken)?;
        }
        self.copies.take_early(now)?;
        let now = self.copies.dates.readjusted(now);
        // Keep the buffer, but not the memory of a flood.
        self.heard.shrink_to(HEARD_KEPT);
        if self.has_begun && now.moment >= self.ticked_at.after(self.tick_us) {
            self.ticked_at = now.moment;
            if self.put_off.is_none() {
                // While a newer table is put off this node must stay silent: only then do others take over
                // what that table gave to it.
                self.copies.at_work(now.moment);
            }
            self.addresses.seek(self.copies.peers.take_lost());
            self.copies.try_again(now)?;
            if let Some((table, _)) =
                self.put_off.take_if(|(_, tried_at)| now.moment >= tried_at.after(TRY_EACH_US))
            {
                self.put_off = Some((table.clone(), now.moment));
                self.take_table(table, now, registry)?;
            }
            self.copies.step(now, Input::Tick)?;
        }
        Ok(())
    }

    fn take(&mut self, told: LoopEvent, now: Now, registry: &Registry) -> Result<(), NodeError> {
        match told {
            LoopEvent::Group(GroupEvent::Registered(incarnation, ring)) => {
                (self.has_begun, self.ring) = (true, Some(ring));
                // These messages may be from a node of another ring, in which it has the same number and the
                // same incarnation.
                self.heard.clear();
                let engine = self.copies.keyspaces.engine();
                // What could not be recorded is recorded in the next incarnation. Until then the store looks
                // like one of an earlier build: it belongs to the ring that it joins next, and asks for more
                // copies than it needs.
                for noted in [folder::join(engine, ring), reliance::note_told(engine)] {
                    match noted {
                        Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                            tracing::warn!(%error, "the state of the configuration group could not be saved");
                        }
                        noted => noted?,
                    }
                }
                self.copies.begin(now, (incarnation, ring), registry)
            }
            LoopEvent::Group(GroupEvent::Table(table)) => self.take_table(table, now, registry),
            LoopEvent::Group(GroupEvent::Heard(asked_at, leader)) => {
                self.group_leader = leader;
                self.heard_at = self.heard_at.max(asked_at);
                match self.put_off {
                    // The answer counts only for a node that follows the table, which may have taken slots
                    // from this one.
                    Some(_) => Ok(()),
                    None => self.copies.step(now, Input::GroupHeard { asked_at }),
                }
            }
            LoopEvent::Group(GroupEvent::SeatLost) => {
                self.is_seat_lost = true;
                Ok(())
            }
            LoopEvent::Group(GroupEvent::SeatWaits(is_waiting)) => {
                self.is_seat_waiting = is_waiting;
                Ok(())
            }
            LoopEvent::Group(GroupEvent::OtherRing) => Err(NodeError::OtherRing),
            LoopEvent::Group(GroupEvent::NumberTaken(address)) => {
                Err(NodeError::NumberTaken { number: self.me.0, address })
            }
            LoopEvent::Group(GroupEvent::Lost(why)) => Err(NodeError::Group { why }),
            LoopEvent::Synced(logged) => self.copies.logged(now, logged?),
            LoopEvent::Located(located) => {
                if self.addresses.locate(located) {
                    self.copies.peers.set_addresses(self.addresses.all(), registry);
                }
                Ok(())
            }
        }
    }

    /// Follows a table once the disk has room for the keyspaces that it names. Until then this node looks to
    /// the others like one that has not received it.
    fn take_table(&mut self, table: Arc<Table>, now: Now, registry: &Registry) -> Result<(), NodeError> {
        if table.version > self.addressed {
            // Grow first: the table takes effect for requests right after this.
            self.check_keeps(&table)?;
            match self.copies.keyspaces.follow(&table.keyspaces) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                    if self.put_off.is_none() {
                        tracing::error!(%error, "the disk is full: there is no room for another keyspace of the ring");
                    }
                    self.put_off = Some((table, now.moment));
                    return Ok(());
                }
                grown => grown?,
            }
            self.put_off = None;
            self.addressed = table.version;
            self.shared.follow(&table, self.me);
            self.addresses.follow(&table);
            self.membership_log.follow(&table);
            self.copies.dates.follow(&table);
            self.copies.peers.set_addresses(self.addresses.all(), registry);
        }
        self.copies.step(now, Input::Table(table))?;
        if self.has_begun && self.copies.is_superseded() { Err(NodeError::Superseded) } else { Ok(()) }
    }

    /// A node in memory cannot acknowledge what has to outlive it. One that starts with such a keyspace in
    /// the table does not go on; one that meets it later serves the others, and logs nothing of this one.
    fn check_keeps(&self, table: &Table) -> Result<(), NodeError> {
        let is_kept =
            |rules: &&KeyspaceRules| rules.durability.is_some_and(|class| class != Persistence::Off);
        let Some(kept) = table.keyspaces.iter().find(is_kept).filter(|_| !self.shared.chosen.keeps) else {
            return Ok(());
        };
        let error = NodeError::KeepsNothing { keyspace: kept.name.to_string() };
        if self.addressed == Version::default() {
            return Err(error);
        }
        if table.keyspaces.len() != self.copies.keyspaces.count() - 1 {
            tracing::error!(%error, "writes to that keyspace wait for nodes with a folder");
        }
        Ok(())
    }

    /// Makes what was logged as durable as each keyspace asks for, and sends what there is to send.
    pub(crate) fn settle(&mut self, now: Now, registry: &Registry) -> Result<(), NodeError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        // Entries that count as logged may commit others, which are then logged in turn.
        while self.hand_over(now)? {}
        self.copies.propose();
        self.has_pieces = self.copies.send_pieces(now)?;
        self.metrics.failures.add(self.copies.take_failures());
        self.copies.peers.flush(now.moment, self.copies.dates.own_date_ms(now.moment), registry);
        let peers = &self.copies.peers;
        self.metrics.peer_messages_sent.set(peers.said);
        self.metrics.peer_messages_dropped.set(peers.dropped);
        self.metrics.copies_given_up.set(self.copies.given_up());
        self.metrics.long_copies.set(self.copies.long_arrivals());
        self.metrics.entries_ahead.set(self.copies.dates.ahead());
        self.metrics.entries_not_taken.set(self.copies.contradictions.count());
        Ok(())
    }

    fn hand_over(&mut self, now: Now) -> Result<bool, NodeError> {
        if !self.copies.write_log()? {
            return Ok(false);
        }
        let mut logged = self.copies.take_handed();
        if logged.is_empty() {
            return Ok(false);
        }
        // All are written by now. One sync covers them all, and only those wait for it whose keyspace asks.
        let keyspaces = &self.copies.keyspaces;
        let waits = |slot| self.syncer.is_some() && keyspaces.class_of(slot) == Persistence::Always;
        // Nearly always all of them wait, or none, and then none is moved.
        let waiting: Logged = match logged.iter().all(|(slot, ..)| waits(*slot)) {
            true => std::mem::take(&mut logged),
            false => logged.extract_if(.., |(slot, ..)| waits(*slot)).collect(),
        };
        if let Some(syncer) = self.syncer.as_ref().filter(|_| !waiting.is_empty()) {
            syncer.hand(waiting);
        }
        self.copies.logged(now, logged)?;
        Ok(true)
    }

    /// Does what a client asks; the answer comes under its ticket.
    pub(crate) fn ask(&mut self, asking: &Asking<'_, '_>, is_write: bool, protocol: Protocol) {
        let Asking { slot, now, command, request, ticket, returned, .. } = *asking;
        let keys = asking.keys.places(request.len());
        let done = match is_write {
            true => {
                let extra = WriteExtra::of(command, returned);
                self.copies.write(slot, now, request, keys, (ticket, protocol), extra)
            }
            false => self.copies.read(slot, now, request, keys, (ticket, protocol)),
        };
        self.note(done);
    }

    /// Begins a watch.
    pub(crate) fn watch(&mut self, slot: Slot, now: Now, watch: Watch) {
        let done = self.copies.watch(slot, now, watch);
        self.note(done);
    }

    /// Deletes expired keys of a slot through its log. Returns whether that was accepted.
    pub(crate) fn expire(&mut self, slot: Slot, now: Now, overdue: &[Overdue]) -> bool {
        let before = self.copies.refused_expiries();
        let done = self.copies.expire_now(slot, now, overdue);
        self.note(done);
        self.copies.refused_expiries() == before
    }

    /// Forgets clients of a slot that were silent for long, through its log.
    pub(crate) fn forget_clients(&mut self, slot: Slot, now: Now, most: u64) {
        let done = self.copies.forget_clients(slot, now, most);
        self.note(done);
    }

    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Vec<u8>)> {
        self.copies.take_answers()
    }
}

/// Selects the events to handle, in order. Of several tables only the newest counts. A `Heard` before it in
/// the queue is moved behind it: it holds for a node that follows a table as new as the group's at that time.
fn to_be_taken(mut told: Vec<LoopEvent>) -> Vec<LoopEvent> {
    let is_table = |one: &LoopEvent| matches!(one, LoopEvent::Group(GroupEvent::Table(_)));
    let Some(newest) = told.iter().rposition(is_table) else { return told };
    let behind = told.split_off(newest);
    told.retain(|one| !is_table(one));
    let (heard, mut taken): (Vec<_>, Vec<_>) =
        told.into_iter().partition(|one| matches!(one, LoopEvent::Group(GroupEvent::Heard(..))));
    let mut behind = behind.into_iter();
    taken.extend(behind.next());
    taken.extend(heard);
    taken.extend(behind);
    taken
}

#[cfg(test)]
mod tests;

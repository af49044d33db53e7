//! A round: connections have their turns, their writes are made durable, and their replies leave.
//!
//! Before a batch of connections have their turns, all of them receive, and what their requests will touch is
//! prefetched, so that the cache misses overlap.

use super::{EventLoop, HANDSHAKES_MAX};
use crate::NodeError;
use crate::clients;
use crate::connection::{Connection, End, Turn, bring_nearer};
use crate::loop_state::{Asked, key_of};
use crate::watches::met_without_value;
use atoll_keyspace::NEAR_AT_ONCE;
use atoll_replica::Ticket;
use atoll_resp::{Protocol, ReplyWriter};

/// Roughly how long turns go on in a round, in microseconds. Messages of other nodes are received and sent
/// between rounds only.
const TURNS_US: u64 = 20_000;

/// Replies up to this length find room without being counted: of the 1,024 that a client may await all take
/// 16 MiB.
const SHORT_REPLY_BYTES: usize = 16 << 10;

/// Values that watches waited for take at most one part in this many of what may be unsent: whoever waited
/// for more is told that it is there, and reads it. The rest is for replies that cannot do without.
const WATCHED_SHARE: usize = 2;

/// The reply to a read whose own reply became too long while it waited.
const NO_ROOM: &[u8] = b"-TRYAGAIN too much waits to be sent to this client; nothing happened\r\n";

impl EventLoop {
    pub(super) fn round(&mut self) -> Result<(), NodeError> {
        self.here.metrics.rounds.add(1);
        self.here.handshakes = HANDSHAKES_MAX;
        let mut turns = std::mem::take(&mut self.next);
        // Receiving messages and releasing held replies may have taken as long as a round.
        self.here.look_at_clock();
        let (mut done, ends) = (0, self.here.now.moment.after(TURNS_US));
        for keys in turns.chunks(NEAR_AT_ONCE) {
            let worked = self.work(keys);
            done += worked;
            // The last of these connections may have had a long turn without a look at the clock.
            self.here.look_at_clock();
            if worked < keys.len() || self.here.now.moment >= ends {
                break;
            }
        }
        // Connections without a turn in this round come first in the next one, before those that had one and
        // want another.
        turns.drain(..done);
        turns.append(&mut self.next);
        self.next = turns;
        // Before any reply to what was written in this round leaves.
        self.revoke();
        // A write that could still be lost must not be acknowledged. So if this fails, no reply leaves any
        // more.
        let awaited = self.here.slots.settle(self.here.now, self.poll.registry())?;
        self.here.slots.look_at_watches(self.here.now, &self.here.table);
        self.fill();
        let mut answered = std::mem::take(&mut self.answered);
        if let Some(sync) = awaited {
            self.hold(&mut answered, sync);
        }
        answered.drain(..).for_each(|key| self.answer(key));
        self.answered = answered;
        Ok(())
    }

    /// Gives some connections their turns, as long as the round goes on. Returns how many had theirs.
    fn work(&mut self, keys: &[usize]) -> usize {
        if keys.len() > 1 {
            self.receive_ahead(keys);
        }
        for (at, &key) in keys.iter().enumerate() {
            if self.here.has_much_to_tell() {
                return at;
            }
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.is_scheduled = false;
            // The connection remembers what the poll reported, and has its turn after its replies have left.
            if !connection.outbox.is_held() {
                // What others touched before does not count for this one.
                self.here.slots.take_is_free();
                connection.work(&mut self.here, &mut self.spare);
                // A turn in which no request was complete, such as one with a part of a long value, changes
                // nothing: its replies, if any, show nothing of a keyspace.
                if let Some(is_free) = self.here.slots.take_is_free() {
                    connection.session.is_free = is_free;
                }
                self.answered.push(key);
            }
        }
        keys.len()
    }

    /// Ends the connections of users who were removed or changed in the list, and drops their watches.
    fn revoke(&mut self) {
        if !self.here.look_at_access() {
            return;
        }
        let here = &self.here;
        let is_over = |(key, connection): (usize, &mut Connection)| {
            (!here.renew(&mut connection.session)).then_some(key)
        };
        let over: Vec<_> = self.connections.iter_mut().filter_map(is_over).collect();
        for key in over {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            self.here.slots.watches().end_connection(key, connection.session.id);
            connection.session.end_with(End::Refused);
            // Replies that are ready are still sent; later ones are not.
            match connection.outbox.awaited() {
                0 => self.answered.push(key),
                _ => self.end(key, End::Refused),
            }
        }
    }

    /// Receives from some connections and prefetches what their requests will touch, so that the cache misses
    /// overlap.
    fn receive_ahead(&mut self, keys: &[usize]) {
        for &key in keys {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.receive_ahead(&mut self.here, &mut self.spare);
            }
        }
        let connections = &self.connections;
        let mut there = keys.iter().filter_map(|&key| connections.get(key)).peekable();
        // Nearly always all are in one keyspace. Connections in another one than the first are not prefetched
        // here.
        let keyspace = there.peek().map_or(0, |first| first.session.keyspace);
        let asked = there.filter(|one| one.session.keyspace == keyspace).filter_map(Connection::key_ahead);
        bring_nearer(&mut self.here, keyspace, asked);
    }

    /// Sends the replies of a connection.
    fn answer(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.answer(&mut self.here, &mut self.spare) {
            Turn::Waits => {}
            Turn::Again => self.schedule(key),
            Turn::Over(End::Memory) => self.make_room_for(key),
            Turn::Over(end) => self.end(key, end),
        }
    }

    /// Ends connections until all together are within their memory: those of strangers, then the largest. The
    /// connection that asked for more goes on if it is still there. If all are small, that connection has to
    /// end: established clients stay, however many new ones come.
    fn make_room_for(&mut self, key: usize) {
        let now = self.here.now.moment;
        while self.here.metrics.connection_bytes.get() > self.here.limits().memory_bytes_max {
            let large = self.connections.iter().filter(|(_, connection)| connection.may_give_way());
            let most = large.max_by_key(|(_, connection)| connection.eviction_rank(now)).map(|(key, _)| key);
            let Some(most) = most else { return self.end(key, End::Memory) };
            self.end(most, End::Memory);
        }
        self.schedule(key);
    }

    /// Moves out those connections whose replies have to wait for a sync. Those that looked at keyspaces only
    /// that wait for none do not, unless their earlier replies do.
    fn hold(&mut self, answered: &mut Vec<usize>, sync: u64) {
        let connections = &mut self.connections;
        let waits =
            |one: &mut Connection| (!one.session.is_free || one.outbox.is_held()) && one.outbox.hold(sync);
        let has_to = |key: &mut usize| connections.get_mut(*key).is_some_and(waits);
        let held: Vec<_> = answered.extract_if(.., has_to).collect();
        if !held.is_empty() {
            self.held.push_back((sync, held));
        }
    }

    /// Sends the replies that were held for syncs that are done.
    pub(super) fn release(&mut self) -> Result<(), NodeError> {
        let synced = self.here.slots.synced()?;
        while let Some((sync, held)) = self.held.pop_front_if(|(sync, _)| *sync <= synced) {
            for key in held {
                // Another connection may have this index by now, and wait for a later sync.
                if self.connections.get_mut(key).is_some_and(|one| one.outbox.release(sync)) {
                    self.answer(key);
                }
            }
        }
        Ok(())
    }

    /// Delivers the replies that came later to the connections that await them, and the pushes.
    fn fill(&mut self) {
        for (ticket, reply) in self.here.slots.take_answers() {
            if let Some((ticket, reply)) = self.here.split_requests.take(ticket, reply) {
                let reply = self.unless_too_long(ticket, reply);
                self.here.metrics.count_reply(&reply);
                self.fill_one(ticket, |target, _| target.extend_from_slice(&reply));
            }
        }
        let most = self.here.limits().unsent_bytes_max / WATCHED_SHARE;
        for push in self.here.slots.watches().take_pushes() {
            let connection = self.connections.get_mut(push.connection);
            if let Some(connection) = connection.filter(|connection| connection.session.id == push.session) {
                connection.session.is_free = false;
                let outbox = &mut connection.outbox;
                let bytes = match push.with_value {
                    Some(id) if !outbox.has_room(push.bytes.len(), most) => {
                        met_without_value(Some(id), Protocol::Resp3)
                    }
                    _ => push.bytes,
                };
                outbox.target().extend_from_slice(&bytes);
                self.answered.push(push.connection);
            }
        }
        while let Some(Asked::Clients(ticket, selection)) = self.here.asked.pop() {
            let text = clients::list(&self.connections, &selection, self.here.now.moment);
            self.fill_one(ticket, |target, protocol| ReplyWriter::new(target, protocol).text(&text));
        }
    }

    /// The reply, or another one if its connection has no room for it: a refusal in place of what a read
    /// answers, and that the value is there in place of one that was waited for.
    fn unless_too_long(&self, ticket: Ticket, reply: Vec<u8>) -> Vec<u8> {
        let connection = self.connections.get(key_of(ticket)).filter(|_| reply.len() > SHORT_REPLY_BYTES);
        let Some(Connection { outbox, .. }) = connection else { return reply };
        let most = self.here.limits().unsent_bytes_max;
        match outbox.protocol_of_watch(ticket) {
            Some(protocol) if !outbox.has_room(reply.len(), most / WATCHED_SHARE) => {
                met_without_value(None, protocol)
            }
            None if outbox.is_too_long(ticket, reply.len(), most) => NO_ROOM.to_vec(),
            _ => reply,
        }
    }

    fn fill_one(&mut self, ticket: Ticket, write: impl FnOnce(&mut Vec<u8>, Protocol)) {
        let key = key_of(ticket);
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.outbox.fill(ticket, write) {
            // It may tell of any keyspace.
            connection.session.is_free = false;
            self.answered.push(key);
        }
    }
}

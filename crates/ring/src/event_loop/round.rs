//! A round: connections have their turns, what they wrote is made durable, and their answers leave.
//!
//! Before a few connections have their turns, all of them receive, and what they ask about is brought nearer:
//! so they wait for memory together.

use super::{EventLoop, HANDSHAKES_MAX};
use crate::NodeError;
use crate::clients;
use crate::connection::{Connection, End, Turn, bring_nearer};
use crate::here::{Asked, key_of};
use atoll_keyspace::NEAR_AT_ONCE;
use atoll_replica::Ticket;
use atoll_resp::{Protocol, ReplyWriter};

/// For how long turns go on in a round, about, in microseconds: nodes are heard, and hear of this one,
/// between rounds.
const TURNS_US: u64 = 20_000;

impl EventLoop {
    pub(super) fn round(&mut self) -> Result<(), NodeError> {
        self.here.metrics.rounds.add(1);
        self.here.handshakes = HANDSHAKES_MAX;
        let mut turns = std::mem::take(&mut self.next);
        // Hearing others and telling what waited for a sync may have taken as long as a round.
        self.here.look_at_clock();
        let (mut done, ends) = (0, self.here.now.moment.after(TURNS_US));
        for keys in turns.chunks(NEAR_AT_ONCE) {
            let worked = self.work(keys);
            done += worked;
            // The last of these may have had long turns, and nobody looked since.
            self.here.look_at_clock();
            if worked < keys.len() || self.here.now.moment >= ends {
                break;
            }
        }
        // Who had no turn in this round is first in the next one: those who had one come behind, whatever
        // they still want.
        turns.drain(..done);
        turns.append(&mut self.next);
        self.next = turns;
        // Before anybody is told what was written just now.
        self.revoke();
        // Nobody may be told of a write that could still be lost, so if this fails nobody is told anything
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

    /// Gives some connections their turns, as long as this round goes on; how many.
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
            // It remembers what the poll told, and has its turn once its answers have left.
            if !connection.outbox.is_held() {
                connection.work(&mut self.here, &mut self.spare);
                self.answered.push(key);
            }
        }
        keys.len()
    }

    /// Ends the connections of users who are gone, or are other ones by now, and lets go of what they wait
    /// for.
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
            // It is told what it was answered already, and nothing that comes later.
            match connection.outbox.awaited() {
                0 => self.answered.push(key),
                _ => self.end(key, End::Refused),
            }
        }
    }

    /// Receives from some connections, and brings nearer what they ask about, so that they wait for memory
    /// together.
    fn receive_ahead(&mut self, keys: &[usize]) {
        for &key in keys {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.receive_ahead(&mut self.here, &mut self.spare);
            }
        }
        let connections = &self.connections;
        let mut there = keys.iter().filter_map(|&key| connections.get(key)).peekable();
        // Nearly always all are in one keyspace; those that are in another one than the first wait by
        // themselves.
        let keyspace = there.peek().map_or(0, |first| first.session.keyspace);
        let asked = there.filter(|one| one.session.keyspace == keyspace).filter_map(Connection::key_ahead);
        bring_nearer(&mut self.here, keyspace, asked);
    }

    /// Sends what a connection was answered.
    fn answer(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.answer(&mut self.here, &mut self.spare) {
            Turn::Waits => {}
            Turn::Again => self.schedule(key),
            Turn::Over(End::Memory) => self.make_room_for(key),
            Turn::Over(end) => self.end(key, end),
        }
    }

    /// Ends those who take most until all together take no more than they may; whoever asked for more goes
    /// on, if it is still there. Where all are small it is that one who has to go: whoever was let in stays,
    /// however many come.
    fn make_room_for(&mut self, key: usize) {
        let now = self.here.now.moment;
        while self.here.metrics.connection_bytes.get() > self.here.shared.memory_bytes_max_each() {
            let large = self.connections.iter().filter(|(_, connection)| connection.is_large());
            let most = large.max_by_key(|(_, connection)| connection.hinders(now)).map(|(key, _)| key);
            let Some(most) = most else { return self.end(key, End::Memory) };
            self.end(most, End::Memory);
        }
        self.schedule(key);
    }

    /// Takes those out whose answers have to wait for a sync.
    fn hold(&mut self, answered: &mut Vec<usize>, sync: u64) {
        let connections = &mut self.connections;
        let has_to = |key: &mut usize| connections.get_mut(*key).is_some_and(|one| one.outbox.hold(sync));
        let held: Vec<_> = answered.extract_if(.., has_to).collect();
        if !held.is_empty() {
            self.held.push_back((sync, held));
        }
    }

    /// Sends what was held until syncs that are done by now.
    pub(super) fn release(&mut self) -> Result<(), NodeError> {
        let synced = self.here.slots.synced()?;
        while let Some((sync, held)) = self.held.pop_front_if(|(sync, _)| *sync <= synced) {
            for key in held {
                // Another one may have its place by now, and wait for a later sync.
                if self.connections.get_mut(key).is_some_and(|one| one.outbox.release(sync)) {
                    self.answer(key);
                }
            }
        }
        Ok(())
    }

    /// Brings the replies that came after all to those who wait for them, and tells what nobody asked for
    /// just now.
    fn fill(&mut self) {
        for (ticket, reply) in self.here.slots.take_answers() {
            if let Some((ticket, reply)) = self.here.gathered.take(ticket, reply) {
                self.here.metrics.count_reply(&reply);
                self.fill_one(ticket, |target, _| target.extend_from_slice(&reply));
            }
        }
        for (key, session, push) in self.here.slots.watches().take_pushes() {
            let connection = self.connections.get_mut(key);
            if let Some(connection) = connection.filter(|connection| connection.session.id == session) {
                connection.outbox.target().extend_from_slice(&push);
                self.answered.push(key);
            }
        }
        while let Some(Asked::Clients(ticket)) = self.here.asked.pop() {
            let text = clients::list(&self.connections, self.here.now.moment);
            self.fill_one(ticket, |target, protocol| ReplyWriter::new(target, protocol).text(&text));
        }
    }

    fn fill_one(&mut self, ticket: Ticket, write: impl FnOnce(&mut Vec<u8>, Protocol)) {
        let key = key_of(ticket);
        if self.connections.get_mut(key).is_some_and(|connection| connection.outbox.fill(ticket, write)) {
            self.answered.push(key);
        }
    }
}

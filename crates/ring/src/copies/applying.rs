//! Applies entries to the cells of their slots, answers reads from these cells, and lets watches begin.
//!
//! Invariant: a read that fails gets an error reply. An entry that cannot be applied ends the node, which
//! would otherwise go on with less than the others have.
//! Invariant: an entry that failed to apply changed nothing. While the disk is full it waits, and later
//! entries of its slot wait behind it.

use super::body::Body;
use super::expiring::{EXPIRY_BYTES_MAX, first_of};
use super::waiting::Waiting;
use super::{ANSWER_BYTES_MAX, Copies, OWN_TICKETS, number_of};
use crate::clock::Now;
use crate::watches::Watch;
use crate::{NodeError, failures};
use atoll_keyspace::{Applied, Overdue, ReadOutcome};
use atoll_replica::{Entry, Position, Refusal, Slot, Ticket};
use atoll_resp::{Command, Protocol, ReplyWriter, find};

impl Copies {
    pub(super) fn apply_or_wait(
        &mut self,
        slot: Slot,
        entry: &Entry,
        ticket: Option<Ticket>,
    ) -> Result<(), NodeError> {
        if !self.is_full() {
            let done = self.apply(slot, entry, ticket);
            if self.unless_full(done)? {
                return Ok(());
            }
        }
        if let Some(full) = &mut self.full {
            full.put_off(slot, entry, ticket);
        }
        Ok(())
    }

    /// Applies an entry. On an error nothing happened.
    pub(super) fn apply(
        &mut self,
        slot: Slot,
        entry: &Entry,
        ticket: Option<Ticket>,
    ) -> Result<(), NodeError> {
        if let Some(log) = &mut self.log {
            log.write_truncation(slot)?;
        }
        let Position { epoch, sequence } = entry.position;
        let applied = Applied { epoch: epoch.0, sequence: sequence.0 };
        let protocol = match ticket.and_then(|ticket| self.waiting.get(ticket)) {
            Some(Waiting::Write { protocol, .. } | Waiting::Read { protocol, .. }) => *protocol,
            Some(Waiting::Expiry { .. } | Waiting::Watch { .. }) | None => Protocol::Resp2,
        };
        let mut reply = Vec::new();
        let (keyspace, number) = self.keyspaces.of_mut(slot);
        match Body::of(&entry.body) {
            Body::Request(bytes) => {
                let request = self.parser.parse(bytes).ok().flatten();
                let command = request.as_ref().and_then(|request| Command::of(request).ok());
                let command = command.ok_or(NodeError::Corrupt { what: "an entry of a log" })?;
                keyspace.apply(number, applied, entry.time_ms, &command, protocol, &mut reply)?;
                if let Some(request) = &request
                    && self.touched.is_wanted
                {
                    let specification = request.get(0).and_then(find);
                    let keys = specification.map(|known| known.keys_of(request).places(request.len()));
                    let keys = keys.into_iter().flatten().filter_map(|place| request.get(place));
                    self.touched.wrote(slot, (keyspace, number, entry.time_ms), &command, keys);
                }
            }
            Body::Expiry(keys) => {
                let keys: Vec<_> = keys.iter().map(|(key, deadline)| (key.as_slice(), *deadline)).collect();
                self.touched.touch(slot, keys.iter().map(|(key, _)| *key));
                keyspace.apply_expiry(number, applied, entry.time_ms, &keys, protocol, &mut reply)?;
            }
            Body::Forgetting(most) => {
                keyspace.apply_forgetting(number, applied, entry.time_ms, most, protocol, &mut reply)?;
            }
            Body::Damaged => return Err(NodeError::Corrupt { what: "an entry of a log" }),
        }
        if let Some(log) = &mut self.log {
            log.applied(slot, sequence);
        }
        if let Some(Waiting::Expiry { slot, read }) = ticket.and_then(|ticket| self.waiting.remove(ticket)) {
            self.expired(slot, read);
        }
        if let Some(ticket) = ticket.filter(|ticket| ticket.0 < OWN_TICKETS) {
            self.push_answer(ticket, reply);
        }
        Ok(())
    }

    pub(super) fn answer_read(&mut self, now: Now, ticket: Ticket) -> Result<(), NodeError> {
        let has_room = self.answer_bytes + self.waiting.returned_bytes() <= ANSWER_BYTES_MAX;
        if !has_room || self.waits_for_room(ticket) {
            // Many waiting reads became ready at once, or the cells of the slot are incomplete until the disk
            // has room.
            self.refuse(ticket, Refusal::Busy);
            return Ok(());
        }
        let (slot, bytes, protocol) = match self.waiting.remove(ticket) {
            Some(Waiting::Read { slot, request, protocol, lists_since: None }) => (slot, request, protocol),
            Some(Waiting::Read { slot, request, protocol, lists_since: Some(round) }) => {
                return self.answer_listing(now, (ticket, protocol), (slot, round), request);
            }
            Some(Waiting::Watch { slot, watch }) => {
                self.let_begin(now, (ticket, slot), watch);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let request = self.parser.parse(&bytes).ok().flatten();
        let command = request.as_ref().and_then(|request| Command::of(request).ok());
        let Some(command) = command else { return Err(NodeError::Corrupt { what: "a request that waits" }) };
        let mut reply = Vec::new();
        let (keyspace, number) = self.keyspaces.of(slot);
        match keyspace.read(number, now.date_ms, &command, protocol, &mut reply) {
            Ok(ReadOutcome::Answered) => self.push_answer(ticket, reply),
            Err(error) => {
                self.failures += 1;
                failures::write(&error, &mut ReplyWriter::new(&mut reply, protocol));
                self.push_answer(ticket, reply);
            }
            Ok(ReadOutcome::Expired(overdue)) => {
                let waiting = Waiting::Read { slot, request: bytes, protocol, lists_since: None };
                self.repeat_without(now, (ticket, slot), waiting, overdue);
            }
        }
        Ok(())
    }

    /// Lets a watch begin, once an expired key that it meets is deleted.
    fn let_begin(&mut self, now: Now, (ticket, slot): (Ticket, Slot), watch: Box<Watch>) {
        let overdue = watch.overdue(self.keyspaces.of(slot), now.date_ms);
        match overdue.is_empty() {
            true => self.watched.push((*watch, None)),
            false => self.repeat_without(now, (ticket, slot), Waiting::Watch { slot, watch }, overdue),
        }
    }

    /// Repeats a read or a watch once the expired keys that it met are deleted, or as many of them as one
    /// entry may name: the next time it meets the others. If the deletion is refused, so is whatever waits
    /// for it: asked again at once it would find the same expired keys.
    fn repeat_without(
        &mut self,
        now: Now,
        (ticket, slot): (Ticket, Slot),
        waiting: Waiting,
        overdue: Vec<Overdue>,
    ) {
        let overdue = first_of(overdue, EXPIRY_BYTES_MAX);
        let keys = overdue.iter().map(|key| number_of(&key.key)).collect();
        self.waiting.insert(ticket, waiting);
        match self.is_full() {
            true => self.refuse(ticket, Refusal::Busy),
            false => self.expire(slot, now, &overdue, Some((ticket, keys))),
        }
    }
}

#[cfg(test)]
mod tests;

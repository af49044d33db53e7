//! Listings of keys that wait like a read: where the other copies confirm each read, until a round of
//! questions that was sent after they came is answered in each slot that they cover; else until promises of
//! the other copies stand in each of them again, which takes a moment whenever the table changes.
//!
//! Invariant: a listing waits in one slot at a time. What was confirmed since it came stays confirmed for it.

use super::Copies;
use super::body::{self, Body};
use super::waiting::Waiting;
use crate::clock::Now;
use crate::keyspaces::{keyspace_of, slot_at};
use crate::listing::{self, ListedSlots, Obstacle};
use crate::{NodeError, failures};
use atoll_keyspace::{KeyspaceError, ScanPage};
use atoll_replica::{Input, Refusal, Slot, Ticket};
use atoll_resp::{Command, Protocol, ReplyWriter, Request, RequestParser, ScanRequest};

/// The slots of a keyspace, for a listing that came before this round of questions.
struct SinceRound<'a> {
    copies: &'a Copies,
    keyspace: u8,
    round: u64,
    now: Now,
}

impl SinceRound<'_> {
    fn slot(&self, number: u16) -> Slot {
        slot_at(self.keyspace, number)
    }
}

impl ListedSlots for SinceRound<'_> {
    fn is_here(&self, number: u16) -> bool {
        self.copies.replica.is_to_lead(self.slot(number))
    }

    fn may_read(&self, number: u16) -> bool {
        self.copies.may_read_since(self.slot(number), self.round, self.now)
    }

    fn keys_in(&self, number: u16) -> u64 {
        let (keyspace, number) = self.copies.keyspaces.of(self.slot(number));
        keyspace.keys_in(number)
    }

    fn keys_of(&self, number: u16, most: usize) -> Result<Vec<Vec<u8>>, KeyspaceError> {
        let (keyspace, number) = self.copies.keyspaces.of(self.slot(number));
        keyspace.keys_of_slot(number, most)
    }

    fn scan(&self, request: &ScanRequest<'_>, held: &dyn Fn(u16) -> bool) -> Result<ScanPage, KeyspaceError> {
        let keyspace = self.copies.keyspaces.get(self.keyspace);
        keyspace.map_or_else(
            || Ok(ScanPage::default()),
            |keyspace| keyspace.scan(self.now.date_ms, request, held),
        )
    }
}

impl Copies {
    /// Whether a listing has to wait for the other copies of its slots.
    pub(crate) fn confirms_reads(&self) -> bool {
        self.replica.confirms_reads()
    }

    /// Takes a client's listing, which begins to wait in this slot; the answer comes under its ticket.
    pub(crate) fn list(
        &mut self,
        slot: Slot,
        now: Now,
        request: &Request<'_>,
        (ticket, protocol): (Ticket, Protocol),
    ) -> Result<(), NodeError> {
        let (request, lists_since) = (Body::request_bytes(request), Some(self.replica.coming_round()));
        let has_room = self.waiting.has_room(request.len());
        self.waiting.insert(ticket, Waiting::Read { slot, request, protocol, lists_since });
        if !has_room {
            self.refuse(ticket, Refusal::Busy);
            return Ok(());
        }
        self.enter(now, Input::Read { slot, ticket, keys: Vec::new() })
    }

    /// Answers a listing that may read the slot in which it waited, or lets it wait in the next one.
    pub(super) fn answer_listing(
        &mut self,
        now: Now,
        (ticket, protocol): (Ticket, Protocol),
        (slot, round): (Slot, u64),
        request: Vec<u8>,
    ) -> Result<(), NodeError> {
        let mut parser = RequestParser::new(body::LIMITS);
        let parsed = parser.parse(&request).ok().flatten();
        let command = parsed.as_ref().and_then(|parsed| Command::of(parsed).ok());
        let Some(command) = command else { return Err(NodeError::Corrupt { what: "a request that waits" }) };
        let (keyspace, mut reply) = (keyspace_of(slot), Vec::new());
        let slots = SinceRound { copies: &*self, keyspace, round, now };
        let answered = listing::answer(&command, &slots, &mut ReplyWriter::new(&mut reply, protocol));
        match answered {
            Ok(()) => self.push_answer(ticket, reply),
            Err(Obstacle::Failed(error)) => {
                self.failures += 1;
                failures::write(&error, &mut ReplyWriter::new(&mut reply, protocol));
                self.push_answer(ticket, reply);
            }
            Err(Obstacle::Dark(number)) => {
                let (before, slot, lists_since) = (slot, slot_at(keyspace, number), Some(round));
                self.waiting.insert(ticket, Waiting::Read { slot, request, protocol, lists_since });
                if slot == before {
                    // It is not for want of the other copies.
                    self.refuse(ticket, Refusal::NoLease);
                } else {
                    self.inputs.push_back(Input::Read { slot, ticket, keys: Vec::new() });
                }
            }
        }
        Ok(())
    }
}

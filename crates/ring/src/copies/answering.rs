//! Answers requests that wait, by their tickets.
//!
//! Invariant: each waiting request is answered or refused, once.

use super::waiting::Waiting;
use super::{Copies, refusals};
use crate::keyspaces::number_of_slot;
use atoll_replica::{Refusal, Ticket};
use atoll_resp::{Protocol, ReplyWriter};

/// Most bytes that a reply may take beyond its length.
const SPARE_BYTES_MAX: usize = 64 << 10;

impl Copies {
    pub(super) fn push_answer(&mut self, ticket: Ticket, mut reply: Vec<u8>) {
        if reply.capacity() - reply.len() > SPARE_BYTES_MAX {
            // It was longer before it was refused.
            reply.shrink_to_fit();
        }
        self.answer_bytes += reply.len();
        self.answers.push((ticket, reply));
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        let Some(waiting) = self.waiting.remove(ticket) else { return };
        let is_listing = matches!(&waiting, Waiting::Read { lists_since: Some(_), .. });
        let (slot, protocol, watch) = match waiting {
            Waiting::Write { slot, protocol, .. } | Waiting::Read { slot, protocol, .. } => {
                (slot, protocol, None)
            }
            Waiting::Watch { slot, watch } => (slot, Protocol::Resp2, Some(watch)),
            Waiting::Expiry { slot, read } => {
                self.expiring.remove(&slot);
                self.refused_expiries += 1;
                if let Some((ticket, _)) = read {
                    self.refuse(ticket, refusal);
                }
                return;
            }
        };
        // Whoever has the slot now, the listing is one of this node's own slots.
        let refusal = match refusal {
            Refusal::Moved { .. } if is_listing => Refusal::NoLease,
            refusal => refusal,
        };
        let mut reply = Vec::new();
        let mut writer = ReplyWriter::new(&mut reply, protocol);
        refusals::write(refusal, number_of_slot(slot), self.replica.table(), &mut writer);
        match watch {
            None => self.push_answer(ticket, reply),
            Some(watch) => {
                let why = String::from_utf8_lossy(reply.get(1..).unwrap_or_default());
                self.watched.push((*watch, Some(why.trim_end().to_owned())));
            }
        }
    }

    pub(super) fn answer(&mut self, ticket: Ticket, write: impl FnOnce(&mut ReplyWriter<'_>)) {
        let protocol = match self.waiting.remove(ticket) {
            Some(Waiting::Write { protocol, .. } | Waiting::Read { protocol, .. }) => protocol,
            Some(Waiting::Expiry { slot, read }) => return self.expired(slot, read),
            Some(Waiting::Watch { .. }) | None => return,
        };
        let mut reply = Vec::new();
        write(&mut ReplyWriter::new(&mut reply, protocol));
        self.push_answer(ticket, reply);
    }

    /// How many requests the store failed at since the last call.
    pub(crate) fn take_failures(&mut self) -> u64 {
        std::mem::take(&mut self.failures)
    }

    /// Bytes of the replies that are ready.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }

    /// Returns the replies that became ready, each once.
    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Vec<u8>)> {
        self.answer_bytes = 0;
        std::mem::take(&mut self.answers)
    }
}

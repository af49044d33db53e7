//! Commands about all keys of this node.

use super::Executor;
use crate::slots::{Answer, Asking, Reply};
use atoll_resp::{Command, Keys, Request, ScanRequest};

impl Executor<'_> {
    /// `FLUSHALL`: a write to each slot that holds something and has its primary here.
    pub(super) fn flush_all(&mut self, request: &Request<'_>, keys: Keys, command: &Command<'_>) {
        let table = self.here.table.clone();
        let slots: Vec<u16> = table.own_slots().filter(|&slot| self.here.slots.keys_in(slot) > 0).collect();
        let (mut awaited, mut failed) = (Vec::new(), None);
        for slot in slots {
            let ticket = self.here.next_ticket(self.session);
            let asking = Asking { slot, now: self.here.now, command, request, keys, ticket };
            let (mut target, protocol) = (Vec::new(), self.session.protocol);
            match self.here.slots.write(&asking, &mut Reply { target: &mut target, protocol }) {
                Answer::Later => awaited.push(ticket),
                Answer::Now if target.first() == Some(&b'-') => failed = Some(target),
                Answer::Now => {}
            }
        }
        let reply = failed.unwrap_or_else(|| b"+OK\r\n".to_vec());
        if awaited.is_empty() {
            return self.outbox.target().extend_from_slice(&reply);
        }
        let ticket = self.here.next_ticket(self.session);
        self.outbox.keep_place(ticket, self.session.protocol);
        self.here.gathered.begin(ticket, awaited, reply);
    }

    pub(super) fn scan(&mut self, _request: &ScanRequest<'_>) {
        self.error("ERR", "this node does not do that");
    }

    pub(super) fn keys_of_slot(&mut self, _slot: u16, _count: u64) {
        self.error("ERR", "this node does not do that");
    }
}

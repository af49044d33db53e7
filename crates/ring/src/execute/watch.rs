//! Watches on fields and strings: `AT.WAIT` is answered later, `AT.WATCH` by a push.

use super::Executor;
use crate::watches::{Waiter, Watch};
use atoll_keyspace::CONDITION_BYTES_MAX;
use atoll_resp::{Expected, Protocol, WatchRequest};

impl Executor<'_> {
    /// `AT.WAIT` and `AT.WATCH`.
    pub(super) fn watch(&mut self, request: &WatchRequest<'_>) {
        let (Expected::Equals(value) | Expected::Differs(value)) = request.expected;
        if value.is_some_and(|value| value.len() > CONDITION_BYTES_MAX) {
            return self
                .error("LIMIT", &format!("an expected value has at most {CONDITION_BYTES_MAX} bytes"));
        }
        if request.id.is_some() && self.session.protocol == Protocol::Resp2 {
            return self.error("ERR", "AT.WATCH reports by pushes, which need HELLO 3; AT.WAIT does not");
        }
        let slot = self.slot_of(request.key);
        if !self.is_here(slot) {
            return;
        }
        let (ticket, protocol) = (self.here.next_ticket(self.session), self.session.protocol);
        let (connection, session, users) = (self.session.key, self.session.id, self.session.users);
        let waiter = Waiter { ticket, connection, session, users, protocol, id: request.id };
        match request.id {
            Some(_) => self.writer().ok(),
            None => self.outbox.keep_place_of_watch(ticket, protocol),
        }
        let now = self.here.now;
        self.here.slots.watch(slot, now, Watch::new(request, self.session.keyspace, waiter, now));
    }

    /// `AT.UNWATCH`.
    pub(super) fn unwatch(&mut self, id: u64) {
        let count = self.here.slots.watches().end_id(self.session.key, id);
        self.writer().integer(count);
    }
}

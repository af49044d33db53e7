//! Commands about all keys of this node.

use super::Executor;
use crate::clock::Now;
use crate::keyspaces::{keyspace_of, slot_at};
use crate::listing::{self, ListedSlots, Obstacle};
use crate::slots::{Answer, Asking, Reply, Slots};
use crate::table::SlotTable;
use atoll_keyspace::{KeyspaceError, PAGE_BYTES_MAX, SLOTS, ScanPage};
use atoll_replica::{Slot, Ticket};
use atoll_resp::{Command, Keys, ReplyWriter, Request, ScanRequest};

impl Executor<'_> {
    /// `FLUSHALL` and `FLUSHDB`: writes to each slot that this node leads and that holds or remembers
    /// something, or will because of earlier requests. Of the others it makes sure that they are empty:
    /// another node may lead them by now.
    pub(super) fn flush_all(&mut self, request: &Request<'_>, keys: Keys, command: &Command<'_>) {
        self.session.is_tired = true;
        let table = self.here.table.clone();
        let is_one = request.get(0).is_some_and(|name| name.eq_ignore_ascii_case(b"FLUSHDB"));
        let keyspaces: Vec<u8> = match is_one {
            true => vec![self.session.keyspace],
            false => self.entered().collect(),
        };
        let (here, now) = (&self.here.slots, self.here.now);
        let confirms = here.confirms_reads();
        // Where the others confirm each read, no slot may be read before they do. One question for all is
        // cheaper than a write to each.
        let is_touched = |slot: &Slot| {
            here.may_hold(*slot) || here.remembers(*slot) || (!confirms && !here.may_read(*slot, now))
        };
        let own = keyspaces.iter().flat_map(|&keyspace| table.own_slots(keyspace));
        let (touched, empty): (Vec<Slot>, Vec<Slot>) = own.partition(is_touched);
        let mut awaited = match confirms {
            true => self.confirm_empty(&empty, request),
            false => Vec::new(),
        };
        let mut failed = None;
        for slot in touched {
            let ticket = self.here.next_ticket(self.session);
            let asking = Asking { slot, now: self.here.now, command, request, keys, ticket, returned: 0 };
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
        self.here.split_requests.begin(ticket, awaited, reply);
    }

    /// Lets a request wait, once for each keyspace with slots that seem empty, until the other copies have
    /// confirmed that this node still leads all of its slots there. Returns the tickets of the answers.
    fn confirm_empty(&mut self, empty: &[Slot], request: &Request<'_>) -> Vec<Ticket> {
        let (now, protocol) = (self.here.now, self.session.protocol);
        let mut asked = Vec::new();
        for of_keyspace in empty.chunk_by(|one, next| keyspace_of(*one) == keyspace_of(*next)) {
            let Some(&slot) = of_keyspace.first() else { continue };
            let ticket = self.here.next_ticket(self.session);
            self.here.slots.list(slot, now, request, (ticket, protocol));
            asked.push(ticket);
        }
        asked
    }

    /// `AT.SCAN` over adjacent slots that this node leads and may read now. The page is complete up to its
    /// cursor.
    pub(super) fn scan_run(&mut self, scan: &ScanRequest<'_>, request: &Request<'_>, command: &Command<'_>) {
        let first = ScanPage::slot_of(scan.cursor);
        if first >= SLOTS {
            return self.error("ERR", "invalid cursor");
        }
        if self.is_here(slot_at(self.session.keyspace, first)) {
            self.list(request, command);
        }
    }

    /// Lists keys: `SCAN`, `AT.SCAN`, `CLUSTER COUNTKEYSINSLOT` or `CLUSTER GETKEYSINSLOT`. Where the other
    /// copies have to confirm each read, or a slot cannot be read at this moment, the listing waits as a read
    /// does.
    pub(super) fn list(&mut self, request: &Request<'_>, command: &Command<'_>) {
        let (now, keyspace, protocol) = (self.here.now, self.session.keyspace, self.session.protocol);
        let table = self.here.table.clone();
        let slots = Shown { table: &table, slots: &self.here.slots, keyspace, now };
        let listed = listing::answer(command, &slots, &mut ReplyWriter::new(self.outbox.target(), protocol));
        match listed {
            Ok(()) => {}
            Err(Obstacle::Failed(error)) => self.fail(&error),
            Err(Obstacle::Dark(number)) if self.here.slots.has_others() => {
                let ticket = self.here.next_ticket(self.session);
                self.here.slots.list(slot_at(keyspace, number), now, request, (ticket, protocol));
                self.outbox.keep_place_of_read(ticket, protocol, PAGE_BYTES_MAX);
            }
            Err(Obstacle::Dark(_)) => self.down(),
        }
    }

    /// Fails because a slot cannot be read now. A later attempt succeeds once it can, here or at its new
    /// primary.
    fn down(&mut self) {
        self.error(
            "CLUSTERDOWN",
            "the other copies of a slot do not answer, so its keys cannot be listed now",
        );
    }

    fn fail(&mut self, error: &KeyspaceError) {
        let protocol = self.session.protocol;
        self.here.slots.fail(error, &mut Reply { target: self.outbox.target(), protocol });
    }
}

/// The slots of a keyspace as this node's table and cells have them now.
struct Shown<'a> {
    table: &'a SlotTable,
    slots: &'a Slots,
    keyspace: u8,
    now: Now,
}

impl Shown<'_> {
    fn slot(&self, number: u16) -> Slot {
        slot_at(self.keyspace, number)
    }
}

impl ListedSlots for Shown<'_> {
    fn is_here(&self, number: u16) -> bool {
        self.table.is_here(self.slot(number))
    }

    fn may_read(&self, number: u16) -> bool {
        self.slots.may_read(self.slot(number), self.now)
    }

    fn keys_in(&self, number: u16) -> u64 {
        self.slots.keys_in(self.slot(number))
    }

    fn keys_of(&self, number: u16, most: usize) -> Result<Vec<Vec<u8>>, KeyspaceError> {
        self.slots.keys_of_slot(self.slot(number), most)
    }

    fn scan(&self, request: &ScanRequest<'_>, held: &dyn Fn(u16) -> bool) -> Result<ScanPage, KeyspaceError> {
        self.slots.scan(self.now, request, self.keyspace, held)
    }
}

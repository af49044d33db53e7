//! Commands about all keys of this node.

use super::Executor;
use crate::keyspaces::slot_at;
use crate::slots::{Answer, Asking, Reply};
use atoll_keyspace::{KeyspaceError, SLOTS, ScanPage};
use atoll_replica::Slot;
use atoll_resp::{Command, Keys, ReplyWriter, Request, ScanRequest};

impl Executor<'_> {
    /// `FLUSHALL` and `FLUSHDB`: a write to each slot that holds something and has its primary here.
    pub(super) fn flush_all(&mut self, request: &Request<'_>, keys: Keys, command: &Command<'_>) {
        let table = self.here.table.clone();
        let is_one = request.get(0).is_some_and(|name| name.eq_ignore_ascii_case(b"FLUSHDB"));
        let slots: Vec<Slot> = match is_one {
            true => table.own_slots(self.session.keyspace).collect(),
            false => self.entered().flat_map(|keyspace| table.own_slots(keyspace)).collect(),
        };
        let slots: Vec<Slot> = slots.into_iter().filter(|&slot| self.here.slots.keys_in(slot) > 0).collect();
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

    /// `SCAN`: of the slots whose primary is here.
    pub(super) fn scan(&mut self, request: &ScanRequest<'_>) {
        let table = self.here.table.clone();
        let keyspace = self.session.keyspace;
        let held = |number| table.is_here(slot_at(keyspace, number));
        match self.here.slots.scan(self.here.now, request, keyspace, held) {
            Ok(page) => self.write_page(&page),
            Err(error) => self.fail(&error),
        }
    }

    /// `AT.SCAN`: of slots beside each other whose primary is here. What it says is complete up to its cursor.
    pub(super) fn scan_run(&mut self, request: &ScanRequest<'_>) {
        let first = ScanPage::slot_of(request.cursor);
        if first >= SLOTS {
            return self.error("ERR", "invalid cursor");
        }
        let keyspace = self.session.keyspace;
        if !self.is_here(slot_at(keyspace, first)) {
            return;
        }
        let table = self.here.table.clone();
        let end = (first..SLOTS).find(|&number| !table.is_here(slot_at(keyspace, number))).unwrap_or(SLOTS);
        match self.here.slots.scan(self.here.now, request, keyspace, |number| number < end) {
            Ok(page) => {
                let is_over = page.cursor == 0 || ScanPage::slot_of(page.cursor) >= end;
                let cursor = if is_over { ScanPage::cursor_of(end) } else { page.cursor };
                self.write_page(&ScanPage { cursor, ..page });
            }
            Err(error) => self.fail(&error),
        }
    }

    fn write_page(&mut self, page: &ScanPage) {
        let mut writer = self.writer();
        writer.array(2);
        writer.string(page.cursor.to_string().as_bytes());
        write_keys(&mut writer, &page.keys);
    }

    /// `CLUSTER GETKEYSINSLOT`.
    pub(super) fn keys_of_slot(&mut self, slot: u16, most: usize) {
        match self.here.slots.keys_of_slot(slot_at(self.session.keyspace, slot), most) {
            Ok(keys) => write_keys(&mut self.writer(), &keys),
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &KeyspaceError) {
        let protocol = self.session.protocol;
        self.here.slots.fail(error, &mut Reply { target: self.outbox.target(), protocol });
    }
}

fn write_keys(writer: &mut ReplyWriter<'_>, keys: &[Vec<u8>]) {
    writer.array(keys.len());
    keys.iter().for_each(|key| writer.string(key));
}

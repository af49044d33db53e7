//! Commands about all keys of this node.

use super::Executor;
use crate::keyspaces::slot_at;
use crate::slots::{Answer, Asking, Reply};
use atoll_keyspace::{KeyspaceError, SLOTS, ScanPage};
use atoll_replica::Slot;
use atoll_resp::{Command, Keys, ReplyWriter, Request, ScanRequest};

impl Executor<'_> {
    /// `FLUSHALL` and `FLUSHDB`: writes to each slot that this node leads and that holds or remembers
    /// something, or will because of earlier requests.
    pub(super) fn flush_all(&mut self, request: &Request<'_>, keys: Keys, command: &Command<'_>) {
        self.session.is_tired = true;
        let table = self.here.table.clone();
        let is_one = request.get(0).is_some_and(|name| name.eq_ignore_ascii_case(b"FLUSHDB"));
        let slots: Vec<Slot> = match is_one {
            true => table.own_slots(self.session.keyspace).collect(),
            false => self.entered().flat_map(|keyspace| table.own_slots(keyspace)).collect(),
        };
        let here = &self.here.slots;
        let is_touched = |slot: &Slot| here.may_hold(*slot) || here.remembers(*slot);
        let slots: Vec<Slot> = slots.into_iter().filter(is_touched).collect();
        let (mut awaited, mut failed) = (Vec::new(), None);
        for slot in slots {
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

    /// `SCAN` over the slots that this node leads. If one that may hold something cannot be read now, the
    /// command fails: a page without its keys would look like one of an empty slot.
    pub(super) fn scan(&mut self, request: &ScanRequest<'_>) {
        let table = self.here.table.clone();
        let keyspace = self.session.keyspace;
        let held = |number| table.is_here(slot_at(keyspace, number));
        match self.here.slots.scan(self.here.now, request, keyspace, held) {
            Ok(page) => {
                let first = ScanPage::slot_of(request.cursor);
                let now = self.here.now;
                let slots = &self.here.slots;
                let is_dark =
                    |slot| table.is_here(slot) && slots.may_hold(slot) && !slots.may_read(slot, now);
                match seen(first, &page).any(|number| is_dark(slot_at(keyspace, number))) {
                    true => self.down(),
                    false => self.write_page(&page),
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    /// `AT.SCAN` over adjacent slots that this node leads and may read now. The page is complete up to its
    /// cursor.
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
        let mut end =
            (first..SLOTS).find(|&number| !table.is_here(slot_at(keyspace, number))).unwrap_or(SLOTS);
        let (now, slots) = (self.here.now, &self.here.slots);
        let mut page = slots.scan(now, request, keyspace, |number| number < end);
        // Only the slots of the page are checked: there are many slots, and a page covers few.
        let mut of_page = page.iter().flat_map(|page| seen(first, page)).take_while(|&number| number < end);
        let dark = of_page.find(|&number| !slots.may_read(slot_at(keyspace, number), now));
        drop(of_page);
        if let Some(dark) = dark {
            end = dark;
            page = slots.scan(now, request, keyspace, |number| number < end);
        }
        if end == first {
            return self.down();
        }
        match page {
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

    /// `CLUSTER COUNTKEYSINSLOT`.
    pub(super) fn count_keys(&mut self, slot: u16) {
        let slot = slot_at(self.session.keyspace, slot);
        if self.is_dark(slot) {
            return self.down();
        }
        let count = self.here.slots.keys_in(slot);
        self.writer().integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// `CLUSTER GETKEYSINSLOT`.
    pub(super) fn keys_of_slot(&mut self, slot: u16, most: usize) {
        let slot = slot_at(self.session.keyspace, slot);
        if self.is_dark(slot) {
            return self.down();
        }
        match self.here.slots.keys_of_slot(slot, most) {
            Ok(keys) => write_keys(&mut self.writer(), &keys),
            Err(error) => self.fail(&error),
        }
    }

    /// Whether this node leads a slot and cannot tell now what is in it. For a slot that it does not lead it
    /// reports what its copy has, as nodes of a Redis Cluster do.
    fn is_dark(&self, slot: Slot) -> bool {
        self.here.table.is_here(slot) && !self.here.slots.may_read(slot, self.here.now)
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

/// The slots that a page covers from `first` on, including the one in which it continues.
fn seen(first: u16, page: &ScanPage) -> impl Iterator<Item = u16> + use<> {
    let last = if page.cursor == 0 { SLOTS } else { ScanPage::slot_of(page.cursor) };
    (first..SLOTS).take_while(move |&number| number <= last)
}

fn write_keys(writer: &mut ReplyWriter<'_>, keys: &[Vec<u8>]) {
    writer.array(keys.len());
    keys.iter().for_each(|key| writer.string(key));
}

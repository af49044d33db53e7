//! Checks whether watches are met: those on what was touched, new ones, those whose time is over, and those
//! on slots that moved to other nodes.
//!
//! Invariant: a field or string that cannot be read is reported to its watchers, and to no other client.
//! Invariant: checks come after everything that was written is settled, and a field or string is read once
//! for all watches on it that are checked in a row.
//! Invariant: a round checks a bounded number of watches and reads a bounded number of bytes for them,
//! whatever is written or watched. The others follow in the next rounds, and a later watch does not overtake
//! them.

use super::touched::{Fields, Touched};
use super::watch::{Target, Watch, slot_of_place};
use super::{SHORT_VALUE_BYTES_MAX, WatchEnd, Watches};
use crate::address::moved_to;
use crate::clock::Now;
use crate::failures;
use crate::keyspaces::{Keyspaces, number_of_slot};
use crate::table::{Route, SlotTable};
use atoll_keyspace::{CONDITION_BYTES_MAX, Part, ReadOutcome};
use atoll_replica::{Moment, Slot};
use atoll_resp::{Protocol, ReplyWriter};
use std::collections::HashMap;
use std::sync::Arc;

/// Longest value that is sent, in bytes; the client has to read a longer one.
const VALUE_BYTES_MAX: u64 = 1 << 20;

const _: () =
    assert!(CONDITION_BYTES_MAX as u64 <= VALUE_BYTES_MAX, "what is expected is compared as a whole");

/// The part of a value that is read. If the value is longer, that is known by then, and no watch can expect
/// exactly this value.
const PART_READ: Part = Part { offset: 0, len: VALUE_BYTES_MAX + 1 };

/// Most bytes of values sent in a round. Beyond that, only short values are sent.
const ROUND_VALUE_BYTES_MAX: u64 = 64 << 20;

/// Most watches checked in a round: of new ones, of due ones and of those whose time is over, each. That
/// takes some milliseconds; the others follow in the next rounds.
pub(super) const LOOKS_MAX: usize = 4096;

/// Most bytes read for each of these kinds in a round; one more value may go beyond.
const READ_BYTES_MAX: u64 = 16 << 20;

/// What was read for a watch. The next watch may be on the same target.
struct Seen {
    place: Arc<[u8]>,
    target: Target,
    /// None if the key has expired.
    reply: Option<Vec<u8>>,
}

/// One pass over some watches.
struct Look<'a> {
    now: Now,
    keyspaces: &'a Keyspaces,
    seen: Option<Seen>,
    /// Fields and strings that could not be read.
    failed: u64,
    /// Watches that may still be checked.
    left: usize,
    /// Bytes that may still be read.
    left_bytes: u64,
}

impl Look<'_> {
    /// Renews the budget for the next kind of watches.
    fn renew(&mut self) {
        (self.left, self.left_bytes) = (LOOKS_MAX, READ_BYTES_MAX);
    }

    fn is_over(&self) -> bool {
        self.left == 0 || self.left_bytes == 0
    }

    /// Reads the field or string of a watch.
    fn see(&mut self, watch: &Watch) -> &Seen {
        self.left = self.left.saturating_sub(1);
        let seen = match self.seen.take() {
            Some(seen) if seen.is_of(watch) => seen,
            _ => {
                let seen = Seen::of(watch, self.now, self.keyspaces, &mut self.failed);
                let bytes = seen.reply.as_ref().map_or(0, |reply| reply.len() as u64);
                self.left_bytes = self.left_bytes.saturating_sub(bytes);
                seen
            }
        };
        self.seen.insert(seen)
    }
}

impl Seen {
    fn of(watch: &Watch, now: Now, keyspaces: &Keyspaces, failed: &mut u64) -> Self {
        let mut reply = Vec::new();
        let read = watch.read(keyspaces.of(watch.slot()), now.date_ms, PART_READ, &mut reply);
        let reply = match read {
            Ok(ReadOutcome::Answered) => Some(reply),
            Ok(ReadOutcome::Expired(_)) => None,
            Err(error) => {
                *failed += 1;
                failures::write(&error, &mut ReplyWriter::new(&mut reply, Protocol::Resp2));
                Some(reply)
            }
        };
        Self { place: Arc::clone(&watch.place), target: watch.target.clone(), reply }
    }

    fn is_of(&self, watch: &Watch) -> bool {
        self.place == watch.place && self.target == watch.target
    }
}

impl Watches {
    /// Checks watches on what was touched, new ones, those whose time is over, and those on slots that this
    /// node does not lead any more. To be called when everything that was written is settled. Returns how
    /// many fields and strings could not be read.
    pub(crate) fn look(
        &mut self,
        now: Now,
        keyspaces: &Keyspaces,
        table: &SlotTable,
        touched: &mut Touched,
    ) -> u64 {
        // First, because cells of a slot that another node leads by now may be gone already.
        if std::mem::replace(&mut self.seen, table.version()) != table.version() {
            self.look_at_table(table);
        }
        let slots = std::mem::take(&mut touched.slots);
        if !slots.is_empty() {
            for (place, of_key) in &self.by_place {
                if slots.contains(&slot_of_place(place)) {
                    self.due.add(place, of_key, &Fields::Any);
                }
            }
        }
        for (place, fields) in touched.places.drain() {
            if let Some((place, of_key)) = self.by_place.get_key_value(&place[..]) {
                self.due.add(place, of_key, &fields);
            }
        }
        let mut look = Look { now, keyspaces, seen: None, failed: 0, left: 0, left_bytes: 0 };
        self.look_at_begun(&mut look);
        self.look_at_due(&mut look);
        self.end_overdue(&mut look);
        touched.is_wanted = !self.is_empty();
        look.failed
    }

    fn look_at_begun(&mut self, look: &mut Look<'_>) {
        look.renew();
        if self.looking.is_empty() {
            self.begin_to_look();
        }
        while !look.is_over()
            && let Some(number) = self.looking.pop_front()
        {
            self.look_at(number, look);
        }
    }

    /// Moves the next new watches that still exist to the front of the checks.
    fn begin_to_look(&mut self) {
        while self.looking.len() < LOOKS_MAX
            && let Some(number) = self.begun.pop_front()
        {
            if self.all.contains_key(&number) {
                self.looking.push_back(number);
            }
        }
        // So that a field or string with several watches is read once.
        self.looking.make_contiguous().sort_by_cached_key(|number| {
            self.all.get(number).map(|watch| (Arc::clone(&watch.place), watch.target.clone()))
        });
    }

    fn look_at_due(&mut self, look: &mut Look<'_>) {
        look.renew();
        while !look.is_over()
            && let Some(number) = self.due.next(&self.by_place)
        {
            self.look_at(number, look);
        }
    }

    /// Ends some watches whose time is over, earliest first.
    fn end_overdue(&mut self, look: &mut Look<'_>) {
        look.renew();
        for _ in 0..LOOKS_MAX {
            let Some(&(_, number)) = self.by_end.first().filter(|(ends_us, _)| *ends_us <= look.now.moment.0)
            else {
                return;
            };
            // It may be met without having been checked yet.
            if self.is_behind() {
                if look.is_over() {
                    return;
                }
                self.look_at(number, look);
            }
            if let Some(watch) = self.remove(number) {
                self.tell(&watch.waiter, &WatchEnd::TimeOut);
            }
        }
    }

    /// Whether watches remain to be checked.
    fn is_behind(&self) -> bool {
        !self.looking.is_empty() || !self.begun.is_empty() || !self.due.is_empty()
    }

    /// Whether watches remain to be checked or their time is over, so that the next round must not wait.
    pub(crate) fn goes_on(&self, now: Moment) -> bool {
        self.is_behind() || self.by_end.first().is_some_and(|(ends_us, _)| *ends_us <= now.0)
    }

    fn look_at(&mut self, number: u64, look: &mut Look<'_>) {
        let Some(watch) = self.all.get(&number) else { return };
        let Some(reply) = &look.see(watch).reply else {
            // The key will be deleted soon, and then the watch is checked again.
            return;
        };
        let told = match reply.first() {
            Some(b'-') => WatchEnd::Refused(std::str::from_utf8(&reply[1..]).unwrap_or_default().trim_end()),
            _ => {
                let value = string_of(reply);
                if !watch.expected.is_met(value) {
                    return;
                }
                let bytes = value.map_or(0, |value| value.len() as u64);
                let is_much =
                    bytes > SHORT_VALUE_BYTES_MAX && self.value_bytes + bytes > ROUND_VALUE_BYTES_MAX;
                match bytes > VALUE_BYTES_MAX || is_much {
                    true => WatchEnd::Long,
                    false => {
                        self.value_bytes += bytes;
                        WatchEnd::Met(value)
                    }
                }
            }
        };
        if let Some(watch) = self.remove(number) {
            self.tell(&watch.waiter, &told);
        }
    }

    /// Ends watches on slots that another node leads by now: the client has to wait there.
    fn look_at_table(&mut self, table: &SlotTable) {
        self.refuse_where(|slot| match table.route(slot) {
            Route::Here => None,
            Route::There(to) => Some(format!("MOVED {}", moved_to(number_of_slot(slot), &to))),
            Route::Nowhere => Some("CLUSTERDOWN Hash slot not served".to_owned()),
        });
    }

    /// Ends the watches on the slots for which `why` says why.
    pub(super) fn refuse_where(&mut self, why: impl Fn(Slot) -> Option<String>) {
        let mut gone: HashMap<u64, String> = HashMap::new();
        for (place, of_key) in &self.by_place {
            let Some(why) = why(slot_of_place(place)) else { continue };
            gone.extend(of_key.iter().map(|&(_, number)| (number, why.clone())));
        }
        for (number, why) in gone {
            if let Some(watch) = self.remove(number) {
                self.tell(&watch.waiter, &WatchEnd::Refused(&why));
            }
        }
    }
}

/// The string in a reply; none for a null.
fn string_of(reply: &[u8]) -> Option<&[u8]> {
    let end = reply.iter().position(|&byte| byte == b'\n')?;
    reply.get(end + 1..)?.strip_suffix(b"\r\n")
}

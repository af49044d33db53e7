//! Looking whether what is waited for is there: at what was touched, at what began, at whose time is over, and at what other nodes have by now.
//!
//! Invariant: what cannot be read is told to who waits for it, and to nobody else.
//! Invariant: it is looked at when everything that was written is settled, and a field once for all who wait for it one behind another.
//! Invariant: a round looks at so many watches and reads so many bytes for them, whatever is written or waited for; the others follow
//! in the next rounds.

use super::watch::{Touched, Watch, slot_of_place};
use super::{Told, Watches};
use crate::address::HostPort;
use crate::clock::Now;
use crate::failures;
use crate::keyspaces::{Keyspaces, number_of_slot};
use crate::table::{Route, SlotTable};
use atoll_keyspace::{CONDITION_BYTES_MAX, OwnCommand, Part, ReadOutcome};
use atoll_replica::Moment;
use atoll_resp::{Protocol, ReplyWriter};
use std::collections::HashMap;
use std::sync::Arc;

/// Longest value that is told; longer ones are to be read.
const TOLD_BYTES_MAX: u64 = 1 << 20;

const _: () =
    assert!(CONDITION_BYTES_MAX as u64 <= TOLD_BYTES_MAX, "what is expected is compared as a whole");

/// What is read of a value: of a longer one it is known by then that it is too long, and that nobody waits for just that.
const LOOKED_AT: Part = Part { offset: 0, len: TOLD_BYTES_MAX + 1 };

/// Values of so many bytes together are told in a round; behind them all that are not short are to be read.
const TOLD_TOGETHER_MAX: u64 = 64 << 20;

/// Longest value that is told whatever else is.
const SHORT_BYTES: u64 = 1 << 10;

/// Watches whose time is over that are told of it in a round, which takes some milliseconds; the others are in the next ones.
pub(super) const ENDED_MAX: usize = 4096;

/// What was read for a watch, which others may wait for as well.
struct Seen {
    place: Arc<[u8]>,
    field: Box<[u8]>,
    /// None if its time is over.
    reply: Option<Vec<u8>>,
}

impl Seen {
    fn of(watch: &Watch, now: Now, keyspaces: &Keyspaces, failed: &mut u64) -> Self {
        let get = OwnCommand::Get { key: watch.key(), field: &watch.field, part: LOOKED_AT };
        let ((keyspace, number), mut reply) = (keyspaces.of(watch.slot()), Vec::new());
        let reply = match keyspace.read_own(number, now.date_ms, &get, Protocol::Resp2, &mut reply) {
            Ok(ReadOutcome::Answered) => Some(reply),
            Ok(ReadOutcome::Expired(_)) => None,
            Err(error) => {
                *failed += 1;
                failures::write(&error, &mut ReplyWriter::new(&mut reply, Protocol::Resp2));
                Some(reply)
            }
        };
        Self { place: Arc::clone(&watch.place), field: watch.field.clone(), reply }
    }

    fn is_of(&self, watch: &Watch) -> bool {
        self.place == watch.place && self.field == watch.field
    }
}

impl Watches {
    /// Looks at what was touched or begun, at whose time is over, and at what this node has no more. To be called when
    /// everything that was written is settled. Tells how many fields could not be read.
    pub(crate) fn look(
        &mut self,
        now: Now,
        keyspaces: &Keyspaces,
        table: &SlotTable,
        touched: &mut Touched,
    ) -> u64 {
        // First: cells of a slot that another node has by now may be gone already.
        if std::mem::replace(&mut self.seen, table.version()) != table.version() {
            self.look_at_table(table);
        }
        let mut numbers = std::mem::take(&mut self.begun);
        match std::mem::take(&mut touched.all) {
            true => numbers.extend(self.all.keys()),
            false => {
                let touched = touched.places.iter().filter_map(|place| self.by_place.get(&place[..]));
                numbers.extend(touched.flatten());
            }
        }
        touched.places.clear();
        let (mut seen, mut failed) = (None, 0);
        for number in numbers {
            self.look_at(number, now, keyspaces, &mut seen, &mut failed);
        }
        self.end_overdue(now.moment);
        touched.is_wanted = !self.is_empty();
        failed
    }

    /// Tells some whose time is over, the first ones first.
    fn end_overdue(&mut self, now: Moment) {
        for _ in 0..ENDED_MAX {
            let Some(&(_, number)) = self.by_end.first().filter(|(ends_us, _)| *ends_us <= now.0) else {
                return;
            };
            if let Some(watch) = self.remove(number) {
                self.tell(&watch.waiter, &Told::TimeOut);
            }
        }
    }

    /// Whether the time of some is over that are still to be told: the next round is not to wait.
    pub(crate) fn has_overdue(&self, now: Moment) -> bool {
        self.by_end.first().is_some_and(|(ends_us, _)| *ends_us <= now.0)
    }

    fn look_at(
        &mut self,
        number: u64,
        now: Now,
        keyspaces: &Keyspaces,
        seen: &mut Option<Seen>,
        failed: &mut u64,
    ) {
        let Some(watch) = self.all.get(&number) else { return };
        let seen = match seen.take_if(|seen| seen.is_of(watch)) {
            Some(same) => seen.insert(same),
            None => seen.insert(Seen::of(watch, now, keyspaces, failed)),
        };
        let Some(reply) = &seen.reply else {
            // It will be deleted soon, and then it is looked at again.
            return;
        };
        let told = match reply.first() {
            Some(b'-') => Told::Refused(std::str::from_utf8(&reply[1..]).unwrap_or_default().trim_end()),
            _ => {
                let value = string_of(reply);
                if !watch.expected.is_met(value) {
                    return;
                }
                let bytes = value.map_or(0, |value| value.len() as u64);
                let is_much = bytes > SHORT_BYTES && self.told_bytes + bytes > TOLD_TOGETHER_MAX;
                match bytes > TOLD_BYTES_MAX || is_much {
                    true => Told::Long,
                    false => {
                        self.told_bytes += bytes;
                        Told::Met(value)
                    }
                }
            }
        };
        if let Some(watch) = self.remove(number) {
            self.tell(&watch.waiter, &told);
        }
    }

    /// What another node has by now is to be waited for there.
    fn look_at_table(&mut self, table: &SlotTable) {
        let mut gone: HashMap<u64, String> = HashMap::new();
        for (place, numbers) in &self.by_place {
            let slot = slot_of_place(place);
            let why = match table.route(slot) {
                Route::Here => continue,
                Route::There(HostPort { host, port }) => {
                    format!("MOVED {} {host}:{port}", number_of_slot(slot))
                }
                Route::Nowhere => "CLUSTERDOWN Hash slot not served".to_owned(),
            };
            gone.extend(numbers.iter().map(|&number| (number, why.clone())));
        }
        for (number, why) in gone {
            if let Some(watch) = self.remove(number) {
                self.tell(&watch.waiter, &Told::Refused(&why));
            }
        }
    }
}

/// The string that a reply is; none for none.
fn string_of(reply: &[u8]) -> Option<&[u8]> {
    let end = reply.iter().position(|&byte| byte == b'\n')?;
    reply.get(end + 1..)?.strip_suffix(b"\r\n")
}

//! Who waits for fields to have other values, and is told when they have.
//!
//! What writes touch is noted, and looked at once when the round is settled: a watch costs nothing while nobody writes to
//! its key.
//!
//! Invariant: whoever waits is told once, of a value that was settled while it waited.
//! Invariant: watches take bounded memory, and none outlives its time or its connection.

use crate::address::HostPort;
use crate::clock::Now;
use crate::keyspaces::{Keyspaces, keyspace_of, number_of_slot, slot_at};
use crate::table::{Route, SlotTable};
use atoll_errors::ErrorKind;
use atoll_keyspace::{KeyspaceError, OwnCommand, Part, ReadOutcome, slot_of};
use atoll_replica::{Moment, Slot, Ticket, Version};
use atoll_resp::{Expected, Protocol, ReplyWriter, WatchRequest};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeBounds;
use std::sync::Arc;

/// Memory for watches, in bytes.
const BYTES_MAX: usize = 512 << 20;

/// What a watch takes beside its key, field and value, about.
const WATCH_BYTES: usize = 448;

/// Watches of one connection.
const OF_CONNECTION_MAX: usize = 100_000;

/// Longest value that is told; longer ones are to be read.
const TOLD_BYTES_MAX: u64 = 1 << 20;

/// Values of so many bytes together are told in a round; behind them all that are not short are to be read.
const TOLD_TOGETHER_MAX: u64 = 64 << 20;

/// Longest value that is told whatever else is.
const SHORT_BYTES: u64 = 1 << 10;

/// Longest time that somebody waits, in milliseconds: a day.
const MILLISECONDS_MAX: u64 = 86_400_000;

/// Watches whose time is over that are told of it in a round, which takes some milliseconds; the others are in the next ones.
const ENDED_MAX: usize = 4096;

/// Who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    /// What the answer is called, if it is one; it also tells the connection.
    pub(crate) ticket: Ticket,
    /// The place of the connection.
    pub(crate) connection: usize,
    /// The number of the connection.
    pub(crate) session: u64,
    /// How often it had changed its user.
    pub(crate) users: u32,
    pub(crate) protocol: Protocol,
    /// What a push is called, if that is how it is told.
    pub(crate) id: Option<u64>,
}

/// What somebody waits for.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    waiter: Waiter,
    /// The place of its keyspace, and the key behind it: those of one keyspace are no others'.
    place: Arc<[u8]>,
    field: Box<[u8]>,
    expected: Expected<Box<[u8]>>,
    ends_us: u64,
}

/// What connections are told without having asked just now: the place and number of each, and the bytes.
pub(crate) type Push = (usize, u64, Vec<u8>);

/// Keys that were written.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Whether anybody wants to know.
    pub(crate) is_wanted: bool,
    /// Each behind the place of its keyspace.
    places: HashSet<Vec<u8>>,
    /// Whether it may have been any of them.
    all: bool,
}

impl Touched {
    /// These were written, of a slot.
    pub(crate) fn touch<'a>(&mut self, slot: Slot, keys: impl Iterator<Item = &'a [u8]>) {
        if !self.is_wanted {
            return;
        }
        let mut count = 0;
        let keyspace = keyspace_of(slot);
        self.places.extend(keys.inspect(|_| count += 1).map(|key| place_of(keyspace, key)));
        // A command without keys is about all of them.
        self.all |= count == 0;
    }
}

/// Who waits.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: HashMap<u64, Watch>,
    /// Each set in the order in which they began.
    by_place: HashMap<Arc<[u8]>, BTreeSet<u64>>,
    by_end: BTreeSet<(u64, u64)>,
    /// By what they are called, if that is how they are told.
    by_connection: HashMap<usize, BTreeSet<(Option<u64>, u64)>>,
    /// The last connection at each place that has ended: what it asked for before may still be on its way here.
    ended: HashMap<usize, u64>,
    /// How often connections changed their user, where they did: what they asked for before may still be on its way here.
    users: HashMap<usize, u32>,
    /// How often connections had let go of pushes, of those that did.
    pushed: HashMap<usize, u32>,
    /// Connections that ask for nothing more: what they asked for before may still be on its way here.
    silent: HashSet<usize>,
    /// Those that nobody has looked at yet.
    begun: Vec<u64>,
    last: u64,
    bytes: usize,
    seen: Version,
    answers: Vec<(Ticket, Vec<u8>)>,
    pushes: Vec<Push>,
    /// Bytes of values in these.
    told_bytes: u64,
}

/// What is told.
enum Told<'a> {
    Met(Option<&'a [u8]>),
    /// It is as it has to be, and too long.
    Long,
    TimeOut,
    /// It cannot be waited for here.
    Refused(&'a str),
}

impl Watch {
    /// What a request waits for in a keyspace.
    pub(crate) fn new(request: &WatchRequest<'_>, keyspace: u8, waiter: Waiter, now: Now) -> Self {
        let us = request.milliseconds.min(MILLISECONDS_MAX) * 1000;
        let boxed = |value: Option<&[u8]>| value.map(Box::from);
        let expected = match request.expected {
            Expected::Equals(value) => Expected::Equals(boxed(value)),
            Expected::Differs(value) => Expected::Differs(boxed(value)),
        };
        let ends_us = now.moment.after(us).0;
        let place = place_of(keyspace, request.key).into();
        Self { waiter, place, field: request.field.into(), expected, ends_us }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.place.get(1..).unwrap_or_default()
    }

    /// The slot of its key.
    pub(crate) fn slot(&self) -> Slot {
        slot_of_place(&self.place)
    }

    /// Memory that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let (Expected::Equals(value) | Expected::Differs(value)) = &self.expected;
        WATCH_BYTES + self.place.len() + self.field.len() + value.as_ref().map_or(0, |value| value.len())
    }
}

/// What was read for a watch, which others may wait for as well.
struct Seen {
    place: Arc<[u8]>,
    field: Box<[u8]>,
    /// None if its time is over.
    reply: Option<Vec<u8>>,
}

impl Seen {
    fn of(watch: &Watch, now: Now, keyspaces: &Keyspaces) -> Result<Self, KeyspaceError> {
        let get = OwnCommand::Get { key: watch.key(), field: &watch.field, part: Part::ALL };
        let ((keyspace, number), mut reply) = (keyspaces.of(watch.slot()), Vec::new());
        let outcome = keyspace.read_own(number, now.date_ms, &get, Protocol::Resp2, &mut reply)?;
        let reply = matches!(outcome, ReadOutcome::Answered).then_some(reply);
        Ok(Self { place: Arc::clone(&watch.place), field: watch.field.clone(), reply })
    }

    fn is_of(&self, watch: &Watch) -> bool {
        self.place == watch.place && self.field == watch.field
    }
}

impl Watches {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Watches from now on; what it waits for is looked at in this round.
    pub(crate) fn begin(&mut self, watch: Watch) {
        if self.is_over(&watch.waiter) {
            return self.let_go(&watch.waiter);
        }
        let of_connection = self.by_connection.get(&watch.waiter.connection).map_or(0, BTreeSet::len);
        let too_many_at = match self.bytes + watch.bytes() > BYTES_MAX {
            true => Some("at this node"),
            false => (of_connection >= OF_CONNECTION_MAX).then_some("of this connection"),
        };
        if let Some(at) = too_many_at {
            let limit = ErrorKind::Limit.names().resp;
            return self.tell(&watch.waiter, &Told::Refused(&format!("{limit} too many watches {at}")));
        }
        self.last += 1;
        let number = self.last;
        self.bytes += watch.bytes();
        self.by_place.entry(Arc::clone(&watch.place)).or_default().insert(number);
        self.by_end.insert((watch.ends_us, number));
        let of_connection = self.by_connection.entry(watch.waiter.connection).or_default();
        of_connection.insert((watch.waiter.id, number));
        self.begun.push(number);
        self.all.insert(number, watch);
    }

    /// It cannot be waited for here.
    pub(crate) fn refuse(&mut self, watch: &Watch, why: &str) {
        if self.is_over(&watch.waiter) {
            return self.let_go(&watch.waiter);
        }
        self.tell(&watch.waiter, &Told::Refused(why));
    }

    /// Lets go of those of a connection that are called so; how many there were.
    pub(crate) fn end_id(&mut self, connection: usize, id: u64) -> i64 {
        let ended = self.numbers(connection, (Some(id), 0)..=(Some(id), u64::MAX));
        ended.iter().for_each(|&number| drop(self.remove(number)));
        ended.len() as i64
    }

    /// Those of a connection that are called so.
    fn numbers(&self, connection: usize, called: impl RangeBounds<(Option<u64>, u64)>) -> Vec<u64> {
        let of_connection = self.by_connection.get(&connection).into_iter();
        of_connection
            .flat_map(|numbers| numbers.range((called.start_bound(), called.end_bound())))
            .map(|&(_, number)| number)
            .collect()
    }

    /// A connection asks for nothing more: its waits are over, those that begin late included.
    pub(crate) fn give_up(&mut self, connection: usize) {
        self.silent.insert(connection);
        self.end_waits(connection);
    }

    fn end_waits(&mut self, connection: usize) {
        for (_, number) in self.by_connection.remove(&connection).unwrap_or_default() {
            if let Some(watch) = self.remove(number) {
                self.tell(&watch.waiter, &Told::TimeOut);
            }
        }
    }

    /// A connection changed its user, for the so-manieth time: what was asked for before is over.
    pub(crate) fn change_user(&mut self, connection: usize, users: u32) {
        self.users.insert(connection, users);
        self.end_waits(connection);
    }

    fn is_over(&self, waiter: &Waiter) -> bool {
        self.silent.contains(&waiter.connection) || self.is_of_another(waiter) || self.is_gone(waiter)
    }

    /// Whether the connection of whoever waits has ended: another one may have its place. They are numbered in their order.
    fn is_gone(&self, waiter: &Waiter) -> bool {
        self.ended.get(&waiter.connection).is_some_and(|ended| waiter.session <= *ended)
    }

    /// Whether a connection was somebody else's when this was asked for, or understood pushes then and does not any more.
    fn is_of_another(&self, waiter: &Waiter) -> bool {
        let is_before = |changes: &HashMap<usize, u32>| {
            changes.get(&waiter.connection).is_some_and(|users| waiter.users < *users)
        };
        is_before(&self.users) || (waiter.id.is_some() && is_before(&self.pushed))
    }

    /// Answers what an answer is awaited for, and tells nothing of what was watched.
    fn let_go(&mut self, waiter: &Waiter) {
        if waiter.id.is_none() && !self.is_gone(waiter) {
            self.tell(waiter, &Told::TimeOut);
        }
    }

    /// A connection may not understand pushes any more, for the so-manieth time: what it would be told by them is let go of without a
    /// word.
    pub(crate) fn end_pushes(&mut self, connection: usize, users: u32) {
        let pushed = self.numbers(connection, (Some(0), 0)..);
        pushed.into_iter().for_each(|number| drop(self.remove(number)));
        self.pushed.insert(connection, users);
    }

    /// A connection begins anew, for the so-manieth time: what it waits for is over as well.
    pub(crate) fn begin_anew(&mut self, connection: usize, users: u32) {
        self.end_pushes(connection, users);
        self.change_user(connection, users);
    }

    /// A connection ended.
    pub(crate) fn end_connection(&mut self, connection: usize, session: u64) {
        self.ended.insert(connection, session);
        self.users.remove(&connection);
        self.pushed.remove(&connection);
        self.silent.remove(&connection);
        for (_, number) in self.by_connection.remove(&connection).unwrap_or_default() {
            self.remove(number);
        }
    }

    /// To be called instead where there is none: those that began and ended in this round are not looked at.
    pub(crate) fn rest(&mut self) {
        self.begun.clear();
    }

    /// Looks at what was touched or begun, at whose time is over, and at what this node has no more. To be called when
    /// everything that was written is settled.
    pub(crate) fn look(
        &mut self,
        now: Now,
        keyspaces: &Keyspaces,
        table: &SlotTable,
        touched: &mut Touched,
    ) -> Result<(), KeyspaceError> {
        let mut numbers = std::mem::take(&mut self.begun);
        match std::mem::take(&mut touched.all) {
            true => numbers.extend(self.all.keys()),
            false => {
                let touched = touched.places.iter().filter_map(|place| self.by_place.get(&place[..]));
                numbers.extend(touched.flatten());
            }
        }
        touched.places.clear();
        let mut seen = None;
        for number in numbers {
            self.look_at(number, now, keyspaces, &mut seen)?;
        }
        self.end_overdue(now.moment);
        if std::mem::replace(&mut self.seen, table.version()) != table.version() {
            self.look_at_table(table);
        }
        touched.is_wanted = !self.is_empty();
        Ok(())
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
    ) -> Result<(), KeyspaceError> {
        let Some(watch) = self.all.get(&number) else { return Ok(()) };
        let seen = match seen.take_if(|seen| seen.is_of(watch)) {
            Some(same) => seen.insert(same),
            None => seen.insert(Seen::of(watch, now, keyspaces)?),
        };
        let Some(reply) = &seen.reply else {
            // It will be deleted soon, and then it is looked at again.
            return Ok(());
        };
        let told = match reply.first() {
            Some(b'-') => Told::Refused(std::str::from_utf8(&reply[1..]).unwrap_or_default().trim_end()),
            _ => {
                let value = string_of(reply);
                if !watch.expected.is_met(value) {
                    return Ok(());
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
        Ok(())
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

    fn remove(&mut self, number: u64) -> Option<Watch> {
        let watch = self.all.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(watch.bytes());
        self.by_end.remove(&(watch.ends_us, number));
        if let Some(numbers) = self.by_place.get_mut(&watch.place) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_place.remove(&watch.place);
            }
        }
        if let Some(numbers) = self.by_connection.get_mut(&watch.waiter.connection) {
            numbers.remove(&(watch.waiter.id, number));
            if numbers.is_empty() {
                self.by_connection.remove(&watch.waiter.connection);
            }
        }
        Some(watch)
    }

    fn tell(&mut self, waiter: &Waiter, told: &Told<'_>) {
        let mut reply = Vec::new();
        let mut writer = ReplyWriter::new(&mut reply, waiter.protocol);
        match (waiter.id, told) {
            (Some(id), _) => {
                writer.push(4);
                writer.string(b"at.watch");
                writer.integer(i64::try_from(id).unwrap_or(i64::MAX));
            }
            (None, Told::Refused(why)) => {
                let (word, text) = why.split_once(' ').unwrap_or((why, ""));
                writer.error(word, text);
            }
            (None, _) => writer.array(2),
        }
        match told {
            Told::Refused(_) if waiter.id.is_none() => {}
            Told::Refused(why) => {
                writer.integer(-1);
                writer.string(why.as_bytes());
            }
            Told::TimeOut | Told::Met(None) | Told::Long => {
                writer.integer(match told {
                    Told::TimeOut => 0,
                    Told::Long => 2,
                    _ => 1,
                });
                writer.null();
            }
            Told::Met(Some(value)) => {
                writer.integer(1);
                writer.string(value);
            }
        }
        match waiter.id {
            Some(_) => self.pushes.push((waiter.connection, waiter.session, reply)),
            None => self.answers.push((waiter.ticket, reply)),
        }
    }

    /// Answers since the last time, each once.
    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Vec<u8>)> {
        std::mem::take(&mut self.answers)
    }

    /// Pushes since the last time, each once.
    pub(crate) fn take_pushes(&mut self) -> Vec<Push> {
        self.told_bytes = 0;
        std::mem::take(&mut self.pushes)
    }
}

/// A key of a keyspace.
fn place_of(keyspace: u8, key: &[u8]) -> Vec<u8> {
    [&[keyspace], key].concat()
}

fn slot_of_place(place: &[u8]) -> Slot {
    let (keyspace, key) = place.split_first().unwrap_or((&0, &[]));
    slot_at(*keyspace, slot_of(key))
}

/// The string that a reply is; none for none.
fn string_of(reply: &[u8]) -> Option<&[u8]> {
    let end = reply.iter().position(|&byte| byte == b'\n')?;
    reply.get(end + 1..)?.strip_suffix(b"\r\n")
}

#[cfg(test)]
mod tests;

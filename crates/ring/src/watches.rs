//! Watches: clients that wait for fields, or for the strings at keys, to have other values, and are notified
//! when they have.
//!
//! What writes touch is recorded, and checked when the round is settled. A watch on a field costs nothing
//! while nothing writes to this field, or to its key by a command that does not name fields. A watch on a
//! string costs nothing while nothing writes to its key.
//!
//! Invariant: a watch is answered once, with a value that was settled while it waited.
//! Invariant: watches take bounded memory, and none outlives its time or its connection.

mod due;
mod looking;
mod touched;
mod under_way;
mod unread;
mod watch;

use atoll_errors::ErrorKind;
use atoll_replica::{Ticket, Version};
use atoll_resp::{Protocol, ReplyWriter};
use due::{ByPlace, Due};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::RangeBounds;
use std::sync::Arc;
pub(crate) use touched::Touched;
use under_way::UnderWay;
use unread::Unread;
pub(crate) use watch::{Waiter, Watch};

/// Most memory for watches, in bytes.
const BYTES_MAX: usize = 512 << 20;

/// Most watches of one connection.
const OF_CONNECTION_MAX: usize = 100_000;

/// Longest value that is sent whatever else is, in bytes.
const SHORT_VALUE_BYTES_MAX: u64 = 1 << 10;

/// A push to a connection.
#[derive(Debug)]
pub(crate) struct Push {
    /// The index of the connection, and its number.
    pub(crate) connection: usize,
    pub(crate) session: u64,
    pub(crate) bytes: Vec<u8>,
    /// The id of the watch, if these have a value that is not short: [`met_without_value`] can take their
    /// place.
    pub(crate) with_value: Option<u64>,
}

/// All watches of a loop.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    all: HashMap<u64, Watch>,
    by_place: ByPlace,
    by_end: BTreeSet<(u64, u64)>,
    /// The watches of each connection, by the id under which they are pushed, if they are.
    by_connection: HashMap<usize, BTreeSet<(Option<u64>, u64)>>,
    /// Those that have not begun yet.
    under_way: UnderWay,
    /// The last connection at each index that has ended. A watch that it asked for may still be on its way
    /// here.
    ended: HashMap<usize, u64>,
    /// How often connections changed their user, for those that did. A watch from before may still be on its
    /// way here.
    users: HashMap<usize, u32>,
    /// The change count at which connections last gave up pushes, for those that did.
    pushed: HashMap<usize, u32>,
    /// Connections that ask for nothing more. A watch that they asked for may still be on its way here.
    silent: HashSet<usize>,
    /// New watches that were not checked yet, oldest first.
    begun: VecDeque<u64>,
    /// Those of them that are checked next, sorted by what they wait for.
    looking: VecDeque<u64>,
    due: Due,
    unread: Unread,
    last: u64,
    bytes: usize,
    seen: Version,
    answers: Vec<(Ticket, Vec<u8>)>,
    pushes: Vec<Push>,
    /// Bytes of values in the pushes and answers since the last call.
    value_bytes: u64,
}

/// How a watch ends.
enum WatchEnd<'a> {
    Met(Option<&'a [u8]>),
    /// It is met, and the value is too long to be sent, or with what else is sent.
    Long,
    TimeOut,
    /// It cannot be waited for here.
    Refused(&'a str),
}

impl Watches {
    /// Whether there are no watches.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Number of watches.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Records that a watch is on its way here. It comes by [`arrive`](Self::arrive).
    pub(crate) fn await_arrival(&mut self, watch: &Watch) {
        self.under_way.add(&watch.waiter);
    }

    /// Begins or refuses a watch that was on its way, unless its client has ended it meanwhile.
    pub(crate) fn arrive(&mut self, watch: Watch, refused: Option<&str>) {
        if !self.under_way.take(&watch.waiter) {
            return;
        }
        match refused {
            None => self.begin(watch),
            Some(why) => self.refuse(&watch, why),
        }
    }

    /// Begins a watch, which is checked in this round.
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
            return self.tell(&watch.waiter, &WatchEnd::Refused(&format!("{limit} too many watches {at}")));
        }
        self.last += 1;
        let number = self.last;
        self.bytes += watch.bytes();
        let of_key = self.by_place.entry(Arc::clone(&watch.place)).or_default();
        of_key.insert((watch.target.clone(), number));
        self.by_end.insert((watch.ends_us, number));
        let of_connection = self.by_connection.entry(watch.waiter.connection).or_default();
        of_connection.insert((watch.waiter.id, number));
        self.begun.push_back(number);
        self.all.insert(number, watch);
    }

    /// Answers that a watch is not possible here.
    pub(crate) fn refuse(&mut self, watch: &Watch, why: &str) {
        if self.is_over(&watch.waiter) {
            return self.let_go(&watch.waiter);
        }
        self.tell(&watch.waiter, &WatchEnd::Refused(why));
    }

    /// Ends the watches of a connection with this id, also those on their way; returns how many there were.
    pub(crate) fn end_id(&mut self, connection: usize, id: u64) -> i64 {
        let ended = self.numbers(connection, (Some(id), 0)..=(Some(id), u64::MAX));
        ended.iter().for_each(|&number| drop(self.remove(number)));
        (ended.len() + self.under_way.end_id(connection, id)) as i64
    }

    /// The watches of a connection with ids in this range.
    fn numbers(&self, connection: usize, called: impl RangeBounds<(Option<u64>, u64)>) -> Vec<u64> {
        let of_connection = self.by_connection.get(&connection).into_iter();
        of_connection
            .flat_map(|numbers| numbers.range((called.start_bound(), called.end_bound())))
            .map(|&(_, number)| number)
            .collect()
    }

    /// Ends the watches of a connection that asks for nothing more, including those that begin late.
    pub(crate) fn give_up(&mut self, connection: usize) {
        self.silent.insert(connection);
        self.end_waits(connection);
    }

    fn end_waits(&mut self, connection: usize) {
        self.under_way.end_all(connection);
        for (_, number) in self.by_connection.remove(&connection).unwrap_or_default() {
            if let Some(watch) = self.remove(number) {
                self.tell(&watch.waiter, &WatchEnd::TimeOut);
            }
        }
    }

    /// Ends the watches of a connection that changed its user, for the `users`th time.
    pub(crate) fn change_user(&mut self, connection: usize, users: u32) {
        self.users.insert(connection, users);
        self.end_waits(connection);
    }

    fn is_over(&self, waiter: &Waiter) -> bool {
        self.silent.contains(&waiter.connection) || self.is_of_another(waiter) || self.is_gone(waiter)
    }

    /// Whether the watch's connection has ended; another one may have its index. Connections are numbered in
    /// order.
    fn is_gone(&self, waiter: &Waiter) -> bool {
        self.ended.get(&waiter.connection).is_some_and(|ended| waiter.session <= *ended)
    }

    /// Whether the connection has changed its user since it asked, or has given up the pushes that this watch
    /// needs.
    fn is_of_another(&self, waiter: &Waiter) -> bool {
        let is_before = |changes: &HashMap<usize, u32>| {
            changes.get(&waiter.connection).is_some_and(|users| waiter.users < *users)
        };
        is_before(&self.users) || (waiter.id.is_some() && is_before(&self.pushed))
    }

    /// Answers a watch that needs an answer, without revealing anything about the value.
    fn let_go(&mut self, waiter: &Waiter) {
        if waiter.id.is_none() && !self.is_gone(waiter) {
            self.tell(waiter, &WatchEnd::TimeOut);
        }
    }

    /// Ends the pushes of a connection that may not understand them any more, at its change number `users`.
    /// Their watches end without a word.
    pub(crate) fn end_pushes(&mut self, connection: usize, users: u32) {
        let pushed = self.numbers(connection, (Some(0), 0)..);
        pushed.into_iter().for_each(|number| drop(self.remove(number)));
        self.under_way.end_all(connection);
        // The same request may have changed the user, which ended watches with a push for each.
        self.pushes.retain(|push| push.connection != connection);
        self.pushed.insert(connection, users);
    }

    /// Ends all watches of a connection that was reset, at its change number `users`.
    pub(crate) fn begin_anew(&mut self, connection: usize, users: u32) {
        self.end_pushes(connection, users);
        self.change_user(connection, users);
    }

    /// Forgets a connection that has ended.
    pub(crate) fn end_connection(&mut self, connection: usize, session: u64) {
        self.ended.insert(connection, session);
        self.users.remove(&connection);
        self.pushed.remove(&connection);
        self.silent.remove(&connection);
        self.under_way.end_all(connection);
        for (_, number) in self.by_connection.remove(&connection).unwrap_or_default() {
            self.remove(number);
        }
    }

    /// Skips the check of a round: watches that began and ended in it are not checked.
    pub(crate) fn rest(&mut self) {
        self.begun.clear();
        self.looking.clear();
        self.due.clear();
    }

    fn remove(&mut self, number: u64) -> Option<Watch> {
        let watch = self.all.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(watch.bytes());
        self.by_end.remove(&(watch.ends_us, number));
        if let Some(of_key) = self.by_place.get_mut(&watch.place) {
            of_key.remove(&(watch.target.clone(), number));
            if of_key.is_empty() {
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

    fn tell(&mut self, waiter: &Waiter, told: &WatchEnd<'_>) {
        let bytes = written(waiter.id, waiter.protocol, told);
        let Some(id) = waiter.id else { return self.answers.push((waiter.ticket, bytes)) };
        let is_long =
            matches!(told, WatchEnd::Met(Some(value)) if value.len() as u64 > SHORT_VALUE_BYTES_MAX);
        let (connection, session, with_value) = (waiter.connection, waiter.session, is_long.then_some(id));
        self.pushes.push(Push { connection, session, bytes, with_value });
    }

    /// Returns the answers since the last call, each once.
    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Vec<u8>)> {
        std::mem::take(&mut self.answers)
    }

    /// Returns the pushes since the last call, each once.
    pub(crate) fn take_pushes(&mut self) -> Vec<Push> {
        self.value_bytes = 0;
        std::mem::take(&mut self.pushes)
    }
}

/// The answer to a watch, or its push if it has an id.
fn written(id: Option<u64>, protocol: Protocol, told: &WatchEnd<'_>) -> Vec<u8> {
    let mut reply = Vec::new();
    let mut writer = ReplyWriter::new(&mut reply, protocol);
    match (id, told) {
        (Some(id), _) => {
            writer.push(4);
            writer.string(b"at.watch");
            writer.integer(i64::try_from(id).unwrap_or(i64::MAX));
        }
        (None, WatchEnd::Refused(why)) => {
            let (word, text) = why.split_once(' ').unwrap_or((why, ""));
            writer.error(word, text);
        }
        (None, _) => writer.array(2),
    }
    match told {
        WatchEnd::Refused(_) if id.is_none() => {}
        WatchEnd::Refused(why) => {
            writer.integer(-1);
            writer.string(why.as_bytes());
        }
        WatchEnd::TimeOut | WatchEnd::Met(None) | WatchEnd::Long => {
            writer.integer(match told {
                WatchEnd::TimeOut => 0,
                WatchEnd::Long => 2,
                _ => 1,
            });
            writer.null();
        }
        WatchEnd::Met(Some(value)) => {
            writer.integer(1);
            writer.string(value);
        }
    }
    reply
}

/// What takes the place of an answer, or of the push with this id, for whose value there is no room: the
/// watch is met, and the client has to read the value.
pub(crate) fn met_without_value(id: Option<u64>, protocol: Protocol) -> Vec<u8> {
    written(id, protocol, &WatchEnd::Long)
}

#[cfg(test)]
mod tests;

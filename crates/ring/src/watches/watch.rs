//! One watch: which client waits, for which field or string to have what value, and until when.
//!
//! Invariant: keys are prefixed with their keyspace everywhere here, so that keyspaces never mix.

use crate::clock::Now;
use crate::keyspaces::slot_at;
use atoll_keyspace::{Keyspace, KeyspaceError, Overdue, OwnCommand, Part, ReadOutcome, slot_of};
use atoll_replica::{Slot, Ticket};
use atoll_resp::{Expected, Protocol, WatchRequest};
use std::sync::Arc;

/// What a watch takes beside its key, target and value, roughly, in bytes.
const WATCH_BYTES: usize = 448;

/// Longest wait, in milliseconds: a day.
const MILLISECONDS_MAX: u64 = 86_400_000;

/// No byte of a value: whether it can be read at all is what counts.
const NOTHING: Part = Part { offset: 0, len: 0 };

/// The client that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    /// The ticket of the answer, if it gets one; it also names the connection.
    pub(crate) ticket: Ticket,
    /// The index of the connection.
    pub(crate) connection: usize,
    /// The number of the connection.
    pub(crate) session: u64,
    /// How often it had changed its user.
    pub(crate) users: u32,
    pub(crate) protocol: Protocol,
    /// The id of its push, if it gets one.
    pub(crate) id: Option<u64>,
}

/// What of a key is watched. The string comes before all fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    /// The string at the key.
    String,
    /// This field.
    Field(Arc<[u8]>),
}

/// What a client waits for.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(super) waiter: Waiter,
    /// The key, prefixed with its keyspace.
    pub(super) place: Arc<[u8]>,
    pub(super) target: Target,
    pub(super) expected: Expected<Box<[u8]>>,
    pub(super) ends_us: u64,
}

impl Watch {
    /// Makes a watch of a request in a keyspace.
    pub(crate) fn new(request: &WatchRequest<'_>, keyspace: u8, waiter: Waiter, now: Now) -> Self {
        let us = request.milliseconds.min(MILLISECONDS_MAX) * 1000;
        let boxed = |value: Option<&[u8]>| value.map(Box::from);
        let expected = match request.expected {
            Expected::Equals(value) => Expected::Equals(boxed(value)),
            Expected::Differs(value) => Expected::Differs(boxed(value)),
        };
        let ends_us = now.moment.after(us).0;
        let place = place_of(keyspace, request.key).into();
        let target = request.field.map_or(Target::String, |field| Target::Field(field.into()));
        Self { waiter, place, target, expected, ends_us }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.place.get(1..).unwrap_or_default()
    }

    /// The slot of its key.
    pub(crate) fn slot(&self) -> Slot {
        slot_of_place(&self.place)
    }

    /// Reads this part of the field or string, in the keyspace and under the number of its slot.
    pub(super) fn read(
        &self,
        (keyspace, number): (&Keyspace, u16),
        date_ms: u64,
        part: Part,
        reply: &mut Vec<u8>,
    ) -> Result<ReadOutcome, KeyspaceError> {
        let key = self.key();
        match &self.target {
            Target::String => keyspace.read_string(number, date_ms, (key, part), Protocol::Resp2, reply),
            Target::Field(field) => {
                let get = OwnCommand::Get { key, field, part };
                keyspace.read_own(number, date_ms, &get, Protocol::Resp2, reply)
            }
        }
    }

    /// The expired keys that have to be deleted before it can be read.
    pub(crate) fn overdue(&self, (keyspace, number): (&Keyspace, u16), date_ms: u64) -> Vec<Overdue> {
        // Nearly every slot has none, which is known without a read.
        if !keyspace.may_be_overdue(number, date_ms) {
            return Vec::new();
        }
        match self.read((keyspace, number), date_ms, NOTHING, &mut Vec::new()) {
            Ok(ReadOutcome::Expired(overdue)) => overdue,
            // If it cannot be read, the first check says so.
            Ok(ReadOutcome::Answered) | Err(_) => Vec::new(),
        }
    }

    /// The memory that it takes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let (Expected::Equals(value) | Expected::Differs(value)) = &self.expected;
        let field = match &self.target {
            Target::String => 0,
            Target::Field(field) => field.len(),
        };
        WATCH_BYTES + self.place.len() + field + value.as_ref().map_or(0, |value| value.len())
    }
}

/// A key, prefixed with its keyspace.
pub(super) fn place_of(keyspace: u8, key: &[u8]) -> Vec<u8> {
    [&[keyspace], key].concat()
}

pub(super) fn slot_of_place(place: &[u8]) -> Slot {
    let (keyspace, key) = place.split_first().unwrap_or((&0, &[]));
    slot_at(*keyspace, slot_of(key))
}

//! Who a connection is, and how it wants to be spoken to.

use super::End;
use crate::access::Known;
use atoll_replica::Moment;
use atoll_resp::{LatencyClass, Protocol};
use std::net::SocketAddr;

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number, which no other connection to this node ever has.
    pub(crate) id: u64,
    /// Its place among the connections of its loop.
    pub(crate) key: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Whether it said who it is, or need not.
    pub(crate) is_authenticated: bool,
    /// Which user of the list it is; none is `default`.
    pub(crate) who: Option<Known>,
    /// How many wrong passwords it showed.
    pub(crate) wrong_passwords: u32,
    /// How often it changed its user.
    pub(crate) users: u32,
    /// Whether it ends once it was told everything.
    pub(crate) is_ending: bool,
    /// Why, then.
    pub(crate) end: End,
    pub(crate) began: Moment,
    /// Since when it did not say who it is, while it did not.
    pub(crate) stranger_since: Moment,
    /// When something came from it last.
    pub(crate) heard: Moment,
    /// The place of the keyspace that it is in.
    pub(crate) keyspace: u8,
    /// How long its requests may take.
    pub(crate) class: LatencyClass,
    /// Whether what it asked for took a look at every slot: others have their turn first.
    pub(crate) is_tired: bool,
    /// The last command, as a place in the table of all.
    pub(crate) command: Option<u16>,
    names: Option<Box<Names>>,
}

/// What a client calls itself. Most have none of these.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) version: Vec<u8>,
}

/// The names of a client that gave none.
static NAMELESS: Names = Names { name: Vec::new(), library: Vec::new(), version: Vec::new() };

impl Session {
    pub(crate) fn new(
        id: u64,
        peer: SocketAddr,
        is_authenticated: bool,
        class: LatencyClass,
        began: Moment,
    ) -> Self {
        Self {
            id,
            key: 0,
            peer,
            protocol: Protocol::Resp2,
            is_authenticated,
            who: None,
            wrong_passwords: 0,
            users: 0,
            is_ending: false,
            end: End::Gone,
            began,
            stranger_since: began,
            heard: began,
            keyspace: 0,
            class,
            is_tired: false,
            command: None,
            names: None,
        }
    }

    /// Ends it once it was told everything.
    pub(crate) fn end_with(&mut self, end: End) {
        (self.is_ending, self.end) = (true, end);
    }

    /// As it was when it began: whoever has to say who it is has as long for that as then.
    pub(crate) fn reset(&mut self, is_authenticated: bool, class: LatencyClass, now: Moment) {
        if self.is_authenticated {
            self.stranger_since = now;
        }
        (self.protocol, self.is_authenticated, self.names) = (Protocol::Resp2, is_authenticated, None);
        (self.keyspace, self.class, self.who) = (0, class, None);
    }

    pub(crate) fn names(&self) -> &Names {
        self.names.as_deref().unwrap_or(&NAMELESS)
    }

    pub(crate) fn names_mut(&mut self) -> &mut Names {
        self.names.get_or_insert_default()
    }

    /// Memory that this takes beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.names.as_ref().map_or(0, |names| {
            size_of::<Names>() + names.name.capacity() + names.library.capacity() + names.version.capacity()
        })
    }
}

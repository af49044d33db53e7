//! The identity of a connection, and the protocol state that its client chose.

use super::End;
use crate::access::ResolvedUser;
use atoll_replica::Moment;
use atoll_resp::{LatencyClass, Protocol};
use std::net::SocketAddr;

/// The session of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// Unique among all connections to this node, for ever.
    pub(crate) id: u64,
    /// Its index among the connections of its loop.
    pub(crate) key: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Whether it has authenticated, or need not.
    pub(crate) is_authenticated: bool,
    /// The user; none is `default`.
    pub(crate) who: Option<ResolvedUser>,
    /// How many wrong passwords it has shown.
    pub(crate) wrong_passwords: u32,
    /// How often it changed its user, its protocol or was reset: older waits are void then.
    pub(crate) users: u32,
    /// Whether it ends after its replies are sent.
    pub(crate) is_ending: bool,
    /// The reason then.
    pub(crate) end: End,
    pub(crate) began: Moment,
    /// Since when it is unauthenticated, while it is.
    pub(crate) stranger_since: Moment,
    /// When bytes last came from it.
    pub(crate) heard: Moment,
    /// The index of the keyspace that it is in.
    pub(crate) keyspace: u8,
    /// How long its requests may take.
    pub(crate) class: LatencyClass,
    /// Whether its last request looked at every slot, so that others have their turn first.
    pub(crate) is_tired: bool,
    /// Whether its replies since its last turn show nothing that waits for a sync.
    pub(crate) is_free: bool,
    /// The last command, as an index into the table of commands.
    pub(crate) command: Option<u16>,
    names: Option<Box<Names>>,
}

/// What a client calls itself. Most clients give none of these.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) version: Vec<u8>,
}

/// For clients that gave no name.
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
            is_free: false,
            command: None,
            names: None,
        }
    }

    /// Ends the session after its replies are sent.
    pub(crate) fn end_with(&mut self, end: End) {
        (self.is_ending, self.end) = (true, end);
    }

    /// Returns to the initial state. An unauthenticated client gets the full time to authenticate again.
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

    /// Heap bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.names.as_ref().map_or(0, |names| {
            size_of::<Names>() + names.name.capacity() + names.library.capacity() + names.version.capacity()
        })
    }
}

//! Executes a request: parses its command and writes the reply.
//!
//! Invariant: every request gets one reply, in its place, at once or later.

mod access;
mod cluster;
mod connection;
mod info;
mod keys;
mod keyspaces;
mod server;
mod watch;

use crate::access::DEFAULT;
use crate::address::moved_to;
use crate::connection::{End, Outbox, SPEAKS_TLS, Session};
use crate::keyspaces::{number_of_slot, slot_at};
use crate::loop_state::LoopState;
use crate::room::Lack;
use crate::slots::{Answer, Asking, Reply};
use crate::table::Route;
use atoll_keyspace::slot_of;
use atoll_replica::Slot;
use atoll_resp::{
    COMMANDS, ClusterRequest, Command, CommandError, Flag, ReplyWriter, Request, Specification, find_place,
};
use atoll_tls::is_handshake;

/// Why a node in memory refuses a write that has to outlive it.
const IN_MEMORY: &str =
    "this node keeps everything in memory, and writes to this keyspace have to outlive it";

/// Error for a user whose clients would leave too few of a slot's places for those of other users.
const TOO_MANY_CLIENTS: &str =
    "writes of too many clients of this user are remembered; try again in some minutes";

/// Error of a node of several until it has learned the state of its ring: before that it could only describe
/// a ring in which there is nothing.
const LOADING: &str = "this node has not yet learned the state of its ring from the configuration group";

/// What the execution of a request works on.
pub(crate) struct Executor<'a> {
    pub(crate) here: &'a mut LoopState,
    pub(crate) session: &'a mut Session,
    pub(crate) outbox: &'a mut Outbox,
}

impl Executor<'_> {
    /// Executes a request, which must not be empty.
    pub(crate) fn execute(&mut self, request: &Request<'_>) {
        self.here.metrics.commands.add(1);
        let place = request.get(0).and_then(find_place);
        let known = place.and_then(|place| COMMANDS.get(usize::from(place)));
        self.session.command = place;
        let before = self.outbox.target().len();
        match known {
            Some(known) if !self.session.is_authenticated && !known.flags.contains(&Flag::NoAuth) => {
                self.error("NOAUTH", "Authentication required.");
            }
            Some(known) if self.here.is_loading && !known.flags.contains(&Flag::Loading) => {
                self.error("LOADING", LOADING);
            }
            Some(known) => match known.read(request) {
                Ok(command) if !self.is_allowed(request, known, &command) => {}
                Ok(command) => self.command(request, known, &command),
                Err(error) => self.refuse(&error),
            },
            None => self.unknown(request),
        }
        let metrics = &self.here.metrics;
        let is_error = metrics.count_reply(self.outbox.target().get(before..).unwrap_or_default());
        if let Some((calls, failed)) = place.and_then(|place| metrics.calls.get(usize::from(place))) {
            calls.add(1);
            failed.add(u64::from(is_error));
        }
    }

    fn unknown(&mut self, request: &Request<'_>) {
        let is_web = |word: &[u8]| word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:");
        if request.get(0).is_some_and(is_handshake) {
            self.here.turned_away(self.session.peer, &SPEAKS_TLS);
            self.session.end_with(End::Refused);
            return;
        }
        if request.get(0).is_some_and(is_web) {
            // A web page made a browser send this, with a stranger's commands after it.
            self.here.turned_away(self.session.peer, &"it speaks as to a web server");
            self.session.end_with(End::Refused);
            return;
        }
        match Command::of(request) {
            Err(error) => self.refuse(&error),
            Ok(_) => self.error("ERR", "unknown command"),
        }
    }

    fn command(&mut self, request: &Request<'_>, known: &Specification, command: &Command<'_>) {
        match command {
            Command::Hello(hello) => self.hello(hello),
            Command::Auth(authentication) => self.authenticate(authentication),
            Command::Ping(None) => self.writer().simple("PONG"),
            Command::Ping(Some(message)) | Command::Echo(message) => self.writer().string(message),
            Command::Quit => {
                self.writer().ok();
                self.session.end_with(End::Gone);
            }
            Command::Reset => self.reset(),
            Command::Accepted => self.writer().ok(),
            Command::Select(place) => self.select(*place),
            Command::Keyspace(request) => self.keyspace(request),
            Command::Client(request) => self.client(request),
            Command::Command(request) => request.answer(&mut self.writer()),
            Command::ConfigGet(patterns) => self.config_get(patterns),
            Command::Info(sections) => self.info(sections),
            Command::Access(request) => self.access(request),
            Command::Cluster(ClusterRequest::CountKeys(_) | ClusterRequest::Keys { .. }) => {
                self.list(request, command);
            }
            Command::Cluster(request) => self.cluster(request),
            Command::Ring(request) => self.ring(request),
            Command::SlotTable(known) => self.slot_table(*known),
            Command::DbSize => self.dbsize(),
            Command::FlushAll => self.flush_all(request, known.keys, command),
            Command::Scan(_) => self.list(request, command),
            Command::ScanRun(scan) => self.scan_run(scan, request, command),
            Command::Time => self.time(),
            Command::Wait { .. } => self.wait(),
            Command::Class(class) => self.class(*class),
            Command::Watch(request) => self.watch(request),
            Command::Unwatch(id) => self.unwatch(*id),
            command => self.about_keys(request, known, command),
        }
    }

    /// Executes a command about keys of one slot.
    fn about_keys(&mut self, request: &Request<'_>, known: &Specification, command: &Command<'_>) {
        let keys = known.keys_of(request);
        let mut places = keys.places(request.len());
        let Some(first) = places.next().and_then(|place| request.get(place)) else {
            return self.error("ERR", "this node does not do that");
        };
        let slot = self.slot_of(first);
        if places.any(|place| request.get(place).is_some_and(|key| self.slot_of(key) != slot)) {
            return self.error("CROSSSLOT", "Keys in request don't hash to the same slot");
        }
        if !self.is_here(slot) {
            return;
        }
        let is_write = known.is_write() && !command.only_reads();
        if is_write && !self.here.can_keep(self.session.keyspace) {
            return self.error("NOREPLICAS", IN_MEMORY);
        }
        if is_write && let Some(lack) = self.lack_for(slot, request, known, command) {
            return self.error("OOM", lack.text());
        }
        let ticket = self.here.next_ticket(self.session);
        // After everything that may refuse the write: a client that takes a place has a write that is
        // answered.
        if let Command::Once(once) = command {
            let user = self.session.who.as_ref().map_or(DEFAULT, |who| who.user().name());
            if !self.here.slots.has_place(slot, once.client, user, ticket) {
                return self.error("TRYAGAIN", TOO_MANY_CLIENTS);
            }
        }
        let returned = if is_write { self.here.slots.returned_by(slot, command) } else { 0 };
        let asking = Asking { slot, now: self.here.now, command, request, keys, ticket, returned };
        let protocol = self.session.protocol;
        let target = self.outbox.target();
        let before = target.len();
        let mut reply = Reply { target, protocol };
        let answer = match is_write {
            true => self.here.slots.write(&asking, &mut reply),
            false => self.here.slots.read(&asking, &mut reply),
        };
        match (answer, command) {
            (Answer::Later, _) if is_write => self.outbox.keep_place_for(ticket, protocol, returned),
            (Answer::Later, command) => {
                let expected = self.here.slots.expected_of(slot, ticket, command);
                self.outbox.keep_place_of_read(ticket, protocol, expected);
            }
            (Answer::Now, Command::Get(_) | Command::HashGet { .. }) => self.count_hit(before),
            (Answer::Now, _) => {}
        }
    }

    /// What there is too little of for a write, if anything.
    fn lack_for(
        &mut self,
        slot: Slot,
        request: &Request<'_>,
        known: &Specification,
        command: &Command<'_>,
    ) -> Option<Lack> {
        let now = self.here.now;
        let slots = &mut self.here.slots;
        if known.adds(request, command) {
            return slots.lack_for(Some(request.bytes()));
        }
        slots.lack_for_lifetime(slot, command, now).or_else(|| match command {
            Command::Once(once) => slots.lack_for_name(slot, once.client),
            _ => slots.lack_for(None),
        })
    }

    fn count_hit(&mut self, before: usize) {
        let metrics = &self.here.metrics;
        match self.outbox.target().get(before..) {
            Some(b"$-1\r\n" | b"_\r\n") => metrics.misses.add(1),
            Some([b'-', ..]) => {}
            _ => metrics.hits.add(1),
        }
    }

    /// Whether this node is the primary of a slot, or will be so soon that the request waits here. If not,
    /// the client is redirected.
    fn is_here(&mut self, slot: Slot) -> bool {
        let text = match self.here.table.route(slot) {
            Route::Here => return true,
            Route::There(_) if self.here.slots.takes(slot) => return true,
            Route::There(to) => moved_to(number_of_slot(slot), &to),
            Route::Nowhere => {
                self.error("CLUSTERDOWN", "Hash slot not served");
                return false;
            }
        };
        self.here.metrics.moved.add(1);
        self.error("MOVED", &text);
        false
    }

    /// The slot of a key in the keyspace of the connection.
    fn slot_of(&self, key: &[u8]) -> Slot {
        slot_at(self.session.keyspace, slot_of(key))
    }

    fn refuse(&mut self, error: &CommandError) {
        self.error(error.word(), &error.to_string());
    }

    fn error(&mut self, word: &str, text: &str) {
        self.writer().error(word, text);
    }

    fn writer(&mut self) -> ReplyWriter<'_> {
        ReplyWriter::new(self.outbox.target(), self.session.protocol)
    }
}

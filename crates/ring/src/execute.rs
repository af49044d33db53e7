//! A request becomes a command, and the command an answer.
//!
//! Invariant: every request gets one reply, in its place, now or later.

use crate::connection::{Outbox, Session};
use crate::here::Here;
use crate::slots::{Answer, Reply};
use atoll_keyspace::slot_of;
use atoll_resp::{COMMANDS, Command, CommandError, Flag, ReplyWriter, Request, Specification};

/// What a request meets.
pub(crate) struct Executor<'a> {
    pub(crate) here: &'a mut Here,
    pub(crate) session: &'a mut Session,
    pub(crate) outbox: &'a mut Outbox,
}

impl Executor<'_> {
    /// Executes a request, which is not empty.
    pub(crate) fn execute(&mut self, request: &Request<'_>) {
        self.here.metrics.commands.add(1);
        let known = request.get(0).and_then(find);
        if let Some(place) = known {
            self.session.command = Some(place);
        }
        let specification = known.and_then(|place| COMMANDS.get(usize::from(place)));
        let before = self.outbox.target().len();
        match specification {
            Some(known) if !self.session.is_authenticated && !known.flags.contains(&Flag::NoAuth) => {
                self.error("NOAUTH", "Authentication required.");
            }
            Some(known) => match Command::of(request) {
                Ok(command) => self.command(request, known, &command),
                Err(error) => self.refuse(&error),
            },
            None => self.unknown(request),
        }
        let is_error = self.outbox.target().get(before) == Some(&b'-');
        if let Some(calls) = known.and_then(|place| self.here.metrics.calls.get(usize::from(place))) {
            calls.0.add(1);
            calls.1.add(u64::from(is_error));
        }
        self.here.metrics.errors.add(u64::from(is_error));
    }

    fn unknown(&mut self, request: &Request<'_>) {
        match Command::of(request) {
            Err(error) => self.refuse(&error),
            Ok(_) => self.error("ERR", "unknown command"),
        }
    }

    fn command(&mut self, request: &Request<'_>, known: &Specification, command: &Command<'_>) {
        match command {
            Command::Ping(None) => self.writer().simple("PONG"),
            Command::Ping(Some(message)) | Command::Echo(message) => self.writer().string(message),
            Command::Quit => {
                self.writer().ok();
                self.session.is_ending = true;
            }
            Command::Accepted => self.writer().ok(),
            Command::Command(request) => request.answer(&mut self.writer()),
            command => self.keyed(request, known, command),
        }
    }

    /// A command about keys of one slot.
    fn keyed(&mut self, request: &Request<'_>, known: &Specification, command: &Command<'_>) {
        let mut places = known.keys.places(request.len());
        let Some(first) = places.next().and_then(|place| request.get(place)) else {
            return self.error("ERR", "this node does not do that");
        };
        let slot = slot_of(first);
        if places.any(|place| request.get(place).is_some_and(|key| slot_of(key) != slot)) {
            return self.error("CROSSSLOT", "Keys in request don't hash to the same slot");
        }
        let protocol = self.session.protocol;
        let mut reply = Reply { target: self.outbox.target(), protocol };
        let (now, here) = (self.here.now, &mut *self.here);
        let answer = match known.is_write() {
            true => here.slots.write(slot, now, command, &mut reply),
            false => here.slots.read(slot, now, command, &mut reply),
        };
        if let Answer::Later(ticket) = answer {
            self.outbox.keep_place(ticket, protocol);
        }
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

/// The place of a command in the table of all.
fn find(name: &[u8]) -> Option<u16> {
    let mut lower = [0; 16];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let place = COMMANDS.binary_search_by(|row| row.name.as_bytes().cmp(lower)).ok()?;
    u16::try_from(place).ok()
}

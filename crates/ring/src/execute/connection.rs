//! Commands about the connection itself.

use super::{Executor, LOADING};
use crate::access::{DEFAULT, ResolvedUser};
use crate::clients;
use crate::connection::End;
use crate::loop_state::Asked;
use atoll_resp::{Authentication, ClientRequest, Hello, LatencyClass, Protocol};

/// The version of Redis that clients see, since some decide by it.
pub(super) const REDIS_VERSION: &str = "7.2.5";

/// Longest name that a client may give itself, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Wrong passwords after which a connection ends, even if it has authenticated since.
const WRONG_PASSWORDS_MAX: u32 = 3;

/// Why a client may not authenticate.
enum Refused {
    Password,
    /// Its home keyspace does not exist.
    Keyspace(String),
    /// Its home keyspace is not known yet.
    Loading,
}

impl Executor<'_> {
    pub(super) fn hello(&mut self, hello: &Hello<'_>) {
        if let Some(authentication) = &hello.authentication
            && let Err(refused) = self.know(authentication)
        {
            return self.refuse_authentication(&refused);
        }
        if !self.session.is_authenticated {
            let text = "HELLO must be called with the client already authenticated, otherwise the \
                HELLO AUTH <user> <pass> option can be used to authenticate the client and select \
                the RESP protocol version at the same time";
            return self.error("NOAUTH", text);
        }
        if let Some(name) = hello.name
            && !self.set_name(name)
        {
            return;
        }
        if let Some(protocol) = hello.protocol {
            if protocol == Protocol::Resp2 && self.session.protocol != protocol {
                self.session.users = self.session.users.wrapping_add(1);
                self.here.slots.watches().end_pushes(self.session.key, self.session.users);
            }
            self.session.protocol = protocol;
        }
        self.introduce();
    }

    fn introduce(&mut self) {
        let id = self.session.id as i64;
        let version = if self.session.protocol == Protocol::Resp2 { 2 } else { 3 };
        let mut writer = self.writer();
        writer.map(7);
        for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            writer.string(name.as_bytes());
            writer.string(value.as_bytes());
        }
        for (name, number) in [("proto", version), ("id", id)] {
            writer.string(name.as_bytes());
            writer.integer(number);
        }
        for (name, value) in [("mode", "cluster"), ("role", "master")] {
            writer.string(name.as_bytes());
            writer.string(value.as_bytes());
        }
        writer.string(b"modules");
        writer.array(0);
    }

    pub(super) fn authenticate(&mut self, authentication: &Authentication<'_>) {
        if self.here.shared.chosen.token.is_none() && authentication.user.is_none() {
            let text = "AUTH <password> called without any password configured for the default user. \
                Are you sure your configuration is correct?";
            return self.error("ERR", text);
        }
        match self.know(authentication) {
            Ok(()) => self.writer().ok(),
            Err(refused) => self.refuse_authentication(&refused),
        }
    }

    /// Authenticates the connection if the password is right.
    fn know(&mut self, authentication: &Authentication<'_>) -> Result<(), Refused> {
        let is_default = |user: &[u8]| user == DEFAULT.as_bytes();
        if let Some(user) = authentication.user.filter(|user| !is_default(user)) {
            let access = self.here.shared.chosen.access.as_ref();
            let who = access.and_then(|access| access.authenticate(user, authentication.password));
            return self.let_in(Some(who.ok_or(Refused::Password)?));
        }
        let token = self.here.shared.chosen.token.as_ref();
        match token.is_none_or(|token| token.is(authentication.password)) {
            true => self.let_in(None),
            false => Err(Refused::Password),
        }
    }

    /// Makes this user, or `default`, the user of the connection. What another user waits for on this
    /// connection ends.
    fn let_in(&mut self, who: Option<ResolvedUser>) -> Result<(), Refused> {
        let home = self.home_of(who.as_ref()).map_err(|why| match self.here.is_loading {
            true => Refused::Loading,
            false => Refused::Keyspace(why),
        })?;
        let name = |who: &Option<ResolvedUser>| who.as_ref().map(|who| who.user().name().to_owned());
        if name(&self.session.who) != name(&who) {
            self.session.users = self.session.users.wrapping_add(1);
            self.here.slots.watches().change_user(self.session.key, self.session.users);
        }
        (self.session.is_authenticated, self.session.who) = (true, who);
        self.enter(home);
        Ok(())
    }

    fn refuse_authentication(&mut self, refused: &Refused) {
        match refused {
            Refused::Password => {}
            Refused::Keyspace(why) => {
                tracing::warn!(connection = self.session.id, peer = %self.session.peer, %why, "a client was refused: its keyspace does not exist");
                return self.error("NOPERM", why);
            }
            Refused::Loading => return self.error("LOADING", LOADING),
        }
        self.here.metrics.authentication_failures.add(1);
        if let Some(times) = self.here.wrong_passwords.record(self.here.now.moment) {
            tracing::warn!(connection = self.session.id, peer = %self.session.peer, times, "a wrong password");
        }
        self.error("WRONGPASS", "invalid username-password pair or user is disabled.");
        // Guessing passwords takes a new connection for each few of them, which keeps this loop from being
        // busy with it.
        self.session.wrong_passwords += 1;
        if self.session.wrong_passwords >= WRONG_PASSWORDS_MAX {
            self.session.end_with(End::Refused);
        }
    }

    pub(super) fn client(&mut self, request: &ClientRequest<'_>) {
        match *request {
            ClientRequest::Id => {
                let id = self.session.id as i64;
                self.writer().integer(id);
            }
            ClientRequest::GetName => match self.session.names().name.clone() {
                name if name.is_empty() => self.writer().null(),
                name => self.writer().string(&name),
            },
            ClientRequest::SetName(name) => {
                if self.set_name(name) {
                    self.writer().ok();
                }
            }
            ClientRequest::LibraryName(name) => {
                if self.is_short(name) {
                    self.session.names_mut().library = name.to_vec();
                    self.writer().ok();
                }
            }
            ClientRequest::LibraryVersion(version) => {
                if self.is_short(version) {
                    self.session.names_mut().version = version.to_vec();
                    self.writer().ok();
                }
            }
            ClientRequest::Info => {
                let mut text = clients::line(self.session, self.outbox, self.here.now.moment);
                text.push('\n');
                self.writer().text(&text);
            }
            // Only the loop knows the other connections.
            ClientRequest::List(ref selection) => {
                let ticket = self.here.next_ticket(self.session);
                self.outbox.keep_place(ticket, self.session.protocol);
                self.here.asked.push(Asked::Clients(ticket, selection.clone()));
            }
            ClientRequest::Accepted => self.writer().ok(),
            _ => self.error("ERR", "this node does not do that"),
        }
    }

    fn set_name(&mut self, name: &[u8]) -> bool {
        let is_short = self.is_short(name);
        if is_short {
            self.session.names_mut().name = name.to_vec();
        }
        is_short
    }

    /// Whether a name is short enough; if not, the error is already written.
    fn is_short(&mut self, name: &[u8]) -> bool {
        let is_short = name.len() <= NAME_BYTES_MAX;
        if !is_short {
            self.error("ERR", &format!("a name has at most {NAME_BYTES_MAX} bytes"));
        }
        is_short
    }

    pub(super) fn reset(&mut self) {
        self.session.users = self.session.users.wrapping_add(1);
        self.here.slots.watches().begin_anew(self.session.key, self.session.users);
        let (needs_token, now) = (self.here.shared.chosen.token.is_some(), self.here.now.moment);
        self.session.reset(!needs_token, self.here.limits().latency_class, now);
        self.writer().simple("RESET");
    }

    /// `AT.CLASS`. Requests that have arrived are executed; later ones may be delayed.
    pub(super) fn class(&mut self, class: Option<LatencyClass>) {
        if let Some(class) = class {
            self.session.class = class;
            return self.writer().ok();
        }
        match self.session.class.milliseconds() {
            Some(milliseconds) => self.writer().integer(milliseconds as i64),
            None => self.writer().null(),
        }
    }
}

//! Permission checks for users of the list, and `ACL`.
//!
//! Invariant: a connection without a user of the list, because it showed the token or none is needed, is
//! `default` and may do everything.

use super::Executor;
use crate::access::{CATEGORIES, DEFAULT, User, UserDescription, is_about_all};
use crate::connection::End;
use atoll_resp::{
    AccessRequest, COMMANDS, ClientRequest, ClusterRequest, Command, KeyspaceRequest, Request, Specification,
    WatchRequest, find_place,
};

/// Why a user may not execute a command.
enum Refused {
    Command,
    Key,
}

impl Executor<'_> {
    /// Whether the user may execute the command; if not, the error is already written.
    pub(super) fn is_allowed(
        &mut self,
        request: &Request<'_>,
        known: &Specification,
        command: &Command<'_>,
    ) -> bool {
        let Some(who) = &self.session.who else { return true };
        let still_is = self.here.shared.chosen.access.as_ref().is_some_and(|access| access.still_has(who));
        if !still_is {
            // The user was removed or changed. The watches of the connection are dropped before this round is
            // over.
            self.error("NOAUTH", "Authentication required.");
            self.session.end_with(End::Refused);
            return false;
        }
        let user = who.user();
        let text = match refused(user, request, known, command) {
            None => return true,
            Some(Refused::Key) => "No permissions to access a key".to_owned(),
            Some(Refused::Command) => {
                format!("User {} has no permissions to run the '{}' command", user.name(), known.name)
            }
        };
        self.here.metrics.access_refused.add(1);
        tracing::debug!(connection = self.session.id, peer = %self.session.peer, %text, "not permitted");
        self.error("NOPERM", &text);
        false
    }

    /// `ACL`.
    pub(super) fn access(&mut self, request: &AccessRequest<'_>) {
        let users = self.here.shared.chosen.access.as_ref().map(|access| access.users());
        match request {
            AccessRequest::WhoAmI => {
                let name = self.session.who.as_ref().map_or(DEFAULT, |who| who.user().name()).to_owned();
                self.writer().string(name.as_bytes());
            }
            AccessRequest::Categories(None) => {
                let names: Vec<_> = CATEGORIES.iter().map(|(name, _)| *name).collect();
                self.strings(&names);
            }
            AccessRequest::Categories(Some(category)) => self.category(category),
            AccessRequest::Users => {
                let mut names: Vec<_> = users.iter().flat_map(|users| users.names()).collect();
                names.push(DEFAULT);
                self.strings(&names);
            }
            AccessRequest::List => {
                let mut lines: Vec<_> = users.iter().flat_map(|users| users.lines()).collect();
                lines.push(format!("user {DEFAULT} on ~* +@all"));
                self.strings(&lines);
            }
            AccessRequest::User(name) if *name == DEFAULT.as_bytes() => {
                self.tell_user(&UserDescription::of_default())
            }
            AccessRequest::User(name) => {
                let name = std::str::from_utf8(name).ok();
                match users.as_ref().and_then(|users| users.get(name?)) {
                    Some(user) => self.tell_user(&user.describe()),
                    None => self.writer().null(),
                }
            }
            AccessRequest::Load => {
                match self.here.shared.chosen.access.as_ref().map(|access| access.load()) {
                    Some(Ok(())) => {
                        tracing::info!("the list of users was reloaded");
                        self.writer().ok();
                    }
                    Some(Err(error)) => self.error("ERR", &format!("{error}; the list stays as it was")),
                    None => self.error("ERR", "this node has no list of users; start it with --acl-file"),
                }
            }
            _ => self.error("ERR", "this node does not do that"),
        }
    }

    /// As `ACL GETUSER` of Redis 7. There are no channels and no selectors here.
    fn tell_user(&mut self, user: &UserDescription) {
        let mut writer = self.writer();
        writer.map(6);
        for (name, values) in [("flags", &user.flags), ("passwords", &user.passwords)] {
            writer.string(name.as_bytes());
            writer.array(values.len());
            values.iter().for_each(|value| writer.string(value.as_bytes()));
        }
        for (name, value) in [("commands", &*user.commands), ("keys", &*user.keys), ("channels", "")] {
            writer.string(name.as_bytes());
            writer.string(value.as_bytes());
        }
        writer.string(b"selectors");
        writer.array(0);
    }

    fn category(&mut self, category: &[u8]) {
        let known = CATEGORIES.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(category));
        match known {
            Some((_, is_one)) => {
                let names: Vec<_> = COMMANDS.iter().filter(|one| is_one(one)).map(|one| one.name).collect();
                self.strings(&names);
            }
            None => self.error("ERR", &format!("Unknown category '{}'", category.escape_ascii())),
        }
    }

    fn strings<S: AsRef<str>>(&mut self, all: &[S]) {
        let mut writer = self.writer();
        writer.array(all.len());
        all.iter().for_each(|one| writer.string(one.as_ref().as_bytes()));
    }
}

fn refused(
    user: &User,
    request: &Request<'_>,
    known: &Specification,
    command: &Command<'_>,
) -> Option<Refused> {
    let may_use =
        |name: Option<&[u8]>| name.and_then(find_place).is_some_and(|place| user.may_use(place.into()));
    // Commands that reveal other users, or change what they may do, are for operators.
    let is_of_others = matches!(command, Command::Client(ClientRequest::List(_)))
        || matches!(command, Command::Keyspace(KeyspaceRequest::Create { .. }))
        || matches!(
            command,
            Command::Access(
                AccessRequest::Users | AccessRequest::List | AccessRequest::User(_) | AccessRequest::Load
            )
        );
    // A wait for the string at a key tells its value, and `AT.WAIT` by itself is about hashes.
    let tells_string = matches!(command, Command::Watch(WatchRequest { field: None, .. }));
    let is_granted = may_use(request.get(0))
        && (!is_of_others || may_use(Some(b"at.ring")))
        && (!tells_string || may_use(Some(b"get")));
    // A named write counts as the command that it names.
    let inner = known.inner(request);
    if !is_granted || inner.is_some_and(|inner| !may_use(Some(inner))) {
        return Some(Refused::Command);
    }
    let writes = known.is_write();
    let lists_keys = matches!(command, Command::Cluster(ClusterRequest::Keys { .. }));
    if (lists_keys || is_about_all(known)) && !user.may_touch_all(writes) {
        return Some(Refused::Key);
    }
    let mut keys = known.keys_of(request).places(request.len()).filter_map(|place| request.get(place));
    keys.any(|key| !user.may_touch(key, writes)).then_some(Refused::Key)
}

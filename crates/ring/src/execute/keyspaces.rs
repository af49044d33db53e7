//! `SELECT` and `AT.KEYSPACE`: enter a keyspace, list them, and create one.
//!
//! Invariant: a user who may enter one keyspace only is never in another one.

use super::Executor;
use crate::access::{DEFAULT, Home, ResolvedUser};
use crate::alone;
use atoll_errors::ErrorKind;
use atoll_replica::{Change, KEYSPACES_MAX, KeyspaceRules, Persistence};
use atoll_resp::{KeyspaceRequest, LatencyClass};

impl Executor<'_> {
    /// `SELECT`.
    pub(super) fn select(&mut self, place: u32) {
        match u8::try_from(place).ok().filter(|&place| self.is_there(place)) {
            Some(place) => self.enter_if_allowed(place),
            None => self.error("ERR", "DB index is out of range"),
        }
    }

    /// `AT.KEYSPACE`.
    pub(super) fn keyspace(&mut self, request: &KeyspaceRequest<'_>) {
        match *request {
            KeyspaceRequest::List => {
                self.session.is_tired = true;
                let table = self.here.table.clone();
                let entered: Vec<u8> = self.entered().collect();
                table.write_keyspaces(&entered, &mut self.writer());
            }
            KeyspaceRequest::Use(name) => match self.place_of(name) {
                Some(place) => self.enter_if_allowed(place),
                None => {
                    let text = format!(
                        "there is no keyspace '{}'; AT.KEYSPACE CREATE makes one",
                        name.escape_ascii()
                    );
                    self.error(ErrorKind::NotFound.names().resp, &text);
                }
            },
            KeyspaceRequest::Create { name, copies, in_sync_min, class, durability } => {
                let name = String::from_utf8_lossy(name).into();
                let latency_ms = class.milliseconds().and_then(|ms| u16::try_from(ms).ok()).unwrap_or(0);
                let rules = KeyspaceRules { name, copies, in_sync_min, latency_ms, durability: None };
                match durability_of(durability)
                    .and_then(|durability| self.create(KeyspaceRules { durability, ..rules }))
                {
                    Ok(()) => self.writer().ok(),
                    Err((kind, why)) => self.error(kind.names().resp, &why),
                }
            }
        }
    }

    fn create(&mut self, rules: KeyspaceRules) -> Result<(), (ErrorKind, String)> {
        let wrong = |why: &str| Err((ErrorKind::InvalidInput, why.to_owned()));
        if let Some(problem) = rules.problem() {
            return wrong(problem);
        }
        let keeps = self.here.shared.chosen.keeps;
        if let Some(class) = rules.durability.filter(|class| !keeps && *class != Persistence::Off) {
            let class = class.name();
            return wrong(&format!(
                "this node keeps everything in memory, and durability {class} needs a folder"
            ));
        }
        let table = self.here.table.table().clone();
        if let Some(there) = table.keyspaces.iter().find(|there| there.name == rules.name) {
            let why = "a keyspace of this name exists with other rules; they stay as they are";
            return if *there == rules { Ok(()) } else { Err((ErrorKind::Conflict, why.to_owned())) };
        }
        if !table.has_room_for_keyspace() {
            return Err((ErrorKind::Limit, format!("a ring has at most {KEYSPACES_MAX} keyspaces")));
        }
        if !self.here.slots.is_alone() {
            let asked = self.here.slots.ask_group(vec![Change::Keyspace(rules)]);
            return asked.map_err(|why| (ErrorKind::InvalidInput, why.to_owned()));
        }
        if rules.copies > 1 {
            return wrong("this node is the whole ring, and has the only copy of each slot");
        }
        let failed = |error: crate::NodeError| (error.kind(), error.to_string());
        let table = alone::with_keyspace(&table, rules, self.here.slots.engine()).map_err(failed)?;
        self.here.slots.follow(&table.keyspaces).map_err(failed)?;
        self.here.shared.set_table(alone::seen(table));
        self.here.look_at_table();
        Ok(())
    }

    /// The index of the keyspace with this name or number, if it exists.
    fn place_of(&self, name: &[u8]) -> Option<u8> {
        let name = std::str::from_utf8(name).ok()?;
        match name.parse::<u8>() {
            Ok(place) => Some(place).filter(|&place| self.is_there(place)),
            Err(_) => self.here.table.keyspace_named(name),
        }
    }

    fn is_there(&self, place: u8) -> bool {
        usize::from(place) < self.here.table.table().keyspace_count()
    }

    /// The keyspaces that the client may enter.
    pub(super) fn entered(&self) -> impl Iterator<Item = u8> + use<> {
        let count = self.here.table.table().keyspace_count();
        let user = self.session.who.as_ref().map(ResolvedUser::user);
        let (first, last) = match user.map(|user| user.home()) {
            None | Some(Home::Any) => (0, count),
            // It is already in the only one that it may enter.
            Some(Home::First | Home::Named(_)) => {
                (self.session.keyspace.into(), usize::from(self.session.keyspace) + 1)
            }
        };
        (first..last).filter_map(|place| u8::try_from(place).ok())
    }

    fn enter_if_allowed(&mut self, place: u8) {
        if self.entered().any(|entered| entered == place) {
            self.enter(place);
            return self.writer().ok();
        }
        self.here.metrics.access_refused.add(1);
        let name = self.session.who.as_ref().map_or(DEFAULT, |who| who.user().name());
        let text = format!("User {name} has no permissions to enter keyspace {place}");
        self.error("NOPERM", &text);
    }

    /// Moves the connection to a keyspace, whose latency class becomes the connection's.
    pub(super) fn enter(&mut self, place: u8) {
        if std::mem::replace(&mut self.session.keyspace, place) != place {
            let rules = usize::from(place).checked_sub(1);
            let rules = rules.and_then(|place| self.here.table.table().keyspaces.get(place));
            let class = rules.and_then(|rules| LatencyClass::of_milliseconds(rules.latency_ms.into()));
            self.session.class = class.unwrap_or(self.here.limits().latency_class);
        }
    }

    /// The keyspace in which a user starts, given the current one of the connection; or why it cannot.
    pub(super) fn home_of(&self, who: Option<&ResolvedUser>) -> Result<u8, String> {
        let Some(user) = who.map(ResolvedUser::user) else { return Ok(self.session.keyspace) };
        match user.home() {
            Home::Any => Ok(self.session.keyspace),
            Home::First => Ok(0),
            Home::Named(name) => self.here.table.keyspace_named(name).ok_or_else(|| {
                format!("User {} begins in keyspace '{name}', which does not exist", user.name())
            }),
        }
    }
}

/// The durability of this name, if one is named.
fn durability_of(name: Option<&[u8]>) -> Result<Option<Persistence>, (ErrorKind, String)> {
    let class = |name: &[u8]| std::str::from_utf8(name).ok().and_then(Persistence::from_name);
    match name.map(class) {
        None => Ok(None),
        Some(Some(class)) => Ok(Some(class)),
        Some(None) => {
            let why = "the durability of a keyspace is buffered, flushed or synced";
            Err((ErrorKind::InvalidInput, why.to_owned()))
        }
    }
}

//! Sets of commands, granted and taken by name or by category.
//!
//! Invariant: whoever was let in may say who they are, end, and find the way in the ring: nothing of that
//! tells of data.

use atoll_resp::{COMMANDS, Flag, Group, Specification, find_place};

/// A category: its name, and whether a command is in it.
type Category = (&'static str, fn(&Specification) -> bool);

/// Categories of commands, in the words of Redis.
pub(crate) const CATEGORIES: [Category; 13] = [
    ("all", |_| true),
    ("keyspace", |command| command.group == Group::Generic),
    ("read", |command| command.flags.contains(&Flag::ReadOnly) && is_about_keys(command)),
    ("write", Specification::is_write),
    ("string", |command| command.group == Group::String),
    ("hash", |command| command.group == Group::Hash),
    ("connection", |command| command.group == Group::Connection),
    ("cluster", |command| command.group == Group::Cluster),
    ("blocking", |command| command.flags.contains(&Flag::Blocking)),
    ("fast", |command| command.flags.contains(&Flag::Fast)),
    ("slow", |command| !command.flags.contains(&Flag::Fast)),
    ("admin", |command| command.flags.contains(&Flag::Admin)),
    ("dangerous", |command| command.flags.contains(&Flag::Admin) || is_about_all(command)),
];

fn is_about_keys(command: &Specification) -> bool {
    matches!(command.group, Group::Generic | Group::String | Group::Hash)
}

/// Whether it names no key and is about all of them.
pub(crate) fn is_about_all(command: &Specification) -> bool {
    let names_none = command.keys.first == 0;
    let touches = command.flags.contains(&Flag::ReadOnly) && is_about_keys(command);
    names_none && (command.is_write() || touches)
}

/// What everybody may use who was let in. Of watches only to let go of one's own.
fn is_everybodys(command: &Specification) -> bool {
    let is_of_way = matches!(command.group, Group::Connection | Group::Cluster);
    let is_of_connection = ["at.unwatch", "wait"].contains(&command.name);
    let is_of_server = ["acl", "command", "info", "time"].contains(&command.name);
    (is_of_way || is_of_connection || is_of_server) && !command.flags.contains(&Flag::Admin)
}

/// A set of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    /// One bit for each, by its place in the table of all.
    granted: u128,
    /// The rules, as they were written.
    rules: Vec<String>,
}

const _: () = assert!(COMMANDS.len() <= 128);

impl Commands {
    pub(super) fn grant(&mut self, rule: &str) -> Result<(), String> {
        self.granted |= bits_of(rule)?;
        self.rules.push(format!("+{rule}"));
        Ok(())
    }

    pub(super) fn take(&mut self, rule: &str) -> Result<(), String> {
        self.granted &= !bits_of(rule)?;
        self.rules.push(format!("-{rule}"));
        Ok(())
    }

    /// Whether the command at this place of the table is one of them.
    pub(super) fn has(&self, place: usize) -> bool {
        self.granted & bit(place) != 0 || COMMANDS.get(place).is_some_and(is_everybodys)
    }

    /// As a line of a list has them.
    pub(super) fn rules(&self) -> String {
        self.rules.join(" ")
    }
}

fn bit(place: usize) -> u128 {
    1_u128.checked_shl(u32::try_from(place).unwrap_or(u32::MAX)).unwrap_or(0)
}

fn bits_of(rule: &str) -> Result<u128, String> {
    if let Some(category) = rule.strip_prefix('@') {
        let known = CATEGORIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(category));
        let (_, is_one) =
            known.ok_or_else(|| format!("there is no category @{}", category.escape_debug()))?;
        let places = (0..).zip(COMMANDS).filter(|(_, command)| is_one(command)).map(|(place, _)| place);
        return Ok(places.fold(0, |all, place| all | bit(place)));
    }
    if rule.contains('|') {
        return Err(format!(
            "parts of commands, such as `{}`, are not granted by themselves",
            rule.escape_debug()
        ));
    }
    let place =
        find_place(rule.as_bytes()).ok_or_else(|| format!("there is no command {}", rule.escape_debug()))?;
    Ok(bit(place.into()))
}

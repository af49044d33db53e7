//! Sets of commands, granted and revoked by name or by category.
//!
//! Invariant: every authenticated user may introduce itself, quit, and look up the layout of the ring. None
//! of this reveals data.
//! Invariant: a rule that takes a single command away leaves it to nobody, or makes the list an error.

use atoll_resp::{COMMANDS, Flag, Group, Specification, find_place};

/// The name of a category, and whether a command belongs to it.
type Category = (&'static str, fn(&Specification) -> bool);

/// Categories of commands, named as in Redis.
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

/// Whether the command names no key and affects all of them.
pub(crate) fn is_about_all(command: &Specification) -> bool {
    let names_none = command.keys.first == 0;
    let touches = command.flags.contains(&Flag::ReadOnly) && is_about_keys(command);
    names_none && (command.is_write() || touches)
}

/// Whether every authenticated user may use the command. Of the watch commands only `AT.UNWATCH`, which ends
/// the user's own watches.
fn is_everybodys(command: &Specification) -> bool {
    let is_of_way = matches!(command.group, Group::Connection | Group::Cluster);
    let is_of_connection = ["at.unwatch", "wait"].contains(&command.name);
    let is_of_server = ["acl", "command", "info", "time"].contains(&command.name);
    (is_of_way || is_of_connection || is_of_server) && !command.flags.contains(&Flag::Admin)
}

/// A set of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    /// One bit for each command, by its index in [`COMMANDS`].
    granted: u128,
    /// The rules as written.
    rules: Vec<String>,
}

const _: () = assert!(COMMANDS.len() <= 128);

impl Commands {
    pub(super) fn grant(&mut self, rule: &str) -> Result<(), String> {
        self.granted |= bits_of(rule)?;
        self.rules.push(format!("+{rule}"));
        Ok(())
    }

    /// A category may hold commands that every user may use: it takes the others away.
    pub(super) fn take(&mut self, rule: &str) -> Result<(), String> {
        let bits = bits_of(rule)?;
        let single = find_place(rule.as_bytes()).and_then(|place| COMMANDS.get(usize::from(place)));
        if single.is_some_and(is_everybodys) {
            return Err(format!("every user may use {}; it cannot be taken away", rule.escape_debug()));
        }
        self.granted &= !bits;
        self.rules.push(format!("-{rule}"));
        Ok(())
    }

    /// Whether the command with this index is in the set.
    pub(super) fn has(&self, place: usize) -> bool {
        self.granted & bit(place) != 0 || COMMANDS.get(place).is_some_and(is_everybodys)
    }

    /// The rules in the syntax of a list.
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
            "parts of commands, such as `{}`, cannot be granted by themselves",
            rule.escape_debug()
        ));
    }
    let place =
        find_place(rule.as_bytes()).ok_or_else(|| format!("there is no command {}", rule.escape_debug()))?;
    Ok(bit(place.into()))
}

//! Access control: which users exist beside `default`, which commands each may use, and on which keys.
//!
//! The syntax is that of Redis ACL files, as far as it applies here. A rule that is not supported is an
//! error, never ignored. Without a list there is one user, `default`, who authenticates with the token of the
//! ring and may do everything.
//!
//! Invariant: what is not granted is refused. A rule that cannot be honoured exactly as written makes the
//! whole list an error.
//! Invariant: passwords are stored and compared only as their SHA-256, in a time that reveals nothing about
//! them.

mod commands;
mod file;
mod list;

use crate::token::{hexadecimal, is_same};
use atoll_keyspace::glob_matches;
use atoll_replica::problem_of_name;
use commands::Commands;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use commands::{CATEGORIES, is_about_all};
pub use file::{AccessError, AccessFile};
pub(crate) use list::{AccessList, ResolvedUser};

/// Most users in a list.
const USERS_MAX: usize = 1_000;
/// Most patterns, and most passwords, of one user.
const RULES_MAX: usize = 1_000;
/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Longest user name, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Prefix of the rule that confines a user to one keyspace.
const KEYSPACE: &str = "keyspace=";

/// The user who authenticates with the token. No list may define it.
pub(crate) const DEFAULT: &str = "default";

/// SHA-256 of a password.
type Hash = [u8; 32];

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    name: String,
    is_on: bool,
    passwords: Vec<Hash>,
    commands: Commands,
    keys: Vec<KeyRule>,
    home: Home,
}

/// The keyspaces that a user may enter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Home {
    /// Only the first one.
    #[default]
    First,
    /// Only the one with this name; the user starts in it.
    Named(String),
    /// All of them.
    Any,
}

/// The keys that match a pattern, as a user may use them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyRule {
    pattern: Vec<u8>,
    /// Whether they may only be read.
    reads_only: bool,
}

/// A user as `ACL` describes it, in the words of Redis.
pub(crate) struct UserDescription {
    pub(crate) flags: Vec<String>,
    /// As hexadecimal digits.
    pub(crate) passwords: Vec<String>,
    pub(crate) commands: String,
    pub(crate) keys: String,
}

impl UserDescription {
    /// `default`, without its token.
    pub(crate) fn of_default() -> Self {
        let (flags, commands, keys) = (vec!["on".to_owned()], "+@all".to_owned(), "~*".to_owned());
        Self { flags, passwords: Vec::new(), commands, keys }
    }
}

/// The users of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, Arc<User>>);

impl Users {
    /// Parses a list.
    ///
    /// # Errors
    /// The number of the first bad line, counted from 1, and what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut users = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.len() > LINE_BYTES_MAX {
                return Err((number, format!("a line has at most {LINE_BYTES_MAX} bytes")));
            }
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let user = User::parse(line).map_err(|what| (number, what))?;
            if users.len() >= USERS_MAX {
                return Err((number, format!("a list has at most {USERS_MAX} users")));
            }
            if let Some(twice) = users.insert(user.name.clone(), Arc::new(user)) {
                return Err((number, format!("user {} is there twice", twice.name)));
            }
        }
        Ok(Self(users))
    }

    /// Returns the user if it is on and the password is right. The time that a refusal takes reveals nothing
    /// about the password.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        let shown: Hash = Sha256::digest(password).into();
        let user = std::str::from_utf8(name).ok().and_then(|name| self.0.get(name))?;
        let is_one = user.passwords.iter().fold(false, |is_one, hash| is_one | is_same(hash, &shown));
        (is_one && user.is_on).then_some(user)
    }

    /// The user with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.0.get(name)
    }

    /// The names of all users, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A line for each user, in the syntax of a list.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.values().map(|user| user.line())
    }
}

impl User {
    fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        if words.next() != Some("user") {
            return Err("a line begins with `user NAME`".to_owned());
        }
        let name = words.next().ok_or("a name is missing after `user`")?;
        if name == DEFAULT {
            return Err("`default` is the user of the ring's token, and may do everything".to_owned());
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(format!("a name has at most {NAME_BYTES_MAX} bytes"));
        }
        let mut user = Self {
            name: name.to_owned(),
            is_on: false,
            passwords: Vec::new(),
            commands: Commands::default(),
            keys: Vec::new(),
            home: Home::default(),
        };
        words.try_for_each(|rule| user.add(rule))?;
        if user.is_on && user.passwords.is_empty() {
            return Err(format!("user {name} is on and has no password; add one as `#` and its SHA-256"));
        }
        Ok(user)
    }

    fn add(&mut self, rule: &str) -> Result<(), String> {
        if self.keys.len().max(self.passwords.len()) >= RULES_MAX {
            return Err(format!("a user has at most {RULES_MAX} passwords and as many patterns"));
        }
        let (mark, rest) = rule.split_at(rule.char_indices().nth(1).map_or(rule.len(), |(at, _)| at));
        match (rule, mark) {
            ("on", _) => self.is_on = true,
            ("off", _) => self.is_on = false,
            ("allkeys", _) => self.add_keys("*", false),
            ("resetkeys", _) => self.keys.clear(),
            ("allkeyspaces", _) => self.home = Home::Any,
            ("allcommands", _) => self.commands.grant("@all")?,
            ("nocommands", _) => self.commands.take("@all")?,
            ("nopass", _) => return Err("users without a password are not supported".to_owned()),
            (_, "k") if rule.starts_with(KEYSPACE) => self.home = home_of(rule)?,
            (_, "#") => self.passwords.push(hash_of(rest)?),
            (_, ">") => {
                return Err(
                    "passwords must not be in the file; write `#` and what `printf %s PASSWORD | sha256sum` \
                            prints"
                        .to_owned(),
                );
            }
            (_, "~") => self.add_keys(rest, false),
            (_, "+") => self.commands.grant(rest)?,
            (_, "-") => self.commands.take(rest)?,
            (_, "%") => {
                match rest.split_once('~') {
                    Some(("R", pattern)) => self.add_keys(pattern, true),
                    Some(("RW" | "WR", pattern)) => self.add_keys(pattern, false),
                    Some(("W", _)) => {
                        return Err("writing a key reveals something about it: use `~PATTERN` for both, `%R~PATTERN` to \
                                read"
                        .to_owned());
                    }
                    _ => return Err(format!("`{}` is not a rule", rule.escape_debug())),
                }
            }
            _ => return Err(format!("`{}` is not a supported rule", rule.escape_debug())),
        }
        Ok(())
    }

    /// Which keyspaces the user may enter.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    fn add_keys(&mut self, pattern: &str, reads_only: bool) {
        self.keys.push(KeyRule { pattern: pattern.as_bytes().to_vec(), reads_only });
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the user may use a command, given by its index in [`COMMANDS`](atoll_resp::COMMANDS).
    pub(crate) fn may_use(&self, command: usize) -> bool {
        self.commands.has(command)
    }

    /// Whether the user may read a key or, if `writes`, write it. Writing needs the right to read as well.
    pub(crate) fn may_touch(&self, key: &[u8], writes: bool) -> bool {
        let fits = |rule: &KeyRule| !(writes && rule.reads_only) && glob_matches(&rule.pattern, key);
        self.keys.iter().any(fits)
    }

    /// Whether the user may do so with every key.
    pub(crate) fn may_touch_all(&self, writes: bool) -> bool {
        self.keys.iter().any(|rule| !(writes && rule.reads_only) && rule.pattern == b"*")
    }

    /// The user as `ACL` describes it.
    pub(crate) fn describe(&self) -> UserDescription {
        let flags = vec![if self.is_on { "on" } else { "off" }.to_owned()];
        let passwords = self.passwords.iter().map(|hash| hexadecimal(hash)).collect();
        let keys: Vec<String> = self.keys.iter().map(KeyRule::describe).collect();
        UserDescription { flags, passwords, commands: self.commands.rules(), keys: keys.join(" ") }
    }

    /// The user as a line of a list.
    fn line(&self) -> String {
        let UserDescription { flags, passwords, commands, keys } = self.describe();
        let passwords = passwords.iter().map(|hash| format!("#{hash}"));
        let words = ["user".to_owned(), self.name.clone()].into_iter().chain(flags).chain(passwords);
        let home = match &self.home {
            Home::First => String::new(),
            Home::Named(name) => format!("{KEYSPACE}{name}"),
            Home::Any => "allkeyspaces".to_owned(),
        };
        let words: Vec<String> =
            words.chain([home, keys, commands]).filter(|word| !word.is_empty()).collect();
        words.join(" ")
    }
}

impl KeyRule {
    fn describe(&self) -> String {
        let mark = if self.reads_only { "%R~" } else { "~" };
        format!("{mark}{}", String::from_utf8_lossy(&self.pattern))
    }
}

fn home_of(rule: &str) -> Result<Home, String> {
    let name = rule.strip_prefix(KEYSPACE).unwrap_or_default();
    match problem_of_name(name) {
        None => Ok(Home::Named(name.to_owned())),
        Some(problem) => Err(problem.to_owned()),
    }
}

fn hash_of(digits: &str) -> Result<Hash, String> {
    let wrong = || "a password is `#` and 64 hexadecimal digits, its SHA-256".to_owned();
    let mut hash = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = std::str::from_utf8(pair)
            .ok()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            .ok_or_else(wrong)?;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests;

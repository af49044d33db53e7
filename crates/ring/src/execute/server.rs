//! Commands about the server.

use super::Executor;
use crate::classes::redis_name;
use crate::options::Persistence;
use atoll_replica::KEYSPACES_MAX;

impl Executor<'_> {
    pub(super) fn config_get(&mut self, patterns: &[&[u8]]) {
        let found: Vec<_> = self
            .options()
            .into_iter()
            .filter(|(name, _)| patterns.iter().any(|pattern| matches(pattern, name.as_bytes())))
            .collect();
        let mut writer = self.writer();
        writer.map(found.len());
        for (name, value) in found {
            writer.string(name.as_bytes());
            writer.string(value.as_bytes());
        }
    }

    /// Options of Redis that clients ask for, with the values they have here.
    fn options(&self) -> Vec<(&'static str, String)> {
        let shared = &self.here.shared;
        // Of the keyspace that the client is in.
        let class = self.here.persistence(self.session.keyspace);
        let text = str::to_owned;
        vec![
            ("appendfsync", text(redis_name(class))),
            ("appendonly", text(if class == Persistence::Off { "no" } else { "yes" })),
            ("bind", shared.chosen.address.ip().to_string()),
            ("cluster-enabled", text("yes")),
            ("cluster-require-full-coverage", text("no")),
            ("databases", KEYSPACES_MAX.to_string()),
            ("maxclients", shared.chosen.limits.connections_max.to_string()),
            ("maxmemory", shared.chosen.memory_bytes.to_string()),
            ("maxmemory-policy", text("noeviction")),
            ("port", shared.chosen.address.port().to_string()),
            ("proto-max-bulk-len", shared.chosen.limits.request.string_bytes.to_string()),
            ("save", text("")),
            ("timeout", text("0")),
        ]
    }

    pub(super) fn time(&mut self) {
        let date_ms = self.here.now.date_ms;
        let mut writer = self.writer();
        writer.array(2);
        writer.string((date_ms / 1000).to_string().as_bytes());
        writer.string((date_ms % 1000 * 1000).to_string().as_bytes());
    }

    /// `WAIT`. An acknowledged write is already on every in-sync copy, and the answer is how many there are
    /// at least. There is nothing to wait for.
    pub(super) fn wait(&mut self) {
        let replicas = self.here.replicas_min(self.session.keyspace);
        self.writer().integer(i64::try_from(replicas).unwrap_or(i64::MAX));
    }

    pub(super) fn dbsize(&mut self) {
        self.session.is_tired = true;
        let count = self.here.keys(self.session.keyspace);
        self.writer().integer(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Whether a name matches a glob pattern: `*` is any text, `?` any byte, `[a-c]` any of these, and `\` takes
/// the next byte literally.
///
/// Each star matches as little as possible first, so the time is at most the product of both lengths.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    let mut last_star = None;
    while place < name.len() {
        if pattern.get(at) == Some(&b'*') {
            last_star = Some((at + 1, place));
            at += 1;
        } else if let Some(behind) = one(&pattern[at.min(pattern.len())..], name[place]) {
            (at, place) = (at + behind, place + 1);
        } else if let Some((behind, begun)) = last_star {
            (at, place) = (behind, begun + 1);
            last_star = Some((behind, begun + 1));
        } else {
            return false;
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|&byte| byte == b'*')
}

/// Length of the first part of a pattern if it matches this byte, else none.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern {
        [b'?', ..] => Some(1),
        [b'[', ref rest @ ..] => one_of(rest, byte).map(|behind| behind + 1),
        [b'\\', escaped, ..] => (escaped == byte).then_some(2),
        [first, ..] => (first == byte).then_some(1),
        [] => None,
    }
}

/// Like [`one`], after an opening bracket.
fn one_of(pattern: &[u8], byte: u8) -> Option<usize> {
    let is_not = pattern.first() == Some(&b'^');
    let mut at = usize::from(is_not);
    let mut is_found = false;
    loop {
        match *pattern.get(at..)? {
            [] => return None,
            [b']', ..] => return (is_found != is_not).then_some(at + 1),
            [b'\\', escaped, ..] => {
                is_found |= escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] if to != b']' => {
                is_found |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [other, ..] => {
                is_found |= other == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_mean_what_they_mean_in_redis() {
        for (pattern, name, is_meant) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("max*", "maxmemory", true),
            ("*m*m*y", "maxmemory", true),
            ("*x", "maxmemory", false),
            ("s?ve", "save", true),
            ("s?ve", "sve", false),
            ("[r-t]ave", "save", true),
            ("[^s]ave", "save", false),
            ("[t-r]ave", "save", true),
            ("[]save", "save", false),
            ("[s", "s", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("save*", "save", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is_meant, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_both_lengths_multiplied() {
        let (pattern, name) = ("*a".repeat(5_000), "a".repeat(4_999) + "b");
        assert!(!matches(pattern.as_bytes(), name.as_bytes()));
    }
}

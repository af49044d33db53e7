//! Skipped checks: printed where they happen, listed at the end, and an error in CI.
//!
//! A test that cannot run on a machine prints `SKIPPED [need] reason` and returns. The need is a word of
//! [`NEEDS`], or any other word for something that every CI machine has.
//!
//! Invariant: a skip with an unknown need counts as one that CI should have run.

/// What a machine may lack even in CI, and why.
const NEEDS: &[(&str, &str)] = &[
    ("miri", "part of nightly toolchains only"),
    ("direct", "not every file system has a way past the cache"),
    ("windows", "only some file systems keep pages writable"),
    ("shared-blocks", "only some file systems let two files share blocks"),
    ("mount", "needs the right to mount file systems"),
    ("other-user", "needs the right to be another user"),
    ("control-groups", "needs the right to make control groups"),
    ("many-files", "needs a hard limit of 11,100 open files"),
    ("network-namespaces", "needs root or user namespaces, and iproute2"),
    ("cassandra-nodes", "`test` starts one node; `cargo xtask bench cassandra` starts three"),
    ("cassandra-auth", "the node of `test` asks for no password; start one with `cassandra up --auth`"),
    ("redis", "not every machine has one; `apt-get install redis-server`"),
];

/// The need of a skip that names none.
const UNKNOWN: &str = "unknown";

/// One check that did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The check.
    pub what: String,
    /// What it lacked, as one word.
    pub need: String,
    /// The reason, as a sentence.
    pub reason: String,
}

impl Skip {
    /// Parses `SKIPPED [need] reason` anywhere in `line`.
    pub fn parse(what: &str, line: &str) -> Option<Self> {
        let (_, rest) = line.split_once("SKIPPED [")?;
        let (need, reason) = rest.split_once(']')?;
        Some(Self { what: what.to_owned(), need: need.trim().to_owned(), reason: reason.trim().to_owned() })
    }

    /// Parses a skip that a test printed in `line`, like [`Skip::parse`]. A line that begins as a skip but
    /// names no need gets the unknown need.
    pub fn told(what: &str, line: &str) -> Option<Self> {
        let unknown = || {
            let reason = line.strip_prefix("SKIPPED")?.trim_start_matches([':', ' ']).trim_end();
            Some(Self { what: what.to_owned(), need: UNKNOWN.to_owned(), reason: reason.to_owned() })
        };
        Self::parse(what, line).or_else(unknown)
    }

    /// Whether CI too may lack what the check needs.
    pub fn is_excused(&self) -> bool {
        NEEDS.iter().any(|(need, _)| *need == self.need)
    }
}

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SKIPPED [{}] {}: {}", self.need, self.what, self.reason)
    }
}

/// Whether this run is in CI, where skips are errors unless they are excused.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// Lists the skips and returns how many of them are errors here.
pub fn conclude(skips: &[Skip]) -> usize {
    if !skips.is_empty() {
        crate::console::heading("Not run on this machine:");
    }
    for skip in skips {
        println!("  {skip}");
    }
    if in_ci() { skips.iter().filter(|skip| !skip.is_excused()).count() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::Tree;
    use crate::workspace;

    #[test]
    fn a_skip_is_read_from_the_output_of_a_test() {
        let skip = Skip::parse("some test", "SKIPPED [miri] not installed").unwrap();
        assert_eq!((skip.need.as_str(), skip.reason.as_str()), ("miri", "not installed"));
        assert!(skip.is_excused());
        assert_eq!(Skip::parse("some test", "nothing SKIPPED here"), None);
    }

    #[test]
    fn every_need_that_is_excused_is_one_that_some_check_names() {
        let tree = Tree::read(&workspace::root().unwrap()).unwrap();
        for (need, _) in NEEDS {
            let words = [format!("SKIPPED [{need}]"), format!("need: \"{need}\"")];
            let names = |text: &str| words.iter().any(|words| text.contains(words));
            let is_named = tree.all().any(|(path, text)| path != "xtask/src/skip.rs" && names(text));
            assert!(is_named, "no check prints SKIPPED [{need}]");
        }
    }

    #[test]
    fn an_unknown_need_is_not_excused_in_ci() {
        assert!(!Skip::parse("some test", "SKIPPED [coffee] none left").unwrap().is_excused());
    }
}

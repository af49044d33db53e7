//! The benches and their arguments: a mistyped word is reported before anything is built, which takes
//! minutes.
//!
//! Invariant: each bench accepts exactly these words, plus those that this command itself adds.

use crate::failure::Failure;

/// A bench.
pub struct Bench {
    /// Its name.
    pub name: &'static str,
    /// Flags without a value.
    flags: &'static [&'static str],
    /// Options, each with the name of its value.
    options: &'static [(&'static str, &'static str)],
    /// The phases that `--phases` may name.
    phases: &'static [&'static str],
}

const JSON: (&str, &str) = ("--json", "FILE");
const DETAIL: (&str, &str) = ("--detail", "FILE");
const PHASES: (&str, &str) = ("--phases", "A,B");
const ENGINES: (&str, &str) = ("--engines", "A,B");
const ROUNDS: (&str, &str) = ("--rounds", "COUNT");
const RECORDS: (&str, &str) = ("--records", "COUNT");
const ROWS: (&str, &str) = ("--rows", "COUNT");
const BOXES: (&str, &str) = ("--boxes", "COUNT");
const SOURCE: (&str, &str) = ("--source", "NAME");
const EARLIER: (&str, &str) = ("--earlier", "FILE");

/// All benches.
pub const BENCHES: &[Bench] = &[
    Bench {
        name: "engine",
        flags: &["--peers", "--quick"],
        options: &[JSON, DETAIL, ENGINES, PHASES, ROUNDS, RECORDS],
        phases: &["small", "recovery", "contract", "beyond", "large", "ranges", "pairs"],
    },
    Bench {
        name: "tables",
        flags: &["--peers", "--quick", "--build", "--blocks"],
        options: &[JSON, DETAIL, ENGINES, PHASES, ROUNDS, ROWS, BOXES, SOURCE, EARLIER, ("--minutes", "M")],
        phases: &[
            "counts",
            "warm",
            "cold",
            "space",
            "tolerance",
            "writing",
            "live",
            "sustained",
            "packing",
            "runs",
            "slowdown",
        ],
    },
    Bench {
        name: "cassandra",
        flags: &["--peers", "--quick", "--fresh"],
        options: &[JSON, DETAIL, PHASES, ROUNDS, ROWS, BOXES, SOURCE, EARLIER],
        phases: &["suite", "input", "costs", "writing", "questions", "sample", "counts"],
    },
    Bench {
        name: "ring",
        flags: &["--peers", "--quick", "--plant-stale-reads"],
        options: &[
            JSON,
            DETAIL,
            PHASES,
            ROUNDS,
            RECORDS,
            ("--schedules", "COUNT"),
            ("--schedule-seed", "SEED"),
        ],
        phases: &[
            "throughput",
            "always",
            "copies",
            "classes",
            "cassandra",
            "waits",
            "cut",
            "failover",
            "outage",
            "moves",
            "scale",
            "schedules",
        ],
    },
];

/// The bench of this name.
pub fn find(name: &str) -> Option<&'static Bench> {
    BENCHES.iter().find(|bench| bench.name == name)
}

/// All names, for messages.
pub fn names() -> String {
    BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ")
}

impl Bench {
    /// Its usage line.
    pub fn usage(&self) -> String {
        let flags = self.flags.iter().map(|flag| format!(" [{flag}]"));
        let options = self.options.iter().map(|(name, value)| format!(" [{name} {value}]"));
        let all: String = flags.chain(options).collect();
        format!("cargo xtask bench {}{all}; its phases: {}", self.name, self.phases.join(", "))
    }

    /// Checks that it knows these words; those after `--` are checked by the bench itself.
    pub fn check(&self, words: &[String]) -> Result<(), Failure> {
        let wrong = |problem| Failure::Usage { problem, usage: format!("usage: {}", self.usage()) };
        let mut words = words.iter().map(String::as_str).take_while(|word| *word != "--");
        while let Some(word) = words.next() {
            if self.flags.contains(&word) {
                continue;
            }
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            if !self.options.iter().any(|(option, _)| *option == name) {
                return Err(wrong(format!("{word:?} means nothing to the bench {}", self.name)));
            }
            let Some(value) = value.or_else(|| words.next()) else {
                return Err(wrong(format!("{name} needs a value")));
            };
            let mut named = value.split(',').map(str::trim).filter(|_| name == PHASES.0);
            if let Some(unknown) = named.find(|phase| !self.phases.contains(phase)) {
                return Err(wrong(format!("the bench {} has no phase {unknown:?}", self.name)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;
    use std::collections::BTreeSet;

    fn said(line: &str) -> Option<String> {
        let mut words = line.split(' ').map(str::to_owned);
        let bench = find(&words.next().unwrap()).unwrap();
        bench.check(&words.collect::<Vec<_>>()).err().map(|failure| failure.to_string())
    }

    #[test]
    fn what_a_bench_does_not_know_is_told_and_what_it_knows_is_not() {
        for well in [
            "engine",
            "engine --peers --phases small,pairs --json=a.json",
            "tables --minutes 2.5 --earlier a.json --blocks -- --phase warm",
            "cassandra --fresh --phases suite,input",
            "ring --phases=cut --schedule-seed 7",
        ] {
            assert_eq!(said(well), None, "{well}");
        }
        let told = |line: &str| said(line).unwrap();
        assert!(told("engine --blocks").contains("\"--blocks\" means nothing to the bench engine"));
        assert!(told("tables --phase warm").contains("\"--phase\" means nothing"));
        assert!(told("ring --phases cut,cutt").contains("no phase \"cutt\""));
        assert!(told("ring --rounds").contains("--rounds needs a value"));
        assert!(told("tables warm").contains("\"warm\" means nothing"));
    }

    fn source(path: &str) -> String {
        std::fs::read_to_string(workspace::root().unwrap().join(path)).unwrap()
    }

    /// The flags of a Rust struct, by its fields.
    fn of_rust(path: &str, name: &str) -> BTreeSet<String> {
        let text = source(path);
        let (_, body) = text.split_once(&format!("struct {name} {{")).unwrap();
        let fields = body.lines().take_while(|line| *line != "}").filter_map(|line| {
            let (field, _) = line.strip_prefix("    ")?.split_once(": ")?;
            field.chars().all(|c| c.is_ascii_lowercase() || c == '_').then(|| field.replace('_', "-"))
        });
        fields.map(|field| format!("--{field}")).collect()
    }

    /// The flags of a Python program.
    fn of_python(path: &str) -> BTreeSet<String> {
        let text = source(path);
        let lines = text.lines().filter(|line| !line.contains("SUPPRESS"));
        // The last argument may be on a line of its own.
        let flags = lines.filter_map(|line| {
            let (before, rest) = line.split_once("\"--")?;
            let is_argument = before.trim().is_empty() || before.trim() == "parser.add_argument(";
            is_argument.then(|| format!("--{}", rest.split('"').next().unwrap_or_default()))
        });
        flags.collect()
    }

    #[test]
    fn each_bench_takes_the_words_that_its_row_says() {
        let row = |name: &str| -> BTreeSet<String> {
            let bench = find(name).unwrap();
            let options = bench.options.iter().map(|(name, _)| *name);
            bench.flags.iter().copied().chain(options).map(str::to_owned).collect()
        };
        assert_eq!(of_rust("benches/main.rs", "EngineArguments"), row("engine"));
        let mut of_ring = of_rust("benches/ring/main.rs", "RunArguments");
        for added in ["--atoll", "--cassandra"] {
            assert!(of_ring.remove(added), "{added}");
        }
        assert_eq!(of_ring, row("ring"));
        assert_eq!(of_python("benches/tables/__main__.py"), row("tables"));
        assert_eq!(of_python("benches/tables/on_cassandra/__main__.py"), row("cassandra"));
    }

    #[test]
    fn each_bench_has_the_phases_that_its_row_says() {
        for (name, path) in [
            ("tables", "benches/tables/__main__.py"),
            ("cassandra", "benches/tables/on_cassandra/__main__.py"),
        ] {
            let text = source(path);
            let (_, body) = text.split_once("\nPHASES = (").unwrap();
            let body = body.split(')').next().unwrap_or_default();
            let named: Vec<&str> = body
                .split(',')
                .map(|word| word.trim().trim_matches('"'))
                .filter(|word| !word.is_empty())
                .collect();
            assert_eq!(named, find(name).unwrap().phases, "{name}");
        }
        for (name, path, list) in [
            ("engine", "benches/plan/runner.rs", "pub enum Part {"),
            ("ring", "benches/ring/main.rs", "enum Phase {"),
        ] {
            let text = source(path);
            let (_, body) = text.split_once(list).unwrap();
            let lines = body.lines().take_while(|line| *line != "}");
            let named: BTreeSet<String> = lines
                .filter_map(|line| line.trim().strip_suffix(',').filter(|word| !word.contains(' ')))
                .map(str::to_lowercase)
                .collect();
            let row: BTreeSet<String> =
                find(name).unwrap().phases.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(named, row, "{name}");
        }
    }
}

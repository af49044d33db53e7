//! The table of verbs of `cargo xtask`. The documentation is checked against it.

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::{bench, cassandra, check, clients, demo, fuzz, simulate, soak, test, venv, wheel};

/// One verb of `cargo xtask`.
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// Its usage line, with every flag that it knows.
    pub usage: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    run: fn(Arguments) -> Result<(), Failure>,
}

const VERBS: &[Verb] = &[
    Verb {
        name: "demo",
        usage: "cargo xtask demo [--rows COUNT] [--ring NODES] [--json FILE] [--flights]",
        about: "show the main use: a simulation writes, others read, a rank is killed",
        run: demo::run,
    },
    Verb {
        name: "check",
        usage: "cargo xtask check",
        about: "check format, lints, the rules of the house and the documentation",
        run: check::run,
    },
    Verb {
        name: "test",
        usage: "cargo xtask test [--room NAME]",
        about: "build and run the tests, room by room",
        run: test::run,
    },
    Verb {
        name: "bench",
        usage: "cargo xtask bench engine|tables|cassandra|ring [--peers] [--quick] [--json FILE] [--detail FILE] [--engines A,B] [--rounds COUNT] [--records COUNT] [--rows COUNT] [--boxes COUNT] [--source NAME] [--phases A,B] [--schedules COUNT] [--schedule-seed N] [--blocks] [--build] [--minutes COUNT] [--earlier FILE] [--fresh]",
        about: "run a bench, beside rivals with --peers",
        run: bench::run,
    },
    Verb {
        name: "sim",
        usage: "cargo xtask sim --seed N [--count M]",
        about: "replay simulated faults from a seed",
        run: simulate::run,
    },
    Verb {
        name: "fuzz",
        usage: "cargo xtask fuzz [TARGET] [--minutes N]",
        about: "fuzz a parser; without a target, list the targets",
        run: fuzz::run,
    },
    Verb {
        name: "soak",
        usage: "cargo xtask soak NAME --minutes N | --add FILE",
        about: "run seeds for a while and add them to the ledger",
        run: soak::run,
    },
    Verb {
        name: "cassandra",
        usage: "cargo xtask cassandra up|down|status|kill|start|logs [NODE] [--nodes COUNT] [--heap SIZE] [--port NUMBER] [--auth] [--tls] [--keep] [--clock-ahead SECONDS]",
        about: "run a real Apache Cassandra on this machine",
        run: cassandra::run,
    },
    Verb {
        name: "clients",
        usage: "cargo xtask clients [CLIENT ...] [--kill-first] [--all] [--json FILE]",
        about: "run stock Redis clients against a ring while nodes die and join",
        run: clients::run,
    },
    Verb {
        name: "venv",
        usage: "cargo xtask venv",
        about: "make .venv with the pinned Python packages and the package of this checkout",
        run: venv::run,
    },
    Verb {
        name: "wheel",
        usage: "cargo xtask wheel [--out FOLDER]",
        about: "build the Python package as it is published, and try it",
        run: wheel::run,
    },
    Verb { name: "help", usage: "cargo xtask help", about: "list the verbs", run: help },
];

/// The verb of this name.
pub fn find(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| verb.name == name)
}

/// Runs the verb that the words name.
pub fn dispatch(words: &[String]) -> Result<(), Failure> {
    let Some(name) = words.first() else { return help(Arguments::new("cargo xtask help", &[])) };
    if matches!(name.as_str(), "--help" | "-h") {
        return help(Arguments::new("cargo xtask help", &[]));
    }
    let Some(verb) = find(name) else {
        let usage = "`cargo xtask help` lists the verbs".to_owned();
        return Err(Failure::Usage { problem: format!("there is no verb {name:?}"), usage });
    };
    let asks_for_help =
        words[1..].iter().take_while(|word| *word != "--").any(|word| word == "--help" || word == "-h");
    if asks_for_help {
        println!("{}: {}", verb.name, verb.about);
        let of_bench = bench::usage(&words[1..]).filter(|_| verb.name == "bench");
        println!("usage: {}", of_bench.as_deref().unwrap_or(verb.usage));
        return Ok(());
    }
    (verb.run)(Arguments::new(verb.usage, &words[1..]))
}

fn help(arguments: Arguments) -> Result<(), Failure> {
    arguments.finish()?;
    print!("{}", listed());
    Ok(())
}

/// All verbs, one per line. Their arguments may be long, so each verb's usage is printed on its own.
fn listed() -> String {
    let width = VERBS.iter().map(|verb| verb.name.len()).max().unwrap_or(0);
    let lines = VERBS.iter().map(|verb| format!("  cargo xtask {:width$}  {}\n", verb.name, verb.about));
    format!(
        "The developer's command of Atoll.\n\n{}\n`cargo xtask VERB --help` shows what a verb takes. On a fresh \
         machine start with `cargo xtask demo`;\nbefore a commit run `cargo xtask check`.\n",
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usage_starts_with_its_own_name() {
        for verb in VERBS {
            assert!(verb.usage.starts_with(&format!("cargo xtask {}", verb.name)), "{}", verb.usage);
        }
    }

    #[test]
    fn the_list_of_verbs_fits_a_screen() {
        let listed = listed();
        assert!(VERBS.iter().all(|verb| listed.contains(verb.about)), "{listed}");
        assert!(listed.lines().all(|line| line.chars().count() <= 100), "{listed}");
    }

    #[test]
    fn an_unknown_verb_is_a_misuse() {
        assert_eq!(dispatch(&["dance".to_owned()]).unwrap_err().exit_code(), 2);
    }
}

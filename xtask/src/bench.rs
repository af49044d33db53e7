//! `cargo xtask bench NAME`: builds the benches' own crate on demand and runs one of them.

mod cassandra;
mod known;
mod ring;
mod tables;

pub use ring::schedules;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::lock::Lock;
use crate::{cargo, run, workspace};
use std::path::PathBuf;

const MANIFEST: &str = "benches/Cargo.toml";
/// The compiler settings of the benches; Cargo alone would look for them in the folder in which it runs.
const CONFIG: &str = "benches/.cargo/config.toml";

/// Runs one bench, attached to this terminal.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let names = known::names();
    let missing = arguments.wrong(format!("NAME is missing; there is: {names}"));
    let name = arguments.word().ok_or(missing)?;
    let Some(bench) = known::find(&name) else {
        return Err(arguments.wrong(format!("there is no bench {name:?}; there is: {names}")));
    };
    if !workspace::root()?.join(MANIFEST).exists() {
        return Err(arguments.wrong(format!("{MANIFEST} is missing from this checkout")));
    }
    let words = arguments.rest();
    bench.check(&words)?;
    let mut arguments = Arguments::new(bench.usage(), &words);
    let _lock = alone()?;
    match name.as_str() {
        "tables" => return tables::run(arguments),
        "cassandra" => return cassandra::run(arguments),
        "ring" => return ring::run(arguments),
        _ => {}
    }
    let peers = arguments.flag("--peers");
    let mut command = cargo::building()?;
    command.args(["run", "--config", CONFIG, "--release", "--manifest-path", MANIFEST]);
    if peers {
        println!("Building the rivals too: RocksDB alone takes minutes the first time.");
        crate::requirements::cpp_compiler("RocksDB, a rival,")?;
        crate::requirements::libclang("the bindings of RocksDB, a rival,")?;
        crate::requirements::key_value_libraries("short pairs beside them")?;
        command.args(["--features", "peers"]);
    }
    command.arg("--").arg(&name);
    if peers {
        command.arg("--peers");
    }
    // The bench itself checks the remaining words.
    command.args(arguments.rest().iter().filter(|word| *word != "--"));
    run::attached(&format!("bench {name}"), &mut command)
}

/// The usage of the bench that these words name, if they name one.
pub fn usage(words: &[String]) -> Option<String> {
    words.iter().find_map(|word| known::find(word)).map(known::Bench::usage)
}

/// What is wrong with a call of a bench as a page writes it, the bench's name first; `None` if nothing is, or
/// if no bench is named. What follows a redirection is for the shell.
pub fn misuse(words: &[String]) -> Option<Failure> {
    let (name, words) = words.split_first()?;
    let own = words.iter().take_while(|word| !word.contains('>')).filter(|word| *word != "--help");
    known::find(name)?.check(&own.cloned().collect::<Vec<_>>()).err()
}

/// Takes the lock that lets only one bench run at a time: two would disturb each other's measurements, stores
/// and results.
fn alone() -> Result<Lock, Failure> {
    let folder =
        std::env::var_os("ATOLL_BENCH_DIR").map_or_else(workspace::target_dir, |at| Ok(PathBuf::from(at)))?;
    Lock::take(&folder.join("atoll-bench.lock"), "measure")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mistyped_is_a_misuse_before_anything_is_built() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for line in ["engin --peers", "ring --phases cutt", "tables --phase warm", "--quick"] {
            let failure = run(Arguments::new("cargo xtask bench", &words(line))).unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{line}: {failure}");
        }
    }

    #[test]
    fn help_of_a_bench_is_about_that_bench() {
        let of = |word: &str| usage(&[word.to_owned(), "--help".to_owned()]);
        assert!(of("ring").is_some_and(|usage| usage.contains("--schedules") && !usage.contains("--blocks")));
        assert_eq!(of("engin"), None);
    }
}

//! The seeded programs: what `sim` and `soak` run.
//!
//! A program of its own takes `--seed-from N` and either `--seeds M` or `--minutes M`, and prints one line of
//! JSON for each finished chunk of seeds (see [`crate::ledger`]). A simulation also takes `--seed N`, which
//! runs that seed alone and describes it in words. Tests that take a seed from the environment count as such
//! programs too; [`Tests`] describes them.

use crate::failure::Failure;
use crate::test::programs;
use crate::{bench, cargo, run, workspace};
use std::path::Path;
use std::process::Command;

/// A program that runs seeds.
pub struct Seeded {
    /// Its name for `soak`.
    pub name: &'static str,
    /// How it is run.
    pub kind: Kind,
    /// Whether a seed replays exactly; if so, `sim` runs the program too.
    pub is_simulation: bool,
}

/// How a seeded program is run.
pub enum Kind {
    /// A program of its own, which reports its chunks itself.
    Program(Program),
    /// Tests that are run again and again; each run is a chunk.
    Tests(Tests),
}

/// A program of its own.
pub enum Program {
    /// A program of a package of this workspace, and the words that it is run with.
    Package(&'static str, &'static [&'static str]),
    /// A program that takes more to build: builds everything and returns a command that runs it.
    Built(fn() -> Result<Command, Failure>),
}

/// Tests that take their seed from the environment.
pub struct Tests {
    /// Packages, their test programs or [`LIBRARY`], and the tests to leave out: those that prove the others
    /// and need no repetition.
    programs: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// Only the tests whose names contain this, if anything.
    only: Option<&'static str>,
    /// The feature that only these tests are built with.
    feature: Option<&'static str>,
    /// The variable that takes the seed.
    seed: &'static str,
    /// Other environment variables.
    environment: &'static [(&'static str, &'static str)],
    /// The variable that takes a folder on a real disk.
    folder: Option<&'static str>,
    /// How many seeds of the ledger one run counts as.
    pub seeds_per_run: u64,
    /// Incremented when the promises under test change.
    pub format: u64,
    /// Whether each run prints its own line for the ledger.
    pub prints_lines: bool,
    /// The test that judges the lines of all runs together, if one does.
    pub verdict: Option<&'static str>,
}

/// In place of a test program: the tests inside of the package's library.
const LIBRARY: &str = "(library)";

/// The test that judges the tallies of all runs of `coverage`.
const COVERAGE_VERDICT: &str = "what_the_soak_has_tallied_so_far_holds";

/// Every seeded program.
pub const SEEDED: &[Seeded] = &[
    Seeded {
        name: "crash-sim",
        kind: Kind::Program(Program::Package("atoll-crash", &["sim"])),
        is_simulation: true,
    },
    Seeded {
        name: "crash-kill",
        kind: Kind::Program(Program::Package("atoll-crash", &["kill"])),
        is_simulation: false,
    },
    Seeded {
        name: "ring-sim",
        kind: Kind::Program(Program::Package("atoll-ring-simulation", &[])),
        is_simulation: true,
    },
    Seeded {
        name: "ring-schedules",
        kind: Kind::Program(Program::Built(bench::schedules)),
        is_simulation: false,
    },
    Seeded {
        name: "council",
        kind: Kind::Tests(Tests {
            programs: &[("atoll-council", LIBRARY, &["mistakes_are_noticed"])],
            only: Some("simulation::soak::"),
            feature: None,
            seed: "ATOLL_SEED",
            environment: &[("ATOLL_SEEDS", "200")],
            folder: None,
            seeds_per_run: 200,
            format: 2,
            prints_lines: true,
            verdict: None,
        }),
        is_simulation: false,
    },
    Seeded {
        name: "schedules",
        kind: Kind::Tests(Tests {
            programs: &[("atoll-engine", "schedules", &["each_planted_bug_is_seen"])],
            only: None,
            feature: Some("schedules"),
            seed: "ATOLL_SEED",
            // Two hundred batches, each with a seed of its own.
            environment: &[("ATOLL_SCHEDULES", "10000")],
            folder: None,
            seeds_per_run: 200,
            format: 1,
            prints_lines: false,
            verdict: None,
        }),
        is_simulation: false,
    },
    Seeded {
        name: "processes",
        kind: Kind::Tests(Tests {
            programs: &[("atoll-embedded", "processes", &["a_store_that_loses"])],
            only: None,
            feature: None,
            seed: "ATOLL_SEED",
            environment: &[("ATOLL_ROUNDS", "10")],
            folder: Some("ATOLL_AT"),
            seeds_per_run: 10,
            format: 1,
            prints_lines: false,
            verdict: None,
        }),
        is_simulation: false,
    },
    Seeded {
        name: "conformance",
        kind: Kind::Tests(Tests {
            programs: &[
                ("atoll-conformance", "stores", &["every_store_with_a_planted_fault"]),
                ("atoll-embedded", "conformance", &[]),
            ],
            only: None,
            feature: None,
            seed: "CONFORMANCE_SEED",
            environment: &[("CONFORMANCE_SIZE", "full")],
            folder: Some("TMPDIR"),
            seeds_per_run: 1,
            format: 1,
            prints_lines: false,
            verdict: None,
        }),
        is_simulation: false,
    },
    Seeded {
        name: "queries",
        kind: Kind::Tests(Tests {
            programs: &[("atoll-tables", "moments", &[])],
            only: None,
            feature: Some("planted"),
            // The seed of an episode is the number of its first query.
            seed: "ATOLL_SEED",
            environment: &[("ATOLL_QUERIES", "5000")],
            folder: None,
            seeds_per_run: 5000,
            format: 1,
            prints_lines: false,
            verdict: None,
        }),
        is_simulation: false,
    },
    Seeded {
        name: "coverage",
        kind: Kind::Tests(Tests {
            programs: &[("atoll-tables", "coverage", &["intervals_of_samples", COVERAGE_VERDICT])],
            only: None,
            feature: None,
            seed: "ATOLL_SEED",
            environment: &[
                ("ATOLL_CELLS", "all"),
                ("ATOLL_SEEDS", "20"),
                // Samples are allocated and freed by the megabyte; this keeps their memory from being
                // requested from the system again each time.
                ("MALLOC_MMAP_THRESHOLD_", "1000000000"),
                ("MALLOC_TRIM_THRESHOLD_", "4000000000"),
            ],
            folder: None,
            seeds_per_run: 20,
            format: 1,
            prints_lines: true,
            verdict: Some(COVERAGE_VERDICT),
        }),
        is_simulation: false,
    },
];

/// The program with this name for `soak`.
pub fn find(name: &str) -> Option<&'static Seeded> {
    SEEDED.iter().find(|seeded| seeded.name == name)
}

impl Program {
    /// Builds the program, prints that it does, and returns a command that runs it.
    pub fn built(&self) -> Result<Command, Failure> {
        let (package, words) = match self {
            Self::Package(package, words) => (*package, *words),
            Self::Built(built) => return built(),
        };
        let mut command = cargo::building()?;
        command.args(["build", "--release", "--package", package, "--bin", package]);
        run::step(&format!("build {package}"), &mut command)?;
        let mut command = cargo::command()?;
        command.args(["run", "--quiet", "--release", "--package", package, "--bin", package, "--"]);
        command.args(words);
        Ok(command)
    }
}

impl Tests {
    /// Builds the tests as `test` does, with all assertions of such a build, and prints that it does. Returns
    /// their programs, in the order of the list.
    ///
    /// They are built once and then run as they are, because sources that no longer compile, or that changed
    /// meanwhile, say nothing about a seed. So they are run from copies in `copies`: another build of this
    /// checkout would replace them where Cargo puts them.
    pub fn build(&self, copies: &Path) -> Result<Vec<programs::Program>, Failure> {
        let built =
            self.programs.iter().map(|(package, test, _)| self.built(package, test)?.copied_to(copies));
        built.collect()
    }

    fn built(&self, package: &'static str, test: &'static str) -> Result<programs::Program, Failure> {
        let mut command = programs::building()?;
        command.args(self.selected(package, test));
        let name = format!("build {package}/{test}");
        let mut built = programs::built_by(&name, &mut command)?.programs;
        match (built.pop(), built.is_empty()) {
            (Some(program), true) => Ok(program),
            (_, _) => {
                let problem = "it names no test program, or more than one".to_owned();
                Err(Failure::Malformed { what: format!("the output of {name}"), problem })
            }
        }
    }

    /// Commands that run the tests with `seed`, in sequence; `programs` are those that were built.
    pub fn commands(&self, programs: &[programs::Program], seed: u64) -> Result<Vec<Command>, Failure> {
        let each = self.programs.iter().zip(programs);
        each.map(|((_, _, left_out), program)| self.command(program, left_out, seed)).collect()
    }

    /// A command that judges the reports of all runs together.
    pub fn verdict(&self) -> Result<Option<Command>, Failure> {
        let (Some(test), Some((package, program, _))) = (self.verdict, self.programs.first()) else {
            return Ok(None);
        };
        let mut command = cargo::command()?;
        // Not quiet: the output shows whether the test exists at all.
        command.arg("test").args(self.selected(package, program)).args(["--", "--show-output", test]);
        Ok(Some(command))
    }

    /// The words for Cargo that select a test program, with the feature of these tests.
    fn selected(&self, package: &'static str, test: &'static str) -> Vec<&'static str> {
        let mut words = vec!["--package", package];
        words.extend(target(test));
        words.extend(self.feature.into_iter().flat_map(|feature| ["--features", feature]));
        words
    }

    fn command(&self, program: &programs::Program, left_out: &[&str], seed: u64) -> Result<Command, Failure> {
        let mut command = program.command()?;
        // In sequence: tests that run side by side disturb each other's measurements.
        command.args(["--test-threads", "1"]).args(self.only);
        for name in left_out {
            command.args(["--skip", name]);
        }
        command.env(self.seed, seed.to_string()).envs(self.environment.iter().copied());
        if let Some(variable) = self.folder {
            // Next to the builds, which lie on a disk; the system's temporary folder may be in memory.
            let folder = workspace::target_dir()?.join("soak");
            std::fs::create_dir_all(&folder).map_err(Failure::io("make a folder for the soak"))?;
            command.env(variable, folder);
        }
        Ok(command)
    }
}

/// The words for Cargo that select a test program.
fn target(test: &'static str) -> Vec<&'static str> {
    if test == LIBRARY { vec!["--lib"] } else { vec!["--test", test] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests_of(name: &str) -> &'static Tests {
        let Kind::Tests(tests) = &find(name).unwrap().kind else { panic!("{name} is a program") };
        tests
    }

    /// The words for Cargo that build the first program of a soak of tests, and the command that runs it with
    /// this seed: its program, its words and its seed variable.
    fn words(name: &str, seed: u64) -> (String, String, String, Option<String>) {
        let tests = tests_of(name);
        let (package, test, _) = tests.programs[0];
        let program = programs::Program::for_test(name, "built-before");
        let command = tests.commands(&[program], seed).unwrap().remove(0);
        let of = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        let seed =
            command.get_envs().find(|(name, _)| *name == tests.seed).and_then(|(_, seed)| seed.map(of));
        let ran: Vec<String> = command.get_args().map(of).collect();
        (tests.selected(package, test).join(" "), of(command.get_program()), ran.join(" "), seed)
    }

    #[test]
    fn tests_of_a_library_are_selected_by_their_names_and_those_of_a_program_by_it() {
        let (built, program, ran, seed) = words("council", 400);
        assert_eq!(seed.as_deref(), Some("400"));
        assert_eq!(built, "--package atoll-council --lib");
        // Not Cargo: a run that does not compile would count seeds that never ran.
        assert_eq!(program, "built-before");
        assert!(ran.ends_with("simulation::soak:: --skip mistakes_are_noticed"), "{ran}");
        let (built, _, ran, _) = words("schedules", 1);
        assert_eq!(built, "--package atoll-engine --test schedules --features schedules");
        assert!(ran.ends_with("--test-threads 1 --skip each_planted_bug_is_seen"), "{ran}");
    }

    #[test]
    fn every_ledger_that_is_kept_is_one_of_a_soak_that_goes_on() {
        let folder = workspace::root().unwrap().join("benches/results/soak");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")) {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(find(&name).is_some(), "no soak is called {name}");
        }
    }

    #[test]
    fn names_are_unique_and_simulations_are_programs() {
        for (at, seeded) in SEEDED.iter().enumerate() {
            assert!(SEEDED[..at].iter().all(|other| other.name != seeded.name), "{}", seeded.name);
            // `sim` would pass over a simulation that is no program of its own.
            assert!(!seeded.is_simulation || matches!(seeded.kind, Kind::Program(_)), "{}", seeded.name);
        }
    }
}

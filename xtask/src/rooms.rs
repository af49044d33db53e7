//! The rooms whose tests `test` runs, and how many minutes each may take on two cores.

use crate::house::{Finding, Tree};
use crate::workspace::{Package, Target};

/// A group of crates whose tests run and are timed together.
pub struct Room {
    /// Its name for `--room`.
    pub name: &'static str,
    /// The crates in it.
    pub packages: &'static [&'static str],
    /// Test programs of other rooms' crates that test this room: the crate, and how their names begin.
    pub elsewhere: &'static [(&'static str, &'static str)],
    /// How long it may take.
    pub budget_minutes: u64,
}

impl Room {
    /// Whether a test program of this crate runs in this room.
    pub fn has(&self, package: &str, test: Option<&str>) -> bool {
        let is_taken = |room: &Self| {
            room.elsewhere
                .iter()
                .any(|(of, begins)| *of == package && test.is_some_and(|test| test.starts_with(begins)))
        };
        is_taken(self) || self.packages.contains(&package) && !ROOMS.iter().any(is_taken)
    }
}

/// How long building everything from scratch may take.
pub const BUILD_BUDGET_MINUTES: u64 = 14;

/// How long the documentation's examples may take.
pub const DOCS_BUDGET_MINUTES: u64 = 2;

/// How long the Python tests may take, their environment included.
pub const PYTHON_BUDGET_MINUTES: u64 = 4;

/// How long the Rust tests of the benches may take, including the build of their crate.
pub const BENCHES_BUDGET_MINUTES: u64 = 2;

/// How long the tests of crates with unsafe code may take under a sanitizer, including the extra build.
pub const SANITIZER_BUDGET_MINUTES: u64 = 2;

/// The rooms, from the ground up.
pub const ROOMS: &[Room] = &[
    Room {
        name: "ground",
        packages: &[
            "atoll-errors",
            "atoll-buffer",
            "atoll-options",
            "atoll-wire",
            "atoll-tls",
            "atoll-resp",
            "atoll-disk",
        ],
        elsewhere: &[],
        budget_minutes: 2,
    },
    Room { name: "engine", packages: &["atoll-engine"], elsewhere: &[], budget_minutes: 2 },
    Room {
        name: "contract",
        packages: &[
            "atoll-linearizability",
            "atoll-store",
            "atoll-conformance",
            "atoll-memory",
            "atoll-embedded",
        ],
        elsewhere: &[],
        budget_minutes: 2,
    },
    // Runs against a real node, which is started first.
    Room { name: "cassandra", packages: &["atoll-cassandra"], elsewhere: &[], budget_minutes: 3 },
    Room { name: "tables", packages: &["atoll-tables"], elsewhere: &[], budget_minutes: 4 },
    Room {
        name: "doors",
        packages: &["atoll-open", "atoll-row-files", "atoll", "atoll-python"],
        elsewhere: &[],
        budget_minutes: 1,
    },
    Room {
        name: "ring",
        packages: &[
            "atoll-replica",
            "atoll-keyspace",
            "atoll-council",
            "atoll-ring",
            "atoll-ring-client",
            "atoll-ring-simulation",
            "atoll-ring-suite",
        ],
        // The command line on real nodes.
        elsewhere: &[("atoll", "ring")],
        budget_minutes: 6,
    },
    Room { name: "crash", packages: &["atoll-crash"], elsewhere: &[], budget_minutes: 2 },
    Room {
        name: "system",
        packages: &["atoll-system-tests", "atoll-hosts"],
        elsewhere: &[],
        budget_minutes: 1,
    },
    Room { name: "house", packages: &["xtask"], elsewhere: &[], budget_minutes: 1 },
];

/// A test program that needs a feature with which nothing else may be built.
pub struct Featured {
    /// Its room.
    pub room: &'static str,
    /// Its crate.
    pub package: &'static str,
    /// The feature.
    pub feature: &'static str,
    /// The program.
    pub test: &'static str,
}

impl Featured {
    /// What messages call it.
    pub fn name(&self) -> String {
        format!("{}/{} with feature {}", self.package, self.test, self.feature)
    }
}

/// Programs with the same feature are built together and apart from everything else, because planted bugs
/// and scheduled threads must not get into any other build.
pub const FEATURED: &[Featured] = &[
    Featured { room: "engine", package: "atoll-engine", feature: "schedules", test: "schedules" },
    Featured { room: "tables", package: "atoll-tables", feature: "planted", test: "moments" },
    Featured { room: "tables", package: "atoll-tables", feature: "planted", test: "planted" },
    Featured { room: "ring", package: "atoll-ring-simulation", feature: "planted", test: "planted" },
    Featured { room: "ring", package: "atoll-replica", feature: "planted", test: "planted" },
    Featured { room: "crash", package: "atoll-crash", feature: "planted", test: "planted" },
];

/// The folders whose tests the room `python` runs.
pub const PYTHON_FOLDERS: &[&str] = &["tests/python", "tests/clients"];

/// Rooms without a crate of their own.
pub const OTHERS: &[&str] = &["docs", "python", "benches", "sanitizer"];

/// The names that `--room` accepts.
pub fn names() -> Vec<&'static str> {
    ROOMS.iter().map(|room| room.name).chain(OTHERS.iter().copied()).collect()
}

/// Crates, test programs and test files that belong to no room, so that nothing would run them.
pub fn findings(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let is_in_a_room = |name: &str| ROOMS.iter().any(|room| room.packages.contains(&name));
    let homeless = packages.iter().filter(|package| !is_in_a_room(&package.name));
    let homeless = homeless.map(|package| {
        let remedy = "give it a room in xtask/src/rooms.rs";
        Finding::at(&package.name, "the crate is in no room, so `test` does not run it", remedy)
    });
    let programs = packages.iter().flat_map(|package| {
        let tests = package.targets.iter().filter(|target| target.kind == "test");
        tests.filter_map(|test| program_finding(package, test))
    });
    let files = tree.ending(".py").map(|(path, _)| path).filter(|path| is_left_out(path)).map(|path| {
        let remedy = "put it into a folder of PYTHON_FOLDERS in xtask/src/rooms.rs, or the folder into them";
        Finding::at(path, "the room `python` does not run it", remedy)
    });
    homeless.chain(programs).chain(files).collect()
}

/// The finding about a test program that `test` leaves out.
fn program_finding(package: &Package, test: &Target) -> Option<Finding> {
    let place = format!("{}/{}", package.name, test.name);
    if !test.is_tested {
        return Some(Finding::at(place, "its manifest says `test = false`", "let it run, or remove it"));
    }
    let is_built = |featured: &Featured| {
        featured.package == package.name
            && featured.test == test.name
            && test.required_features.iter().all(|feature| feature == featured.feature)
    };
    if test.required_features.is_empty() || FEATURED.iter().any(is_built) {
        return None;
    }
    let problem = format!("it is built with {} only, and `test` does not", test.required_features.join(", "));
    Some(Finding::at(place, problem, "give it a line in FEATURED in xtask/src/rooms.rs"))
}

/// Whether pytest would collect this file but never gets there.
fn is_left_out(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_of_tests = name.starts_with("test_") || name.ends_with("_test.py");
    let is_below = |known: &str| folder == known || folder.starts_with(&format!("{known}/"));
    is_of_tests && !PYTHON_FOLDERS.iter().any(|known| is_below(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, targets: Vec<Target>) -> Package {
        Package { name: name.to_owned(), targets, ..Package::default() }
    }

    fn test(name: &str, features: &[&str], is_tested: bool) -> Target {
        let required_features = features.iter().map(|&feature| feature.to_owned()).collect();
        Target { name: name.to_owned(), kind: "test".to_owned(), required_features, is_tested }
    }

    #[test]
    fn a_crate_in_no_room_is_found() {
        let packages = [package("atoll-engine", Vec::new()), package("atoll-attic", Vec::new())];
        assert_eq!(findings(&Tree::default(), &packages).len(), 1);
    }

    #[test]
    fn a_program_runs_in_the_room_that_it_tests_and_in_no_other() {
        let rooms = |package: &str, test: Option<&str>| {
            let of = ROOMS.iter().filter(|room| room.has(package, test));
            of.map(|room| room.name).collect::<Vec<_>>()
        };
        assert_eq!(rooms("atoll", None), ["doors"]);
        assert_eq!(rooms("atoll", Some("tables")), ["doors"]);
        assert_eq!(rooms("atoll", Some("ring_tls")), ["ring"]);
        assert_eq!(rooms("atoll-ring", Some("ring")), ["ring"], "the name alone decides nothing");
    }

    #[test]
    fn a_test_program_that_is_never_built_is_found() {
        let count = |test| findings(&Tree::default(), &[package("atoll-engine", vec![test])]).len();
        assert_eq!(count(test("plain", &[], true)), 0);
        assert_eq!(count(test("schedules", &["schedules"], true)), 0);
        assert_eq!(count(test("plain", &[], false)), 1, "switched off");
        assert_eq!(count(test("other", &["schedules"], true)), 1, "in no list");
        assert_eq!(
            count(test("schedules", &["schedules", "more"], true)),
            1,
            "built with half of what it needs"
        );
    }

    #[test]
    fn a_file_of_python_tests_that_nobody_runs_is_found() {
        let count = |path: &str| findings(&Tree::of(&[(path, "")]), &[]).len();
        assert_eq!(count("tests/python/test_a.py") + count("tests/clients/below/test_a.py"), 0);
        assert_eq!(count("tests/python/tables.py") + count("examples/latest.py"), 0);
        assert_eq!(count("tests/slurm/test_a.py") + count("benches/tables/a_test.py"), 2);
        assert_eq!(count("tests/python-old/test_a.py") + count("test_a.py"), 2);
    }

    #[test]
    fn all_budgets_together_leave_room_for_check_within_fifty_one_minutes() {
        let rooms: u64 = ROOMS.iter().map(|room| room.budget_minutes).sum();
        let others =
            DOCS_BUDGET_MINUTES + PYTHON_BUDGET_MINUTES + BENCHES_BUDGET_MINUTES + SANITIZER_BUDGET_MINUTES;
        assert!(BUILD_BUDGET_MINUTES + others + rooms <= 48);
    }
}

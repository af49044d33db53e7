//! The rooms that `test` visits, and how many minutes each may take on two cores.

use crate::house::Finding;
use crate::workspace::Package;

/// Some crates whose tests run and are timed together.
pub struct Room {
    /// What `--room` calls it.
    pub name: &'static str,
    /// The crates in it.
    pub packages: &'static [&'static str],
    /// How long it may take.
    pub budget_minutes: u64,
}

/// How long the build of everything may take, from nothing.
pub const BUILD_BUDGET_MINUTES: u64 = 14;

/// How long the examples in the documentation may take.
pub const DOCS_BUDGET_MINUTES: u64 = 2;

/// How long the Python tests may take, their environment included.
pub const PYTHON_BUDGET_MINUTES: u64 = 4;

/// How long the Rust tests of the benches may take, whose crate is built for them.
pub const BENCHES_BUDGET_MINUTES: u64 = 2;

/// How long crates with unsafe code may take under a sanitizer, built once more for it.
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
        budget_minutes: 2,
    },
    Room { name: "engine", packages: &["atoll-engine"], budget_minutes: 2 },
    Room {
        name: "contract",
        packages: &[
            "atoll-linearizability",
            "atoll-store",
            "atoll-conformance",
            "atoll-memory",
            "atoll-embedded",
        ],
        budget_minutes: 2,
    },
    // Against a real node, which is started first.
    Room { name: "cassandra", packages: &["atoll-cassandra"], budget_minutes: 3 },
    Room { name: "tables", packages: &["atoll-tables"], budget_minutes: 4 },
    Room {
        name: "doors",
        packages: &["atoll-open", "atoll-row-files", "atoll", "atoll-python"],
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
        budget_minutes: 6,
    },
    Room { name: "crash", packages: &["atoll-crash"], budget_minutes: 2 },
    Room { name: "system", packages: &["atoll-system-tests"], budget_minutes: 1 },
    Room { name: "house", packages: &["xtask"], budget_minutes: 1 },
];

/// A test program that needs a feature which nothing else may be built with.
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
    /// What to call it.
    pub fn name(&self) -> String {
        format!("{}/{} with feature {}", self.package, self.test, self.feature)
    }
}

/// All of a feature are built together, and nothing else is: planted bugs and scheduled threads must not get into any other build.
pub const FEATURED: &[Featured] = &[
    Featured { room: "engine", package: "atoll-engine", feature: "schedules", test: "schedules" },
    Featured { room: "tables", package: "atoll-tables", feature: "planted", test: "moments" },
    Featured { room: "tables", package: "atoll-tables", feature: "planted", test: "planted" },
    Featured { room: "ring", package: "atoll-ring-simulation", feature: "planted", test: "planted" },
    Featured { room: "ring", package: "atoll-replica", feature: "planted", test: "planted" },
    Featured { room: "crash", package: "atoll-crash", feature: "planted", test: "planted" },
];

/// Rooms without a crate of their own.
pub const OTHERS: &[&str] = &["docs", "python", "benches", "sanitizer"];

/// The names that `--room` knows.
pub fn names() -> Vec<&'static str> {
    ROOMS.iter().map(|room| room.name).chain(OTHERS.iter().copied()).collect()
}

/// Crates that no room tests, and so nobody would.
pub fn findings(packages: &[Package]) -> Vec<Finding> {
    let is_in_a_room = |name: &str| ROOMS.iter().any(|room| room.packages.contains(&name));
    let homeless = packages.iter().filter(|package| !is_in_a_room(&package.name));
    homeless
        .map(|package| {
            let remedy = "give it a room in xtask/src/rooms.rs";
            Finding::at(&package.name, "the crate is in no room, so `test` does not run it", remedy)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_in_no_room_is_found() {
        let named = |name: &str| Package {
            name: name.to_owned(),
            folder: String::new(),
            dependencies: Vec::new(),
            targets: Vec::new(),
        };
        assert_eq!(findings(&[named("atoll-engine"), named("atoll-attic")]).len(), 1);
    }

    #[test]
    fn all_budgets_together_leave_room_for_check_within_fifty_one_minutes() {
        let rooms: u64 = ROOMS.iter().map(|room| room.budget_minutes).sum();
        let others =
            DOCS_BUDGET_MINUTES + PYTHON_BUDGET_MINUTES + BENCHES_BUDGET_MINUTES + SANITIZER_BUDGET_MINUTES;
        assert!(BUILD_BUDGET_MINUTES + others + rooms <= 48);
    }
}

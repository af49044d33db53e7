//! Layering: a crate uses only the floors below its own, and no other crate on the same floor.
//!
//! The table is the house, from the ground up. A crate that is missing from it fails `check`.

use super::Finding;
use crate::workspace::Package;

/// The floors, lowest first.
const FLOORS: &[(&str, &[&str])] = &[
    ("the foundation", &["atoll-errors", "atoll-buffer", "atoll-linearizability", "atoll-hosts"]),
    (
        "the ground",
        &["atoll-options", "atoll-wire", "atoll-tls", "atoll-resp", "atoll-disk", "atoll-row-files"],
    ),
    ("near", &["atoll-engine"]),
    ("the contract", &["atoll-store"]),
    ("the model", &["atoll-memory"]),
    ("the suite", &["atoll-conformance"]),
    ("the slots", &["atoll-replica", "atoll-keyspace"]),
    ("the council", &["atoll-council"]),
    ("the implementations", &["atoll-embedded", "atoll-cassandra", "atoll-ring", "atoll-ring-client"]),
    ("the opener", &["atoll-open"]),
    ("the models", &["atoll-tables"]),
    ("the doors", &["atoll", "atoll-python"]),
    ("the whole", &["atoll-system-tests", "atoll-crash", "atoll-ring-simulation", "atoll-ring-suite"]),
];

/// Crates outside of the house: they use no crate in it, and no crate in it uses them.
const BESIDE: &[&str] = &["xtask"];

/// Downward dependencies that are forbidden all the same, and why.
const CLOSED: &[(&str, &str, &str)] = &[
    ("atoll-store", "atoll-engine", "the contract knows no implementation"),
    ("atoll-memory", "atoll-engine", "the model must stay independent of what it is compared with"),
];

/// The conformance suite: only tests may depend on it, those of the model included, and crates that are
/// themselves tests.
const ONLY_IN_TESTS: &str = "atoll-conformance";

/// The floor of crates that never ship.
const NEVER_SHIPPED: &str = "the whole";

/// Crates without a floor, and dependencies that do not lead downward.
pub fn findings(packages: &[Package]) -> Vec<Finding> {
    let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    packages.iter().flat_map(|package| findings_in(package, &names)).collect()
}

fn findings_in(package: &Package, members: &[&str]) -> Vec<Finding> {
    let name = package.name.as_str();
    if floor(name).is_none() && !BESIDE.contains(&name) {
        let remedy = "give it a floor in xtask/src/house/floors.rs";
        return vec![Finding::at(name, "the crate is on no floor of the house", remedy)];
    }
    let inside = package.dependencies.iter().filter(|dependency| members.contains(&dependency.on.as_str()));
    inside.filter_map(|dependency| wrong_edge(name, &dependency.on, dependency.only_tests)).collect()
}

fn wrong_edge(from: &str, to: &str, only_tests: bool) -> Option<Finding> {
    let edge = |problem: String, remedy: &str| Some(Finding::at(from, problem, remedy));
    if let Some((_, _, why)) =
        CLOSED.iter().find(|(closed_from, closed_to, _)| (*closed_from, *closed_to) == (from, to))
    {
        return edge(format!("it depends on {to}, but {why}"), "remove the dependency");
    }
    let is_test = only_tests || floor(from).is_some_and(|(_, name)| name == NEVER_SHIPPED);
    match (to == ONLY_IN_TESTS, is_test) {
        (true, true) => return None,
        (true, false) => return edge(format!("it ships {to}"), "move it to [dev-dependencies]"),
        (false, _) => {}
    }
    let (Some((from_floor, from_name)), Some((to_floor, to_name))) = (floor(from), floor(to)) else {
        return edge(
            format!("it depends on {to}, but one of the two stands beside the house"),
            "remove the dependency",
        );
    };
    // A crate may depend on itself, for the features that its own tests need.
    if to_floor < from_floor || from == to {
        return None;
    }
    let direction = if to_floor == from_floor { "sideways" } else { "upwards" };
    edge(
        format!("it lies on {from_name} and depends {direction} on {to} on {to_name}"),
        "move what both need down a floor",
    )
}

fn floor(name: &str) -> Option<(usize, &'static str)> {
    let at = FLOORS.iter().position(|(_, crates)| crates.contains(&name))?;
    Some((at, FLOORS[at].0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependency = |&(on, only_tests): &(&str, bool)| Dependency { on: on.to_owned(), only_tests };
        Package {
            name: name.to_owned(),
            folder: format!("crates/{name}"),
            dependencies: dependencies.iter().map(dependency).collect(),
            ..Package::default()
        }
    }

    fn problems(name: &str, on: &str, only_tests: bool) -> usize {
        findings(&[package(name, &[(on, only_tests)]), package(on, &[])]).len()
    }

    #[test]
    fn downwards_is_right_and_nothing_else_is() {
        assert_eq!(problems("atoll-engine", "atoll-disk", false), 0);
        assert_eq!(problems("atoll-disk", "atoll-engine", false), 1, "upwards");
        assert_eq!(problems("atoll-disk", "atoll-engine", true), 1, "upwards in tests");
        assert_eq!(problems("atoll-disk", "atoll-wire", false), 1, "sideways");
        assert_eq!(problems("atoll-store", "atoll-engine", false), 1, "a closed edge");
        assert_eq!(problems("xtask", "atoll-errors", false), 1, "out of the shed");
    }

    #[test]
    fn only_tests_bring_in_the_suite() {
        assert_eq!(problems("atoll-embedded", "atoll-conformance", true), 0);
        assert_eq!(problems("atoll-memory", "atoll-conformance", true), 0);
        assert_eq!(problems("atoll-embedded", "atoll-conformance", false), 1);
        assert_eq!(problems("atoll-ring-suite", "atoll-conformance", false), 0, "it is a test itself");
        assert_eq!(problems("atoll", "atoll-conformance", false), 1, "the doors are shipped");
    }

    #[test]
    fn a_crate_without_a_floor_is_found() {
        let found = findings(&[package("atoll-attic", &[])]);
        assert_eq!(found[0].place, "atoll-attic");
    }
}

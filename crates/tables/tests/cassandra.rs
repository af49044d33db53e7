//! Tables on a real cluster: several processes that are killed, and readers beside its nodes.
//!
//! `ATOLL_CASSANDRA` names the cluster; `ATOLL_ROUNDS` and `ATOLL_SEED` are those of `processes.rs`.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

#[path = "cassandra/killed.rs"]
mod killed;
#[path = "processes/packers.rs"]
mod packers;
#[path = "cassandra/splits.rs"]
mod splits;
#[path = "processes/workers.rs"]
mod workers;

/// The contact points of the cluster; none, said aloud, if there is none.
fn contacts() -> Option<Vec<String>> {
    match std::env::var("ATOLL_CASSANDRA") {
        Ok(contacts) if !contacts.is_empty() => Some(contacts.split(',').map(str::to_owned).collect()),
        _ => {
            println!(
                "SKIPPED [cassandra] ATOLL_CASSANDRA names no cluster; `cargo xtask cassandra up` starts one"
            );
            None
        }
    }
}

/// Not a test: what this program does when it was started as a worker.
#[test]
fn worker() {
    atoll_conformance::killed::work(workers::work);
}

//! Tables on a real cluster: several processes, any of which may be killed, and readers beside its nodes.
//!
//! `ATOLL_CASSANDRA` names the cluster; `ATOLL_ROUNDS` and `ATOLL_SEED` are as in `processes.rs`.
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

/// The contact points of the cluster; `None`, with a printed notice, if there is no cluster.
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

/// Not a test: the entry point of a worker process.
#[test]
fn worker() {
    atoll_conformance::killed::work(workers::work);
}

//! The driver of killed workers notices a worker that ended by itself, however soon before the kill.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_conformance::killed::{Driver, Workers, is_worker, tell, work};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// No machine is this slow.
const SILENCE_MAX: Duration = Duration::from_secs(60);

#[test]
fn worker() {
    work(|role, _| {
        tell(format_args!("process {}", std::process::id()));
        if role == "abort" {
            std::process::abort();
        }
        loop {
            std::thread::park();
        }
    });
}

/// Starts workers of these roles, each of which has reported its process id.
fn start(roles: &[&str]) -> Driver<Vec<u32>> {
    let roles: Vec<String> = roles.iter().map(|&role| role.to_owned()).collect();
    let count = roles.len();
    let folder = std::env::temp_dir();
    let plan = Workers { roles, folder, environment: Vec::new(), silence_max: SILENCE_MAX };
    let mut driver =
        Driver::start(plan, Vec::new(), |told, _, _, process| told.push(process.parse().unwrap()));
    driver.listen(count);
    driver
}

/// Returns when the process has ended but has not been waited for.
fn wait_for_end(process: u32) {
    let has_ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    };
    while !has_ended() {
        std::thread::yield_now();
    }
}

/// The message with which the driver fails.
fn failure_of(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("the driver has to fail");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_worker_that_ended_by_itself_is_not_taken_for_killed() {
    if is_worker() {
        return;
    }
    let mut driver = start(&["abort"]);
    wait_for_end(driver.told[0]);
    let failure = failure_of(|| driver.kill(0));
    assert!(failure.contains("\"abort\" ended before it was killed"), "{failure}");
}

#[test]
fn nor_is_one_that_did_so_before_all_are_ended() {
    if is_worker() {
        return;
    }
    let mut driver = start(&["abort"]);
    wait_for_end(driver.told[0]);
    let failure = failure_of(|| driver.end());
    assert!(failure.contains("\"abort\" ended before it was killed"), "{failure}");
}

#[test]
fn workers_that_go_on_are_killed() {
    if is_worker() {
        return;
    }
    let mut driver = start(&["stay", "stay"]);
    driver.kill(1);
    driver.listen(1);
    driver.end();
    assert_eq!(driver.told.len(), 3);
}

//! A store in a folder whose owner serves it to other processes, also while the owner is suspended.

use crate::support::{Answer, Workspace};
use crate::{atoll, lines, served, set_rights, unprivileged};
use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

#[test]
fn a_served_store_is_shared_and_ends_with_the_signal() {
    let place = Workspace::new();
    let mut owner = place.spawn(&["serve", "--store", "data"]);
    let mut stdout = BufReader::new(owner.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("serving "), "{line}");
    let waiter = place.spawn(&["--store", "data", "kv", "wait", "jobs", "17", "--equals", "done"]);
    atoll(&place, &["kv", "put", "jobs", "17", "done"]).text();
    let waited = Answer::from(waiter.wait_with_output().unwrap());
    assert_eq!(waited.text(), "done");
    rustix::process::kill_process(rustix::process::Pid::from_child(&owner), rustix::process::Signal::INT)
        .unwrap();
    assert!(owner.wait().unwrap().success());
    assert_eq!(atoll(&place, &["kv", "get", "jobs", "17"]).text(), "done");
}

#[test]
fn a_second_server_says_that_it_stands_by_and_serves_when_the_first_one_ends() {
    let place = Workspace::new();
    let mut first = served(&place);
    let mut second = place.spawn(&["serve", "--store", "data"]);
    // Lines arrive through a channel, so that the test never waits forever for a line that is not written.
    let (sender, told) = std::sync::mpsc::channel();
    let stdout = BufReader::new(second.stdout.take().unwrap());
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let line = || told.recv_timeout(Duration::from_secs(30)).unwrap_or_default();
    let standing_by = line();
    atoll(&place, &["kv", "put", "p", "s", "kept"]).text();
    first.kill().unwrap();
    first.wait().unwrap();
    let serving = line();
    let kept = atoll(&place, &["kv", "get", "p", "s"]);
    second.kill().unwrap();
    second.wait().unwrap();
    assert!(standing_by.starts_with("standing by: another process serves data"), "{standing_by}");
    assert_eq!(serving, "serving data, until Ctrl-C");
    assert_eq!(kept.text(), "kept");
}

#[test]
#[allow(clippy::disallowed_methods)]
fn an_import_whose_owner_died_with_buffered_cells_ends_with_an_error() {
    let place = Workspace::new();
    let mut server = served(&place);
    let verb = ["--store", "data", "--durability", "buffered", "kv", "import", "-", "--format", "jsonl"];
    let more = ["--progress", "json", "--set", "import.window=1KiB"];
    let mut import = place.spawn(&[&verb[..], &more].concat());
    let mut input = import.stdin.take().unwrap();
    let mut told = BufReader::new(import.stderr.take().unwrap()).lines();
    // Longer than a window, so that no write is pending once the progress was reported.
    let mut cell = |sort: &str| {
        let value = "v".repeat(2000);
        writeln!(input, "{{\"partition\":\"p\",\"sort\":\"{sort}\",\"value\":\"{value}\"}}").unwrap();
    };
    cell("a");
    assert!(told.next().unwrap().unwrap().contains("progress"));
    server.kill().unwrap();
    server.wait().unwrap();
    // The import will own the store soon, and cannot ask anyone about its earlier writes. No event signals
    // that.
    let (lock, owned) = (place.folder.path().join("data/lock"), format!("\npid {}\n", import.id()));
    let begun = Instant::now();
    while !std::fs::read_to_string(&lock).unwrap().contains(&owned) {
        assert!(begun.elapsed() < Duration::from_secs(30), "it did not take over");
        std::thread::sleep(Duration::from_millis(2));
    }
    cell("b");
    drop(input);
    assert_eq!(import.wait().unwrap().code(), Some(17));
    let told: Vec<_> = told.map(Result::unwrap).collect();
    assert!(told.iter().any(|line| line.contains("was lost with buffered writes")), "{told:?}");
}

/// A hundred lines of an import, numbered from `from` on.
fn cells(from: usize) -> String {
    let line = |at: usize| {
        format!("{{\"partition\":\"p\",\"sort\":\"{at:06}\",\"value\":\"{}\"}}\n", "v".repeat(100))
    };
    (from..from + 100).map(line).collect()
}

fn signal(child: &std::process::Child, name: &str) {
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
}

#[test]
fn snapshots_are_made_and_given_up_beside_the_owner() {
    let place = Workspace::new();
    let mut server = served(&place);
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    assert!(atoll(&place, &["store", "snapshot", "create", "monday"]).text().starts_with("monday\tcommit "));
    let taken = atoll(&place, &["store", "snapshot", "create", "monday"]);
    assert!(taken.fails(11).contains("there is a snapshot \"monday\" already"), "{}", taken.stderr);
    let listed = atoll(&place, &["store", "snapshot", "list"]);
    let listed = lines(&listed);
    assert!(listed.len() == 2 && listed[0] == "snapshot  commit", "{listed:?}");
    assert!(listed[1].starts_with("monday    "), "{listed:?}");
    atoll(&place, &["store", "snapshot", "delete", "monday"]).text();
    assert_eq!(atoll(&place, &["store", "snapshot", "list"]).text(), "");
    let absent = atoll(&place, &["store", "snapshot", "delete", "monday"]);
    assert!(absent.fails(10).contains("store snapshot list"), "{}", absent.stderr);
    signal(&server, "-INT");
    assert!(server.wait().unwrap().success());
}

#[test]
fn an_owner_that_is_suspended_keeps_no_reader_waiting_and_is_named_to_writers() {
    let place = Workspace::new();
    let mut server = served(&place);
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    signal(&server, "-STOP");
    assert_eq!(atoll(&place, &["kv", "get", "p", "s"]).text(), "v");
    let refused = atoll(&place, &["kv", "put", "p", "s", "w"]);
    let (pid, wake) = (format!("process {}", server.id()), format!("`kill -CONT {}`", server.id()));
    let told = refused.fails(16);
    assert!(told.contains(&pid) && told.contains(&wake), "{told}");
    signal(&server, "-CONT");
    atoll(&place, &["kv", "put", "p", "s", "w"]).text();
    assert_eq!(atoll(&place, &["kv", "get", "p", "s"]).text(), "w");
    signal(&server, "-INT");
    assert!(server.wait().unwrap().success());
}

#[test]
fn an_owner_that_is_another_users_is_not_looked_for_on_another_machine() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED [other-user] nobody else can be played here");
        return;
    }
    let place = Workspace::new();
    let mut server = served(&place);
    for (name, mode) in [(".", 0o755), ("data", 0o777), ("data/store.atoll", 0o666), ("data/lock", 0o666)] {
        set_rights(&place, name, mode);
    }
    let refused = unprivileged(&place, &["--store", "data", "kv", "put", "p", "s", "w"]);
    let told = refused.fails(16);
    assert!(told.contains(&format!("process {} belongs to another user", server.id())), "{told}");
    assert!(!told.contains("run on "), "{told}");
    signal(&server, "-INT");
    assert!(server.wait().unwrap().success());
}

#[test]
fn attached_processes_learn_that_the_owner_is_suspended() {
    let place = Workspace::new();
    let mut server = served(&place);
    let verb = ["--store", "data", "kv", "import", "-", "--format", "jsonl", "--progress", "json"];
    let mut import = place.spawn(&[&verb[..], &["--set", "import.window=1KiB"]].concat());
    let mut input = import.stdin.take().unwrap();
    let mut told = BufReader::new(import.stderr.take().unwrap()).lines();
    input.write_all(cells(0).as_bytes()).unwrap();
    assert!(told.next().unwrap().unwrap().contains("progress"));
    signal(&server, "-STOP");
    input.write_all(cells(100).as_bytes()).unwrap();
    let word = format!("pid={}", server.id());
    let of_owner = told.by_ref().map(Result::unwrap).find(|line| line.contains("is suspended"));
    assert!(of_owner.as_ref().is_some_and(|line| line.contains(&word)), "{of_owner:?}");
    signal(&server, "-CONT");
    drop(input);
    assert!(import.wait().unwrap().success());
    assert_eq!(atoll(&place, &["kv", "scan", "p", "--keys-only"]).text().lines().count(), 200);
    signal(&server, "-INT");
    assert!(server.wait().unwrap().success());
}

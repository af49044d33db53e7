//! Verbs on a store in a folder: what one process writes, another reads, whatever happened in between.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

#[path = "folder/copies.rs"]
mod copies;
#[path = "folder/damaged.rs"]
mod damaged;
#[path = "folder/shared.rs"]
mod shared;
mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use support::{Answer, Workspace};

/// Runs the program on the store of this folder.
fn atoll(place: &Workspace, arguments: &[&str]) -> Answer {
    place.run(&[&["--store", "data"], arguments].concat())
}

fn lines(answer: &Answer) -> Vec<&str> {
    answer.text().lines().collect()
}

/// Starts a server for the store of this folder, and waits until it serves.
fn served(place: &Workspace) -> std::process::Child {
    let mut server = place.spawn(&["serve", "--store", "data"]);
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("serving"), "{line}");
    server
}

#[test]
fn cells_written_by_one_process_are_read_by_the_next() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "stations", "KJFK", "New York"]).text();
    atoll(&place, &["kv", "put", "stations", "KLGA", "LaGuardia"]).text();
    atoll(&place, &["kv", "append", "stations", "KJFK", ", NY"]).text();
    assert_eq!(atoll(&place, &["kv", "get", "stations", "KJFK"]).text(), "New York, NY");
    assert_eq!(
        atoll(&place, &["kv", "get", "stations", "KJFK", "--offset", "4", "--length", "4"]).text(),
        "York"
    );
    assert_eq!(atoll(&place, &["ls"]).text(), "stations\n");
    assert_eq!(lines(&atoll(&place, &["ls", "stations"])), ["KJFK\t12", "KLGA\t9"]);
    assert_eq!(
        lines(&atoll(&place, &["kv", "scan", "stations", "--reverse", "--limit", "1"])),
        ["KLGA\tLaGuardia"]
    );
    atoll(&place, &["kv", "delete", "stations", "KJFK"]).text();
    atoll(&place, &["kv", "get", "stations", "KJFK"]).fails(10);
    for empty in ["--prefix", "--from"] {
        let refused = atoll(&place, &["kv", "delete", "stations", empty, ""]);
        assert!(refused.fails(2).contains("hint: --all removes them"), "{}", refused.stderr);
    }
    assert_eq!(atoll(&place, &["ls"]).text(), "stations\n");
    atoll(&place, &["kv", "delete", "stations", "--all"]).text();
    assert_eq!(atoll(&place, &["ls"]).text(), "");
}

#[test]
fn compare_and_swap_tells_what_it_found() {
    let place = Workspace::new();
    atoll(&place, &["kv", "cas", "p", "s", "-1", "--expect-absent"]).text();
    let conflict = atoll(&place, &["kv", "cas", "p", "s", "2", "--expect", "7"]);
    assert!(conflict.fails(11).contains("found: \"-1\""), "{}", conflict.stderr);
    atoll(&place, &["kv", "cas", "p", "s", "2", "--expect", "-1"]).text();
    assert_eq!(atoll(&place, &["kv", "get", "p", "s"]).text(), "2");
}

#[test]
fn binary_keys_and_values_survive_every_encoding() {
    let place = Workspace::new();
    let all: Vec<u8> = (0..=255).collect();
    let arguments = ["--store", "data", "kv", "put", "--escaped", "\\x00\\xff", "", "-"];
    assert_eq!(place.run_with(&arguments, &all).exit, Some(0));
    assert_eq!(atoll(&place, &["kv", "get", "--hex", "00ff", ""]).text().len(), 513);
    assert_eq!(atoll(&place, &["kv", "get", "--escaped", "\\x00\\xff", ""]).exit, Some(0));
    let raw = atoll(&place, &["kv", "scan", "--base64", "AP8="]);
    assert!(raw.text().starts_with("\tAAEC"), "{}", raw.text());
    let json = atoll(&place, &["--json", "ls"]).json();
    assert_eq!(json["partition_base64"], "AP8=");
}

#[test]
fn looking_at_a_store_that_is_not_there_makes_no_folder() {
    let place = Workspace::new();
    for verb in [
        &["ls"][..],
        &["kv", "get", "p", "s"],
        &["kv", "scan", "p"],
        &["kv", "delete", "p", "s"],
        &["kv", "export", "x.jsonl"],
        &["store", "info"],
        &["store", "check"],
        &["store", "stats"],
        &["store", "snapshot", "list"],
    ] {
        atoll(&place, verb).fails(10);
        assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 0, "{verb:?} left something");
    }
}

#[test]
fn reading_verbs_change_not_a_byte() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    let before = snapshot_of(&place.folder.path().join("data"));
    for verb in [&["ls"][..], &["kv", "get", "p", "s"], &["kv", "scan", "p"], &["store", "info"]] {
        atoll(&place, verb).text();
        assert_eq!(snapshot_of(&place.folder.path().join("data")), before, "{verb:?} changed the folder");
    }
}

/// Names and contents of a folder.
fn snapshot_of(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut files: Vec<_> =
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn a_table_goes_in_and_out_in_every_format() {
    let place = Workspace::new();
    let rows: String = (0..500).map(|at| format!("UA,{},{at:03},\"{at},x\"\n", at % 7)).collect();
    place.write("flights.csv", format!("carrier,flight,hour,note\n{rows}"));
    let import =
        ["kv", "import", "flights.csv", "--partition-columns", "carrier,flight", "--sort-column", "hour"];
    let imported = atoll(&place, &[&import[..], &["--value-columns", "note", "--json"]].concat()).json();
    assert_eq!(imported["records"], 500);
    assert_eq!(atoll(&place, &["kv", "get", "UA/3", "010"]).text(), "10,x");
    for name in ["out.jsonl", "out.csv", "out.atoll"] {
        assert!(atoll(&place, &["kv", "export", name]).text().contains("500 records of 7 partitions"));
        place.run(&["--store", name.split('.').nth(1).unwrap(), "kv", "import", name]).text();
        let again = place.run(&[
            "--store",
            name.split('.').nth(1).unwrap(),
            "kv",
            "export",
            "-",
            "--format",
            "jsonl",
        ]);
        assert_eq!(sorted(&again.stdout), sorted(&place.read("out.jsonl")), "{name}");
    }
    let exists = atoll(&place, &["kv", "export", "out.csv"]);
    assert!(exists.fails(11).contains("--force"), "{}", exists.stderr);
}

fn sorted(text: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    lines.sort_unstable();
    lines
}

#[test]
fn an_import_killed_in_the_middle_goes_on_and_doubles_nothing() {
    let place = Workspace::new();
    let source: String = (0..20_000)
        .map(|at| {
            format!("{{\"partition\":\"p{}\",\"sort\":\"{at:06}\",\"value\":\"value {at}\"}}\n", at % 5)
        })
        .collect();
    place.write("cells.jsonl", &source);
    let import = ["--store", "data", "kv", "import", "cells.jsonl", "--set", "import.window=16KiB"];
    let mut child = place.spawn(&[&import[..], &["--progress", "json"]].concat());
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    for _ in 0..5 {
        line.clear();
        stderr.read_line(&mut line).unwrap();
    }
    child.kill().unwrap();
    // It may have come to its end before, but to no other one.
    let ended = child.wait().unwrap();
    assert!(ended.success() || ended.signal() == Some(9), "{ended}");
    let progress: serde_json::Value = serde_json::from_str(&line).unwrap();
    let acknowledged = progress["progress"]["records"].as_u64().unwrap();
    assert!(acknowledged > 0 && acknowledged < 20_000, "{line}");

    let resumed = place.run(&[&import[..], &["--json"]].concat()).json();
    let (before, after) = (resumed["records_before"].as_u64().unwrap(), resumed["records"].as_u64().unwrap());
    assert!(before >= acknowledged, "{before} of {acknowledged} acknowledged records were kept");
    assert_eq!(before + after, 20_000);
    let exported = atoll(&place, &["kv", "export", "-", "--format", "jsonl"]);
    assert_eq!(sorted(&exported.stdout), sorted(source.as_bytes()));
}

#[test]
fn upkeep_checks_counts_keeps_and_copies() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    let report = atoll(&place, &["store", "check", "--json"]).json();
    assert_eq!(report["damage"].as_array().unwrap().len(), 0);
    assert!(!atoll(&place, &["store", "stats", "--json"]).json().as_object().unwrap().is_empty());
    atoll(&place, &["store", "snapshot", "create", "monday"]).text();
    atoll(&place, &["store", "snapshot", "create", "monday"]).fails(11);
    assert!(atoll(&place, &["store", "snapshot", "list"]).text().starts_with("snapshot  commit\nmonday  "));
    atoll(&place, &["store", "copy", "copy"]).text();
    assert_eq!(place.run(&["--store", "copy", "kv", "get", "p", "s"]).text(), "v");
    atoll(&place, &["store", "snapshot", "delete", "monday"]).text();
    atoll(&place, &["store", "snapshot", "delete", "monday"]).fails(10);
    assert_eq!(atoll(&place, &["store", "snapshot", "list"]).text(), "");
}

#[test]
fn an_upgrade_tells_the_format_and_a_newer_one_is_refused() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    let file = place.folder.path().join("data/store.atoll");
    let before = std::fs::read(&file).unwrap();
    assert_eq!(atoll(&place, &["store", "upgrade"]).text(), "format 1, features: none; nothing to do\n");
    let report = atoll(&place, &["store", "upgrade", "--json"]).json();
    assert_eq!((report["format"].as_u64(), report["changed"].as_bool()), (Some(1), Some(false)), "{report}");
    assert!(std::fs::read(&file).unwrap() == before);
    let mut newer = before;
    // The format number follows the magic of each of the two superblocks.
    for superblock in [0, 4096] {
        newer[superblock + 8..superblock + 12].copy_from_slice(&2_u32.to_le_bytes());
    }
    std::fs::write(&file, &newer).unwrap();
    for verb in [&["store", "upgrade"][..], &["kv", "put", "p", "s", "w"]] {
        let refused = atoll(&place, verb);
        assert!(refused.fails(21).contains("has format 2; this build reads up to 1"), "{}", refused.stderr);
    }
    assert!(std::fs::read(&file).unwrap() == newer);
}

#[test]
fn a_store_opened_for_reading_refuses_writes_and_stays_as_it_was() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    let before = snapshot_of(&place.folder.path().join("data"));
    let refused = place.run(&["--store", "file:data?mode=read", "kv", "put", "p", "s", "other"]);
    // The URL decides how the store is opened, whatever the verb would do.
    refused.fails(20);
    assert_eq!(snapshot_of(&place.folder.path().join("data")), before);
    place.run(&["--store", "file:elsewhere?create=no", "kv", "put", "p", "s", "v"]).fails(10);
    place.write("a-file", "precious");
    place.run(&["--store", "a-file", "kv", "put", "p", "s", "v"]).fails(12);
    assert_eq!(place.read("a-file"), b"precious");
}

#[test]
fn a_flag_that_does_not_exist_never_becomes_a_value() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "--durabilty"]).fails(2);
    atoll(&place, &["kv", "put", "p", "--durabilty", "v"]).fails(2);
    atoll(&place, &["kv", "put", "p", "s", "--", "--text"]).text();
    assert_eq!(atoll(&place, &["kv", "get", "p", "s"]).text(), "--text");
    atoll(&place, &["kv", "put", "p", "-1", "-2.5e3"]).text();
    assert_eq!(atoll(&place, &["kv", "get", "p", "-1"]).text(), "-2.5e3");
}

#[test]
fn listing_stops_at_its_limit() {
    let place = Workspace::new();
    for (partition, sort) in [("p", "1"), ("p", "2"), ("p", "3"), ("q", "1")] {
        atoll(&place, &["kv", "put", partition, sort, "v"]).text();
    }
    assert_eq!(lines(&atoll(&place, &["ls", "p", "--limit", "2"])), ["1\t1", "2\t1"]);
    assert_eq!(lines(&atoll(&place, &["ls", "--limit", "1"])).len(), 1);
}

#[test]
fn errors_about_snapshots_say_what_would_be_right() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    atoll(&place, &["store", "snapshot", "create", "monday"]).text();
    let taken = atoll(&place, &["store", "snapshot", "create", "monday"]);
    assert!(taken.fails(11).contains("there is a snapshot \"monday\" already"), "{}", taken.stderr);
    let absent = atoll(&place, &["store", "snapshot", "delete", "tuesday"]);
    assert!(absent.fails(10).contains("store snapshot list"), "{}", absent.stderr);
    atoll(&place, &["store", "snapshot", "create", ""]).fails(12);
    atoll(&place, &["store", "snapshot", "create", "two\nlines"]).fails(12);
}

#[test]
fn errors_about_impossible_paths_say_what_would_be_right() {
    let place = Workspace::new();
    let long = "x".repeat(300);
    let refused = place.run(&["--store", &long, "kv", "put", "p", "s", "v"]);
    assert!(refused.fails(16).contains("shorter path"), "{}", refused.stderr);
}

/// Runs the program as a user to whom file permissions apply: root drops its privileges.
fn unprivileged(place: &Workspace, arguments: &[&str]) -> Answer {
    use std::os::unix::process::CommandExt;
    let folder = place.folder.path();
    let program = folder.join("atoll");
    let mut command = place.command(arguments);
    if rustix::process::geteuid().is_root() {
        std::fs::copy(command.get_program(), &program).unwrap();
        command = std::process::Command::new(program);
        command.args(arguments).current_dir(folder).env_clear().uid(65534).gid(65534);
    }
    Answer::from(command.stdin(std::process::Stdio::null()).output().unwrap())
}

/// Lets other users read the folder, with these permissions on the store, and none on its lock.
fn give_others(place: &Workspace, store: u32) {
    for (name, mode) in [(".", 0o755), ("data", 0o755), ("data/store.atoll", store), ("data/lock", 0o000)] {
        set_rights(place, name, mode);
    }
}

fn set_rights(place: &Workspace, name: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    let rights = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(place.folder.path().join(name), rights).unwrap();
}

#[test]
fn a_user_without_access_to_the_lock_still_reads_the_store() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    give_others(&place, 0o444);
    assert_eq!(unprivileged(&place, &["--store", "data", "kv", "get", "p", "s"]).text(), "v");
    // First the other user's folder, then the file.
    for lock in [0o000, 0o666] {
        set_rights(&place, "data/lock", lock);
        let refused = unprivileged(&place, &["--store", "data", "kv", "put", "p", "s", "w"]);
        assert!(refused.fails(20).contains("may not be written to"), "{lock:o}: {}", refused.stderr);
        assert!(refused.stderr.contains("Permission denied"), "{lock:o}: {}", refused.stderr);
        assert!(refused.stderr.contains("`ls -l` shows who may"), "{lock:o}: {}", refused.stderr);
    }
}

#[test]
fn an_export_of_everything_tells_that_tables_are_not_in_it() {
    let place = Workspace::new();
    atoll(&place, &["table", "create", "t", "--column", "a:int64", "--id", "a", "--index", "a"]).text();
    let told = atoll(&place, &["kv", "export", "cells.atoll"]);
    assert!(told.text().starts_with("exported 0 records"), "{}", told.text());
    assert!(told.stderr.contains("1 table is not in it"), "{}", told.stderr);
    assert_eq!(atoll(&place, &["kv", "export", "again.atoll", "--json"]).json()["tables_left_out"], 1);
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    let one = atoll(&place, &["kv", "export", "one.atoll"]);
    assert!(one.text().starts_with("exported 1 record of 1 partition, "), "{}", one.text());
    let some = atoll(&place, &["kv", "export", "some.atoll", "--prefix", "x"]);
    assert!(!some.stderr.contains("tables"), "{}", some.stderr);
}

#[test]
fn a_limit_of_the_size_of_files_refuses_what_is_larger_and_loses_nothing() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    let cells: String = (0..40)
        .map(|at| {
            format!("{{\"partition\":\"p{at}\",\"sort\":\"s\",\"value\":\"{}\"}}\n", "x".repeat(1 << 20))
        })
        .collect();
    place.write("cells.jsonl", cells);
    let program = place.command(&[]).get_program().to_owned();
    let mut limited = std::process::Command::new("bash");
    limited.args(["-c", "ulimit -f 16384; exec \"$0\" --store data kv import cells.jsonl"]).arg(program);
    let refused = Answer::from(limited.current_dir(place.folder.path()).output().unwrap());
    assert!(refused.fails(19).contains("ulimit"), "{}", refused.stderr);
    assert_eq!(atoll(&place, &["kv", "get", "p", "s"]).text(), "v");
    atoll(&place, &["kv", "import", "cells.jsonl"]).text();
}

#[test]
fn an_unreadable_store_is_not_reported_as_read_only() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    give_others(&place, 0o000);
    let refused = unprivileged(&place, &["--store", "data", "kv", "get", "p", "s"]);
    assert!(refused.fails(15).contains("who may read"), "{}", refused.stderr);
}

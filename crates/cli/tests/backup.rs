//! Backups: changes are copied, an interrupted backup leaves a folder that is recognised as unfinished, and
//! the next backup completes it.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use support::{Answer, Workspace};

fn atoll(place: &Workspace, arguments: &[&str]) -> Answer {
    place.run(&[&["--store", "data"], arguments].concat())
}

fn backup(place: &Workspace, to: &str) -> serde_json::Value {
    atoll(place, &["store", "backup", to, "--json"]).json()
}

/// Cells `from..to` with values of `bytes` bytes, as JSON lines for an import.
fn cells(from: usize, to: usize, fill: char, bytes: usize) -> String {
    let value = fill.to_string().repeat(bytes);
    (from..to)
        .map(|at| format!("{{\"partition\":\"p{}\",\"sort\":\"{at:06}\",\"value\":\"{value}\"}}\n", at % 3))
        .collect()
}

fn import(place: &Workspace, cells: &str) {
    place.write("cells.jsonl", cells);
    atoll(place, &["kv", "import", "cells.jsonl"]).text();
}

/// All cells of a store, in order.
fn content(place: &Workspace, store: &str) -> Vec<String> {
    let exported = place.run(&["--store", store, "kv", "export", "-", "--format", "jsonl"]);
    let mut lines: Vec<String> = exported.text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The snapshots that the store keeps for backups.
fn kept(place: &Workspace) -> Vec<String> {
    let listed = atoll(place, &["store", "snapshot", "list", "--json"]).json_lines();
    let names = listed.iter().filter_map(|snapshot| snapshot["name"].as_str());
    names.filter(|name| name.starts_with("backup-")).map(str::to_owned).collect()
}

fn served(place: &Workspace, store: &str) -> Child {
    let mut owner = place.spawn(&["serve", "--store", store]);
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    owner
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_first_backup_copies_everything_and_the_next_what_changed() {
    let place = Workspace::new();
    import(&place, &cells(0, 6000, 'a', 1000));
    let first = backup(&place, "safe");
    assert_eq!(
        (first["cells"].as_u64(), first["cells_written"].as_u64()),
        (Some(6000), Some(6000)),
        "{first}"
    );
    assert!(first["since"].is_null() && first["bytes"].as_u64().unwrap() > 6_000_000, "{first}");
    assert_eq!(content(&place, "safe"), content(&place, "data"));

    import(&place, &cells(100, 110, 'b', 1000));
    atoll(&place, &["kv", "delete", "p0", "000300"]).text();
    let second = backup(&place, "safe");
    let counts = ["cells", "cells_written", "cells_deleted"].map(|name| second[name].as_u64().unwrap());
    assert_eq!(counts, [5999, 10, 1], "{second}");
    assert!(second["bytes"].as_u64().unwrap() < 11 * 1100, "{second}");
    assert_eq!(second["since"], first["sequence"]);
    assert_eq!(content(&place, "safe"), content(&place, "data"));

    let third = backup(&place, "safe");
    assert_eq!((third["bytes"].as_u64(), third["cells_written"].as_u64()), (Some(0), Some(0)), "{third}");
    assert_eq!(kept(&place).len(), 1, "one state is kept for one backup");
    let report = place.run(&["--store", "safe", "store", "check", "--json"]).json();
    assert!(report["damage"].as_array().unwrap().is_empty(), "{report}");
    let told = atoll(&place, &["store", "backup", "safe"]);
    assert!(told.text().starts_with("copied 0 of 5999 cells, 0 bytes, in "), "{}", told.text());
}

#[test]
fn each_of_several_backups_takes_over_what_changed_since_it_was_made() {
    let place = Workspace::new();
    import(&place, &cells(0, 500, 'a', 100));
    backup(&place, "often");
    backup(&place, "seldom");
    for round in 1..4 {
        import(&place, &cells(round * 10, round * 10 + 10, 'b', 100));
        assert_eq!(backup(&place, "often")["cells_written"], 10);
    }
    assert_eq!(backup(&place, "seldom")["cells_written"], 30);
    assert_eq!(kept(&place).len(), 2);
    for folder in ["often", "seldom"] {
        assert_eq!(content(&place, folder), content(&place, "data"));
    }
}

#[test]
fn a_backup_beside_the_owner_while_it_is_written_to_is_the_state_of_one_moment() {
    let place = Workspace::new();
    import(&place, &cells(0, 3000, 'a', 300));
    let owner = served(&place, "data");
    backup(&place, "safe");
    let mut writer = place.spawn(&["--store", "data", "kv", "import", "-", "--format", "jsonl"]);
    let mut input = writer.stdin.take().unwrap();
    let (go, begin) = std::sync::mpsc::channel::<char>();
    let feeder = std::thread::spawn(move || {
        // Each time the writer is busy for about as long as a backup takes.
        begin.iter().for_each(|fill| input.write_all(cells(1000, 20_000, fill, 300).as_bytes()).unwrap());
    });
    let mut written = 0;
    for fill in 'b'..'g' {
        go.send(fill).unwrap();
        let report = backup(&place, "safe");
        written += report["cells_written"].as_u64().unwrap();
        let copy = format!("copy-{fill}");
        atoll(&place, &["store", "copy", &copy, "--snapshot", &kept(&place)[0]]).text();
        assert!(content(&place, "safe") == content(&place, &copy), "it is what the store kept for it");
    }
    drop(go);
    feeder.join().unwrap();
    assert!(writer.wait().unwrap().success());
    assert!(written > 0, "no backup met a writer");
    backup(&place, "safe");
    assert!(content(&place, "safe") == content(&place, "data"));
    assert_eq!(content(&place, "safe").len(), 20_000);
    end(owner);
}

/// Starts a backup into `safe` and kills it once `is_time`, which gets the number of bytes written; false if
/// the backup ended first.
fn killed(place: &Workspace, is_time: impl Fn(u64) -> bool) -> bool {
    let mut running = place.spawn(&["--store", "data", "store", "backup", "safe"]);
    while !is_time(written(&running)) {
        if running.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    end(running);
    true
}

/// Bytes that a process has written so far; the maximum if the system does not report it.
fn written(process: &Child) -> u64 {
    let Ok(told) = std::fs::read_to_string(format!("/proc/{}/io", process.id())) else { return u64::MAX };
    let line = told.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.map_or(u64::MAX, |bytes| bytes.parse().unwrap())
}

fn length(place: &Workspace, name: &str) -> u64 {
    std::fs::metadata(place.folder.path().join(name)).map_or(0, |file| file.len())
}

#[test]
fn a_first_backup_that_is_killed_leaves_no_store_and_the_next_one_is_whole() {
    let place = Workspace::new();
    import(&place, &cells(0, 12_000, 'a', 3000));
    // A backup that completed before it could be killed is not a first one any more.
    let is_killed = (0..20).any(|_| {
        let _ = std::fs::remove_dir_all(place.folder.path().join("safe"));
        killed(&place, |bytes| length(&place, "safe/store.atoll.part") > 0 && bytes > 4 << 20)
    });
    assert!(is_killed, "20 backups were whole before they could be killed");
    for verb in [&["kv", "get", "p0", "000000"][..], &["kv", "put", "p", "s", "v"], &["store", "check"]] {
        let refused = place.run(&[&["--store", "safe"], verb].concat());
        assert!(refused.fails(16).contains("a backup into safe was not finished"), "{}", refused.stderr);
    }
    place.run(&["--store", "safe", "store", "copy", "none"]).fails(16);
    backup(&place, "safe");
    assert_eq!(content(&place, "safe"), content(&place, "data"));
    assert_eq!(kept(&place).len(), 1, "what the killed one had kept is let go");
}

#[test]
fn a_backup_that_is_killed_holds_the_state_before_or_says_so_and_the_next_completes_it() {
    let place = Workspace::new();
    import(&place, &cells(0, 12_000, 'a', 1000));
    backup(&place, "safe");
    let unfinished = "safe/store.atoll.unfinished";
    let (mut before, mut kills, mut told) = (content(&place, "safe"), 0, 0);
    for (round, megabytes) in [0, 6, 8, 5, 3, 0].into_iter().enumerate() {
        let fill = char::from(b'b' + round as u8);
        import(&place, &cells(2000 * round, 12_000 + 100 * round, fill, 2000));
        atoll(&place, &["kv", "delete", "p0", "--all"]).text();
        let now = content(&place, "data");
        let is_time = |bytes| length(&place, unfinished) > 0 && bytes >= megabytes << 20;
        kills += u32::from(killed(&place, is_time));
        if length(&place, "safe/store.atoll") > 0 {
            let held = content(&place, "safe");
            assert!(held == before || held == now, "round {round}: a mixture");
        } else {
            told += 1;
            for verb in [&["ls"][..], &["kv", "put", "p", "s", "v"]] {
                place.run(&[&["--store", "safe"], verb].concat()).fails(16);
            }
            let copy = format!("before-{round}");
            let copied = place.run(&["--store", "safe", "store", "copy", &copy]);
            assert!(copied.stderr.contains("was not finished"), "{}", copied.stderr);
            let held = content(&place, &copy);
            assert!(held == before || held == now, "round {round}: the last complete state is not that");
        }
        if round % 2 == 0 {
            // Changes before the next attempt, among them cells whose change was under way, back to their
            // earlier values.
            import(&place, &cells(0, 3000, 'a', 1000));
        }
        backup(&place, "safe");
        before = content(&place, "safe");
        assert!(before == content(&place, "data"), "round {round}: the completed backup is the store");
        assert_eq!(kept(&place).len(), 1, "round {round}");
    }
    assert!(kills >= 3 && told >= 2, "{kills} killed, {told} of them said so");
    let report = place.run(&["--store", "safe", "store", "check", "--json"]).json();
    assert!(report["damage"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn a_backup_into_which_somebody_wrote_is_refused_and_made_anew_when_asked() {
    let place = Workspace::new();
    import(&place, &cells(0, 300, 'a', 100));
    backup(&place, "safe");
    // Reading it and creating snapshots in it do not count as writes.
    place.run(&["--store", "safe", "store", "snapshot", "create", "mine"]).text();
    backup(&place, "safe");
    place.run(&["--store", "safe", "kv", "put", "p0", "000000", "by hand"]).text();
    let refused = atoll(&place, &["store", "backup", "safe"]);
    assert!(refused.fails(12).contains("something was written to it"), "{}", refused.stderr);
    assert_eq!(place.run(&["--store", "safe", "kv", "get", "p0", "000000"]).text(), "by hand");
    let full = atoll(&place, &["store", "backup", "safe", "--full", "--json"]).json();
    assert_eq!((full["cells_written"].as_u64(), full["since"].is_null()), (Some(300), true), "{full}");
    assert_eq!(content(&place, "safe"), content(&place, "data"));
    assert_eq!(kept(&place).len(), 1);
    assert_eq!(backup(&place, "safe")["cells_written"], 0);
}

#[test]
fn a_folder_that_is_no_backup_of_this_store_is_refused_and_left_as_it_was() {
    let place = Workspace::new();
    import(&place, &cells(0, 300, 'a', 100));
    let refuse = |arguments: &[&str], problem: &str| {
        let refused = atoll(&place, &[&["store", "backup"], arguments].concat());
        assert!(refused.fails(12).contains(problem), "{}", refused.stderr);
    };
    refuse(&["data"], "it is the store itself");
    place.run(&["--store", "other", "kv", "put", "p", "s", "v"]).text();
    for flags in [&["other"][..], &["other", "--full"]] {
        refuse(flags, "a store, not a backup");
    }
    assert_eq!(place.run(&["--store", "other", "kv", "get", "p", "s"]).text(), "v");
    place.run(&["--store", "other", "store", "backup", "theirs"]).text();
    refuse(&["theirs"], "a backup of another store");
    std::fs::create_dir(place.folder.path().join("papers")).unwrap();
    place.write("papers/thesis.tex", "precious");
    refuse(&["papers"], "it holds other files");
    // A copy of a backup is an ordinary store.
    backup(&place, "safe");
    place.run(&["--store", "safe", "store", "copy", "restored"]).text();
    refuse(&["restored"], "a store, not a backup");
    assert_eq!(content(&place, "restored"), content(&place, "data"));
    let reader = served(&place, "safe");
    refuse(&["safe"], "has it open");
    end(reader);
    backup(&place, "safe");
    assert_eq!(kept(&place).len(), 1);
}

#[test]
fn a_store_that_was_restored_from_something_older_does_not_go_on_with_a_later_backup() {
    let place = Workspace::new();
    import(&place, &cells(0, 300, 'a', 100));
    backup(&place, "safe");
    let file = place.folder.path().join("data/store.atoll");
    std::fs::copy(&file, place.folder.path().join("old")).unwrap();
    import(&place, &cells(0, 100, 'b', 100));
    backup(&place, "safe");
    let before = content(&place, "safe");
    std::fs::copy(place.folder.path().join("old"), &file).unwrap();
    let refused = atoll(&place, &["store", "backup", "safe"]);
    assert!(refused.fails(12).contains("does not know the state that it holds"), "{}", refused.stderr);
    assert_eq!(content(&place, "safe"), before);
    atoll(&place, &["store", "backup", "safe", "--full"]).text();
    assert_eq!(content(&place, "safe"), content(&place, "data"));
    assert_eq!(kept(&place).len(), 1);
}

//! Full disks: the outcome that a verb reports is what happened.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::Path;
use std::process::Command;
use support::Workspace;

/// Fills a small file system with an import and then appends; prints the exit code of each append, and the
/// value.
const SCRIPT: &str = r#"
mount -t tmpfs -o size=40m tmpfs "$PWD" || exit 99
cd "$PWD"
"$0" --store s kv put p n 0 >&2
"$0" --store s kv import "$1" >&2 && echo imported
for _ in 1 2 3; do "$0" --store s kv append p n X >&2; echo $?; done
"$0" --store s kv get p n
"#;

/// Standard output and error of a script in a small file system that it mounts; none if mounting is not
/// possible.
#[expect(clippy::print_stdout, reason = "what is skipped is told")]
fn on_a_small_disk(place: &Workspace, script: &str, argument: &Path) -> Option<(String, String)> {
    let folder = place.folder.path().join("small");
    std::fs::create_dir(&folder).unwrap();
    let mut small = Command::new("unshare");
    small.args(["-rm", "sh", "-c", script]).arg(place.command(&[]).get_program()).arg(argument);
    let told = small.current_dir(folder).output().unwrap();
    if told.status.code() == Some(99) || !told.status.success() && told.stdout.is_empty() {
        println!("SKIPPED [mount] a small file system cannot be made here");
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&told.stdout), text(&told.stderr)))
}

#[test]
fn a_write_that_is_refused_on_a_full_disk_was_not_done_and_one_that_was_done_is_not_refused() {
    let place = Workspace::new();
    let cells: String = (0..600_000)
        .map(|at| format!("{{\"partition\":\"p{}\",\"sort\":\"{at:07}\",\"value\":\"{at:060}\"}}\n", at % 10))
        .collect();
    place.write("cells.jsonl", cells);
    let cells = place.folder.path().join("cells.jsonl");
    let Some((text, errors)) = on_a_small_disk(&place, SCRIPT, &cells) else { return };
    let mut lines = text.lines();
    let codes: Vec<_> = lines.by_ref().take(3).collect();
    let value = lines.next().unwrap_or_else(|| panic!("{text}\n{errors}"));
    assert!(codes.iter().all(|code| ["0", "19"].contains(code)), "{codes:?}\n{errors}");
    let done = codes.iter().filter(|code| **code == "0").count();
    assert_eq!(value, format!("0{}", "X".repeat(done)), "{codes:?}\n{errors}");
}

/// Copies a table to a small file system where it does not fit, and then drops what was copied.
const COPY: &str = r#"
mount -t tmpfs -o size=40m tmpfs "$PWD" || exit 99
cd "$PWD"
"$0" --store "$1" table copy t --to "$PWD/s" >&2; echo $?
"$0" --store s table list --json; echo $?
"$0" --store s table copy t --as u >&2; echo $?
"$0" --store s table drop t >&2; echo $?
"$0" --store s table drop t >&2; echo $?
"#;

#[test]
fn a_copy_that_finds_no_room_is_no_table_and_can_be_dropped() {
    let place = Workspace::new();
    let mut random = fastrand::Rng::with_seed(1);
    let text = |random: &mut fastrand::Rng| -> String { (0..1_500).map(|_| random.alphanumeric()).collect() };
    let rows: String = (0..40_000).map(|row| format!("{row},{}\n", text(&mut random))).collect();
    place.write("t.csv", format!("id,text\n{rows}"));
    let data = place.folder.path().join("data");
    let data = data.to_str().unwrap();
    place
        .run(&[
            "--store",
            data,
            "table",
            "create",
            "t",
            "--column",
            "id:int64,text:utf8",
            "--id",
            "id",
            "--index",
            "id",
        ])
        .text();
    place.run(&["--store", data, "table", "import", "t", "t.csv"]).text();
    let Some((codes, errors)) = on_a_small_disk(&place, COPY, Path::new(data)) else { return };
    // No space; not listed; unfinished, so it cannot be opened; dropped; missing.
    assert_eq!(codes.split_whitespace().collect::<Vec<_>>(), ["19", "0", "11", "0", "10"], "{errors}");
}

/// Copies a store to a small file system where it does not fit: into an existing folder, and into a new one.
const STORE_COPY: &str = r#"
mount -t tmpfs -o size=4m tmpfs "$PWD" || exit 99
cd "$PWD"
mkdir there
for folder in there new; do "$0" --store "$1" store copy "$folder" >&2; echo $?; done
ls
"#;

#[test]
fn a_copy_of_a_store_that_finds_no_room_leaves_nothing() {
    let place = Workspace::new();
    let cells: String = (0..60_000)
        .map(|at| format!("{{\"partition\":\"p\",\"sort\":\"{at:07}\",\"value\":\"{at:0100}\"}}\n"))
        .collect();
    place.write("cells.jsonl", cells);
    place.run(&["--store", "data", "kv", "import", "cells.jsonl"]).text();
    let data = place.folder.path().join("data");
    let Some((text, errors)) = on_a_small_disk(&place, STORE_COPY, &data) else { return };
    assert_eq!(text.lines().collect::<Vec<_>>(), ["19", "19", "there"], "{errors}");
}

#[test]
fn a_change_whose_result_cannot_be_printed_is_not_reported_as_something_to_try_again() {
    let place = Workspace::new();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = |words: &[&str]| {
        let all = [&["--json", "--store", "s"], words].concat();
        let ended = place.command(&all).stdout(full()).spawn().unwrap().wait_with_output().unwrap();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    place.write("cells.jsonl", "{\"partition\":\"q\",\"sort\":\"s\",\"value\":\"v\"}\n");
    for words in
        [&["kv", "append", "p", "n", "X"][..], &["kv", "import", "cells.jsonl"], &["store", "copy", "t"]]
    {
        let (exit, told) = run(words);
        assert_eq!(exit, Some(17), "{words:?}: {told}");
        assert!(told.contains("it was done") && told.contains("do not repeat it"), "{words:?}: {told}");
        assert!(!told.contains("try again"), "{words:?}: {told}");
    }
    assert_eq!(place.run(&["--store", "s", "kv", "get", "p", "n"]).text(), "X");
    // A verb that only reads can be repeated.
    let (exit, told) = run(&["kv", "get", "p", "n"]);
    assert_eq!(exit, Some(19), "{told}");
    assert!(told.contains("try again"), "{told}");
}

//! Copies of a store in a folder: beside its owner, of a snapshot, and interrupted ones.

use crate::support::Workspace;
use crate::{atoll, sorted};
use std::io::{BufRead, BufReader};

#[test]
fn an_interrupted_copy_is_reported_as_one_and_the_same_command_completes_it() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    std::fs::create_dir(place.folder.path().join("there")).unwrap();
    place.write("there/store.atoll.copy", "what was written until then");
    for verb in [&["kv", "get", "p", "s"][..], &["kv", "put", "p", "s", "w"], &["store", "copy", "elsewhere"]]
    {
        let told = place.run(&[&["--store", "there"], verb].concat());
        assert!(told.fails(16).contains("a copy into there was not finished"), "{}", told.stderr);
        assert!(told.stderr.contains("store copy") && !told.stderr.contains("backup"), "{}", told.stderr);
    }
    let other = std::fs::File::open(place.folder.path().join("there/store.atoll.copy")).unwrap();
    other.lock().unwrap();
    let held = atoll(&place, &["store", "copy", "there"]);
    assert!(held.fails(16).contains("another copy"), "{}", held.stderr);
    drop(other);
    atoll(&place, &["store", "copy", "there"]).text();
    assert_eq!(place.run(&["--store", "there", "kv", "get", "p", "s"]).text(), "v");
    atoll(&place, &["store", "copy", "there"]).fails(12);
}

#[test]
fn a_copy_beside_a_live_owner_is_one_consistent_state() {
    let place = Workspace::new();
    let source: String = (0..3000)
        .map(|at| {
            format!(
                "{{\"partition\":\"p{}\",\"sort\":\"{at:06}\",\"value\":\"{}\"}}\n",
                at % 5,
                "v".repeat(4000)
            )
        })
        .collect();
    place.write("cells.jsonl", &source);
    atoll(&place, &["kv", "import", "cells.jsonl"]).text();
    let mut owner = place.spawn(&["serve", "--store", "data"]);
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    atoll(&place, &["kv", "put", "late", "", "but acknowledged"]).text();

    let report = atoll(&place, &["store", "check", "--json"]).json();
    assert_eq!(
        (report["damage"].as_array().unwrap().len(), report["cells"].as_u64().unwrap() >= 3000),
        (0, true)
    );
    let copied = atoll(&place, &["store", "copy", "there", "--json"]).json();
    assert!(copied["bytes"].as_u64().unwrap() > 12_000_000, "{copied}");
    atoll(&place, &["store", "copy", "there"]).fails(12);
    let exported = place.run(&["--store", "there", "kv", "export", "-", "--format", "jsonl"]);
    let late = "{\"partition\":\"late\",\"sort\":\"\",\"value\":\"but acknowledged\"}\n";
    assert_eq!(sorted(&exported.stdout), sorted((source + late).as_bytes()));
    owner.kill().unwrap();
    owner.wait().unwrap();
}

#[test]
fn a_copy_is_about_as_large_as_what_is_in_it() {
    let place = Workspace::new();
    let line = format!("{{\"partition\":\"p\",\"sort\":\"NUMBER\",\"value\":\"{}\"}}\n", "x".repeat(1000));
    let cells: String = (0..40_000).map(|number| line.replace("NUMBER", &format!("{number:08}"))).collect();
    place.write("cells.jsonl", cells);
    atoll(&place, &["kv", "import", "cells.jsonl"]).text();
    atoll(&place, &["store", "copy", "copy"]).text();
    let bytes = std::fs::metadata(place.folder.path().join("copy/store.atoll")).unwrap().len();
    assert!(bytes < 100 << 20, "{bytes} bytes for 40 MB of values");
}

#[test]
fn the_state_of_a_snapshot_is_read_from_a_copy_of_it() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "monday"]).text();
    atoll(&place, &["store", "snapshot", "create", "then"]).text();
    atoll(&place, &["kv", "put", "p", "s", "tuesday"]).text();
    atoll(&place, &["store", "copy", "old", "--snapshot", "then"]).text();
    assert_eq!(place.run(&["--store", "old", "kv", "get", "p", "s"]).text(), "monday");
    assert_eq!(atoll(&place, &["kv", "get", "p", "s"]).text(), "tuesday");
    let absent = atoll(&place, &["store", "copy", "older", "--snapshot", "never"]);
    assert!(absent.fails(10).contains("there is no snapshot \"never\""), "{}", absent.stderr);
    assert!(!place.folder.path().join("older").exists());
}

//! A store in a folder whose file is damaged, truncated or missing: what is refused, reported and saved.

use crate::support::Workspace;
use crate::{atoll, served};

#[test]
fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let place = Workspace::new();
    std::fs::create_dir(place.folder.path().join("data")).unwrap();
    let nonsense = "this is not a store ".repeat(1000);
    place.write("data/store.atoll", &nonsense);
    for verb in [&["kv", "put", "p", "s", "v"][..], &["kv", "get", "p", "s"], &["store", "check"]] {
        let refused = atoll(&place, verb);
        assert!([12, 18].contains(&refused.exit.unwrap()), "{verb:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
        assert_eq!(place.read("data/store.atoll"), nonsense.as_bytes(), "{verb:?}");
    }
}

#[test]
fn a_check_lists_damage_even_where_the_store_cannot_be_opened() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    let whole = place.read("data/store.atoll");
    place.write("data/store.atoll", &whole[..whole.len() / 2]);
    let checked = atoll(&place, &["store", "check", "--json"]);
    assert_eq!(checked.exit, Some(18), "{}", checked.stderr);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert!(!report["damage"].as_array().unwrap().is_empty(), "{report}");
    atoll(&place, &["store", "check"]).fails(18);
}

#[test]
fn of_a_file_that_was_copied_in_part_it_is_told_that_it_ends_too_early() {
    let place = Workspace::new();
    atoll(&place, &["kv", "put", "p", "s", "v"]).text();
    let values: Vec<String> = (0..40).map(|number| format!("{number:0>60000}")).collect();
    for (number, value) in values.iter().enumerate() {
        atoll(&place, &["kv", "put", "p", &number.to_string(), value]).text();
    }
    let whole = place.read("data/store.atoll");
    place.write("data/store.atoll", &whole[..200_000]);
    let check = atoll(&place, &["store", "check"]);
    let told = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(
        check.exit == Some(18) && told.contains("only a part of it was copied"),
        "{told}{}",
        check.stderr
    );
    for salvage in ["", "?mode=salvage"] {
        let store = format!("file:data{salvage}");
        let told = place.run(&["--store", &store, "ls"]);
        assert!(told.fails(18).contains("only a part of it was copied"), "{}", told.stderr);
    }
}

#[test]
fn a_check_tells_whose_the_damaged_bytes_are() {
    let place = Workspace::new();
    let mut rows = "id,x\n".to_owned();
    let mut random = fastrand::Rng::with_seed(7);
    (0..50_000).for_each(|id| rows += &format!("{id},{}\n", random.f64()));
    place.write("x.csv", rows);
    atoll(&place, &["table", "create", "t", "--like", "x.csv", "--id", "id", "--index", "x"]).text();
    atoll(&place, &["table", "import", "t", "x.csv", "--run", "r1"]).text();
    let value = "z".repeat(3000);
    atoll(&place, &["kv", "put", "p", "k", &value]).text();
    spoil(&place, &value[..1000]);
    let told = atoll(&place, &["store", "check"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("does not match its checksum; cell p k\n"), "{told}");
    let whole = place.read("data/store.atoll");
    // Most of the file is rows; where they lie is up to the engine.
    let found = (1..64).find_map(|part| {
        let mut spoiled = whole.clone();
        let at = whole.len() * part / 64;
        spoiled[at] ^= 1;
        place.write("data/store.atoll", spoiled);
        let told = atoll(&place, &["store", "check", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        let whose = report["damage"].as_array().unwrap().iter().filter_map(|damage| damage["whose"].as_str());
        whose.map(str::to_owned).find(|whose| whose.contains("table"))
    });
    assert_eq!(found.as_deref(), Some("50000 rows of table \"t\", run \"r1\", step 50000"));
}

#[test]
fn damaged_attributes_of_a_store_are_told_as_such_and_hide_nothing_else() {
    let place = Workspace::new();
    let value = "z".repeat(3000);
    atoll(&place, &["kv", "put", "p", "k", "v"]).text();
    atoll(&place, &["store", "attributes", &format!("note={value}")]).text();
    spoil(&place, &value[..1000]);
    let told = atoll(&place, &["store", "check"]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("does not match its checksum; the attributes of the store\n"), "{told}");
    let told = atoll(&place, &["store", "info"]);
    let (shown, last) = told.text().trim_end().rsplit_once('\n').unwrap();
    assert!(shown.contains("\nupkeep ") && last.starts_with("attributes  "), "{shown}\n{last}");
    let told = atoll(&place, &["store", "info", "--json"]).json();
    assert!(told["attributes"].is_null() && told["attributes_problem"].is_string(), "{told}");
    assert!(told["limits"]["value_bytes"].is_u64(), "{told}");
    atoll(&place, &["store", "attributes"]).fails(18);
}

/// Three cells, each synced, written by an owner that was killed; no checkpoint contains them.
fn killed_with_three_cells(place: &Workspace) {
    atoll(place, &["kv", "put", "old", "s", "before"]).text();
    let mut owner = served(place);
    for (sort, value) in [("a", "aaaaaaaaaaaaaaaa"), ("b", "bbbbbbbbbbbbbbbb"), ("c", "cccccccccccccccc")] {
        atoll(place, &["kv", "put", "p", sort, value, "--durability", "synced"]).text();
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
}

/// Flips a bit of a value in the file of the store.
fn spoil(place: &Workspace, value: &str) {
    let mut bytes = place.read("data/store.atoll");
    let at = bytes.windows(value.len()).position(|window| window == value.as_bytes()).unwrap();
    bytes[at] ^= 1;
    place.write("data/store.atoll", bytes);
}

#[test]
fn the_part_before_a_broken_log_can_be_saved_and_is_never_taken_for_the_whole() {
    let place = Workspace::new();
    killed_with_three_cells(&place);
    spoil(&place, "bbbbbbbbbbbbbbbb");
    atoll(&place, &["kv", "get", "p", "a"]).fails(18);
    assert!(atoll(&place, &["store", "check"]).fails(18).contains("mode=salvage"));
    let salvaged =
        |arguments: &[&str]| place.run(&[&["--store", "file:data?mode=salvage"], arguments].concat());
    let found = salvaged(&["kv", "get", "p", "a"]);
    assert_eq!(found.text(), "aaaaaaaaaaaaaaaa");
    assert!(found.stderr.contains("left out"), "{}", found.stderr);
    assert_eq!(salvaged(&["kv", "get", "old", "s"]).text(), "before");
    salvaged(&["kv", "get", "p", "c"]).fails(10);
    salvaged(&["kv", "put", "p", "d", "d"]).fails(20);
    salvaged(&["store", "check"]).fails(18);
    salvaged(&["kv", "export", "saved.jsonl"]).text();
    assert_eq!(
        place.read("saved.jsonl").split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(),
        2
    );
    // A plain open still fails, so no user continues there unknowingly.
    atoll(&place, &["kv", "put", "p", "d", "d"]).fails(18);
}

#[test]
fn a_check_tells_of_a_torn_end_that_was_left_out() {
    let place = Workspace::new();
    killed_with_three_cells(&place);
    assert!(atoll(&place, &["store", "check", "--json"]).json()["left_out"].is_null());
    // No later group proves that the last one was synced.
    spoil(&place, "cccccccccccccccc");
    let told = atoll(&place, &["store", "check", "--json"]).json();
    assert!(told["left_out"]["bytes"].as_u64().unwrap() > 16, "{told}");
    assert_eq!(told["damage"].as_array().unwrap().len(), 0);
}

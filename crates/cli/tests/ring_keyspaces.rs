//! Keyspaces of a ring of three processes, as operators and users see them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

#[allow(dead_code, reason = "other tests use more of it")]
mod support;
#[path = "support/ring.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod three;

use support::{Answer, Workspace, free_port};
use three::Ring;

#[test]
fn a_keyspace_has_copies_of_its_own_and_is_named_in_the_url() {
    let (place, port) = (Workspace::new(), free_port());
    let mut ring = Ring::start(&place, port, "flushed");
    // Failures here are told apart by their answers, so a busy machine may take long.
    let query = "token-file=ring/token&time-out=60s";
    let run = |keyspace: &str, words: &[&str]| {
        let store = format!("ring://127.0.0.1:{port}/{keyspace}?{query}");
        place.run(&[words, &["--store", &store]].concat())
    };
    let json = |words: &[&str]| -> serde_json::Value {
        serde_json::from_str(run("", &[words, &["--json"]].concat()).text()).unwrap()
    };
    let create = ["ring", "keyspace", "create"];
    let create = |more: &[&str]| run("", &[&create, more].concat());
    // How writes are made by default is not what a keyspace has for good.
    place.write("atoll.toml", "write.durability = \"synced\"\n");
    let made = create(&["scratch", "--copies", "1", "--latency-class", "50"]);
    std::fs::remove_file(place.folder.path().join("atoll.toml")).unwrap();
    assert_eq!(made.text().trim(), "keyspace scratch is there, as number 1");
    assert_eq!(create(&["scratch", "--copies", "1", "--latency-class", "50"]).exit, Some(0), "as it is");
    assert!(create(&["scratch", "--copies", "2"]).fails(11).contains("with other rules"));
    assert!(create(&["two words"]).fails(12).contains("letters, digits"));
    assert!(
        create(&["x", "--copies", "1", "--min-sync", "2"])
            .fails(12)
            .contains("in_sync_min cannot exceed copies")
    );
    assert_eq!(create(&["x", "--min-sync", "2"]).exit, Some(2));
    keys_lie_apart(&run);
    run("scratch", &["kv", "wait", "k1", "field", "--exists"]).text();
    let unknown = run("nothing", &["kv", "get", "k1", "field"]);
    assert!(unknown.fails(10).contains("there is no keyspace \"nothing\""));
    assert!(unknown.stderr.contains("atoll ring keyspace list"), "{}", unknown.stderr);
    // The state of the keyspaces.
    let listed = json(&["ring", "keyspace", "list"]);
    let scratch = &listed[1];
    assert_eq!(
        (scratch["name"].as_str(), scratch["copies"].as_u64()),
        (Some("scratch"), Some(1)),
        "{listed}"
    );
    assert_eq!((scratch["served"].as_u64(), scratch["latency_ms"].as_u64()), (Some(16384), Some(50)));
    assert_eq!((listed[0]["copies"].as_u64(), listed[0]["served"].as_u64()), (None, Some(16384)));
    let seen = run("", &["ring", "status"]);
    assert!(seen.text().contains("3 nodes, 32768 slots: all served"), "{}", seen.text());
    assert!(seen.text().contains("\n     1  scratch "), "{}", seen.text());
    let many = run("", &["ring", "keyspace", "create", "many", "--copies", "5"]);
    assert!(many.fails(2).contains("3 nodes are up"), "{}", many.stderr);
    assert_eq!(run("", &["ring", "keyspace", "list", "--json"]).json().as_array().unwrap().len(), 2);
    // One with a durability of its own takes writes that the flushed ones refuse.
    let made = create(&["safe", "--durability", "synced"]);
    assert_eq!(made.text().trim(), "keyspace safe is there, as number 2, with durability synced");
    assert!(create(&["safe"]).fails(11).contains("with other rules"));
    let listed = json(&["ring", "keyspace", "list"]);
    assert_eq!((listed[2]["durability"].as_str(), listed[1]["durability"].as_str()), (Some("synced"), None));
    run("safe", &["kv", "put", "k1", "field", "safe", "--durability", "synced"]).text();
    let refused = run("scratch", &["kv", "put", "k1", "field", "safe", "--durability", "synced"]);
    assert!(refused.stderr.contains("durability class synced"), "{}", refused.stderr);
    lose_the_only_copies(&mut ring, &run);
    ring.end();
}

/// Keys of one keyspace are in no other one, whichever node is asked.
fn keys_lie_apart(run: &dyn Fn(&str, &[&str]) -> Answer) {
    for (keyspace, value) in [("", "first"), ("scratch", "scratch")] {
        for key in 0..8 {
            run(keyspace, &["kv", "put", &format!("k{key}"), "field", value]).text();
        }
    }
    for (keyspace, value) in [("", "first"), ("scratch", "scratch"), ("1", "scratch"), ("0", "first")] {
        for key in 0..8 {
            let read = run(keyspace, &["kv", "get", &format!("k{key}"), "field"]);
            assert_eq!(read.text().trim(), value, "{keyspace} {key}");
        }
        assert_eq!(run(keyspace, &["ls"]).text().lines().count(), 8, "{keyspace}");
    }
}

/// A node takes the only copies of its slots with it; other slots are served.
fn lose_the_only_copies(ring: &mut Ring, run: &dyn Fn(&str, &[&str]) -> Answer) {
    ring.kill(2);
    while run("", &["ring", "status"]).exit == Some(0) {
        std::thread::yield_now();
    }
    let status = || json_of_failed(&run("", &["ring", "status", "--json"]));
    while status()["keyspaces"][0]["served"] != 16384 {
        std::thread::yield_now();
    }
    let told = run("", &["ring", "status"]).stderr;
    assert!(told.contains(", of keyspace scratch: "), "{told}");
    for key in 0..8 {
        assert_eq!(run("", &["kv", "get", &format!("k{key}"), "field"]).text().trim(), "first");
    }
    // The nodes that had them are named where they are missing, and only those slots start anew.
    let there = json_of_failed(&run("scratch", &["ring", "status", "--json"]));
    let (down, served) = (&there["down"][0], there["keyspaces"][1]["served"].as_u64().unwrap());
    assert_eq!(down["had_by"], serde_json::json!([3]), "{there}");
    assert!(json_of_failed(&run("", &["ring", "status", "--json"]))["down"].as_array().unwrap().is_empty());
    let slot = down["first"].to_string();
    let recovered = run("scratch", &["ring", "recover", "--accept-loss", &slot, "--yes"]);
    assert_eq!(recovered.exit, Some(0), "{}", recovered.stderr);
    assert_eq!(status()["keyspaces"][1]["served"].as_u64(), Some(served + 1));
}

/// The JSON output of a verb that failed.
fn json_of_failed(answer: &Answer) -> serde_json::Value {
    let text = String::from_utf8(answer.stdout.clone()).unwrap();
    serde_json::from_str(text.lines().next().unwrap_or("null")).unwrap()
}

//! Processes with several event loops, zones and weights: which nodes there are, and where copies go.

use crate::support::{Workspace, free_port, started};
use crate::{end, say, wait_until_served};
use rustix::process::Signal;
use std::process::Child;

/// Starts a process of a ring; its nodes are at `host:port` and the ports above.
fn begin(place: &Workspace, (host, port): (&str, u16), nodes: &str, more: &[&str]) -> Child {
    let listen = format!("{host}:{port}");
    let serve = [
        "--json",
        "ring",
        "serve",
        "--until-input-ends",
        "--memory",
        "--token-file",
        "token",
        "--plain-text",
    ];
    let named = ["--listen", &listen, "--nodes", nodes];
    place.spawn(&[&serve[..], &named, more].concat())
}

/// The status of a ring, once `is_so`.
pub fn status_when(
    place: &Workspace,
    url: &str,
    is_so: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let began = std::time::Instant::now();
    loop {
        let told = place.run(&["--json", "ring", "status", "--store", url]);
        if told.exit == Some(0) && is_so(&told.json()) {
            return told.json();
        }
        assert!(began.elapsed().as_secs() < 180, "{} {}", String::from_utf8_lossy(&told.stdout), told.stderr);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn counts(status: &serde_json::Value, of: &str) -> Vec<u64> {
    status["nodes"].as_array().unwrap().iter().map(|node| node[of].as_u64().unwrap()).collect()
}

#[test]
fn a_process_with_two_loops_runs_two_nodes_that_share_the_slots() {
    let place = Workspace::new();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let kept = ["--json", "ring", "serve", "--until-input-ends", "--store", "kept", "--listen", &listen];
    let serve = [&kept[..], &["--loops", "2"]].concat();
    let mut process = place.spawn(&serve);
    let told = started(&mut process);
    assert_eq!(told["loops"].as_array().unwrap().len(), 2, "{told}");
    assert_eq!(told["loops"][1]["listening"], format!("127.0.0.1:{}", port + 1));
    wait_until_served(&listen);
    let url = format!("ring://{listen}/");
    for key in 0..40 {
        let name = format!("key-{key}");
        assert_eq!(place.run(&["kv", "put", "--store", &url, "loops", &name, &name]).exit, Some(0));
    }
    let status = status_when(&place, &url, |_| true);
    assert_eq!((counts(&status, "leads"), &status["copies_in_sync_min"]), (vec![8192, 8192], &1.into()));
    end(process, Signal::TERM);
    // Both have their folders, and the data are there when the process begins again.
    assert!(["loop-1", "loop-2"].iter().all(|folder| place.folder.path().join("kept").join(folder).is_dir()));
    let mut process = place.spawn(&serve);
    started(&mut process);
    wait_until_served(&listen);
    let scanned = place.run(&["kv", "scan", "loops", "--store", &url]);
    assert_eq!(scanned.text().lines().count(), 40);
    end(process, Signal::TERM);
    // A start that ended half-way leaves a folder that can be begun again.
    let taken = std::net::TcpListener::bind(("127.0.0.1", port + 1)).unwrap();
    let half = ["--json", "ring", "serve", "--store", "half", "--listen", &listen, "--loops", "2"];
    assert_ne!(place.run(&half).exit, Some(0), "the port of the second node is taken");
    drop(taken);
    let mut process = place.spawn(&[&half[..], &["--until-input-ends"]].concat());
    started(&mut process);
    end(process, Signal::TERM);
    for loops in ["1", "3"] {
        let refused = place.run(&[&kept[1..], &["--loops", loops]].concat());
        assert!(refused.fails(2).contains("was begun with --loops 2"), "{}", refused.stderr);
    }
}

#[test]
fn no_two_copies_are_in_one_process_and_the_keepers_are_in_different_ones() {
    let place = Workspace::new();
    let port = free_port();
    let hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
    let nodes = hosts.map(|host| format!("{host}:{port}")).join(",");
    let mut processes =
        hosts.map(|host| begin(&place, (host, port), &nodes, &["--loops", "2", "--copies", "2"]));
    processes.iter_mut().for_each(|process| drop(started(process)));
    let token = String::from_utf8(place.read("token")).unwrap();
    let url = format!("ring://127.0.0.2:{port}/?token-file=token");
    // If a process was late, slots were founded without it and move to it now.
    status_when(&place, &url, |status| {
        let counts = counts(status, "in_sync");
        counts.len() == 6 && counts.iter().all(|count| count.abs_diff(16_384 / 3) <= 4)
    });
    for key in 0..60 {
        assert_eq!(place.run(&["kv", "put", "--store", &url, "loops", &key.to_string(), "1"]).exit, Some(0));
    }
    // A process dies with both of its nodes, and one of the keepers: everything is served by the others.
    processes[0].kill().unwrap();
    processes[0].wait().unwrap();
    status_when(&place, &url, |status| {
        let up: Vec<bool> =
            status["nodes"].as_array().unwrap().iter().map(|node| node["up"] == true).collect();
        up == [false, false, true, true, true, true]
    });
    let scanned = place.run(&["kv", "scan", "loops", "--store", &url]);
    assert_eq!(scanned.text().lines().count(), 60, "{}", scanned.stderr);
    let told = say(&format!("127.0.0.2:{port}"), &format!("AUTH {}\r\nCLUSTER INFO", token.trim()));
    assert!(told.contains("cluster_slots_fail:0\r\n"), "{told}");
    let [_, second, third] = processes;
    [second, third].into_iter().for_each(|mut process| {
        process.kill().unwrap();
        process.wait().unwrap();
    });
}

#[test]
fn nodes_of_different_zones_and_weights_get_what_they_say() {
    let place = Workspace::new();
    let port = free_port();
    let nodes: Vec<String> = (0..4).map(|node| format!("127.0.0.1:{}", port + node)).collect();
    let nodes = nodes.join(",");
    let zones = [("red", "1"), ("red", "1"), ("blue", "1"), ("blue", "3")];
    let mut processes: Vec<Child> = (0..)
        .zip(zones)
        .map(|(node, (zone, weight))| {
            let more = ["--copies", "2", "--zone", zone, "--weight", weight];
            begin(&place, ("127.0.0.1", port + node), &nodes, &more)
        })
        .collect();
    processes.iter_mut().for_each(|process| drop(started(process)));
    let url = format!("ring://127.0.0.1:{port}/?token-file=token");
    // A copy of each slot in each zone, and within a zone by weight.
    let status = status_when(&place, &url, |status| {
        let counts = counts(status, "in_sync");
        let fair = [8192_u64, 8192, 4096, 12_288];
        counts.len() == 4 && counts.iter().zip(fair).all(|(count, fair)| count.abs_diff(fair) <= 8)
    });
    let named: Vec<&str> =
        status["nodes"].as_array().unwrap().iter().map(|node| node["zone"].as_str().unwrap()).collect();
    assert_eq!(named, ["red", "red", "blue", "blue"]);
    let told = place.run(&["ring", "status", "--store", &url]);
    assert!(told.text().contains("zone  weight  state"), "{}", told.text());
    for mut process in processes {
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

#[test]
fn a_ring_that_trusts_no_clock_answers_what_was_written_last() {
    let place = Workspace::new();
    let port = free_port();
    let nodes: Vec<String> = (0..3).map(|node| format!("127.0.0.1:{}", port + node)).collect();
    let nodes = nodes.join(",");
    let begin = |node| begin(&place, ("127.0.0.1", port + node), &nodes, &["--no-clock", "--min-sync", "1"]);
    let mut processes: Vec<Child> = (0..3).map(begin).collect();
    processes.iter_mut().for_each(|process| drop(started(process)));
    let url = format!("ring://127.0.0.1:{port}/?token-file=token");
    status_when(&place, &url, |status| status["copies_in_sync_min"] == 3);
    let put = |key: &str, value: &str| {
        let told = place.run(&["kv", "put", "--store", &url, "seen", key, value]);
        assert_eq!(told.exit, Some(0), "{}", told.stderr);
    };
    let keys: Vec<String> = (0..20).map(|key| key.to_string()).collect();
    keys.iter().for_each(|key| put(key, "before"));
    processes[2].kill().unwrap();
    processes[2].wait().unwrap();
    keys.iter().for_each(|key| put(key, "after"));
    let scanned = place.run(&["kv", "scan", "seen", "--store", &url]);
    assert_eq!(scanned.text().matches("\tafter\n").count(), keys.len(), "{}", scanned.text());
    for mut process in processes.into_iter().take(2) {
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

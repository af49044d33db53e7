//! `atoll ring`: a node that runs until it is stopped, and says clearly why it does not start.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

#[path = "ring/joining.rs"]
mod joining;
#[path = "ring/killed.rs"]
mod killed;
#[path = "ring/loops.rs"]
mod loops;
#[path = "ring/lost_keeper.rs"]
mod lost_keeper;
#[path = "ring/names.rs"]
mod names;
#[allow(dead_code, reason = "other tests use more of it")]
mod support;
#[path = "support/ring.rs"]
mod three;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use support::{Workspace, free_port};
use three::Ring;

/// Starts a node, and returns its address.
fn served(place: &Workspace, arguments: &[&str]) -> (Child, String) {
    let all = [&["--json", "ring", "serve", "--listen", "127.0.0.1:0"], arguments].concat();
    let mut node = place.spawn(&all);
    let started = support::started(&mut node);
    assert_eq!(started["pid"], node.id());
    (node, started["listening"].as_str().unwrap().to_owned())
}

fn say(address: &str, lines: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(format!("{lines}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut replies = String::new();
    socket.read_to_string(&mut replies).unwrap();
    replies
}

/// Waits until a node reports that all slots are served.
fn wait_until_served(address: &str) {
    let began = std::time::Instant::now();
    loop {
        let told = say(address, "CLUSTER INFO");
        if told.contains("cluster_state:ok") {
            return;
        }
        assert!(began.elapsed().as_secs() < 60, "{told}");
        std::thread::yield_now();
    }
}

fn end(mut node: Child, signal: Signal) {
    kill_process(Pid::from_child(&node), signal).unwrap();
    let mut told = String::new();
    node.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((node.wait().unwrap().code(), told.as_str()), (Some(0), ""));
}

#[test]
fn a_node_keeps_what_it_was_given_when_a_signal_ends_it() {
    let place = Workspace::new();
    let kept = ["--store", "kept"];
    let (node, address) = served(&place, &kept);
    assert_eq!(say(&address, "SET a 1"), "+OK\r\n+OK\r\n");
    // An idle connection holds up no other client.
    let _idle = TcpStream::connect(&address).unwrap();
    end(node, Signal::TERM);
    let (node, address) = served(&place, &kept);
    assert_eq!(say(&address, "GET a"), "$1\r\n1\r\n+OK\r\n");
    let second = place.run(&["ring", "serve", "--listen", "127.0.0.1:0", "--store", "kept"]);
    assert_eq!(second.exit, Some(16), "{}", second.stderr);
    assert!(second.stderr.contains("another process uses"), "{}", second.stderr);
    end(node, Signal::INT);
}

#[test]
fn a_deadline_ends_what_a_silent_node_holds_up_and_says_whether_something_may_have_changed() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ring://{}/", silent.local_addr().unwrap());
    let place = Workspace::new();
    let asked =
        |verb: &[&str]| place.run(&[&["ring"], verb, &["--store", &url, "--deadline", "200ms"]].concat());
    for (verb, exit) in [(&["status"][..], 16), (&["keyspace", "list"], 16), (&["leave", "3"], 17)] {
        let ended = asked(verb);
        assert!(ended.fails(exit).contains("not done within 200ms"), "{verb:?}: {}", ended.stderr);
    }
}

#[test]
fn the_folder_of_a_node_is_not_taken_for_that_of_a_store() {
    let place = Workspace::new();
    let (node, _) = served(&place, &["--store", "node"]);
    end(node, Signal::TERM);
    for verb in [&["kv", "put", "p", "s", "v"][..], &["ls"]] {
        let refused = place.run(&[&["--store", "node"], verb].concat());
        assert!(refused.fails(12).contains("ring://"), "{}", refused.stderr);
    }
    assert!(!place.folder.path().join("node/store.atoll").exists());
}

#[test]
fn hashes_of_redis_are_cells_and_a_plain_value_says_who_reads_it() {
    let place = Workspace::new();
    let (node, address) = served(&place, &["--memory"]);
    assert_eq!(say(&address, "HSET of-redis a 1 b 2\r\nSET plain 3"), ":2\r\n+OK\r\n+OK\r\n");
    let store = format!("ring://{address}/");
    let run = |words: &[&str]| place.run(&[words, &["--store", &store]].concat());
    assert_eq!(run(&["kv", "get", "of-redis", "b"]).text(), "2");
    assert_eq!(run(&["kv", "scan", "of-redis"]).text(), "a\t1\nb\t2\n");
    assert_eq!(
        run(&["kv", "export", "--format", "csv", "-"]).text().lines().count(),
        3,
        "a title and the cells"
    );
    for verb in [&["kv", "get", "plain", "a"][..], &["kv", "put", "plain", "a", "1"], &["ls", "plain"]] {
        let refused = run(verb);
        assert!(refused.fails(12).contains("it holds a plain Redis value, not cells"), "{}", refused.stderr);
        assert!(refused.stderr.contains("`GET`"), "{}", refused.stderr);
    }
    end(node, Signal::TERM);
}

#[test]
fn a_token_is_made_and_asked_for() {
    let place = Workspace::new();
    let (node, address) = served(&place, &["--memory", "--token-file", "token"]);
    assert!(say(&address, "GET a").starts_with("-NOAUTH "));
    let token = String::from_utf8(place.read("token")).unwrap();
    assert_eq!(say(&address, &format!("AUTH {}\r\nGET a", token.trim())), "+OK\r\n$-1\r\n+OK\r\n");
    end(node, Signal::TERM);
}

#[test]
fn a_node_that_cannot_start_says_why_and_what_helps() {
    let place = Workspace::new();
    for (arguments, exit, told) in [
        (&["--memory", "--listen", "0.0.0.0:0"][..], 12, "--token-file"),
        (&["--memory", "--listen", "203.0.113.1:7379", "--token-file", "token"], 12, "203.0.113.1:7379"),
        (&[], 2, "--memory"),
        (&["--store", "cassandra://127.0.0.1/keyspace"], 14, "--store ./ring"),
        (&["--memory", "--loops", "0"], 2, "--loops"),
        (&["--memory", "--memory-budget", "much"], 2, "much"),
        (&["--memory", "--token-file", "no/such/token"], 10, "no/such/token"),
    ] {
        let failed = place.run(&[&["ring", "serve"], arguments].concat());
        assert_eq!(failed.exit, Some(exit), "{arguments:?}: {}", failed.stderr);
        assert!(failed.stderr.contains(told), "{arguments:?}: {}", failed.stderr);
    }
}

/// The log lines of a node until it has founded a ring of its own.
fn logged(place: &Workspace, format: &str) -> Vec<String> {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = place
        .command(&["ring", "serve", "--memory", "--listen", &address, "--nodes", &address, "--copies", "1"]);
    command.env("ATOLL_LOG", "info").env("ATOLL_LOG_FORMAT", format);
    let mut node = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(node.stderr.take().unwrap()).lines() {
        lines.push(line.unwrap());
        if lines.last().is_some_and(|line| line.contains("a group is founded")) {
            break;
        }
    }
    node.kill().unwrap();
    node.wait().unwrap();
    lines
}

#[test]
fn a_log_that_nobody_watches_has_times_and_is_objects_for_programs() {
    let place = Workspace::new();
    // In this century, and with a time zone.
    let begins =
        |text: &str| text.starts_with("20") && text.split_once(' ').unwrap_or((text, "")).0.ends_with('Z');
    let lines = logged(&place, "text");
    assert!(
        !lines.is_empty() && lines.iter().all(|line| begins(line) && !line.contains('\u{1b}')),
        "{lines:?}"
    );
    let lines = logged(&place, "json");
    let events: Vec<serde_json::Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let last = events.last().unwrap();
    assert_eq!((&last["level"], &last["message"]), (&"INFO".into(), &"a group is founded".into()));
    assert!(last["ring"].is_u64() && begins(last["timestamp"].as_str().unwrap()), "{last}");
}

#[test]
fn a_node_leaves_while_clients_go_on_and_the_ring_tells_how_it_is() {
    let (place, port) = (Workspace::new(), free_port());
    let mut ring = Ring::start(&place, port, "flushed");
    let store = format!("ring://127.0.0.1:{port}/?token-file=ring/token");
    let run = |words: &[&str]| place.run(&[&["ring"], words, &["--store", &store]].concat());
    let status = || -> serde_json::Value { serde_json::from_str(run(&["status", "--json"]).text()).unwrap() };
    for key in 0..60 {
        assert_eq!(ring.ask(&format!("SET k{key} {key}")), "+OK\r\n");
    }
    let before = status();
    assert_eq!((before["served"].as_u64(), before["nodes"].as_array().unwrap().len()), (Some(16384), 3));
    assert!((1..=3).contains(&before["group_leader"].as_u64().unwrap()), "{before}");
    assert!(run(&["status"]).text().starts_with("3 nodes, 16384 slots: all served"));
    let left = run(&["leave", "3"]);
    assert_eq!(left.exit, Some(0), "{}", left.stderr);
    assert!(left.text().starts_with("node 3 has left after "), "{}", left.text());
    let after = status();
    assert_eq!((after["served"].as_u64(), after["copies_in_sync_min"].as_u64()), (Some(16384), Some(2)));
    let numbers: Vec<_> =
        after["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2]);
    // A client that still asks the departed node is redirected.
    ring.asked = 2;
    for key in 0..60 {
        let kept = format!("${}\r\n{key}\r\n", key.to_string().len());
        assert_eq!(ring.ask(&format!("GET k{key}")), kept);
    }
    for verb in ["leave", "stay"] {
        let unknown = run(&[verb, "9"]);
        assert_eq!(unknown.exit, Some(2));
        assert!(unknown.stderr.contains("the ring has no node 9"), "{}", unknown.stderr);
    }
    // Three nodes keep the configuration: with two of them gone, the present state of the ring is unknown.
    (1..3).for_each(|node| ring.kill(node));
    while run(&["status"]).exit == Some(0) {
        std::thread::yield_now();
    }
    let alone = run(&["status"]);
    assert_eq!(alone.exit, Some(16));
    assert!(alone.stderr.contains("too few of the nodes that keep the configuration"), "{}", alone.stderr);
    // So is which slots are served, and which nodes have left.
    std::thread::scope(|scope| {
        for verb in [&["recover", "--accept-loss", "all", "--yes"][..], &["leave", "2"], &["leave", "9"]] {
            scope.spawn(move || {
                let unknown = run(verb);
                let told = unknown.fails(16);
                assert!(told.contains("too few of the nodes that keep"), "{verb:?}: {told}");
                assert!(unknown.stdout.is_empty(), "{verb:?}");
            });
        }
    });
    let folder = place.run(&["ring", "status", "--store", "ring"]);
    assert!(folder.stderr.contains("is not a ring"), "{}", folder.stderr);
    ring.end();
}

#[test]
fn slots_whose_last_copies_are_lost_begin_again_once_somebody_accepts_that() {
    let (place, port) = (Workspace::new(), free_port());
    let mut ring = Ring::start_with(&place, port, &["--copies", "1"]);
    let store = format!("ring://127.0.0.1:{port}/?token-file=ring/token");
    let run = |words: &[&str]| place.run(&[&["cluster"], words, &["--store", &store]].concat());
    let led_by_third: Vec<_> = (0..60)
        .filter(|key| {
            assert_eq!(ring.ask(&format!("SET k{key} {key}")), "+OK\r\n");
            ring.asked == 2
        })
        .collect();
    assert!(!led_by_third.is_empty());
    let none = run(&["recover", "--accept-loss", "all", "--yes"]);
    assert!(none.text().starts_with("nothing to recover"), "{}", none.text());
    ring.kill(2);
    while run(&["status"]).exit == Some(0) {
        std::thread::yield_now();
    }
    let status = run(&["status"]);
    assert_eq!(status.exit, Some(16));
    assert!(
        status.stderr.contains("slots are not served: node 3 had their last copies"),
        "{}",
        status.stderr
    );
    let seen = String::from_utf8(status.stdout).unwrap();
    assert!(seen.contains(&format!("\nnode 3 at 127.0.0.1:{} does not answer\n", port + 2)), "{seen}");
    let asked = run(&["recover", "--accept-loss", "all"]);
    assert_eq!(asked.exit, Some(2));
    assert!(asked.stderr.contains("on node 3: writes acknowledged there"), "{}", asked.stderr);
    assert!(asked.stderr.contains("nothing was recovered"), "{}", asked.stderr);
    assert_eq!(run(&["status"]).exit, Some(16));
    // A few of them, since the group decides about each one.
    let slot = |key: &i32| ring.ask(&format!("CLUSTER KEYSLOT k{key}"))[1..].trim().to_owned();
    let some: Vec<String> = led_by_third.iter().take(8).map(slot).collect();
    let mut words = vec!["recover", "--accept-loss"];
    words.extend(some.iter().map(String::as_str));
    words.push("--yes");
    let recovered = run(&words);
    assert_eq!(recovered.exit, Some(0), "{}", recovered.stderr);
    assert_eq!(run(&["status"]).exit, Some(16), "those that were not named stay as they are");
    for key in 0..60 {
        let kept = match led_by_third.iter().position(|&lost| lost == key) {
            Some(0..8) => "$-1\r\n".to_owned(),
            Some(_) => continue,
            None => format!("${}\r\n{key}\r\n", key.to_string().len()),
        };
        assert_eq!(ring.ask(&format!("GET k{key}")), kept, "k{key}");
    }
    ring.end();
}

/// The answer of a node to an HTTP request.
fn get(address: &str, header: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{header}\r\n").as_bytes()).unwrap();
    let mut told = String::new();
    socket.read_to_string(&mut told).unwrap();
    told
}

#[test]
fn a_node_tells_what_it_counts_over_http() {
    let place = Workspace::new();
    let all = ["--json", "ring", "serve", "--memory", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut node = place.spawn(&all);
    let mut line = String::new();
    BufReader::new(node.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let started: serde_json::Value = serde_json::from_str(&line).unwrap();
    let (address, metrics) = (started["listening"].as_str().unwrap(), started["metrics"].as_str().unwrap());
    assert_eq!(say(address, "SET a 1"), "+OK\r\n+OK\r\n");
    let told = get(metrics, "");
    assert!(told.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{told}");
    assert!(told.contains("\natoll_ring_calls_total{command=\"set\",result=\"done\"} 1\n"), "{told}");
    // A client that connects and sends nothing keeps no other client out.
    let _silent = TcpStream::connect(metrics).unwrap();
    assert!(get(metrics, "").contains("\natoll_ring_slots_led 16384\n"));
    end(node, Signal::TERM);
    let open = place.run(&["ring", "serve", "--memory", "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"]);
    assert_eq!(open.exit, Some(12));
    assert!(open.stderr.contains("--token-file"), "{}", open.stderr);
}

#[test]
fn the_script_of_a_batch_job_is_one_that_a_shell_can_read() {
    let place = Workspace::new();
    let written = place.run(&[
        "ring",
        "slurm",
        "--nodes",
        "5",
        "--copies",
        "2",
        "--store",
        "my ring",
        "--port",
        "7001",
        "--sbatch=--time=04:00:00",
        "--",
        "srun",
        "--overlap",
        "./simulate",
        "it's $HOME",
    ]);
    let script = written.text();
    for line in [
        "#!/bin/bash",
        "#SBATCH --nodes=5",
        "#SBATCH --time=04:00:00",
        "port=7001",
        r"srun --overlap ./simulate 'it'\''s $HOME' &",
    ] {
        assert!(script.lines().any(|other| other == line), "{line} is not in\n{script}");
    }
    assert!(script.contains("--copies 2 ") && script.contains("--durability synced"), "{script}");
    // The only `%` left is in the name of a log, where srun fills in the number of the node.
    assert!(!script.replace("node-%n.log", "").contains('%'), "everything was put in: {script}");
    place.write("job.sh", script);
    let read = std::process::Command::new("bash").arg("-n").arg(place.folder.path().join("job.sh")).status();
    assert!(read.unwrap().success());
}

#[test]
fn a_ring_that_is_named_wrongly_is_refused() {
    let place = Workspace::new();
    for (arguments, exit, told) in [
        (
            &["serve", "--memory", "--nodes", "127.0.0.1:7001,127.0.0.1:7002"][..],
            2,
            "does not name this node",
        ),
        (&["serve", "--memory", "--nodes", "127.0.0.1:7379,127.0.0.1:7379"], 2, "twice"),
        (&["serve", "--memory", "--nodes", "127.0.0.1:x"], 2, "HOST:PORT"),
        (&["serve", "--memory", "--nodes", "node[1-"], 2, "nothing closes"),
        (&["serve", "--memory", "--nodes", "node[1-3]"], 2, "does not name this node"),
        (&["recover", "--store", "ring://127.0.0.1:1/"], 2, "--accept-loss"),
        (&["recover", "--accept-loss", "16384", "--store", "ring://127.0.0.1:1/"], 2, "16383"),
        (&["slurm", "--", "true"], 2, "--store"),
        (&["slurm", "--store", "ring"], 2, "COMMAND"),
        (&["slurm", "--store", "ring", "--sbatch", "time", "--", "true"], 2, "--sbatch"),
        (&["slurm", "--store", "ring", "--nodes", "3", "--copies", "9", "--", "true"], 2, "--copies 9 of 3"),
        (&["serve", "--memory", "--nodes", "127.0.0.1:7379", "--copies", "2"], 2, "--copies 2"),
        (&["serve", "--memory", "--copies", "2"], 2, "--nodes"),
        (&["serve", "--memory", "--zone", "red"], 2, "--nodes"),
        (&["serve", "--memory", "--nodes", "127.0.0.1:7379", "--zone", "two words"], 2, "without spaces"),
        (&["serve", "--memory", "--nodes", "127.0.0.1:7379", "--weight", "0"], 2, "1..=1000"),
        (&["serve", "--memory", "--nodes", "127.0.0.1:7379", "--min-sync", "2"], 2, "--min-sync 2 of 1"),
        (&["serve", "--memory", "--nodes", "127.0.0.1:7379", "--keepers", "2"], 2, "odd"),
        (&["serve", "--memory", "--nodes", "127.0.0.1:7379", "--keepers", "3"], 2, "--keepers 3 of 1"),
        (&["serve", "--memory", "--nodes", "127.0.0.1:7379", "--clock-error", "16"], 2, "--no-clock"),
        (
            &["serve", "--memory", "--loops", "2", "--nodes", "127.0.0.1:7379,127.0.0.1:7380"],
            2,
            "another process",
        ),
        (&["serve", "--memory", "--nodes", "@no-such-file"], 10, "no-such-file"),
        (&["serve", "--memory", "--listen", "127.0.0.1:60000", "--nodes", "127.0.0.1:60000"], 2, "45535"),
        (&["serve", "--memory", "--store", "kept"], 2, "--store"),
        (&["up"], 2, "--memory"),
        (&["up", "--memory", "--nodes", "2", "--copies", "5"], 2, "--copies 5 of 2"),
        (&["up", "--memory", "--port", "65535"], 2, "45535"),
        (&["up", "--memory", "--nodes", "0"], 2, "0"),
    ] {
        let failed = place.run(&[&["ring"], arguments].concat());
        assert_eq!(failed.exit, Some(exit), "{arguments:?}: {}", failed.stderr);
        assert!(failed.stderr.contains(told), "{arguments:?}: {}", failed.stderr);
    }
}

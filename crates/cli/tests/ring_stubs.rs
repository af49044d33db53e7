//! Verbs on nodes of a ring that hang, die or know little: only what is known is reported.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "support/node.rs"]
mod stub;
#[allow(dead_code, reason = "other tests use more of it")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stub::{Reply, node, opened, status};
use support::Workspace;

/// An address where no process listens.
const NOBODY: &str = "127.0.0.1:1";

/// A node that knows four nodes, and three once `has_left` is set; and a node that was cut off before the
/// fourth joined.
fn cut_off_from_the_fourth(has_left: Arc<AtomicBool>) -> [String; 2] {
    let knows = node(move |me, words| match words {
        "AT.RING STATUS" if has_left.load(Ordering::SeqCst) => status(1, 10, 0, &[me, NOBODY, NOBODY]),
        "AT.RING STATUS" => status(1, 9, 0, &[me, NOBODY, NOBODY, NOBODY]),
        _ => Reply::Text("+OK\r\n".to_owned()),
    });
    let other = knows.clone();
    let knew = node(move |me, words| match words {
        "AT.RING STATUS" => status(2, 3, 60_000, &[&other, me, NOBODY]),
        _ => Reply::Text("+OK\r\n".to_owned()),
    });
    [knows, knew]
}

#[test]
fn a_node_may_not_be_stopped_because_another_one_never_heard_of_it() {
    let has_left = Arc::new(AtomicBool::new(false));
    let nodes = cut_off_from_the_fourth(Arc::clone(&has_left));
    let place = Workspace::new();
    let leave = |nodes: &str, more: &[&str]| {
        let store = format!("ring://{nodes}/");
        place.run(&[&["ring", "leave", "4", "--store", &store], more].concat())
    };
    let both = nodes.join(",");
    for url in [&both, &nodes[1]] {
        let leaves = leave(url, &["--deadline", "2s"]);
        assert!(leaves.fails(17).contains("not done within 2s"), "{}", leaves.stderr);
        assert!(leaves.stderr.contains("`atoll ring status`"), "{}", leaves.stderr);
    }
    let asked = leave(&both, &["--no-wait"]);
    assert_eq!(asked.text(), "node 4 leaves\n");
    has_left.store(true, Ordering::SeqCst);
    let gone = leave(&both, &[]);
    assert!(gone.fails(2).contains("the ring has no node 4"), "{}", gone.stderr);
}

#[test]
fn a_ring_change_whose_answer_is_lost_is_not_reported_as_not_made() {
    let place = Workspace::new();
    for verb in [&["leave", "4"][..], &["keyspace", "create", "scratch"], &["stay", "4"]] {
        let is_dead = AtomicBool::new(false);
        let dies = node(move |me, words| match words {
            _ if is_dead.load(Ordering::SeqCst) => Reply::End,
            "AT.RING STATUS" => status(1, 9, 0, &[me, NOBODY, NOBODY, NOBODY]),
            _ => {
                is_dead.store(true, Ordering::SeqCst);
                Reply::End
            }
        });
        let store = format!("ring://{dies}/?time-out=1s");
        let lost = place.run(&[&["ring"], verb, &["--store", &store]].concat());
        assert!(
            lost.fails(17).contains("the outcome of the change of the ring is unknown"),
            "{verb:?}: {}",
            lost.stderr
        );
        assert!(lost.stderr.contains("`atoll ring status`"), "{verb:?}: {}", lost.stderr);
    }
}

#[test]
fn a_deadline_is_heard_by_what_reads_many_cells_and_the_time_of_a_wait_by_a_wait() {
    let place = Workspace::new();
    let hangs = node(|me, words| opened(me, words).unwrap_or(Reply::Nothing));
    let store = format!("ring://{hangs}/?time-out=3s");
    place.write("cells.jsonl", "{\"partition\":\"p\",\"sort\":\"s\",\"value\":\"v\"}\n");
    let deadline = ["--deadline", "1s"];
    for (verb, more, exit) in [
        (&["kv", "get", "p", "s"][..], &deadline[..], 16),
        (&["kv", "scan", "p"], &deadline, 16),
        (&["ls"], &deadline, 16),
        (&["ls", "p"], &deadline, 16),
        (&["kv", "export", "-", "--format", "jsonl"], &deadline, 16),
        (&["kv", "export", "-", "--format", "jsonl", "--partition", "p"], &deadline, 16),
        (&["kv", "import", "cells.jsonl"], &deadline, 16),
        (&["kv", "wait", "p", "s", "--exists", "--timeout", "0s"], &deadline, 16),
        (&["kv", "wait", "p", "s", "--exists", "--timeout", "1s"], &[], 17),
    ] {
        let began = Instant::now();
        let ended = place.run(&[verb, more, &["--store", &store]].concat());
        ended.fails(exit);
        assert!(began.elapsed() < Duration::from_secs(4), "{verb:?} took {:?}", began.elapsed());
    }
}

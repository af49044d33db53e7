//! `--join`: a node learns from a living one what the others were started with, and says clearly why it
//! cannot join.

use crate::loops::status_when;
use crate::support::{Answer, Workspace, free_port, started};
use crate::three::Ring;
use crate::{end, served, wait_until_served};
use rustix::process::Signal;
use std::process::Child;
use std::time::{Duration, Instant};

/// Starts a node that joins by asking another one.
fn join(place: &Workspace, store: &str, listen: &str, living: &str) -> Child {
    let serve = ["--json", "ring", "serve", "--until-input-ends", "--store", store, "--listen", listen];
    let mut node = place.spawn(&[&serve[..], &["--token-file", "ring/token", "--join", living]].concat());
    assert_eq!(started(&mut node)["listening"], listen);
    node
}

/// The answer of a node that ends by itself; one that does not within a minute is killed.
fn ended(mut node: Child) -> Answer {
    let began = Instant::now();
    while node.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(60) {
            node.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Answer::from(node.wait_with_output().unwrap())
}

#[test]
fn nodes_join_a_ring_by_asking_any_node_of_it_and_come_back_to_their_places() {
    let (place, port) = (Workspace::new(), free_port());
    let ring = Ring::start(&place, port, "flushed");
    let at = |number: u16| format!("127.0.0.1:{}", port + number);
    let (fourth, fifth) = (at(3), format!("127.0.0.2:{port}"));
    let url = format!("ring://{}/?token-file=ring/token", at(0));
    let all_up = |addresses: &[&str]| {
        status_when(&place, &url, |status| {
            let nodes = status["nodes"].as_array().unwrap().iter();
            let up = nodes.filter(|node| node["up"] == true && node["in_sync"].as_u64() > Some(0));
            up.map(|node| node["address"].as_str().unwrap()).eq(addresses.iter().copied())
        })
    };
    let first = [at(0), at(1), at(2)];
    let mut addresses: Vec<&str> = first.iter().map(String::as_str).collect();
    // The first address that is named is of nobody.
    let mut fourth_node = join(&place, "fourth", &fourth, &format!("127.0.0.1:1,{}", at(1)));
    addresses.push(&fourth);
    all_up(&addresses);
    // A node that joined tells others as well, and knows of the keepers, which are not among its neighbours.
    let fifth_node = join(&place, "fifth", &fifth, &fourth);
    addresses.push(&fifth);
    let status = all_up(&addresses);
    let numbers: Vec<_> =
        status["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_u64()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5].map(Some));
    // Begun again on its folder it is in its place, however soon that is: the folder is of no other node.
    fourth_node.kill().unwrap();
    fourth_node.wait().unwrap();
    let mut fourth_node = join(&place, "fourth", &fourth, &at(2));
    // What it tells itself cannot be of its former life.
    let own_url = format!("ring://{fourth}/?token-file=ring/token");
    let status = status_when(&place, &own_url, |status| {
        let mut nodes = status["nodes"].as_array().unwrap().iter();
        nodes.any(|node| node["address"] == fourth.as_str() && node["up"] == true)
    });
    assert_eq!(status["nodes"].as_array().unwrap().len(), 5, "{status}");
    all_up(&addresses);
    // A list that lacks those who joined gives the number of one of them to a node that is none of them.
    let other = format!("127.0.0.3:{port}");
    let nodes = [&first[..], std::slice::from_ref(&other)].concat().join(",");
    let named = ["--token-file", "ring/token", "--nodes", &nodes];
    let assert_refused = || {
        let refused =
            ended(place.spawn(&[&["ring", "serve", "--memory", "--listen", &other][..], &named].concat()));
        let told = refused.fails(11);
        assert!(told.contains(&format!("number 4 in the ring is that of the node at {fourth}")), "{told}");
    };
    assert_refused();
    all_up(&addresses);
    // However often it is tried: also while that one is down, which comes back with all that it had.
    fourth_node.kill().unwrap();
    fourth_node.wait().unwrap();
    status_when(&place, &url, |status| {
        let mut nodes = status["nodes"].as_array().unwrap().iter();
        nodes.any(|node| node["address"] == fourth.as_str() && node["up"] == false)
    });
    assert_refused();
    let fourth_node = join(&place, "fourth", &fourth, &at(2));
    all_up(&addresses);
    [fourth_node, fifth_node].into_iter().for_each(|node| end(node, Signal::TERM));
    ring.end();
}

#[test]
fn a_node_that_cannot_join_says_why() {
    let (place, port) = (Workspace::new(), free_port());
    let ring = Ring::start(&place, port, "flushed");
    let (living, free) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", port + 3));
    // The name of a node that counts as down is free.
    status_when(&place, &format!("ring://{living}/?token-file=ring/token"), |status| {
        status["nodes"].as_array().unwrap().iter().filter(|node| node["up"] == true).count() == 3
    });
    place.write("wrong", "a-token-of-another-ring");
    let (alone, alone_at) = served(&place, &["--memory"]);
    // A node of another ring has left its folder.
    let other = format!("127.0.0.2:{port}");
    let of_other = ["--store", "other", "--listen", &other, "--nodes", &other, "--copies", "1"];
    let mut node = place.spawn(&[&["--json", "ring", "serve", "--until-input-ends"][..], &of_other].concat());
    started(&mut node);
    wait_until_served(&other);
    end(node, Signal::TERM);
    let token = ["--token-file", "ring/token", "--join", &living];
    let memory = ["--memory", "--listen", &free];
    let cases: [(Vec<&str>, i32, &str); 8] = [
        ([&memory[..], &["--join", "127.0.0.1:1", "--deadline", "300ms"]].concat(), 16, "127.0.0.1:1"),
        ([&memory[..], &["--join", &living]].concat(), 15, "not authenticated"),
        ([&memory[..], &["--join", &living, "--token-file", "wrong"]].concat(), 15, "not authenticated"),
        ([&memory[..], &["--join", &living, "--token-file", "none"]].concat(), 10, "none"),
        ([&memory[..], &["--join", &alone_at]].concat(), 2, "a ring of its own"),
        ([&memory[..], &["--loops", "2"], &token[..]].concat(), 2, "the processes of this ring have 1"),
        ([&memory[..], &["--announce", &living], &token[..]].concat(), 11, "node 1 of the ring has it"),
        (
            [&["--store", "other", "--listen", &other][..], &token].concat(),
            12,
            "belongs to node 1 of its ring",
        ),
    ];
    std::thread::scope(|scope| {
        for (words, exit, told) in &cases {
            let place = &place;
            scope.spawn(move || {
                // Its input is at its end: a node that begins all the same ends with code 0.
                let refused = place.run(&[&["ring", "serve", "--until-input-ends"], &words[..]].concat());
                assert!(refused.fails(*exit).contains(told), "{words:?}: {}", refused.stderr);
            });
        }
    });
    assert!(!place.folder.path().join("none").exists(), "no token is made for a ring that has one");
    for option in ["--nodes", "--copies", "--keepers", "--min-sync"] {
        let both = place.run(&[&["ring", "serve", option, "3"], &memory[..], &token[..]].concat());
        assert_eq!(both.exit, Some(2), "{option}: {}", both.stderr);
        assert!(both.stderr.contains("cannot be used with"), "{option}: {}", both.stderr);
    }
    end(alone, Signal::TERM);
    ring.end();
}

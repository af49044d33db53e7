//! Nodes named by hosts that do not resolve at the moment.

use crate::support::{Workspace, free_port, started};
use crate::wait_until_served;
use std::io::Read;
use std::process::Child;

fn kill(mut node: Child) -> String {
    node.kill().unwrap();
    let mut told = String::new();
    node.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    node.wait().unwrap();
    told
}

#[test]
fn nodes_begin_again_while_the_name_of_one_of_the_first_three_has_no_address() {
    let (place, port) = (Workspace::new(), free_port());
    let begin = |node: u16, third: &str| {
        let (listen, store) = (format!("127.0.0.1:{}", port + node), format!("node-{node}"));
        let nodes = format!("127.0.0.1:{port},127.0.0.1:{},{third}:{}", port + 1, port + 2);
        let serve = ["--json", "ring", "serve", "--until-input-ends", "--store", &store];
        let mut node = place.spawn(&[&serve[..], &["--listen", &listen, "--nodes", &nodes]].concat());
        started(&mut node);
        node
    };
    let first = format!("127.0.0.1:{port}");
    let nodes = [0, 1, 2].map(|node| begin(node, "127.0.0.1"));
    wait_until_served(&first);
    nodes.into_iter().for_each(|node| drop(kill(node)));
    let nodes = [0, 1].map(|node| begin(node, "nowhere.invalid"));
    wait_until_served(&first);
    for told in nodes.map(kill) {
        assert!(told.contains("nowhere.invalid") && told.contains("is not found so far"), "{told}");
    }
    // Its own name is only announced to others.
    let unknown = ["ring", "serve", "--memory", "--announce", "nowhere.invalid:7379"];
    let failed = place.run(&[&unknown[..], &["--nodes", "nowhere.invalid:7379"]].concat());
    assert_ne!(failed.exit, Some(0));
    assert!(failed.stderr.contains("find the address of nowhere.invalid"), "{}", failed.stderr);
}

//! Three real nodes, one of which is cut off while clients write on both sides: what was acknowledged is
//! there when the network has healed, the node that is cut off acknowledges nothing, and it reads nothing
//! that is out of date.
//!
//! The nodes are on hosts of their own where network namespaces may be made, by root or in a user namespace,
//! and on loopback addresses otherwise; the test says which. It needs the time of several leases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

#[path = "ring_hosts/clients.rs"]
mod clients;
#[path = "ring_hosts/network.rs"]
mod network;
#[allow(dead_code, reason = "other tests use more of it")]
mod support;

use atoll_hosts::{Hosts, HostsError, before, possible};
use clients::{Client, Course, Moment, Over, Speaker, write_across, write_beside};
use network::{Cut, NODES, Network, Nodes};
use std::error::Error;
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long any wait may take; on a quiet machine each takes a few seconds at most.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How many writes must be acknowledged before a cut, during it and after it. They are in slots at random,
/// so a third of them was with the node that is cut off.
const MANY: usize = 60;

/// What the output line of this test begins with that says which form ran; `cargo xtask test` repeats it.
const NOTICE: &str = "NOTICE ";

/// The name of the test below.
const TEST: &str = "acknowledged_writes_survive_a_node_that_is_cut_off_and_one_that_is_not_heard";

#[test]
fn acknowledged_writes_survive_a_node_that_is_cut_off_and_one_that_is_not_heard() {
    let before = before();
    match possible() {
        Err(error) => {
            println!(
                "{NOTICE}three nodes on loopback addresses, of which one was stopped and one killed, since \
                 hosts cannot be made here: {}",
                in_a_line(&error)
            );
            play(&Network::Loopback(support::free_port()));
        }
        Ok(()) if before.is_empty() => {
            println!(
                "{NOTICE}three nodes in network namespaces, of which one was cut off and one not heard by the \
                 others"
            );
            play(&Network::Hosts(Hosts::make(NODES).unwrap()));
        }
        Ok(()) => again(&before),
    }
}

/// Runs this test again where it may make hosts, and says what it said.
fn again(before: &[OsString]) {
    let (program, words) = before.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(words).arg(std::env::current_exe().unwrap()).args(["--exact", TEST, "--nocapture"]);
    let ran = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stdout).into_owned();
    let notice = told.lines().find_map(|line| Some(line.split_once(NOTICE)?.1));
    match notice.filter(|_| ran.status.success()) {
        Some(notice) => println!("{NOTICE}{notice} (in a user namespace)"),
        None => {
            // Indented, so that nobody takes its lines for those of another test.
            let all = format!("{told}\n{}", String::from_utf8_lossy(&ran.stderr));
            panic!("in a user namespace: {}\n    {}", ran.status, all.replace('\n', "\n    "));
        }
    }
}

/// An error and its cause, in one line.
fn in_a_line(error: &HostsError) -> String {
    let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{error}{cause}").replace('\n', "; ")
}

/// Two rounds, and a look at every acknowledged write of both. A node that was cut off in the first round is
/// a copy that the second one relies on.
fn play(network: &Network) {
    let mut nodes = Nodes::start(network);
    // Whoever takes over has to agree on a leader of the configuration group as well.
    let first = nodes.group_leader();
    let second = (first + 1) % NODES;
    let mut acknowledged = round(network, &mut nodes, first, Cut::Off);
    acknowledged.extend(round(network, &mut nodes, second, Cut::Unheard));
    let mut client = Client::new(network, first);
    let mut is_lost = |key: &str| {
        let found = client.insist(&format!("GET {key}"));
        found != format!("${}\r\n{key}\r\n", key.len())
    };
    let lost: Vec<&String> = acknowledged.iter().filter(|key| is_lost(key.as_str())).collect();
    assert!(lost.is_empty(), "of {} acknowledged writes these are lost: {lost:?}", acknowledged.len());
    println!("{} acknowledged writes are all there", acknowledged.len());
}

/// Cuts one node off, heals it, and returns the keys of all writes that were acknowledged meanwhile.
fn round(network: &Network, nodes: &mut Nodes<'_>, victim: usize, cut: Cut) -> Vec<String> {
    let other = (victim + 1) % NODES;
    let [across, beside] = ["across", "beside"].map(|side| format!("{side}-{victim}"));
    let course = Course::default();
    std::thread::scope(|scope| {
        let over = Over(&course);
        let across = scope.spawn(|| write_across(network, other, &across, &course));
        let beside = scope.spawn(|| write_beside(network, victim, &beside, &course));
        wait_until("clients on both sides are answered", || course.across().min(course.beside()) >= MANY);
        cut_and_heal(network, nodes, [victim, other], cut, &course);
        drop(over);
        let (mut acknowledged, beside) = (across.join().unwrap(), beside.join().unwrap());
        if network.is_cut_at_once() {
            let wrong = beside.while_cut;
            assert!(wrong.is_empty(), "{cut:?}: a node acknowledged what no other node can have: {wrong:?}");
        }
        acknowledged.extend(beside.acknowledged);
        acknowledged
    })
}

fn cut_and_heal(
    network: &Network,
    nodes: &mut Nodes<'_>,
    [victim, other]: [usize; 2],
    cut: Cut,
    course: &Course,
) {
    let (key, mut held) = led_by(network, victim);
    nodes.cut(victim, cut);
    course.enter(Moment::Cut);
    let mut client = Client::new(network, other);
    assert_eq!(client.insist(&format!("SET {key} after")), "+OK\r\n");
    assert_ne!(client.asked, victim, "{cut:?}: it was not cut off");
    // From now on its own value is out of date. Its answer is read later: a stopped node has none yet.
    let asked = held.send(&format!("GET {key}"));
    wait_for_more(course, "the majority serves every slot");
    course.enter(Moment::Healed);
    nodes.heal(victim, cut);
    let told = asked.and_then(|()| held.hear()).unwrap_or_default();
    assert_ne!(told, "$6\r\nbefore\r\n", "{cut:?}: a node read what others had overwritten");
    wait_until("all copies are in sync again", || nodes.is_whole());
    wait_for_more(course, "clients go on afterwards");
    assert_eq!(client.insist(&format!("GET {key}")), "$5\r\nafter\r\n", "{cut:?}");
}

/// A key whose slot this node serves, with a first value, and the connection over which that was written.
fn led_by(network: &Network, node: usize) -> (String, Speaker) {
    let mut speaker = Speaker::connect(network, node, node, Duration::from_secs(10)).unwrap();
    let mut keys = (0..1_000).map(|number| format!("turn-{node}-{number}"));
    let key = keys.find(|key| speaker.say(&format!("SET {key} before")).unwrap() == "+OK\r\n");
    (key.expect("the node serves a slot"), speaker)
}

/// Waits until many more writes are acknowledged than so far.
fn wait_for_more(course: &Course, what: &str) {
    let so_far = course.across();
    wait_until(what, || course.across() >= so_far + MANY);
}

/// Looks again and again until something is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

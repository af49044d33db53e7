//! A slot that is too long to be gathered is copied to a node that was down, and is complete there.

use super::*;

/// The memory in which a slot may be gathered here.
const GATHERING: GatheringRoom = GatheringRoom { slot_bytes_max: 64 << 10, bytes_max: 128 << 10 };

const KEYS: u32 = 200;

fn value(number: u32) -> String {
    format!("{number:05}").repeat(2_000)
}

#[test]
fn a_slot_longer_than_may_be_gathered_is_whole_at_a_node_that_had_nothing_and_at_one_that_had_less() {
    is_whole_behind_an_absence(|_| SimDisk::seeded(9));
    is_whole_behind_an_absence(SimDisk::clone);
}

/// The third node is down while the slot becomes long, and is the only one left in the end.
fn is_whole_behind_an_absence(comes_back_with: impl Fn(&SimDisk) -> SimDisk) {
    let mut ring = Three::start(1_000_000);
    let mut client = Client::of(&ring.nodes[0]);
    // On a busy machine a copy may count as lost for a while.
    wait_for("there is something", || client.ask(&["set", "{long}old", "value"]) == "OK");
    let third = ring.nodes.remove(2);
    let former = third.address();
    third.stop().unwrap();
    let mut client = Client::of(&ring.nodes[0]);
    for number in 0..KEYS {
        let (key, value) = (format!("{{long}}{number}"), value(number));
        wait_for(&key, || client.ask(&["set", &key, &value]) == "OK");
    }
    wait_for("the old one is gone", || ["0", "1"].contains(&&*client.ask(&["del", "{long}old"])));
    let disk = comes_back_with(&ring.disks[2]);
    let others = others(&ring.group, 3, 1_000_000);
    ring.nodes.push(start_at(former, Persistence::default(), &disk, Some(others), GATHERING));
    let came_in_pieces = "atoll_ring_long_copies_total 1";
    wait_for("it came in pieces", || ring.nodes[2].metrics_text().contains(came_in_pieces));
    ring.wait_for_copies();
    for _ in 0..2 {
        ring.nodes.remove(0).stop().unwrap();
    }
    let mut client = Client::of(&ring.nodes[0]);
    for number in 0..KEYS {
        let (key, value) = (format!("{{long}}{number}"), value(number));
        wait_for(&key, || client.once(&["get", &key]) == value);
    }
    assert_eq!(client.once(&["exists", "{long}old"]), "0");
    ring.stop();
}

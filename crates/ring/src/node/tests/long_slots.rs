//! A slot that is too long to be gathered is copied to a node that lost what it had, and is whole there.

use super::*;

/// What a slot may be gathered in here.
const GATHERING: GatheringRoom = GatheringRoom { slot_bytes_max: 64 << 10, bytes_max: 128 << 10 };

const KEYS: u32 = 200;

fn value(number: u32) -> String {
    format!("{number:05}").repeat(2_000)
}

#[test]
fn a_slot_longer_than_may_be_gathered_is_copied_to_a_node_that_has_nothing() {
    let mut ring = Three::start(1_000_000);
    // What it had is lost with its disk.
    ring.nodes.remove(2).stop().unwrap();
    let mut client = Client::of(&ring.nodes[0]);
    for number in 0..KEYS {
        let (key, value) = (format!("{{long}}{number}"), value(number));
        // A machine that is busy may make a copy a lost one for a while.
        wait_for(&key, || client.ask(&["set", &key, &value]) == "OK");
    }
    let disk = SimDisk::seeded(9);
    ring.nodes.push(start_gathering(&disk, Some(others(&ring.group, 3, 1_000_000)), GATHERING));
    let slot = atoll_replica::Slot(slot_of(b"{long}").into());
    let is_counted = |table: &Table| {
        // Those of the life before count no more once this one has begun.
        table.slot(slot).in_sync.contains(NodeId(3))
            && table.incarnation(NodeId(3)).is_some_and(|life| life.0 > 1)
    };
    wait_for("the copy counts", || is_counted(&ring.group.table()));
    wait_for("it came in pieces", || {
        ring.nodes[2].metrics_text().contains("atoll_ring_long_copies_total{loop=\"0\"} 1")
    });
    ring.wait_for_copies();
    // It is all that is left.
    for _ in 0..2 {
        ring.nodes.remove(0).stop().unwrap();
    }
    let mut client = Client::of(&ring.nodes[0]);
    for number in 0..KEYS {
        let (key, value) = (format!("{{long}}{number}"), value(number));
        wait_for(&key, || client.once(&["get", &key]) == value);
    }
    ring.stop();
}

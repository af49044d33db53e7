//! On a disk that is nearly full, long strings get no other lifetime, since that writes them again.

use super::*;

#[test]
fn on_a_full_disk_long_strings_keep_their_lifetimes_and_all_else_that_makes_room_goes_on() {
    let disk = SimDisk::seeded(4);
    let node = start(&disk, None);
    let mut client = Client::of(&node);
    let long = "x".repeat(100_000);
    for key in ["long", "other", "third"] {
        assert_eq!(client.ask(&["set", key, &long]), "OK");
    }
    assert_eq!(client.ask(&["set", "short", "value"]), "OK");
    // Less than what is kept free, and far more than what these writes take.
    leave(&disk, Some(RESERVE_BYTES / 4));
    wait_for("it says so", || node.metrics_text().contains("atoll_ring_out_of_space 1"));
    for request in [
        &["expire", "long", "1000"][..],
        &["persist", "long"],
        &["getex", "long", "ex", "1000"],
        &["getex", "long", "persist"],
        &["at.id", "a", "1", "1", "pexpire", "long", "1000000"],
    ] {
        assert!(client.ask(request).starts_with("-OOM"), "{request:?}");
    }
    assert_eq!(client.ask(&["ttl", "long"]), "-1");
    assert_eq!(client.ask(&["getex", "long"]).len(), long.len());
    assert_eq!(client.ask(&["expire", "short", "1000"]), "1");
    assert_eq!(client.ask(&["persist", "short"]), "1");
    assert_eq!(client.ask(&["expire", "long", "0"]), "1");
    assert_eq!(client.ask(&["expireat", "other", "1"]), "1");
    assert_eq!(client.ask(&["exists", "long"]), "0");
    leave(&disk, None);
    wait_for("there is room again", || client.ask(&["expire", "third", "1000"]) == "1");
    node.stop().unwrap();
}

#[test]
fn lifetimes_of_long_strings_leave_room_for_deletions() {
    let disk = SimDisk::seeded(5);
    let node = start(&disk, None);
    let mut client = Client::of(&node);
    let long = "x".repeat(8 << 20);
    assert_eq!(client.ask(&["set", "long", &long]), "OK");
    leave(&disk, Some(96 << 20));
    // Each is later than the one before: a deadline that is there already would not be written.
    let refused = (1..200).find(|number| {
        let reply = client.ask(&["expire", "long", &(1_000 * number).to_string()]);
        assert!(reply == "1" || reply.starts_with("-OOM"), "{reply}");
        reply != "1"
    });
    assert!(refused.is_some());
    assert!(disk.counters().out_of_space == 0, "something is left");
    assert_eq!(client.ask(&["del", "long"]), "1");
    wait_for("there is room again", || client.ask(&["set", "long", &long]) == "OK");
    node.stop().unwrap();
}

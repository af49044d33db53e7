//! Keyspaces of different durability on one node: a reply waits for the sync of what it may have seen, and
//! for no other one.

use super::*;

/// A loop whose first keyspace has one class and whose second has another.
fn run_with(first: Persistence, second: Persistence) -> Running {
    let (name, durability) = ("other".into(), Some(second));
    let rules = KeyspaceRules { name, copies: 0, in_sync_min: 0, latency_ms: 0, durability };
    let chosen = |address| Choices { persistence: first, ..Choices::of_test(Arc::new(SystemClock), address) };
    run_ready(ready_with(Arc::default(), chosen, &[rules]))
}

/// A client in the second keyspace.
fn in_second(running: &Running) -> Socket {
    let mut socket = running.connect();
    say(&mut socket, "SELECT 1");
    assert_eq!(hear(&mut socket, 5), "+OK\r\n");
    socket
}

#[test]
fn what_is_only_flushed_is_answered_while_the_sync_of_another_keyspace_lasts() {
    let (always, flushed) = (Persistence::Always, Persistence::EverySecond);
    for (first, second) in [(always, flushed), (flushed, always), (always, Persistence::Off)] {
        let running = run_with(first, second);
        let (mut one, mut other) = (running.connect(), in_second(&running));
        let (synced, free) = match first {
            Persistence::Always => (&mut one, &mut other),
            _ => (&mut other, &mut one),
        };
        let before = running.disk.syncs();
        running.disk.set(Gate::Shut);
        say(synced, "SET a 1");
        running.disk.wait_behind(before);
        assert!(is_silent(&running, synced), "{first:?} {second:?}");
        say(free, "SET a 22");
        assert_eq!(hear(free, 5), "+OK\r\n", "{first:?} {second:?}");
        say(free, "GET a");
        assert_eq!(hear(free, 8), "$2\r\n22\r\n", "{first:?} {second:?}");
        assert!(is_silent(&running, synced), "its own sync still lasts");
        running.disk.set(Gate::Open);
        assert_eq!(hear(synced, 5), "+OK\r\n");
        running.end().unwrap();
    }
}

#[test]
fn who_looks_into_the_synced_keyspace_waits_with_all_replies() {
    let running = run_with(Persistence::EverySecond, Persistence::Always);
    let (mut writer, mut reader, before) = (in_second(&running), running.connect(), running.disk.syncs());
    running.disk.set(Gate::Shut);
    say(&mut writer, "SET a 1");
    running.disk.wait_behind(before);
    // All in one turn: the reply from the flushed keyspace comes before the other, and leaves with it.
    say(&mut reader, "GET a\r\nSELECT 1\r\nGET a");
    running.wait_for_commands(5);
    assert!(is_silent(&running, &mut reader));
    running.disk.set(Gate::Open);
    assert_eq!(hear(&mut writer, 5), "+OK\r\n");
    assert_eq!(hear(&mut reader, 17), "$-1\r\n+OK\r\n$1\r\n1\r\n");
    running.end().unwrap();
}

#[test]
fn what_counts_all_keyspaces_waits_for_the_synced_one() {
    let running = run_with(Persistence::EverySecond, Persistence::Always);
    let (mut writer, mut reader, before) = (in_second(&running), running.connect(), running.disk.syncs());
    running.disk.set(Gate::Shut);
    say(&mut writer, "SET a 1");
    running.disk.wait_behind(before);
    say(&mut reader, "INFO keyspace");
    running.wait_for_commands(3);
    assert!(is_silent(&running, &mut reader), "it counts a key that could be lost");
    running.disk.set(Gate::Open);
    assert_eq!(hear(&mut writer, 5), "+OK\r\n");
    running.end().unwrap();
}

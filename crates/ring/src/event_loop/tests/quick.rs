//! A loop on a quick disk syncs by itself, once no other connection can have a turn.

use super::turns::{Standing, client, heard};
use super::*;
use std::sync::atomic::AtomicU64;

/// A loop on a disk that has been quick for long, with some clients; the clock stands still.
fn quick(clients: usize) -> (Ready, Arc<Standing>, Vec<Socket>) {
    quick_with(clients, &[])
}

/// The same with keyspaces beside the first one, in which the clients are.
fn quick_with(clients: usize, rules: &[KeyspaceRules]) -> (Ready, Arc<Standing>, Vec<Socket>) {
    let clock = Arc::new(Standing(SystemClock.now(), AtomicU64::new(0)));
    let of_loop = clock.clone();
    let mut ready = ready_with(Arc::default(), |address| Choices::of_test(of_loop, address), rules);
    let mut clients: Vec<_> = (0..clients).map(|_| client(&ready, b"PING\r\n")).collect();
    ready.let_in();
    while clients.iter_mut().any(|client| client.peek(&mut [0]).is_err()) {
        ready.pass().unwrap();
    }
    clients.iter_mut().for_each(|client| assert_eq!(heard(client), "+PONG\r\n"));
    for _ in 0..64 {
        say(&mut clients[0], "SET a 0");
        while heard(&mut clients[0]).is_empty() {
            ready.pass().unwrap();
        }
    }
    (ready, clock, clients)
}

impl Ready {
    fn pass(&mut self) -> Result<(), NodeError> {
        self.event_loop.pass(&mut Events::with_capacity(EVENTS_MAX))
    }

    /// Whether the last sync was made by the loop, which runs on this thread.
    fn synced_here(&self) -> bool {
        *self.disk.synced_by.lock().unwrap() == Some(std::thread::current().id())
    }
}

#[test]
fn a_quick_disk_is_synced_by_the_loop_once_for_all_who_are_there() {
    let (mut ready, _, mut clients) = quick(3);
    let before = ready.disk.syncs();
    clients.iter_mut().for_each(|client| say(client, "SET a 1"));
    ready.pass().unwrap();
    assert!(clients.iter_mut().all(|client| heard(client).is_empty()), "nothing is synced yet");
    assert_eq!(ready.disk.syncs(), before);
    ready.pass().unwrap();
    assert!(clients.iter_mut().all(|client| heard(client) == "+OK\r\n"));
    assert!(ready.synced_here() && ready.disk.syncs() == before + 1);
}

#[test]
fn behind_a_slow_sync_the_thread_has_the_next_ones() {
    let (mut ready, clock, mut clients) = quick(1);
    let slow = clock.clone();
    let slow = move || {
        slow.1.fetch_add(3_000, Ordering::Relaxed);
    };
    *ready.disk.meanwhile.lock().unwrap() = Some(Box::new(slow));
    for synced_here in [true, false, false] {
        say(&mut clients[0], "SET a 1");
        while heard(&mut clients[0]).is_empty() {
            ready.pass().unwrap();
        }
        assert_eq!(ready.synced_here(), synced_here);
    }
}

#[test]
fn who_is_held_and_goes_on_asking_does_not_put_its_sync_off() {
    let (mut ready, _, mut clients) = quick(1);
    say(&mut clients[0], "SET a 1");
    ready.pass().unwrap();
    say(&mut clients[0], "SET a 2");
    ready.pass().unwrap();
    assert_eq!(heard(&mut clients[0]), "+OK\r\n");
}

#[test]
fn turns_of_others_put_a_sync_off_for_some_time_only_whether_they_write_or_not() {
    for words in ["PING", "SET b 1"] {
        let (mut ready, clock, mut clients) = quick(3);
        let before = ready.disk.syncs();
        say(&mut clients[0], "SET a 1");
        ready.pass().unwrap();
        clock.1.fetch_add(10_000, Ordering::Relaxed);
        say(&mut clients[1], words);
        ready.pass().unwrap();
        assert_eq!(ready.disk.syncs(), before, "somebody had a turn");
        clock.1.fetch_add(10_000, Ordering::Relaxed);
        say(&mut clients[2], words);
        ready.pass().unwrap();
        assert!(!ready.event_loop.here.slots.sync_waits(), "{words} puts it off for longer");
        ready.disk.wait_behind(before);
        assert!(!ready.synced_here());
    }
}

#[test]
fn turns_of_those_who_wait_for_no_sync_put_none_off_and_go_on_beside_it() {
    for class in [Persistence::EverySecond, Persistence::Off] {
        let (name, durability) = ("other".into(), Some(class));
        let rules = KeyspaceRules { name, copies: 0, in_sync_min: 0, latency_ms: 0, durability };
        let (mut ready, _, mut clients) = quick_with(2, &[rules]);
        for words in ["SELECT 1", "SET a 22"] {
            say(&mut clients[1], words);
            while heard(&mut clients[1]).is_empty() {
                ready.pass().unwrap();
            }
        }
        let before = ready.disk.syncs();
        say(&mut clients[0], "SET a 1");
        ready.pass().unwrap();
        assert!(ready.event_loop.here.slots.sync_waits(), "somebody may come who shares it");
        say(&mut clients[1], "GET a");
        ready.pass().unwrap();
        assert_eq!(heard(&mut clients[1]), "$2\r\n22\r\n", "{class:?}");
        assert!(!ready.event_loop.here.slots.sync_waits(), "{class:?}: who never shares it puts it off");
        ready.disk.wait_behind(before);
        assert!(!ready.synced_here(), "{class:?}: it holds who does not wait for it");
        while heard(&mut clients[0]).is_empty() {
            ready.pass().unwrap();
        }
        // Also with a turn in which nothing is executed, for want of the rest of the request.
        say(&mut clients[0], "SET a 2");
        ready.pass().unwrap();
        clients[1].write_all(b"GE").unwrap();
        ready.pass().unwrap();
        assert!(!ready.event_loop.here.slots.sync_waits(), "{class:?}: a part of a request puts it off");
    }
}

#[test]
fn after_a_sync_of_the_loop_that_failed_nobody_is_told_anything() {
    let (mut ready, _, mut clients) = quick(1);
    ready.disk.set(Gate::Broken);
    say(&mut clients[0], "SET a 1");
    ready.pass().unwrap();
    assert!(ready.pass().is_err());
    assert_eq!(heard(&mut clients[0]), "");
}

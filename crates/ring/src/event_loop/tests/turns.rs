//! No client keeps the others waiting for longer than a turn, whatever it asks for. The loop advances only
//! when a test steps it.

use super::*;
use crate::clock::Now;
use std::sync::atomic::AtomicU64;

/// A client that has sent these bytes.
pub(super) fn client(ready: &Ready, words: &[u8]) -> Socket {
    let mut socket = Socket::connect(ready.address).unwrap();
    socket.write_all(words).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// What has arrived.
pub(super) fn heard(socket: &mut Socket) -> String {
    let mut heard = Vec::new();
    drop(socket.read_to_end(&mut heard));
    String::from_utf8(heard).unwrap()
}

impl Ready {
    /// Accepts all waiting clients.
    pub(super) fn let_in(&mut self) {
        self.event_loop.has_waiting = true;
        self.event_loop.here.look_at_clock();
        self.event_loop.accept();
    }

    /// Polls once.
    fn look(&mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.event_loop.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().for_each(|event| self.event_loop.notice(event));
    }
}

#[test]
fn who_asks_for_much_that_is_told_at_the_end_of_a_round_leaves_turns_to_others() {
    let mut ready = ready(Arc::new(SystemClock), ConnectionLimits::default());
    let mut asking = client(&ready, &b"CLIENT LIST\r\n".repeat(100));
    let mut other = client(&ready, b"PING\r\n");
    ready.let_in();
    ready.event_loop.round().unwrap();
    ready.event_loop.round().unwrap();
    assert_eq!(heard(&mut other), "+PONG\r\n");
    // The rest of its replies comes later.
    for _ in 0..20 {
        ready.event_loop.round().unwrap();
    }
    assert_eq!(heard(&mut asking).matches("id=1 ").count(), 100);
}

/// A clock that advances by a millisecond at each reading.
#[derive(Default)]
struct Stepping(AtomicU64);

impl Clock for Stepping {
    fn now(&self) -> Now {
        let now = SystemClock.now();
        Now { moment: now.moment.after(self.0.fetch_add(1_000, Ordering::Relaxed)), ..now }
    }
}

#[test]
fn a_turn_ends_when_its_time_is_over_though_more_is_here() {
    let mut ready = ready(Arc::<Stepping>::default(), ConnectionLimits::default());
    let mut client = client(&ready, &b"PING\r\n".repeat(1024));
    ready.let_in();
    ready.event_loop.round().unwrap();
    let of_one_turn = heard(&mut client).len() / "+PONG\r\n".len();
    assert!((1..100).contains(&of_one_turn), "{of_one_turn}");
    for _ in 0..100 {
        ready.event_loop.round().unwrap();
    }
    assert_eq!(of_one_turn + heard(&mut client).len() / "+PONG\r\n".len(), 1024);
}

#[test]
fn what_takes_a_look_at_every_slot_is_done_once_in_a_turn() {
    let mut ready = ready(Arc::new(SystemClock), ConnectionLimits::default());
    for words in ["DBSIZE", "INFO keyspace", "AT.KEYSPACE LIST"] {
        let mut client = client(&ready, format!("{words}\r\n").repeat(3).as_bytes());
        let before = ready.metrics.commands.get();
        ready.let_in();
        ready.event_loop.round().unwrap();
        assert_eq!(ready.metrics.commands.get() - before, 1, "{words}");
        for _ in 0..3 {
            ready.event_loop.round().unwrap();
        }
        assert_eq!(ready.metrics.commands.get() - before, 3, "{words}");
        assert!(!heard(&mut client).is_empty());
    }
}

#[test]
fn a_round_ends_when_its_time_is_over_and_the_others_are_first_in_the_next_one() {
    let mut ready = ready(Arc::<Stepping>::default(), ConnectionLimits::default());
    let mut clients: Vec<_> = (0..100).map(|_| client(&ready, &b"PING\r\n".repeat(1024))).collect();
    ready.let_in();
    ready.event_loop.round().unwrap();
    clients.retain_mut(|client| heard(client).is_empty());
    assert!((50..100).contains(&clients.len()), "{} had no turn", clients.len());
    // No client has a second turn before each had its first, although all have more to do.
    for _ in 0..10 {
        ready.event_loop.round().unwrap();
    }
    assert!(clients.iter_mut().all(|client| !heard(client).is_empty()));
}

#[test]
fn what_was_received_for_a_turn_that_was_cut_short_is_executed_behind_the_sync_that_came_between() {
    let mut ready = ready(Arc::new(SystemClock), ConnectionLimits::default());
    let mut waits = client(&ready, b"HELLO 3\r\nAT.WATCH 7 60000 k f PRESENT\r\n");
    ready.let_in();
    ready.event_loop.round().unwrap();
    ready.look();
    ready.event_loop.round().unwrap();
    assert!(heard(&mut waits).ends_with("+OK\r\n"));
    // In one round the field that it waits for is written, others ask for so much that it has no turn, and it
    // has a request itself.
    ready.disk.set(Gate::Shut);
    let _writer = client(&ready, b"HSET k f 1\r\n");
    let _asking: Vec<_> = (0..8).map(|_| client(&ready, b"CLIENT LIST\r\n")).collect();
    ready.let_in();
    waits.write_all(b"PING\r\n").unwrap();
    ready.look();
    assert_eq!(ready.event_loop.next.len(), 10);
    ready.event_loop.round().unwrap();
    ready.event_loop.round().unwrap();
    assert_eq!(heard(&mut waits), "");
    ready.disk.set(Gate::Open);
    let mut told = String::new();
    while !told.contains("at.watch") {
        ready.event_loop.release().unwrap();
        told.push_str(&heard(&mut waits));
    }
    ready.event_loop.round().unwrap();
    told.push_str(&heard(&mut waits));
    assert!(told.ends_with("+PONG\r\n"), "{told}");
}

/// A clock that stands still until it is advanced.
pub(super) struct Standing(pub(super) Now, pub(super) AtomicU64);

impl Clock for Standing {
    fn now(&self) -> Now {
        Now { moment: self.0.moment.after(self.1.load(Ordering::Relaxed)), ..self.0 }
    }
}

#[test]
fn a_round_has_its_whole_time_however_long_it_took_to_come_to_it() {
    let clock = Arc::new(Standing(SystemClock.now(), AtomicU64::new(0)));
    let mut ready = ready(clock.clone(), ConnectionLimits::default());
    let mut clients: Vec<_> = (0..100).map(|_| client(&ready, b"PING\r\n")).collect();
    ready.let_in();
    // Messages of others were received, and held replies were sent.
    clock.1.store(30_000, Ordering::Relaxed);
    ready.event_loop.round().unwrap();
    let answered = clients.iter_mut().filter_map(|client| (!heard(client).is_empty()).then_some(())).count();
    assert_eq!(answered, 100);
}

#[test]
fn of_any_number_of_strangers_little_is_said_in_the_log() {
    let clock = Arc::new(Standing(SystemClock.now(), AtomicU64::new(0)));
    let mut ready = ready(clock.clone(), ConnectionLimits::default());
    let warned = crate::warned::times(|| {
        for words in [&b"POST / HTTP/1.1\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
            let strangers: Vec<_> = (0..50).map(|_| client(&ready, words)).collect();
            ready.let_in();
            ready.event_loop.round().unwrap();
            drop(strangers);
        }
        clock.1.store(2_000_000, Ordering::Relaxed);
        ready.event_loop.here.look_at_clock();
        ready.event_loop.tick().unwrap();
    });
    assert_eq!(ready.metrics.connections_dropped.get(), 100);
    assert_eq!(warned, 2, "the first one, and how many came behind it");
}

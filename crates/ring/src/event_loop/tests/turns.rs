//! Nobody keeps the others waiting for longer than a turn, whatever it asks for. The loop goes on only when it is told to.

use super::*;

/// A client that sent this already.
fn client(ready: &Ready, words: &[u8]) -> Socket {
    let mut socket = Socket::connect(ready.address).unwrap();
    socket.write_all(words).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// What arrived by now.
fn heard(socket: &mut Socket) -> String {
    let mut heard = Vec::new();
    drop(socket.read_to_end(&mut heard));
    String::from_utf8(heard).unwrap()
}

impl Ready {
    /// Lets everybody in who is there.
    fn let_in(&mut self) {
        self.event_loop.has_waiting = true;
        self.event_loop.here.look_at_clock();
        self.event_loop.accept();
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
    // Its rest is for later, and comes.
    for _ in 0..20 {
        ready.event_loop.round().unwrap();
    }
    assert_eq!(heard(&mut asking).matches("id=1 ").count(), 100);
}

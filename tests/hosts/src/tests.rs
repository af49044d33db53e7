//! Cuts and blocked directions do what they say: tests that use them would otherwise show nothing.
#![allow(clippy::print_stdout, reason = "xtask reads what was skipped")]

use super::{Hosts, before, possible};
use std::net::UdpSocket;
use std::time::Duration;

const PORT: u16 = 7000;
/// How long an answer is waited for before the packet is sent again.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often a packet is sent that must arrive, and one that must not.
const MUST_ARRIVE: usize = 200;
const MUST_NOT_ARRIVE: usize = 4;

/// A socket on a host.
fn socket(hosts: &Hosts, host: usize) -> UdpSocket {
    let network = hosts.network(host).unwrap();
    let opened = move || {
        network.enter().unwrap();
        UdpSocket::bind((Hosts::address(host), PORT)).unwrap()
    };
    let socket = std::thread::spawn(opened).join().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Whether a packet reaches the socket of a host. Late ones of earlier calls have another word.
fn reaches(from: &UdpSocket, (to, host): (&UdpSocket, usize), word: u8, times: usize) -> bool {
    (0..times).any(|_| {
        // It may be refused at once where the way is known to be cut.
        let _ = from.send_to(&[word], (Hosts::address(host), PORT));
        let mut heard = [0];
        to.recv(&mut heard).is_ok() && heard == [word]
    })
}

#[test]
fn a_host_that_is_cut_off_hears_nobody_and_one_that_is_blocked_in_one_direction_is_not_heard() {
    if !before().is_empty() {
        println!("SKIPPED [network-namespaces] only root can make hosts in this process");
        return;
    }
    if let Err(error) = possible() {
        println!("SKIPPED [network-namespaces] {}", error.to_string().replace('\n', "; "));
        return;
    }
    let hosts = Hosts::make(2).unwrap();
    let [first, second] = [0, 1].map(|host| socket(&hosts, host));
    let forth = |word, times| reaches(&first, (&second, 1), word, times);
    let back = |word, times| reaches(&second, (&first, 0), word, times);
    assert!(forth(1, MUST_ARRIVE) && back(1, MUST_ARRIVE));
    hosts.cut(0).unwrap();
    assert!(!forth(2, MUST_NOT_ARRIVE) && !back(2, MUST_NOT_ARRIVE), "a host that is cut off talks");
    hosts.heal(0).unwrap();
    assert!(forth(3, MUST_ARRIVE) && back(3, MUST_ARRIVE), "a cut that was healed is still one");
    hosts.block(0, 1, true).unwrap();
    assert!(!forth(4, MUST_NOT_ARRIVE), "a direction that is blocked is open");
    assert!(back(4, MUST_ARRIVE), "the other direction is blocked too");
    hosts.block(0, 1, false).unwrap();
    assert!(forth(5, MUST_ARRIVE), "a direction stays blocked");
}

#[test]
fn a_host_that_was_not_made_is_an_error() {
    if before().is_empty() && possible().is_ok() {
        let hosts = Hosts::make(1).unwrap();
        assert!(hosts.within(1).is_err() && hosts.network(1).is_err() && hosts.block(1, 0, true).is_err());
    }
}

//! The metrics of a node with a certificate: encrypted where other machines can read them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;
#[path = "support/tls.rs"]
mod tls;

use atoll_ring::{Node, NodeOptions, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Put, options};
use tls::Certificates;

const SECRET: &str = "0123456789abcdef";

/// Options of a node with a certificate that serves its metrics at an address.
fn metered(certificates: &Certificates, metrics: &str) -> NodeOptions {
    let tls = Some(certificates.node("node"));
    let metrics = Some(metrics.parse().unwrap());
    NodeOptions { tls, metrics, token: Token::new(SECRET.as_bytes()), ..options() }
}

fn node(certificates: &Certificates, metrics: &str) -> Node {
    Node::start(metered(certificates, metrics)).unwrap()
}

/// A connection to the metrics of a node.
fn socket(node: &Node) -> TcpStream {
    let port = node.metrics_address().unwrap().port();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// What is answered to a request for the metrics, up to the end of the connection.
fn get(stream: &mut (impl Read + Write), header: &str) -> String {
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{header}\r\n").as_bytes()).unwrap();
    let mut told = String::new();
    // A connection that ended without a close notification of TLS fails here.
    stream.read_to_string(&mut told).unwrap();
    told
}

#[test]
fn metrics_that_other_machines_can_read_are_encrypted_and_need_the_token() {
    let certificates = Certificates::new();
    let node = node(&certificates, "0.0.0.0:0");
    let shown = format!("Authorization: Bearer {SECRET}\r\n");
    let told = get(&mut certificates.connect(socket(&node)), &shown);
    assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
    // In full, also where it takes more than one record.
    let (head, body) = told.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    assert!(body.contains("\natoll_ring_slots_led 16384\n"), "{body}");
    let told = get(&mut certificates.connect(socket(&node)), "");
    assert!(told.starts_with("HTTP/1.1 401 "), "{told}");
}

#[test]
fn who_asks_for_encrypted_metrics_in_plain_text_is_told_nothing_but_that() {
    let certificates = Certificates::new();
    let node = node(&certificates, "0.0.0.0:0");
    let told = get(&mut socket(&node), &format!("Authorization: Bearer {SECRET}\r\n"));
    assert!(told.starts_with("HTTP/1.1 400 ") && told.ends_with("https alone\n"), "{told}");
    let mut stranger = Certificates::new().connect(socket(&node));
    let error = stranger.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[test]
fn a_handshake_that_does_not_end_keeps_no_other_out_and_is_ended() {
    let (certificates, clock) = (Certificates::new(), Arc::new(Put::default()));
    let options = NodeOptions { clock: clock.clone(), ..metered(&certificates, "0.0.0.0:0") };
    let node = Node::start(options).unwrap();
    let mut half = socket(&node);
    half.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    let told = get(&mut certificates.connect(socket(&node)), "");
    assert!(told.starts_with("HTTP/1.1 401 "), "{told}");
    clock.0.fetch_add(6_000_000, Ordering::Relaxed);
    // A byte now and then gives it no more time.
    half.write_all(&[0]).unwrap();
    match half.read(&mut [0]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}

#[test]
fn metrics_for_this_machine_alone_stay_as_they_are() {
    let certificates = Certificates::new();
    let node = node(&certificates, "127.0.0.1:0");
    let told = get(&mut socket(&node), "");
    assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
}

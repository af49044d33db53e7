//! `atoll ring` with certificates: a ring of three processes that encrypts everything, and wrong files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

#[allow(dead_code, reason = "other tests use more of it")]
mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use support::{Workspace, free_port};

#[test]
fn a_ring_of_three_processes_encrypts_everything_between_them_and_its_clients() {
    let (place, port) = (Workspace::new(), free_port());
    let mut up =
        place.spawn(&["--json", "ring", "up", "--store", "ring", "--tls", "--port", &port.to_string()]);
    let started = support::started(&mut up);
    assert_eq!(started["nodes"].as_array().unwrap().len(), 3);
    for name in ["authority", "node-1", "node-2", "node-3"] {
        let path = place.folder.path().join(format!("ring/tls/{name}.key"));
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let trusting =
        format!("ring://127.0.0.1:{port}/?token-file=ring/token&tls-authority=ring/tls/authority.pem");
    for key in 0..20 {
        let put = place.run(&["kv", "put", "--store", &trusting, &format!("p{key}"), "sort", "value"]);
        assert_eq!((put.exit, put.stderr.as_str()), (Some(0), ""));
    }
    let got = place.run(&["kv", "get", "--store", &trusting, "p7", "sort"]);
    assert_eq!((got.exit, got.text().trim()), (Some(0), "value"), "{}", got.stderr);
    // On a busy machine a copy may count as lost for a while.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let status = place.run(&["ring", "status", "--store", &trusting]);
        if status.exit == Some(0) && status.text().contains("all served, at least 3 copies") {
            break;
        }
        assert!(Instant::now() < until, "{status:?}");
    }
    // None of its doors serves a client that does not encrypt.
    for door in [port, port + 10_000, port + 20_000] {
        let mut plain = TcpStream::connect(("127.0.0.1", door)).unwrap();
        plain.write_all(b"PING\r\nAUTH nobody\r\nSET a 1\r\nQUIT\r\n").unwrap();
        let mut said = Vec::new();
        drop(plain.read_to_end(&mut said));
        assert!(!said.starts_with(b"+") && !said.windows(3).any(|part| part == b"NOA"), "{door}: {said:?}");
    }
    let plain = format!("ring://127.0.0.1:{port}/?token-file=ring/token&time-out=1s");
    let refused = place.run(&["ring", "status", "--store", &plain]);
    assert!(refused.exit != Some(0), "{}", refused.text());
    kill_process(Pid::from_child(&up), Signal::TERM).unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(0));
}

#[test]
fn files_that_cannot_be_used_are_named_before_anything_listens() {
    let place = Workspace::new();
    place.write("empty.pem", "");
    for (arguments, exit, told) in [
        (&["--tls-certificate", "empty.pem"][..], 2, "--tls-key"),
        (&["--tls-authority", "empty.pem"], 2, "--tls-certificate"),
        (&["--tls-certificate", "empty.pem", "--tls-key", "empty.pem"], 12, "empty.pem holds no certificate"),
        (&["--tls-certificate", "no.pem", "--tls-key", "no.key"], 10, "cannot read no.pem"),
    ] {
        let all = [&["ring", "serve", "--memory", "--listen", "127.0.0.1:0"], arguments].concat();
        let failed = place.run(&all);
        assert_eq!(failed.exit, Some(exit), "{arguments:?}: {}", failed.stderr);
        assert!(failed.stderr.contains(told), "{arguments:?}: {}", failed.stderr);
    }
}

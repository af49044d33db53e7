//! The clients of cut and heal, with nodes that redirect, fall silent or forget.

use super::count;
use super::experiment::{Findings, OfCluster};
use super::key;
use super::paced::{Bin, LETTER, Report, Spec, run, run_until};
use super::slots::{SLOTS, slot_of};
use crate::client::parse_command;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A node that serves even slots itself and redirects others to another node; if `faulty`, it forgets every
/// tenth write.
fn node(
    serves: impl Fn(usize) -> bool + Clone + Send + 'static,
    other: SocketAddr,
    faulty: bool,
    held: Arc<Mutex<HashSet<Vec<u8>>>>,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (held, serves) = (Arc::clone(&held), serves.clone());
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let (mut heard, mut scratch) = (Vec::new(), [0; 4096]);
                let mut writes = 0;
                while let Ok(count @ 1..) = stream.read(&mut scratch) {
                    heard.extend_from_slice(&scratch[..count]);
                    while let Some((words, taken)) = parse_command(&heard) {
                        let slot = slot_of(&words[1]);
                        let mut held = held.lock().unwrap();
                        let reply = if !serves(slot) {
                            format!("-MOVED {slot} {other}\r\n").into_bytes()
                        } else if words[0] == b"SET" {
                            writes += 1;
                            if !(faulty && writes % 10 == 0) {
                                held.insert(words[1].clone());
                            }
                            b"+OK\r\n".to_vec()
                        } else if held.contains(&words[1]) {
                            [b"$15\r\n", words[1].as_slice(), b"\r\n"].concat()
                        } else {
                            b"$-1\r\n".to_vec()
                        };
                        drop(held);
                        stream.write_all(&reply).unwrap();
                        heard.drain(..taken);
                    }
                }
            });
        }
    });
    address
}

/// An address that accepts connections and never answers.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn spec(addresses: Vec<SocketAddr>) -> Spec {
    Spec { addresses, token: None, rate: 1_000, run_ms: 1_000, answer_ms_max: 500, seed: 5, numbers_above: 0 }
}

fn total(report: &Report) -> Bin {
    report.between(0, u64::MAX)
}

#[test]
fn requests_follow_moves_to_the_node_that_serves_and_none_is_lost() {
    let held = Arc::new(Mutex::new(HashSet::new()));
    let (_listener, nobody) = silent();
    let second = node(|_| true, nobody, false, Arc::clone(&held));
    let first = node(|slot| slot % 2 == 0, second, false, Arc::clone(&held));
    // No node is silent here, and a busy machine must not look like a failure.
    let report = run(&Spec { answer_ms_max: 5_000, ..spec(vec![first]) }).unwrap();
    let all = total(&report);
    assert!(all.requests >= 950, "{all:?}");
    assert_eq!(all.succeeded, all.requests);
    assert_eq!(all.writes as usize, report.acknowledged.len());
    let held = held.lock().unwrap();
    assert!(report.acknowledged.iter().all(|number| held.contains(key(LETTER, *number).as_bytes())));
    assert_eq!(report.wrong_reads, 0);
}

#[test]
fn a_client_that_knows_no_table_learns_it_and_ends_when_it_is_told_to() {
    let held = Arc::new(Mutex::new(HashSet::new()));
    let (_listener, nobody) = silent();
    let second = node(|_| true, nobody, false, Arc::clone(&held));
    let first = node(|slot| slot % 2 == 0, second, false, Arc::clone(&held));
    let spec = Spec { run_ms: 600_000, answer_ms_max: 5_000, numbers_above: 1_000_000, ..spec(vec![first]) };
    let stop = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let asked = scope.spawn(|| run_until(&spec, &stop));
        while held.lock().unwrap().len() < 100 {
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
        asked.join().unwrap().unwrap()
    });
    let all = total(&report);
    assert!(report.acknowledged.len() >= 100 && all.succeeded == all.requests, "{all:?}");
    assert!(report.acknowledged.iter().all(|number| *number > 1_000_000));
}

#[test]
fn slots_of_a_silent_node_fail_in_time_and_others_do_not_suffer() {
    let (_listener, silent) = silent();
    let first = node(|slot| slot % 4 != 0, silent, false, Arc::default());
    let report = run(&spec(vec![first])).unwrap();
    let all = total(&report);
    let share = all.succeeded as f64 / all.requests as f64;
    // Reads use only acknowledged keys, so only writes meet the silent quarter.
    assert!((0.75..=0.95).contains(&share), "{all:?}");
}

#[test]
fn slots_of_a_silent_node_are_found_where_they_went() {
    let (_listener, silent) = silent();
    // A second or so after the client has the table; counted in requests, since a busy machine is slow.
    let requests = Arc::new(AtomicUsize::new(0));
    let serves = move |slot| requests.fetch_add(1, Relaxed) > SLOTS + 3_000 || slot % 4 != 0;
    let first = node(serves, silent, false, Arc::default());
    let report = run(&Spec { run_ms: 3_000, ..spec(vec![first]) }).unwrap();
    let begin_ms = *report.bins.keys().next().unwrap();
    let (before, later) = (report.between(0, begin_ms + 200), report.between(begin_ms + 2_300, u64::MAX));
    assert!(before.succeeded < before.requests, "{before:?}");
    assert_eq!(later.succeeded, later.requests, "{:?}", report.bins);
}

#[test]
fn a_node_that_forgets_an_acknowledged_write_is_found_out() {
    let (_listener, nobody) = silent();
    let first = node(|_| true, nobody, true, Arc::default());
    let report = run(&spec(vec![first])).unwrap();
    assert!(report.wrong_reads > 0 && report.first_wrong.is_some(), "{:?}", total(&report));
    let counted = counted(first, &report);
    assert!(counted.missing >= 30, "{counted:?}");
    assert_eq!(counted.there + counted.missing, report.acknowledged.len() as u64, "{counted:?}");
}

#[test]
fn what_nobody_answers_for_is_not_called_missing() {
    let (_listener, silent) = silent();
    let first = node(|slot| slot % 4 != 0, silent, false, Arc::default());
    let report = Report { acknowledged: (1..=40).collect(), ..Report::default() };
    let counted = counted(first, &report);
    assert!(counted.unanswered > 0 && counted.missing > 0 && counted.there == 0, "{counted:?}");
    assert_eq!(counted.unanswered + counted.missing, 40, "{counted:?}");
}

fn counted(address: SocketAddr, report: &Report) -> count::Report {
    let name = format!("atoll-bench-ring-{}-{}", std::process::id(), address.port());
    let numbers = std::env::temp_dir().join(name);
    std::fs::write(&numbers, serde_json::to_string(&report.acknowledged).unwrap()).unwrap();
    let spec = count::Spec {
        addresses: vec![address],
        token: None,
        letter: LETTER,
        numbers: numbers.clone(),
        run_ms: 2_500,
    };
    let counted = count::run(&spec).unwrap();
    std::fs::remove_file(&numbers).unwrap();
    counted
}

/// The results of a cluster in an experiment without any fault.
fn of(name: &str) -> OfCluster {
    OfCluster {
        name: name.to_owned(),
        beside_acknowledged: 7,
        beside_after_cut: 0,
        beside_seconds: 0.5,
        first_error: None,
        beside: count::Report::default(),
        majority_acknowledged: 7,
        majority: count::Report::default(),
        calm: Bin::default(),
        after_cut: Bin { requests: 9, succeeded: 9, writes: 4 },
        later: Bin { requests: 9, succeeded: 9, writes: 4 },
        wrong_reads: 0,
        refusals: std::collections::BTreeMap::new(),
        whole_again_seconds: 1.0,
        stolen: 0.0,
    }
}

#[test]
fn losses_old_reads_and_keys_without_an_answer_are_failures_of_ours_and_no_end_is_one_of_anybody() {
    let spoils: [fn(&mut OfCluster); 4] = [
        |of| of.wrong_reads = 1,
        |of| of.majority.unanswered = 1,
        |of| of.beside.missing = 1,
        |of| of.majority.wrong = 1,
    ];
    for spoil in spoils {
        let mut findings = Findings { measured: vec![of("atoll"), of("redis")], ..Findings::default() };
        assert!(super::is_right(&findings));
        let holds =
            |findings: &Findings| super::rows(findings).iter().map(|row| row.holds()).collect::<Vec<_>>();
        spoil(&mut findings.measured[1]);
        assert!(super::is_right(&findings) && holds(&findings) == [true; 3]);
        spoil(&mut findings.measured[0]);
        assert!(!super::is_right(&findings) && holds(&findings) == [false; 3]);
    }
    let missing = |name: &str, error: super::CutError| Findings {
        missing: vec![(name.to_owned(), crate::phases::with_sources(&error))],
        ..Findings::default()
    };
    let ended = || super::CutError::Ended { host: 1, how: "signal 11".to_owned() };
    assert!(!super::is_right(&missing("atoll", ended())) && !super::is_right(&missing("redis", ended())));
    let not_installed = super::CutError::NotInstalled { program: "redis-server" };
    assert!(super::is_right(&missing("redis", not_installed)));
    let no_hosts = super::CutError::NoHosts(Box::new(super::CutError::NothingServed));
    assert!(super::is_right(&missing("atoll", no_hosts)));
}

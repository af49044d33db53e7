//! The client against servers that lie: it detects everything that they lose. Also replies byte by byte.

use super::protocol::VALUE_BYTES_MAX;
use super::*;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a server does to its requests, which are numbered from 1.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Sets and appends of every 1,000th request are acknowledged and forgotten.
    Forgets,
    /// Every 1,000th request, if it is an append, is acknowledged with the length before it.
    Miscounts,
    /// A get of every 1,000th request finds nothing.
    Misses,
    /// A get of every 1,000th request has one flipped bit.
    Flips,
    /// Every 1,000th request gets an error.
    Refuses,
}

struct Store {
    values: HashMap<Vec<u8>, Vec<u8>>,
    requests: u64,
    fault: Fault,
}

impl Store {
    fn is_faulty(&mut self) -> bool {
        self.requests += 1;
        self.requests.is_multiple_of(1_000)
    }

    /// Performs a write and returns the length for the reply; `None` for an error.
    fn write(&mut self, append: bool, key: &[u8], value: &[u8]) -> Option<usize> {
        match (self.is_faulty(), self.fault) {
            (true, Fault::Refuses) => return None,
            (true, Fault::Forgets) => {
                let held = self.values.get(key).map_or(0, Vec::len);
                return Some(if append { held + value.len() } else { value.len() });
            }
            _ => {}
        }
        let miscounted = (self.requests.is_multiple_of(1_000) && self.fault == Fault::Miscounts) as usize;
        let held = self.values.entry(key.to_vec()).or_default();
        if !append {
            held.clear();
        }
        held.extend_from_slice(value);
        Some(held.len() - value.len() * miscounted)
    }

    fn get(&mut self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let mut value = self.values.get(key).cloned();
        match (self.is_faulty(), self.fault) {
            (true, Fault::Refuses) => return None,
            (true, Fault::Misses) => value = None,
            (true, Fault::Flips) => {
                value = value.map(|mut value| {
                    value[100] ^= 4;
                    value
                })
            }
            _ => {}
        }
        Some(value)
    }
}

fn serve(protocol: Protocol, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let store = Arc::new(Mutex::new(Store { values: HashMap::new(), requests: 0, fault }));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let store = Arc::clone(&store);
            std::thread::spawn(move || answer(protocol, stream, &store));
        }
    });
    address
}

fn answer(protocol: Protocol, mut stream: TcpStream, store: &Mutex<Store>) {
    let (mut unread, mut scratch) = (Vec::new(), [0; 4096]);
    stream.set_nodelay(true).unwrap();
    // Replies are sent in pieces, so that the client meets incomplete ones.
    while let Ok(count @ 1..) = stream.read(&mut scratch) {
        unread.extend_from_slice(&scratch[..count]);
        let mut out = Vec::new();
        while let Some(taken) = answer_one(protocol, &unread, &mut store.lock().unwrap(), &mut out) {
            unread.drain(..taken);
        }
        for part in out.chunks(97) {
            if stream.write_all(part).is_err() {
                return;
            }
        }
    }
}

fn answer_one(protocol: Protocol, input: &[u8], store: &mut Store, out: &mut Vec<u8>) -> Option<usize> {
    let words =
        |text: &[u8]| -> Vec<Vec<u8>> { text.split(|&byte| byte == b' ').map(<[u8]>::to_vec).collect() };
    let (first, mut taken) = protocol::line(input).unwrap()?;
    if protocol != Protocol::Resp {
        let mut words = words(first);
        let verb = String::from_utf8(words[0].clone()).unwrap();
        let is_append = verb == "append" || words.iter().any(|word| word == b"MA");
        if verb == "mn" {
            out.extend_from_slice(b"MN\r\n");
        } else if matches!(verb.as_str(), "get" | "mg") {
            match store.get(&words.remove(1)) {
                None => out.extend_from_slice(b"SERVER_ERROR out of order\r\n"),
                Some(None) if verb == "get" => out.extend_from_slice(b"END\r\n"),
                Some(None) => {}
                Some(Some(value)) => {
                    let start = if verb == "get" { "VALUE k 0" } else { "VA" };
                    out.extend_from_slice(format!("{start} {}\r\n", value.len()).as_bytes());
                    out.extend_from_slice(&value);
                    out.extend_from_slice(if verb == "get" { b"\r\nEND\r\n" } else { b"\r\n" });
                }
            }
        } else {
            let length = protocol::decimal(&words[if verb == "ms" { 2 } else { 4 }]).unwrap();
            let (value, end) = protocol::counted(input, taken, length).unwrap()?;
            taken = end;
            match store.write(is_append, &words[1], value) {
                None => out.extend_from_slice(b"SERVER_ERROR out of order\r\n"),
                Some(_) if verb == "ms" => {}
                Some(_) => out.extend_from_slice(b"STORED\r\n"),
            }
        }
        return Some(taken);
    }
    let (words, taken) = parse_command(input)?;
    match words[0].as_slice() {
        b"GET" => match store.get(&words[1]) {
            None => out.extend_from_slice(b"-ERR out of order\r\n"),
            Some(None) => out.extend_from_slice(b"$-1\r\n"),
            Some(Some(value)) => {
                out.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                out.extend_from_slice(&value);
                out.extend_from_slice(b"\r\n");
            }
        },
        verb => match (verb == b"APPEND", store.write(verb == b"APPEND", &words[1], &words[2])) {
            (_, None) => out.extend_from_slice(b"-ERR out of order\r\n"),
            (false, _) => out.extend_from_slice(b"+OK\r\n"),
            (true, Some(length)) => out.extend_from_slice(format!(":{length}\r\n").as_bytes()),
        },
    }
    Some(taken)
}

const PROTOCOLS: [(Protocol, usize); 4] =
    [(Protocol::Resp, 1), (Protocol::Resp, 16), (Protocol::MemcachedText, 1), (Protocol::MemcachedQuiet, 16)];

/// Sets 5,000 keys once, appends to each, and reads each; returns how many replies were wrong in total.
fn set_append_and_read(protocol: Protocol, depth: usize, fault: Fault) -> Result<u64, LoadError> {
    let (pieces, mut model) = (Pieces::seeded(3), Model::empty(5_000));
    let mut work = Work {
        address: serve(protocol, fault),
        protocol,
        operation: Operation::Set,
        connections: 7,
        depth,
        refill: Refill::WhenAllAnswered,
        choice: Choice::EachOnce,
        processes: Vec::new(),
        only: None,
        seed: 1,
    };
    let mut wrong = 0;
    for operation in [Operation::Set, Operation::Append, Operation::Get] {
        work.operation = operation;
        let outcome = run(&work, &pieces, &mut model)?;
        assert_eq!((outcome.operations, outcome.latency.count()), (5_000, 5_000), "{protocol:?}");
        assert_eq!(outcome.wrong == 0, outcome.first_wrong.is_none());
        wrong += outcome.wrong;
    }
    Ok(wrong)
}

#[test]
fn a_server_that_does_what_it_says_is_right() {
    for (protocol, depth) in PROTOCOLS {
        assert_eq!(set_append_and_read(protocol, depth, Fault::None).unwrap(), 0, "{protocol:?} {depth}");
    }
}

#[test]
fn a_server_that_loses_one_acknowledged_write_in_a_thousand_is_noticed() {
    for (protocol, depth) in PROTOCOLS {
        let wrong = set_append_and_read(protocol, depth, Fault::Forgets).unwrap();
        // Ten were lost; a key that lost both its set and its append counts as one wrong value.
        assert!((8..=30).contains(&wrong), "{protocol:?} {depth}: {wrong}");
    }
}

#[test]
fn a_get_that_finds_nothing_or_a_flipped_bit_is_noticed_once_for_each() {
    for (protocol, depth) in PROTOCOLS {
        for fault in [Fault::Misses, Fault::Flips] {
            // The last 5,000 of 15,000 requests are gets.
            assert_eq!(set_append_and_read(protocol, depth, fault).unwrap(), 5, "{protocol:?} {depth}");
        }
    }
}

#[test]
fn an_append_that_is_told_with_a_wrong_length_is_noticed() {
    for depth in [1, 16] {
        assert_eq!(set_append_and_read(Protocol::Resp, depth, Fault::Miscounts).unwrap(), 5, "{depth}");
    }
}

#[test]
fn an_error_ends_the_load_with_the_words_of_the_server() {
    for (protocol, depth) in PROTOCOLS {
        let ended = set_append_and_read(protocol, depth, Fault::Refuses);
        let Err(LoadError::Refused { words }) = ended else { panic!("{protocol:?} {depth}: not refused") };
        assert!(words.contains("out of order"), "{words}");
    }
}

#[test]
fn a_server_that_hangs_up_or_talks_unasked_ends_the_load() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        first.write_all(b"+OK\r\n+OK\r\n").unwrap();
        let _ = first.read(&mut [0; 4096]);
        drop(first);
        let (second, _) = listener.accept().unwrap();
        drop(second);
    });
    let work = Work {
        address,
        protocol: Protocol::Resp,
        operation: Operation::Set,
        connections: 1,
        depth: 1,
        refill: Refill::WhenAllAnswered,
        choice: Choice::EachOnce,
        processes: Vec::new(),
        only: None,
        seed: 1,
    };
    let (pieces, mut model) = (Pieces::seeded(4), Model::empty(10));
    assert!(matches!(run(&work, &pieces, &mut model), Err(LoadError::Unasked)));
    assert!(matches!(run(&work, &pieces, &mut model), Err(LoadError::Closed | LoadError::Broken { .. })));
}

const TWO: [(Protocol, &[u8], [Reply<'_>; 2]); 9] = [
    (Protocol::Resp, b"+OK\r\n$5\r\na\r\nbc\r\n", [Reply::Done, Reply::Value(b"a\r\nbc")]),
    (Protocol::Resp, b"$-1\r\n$0\r\n\r\n", [Reply::Nothing, Reply::Value(b"")]),
    (Protocol::Resp, b":264\r\n:-1\r\n", [Reply::Number(264), Reply::Number(-1)]),
    (Protocol::Resp, b"-ERR no\r\n+PONG\r\n", [Reply::Refused(b"ERR no"), Reply::Status(b"PONG")]),
    (Protocol::MemcachedText, b"STORED\r\nEND\r\n", [Reply::Done, Reply::Nothing]),
    (
        Protocol::MemcachedText,
        b"VALUE k 0 4\r\n\r\nEN\r\nEND\r\nNOT_STORED\r\n",
        [Reply::Value(b"\r\nEN"), Reply::Nothing],
    ),
    (Protocol::MemcachedQuiet, b"VA 3 f0\r\nabc\r\nMN\r\n", [Reply::Value(b"abc"), Reply::End]),
    (Protocol::MemcachedQuiet, b"HD\r\nEN\r\n", [Reply::Done, Reply::Nothing]),
    (
        Protocol::MemcachedText,
        b"SERVER_ERROR out of memory\r\nERROR\r\n",
        [Reply::Refused(b"SERVER_ERROR out of memory"), Reply::Refused(b"ERROR")],
    ),
];

#[test]
fn replies_are_whole_or_not_there_wherever_they_are_cut() {
    for (protocol, bytes, replies) in TWO {
        let (first, length) = protocol.parse(bytes).unwrap().unwrap();
        assert_eq!(first, replies[0]);
        assert_eq!(protocol.parse(&bytes[length..]).unwrap(), Some((replies[1], bytes.len() - length)));
        for cut in 0..length {
            assert_eq!(protocol.parse(&bytes[..cut]).unwrap(), None, "{} at {cut}", bytes.escape_ascii());
        }
    }
}

#[test]
fn what_is_no_reply_is_malformed_and_nothing_is_reserved_for_it() {
    let too_long = format!("${}\r\n", VALUE_BYTES_MAX + 1).into_bytes();
    let endless = vec![b'x'; 70_000];
    let bad: [(Protocol, &[u8]); 11] = [
        (Protocol::Resp, b"\r\n"),
        (Protocol::Resp, b"OK\r\n"),
        (Protocol::Resp, b"+OK\n"),
        (Protocol::Resp, b"$3\r\nabcd\r\n"),
        (Protocol::Resp, b"$-2\r\n"),
        (Protocol::Resp, b":12a\r\n"),
        (Protocol::Resp, b"$99999999999999999999\r\n"),
        (Protocol::Resp, &too_long),
        (Protocol::Resp, &endless),
        (Protocol::MemcachedText, b"VALUE k 0 1\r\na\r\nVALU\r\n"),
        (Protocol::MemcachedQuiet, b"HELLO\r\n"),
    ];
    for (protocol, bytes) in bad {
        assert!(protocol.parse(bytes).is_err(), "{}", bytes[..bytes.len().min(60)].escape_ascii());
    }
}

#[test]
fn requests_are_what_the_protocols_say() {
    let text = |protocol: Protocol, operation| {
        let mut out = Vec::new();
        protocol.write(operation, b"key", b"va\r\n", &mut out);
        protocol.end_batch(&mut out);
        String::from_utf8(out).unwrap()
    };
    use Operation::{Append, Get, Set};
    assert_eq!(text(Protocol::Resp, Set), "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4\r\nva\r\n\r\n");
    assert_eq!(text(Protocol::Resp, Get), "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
    assert_eq!(text(Protocol::Resp, Append), "*3\r\n$6\r\nAPPEND\r\n$3\r\nkey\r\n$4\r\nva\r\n\r\n");
    assert_eq!(text(Protocol::MemcachedText, Set), "set key 0 0 4\r\nva\r\n\r\n");
    assert_eq!(text(Protocol::MemcachedText, Get), "get key\r\n");
    assert_eq!(text(Protocol::MemcachedQuiet, Get), "mg key v q\r\nmn\r\n");
    assert_eq!(text(Protocol::MemcachedQuiet, Append), "ms key 4 q MA\r\nva\r\n\r\nmn\r\n");
}

#[test]
fn each_connection_asks_only_the_server_that_has_its_keys() {
    // The second server has a third of the keys; those of the first server beyond as many whole turns are
    // left out.
    let home = |key: u32| usize::from(key.is_multiple_of(3));
    let order = shared_out(1_000, (7, 2), home);
    assert_eq!(order.len(), 777, "three of seven connections go to the second, which has 334 keys");
    assert!(order.iter().enumerate().all(|(place, &key)| home(key) == place % 7 % 2));
    let mut once = order.to_vec();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), order.len());
    let addresses = [serve(Protocol::Resp, Fault::None), serve(Protocol::Resp, Fault::None)];
    let (pieces, mut model) = (Pieces::seeded(3), Model::empty(1_000));
    let mut work = Work {
        address: addresses[0],
        protocol: Protocol::Resp,
        operation: Operation::Set,
        connections: 7,
        depth: 1,
        refill: Refill::WhenAllAnswered,
        choice: Choice::EachOnce,
        processes: Vec::new(),
        only: Some(order),
        seed: 1,
    };
    assert_eq!(run_at(&work, &addresses, &pieces, &mut model).unwrap().operations, 777);
    work.operation = Operation::Get;
    let outcome = run_at(&work, &addresses, &pieces, &mut model).unwrap();
    assert_eq!((outcome.operations, outcome.wrong), (777, 0));
    // With the addresses swapped, no key is found.
    let turned = [addresses[1], addresses[0]];
    assert_eq!(run_at(&work, &turned, &pieces, &mut model).unwrap().wrong, 777);
}

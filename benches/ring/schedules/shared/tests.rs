//! Clients that contend at faulty nodes: each fault shows as a history that no order explains.

use super::caller::Caller;
use super::contender::Contender;
use super::history::{History, Record, operations};
use super::reply::{Tree, parse};
use super::verdict::{Judged, judge};
use crate::client::parse_command;
use atoll_linearizability::{Action, Answer};
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
const ENOUGH: usize = 2_000;

/// The fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// It closes connections after it has done what was requested.
    HangsUp,
    /// In addition, it does not remember what it has done.
    Doubles,
    /// Reads return the value before the last write.
    IsLate,
    /// It acknowledges appends that it has not done.
    Forgets,
    /// Swaps succeed whatever the value is.
    AnyoneWins,
    /// It refuses requests but performs them.
    DoesWhatItRefuses,
}

type Cells = BTreeMap<String, String>;

#[derive(Default)]
struct Held {
    keys: HashMap<String, (Cells, Cells)>,
    done: HashMap<String, String>,
    commands: u64,
}

impl Held {
    /// The reply to a command; `None` if the connection is closed.
    fn reply(&mut self, words: &[String], flaw: Flaw) -> Option<String> {
        self.commands += 1;
        let is_faulty = self.commands.is_multiple_of(29);
        let (name, inner) = match words[0].as_str() {
            "AT.ID" => (Some(words[1..3].join("/")), &words[4..]),
            _ => (None, words),
        };
        let before = name.as_ref().and_then(|name| self.done.get(name));
        if let Some(reply) = before.filter(|_| flaw != Flaw::Doubles) {
            return Some(format!("*2\r\n:1\r\n{reply}"));
        }
        if is_faulty && flaw == Flaw::DoesWhatItRefuses {
            self.perform(inner, Flaw::None);
            return Some("-NOREPLICAS no\r\n".to_owned());
        }
        let reply = self.perform(inner, if is_faulty { flaw } else { Flaw::None });
        let reply = match name {
            Some(name) => {
                self.done.insert(name, reply.clone());
                format!("*2\r\n:0\r\n{reply}")
            }
            None => reply,
        };
        (!is_faulty || !matches!(flaw, Flaw::HangsUp | Flaw::Doubles)).then_some(reply)
    }

    fn perform(&mut self, words: &[String], flaw: Flaw) -> String {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let (cells, before) = self.keys.entry(word(1).to_owned()).or_default();
        let shown = if flaw == Flaw::IsLate { &*before } else { &*cells };
        let bulk = |value: Option<&String>| match value {
            Some(value) => format!("${}\r\n{value}\r\n", value.len()),
            None => "$-1\r\n".to_owned(),
        };
        match word(0) {
            "GET" => return bulk(shown.get("")),
            "HGET" => return bulk(shown.get(word(2))),
            "HMGET" => return format!("*2\r\n{}{}", bulk(shown.get("f0")), bulk(shown.get("f1"))),
            _ => {}
        }
        let was = cells.clone();
        let holds = |cell: &str, expected: Option<&str>| {
            flaw == Flaw::AnyoneWins || was.get(cell).map(String::as_str) == expected
        };
        let reply = match (word(0), word(2), word(3)) {
            ("SET", value, "") => put(cells, "", value),
            ("SET", value, condition) => {
                let expected = (condition == "IFEQ").then(|| word(4));
                if holds("", expected) {
                    put(cells, "", value);
                }
                // A successful swap is told the expected value.
                match flaw == Flaw::AnyoneWins {
                    true => bulk(expected.map(str::to_owned).as_ref()),
                    false => bulk(was.get("")),
                }
            }
            ("APPEND", bytes, _) => {
                append(cells, "", bytes, flaw);
                ":1\r\n".to_owned()
            }
            ("DEL", ..) => format!(":{}\r\n", u8::from(cells.remove("").is_some())),
            ("HDEL", field, _) => format!(":{}\r\n", u8::from(cells.remove(field).is_some())),
            ("AT.BATCH", "PUT", _) => {
                words[2..].chunks(3).for_each(|put_one| drop(put(cells, &put_one[1], &put_one[2])));
                "+OK\r\n".to_owned()
            }
            ("AT.BATCH", "APPEND", field) => append(cells, field, word(4), flaw),
            ("AT.BATCH", "IFEQ", field) if holds(field, Some(word(4))) => put(cells, field, word(7)),
            ("AT.BATCH", "IFABSENT", field) if holds(field, None) => put(cells, field, word(6)),
            ("AT.BATCH", _, field) => format!("*3\r\n:0\r\n{}:1\r\n", bulk(was.get(field))),
            _ => "-ERR unknown\r\n".to_owned(),
        };
        *before = was;
        reply
    }
}

fn put(cells: &mut Cells, cell: &str, value: &str) -> String {
    cells.insert(cell.to_owned(), value.to_owned());
    "+OK\r\n".to_owned()
}

fn append(cells: &mut Cells, cell: &str, bytes: &str, flaw: Flaw) -> String {
    if flaw != Flaw::Forgets {
        cells.entry(cell.to_owned()).or_default().push_str(bytes);
    }
    "+OK\r\n".to_owned()
}

fn node(flaw: Flaw) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let held = Arc::new(Mutex::new(Held::default()));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let held = Arc::clone(&held);
            std::thread::spawn(move || serve(stream, flaw, &held));
        }
    });
    address
}

fn serve(mut stream: TcpStream, flaw: Flaw, held: &Mutex<Held>) {
    let (mut heard, mut scratch) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut scratch) {
        heard.extend_from_slice(&scratch[..count]);
        if heard.starts_with(b"AUTH") {
            let line = heard.iter().position(|byte| *byte == b'\n').unwrap();
            heard.drain(..=line);
            stream.write_all(b"+OK\r\n").unwrap();
        }
        while let Some((words, taken)) = parse_command(&heard) {
            heard.drain(..taken);
            let words: Vec<String> = words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect();
            let Some(reply) = held.lock().unwrap().reply(&words, flaw) else { return };
            stream.write_all(reply.as_bytes()).unwrap();
        }
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("atoll-shared-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The results of six clients at a faulty node.
fn found(flaw: Flaw, is_planted: bool) -> Judged {
    let address = node(flaw);
    let (history, stop) = (Arc::new(History::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let caller = Caller::new(&[address], "t", PATIENCE, number as u64);
            let is_planted = is_planted && number == 0;
            let contender =
                Contender::new(number, caller, Arc::clone(&history), 77 + number as u64, is_planted);
            let stop = &stop;
            scope.spawn(move || contender.run(stop));
        }
        while history.records().len() < ENOUGH {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, SeqCst);
    });
    let folder = Folder::new(&format!("{flaw:?}-{is_planted}"));
    let judged = judge(&history, 5, &folder.0);
    let left = std::fs::read_dir(&folder.0).unwrap().count() as u64;
    assert_eq!(left, judged.broken + judged.undecided, "each has its file");
    for entry in std::fs::read_dir(&folder.0).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        assert!(text.contains("--schedule-seed 5"), "{text}");
    }
    judged
}

#[test]
fn what_an_honest_node_says_is_explained_even_if_it_hangs_up() {
    for flaw in [Flaw::None, Flaw::HangsUp] {
        let judged = found(flaw, false);
        assert!(judged.is_well() && judged.linearizable == 6, "{judged:?}");
        assert_eq!(judged.unknown > 0, flaw == Flaw::HangsUp, "{judged:?}");
        assert_eq!(judged.done_before > 0, flaw == Flaw::HangsUp, "{judged:?}");
    }
}

#[test]
fn every_fault_of_a_node_is_found() {
    let flaws = [Flaw::Doubles, Flaw::IsLate, Flaw::Forgets, Flaw::AnyoneWins, Flaw::DoesWhatItRefuses];
    for flaw in flaws {
        let judged = found(flaw, false);
        println!("{flaw:?}: {judged:?}");
        assert!(judged.broken > 0 && !judged.is_well(), "{flaw:?}: {judged:?}");
        assert_eq!(judged.strange, 0, "{flaw:?}: {judged:?}");
    }
}

#[test]
fn a_client_that_tells_old_reads_is_found() {
    let judged = found(Flaw::None, true);
    assert!(judged.broken > 0, "{judged:?}");
}

/// Judges a history of the first string, with operations one after the other.
fn judged(operations: &[(Action, Answer)]) -> Judged {
    let history = History::new();
    for ((action, answer), at) in operations.iter().cloned().zip(0..) {
        history.add(Record {
            subject: 2,
            client: 0,
            action,
            answer,
            called_ns: 10 * at,
            returned_ns: 10 * at + 5,
            sent: 1,
            is_named: false,
            was_done_before: false,
        });
    }
    judge(&history, 5, &Folder::new("planted").0)
}

#[test]
fn planted_histories_are_found() {
    let put = |bytes: &str| (Action::Put(vec![0], bytes.to_owned()), Answer::Done);
    let get = |bytes: &str| (Action::Get(0), Answer::Value(Some(bytes.to_owned())));
    let append = |bytes: &str, answer| (Action::Append(0, bytes.to_owned()), answer);
    let swap = |to: &str| (Action::Swap(0, Some("<1>".to_owned()), to.to_owned()), Answer::Done);
    let broken = |operations: &[(Action, Answer)]| judged(operations).broken == 1;
    assert!(!broken(&[put("<1>"), append("<2>", Answer::Done), get("<1><2>"), put("<3>"), get("<3>")]));
    assert!(broken(&[put("<1>"), put("<2>"), get("<1>")]), "a stale read");
    assert!(broken(&[put("<1>"), append("<2>", Answer::Done), get("<1>")]), "a lost append");
    assert!(broken(&[put("<1>"), append("<2>", Answer::Unknown), get("<1><2><2>")]), "a double append");
    assert!(broken(&[put("<1>"), append("<2>", Answer::Unknown), get("<1><2>"), get("<1>")]), "one undone");
    assert!(!broken(&[put("<1>"), append("<2>", Answer::Unknown), get("<1>"), get("<1><2>")]), "a late one");
    assert!(broken(&[put("<1>"), swap("<2>"), swap("<3>")]), "two winners");
    assert!(!judged(&[put("<1>")]).is_enough());
}

#[test]
fn moments_of_operations_differ_and_those_that_were_equal_overlap() {
    let record = |called_ns, returned_ns| Record {
        subject: 0,
        client: 0,
        action: Action::Scan,
        answer: Answer::Done,
        called_ns,
        returned_ns,
        sent: 1,
        is_named: false,
        was_done_before: false,
    };
    let spans: Vec<(u64, u64)> = operations(&[record(1, 5), record(5, 9), record(9, 9)])
        .into_iter()
        .map(|one| (one.called, one.returned))
        .collect();
    assert_eq!(spans, [(0, 2), (1, 4), (3, 5)]);
}

#[test]
fn lists_in_lists_are_read_when_they_are_whole() {
    let bytes = b"*2\r\n:1\r\n*3\r\n:0\r\n$-1\r\n$2\r\nab\r\n+OK\r\n";
    let list = Tree::List(vec![
        Tree::Number(1),
        Tree::List(vec![Tree::Number(0), Tree::Text(None), Tree::Text(Some("ab".to_owned()))]),
    ]);
    let whole = bytes.len() - 5;
    assert_eq!(parse(bytes).unwrap(), Some((list, whole)));
    for end in 0..whole {
        assert_eq!(parse(&bytes[..end]).unwrap(), None, "{end}");
    }
    assert!(parse(b"*9999999\r\n").is_err() && parse(b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n").is_err());
}

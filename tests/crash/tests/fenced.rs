//! A real process that owns a store is paused by the system, another one takes the store over, and the first
//! goes on.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use atoll_crash::fenced::{options, value};
use atoll_disk::{Disk, FileDisk, Mode};
use atoll_engine::{Durability, Engine, EngineError};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

/// A process that owns a store.
struct Owner {
    child: Child,
    lines: BufReader<ChildStdout>,
    acknowledged: u64,
}

impl Owner {
    fn start(path: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_atoll-crash"))
            .arg("write-owned")
            .arg(path)
            .arg("1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines, acknowledged: 0 }
    }

    /// Reads one line. Returns the token of the heir once the owner names it.
    fn read_line(&mut self) -> Option<u64> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        if let Some(newest) = line.strip_prefix("fenced ") {
            return Some(newest.trim_end().parse().unwrap());
        }
        assert_eq!(line, format!("{}\n", self.acknowledged), "the owner ended, or skipped a number");
        self.acknowledged += 1;
        None
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    fn pause(&self) {
        self.signal("-STOP");
        // The signal is sent, and reaches the process a little later.
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        while !is_stopped() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn file(path: &Path, mode: Mode) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(path, mode).unwrap())
}

/// The numbers below `count` are there, unharmed.
fn assert_numbers(engine: &Engine, count: u64) {
    let tree = engine.tree("t").unwrap();
    for number in 0..count {
        let found = tree.get(&number.to_be_bytes()).unwrap().expect("an acknowledged write is there");
        assert!(*found.to_buffer().unwrap() == *value(number), "{number}");
    }
}

/// Lets a process own a store for so many writes, and takes the store over. Returns how many writes the
/// former owner acknowledged, and how many the heir found.
fn take_over_after(writes: u64, is_paused: bool) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    let mut owner = Owner::start(&from);
    (0..writes).for_each(|_| assert_eq!(owner.read_line(), None));
    if is_paused {
        owner.pause();
    }
    let source = FileDisk::open(&from, Mode::Write).unwrap();
    let heir = Engine::take_over(&source, file(&to, Mode::Create), 2, options()).unwrap();
    let found = heir.tree("t").unwrap().len().unwrap();
    if is_paused {
        // The heir serves while the former owner sleeps.
        heir.tree("heir").unwrap().put(b"key", b"value", Durability::Synced).unwrap();
        owner.signal("-CONT");
    }
    let newest = loop {
        if let Some(newest) = owner.read_line() {
            break newest;
        }
    };
    assert_eq!(newest, 2);
    assert!(owner.child.wait().unwrap().success());
    assert_numbers(&heir, owner.acknowledged);
    heir.tree("heir").unwrap().put(b"later", b"value", Durability::Synced).unwrap();
    heir.close().unwrap();
    let refused = Engine::open(file(&from, Mode::Write), options()).err().expect("the store is elsewhere");
    assert!(matches!(refused, EngineError::Fenced { token: 1, newest: 2, .. }), "{refused}");
    let heir = Engine::open(file(&to, Mode::Write), options()).unwrap();
    assert_eq!(heir.tree("t").unwrap().len().unwrap(), found, "nothing came from the former owner since");
    assert!(heir.check().unwrap().damage.is_empty());
    (owner.acknowledged, found)
}

#[test]
fn a_paused_owner_acknowledges_nothing_after_the_takeover_and_nothing_it_writes_is_seen() {
    for writes in [1, 2, 7, 49, 50, 51, 120] {
        let (acknowledged, found) = take_over_after(writes, true);
        println!("paused after {writes}: {acknowledged} acknowledged, {found} taken over");
        // One write may have been on its way to the owner's log when it was paused.
        assert!(found == acknowledged || found == acknowledged + 1, "{acknowledged} {found}");
    }
}

#[test]
fn an_owner_that_runs_is_fenced_as_well() {
    for writes in [1, 30, 50, 100, 101] {
        let (acknowledged, found) = take_over_after(writes, false);
        println!("running after {writes}: {acknowledged} acknowledged, {found} taken over");
        assert!(found == acknowledged || found == acknowledged + 1, "{acknowledged} {found}");
    }
}

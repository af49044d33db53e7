//! The bench as a whole: a tiny run writes every bar, and everything that it started ends with it, however
//! it ends.
//!
//! Tests that need Redis or memcached print SKIPPED where these are not installed.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_atoll-bench-ring");
const PATIENCE: Duration = Duration::from_secs(30);

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("atoll-ring-trial-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bench(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("ATOLL_BENCH_DIR", &folder.0).args(["run", "--records", "2000"]).args(arguments);
    command
}

fn shown(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

fn rows(file: &str) -> Vec<serde_json::Value> {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn rivals_are_here() -> bool {
    let is_here = |name: &str| {
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let are_here = is_here("redis-server") && is_here("memcached");
    if !are_here {
        println!("SKIPPED [rivals] redis-server or memcached is not installed");
    }
    are_here
}

/// Processes that have this text in their command line.
fn processes_about(text: &str) -> Vec<u32> {
    let numbers = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|number| command_line(*number).contains(text)).collect()
}

fn command_line(process: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn without_rivals_and_without_atoll_every_bar_is_there_and_none_holds() {
    let folder = Folder::new("alone");
    let file = folder.file("rows.json");
    let phases =
        ["Throughput", "Always", "Copies", "Cassandra", "Cut", "Failover", "Outage", "Moves", "Schedules"];
    let asked = phases.join(",").to_lowercase();
    let output = bench(&folder, &["--json", &file, "--phases", &asked]).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    assert!(shown(&output).contains("not offered yet"), "{}", shown(&output));
    for phase in phases {
        assert!(shown(&output).contains(&format!("SKIPPED [{phase}]: not offered")), "{}", shown(&output));
    }
    let rows = rows(&file);
    assert_eq!(rows.len(), 30);
    for row in rows {
        assert!(row["figure"].is_null() && row["holds"] == false, "{row}");
        assert!(row["target"].is_number() && row["unit"].is_string(), "{row}");
    }
    let left: Vec<_> =
        std::fs::read_dir(&folder.0).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["rows.json"], "the folder of the servers is gone");
}

#[test]
fn rivals_do_what_they_say_and_have_a_figure_in_every_bar_of_theirs() {
    if !rivals_are_here() {
        return;
    }
    let folder = Folder::new("rivals");
    let file = folder.file("rows.json");
    let output =
        bench(&folder, &["--peers", "--json", &file, "--phases", "throughput,always"]).output().unwrap();
    assert!(output.status.success() && !shown(&output).contains("WRONG"), "{}", shown(&output));
    for row in rows(&file) {
        let bar = row["bar"].as_str().unwrap();
        for (word, peer) in [("memcached", "memcached"), ("redis", "redis"), ("bare", "bare loop")] {
            let is_measured = row["peers"][peer].as_f64().is_some_and(|figure| figure > 0.0);
            assert!(!bar.contains(word) || is_measured, "{row}");
        }
    }
}

#[test]
fn an_unknown_phase_is_refused_with_those_there_are() {
    let folder = Folder::new("refused");
    let output = bench(&folder, &["--phases", "speed"]).output().unwrap();
    assert!(!output.status.success() && shown(&output).contains("throughput"), "{}", shown(&output));
}

#[test]
fn servers_end_with_the_bench_that_is_killed_or_interrupted() {
    if !rivals_are_here() {
        return;
    }
    for signal in ["KILL", "INT", "TERM"] {
        let folder = Folder::new(signal);
        let mut command = bench(&folder, &["--peers", "--rounds", "99", "--phases", "throughput"]);
        let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let keepers = format!("{}{}", folder.file(""), "atoll-bench-ring-");
        let mut servers = Vec::new();
        wait_until("no two servers came up", || {
            servers = processes_about(&keepers).into_iter().flat_map(children).collect();
            let serves = |name: &str| servers.iter().any(|one| command_line(*one).starts_with(name));
            serves("redis-server") && serves("memcached")
        });
        send(signal, &running);
        assert!(!running.wait().unwrap().success());
        let are_gone = || servers.iter().all(|one| !command_line(*one).contains("127.0.0.1"));
        wait_until("a server outlived the bench", are_gone);
        wait_until("a keeper outlived the bench", || processes_about(&keepers).is_empty());
    }
}

fn children(process: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn what_is_kept_ends_when_nobody_keeps_it_any_more() {
    let folder = Folder::new("keeper");
    let mut keeper = Command::new(PROGRAM);
    keeper.args(["keep", &folder.file("log"), "--", "sleep", "600"]);
    let mut keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let process: u32 = line.trim().parse().unwrap();
    // Right after its start a process has an empty command line.
    wait_until("the program did not start", || command_line(process).trim() == "sleep 600");
    drop(keeper.stdin.take());
    keeper.wait().unwrap();
    assert!(!Path::new(&format!("/proc/{process}")).exists());
}

fn send(signal: &str, to: &Child) {
    let status = Command::new("kill").args(["-s", signal, &to.id().to_string()]).status().unwrap();
    assert!(status.success());
}

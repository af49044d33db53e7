//! The machine of a keeper is lost for good: its name moves to another address, a node begins there on a new
//! folder, and takes the seat of the lost one.
//!
//! Names move in a file of hosts that all processes of this test see in place of `/etc/hosts`. That takes a
//! mount namespace, which root may make, or anybody in a user namespace.

use crate::support::{Answer, Workspace, free_port, started};
use atoll_hosts::before;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const KEEPERS: [&str; 3] = ["keeper-1", "keeper-2", "keeper-3"];

/// Where the first keeper is in the end; keeper-1 begins at 127.0.0.1, and so on.
const ELSEWHERE: &str = "127.0.0.4";

/// How many cells are written before the loss, and again after it; each in a partition of its own.
const CELLS: usize = 60;

/// How long any wait may take; on a quiet machine each takes a few seconds at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a shell does before it becomes the program: its first argument is the file of hosts.
const MOUNT: &str = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";

/// The file of hosts with the first keeper at this address. All such files are equally long.
fn hosts(first: &str) -> String {
    format!("127.0.0.1 localhost\n{first} keeper-1\n127.0.0.2 keeper-2\n127.0.0.3 keeper-3\n")
}

/// A command that runs where names resolve by our file of hosts.
fn among_hosts(place: &Workspace, inner: &Command) -> Command {
    let mut words = before();
    words.extend(["unshare", "--mount", "--", "sh", "-c", MOUNT].map(OsString::from));
    words.push(place.folder.path().join("hosts").into());
    words.push(inner.get_program().to_owned());
    words.extend(inner.get_args().map(OsStr::to_owned));
    let (program, words) = words.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(words).current_dir(place.folder.path());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Why this machine makes no such place, if it does not.
fn lacks(place: &Workspace) -> Option<String> {
    match among_hosts(place, &Command::new("true")).stdin(Stdio::null()).output() {
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => Some(String::from_utf8_lossy(&tried.stderr).trim().replace('\n', "; ")),
        Err(error) => Some(error.to_string()),
    }
}

/// Three keepers, and what they say.
struct Ring<'p> {
    place: &'p Workspace,
    port: u16,
    nodes: Vec<Child>,
    /// Lines of the standard error of each. They are read until the node ends, so that it never waits.
    said: Vec<Receiver<String>>,
}

impl Ring<'_> {
    /// Starts a node under the name of a keeper, as the last one of the nodes.
    fn begin(&mut self, keeper: usize, address: &str) {
        let port = self.port;
        let nodes = KEEPERS.map(|name| format!("{name}:{port}")).join(",");
        let (listen, told) = (format!("{address}:{port}"), format!("{}:{port}", KEEPERS[keeper]));
        let kept = folder(keeper);
        let serve = ["--json", "ring", "serve", "--until-input-ends", "--store", &kept, "--nodes", &nodes];
        let mut atoll =
            self.place.command(&[&serve[..], &["--listen", &listen, "--announce", &told]].concat());
        atoll.env("ATOLL_LOG", "atoll_ring=info");
        let mut node = among_hosts(self.place, &atoll).spawn().unwrap();
        assert_eq!(started(&mut node)["listening"], listen);
        let lines = BufReader::new(node.stderr.take().unwrap()).lines().map_while(Result::ok);
        let (tell, said) = channel();
        std::thread::spawn(move || lines.for_each(|line| drop(tell.send(line))));
        self.nodes.push(node);
        self.said.push(said);
    }

    /// Waits until a node says that its seat in the configuration group counts.
    fn wait_for_seat(&self, node: usize) {
        let until = Instant::now() + PATIENCE;
        loop {
            let line = self.said[node].recv_timeout(until.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("node {node} gets no seat"));
            if line.contains("this node has a seat in the configuration group") {
                return;
            }
        }
    }

    /// Runs a verb at the node at this address.
    fn ask(&self, address: &str, verb: &[&str], input: &str) -> Answer {
        let store = format!("ring://{address}:{}/?time-out=60s", self.port);
        let atoll = self.place.command(&[verb, &["--store", &store]].concat());
        let mut asked = among_hosts(self.place, &atoll).spawn().unwrap();
        // It may have failed before it reads anything.
        let _ = asked.stdin.take().unwrap().write_all(input.as_bytes());
        Answer::from(asked.wait_with_output().unwrap())
    }

    /// Waits until all slots are served and have three copies in sync, by what a node says.
    fn wait_until_whole(&self, address: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let told = self.ask(address, &["ring", "status", "--json"], "");
            if told.exit == Some(0) {
                let status = told.json();
                if (&status["served"], &status["copies_in_sync_min"]) == (&16_384.into(), &3.into()) {
                    return;
                }
            }
            assert!(Instant::now() < until, "{} {}", String::from_utf8_lossy(&told.stdout), told.stderr);
        }
    }

    /// Writes cells, all of which are acknowledged.
    fn write(&self, address: &str, name: &str) {
        let cell = |at| format!("{{\"partition\":\"{name}-{at}\",\"sort\":\"s\",\"value\":\"{at}\"}}\n");
        let cells: String = (0..CELLS).map(cell).collect();
        self.ask(address, &["kv", "import", "-", "--format", "jsonl"], &cells).text();
    }

    fn kill(&mut self, node: usize) {
        self.nodes[node].kill().unwrap();
        self.nodes[node].wait().unwrap();
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn folder(keeper: usize) -> String {
    format!("node-{}", keeper + 1)
}

#[test]
fn a_keeper_whose_machine_is_lost_takes_its_seat_again_under_its_name_at_another_address() {
    let place = Workspace::new();
    place.write("hosts", hosts("127.0.0.1"));
    if let Some(why) = lacks(&place) {
        println!("SKIPPED [mount] a name cannot move to another address here: {why}");
        return;
    }
    let mut ring = Ring { place: &place, port: free_port(), nodes: Vec::new(), said: Vec::new() };
    for (keeper, address) in ["127.0.0.1", "127.0.0.2", "127.0.0.3"].into_iter().enumerate() {
        ring.begin(keeper, address);
    }
    (0..3).for_each(|node| ring.wait_for_seat(node));
    ring.wait_until_whole("127.0.0.2");
    ring.write("127.0.0.2", "before");
    // The machine is lost with everything on it, and another one gets its name.
    ring.kill(0);
    std::fs::remove_dir_all(place.folder.path().join(folder(0))).unwrap();
    let mut file = OpenOptions::new().write(true).open(place.folder.path().join("hosts")).unwrap();
    file.write_all(hosts(ELSEWHERE).as_bytes()).unwrap();
    ring.begin(0, ELSEWHERE);
    ring.wait_for_seat(3);
    ring.wait_until_whole("127.0.0.2");
    // Of the first three keepers one is left: alone it would decide nothing, and what the second one led
    // would not be served.
    ring.kill(1);
    ring.write("127.0.0.3", "after");
    let kept = ring.ask(ELSEWHERE, &["kv", "export", "-", "--format", "jsonl"], "");
    let count = |name: &str| kept.text().lines().filter(|line| line.contains(name)).count();
    assert_eq!((count("\"before-"), count("\"after-")), (CELLS, CELLS), "{}", kept.stderr);
}

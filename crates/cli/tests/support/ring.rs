//! A ring of three processes on this machine, as `atoll ring up` starts it.

use crate::support::Workspace;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr};

/// A ring of three processes, and a client that follows redirections.
pub struct Ring {
    up: Child,
    told: BufReader<ChildStderr>,
    pub port: u16,
    pids: Vec<u64>,
    pub token: String,
    /// The node that answered last.
    pub asked: u16,
}

impl Ring {
    pub fn start(place: &Workspace, port: u16, durability: &str) -> Self {
        Self::start_with(place, port, &["--durability", durability])
    }

    pub fn start_with(place: &Workspace, port: u16, more: &[&str]) -> Self {
        let port_text = port.to_string();
        let up = ["--json", "ring", "up", "--store", "ring", "--port", &port_text];
        let mut up = place.spawn(&[&up, more].concat());
        let started = crate::support::started(&mut up);
        let told = BufReader::new(up.stderr.take().unwrap());
        let nodes = started["nodes"].as_array().unwrap().iter();
        let pids = nodes.map(|node| node["pid"].as_u64().unwrap()).collect();
        let token = String::from_utf8(place.read("ring/token")).unwrap().trim().to_owned();
        Self { up, told, port, pids, token, asked: 0 }
    }

    /// The next line of output that starts like this.
    pub fn hear(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.told.read_line(&mut line).unwrap() > 0,
                "nothing is told that begins with {beginning:?}"
            );
            let value: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(note) = value["note"].as_str().filter(|note| note.starts_with(beginning)) {
                return note.to_owned();
            }
        }
    }

    /// Sends a request until a node answers; it may be executed twice.
    pub fn ask(&mut self, line: &str) -> String {
        let started = std::time::Instant::now();
        let mut last = String::new();
        while started.elapsed() < std::time::Duration::from_secs(60) {
            match self.once(line) {
                Ok(reply)
                    if ["CLUSTERDOWN", "LOADING", "UNKNOWN", "TRYAGAIN", "NOREPLICAS"]
                        .iter()
                        .any(|word| reply[1..].starts_with(word)) =>
                {
                    last = reply;
                    std::thread::yield_now();
                }
                Ok(reply) => match reply.strip_prefix("-MOVED ") {
                    Some(moved) => {
                        let port: u16 = moved.trim().rsplit_once(':').unwrap().1.parse().unwrap();
                        self.asked = port - self.port;
                    }
                    None => return reply,
                },
                Err(error) => {
                    last = error.to_string();
                    self.asked = (self.asked + 1) % 3;
                }
            }
        }
        panic!("nobody answers {line}: {last}")
    }

    /// The answer of one node, without retries.
    pub fn once(&self, line: &str) -> std::io::Result<String> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port + self.asked))?;
        socket.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
        socket.write_all(format!("AUTH {}\r\n{line}\r\nQUIT\r\n", self.token).as_bytes())?;
        let mut replies = String::new();
        socket.read_to_string(&mut replies)?;
        let reply = replies.strip_prefix("+OK\r\n").and_then(|rest| rest.strip_suffix("+OK\r\n"));
        match reply {
            Some(reply) if !reply.is_empty() => Ok(reply.to_owned()),
            _ => Err(std::io::Error::other(replies)),
        }
    }

    pub fn kill(&mut self, node: usize) {
        let pid = Pid::from_raw(i32::try_from(self.pids[node]).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }

    /// Kills all processes at once, as a batch system does.
    pub fn kill_all(mut self) {
        (0..3).for_each(|node| self.kill(node));
        kill_process(Pid::from_child(&self.up), Signal::KILL).unwrap();
        self.up.wait().unwrap();
        // Their folders are free only when the last of their threads has ended: the first one is often dead
        // before the others.
        let is_ended = |pid: &u64| {
            let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
            threads.flatten().all(|thread| {
                let stat = std::fs::read_to_string(thread.path().join("stat"));
                stat.map_or(true, |stat| stat.contains(") Z ") || stat.contains(") X "))
            })
        };
        while !self.pids.iter().all(is_ended) {
            std::thread::yield_now();
        }
    }

    pub fn end(mut self) {
        kill_process(Pid::from_child(&self.up), Signal::TERM).unwrap();
        assert_eq!(self.up.wait().unwrap().code(), Some(0));
        for at in 0..3 {
            assert!(TcpStream::connect(("127.0.0.1", self.port + at)).is_err(), "a node outlived its ring");
        }
    }
}

impl Drop for Ring {
    /// A failed test leaves nothing behind: nodes end with the process that started them.
    fn drop(&mut self) {
        let _ = self.up.kill();
        let _ = self.up.wait();
    }
}

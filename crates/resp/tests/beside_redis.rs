//! Errors of commands compared with those of a real Redis: clients and people know its texts.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, clippy::panic)]

use atoll_resp::{
    COMMANDS, Command, Limits, Protocol, ReplyParser, ReplyWriter, RequestParser, Value, write_request,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

/// A real Redis server, which ends with the test.
struct Redis {
    process: Child,
    stream: UnixStream,
    parser: ReplyParser,
    rest: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl Redis {
    /// Starts one; none if no Redis is installed.
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let process = std::process::Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--daemonize", "no", "--dir"])
            .arg(folder.path())
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::piped())
            .spawn();
        let mut process = match process {
            Ok(process) => process,
            Err(error) => {
                println!("SKIPPED [redis] no redis-server: {error}");
                return None;
            }
        };
        // The log says when it is listening.
        let mut log = std::io::BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("now ready to accept connections") {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut log, &mut line).unwrap() > 0, "redis-server ended");
        }
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let stream = UnixStream::connect(&socket).unwrap();
        let parser = ReplyParser::new(Limits::default());
        Some(Self { process, stream, parser, rest: Vec::new(), _folder: folder })
    }

    fn ask(&mut self, request: &[u8]) -> Value {
        self.stream.write_all(request).unwrap();
        loop {
            let (taken, reply) = self.parser.parse(&self.rest).unwrap();
            self.rest.drain(..taken);
            if let Some(reply) = reply {
                return reply;
            }
            let mut more = [0; 4096];
            let len = self.stream.read(&mut more).unwrap();
            assert!(len > 0, "redis-server closed the connection");
            self.rest.extend_from_slice(&more[..len]);
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Our error for a request; none if it is a command.
fn our_error(request: &[u8]) -> Option<String> {
    let mut parser = RequestParser::new(Limits::default());
    let request = parser.parse(request).unwrap().unwrap();
    Command::of(&request).err().map(|error| format!("{} {error}", error.word()))
}

/// Requests that are not compared, and why.
fn is_known_difference(line: &str) -> bool {
    // Commands that only Valkey and newer versions have, and options that older ones lack.
    let newer = ["delifeq", "delex", "client setinfo", "client no-touch"];
    // Redis looks up the key first, which does not exist here; and it wraps a negative cursor around.
    let laxer = ["getex k ex 0", "getex k px -1", "scan -1"];
    newer.iter().any(|start| line.starts_with(start)) || laxer.contains(&line) || line.contains("ifeq")
}

#[test]
fn errors_are_those_of_redis() {
    let Some(mut redis) = Redis::start() else { return };
    let commands = include_str!("commands.txt");
    let (mut compared, mut wrong) = (0, Vec::new());
    for line in commands.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut request = Vec::new();
        write_request(&mut request, &line.split(' ').collect::<Vec<_>>());
        let ours = our_error(&request);
        if is_known_difference(line) {
            continue;
        }
        compared += 1;
        let theirs = match redis.ask(&request) {
            Value::Error(text) => Some(String::from_utf8(text).unwrap()),
            _ => None,
        };
        // Errors that depend on the value of a key are not the parser's.
        let is_about_values = theirs.as_ref().is_some_and(|text| text.starts_with("WRONGTYPE"));
        if ours != theirs && !is_about_values {
            wrong.push(format!("{line}\n  ours:   {ours:?}\n  theirs: {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 150, "{compared} were compared");
}

/// Our answer to a `COMMAND`.
fn our_answer(request: &[u8]) -> Value {
    let mut parser = RequestParser::new(Limits::default());
    let request = parser.parse(request).unwrap().unwrap();
    let Ok(Command::Command(command)) = Command::of(&request) else { panic!("no COMMAND") };
    let mut reply = Vec::new();
    command.answer(&mut ReplyWriter::new(&mut reply, Protocol::Resp2));
    let (taken, value) = ReplyParser::new(Limits::default()).parse(&reply).unwrap();
    assert_eq!(taken, reply.len());
    value.unwrap()
}

/// The name, the arity and the positions of the keys, in both formats.
fn keys_of(information: &Value) -> Option<(Value, Vec<Value>, Vec<String>)> {
    let Value::Array(fields) = information else { return None };
    let Value::Array(specifications) = &fields[8] else { return None };
    // All their numbers and kinds, in order; notes and flags differ between implementations.
    let mut numbers = Vec::new();
    for specification in specifications {
        let Value::Array(pairs) = specification else { return None };
        for pair in
            pairs.chunks(2).filter(|pair| matches!(pair[0].bytes(), Some(b"begin_search" | b"find_keys")))
        {
            numbers.push(format!("{:?}", pair[1]));
        }
    }
    Some((fields[0].clone(), [&fields[1..2], &fields[3..6]].concat(), numbers))
}

#[test]
fn keys_are_where_redis_says_they_are() {
    let Some(mut redis) = Redis::start() else { return };
    let mut compared = 0;
    for row in COMMANDS {
        let mut request = Vec::new();
        write_request(&mut request, &["command", "info", row.name]);
        let (Value::Array(ours), Value::Array(theirs)) = (our_answer(&request), redis.ask(&request)) else {
            panic!("{} is told otherwise", row.name)
        };
        let Some(expected) = keys_of(&theirs[0]) else { continue };
        compared += 1;
        assert_eq!(keys_of(&ours[0]), Some(expected), "{}", row.name);
    }
    assert!(compared > 60, "{compared} were compared");
    let mut request = Vec::new();
    write_request(&mut request, &["command"]);
    let Value::Array(all) = our_answer(&request) else { panic!("no list") };
    assert_eq!(all.len(), COMMANDS.len());
}

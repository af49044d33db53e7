//! A real Redis server, which ends with the test.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use atoll_resp::{Limits, ReplyParser, Value, write_request};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// A real Redis server, which ends with the test.
pub struct Redis {
    process: Child,
    stream: UnixStream,
    parser: ReplyParser,
    rest: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl Redis {
    /// Starts one; none if no Redis is installed.
    pub fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let process = Command::new("redis-server")
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
        let mut redis = Self { process, stream, parser, rest: Vec::new(), _folder: folder };
        assert!(matches!(redis.ask(&["hello", "3"]), Value::Map(_)));
        Some(redis)
    }

    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Value {
        let mut request = Vec::new();
        write_request(&mut request, words);
        self.stream.write_all(&request).unwrap();
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

//! Runs the real program in a folder of its own, isolated from the options of the user who runs the tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Ports for a ring of three, below those that the system assigns and not taken by another test of this
/// process.
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 600).unwrap();
    10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 600 * 4
}

/// What a long-running program prints once it has started; panics with its error if it does not start.
#[track_caller]
pub fn started(child: &mut Child) -> serde_json::Value {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|_| {
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        panic!("{told}")
    })
}

/// A folder in which the program runs.
pub struct Workspace {
    pub folder: TempDir,
}

/// What the program answered.
#[derive(Debug)]
pub struct Answer {
    pub exit: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Workspace {
    pub fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    /// The program with these arguments, and none of our variables in its environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ATOLL_") {
                command.env_remove(name);
            }
        }
        command.args(arguments).current_dir(self.folder.path());
        command.env("HOME", self.folder.path()).env_remove("XDG_CONFIG_HOME");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().unwrap()
    }

    /// Runs to the end without input.
    pub fn run(&self, arguments: &[&str]) -> Answer {
        self.run_with(arguments, b"")
    }

    /// Runs to the end with this input.
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Answer {
        let mut child = self.spawn(arguments);
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // The program may end before it has read everything.
                let _ = stdin.write_all(input);
            });
            Answer::from(child.wait_with_output().unwrap())
        })
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap()
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{stderr}");
        Self { exit: output.status.code(), stdout: output.stdout, stderr }
    }
}

impl Answer {
    /// The output as text, after a success.
    #[track_caller]
    pub fn text(&self) -> &str {
        assert_eq!(self.exit, Some(0), "{}", self.stderr);
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// The output as JSON, after a success.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.text()).unwrap()
    }

    /// The output as JSON, one value per line, after a success.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<serde_json::Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The error output of a failure with this exit code, which must have a hint.
    #[track_caller]
    pub fn fails(&self, exit: i32) -> &str {
        assert_eq!(self.exit, Some(exit), "{}{}", String::from_utf8_lossy(&self.stdout), self.stderr);
        assert!(self.stderr.contains("error: "), "{}", self.stderr);
        assert!(self.stderr.contains("hint: "), "no hint: {}", self.stderr);
        &self.stderr
    }
}

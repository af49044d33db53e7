//! A process that does nothing but hold a network namespace.

use super::HostsError;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Says that the namespace is there, and waits for the end of standard input, of which only this program
/// has the other end.
const HOLD: &str = "echo made && exec cat";

/// The process. It ends when this is dropped, or when this program ends.
pub(crate) struct Holder(Child);

impl Holder {
    /// Starts one, in a new namespace.
    pub(crate) fn start() -> Result<Self, HostsError> {
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "sh", "-c", HOLD]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Of its own group: an interrupt at the terminal must not take the network away from servers that
        // are still ending.
        command.process_group(0);
        let mut holder = Self(command.spawn().map_err(HostsError::io("run unshare"))?);
        let (mut line, mut words) = (String::new(), String::new());
        if let Some(stdout) = holder.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(HostsError::io("read what unshare says"))?;
        }
        if !line.is_empty() {
            return Ok(holder);
        }
        if let Some(stderr) = &mut holder.0.stderr {
            stderr.read_to_string(&mut words).map_err(HostsError::io("read what unshare says"))?;
        }
        Err(HostsError::Command { what: "unshare --net".to_owned(), words: words.trim().to_owned() })
    }

    /// Its process id.
    pub(crate) fn process(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended already, which is fine.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

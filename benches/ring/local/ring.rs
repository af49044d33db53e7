//! Nodes as users start them, each a process with its own folder or none.

use super::LocalError;
use super::status::{self, Status};
use crate::servers::KeptProcess;
use rustix::process::Signal;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PORT: u16 = 7379;
/// The token, at addresses that only this machine reaches.
const TOKEN: &str = "a-token-of-the-bench-alone";
/// How long a killed process may take to disappear.
const GONE_TIME_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What survives the end of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Keeping {
    /// Nothing.
    Memory,
    /// Acknowledged writes survive the process, and a loss of power after a second.
    Flushed,
    /// Acknowledged writes survive a loss of power.
    Synced,
}

impl Keeping {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Flushed => "flushed",
            Self::Synced => "synced",
        }
    }
}

/// A ring.
pub struct LocalRing {
    folder: PathBuf,
    program: PathBuf,
    keeping: Keeping,
    nodes: Vec<Option<KeptProcess>>,
    lives: Vec<u32>,
}

impl LocalRing {
    /// The token that clients show.
    pub const TOKEN: &str = TOKEN;

    /// A ring of `count` nodes, none of which is started yet; three of them keep three copies and the
    /// configuration.
    pub fn new(
        folder: &Path,
        program: Option<&Path>,
        keeping: Keeping,
        nodes: usize,
    ) -> Result<Self, LocalError> {
        let program = program.ok_or(LocalError::NotOffered("no program of Atoll was named"))?.to_owned();
        std::fs::create_dir_all(folder).map_err(LocalError::io("make a folder for a ring"))?;
        let token = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(folder.join("token"));
        let written = token.and_then(|mut file| std::io::Write::write_all(&mut file, TOKEN.as_bytes()));
        written.map_err(LocalError::io("write a token"))?;
        let (nodes, lives) = ((0..nodes).map(|_| None).collect(), vec![0; nodes]);
        Ok(Self { folder: folder.to_owned(), program, keeping, nodes, lives })
    }

    /// The address of each node, started or not. Another bench on this machine uses other addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let own = (std::process::id() % 250 + 1) as u8;
        (0..self.nodes.len()).map(|at| (Ipv4Addr::new(127, 77, own, at as u8 + 1), PORT).into()).collect()
    }

    /// Starts a node, for the first time or with the data that it kept.
    pub fn start_node(&mut self, at: usize) -> Result<(), LocalError> {
        let addresses: Vec<String> = self.addresses().iter().map(SocketAddr::to_string).collect();
        let mut command: Vec<OsString> = vec![self.program.clone().into()];
        let words =
            ["ring", "serve", "--listen", &addresses[at], "--nodes", &addresses.join(","), "--copies", "3"];
        command.extend(words.map(OsString::from));
        command.extend(["--token-file".into(), self.folder.join("token").into()]);
        if self.keeping == Keeping::Memory {
            command.push("--memory".into());
        } else {
            command.extend(["--durability", self.keeping.name(), "--store"].map(OsString::from));
            command.push(self.folder.join(format!("store-{at}")).into());
        }
        self.lives[at] += 1;
        // Logs of the last few lives are enough to see why a node ended.
        let log = self.folder.join(format!("node-{at}-life-{}.log", self.lives[at] % 4));
        self.nodes[at] = Some(KeptProcess::start(&command, &log)?);
        Ok(())
    }

    /// Kills nodes one after the other, and waits until their processes have disappeared; returns the
    /// moment of the first signal.
    pub fn kill(&mut self, which: &[usize]) -> Result<Instant, LocalError> {
        let killed_at = Instant::now();
        for &at in which {
            let Some(node) = &mut self.nodes[at] else { continue };
            node.signal(Signal::KILL).map_err(LocalError::io(format!("kill node {}", at + 1)))?;
        }
        Ok(killed_at)
    }

    /// Waits until killed nodes have disappeared, so that they can be started again.
    pub fn bury(&mut self, which: &[usize]) -> Result<(), LocalError> {
        for &at in which {
            let Some(mut node) = self.nodes[at].take() else { continue };
            wait_until(&format!("the end of node {}", at + 1), GONE_TIME_MAX, || Ok(node.ended().is_some()))?;
        }
        Ok(())
    }

    /// Fails if a node ended by itself.
    pub fn look_for_crashes(&mut self) -> Result<(), LocalError> {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if let Some(node) = node
                && let Some(how) = node.ended()
            {
                let how = format!("{how}; its last words: {}", node.last_words());
                return Err(LocalError::Ended { node: at + 1, how });
            }
        }
        Ok(())
    }

    /// The ring's status according to a node.
    pub fn status(&self, at: usize) -> Result<Status, LocalError> {
        status::ask(self.addresses()[at], TOKEN)
    }

    /// Waits until every running node reports that a condition holds; a node that does not answer yet is
    /// asked again.
    pub fn wait_until(
        &mut self,
        what: &str,
        most: Duration,
        is_so: impl Fn(&Status) -> bool,
    ) -> Result<(), LocalError> {
        let mut last = String::new();
        let waited = wait_until(what, most, || {
            self.look_for_crashes()?;
            for at in (0..self.nodes.len()).filter(|at| self.nodes[*at].is_some()) {
                last = match self.status(at) {
                    Ok(status) if is_so(&status) => continue,
                    Ok(status) => format!("node {} says {status:?}", at + 1),
                    Err(error) => format!("node {}: {}", at + 1, crate::phases::with_sources(&error)),
                };
                return Ok(false);
            }
            Ok(true)
        });
        waited.map_err(|error| match error {
            LocalError::TooLong { what, seconds } => {
                LocalError::TooLong { what: format!("{what} (at the last look {last})"), seconds }
            }
            error => error,
        })
    }

    /// Waits until every slot has its primary and three copies in sync.
    pub fn wait_until_whole(&mut self, most: Duration) -> Result<(), LocalError> {
        self.wait_until("until every slot has three copies in sync", most, |status| {
            status.served == 16_384 && status.copies_in_sync_min >= 3
        })
    }

    /// Runs an `atoll` command against this ring.
    pub fn command(&self, words: &[&str]) -> Result<String, LocalError> {
        let what = format!("atoll {}", words.join(" "));
        let store =
            format!("ring://{}/?token-file={}", self.addresses()[0], self.folder.join("token").display());
        let mut command = std::process::Command::new(&self.program);
        command.args(words).args(["--store", &store]).stdin(std::process::Stdio::null());
        let output =
            command.env_remove(crate::FOLDER_VARIABLE).output().map_err(LocalError::io(what.clone()))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(LocalError::Command { what, words });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Polls until a condition holds.
fn wait_until(
    what: &str,
    most: Duration,
    mut is_so: impl FnMut() -> Result<bool, LocalError>,
) -> Result<(), LocalError> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > most {
            return Err(LocalError::TooLong { what: what.to_owned(), seconds: most.as_secs() });
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

//! The servers that are measured: started on a loopback port of the bench's choice, and ended with it.

mod keeper;
mod ring;

pub use keeper::{Kept, StartError, afterwards, end_with_parent, hold, keep, own_child};
pub use ring::{Ring, leader_of};

use crate::client::{Protocol, Reply};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it answers.
const START_TIME_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const GREETING_TIME_MAX: Duration = Duration::from_secs(2);

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Ours.
    Atoll,
    /// One thread.
    Redis,
    /// Two threads.
    Memcached,
}

impl Kind {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Atoll => "atoll",
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }

    /// That a rival is installed: one that is and does not start has failed.
    fn is_there(self) -> Result<(), ServerError> {
        let (program, package) = match self {
            Self::Atoll => return Ok(()),
            Self::Redis => ("redis-server", "redis-server"),
            Self::Memcached => ("memcached", "memcached"),
        };
        if is_installed(program) { Ok(()) } else { Err(ServerError::NotInstalled { program, package }) }
    }

    /// What it is asked in, so many requests at a time.
    pub const fn protocol(self, depth: usize) -> Protocol {
        match self {
            Self::Atoll | Self::Redis => Protocol::Resp,
            Self::Memcached if depth > 1 => Protocol::MemcachedQuiet,
            Self::Memcached => Protocol::MemcachedText,
        }
    }
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing.
    Memory,
    /// The end of the process; a loss of power a second later.
    Flushed,
    /// A loss of power: it is on the disk before it is acknowledged.
    Always,
}

/// Where servers lie.
pub struct Place {
    /// A folder of the bench's own.
    pub folder: PathBuf,
    /// Atoll's program.
    pub atoll: Option<PathBuf>,
}

/// Why a server is not measured.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// This build has no such server yet.
    #[error("not offered yet: {what}")]
    NotOffered {
        /// What is not there.
        what: &'static str,
    },
    /// A rival is not there.
    #[error("not offered here: {program} is not installed: apt-get install {package}")]
    NotInstalled {
        /// What of it.
        program: &'static str,
        /// What brings it.
        package: &'static str,
    },
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It ended, or never answered.
    #[error("{server} did not answer: {problem}; its last words: {last_words}")]
    Silent {
        /// Whose.
        server: &'static str,
        /// What it did instead.
        problem: String,
        /// The end of its output.
        last_words: String,
    },
    /// The bench could not prepare it.
    #[error("cannot prepare {server}")]
    Prepare {
        /// Whose.
        server: &'static str,
        #[source]
        /// Why.
        source: io::Error,
    },
}

/// A running server.
pub struct Server {
    /// Whose.
    pub kind: Kind,
    /// Where it listens.
    pub address: SocketAddr,
    kept: Kept,
}

impl Server {
    /// Starts one and waits until it answers.
    pub fn start(kind: Kind, durability: Durability, place: &Place) -> Result<Self, ServerError> {
        kind.is_there()?;
        let prepare = |source| ServerError::Prepare { server: kind.name(), source };
        let folder = place.folder.join(kind.name());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(prepare)?;
        }
        fs::create_dir_all(&folder).map_err(prepare)?;
        let address = free_address().map_err(prepare)?;
        let command = command(kind, durability, address, &folder, place.atoll.as_deref())?;
        let log = place.folder.join(format!("{}.log", kind.name()));
        let mut server = Self { kind, address, kept: Kept::start(&command, &log)? };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.kept.process()
    }

    fn wait_until_it_answers(&mut self) -> Result<(), ServerError> {
        let start = Instant::now();
        loop {
            let problem = match greet(self.address, self.kind.protocol(1)) {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            };
            let ended = self.kept.ended();
            if ended.is_some() || start.elapsed() > START_TIME_MAX {
                return Err(ServerError::Silent {
                    server: self.kind.name(),
                    problem: ended.unwrap_or(problem),
                    last_words: self.kept.last_words(),
                });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// A port of the loopback that nobody uses at this moment.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn command(
    kind: Kind,
    durability: Durability,
    address: SocketAddr,
    folder: &Path,
    atoll: Option<&Path>,
) -> Result<Vec<OsString>, ServerError> {
    let port = address.port().to_string();
    let mut command: Vec<OsString> = Vec::new();
    match (kind, durability) {
        (Kind::Atoll, durability) => {
            command.push(offered(atoll)?.into());
            command.extend(["ring", "serve", "--listen", &address.to_string()].map(Into::into));
            command.extend(durability.words(&folder.join("store")));
        }
        (Kind::Redis, _) => {
            let (append_only, sync) = match durability {
                Durability::Memory => ("no", "everysec"),
                Durability::Flushed => ("yes", "everysec"),
                Durability::Always => ("yes", "always"),
            };
            let words = ["redis-server", "--bind", "127.0.0.1", "--port", &port, "--save", "", "--dir"];
            command.extend(words.map(Into::into));
            command.push(folder.into());
            let words = ["--appendonly", append_only, "--appendfsync", sync, "--daemonize", "no"];
            command.extend(words.map(Into::into));
            // A rewrite in the background would be measured with some rounds and not with others.
            command.extend(["--auto-aof-rewrite-percentage", "0"].map(Into::into));
        }
        (Kind::Memcached, Durability::Memory) => {
            let words = ["memcached", "-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "2", "-m", "2048"];
            command.extend(words.map(Into::into));
            if rustix::process::getuid().is_root() {
                command.extend(["-u", "nobody"].map(Into::into));
            }
        }
        (Kind::Memcached, Durability::Flushed | Durability::Always) => {
            return Err(ServerError::NotOffered { what: "memcached on a disk" });
        }
    }
    Ok(command)
}

/// Atoll's program, if one was named and it serves.
fn offered(atoll: Option<&Path>) -> Result<&Path, ServerError> {
    let program = atoll.ok_or(ServerError::NotOffered { what: "no program of Atoll was named" })?;
    if offers_serve(program) {
        return Ok(program);
    }
    Err(ServerError::NotOffered { what: "this build of atoll has no verb `ring serve`" })
}

/// Whether this program has the verb that serves.
fn offers_serve(program: &Path) -> bool {
    let mut asked = Command::new(program);
    asked.env_remove(crate::FOLDER_VARIABLE);
    asked.args(["ring", "serve", "--help"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// Whether the system finds a program of this name.
pub fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// One request and its reply, to see that a server is there.
fn greet(address: SocketAddr, protocol: Protocol) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, GREETING_TIME_MAX)?;
    stream.set_read_timeout(Some(GREETING_TIME_MAX))?;
    stream.write_all(protocol.greeting())?;
    let (mut heard, mut scratch) = (Vec::new(), [0; 512]);
    loop {
        match stream.read(&mut scratch)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => heard.extend_from_slice(&scratch[..count]),
        }
        match protocol.parse(&heard).map_err(io::Error::other)? {
            None => {}
            Some((Reply::Refused(words), _)) => {
                return Err(io::Error::other(String::from_utf8_lossy(words).into_owned()));
            }
            Some(_) => return Ok(()),
        }
    }
}

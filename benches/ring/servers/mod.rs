//! The measured servers: started on a loopback port that the bench chooses, and stopped with it.

mod keeper;
mod ring;

pub use keeper::{KeptProcess, StartError, afterwards, end_with_parent, keep, own_child};
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

/// Which server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Ours.
    Atoll,
    /// Redis, with one thread.
    Redis,
    /// memcached, with two threads.
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

    /// Checks that a rival is installed: an installed one that does not start has failed.
    fn is_there(self) -> Result<(), ServerError> {
        let (program, package) = match self {
            Self::Atoll => return Ok(()),
            Self::Redis => ("redis-server", "redis-server"),
            Self::Memcached => ("memcached", "memcached"),
        };
        if is_installed(program) { Ok(()) } else { Err(ServerError::NotInstalled { program, package }) }
    }

    /// The protocol to use for this many requests at a time.
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
    /// A loss of power: the write is on the disk before it is acknowledged.
    Always,
}

/// Where servers keep their files.
pub struct BenchPaths {
    /// A folder of the bench.
    pub folder: PathBuf,
    /// Atoll's program.
    pub atoll: Option<PathBuf>,
}

/// Why a server is not measured.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// This build has no such server.
    #[error("not offered yet: {what}")]
    NotOffered {
        /// What is missing.
        what: &'static str,
    },
    /// A rival is not installed.
    #[error("not offered here: {program} is not installed: apt-get install {package}")]
    NotInstalled {
        /// The missing program.
        program: &'static str,
        /// The package that contains it.
        package: &'static str,
    },
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It ended, or never answered.
    #[error("{server} did not answer: {problem}; its last words: {last_words}")]
    Silent {
        /// The server.
        server: &'static str,
        /// What it did instead.
        problem: String,
        /// The end of its output.
        last_words: String,
    },
    /// The bench could not prepare it.
    #[error("cannot prepare {server}")]
    Prepare {
        /// The server.
        server: &'static str,
        #[source]
        /// The cause.
        source: io::Error,
    },
}

/// A running server.
pub struct Server {
    /// Which server it is.
    pub kind: Kind,
    /// Where it listens.
    pub address: SocketAddr,
    kept: KeptProcess,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub fn start(kind: Kind, durability: Durability, place: &BenchPaths) -> Result<Self, ServerError> {
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
        let mut server = Self { kind, address, kept: KeptProcess::start(&command, &log)? };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Its process id.
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

/// A loopback port that is free at the moment.
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
            // A background rewrite would fall into some rounds and not into others.
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

/// Atoll's program, if one was named and can serve.
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

/// Whether a program of this name is on the path.
pub fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Sends one request and reads its reply, to check that a server is up.
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

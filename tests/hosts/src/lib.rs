//! Hosts made of network namespaces on a bridge, which can be cut off and healed: for tests and benches.
//!
//! Namespaces have no names: each lives as long as the process that holds it. That process waits for the end
//! of its standard input, so it ends with the program that made the hosts, however that ends. The bridge has
//! its own namespace, so the machine's own network is never touched.

mod holder;
#[cfg(test)]
mod tests;

use holder::Holder;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// A hardware address that no host has: packets sent to it vanish.
const NOBODY: &str = "02:00:00:00:00:ff";

/// Makes one link of each kind that hosts need, in a namespace that ends with the command.
const TRIAL: &str = "ip link add bridge type bridge && ip link add port type veth peer name card";

/// Why there are no hosts, or why one does not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// A program failed.
    #[error("{what} failed: {words}")]
    Command {
        /// The program and its arguments.
        what: String,
        /// Its output.
        words: String,
    },
    /// The system refused.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: String,
        #[source]
        /// Why not.
        source: io::Error,
    },
    /// A host was named that was not made.
    #[error("there is no host {0}")]
    NoHost(usize),
}

impl HostsError {
    /// For `map_err`: an I/O error while `doing`.
    fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// The prefix of a command that lets it make hosts: none for root, otherwise a new user namespace.
#[must_use]
pub fn before() -> Vec<OsString> {
    if rustix::process::getuid().is_root() {
        return Vec::new();
    }
    ["unshare", "--user", "--map-root-user", "--"].map(OsString::from).into()
}

/// Whether commands with the prefix [`before`] may make hosts on this machine.
///
/// # Errors
/// Why not.
pub fn possible() -> Result<(), HostsError> {
    let words = ["unshare", "--net", "--", "sh", "-c", TRIAL].map(OsString::from);
    output(&[before(), words.into()].concat()).map(drop)
}

/// The hosts and the bridge between them.
pub struct Hosts {
    hosts: Vec<Holder>,
    switch: Holder,
}

impl Hosts {
    /// Makes `count` hosts that reach each other. This process must run behind the prefix [`before`].
    ///
    /// # Errors
    /// Why they could not be made.
    pub fn make(count: usize) -> Result<Self, HostsError> {
        let switch = Holder::start()?;
        let hosts = (0..count).map(|_| Holder::start()).collect::<Result<_, _>>()?;
        let made = Self { hosts, switch };
        ip(&made.switch, "link add bridge type bridge")?;
        ip(&made.switch, "link set bridge up")?;
        for host in 0..count {
            made.plug_in(host)?;
        }
        Ok(made)
    }

    /// Connects a host to the bridge.
    fn plug_in(&self, host: usize) -> Result<(), HostsError> {
        let (switch, within) = (&self.switch, self.holder(host)?);
        ip(switch, &format!("link add port{host} type veth peer name card{host}"))?;
        ip(switch, &format!("link set card{host} netns {}", within.process()))?;
        ip(switch, &format!("link set port{host} master bridge"))?;
        ip(switch, &format!("link set port{host} up"))?;
        ip(within, &format!("addr add {}/24 dev card{host}", Self::address(host)))?;
        ip(within, &format!("link set card{host} up"))?;
        ip(within, "link set lo up")
    }

    fn holder(&self, host: usize) -> Result<&Holder, HostsError> {
        self.hosts.get(host).ok_or(HostsError::NoHost(host))
    }

    /// The address of a host.
    #[must_use]
    pub fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, host as u8 + 1)
    }

    /// The prefix of a command that runs on a host.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn within(&self, host: usize) -> Result<Vec<OsString>, HostsError> {
        self.holder(host).map(within)
    }

    /// Cuts a host off: everything that it sends or should receive vanishes; it keeps running.
    ///
    /// # Errors
    /// If it could not be cut off.
    pub fn cut(&self, host: usize) -> Result<(), HostsError> {
        ip(&self.switch, &format!("link set port{host} down"))
    }

    /// Undoes a cut.
    ///
    /// # Errors
    /// If it stays cut off.
    pub fn heal(&self, host: usize) -> Result<(), HostsError> {
        ip(&self.switch, &format!("link set port{host} up"))
    }

    /// Blocks or unblocks packets from one host to another; the other direction stays as it is.
    ///
    /// # Errors
    /// If everything stays as it is.
    pub fn block(&self, from: usize, to: usize, is_blocked: bool) -> Result<(), HostsError> {
        let (within, to) = (self.holder(from)?, Self::address(to));
        if is_blocked {
            return ip(within, &format!("neigh replace {to} lladdr {NOBODY} dev card{from} nud permanent"));
        }
        ip(within, &format!("neigh del {to} dev card{from}"))
    }

    /// The network of a host, for threads that enter it.
    ///
    /// # Errors
    /// If there is no such host, or it has ended.
    pub fn network(&self, host: usize) -> Result<Network, HostsError> {
        let link = format!("/proc/{}/ns/net", self.holder(host)?.process());
        File::open(&link).map(Network).map_err(HostsError::io(format!("open {link}")))
    }
}

/// The network of a host.
pub struct Network(File);

impl Network {
    /// Moves this thread to that host: whatever it opens or starts from now on is there.
    ///
    /// # Errors
    /// If it stays where it is.
    pub fn enter(&self) -> io::Result<()> {
        let kind = rustix::thread::LinkNameSpaceType::Network;
        Ok(rustix::thread::move_into_link_name_space(self.0.as_fd(), Some(kind))?)
    }
}

fn within(holder: &Holder) -> Vec<OsString> {
    let process = holder.process().to_string();
    ["nsenter", "--target", &process, "--net"].map(Into::into).into()
}

fn ip(within_what: &Holder, words: &str) -> Result<(), HostsError> {
    let mut command = within(within_what);
    command.push("ip".into());
    command.extend(words.split(' ').map(Into::into));
    output(&command).map(drop)
}

/// Runs a short command to its end and returns its output.
///
/// # Errors
/// If it cannot be run, or fails.
pub fn output(command: &[OsString]) -> Result<String, HostsError> {
    let shown = || command.join(" ".as_ref()).to_string_lossy().into_owned();
    let Some((program, arguments)) = command.split_first() else { return Ok(String::new()) };
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(HostsError::io(format!("run {}", shown())))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let words = [ran.stderr, ran.stdout].concat();
    Err(HostsError::Command { what: shown(), words: String::from_utf8_lossy(&words).trim().to_owned() })
}

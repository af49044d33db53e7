//! Hosts made of network namespaces on a bridge, which can be cut off and healed.
//!
//! Namespaces have no names: each lives as long as the process that holds it, and that ends with the bench.
//! The bridge has a namespace of its own, so the machine's own network is never touched.

use super::{CutError, before};
use crate::servers::Kept;
use std::ffi::OsString;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// The address of a network card that no host has: what is sent there vanishes.
const NOBODY: &str = "02:00:00:00:00:ff";

/// The hosts and the switch between them.
pub struct Hosts {
    hosts: Vec<Kept>,
    switch: Kept,
}

/// Whether whoever runs the bench may make networks of their own.
pub fn possible() -> Result<(), CutError> {
    let words = ["unshare", "--net", "--", "ip", "link", "show"].map(OsString::from);
    let command = [before(), words.into()].concat();
    output(&command).map(drop).map_err(|error| CutError::NoHosts(Box::new(error)))
}

impl Hosts {
    /// So many hosts that reach each other.
    pub fn make(count: usize, folder: &Path) -> Result<Self, CutError> {
        let holder = |name: String| Kept::holder(&["unshare", "--net"], &folder.join(name));
        let switch = holder("switch.log".to_owned())?;
        let hosts = (0..count).map(|host| holder(format!("host-{host}.log"))).collect::<Result<_, _>>()?;
        let made = Self { hosts, switch };
        made.ip(&made.switch, "link add bridge type bridge")?;
        made.ip(&made.switch, "link set bridge up")?;
        for host in 0..count {
            made.plug_in(host)?;
        }
        Ok(made)
    }

    /// Puts a cable between a host and the switch.
    fn plug_in(&self, host: usize) -> Result<(), CutError> {
        let (switch, within) = (&self.switch, &self.hosts[host]);
        self.ip(switch, &format!("link add port{host} type veth peer name card{host}"))?;
        self.ip(switch, &format!("link set card{host} netns {}", within.process()))?;
        self.ip(switch, &format!("link set port{host} master bridge"))?;
        self.ip(switch, &format!("link set port{host} up"))?;
        self.ip(within, &format!("addr add {}/24 dev card{host}", Self::address(host)))?;
        self.ip(within, &format!("link set card{host} up"))?;
        self.ip(within, "link set lo up")
    }

    /// The address of a host.
    pub fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, host as u8 + 1)
    }

    /// What a command begins with to run on a host.
    pub fn within(&self, host: usize) -> Vec<OsString> {
        within(&self.hosts[host])
    }

    /// What a host sends or should get vanishes from now on; it goes on running.
    pub fn cut(&self, host: usize) -> Result<(), CutError> {
        self.ip(&self.switch, &format!("link set port{host} down"))
    }

    /// Undoes a cut.
    pub fn heal(&self, host: usize) -> Result<(), CutError> {
        self.ip(&self.switch, &format!("link set port{host} up"))
    }

    /// What a host sends to another one vanishes from now on, or no longer; the other direction stays as it
    /// is.
    pub fn block(&self, from: usize, to: usize, is_blocked: bool) -> Result<(), CutError> {
        let (within, to) = (&self.hosts[from], Self::address(to));
        if is_blocked {
            return self
                .ip(within, &format!("neigh replace {to} lladdr {NOBODY} dev card{from} nud permanent"));
        }
        self.ip(within, &format!("neigh del {to} dev card{from}"))
    }

    /// The network of a host, for threads that enter it.
    pub fn network(&self, host: usize) -> Result<Network, CutError> {
        let link = format!("/proc/{}/ns/net", self.hosts[host].process());
        File::open(&link).map(Network).map_err(CutError::io(format!("open {link}")))
    }

    fn ip(&self, within_what: &Kept, words: &str) -> Result<(), CutError> {
        let mut command = within(within_what);
        command.push("ip".into());
        command.extend(words.split(' ').map(Into::into));
        output(&command).map(drop)
    }
}

/// The network of a host.
pub struct Network(File);

impl Network {
    /// Whatever this thread opens from now on is on that host.
    pub fn enter(&self) -> std::io::Result<()> {
        let kind = rustix::thread::LinkNameSpaceType::Network;
        Ok(rustix::thread::move_into_link_name_space(self.0.as_fd(), Some(kind))?)
    }
}

fn within(kept: &Kept) -> Vec<OsString> {
    let process = kept.process().to_string();
    ["nsenter", "--target", &process, "--net"].map(Into::into).into()
}

/// Runs a short command to its end; what it wrote.
pub fn output(command: &[OsString]) -> Result<String, CutError> {
    let shown = || command.join(" ".as_ref()).to_string_lossy().into_owned();
    let Some((program, arguments)) = command.split_first() else { return Ok(String::new()) };
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(CutError::io(format!("run {}", shown())))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let words = [ran.stderr, ran.stdout].concat();
    Err(CutError::Command { what: shown(), words: String::from_utf8_lossy(&words).trim().to_owned() })
}

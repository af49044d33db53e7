//! Hosts made of network namespaces on a bridge, which can be cut off and healed.
//!
//! Namespaces have no names: each lives as long as the process that holds it, which ends with the bench.
//! The bridge has its own namespace, so the machine's own network is never touched.

use super::{CutError, before};
use crate::servers::KeptProcess;
use std::ffi::OsString;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// A hardware address that no host has: packets sent to it vanish.
const NOBODY: &str = "02:00:00:00:00:ff";

/// The hosts and the bridge between them.
pub struct Hosts {
    hosts: Vec<KeptProcess>,
    switch: KeptProcess,
}

/// Whether the bench may make network namespaces.
pub fn possible() -> Result<(), CutError> {
    let words = ["unshare", "--net", "--", "ip", "link", "show"].map(OsString::from);
    let command = [before(), words.into()].concat();
    output(&command).map(drop).map_err(|error| CutError::NoHosts(Box::new(error)))
}

impl Hosts {
    /// Makes `count` hosts that reach each other.
    pub fn make(count: usize, folder: &Path) -> Result<Self, CutError> {
        let holder = |name: String| KeptProcess::holder(&["unshare", "--net"], &folder.join(name));
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

    /// Connects a host to the bridge.
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

    /// The prefix of a command that runs on a host.
    pub fn within(&self, host: usize) -> Vec<OsString> {
        within(&self.hosts[host])
    }

    /// Cuts a host off: everything that it sends or should receive vanishes; it keeps running.
    pub fn cut(&self, host: usize) -> Result<(), CutError> {
        self.ip(&self.switch, &format!("link set port{host} down"))
    }

    /// Undoes a cut.
    pub fn heal(&self, host: usize) -> Result<(), CutError> {
        self.ip(&self.switch, &format!("link set port{host} up"))
    }

    /// Blocks or unblocks packets from one host to another; the other direction stays as it is.
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

    fn ip(&self, within_what: &KeptProcess, words: &str) -> Result<(), CutError> {
        let mut command = within(within_what);
        command.push("ip".into());
        command.extend(words.split(' ').map(Into::into));
        output(&command).map(drop)
    }
}

/// The network of a host.
pub struct Network(File);

impl Network {
    /// Moves this thread to that host: whatever it opens from now on is there.
    pub fn enter(&self) -> std::io::Result<()> {
        let kind = rustix::thread::LinkNameSpaceType::Network;
        Ok(rustix::thread::move_into_link_name_space(self.0.as_fd(), Some(kind))?)
    }
}

fn within(kept: &KeptProcess) -> Vec<OsString> {
    let process = kept.process().to_string();
    ["nsenter", "--target", &process, "--net"].map(Into::into).into()
}

/// Runs a short command to its end and returns its output.
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

//! The identity of a process (host, boot, process id), and whether the process of a record still lives.

use super::decide::{Host, Process};
use super::record::OwnerRecord;
use std::fs;

/// Identifies a process, also across restarts of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Name of the host.
    pub host: String,
    /// Changes with every start of the host.
    pub boot: String,
    /// The namespace of its process ids.
    pub namespace: String,
    /// The process id.
    pub pid: u32,
    /// When the process was started, in ticks since the start of the host; together with the id it is unique.
    pub started: u64,
    /// The machine id, which the host keeps across restarts; empty where there is none, as in many
    /// containers.
    pub machine: String,
}

impl HostIdentity {
    /// The process id.
    #[must_use]
    pub fn of_this_process() -> Self {
        let pid = std::process::id();
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned(),
            namespace: fs::read_link("/proc/self/ns/pid")
                .map(|link| link.to_string_lossy().into_owned())
                .unwrap_or_default(),
            pid,
            started: started(pid).unwrap_or(0),
            machine: fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned(),
        }
    }

    /// Where the process of a record ran, seen from here.
    #[must_use]
    pub fn host_of(&self, record: &OwnerRecord) -> Host {
        let is_this_boot = !self.boot.is_empty() && record.identity.boot == self.boot;
        if is_this_boot && record.identity.namespace == self.namespace {
            Host::Here
        } else if is_this_boot {
            Host::OtherNamespace
        } else if record.identity.host == self.host && self.is_same_machine(record) {
            Host::BeforeRestart
        } else {
            Host::Other
        }
    }

    /// Whether the process of a record is known to have run on this machine, before or after a restart. The
    /// name of the host proves nothing: the next container with that name may run on another machine.
    fn is_same_machine(&self, record: &OwnerRecord) -> bool {
        !self.machine.is_empty() && self.machine == record.identity.machine
    }

    /// Whether the process of a record lives; one that cannot be seen from here counts as alive.
    #[must_use]
    pub fn process_of(&self, record: &OwnerRecord) -> Process {
        match self.host_of(record) {
            Host::Here if started(record.identity.pid) != Some(record.identity.started) => Process::Dead,
            Host::BeforeRestart => Process::Dead,
            _ => Process::Alive,
        }
    }

    /// Whether the process of a record is seen to live on this host and is not suspended.
    #[must_use]
    pub fn is_awake(&self, record: &OwnerRecord) -> bool {
        self.host_of(record) == Host::Here
            && self.process_of(record) == Process::Alive
            && !self.is_suspended(record)
    }

    /// Whether the process of a record ran on this host since the host's last start, and is seen to have
    /// ended.
    #[must_use]
    pub fn has_ended(&self, record: &OwnerRecord) -> bool {
        self.host_of(record) == Host::Here && self.process_of(record) == Process::Dead
    }

    /// Whether the process of a record is suspended, as by Ctrl-Z; never true for processes of other hosts.
    #[must_use]
    pub fn is_suspended(&self, record: &OwnerRecord) -> bool {
        self.host_of(record) == Host::Here && matches!(state(record.identity.pid).as_deref(), Some("T"))
    }
}

/// The state of a process, in the letters of `ps`.
fn state(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().next().map(str::to_owned)
}

/// When a process was started, in ticks since the start of the host; none if there is no such process, or
/// only the zombie of one.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, spaces and parentheses included.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(change: impl FnOnce(&mut HostIdentity)) -> OwnerRecord {
        let mut identity = HostIdentity::of_this_process();
        change(&mut identity);
        OwnerRecord { identity, socket: None, nonce: 1 }
    }

    #[test]
    fn a_process_is_alive_only_under_its_own_start_time() {
        let here = HostIdentity::of_this_process();
        assert_ne!(here.started, 0);
        assert_eq!(here.process_of(&record(|_| ())), Process::Alive);
        assert_eq!(here.process_of(&record(|it| it.started += 1)), Process::Dead);
        assert_eq!(here.process_of(&record(|it| it.pid = u32::MAX)), Process::Dead);
    }

    #[test]
    fn hosts_are_told_apart_by_boot_then_by_name_and_machine() {
        let here = HostIdentity { machine: "m".into(), ..HostIdentity::of_this_process() };
        assert_eq!(here.host_of(&record(|_| ())), Host::Here);
        assert_eq!(here.host_of(&record(|it| it.namespace.push('x'))), Host::OtherNamespace);
        let before = |machine: &str| {
            record(|it| {
                it.boot.push('x');
                it.machine = machine.into();
            })
        };
        for (machine, host) in [("m", Host::BeforeRestart), ("", Host::Other), ("n", Host::Other)] {
            assert_eq!(here.host_of(&before(machine)), host, "machine {machine:?}");
        }
        let unknown = HostIdentity { machine: String::new(), ..here.clone() };
        assert_eq!(unknown.host_of(&before("m")), Host::Other);
        assert_eq!(unknown.host_of(&before("")), Host::Other);
        let elsewhere = record(|it| {
            it.boot.push('x');
            it.host.push('x');
        });
        assert_eq!(here.host_of(&elsewhere), Host::Other);
        assert_eq!(here.process_of(&elsewhere), Process::Alive);
    }
}

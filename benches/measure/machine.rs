//! The machine: its facts for the record, and whether it is idle enough for measurements.

use super::usage::{MachineTime, processors};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The machine counts as calm if other processes use no more than this share; figures of a busier one are
/// not judged.
pub const CALM_SHARE_MAX: f64 = 0.2;
const CALM_WAIT_MAX: Duration = Duration::from_secs(120);

/// The machine on which figures were measured.
#[derive(Clone, Debug, serde::Serialize)]
pub struct MachineFacts {
    /// Model of the processor.
    pub processor: String,
    /// How many processors.
    pub processors: usize,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// Kernel release.
    pub kernel: String,
    /// File system of the working folder.
    pub file_system: String,
    /// Load averages at the start.
    pub load: String,
    /// Whether this process may take precedence over builds started elsewhere.
    pub priority_raised: bool,
    /// Seconds since 1970 at the start.
    pub started: u64,
}

impl MachineFacts {
    /// Collects the facts.
    pub fn gather(folder: &Path, priority_raised: bool) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, name: &str| {
            text.lines()
                .find(|line| line.starts_with(name))
                .and_then(|line| line.split_once(':'))
                .map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory_kib: f64 =
            after(&text("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0.0);
        Self {
            processor: after(&text("/proc/cpuinfo"), "model name"),
            processors: processors(),
            memory_gib: memory_kib / f64::from(1 << 20),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system_of(folder),
            load: text("/proc/loadavg").trim().to_owned(),
            priority_raised,
            started: std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
        }
    }
}

/// The type of the file system that holds `folder`: that of the longest mount point above it.
fn file_system_of(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    fs::read_to_string("/proc/mounts")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| {
            let mut columns = line.split(' ').skip(1);
            Some((columns.next()?.to_owned(), columns.next()?.to_owned()))
        })
        .filter(|(mount, _)| folder.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind)
}

/// Gives this terminal precedence over work of other terminals, where the kernel groups by terminal and
/// allows it. Plain niceness does not reach across such groups.
pub fn raise_priority() -> bool {
    fs::write("/proc/self/autogroup", "-8").is_ok()
}

/// How the wait for a calm machine ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Calm {
    /// Other processes use next to nothing.
    Calm,
    /// Other processes still use this share of all processors.
    Busy(f64),
}

/// Waits until other processes leave the machine idle, for two minutes at most; `told` is called while it
/// waits.
pub fn wait_for_calm(patient: bool, mut told: impl FnMut(f64)) -> Calm {
    let start = Instant::now();
    loop {
        let before = MachineTime::now();
        std::thread::sleep(Duration::from_secs(1));
        let busy = before.until_now().busy;
        if busy <= CALM_SHARE_MAX {
            return Calm::Calm;
        }
        if !patient || start.elapsed() > CALM_WAIT_MAX {
            return Calm::Busy(busy);
        }
        told(busy);
    }
}

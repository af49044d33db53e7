//! The resource usage of this process, and the load on the whole machine.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// CPU seconds of all threads of this process, user and system.
#[allow(unsafe_code, reason = "the call has no safe form")]
pub fn cpu_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure it is given; zeroed is a valid value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Bytes written by this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IoBytes {
    /// Bytes handed to write calls.
    pub handed_over: u64,
    /// Bytes of pages made dirty or written directly: what reaches the disk. Includes mapped files; a page
    /// written twice before the kernel stores it counts once.
    pub to_disk: u64,
}

/// Bytes written since the process started; zero where the kernel does not report it.
pub fn io_bytes() -> IoBytes {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    IoBytes { handed_over: field(&text, "wchar:"), to_disk: field(&text, "write_bytes:") }
}

/// The peak memory of this process.
pub fn peak_resident_bytes() -> u64 {
    field(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmHWM:") * 1024
}

/// The current anonymous memory of this process.
pub fn anonymous_bytes() -> u64 {
    field(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "RssAnon:") * 1024
}

/// The number of write calls since the process started.
pub fn write_calls() -> u64 {
    field(&fs::read_to_string("/proc/self/io").unwrap_or_default(), "syscw:")
}

/// Disk space of the files directly in a folder; holes take none.
pub fn allocated_bytes(folder: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += entry?.metadata()?.blocks() * 512;
    }
    Ok(bytes)
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// The unit in which the kernel counts processor time.
pub const TICK_SECONDS: f64 = 0.01;

/// A moment in the life of the machine, from which later usage is measured.
pub struct MachineTime {
    at: Instant,
    busy_seconds: f64,
    stolen_seconds: f64,
}

/// The machine's usage between two moments, as shares of all its processors.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct MachineShare {
    /// Busy with anything.
    pub busy: f64,
    /// Taken by the host of a virtual machine.
    pub stolen: f64,
    /// Seconds between the two moments.
    pub seconds: f64,
}

impl MachineTime {
    /// The present moment.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let columns: Vec<f64> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .map(|column| column.parse::<f64>().unwrap_or(0.0) * TICK_SECONDS)
            .collect();
        let column = |at: usize| columns.get(at).copied().unwrap_or(0.0);
        // user, nice, system, interrupts; idle and waiting for a disk are not busy.
        let busy_seconds = column(0) + column(1) + column(2) + column(5) + column(6);
        Self { at: Instant::now(), busy_seconds, stolen_seconds: column(7) }
    }

    /// The usage since this moment.
    pub fn until_now(&self) -> MachineShare {
        let now = Self::now();
        let seconds = (now.at - self.at).max(Duration::from_millis(1)).as_secs_f64();
        let capacity = seconds * processors() as f64;
        MachineShare {
            busy: (now.busy_seconds - self.busy_seconds) / capacity,
            stolen: (now.stolen_seconds - self.stolen_seconds) / capacity,
            seconds,
        }
    }
}

/// How many processors the machine has.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn work_costs_cpu_time_and_writing_costs_bytes() {
        let (cpu, bytes) = (cpu_seconds(), io_bytes());
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {}
        fs::File::create("/dev/null").and_then(|mut file| file.write_all(&[0; 100_000])).expect("writes");
        assert!(cpu_seconds() - cpu > 0.001);
        assert!(io_bytes().handed_over - bytes.handed_over >= 100_000);
        assert!(peak_resident_bytes() > 0);
    }
}

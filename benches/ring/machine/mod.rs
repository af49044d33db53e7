//! The machine and its processes: shared with the other benches, plus the CPU time of another process.

#[allow(dead_code, reason = "what the other benches ask besides")]
#[path = "../../measure/machine.rs"]
mod facts;
#[allow(dead_code, reason = "what the other benches ask besides")]
#[path = "../../measure/usage.rs"]
mod usage;

pub use facts::{CALM_SHARE_MAX, Calm, MachineFacts, raise_priority, wait_for_calm};
pub use usage::{MachineShare, MachineTime, cpu_seconds as own_cpu_seconds, processors};

/// CPU seconds of all threads of a process, including those that ended; `None` if it does not exist.
pub fn process_cpu_seconds(process: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain anything, even parentheses; only numbers follow it.
    let behind_name = &text[text.rfind(')')? + 1..];
    let mut fields = behind_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Anonymous memory of a process in bytes, mostly its heap; `None` if it does not exist.
pub fn process_anonymous_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_that_works_uses_cpu_time_and_one_that_is_gone_has_none() {
        let own = std::process::id();
        let before = process_cpu_seconds(own).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {}
        assert!(process_cpu_seconds(own).unwrap() - before > 0.02);
        // All valid process ids are below this.
        assert_eq!(process_cpu_seconds(u32::MAX), None);
    }

    #[test]
    fn memory_that_a_process_writes_to_is_its_own() {
        let own = std::process::id();
        let before = process_anonymous_bytes(own).unwrap();
        let written = vec![1_u8; 64 << 20];
        assert!(process_anonymous_bytes(own).unwrap() > before + (48 << 20), "{}", written.len());
        assert_eq!(process_anonymous_bytes(u32::MAX), None);
    }
}

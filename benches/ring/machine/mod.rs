//! The machine and its processes: the other benches' own look at it, and the CPU time of another process.

#[allow(dead_code, reason = "what the other benches ask besides")]
#[path = "../../measure/machine.rs"]
mod facts;
#[allow(dead_code, reason = "what the other benches ask besides")]
#[path = "../../measure/usage.rs"]
mod usage;

pub use facts::{Calm, MachineFacts, raise_priority, wait_for_calm};
pub use usage::{MachineShare, MachineTime, processors};

/// CPU seconds of all threads of a process, those that ended included; none if it is gone.
pub fn process_cpu_seconds(process: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything, parentheses included; behind it are only numbers.
    let behind_name = &text[text.rfind(')')? + 1..];
    let mut fields = behind_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
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
        // The largest number that a process can have is below this.
        assert_eq!(process_cpu_seconds(u32::MAX), None);
    }
}

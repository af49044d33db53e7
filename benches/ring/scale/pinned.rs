//! Threads that stay on one processor, and the processor time of the one that calls.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;

/// Processor time of the thread that calls.
pub fn own_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// From now on the thread that calls runs on this processor alone.
pub fn on_one(processor: usize) -> io::Result<()> {
    Ok(sched_setaffinity(None, &only(processor))?)
}

fn only(processor: usize) -> CpuSet {
    let mut one = CpuSet::new();
    one.set(processor);
    one
}

/// Threads on one processor; dropped, they may run on every one again.
pub struct Pinned(Vec<Pid>);

impl Pinned {
    /// All threads of these processes and the one that calls, whose children come along.
    pub fn to_one(processes: impl Iterator<Item = u32>) -> io::Result<Self> {
        let mut threads = Vec::new();
        for process in processes {
            for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let number = thread?.file_name().to_string_lossy().parse().ok();
                threads.extend(number.and_then(Pid::from_raw));
            }
        }
        let pinned = Self(threads);
        pinned.allow(&only(0))?;
        Ok(pinned)
    }

    fn allow(&self, processors: &CpuSet) -> io::Result<()> {
        for thread in &self.0 {
            match sched_setaffinity(Some(*thread), processors) {
                // It has ended by itself.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sched_setaffinity(None, processors)?)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|processor| all.set(processor));
        // Whoever stays on one processor makes the rest of the round slower, which its figures show.
        let _ = self.allow(&all);
    }
}

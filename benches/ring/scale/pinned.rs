//! Pins threads to one processor, and measures the processor time of the calling thread.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;

/// Processor time of the calling thread.
pub fn own_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Pins the calling thread to one processor: the first of those that it may use, or one of the following.
pub fn on_one(place: usize) -> io::Result<()> {
    let one = only(place, &sched_getaffinity(None)?)?;
    Ok(sched_setaffinity(None, &one)?)
}

fn only(place: usize, of: &CpuSet) -> io::Result<CpuSet> {
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|processor| of.is_set(*processor));
    let processor = allowed.nth(place).ok_or_else(|| io::Error::other("there are too few processors"))?;
    let mut one = CpuSet::new();
    one.set(processor);
    Ok(one)
}

/// Threads pinned to one processor. When this is dropped, they may run where the thread that made it could.
pub struct Pinned {
    threads: Vec<Pid>,
    before: CpuSet,
}

impl Pinned {
    /// Pins all threads of these processes and the calling one, whose children inherit that.
    pub fn to_one(processes: impl Iterator<Item = u32>) -> io::Result<Self> {
        let mut threads = Vec::new();
        for process in processes {
            for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let number = thread?.file_name().to_string_lossy().parse().ok();
                threads.extend(number.and_then(Pid::from_raw));
            }
        }
        let pinned = Self { threads, before: sched_getaffinity(None)? };
        pinned.allow(&only(0, &pinned.before)?)?;
        Ok(pinned)
    }

    fn allow(&self, processors: &CpuSet) -> io::Result<()> {
        for thread in &self.threads {
            match sched_setaffinity(Some(*thread), processors) {
                // The thread has ended by itself.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sched_setaffinity(None, processors)?)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Threads that stay pinned make the rest of the round slower, which its figures show.
        let _ = self.allow(&self.before);
    }
}

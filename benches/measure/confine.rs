//! A control group with a limit of memory, page cache included, for the process that asks.

use std::fs;
use std::io;
use std::path::PathBuf;

/// The group that this process is in; it leaves and removes it.
pub struct Confined {
    group: PathBuf,
    root: PathBuf,
}

/// Whether this user may make such groups; without them nothing is said about little memory.
pub fn may_confine() -> bool {
    confine(u64::MAX >> 1).is_ok()
}

/// Puts this process into a control group of its own that may use so many bytes of memory.
///
/// # Errors
/// That no memory controller is mounted, or that this user may not use it.
pub fn confine(bytes: u64) -> io::Result<Confined> {
    let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
    let mut refused = io::Error::other("no memory controller is mounted");
    for (root, limit) in places {
        let root = PathBuf::from(root);
        let group = root.join(format!("atoll-bench-{}", std::process::id()));
        let confined = Confined { group: group.clone(), root };
        let entered = fs::create_dir(&group)
            .and_then(|()| fs::write(group.join(limit), bytes.to_string()))
            .and_then(|()| fs::write(group.join("cgroup.procs"), std::process::id().to_string()));
        match entered {
            Ok(()) => return Ok(confined),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = fs::write(self.root.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.group);
    }
}

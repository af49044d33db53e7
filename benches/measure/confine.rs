//! A control group that limits the memory, page cache included, of the process that asks for it.
//!
//! Invariant: a process returns to the group from which it came, and a process that only asks whether such a
//! group is possible never leaves its own.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The group that this process is in; when dropped, the process returns to its previous group and removes
/// this one.
pub struct Confined {
    group: PathBuf,
    back: PathBuf,
}

/// How the name of a group begins; the process id of its process follows.
const PREFIX: &str = "atoll-bench-";

/// A folder in which a group may be created, and the name of the limit there.
type Where = (PathBuf, &'static str);

/// Whether this user may create such groups; without them, the bars about little memory are not measured.
pub fn may_confine() -> bool {
    remove_left_over();
    // Tried with a process that ends with its input: if it could not be moved back, this process would not be
    // affected.
    let sleeper = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let Ok(mut sleeper) = sleeper else { return false };
    let entered = enter(sleeper.id(), u64::MAX >> 1).is_ok();
    drop(sleeper.stdin.take());
    let ended = sleeper.wait().is_ok();
    remove_group_of(sleeper.id());
    entered && ended
}

/// Puts this process into a control group of its own that may use `bytes` bytes of memory.
///
/// # Errors
/// Fails if no memory controller is mounted, or if this user may not use it.
pub fn confine(bytes: u64) -> io::Result<Confined> {
    let before = places();
    let group = enter(std::process::id(), bytes)?;
    // If both versions are mounted, the process returns to its group in the version that took it.
    let back = before.into_iter().find(|(_, limit)| group.join(limit).exists());
    let (back, _) = back.ok_or_else(none_mounted)?;
    Ok(Confined { group, back })
}

/// Removes the group of a process that has ended, however it ended: a killed process cannot remove its own.
pub fn remove_group_of(process: u32) {
    for (place, _) in places() {
        let _ = fs::remove_dir(place.join(name_of(process)));
    }
}

/// Removes the groups of processes that are gone: a child that ended with its bench removed none.
fn remove_left_over() {
    for (place, _) in places() {
        for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
            if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
                // A group that has processes stays: the system refuses.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = tell(&self.back.join("cgroup.procs"), std::process::id().into());
        let _ = fs::remove_dir(&self.group);
    }
}

fn name_of(process: u32) -> String {
    format!("{PREFIX}{process}")
}

fn none_mounted() -> io::Error {
    io::Error::other("no memory controller is mounted")
}

/// Puts a process into a group of its own; returns the group's folder.
fn enter(process: u32, bytes: u64) -> io::Result<PathBuf> {
    let mut refused = none_mounted();
    for (place, limit) in places() {
        let group = place.join(name_of(process));
        if let Err(error) = fs::create_dir(&group) {
            refused = error;
            continue;
        }
        let entered =
            tell(&group.join(limit), bytes).and_then(|()| tell(&group.join("cgroup.procs"), process.into()));
        match entered {
            Ok(()) => return Ok(group),
            Err(error) => {
                let _ = fs::remove_dir(&group);
                refused = error;
            }
        }
    }
    Err(refused)
}

/// Writes to an existing file: a folder that is no group lacks the file, and must not get one.
fn tell(file: &Path, number: u64) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(number.to_string().as_bytes())
}

/// This process's own group and those above it, nearest first; a group created below one of them stays within
/// its limits. A group of version 2 that has processes cannot have a group below it that limits memory.
fn places() -> Vec<Where> {
    let told = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    places_of(&told).into_iter().filter(|(place, _)| place.join("cgroup.procs").exists()).collect()
}

fn places_of(told: &str) -> Vec<Where> {
    let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
    let of_kind = |(root, limit): (&'static str, &'static str)| {
        let is_it = move |controllers: &str| match limit {
            "memory.max" => controllers.is_empty(),
            _ => controllers.split(',').any(|one| one == "memory"),
        };
        let paths = told.lines().filter_map(move |line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_it(controllers).then(|| Path::new(root).join(path.trim_start_matches('/')))
        });
        paths.flat_map(move |own| {
            let above = own.ancestors().take_while(|place| place.starts_with(root));
            above.map(|place| (place.to_owned(), limit)).collect::<Vec<_>>()
        })
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_below_the_own_one_or_those_above_it() {
        let shown = |told| -> Vec<String> {
            places_of(told).iter().map(|(place, limit)| format!("{} {limit}", place.display())).collect()
        };
        let of_memory = ["/job/step", "/job", ""]
            .map(|path| format!("/sys/fs/cgroup/memory{path} memory.limit_in_bytes"));
        assert_eq!(shown("9:name=systemd:/\n4:cpu,memory:/job/step\n3:cpuset:/other\n"), of_memory);
        let unified =
            ["/user.slice/a.scope", "/user.slice", ""].map(|path| format!("/sys/fs/cgroup{path} memory.max"));
        assert_eq!(shown("0::/user.slice/a.scope\n"), unified);
        assert_eq!(shown(""), [""; 0]);
    }

    #[test]
    fn asking_moves_nobody_and_what_a_killed_process_leaves_is_removed() {
        let own = || fs::read_to_string("/proc/self/cgroup").expect("readable");
        let before = own();
        let may = may_confine();
        assert_eq!(own(), before);
        if !may {
            println!("SKIPPED [control-groups] this user makes no control groups");
            return;
        }
        let by_a_later_bench = |_: u32| assert!(may_confine());
        let ways: [fn(u32); 2] = [remove_group_of, by_a_later_bench];
        for remove in ways {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("starts");
            let group = enter(child.id(), u64::MAX >> 1).expect("enters");
            child.kill().expect("is killed");
            child.wait().expect("ends");
            assert!(group.exists());
            remove(child.id());
            assert!(!group.exists(), "{}", group.display());
        }
        assert_eq!(own(), before);
    }
}

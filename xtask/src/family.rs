//! A child process and all that it started: Cargo starts test programs, those start nodes, and whoever ends a hang must end
//! all of them.
//!
//! They are found by who started whom rather than put into a process group: a group of their own would not hear of Ctrl-C,
//! and go on when a developer has ended everything else. One whose parent ended before is not found.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};

/// Rounds of looking for what was started meanwhile.
const ROUNDS_MAX: usize = 10;

/// Kills a child and its descendants. That some may have ended by themselves meanwhile is as good.
pub fn kill(child: &mut Child) {
    let mut known = BTreeSet::from([child.id()]);
    // Whoever is stopped starts nothing more, so that after some rounds all are known.
    for _ in 0..ROUNDS_MAX {
        send("-STOP", &known);
        let before = known.len();
        add_descendants(&mut known);
        if known.len() == before {
            break;
        }
    }
    send("-KILL", &known);
    drop(child.kill());
}

fn send(signal: &str, processes: &BTreeSet<u32>) {
    let mut command = Command::new("kill");
    command.arg(signal).args(processes.iter().map(u32::to_string));
    drop(command.stdin(Stdio::null()).stderr(Stdio::null()).status());
}

/// Adds whoever was started by one that is known, as far as the system tells.
fn add_descendants(known: &mut BTreeSet<u32>) {
    let parents = parents();
    loop {
        let before = known.len();
        for (process, parent) in &parents {
            if known.contains(parent) {
                known.insert(*process);
            }
        }
        if known.len() == before {
            return;
        }
    }
}

/// Every process with its parent; nothing where there is no `/proc`.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter_map(|name| {
            let stat = fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
            Some((name.parse().ok()?, parent(&stat)?))
        })
        .collect()
}

/// The parent in `PID (NAME) STATE PARENT ...`; a name may hold blanks and brackets.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::{Duration, Instant};

    #[test]
    fn a_child_is_killed_with_all_that_it_started() {
        let started = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c 'echo started; sleep 60; true'; true"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut line = [0; 8];
        stdout.read_exact(&mut line).unwrap();
        kill(&mut child);
        child.wait().unwrap();
        // Ends when nobody is left who could write.
        stdout.read_to_end(&mut Vec::new()).unwrap();
        assert!(started.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn the_parent_is_read_past_any_name() {
        assert_eq!(parent("17 (a) b (c) S 12 17 1"), Some(12));
        assert_eq!(parent("17"), None);
    }
}

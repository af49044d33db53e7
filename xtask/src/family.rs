//! A child process with all its descendants. Cargo starts test programs and those start nodes, so ending a
//! hang means ending all of them.
//!
//! Descendants are found, not put into a process group: a group of their own would not receive Ctrl-C, and
//! would survive when a developer ends everything else. Three things identify them: the parent of each
//! process; a word in their environment, which processes keep whose parent has ended; and an open write end
//! of the child's outputs, which remains even if a process has overwritten its environment (Redis writes
//! its title over it).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most rounds of searching for processes that were started during the search.
const ROUNDS_MAX: usize = 10;

/// The variable with the words of all families that a process belongs to, outermost first. Its name must
/// not begin with `ATOLL_`: the product reads those as options and refuses unknown ones.
pub const VARIABLE: &str = "XTASK_FAMILIES";

/// A child and all its descendants.
pub struct Family {
    child: Child,
    word: String,
    /// The names of the child's outputs in `/proc`.
    outputs: Vec<PathBuf>,
}

impl Family {
    /// Starts the child.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let word = new_word();
        let outer = std::env::var(VARIABLE).unwrap_or_default();
        let child = command.env(VARIABLE, format!("{outer} {word}").trim()).spawn()?;
        let descriptors =
            [child.stdout.as_ref().map(AsRawFd::as_raw_fd), child.stderr.as_ref().map(AsRawFd::as_raw_fd)];
        let named = |descriptor| fs::read_link(format!("/proc/self/fd/{descriptor}")).ok();
        let outputs = descriptors.into_iter().flatten().filter_map(named).collect();
        Ok(Self { child, word, outputs })
    }

    /// The child itself.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether the child has ended, whatever its descendants do.
    pub fn has_ended(&mut self) -> bool {
        // A child that cannot be waited for has ended.
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for the child.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Kills every member that still runs and returns the names of the descendants. Some may have ended by
    /// themselves meanwhile, which does not matter.
    pub fn kill(&mut self) -> Vec<String> {
        // A process id that was waited for may have been reused.
        let mut known: BTreeSet<u32> =
            if self.has_ended() { BTreeSet::new() } else { BTreeSet::from([self.child.id()]) };
        // A stopped process starts no others, so a few rounds find them all.
        for _ in 0..ROUNDS_MAX {
            send("-STOP", &known);
            let before = known.len();
            self.add_others(&mut known);
            add_descendants(&mut known);
            if known.len() == before {
                break;
            }
        }
        known.remove(&std::process::id());
        let others = known.iter().filter(|process| **process != self.child.id());
        let names = others.filter_map(|process| name(*process)).collect();
        send("-KILL", &known);
        drop(self.child.kill());
        names
    }

    /// Adds processes that have the word or can write to the outputs.
    fn add_others(&self, known: &mut BTreeSet<u32>) {
        let is_other = |process: &u32| *process != std::process::id();
        known.extend(processes().into_iter().filter(is_other).filter(|process| {
            let folder = PathBuf::from(format!("/proc/{process}"));
            has_word(&folder, &self.word) || writes_to(&folder, &self.outputs)
        }));
    }
}

/// A word that no other family has, of this program or of a later one with the same process id.
fn new_word() -> String {
    static FAMILIES: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = FAMILIES.fetch_add(1, Ordering::Relaxed);
    format!("{}-{}-{number}", std::process::id(), since.as_nanos())
}

fn send(signal: &str, processes: &BTreeSet<u32>) {
    if processes.is_empty() {
        return;
    }
    let mut command = Command::new("kill");
    command.arg(signal).args(processes.iter().map(u32::to_string));
    drop(command.stdin(Stdio::null()).stderr(Stdio::null()).status());
}

/// Adds the descendants of known processes, as far as the system reports parents.
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

/// All process ids; empty where there is no `/proc`.
fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// All process ids, each with its parent's.
fn parents() -> Vec<(u32, u32)> {
    let with_parent = |process: u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        Some((process, parent(&stat)?))
    };
    processes().into_iter().filter_map(with_parent).collect()
}

/// The parent in `PID (NAME) STATE PARENT ...`, where the name may contain spaces and brackets.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A process as messages show it.
fn name(process: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(format!("{} ({process})", name.trim()))
}

fn has_word(process: &Path, word: &str) -> bool {
    // The environment of a process that has ended or belongs to another user reads as empty.
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| is_said(variable, word))
}

/// Whether this is the families variable and contains the word.
fn is_said(variable: &[u8], word: &str) -> bool {
    let Some((name, words)) = std::str::from_utf8(variable).ok().and_then(|text| text.split_once('=')) else {
        return false;
    };
    name == VARIABLE && words.split(' ').any(|each| each == word)
}

/// Whether the process holds the write end of one of these pipes; the read end is ours.
fn writes_to(process: &Path, pipes: &[PathBuf]) -> bool {
    let entries = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    entries.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| pipes.contains(&to))).any(|entry| {
        let about = fs::read_to_string(process.join("fdinfo").join(entry.file_name()));
        about.is_ok_and(|about| is_for_writing(&about))
    })
}

/// Parses `flags:\t0100001`, which is octal: its last digit is 1 or 2 if the file is open for writing.
fn is_for_writing(about: &str) -> bool {
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.is_some_and(|flags| !flags.trim().ends_with(['0', '4']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::{Duration, Instant};

    /// Runs a shell script that prints `started`, kills the family, and waits until no process is left that
    /// could write.
    fn start_and_kill(script: &str, outputs_are_looked_at: bool) {
        let started = Instant::now();
        let mut command = Command::new("sh");
        let mut family = Family::start(command.args(["-c", script]).stdout(Stdio::piped())).unwrap();
        if !outputs_are_looked_at {
            family.outputs.clear();
        }
        let mut stdout = family.child().stdout.take().unwrap();
        stdout.read_exact(&mut [0; 8]).unwrap();
        family.kill();
        family.wait().unwrap();
        stdout.read_to_end(&mut Vec::new()).unwrap();
        assert!(started.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_child_is_killed_with_all_that_it_started() {
        start_and_kill("sh -c 'echo started; sleep 60; true'; true", true);
    }

    #[test]
    fn one_whose_parent_ended_before_is_killed_too() {
        start_and_kill("sh -c 'sleep 60 &'; echo started; sleep 60; true", false);
        start_and_kill("sh -c 'sleep 60 &'; echo started", false);
    }

    #[test]
    fn one_that_lost_its_environment_is_known_by_where_it_writes() {
        start_and_kill("sh -c 'env -i sh -c \"echo started; sleep 60; true\" &'; true", true);
    }

    #[test]
    fn the_parent_is_read_past_any_name() {
        assert_eq!(parent("17 (a) b (c) S 12 17 1"), Some(12));
        assert_eq!(parent("17"), None);
    }

    #[test]
    fn a_word_is_one_of_the_variable_as_a_whole() {
        let said = format!("{VARIABLE}=1-2-3 1-2-44");
        assert!(is_said(said.as_bytes(), "1-2-3") && is_said(said.as_bytes(), "1-2-44"));
        assert!(!is_said(said.as_bytes(), "1-2-4") && !is_said(b"OTHER=1-2-3", "1-2-3"));
        assert!(!VARIABLE.starts_with("ATOLL_"), "the product would refuse to start");
    }

    #[test]
    fn the_end_of_a_pipe_that_is_written_to_is_told_from_the_other() {
        assert!(is_for_writing("pos:\t0\nflags:\t01\n") && is_for_writing("flags:\t0102002\n"));
        assert!(!is_for_writing("pos:\t0\nflags:\t02000000\n") && !is_for_writing(""));
    }
}

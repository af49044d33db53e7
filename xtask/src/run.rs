//! Runs child processes to their end, with a sign of life, and prints their whole output when they fail.

use crate::console::{Step, Verdict};
use crate::failure::Failure;
use crate::family::Family;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often a step that waits for a child is redrawn.
const TICK: Duration = Duration::from_millis(100);

/// How often a child that has closed its outputs is polled.
const CLOSED_OUTPUT_POLL: Duration = Duration::from_millis(5);

/// How long a process may hold the output of a child that has ended: processes that the child kills take a
/// moment to end.
const LEFT_BEHIND_MAX: Duration = Duration::from_secs(5);

/// The output of a child, and how it ended.
///
/// Invariant: a child that was killed, or left processes behind that held its output, did not succeed,
/// whatever its exit code.
pub struct Ran {
    /// Standard output, line by line.
    pub stdout: Vec<String>,
    /// Both outputs, in the order in which lines arrived.
    pub everything: Vec<String>,
    status: ExitStatus,
    /// Why it was killed, or why processes that it left behind were.
    killed: Option<String>,
}

impl Ran {
    /// Whether it ended by itself with exit code 0 and left no processes behind.
    pub fn succeeded(&self) -> bool {
        self.killed.is_none() && self.status.success()
    }

    /// How it ended, in words.
    pub fn ended(&self) -> String {
        self.killed.clone().unwrap_or_else(|| ended(self.status))
    }
}

/// How long to wait for a child and its descendants.
#[derive(Clone, Copy)]
struct Patience {
    /// When to kill the child.
    limit: Option<Duration>,
    /// When to kill processes that still hold the output of a child that has ended.
    left: Duration,
}

impl Patience {
    const fn until(limit: Option<Duration>) -> Self {
        Self { limit, left: LEFT_BEHIND_MAX }
    }
}

enum Event {
    Stdout(String),
    Stderr(String),
}

/// Runs `command` as one step; prints its whole output if it fails.
pub fn step(name: &str, command: &mut Command) -> Result<Ran, Failure> {
    let mut step = Step::start(name);
    let ran = watched(name, command, &mut step)?;
    if ran.succeeded() {
        step.end(Verdict::Passed, "");
        return Ok(ran);
    }
    step.end(Verdict::Failed, &ran.ended());
    for line in &ran.everything {
        println!("    {line}");
    }
    Err(Failure::Command { what: name.to_owned(), ended: ran.ended() })
}

/// Runs `command` to its end and ticks `step`; the caller judges how it ended.
pub fn watched(name: &str, command: &mut Command, step: &mut Step) -> Result<Ran, Failure> {
    streamed(name, command, step, None, |_| Ok(()))
}

/// Like [`watched`]; a child that runs longer than `limit` is killed with all its descendants.
pub fn limited(name: &str, command: &mut Command, step: &mut Step, limit: Duration) -> Result<Ran, Failure> {
    streamed(name, command, step, Some(limit), |_| Ok(()))
}

/// Like [`watched`]; `on_line` gets each line of standard output as it arrives, and a child that runs
/// longer than `limit` is killed with all its descendants.
pub fn streamed(
    name: &str,
    command: &mut Command,
    step: &mut Step,
    limit: Option<Duration>,
    on_line: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Ran, Failure> {
    follow(name, spawned(name, command.stdin(Stdio::null()))?, step, Patience::until(limit), on_line)
}

/// Like [`watched`]; the child reads the output of another child.
pub fn fed(
    name: &str,
    command: &mut Command,
    from: Option<ChildStdout>,
    step: &mut Step,
) -> Result<Ran, Failure> {
    command.stdin(from.map_or_else(Stdio::null, Stdio::from));
    follow(name, spawned(name, command)?, step, Patience::until(None), |_| Ok(()))
}

fn follow(
    name: &str,
    mut family: Family,
    step: &mut Step,
    patience: Patience,
    mut on_line: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Ran, Failure> {
    let (events, listeners) = listen(family.child());
    let mut watch = Watch { started: Instant::now(), ended: None, patience };
    let (mut stdout, mut everything) = (Vec::new(), Vec::new());
    let killed = loop {
        match events.recv_timeout(TICK) {
            Ok(Event::Stdout(line)) => {
                if let Err(failure) = on_line(&line) {
                    // The caller stops listening; the child must not run on beside whatever comes next.
                    family.kill();
                    drop(family.wait());
                    return Err(failure);
                }
                stdout.push(line.clone());
                everything.push(line);
            }
            Ok(Event::Stderr(line)) => everything.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if family.has_ended() => break None,
            // The child closed its outputs but may still run.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(CLOSED_OUTPUT_POLL),
        }
        let all_is_heard = listeners.iter().all(JoinHandle::is_finished);
        if let Some(why) = watch.end(&mut family, all_is_heard) {
            everything.push(why.clone());
            break Some(why);
        }
        step.tick(everything.last().map_or("", String::as_str));
    };
    let status = family.wait().map_err(Failure::io(format!("wait for {name}")))?;
    Ok(Ran { stdout, everything, status, killed })
}

/// Decides when a child, or what it left behind, must be killed.
struct Watch {
    started: Instant,
    /// When the child was first found to have ended.
    ended: Option<Instant>,
    patience: Patience,
}

impl Watch {
    /// Kills what has run for too long and returns why; `None` if nothing has.
    fn end(&mut self, family: &mut Family, all_is_heard: bool) -> Option<String> {
        let took = self.started.elapsed();
        if self.ended.is_none() && family.has_ended() {
            self.ended = Some(Instant::now());
        }
        // All output has been read; the lines that still wait in the channel are not lost.
        if self.ended.is_some() && all_is_heard {
            return None;
        }
        if self.ended.is_some_and(|ended| ended.elapsed() > self.patience.left) {
            let names = family.kill();
            let names = if names.is_empty() { "nobody that was found".to_owned() } else { names.join(", ") };
            return Some(format!("ended, but left somebody behind who kept its output; killed: {names}"));
        }
        if self.patience.limit.is_some_and(|limit| took > limit) {
            family.kill();
            return Some(format!("was killed after {}", crate::console::seconds(took)));
        }
        None
    }
}

/// Runs `command` with this terminal as its own.
pub fn attached(name: &str, command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(Failure::io(format!("start {name}")))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Command { what: name.to_owned(), ended: ended(status) })
}

/// Runs a short `command` silently and returns its standard output.
pub fn captured(name: &str, command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output().map_err(Failure::io(format!("start {name}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Err(Failure::Command { what: name.to_owned(), ended: ended(output.status) })
}

/// How a process ended, in words.
pub fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

fn spawned(name: &str, command: &mut Command) -> Result<Family, Failure> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Family::start(command).map_err(Failure::io(format!("start {name}")))
}

/// Starts one thread per output; the channel closes when both have ended.
fn listen(child: &mut Child) -> (Receiver<Event>, Vec<JoinHandle<()>>) {
    let (sender, events) = channel();
    let stdout = child.stdout.take().map(|stdout| forward(stdout, sender.clone(), Event::Stdout));
    let stderr = child.stderr.take().map(|stderr| forward(stderr, sender, Event::Stderr));
    (events, stdout.into_iter().chain(stderr).collect())
}

fn forward(
    from: impl Read + Send + 'static,
    to: Sender<Event>,
    as_event: fn(String) -> Event,
) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if to.send(as_event(line)).is_err() {
                break;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_heard_to_its_last_line_on_both_outputs() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; printf three; exit 3"]);
        let mut step = Step::start("a child");
        let ran = watched("a child", &mut command, &mut step).unwrap();
        assert_eq!(ran.stdout, ["one", "three"]);
        assert_eq!(ran.everything.len(), 3);
        assert_eq!(ended(ran.status), "ended with exit code 3");
    }

    #[test]
    fn a_child_that_runs_too_long_is_killed() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec sleep 600"]);
        let mut step = Step::start("a slow child");
        let ran = limited("a slow child", &mut command, &mut step, Duration::from_millis(50)).unwrap();
        assert!(!ran.succeeded() && ran.ended().starts_with("was killed after"), "{}", ran.ended());
        assert_eq!(ended(ran.status), "was ended by signal 9");
    }

    /// How a child ends that succeeds itself but leaves a process holding its output.
    fn leaves(patience: Patience) -> Ran {
        let started = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo ok"]);
        let family = spawned("a child", &mut command).unwrap();
        let mut step = Step::start("a child that leaves a process");
        let ran = follow("a child", family, &mut step, patience, |_| Ok(())).unwrap();
        assert!(started.elapsed() < Duration::from_secs(50), "it was waited for");
        assert_eq!(ran.stdout, ["ok"]);
        ran
    }

    #[test]
    fn a_child_that_leaves_a_process_with_its_output_did_not_succeed() {
        let ran = leaves(Patience { limit: None, left: Duration::from_millis(50) });
        assert!(!ran.succeeded());
        assert!(ran.ended().contains("killed: sleep ("), "it is named: {}", ran.ended());
        assert_eq!(ran.everything.last(), Some(&ran.ended()), "whoever shows the output says why");
    }

    #[test]
    fn a_child_whose_process_outlives_its_limit_did_not_succeed() {
        let ran = leaves(Patience { limit: Some(Duration::from_millis(50)), left: Duration::from_secs(50) });
        assert!(!ran.succeeded());
    }

    #[test]
    fn a_child_whose_line_was_an_error_does_not_go_on() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$; exec sleep 60"]);
        let mut step = Step::start("a child that says something wrong");
        let (mut process, started) = (String::new(), Instant::now());
        let failed = streamed("a child", &mut command, &mut step, None, |line| {
            process = line.to_owned();
            Err(Failure::Broken { what: "line", count: 1 })
        });
        assert!(matches!(failed, Err(Failure::Broken { .. })));
        assert!(!std::path::Path::new(&format!("/proc/{process}/stat")).exists(), "it goes on");
        assert!(started.elapsed() < Duration::from_secs(50), "it was waited for");
    }

    #[test]
    fn a_child_that_closed_its_outputs_is_killed_too() {
        let mut command = Command::new("sh");
        command.args(["-c", "exec >&- 2>&-; exec sleep 600"]);
        let mut step = Step::start("a silent child");
        let ran = limited("a silent child", &mut command, &mut step, Duration::from_millis(50)).unwrap();
        assert!(!ran.succeeded());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_that_names_it() {
        let mut command = Command::new("no-such-program-of-atoll");
        let failure = captured("no such program", &mut command).unwrap_err();
        assert!(failure.to_string().starts_with("cannot start no such program"), "{failure}");
    }
}

//! Child processes: run to the end, with a sign of life, and their whole output when they fail.

use crate::console::{Step, Verdict};
use crate::failure::Failure;
use crate::family;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often a step that waits for a child looks alive.
const TICK: Duration = Duration::from_millis(100);

/// What a child said, and how it ended.
pub struct Ran {
    /// Standard output, line by line.
    pub stdout: Vec<String>,
    /// Both outputs, in the order in which they came.
    pub everything: Vec<String>,
    /// How it ended.
    pub status: ExitStatus,
}

enum Event {
    Stdout(String),
    Stderr(String),
}

/// Runs `command` as one step; prints its whole output if it fails.
pub fn step(name: &str, command: &mut Command) -> Result<Ran, Failure> {
    let mut step = Step::start(name);
    let ran = watched(name, command, &mut step)?;
    if ran.status.success() {
        step.end(Verdict::Passed, "");
        return Ok(ran);
    }
    step.end(Verdict::Failed, &ended(ran.status));
    for line in &ran.everything {
        println!("    {line}");
    }
    Err(Failure::Command { what: name.to_owned(), ended: ended(ran.status) })
}

/// Runs `command` to its end, ticking `step`; the caller judges how it ended.
pub fn watched(name: &str, command: &mut Command, step: &mut Step) -> Result<Ran, Failure> {
    streamed(name, command, step, None, |_| Ok(()))
}

/// Like [`watched`]; a child that runs longer than `limit` is killed, with all that it started.
pub fn limited(name: &str, command: &mut Command, step: &mut Step, limit: Duration) -> Result<Ran, Failure> {
    streamed(name, command, step, Some(limit), |_| Ok(()))
}

/// Like [`watched`]; `on_line` sees each line of standard output as it comes, and a child that runs longer
/// than `limit` is killed, with all that it started.
pub fn streamed(
    name: &str,
    command: &mut Command,
    step: &mut Step,
    limit: Option<Duration>,
    on_line: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Ran, Failure> {
    follow(name, spawned(name, command.stdin(Stdio::null()))?, step, limit, on_line)
}

/// Like [`watched`]; the child reads what another one writes.
pub fn fed(
    name: &str,
    command: &mut Command,
    from: Option<ChildStdout>,
    step: &mut Step,
) -> Result<Ran, Failure> {
    command.stdin(from.map_or_else(Stdio::null, Stdio::from));
    follow(name, spawned(name, command)?, step, None, |_| Ok(()))
}

fn follow(
    name: &str,
    mut child: Child,
    step: &mut Step,
    limit: Option<Duration>,
    mut on_line: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Ran, Failure> {
    let started = Instant::now();
    let events = listen(&mut child);
    let (mut stdout, mut everything) = (Vec::new(), Vec::new());
    loop {
        match events.recv_timeout(TICK) {
            Ok(Event::Stdout(line)) => {
                on_line(&line)?;
                stdout.push(line.clone());
                everything.push(line);
            }
            Ok(Event::Stderr(line)) => everything.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if limit.is_some_and(|limit| started.elapsed() > limit) {
            everything.push(format!("killed after {}", crate::console::seconds(started.elapsed())));
            family::kill(&mut child);
            break;
        }
        step.tick(everything.last().map_or("", String::as_str));
    }
    let status = child.wait().map_err(Failure::io(format!("wait for {name}")))?;
    Ok(Ran { stdout, everything, status })
}

/// Runs `command` with this terminal as its own.
pub fn attached(name: &str, command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(Failure::io(format!("start {name}")))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Command { what: name.to_owned(), ended: ended(status) })
}

/// Runs a short `command` in silence and returns what it wrote to standard output.
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

fn spawned(name: &str, command: &mut Command) -> Result<Child, Failure> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(Failure::io(format!("start {name}")))
}

/// One thread an output; the channel closes when both have ended.
fn listen(child: &mut Child) -> Receiver<Event> {
    let (sender, events) = channel();
    if let Some(stdout) = child.stdout.take() {
        forward(stdout, sender.clone(), Event::Stdout);
    }
    if let Some(stderr) = child.stderr.take() {
        forward(stderr, sender, Event::Stderr);
    }
    events
}

fn forward(from: impl Read + Send + 'static, to: Sender<Event>, as_event: fn(String) -> Event) {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if to.send(as_event(line)).is_err() {
                break;
            }
        }
    });
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
        let limit = Some(Duration::from_millis(50));
        let ran = streamed("a slow child", &mut command, &mut step, limit, |_| Ok(())).unwrap();
        assert_eq!(ended(ran.status), "was ended by signal 9");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_that_names_it() {
        let mut command = Command::new("no-such-program-of-atoll");
        let failure = captured("no such program", &mut command).unwrap_err();
        assert!(failure.to_string().starts_with("cannot start no such program"), "{failure}");
    }
}

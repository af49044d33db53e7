//! Keepers: every process that the bench starts ends with it, even if the bench is killed.
//!
//! Each server is the child of a keeper, which is another process of this program. A keeper waits for the
//! end of its standard input. Only the bench holds the other end of that pipe, so it closes when the bench
//! ends, however that happens. Keepers are in their own process groups: an interrupt at the terminal
//! reaches the bench, and through it the keepers.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

const LAST_WORDS_BYTES: usize = 600;

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused.
    #[error("cannot start {program}")]
    System {
        /// The program.
        program: String,
        #[source]
        /// The cause.
        source: io::Error,
    },
    /// The keeper started but printed no process id.
    #[error("{program} did not start: {last_words}")]
    Ended {
        /// The program.
        program: String,
        /// The end of its output.
        last_words: String,
    },
}

/// A process that ends when this is dropped, or when the bench ends.
pub struct KeptProcess {
    keeper: Child,
    process: u32,
    log: PathBuf,
}

impl KeptProcess {
    /// Starts a program by its name and arguments, with its output in the log.
    pub fn start(command: &[OsString], log: &Path) -> Result<Self, StartError> {
        let mut keeper = own_child(&[])?;
        keeper.arg("keep").arg(log).arg("--").args(command);
        let program = command.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Self::spawn(keeper, program, log)
    }

    fn spawn(mut keeper: Command, program: String, log: &Path) -> Result<Self, StartError> {
        let failed = |source| StartError::System { program: program.clone(), source };
        let errors = fs::File::create(log).map_err(failed)?;
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).process_group(0);
        let mut keeper = keeper.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(stdout) = keeper.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        let mut kept = Self { keeper, process: 0, log: log.to_owned() };
        match line.trim().parse() {
            Ok(process) => kept.process = process,
            Err(_) => return Err(StartError::Ended { program, last_words: kept.last_words() }),
        }
        Ok(kept)
    }

    /// The id of the process itself, not of its keeper.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Sends the process a signal, as `kill` does.
    pub fn signal(&mut self, signal: rustix::process::Signal) -> io::Result<()> {
        // The id may be reused as soon as the keeper has reaped the process.
        if self.ended().is_some() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let process = i32::try_from(self.process).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(process.ok_or(io::ErrorKind::NotFound)?, signal)?;
        Ok(())
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<String> {
        self.keeper.try_wait().ok().flatten().map(|status| format!("it ended with {status}"))
    }

    /// The end of its output.
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let from = text.len().saturating_sub(LAST_WORDS_BYTES);
        String::from_utf8_lossy(&text[from..]).trim().to_owned()
    }
}

impl Drop for KeptProcess {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // The keeper kills and then ends; if it hangs, reporting an error here would not help.
        let _ = self.keeper.wait();
    }
}

/// This program again, after the words of a prefix such as `nsenter --target 7 --net`.
pub fn own_child(before: &[OsString]) -> Result<Command, StartError> {
    let own = std::env::current_exe()
        .map_err(|source| StartError::System { program: "this".to_owned(), source })?;
    let Some((program, arguments)) = before.split_first() else { return Ok(Command::new(own)) };
    let mut command = Command::new(program);
    command.args(arguments).arg(own);
    Ok(command)
}

/// Ends this process when standard input closes: for children of the bench that do work themselves.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        wait_for_the_end_of_input();
        std::process::exit(1);
    });
}

/// Runs the keeper: starts the program, prints its process id, and kills it when standard input closes.
pub fn keep(log: &Path, command: &[OsString]) -> io::Result<ExitStatus> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let output = fs::OpenOptions::new().create(true).append(true).open(log)?;
    let errors = output.try_clone()?;
    let mut command = Command::new(program);
    // Atoll refuses unknown options, and this one belongs to the bench.
    command.args(arguments).env_remove(crate::FOLDER_VARIABLE);
    let started = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
    let mut child =
        started.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    // The handle reaches the process even if its id is reused.
    let handle = rustix::process::pidfd_open(
        rustix::process::Pid::from_child(&child),
        rustix::process::PidfdFlags::empty(),
    )?;
    say(child.id())?;
    std::thread::spawn(move || {
        wait_for_the_end_of_input();
        // The process may have ended already, which is fine.
        let _ = rustix::process::pidfd_send_signal(&handle, rustix::process::Signal::KILL);
    });
    child.wait()
}

/// Waits until standard input closes, and then runs a program: what that removes outlives the bench by no
/// more than this.
pub fn afterwards(command: &[OsString]) -> io::Result<ExitStatus> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    wait_for_the_end_of_input();
    Command::new(program).args(arguments).stdin(Stdio::null()).status()
}

fn say(process: u32) -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{process}")?;
    stdout.flush()
}

fn wait_for_the_end_of_input() {
    let mut scratch = [0; 64];
    while matches!(io::stdin().read(&mut scratch), Ok(1..)) {}
}

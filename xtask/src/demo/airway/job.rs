//! The simulation as a job of two MPI ranks, one of which may be killed.

use super::{CHECKPOINT_EVERY, DemoFolder, EVERY, STEPS, STORE};
use crate::console::Step;
use crate::failure::Failure;
use crate::run;
use std::process::Command;

/// Which of the two ranks is killed.
const VICTIM: u64 = 1;

/// The job, which can be started any number of times.
pub struct Job<'a> {
    pub place: &'a DemoFolder,
    pub particles: u64,
}

/// What a line of the job says.
#[derive(Debug, PartialEq, Eq)]
enum JobLine {
    Rank {
        rank: u64,
        process: u64,
    },
    Attempt(String),
    Step(u64),
    /// Reported at the end.
    LongestWaits(LongestWaits),
}

/// The longest waits for the store, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongestWaits {
    /// The longest time until a rank's step was written; the simulation continues meanwhile.
    pub append_ms: u64,
    /// The longest wait of the simulation itself, checkpoints included.
    pub simulation_ms: u64,
}

impl Job<'_> {
    /// Runs until step `at` is written, then kills a rank with SIGKILL, which it cannot handle.
    pub fn run_and_kill(&self, at: u64) -> Result<(), Failure> {
        let mut victim = None;
        let mut is_killed = false;
        let ran = self.run("the simulation", |said| {
            match said {
                JobLine::Rank { rank: VICTIM, process } => victim = Some(process),
                JobLine::Step(step) if step >= at && !is_killed => {
                    let process =
                        victim.ok_or_else(|| malformed("no line names the process of rank 1".to_owned()))?;
                    println!("       step {step}: kill -9 {process}, which is rank {VICTIM}");
                    kill(process)?;
                    is_killed = true;
                }
                _ => {}
            }
            Ok(())
        })?;
        if let Err(failure) = ended_by_the_kill(is_killed, ran.succeeded(), &ran.ended()) {
            ran.everything.iter().for_each(|line| println!("       {line}"));
            return Err(failure);
        }
        println!("       the job is gone: mpiexec {}", ran.ended());
        Ok(())
    }

    /// Runs to the last step; `on_step` is called for each.
    pub fn run_to_the_end(
        &self,
        mut on_step: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<LongestWaits, Failure> {
        let mut longest = LongestWaits::default();
        let ran = self.run("the simulation again", |said| {
            match said {
                JobLine::Attempt(told) => println!("       started again: {told}"),
                JobLine::Step(step) => on_step(step)?,
                JobLine::LongestWaits(told) => longest = told,
                JobLine::Rank { .. } => {}
            }
            Ok(())
        })?;
        if ran.succeeded() {
            return Ok(longest);
        }
        ran.everything.iter().for_each(|line| println!("       {line}"));
        Err(Failure::Command { what: "the simulation".to_owned(), ended: ran.ended() })
    }

    fn run(
        &self,
        name: &str,
        mut on: impl FnMut(JobLine) -> Result<(), Failure>,
    ) -> Result<run::Ran, Failure> {
        let mut step = Step::quiet(name);
        let ran = run::streamed(name, &mut self.command(), &mut step, None, |line| match read(line) {
            Some(said) => on(said),
            None => Ok(()),
        })?;
        drop(step);
        Ok(ran)
    }

    fn command(&self) -> Command {
        let place = self.place;
        // The environment's own mpiexec, beside its Python, matches its MPI library.
        let mut command = Command::new(place.python.with_file_name("mpiexec"));
        command
            .args(["-n", "2"])
            .arg(&place.python)
            // An error on one rank ends the others.
            .args(["-m", "mpi4py"])
            .arg(place.examples.join("simulate.py"))
            .arg(place.named(STORE));
        for (name, value) in [
            ("--particles", self.particles),
            ("--steps", STEPS),
            ("--every", EVERY),
            ("--checkpoint-every", CHECKPOINT_EVERY),
        ] {
            command.arg(name).arg(value.to_string());
        }
        command.arg("--checkpoints").arg(place.at("checkpoints")).arg("--ledger").arg(place.at("ledger"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// Checks that the job ended because its rank was killed. A job that ended before that has failed for
/// another reason, which this demo must not hide.
fn ended_by_the_kill(is_killed: bool, succeeded: bool, ended: &str) -> Result<(), Failure> {
    match (is_killed, succeeded) {
        (true, false) => Ok(()),
        (true, true) => Err(malformed("the job ended well, though one of its ranks was killed".to_owned())),
        (false, _) => {
            let ended = format!("{ended} before a rank was killed");
            Err(Failure::Command { what: "the simulation".to_owned(), ended })
        }
    }
}

fn kill(process: u64) -> Result<(), Failure> {
    run::captured("kill", Command::new("kill").args(["-9", &process.to_string()])).map(drop)
}

fn read(line: &str) -> Option<JobLine> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["rank", rank, "of", _, "is", "process", process] => {
            Some(JobLine::Rank { rank: rank.parse().ok()?, process: process.parse().ok()? })
        }
        ["attempt", ..] => Some(JobLine::Attempt(line.to_owned())),
        ["step", step, ..] => Some(JobLine::Step(step.parse().ok()?)),
        ["longest", "append", append, "ms,", .., simulation, "ms"] => {
            Some(JobLine::LongestWaits(LongestWaits {
                append_ms: append.parse().ok()?,
                simulation_ms: simulation.parse().ok()?,
            }))
        }
        _ => None,
    }
}

fn malformed(problem: String) -> Failure {
    Failure::Malformed { what: "what the job says".to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_dies_by_itself_is_not_taken_for_the_one_that_was_killed() {
        let ended = |is_killed, succeeded| ended_by_the_kill(is_killed, succeeded, "ended with exit code 1");
        assert!(ended(true, false).is_ok());
        assert!(ended(true, true).is_err(), "it went on without its rank");
        assert!(ended(false, false).is_err(), "it crashed");
        assert!(ended(false, true).is_err(), "it wrote no step to be killed at");
    }

    #[test]
    fn the_lines_of_the_job_are_understood() {
        assert_eq!(read("rank 1 of 2 is process 4711"), Some(JobLine::Rank { rank: 1, process: 4711 }));
        assert_eq!(read("step 2200 of 4000: 24998 particles"), Some(JobLine::Step(2200)));
        assert_eq!(
            read("attempt 2 from airway.2000"),
            Some(JobLine::Attempt("attempt 2 from airway.2000".to_owned()))
        );
        let longest = "longest append 2312 ms, longest wait of the simulation 14 ms";
        let told = LongestWaits { append_ms: 2312, simulation_ms: 14 };
        assert_eq!(read(longest), Some(JobLine::LongestWaits(told)));
        assert_eq!(read("LAMMPS says something"), None);
    }
}

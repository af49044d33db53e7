//! Runs test programs side by side if they only compute: many of them keep just one processor busy, and there
//! are two.
//!
//! Invariant: programs that measure time, or that need the machine to themselves, do not run here.

use super::judge;
use super::programs::Program;
use super::summary::broken;
use crate::console::{Step, Verdict};
use crate::failure::Failure;
use crate::run::{self, Ran};
use crate::tests_output::Tally;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

const LANES_MAX: usize = 2;

/// A program that has ended or could not be run.
type Ended<'p> = (&'p Program, Step, Result<Ran, Failure>);

/// Runs all programs, in two lanes if there are two processors, none for longer than `limit`; one that cannot
/// be run counts as failed.
pub fn run(programs: &[Program], limit: Duration) -> Tally {
    let lanes = thread::available_parallelism().map_or(1, usize::from).min(LANES_MAX);
    let waiting = Mutex::new(programs.iter());
    let (sender, ended) = channel();
    thread::scope(|scope| {
        for _ in 0..lanes {
            let (waiting, sender) = (&waiting, sender.clone());
            scope.spawn(move || run_one_after_another(waiting, &sender, limit));
        }
        drop(sender);
        let mut tally = Tally::default();
        for (program, step, ran) in ended {
            let ran = match ran {
                Ok(ran) => ran,
                Err(failure) => {
                    step.end(Verdict::Failed, "it did not run");
                    tally.add(broken(&program.name, &failure));
                    continue;
                }
            };
            let of_one = Tally::read(&program.name, &ran.everything, ran.succeeded());
            judge(step, &of_one, &ran.everything);
            tally.add(of_one);
        }
        tally
    })
}

fn run_one_after_another<'p>(
    waiting: &Mutex<impl Iterator<Item = &'p Program>>,
    ended: &Sender<Ended<'p>>,
    limit: Duration,
) {
    loop {
        // A lane that panicked lost one program and left the others.
        let next = waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
        let Some(program) = next else { return };
        let mut step = Step::start(&program.name);
        let ran = program
            .command()
            .and_then(|mut command| run::limited(&program.name, &mut command, &mut step, limit));
        if ended.send((program, step, ran)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::programs::Program;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn every_program_is_run_once_and_one_that_fails_is_told() {
        let named = |name: &str, executable: &str| Program::for_test(name, executable);
        let programs = [named("good", "true"), named("bad", "false"), named("other", "true")];
        let tally = run(&programs, LIMIT);
        assert_eq!((tally.passed, tally.failed), (2, vec!["bad".to_owned()]));
        let tally = run(&[named("absent", "/no/such/program"), named("good", "true")], LIMIT);
        assert_eq!((tally.passed, tally.failed.len()), (1, 1));
        assert!(tally.failed[0].starts_with("absent: "), "{:?}", tally.failed);
        assert_eq!(run(&[], LIMIT), Tally::default());
    }
}

//! `cargo xtask soak NAME --minutes N`: runs fresh seeds for a while and adds them to the ledger.
//!
//! The programs are those of [`crate::seeded`].

use crate::arguments::Arguments;
use crate::console::{Step, Verdict, heading};
use crate::failure::Failure;
use crate::ledger::{Chunk, Ledger};
use crate::run;
use crate::seeded::{self, SEEDED, Seeded};
use std::time::Duration;

/// How much longer than asked a soak may take for its last chunk.
const GRACE: Duration = Duration::from_secs(600);

/// Runs one soak.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let name = arguments.required("NAME")?;
    let minutes: u64 =
        arguments.option("--minutes")?.ok_or_else(|| arguments.wrong("--minutes is missing"))?;
    let known: Vec<&str> = SEEDED.iter().map(|program| program.name).collect();
    let unknown = arguments.wrong(format!("there is no soak {name:?}; there is: {}", known.join(", ")));
    arguments.finish()?;
    let Some(program) = seeded::find(&name) else { return Err(unknown) };
    let mut ledger = Ledger::open(&name)?;
    heading(&format!("Soaking {name} for {minutes} minutes, from seed {}", ledger.next_seed()));
    program.build()?;
    soak(program, minutes, &mut ledger)
}

fn soak(program: &Seeded, minutes: u64, ledger: &mut Ledger) -> Result<(), Failure> {
    let mut command = program.command()?;
    command.args(["--seed-from", &ledger.next_seed().to_string(), "--minutes", &minutes.to_string()]);
    let (mut seeds, mut failures) = (0, 0);
    let mut step = Step::start(program.name);
    let limit = Some(Duration::from_secs(minutes * 60) + GRACE);
    let ran = run::streamed(program.name, &mut command, &mut step, limit, |line| {
        let Some(chunk) = Chunk::parse(line) else { return Ok(()) };
        (seeds, failures) = (seeds + chunk.seeds, failures + chunk.failures);
        ledger.add(chunk)
    })?;
    let holds = ran.status.success() && failures == 0 && seeds > 0;
    step.end(
        if holds { Verdict::Passed } else { Verdict::Failed },
        &format!("{seeds} seeds, {failures} failures"),
    );
    if !holds {
        ran.everything
            .iter()
            .filter(|line| Chunk::parse(line).is_none())
            .for_each(|line| println!("    {line}"));
    }
    let (format, seeds, failures_ever) = ledger.totals();
    println!("\nSo far at format {format}: {seeds} seeds, {failures_ever} failures.");
    match (holds, failures) {
        (true, _) => Ok(()),
        (false, 0) => Err(Failure::Command { what: program.name.to_owned(), ended: run::ended(ran.status) }),
        (false, count) => {
            Err(Failure::Broken { what: "seed", count: usize::try_from(count).unwrap_or(usize::MAX) })
        }
    }
}

//! `atoll table list`, `steps` and `follow`: tables, their runs and steps, and new steps as they arrive.

use super::TableArguments;
use super::create::{sampled, schema_value};
use crate::listing::{self, Side};
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use atoll_options::{format_duration, parse_duration};
use atoll_tables::protocol::Version;
use atoll_tables::{RunSummary, StepSummary, Table};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// `atoll table list`
#[derive(Args, Debug)]
pub struct List {}

impl List {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let store = super::existing_store(session, Access::Read).await?;
        let tables = Table::list(&*store).await?;
        if session.output.is_json() {
            return tables.iter().try_for_each(|table| {
                session.output.json(&json!({ "table": table.name, "schema": schema_value(&table.schema) }))
            });
        }
        let columns = [("table", Side::Left), ("boxes over", Side::Left), ("samples", Side::Left)];
        let entries: Vec<_> = tables
            .into_iter()
            .map(|table| [table.name, table.schema.roles().index.join(", "), sampled(&table.schema)])
            .collect();
        listing::show(session, columns, &entries)
    }
}

/// `atoll table steps`
#[derive(Args, Debug)]
pub struct Steps {
    #[command(flatten)]
    table: TableArguments,
    /// Only this run
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Show only the runs, one per line
    #[arg(long, conflicts_with = "run")]
    runs: bool,
    /// Show only the last N steps of each run
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

impl Steps {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Read).await?;
        if self.runs {
            return show_runs(session, &table).await;
        }
        let steps = table.steps(self.run.as_deref()).await?;
        let asked = steps.chunk_by(|left, right| left.run == right.run).flat_map(|run| {
            let skipped = self.last.map_or(0, |last| run.len().saturating_sub(last));
            &run[skipped..]
        });
        if session.output.is_json() {
            return asked.map(step_value).try_for_each(|step| session.output.json(&step));
        }
        let time = match table.schema().time_unit() {
            Some(unit) => format!("time ({unit})"),
            None => "time".to_owned(),
        };
        let columns =
            [("run", Side::Left), ("step", Side::Right), (&*time, Side::Right), ("rows", Side::Right)];
        let entries: Vec<_> = asked
            .map(|step| {
                let time = step.time.map(|time| time.to_string()).unwrap_or_default();
                [step.run.clone(), step.step.to_string(), time, step.rows.to_string()]
            })
            .collect();
        listing::show(session, columns, &entries)
    }
}

async fn show_runs(session: &Session, table: &Table) -> Result<(), Failure> {
    let runs = table.runs().await?;
    if session.output.is_json() {
        return runs.iter().map(run_value).try_for_each(|run| session.output.json(&run));
    }
    let columns = [("run", Side::Left), ("steps", Side::Right), ("last", Side::Right), ("rows", Side::Right)];
    let entries: Vec<_> = runs
        .into_iter()
        .map(|run| {
            let last = run.last_complete.map_or("none".to_owned(), |last| last.to_string());
            [run.name, run.steps.to_string(), last, run.rows.to_string()]
        })
        .collect();
    listing::show(session, columns, &entries)
}

fn run_value(run: &RunSummary) -> Value {
    json!({
        "run": run.name,
        "attempt": run.attempt,
        "ranks": run.ranks,
        "last_complete": run.last_complete,
        "steps": run.steps,
        "rows": run.rows,
    })
}

/// One step as it arrives, without column widths: later steps are not known yet.
fn show_step(session: &Session, step: &StepSummary, unit: Option<&str>) -> Result<(), Failure> {
    session.output.either(
        || {
            let unit = unit.map(|unit| format!(" {unit}")).unwrap_or_default();
            let time = step.time.map(|time| format!("\ttime {time}{unit}")).unwrap_or_default();
            format!("{}\tstep {}{time}\t{}", step.run, step.step, counted(step.rows, "row"))
        },
        || step_value(step),
    )
}

fn step_value(step: &StepSummary) -> Value {
    json!({
        "run": step.run,
        "step": step.step,
        "time": step.time,
        "attempt": step.attempt,
        "rows": step.rows,
    })
}

/// `atoll table follow`
#[derive(Args, Debug)]
pub struct Follow {
    #[command(flatten)]
    table: TableArguments,
    /// Only this run
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Include steps that are complete already
    #[arg(long)]
    all: bool,
    /// End after this many steps; if --timeout ends it before, the exit code is 17
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End when no step has arrived for this long, such as 10min
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

/// For each run its attempt, and the last step of that attempt which was visible when its steps were listed.
type ReportedSteps = BTreeMap<String, (u64, Option<u64>)>;

/// How long one wait lasts if no timeout is set.
const WAIT: Duration = Duration::from_secs(60);

impl Follow {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        // A store opened for reading only stays at its state, unless another process owns it.
        let table = self.table.open(session, Access::Change).await?;
        session.end_on_interrupt();
        let mut version = table.version().await?;
        let schema = table.schema();
        let (mut known, mut told) = (BTreeMap::new(), ReportedSteps::new());
        if !self.all {
            let there = self.new_steps(&table, &mut told).await?.into_iter();
            known.extend(there.map(|step| ((step.run, step.step), step.attempt)));
        }
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut deadline = self.deadline();
        loop {
            for step in self.new_steps(&table, &mut told).await? {
                let before = known.insert((step.run.clone(), step.step), step.attempt);
                if before == Some(step.attempt) {
                    continue;
                }
                show_step(session, &step, schema.time_unit())?;
                deadline = self.deadline();
                left = left.saturating_sub(1);
                if left == 0 {
                    return Ok(());
                }
            }
            session.output.flush()?;
            match self.next(&table, version, deadline).await? {
                Some(next) => version = next,
                None => return self.ended(left),
            }
        }
    }

    /// When following ends if no step is shown from now on.
    fn deadline(&self) -> Option<Instant> {
        self.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// The version after this one; none once the deadline is over. Versions that complete no step do not move
    /// it, however many they are.
    async fn next(
        &self,
        table: &Table,
        since: Version,
        deadline: Option<Instant>,
    ) -> Result<Option<Version>, Failure> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let version = table.follow(since, left.unwrap_or(WAIT)).await?;
            if version > since {
                return Ok(Some(version));
            }
        }
    }

    /// The outcome once the time is over with so many steps left.
    fn ended(&self, left: u64) -> Result<(), Failure> {
        match (self.count, self.timeout) {
            (Some(count), Some(timeout)) if left > 0 => Err(Failure::WaitEnded {
                what: format!("{} of {} arrived, and no other", count - left, counted(count, "step")),
                time_out: format_duration(timeout),
            }),
            _ => Ok(()),
        }
    }

    /// The steps of the run that may be new since `told`; none if the run has not begun. Most versions bring
    /// rows of one rank and no complete step.
    async fn new_steps(&self, table: &Table, told: &mut ReportedSteps) -> Result<Vec<StepSummary>, Failure> {
        let mut steps = Vec::new();
        for run in table.runs().await? {
            let now = (run.attempt, run.published);
            if self.run.as_ref().is_some_and(|asked| *asked != run.name) || told.get(&run.name) == Some(&now)
            {
                continue;
            }
            // Steps of an attempt become complete in rising order.
            let first = match told.insert(run.name.clone(), now) {
                Some((attempt, Some(last))) if attempt == run.attempt => last.saturating_add(1),
                _ => 0,
            };
            steps.extend(table.steps_from(Some(&run.name), first).await?);
        }
        Ok(steps)
    }
}

//! `atoll table delete` and `drop`: removes rows, and whole tables.

use super::TableArguments;
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use atoll_tables::expression::Expression;
use atoll_tables::protocol::Version;
use atoll_tables::{OfRuns, Query, Table, TableError};
use clap::Args;
use serde_json::json;

/// `atoll table delete`
#[derive(Args, Debug)]
pub struct Delete {
    #[command(flatten)]
    table: TableArguments,
    #[command(flatten)]
    rows: RowsArguments,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct RowsArguments {
    /// Rows of this run
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Rows of these steps, such as 100:200 without the upper end, or 100: for all from there on
    #[arg(long, value_name = "FROM:TO", value_parser = parse_steps)]
    steps: Option<Steps>,
    /// Rows for which this holds
    #[arg(long = "where", value_name = "CONDITION", allow_hyphen_values = true)]
    condition: Option<String>,
    /// Report how many rows were deleted, which reads the columns of CONDITION
    #[arg(long = "count", requires = "condition")]
    is_counted: bool,
    /// All rows
    #[arg(long, conflicts_with_all = ["run", "steps", "condition"])]
    all: bool,
}

/// The first step and the one after the last; none for all later ones.
#[derive(Clone, Copy, Debug)]
struct Steps(u64, Option<u64>);

fn parse_steps(text: &str) -> Result<Steps, String> {
    let (from, to) = text.split_once(':').ok_or("it is not FROM:TO, such as 100:200")?;
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        digits => digits.parse::<u64>().map(Some).map_err(|_| format!("{digits:?} is not a step")),
    };
    match (number(from)?, number(to)?) {
        (Some(from), to) => Ok(Steps(from, to)),
        // Of "$FROM:$TO" with variables that are not set, a colon is left.
        (None, to) => {
            let meant = to.map_or_else(String::new, |to| format!("0:{to} means all steps before {to}, "));
            Err(format!(
                "no step precedes the colon: {meant}0: means all steps, as does --run without --steps for one run, and \
                 --all means all rows"
            ))
        }
    }
}

impl Delete {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Change).await?;
        let filter = match &self.rows.condition {
            Some(text) => {
                let wrong = |error| super::question::of_text("--where", error);
                let parsed = Expression::parse(text).map_err(wrong)?;
                parsed.bind(table.schema().columns()).map_err(wrong)?;
                Some(parsed)
            }
            None => None,
        };
        let RowsArguments { run, steps, condition, .. } = &self.rows;
        let (run, condition) = (run.as_deref(), condition.as_deref());
        let version = match *steps {
            Some(Steps(first, None)) => table.delete_from(run, first, condition).await?,
            Some(Steps(first, Some(end))) => table.delete(run, Some(first..end), condition).await?,
            None => table.delete(run, None, condition).await?,
        };
        session.hint_on_interrupt("the rows are deleted; only counting them was interrupted");
        let rows = self.rows.count(&table, filter, version).await;
        table.close().await?;
        session.output.either(
            || {
                let rows = rows.map_or_else(String::new, |rows| {
                    format!("{} {} ", counted(rows, "row"), if rows == 1 { "is" } else { "are" })
                });
                format!("{rows}gone as of version {version}; --as-of still shows them in versions before")
            },
            || json!({ "version": version.0, "rows": rows }),
        )
    }
}

impl RowsArguments {
    /// How many rows a version deleted. None if no count was asked for, since counting reads the columns of
    /// the condition, or if the count cannot be determined: the rows are deleted all the same.
    async fn count(&self, table: &Table, filter: Option<Expression>, version: Version) -> Option<u64> {
        if filter.is_some() && !self.is_counted {
            return None;
        }
        let runs = self.run.as_deref().map(|run| OfRuns::new([run]));
        let there = async |version| {
            let (filter, runs) = (filter.clone(), runs.clone());
            let query = Query { filter, runs, as_of: Some(version), ..Query::default() };
            table.count(&query).await.ok().map(|count| count.rows)
        };
        let before = there(Version(version.0.saturating_sub(1))).await?;
        // With --steps, rows of other steps stay, and the filter does not exclude them from the count.
        let after = if self.steps.is_some() { there(version).await? } else { 0 };
        Some(before.saturating_sub(after))
    }
}

/// `atoll table drop`
#[derive(Args, Debug)]
pub struct Drop {
    #[command(flatten)]
    table: TableArguments,
}

impl Drop {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let store = super::existing_store(session, Access::Change).await?;
        match Table::drop_table(&*store, &self.table.table).await {
            // Missing or mistyped: the failure names the nearest table.
            Err(TableError::NotFound { .. }) => drop(self.table.open_in(&store).await?),
            ended => ended?,
        }
        if session.output.is_json() { session.output.json(&json!({ "done": true })) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_a_first_one_and_perhaps_an_end() {
        let read = |text: &str| parse_steps(text).map(|Steps(first, end)| (first, end));
        assert_eq!(read("100:200"), Ok((100, Some(200))));
        assert_eq!((read("0:"), read(" 7 : ")), (Ok((0, None)), Ok((7, None))));
        for text in [":", " : ", ":200"] {
            assert!(read(text).is_err_and(|problem| problem.contains("--all")), "{text}");
        }
        assert!(read(":200").is_err_and(|problem| problem.contains("0:200 means all steps before 200")));
        assert!(read("7").is_err() && read("-1:").is_err() && read("a:b").is_err());
    }
}

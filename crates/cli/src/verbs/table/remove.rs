//! `atoll table delete` and `drop`: rows, and tables as a whole.

use super::TableArguments;
use crate::session::Access;
use crate::{Failure, Session};
use atoll_tables::expression::Expression;
use atoll_tables::protocol::Version;
use atoll_tables::{OfRuns, Query, Table, TableError};
use clap::Args;
use serde_json::json;
use std::ops::Range;

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
    /// Rows of these steps, such as 100:200 without the upper end
    #[arg(long, value_name = "FROM:TO", value_parser = parse_steps)]
    steps: Option<Range<u64>>,
    /// Rows for which this holds
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// All rows
    #[arg(long, conflicts_with_all = ["run", "steps", "condition"])]
    all: bool,
}

fn parse_steps(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once(':').ok_or("it is not FROM:TO, such as 100:200")?;
    let number = |text: &str, open: u64| match text.trim() {
        "" => Ok(open),
        digits => digits.parse().map_err(|_| format!("{digits:?} is not a step")),
    };
    Ok(number(from, 0)?..number(to, u64::MAX)?)
}

impl Delete {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Change).await?;
        let RowsArguments { run, steps, condition, .. } = &self.rows;
        let filter = match condition {
            Some(text) => {
                let wrong = |error| Failure::Expression { what: "--where", error: Box::new(error) };
                let parsed = Expression::parse(text).map_err(wrong)?;
                parsed.bind(table.schema().columns()).map_err(wrong)?;
                Some(parsed)
            }
            None => None,
        };
        let version = table.delete(run.as_deref(), steps.clone(), condition.as_deref()).await?;
        session.hint_on_interrupt("the rows are gone; only how many they were was still being counted");
        let rows = self.rows.count(&table, filter, version).await?;
        table.close().await?;
        session.output.either(
            || {
                let rows = rows.map_or_else(String::new, |rows| format!("{rows} rows are "));
                format!("{rows}gone as of version {version}; --as-of still shows them in versions before")
            },
            || json!({ "version": version.0, "rows": rows }),
        )
    }
}

impl RowsArguments {
    /// How many rows went with a version; none if a vacuum took the one before.
    async fn count(
        &self,
        table: &Table,
        filter: Option<Expression>,
        version: Version,
    ) -> Result<Option<u64>, Failure> {
        let runs = self.run.as_deref().map(|run| OfRuns::new([run]));
        let there = async |version| {
            let (filter, runs) = (filter.clone(), runs.clone());
            let query = Query { filter, runs, as_of: Some(version), ..Query::default() };
            match table.count(&query).await {
                Ok(count) => Ok(Some(count.rows)),
                Err(TableError::VersionGone { .. }) => Ok(None),
                Err(error) => Err(Failure::from(error)),
            }
        };
        let before = there(Version(version.0.saturating_sub(1))).await?;
        // Of steps alone the others stay, which no condition tells apart.
        let after = if self.steps.is_some() { there(version).await? } else { Some(0) };
        Ok(before.zip(after).map(|(before, after)| before.saturating_sub(after)))
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
        let store = session.store(Access::Change).await?;
        match Table::drop_table(&*store, &self.table.table).await {
            // Not there, or mistyped: answered with the nearest.
            Err(TableError::NotFound { .. }) => drop(self.table.open_in(&store).await?),
            ended => ended?,
        }
        if session.output.is_json() { session.output.json(&json!({ "done": true })) } else { Ok(()) }
    }
}

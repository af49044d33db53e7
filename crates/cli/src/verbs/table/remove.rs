//! `atoll table delete` and `drop`: rows, and tables as a whole.

use super::TableArguments;
use crate::session::Access;
use crate::{Failure, Session};
use atoll_tables::expression::Expression;
use atoll_tables::{Table, TableError};
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
        let RowsArguments { run, steps, condition, .. } = self.rows;
        if let Some(text) = &condition {
            let bound = Expression::parse(text).and_then(|parsed| parsed.bind(table.schema().columns()));
            bound.map_err(|error| Failure::Expression { what: "--where", error: Box::new(error) })?;
        }
        let version = table.delete(run.as_deref(), steps, condition.as_deref()).await?;
        table.close().await?;
        session.output.either(
            || format!("gone as of version {version}; --as-of still shows them in versions before"),
            || json!({ "version": version.0 }),
        )
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

//! `atoll table query`, `sample` and `head`: rows in the order of their weights.

use super::TableArguments;
use super::estimate::{column_of, group_as_json, names_of};
use super::export::metadata;
use super::question::QuestionArguments;
use super::rows_out::OutputArguments;
use crate::output::{note, note_json};
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use atoll_tables::Work;
use clap::Args;
use serde_json::{Map, Value, json};

/// `atoll table query`
#[derive(Args, Debug)]
pub struct Query {
    #[command(flatten)]
    table: TableArguments,
    #[command(flatten)]
    question: QuestionArguments,
    /// Show only the number of rows
    #[arg(long, conflicts_with_all = ["output", "format", "bounds"])]
    count: bool,
    #[command(flatten)]
    ends: EndArguments,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    work: WorkArguments,
}

/// The ends of columns, as they are typed.
#[derive(Args, Debug)]
struct EndArguments {
    /// Show only the least value of this column, exactly; with --max, the greatest on the next line
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["output", "format", "count"])]
    min: Option<String>,
    /// Show only the greatest value of this column, exactly
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["output", "format", "count"])]
    max: Option<String>,
}

/// `atoll table sample`
#[derive(Args, Debug)]
pub struct Sample {
    #[command(flatten)]
    table: TableArguments,
    /// Share to sample, from 0 to 1 or in percent
    #[arg(value_parser = super::question::parse_share)]
    share: f64,
    #[command(flatten)]
    question: QuestionArguments,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    work: WorkArguments,
}

/// `atoll table head`
#[derive(Args, Debug)]
pub struct Head {
    #[command(flatten)]
    table: TableArguments,
    /// Number of rows to show
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    rows: usize,
    #[command(flatten)]
    question: QuestionArguments,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    work: WorkArguments,
}

#[derive(Args, Clone, Copy, Debug)]
struct WorkArguments {
    /// Report on standard error what the answer cost
    #[arg(long, help_heading = "Output")]
    work: bool,
}

impl Query {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        if self.ends.min.is_some() || self.ends.max.is_some() {
            return self.ends(session).await;
        }
        if !self.count {
            return answer(session, &self.table, &self.question, &self.output, self.work).await;
        }
        let table = self.table.open(session, Access::Read).await?;
        let count = table.count(&self.question.query(&table).await?).await?;
        self.work.tell_counted(session, &count.work);
        session
            .output
            .either(|| count.rows.to_string(), || json!({ "rows": count.rows, "version": count.version.0 }))
    }

    /// Shows the least value, the greatest, or both.
    async fn ends(&self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Read).await?;
        let mut query = self.question.query(&table).await?;
        let (mut shown, mut values) = (Vec::new(), Map::new());
        for (name, asked) in [("min", &self.ends.min), ("max", &self.ends.max)] {
            let Some(text) = asked else { continue };
            let column = column_of(&table, text)?;
            let found = match name {
                "min" => table.minimum(&query, &column).await?,
                _ => table.maximum(&query, &column).await?,
            };
            self.work.tell_counted(session, &found.work);
            // Both are of one version.
            query.as_of = Some(found.version);
            let value = found.array();
            let text = names_of(&value)?.pop().unwrap_or_default();
            values.insert(name.to_owned(), group_as_json(&value, 0, &text));
            values.insert("version".to_owned(), json!(found.version.0));
            shown.push(text);
        }
        session.output.either(|| shown.join("\n"), || Value::Object(values))
    }
}

impl Sample {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let question = self.question.with_sample(self.share)?;
        answer(session, &self.table, &question, &self.output, self.work).await
    }
}

impl Head {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let question = self.question.with_limit(self.rows);
        answer(session, &self.table, &question, &self.output, self.work).await
    }
}

async fn answer(
    session: &Session,
    table: &TableArguments,
    question: &QuestionArguments,
    output: &OutputArguments,
    work: WorkArguments,
) -> Result<(), Failure> {
    let table = table.open(session, Access::Read).await?;
    let mut query = question.query(&table).await?;
    if query.as_of.is_none() && output.is_dump(session)? {
        query.as_of = Some(table.version().await?);
    }
    let plan = output.plan(session, &table, &query).await?;
    let answer = table.query(&query).await?;
    let mut out = output.open(plan, &answer.rows.schema(), metadata(&table, answer.version, "weight, id"))?;
    out.write(session, &answer.rows).await?;
    out.finish().await?;
    work.tell(session, &answer.work);
    if output.has_file() {
        let rows = answer.rows.num_rows();
        session.output.either(
            || format!("wrote {} of version {}", counted(rows, "row"), answer.version),
            || json!({ "rows": rows, "version": answer.version.0 }),
        )?;
    }
    Ok(())
}

impl WorkArguments {
    fn tell(self, session: &Session, work: &Work) {
        if !self.work {
            return;
        }
        let rows = format!("{} of {} that were read", counted(work.rows_returned, "row"), work.rows_touched);
        tell_work(session, work, &rows);
    }

    /// The same for a count, which returns no rows.
    fn tell_counted(self, session: &Session, work: &Work) {
        if self.work {
            let were = if work.rows_touched == 1 { "was" } else { "were" };
            tell_work(session, work, &format!("{} {were} read", counted(work.rows_touched, "row")));
        }
    }
}

fn tell_work(session: &Session, work: &Work, rows: &str) {
    if session.output.is_json() {
        note_json(&json!({ "work": work_value(work) }));
    } else {
        note(&format!("{rows}, in {} of {} bytes", counted(work.requests, "request"), work.bytes));
    }
}

fn work_value(work: &Work) -> Value {
    json!({
        "blocks": work.blocks,
        "bands": work.bands,
        "rows_touched": work.rows_touched,
        "rows_returned": work.rows_returned,
        "requests": work.requests,
        "bytes": work.bytes,
    })
}

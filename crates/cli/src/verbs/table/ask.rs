//! What is asked of a table, as it is typed.

use crate::Failure;
use atoll_tables::expression::{Expression, parse_box};
use atoll_tables::protocol::Version;
use atoll_tables::{Cut, Query, Table};
use clap::Args;

/// Which rows, and what of them.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct QuestionArguments {
    /// Rows for which this holds, such as 'type = 2 and vz > 0.5'; several must all hold
    #[arg(long = "where", value_name = "CONDITION", help_heading = "Which rows")]
    conditions: Vec<String>,
    /// Rows within these limits, such as x=0:1,step=100: without the upper ends
    #[arg(long = "box", value_name = "SIDES", allow_hyphen_values = true, help_heading = "Which rows")]
    boxes: Vec<String>,
    /// This share of what is sampled, from 0 to 1; the same rows every time
    #[arg(long, value_name = "SHARE", conflicts_with = "window", help_heading = "Which rows")]
    sample: Option<f64>,
    /// The share from FROM to TO: independent of the sample of FROM
    #[arg(long, value_name = "FROM:TO", value_parser = parse_window, help_heading = "Which rows")]
    window: Option<(f64, f64)>,
    /// The first N of what is sampled, in the order of the weights
    #[arg(long, value_name = "N", help_heading = "Which rows")]
    first: Option<usize>,
    /// At most N rows
    #[arg(long, value_name = "N", help_heading = "Which rows")]
    limit: Option<usize>,
    /// Only these columns, in this order
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Which rows")]
    columns: Vec<String>,
    /// The table as it was in this version, or in the one that this snapshot keeps
    #[arg(long, value_name = "VERSION|SNAPSHOT", help_heading = "Which rows")]
    as_of: Option<String>,
    /// Also rows of steps that are not complete yet
    #[arg(long, help_heading = "Which rows")]
    arriving: bool,
}

fn parse_window(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once(':').ok_or("it is not FROM:TO, such as 0.01:0.02")?;
    let share = |text: &str| text.trim().parse::<f64>().map_err(|_| format!("{text:?} is not a number"));
    Ok((share(from)?, share(to)?))
}

impl QuestionArguments {
    /// A question of the first rows.
    pub(super) fn with_limit(mut self, rows: usize) -> Self {
        self.limit = Some(self.limit.map_or(rows, |limit| limit.min(rows)));
        self
    }

    /// A question of a sample.
    pub(super) fn with_sample(mut self, share: f64) -> Result<Self, Failure> {
        if self.sample.is_some() || self.window.is_some() {
            return Err(Failure::Usage {
                problem: "the share is given twice".to_owned(),
                hint: "leave --sample and --window out, or use `atoll table query`".to_owned(),
            });
        }
        self.sample = Some(share);
        Ok(self)
    }

    /// The question. It is checked against the columns of the table before anything is read.
    pub(super) async fn query(&self, table: &Table) -> Result<Query, Failure> {
        let filter = self.filter()?;
        let schema = table.schema_now().await?;
        let columns = schema.columns();
        if let Some(filter) = &filter {
            let what = if self.conditions.is_empty() { "--box" } else { "--where" };
            filter.bind(columns).map_err(|error| Failure::Expression { what, error: Box::new(error) })?;
        }
        let names: Vec<String> = columns.fields().iter().map(|field| field.name().clone()).collect();
        if let Some(unknown) = self.columns.iter().find(|name| !names.contains(name)) {
            return Err(Failure::Column {
                table: table.name().to_owned(),
                column: unknown.clone(),
                present: names,
            });
        }
        Ok(Query {
            filter,
            window: self.cut_window()?,
            units: self.first,
            limit: self.limit,
            columns: (!self.columns.is_empty()).then(|| self.columns.clone()),
            as_of: self.version(table).await?,
            with_arriving: self.arriving,
        })
    }

    /// The version that is asked for, by its number or by the name of a snapshot.
    async fn version(&self, table: &Table) -> Result<Option<Version>, Failure> {
        let Some(said) = &self.as_of else { return Ok(None) };
        match said.parse() {
            Ok(number) => Ok(Some(Version(number))),
            Err(_) => Ok(Some(table.snapshot_version(said).await?)),
        }
    }

    fn cut_window(&self) -> Result<atoll_tables::Window, Failure> {
        let wrong = |error: atoll_tables::WeightError| Failure::Usage {
            problem: error.to_string(),
            hint: "a share is a part of one: 0.01 is one in a hundred".to_owned(),
        };
        let (from, to) = self.window.unwrap_or((0.0, self.sample.unwrap_or(1.0)));
        Cut::window(from, to).map_err(wrong)
    }

    /// All conditions and boxes together.
    fn filter(&self) -> Result<Option<Expression>, Failure> {
        let mut parts = Vec::new();
        for text in &self.boxes {
            let sides = parse_box(text)
                .map_err(|error| Failure::Expression { what: "--box", error: Box::new(error) })?;
            parts.extend(sides.iter().filter_map(atoll_tables::expression::Side::condition));
        }
        for text in &self.conditions {
            let condition = Expression::parse(text);
            parts.push(
                condition.map_err(|error| Failure::Expression { what: "--where", error: Box::new(error) })?,
            );
        }
        Ok(parts.into_iter().reduce(Expression::and))
    }
}

//! A question to a table, as it is typed.

use crate::Failure;
use atoll_tables::expression::{Cell, Expression, ExpressionError, Problem, parse_box};
use atoll_tables::protocol::Version;
use atoll_tables::{Boundary, Cut, OfRuns, Query, Table, TableError};
use clap::Args;
use std::collections::BTreeSet;

/// Which rows to return, and which of their columns.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct QuestionArguments {
    /// Only rows for which this holds, such as 'type = 2 and vz > 0.5'; if repeated, all must hold
    #[arg(long = "where", value_name = "CONDITION", allow_hyphen_values = true, help_heading = "Which rows")]
    conditions: Vec<String>,
    /// Only rows within these limits, such as x=0:1,step=100: without the upper ends
    #[arg(long = "box", value_name = "SIDES", allow_hyphen_values = true, help_heading = "Which rows")]
    boxes: Vec<String>,
    /// Continue boxes across the periodic boundary of the cell: that of --cell, or that of the table
    #[arg(long, requires = "boxes", help_heading = "Which rows")]
    wrap: bool,
    /// Only rows within distance R of a point; coordinates are the axes of the cell, or else the first index
    /// columns
    #[arg(
        long,
        value_name = "X,Y,Z,R",
        value_parser = parse_near,
        allow_hyphen_values = true,
        help_heading = "Which rows"
    )]
    near: Option<Near>,
    /// Periodic cell: lengths, and tilts xy, xz, yz; `inf` for an axis that does not repeat, `none` for no
    /// cell
    #[arg(long, value_name = "LX,LY,LZ[,XY,XZ,YZ]", allow_hyphen_values = true, help_heading = "Which rows")]
    cell: Option<String>,
    /// Only rows of this run; may be repeated
    #[arg(long = "run", value_name = "NAME", help_heading = "Which rows")]
    runs: Vec<String>,
    /// Only rows of runs whose attributes satisfy this, such as 'temperature > 300'
    #[arg(long, value_name = "CONDITION", allow_hyphen_values = true, help_heading = "Which rows")]
    runs_where: Option<String>,
    /// Only a sample of this share, from 0 to 1 or in percent; the same rows every time
    #[arg(
        long,
        value_name = "SHARE",
        value_parser = parse_share,
        allow_negative_numbers = true,
        conflicts_with = "window",
        help_heading = "Which rows"
    )]
    sample: Option<f64>,
    /// The part of the sampling order from FROM to TO, independent of the sample of FROM
    #[arg(long, value_name = "FROM:TO", value_parser = parse_window, help_heading = "Which rows")]
    window: Option<(f64, f64)>,
    /// The first N of what is sampled, rows or entities, in the order of the weights
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Which rows")]
    first: Option<usize>,
    /// At most N rows
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Which rows")]
    limit: Option<usize>,
    /// Only these columns, in this order
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Which rows")]
    columns: Vec<String>,
    /// Query this version of the table, or the version of this snapshot
    #[arg(long, value_name = "VERSION|SNAPSHOT", allow_negative_numbers = true, help_heading = "Which rows")]
    as_of: Option<String>,
    /// Include rows of steps that are not complete yet
    #[arg(long, help_heading = "Which rows")]
    arriving: bool,
}

fn parse_window(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once(':').ok_or("it is not FROM:TO, such as 0.01:0.02")?;
    Ok((parse_share(from)?, parse_share(to)?))
}

/// Parses a share: a fraction, or a percentage.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let (digits, scale) = text.trim().strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    let share = digits.trim().parse::<f64>();
    share.map(|share| share / scale).map_err(|_| format!("{text:?} is not a share, such as 0.01 or 1%"))
}

/// A point and a radius.
#[derive(Clone, Debug)]
struct Near {
    point: Vec<f64>,
    radius: f64,
}

fn parse_near(text: &str) -> Result<Near, String> {
    let needs = "a point and a distance are numbers with commas between, X,Y,Z,R, such as 0.5,0.5,0.5,0.1";
    let number =
        |text: &str| text.trim().parse::<f64>().map_err(|_| format!("{text:?} is not a number: {needs}"));
    let mut point = text.split(',').map(number).collect::<Result<Vec<f64>, String>>()?;
    match (point.pop(), point.is_empty()) {
        (Some(radius), false) => Ok(Near { point, radius }),
        _ => Err(format!("it is one number: {needs}")),
    }
}

impl QuestionArguments {
    /// The question with a limit on rows.
    pub(super) fn with_limit(mut self, rows: usize) -> Self {
        self.limit = Some(self.limit.map_or(rows, |limit| limit.min(rows)));
        self
    }

    /// The question with a sample.
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

    /// Builds the query. It is checked against the columns of the table before anything is read.
    pub(super) async fn query(&self, table: &Table) -> Result<Query, Failure> {
        let filter = self.filter(table).await?;
        let schema = table.schema_now().await?;
        let columns = schema.columns();
        if let Some(filter) = &filter {
            let what = if self.conditions.is_empty() { "--box" } else { "--where" };
            filter.bind(columns).map_err(|error| of_text(what, error))?;
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
            runs: self.of_runs(table).await?,
            objects: None,
            as_of: self.version(table).await?,
            with_arriving: self.arriving,
        })
    }

    /// The runs that are asked for, by name and by attributes.
    async fn of_runs(&self, table: &Table) -> Result<Option<OfRuns>, Failure> {
        if self.runs.is_empty() && self.runs_where.is_none() {
            return Ok(None);
        }
        let mut names = self.runs.clone();
        if let Some(text) = &self.runs_where {
            let wrong = |error| of_text("--runs-where", error);
            let condition = Expression::parse(text).map_err(wrong)?;
            let found = match table.runs_where(&condition).await {
                Ok(found) => found,
                Err(TableError::Filter(error)) => {
                    let absent = absent_attribute(table, &error).await?;
                    return Err(absent.unwrap_or_else(|| wrong(error)));
                }
                Err(error) => return Err(error.into()),
            };
            names.extend(found.into_iter().map(|run| run.name));
        }
        Ok(Some(OfRuns::new(names.iter().map(String::as_str))))
    }

    /// The version that is asked for.
    async fn version(&self, table: &Table) -> Result<Option<Version>, Failure> {
        super::version_called(table, self.as_of.as_deref()).await
    }

    fn cut_window(&self) -> Result<atoll_tables::Window, Failure> {
        let wrong = |error: atoll_tables::WeightError| Failure::Usage {
            problem: error.to_string(),
            hint: "a share is a part of one: 0.01 is one in a hundred".to_owned(),
        };
        let (from, to) = self.window.unwrap_or((0.0, self.sample.unwrap_or(1.0)));
        Cut::window(from, to).map_err(wrong)
    }

    /// All conditions and boxes, combined.
    async fn filter(&self, table: &Table) -> Result<Option<Expression>, Failure> {
        let asks_cell = self.wrap || self.near.is_some();
        if self.cell.is_some() && !asks_cell {
            return Err(Failure::Usage {
                problem: "--cell needs --wrap or --near".to_owned(),
                hint: "add --wrap for boxes that continue across the boundary, or use --near X,Y,Z,R"
                    .to_owned(),
            });
        }
        let boundary = if asks_cell { self.boundary(table).await? } else { None };
        let mut parts = Vec::new();
        for text in &self.boxes {
            let sides = parse_box(text).map_err(|error| of_text("--box", error))?;
            match &boundary {
                Some(boundary) if self.wrap => parts.extend(boundary.wrapped(&sides).map_err(cell_failure)?),
                None if self.wrap => return Err(no_cell()),
                _ => parts.extend(sides.iter().filter_map(atoll_tables::expression::Side::condition)),
            }
        }
        if let Some(Near { point, radius }) = &self.near {
            let boundary = boundary.map_or_else(|| endless(table, point.len()), Ok)?;
            parts.push(boundary.near(point, *radius).map_err(cell_failure)?);
        }
        for text in &self.conditions {
            let condition = Expression::parse(text);
            parts.push(condition.map_err(|error| of_text("--where", error))?);
        }
        Ok(parts.into_iter().reduce(Expression::and))
    }

    /// The cell that is given, or that of the table.
    async fn boundary(&self, table: &Table) -> Result<Option<Boundary>, Failure> {
        let Some(text) = self.cell.as_deref().map(str::trim) else {
            // The cell of the run that is asked for, if it is only one and has a cell.
            let of_run = self.runs.first().filter(|_| self.runs.len() == 1 && self.runs_where.is_none());
            return Ok(table.boundary(of_run.map(String::as_str), None).await?);
        };
        if text == "none" {
            return Ok(None);
        }
        let number = |text: &str| {
            text.trim().parse::<f64>().map_err(|_| cell_failure(format!("{text:?} is not a number")))
        };
        let numbers = text.split(',').map(number).collect::<Result<Vec<f64>, _>>()?;
        // Three lengths and three tilts, two and one, or one.
        let lengths = if numbers.len() > 3 {
            3
        } else if self.near.as_ref().is_some_and(|near| near.point.len() == 2) {
            2
        } else {
            numbers.len()
        };
        let (lengths, tilts) = numbers.split_at(lengths.min(numbers.len()));
        let cell = Cell::new(lengths, tilts).map_err(cell_failure)?;
        let axes = axes(table, lengths.len())?;
        Boundary::new(&axes, &[], cell).map(Some).map_err(cell_failure)
    }
}

/// The failure for a condition on an attribute that no run has, if that is what is wrong with it.
async fn absent_attribute(table: &Table, error: &ExpressionError) -> Result<Option<Failure>, Failure> {
    let Problem::UnknownColumn { name, .. } = error.problem() else { return Ok(None) };
    let mut present = BTreeSet::from(["run".to_owned()]);
    let mut known = table.attributes_of_runs().await?;
    for run in table.runs().await? {
        present.extend(known.remove(&run.name).unwrap_or_default().into_keys());
    }
    Ok(Some(Failure::Attribute { attribute: name.clone(), present: present.into_iter().collect() }))
}

/// The failure for a wrong condition or box.
pub(super) fn of_text(what: &'static str, error: ExpressionError) -> Failure {
    Failure::Expression { what, error: Box::new(error) }
}

/// The first index columns, as many as there are axes.
fn axes(table: &Table, count: usize) -> Result<Vec<String>, Failure> {
    let index = table.schema().index_columns();
    if index.len() < count || count == 0 {
        return Err(cell_failure(format!(
            "{count} coordinates were given, but the table has {} index columns",
            index.len()
        )));
    }
    Ok(index[..count].iter().map(ToString::to_string).collect())
}

/// A boundary that does not repeat.
fn endless(table: &Table, axes_count: usize) -> Result<Boundary, Failure> {
    let cell = Cell::new(&vec![f64::INFINITY; axes_count], &[]).map_err(cell_failure)?;
    Boundary::new(&axes(table, axes_count)?, &[], cell).map_err(cell_failure)
}

fn cell_failure(problem: impl ToString) -> Failure {
    Failure::Usage {
        problem: problem.to_string(),
        hint:
            "a point is --near X,Y,Z,R, and a cell --cell LX,LY,LZ, optionally followed by its tilts XY,XZ,YZ"
                .to_owned(),
    }
}

fn no_cell() -> Failure {
    Failure::Usage {
        problem: "--wrap needs a cell, but the table has none".to_owned(),
        hint: "add --cell LX,LY,LZ, or keep one: `atoll table attributes TABLE 'cell={...}'`".to_owned(),
    }
}

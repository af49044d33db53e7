//! Estimates of tables: finds out what is known without reading, reads a sample, and passes it to the
//! estimators.
//!
//! Invariant: no band is read that the exact answer would not read. None is read twice, but for some across
//! the border of a region, whose rows are counted beside a sample (`known_rows`).
//! Invariant: the number of rows that an estimate uses belongs to the version of its sample.

use super::everything::{Folding, is_everything};
use super::known_rows::Sample;
use super::narrowing::Narrowing;
use super::values::{has_numbers, missing, numbers, ones, whole_sum};
use super::{
    Estimate, EstimateError, EstimateRequest, Estimated, Quantity, Subject, Units, Within, bounded_mean,
};
use crate::expression::{Bound, Column, Expression};
use crate::protocol::Version;
use crate::table::{KnownCount, restart_if_gone};
use crate::{Query, Readable, Table, TableError, TypeName, Weight, Window, Work};
use arrow_array::RecordBatch;

/// A question that has been checked against a table.
pub(super) struct Plan {
    /// The query to read.
    pub(super) query: Query,
    /// A condition on sampled rows; rows that fail it do not belong to the question.
    filter: Option<Bound>,
    value: Value,
    pub(super) quantity: Quantity,
    /// The number of all rows and the version it belongs to, if they were counted.
    counted: Option<(u64, Version)>,
    /// Whether it rests on a number of rows that is not known: that of a total, or of a mean with bounds.
    pub(super) is_open_total: bool,
    pub(super) work: Work,
}

/// What a row counts as.
#[derive(Debug)]
pub(super) enum Value {
    Column(Column),
    Condition(Bound),
    One,
}

impl Table {
    /// Estimates a number of the rows of a query, as [`Readable::estimate`].
    ///
    /// # Errors
    /// As [`Readable::estimate`].
    pub async fn estimate(&self, query: &Query, request: &EstimateRequest) -> Result<Estimated, TableError> {
        Readable::One(self.clone()).estimate(query, request).await
    }
}

impl Readable {
    /// Estimates a number of the rows of a query, without reading all of them.
    ///
    /// The sample is the query's own: what lies below its cut, or its first units or rows. If the query
    /// leaves nothing out, the number is exact, and no rows are kept for it except one number of each for a
    /// quantile; where each row is a unit, [`Estimate::units`] then counts rows. With
    /// [`EstimateRequest::within`] the sample is as large as the tolerance takes. It begins where the query's
    /// window does, and never exceeds what the exact answer reads.
    ///
    /// [`TableError::Estimate`] for a question without an answer, such as a tolerance relative to zero;
    /// [`TableError::Column`], [`TableError::NoNumbers`], and the errors of [`Table::query`].
    pub async fn estimate(&self, query: &Query, request: &EstimateRequest) -> Result<Estimated, TableError> {
        restart_if_gone(query, || self.estimate_once(query, request)).await
    }

    async fn estimate_once(&self, query: &Query, request: &EstimateRequest) -> Result<Estimated, TableError> {
        let plan = self.plan(query, request).await?;
        if let Some(known) = plan.known(request) {
            return Ok(known);
        }
        let Some(within) = request.within else {
            if request.bounds.is_none() && is_everything(&plan.query) {
                let query = plan.query.clone();
                let mut one = Folding::new(plan);
                let read = self.fold(&query, |rows, weights| one.take(rows, weights)).await?;
                return one.estimated(&read);
            }
            let sample = self.sample(&plan.query, plan.is_open_total).await?;
            let units = units_of(&plan.query, &sample.answer.weights)?;
            return self.estimated_of(&plan, request, &sample, &units).await;
        };
        let query = plan.query_within(within);
        let mut one = [Narrowing::new(plan, request, within)?];
        self.narrow(&query, &mut one).await?;
        let [one] = one;
        one.estimated(self).await
    }

    /// Plans what to read for a question, and finds out what is known without reading.
    pub(super) async fn plan(&self, query: &Query, request: &EstimateRequest) -> Result<Plan, TableError> {
        request.check_bounds()?;
        let value = value_of(&self.first_now().await?, &request.subject)?;
        let mut plan = Plan {
            query: query.clone(),
            filter: None,
            value,
            quantity: Quantity::Mean,
            counted: None,
            is_open_total: false,
            work: Work::default(),
        };
        let is_total = matches!(request.subject, Subject::Sum(_) | Subject::Count);
        if is_total || request.bounds.is_some() && request.rows.is_none() {
            self.count_without_reading(&mut plan).await?;
        }
        let is_of_all_rows = query.filter.is_none() && query.runs.is_none();
        let is_bounded = request.bounds.is_some() && is_of_all_rows && !is_everything(query);
        let needs_number = is_total || is_bounded;
        plan.is_open_total = needs_number && plan.counted.is_none() && request.rows.is_none();
        if plan.is_open_total && request.within.is_some() {
            self.count_before_reading(&mut plan).await?;
        } else if plan.is_open_total && is_of_all_rows && request.subject == Subject::Count {
            self.count_if_everything(&mut plan).await?;
        }
        let rows = if plan.filter.is_some() { None } else { request.rows };
        let rows = rows.or(plan.counted.map(|(rows, _)| rows));
        plan.quantity = request.subject.quantity(rows);
        plan.query.columns = Some(plan.columns());
        Ok(plan)
    }

    /// Counts the rows if that takes no reading, as for all rows, whose number versions know unless some were
    /// deleted by a condition. A filter on no index column, which does not name the units it wants, is then
    /// taken out of the query and left to the estimator: the same bands are read either way, and the number
    /// of rows before the filter is known. A filter that mentions an index column anywhere may spare bands,
    /// even if it bounds none of these columns by itself, as a union over two of them does.
    async fn count_without_reading(&self, plan: &mut Plan) -> Result<(), TableError> {
        let schema = self.schema();
        let filter = plan.query.filter.as_ref().map(|filter| filter.bind(schema.columns())).transpose()?;
        let index = schema.index_columns();
        let prunes = |filter: &Bound| index.iter().any(|column| filter.columns().contains(&column.name));
        let names_units = |filter: &Bound| self.first().is_ok_and(|table| table.names_units(filter));
        // The first units with rows that pass a filter are not the first of all units.
        let is_cut_short = plan.query.units.is_some() || plan.query.limit.is_some();
        // Where runs were packed together, only the rows themselves tell which run they belong to.
        if plan.query.runs.is_some() {
            return Ok(());
        }
        if filter.as_ref().is_some_and(|filter| is_cut_short || prunes(filter) || names_units(filter)) {
            return Ok(());
        }
        let count = self.count_all_if_known(&mut plan.query).await?;
        plan.work = count.work;
        if let Some(rows) = count.rows {
            plan.query.filter = None;
            plan.filter = filter;
            plan.counted = Some((rows, count.version));
        }
        Ok(())
    }

    /// Counts the rows of a region if the version knows their number.
    async fn count_before_reading(&self, plan: &mut Plan) -> Result<(), TableError> {
        let Some(count) = self.count_beside(&plan.query, 0).await? else { return Ok(()) };
        plan.work = together(plan.work, count.work);
        if let Some(rows) = count.rows {
            plan.counted = Some((rows, count.version));
            plan.query.as_of = Some(count.version);
            plan.is_open_total = false;
        }
        Ok(())
    }

    /// Counts the rows of a query that leaves nothing out, whose number is the answer: what the version does
    /// not tell of it has to be read.
    async fn count_if_everything(&self, plan: &mut Plan) -> Result<(), TableError> {
        if !is_everything(&plan.query) {
            return Ok(());
        }
        let count = self.count(&of_all_rows(&plan.query)).await?;
        plan.work = together(plan.work, count.work);
        plan.counted = Some((count.rows, count.version));
        plan.query.as_of = Some(count.version);
        plan.is_open_total = false;
        Ok(())
    }

    /// Counts all rows if the version knows their number, and then pins the query to that version. It does
    /// not where rows were deleted by a condition: only the rows themselves tell which of them are left.
    pub(super) async fn count_all_if_known(&self, query: &mut Query) -> Result<KnownCount, TableError> {
        let count = self.count_if_cheap(&of_all_rows(query), 0).await?;
        if count.rows.is_some() {
            query.as_of = Some(count.version);
        }
        Ok(count)
    }
}

/// The query for all rows that a query chooses from.
fn of_all_rows(query: &Query) -> Query {
    let Query { as_of, with_arriving, .. } = *query;
    Query {
        columns: Some(Vec::new()),
        as_of,
        with_arriving,
        objects: query.objects.clone(),
        ..Query::default()
    }
}

/// What a row counts as, for a subject that fits the table.
pub(super) fn value_of(table: &Table, subject: &Subject) -> Result<Value, TableError> {
    let bind = |condition: &Expression| condition.bind(table.schema().columns());
    Ok(match subject {
        Subject::Mean(column) | Subject::Sum(column) | Subject::Quantile(column, _) => {
            check_numbers(table, column)?;
            // Refused up front, and not only once all rows have been read.
            if let Subject::Quantile(_, share) = subject {
                super::quantile::check_share(*share)?;
            }
            Value::Column(column.clone())
        }
        Subject::Share(condition) => Value::Condition(bind(condition)?),
        Subject::Count => Value::One,
    })
}

/// Refuses a column that does not exist or holds no numbers.
pub(super) fn check_numbers(table: &Table, column: &Column) -> Result<(), TableError> {
    let schema = table.schema();
    let found = schema.columns().column_with_name(&column.name);
    let (_, field) = found.ok_or_else(|| table.no_column(&column.name))?;
    if has_numbers(field.data_type(), column.element) {
        return Ok(());
    }
    Err(TableError::NoNumbers { column: column.to_string(), data_type: TypeName::told(field.data_type()) })
}

impl Value {
    /// The columns to read.
    pub(super) fn columns(&self) -> Vec<String> {
        match self {
            Self::Column(column) => vec![column.name.clone()],
            Self::Condition(condition) => condition.columns().to_vec(),
            Self::One => Vec::new(),
        }
    }

    /// What each row counts as, NaN for no value.
    pub(super) fn of_rows(&self, rows: &RecordBatch) -> Result<Vec<f64>, TableError> {
        Ok(match self {
            Self::Column(column) => numbers(rows, column).unwrap_or_default(),
            Self::Condition(condition) => ones(&condition.evaluate(rows)?),
            Self::One => vec![1.0; rows.num_rows()],
        })
    }
}

impl Plan {
    /// The answer, if it is known without reading.
    pub(super) fn known(&self, request: &EstimateRequest) -> Option<Estimated> {
        let (Subject::Count, None, Some((rows, version))) = (&request.subject, &self.filter, self.counted)
        else {
            return None;
        };
        Some(Estimated { estimate: Estimate::known(rows as f64), version, rows_read: 0, work: self.work })
    }

    /// The estimate from a sample.
    pub(super) fn estimated(
        &self,
        request: &EstimateRequest,
        sample: &Sample,
        units: &Units,
    ) -> Result<Estimated, TableError> {
        let answer = &sample.answer;
        let (values, missing) = self.values(&answer.rows.slice(0, units.rows()))?;
        let beside = sample.rows.filter(|_| self.is_open_total);
        let rows = self.counted.map(|(rows, _)| rows).or(request.rows).or(beside);
        let estimate = match (request.bounds, rows, &self.filter) {
            (Some(bounds), Some(rows), None) => {
                bounded_mean(units, &values, bounds, rows, &request.confidence)?
            }
            // If the sample is everything, the mean is known.
            (Some(_), ..) if !units.is_everything() => return Err(of_unknown_rows().into()),
            _ => sample.estimate(self.quantity, units, &values, &request.confidence)?,
        };
        Ok(Estimated {
            estimate: estimate.without(missing),
            version: answer.version,
            rows_read: answer.rows.num_rows() as u64,
            work: together(self.work, sample.work),
        })
    }

    /// The query to read batch by batch until an estimate is narrow enough.
    pub(super) fn query_within(&self, within: Within) -> Query {
        let window = Window::above(self.query.window.after());
        let limit = within.rows_max.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        Query { window, units: None, limit, ..self.query.clone() }
    }

    /// The columns to read.
    fn columns(&self) -> Vec<String> {
        let mut columns = self.value.columns();
        for name in self.filter.iter().flat_map(|filter| filter.columns()) {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        columns
    }

    /// What each row counts as, NaN for no value, and how many rows that belong to the question have no
    /// value.
    pub(super) fn values(&self, rows: &RecordBatch) -> Result<(Vec<f64>, u64), TableError> {
        let mut values = self.value.of_rows(rows)?;
        let Some(filter) = &self.filter else {
            let missing = missing(&values);
            return Ok((values, missing));
        };
        let mut missing = 0;
        for (value, belongs) in values.iter_mut().zip(ones(&filter.evaluate(rows)?)) {
            if belongs == 0.0 {
                *value = f64::NAN;
            } else {
                missing += u64::from(value.is_nan());
            }
        }
        Ok((values, missing))
    }
}

impl Plan {
    /// The sum of the values of a batch, which [`Plan::values`] returned, if they are whole numbers: without
    /// the rounding of each.
    pub(super) fn whole_sum(&self, rows: &RecordBatch, values: &[f64]) -> Option<i128> {
        match &self.value {
            Value::Column(column) => whole_sum(rows, column, values),
            Value::Condition(_) | Value::One => None,
        }
    }
}

/// Refuses bounds where the number of rows that they apply to is not known.
fn of_unknown_rows() -> EstimateError {
    EstimateError::BoundsUnused {
        place: "where the number of rows is not known",
        hint: "leave out the bounds, or the filter; or count the rows, and give their number",
    }
}

/// The units of an answer, and the share of everything that they are.
pub(super) fn units_of(query: &Query, weights: &[Weight]) -> Result<Units, TableError> {
    let units = weights.chunk_by(PartialEq::eq).count();
    Ok(if query.limit.is_some_and(|most| weights.len() >= most) {
        Units::first_rows(weights, query.window.after())?
    } else if query.units.is_some_and(|most| units >= most) {
        Units::first(weights, query.window.after())?
    } else {
        Units::within(weights, query.window)?
    })
}

/// The work of two answers together.
pub(super) fn together(one: Work, other: Work) -> Work {
    Work {
        blocks: one.blocks.max(other.blocks),
        bands: one.bands + other.bands,
        rows_touched: one.rows_touched + other.rows_touched,
        rows_returned: one.rows_returned + other.rows_returned,
        requests: one.requests + other.requests,
        bytes: one.bytes + other.bytes,
    }
}

//! Estimates that get better while a query is read on: one for each batch of its refinement.
//!
//! Each look is at all that came so far, so the distance between looks grows with that, and a batch in
//! between has the estimate of the last one: all looks together see a few times as many values as there are,
//! however many that is. Batches do not grow with it: they are held in memory, of which there is less than of
//! the table.
//!
//! Invariant: the intervals are those of a confidence sequence, so that they hold at whichever batch one
//! stops.

use super::of_table::{Value, value_of};
use super::values::missing;
use super::{Estimate, EstimateError, EstimateRequest, Quantity, Stopping, Subject, Units};
use crate::readable::Refining;
use crate::table::BATCH_ROWS_MAX;
use crate::{Cut, Query, Readable, Refined, TableError};

/// Which part of what came up to the last look has to come before the next one.
const GROWTH_MIN: usize = 4;

/// Rows up to which each batch is looked at: until then it is a quarter of all before it in any case.
const EACH_ROWS_MAX: usize = GROWTH_MIN * BATCH_ROWS_MAX;

/// A query that is read batch by batch, with an estimate from all that came so far.
#[derive(Debug)]
pub struct RefinedEstimates {
    refining: Refining,
    value: Value,
    quantity: Quantity,
    confidence: super::Confidence,
    units: Units,
    values: Vec<f64>,
    /// The columns that were asked for, where others are read for the estimate as well.
    answered: Option<Vec<usize>>,
    /// Whether somebody said how many rows the next batch shall have.
    is_told: bool,
    /// The last estimate, and of how many rows it is.
    looked: Option<(usize, Estimate)>,
    each_rows_max: usize,
}

impl Readable {
    /// The answer to a query batch by batch, each with an estimate of the request's subject from all batches
    /// so far.
    ///
    /// The request's tolerance is not looked at: whoever reads stops when it is good enough. Bounds of values
    /// are refused.
    ///
    /// # Errors
    /// As [`Readable::estimate`].
    pub async fn refine_estimate(
        &self,
        query: &Query,
        request: &EstimateRequest,
    ) -> Result<RefinedEstimates, TableError> {
        if request.bounds.is_some() {
            let place = "to an estimate that gets better batch by batch";
            let hint = "leave out the bounds, or take the estimate from a sample";
            return Err(EstimateError::BoundsUnused { place, hint }.into());
        }
        let mut query = query.clone();
        let value = value_of(&self.first_now().await?, &request.subject)?;
        let mut rows = request.rows;
        let is_total = matches!(request.subject, Subject::Sum(_) | Subject::Count);
        if is_total && rows.is_none() && query.filter.is_none() && query.runs.is_none() {
            rows = Some(self.count_all(&mut query).await?.rows);
        }
        let answered = query.columns.as_mut().map(|columns| {
            let asked = (0..columns.len()).collect();
            for name in value.columns() {
                if !columns.contains(&name) {
                    columns.push(name);
                }
            }
            asked
        });
        Ok(RefinedEstimates {
            refining: self.refine(&query),
            value,
            quantity: request.subject.quantity(rows),
            confidence: request.confidence.stopping(Stopping::ANYTIME),
            units: Units::none_after(query.window.after()),
            values: Vec::new(),
            answered,
            is_told: false,
            looked: None,
            each_rows_max: EACH_ROWS_MAX,
        })
    }
}

impl RefinedEstimates {
    /// Asks for at least so many rows in the next batch, in place of about twice those of the last, and for
    /// an estimate from all that came with it.
    pub fn want(&mut self, rows: usize) {
        self.is_told = true;
        self.refining.want(rows);
    }

    /// The next batch, and the estimate from all that came; none after the last.
    ///
    /// Beyond a million rows an estimate is made when a quarter more came, with the last batch, and where
    /// rows were asked for; batches in between have the one before, whose interval holds as well.
    ///
    /// # Errors
    /// As [`crate::Refinement::next`].
    pub async fn next(&mut self) -> Result<Option<(Refined, Estimate)>, TableError> {
        let Some(mut refined) = self.refining.next().await? else { return Ok(None) };
        // A limit of rows may have let some in beyond the cut below which all are known.
        let known = refined.cut.prefix(&refined.weights);
        self.values.extend(self.value.of_rows(&refined.rows.slice(0, known))?);
        self.units.extend(&refined.weights[..known], refined.cut)?;
        if refined.is_last && refined.cut == Cut::ALL {
            self.units.complete();
        }
        let estimate = self.look(refined.is_last)?;
        if let Some(answered) = &self.answered {
            let projected = refined.rows.project(answered);
            refined.rows = projected.map_err(super::several::of_answer)?;
        }
        Ok(Some((refined, estimate)))
    }

    /// The estimate from all that came, or the one before where too little came since.
    fn look(&mut self, is_last: bool) -> Result<Estimate, TableError> {
        let rows = self.values.len();
        let is_near = |looked: &usize| rows > self.each_rows_max && rows - looked < looked / GROWTH_MIN;
        if let Some((_, estimate)) = self.looked.as_ref().filter(|(looked, _)| is_near(looked))
            && !is_last
            && !self.is_told
        {
            return Ok(estimate.clone());
        }
        let estimate = self.quantity.estimate(&self.units, &self.values, &self.confidence)?;
        let estimate = estimate.without(missing(&self.values));
        self.looked = Some((rows, estimate.clone()));
        self.is_told = false;
        Ok(estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Method;
    use crate::expression::Column;
    use crate::protocol::BlockId;
    use crate::{Roles, Table, TableSchema, column};
    use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    use arrow_schema::{DataType, Schema};
    use atoll_memory::MemoryStore;
    use std::sync::Arc;

    const ROWS: usize = 40_000;

    async fn readable() -> Readable {
        let columns =
            Schema::new(vec![column("n", DataType::Int64, false), column("x", DataType::Float64, false)]);
        let roles =
            Roles { id: vec!["n".to_owned()], sample_key: Vec::new(), index: vec!["x".to_owned()], salt: 0 };
        let schema = TableSchema::new(columns, &roles).unwrap();
        let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
        let x: ArrayRef = Arc::new(Float64Array::from_iter_values((0..ROWS).map(|n| n as f64)));
        let rows = RecordBatch::try_new(Arc::clone(schema.columns()), vec![n, x]).unwrap();
        let table = Table::create(Arc::new(MemoryStore::new()), "refined", schema).await.unwrap();
        table.begin("a", 1, 1).await.unwrap();
        table.append(BlockId { run: "a".into(), attempt: 1, step: 0, rank: 0 }, &rows).await.unwrap();
        Readable::One(table)
    }

    #[tokio::test]
    async fn a_quantile_that_there_is_not_is_refused_before_anything_is_read() {
        let (readable, query) = (readable().await, Query::default());
        for share in [0.0, 1.0, -0.5, f64::NAN] {
            let request = EstimateRequest::new(Subject::Quantile(Column::named("x"), share));
            let refused = readable.plan(&query, &request).await.err().unwrap();
            assert!(matches!(refused, TableError::Estimate(EstimateError::Share { .. })), "{refused}");
            let refused = readable.refine_estimate(&query, &request).await.unwrap_err();
            assert!(matches!(refused, TableError::Estimate(EstimateError::Share { .. })), "{refused}");
        }
    }

    #[tokio::test]
    async fn looks_at_very_many_rows_lie_far_apart_and_batches_stay_as_small_as_they_were() {
        let request = EstimateRequest::new(Subject::Mean(Column::named("x")));
        let mut estimates = readable().await.refine_estimate(&Query::default(), &request).await.unwrap();
        estimates.each_rows_max = 2_000;
        let (mut batches, mut longest, mut looks, mut looked_at) = (0, 0, 0, 0);
        loop {
            // As large as a batch becomes at most; nobody who reads asks for it.
            estimates.refining.want(500);
            let before = estimates.looked.as_ref().map(|(rows, _)| *rows);
            let Some((refined, estimate)) = estimates.next().await.unwrap() else { break };
            (batches, longest) = (batches + 1, longest.max(refined.rows.num_rows()));
            let (rows, last) = estimates.looked.clone().unwrap();
            assert_eq!(estimate, last);
            if before != Some(rows) {
                (looks, looked_at) = (looks + 1, looked_at + rows);
            }
            assert!(estimates.values.len() - rows <= rows / GROWTH_MIN, "of {rows} rows alone");
            assert!(!refined.is_last || estimate.method == Method::Exact, "{estimate:?}");
        }
        assert!(longest <= 1_000 && batches >= 40, "{batches} batches, of up to {longest} rows");
        assert!(looks < 30 && looked_at < 6 * ROWS, "{looks} looks, at {looked_at} rows");
        assert_eq!(estimates.values.len(), ROWS);
    }
}

//! Estimates that improve while a query is read on: one for each batch of its refinement.
//!
//! Each look covers all rows so far, so the distance between looks grows with their number, and a batch in
//! between repeats the last estimate. All looks together then read each value only a few times. Batches do
//! not grow in the same way, since they are held in memory, which is smaller than the table.
//!
//! Invariant: the intervals form a confidence sequence, so they hold at whichever batch the reader stops.

use super::planning::{Value, value_of};
use super::values::missing;
use super::{Doubt, Estimate, EstimateError, EstimateRequest, KnownPart, Quantity, Stopping, Subject, Units};
use crate::protocol::Version;
use crate::readable::Refining;
use crate::table::{BATCH_ROWS_MAX, Restarts};
use crate::{Cut, Query, Readable, Refined, TableError};

/// The next look comes when the rows have grown by one part in this many since the last.
const GROWTH_MIN: usize = 4;

/// Every batch is looked at until there are this many rows: so far a batch is at least a quarter of all
/// before it.
const EVERY_BATCH_ROWS_MAX: usize = GROWTH_MIN * BATCH_ROWS_MAX;

/// A query that is read batch by batch, with an estimate from all rows so far.
#[derive(Debug)]
pub struct RefinedEstimates {
    /// What was asked, of what, to ask it again.
    asked: Asked,
    refining: Refining,
    value: Value,
    quantity: Quantity,
    confidence: super::Confidence,
    units: Units,
    values: Vec<f64>,
    /// The answer, if it is known without reading.
    known: Option<Estimate>,
    /// The exact number of rows of a part, and whether each row belongs to it; 0 if none is known.
    counted_rows: u64,
    is_counted: Vec<bool>,
    /// The columns that were asked for, if others are read for the estimate as well.
    answered: Option<Vec<usize>>,
    /// Whether the caller chose the size of the next batch.
    is_size_chosen: bool,
    /// The last estimate, and the number of rows it rests on.
    looked: Option<(usize, Estimate)>,
    /// Of a total that rests on the share of what was read: what its weights have to be looked at for.
    weighing: Option<Weighing>,
    /// A batch whose weights were not looked at yet, as the call that read it was dropped or failed.
    unweighed: Option<(Refined, Estimate)>,
    every_batch_rows_max: usize,
}

/// A question, which may have to be asked again.
#[derive(Debug)]
struct Asked {
    of: Readable,
    query: Query,
    request: EstimateRequest,
    /// Whether the query is read in the version that was counted, which the caller did not choose.
    is_pinned: bool,
    /// Whether rows have been handed over.
    has_begun: bool,
    /// The rows that the caller wants in the next batch.
    wanted: Option<usize>,
    restarts: Restarts,
}

/// What was found out about the weights of a query's rows.
#[derive(Debug)]
struct Weighing {
    of: Readable,
    query: Query,
    /// The number of units when they were looked at.
    units: u64,
    is_uneven: bool,
}

impl Readable {
    /// Answers a query batch by batch, each with an estimate of the request's subject from all batches so
    /// far.
    ///
    /// The request's tolerance is ignored: the caller stops when an estimate is good enough. Bounds of values
    /// are refused. If a vacuum removes the version before the first batch, and the query names none, the
    /// answer is that of the version which is current then.
    ///
    /// # Errors
    /// As [`Readable::estimate`].
    pub async fn refine_estimate(
        &self,
        query: &Query,
        request: &EstimateRequest,
    ) -> Result<RefinedEstimates, TableError> {
        if request.bounds.is_some() {
            let place = "for an estimate that gets better batch by batch";
            let hint = "leave out the bounds, or take the estimate from a sample";
            return Err(EstimateError::BoundsUnused { place, hint }.into());
        }
        self.begin_estimates(query, request).await
    }

    /// Counts what is known of a query, and reads nothing of it yet.
    async fn begin_estimates(
        &self,
        query: &Query,
        request: &EstimateRequest,
    ) -> Result<RefinedEstimates, TableError> {
        let mut asked = Asked {
            of: self.clone(),
            query: query.clone(),
            request: request.clone(),
            is_pinned: false,
            has_begun: false,
            wanted: None,
            restarts: Restarts::default(),
        };
        let mut query = query.clone();
        let value = value_of(&self.first_now().await?, &request.subject)?;
        let mut rows = request.rows;
        let is_total = matches!(request.subject, Subject::Sum(_) | Subject::Count);
        if is_total && rows.is_none() {
            rows = self.count_known(&mut query).await?;
            asked.is_pinned = asked.query.as_of.is_none() && query.as_of.is_some();
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
        let refining = self.refine(&query);
        let is_open_total = is_total && rows.is_none();
        let after = query.window.after();
        let weighing =
            is_open_total.then(|| Weighing { of: self.clone(), query, units: 0, is_uneven: false });
        // A number of rows that was counted needs no estimate.
        let is_count = request.subject == Subject::Count && request.rows.is_none();
        let known = rows.filter(|_| is_count).map(|rows| Estimate::known(rows as f64));
        Ok(RefinedEstimates {
            asked,
            refining: if is_open_total { refining.telling_contained() } else { refining },
            value,
            quantity: request.subject.quantity(rows),
            confidence: request.confidence.stopping(Stopping::ANYTIME),
            units: Units::none_after(after),
            values: Vec::new(),
            known,
            counted_rows: 0,
            is_counted: Vec::new(),
            answered,
            is_size_chosen: false,
            looked: None,
            weighing,
            unweighed: None,
            every_batch_rows_max: EVERY_BATCH_ROWS_MAX,
        })
    }

    /// The number of rows of a query, if the version knows it. The query is pinned to the version that was
    /// counted.
    async fn count_known(&self, query: &mut Query) -> Result<Option<u64>, TableError> {
        if query.filter.is_none() && query.runs.is_none() {
            return Ok(self.count_all_if_known(query).await?.rows);
        }
        let Some(count) = self.count_beside(query, 0).await? else { return Ok(None) };
        if count.rows.is_some() {
            query.as_of = Some(count.version);
        }
        Ok(count.rows)
    }
}

impl RefinedEstimates {
    /// Asks for at least `rows` rows in the next batch, instead of about twice those of the last, and for a
    /// fresh estimate with it.
    pub fn want(&mut self, rows: usize) {
        self.is_size_chosen = true;
        self.asked.wanted = Some(rows);
        self.refining.want(rows);
    }

    /// The next batch, and the estimate from all rows so far; `None` after the last batch.
    ///
    /// Beyond a million rows, an estimate is made when the rows have grown by a quarter, with the last batch,
    /// and where the caller asked for rows. Batches in between repeat the one before, whose interval still
    /// holds.
    ///
    /// # Errors
    /// As [`crate::Refinement::next`].
    pub async fn next(&mut self) -> Result<Option<(Refined, Estimate)>, TableError> {
        if self.unweighed.is_none() {
            let Some(refined) = self.next_batch().await? else { return Ok(None) };
            (self.asked.has_begun, self.asked.wanted) = (true, None);
            self.unweighed = Some(self.take(refined)?);
        }
        let Some((refined, estimate)) = &self.unweighed else { return Ok(None) };
        let share = self.units.share();
        let is_uneven = match &mut self.weighing {
            Some(weighing) => weighing.is_uneven(refined.version, estimate, share).await?,
            None => false,
        };
        let doubted =
            |estimate: Estimate| if is_uneven { estimate.doubted(Doubt::UnevenWeights) } else { estimate };
        Ok(self.unweighed.take().map(|(refined, estimate)| (refined, doubted(estimate))))
    }

    /// The next batch. If the version that was counted is gone before the first one, all begins anew, on the
    /// version that is current by then.
    async fn next_batch(&mut self) -> Result<Option<Refined>, TableError> {
        loop {
            let error = match self.refining.next().await {
                Ok(refined) => return Ok(refined),
                Err(error) => error,
            };
            let Asked { is_pinned, has_begun, restarts, .. } = &mut self.asked;
            if !error.is_version_gone() || !*is_pinned || *has_begun || !restarts.take() {
                return Err(error);
            }
            let Asked { of, query, request, .. } = &self.asked;
            let mut anew = of.begin_estimates(query, request).await?;
            if let Some(rows) = self.asked.wanted {
                anew.want(rows);
            }
            anew.asked.restarts = std::mem::take(&mut self.asked.restarts);
            *self = anew;
        }
    }

    /// Takes over the rows of a batch, and makes an estimate from all rows so far.
    fn take(&mut self, mut refined: Refined) -> Result<(Refined, Estimate), TableError> {
        // A limit of rows may have let some in beyond the cut; only below it all are known.
        let known = refined.cut.prefix(&refined.weights);
        self.values.extend(self.value.of_rows(&refined.rows.slice(0, known))?);
        self.units.extend(&refined.weights[..known], refined.cut)?;
        self.units.leave_out(refined.weights.len() - known);
        if let Some(contained) = self.refining.contained() {
            self.counted_rows = contained.total;
            self.is_counted.extend_from_slice(contained.of_rows.get(..known).unwrap_or_default());
        }
        if refined.is_last && refined.cut == Cut::ALL {
            self.units.complete();
        }
        let estimate = self.look(refined.is_last)?;
        if let Some(answered) = &self.answered {
            let projected = refined.rows.project(answered);
            refined.rows = projected.map_err(super::table_groups::of_answer)?;
        }
        Ok((refined, estimate))
    }

    /// The estimate from all rows so far, or the one before if too few rows came since.
    fn look(&mut self, is_last: bool) -> Result<Estimate, TableError> {
        if let Some(known) = &self.known {
            return Ok(known.clone());
        }
        let rows = self.values.len();
        let is_near =
            |looked: &usize| rows > self.every_batch_rows_max && rows - looked < looked / GROWTH_MIN;
        if let Some((_, estimate)) = self.looked.as_ref().filter(|(looked, _)| is_near(looked))
            && !is_last
            && !self.is_size_chosen
        {
            return Ok(estimate.clone());
        }
        let (units, values, confidence) = (&self.units, &self.values, &self.confidence);
        let known = KnownPart { rows: self.counted_rows, of_rows: &self.is_counted };
        let estimate = self.quantity.estimate_beside(known, units, values, confidence)?;
        let estimate = estimate.without(missing(&self.values));
        self.looked = Some((rows, estimate.clone()));
        self.is_size_chosen = false;
        Ok(estimate)
    }
}

impl Weighing {
    /// Whether the weights are uneven, as of the version that is read. It is asked again only if there are
    /// more units, and what was uneven remains so.
    async fn is_uneven(
        &mut self,
        version: Version,
        estimate: &Estimate,
        share: f64,
    ) -> Result<bool, TableError> {
        if estimate.is_exact() || !estimate.is_valid() {
            return Ok(false);
        }
        if !self.is_uneven && estimate.units != self.units {
            let query = self.query.clone().as_of(version);
            let (is_uneven, _) = self.of.has_uneven_weights(&query, estimate.units, share).await?;
            (self.units, self.is_uneven) = (estimate.units, is_uneven);
        }
        Ok(self.is_uneven)
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
        estimates.every_batch_rows_max = 2_000;
        let (mut batches, mut longest, mut looks, mut looked_at) = (0, 0, 0, 0);
        loop {
            // As large as a batch becomes at most; the caller does not ask for a size.
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

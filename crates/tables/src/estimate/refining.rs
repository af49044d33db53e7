//! Estimates that get better while a query is read on: one for each batch of its refinement.
//!
//! Invariant: the intervals are those of a confidence sequence, so that they hold at whichever batch one stops.

use super::of_table::{Value, value_of};
use super::{Estimate, EstimateError, EstimateRequest, Quantity, Stopping, Subject, Units};
use crate::readable::Refining;
use crate::{Cut, Query, Readable, Refined, TableError};

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
}

impl Readable {
    /// The answer to a query batch by batch, each with an estimate of the request's subject from all batches so far.
    ///
    /// The request's tolerance is not looked at: whoever reads stops when it is good enough. Bounds of values are refused.
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
        })
    }
}

impl RefinedEstimates {
    /// Asks for at least so many rows in the next batch.
    pub fn want(&mut self, rows: usize) {
        self.refining.want(rows);
    }

    /// The next batch, and the estimate from all that came; none after the last.
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
        let estimate = self.quantity.estimate(&self.units, &self.values, &self.confidence)?;
        if let Some(answered) = &self.answered {
            let projected = refined.rows.project(answered);
            refined.rows = projected.map_err(super::several::of_answer)?;
        }
        Ok(Some((refined, estimate)))
    }
}

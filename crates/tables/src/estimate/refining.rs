//! Estimates that get better while a query is read on: one for each batch of its refinement.
//!
//! Each looks at all that came so far, so batches grow with that: all looks together see a few times as many values as there
//! are, however many that is.
//!
//! Invariant: the intervals are those of a confidence sequence, so that they hold at whichever batch one stops.

use super::of_table::{Value, value_of};
use super::{Estimate, EstimateError, EstimateRequest, Quantity, Stopping, Subject, Units};
use crate::readable::Refining;
use crate::table::BATCH_ROWS_MAX;
use crate::{Cut, Query, Readable, Refined, TableError};

/// Which part of what came so far the next batch is at least.
const GROWTH_MIN: usize = 4;

/// How many rows to ask for after so many; none where a batch brings as many anyway.
fn rows_wanted(rows: usize) -> Option<usize> {
    Some(rows / GROWTH_MIN).filter(|wanted| *wanted > BATCH_ROWS_MAX)
}

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
            is_told: false,
        })
    }
}

impl RefinedEstimates {
    /// Asks for at least so many rows in the next batch, in place of about twice those of the last, or a quarter of all
    /// before it, which is more from a million rows on.
    pub fn want(&mut self, rows: usize) {
        self.is_told = true;
        self.refining.want(rows);
    }

    /// The next batch, and the estimate from all that came; none after the last.
    ///
    /// # Errors
    /// As [`crate::Refinement::next`].
    pub async fn next(&mut self) -> Result<Option<(Refined, Estimate)>, TableError> {
        if let Some(rows) = rows_wanted(self.values.len()).filter(|_| !self.is_told) {
            self.refining.want(rows);
        }
        let Some(mut refined) = self.refining.next().await? else { return Ok(None) };
        self.is_told = false;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_of_very_many_rows_look_at_each_a_few_times() {
        let (mut rows, mut batch, mut looked_at, mut looks) = (0_usize, 1000, 0_usize, 0);
        while rows < 1 << 32 {
            rows += rows_wanted(rows).unwrap_or(batch);
            batch = (batch * 2).min(BATCH_ROWS_MAX);
            (looked_at, looks) = (looked_at + rows, looks + 1);
        }
        assert!(looked_at < 6 * rows, "{looked_at} values of {rows} rows");
        assert!(looks < 60, "{looks}");
        assert_eq!(rows_wanted(1 << 20), None, "as many come anyway");
    }
}

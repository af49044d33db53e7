//! Reading a table until estimates are narrow enough: one of them, or several from the same batches.
//!
//! Invariant: each estimate looks exactly when it planned to, whatever others read along with it: a batch
//! ends where the first of them wants to look, and a [`Reading`] does not look before its own time.

use super::planning::{Plan, together};
use super::{Estimate, EstimateRequest, Estimated, KnownPart, Reading, Step, Within};
use crate::protocol::Version;
use crate::table::ContainedRows;
use crate::{Cut, Query, Readable, Refined, TableError, Work};

/// An estimate that is being narrowed.
pub(super) struct Narrowing {
    plan: Plan,
    reading: Reading,
    /// The answer, once it is narrow enough.
    found: Option<Estimate>,
    /// The number of rows to read before the next look.
    wanted: u64,
    rows_read: u64,
    /// Rows below the cut that have no value.
    missing: u64,
    work: Work,
    version: Option<Version>,
}

impl Narrowing {
    /// An estimate for which nothing has been read yet.
    pub(super) fn new(plan: Plan, request: &EstimateRequest, within: Within) -> Result<Self, TableError> {
        let (after, work) = (plan.query.window.after(), plan.work);
        let Within { tolerance, rows_max } = within;
        let reading = Reading::new(plan.quantity, request.confidence, tolerance, rows_max, after)?;
        Ok(Self { plan, reading, found: None, wanted: 1, rows_read: 0, missing: 0, work, version: None })
    }

    /// Takes the next batch, and which of its rows lie in parts whose number of rows is known.
    fn push(&mut self, refined: &Refined, contained: Option<&ContainedRows>) -> Result<(), TableError> {
        self.rows_read += refined.rows.num_rows() as u64;
        (self.work, self.version) = (together(self.plan.work, refined.work), Some(refined.version));
        // A limit of rows may have let in some beyond the cut; only below it all are known.
        let known = refined.cut.prefix(&refined.weights);
        self.reading.leave_out(refined.weights.len() - known);
        let (values, missing) = self.plan.values(&refined.rows.slice(0, known))?;
        self.missing += missing;
        let is_all = refined.is_last && refined.cut == Cut::ALL;
        let contained = contained.filter(|_| self.plan.is_open_total);
        let part = contained.map(|contained| KnownPart {
            rows: contained.total,
            of_rows: contained.of_rows.get(..known).unwrap_or_default(),
        });
        match self.reading.push_beside(part, &refined.weights[..known], &values, refined.cut, is_all)? {
            Step::GoOn { rows } => self.wanted = rows,
            Step::Stop(estimate) => self.found = Some(estimate),
        }
        Ok(())
    }

    /// The answer: the one found, or an estimate from all that was read.
    pub(super) async fn estimated(self, of: &Readable) -> Result<Estimated, TableError> {
        let share = self.reading.share();
        let estimate = match self.found {
            Some(estimate) => estimate,
            None => self.reading.end()?,
        };
        let version = match self.version {
            Some(version) => version,
            None => of.version().await?,
        };
        let estimate = estimate.without(self.missing);
        let found = Estimated { estimate, version, rows_read: self.rows_read, work: self.work };
        if self.plan.is_open_total {
            return of.doubting_uneven_weights(&self.plan.query, share, found).await;
        }
        Ok(found)
    }
}

impl Readable {
    /// Reads a query until all estimates are narrow enough.
    pub(super) async fn narrow(&self, query: &Query, all: &mut [Narrowing]) -> Result<(), TableError> {
        let mut refinement = self.refine(query);
        if all.iter().any(|one| one.plan.is_open_total) {
            refinement = refinement.telling_contained();
        }
        loop {
            let open = || all.iter().filter(|one| one.found.is_none());
            let Some(wanted) = open().map(|one| one.wanted).min() else { return Ok(()) };
            // The first batch keeps its default length.
            if open().any(|one| one.version.is_some()) {
                refinement.want(usize::try_from(wanted).unwrap_or(usize::MAX));
            }
            let Some(refined) = refinement.next().await? else { return Ok(()) };
            for one in all.iter_mut().filter(|one| one.found.is_none()) {
                one.push(&refined, refinement.contained())?;
            }
        }
    }
}

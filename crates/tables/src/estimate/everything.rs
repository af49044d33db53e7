//! Numbers of everything: rows are folded as they are read, in any order, so that memory does not grow with
//! the table.
//!
//! Where nothing is left out an answer is exact, and does not depend on the order of weights. Memory grows in
//! three cases only. A quantile keeps one number for each row. A table with a sample key keeps one for each
//! unit, to count them. Means of groups keep one for each unit of each group, which is as many as there are
//! rows where a unit has one row in each group.
//!
//! Invariant: a value equals what the estimators make of the same rows, but that sums and means of whole
//! numbers do not round each of them; deviations differ in their last digits.

mod groups_and_bins;

use super::planning::{Plan, together};
use super::{Estimate, EstimateError, Estimated, Quantity, mean, quantile, ratio};
use crate::protocol::Version;
use crate::weight::weights;
use crate::{Cut, Query, Readable, Salt, TableError, TableSchema, Weight, Work};
use arrow_array::RecordBatch;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Whether a query leaves nothing out, so that a number of its rows is exact.
pub(super) fn is_everything(query: &Query) -> bool {
    let window = query.window;
    !query.is_cut_short() && window.after() == Cut::NOTHING && window.until() == Cut::ALL
}

/// What a fold has read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) version: Version,
    pub(super) rows: u64,
    pub(super) work: Work,
}

impl Readable {
    /// Reads all rows of a query and passes each batch to `take`, with the weights of its rows; without
    /// weights where each row is a unit by itself.
    pub(super) async fn fold(
        &self,
        query: &Query,
        mut take: impl FnMut(&RecordBatch, Option<&[Weight]>) -> Result<(), TableError> + Send,
    ) -> Result<Read, TableError> {
        let key = Key::of(&self.schema());
        let mut scanning = self.batches(&key.read_with(query));
        let mut rows = 0;
        while let Some(batch) = scanning.next().await? {
            rows += batch.num_rows() as u64;
            let weights = key.weights(&batch)?;
            take(&batch, weights.as_deref())?;
        }
        let version = match scanning.version() {
            Some(version) => version,
            None => self.version().await?,
        };
        Ok(Read { version, rows, work: Work { rows_returned: rows, ..scanning.work() } })
    }
}

/// The sample key, where units may have several rows.
struct Key {
    names: Vec<String>,
    salt: Salt,
}

impl Key {
    fn of(schema: &TableSchema) -> Self {
        let name = |&place: &usize| schema.columns().field(place).name().clone();
        let key: &[usize] = if schema.samples_entities() { schema.sample_key() } else { &[] };
        Self { names: key.iter().map(name).collect(), salt: Salt(schema.salt()) }
    }

    /// The query, extended by the columns of the key.
    fn read_with(&self, query: &Query) -> Query {
        let mut query = query.clone();
        if let Some(columns) = &mut query.columns {
            for name in &self.names {
                if !columns.contains(name) {
                    columns.push(name.clone());
                }
            }
        }
        query
    }

    fn weights(&self, rows: &RecordBatch) -> Result<Option<Vec<Weight>>, TableError> {
        if self.names.is_empty() {
            return Ok(None);
        }
        let key: Vec<_> =
            self.names.iter().filter_map(|name| rows.column_by_name(name)).map(Arc::clone).collect();
        weights(&key, self.salt).map(Some).map_err(super::table_groups::of_answer)
    }
}

/// Weights that were seen. They are hashes already and are not hashed again.
type Weights = HashSet<Weight, BuildHasherDefault<AsItIs>>;

#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |number, byte| (number << 8) | u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The units that contributed: rows, or the distinct weights of a table with a sample key.
#[derive(Default)]
struct UnitsSeen {
    rows: u64,
    weights: Option<Weights>,
}

impl UnitsSeen {
    /// Counts a row that contributes, with its weight where a unit may have several rows.
    fn take(&mut self, weight: Option<Weight>) {
        self.rows += 1;
        if let Some(weight) = weight {
            self.weights.get_or_insert_default().insert(weight);
        }
    }

    fn count(&self) -> u64 {
        self.weights.as_ref().map_or(self.rows, |weights| weights.len() as u64)
    }
}

/// Count, sum and spread of some numbers.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: u64,
    total: ratio::Total,
    mean: f64,
    /// The sum of the squares of the distances from the mean (B. P. Welford, "Note on a method for
    /// calculating corrected sums of squares and products", Technometrics 4, 1962).
    squares: f64,
}

impl Moments {
    fn take(&mut self, number: f64) {
        self.count += 1;
        self.total.add(number);
        let before = number - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (number - self.mean);
    }

    /// Differs from the mean that the squares refer to, which rounding moves a little with every number.
    fn mean(&self) -> f64 {
        self.total.sum() / self.count as f64
    }

    fn deviation(&self) -> f64 {
        (self.squares / (self.count as f64 - 1.0).max(1.0)).sqrt()
    }
}

/// One number of everything, over the rows folded so far.
pub(super) struct Folding {
    plan: Plan,
    moments: Moments,
    /// The sum of the values, if they are whole numbers. Those beyond 2^53 are no doubles.
    whole: Option<i128>,
    /// Rows that satisfy a condition.
    holding: u64,
    /// The values, for a quantile.
    values: Vec<f64>,
    /// Rows without a value.
    missing: u64,
    units: UnitsSeen,
}

impl Folding {
    pub(super) fn new(plan: Plan) -> Self {
        let (moments, units) = (Moments::default(), UnitsSeen::default());
        Self { plan, moments, whole: None, holding: 0, values: Vec::new(), missing: 0, units }
    }

    pub(super) fn take(&mut self, rows: &RecordBatch, weights: Option<&[Weight]>) -> Result<(), TableError> {
        let quantity = self.plan.quantity;
        let (values, missing) = self.plan.values(rows)?;
        self.missing += missing;
        if matches!(quantity, Quantity::Mean | Quantity::Sum { .. })
            && let Some(more) = self.plan.whole_sum(rows, &values)
        {
            self.whole = Some(self.whole.unwrap_or(0).saturating_add(more));
        }
        for (row, value) in values.into_iter().enumerate() {
            let is_value = !value.is_nan();
            let has_say = match quantity {
                Quantity::Mean | Quantity::Quantile { .. } => is_value,
                Quantity::Count { .. } => value == 1.0,
                Quantity::Sum { .. } | Quantity::Share => true,
            };
            match quantity {
                Quantity::Mean | Quantity::Sum { .. } if is_value => self.moments.take(value),
                Quantity::Quantile { .. } if is_value => self.values.push(value),
                Quantity::Count { .. } | Quantity::Share => self.holding += u64::from(value == 1.0),
                _ => {}
            }
            if has_say {
                self.units.take(weights.map(|weights| weights[row]));
            }
        }
        Ok(())
    }

    pub(super) fn estimated(self, read: &Read) -> Result<Estimated, TableError> {
        let work = together(self.plan.work, read.work);
        Ok(Estimated {
            estimate: self.estimate(read.rows)?,
            version: read.version,
            rows_read: read.rows,
            work,
        })
    }

    fn estimate(mut self, rows: u64) -> Result<Estimate, EstimateError> {
        let (moments, holding) = (&self.moments, self.holding as f64);
        let sum = self.whole.map_or_else(|| moments.total.sum(), |whole| whole as f64);
        let (value, deviation) = match self.plan.quantity {
            Quantity::Mean => (sum / moments.count as f64, moments.deviation()),
            Quantity::Sum { .. } => (sum, moments.deviation() * rows as f64),
            Quantity::Count { .. } => (holding, holding.sqrt()),
            Quantity::Share => of_share(holding, rows),
            Quantity::Quantile { share } => {
                let deviation = mean::deviation_of(self.values.iter().copied());
                (quantile::of_values(std::mem::take(&mut self.values), share)?, deviation)
            }
        };
        Ok(Estimate::of_everything(value, deviation, self.units.count(), rows).without(self.missing))
    }
}

/// The share of `holding` among `rows` rows, and its deviation.
fn of_share(holding: f64, rows: u64) -> (f64, f64) {
    let share = holding / rows as f64;
    (share, (share * (1.0 - share)).max(0.0).sqrt())
}

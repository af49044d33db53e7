//! Origins: the run and the step in which each row was written, kept beside its columns.
//!
//! An object may have rows of thousands of runs, in thousands of bands. All of them share one list of names,
//! which is resolved once for all.

use crate::lattice::Numbers;
use crate::protocol::RunId;
use crate::room::{give_back, room};
use arrow_array::{Array, ArrayRef};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows whose steps are compared at a time.
const ROWS_AT_ONCE: usize = 1 << 12;

/// The runs and steps of some rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// Names of runs; some may occur in no row.
    names: Arc<[RunId]>,
    /// Places in `names`, one for each row.
    runs: Vec<u32>,
    steps: Vec<u64>,
}

impl Origins {
    /// The origins of rows that were all written in one run and step.
    #[must_use]
    pub fn of_block(run: RunId, step: u64, rows: usize) -> Self {
        Self { names: [run].into(), runs: vec![0; rows], steps: vec![step; rows] }
    }

    /// The origins of rows given by the place of each row's run among `names` and its step. `None` if a place
    /// is out of range, or if the lengths differ.
    #[must_use]
    pub fn new(names: impl Into<Arc<[RunId]>>, runs: Vec<u32>, steps: Vec<u64>) -> Option<Self> {
        let names = names.into();
        let fits = runs.len() == steps.len() && runs.iter().all(|&run| (run as usize) < names.len());
        fits.then_some(Self { names, runs, steps })
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.steps.len()
    }

    /// The runs that may occur.
    #[must_use]
    pub const fn names(&self) -> &Arc<[RunId]> {
        &self.names
    }

    /// The run of a row.
    #[must_use]
    pub fn run(&self, row: usize) -> Option<&RunId> {
        self.names.get(*self.runs.get(row)? as usize)
    }

    /// The places among [`Origins::names`], one for each row.
    #[must_use]
    pub fn runs(&self) -> &[u32] {
        &self.runs
    }

    /// The steps, one for each row.
    #[must_use]
    pub fn steps(&self) -> &[u64] {
        &self.steps
    }

    /// The origins of the rows at these places.
    #[must_use]
    pub fn taken(&self, rows: &[u32]) -> Self {
        let runs = rows.iter().map(|&row| self.runs[row as usize]).collect();
        let steps = rows.iter().map(|&row| self.steps[row as usize]).collect();
        Self { names: Arc::clone(&self.names), runs, steps }
    }

    /// The origins of a range of rows.
    #[must_use]
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        let (runs, steps) = (self.runs[rows.clone()].to_vec(), self.steps[rows].to_vec());
        Self { names: Arc::clone(&self.names), runs, steps }
    }
}

/// Origins that grow part by part.
#[derive(Debug, Default)]
pub(crate) struct GrowingOrigins {
    /// Everything but the names.
    grown: Origins,
    names: Vec<RunId>,
    /// The place of each name.
    places: HashMap<RunId, u32>,
    /// The names of the last part and their places: the next rows mostly belong to the same part.
    last: Option<(Arc<[RunId]>, Vec<u32>)>,
}

impl GrowingOrigins {
    /// Origins of no rows, with room for `rows` of them.
    pub(crate) fn with_room(rows: usize) -> Self {
        let grown = Origins { names: Arc::default(), runs: room(rows), steps: room(rows) };
        Self { grown, ..Self::default() }
    }

    /// Appends `rows` rows of one run and one step.
    pub(crate) fn append_alike(&mut self, run: &RunId, step: u64, rows: usize) {
        let place = self.place_of(run);
        self.grown.runs.extend(std::iter::repeat_n(place, rows));
        self.grown.steps.extend(std::iter::repeat_n(step, rows));
    }

    /// Appends the origins of other rows.
    pub(crate) fn append(&mut self, others: &Origins) {
        let last = self.last.take().filter(|(names, _)| Arc::ptr_eq(names, &others.names));
        let (names, places) = last.unwrap_or_else(|| {
            let places = others.names.iter().map(|name| self.place_of(name)).collect();
            (Arc::clone(&others.names), places)
        });
        self.grown.runs.extend(others.runs.iter().map(|&run| places[run as usize]));
        self.grown.steps.extend_from_slice(&others.steps);
        self.last = Some((names, places));
    }

    /// Takes the steps of some rows from a column. Returns whether the column holds steps.
    pub(crate) fn set_steps(&mut self, rows: std::ops::Range<usize>, column: &ArrayRef) -> bool {
        let found = steps_of(&column.slice(rows.start, rows.len()));
        let steps = found.zip(self.grown.steps.get_mut(rows));
        steps.is_some_and(|(found, steps)| {
            steps.copy_from_slice(&found);
            true
        })
    }

    /// The origins of all rows.
    pub(crate) fn finish(mut self) -> Origins {
        self.grown.names = self.names.into();
        self.grown
    }

    /// The place of a run among the names; a new name is appended.
    fn place_of(&mut self, name: &RunId) -> u32 {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let place = self.names.len() as u32;
        self.names.push(name.clone());
        self.places.insert(name.clone(), place);
        place
    }
}

impl Drop for Origins {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.runs));
        give_back(std::mem::take(&mut self.steps));
    }
}

/// Whether a column of integers equals these steps.
pub(super) fn says_steps(column: &ArrayRef, steps: &[u64]) -> bool {
    if column.null_count() > 0 || !column.data_type().is_integer() || column.len() != steps.len() {
        return false;
    }
    // Most columns differ in their first rows already.
    let said = |from: usize| {
        let rows = ROWS_AT_ONCE.min(column.len() - from);
        let steps = &steps[from..from + rows];
        match Numbers::of(&column.slice(from, rows)) {
            Some(Numbers::Signed(values)) => {
                let pairs = values.iter().zip(steps);
                pairs.fold(true, |alike, (&value, &step)| alike & (value as u64 == step) & (value >= 0))
            }
            Some(Numbers::Unsigned(values)) => values[..] == *steps,
            _ => false,
        }
    };
    (0..column.len()).step_by(ROWS_AT_ONCE).all(said)
}

/// The least and the greatest step in a column of steps; `None` if it has no rows.
pub(super) fn ends_of(column: &ArrayRef) -> Option<(u64, u64)> {
    let ends = match Numbers::of(column)? {
        Numbers::Signed(values) => {
            let step = |value: Option<&i64>| u64::try_from(*value?).ok();
            (step(values.iter().min()), step(values.iter().max()))
        }
        Numbers::Unsigned(values) => (values.iter().min().copied(), values.iter().max().copied()),
        Numbers::Float(_) => (None, None),
    };
    ends.0.zip(ends.1)
}

/// The values of a column of integers as steps, if all of them can be steps.
pub(super) fn steps_of(column: &ArrayRef) -> Option<Vec<u64>> {
    if column.null_count() > 0 {
        return None;
    }
    match Numbers::of(column)? {
        Numbers::Signed(values) if column.data_type().is_integer() => {
            values.iter().map(|&value| u64::try_from(value).ok()).collect()
        }
        Numbers::Unsigned(values) => Some(values.to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int16Array, Int64Array, UInt64Array};

    fn names(runs: std::ops::Range<u32>) -> Arc<[RunId]> {
        runs.map(|run| RunId::from(format!("run {run}").as_str())).collect()
    }

    #[test]
    fn what_grew_names_the_run_and_the_step_of_each_row() {
        let mut growing = GrowingOrigins::with_room(10);
        let (first, second) = (names(0..3), names(2..5));
        growing.append(&Origins::new(Arc::clone(&first), vec![2, 0], vec![5, 6]).unwrap());
        growing.append_alike(&second[2], 7, 1);
        growing.append(&Origins::new(Arc::clone(&second), vec![0, 1], vec![8, 9]).unwrap());
        growing.append(&Origins::new(second, vec![2], vec![10]).unwrap());
        growing.append(&Origins::new(first, vec![1], vec![11]).unwrap());
        let grown = growing.finish();
        let runs: Vec<String> = (0..grown.rows()).map(|row| grown.run(row).unwrap().0.to_string()).collect();
        assert_eq!(runs, ["run 2", "run 0", "run 4", "run 2", "run 3", "run 4", "run 1"]);
        assert_eq!(grown.steps(), [5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(grown.names().len(), 5);
    }

    #[test]
    fn what_grows_by_many_bands_of_parts_of_many_runs_does_not_look_at_each_run_for_each_band() {
        // Hours, if each append looked at all names.
        const RUNS: u32 = 50_000;
        let mut growing = GrowingOrigins::default();
        let parts = [names(0..RUNS), names(RUNS / 2..RUNS / 2 + RUNS)];
        for names in &parts {
            for band in 0..RUNS {
                let of_band = Origins::new(Arc::clone(names), vec![band], vec![band.into()]).unwrap();
                growing.append(&of_band.taken(&[0]));
            }
        }
        let grown = growing.finish();
        assert_eq!(grown.names().len(), RUNS as usize * 3 / 2);
        let last = (2 * RUNS - 1) as usize;
        assert_eq!(grown.run(last), parts[1].last());
    }

    #[test]
    fn a_column_says_steps_if_its_numbers_are_those() {
        let says = |column: ArrayRef, steps: &[u64]| says_steps(&column, steps);
        assert!(says(Arc::new(Int16Array::from(vec![3, 0, 7])), &[3, 0, 7]));
        assert!(!says(Arc::new(Int16Array::from(vec![3, 0, 7])), &[3, 1, 7]));
        assert!(!says(Arc::new(Int64Array::from(vec![3, -1])), &[3, u64::MAX]), "no step is negative");
        assert!(says(Arc::new(UInt64Array::from(vec![3, u64::MAX])), &[3, u64::MAX]));
        assert!(!says(Arc::new(Float64Array::from(vec![3.0])), &[3]));
        assert!(!says(Arc::new(Int64Array::from(vec![Some(3), None])), &[3, 0]));
        let long: Vec<i64> = (0..2 * ROWS_AT_ONCE as i64 + 1).collect();
        let mut steps: Vec<u64> = (0..long.len() as u64).collect();
        let long: ArrayRef = Arc::new(Int64Array::from(long));
        assert!(says_steps(&long, &steps));
        steps[2 * ROWS_AT_ONCE] += 1;
        assert!(!says_steps(&long, &steps));
    }

    #[test]
    fn the_ends_of_a_column_are_its_least_and_greatest_step() {
        assert_eq!(ends_of(&(Arc::new(Int16Array::from(vec![3, 0, 7])) as ArrayRef)), Some((0, 7)));
        assert_eq!(
            ends_of(&(Arc::new(UInt64Array::from(vec![u64::MAX])) as ArrayRef)),
            Some((u64::MAX, u64::MAX))
        );
        assert_eq!(ends_of(&(Arc::new(Int64Array::from(vec![3, -1])) as ArrayRef)), None);
        assert_eq!(ends_of(&(Arc::new(Int64Array::from(Vec::<i64>::new())) as ArrayRef)), None);
    }
}

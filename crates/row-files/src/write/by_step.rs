//! Rows in the order of their steps, whatever the order in which they come and however many there are.
//!
//! Rows are held up to a limit, sorted, and put into a scratch file; the files are merged at the end, and
//! many files of one size into a larger one before.
//!
//! Invariant: rows of one step keep the order in which they came.

use super::scratch::{At, Scratch};
use crate::{RowFileError, bytes_of, rows_within};
use arrow_array::{RecordBatch, UInt32Array, downcast_integer_array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::sync::Arc;

/// How rows are held and merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The bytes of rows that are held before they are sorted into a file.
    pub(super) held_bytes: usize,
    /// The bytes of a batch in a file; two of each file are in memory while files are merged.
    pub(super) batch_bytes: usize,
    /// The number of files of one size that are merged into one.
    pub(super) fan: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { held_bytes: 16 << 20, batch_bytes: 256 << 10, fan: 32 }
    }
}

/// Takes rows in any order.
pub(super) struct StepSorter {
    schema: SchemaRef,
    /// The place of the column of the step, which is of an integer type.
    place: usize,
    scratch: Scratch,
    limits: Limits,
    held: Vec<RecordBatch>,
    held_bytes: usize,
    runs: Vec<Run>,
}

/// Sorted rows in a file.
struct Run {
    /// How often its rows were merged.
    level: u32,
    file: Arc<File>,
}

impl StepSorter {
    pub(super) fn new(schema: SchemaRef, place: usize, scratch: Scratch, limits: Limits) -> Self {
        Self { schema, place, scratch, limits, held: Vec::new(), held_bytes: 0, runs: Vec::new() }
    }

    /// Takes some rows.
    pub(super) fn push(&mut self, rows: &RecordBatch) -> Result<(), RowFileError> {
        let mut from = 0;
        while from < rows.num_rows() {
            let rest = rows.slice(from, rows.num_rows() - from);
            let some = rest.slice(0, rows_within(&rest, self.limits.held_bytes));
            from += some.num_rows();
            self.held_bytes += bytes_of(&some);
            self.held.push(some);
            if self.held_bytes >= self.limits.held_bytes {
                self.spill()?;
            }
        }
        Ok(())
    }

    /// All rows, for reading them in order.
    pub(super) fn finish(mut self) -> Result<ByStep, RowFileError> {
        let rest = self.take_sorted()?;
        Ok(ByStep { place: self.place, scratch: self.scratch, runs: self.runs, rest })
    }

    /// The rows that are held, sorted.
    fn take_sorted(&mut self) -> Result<Option<RecordBatch>, RowFileError> {
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        if held.is_empty() {
            return Ok(None);
        }
        let arrow = |error| self.scratch.arrow_failure(error);
        let whole = concat_batches(&self.schema, &held).map_err(arrow)?;
        drop(held);
        let mut order: Vec<(i128, u32)> = steps_of(&whole, self.place)?.into_iter().zip(0..).collect();
        order.sort_unstable();
        let order = UInt32Array::from_iter_values(order.into_iter().map(|(_, row)| row));
        take_record_batch(&whole, &order).map(Some).map_err(arrow)
    }

    /// Puts the rows that are held into a file, and merges files while there are many of one level.
    fn spill(&mut self) -> Result<(), RowFileError> {
        let mut sorted = self.take_sorted()?;
        let run = self.run_of(0, || Ok(sorted.take()))?;
        self.runs.push(run);
        while let Some(level) = self.full_level() {
            let from = self.runs.len() - self.limits.fan;
            let mut merge = Merge::of(&self.runs[from..], None, self.place, &self.scratch)?;
            let run = self.run_of(level + 1, || Ok(merge.next()?.map(|(_, rows)| rows)))?;
            self.runs.truncate(from);
            self.runs.push(run);
        }
        Ok(())
    }

    /// The level of the last files, if so many have it that they are merged. Only neighbours are: rows of one
    /// step in other files came before or after all of them.
    fn full_level(&self) -> Option<u32> {
        let level = self.runs.last()?.level;
        let alike = self.runs.iter().rev().take_while(|run| run.level == level).count();
        (alike >= self.limits.fan.max(2)).then_some(level)
    }

    /// Writes sorted rows into a file, in batches of the same size whatever the pieces in which they come.
    fn run_of(
        &self,
        level: u32,
        mut next: impl FnMut() -> Result<Option<RecordBatch>, RowFileError>,
    ) -> Result<Run, RowFileError> {
        let arrow = |error| self.scratch.arrow_failure(error);
        let target = BufWriter::with_capacity(256 << 10, self.scratch.file()?);
        let mut writer = StreamWriter::try_new(target, &self.schema).map_err(arrow)?;
        let (mut gathered, mut bytes) = (Vec::new(), 0);
        while let Some(rows) = next()? {
            bytes += bytes_of(&rows);
            gathered.push(rows);
            if bytes >= self.limits.batch_bytes {
                self.write_gathered(&mut writer, &mut gathered).map_err(arrow)?;
                bytes = 0;
            }
        }
        self.write_gathered(&mut writer, &mut gathered).map_err(arrow)?;
        let target = writer.into_inner().map_err(arrow)?;
        let file = target.into_inner().map_err(|error| self.scratch.failure(error.into_error()))?;
        Ok(Run { level, file: Arc::new(file) })
    }

    fn write_gathered(
        &self,
        writer: &mut StreamWriter<BufWriter<File>>,
        gathered: &mut Vec<RecordBatch>,
    ) -> Result<(), ArrowError> {
        let mut rest = concat_batches(&self.schema, gathered.iter())?;
        gathered.clear();
        while rest.num_rows() > 0 {
            let rows = rows_within(&rest, self.limits.batch_bytes);
            writer.write(&rest.slice(0, rows))?;
            rest = rest.slice(rows, rest.num_rows() - rows);
        }
        Ok(())
    }
}

/// The step of each row.
fn steps_of(rows: &RecordBatch, place: usize) -> Result<Vec<i128>, RowFileError> {
    let said = rows.column(place).as_ref();
    let steps: Option<Vec<i128>> = downcast_integer_array!(
        said => said.iter().map(|step| step.map(i128::from)).collect(),
        _ => None
    );
    steps.ok_or_else(|| RowFileError::Unsupported {
        what: "a row has no step, and a LAMMPS dump has no place for it".to_owned(),
        hint: "leave such rows out with --where 'step is not null'",
    })
}

/// Rows that can be read in the order of their steps, any number of times.
pub(super) struct ByStep {
    place: usize,
    scratch: Scratch,
    runs: Vec<Run>,
    /// The rows that came last, which no file holds.
    rest: Option<RecordBatch>,
}

impl ByStep {
    /// Reads all rows from the first step on.
    pub(super) fn read(&self) -> Result<Merge<'_>, RowFileError> {
        Merge::of(&self.runs, self.rest.clone(), self.place, &self.scratch)
    }
}

/// Rows in the order of their steps.
pub(super) struct Merge<'s> {
    sources: Vec<Source>,
    scratch: &'s Scratch,
}

/// The batches of one file, or the rows that came last.
type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

struct Source {
    batches: Batches,
    place: usize,
    rows: RecordBatch,
    /// The steps of these rows.
    steps: Vec<i128>,
    /// The first row that was not returned yet.
    from: usize,
}

impl<'s> Merge<'s> {
    fn of(
        runs: &[Run],
        rest: Option<RecordBatch>,
        place: usize,
        scratch: &'s Scratch,
    ) -> Result<Self, RowFileError> {
        let mut sources = Vec::with_capacity(runs.len() + 1);
        for run in runs {
            let bytes = BufReader::with_capacity(64 << 10, At::start(&run.file));
            let batches = StreamReader::try_new(bytes, None).map_err(|error| scratch.arrow_failure(error))?;
            sources.extend(Source::open(Box::new(batches), place, scratch)?);
        }
        if let Some(rest) = rest {
            sources.extend(Source::open(Box::new(std::iter::once(Ok(rest))), place, scratch)?);
        }
        Ok(Self { sources, scratch })
    }

    /// Some rows of the lowest step that is left, and that step; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<(i128, RecordBatch)>, RowFileError> {
        // Of one step, the rows of earlier files come first.
        let heads =
            self.sources.iter().enumerate().filter_map(|(place, source)| Some((source.step()?, place)));
        let Some((step, place)) = heads.min() else { return Ok(None) };
        let Some(source) = self.sources.get_mut(place) else { return Ok(None) };
        Ok(Some((step, source.take(step, self.scratch)?)))
    }
}

impl Source {
    fn open(mut batches: Batches, place: usize, scratch: &Scratch) -> Result<Option<Self>, RowFileError> {
        let Some(rows) = batches.next() else { return Ok(None) };
        let rows = rows.map_err(|error| scratch.arrow_failure(error))?;
        let steps = steps_of(&rows, place)?;
        Ok(Some(Self { batches, place, rows, steps, from: 0 }))
    }

    /// The step of the next row; none at the end.
    fn step(&self) -> Option<i128> {
        self.steps.get(self.from).copied()
    }

    /// The next rows of this step, as far as one batch has them.
    fn take(&mut self, step: i128, scratch: &Scratch) -> Result<RecordBatch, RowFileError> {
        let left = self.steps.get(self.from..).unwrap_or_default();
        let count = left.iter().take_while(|other| **other == step).count();
        let rows = self.rows.slice(self.from, count);
        self.from += count;
        while self.from >= self.steps.len() {
            let Some(next) = self.batches.next() else { break };
            self.rows = next.map_err(|error| scratch.arrow_failure(error))?;
            self.steps = steps_of(&self.rows, self.place)?;
            self.from = 0;
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, StringArray};

    /// Rows of steps that come as chance has it, numbered in the order in which they come.
    fn rows(count: usize) -> RecordBatch {
        let random = &mut fastrand::Rng::with_seed(7);
        let steps: Vec<i64> = (0..count).map(|_| random.i64(-5..40)).collect();
        let texts: Vec<String> = (0..count).map(|row| "x".repeat(row % 17)).collect();
        let columns: [(&str, ArrayRef); 3] = [
            ("step", Arc::new(Int64Array::from(steps))),
            ("row", Arc::new(Int64Array::from_iter_values(0..count as i64))),
            ("text", Arc::new(StringArray::from_iter_values(texts))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn sorted(rows: &RecordBatch, limits: Limits, pieces: usize) -> (Vec<(i128, i64, String)>, usize) {
        let scratch = Scratch::new(std::env::temp_dir());
        let mut sorter = StepSorter::new(rows.schema(), 0, scratch, limits);
        for from in (0..rows.num_rows()).step_by(pieces) {
            sorter.push(&rows.slice(from, pieces.min(rows.num_rows() - from))).unwrap();
        }
        let by_step = sorter.finish().unwrap();
        let mut read = by_step.read().unwrap();
        let mut found = Vec::new();
        while let Some((step, rows)) = read.next().unwrap() {
            let (numbers, texts) =
                (rows.column(1).as_primitive::<Int64Type>(), rows.column(2).as_string::<i32>());
            for row in 0..rows.num_rows() {
                found.push((step, numbers.value(row), texts.value(row).to_owned()));
            }
        }
        (found, by_step.runs.len())
    }

    #[test]
    fn rows_come_by_step_and_within_one_as_they_came_however_often_they_are_merged() {
        let rows = rows(3000);
        let steps = rows.column(0).as_primitive::<Int64Type>();
        let mut expected: Vec<(i128, i64, String)> =
            (0..3000).map(|row| (steps.value(row).into(), row as i64, "x".repeat(row % 17))).collect();
        expected.sort_by_key(|(step, ..)| *step);
        for (held_bytes, fan) in [(usize::MAX, 2), (20_000, 32), (2000, 2), (2000, 3), (500, 4)] {
            for pieces in [1, 7, 3000] {
                let limits = Limits { held_bytes, batch_bytes: 300, fan };
                let (found, files) = sorted(&rows, limits, pieces);
                assert_eq!(found, expected, "{held_bytes} {fan} {pieces}");
                assert!(files < fan * 12, "{files} files of {held_bytes} bytes, {fan} of which are merged");
            }
        }
    }

    #[test]
    fn of_no_rows_none_come_and_a_row_without_a_step_is_refused() {
        let rows = rows(10);
        assert_eq!(sorted(&rows.slice(0, 0), Limits::default(), 1), (vec![], 0));
        let steps: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let odd = RecordBatch::try_from_iter_with_nullable([("step", steps, true)]).unwrap();
        let mut sorter =
            StepSorter::new(odd.schema(), 0, Scratch::new(std::env::temp_dir()), Limits::default());
        sorter.push(&odd).unwrap();
        assert!(matches!(sorter.finish(), Err(RowFileError::Unsupported { .. })));
    }
}
